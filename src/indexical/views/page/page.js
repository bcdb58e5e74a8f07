// The page: the program, its matrices, its steps, and what one cell scanned. Text from a program is only ever set as
// text, never as markup.
"use strict";

const MOST_CELLS = 1600; // A larger matrix is drawn on a canvas.
const MOST_LINES = 48; // More positions than these talk one at a time.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

const label = (name, place) => (place.length ? `${name}[${place.join(", ")}]` : name);

function decimal(value, digits = 4) {
  if (typeof value === "boolean") return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "undefined" : value > 0 ? "∞" : "-∞";
  if (value === 0) return "0";
  const text = value.toPrecision(digits);
  return text.includes("e") ? text : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

class Page {
  constructor(data, root, number = 0) {
    this.data = data;
    this.root = root;
    this.number = number;
    this.relation = new Relation(data);
    this.tables = this.relation.tensors;
    this.colours = new Map(data.coordinates.map((entry) => [entry.name, entry.colour % 8]));
    this.form = "decimal";
    this.step = -1; // No step: the whole program at once.
    this.path = []; // The cells that were clicked, the last one is shown.
    this.term = -1;
    this.lead = new Map(); // The leading coordinates that each matrix shows.
    this.figures = new Map();
    this.verdicts = new Map();
    for (const claim of data.claims) {
      for (const cell of claim.cells) {
        if (claim.target !== null) this.verdicts.set(label(claim.target, cell.place), { claim, cell });
      }
    }
  }

  build() {
    const main = el("div", { class: "columns" },
      el("section", { class: "reading", "aria-label": "The program" }, this.programView(), this.stepsView(), this.claimsView()),
      el("section", { class: "seeing", "aria-label": "Its matrices" }, this.matricesView(), this.talkView()),
      el("aside", { class: "working", "aria-label": "One number", "aria-live": "polite" }));
    this.root.append(main);
    this.panel = main.querySelector(".working");
    this.refresh();
  }

  // ---------------------------------------------------------------- program

  coordinate(name, text = name) {
    const known = this.colours.get(name.replace(/'+$/, ""));
    if (known === undefined) return document.createTextNode(text);
    return el("span", {
      class: `coordinate c${known}`, tabindex: "0", "data-coordinate": name, "aria-describedby": "story",
      onmouseenter: () => this.tell(name), onfocus: () => this.tell(name),
      onmouseleave: () => this.tell(null), onblur: () => this.tell(null),
    }, text);
  }

  // What happens to a coordinate, and every place where it stands.
  tell(name) {
    for (const node of this.root.querySelectorAll(".coordinate")) {
      node.classList.toggle("lit", name !== null && node.dataset.coordinate === name);
    }
    const entry = this.data.coordinates.find((found) => found.name === name);
    this.story.replaceChildren();
    if (entry === undefined) return;
    this.story.append(
      el("strong", { class: `c${this.colours.get(name)}` }, name), entry.space ? ` is a ${entry.space}. ` : ". ",
      entry.story.map(([definition, words], n) => `${n ? "; " : ""}${definition}: ${words}`).join("") || "Nothing is known of it.");
  }

  // A formula with every coordinate in its colour.
  formula(text) {
    const parts = text.split(/([\p{L}_][\p{L}\p{N}_]*)/u);
    return el("code", {}, parts.map((part) => (this.colours.has(part) && !this.tables.has(part) ? this.coordinate(part) : part)));
  }

  programView() {
    this.story = el("p", { class: "story", id: "story", role: "status" });
    const found = new Map();
    for (const diagnostic of this.data.diagnostics) {
      const line = diagnostic.line ?? 1;
      found.set(line, [...(found.get(line) ?? []), diagnostic]);
    }
    const lines = this.data.lines.flatMap((pieces, n) => [
      el("div", { class: "line", "data-line": n + 1 }, el("span", { class: "number", "aria-hidden": "true" }, String(n + 1)),
        el("span", { class: "text" }, pieces.map(([text, kind]) => this.piece(text, kind)))),
      ...(found.get(n + 1) ?? []).map((diagnostic) => el("div", { class: `finding ${diagnostic.severity}` },
        el("strong", {}, `${diagnostic.severity}[${diagnostic.code}]: ${diagnostic.message}`),
        diagnostic.notes.map((note) => el("div", {}, `note: ${note}`)),
        diagnostic.help ? el("div", {}, `help: ${diagnostic.help}`) : null)),
    ]);
    return el("div", { class: "program" }, el("h2", {}, "The program"), el("pre", { class: "source" }, lines), this.story);
  }

  piece(text, kind) {
    if (kind === "coordinate") return this.coordinate(text);
    if (kind === "tensor") {
      return el("a", { class: "tensor-name", href: `#tensor-${this.number}-${text}` }, text);
    }
    return kind === "" ? text : el("span", { class: `word-${kind}` }, text);
  }

  // ------------------------------------------------------------------ steps

  stepsView() {
    const steps = this.data.steps;
    this.stepList = el("ol", { class: "steps" }, steps.map((step, n) => el("li", {},
      el("a", { href: `#step=${n + 1}`, "data-step": n, onclick: (event) => { event.preventDefault(); this.go(n); } }, step.name),
      el("div", { class: "words" }, step.words))));
    this.stepStatus = el("p", { class: "step-status", role: "status" });
    const button = (text, words, act) => el("button", { type: "button", "aria-label": words, title: words, onclick: act }, text);
    return el("div", { class: "stepper" }, el("h2", {}, "Steps"),
      el("div", { class: "buttons" },
        button("◀", "previous definition", () => this.go(this.step - 1)), button("▶", "next definition", () => this.go(this.step + 1)),
        button("▲", "previous term", () => this.goTerm(this.term - 1)), button("▼", "next term", () => this.goTerm(this.term + 1)),
        button("all", "show the whole program", () => this.go(-1))),
      this.stepStatus, this.stepList);
  }

  go(step) {
    const most = this.data.steps.length - 1;
    this.step = Math.max(-1, Math.min(step, most));
    this.path = [];
    this.term = -1;
    this.refresh();
    this.remember();
  }

  // One term of the cell that is shown, or of the first cell of this step.
  goTerm(term) {
    if (this.path.length === 0) {
      const name = this.data.steps[Math.max(0, this.step)]?.name;
      if (name === undefined) return;
      this.step = Math.max(0, this.step);
      this.path = [{ name, place: this.firstPlace(name) }];
    }
    const count = this.termsOf(this.trace()).length;
    this.term = Math.max(-1, Math.min(term, count - 1));
    this.refresh();
    this.remember();
  }

  firstPlace(name) {
    const table = this.tables.get(name);
    const place = table.shape.map(() => 0);
    for (let offset = 0; offset < table.size; offset += 1) {
      if (!table.mask(offset)) return placeOf(table.shape, offset);
    }
    return place;
  }

  trace() {
    const here = this.path[this.path.length - 1];
    return here === undefined ? null : this.relation.trace(here.name, here.place);
  }

  termsOf(trace) {
    return trace === null || trace.scans.length === 0 ? [] : trace.scans[0].terms;
  }

  remember() {
    const here = this.path[this.path.length - 1];
    const parts = this.step >= 0 ? [`step=${this.step + 1}`] : [];
    if (here !== undefined) parts.push(`cell=${label(here.name, here.place).replaceAll(" ", "")}`);
    if (this.term >= 0) parts.push(`term=${this.term + 1}`);
    if (this.number === 0) history.replaceState(null, "", parts.length ? `#${parts.join("&")}` : location.pathname + location.search);
  }

  // The place that a link says.
  recall(hash) {
    const found = new URLSearchParams(hash.replace(/^#/, ""));
    if (found.has("step")) this.step = Math.min(this.data.steps.length, Math.max(0, Number.parseInt(found.get("step"), 10) || 0)) - 1;
    const cell = /^([\p{L}_][\p{L}\p{N}_]*)(?:\[([\d,]*)\])?$/u.exec(found.get("cell") ?? "");
    const table = cell === null ? undefined : this.tables.get(cell[1]);
    if (table !== undefined) {
      const place = (cell[2] ?? "").split(",").filter((part) => part !== "").map(Number);
      if (place.length === table.shape.length && place.every((at, axis) => at < table.shape[axis])) {
        this.path = [{ name: cell[1], place }];
        this.term = (Number.parseInt(found.get("term"), 10) || 0) - 1;
      }
    }
    this.refresh();
  }

  // --------------------------------------------------------------- matrices

  matricesView() {
    const shown = this.data.tensors.filter((tensor) => !tensor.hidden);
    return el("div", { class: "matrices" }, shown.map((tensor) => this.figure(tensor)));
  }

  figure(tensor) {
    const table = this.tables.get(tensor.name);
    this.lead.set(tensor.name, tensor.shape.slice(0, -2).map(() => 0));
    const home = el("code", {}, tensor.name, tensor.coordinates.length ? "[" : "",
      tensor.coordinates.map((name, n) => [n ? ", " : "", this.coordinate(name)]).flat(), tensor.coordinates.length ? "]" : "");
    const figure = el("figure", { class: `tensor ${tensor.role}`, id: `tensor-${this.number}-${tensor.name}`, "data-tensor": tensor.name },
      el("figcaption", {}, home, " ", el("small", {}, `${tensor.shape.join(" × ") || "one number"}, ${ROLES[tensor.role]}`), this.boundary(tensor)),
      this.tabs(tensor, table), el("div", { class: "grid" }));
    this.figures.set(tensor.name, figure);
    return figure;
  }

  boundary(tensor) {
    const functions = this.data.ended[tensor.name];
    if (functions === undefined) return null;
    return el("div", { class: "boundary" }, `exactness ends here: ${functions.join(", ")} from here on by name and proven digits`);
  }

  // Batch, head and every other leading coordinate, as tabs.
  tabs(tensor) {
    return tensor.shape.slice(0, -2).map((size, axis) => {
      const name = tensor.coordinates[axis];
      if (size > 16) {
        return el("label", { class: "lead" }, this.coordinate(name), " = ",
          el("input", { type: "number", min: "0", max: String(size - 1), value: "0", oninput: (event) => this.setLead(tensor.name, axis, Number(event.target.value)) }));
      }
      return el("div", { class: "lead", role: "tablist", "aria-label": name }, this.coordinate(name),
        Array.from({ length: size }, (_, n) => el("button", {
          type: "button", role: "tab", "data-axis": axis, "data-at": n, "aria-selected": String(n === 0),
          onclick: () => this.setLead(tensor.name, axis, n),
        }, String(n))));
    });
  }

  setLead(name, axis, at) {
    const table = this.tables.get(name);
    if (!(at >= 0 && at < table.shape[axis])) return;
    this.lead.get(name)[axis] = at;
    this.draw(name);
    this.mark();
  }

  draw(name) {
    const figure = this.figures.get(name);
    if (figure === undefined) return;
    const table = this.tables.get(name);
    const lead = this.lead.get(name);
    for (const button of figure.querySelectorAll("[role=tab]")) {
      button.setAttribute("aria-selected", String(lead[Number(button.dataset.axis)] === Number(button.dataset.at)));
    }
    const grid = figure.querySelector(".grid");
    const [rows, columns] = [table.shape.length > 1 ? table.shape.at(-2) : 1, table.shape.length ? table.shape.at(-1) : 1];
    if (rows * columns === 0) grid.replaceChildren(el("p", {}, "no points"));
    else if (rows * columns > MOST_CELLS) grid.replaceChildren(this.canvas(name, table, lead, rows, columns));
    else grid.replaceChildren(this.grid(name, table, lead, rows, columns));
  }

  placeIn(table, lead, row, column) {
    return table.shape.length === 0 ? [] : table.shape.length === 1 ? [column] : [...lead, row, column];
  }

  grid(name, table, lead, rows, columns) {
    const coordinates = table.tensor.coordinates;
    const across = coordinates.at(-1);
    const down = coordinates.length > 1 ? coordinates.at(-2) : null;
    const head = across === undefined ? null : el("thead", {}, el("tr", {}, el("td", { class: "corner" }, down === null ? "" : this.coordinate(down), " ", this.coordinate(across)),
      Array.from({ length: columns }, (_, n) => el("th", { scope: "col", class: `axis c${this.colours.get(across)}` }, String(n)))));
    const body = Array.from({ length: rows }, (_, row) => el("tr", {},
      across === undefined ? null : el("th", { scope: "row", class: `axis c${this.colours.get(down ?? "")}` }, down === null ? "" : String(row)),
      Array.from({ length: columns }, (_, column) => this.cell(name, table, this.placeIn(table, lead, row, column)))));
    return el("table", { class: this.form, onkeydown: (event) => this.walk(event) }, el("caption", { class: "unseen" }, `values of ${name}`), head, el("tbody", {}, body));
  }

  cell(name, table, place) {
    const offset = table.offset(place);
    const masked = table.mask(offset);
    const value = Number(table.values[offset]);
    const text = this.textOf(table, offset);
    const verdict = this.verdicts.get(label(name, place));
    const classes = ["cell", masked ? "masked" : "", verdict ? `verdict ${verdict.cell.verdict}` : "", this.isNamed(table, offset) ? "outside" : ""];
    const words = `${label(name, place)} ${masked ? "is masked" : `= ${text}`}`;
    const node = el("td", {
      class: classes.join(" "), tabindex: offset === 0 ? "0" : "-1", role: "button", "data-cell": label(name, place),
      "aria-label": verdict ? `${words}, claimed ${verdict.cell.claimed}, ${verdict.cell.verdict}` : words,
      title: verdict ? `claimed ${verdict.cell.claimed}; exactly ${verdict.cell.exact}${verdict.cell.off ? `; off by ${verdict.cell.off}` : ""}` : words,
      onclick: () => this.select(name, place, true),
    }, masked ? "" : text);
    if (!masked && Number.isFinite(value)) {
      const [low, high] = table.range();
      const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
      node.style.setProperty("--v", String(Math.abs(value) / most));
      if (value < 0) node.classList.add("negative");
    }
    return node;
  }

  isNamed(table, offset) {
    return table.tensor.named !== undefined && table.tensor.named.includes(offset);
  }

  textOf(table, offset) {
    const { exact, structural } = table.tensor;
    const value = table.values[offset];
    if (exact !== undefined && this.form === "structural") return (structural ?? exact)[offset];
    if (exact !== undefined && (this.form === "exact" || Number.isNaN(Number(value)))) return exact[offset];
    return decimal(typeof value === "boolean" ? value : Number(value));
  }

  walk(event) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const cell = event.target.closest("td.cell");
    if (cell === null) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      cell.click();
      return;
    }
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const row = cell.parentElement;
    const cells = [...row.querySelectorAll("td.cell")];
    const column = cells.indexOf(cell) + move[1];
    const rows = [...row.parentElement.children];
    const next = rows[rows.indexOf(row) + move[0]]?.querySelectorAll("td.cell")[column];
    if (next === undefined) return;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  canvas(name, table, lead, rows, columns) {
    const scale = Math.max(1, Math.floor(512 / Math.max(rows, columns)));
    const canvas = el("canvas", { width: columns * scale, height: rows * scale, class: "heat", tabindex: "0", role: "img", "aria-label": `${name}, ${rows} × ${columns}, drawn as colours; point at a cell to read it` });
    const told = el("output", { class: "told" }, "point at a cell to read it");
    const context = canvas.getContext("2d");
    const start = table.shape.length === 1 ? 0 : table.offset([...lead, 0, 0]);
    const [low, high] = table.range();
    const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
    const image = context.createImageData(columns * scale, rows * scale);
    const ink = getComputedStyle(document.documentElement);
    const [paper, plus, minus, hatch] = ["--paper", "--plus", "--minus", "--hatch"].map((key) => rgb(ink.getPropertyValue(key)));
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const offset = start + row * columns + column;
        const value = Number(table.values[offset]);
        const masked = table.mask(offset);
        const part = Math.sqrt(Math.abs(value) / most) || 0;
        const colour = masked ? ((row + column) % 4 === 0 ? hatch : paper) : mixed(paper, value < 0 ? minus : plus, part);
        for (let y = 0; y < scale; y += 1) {
          for (let x = 0; x < scale; x += 1) {
            const at = 4 * ((row * scale + y) * columns * scale + column * scale + x);
            image.data.set([...colour, 255], at);
          }
        }
      }
    }
    context.putImageData(image, 0, 0);
    const placeAt = (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * columns)));
      const row = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * rows)));
      return this.placeIn(table, lead, row, column);
    };
    const tell = (place) => {
      const offset = table.offset(place);
      told.textContent = `${label(name, place)} ${table.mask(offset) ? "is masked" : `= ${decimal(Number(table.values[offset]), 7)}`}`;
    };
    canvas.addEventListener("mousemove", (event) => tell(placeAt(event)));
    canvas.addEventListener("click", (event) => this.select(name, placeAt(event), true));
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
      if (event.key === "Enter") this.select(name, placeOf(table.shape, start + this.cursor), true);
      if (moves[event.key] === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      this.cursor = Math.max(0, Math.min(rows * columns - 1, (this.cursor ?? 0) + moves[event.key]));
      tell(placeOf(table.shape, start + this.cursor));
    });
    return el("div", {}, canvas, told);
  }

  // --------------------------------------------------------------- one cell

  select(name, place, fresh) {
    if (fresh) this.path = [];
    const at = this.path.findIndex((entry) => label(entry.name, entry.place) === label(name, place));
    if (at >= 0) this.path = this.path.slice(0, at);
    this.path.push({ name, place });
    this.term = -1;
    this.refresh(false);
    this.remember();
  }

  refresh(redraw = true) {
    if (redraw) for (const name of this.figures.keys()) this.draw(name);
    for (const link of this.stepList.querySelectorAll("a")) {
      const now = Number(link.dataset.step) === this.step;
      if (now) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
    }
    const step = this.data.steps[this.step];
    this.stepStatus.textContent = step === undefined ? "the whole program" : `step ${this.step + 1} of ${this.data.steps.length}: ${step.name} is computed now`;
    for (const line of this.root.querySelectorAll(".line")) line.classList.remove("now");
    if (step !== undefined) this.lineOf(step.name)?.classList.add("now");
    this.showTrace();
    this.mark();
  }

  lineOf(name) {
    const lines = this.data.lines;
    const at = lines.findIndex((pieces) => {
      const words = pieces.filter(([text]) => text.trim() !== "");
      return words[0]?.[0] === "let" && words[1]?.[0] === name;
    });
    return at < 0 ? null : this.root.querySelector(`.line[data-line="${at + 1}"]`);
  }

  // What is computed now, what it reads, and what has not been computed yet.
  mark() {
    for (const node of this.root.querySelectorAll(".now-cell, .read-cell, .term-cell")) node.classList.remove("now-cell", "read-cell", "term-cell");
    const step = this.data.steps[this.step];
    const later = step === undefined ? new Set() : new Set(this.data.steps.slice(this.step + 1).map((entry) => entry.name));
    for (const [name, figure] of this.figures) {
      figure.classList.toggle("later", later.has(name));
      figure.classList.toggle("now", step !== undefined && step.name === name);
      figure.classList.toggle("read", step !== undefined && this.path.length === 0 && step.reads.includes(name));
    }
    const trace = this.trace();
    if (trace === null) return;
    const reads = this.relation.sources(trace);
    this.face([{ name: trace.name, place: trace.place }]);
    this.face(reads);
    this.light(trace.name, trace.place, "now-cell");
    for (const read of reads) this.light(read.name, read.place, "read-cell");
    const term = this.termsOf(trace)[this.term];
    if (term !== undefined) {
      const parts = term.factors.flatMap((factor) => (factor.name === null ? factor.reads : [factor]));
      this.face(parts);
      for (const read of parts) this.light(read.name, read.place, "term-cell");
    }
  }

  // Turn each matrix to where the elements are, if they are all in one place of it.
  face(reads) {
    for (const name of new Set(reads.map((read) => read.name))) {
      const known = this.lead.get(name);
      const leads = reads.filter((read) => read.name === name).map((read) => read.place.slice(0, -2));
      if (known === undefined || leads.some((lead) => String(lead) !== String(leads[0])) || String(known) === String(leads[0])) continue;
      this.lead.set(name, [...leads[0]]);
      this.draw(name);
    }
  }

  light(name, place, kind) {
    const figure = this.figures.get(name);
    if (figure === undefined) return;
    figure.querySelector(`[data-cell="${CSS.escape(label(name, place))}"]`)?.classList.add(kind);
  }

  number_(name, place, value) {
    const table = this.tables.get(name);
    if (table === undefined) return decimal(value);
    const offset = table.offset(place);
    return table.mask(offset) ? "masked" : this.textOf(table, offset);
  }

  showTrace() {
    const trace = this.trace();
    this.panel.replaceChildren();
    if (trace === null) {
      this.panel.append(el("p", { class: "hint" }, "Choose a cell: what it scanned lights up, with the arithmetic."));
      return;
    }
    const crumbs = this.path.map((entry, n) => el("li", {}, el("button", {
      type: "button", "aria-current": n === this.path.length - 1 ? "true" : null,
      onclick: () => { this.path = this.path.slice(0, n + 1); this.term = -1; this.refresh(false); this.remember(); },
    }, label(entry.name, entry.place))));
    const value = trace.masked ? "masked" : this.number_(trace.name, trace.place, NaN);
    this.panel.append(
      el("nav", { "aria-label": "the way down" }, el("ol", { class: "crumbs" }, crumbs)),
      el("h2", { class: "value" }, label(trace.name, trace.place), " ", trace.masked ? el("em", {}, "is masked") : `= ${value}`));
    const verdict = this.verdicts.get(label(trace.name, trace.place));
    if (verdict) this.panel.append(this.verdictLine(verdict));
    if (trace.clause === null) {
      this.panel.append(el("p", {}, "This is an input."));
      return;
    }
    this.panel.append(el("p", { class: "statement" }, this.formula(`${label(trace.name, trace.clause.slots.map((slot) => slot[1]))} = ${trace.clause.text}`),
      trace.clause.guardText ? [" where ", this.formula(trace.clause.guardText)] : null));
    const survives = Object.entries(trace.point).filter(([name]) => !name.startsWith("range of "));
    if (survives.length) this.panel.append(el("p", {}, "survives ", survives.map(([name, at], n) => [n ? ", " : "", this.coordinate(name), ` = ${at}`]).flat()));
    for (const scan of trace.scans) this.panel.append(this.scanView(scan));
    if (trace.scans.length === 0 && trace.reads.length) {
      this.panel.append(el("ul", {}, trace.reads.map((read) => el("li", {}, this.down(read.name, read.place), ` = ${this.number_(read.name, read.place, NaN)}`))));
    }
  }

  verdictLine(verdict) {
    const { cell } = verdict;
    return el("p", { class: `verdict-line ${cell.verdict}` }, `claimed ${cell.claimed}: ${VERDICTS[cell.verdict]}; exactly ${cell.exact}`,
      cell.off ? `, off by ${cell.off}` : "", cell.units ? `, ${cell.units} units of its last digit` : "");
  }

  down(name, place) {
    return el("button", { type: "button", class: "down", onclick: () => this.select(name, place, false) }, label(name, place));
  }

  scanView(scan) {
    const names = scan.names;
    const many = scan.terms.length > 1;
    const softmax = scan.normalises && scan.op !== "cumsum";
    const several = scan.terms.some((term) => term.factors.length > 1);
    const width = Math.max(0, ...scan.terms.map((term) => term.factors.length));
    const shared = scan.terms.some((term) => term.share !== null);
    const head = el("tr", {}, names.map((name) => el("th", { scope: "col" }, this.coordinate(name))),
      Array.from({ length: width }, (_, n) => el("th", { scope: "col" }, this.formula(scan.terms[0].factors[n]?.text ?? ""))),
      several ? el("th", { scope: "col" }, "term") : null, many && !scan.normalises ? el("th", { scope: "col" }, "so far") : null,
      shared ? el("th", { scope: "col" }, softmax ? "weight" : "share") : null);
    const rows = scan.terms.slice(0, 200).map((term, n) => el("tr", { class: [n === this.term ? "term-row" : "", term.here ? "here" : ""].join(" "), onclick: () => this.goTerm(n) },
      term.at.map((at) => el("th", { scope: "row" }, String(at))),
      Array.from({ length: width }, (_, m) => this.factorCell(term.factors[m])),
      several ? el("td", {}, decimal(term.value)) : null, many && !scan.normalises ? el("td", {}, decimal(term.running)) : null,
      shared ? el("td", { class: "share" }, term.share === null ? "" : [softmax ? decimal(term.share) : `${decimal(100 * term.share, 3)} %`,
        el("span", { class: "bar", style: `--share: ${Math.min(1, term.share)}`, "aria-hidden": "true" })]) : null));
    const excluded = scan.excluded.length === 0 ? null : el("p", { class: "excluded" },
      names.map((name, n) => [n ? ", " : "", this.coordinate(name)]).flat(), ` = ${listed(scan.excluded)} excluded by `, this.formula(scan.guardText ?? ""));
    return el("section", { class: "scan" }, el("p", {}, `${scan.normalises ? "normalises" : "scans"} `, names.map((name, n) => [n ? ", " : "", this.coordinate(name)]).flat(),
      ` by ${scan.op}: ${scan.terms.length} of ${scan.terms.length + scan.excluded.length} points`), excluded,
      el("table", { class: "terms" }, el("caption", { class: "unseen" }, `terms of ${scan.text}`), el("thead", {}, head), el("tbody", {}, rows)),
      scan.terms.length > 200 ? el("p", {}, `and ${scan.terms.length - 200} more`) : null);
  }

  factorCell(factor) {
    if (factor === undefined) return el("td", {});
    if (factor.name === null) return el("td", {}, decimal(factor.value), factor.reads.slice(0, 4).map((read) => [" ", this.down(read.name, read.place)]).flat());
    return el("td", {}, el("button", {
      type: "button", class: "down", title: label(factor.name, factor.place),
      onclick: (event) => { event.stopPropagation(); this.select(factor.name, factor.place, false); },
    }, this.number_(factor.name, factor.place, factor.value)));
  }

  // ----------------------------------------------------------------- claims

  claimsView() {
    if (this.data.claims.length === 0) return null;
    return el("div", { class: "claims" }, el("h2", {}, "What is claimed"), el("ul", {}, this.data.claims.map((claim) => {
      const wrong = claim.cells.filter((cell) => cell.verdict !== "holds");
      return el("li", { class: `claim ${claim.verdict}` }, el("strong", {}, VERDICTS[claim.verdict]), " ", el("code", {}, claim.text.replace(/^expect /, "").replace(/;$/, "")),
        wrong.length ? el("table", {}, el("thead", {}, el("tr", {}, ["", "claimed", "exactly", "off by"].map((word) => el("th", { scope: "col" }, word)))),
          el("tbody", {}, wrong.map((cell) => el("tr", {}, el("th", { scope: "row" }, claim.target !== null ? this.down(claim.target, cell.place) : cell.place.join(", ")),
            el("td", {}, cell.claimed), el("td", {}, cell.exact), el("td", {}, cell.off ?? ""))))) : ` (${claim.counted})`);
    })));
  }

  // ---------------------------------------------------------- communication

  talkView() {
    if (this.data.communication.length === 0) return null;
    this.talk = { gather: this.data.communication[0], by: "weight", apart: {}, asks: 0 };
    this.talkRoot = el("div", { class: "talk" });
    this.drawTalk();
    return this.talkRoot;
  }

  drawTalk() {
    const { gather } = this.talk;
    const table = this.tables.get(gather.definition);
    if (table === undefined) return;
    const size = (name) => table.shape[gather.home.indexOf(name)];
    for (const name of gather.apart) this.talk.apart[name] ??= 0;
    const choose = (name) => el("label", {}, this.coordinate(name), " = ", el("select", {
      "aria-label": name, onchange: (event) => { this.talk.apart[name] = Number(event.target.value); this.drawTalk(); },
    }, Array.from({ length: size(name) }, (_, n) => el("option", { value: String(n), selected: n === this.talk.apart[name] }, String(n)))));
    const ways = [["weight", "by weight"], ["carried", "by what is carried, ‖w·V‖"]];
    if (gather.after !== null) ways.push(["after", `after ${gather.after.matrix[1]}`]);
    const way = el("fieldset", { class: "ways" }, el("legend", {}, "lines as thick as"), ways.map(([key, words]) => el("label", {},
      el("input", { type: "radio", name: `by-${this.number}`, value: key, checked: key === this.talk.by, onchange: () => { this.talk.by = key; this.drawTalk(); } }), ` ${words}`)));
    const queries = size(gather.query);
    const keys = this.relation.value(gather.keys[1], { [gather.query]: queries - 1, ...this.talk.apart });
    const single = queries > MOST_LINES || keys > MOST_LINES;
    const who = single ? el("label", {}, this.coordinate(gather.query), " = ", el("input", {
      type: "number", min: "0", max: String(queries - 1), value: String(this.talk.asks),
      onchange: (event) => { this.talk.asks = Math.max(0, Math.min(queries - 1, Number(event.target.value))); this.drawTalk(); } })) : null;
    const others = this.data.communication.length > 1 ? el("select", { "aria-label": "which gather", onchange: (event) => {
      this.talk.gather = this.data.communication[Number(event.target.value)];
      this.talk.apart = {};
      this.drawTalk();
    } }, this.data.communication.map((entry, n) => el("option", { value: String(n), selected: entry === gather }, entry.definition))) : null;
    const parts = [el("h2", {}, "Who listens to whom"), others, ...gather.apart.map(choose), who, way, this.lines(gather, queries, keys, single)];
    this.talkRoot.replaceChildren(...parts.filter((part) => part !== null));
  }

  strength(gather, query, key) {
    const point = { ...this.talk.apart, [gather.query]: query, [gather.key]: key, [`range of ${gather.key}`]: [0, key + 1] };
    if (gather.guard !== null && !this.relation.value(gather.guard, point)) return null;
    if (this.relation.isMasked(gather.weight, point)) return null;
    const weight = Number(this.relation.value(gather.weight, point));
    if (this.talk.by === "weight") return weight;
    const table = this.tables.get(gather.definition);
    const carried = [...placesOf(gather.carry.map((name) => table.shape[gather.home.indexOf(name)]))].map((place) => {
      const inner = { ...point, ...Object.fromEntries(gather.carry.map((name, n) => [name, place[n]])) };
      return { inner, value: weight * gather.values.reduce((product, value) => product * Number(this.relation.value(value, inner)), 1) };
    });
    if (this.talk.by === "carried" || gather.after === null) return Math.hypot(...carried.map((entry) => entry.value));
    const { after } = gather;
    const features = after.features.filter((name) => !after.home.includes(name));
    const sizes = features.map((name) => this.tables.get(after.definition).shape[this.tables.get(after.definition).tensor.coordinates.indexOf(name)]);
    let total = 0;
    for (const place of placesOf(sizes)) {
      const there = Object.fromEntries(features.map((name, n) => [name, place[n]]));
      const sum = carried.reduce((found, { inner, value }) => {
        const at = Object.fromEntries(after.home.map((name, n) => [name, inner[gather.home[n]]]));
        return found + value * Number(this.relation.value(after.matrix, { ...at, ...there }));
      }, 0);
      total += sum * sum;
    }
    return Math.sqrt(total);
  }

  lines(gather, queries, keys, single) {
    const rows = Math.max(single ? Math.min(keys, 512) : keys, single ? 1 : queries);
    const pitch = single ? Math.max(2, Math.min(22, 640 / rows)) : Math.max(10, Math.min(28, 640 / rows));
    const height = rows * pitch + 40;
    const picture = svg("svg", { viewBox: `0 0 360 ${height}`, class: "lines", role: "img", "aria-label": `${gather.query} asks, ${gather.key} answers` });
    picture.append(svg("text", { x: 60, y: 14, "text-anchor": "end", class: "head" }, `${gather.query} asks`), svg("text", { x: 300, y: 14, class: "head" }, `${gather.key} answers`));
    const y = (n, count) => 30 + (n + 0.5) * ((rows * pitch) / count);
    const asking = single ? [this.talk.asks] : Array.from({ length: queries }, (_, n) => n);
    const found = asking.flatMap((query) => Array.from({ length: keys }, (_, key) => ({ query, key, strength: this.strength(gather, query, key) })));
    const most = Math.max(...found.map((entry) => entry.strength ?? 0)) || 1;
    for (const { query, key, strength } of found) {
      if (strength === null || !(strength > most / 200)) continue;
      const line = svg("line", { x1: 66, y1: single ? 30 + (rows * pitch) / 2 : y(query, queries), x2: 294, y2: y(key, keys), "stroke-width": 0.5 + 7 * (strength / most), "stroke-opacity": 0.15 + 0.7 * (strength / most), "data-query": query, "data-key": key, "data-strength": strength });
      line.append(svg("title", {}, `${gather.query} = ${query} hears ${gather.key} = ${key}: ${decimal(strength)}`));
      picture.append(line);
    }
    const dot = (x, at, text, anchor) => [svg("circle", { cx: x, cy: at, r: Math.min(4, pitch / 3) }), pitch >= 9 ? svg("text", { x: x + (anchor === "end" ? -8 : 8), y: at + 4, "text-anchor": anchor }, text) : null];
    for (const query of asking) picture.append(...dot(66, single ? 30 + (rows * pitch) / 2 : y(query, queries), String(query), "end").filter(Boolean));
    for (let key = 0; key < keys; key += 1) picture.append(...dot(294, y(key, keys), String(key), "start").filter(Boolean));
    return picture;
  }
}

// ---------------------------------------------------------------------- parts

const ROLES = { input: "input", given: "given", definition: "computed" };
const VERDICTS = { holds: "holds", rounding: "within rounding", fails: "fails" };

function placeOf(shape, offset) {
  const place = [];
  for (const length of [...shape].reverse()) {
    place.unshift(offset % length);
    offset = Math.floor(offset / length);
  }
  return place;
}

function* placesOf(sizes) {
  if (sizes.length === 0) {
    yield [];
    return;
  }
  for (let at = 0; at < sizes[0]; at += 1) for (const rest of placesOf(sizes.slice(1))) yield [at, ...rest];
}

function listed(places) {
  const shown = places.slice(0, 12).map((place) => (place.length === 1 ? String(place[0]) : `(${place.join(", ")})`));
  return shown.join(", ") + (places.length > 12 ? `, … (${places.length})` : "");
}

function rgb(text) {
  const hex = text.trim().replace("#", "");
  return [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

function mixed(from, to, part) {
  return from.map((value, n) => Math.round(value + (to[n] - value) * Math.min(1, part)));
}
