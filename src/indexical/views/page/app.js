// Start: the data of the page, its switches, the questions of a lesson, two programs side by side, and the picture.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const PAGES = [];

function start() {
  theme(localStorageGet("indexical-theme") ?? "auto");
  const root = document.getElementById("page");
  DATA.blocks.forEach((block) => {
    if (block.kind === "prose") root.append(prose(block));
    if (block.kind === "program") root.append(programBlock(block));
    if (block.kind === "question") root.append(question(block));
  });
  document.getElementById("forms").addEventListener("change", (event) => {
    for (const page of PAGES) {
      page.form = event.target.value;
      page.refresh();
    }
  });
  document.getElementById("theme").addEventListener("change", (event) => theme(event.target.value));
  document.getElementById("export").addEventListener("click", exportPicture);
  document.addEventListener("keydown", stepByKey);
  window.addEventListener("hashchange", () => PAGES[0]?.recall(location.hash));
  if (location.hash.includes("step=") || location.hash.includes("cell=")) PAGES[0]?.recall(location.hash);
  if (!DATA.exact) for (const input of document.querySelectorAll("#forms input:not([value=decimal])")) input.disabled = true;
}

function localStorageGet(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // A page that was opened from a file may have no storage.
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
  for (const page of PAGES) page.refresh();
}

function stepByKey(event) {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key !== "Escape" && event.target.closest("input, select, textarea, table, canvas, [role=tablist]")) return;
  const page = PAGES[0];
  const act = { ArrowLeft: () => page.go(page.step - 1), ArrowRight: () => page.go(page.step + 1), ArrowUp: () => page.goTerm(page.term - 1), ArrowDown: () => page.goTerm(page.term + 1), Escape: () => page.go(-1) }[event.key];
  if (page === undefined || act === undefined) return;
  event.preventDefault();
  act();
}

// -------------------------------------------------------------------- blocks

// The prose of a lesson: a tree of a few kinds of nodes, each of them text.
function prose(block) {
  return el("div", { class: "prose" }, block.nodes.map(node));
}

function node(found) {
  if (typeof found === "string") return found;
  const [kind, ...inside] = found;
  const tags = { p: "p", h1: "h1", h2: "h2", h3: "h3", ul: "ul", ol: "ol", li: "li", em: "em", strong: "strong", code: "code", pre: "pre", quote: "blockquote" };
  return el(tags[kind] ?? "span", {}, inside.map(node));
}

function programBlock(block) {
  const section = el("section", { class: "program-block" });
  if (block.pages.length === 1) {
    const page = new Page(block.pages[0], section, PAGES.length);
    PAGES.push(page);
    page.build();
    return section;
  }
  section.classList.add("beside");
  const pages = block.pages.map((data) => {
    const side = el("div", { class: "side" }, el("h2", {}, data.title));
    section.append(side);
    const page = new Page(data, side, PAGES.length);
    PAGES.push(page);
    page.build();
    return page;
  });
  section.prepend(differences(pages));
  return section;
}

// ------------------------------------------------------------- two programs

function differences([one, other]) {
  const rows = [];
  for (const [name, table] of one.tables) {
    const there = other.tables.get(name);
    if (there === undefined || table.tensor.hidden) continue;
    if (String(there.shape) !== String(table.shape)) {
      rows.push([name, "another shape", ""]);
      continue;
    }
    const found = [];
    for (let offset = 0; offset < table.size; offset += 1) if (differ(table, there, offset)) found.push(offset);
    for (const page of [one, other]) page.differing = (page.differing ?? new Map()).set(name, new Set(found));
    rows.push([name, found.length === 0 ? "the same" : `${found.length} of ${table.size} differ`, found.length ? label(name, placeOf(table.shape, found[0])) : ""]);
  }
  for (const page of [one, other]) {
    const draw = page.draw.bind(page);
    page.draw = (name) => {
      draw(name);
      const figure = page.figures.get(name);
      const table = page.tables.get(name);
      for (const offset of page.differing?.get(name) ?? []) {
        figure?.querySelector(`[data-cell="${CSS.escape(label(name, placeOf(table.shape, offset)))}"]`)?.classList.add("differs");
      }
    };
    page.refresh();
    const select = page.select.bind(page);
    const mate = page === one ? other : one;
    page.select = (name, place, fresh) => {
      select(name, place, fresh);
      const table = mate.tables.get(name);
      if (table !== undefined && place.every((at, axis) => at < table.shape[axis])) Page.prototype.select.call(mate, name, place, fresh);
    };
  }
  return el("div", { class: "differences" }, el("h2", {}, "What differs"), el("table", {}, el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, row[0]), el("td", {}, row[1]), el("td", {}, row[2] ? `first at ${row[2]}` : ""))))));
}

