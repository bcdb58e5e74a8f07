// Two programs on the same inputs: what differs between them, and what is done to one is done to the other.
"use strict";

function beside(pages) {
  const [one, other] = pages;
  one.mates = [other];
  other.mates = [one];
  markLines(one, other);
  const box = el("section", { class: "differences card", "aria-label": "What differs" });
  one.differences = box;
  compareAgain(pages);
  const first = one.firstDifference;
  if (first !== null) for (const page of pages) {
    page.stand(first.name, first.place);
    page.enter(first.name);
    page.path = [first];
    page.redraw();
  }
  return box;
}

// Cell by cell, with the numbers as they are now.
function compareAgain(pages) {
  const [one, other] = [...pages].sort((a, b) => a.number - b.number);
  const rows = [];
  one.firstDifference = null;
  const seen = (page) => [...page.tables].filter(([, table]) => !table.tensor.hidden);
  for (const [name, table] of seen(one)) {
    const there = other.tables.get(name);
    if (there === undefined || String(there.shape) !== String(table.shape)) {
      rows.push([name, there === undefined ? `only in ${one.data.title}` : "another shape", null]);
      continue;
    }
    const found = new Set();
    for (let offset = 0; offset < table.size; offset += 1) if (differ(table, there, offset)) found.add(offset);
    for (const page of pages) page.differing.set(name, found);
    const first = found.size ? placeOf(table.shape, found.values().next().value) : null;
    if (first !== null) one.firstDifference ??= { name, place: first };
    rows.push([name, first === null ? "the same" : `${found.size} of ${table.size} differ`, first]);
  }
  for (const [name] of seen(other)) if (!one.tables.has(name)) rows.push([name, `only in ${other.data.title}`, null]);
  for (const page of pages) page.refresh();
  one.differences.replaceChildren(el("h2", {}, "What differs"), el("ul", {}, rows.map(([name, words, place]) => el("li", { class: words === "the same" ? "" : "some" },
    el("code", {}, name), ` ${words}`, place === null ? "" : [", first at ", one.down(name, place, true)]))));
}

// The lines of one text that the other does not have.
function markLines(one, other) {
  const texts = [one, other].map((page) => page.data.lines.map((pieces) => pieces.filter(([, kind]) => kind !== "comment").map(([text]) => text).join("").replace(/\s+/g, " ").trim()));
  [one, other].forEach((page, n) => texts[n].forEach((text, line) => {
    page.root.querySelector(`.line[data-line="${line + 1}"]`).classList.remove("differs");
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
