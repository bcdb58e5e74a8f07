// The matrices: tables with numbers where there is room, colours on a canvas where there is not.
"use strict";

const MOST_CELLS = 1600; // A larger matrix is drawn on a canvas.
const MOST_TABS = 16; // More points of a leading coordinate are chosen by number.
const LONGEST = 90; // A longer form is cut in its cell; it is whole in the working.

Object.assign(Page.prototype, {
  matricesView() {
    const { tensors } = this.data;
    const shown = tensors.filter((tensor) => !tensor.hidden);
    const hidden = this.broughtAlong();
    const why = this.data.whyNotExact ? el("p", { class: "why-not-exact" }, `Decimals only: ${this.data.whyNotExact}.`) : null;
    this.matrices = el("div", { class: "matrices" }, shown.map((tensor) => this.figure(tensor)));
    if (hidden.length === 0) return [why, this.matrices];
    this.inside = el("details", { class: "inside", ontoggle: () => this.openInside() },
      el("summary", {}, `What functions brought along: ${hidden.length === 1 ? "1 matrix" : `${hidden.length} matrices`}`), el("div", { class: "matrices" }));
    return [why, this.matrices, this.inside];
  },

  broughtAlong() {
    return this.data.tensors.filter((tensor) => tensor.hidden && tensor.role === "definition");
  },

  // What a function brought along is drawn when it is asked for.
  openInside() {
    const room = this.inside.querySelector(".matrices");
    this.inside.open = true;
    if (room.childElementCount > 0) return;
    const hidden = this.broughtAlong();
    room.append(...hidden.map((tensor) => this.figure(tensor)));
    for (const tensor of hidden) this.draw(tensor.name);
    this.mark();
  },

  figure(tensor) {
    this.lead.set(tensor.name, tensor.shape.slice(0, -2).map(() => 0));
    const id = `tensor-${this.number}-${tensor.name}`;
    const home = el("code", { id: `${id}-name` }, tensor.name, tensor.coordinates.length ? ["[", joined(tensor.coordinates.map((name) => this.coordinate(name))), "]"] : null);
    const shape = `${tensor.shape.join(" × ") || "one number"}, ${ROLES[tensor.role]}`;
    const figure = el("figure", { class: `tensor ${tensor.role}`, id, "data-tensor": tensor.name },
      el("figcaption", {}, home, " ", el("small", {}, shape), el("span", { class: "fate", "aria-hidden": "true" }), this.boundary(tensor)),
      this.tabs(tensor, id), el("div", { class: "grid", id: `${id}-grid` }));
    this.figures.set(tensor.name, figure);
    return figure;
  },

  boundary(tensor) {
    const functions = this.data.ended[tensor.name];
    if (functions === undefined) return null;
    return el("div", { class: "boundary" }, `exactness ends here: ${functions.join(", ")} from here on by name and proven digits`);
  },

  // Batch, head and every other leading coordinate, as tabs.
  tabs(tensor, id) {
    const axes = tensor.shape.slice(0, -2).map((size, axis) => {
      const name = tensor.coordinates[axis];
      const choose = (at) => this.setLead(tensor.name, axis, at);
      if (size > MOST_TABS) {
        return el("label", { class: "lead" }, this.coordinate(name), " = ", el("input", {
          type: "number", min: "0", max: String(size - 1), value: "0", "data-axis": axis, oninput: (event) => choose(Number(event.target.value)),
        }));
      }
      return el("div", { class: "lead", role: "tablist", "aria-label": name, onkeydown: (event) => walkTabs(event) }, this.coordinate(name),
        Array.from({ length: size }, (_, n) => button(this.called(name, n), {
          role: "tab", "data-axis": axis, "data-at": n, "aria-controls": `${id}-grid`, "aria-label": `${name} = ${this.called(name, n)}`,
        }, () => choose(n))));
    });
    return axes.length ? el("div", { class: "leads" }, axes) : null;
  },

  // A leading coordinate is turned in every matrix that has it.
  setLead(name, axis, at) {
    const table = this.tables.get(name);
    if (!(Number.isInteger(at) && at >= 0 && at < table.shape[axis])) return;
    for (const page of [this, ...this.mates]) page.turn(table.tensor.coordinates[axis], at);
  },

  turn(coordinate, at) {
    this.turnTo({ [coordinate]: at });
    this.mark(false);
  },

  // Every matrix, and who listens to whom, at these points of its leading coordinates.
  turnTo(point) {
    for (const [name, lead] of this.lead) {
      const { shape, tensor } = this.tables.get(name);
      const turned = lead.map((at, axis) => (point[tensor.coordinates[axis]] < shape[axis] ? point[tensor.coordinates[axis]] : at));
      if (String(turned) === String(lead)) continue;
      this.lead.set(name, turned);
      this.draw(name);
    }
    const apart = this.talk?.gather.apart.filter((name) => point[name] !== undefined && point[name] !== this.talk.apart[name]) ?? [];
    for (const name of apart) this.talk.apart[name] = point[name];
    const asks = this.talk?.single ? point[this.talk.gather.query] ?? this.talk.asks : this.talk?.asks;
    if (apart.length === 0 && asks === this.talk?.asks) return;
    this.talk.asks = asks;
    this.drawTalk();
  },

  draw(name) {
    const figure = this.figures.get(name);
    if (figure === undefined) return;
    const table = this.tables.get(name);
    const lead = this.lead.get(name);
    for (const tab of figure.querySelectorAll("[role=tab]")) {
      const chosen = lead[Number(tab.dataset.axis)] === Number(tab.dataset.at);
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    for (const input of figure.querySelectorAll("input[data-axis]")) if (document.activeElement !== input) input.value = String(lead[Number(input.dataset.axis)]);
    const grid = figure.querySelector(".grid");
    const [rows, columns] = [table.shape.length > 1 ? table.shape.at(-2) : 1, table.shape.length ? table.shape.at(-1) : 1];
    if (rows * columns === 0 || table.size === 0) grid.replaceChildren(el("p", { class: "hint" }, "no points"));
    else if (rows * columns > MOST_CELLS) grid.replaceChildren(this.heat(name, table, lead, rows, columns));
    else grid.replaceChildren(this.grid(name, table, lead, rows, columns));
  },

  placeIn(table, lead, row, column) {
    return table.shape.length === 0 ? [] : table.shape.length === 1 ? [column] : [...lead, row, column];
  },

  // ------------------------------------------------------------------ tables

  // One stop for the Tab key; arrow keys walk inside.
  grid(name, table, lead, rows, columns) {
    const coordinates = table.tensor.coordinates;
    const across = coordinates.at(-1);
    const down = coordinates.length > 1 ? coordinates.at(-2) : null;
    const words = this.rowWords(name, lead);
    const axis = (coordinate, n, scope) => el("th", { scope, class: `axis c${this.colours.get(bare(coordinate)) ?? ""}`, title: `${coordinate} = ${n}` }, this.called(coordinate, n));
    const head = across === undefined ? null : el("thead", {}, el("tr", {},
      el("td", { class: "corner" }, down === null ? null : [this.coordinate(down), " "], this.coordinate(across)),
      Array.from({ length: columns }, (_, n) => axis(across, n, "col")), words === null ? null : el("td", {})));
    const body = Array.from({ length: rows }, (_, row) => el("tr", {}, across === undefined ? null : down === null ? el("td", {}) : axis(down, row, "row"),
      Array.from({ length: columns }, (_, column) => this.cell(name, table, this.placeIn(table, lead, row, column), row === 0 && column === 0)),
      words === null ? null : el("td", { class: "row-word" }, words[row] ?? "")));
    return el("table", { class: this.form, role: "grid", "aria-readonly": "true", onkeydown: (event) => this.walk(event) },
      el("caption", { class: "unseen" }, `values of ${label(name, coordinates)}${lead.map((at, n) => `, ${coordinates[n]} = ${at}`).join("")}`), head, el("tbody", {}, body));
  },

  // A word for every row, where the rows of this matrix are queries and its columns keys.
  rowWords(name, lead) {
    const gather = this.data.communication.find((entry) => entry.tensor?.name === name);
    if (gather === undefined || gather.words.length === undefined) return null;
    const { query, key, coordinates } = gather.tensor;
    if (query !== coordinates.length - 2 || key !== coordinates.length - 1) return null;
    return lead.reduce((words, at) => words[at], gather.words);
  },

  cell(name, table, place, first) {
    const offset = table.offset(place);
    const masked = table.mask(offset);
    const value = Number(table.values[offset]);
    const text = this.textOf(table, offset);
    const verdicts = this.verdicts.get(label(name, place)) ?? [];
    const worst = worstOf(verdicts);
    const differs = this.differing.get(name)?.has(offset) ?? false;
    const said = [`${label(name, place)} ${masked ? "is masked" : `= ${text}`}`, ...verdicts.map(({ cell }) => `claimed ${cell.claimed}: ${VERDICTS[cell.verdict]}`), ...(differs ? ["differs"] : [])];
    const node = el("td", {
      class: ["cell", masked ? "masked" : "", worst ? `verdict ${worst}` : "", !masked && table.isNamed(offset) ? "outside" : "", differs ? "differs" : "", value < 0 ? "negative" : ""].filter(Boolean).join(" "),
      tabindex: first ? "0" : "-1", "data-cell": label(name, place), "aria-label": said.join(", "),
      title: verdicts.length ? verdicts.map(({ cell }) => verdictText(cell)).join("\n") : said[0], onclick: () => this.select(name, place, true),
    }, masked ? "" : breakable(text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text));
    if (!masked && Number.isFinite(value)) node.style.setProperty("--v", String(Math.abs(value) / mostOf(table)));
    return node;
  },

  textOf(table, offset) {
    const { exact, structural } = table.tensor;
    const value = table.values[offset];
    if (exact !== undefined && this.form === "structural") return (structural ?? exact)[offset];
    if (exact !== undefined && (this.form === "exact" || Number.isNaN(Number(value)))) return exact[offset];
    return decimal(value);
  },

  walk(event) {
    const cell = event.target.closest("td.cell");
    if (cell === null) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      cell.click();
      return;
    }
    const rows = [...cell.closest("tbody").rows].map((row) => [...row.querySelectorAll("td.cell")]);
    const [row, column] = [rows.findIndex((cells) => cells.includes(cell)), [...cell.parentElement.querySelectorAll("td.cell")].indexOf(cell)];
    const next = {
      ArrowLeft: () => rows[row][column - 1], ArrowRight: () => rows[row][column + 1], ArrowUp: () => rows[row - 1]?.[column], ArrowDown: () => rows[row + 1]?.[column],
      Home: () => rows[row][0], End: () => rows[row].at(-1), PageUp: () => rows[0][column], PageDown: () => rows.at(-1)[column],
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const found = next();
    if (found === undefined) return;
    for (const other of rows.flat()) other.tabIndex = -1;
    found.tabIndex = 0;
    found.focus();
  },

  // ------------------------------------------------------------------ canvas

  // One pixel for each cell, made larger; marks lie on a second canvas above.
  heat(name, table, lead, rows, columns) {
    const scale = (count, least) => Math.max(1, Math.min(least, Math.floor(512 / count)));
    const [width, height] = [columns * scale(columns, 24), rows * scale(rows, columns < 32 ? 24 : Math.max(1, Math.floor(512 / columns)))];
    const size = `width: ${width}px; aspect-ratio: ${width} / ${height}`;
    const canvas = el("canvas", { width: columns, height: rows, class: "heat", style: size, tabindex: "0", role: "img", "aria-label": `${name}, ${rows} × ${columns}, drawn as colours; arrow keys read a cell, Enter chooses it` });
    const marks = el("canvas", { width, height, class: "marks", style: size, "aria-hidden": "true" });
    const [low, high] = table.range();
    const told = el("output", { class: "told" }, `${decimal(low)} to ${decimal(high)}; point at a cell to read it`);
    const start = table.shape.length === 1 ? 0 : table.offset([...lead, 0, 0]);
    paint(canvas, table, start, rows, columns);
    const placeAt = (event) => {
      const box = canvas.getBoundingClientRect();
      const within = (part, count) => Math.min(count - 1, Math.max(0, Math.floor(part * count)));
      return this.placeIn(table, lead, within((event.clientY - box.top) / box.height, rows), within((event.clientX - box.left) / box.width, columns));
    };
    const tell = (place) => {
      const offset = table.offset(place);
      told.textContent = `${label(name, place)} ${table.mask(offset) ? "is masked" : `= ${decimal(table.values[offset], 7)}`}`;
    };
    canvas.addEventListener("mousemove", (event) => tell(placeAt(event)));
    canvas.addEventListener("click", (event) => this.select(name, placeAt(event), true));
    let cursor = 0;
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.select(name, placeOf(table.shape, start + cursor), true);
      const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -(cursor % columns), End: columns - 1 - (cursor % columns) }[event.key];
      if (move === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      if (cursor + move >= 0 && cursor + move < rows * columns) cursor += move;
      tell(placeOf(table.shape, start + cursor));
      this.mark(false);
      this.outline(marks, table, [placeOf(table.shape, start + cursor)], "--c0");
    });
    return el("div", { class: "heat-room", style: `width: max(13rem, ${width}px)` }, canvas, marks, told);
  },

  outline(marks, table, places, colour) {
    const context = marks.getContext("2d");
    const [rows, columns] = [table.shape.length > 1 ? table.shape.at(-2) : 1, table.shape.at(-1)];
    const [wide, tall] = [marks.width / columns, marks.height / rows];
    context.fillStyle = themeColour(colour);
    for (const place of places) {
      const [x, y] = [place.at(-1) * wide, (place.length > 1 ? place.at(-2) : 0) * tall];
      const [w, h] = [Math.max(wide, 4), Math.max(tall, 4)];
      for (const [dx, dy, dw, dh] of [[0, 0, w, 1], [0, h - 1, w, 1], [0, 0, 1, h], [w - 1, 0, 1, h]]) context.fillRect(x + (wide - w) / 2 + dx, y + (tall - h) / 2 + dy, dw, dh);
    }
  },

  // ------------------------------------------------------------------- marks

  // What is computed now, what it reads, and what has not been computed yet.
  mark(turning = true) {
    for (const node of this.root.querySelectorAll(".now-cell, .read-cell, .term-cell, line.now")) node.classList.remove("now-cell", "read-cell", "term-cell", "now");
    for (const marks of this.root.querySelectorAll("canvas.marks")) marks.getContext("2d").clearRect(0, 0, marks.width, marks.height);
    const step = this.data.steps[this.step];
    const later = new Set(step === undefined ? [] : this.data.steps.slice(this.step + 1).map((entry) => entry.name));
    for (const [name, figure] of this.figures) {
      figure.classList.toggle("later", later.has(name));
      figure.classList.toggle("now", step !== undefined && step.name === name);
      figure.classList.toggle("read", step !== undefined && this.path.length === 0 && step.reads.includes(name));
      const differing = this.differing.get(name);
      if (differing !== undefined && differing.size <= 20_000) this.light([...differing].map((offset) => ({ name, place: placeOf(this.tables.get(name).shape, offset) })), null, "--bad");
    }
    const trace = this.trace();
    if (trace === null) return;
    const here = [{ name: trace.name, place: trace.place }];
    const reads = this.relation.sources(trace);
    const term = this.termsOf(trace)[this.term];
    const parts = term === undefined ? [] : term.factors.flatMap((factor) => (factor.name === null ? factor.reads : [factor]));
    if (turning) {
      this.turnTo({ ...trace.point, ...Object.fromEntries(this.tables.get(trace.name).tensor.coordinates.map((name, axis) => [name, trace.place[axis]])) });
      for (const group of [here, reads, parts]) this.face(group);
    }
    this.light(reads, "read-cell", "--read");
    this.light(parts, "term-cell", "--mark");
    this.light(here, "now-cell", "--mark");
    this.markLine(trace);
  },

  // Turn each matrix to where the elements are, if they are all in one place of it.
  face(reads) {
    for (const name of new Set(reads.map((read) => read.name))) {
      const known = this.lead.get(name);
      const leads = reads.filter((read) => read.name === name).map((read) => read.place.slice(0, -2));
      if (known === undefined || leads.some((lead) => String(lead) !== String(leads[0])) || String(known) === String(leads[0])) continue;
      this.lead.set(name, [...leads[0]]);
      this.draw(name);
    }
  },

  light(reads, kind, colour) {
    for (const name of new Set(reads.map((read) => read.name))) {
      const figure = this.figures.get(name);
      const marks = figure?.querySelector("canvas.marks");
      const table = this.tables.get(name);
      const lead = String(this.lead.get(name));
      const seen = reads.filter((read) => read.name === name && String(read.place.slice(0, -2)) === lead);
      if (marks) this.outline(marks, table, seen.map((read) => read.place), colour);
      else if (kind !== null) for (const read of seen) figure?.querySelector(`[data-cell="${CSS.escape(label(name, read.place))}"]`)?.classList.add(kind);
    }
  },
});

