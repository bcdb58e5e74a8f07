// Two programs on the same inputs: what differs between them, and what is done to one is done to the other.
"use strict";

function beside(pages) {
  const [one, other] = pages;
  const rows = [];
  for (const [name, table] of one.tables) {
    if (table.tensor.hidden) continue;
    const there = other.tables.get(name);
    if (there === undefined || String(there.shape) !== String(table.shape)) {
      rows.push([name, there === undefined ? `only in ${one.data.title}` : "another shape", null]);
      continue;
    }
    const found = new Set();
    for (let offset = 0; offset < table.size; offset += 1) if (differ(table, there, offset)) found.add(offset);
    for (const page of pages) page.differing.set(name, found);
    const first = found.values().next().value;
    rows.push([name, found.size === 0 ? "the same" : `${found.size} of ${table.size} differ`, first === undefined ? null : placeOf(table.shape, first)]);
  }
  for (const [name, table] of other.tables) if (!table.tensor.hidden && !one.tables.has(name)) rows.push([name, `only in ${other.data.title}`, null]);
  one.mates = [other];
  other.mates = [one];
  for (const page of pages) page.redraw();
  markLines(one, other);
  return el("div", { class: "differences" }, el("h2", {}, "What differs"), el("table", {}, el("tbody", {}, rows.map(([name, words, place]) => el("tr", { class: words === "the same" ? "" : "some" },
    el("th", { scope: "row" }, el("code", {}, name)), el("td", {}, words), el("td", {}, place === null ? "" : ["first at ", button(label(name, place), { class: "down" }, () => one.select(name, place, true))]))))));
}

// The lines of one text that the other does not have.
function markLines(one, other) {
  const texts = [one, other].map((page) => page.data.lines.map((pieces) => pieces.filter(([, kind]) => kind !== "comment").map(([text]) => text).join("").replace(/\s+/g, " ").trim()));
  [one, other].forEach((page, n) => texts[n].forEach((text, line) => {
    if (text !== "" && !texts[1 - n].includes(text)) page.root.querySelector(`.line[data-line="${line + 1}"]`).classList.add("differs");
  }));
}

function differ(table, there, offset) {
  if (table.mask(offset) !== there.mask(offset)) return true;
  const [exact, other] = [table.tensor.exact, there.tensor.exact];
  const known = exact !== undefined && other !== undefined;
  if (known && exact[offset] === other[offset]) return false;
  const [a, b] = [Number(table.values[offset]), Number(there.values[offset])];
  if (Number.isNaN(a) || Number.isNaN(b)) return known ? exact[offset] !== other[offset] : Number.isNaN(a) !== Number.isNaN(b);
  return a !== b && !(Math.abs(a - b) <= (table.tensor.bytes === undefined ? 1e-9 : 1e-6) * Math.max(1, Math.abs(a), Math.abs(b)));
}
