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
    if (block.kind === "program") programBlock(block, root);
    if (block.kind === "question") root.append(question(block));
    if (block.kind === "words") root.append(ownWords(block));
    if (block.kind === "heads") new Heads(block).build(root);
  }
  for (const [id, field] of [["forms", "form"], ["voices", "voice"]]) {
    document.getElementById(id).addEventListener("change", (event) => {
      for (const page of PAGES) {
        page[field] = event.target.value;
        page.rows?.clear();
        page.redraw();
      }
    });
  }
  document.getElementById("reset").addEventListener("click", resetAll);
  document.getElementById("theme").addEventListener("change", (event) => theme(event.target.value));
  document.getElementById("export").addEventListener("click", exportPicture);
  document.getElementById("points").addEventListener("click", exportPoints);
  addEventListener("beforeprint", layOut);
  addEventListener("afterprint", putAway);
  document.addEventListener("keydown", stepByKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redrawAll());
  window.addEventListener("hashchange", recall);
  addEventListener("resize", fit);
  countChanges();
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

// Another size: what fits is asked again.
function fit() {
  for (const page of PAGES) {
    page.tightness.clear();
    page.drawStrip();
    page.drawPicture();
    page.drawStage();
    page.light();
  }
}

function resetAll() {
  for (const page of PAGES) page.reset();
  if (PAGES.length > 1 && PAGES[0].mates.length) compareAgain(PAGES);
  countChanges();
  activePage()?.remember();
}

function recall() {
  const found = new URLSearchParams((location.hash || DATA.opens || DATA.blocks[0]?.opens || "").replace(/^#/, ""));
  if (!["step", "cell", "set", "text", "words", "also"].some((key) => found.has(key))) return;
  for (const text of found.getAll("also")) {
    const inner = new URLSearchParams(text);
    PAGES[Number.parseInt(inner.get("program") ?? "", 10) - 1]?.recallAll(inner);
  }
  const number = (Number.parseInt(found.get("program") ?? "1", 10) || 1) - 1;
  const page = PAGES[number];
  if (page === undefined) return;
  active = number;
  page.recall(found);
}

function stepByKey(event) {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
  const page = activePage();
  if (page === undefined || event.target.closest?.("input:not([type=radio]), select, textarea")) return;
  const isTyping = event.target.closest?.("button, a, summary, canvas, input");
  const digit = /^[1-9]$/.test(event.key) ? page.own[Number(event.key) - 1] : undefined;
  const act = {
    ArrowLeft: () => page.nudge(-1), ArrowRight: () => page.nudge(1), Escape: () => page.panel.classList.remove("open"), g: () => page.toGrid(),
    ...(isTyping ? {} : { " ": () => page.play() }), ...(page.panel.classList.contains("open") && page.term >= 0 ? { ArrowUp: () => page.goTerm(page.term - 1), ArrowDown: () => page.goTerm(page.term + 1) } : {}),
    ...(digit === undefined ? {} : { [event.key]: () => page.go(digit.name) }), t: () => page.goTerm(page.term + 1), T: () => page.goTerm(page.term - 1),
  }[event.key];
  if (act === undefined || (event.target.matches?.("input[type=radio]") && event.key.startsWith("Arrow"))) return;
  event.preventDefault();
  act();
}

// --------------------------------------------------------------------- blocks

function programBlock(block, root) {
  const section = root.appendChild(el("section", { class: "program-block" }));
  if (block.pages.length > 1) section.classList.add("beside");
  const pages = block.pages.map((data) => {
    const half = block.pages.length === 1 ? section : section.appendChild(el("div", { class: "half" }, el("h2", { class: "title" }, data.title)));
    const page = new Page(data, half.appendChild(el("div")), PAGES.length);
    PAGES.push(page);
    for (const kind of ["focusin", "pointerdown"]) half.addEventListener(kind, () => { active = page.number; });
    page.build();
    if (block.opening) openAt(page, new URLSearchParams(block.opening));
    return page;
  });
  if (pages.length > 1) section.prepend(beside(pages));
}

start();
