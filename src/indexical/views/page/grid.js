// A tensor on the stage: a table of numbers around the chosen cell, and colours where there are too many of them.
"use strict";

Object.assign(Page.prototype, {
  // `as` are the names that its axes have in the step; `parts` the cells that take part in it, by offset.
  tensorView({ name, as, texts, cells, place, parts, room, isResult, hasHeat }) {
    const table = this.tables.get(name);
    const head = el("h3", {}, el("span", { class: "name" }, name, as.length ? ["[", joined(as.map((axis, n) => (axis === null ? texts?.[n] ?? this.coordinate(bare(table.tensor.coordinates[n])) : this.coordinate(axis)))), "]"] : null),
      el("span", { class: "gloss" }, this.gloss(name)), this.explainer(name));
    const figure = el("figure", { class: `tensor ${isResult ? "result" : "operand"}`, "data-tensor": name }, head, this.boundary(name));
    if (table.size === 0) return filled(figure, {}, [el("p", { class: "hint" }, "no points")]);
    const [rows, columns] = matrixOf(table);
    const lead = place.slice(0, -2);
    const [row, column] = [place.length > 1 ? place.at(-2) : 0, place.at(-1) ?? 0];
    const shown = { rows: this.windowAt(`${name} rows`, rows, room.rows, row), columns: this.windowAt(`${name} columns`, columns, room.columns, column) };
    const isCut = shown.rows.length < rows || shown.columns.length < columns;
    figure.append(this.leads(name, lead, isResult, cells), this.grid({ name, table, as, lead, place, parts, shown, isResult }));
    if (isCut) head.append(el("span", { class: "gloss cut" }, cutWords(shown.rows, rows, shown.columns, columns)));
    if (isCut && hasHeat) figure.append(this.heat(name, table, lead, shown, isResult));
    return figure;
  },

  // What is shown of an axis: it stays as it is while the chosen point is inside.
  windowAt(key, count, room, at) {
    this.windows ??= new Map();
    const first = this.windows.get(key);
    const isInside = first !== undefined && at >= first && at < first + room && first + room <= count;
    const found = windowOf(count, room, isInside ? first + Math.floor(room / 2) : at);
    this.windows.set(key, found[0]);
    return found;
  },

  boundary(name) {
    const functions = this.data.ended[name];
    return functions === undefined ? "" : el("p", { class: "boundary" }, `exactness ends here: ${functions.join(", ")} from here on by name and proven digits`);
  },

  // What queries, keys and values are, in two sentences, where they stand.
  explainer(name) {
    const words = this.voice === "plain" ? this.explanation(name) : null;
    if (words === null) return null;
    const note = el("span", { class: "explained", role: "note", hidden: true }, words);
    const ask = button("?", { class: "why", "aria-expanded": "false", "aria-label": `what is ${name}?` }, () => {
      note.hidden = !note.hidden;
      ask.setAttribute("aria-expanded", String(!note.hidden));
    });
    return [ask, note];
  },

  // Batch, head and every other leading coordinate, each point a small picture.
  leads(name, lead, isResult, cells) {
    const table = this.tables.get(name);
    const axes = this.axesOf(name);
    const strips = lead.map((at, axis) => {
      if (table.shape[axis] < 2 || (!isResult && new Set(cells.map((at) => at[axis])).size < 2)) return null;
      const turn = (n) => this.turn({ [axes[axis]]: bounded(n, 0, table.shape[axis] - 1) });
      if (table.shape[axis] > 12) {
        return el("label", { class: "lead" }, this.coordinate(axes[axis]), " = ", el("input", { type: "number", min: "0", max: String(table.shape[axis] - 1), value: String(at), "aria-label": axes[axis], onchange: (event) => turn(Math.trunc(Number(event.target.value)) || 0) }));
      }
      const isLast = axis === lead.length - 1;
      return el("div", { class: "lead", role: "group", "aria-label": axes[axis] }, this.coordinate(axes[axis]), Array.from({ length: table.shape[axis] }, (_, n) => button(
        [isLast && isResult ? thumbnail(table, [...lead.slice(0, axis), n, ...lead.slice(axis + 1)], 18) : "", el("span", {}, this.called(axes[axis], n))],
        { "aria-pressed": String(n === at), "aria-label": `${axes[axis]} = ${this.called(axes[axis], n)}`, "data-turn": axes[axis], "data-at": n }, () => turn(n))));
    }).filter((strip) => strip !== null);
    return strips.length ? el("div", { class: "leads" }, strips) : "";
  },

  // One stop for the Tab key; arrow keys walk inside.
  grid({ name, table, as, lead, place, parts, shown, isResult }) {
    const { coordinates } = table.tensor;
    const flat = coordinates.length < 2;
    const [down, across] = flat ? [null, as[0] ?? null] : [as.at(-2), as.at(-1)];
    const names = (flat ? [null, as[0] ?? coordinates[0]] : [as.at(-2) ?? coordinates.at(-2), as.at(-1) ?? coordinates.at(-1)]);
    const placed = (row, column) => (coordinates.length === 0 ? [] : flat ? [column] : [...lead, row, column]);
    const axis = (coordinate, known, n, scope) => {
      const node = el("th", { scope, class: `axis c${this.colours.get(bare(coordinate ?? "")) ?? ""}` }, this.called(coordinate, n));
      return known === null || known === undefined ? node : this.linked(node, { [known]: n });
    };
    const [rows, columns] = matrixOf(table);
    const cut = (list, count) => (list.length < count ? "…" : "");
    const head = coordinates.length === 0 ? null : el("thead", {}, el("tr", {},
      el("th", { class: "corner", scope: "col" }, names[0] === null ? null : [this.coordinate(bare(names[0])), "\u2009\\\u2009"], this.coordinate(bare(names[1]))),
      shown.columns.map((n) => axis(names[1], across, n, "col")), cut(shown.columns, columns) ? el("th", { class: "cut", "aria-hidden": "true" }, "…") : null));
    const body = shown.rows.map((row) => el("tr", {}, coordinates.length === 0 ? null : flat ? el("td", {}) : axis(names[0], down, row, "row"),
      shown.columns.map((column) => this.cell(name, table, placed(row, column), { down, across, row, column, place, parts, isResult }))));
    const width = shown.columns.length;
    const wide = width <= 5 ? "" : width <= 6 ? "narrow" : "narrowest";
    return el("table", { class: `grid ${this.form} ${wide} ${parts === null ? "" : "focus"}`, role: "grid", "aria-readonly": "true", "data-grid": name, onkeydown: (event) => this.walk(event, name, table, place) },
      el("caption", { class: "unseen" }, `values of ${label(name, coordinates)}${lead.map((at, n) => `, ${coordinates[n]} = ${at}`).join("")}`), head, el("tbody", {}, body));
  },

  cell(name, table, at, { down, across, row, column, place, parts, isResult }) {
    const offset = table.offset(at);
    const masked = table.mask(offset);
    const value = Number(table.values[offset]);
    const key = label(name, at);
    const verdicts = this.verdicts.get(key) ?? [];
    const worst = worstOf(verdicts);
    const differs = this.differing.get(name)?.has(offset) ?? false;
    const { text, isCut } = this.cellText(name, table, offset, at);
    const whole = this.textOf(table, offset);
    const said = [`${key} ${masked ? "is masked" : `= ${text}${text === whole ? "" : ` (${whole})`}`}`, ...verdicts.map(({ cell }) => `claimed ${cell.claimed}: ${VERDICTS[cell.verdict]}`), ...(differs ? ["differs"] : [])];
    const isHere = String(at) === String(place);
    const node = el("td", {
      class: ["cell", masked ? "masked" : "", worst ? `verdict ${worst}` : "", !masked && table.isNamed(offset) ? "outside" : "", differs ? "differs" : "", value < 0 ? "negative" : "", isCut ? "approximate" : "",
        parts?.has(offset) ? "part" : "", isHere && isResult ? "chosen" : "", this.isChanged(name, offset) ? "changed" : "", this.isOpen(name) ? "open" : ""].filter(Boolean).join(" "),
      tabindex: isHere ? "0" : "-1", "data-cell": key, "aria-label": said.join(", "), title: verdicts.length ? verdicts.map(({ cell }) => verdictText(cell)).join("\n") : masked ? said[0] : `${key} = ${whole}`,
    }, masked ? "" : text);
    const tint = this.parts.get(name) === "weights" ? Math.min(1, Math.max(0, value)) : tintOf(table, value);
    if (!masked) node.style.setProperty("--tint", tint.toFixed(3));
    node.addEventListener("click", () => {
      this.select(name, at, true);
      if (isResult) this.replay();
    });
    this.editable(node, name, at);
    return this.linked(node, Object.fromEntries([[down, row], [across, column]].filter(([axis]) => axis !== null && axis !== undefined)));
  },

  // A number in its cell: whole percentages of a distribution in plain words; a form that is too long, by its digits.
  cellText(name, table, offset, place) {
    const { exact, structural } = table.tensor;
    const value = table.values[offset];
    const isSymbol = exact !== undefined && Number.isNaN(Number(value));
    if (this.form === "decimal" && !isSymbol) {
      const share = this.voice === "plain" ? this.percentAt(name, place) : null;
      return { text: share === null ? short(value, table.digits()) : `${share}\u202f%`, isCut: false };
    }
    const form = (this.form === "structural" ? structural ?? exact : exact)?.[offset] ?? short(value, table.digits());
    const most = Math.max(7, Math.floor(42 / matrixOf(table)[1]));
    if (form.length <= most) return { text: form, isCut: false };
    return { text: isSymbol ? `${form.slice(0, most - 1)}…` : short(value, table.digits()), isCut: true };
  },

  // An element as a whole text, in the form that was chosen.
  textOf(table, offset) {
    const { exact, structural } = table.tensor;
    const value = table.values[offset];
    if (exact !== undefined && this.form === "structural") return (structural ?? exact)[offset];
    if (exact !== undefined && (this.form === "exact" || Number.isNaN(Number(value)))) return exact[offset];
    return decimal(value);
  },

  // The share of a cell in its row as a whole percentage; null where the row is no distribution. Shares of a row make 100.
  percentAt(name, place) {
    const axis = this.distributionAxis(name);
    if (axis < 0) return null;
    this.rows ??= new Map();
    const key = `${name} ${place.map((at, n) => (n === axis ? "·" : at))}`;
    if (!this.rows.has(key)) {
      const table = this.tables.get(name);
      const row = Array.from({ length: table.shape[axis] }, (_, at) => place.map((other, n) => (n === axis ? at : other)));
      const values = row.map((at) => (table.isMasked(at) ? 0 : Number(table.at(at))));
      const total = values.reduce((sum, value) => sum + value, 0);
      this.rows.set(key, values.every((value) => value >= 0) && Math.abs(total - 1) < 1e-3 ? percents(values) : null);
    }
    return this.rows.get(key)?.[place[axis]] ?? null;
  },

  // The axis over which a tensor is shared out to 1; -1 where there is none.
  distributionAxis(name) {
    const { gather } = this;
    if (gather?.tensor?.name === name) return gather.tensor.key;
    const clauses = this.data.relation[name]?.clauses ?? [];
    if (clauses.length !== 1 || clauses[0].body[0] !== "normalize" || clauses[0].body[1] !== "softmax") return -1;
    return clauses[0].slots.findIndex((slot) => slot[0] === "coord" && slot[1] === clauses[0].body[2]);
  },

  // Arrow keys inside a tensor; at the edge of what is shown, the window moves along.
  walk(event, name, table, place) {
    const cell = event.target.closest("td.cell");
    if (cell === null) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      this.focusAfter = label(name, placeNamed(cell));
      cell.click();
      return;
    }
    const at = placeNamed(cell);
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9], PageUp: [-1e9, 0], PageDown: [1e9, 0] }[event.key];
    if (step === undefined || at.length === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = [...at];
    const last = at.length - 1;
    next[last] = bounded(at[last] + step[1], 0, table.shape[last] - 1);
    if (last > 0) next[last - 1] = bounded(at[last - 1] + step[0], 0, table.shape[last - 1] - 1);
    const found = event.currentTarget.querySelector(`[data-cell="${CSS.escape(label(name, next))}"]`);
    if (found === null) {
      this.focusAfter = label(name, next);
      this.select(name, next, true);
      return;
    }
    for (const other of event.currentTarget.querySelectorAll("td.cell")) other.tabIndex = -1;
    found.tabIndex = 0;
    found.focus();
  },

  // ------------------------------------------------------------------ colours

  // The whole matrix as colours, with a frame around what is shown in numbers; pointing reads it, a click chooses.
  heat(name, table, lead, shown, isResult) {
    const [rows, columns] = matrixOf(table);
    const canvas = paint(el("canvas", { class: "heat", role: "img", tabindex: isResult ? "0" : "-1", "aria-label": `${name}, ${rows} × ${columns}, as colours; arrow keys read a cell, Enter chooses it` }), table, lead, 1024);
    const [low, high] = table.range();
    const told = el("output", { class: "told" }, `${short(low)} to ${short(high)}`);
    const frame = el("i", { class: "frame", "aria-hidden": "true", style: `left: ${(100 * shown.columns[0]) / columns}%; width: ${(100 * shown.columns.length) / columns}%; top: ${(100 * shown.rows[0]) / rows}%; height: ${(100 * shown.rows.length) / rows}%` });
    const placed = (row, column) => (table.shape.length === 1 ? [column] : [...lead, row, column]);
    const placeAt = (event) => {
      const box = canvas.getBoundingClientRect();
      const within = (part, count) => bounded(Math.floor(part * count), 0, count - 1);
      return placed(within((event.clientY - box.top) / box.height, rows), within((event.clientX - box.left) / box.width, columns));
    };
    const tell = (place) => {
      const offset = table.offset(place);
      told.textContent = `${label(name, place)} ${table.mask(offset) ? "is masked" : `= ${decimal(table.values[offset], 7)}`}`;
    };
    canvas.addEventListener("pointermove", (event) => tell(placeAt(event)));
    canvas.addEventListener("click", (event) => this.select(name, placeAt(event), true));
    let [row, column] = [shown.rows[0], shown.columns[0]];
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.select(name, placed(row, column), true);
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (move === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      [row, column] = [bounded(row + move[0], 0, rows - 1), bounded(column + move[1], 0, columns - 1)];
      tell(placed(row, column));
    });
    const room = !isResult ? [6, 2] : Math.max(rows, columns) > 12 ? [15, 6.5] : [9, 2.6];
    const scale = Math.min(room[0] / columns, room[1] / rows);
    const size = [Math.max(scale * columns, Math.min(room[0], columns > 4 * rows ? room[0] : 2)), Math.max(scale * rows, 0.75)];
    return el("div", { class: "heat-room" }, el("div", { class: "heat-box", style: `width: ${size[0]}rem; height: ${size[1]}rem` }, canvas, frame), isResult ? told : null);
  },
});

const placeNamed = (cell) => (/\[(.*)\]$/.exec(cell.dataset.cell)?.[1] ?? "").split(", ").filter((part) => part !== "").map(Number);

// Which rows and columns of how many are shown in numbers.
function cutWords(rows, allRows, columns, allColumns) {
  const part = (list, count, word) => (list.length === count ? "" : list.length === 1 ? `${word.slice(0, -1)} ${list[0]} of ${count}` : `${word} ${list[0]}…${list.at(-1)} of ${count}`);
  return [part(rows, allRows, "rows"), part(columns, allColumns, "columns")].filter(Boolean).join(", ");
}

// As many points as there is room for, around the chosen one.
function windowOf(count, room, at) {
  const first = count <= room ? 0 : bounded(at - Math.floor(room / 2), 0, count - room);
  return Array.from({ length: Math.min(count, room) }, (_, n) => first + n);
}

const worstOf = (verdicts) => WORST.find((word) => verdicts.some(({ cell }) => cell.verdict === word));

function verdictText(cell) {
  return `claimed ${cell.claimed}; exactly ${cell.exact}${cell.off ? `; off by ${cell.off}` : ""}`;
}
