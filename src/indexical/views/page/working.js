// The working, between the operands and the result: chosen by what a definition does, with a beat for each act.
"use strict";

const MOST_COLUMNS = 6; // Of more terms, the largest, and the others as one.

const RACES = new Set(["max", "min", "argmax", "argmin"]);

Object.assign(Page.prototype, {
  // What happens to a cell, act by act: a word for it, and its sign in the notation.
  beatsOf(trace) {
    const { clause, scans } = trace;
    if (clause === null || clause.body[0] === "array" || clause.body[0] === "const") return [];
    const read = { word: "line up", sign: "read" };
    if (trace.masked) return [{ word: "left out", sign: "masked" }];
    if (scans.length === 0) return [read, { word: clause.body[0] === "read" ? "take over" : "compute", sign: "=" }];
    const last = isWhole(trace) ? [] : [finishOf(clause.body)];
    if (scans.length > 1) return [read, ...scans.map((scan) => ({ word: verbOf(scan.op), sign: signOf(scan) })), ...last];
    const [scan] = scans;
    if (this.mixes(trace)) return [read, { word: "weigh", sign: "*" }, { word: "mix", sign: signOf(scan) }, ...last];
    if (scan.op === "softmax" || scan.op === "log_softmax") {
      return [read, { word: "raise", sign: "exp" }, { word: "add up", sign: "sum" }, scan.op === "softmax" ? { word: "share", sign: "÷ sum" } : { word: "logarithm", sign: "log" }, ...last];
    }
    const product = ["sum", "mean", "prod"].includes(scan.op) && scan.terms.some((term) => term.factors.length > 1);
    return [read, ...(product ? [{ word: "multiply", sign: "*" }] : []), { word: verbOf(scan.op), sign: signOf(scan) }, ...last];
  },

  // The gather that this cell is made by, where it is one: values mixed by their weights.
  mixes(trace) {
    const gather = this.data.communication.find((entry) => entry.definition === trace.name);
    if (gather === undefined || trace.clause.body[0] !== "reduce" || gather.carry.length === 0) return undefined;
    return gather;
  },

  workView(trace) {
    const beats = this.beatsOf(trace);
    if (trace.masked) return el("div", { class: "absent-note" }, el("span", { class: "hatched" }), el("p", {}, "No number: ", this.whyAbsent(trace)));
    if (beats.length === 0) return el("p", { class: "hint" }, "These numbers stand in the text.");
    const { scans } = trace;
    if (scans.length === 0) return this.pointwise(trace);
    const last = isWhole(trace) ? null : this.finish(trace, beats.length - 1);
    if (scans.length > 1) return [scans.map((scan, n) => this.totalled(scan, n + 1, scans.length)), last];
    const [scan] = scans;
    const gather = this.mixes(trace);
    if (gather !== undefined) return [this.mix(trace, gather), last];
    if (scan.op === "softmax" || scan.op === "log_softmax") return [this.shared(trace, scan), last];
    if (RACES.has(scan.op) || scan.op === "rank") return [this.race(trace, scan), last];
    return [this.dot(trace, scan), last];
  },

  whyAbsent(trace) {
    const guard = trace.clause.guardText ?? trace.scans[0]?.guardText;
    return guard ? [this.formula(guard), this.voice === "plain" ? " does not hold here" : " is false"] : "it is made of what was left out";
  },

  // ------------------------------------------------------------------- parts

  // A part that appears on a beat; `from`: the cell that it comes flying from.
  appear(beat, node, from, until) {
    node.dataset.beat = beat;
    if (until !== undefined) node.dataset.until = until;
    if (from !== undefined) node.from = from;
    return node;
  },

  box(value, kind = "") {
    const text = typeof value === "string" ? value : short(value);
    return el("span", { class: `box ${kind}${Number(value) < 0 ? " negative" : ""}${text.length > 4 ? " tight" : ""}`, title: text.length > 6 ? text : null }, text);
  },

  // An element of a tensor, in the form that was chosen, short enough for a box.
  brief(name, place, value) {
    const table = this.tables.get(name);
    if (table === undefined) return short(value);
    return this.cellText(name, table, table.offset(place), place).text;
  },

  factorBox(factor, beat) {
    if (factor === undefined) return el("span", {});
    if (factor.name === null) return this.appear(beat, this.box(Number(factor.value)));
    const node = this.box(this.brief(factor.name, factor.place, factor.value), Number(factor.value) < 0 ? "negative" : "");
    node.style.setProperty("--tint", tintOf(this.tables.get(factor.name), Number(factor.value)).toFixed(3));
    return this.appear(beat, node, label(factor.name, factor.place));
  },

  // The terms that there is room for, in order; the others as one, so that sums still close.
  pick(scan, most = MOST_COLUMNS) {
    const terms = scan.terms.filter((term) => !term.masked);
    if (terms.length <= most) return { terms, others: null };
    const weight = (term) => (scan.op === "softmax" || scan.op === "log_softmax" ? Number(term.value) : Math.abs(term.value));
    const order = [...terms].sort((a, b) => Number(b.here ?? false) - Number(a.here ?? false) || weight(b) - weight(a));
    const kept = new Set(order.slice(0, most - 1));
    const rest = terms.filter((term) => !kept.has(term));
    return { terms: terms.filter((term) => kept.has(term)), others: { count: rest.length, value: rest.reduce((sum, term) => sum + Number(term.value), 0), share: rest.reduce((sum, term) => sum + (term.share ?? 0), 0), terms: rest } };
  },

  pointOf(scan, term) {
    return Object.fromEntries(scan.names.map((name, n) => [bare(name), term.at[n]]));
  },

  heading(scan, term) {
    const words = scan.names.map((name, n) => this.called(name, term.at[n])).join(",");
    return this.linked(el("span", { class: `head c${this.colours.get(bare(scan.names[0])) ?? ""}` }, words), this.pointOf(scan, term));
  },

  columns(count, rows, labels = false) {
    return el("div", { class: labels ? "columns labelled" : "columns", style: `--count: ${count}` }, rows);
  },

  // --------------------------------------------------------------------- sums

  // A dot product: rows under each other, products, and the sum as a staircase.
  dot(trace, scan) {
    const { terms, others } = this.pick(scan);
    const count = terms.length + (others === null ? 0 : 1);
    const width = Math.max(0, ...terms.map((term) => term.factors.length));
    const hasProducts = width > 1 && ["sum", "mean", "prod"].includes(scan.op);
    const link = (node, term) => this.linked(node, this.pointOf(scan, term));
    const rows = [terms.map((term) => this.heading(scan, term)), others === null ? [] : el("span", { class: "head", title: `${others.count} others` }, `+${others.count}`)];
    for (let n = 0; n < Math.min(width, 4); n += 1) {
      if (n > 0) rows.push(el("span", { class: "sign", style: "grid-column: 1 / -1" }, "×"));
      rows.push(terms.map((term) => link(this.factorBox(term.factors[n], 0), term)), others === null ? [] : el("span", { class: "box blank" }, "…"));
    }
    const value = (term) => this.briefTerm(scan, term);
    if (hasProducts) {
      rows.push(el("span", { class: "sign", style: "grid-column: 1 / -1" }, "="));
      rows.push(terms.map((term) => link(this.appear(1, this.box(value(term), "product")), term)), others === null ? [] : this.appear(1, this.box(others.value)));
    }
    const beat = hasProducts ? 2 : 1;
    const stairs = ["sum", "mean", "cumsum"].includes(scan.op) && terms.every((term) => Number.isFinite(Number(term.value))) ? this.appear(beat, staircase([...terms.map((term) => Number(term.value)), ...(others === null ? [] : [others.value])])) : "";
    const total = this.box(isWhole(trace) ? this.brief(trace.name, trace.place, scan.value) : short(scan.value), `big${isWhole(trace) ? " final" : ""}`);
    const words = el("span", { class: "label" }, this.voice === "plain" ? OPERATIONS_IN_WORDS[scan.op] : signOf(scan));
    return [this.columns(Math.max(1, count), rows), stairs, this.appear(beat, el("div", { class: "equation" }, words, total))];
  },

  briefTerm(scan, term) {
    return Number.isNaN(Number(term.value)) ? this.termText(scan, term) : short(Number(term.value));
  },

  // One of several sums in a line: its products in small, and what they make.
  totalled(scan, beat, count) {
    const { terms } = this.pick(scan, 5);
    const isWide = count <= 2 && !scan.normalises;
    return this.appear(beat, el("div", { class: "totalled" }, el("span", { class: "label" }, `${this.voice === "plain" ? OPERATIONS_IN_WORDS[scan.op] : scan.op} over `, joined(scan.names.map((name) => this.coordinate(bare(name))))),
      isWide ? this.columns(Math.max(1, terms.length), terms.map((term) => this.linked(this.box(this.briefTerm(scan, term)), this.pointOf(scan, term)))) : null,
      isWide && terms.every((term) => Number.isFinite(Number(term.value))) && ["sum", "mean"].includes(scan.op) ? staircase(terms.map((term) => Number(term.value)), 4) : null, this.box(scan.value, "big")));
  },

  // The rest of the formula around its sums: `3 / sqrt(4) = 1.5`.
  finish(trace, beat) {
    const text = this.shallow(trace);
    return this.appear(beat, el("div", { class: "equation" }, el("span", { class: "label" }, `${text} =`), this.box(this.brief(trace.name, trace.place, trace.value), "big final")));
  },

  // The formula of a cell with a number for each of its sums.
  shallow(trace) {
    const writer = new Writer(this.relation, (name, place) => this.brief(name, place), true);
    const line = (writer.line(trace.clause.body, trace.point) ?? "…").replaceAll("+ −", "− ");
    return line.length > 90 ? `${line.slice(0, 88)}…` : line;
  },

  // ------------------------------------------------------------------- shares

  // A row becomes a distribution: raised, laid end to end, shared out.
  shared(trace, scan) {
    const { terms, others } = this.pick(scan);
    const excluded = terms.length + scan.excluded.length <= MOST_COLUMNS ? scan.excluded : [];
    const all = [...terms.map((term) => ({ at: term.at, term })), ...excluded.map((at) => ({ at, term: null }))].sort((a, b) => a.at[0] - b.at[0]);
    const most = scan.terms.reduce((largest, term) => Math.max(largest, Number(term.value)), -Infinity);
    const isFar = Math.abs(most) > 20;
    const raised = (value) => Math.exp(Number(value) - (isFar ? most : 0));
    const total = scan.terms.reduce((sum, term) => sum + raised(term.value), 0);
    const rest = others === null ? 0 : others.terms.reduce((sum, term) => sum + raised(term.value), 0);
    const tallest = Math.max(...terms.map((term) => raised(term.value))) || 1;
    const link = (node, entry) => this.linked(node, this.pointOf(scan, entry));
    const hatched = () => el("span", { class: "box hatched" });
    const bar = (value, here) => el("span", { class: `bar${here ? " here" : ""}${value > tallest ? " broken" : ""}` }, el("i", { style: `--size: ${Math.min(1, value / tallest).toFixed(4)}` }), el("em", {}, short(value)));
    const part = (value, here) => el("b", { class: here ? "here" : "", style: `flex-grow: ${Math.max(value / total, 0.0001)}` });
    const share = (entry) => (entry.term.here && isWhole(trace) ? this.brief(trace.name, trace.place, scan.value) : scan.op === "log_softmax" ? short(entry.term.share) : this.shareText(trace, entry.term));
    const count = all.length + (others === null ? 0 : 1);
    const over = (cells, other) => [cells, others === null ? [] : other];
    const factor = (entry) => (entry.term.factors.length === 1 ? this.factorBox(entry.term.factors[0], 0) : this.appear(0, this.box(Number(entry.term.value))));
    return [
      this.columns(count, [
        over(all.map((entry) => this.heading(scan, entry)), el("span", { class: "head", title: `${others?.count} others` }, `+${others?.count}`)),
        over(all.map((entry) => link(entry.term === null ? hatched() : factor(entry), entry)), el("span", { class: "box blank" }, "…")),
        this.appear(1, el("span", { class: "label", style: "grid-column: 1 / -1" }, isFar ? "e to the power of the score less the largest" : "e to the power of the score")),
        over(all.map((entry) => link(entry.term === null ? el("span", { class: "bar hatched" }) : this.appear(1, bar(raised(entry.term.value), entry.term.here)), entry)), this.appear(1, bar(rest, false))),
      ]),
      this.appear(2, el("div", { class: "together" }, el("span", { class: "label" }, Number.isNaN(total) ? "together, not known" : ["together ", el("b", {}, short(total))]), el("div", { class: "stack" }, all.filter((entry) => entry.term !== null).map((entry) => link(part(raised(entry.term.value), entry.term.here), entry)), others === null ? null : part(rest, false)))),
      this.appear(3, el("span", { class: "label" }, scan.op === "log_softmax" ? "divided by the whole, as a logarithm" : `divided by ${Number.isNaN(total) ? "the whole" : short(total)}${this.voice === "plain" ? ": the whole is 100\u202f%" : ""}`)),
      this.appear(3, this.columns(count, over(all.map((entry) => link(entry.term === null ? hatched() : this.box(share(entry), entry.term.here ? "final" : ""), entry)), this.box(others === null ? "" : this.sharesOf(trace.name, others.terms.map((term) => trace.place.map((at, n) => (n === this.distributionAxis(trace.name) ? term.at[0] : at)))) ?? short(others.share))))),
    ];
  },

  // What several cells of a distribution have together; null where they are no shares.
  sharesOf(name, places) {
    const shares = this.voice === "plain" && this.form === "decimal" ? places.map((place) => this.percentAt(name, place)) : [null];
    return shares.includes(null) ? null : `${shares.reduce((sum, share) => sum + share, 0)}\u202f%`;
  },

  shareText(trace, term) {
    const axis = this.distributionAxis(trace.name);
    const place = trace.place.map((at, n) => (n === axis ? term.at[0] : at));
    const share = this.voice === "plain" && this.form === "decimal" && axis >= 0 ? this.percentAt(trace.name, place) : null;
    return share === null ? short(term.share) : `${share}\u202f%`;
  },

  // Values mixed by their weights: what each key hands on, times its share.
  mix(trace, gather) {
    const table = this.tables.get(trace.name);
    const axis = gather.home.indexOf(gather.carry.at(-1));
    const [scan] = trace.scans;
    const room = this.zones.clientWidth;
    const shown = windowOf(table.shape[axis], room > 736 && room < 860 ? 2 : 4, trace.place[axis]);
    const { terms, others } = this.pick({ ...scan, terms: scan.terms.map((term) => ({ ...term, value: this.weightOf(gather, term.inner), source: term })) }, 6);
    const at = (term, n) => ({ ...term.inner, [gather.carry.at(-1)]: n });
    const value = (term, n) => gather.values.reduce((product, factor) => product * Number(this.relation.value(factor, at(term, n))), 1);
    const from = (term, n) => gather.values.filter((factor) => factor[0] === "read").map((factor) => label(factor[1], this.relation.place(factor, at(term, n))))[0];
    const weightFrom = (term) => (gather.weight[0] === "read" ? label(gather.weight[1], this.relation.place(gather.weight, term.inner)) : undefined);
    const placed = (n) => trace.place.map((old, m) => (m === axis ? n : old));
    const [only] = gather.values.length === 1 && gather.values[0][0] === "read" ? gather.values : [null];
    const handed = (term, n) => (only === null ? value(term, n) : this.brief(only[1], this.relation.place(only, at(term, n)), value(term, n)));
    const weighed = (term, n) => this.briefTerm(scan, { ...term, value: term.value * value(term, n), inner: at(term, n) });
    const carried = bare(gather.carry.at(-1));
    const head = [el("span", {}), el("span", { class: "head" }, this.voice === "plain" ? "share" : "weight"), shown.map((n) => this.linked(el("span", { class: `head c${this.colours.get(carried) ?? ""}` }, this.called(carried, n)), { [carried]: n }))];
    const rows = terms.map((term) => {
      const point = { [bare(gather.query)]: term.inner[gather.query], [bare(gather.key)]: term.inner[gather.key] };
      const weight = gather.weight[0] === "read" ? this.brief(gather.weight[1], this.relation.place(gather.weight, term.inner)) : short(term.value);
      const share = this.linked(this.appear(0, this.box(weight, "share"), weightFrom(term)), point);
      share.style.setProperty("--share", bounded(term.value, 0, 1).toFixed(3));
      return [this.heading(scan, term), share, shown.map((n) => this.linked(el("span", { class: "swap" },
        this.appear(0, this.box(handed(term, n), n === trace.place[axis] ? "now" : ""), from(term, n), 1), this.appear(1, this.box(weighed(term, n), n === trace.place[axis] ? "now" : ""))), { ...point, [carried]: n }))];
    });
    const rest = others === null ? [] : [el("span", { class: "head" }, `${others.count} others`), this.box((gather.weight[0] === "read" ? this.sharesOf(gather.weight[1], others.terms.map((term) => this.relation.place(gather.weight, term.inner))) : null) ?? others.value, "share"), shown.map((n) => this.appear(1, this.box(others.terms.reduce((sum, term) => sum + Number(term.value) * value(term, n), 0))))];
    const sums = [el("span", { class: "head" }, this.voice === "plain" ? "together" : "sum"), el("span", {}), shown.map((n) => this.appear(2, this.box(this.brief(trace.name, placed(n)), n === trace.place[axis] && isWhole(trace) ? "final" : "")))];
    return el("div", { class: "columns mix", style: `--count: ${shown.length}` }, head, rows, rest, el("span", { class: "rule" }), sums);
  },

  weightOf(gather, inner) {
    return Number(this.relation.value(gather.weight, inner));
  },

  // The largest or the smallest: bars, with the winner framed.
  race(trace, scan) {
    const { terms, others } = this.pick(scan, 8);
    const values = terms.map((term) => Number(term.value));
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    const wide = high - low || 1;
    const isRank = scan.op === "rank";
    const winner = isRank ? terms.find((term) => term.here) : terms.find((term) => (scan.op.startsWith("arg") ? term.at[0] === scan.value : Number(term.value) === Number(scan.value)));
    const rows = terms.map((term) => {
      const value = Number(term.value);
      const bar = el("span", { class: "lane" }, el("i", { class: value < 0 ? "negative" : "", style: `left: ${(100 * (Math.min(0, value) - low)) / wide}%; width: ${(100 * Math.abs(value)) / wide}%` }));
      const number = term.factors.length === 1 ? this.factorBox(term.factors[0], 0) : this.appear(0, this.box(value));
      const mark = this.appear(1, el("span", { class: "label" }, term === winner ? (isRank ? `place ${term.share}` : "✓") : isRank ? String(term.share) : ""));
      return [this.heading(scan, term), number, this.appear(0, bar), mark].map((node) => this.linked(node, this.pointOf(scan, term)));
    });
    const result = this.appear(1, el("div", { class: "equation" }, el("span", { class: "label" }, OPERATIONS_IN_WORDS[scan.op]), this.box(isWhole(trace) ? this.brief(trace.name, trace.place, scan.value) : Number(scan.value), `big${isWhole(trace) ? " final" : ""}`)));
    return [el("div", { class: "race" }, rows), others === null ? "" : el("p", { class: "hint" }, `and ${others.count} others`), result];
  },

  // Rows under each other: what is read, and what it makes, along the last coordinate.
  pointwise(trace) {
    const { clause, place, name, point } = trace;
    const axis = clause.slots.findLastIndex((slot) => slot[0] === "coord");
    const table = this.tables.get(name);
    const reads = [...new Map(readsIn(clause.body).filter((read) => this.tables.has(read[1])).map((read) => [read[3], read])).values()].filter((read) => this.isReached(clause.body, read, point)).slice(0, 5);
    const wide = (found) => Math.min(6, matrixOf(this.tables.get(found))[1]);
    const isLong = reads.some((read) => read[3].length > 12) || wide(name) + Math.max(0, ...reads.map((read) => wide(read[1]))) > 9;
    const shown = axis < 0 ? [place[axis]] : windowOf(table.shape[axis], isLong ? 3 : 5, place[axis]);
    const coordinate = axis < 0 ? null : clause.slots[axis][1];
    const at = (n) => {
      const other = place.map((old, m) => (m === axis ? n : old));
      const found = axis < 0 ? { clause, point } : this.relation.clauseAt(name, other);
      return found?.clause === clause && !table.isMasked(other) ? { point: found.point, place: other } : null;
    };
    const link = (node, n) => (coordinate === null ? node : this.linked(node, { [bare(coordinate)]: n }));
    const head = coordinate === null ? [] : [el("span", {}), shown.map((n) => link(el("span", { class: `head c${this.colours.get(bare(coordinate)) ?? ""}` }, this.called(coordinate, n)), n))];
    const rows = reads.map((read) => [el("span", { class: "label read", title: read[3] }, this.formula(read[3])), shown.map((n) => {
      const there = at(n);
      if (there === null) return el("span", { class: "box blank" });
      const from = this.relation.place(read, there.point);
      const inside = this.isPlace(read[1], from);
      return link(inside ? this.factorBox({ name: read[1], place: from, value: this.relation.read(read, there.point) }, 0) : el("span", { class: "box blank" }), n);
    })]);
    const results = [el("span", { class: "label read" }, el("code", {}, name)), shown.map((n) => {
      const there = at(n);
      const isHere = n === place[axis];
      return there === null ? el("span", { class: "box blank" }) : link(this.appear(1, this.box(this.brief(name, there.place), isHere ? "final" : "")), n);
    })];
    return [this.columns(shown.length, [head, rows, el("span", { class: "rule" }), results], true),
      clause.body[0] === "read" || clause.text.length > 80 ? "" : this.appear(1, el("p", { class: "formula" }, this.formula(clause.text))),
      ["read", "if"].includes(clause.body[0]) ? "" : this.appear(1, el("div", { class: "equation" }, el("span", { class: "label" }, `${this.shallow(trace)} =`), el("b", {}, this.brief(name, place))))];
  },

  // Whether a read is evaluated here: not one of a branch that was not taken.
  isReached(expr, read, point) {
    if (expr === read) return true;
    if (!Array.isArray(expr)) return false;
    if (expr[0] === "if") return this.isReached(expr[1], read, point) || this.isReached(this.relation.value(expr[1], point) ? expr[2] : expr[3], read, point);
    return expr.some((part) => this.isReached(part, read, point));
  },
});