function differ(table, there, offset) {
  if (table.mask(offset) !== there.mask(offset)) return true;
  const { exact } = table.tensor;
  const other = there.tensor.exact;
  if (exact !== undefined && other !== undefined && exact[offset] === other[offset]) return false;
  const [a, b] = [Number(table.values[offset]), Number(there.values[offset])];
  if (Number.isNaN(a) || Number.isNaN(b)) return exact !== undefined && other !== undefined ? exact[offset] !== other[offset] : Number.isNaN(a) !== Number.isNaN(b);
  return Math.abs(a - b) > 1e-9 * Math.max(1, Math.abs(a), Math.abs(b));
}

// ----------------------------------------------------------------- questions

// A typed answer is checked as a published figure is: a decimal claims half a unit of its last digit on either side.
function question(block) {
  const page = () => PAGES[block.program] ?? PAGES[0];
  const verdict = el("p", { class: "answer", role: "status" });
  if (block.answer === null) {
    return el("details", { class: "question" }, el("summary", {}, block.prompt), el("div", { class: "prose" }, block.reveal.map(node)));
  }
  const input = el("input", { type: "text", autocomplete: "off", "aria-label": "your answer" });
  const form = el("form", {
    class: "question",
    onsubmit: (event) => {
      event.preventDefault();
      const typed = input.value.split(/[\s,;]+/).filter((part) => part !== "");
      const right = typed.length === block.answer.length && typed.every((text, n) => isRight(text, block.answer[n]));
      form.dataset.right = String(right);
      verdict.replaceChildren(right ? "Right. " : "Not yet. ", el("button", {
        type: "button", onclick: () => {
          page().select(block.name, block.place, true);
          page().panel.scrollIntoView({ block: "nearest" });
        },
      }, "show how it comes about"));
    },
  }, el("label", {}, block.prompt, " ", input), el("button", { type: "submit" }, "check"), verdict);
  return form;
}

function isRight(text, answer) {
  const fraction = /^(-?\d+)\/(\d+)$/.exec(text);
  if (fraction) return Math.abs(Number(fraction[1]) / Number(fraction[2]) - answer) <= 1e-12 * Math.max(1, Math.abs(answer));
  if (!/^-?\d+(\.\d+)?$/.test(text)) return false;
  const places = text.includes(".") ? text.length - text.indexOf(".") - 1 : 0;
  const room = places ? 0.5 * 10 ** -places : 0;
  return Math.abs(Number(text) - answer) <= room + 1e-12 * Math.max(1, Math.abs(answer));
}

// ------------------------------------------------------------------- picture

// The matrices as they are drawn now, as one SVG file.
function exportPicture() {
  const picture = pictureOf(PAGES[0]);
  const link = el("a", { href: URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" })), download: "indexical.svg" });
  document.body.append(link);
  link.click();
  link.remove();
}

function pictureOf(page) {
  const style = getComputedStyle(document.documentElement);
  const colour = (key) => style.getPropertyValue(key).trim();
  const picture = svg("svg", { xmlns: "http://www.w3.org/2000/svg", "font-family": "system-ui, sans-serif", "font-size": "12" });
  let top = 0;
  let right = 0;
  for (const [name, figure] of page.figures) {
    const table = figure.querySelector("table");
    picture.append(svg("text", { x: 8, y: top + 20, "font-weight": "bold", fill: colour("--ink") }, figure.querySelector("figcaption code").textContent));
    top += 30;
    if (table === null) {
      const canvas = figure.querySelector("canvas");
      if (canvas !== null) picture.append(svg("image", { x: 8, y: top, width: canvas.width, height: canvas.height, href: canvas.toDataURL() }));
      top += (canvas?.height ?? 0) + 16;
      right = Math.max(right, canvas?.width ?? 0);
      continue;
    }
    const rows = [...table.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td.cell")]);
    const width = Math.max(44, ...rows.flat().map((cell) => cell.textContent.length * 7 + 10));
    rows.forEach((row, y) => row.forEach((cell, x) => {
      const masked = cell.classList.contains("masked");
      const part = Number(cell.style.getPropertyValue("--v")) || 0;
      const fill = masked ? colour("--paper") : hex(mixed(rgb(colour("--paper")), rgb(colour(cell.classList.contains("negative") ? "--minus" : "--plus")), 0.75 * part));
      const now = cell.classList.contains("now-cell") || cell.classList.contains("read-cell");
      picture.append(svg("rect", { x: 8 + x * width, y: top + y * 22, width, height: 22, fill, stroke: now ? colour("--mark") : colour("--rule"), "stroke-width": now ? 2 : 1, "stroke-dasharray": masked ? "2 3" : "none" }),
        svg("text", { x: 8 + (x + 0.5) * width, y: top + y * 22 + 15, "text-anchor": "middle", fill: colour("--ink") }, cell.textContent));
    }));
    top += rows.length * 22 + 16;
    right = Math.max(right, (rows[0]?.length ?? 0) * width);
    void name;
  }
  picture.setAttribute("viewBox", `0 0 ${right + 16} ${top}`);
  picture.setAttribute("width", String(right + 16));
  picture.setAttribute("height", String(top));
  picture.prepend(svg("rect", { width: "100%", height: "100%", fill: colour("--paper") }));
  return picture;
}

const hex = (parts) => `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;

start();
