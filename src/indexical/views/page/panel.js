// One number: how it comes about, term by term, the way down to what it reads, and the way up to what reads it.
"use strict";

const MOST_ROWS = 64;

Object.assign(Page.prototype, {
  panelView() {
    this.panel = el("section", { class: "panel card", "aria-label": this.landmark("One number") });
    return this.panel;
  },

  // An element as a text, in the form that was chosen.
  numberAt(name, place, value = NaN) {
    const table = this.tables.get(name);
    if (table === undefined) return decimal(value);
    const offset = table.offset(place);
    return table.mask(offset) ? "masked" : this.textOf(table, offset);
  },

  drawPanel() {
    const trace = this.trace();
    const focused = this.panel.contains(document.activeElement);
    const key = trace === null ? "" : label(trace.name, trace.place);
    const scrolled = this.panelKey === key && this.panelKey !== undefined ? this.panel.scrollTop : 0;
    this.panel.replaceChildren(...(trace === null ? [el("p", { class: "hint" }, this.isEmpty(this.scene) ? "There is no number here to explain." : "Choose a cell to see how it comes about.")] : this.traceParts(trace)));
    if (scrolled > 0) this.panel.scrollTop = scrolled; // Asking where it is costs a layout.
    this.panelKey = key;
    if (focused && trace !== null) (this.panel.querySelector("tr.term-row .at") ?? this.panel.querySelector("h2")).focus({ preventScroll: true });
  },

  traceParts(trace) {
    const { name, place, clause } = trace;
    const key = label(name, place);
    const table = this.tables.get(name);
    const crumbs = this.path.map((entry, n) => el("li", {}, button(label(entry.name, entry.place), { "aria-current": n === this.path.length - 1 ? "true" : null }, () => this.back(n))));
    const parts = [
      el("div", { class: "way" }, el("nav", { "aria-label": this.landmark("The way down") }, el("ol", { class: "crumbs" }, crumbs)), button("×", { class: "close icon", "aria-label": "close", title: "close" }, () => this.panel.classList.remove("open"))),
      el("h2", { class: "value", tabindex: "-1" }, el("span", {}, this.subject(name, place)), el("b", { class: this.figureOf(name, place).length > 16 ? "figure long" : "figure" }, trace.masked ? "masked" : breakable(this.figureOf(name, place).replace(/^-(?=[\d∞])/, "−")))),
      trace.masked ? null : this.otherForm(name, table, place),
      ...(this.verdicts.get(key) ?? []).map((verdict) => this.verdictLine(verdict)),
    ];
    if (clause === null) return [...parts, el("p", {}, "This is an input."), this.editor(name, place), this.upward(name, place), keysView()].filter(Boolean);
    parts.push(el("p", { class: "statement" }, this.formula(`${label(name, clause.slots.map((slot) => String(slot[1])))} = ${clause.text}`), clause.guardText ? [" where ", this.formula(clause.guardText)] : null));
    parts.push(this.arithmetic(trace), ...trace.scans.map((scan) => this.scanView(scan, trace.scans[0] === scan, trace)));
    if (trace.reads.length) {
      parts.push(el("ul", { class: "reads", "aria-label": "read besides" }, trace.reads.slice(0, 40).map((read) => el("li", {}, this.down(read.name, read.place), ` = ${this.numberAt(read.name, read.place)}`))));
    }
    if (clause.body[0] === "array" || clause.body[0] === "const") parts.push(this.editor(name, place));
    return [...parts, this.keptFor(trace), this.upward(name, place), keysView()].filter((part) => part !== null);
  },

  // The number in large: the percentage of a share, else its decimals; a long form stands in its own line.
  figureOf(name, place) {
    const table = this.tables.get(name);
    const share = this.voice === "plain" && this.form === "decimal" ? this.percentAt(name, place) : null;
    if (share !== null) return `${share}\u202f%`;
    const text = this.textOf(table, table.offset(place));
    return text.length <= 24 || Number.isNaN(Number(table.at(place))) ? text : decimal(table.at(place));
  },

  // Beside a decimal its exact form, beside an exact form its decimal, beside a percentage the number.
  otherForm(name, table, place) {
    const offset = table.offset(place);
    const { exact } = table.tensor;
    const value = table.values[offset];
    const forms = [];
    if (this.figureOf(name, place) !== this.textOf(table, offset)) forms.push(this.form === "decimal" ? decimal(value, 6) : this.textOf(table, offset));
    if (exact !== undefined && !Number.isNaN(Number(value)) && exact[offset] !== decimal(value)) forms.push(this.form === "decimal" ? `exactly ${exact[offset]}` : `≈ ${decimal(value, 7)}`);
    if (forms.length === 0) return null;
    return el("p", { class: "other-form" }, forms.join(" · "), table.isNamed(offset) ? " (by name: exactness ended before)" : "");
  },

  arithmetic(trace) {
    if (trace.masked || trace.clause.body[0] === "array" || trace.clause.body[0] === "const") return null;
    const writer = new Writer(this.relation, (name, place) => this.numberAt(name, place));
    const line = writer.line(trace.clause.body, trace.point);
    const result = this.numberAt(trace.name, trace.place);
    if (line === null) return null;
    return el("p", { class: "arithmetic" }, el("code", {}, `${label(trace.name, trace.place)} = ${line}${line === result ? "" : ` = ${result}`}`));
  },

  verdictLine({ claim, cell }) {
    return el("p", { class: `verdict-line ${cell.verdict}` }, `claimed ${cell.claimed}: ${VERDICTS[cell.verdict]}; exactly ${cell.exact}`,
      cell.off ? `, off by ${cell.off}` : "", cell.units ? `, ${cell.units} units of its last digit` : "", el("small", {}, ` (line ${claim.line})`));
  },

  down(name, place, fresh = false) {
    return button(label(name, place), { class: "down" }, () => this.select(name, place, fresh));
  },

  // Which coordinates it is kept for.
  keptFor(trace) {
    const survives = Object.entries(trace.point).filter(([coordinate]) => !coordinate.startsWith("range of "));
    if (survives.length === 0) return null;
    return el("p", { class: "kept" }, this.voice === "plain" ? "kept for " : "survives ", joined(survives.map(([coordinate, at]) => [this.coordinate(bare(coordinate)), ` = ${this.called(coordinate, at)}`])));
  },

  // The cells that read this one, as far as their coordinates say which.
  upward(name, place) {
    const found = this.steps.filter((step) => step.name !== name).flatMap((step) => {
      const clause = this.data.relation[step.name].clauses.at(-1);
      const read = readsIn(clause.body).find((entry) => entry[1] === name && !coordinatesOf(entry).includes(null));
      if (read === undefined) return [];
      const known = Object.fromEntries(coordinatesOf(read).map((axis, n) => [axis, place[n]]));
      const there = this.axesOf(step.name).map((axis, n) => bounded(known[axis] ?? this.here[axis] ?? 0, 0, this.tables.get(step.name).shape[n] - 1));
      const { tables } = this;
      return tables.get(step.name).size === 0 || tables.get(step.name).isMasked(there) ? [] : [{ name: step.name, place: there }];
    });
    if (found.length === 0) return null;
    return el("p", { class: "upward" }, "Goes on into ", joined(found.slice(0, 4).map((cell) => [this.down(cell.name, cell.place, true), ` = ${this.figureOf(cell.name, cell.place)}`])));
  },

  // ------------------------------------------------------------------- scans

  scanView(scan, stepped, trace) {
    const { names } = scan;
    const terms = scan.terms.filter((term) => !term.masked);
    const width = Math.max(0, ...terms.map((term) => term.factors.length));
    const exact = this.exactTerms(scan);
    const columns = this.termColumns(scan, terms, width, exact, trace);
    const first = Math.max(0, Math.min(this.term - MOST_ROWS / 2, terms.length - MOST_ROWS));
    const rows = terms.slice(first, first + MOST_ROWS).map((term, m) => {
      const n = first + m;
      const go = stepped ? () => this.goTerm(scan.terms.indexOf(term)) : null;
      const isNow = stepped && this.term >= 0 && scan.terms[this.term] === term;
      return this.linked(el("tr", { class: [isNow ? "term-row" : "", term.here ? "here" : ""].join(" ").trim() },
        term.at.map((at, k) => el("th", { scope: "row", class: `c${this.colours.get(bare(names[k])) ?? ""}`, title: `${names[k]} = ${at}` }, go === null ? this.called(names[k], at) : button(this.called(names[k], at), { class: "at", "aria-label": `${this.called(names[k], at)}, term ${n + 1}: ${names[k]} = ${at}` }, go))),
        Array.from({ length: width }, (_, k) => this.factorCell(term.factors[k])), columns.map(([words, cell]) => el("td", { class: words === "" ? "bars" : "" }, cell(term, scan.terms.indexOf(term))))), this.pointOf(scan, term));
    });
    const head = el("tr", {}, names.map((name) => el("th", { scope: "col" }, this.coordinate(bare(name)))),
      Array.from({ length: width }, (_, n) => el("th", { scope: "col" }, this.formula(terms[0].factors[n]?.text ?? ""))), columns.map(([words]) => el("th", { scope: "col" }, words || el("span", { class: "unseen" }, "bar"))));
    const total = el("tr", { class: "total" }, el("th", { scope: "row", colspan: String(names.length + width) }, this.voice === "plain" ? "together" : scan.op), columns.map(([, , sum]) => el("td", {}, sum ?? "")));
    const hasTotal = terms.length > 1 && columns.some(([, , sum]) => sum !== undefined);
    return el("section", { class: "scan" }, this.scanWords(scan, terms),
      terms.length === 0 ? null : el("div", { class: "scroll" }, el("table", { class: "terms" }, el("caption", { class: "unseen" }, `terms of ${scan.text}`), el("thead", {}, head), el("tbody", {}, rows, hasTotal ? total : null))),
      this.leftOut(scan), terms.length > MOST_ROWS ? el("p", { class: "hint" }, `terms ${first + 1} to ${first + rows.length} of ${terms.length}; the up and down keys go through all`) : null);
  },

  scanWords(scan, terms) {
    const over = () => joined(scan.names.map((name) => this.coordinate(bare(name))));
    const counted = `${terms.length} of ${scan.terms.length + scan.excluded.length} points`;
    if (this.voice !== "plain") return el("p", {}, `${scan.normalises ? "normalises" : "scans"} `, over(), ` by ${scan.op}: ${counted}`);
    if (scan.op === "softmax") return el("p", {}, "Each score becomes a positive number, and these are ", el("b", {}, "shared out so that the row makes 100\u202f%"), ".");
    return el("p", {}, el("b", {}, OPERATIONS_IN_WORDS[scan.op] ?? scan.op), " over ", [...new Set(scan.names.map((name) => this.plural(name)))].join(" and "), " (", over(), `): ${counted}.`);
  },

  leftOut(scan) {
    const absent = [...scan.excluded, ...scan.terms.filter((term) => term.masked).map((term) => term.at)];
    if (absent.length === 0) return null;
    const names = joined(scan.names.map((name) => this.coordinate(bare(name))));
    const why = scan.excluded.length && scan.guardText ? [this.voice === "plain" ? " left out: " : " excluded by ", this.formula(scan.guardText), this.voice === "plain" ? " does not hold" : ""] : this.voice === "plain" ? " left out" : " masked";
    return el("p", { class: "excluded" }, names, ` = ${listed(absent)}`, why);
  },

  // The columns after the factors: a head, a cell for each term, and what stands under them.
  termColumns(scan, terms, width, exact, trace) {
    const isNumber = terms.every((term) => Number.isFinite(Number(term.value)));
    if (scan.op === "softmax" || scan.op === "log_softmax") {
      const most = terms.reduce((largest, term) => Math.max(largest, Number(term.value)), -Infinity);
      const raised = (term) => Math.exp(Number(term.value) - (Math.abs(most) > 20 ? most : 0));
      const isPlain = scan.op === "softmax" && this.voice === "plain" && this.form === "decimal";
      const whole = percents(terms.map((term) => (Number.isFinite(term.share) ? term.share : 0)));
      return [
        width > 1 ? ["score", (term) => decimal(term.value)] : null,
        isNumber ? ["e to it", (term) => short(raised(term)), short(terms.reduce((sum, term) => sum + raised(term), 0))] : null,
        [scan.op === "softmax" ? (isPlain ? "share" : "weight") : "log weight", (term) => (!Number.isFinite(term.share) ? "?" : isPlain ? `${whole[terms.indexOf(term)]}\u202f%` : decimal(term.share)), scan.op === "softmax" ? (isPlain ? "100\u202f%" : "1") : undefined],
        scan.op === "softmax" && isNumber ? ["", (term) => barOf(term.share, 0, 1)] : null,
      ].filter(Boolean);
    }
    if (scan.op === "rank") return [["rank", (term) => String(term.share)]];
    const values = terms.map((term) => Number(term.value));
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    const whole = percents(terms.map((term) => (Number.isFinite(term.share) ? term.share : 0)));
    const isRunning = terms.length > 1 && !scan.normalises && RUNNING[scan.op] !== undefined && scan.op !== "sum" && isNumber;
    return [
      width > 1 ? ["term", (term, n) => breakable(exact?.[n].term ?? this.termText(scan, term)), scan.op === "sum" ? exact?.at(-1)?.running ?? (isNumber ? decimal(scan.value) : undefined) : undefined] : null,
      terms.length > 1 && terms.every((term) => Number.isFinite(term.share)) ? ["share", (term) => `${whole[terms.indexOf(term)]}\u202f%`] : null,
      isRunning ? ["so far", (term) => decimal(term.running)] : null,
      terms.length > 1 && isNumber && (width > 1 || scan.op !== "sum" || trace !== undefined) ? ["", (term) => barOf(Number(term.value), low, high), width > 1 || scan.op !== "sum" ? undefined : exact?.at(-1)?.running ?? decimal(scan.value)] : null,
    ].filter(Boolean);
  },

  // A term as a number; as a product of what is only named where it has none.
  termText(scan, term) {
    if (this.form === "decimal" && !Number.isNaN(Number(term.value))) return decimal(term.value);
    return new Writer(this.relation, (name, place) => this.numberAt(name, place)).line(scan.body, term.inner) ?? decimal(term.value);
  },

  // Terms and their running sum as fractions, where every factor is one.
  exactTerms(scan) {
    if (this.form === "decimal" || scan.normalises || scan.op !== "sum") return null;
    const found = [];
    let running = [0n, 1n];
    for (const term of scan.terms) {
      const factors = term.masked ? [[0n, 1n]] : term.factors.map((factor) => (factor.name === null ? ratio(String(factor.value)) : ratio(this.exactAt(factor.name, factor.place))));
      if (factors.includes(null)) return null;
      const product = factors.reduce(times, [1n, 1n]);
      running = plus(running, product);
      found.push({ term: ratioText(product), running: ratioText(running) });
    }
    return found;
  },

  exactAt(name, place) {
    const table = this.tables.get(name);
    const offset = table?.offset(place);
    return table?.mask(offset) ? "0" : table?.tensor.exact?.[offset] ?? "";
  },

  factorCell(factor) {
    if (factor === undefined) return el("td", {});
    if (factor.name === null) return el("td", {}, decimal(factor.value), factor.reads.slice(0, 4).map((read) => [" ", this.down(read.name, read.place)]));
    const text = this.numberAt(factor.name, factor.place, factor.value);
    return el("td", {}, button(breakable(text), { class: "down", title: label(factor.name, factor.place), "aria-label": `${label(factor.name, factor.place)} = ${text}` }, () => this.select(factor.name, factor.place, false)));
  },
});

// What the keys do.
function keysView() {
  const keys = [[["←", "→"], "beats"], [["1", "2"], "steps"], [["space"], "play"], [["g"], "to the numbers, arrows inside"], [["t"], "terms"]];
  return el("p", { class: "keys" }, keys.map(([names, words]) => [names.map((name) => el("kbd", {}, name)), ` ${words} `]));
}

// A signed bar: from nothing to the right, or to the left.
function barOf(value, low, high) {
  const wide = high - low || 1;
  return el("span", { class: "termbar", "aria-hidden": "true" }, el("i", { class: value < 0 ? "negative" : "", style: `left: ${(100 * (Math.min(0, value) - low)) / wide}%; width: ${(100 * Math.abs(value)) / wide}%` }));
}

// A long form may break after a sign, and nowhere else.
function breakable(text) {
  return text.length < 16 ? text : joined(text.split(/(?<=[+·/\s])/u), null).map((part) => part ?? el("wbr"));
}
