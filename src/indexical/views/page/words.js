// Words: what a tensor, a coordinate and a beat are in plain words, and in those of the notation.
"use strict";

const OPERATIONS_IN_WORDS = {
  sum: "added up", mean: "averaged", prod: "multiplied together", max: "the largest", min: "the smallest", argmax: "where the largest is", argmin: "where the smallest is",
  any: "whether any holds", all: "whether all hold", softmax: "shared out to 100 %", log_softmax: "shared out, as logarithms", cumsum: "added up as it goes", rank: "its place in the order",
};

const GLOSSES = {
  queries: ["what each looks for", "A query is what a NOUN looks for. Each row is one listener."],
  keys: ["what each can be found by", "A key is what a NOUN can be found by. Where it points the same way as a query, the score is high."],
  values: ["what each hands on", "A value is what a NOUN hands on when it is heard. The larger its share, the more of it arrives."],
  scores: ["how well they match"], weights: ["shared out to 100 %"], heard: ["what each takes away"],
};

// What a gradient gathers.
const BACKWARD = { transpose: "the transpose: gathered from those that heard it", change: "gathered by how the weights change", "transposed change": "the transpose of how the weights change" };

// The reads of an expression, in order.
function readsIn(expr) {
  if (!Array.isArray(expr)) return [];
  const inner = expr.flatMap((part) => (Array.isArray(part) ? readsIn(part) : []));
  return expr[0] === "read" && typeof expr[1] === "string" ? [expr, ...inner] : inner;
}

// The outermost reductions and normalisers of an expression.
function scansIn(expr) {
  if (!Array.isArray(expr)) return [];
  if (expr[0] === "reduce" || expr[0] === "normalize") return [expr];
  return expr.flatMap((part) => (Array.isArray(part) ? scansIn(part) : []));
}

const coordinatesOf = (read) => read[2].map((index) => (index[0] === "coord" ? bare(index[1]) : null));

// The part that each tensor plays in the gather: queries, keys, values, scores, weights, heard.
function partsOf(page) {
  const { gather, data } = page;
  const parts = new Map();
  if (gather === undefined) return parts;
  const [query, key] = [bare(gather.query), bare(gather.key)];
  const bodyOf = (name) => (data.relation[name]?.clauses.length === 1 ? data.relation[name].clauses[0].body : null);
  for (const value of gather.values) for (const read of readsIn(value)) parts.set(read[1], "values");
  let matched = bodyOf(gather.tensor?.name);
  if (matched?.[0] === "normalize" && matched[3][0] === "read" && bodyOf(matched[3][1]) !== null) {
    parts.set(matched[3][1], "scores");
    matched = bodyOf(matched[3][1]);
  }
  for (const read of readsIn(matched)) {
    const names = coordinatesOf(read);
    if (!gather.compare.some((name) => names.includes(bare(name)))) continue;
    if (names.includes(query) && !names.includes(key)) parts.set(read[1], "queries");
    if (names.includes(key) && !names.includes(query)) parts.set(read[1], "keys");
  }
  if (gather.tensor !== null) parts.set(gather.tensor.name, "weights");
  parts.set(gather.definition, "heard");
  return parts;
}

function plainFate(words) {
  return words.replace("survives", "kept").replace(/consumed by (\w+)/g, (_, op) => OPERATIONS_IN_WORDS[op] ?? op).replace(/normalised by (\w+)/g, (_, op) => OPERATIONS_IN_WORDS[op] ?? op);
}

Object.assign(Page.prototype, {
  // What one point of a coordinate is: a position, a feature.
  noun(name) {
    const known = this.data.coordinates.find((entry) => entry.name === bare(name));
    if (known === undefined && this.gather?.key === name) return this.noun(this.gather.query);
    return known?.space ?? bare(name);
  },

  // What a coordinate means to a reader.
  meaning(entry) {
    const { gather } = this;
    const space = entry.space ?? "";
    if (this.voice !== "plain" || gather === undefined) return space;
    if (entry.name === bare(gather.query)) return "who listens";
    if (entry.name === bare(gather.key)) return "who is heard";
    if (gather.compare.map(bare).includes(entry.name)) return "what is compared";
    if (gather.carry.map(bare).includes(entry.name)) return "what is carried";
    return gather.apart.map(bare).includes(entry.name) ? `which ${space || entry.name}` : space;
  },

  // A point of a coordinate by its name, in the colour of the coordinate: it lights with everything else.
  named(name, at) {
    const labelled = this.data.labels[bare(name)]?.[at];
    return this.linked(el("b", { class: `c${this.colours.get(bare(name)) ?? ""}` }, labelled ?? `${this.noun(name)} ${at}`), { [bare(name)]: at });
  },

  // A few words for a tensor.
  gloss(name) {
    const step = this.steps.find((entry) => entry.name === name);
    if (this.voice !== "plain") return step === undefined ? "input" : "";
    const part = GLOSSES[this.parts.get(name)];
    if (part !== undefined) return part[0];
    if (step === undefined) return "given";
    if (this.data.kinds[name] !== undefined) return BACKWARD[this.data.kinds[name]];
    const clause = this.data.relation[name].clauses.at(-1);
    const scans = scansIn(clause.body);
    const itself = readsIn(clause.body).some((read) => read[1] === name) ? "reads itself, earlier" : "";
    if (scans.length === 0) return itself || (clause.body[0] === "read" ? "taken over" : "number by number");
    const [, op] = scans.at(-1);
    const names = scans.filter((scan) => scan[1] === op).flatMap(([, , over]) => (Array.isArray(over) ? over.map((range) => bare(range[0])) : [bare(over)]));
    const words = OPERATIONS_IN_WORDS[op] ?? op;
    return itself || (op === "softmax" ? words : `${words} over ${[...new Set(names)].join(", ")}`);
  },

  explanation(name) {
    const words = GLOSSES[this.parts.get(name)]?.[1];
    return words === undefined ? null : words.replace("NOUN", this.noun(this.parts.get(name) === "queries" ? this.gather.query : this.gather.key));
  },

  // What a cell is, as the head of its arithmetic.
  subject(name, place) {
    const point = Object.fromEntries(this.axesOf(name).map((axis, n) => [axis, place[n]]));
    const { gather } = this;
    const at = (coordinate) => this.named(coordinate, point[bare(coordinate)]);
    const has = (...coordinates) => coordinates.every((coordinate) => point[bare(coordinate)] !== undefined);
    if (this.voice === "plain" && gather !== undefined && has(gather.query)) {
      const part = this.parts.get(name);
      if (part === "weights" && has(gather.key)) return ["How much ", at(gather.query), " takes from ", at(gather.key)];
      if (part === "scores" && has(gather.key)) return ["How well ", at(gather.key), " matches what ", at(gather.query), " looks for"];
      if (part === "heard") return ["What ", at(gather.query), " takes away", gather.carry.map((axis) => [", ", at(axis)])];
    }
    return [el("code", {}, name), place.length ? " at " : "", joined(this.axesOf(name).map((axis, n) => this.named(axis, place[n])))];
  },
});
