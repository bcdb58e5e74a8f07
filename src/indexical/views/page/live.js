// Live: an input number is changed, and every definition follows, in decimals, by the page's own evaluator.
"use strict";

let longestWork = 3000; // Milliseconds; a program that takes longer is stopped, and the page says so.
const MOST_WORDED = 1 << 20; // Weights of heads that are given their words again.

Object.assign(Page.prototype, {
  // Inputs and given figures can be changed, where they are numbers.
  isOpen(name) {
    const { tensor } = this.tables.get(name);
    return tensor.role !== "definition" && tensor.kind !== "bool";
  },

  isChanged(name, offset) {
    return this.changes?.has(`${name} ${offset}`) ?? false;
  },

  // Drag sideways, turn the wheel on the chosen number, or type.
  editable(node, name, place) {
    if (!this.isOpen(name)) return;
    const now = () => Number(this.tables.get(name).at(place));
    const whole = this.tables.get(name).tensor.kind === "whole";
    node.addEventListener("pointerdown", (down) => {
      if (down.button !== 0 || down.pointerType === "touch" || Number.isNaN(now())) return;
      const before = now();
      let isDrag = false;
      const move = (event) => {
        const steps = Math.round((event.clientX - down.clientX) / 6);
        if (!isDrag && Math.abs(event.clientX - down.clientX) < 5) return;
        isDrag = true;
        event.preventDefault();
        this.change(name, place, whole ? before + Math.round(steps / 2) : Math.round((before + steps / 10) * 1e6) / 1e6);
      };
      const end = (event) => {
        removeEventListener("pointermove", move);
        removeEventListener("pointerup", end);
        if (isDrag) addEventListener("click", (click) => click.stopPropagation(), { capture: true, once: true });
        if (isDrag && event.target.closest?.("td") === null) this.select(name, place, true);
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", end);
    });
    node.addEventListener("wheel", (event) => {
      if (document.activeElement !== node || Number.isNaN(now())) return;
      event.preventDefault();
      this.change(name, place, whole ? now() - Math.sign(event.deltaY) : Math.round((now() - Math.sign(event.deltaY) / 10) * 1e6) / 1e6);
    }, { passive: false });
    node.addEventListener("dblclick", () => this.type(name, place));
    node.addEventListener("keydown", (event) => {
      if (!/^[\d.,−-]$/.test(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      this.type(name, place, event.key);
    });
  },

  // The field in the panel takes what is typed.
  type(name, place, text) {
    this.select(name, place, true);
    const field = this.panel.querySelector(".editor input");
    if (field === null) return;
    field.focus();
    if (text === undefined) field.select();
    else field.value = text;
  },

  editor(name, place) {
    if (!this.isOpen(name)) return null;
    const table = this.tables.get(name);
    const field = el("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": `another number for ${label(name, place)}`, value: Number.isNaN(Number(table.at(place))) ? "" : decimal(Number(table.at(place)), 7) });
    const problem = el("p", { class: "hint", role: "status" });
    const form = el("form", { class: "editor", onsubmit: (event) => {
      event.preventDefault();
      const value = Number(field.value.replace(",", ".").replace("−", "-"));
      const isFit = field.value.trim() !== "" && Number.isFinite(value) && (table.tensor.kind !== "whole" || Number.isInteger(value));
      problem.textContent = isFit ? "" : table.tensor.kind === "whole" ? "a whole number, please" : "a number, please";
      if (!isFit) return;
      this.focusAfter = label(name, place);
      this.change(name, place, value);
    } }, el("label", {}, "change it to ", field), button("set", { type: "submit", class: "plain" }, () => {}), problem);
    return el("div", {}, form, this.dial(name, place), el("p", { class: "hint" }, "Or drag it sideways on the stage, or type on it. Everything follows in decimals."));
  },

  // A slider for a number that stands alone: a temperature, a rate, a window.
  dial(name, place) {
    const table = this.tables.get(name);
    const start = Number(this.original?.get(name).values[0] ?? table.values[0]);
    if (table.shape.length > 0 || !Number.isFinite(start)) return null;
    const [low, high] = [Math.min(0, 2 * start), Math.max(1, 2 * start)];
    const step = table.tensor.kind === "whole" ? 1 : (high - low) / 100;
    return el("input", { type: "range", class: "dial", min: String(low), max: String(high), step: String(step), value: String(table.values[0]), "aria-label": `slider for ${name}`, oninput: (event) => {
      this.change(name, place, Number(Number(event.target.value).toPrecision(6)));
      this.panel.querySelector(".dial")?.focus();
    } });
  },

  change(name, place, value) {
    if (this.isMeasure(name)) {
      this.measure(name, value);
      return;
    }
    for (const page of [this, ...this.mates]) if (page.tables.get(name) !== undefined && page.isPlace(name, place)) page.apply([[name, place, value]]);
    if (this.mates.length) compareAgain([this, ...this.mates]);
    this.remember();
    countChanges();
  },

  // Whether the sizes of definitions are made of a number: then another one makes another text.
  isMeasure(name) {
    if (this.tables.get(name).shape.length > 0) return false;
    const seen = new Set([name]);
    for (const found of seen) for (const [other, { clauses }] of Object.entries(this.data.relation)) if (this.tables.get(other)?.shape.length === 0 && clauses.some(({ body }) => readsIn(body).some((read) => read[1] === found))) seen.add(other);
    return Object.values(this.data.relation).some(({ coordinates, clauses }) => coordinates.length > 0 && clauses.some(({ slots, ranges }) => readsIn([...slots, ...ranges]).some((read) => seen.has(read[1]))));
  },

  // A figure that sizes are made of is changed where it is written. One that was given with the page cannot be.
  measure(name, value) {
    const text = this.text ?? this.baseText();
    const found = new RegExp(`^(\\s*let\\s+${name}\\s*=\\s*)-?[\\d.]+(\\s*;)`, "mu").exec(text);
    const isWritten = found !== null && this.write(text.slice(0, found.index) + found[0].replace(found[0].slice(found[1].length, found[0].length - found[2].length), String(value)) + text.slice(found.index + found[0].length));
    if (isWritten) {
      this.field.value = this.text ?? this.baseText();
      this.remember();
    } else if (found === null) this.caption.replaceChildren(`How many points there are depends on ${name}; `, el("code", {}, "ix show"), " takes another one.");
  },

  apply(list) {
    this.keepOriginal();
    this.changes ??= new Map();
    for (const [name, place, value] of list) {
      const table = this.tables.get(name);
      const offset = table.offset(place);
      table.values[offset] = value;
      if (this.original.get(name).values[offset] === value) this.changes.delete(`${name} ${offset}`);
      else this.changes.set(`${name} ${offset}`, { name, place, value });
    }
    if (this.changes.size === 0) {
      this.restore();
      this.afterChange();
      return;
    }
    for (const table of this.tables.values()) for (const form of ["exact", "structural", "named"]) delete table.tensor[form];
    this.verdicts = new Map();
    const problem = this.relation.again(this.steps.map((step) => step.name), longestWork);
    if (problem === "") this.afterChange();
    else {
      this.restore();
      this.afterChange();
      this.caption.replaceChildren(`${problem}. The numbers are as they were; `, el("code", {}, "ix show"), " takes others.");
    }
  },

  keepOriginal() {
    this.original ??= new Map([...this.tables].map(([name, table]) => {
      const { exact, structural, named } = table.tensor;
      return [name, { values: table.values.slice(), mask: table.mask, known: table.known, exact, structural, named }];
    }));
    this.claimed ??= this.verdicts;
  },

  // Everything as the page was made.
  reset() {
    for (const name of [...(this.words?.keys() ?? [])]) this.wordFields.get(name).call(undefined);
    if (this.text === undefined && this.original === undefined) return;
    this.restore();
    if (this.text !== undefined) this.unwrite();
    else this.afterChange();
  },

  // The numbers of the program as they were.
  restore() {
    if (this.original === undefined) return;
    for (const [name, { values, mask, exact, structural, named }] of this.original) {
      const table = this.tables.get(name);
      Object.assign(table, { values: values.slice(), mask, known: undefined, names: undefined });
      for (const [form, texts] of Object.entries({ exact, structural, named })) {
        if (texts === undefined) delete table.tensor[form];
        else table.tensor[form] = texts;
      }
    }
    this.changes = new Map();
    this.verdicts = this.claimed;
  },

  afterChange() {
    this.version = (this.version ?? 0) + 1;
    this.wordAgain();
    this.traces?.clear();
    this.rows?.clear();
    this.heardRows?.clear();
    for (const table of this.tables.values()) Object.assign(table, { known: undefined, decimals: undefined, painted: undefined });
    this.redraw();
  },

  // The words for heads follow their numbers.
  wordAgain() {
    for (const gather of this.data.communication.filter((entry) => entry.tensor !== null)) {
      gather.made ??= { heads: gather.heads, words: gather.words };
      const table = this.tables.get(gather.tensor.name);
      Object.assign(gather, (this.changes?.size ?? 0) === 0 ? gather.made : table.size <= MOST_WORDED ? patternsOf(table, gather.tensor) : { words: {} });
    }
  },

  changesText() {
    const text = this.text === undefined ? [] : [`text=${encodeURIComponent(this.text).replaceAll("%20", "+")}`];
    const words = [...(this.words ?? [])].map(([name, found]) => `words=${encodeURIComponent(`${name}:${found.join(" ")}`).replaceAll("%20", "+")}`);
    const numbers = [...(this.changes?.values() ?? [])].map(({ name, place, value }) => `set=${label(name, place).replaceAll(" ", "")}:${value}`);
    return [...text, ...words, ...numbers];
  },

  recallChanges(texts) {
    const found = texts.map((text) => /^([^[\]:]+)(?:\[([\d,]*)\])?:(-?[\d.]+(?:e-?\d+)?)$/u.exec(text)).filter((match) => match !== null)
      .map(([, name, place, value]) => [name, (place ?? "").split(",").filter((part) => part !== "").map(Number), Number(value)])
      .filter(([name, place, value]) => this.isPlace(name, place) && this.isOpen(name) && Number.isFinite(value));
    if (found.length) this.apply(found);
    countChanges();
  },
});

function countChanges() {
  const count = PAGES.reduce((sum, page) => sum + (page.changes?.size ?? 0) + (page.text === undefined ? 0 : 1) + (page.words?.size ?? 0), 0);
  const reset = document.getElementById("reset");
  reset.disabled = count === 0;
  reset.textContent = count === 0 ? "Reset" : `Reset ${count}`;
  for (const input of document.querySelectorAll("#forms input:not([value=decimal])")) input.disabled = PAGES.some((page) => page.text !== undefined || page.changes?.size > 0) || !DATA.exact;
}