function walkTabs(event) {
  const tabs = [...event.currentTarget.querySelectorAll("[role=tab]")];
  const at = tabs.indexOf(event.target);
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (at < 0 || next === undefined) return;
  event.preventDefault();
  const chosen = tabs[(next + tabs.length) % tabs.length];
  chosen.click();
  chosen.focus();
}

function paint(canvas, table, start, rows, columns) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const [plus, minus, hatch, paper] = [ramp("--plus"), ramp("--minus"), pixel(rgb(themeColour("--hatch"))), pixel(rgb(themeColour("--paper")))];
  const most = mostOf(table);
  for (let at = 0; at < rows * columns; at += 1) {
    const value = Number(table.values[start + at]);
    const part = Math.min(255, Math.round(255 * Math.sqrt(Math.abs(value) / most))) || 0;
    if (table.mask(start + at)) pixels[at] = (Math.floor(at / columns) + (at % columns)) % 4 === 0 ? hatch : paper;
    else pixels[at] = (value < 0 ? minus : plus)[part];
  }
  context.putImageData(image, 0, 0);
}

// A long form may break after a sign, and nowhere else.
function breakable(text) {
  return text.length < 16 ? text : joined(text.split(/(?<=[+·/\s])/u), null).map((part) => part ?? el("wbr"));
}

const mostOf = (table) => Math.max(...table.range().map(Math.abs)) || 1;

const worstOf = (verdicts) => WORST.find((word) => verdicts.some(({ cell }) => cell.verdict === word));

function verdictText(cell) {
  return `claimed ${cell.claimed}; exactly ${cell.exact}${cell.off ? `; off by ${cell.off}` : ""}`;
}
