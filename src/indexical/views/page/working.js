// One number: how it comes about, term by term, and the way down to what it reads.
"use strict";

const MOST_ROWS = 200;

Object.assign(Page.prototype, {
  select(name, place, fresh) {
    this.together((page) => {
      const table = page.tables.get(name);
      if (table === undefined || place.length !== table.shape.length || place.some((at, axis) => at >= table.shape[axis])) return;
      if (table.tensor.hidden && page.inside !== undefined) page.openInside();
      if (fresh) page.path = [];
      const at = page.path.findIndex((entry) => label(entry.name, entry.place) === label(name, place));
      if (at >= 0) page.path = page.path.slice(0, at);
      page.path.push({ name, place });
      page.term = -1;
      page.refresh();
      if (getComputedStyle(page.panel.parentElement).position === "fixed") page.root.querySelector(".now-cell")?.scrollIntoView({ block: "nearest" });
    });
  },

  // Back to a cell on the way down; to none at -1.
  back(to) {
    this.together((page) => {
      page.path = page.path.slice(0, to + 1);
      page.term = -1;
      page.refresh();
    });
  },

  trace() {
    const here = this.path.at(-1);
    if (here === undefined) return null;
    const key = label(here.name, here.place);
    if (this.traced?.key !== key) this.traced = { key, trace: this.relation.trace(here.name, here.place) };
    return this.traced.trace;
  },

  termsOf(trace) {
    return trace === null || trace.scans.length === 0 ? [] : trace.scans[0].terms;
  },

  // An element as a text, in the form that was chosen.
  numberAt(name, place, value = NaN) {
    const table = this.tables.get(name);
    if (table === undefined) return decimal(value);
    const offset = table.offset(place);
    return table.mask(offset) ? "masked" : this.textOf(table, offset);
  },

  showTrace() {
    const trace = this.trace();
    const focused = this.panel.contains(document.activeElement);
    const scrolled = this.panel.parentElement.scrollTop;
    const same = this.traced?.shown === this.traced?.key && trace !== null;
    this.panel.replaceChildren(...(trace === null ? [el("p", { class: "hint" }, "Choose a cell: what it scanned lights up, with the arithmetic.")] : this.traceParts(trace)));
    this.panel.parentElement.classList.toggle("open", trace !== null);
    this.panel.parentElement.scrollTop = same ? scrolled : 0;
    if (this.traced !== undefined) this.traced.shown = trace === null ? null : this.traced.key;
    this.said.textContent = trace === null ? "" : this.panel.querySelector("h2").textContent;
    if (focused && trace !== null) (this.panel.querySelector("tr.term-row .at") ?? this.panel.querySelector("h2")).focus({ preventScroll: same });
  },

  traceParts(trace) {
    const { name, place, clause } = trace;
    const key = label(name, place);
    const table = this.tables.get(name);
    const crumbs = this.path.map((entry, n) => el("li", {}, button(label(entry.name, entry.place), { "aria-current": n === this.path.length - 1 ? "true" : null }, () => this.back(n))));
    const parts = [
      el("div", { class: "way" }, el("nav", { "aria-label": "the way down" }, el("ol", { class: "crumbs" }, crumbs)), button("×", { class: "close", "aria-label": "close", title: "close" }, () => this.back(-1))),
      el("h2", { class: "value", tabindex: "-1" }, key, " ", trace.masked ? el("em", {}, "is masked") : `= ${this.numberAt(name, place)}`),
      trace.masked ? null : this.otherForm(table, table.offset(place)),
      ...(this.verdicts.get(key) ?? []).map((verdict) => this.verdictLine(verdict)),
    ];
    if (clause === null) return [...parts, el("p", {}, "This is an input.")].filter(Boolean);
    parts.push(el("p", { class: "statement" }, this.formula(`${label(name, clause.slots.map((slot) => String(slot[1])))} = ${clause.text}`), clause.guardText ? [" where ", this.formula(clause.guardText)] : null));
    const survives = Object.entries(trace.point).filter(([coordinate]) => !coordinate.startsWith("range of "));
    if (survives.length) parts.push(el("p", {}, "survives ", joined(survives.map(([coordinate, at]) => [this.coordinate(coordinate), ` = ${this.called(coordinate, at)}`]))));
    parts.push(this.arithmetic(trace), this.sentenceFor(name, place));
    for (const scan of trace.scans) parts.push(this.scanView(scan, trace.scans[0] === scan));
    if (trace.reads.length) {
      parts.push(el("ul", { class: "reads", "aria-label": "read besides" }, trace.reads.slice(0, 40).map((read) => el("li", {}, this.down(read.name, read.place), ` = ${this.numberAt(read.name, read.place)}`))));
    }
    return parts.filter((part) => part !== null);
  },

  // Beside a decimal its exact form, beside an exact form its decimal.
  otherForm(table, offset) {
    const { exact } = table.tensor;
    const value = table.values[offset];
    if (exact === undefined || Number.isNaN(Number(value)) || exact[offset] === decimal(value)) return null;
    return el("p", { class: "other-form" }, this.form === "decimal" ? `exactly ${exact[offset]}` : `≈ ${decimal(value, 7)}`, table.isNamed(offset) ? " (by name: exactness ended before)" : "");
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

  down(name, place) {
    return button(label(name, place), { class: "down" }, () => this.select(name, place, false));
  },

  // ------------------------------------------------------------------- scans

  scanView(scan, stepped) {
    const { names, terms } = scan;
    const width = Math.max(0, ...terms.map((term) => term.factors.length));
    const softmax = scan.normalises && scan.op !== "cumsum";
    const exact = this.exactTerms(scan);
        const columns = [
      width > 1 ? ["term", (term, n) => breakable(exact?.[n].term ?? this.termText(scan, term))] : null,
      terms.length > 1 && !scan.normalises && (exact !== null || terms.every((term) => !Number.isNaN(Number(term.running)))) && RUNNING[scan.op] !== undefined
        ? ["so far", (term, n) => exact?.[n].running ?? decimal(term.running)] : null,
      terms.some((term) => term.share !== null && !Number.isNaN(term.share)) ? [softmax ? { softmax: "weight", log_softmax: "log weight", rank: "rank" }[scan.op] : "share", (term) => (scan.op === "rank" ? `${term.share}` : shareCell(term.share, softmax))] : null,
    ].filter(Boolean);
    const first = Math.max(0, Math.min(this.term - MOST_ROWS / 2, terms.length - MOST_ROWS));
    const rows = terms.slice(first, first + MOST_ROWS).map((term, m) => {
      const n = first + m;
      const go = stepped ? () => this.goTerm(n) : null;
      return el("tr", { class: [stepped && n === this.term ? "term-row" : "", term.here ? "here" : "", term.masked ? "absent" : ""].join(" ").trim() },
        term.at.map((at, m) => el("th", { scope: "row", title: `${names[m]} = ${at}` }, go === null ? this.called(names[m], at) : button(this.called(names[m], at), { class: "at", "aria-label": `term ${n + 1}: ${names[m]} = ${at}` }, go))),
        Array.from({ length: width }, (_, m) => this.factorCell(term.factors[m])), columns.map(([words, cell]) => el("td", { class: words }, cell(term, n))));
    });
    const head = el("tr", {}, names.map((name) => el("th", { scope: "col" }, this.coordinate(name))),
      Array.from({ length: width }, (_, n) => el("th", { scope: "col" }, this.formula(terms[0].factors[n]?.text ?? ""))), columns.map(([words]) => el("th", { scope: "col" }, words)));
    const coordinates = () => joined(names.map((name) => this.coordinate(name)));
    return el("section", { class: "scan" },
      el("p", {}, `${scan.normalises ? "normalises" : "scans"} `, coordinates(), ` by ${scan.op}: ${terms.length} of ${terms.length + scan.excluded.length} points`),
      scan.excluded.length === 0 ? null : el("p", { class: "excluded" }, coordinates(), ` = ${listed(scan.excluded)} excluded by `, this.formula(scan.guardText ?? "")),
      terms.length === 0 ? null : el("div", { class: "scroll" }, el("table", { class: "terms" }, el("caption", { class: "unseen" }, `terms of ${scan.text}`), el("thead", {}, head), el("tbody", {}, rows))),
      terms.length > MOST_ROWS ? el("p", { class: "hint" }, `terms ${first + 1} to ${first + rows.length} of ${terms.length}; ▲ and ▼ go through all`) : null);
  },

  // A term as a number; as a product of what is only named where it has none.
  termText(scan, term) {
    if (term.masked) return "0";
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

  // ------------------------------------------------------------------ claims

  claimsView() {
    const { claims } = this.data;
    if (claims.length === 0) return null;
    return el("div", { class: "claims" }, el("h2", {}, "What is claimed"), el("ul", {}, claims.map((claim) => {
      const wrong = claim.cells.filter((cell) => cell.verdict !== "holds");
      const place = (cell) => (cell.at !== null ? this.down(claim.target, cell.at) : claim.coordinates.map((name, n) => `${name} = ${cell.place[n]}`).join(", "));
      return el("li", { class: `claim ${claim.verdict}` }, el("strong", {}, VERDICTS[claim.verdict]), " ", el("code", {}, this.formula(shortened(claim.text))),
        wrong.length === 0 ? ` (${claim.counted})` : el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["", "claimed", "exactly", "off by"].map((word) => el("th", { scope: "col" }, word)))),
          el("tbody", {}, wrong.map((cell) => el("tr", {}, el("th", { scope: "row" }, place(cell)), el("td", {}, cell.claimed), el("td", {}, cell.exact), el("td", {}, cell.off ?? "")))))));
    })));
  },
});

function shareCell(share, softmax) {
  if (share === null) return "";
  return [softmax ? decimal(share) : percent(share).replace("less than", "<"), el("span", { class: "bar", style: `--share: ${Math.min(1, Math.max(0, share))}`, "aria-hidden": "true" })];
}

function shortened(text) {
  const claim = text.replace(/^expect /, "").replace(/;$/, "");
  return claim.length > 120 ? `${claim.slice(0, 119)}…` : claim;
}
