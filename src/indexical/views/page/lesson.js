// A lesson: its prose, in which elements are links to their cells, and words of the reader's own.
"use strict";

const TAGS = { p: "p", h1: "h1", h2: "h2", h3: "h3", ul: "ul", ol: "ol", li: "li", em: "em", strong: "strong", code: "code", pre: "pre", quote: "blockquote", table: "table", tr: "tr", th: "th", td: "td" };

// The prose of a lesson: a tree of a few kinds of nodes, each of them text.
function prose(block) {
  return el("div", { class: "prose" }, block.nodes.map(node));
}

function node(found) {
  if (typeof found === "string") return found;
  const [kind, ...inside] = found;
  if (kind === "cell") return cellLink(inside[0], inside[1], inside[2], inside[3]);
  if (kind === "a") return placeLink(inside[0], inside[1], inside.slice(2).map(node));
  return el(Object.hasOwn(TAGS, kind) ? TAGS[kind] : "span", {}, inside.map(node));
}

// ---------------------------------------------------------------------- links

// `weights[2, 2]` leads to that cell, a row to its first cell, and `weights` to its step.
function cellLink(number, name, place, text) {
  const first = (page) => [...place, ...page.tables.get(name).shape.slice(place.length).map(() => 0)];
  const address = place.length ? `cell=${name}[${place.join(",")}]` : `cell=${name}`;
  return led(number, address, el("code", {}, text), (page) => {
    if (place.length === 0 && page.tables.get(name).shape.length > 0) {
      page.go(name);
      return;
    }
    if (page.steps.some((step) => step.name === name)) page.enter(name);
    page.select(name, first(page), true);
  });
}

// A link that sets the step, the cell and the inputs, written as an address of this page is.
function placeLink(number, address, words) {
  const found = new URLSearchParams(address);
  return led(number, address, words, (page) => {
    if (found.has("set") || found.has("reset")) page.reset();
    page.recall(found);
    countChanges();
    page.remember();
  });
}

// A link into a program, and the way back to the text where the page has moved.
function led(number, address, words, act) {
  const own = number > 0 && !address.startsWith("program=") ? `program=${number + 1}&` : "";
  const link = el("a", { href: `#${own}${address}`, onclick: (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const page = PAGES[number];
    active = number;
    act(page);
    if (!isInView(page)) page.zones.scrollIntoView({ block: "center", behavior: isStill() ? "auto" : "smooth" });
    wayBack(link);
  } }, words);
  return link;
}

function isInView(page) {
  const box = (page.zones.querySelector(".chosen") ?? page.zones).getBoundingClientRect();
  return page.zones.querySelector(".chosen") !== null || (box.top < innerHeight - 80 && box.bottom > 80);
}

function wayBack(link) {
  document.querySelector(".to-text")?.remove();
  const back = button("↩ back to the text", { class: "to-text" }, () => {
    back.remove();
    for (const page of PAGES) page.panel.classList.remove("open");
    link.scrollIntoView({ block: "center", behavior: isStill() ? "auto" : "smooth" });
    link.focus({ preventScroll: true });
  });
  document.body.append(back);
}

// A program opens at the step, the cell and the numbers that its block says; nothing scrolls.
function openAt(page, found) {
  page.recallChanges(found.getAll("set"));
  const step = page.own[Number.parseInt(found.get("step") ?? "", 10) - 1];
  const cell = readCell(found.get("cell") ?? "");
  if (cell !== null && page.isPlace(cell.name, cell.place)) page.stand(cell.name, cell.place);
  const scene = step?.name ?? (page.steps.some((entry) => entry.name === cell?.name) ? cell.name : undefined);
  if (scene !== undefined) page.enter(scene);
  page.path = [cell ?? { name: page.scene, place: page.placeOn(page.scene) }];
  page.redraw();
}

function readCell(text) {
  const found = /^([^[\]]+)(?:\[([\d,\s]*)\])?$/u.exec(text);
  return found === null ? null : { name: found[1], place: (found[2] ?? "").split(",").filter((part) => part.trim() !== "").map(Number) };
}

// ---------------------------------------------------------------------- words

// Words of the reader's own for the points of a coordinate: as many as there are.
function ownWords(block) {
  const page = PAGES[block.program];
  const said = el("p", { class: "answer", role: "status" });
  const before = page.data.labels[block.names[0]];
  const input = el("input", { type: "text", autocomplete: "off", "aria-label": `${block.count} words`, placeholder: (before ?? []).join(" ") });
  // Undefined: the words that the lesson has.
  const call = (words) => {
    const found = words?.map((word) => word.slice(0, 24)) ?? before;
    for (const name of block.names) {
      if (found === undefined) delete page.data.labels[name];
      else page.data.labels[name] = found;
    }
    page.words ??= new Map();
    if (words === undefined) page.words.delete(block.names[0]);
    else page.words.set(block.names[0], found);
    input.value = words?.join(" ") ?? "";
    page.afterChange();
    countChanges();
  };
  page.wordFields ??= new Map();
  page.wordFields.set(block.names[0], { count: block.count, call });
  return el("form", { class: "question words", onsubmit: (event) => {
    event.preventDefault();
    const words = input.value.split(/\s+/).filter((word) => word !== "");
    const isFit = words.length === block.count || words.length === 0;
    said.textContent = isFit ? "" : `There are places for ${block.count} words, and this is ${words.length === 1 ? "one" : words.length}.`;
    if (!isFit) return;
    call(words.length ? words : undefined);
    page.remember();
  } }, el("label", {}, el("span", { class: "prompt" }, block.prompt.map(node)), input), button("use them", { type: "submit" }, () => {}), said);
}
