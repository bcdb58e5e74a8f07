// Start: the data of the page, its blocks, its switches and its keys.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const PAGES = [];
let active = 0; // The program that was touched last: keys and the picture are about it.

const activePage = () => PAGES[active];

function start() {
  theme(stored() ?? "auto");
  const root = document.getElementById("page");
  for (const block of DATA.blocks) {
    if (block.kind === "prose") root.append(prose(block));
    if (block.kind === "program") root.append(programBlock(block));
    if (block.kind === "question") root.append(question(block));
  }
  document.getElementById("forms").addEventListener("change", (event) => {
    for (const page of PAGES) {
      page.form = event.target.value;
      page.redraw();
    }
  });
  document.getElementById("theme").addEventListener("change", (event) => theme(event.target.value));
  document.getElementById("export").addEventListener("click", exportPicture);
  document.addEventListener("keydown", stepByKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redrawAll());
  window.addEventListener("hashchange", recall);
  recall();
  if (DATA.exact) return;
  for (const input of document.querySelectorAll("#forms input:not([value=decimal])")) input.disabled = true;
  document.getElementById("forms").title = PAGES[0]?.data.whyNotExact ?? "";
}

// ------------------------------------------------------------------- switches

function stored() {
  try {
    return ["auto", "light", "dark"].find((choice) => choice === localStorage.getItem("indexical-theme"));
  } catch {
    return undefined; // A page that was opened from a file may have no storage.
  }
}

function theme(choice) {
  document.documentElement.dataset.theme = choice;
  document.getElementById("theme").value = choice;
  try {
    localStorage.setItem("indexical-theme", choice);
  } catch {
    // Then the choice lasts as long as the page.
  }
  redrawAll();
}

// Colours on a canvas do not follow the theme by themselves.
function redrawAll() {
  for (const page of PAGES) page.redraw();
}

// --------------------------------------------------------------------- places

function recall() {
  const found = new URLSearchParams(location.hash.replace(/^#/, ""));
  if (!found.has("step") && !found.has("cell")) return;
  const number = (Number.parseInt(found.get("program") ?? "1", 10) || 1) - 1;
  const page = PAGES[number];
  if (page === undefined) return;
  active = number;
  page.recall(found);
  if (number > 0) page.root.scrollIntoView();
}

function stepByKey(event) {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key !== "Escape" && event.target.closest?.("input, select, textarea, [role=grid], canvas, [role=tablist]")) return;
  const page = activePage();
  if (page === undefined) return;
  const isInside = page.step >= 0 || page.path.length > 0; // Else up and down scroll.
  const act = {
    ArrowLeft: () => page.go(page.step - 1), ArrowRight: () => page.go(page.step + 1), Escape: () => page.go(-1),
    ...(isInside ? { ArrowUp: () => page.goTerm(page.term - 1), ArrowDown: () => page.goTerm(page.term + 1) } : {}),
  }[event.key];
  if (act === undefined) return;
  event.preventDefault();
  act();
}

// --------------------------------------------------------------------- blocks

function programBlock(block) {
  const section = el("section", { class: "program-block" });
  const pages = block.pages.map((data) => {
    const side = block.pages.length === 1 ? section : section.appendChild(el("div", { class: "side" }, el("h2", {}, data.title)));
    const page = new Page(data, side, PAGES.length);
    PAGES.push(page);
    for (const kind of ["focusin", "pointerdown"]) side.addEventListener(kind, () => { active = page.number; });
    page.build();
    return page;
  });
  if (pages.length === 1) return section;
  section.classList.add("beside");
  section.prepend(beside(pages));
  return section;
}

start();