// Whether a cell is nothing but its one sum, without anything around it.
const isWhole = (trace) => trace.clause.body[0] === "reduce" || trace.clause.body[0] === "normalize";

const verbOf = (op) => ({ sum: "add up", mean: "average", prod: "multiply", max: "compare", min: "compare", argmax: "compare", argmin: "compare", any: "ask", all: "ask", cumsum: "add up", rank: "order" })[op] ?? op;

const signOf = (scan) => `${scan.op}[${scan.names.map(bare).join(", ")}]`;

const finishOf = (body) => (body[0] === "map" && (body[1] === "/" || body[1] === "*") ? { word: "scale", sign: body[1] } : { word: "finish", sign: body[0] === "map" ? body[1] : "=" });

// Terms that follow each other, from nothing to their sum.
function staircase(values, height = 7) {
  let running = 0;
  const steps = values.map((value) => { running += value; return [running - value, running]; });
  const [low, high] = [Math.min(0, ...steps.flat()), Math.max(0, ...steps.flat())];
  const wide = high - low || 1;
  const x = (value) => ((value - low) / wide) * 190 + 1;
  const bar = (from, to, row, kind) => svg("rect", { x: Math.min(x(from), x(to)), width: Math.max(1, Math.abs(x(to) - x(from))), y: row * (height + 3), height, rx: 1.5, class: kind });
  const total = steps.length * (height + 3) + height;
  return svg("svg", { class: "stairs", viewBox: `0 0 192 ${total}`, "aria-hidden": "true", style: `height: ${total / 16}rem` },
    svg("line", { x1: x(0), x2: x(0), y1: 0, y2: total }), steps.map(([from, to], row) => bar(from, to, row, to < from ? "negative" : "positive")), bar(0, running, steps.length, "total"));
}
