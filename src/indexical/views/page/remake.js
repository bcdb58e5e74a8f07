// A changed text as the content of a page: what the compiler writes of a program, made here, in decimals.
"use strict";

const MOST_WORK = 100_000_000; // Points that are looked at, counted before anything is computed.
const LONGEST_TEXT = 40_000;

const arrays = new WeakMap();

// The array of an input; read once.
function arrayOf(tensor) {
  if (!arrays.has(tensor)) arrays.set(tensor, new Table(tensor));
  return { shape: tensor.shape, kind: tensor.kind, values: arrays.get(tensor).values };
}

// What a page shows of a text, on the inputs that it was made with. A text that cannot be followed is a Mistake.
function remade(base, text, modules) {
  if (text.length > LONGEST_TEXT) throw new Mistake(`this text has more than ${LONGEST_TEXT} letters`, [0, 0], "`ix show` takes longer ones");
  const given = new Map(base.tensors.filter((tensor) => tensor.role === "input").map((tensor) => [tensor.name, arrayOf(tensor)]));
  const program = new Lowering(text, given, modules).program();
  checkWork(program);
  const figures = figuresOf(program.lets);
  const inputs = program.inputs.map(({ name, axes, kind, shape }) => {
    const { tensor } = { tensor: base.tensors.find((found) => found.name === name) };
    return { ...withoutForms(tensor), kind, shape, coordinates: axes.map((axis) => axis.coordinate) };
  });
  const defined = program.lets.map(({ name, kind, axes, isHidden }) => ({
    name, kind, role: figures.has(name) ? "given" : "definition", hidden: isHidden, coordinates: axes.map((axis) => axis.coordinate),
    shape: axes.map((axis) => axis.extent), masked: [], values: new Array(axes.reduce((size, axis) => size * axis.extent, 1)).fill(0),
  }));
  const data = {
    ...base, relation: relationOf(program.lets, text), sizes: program.sizes, tensors: [...inputs, ...defined].sort(inTextOrder(program)), outputs: program.outputs,
    diagnostics: [], claims: [], ended: {}, kinds: {}, communication: [], whyNotExact: "the text was changed in the page, which follows it in decimals",
  };
  const relation = computed(data, program, text);
  data.steps = stepsOf(program, figures, text);
  data.coordinates = coordinatesIn(program, text);
  data.lines = wordsOf(text, new Set(data.tensors.map((tensor) => tensor.name)), new Set(data.coordinates.map((entry) => entry.name)));
  data.communication = gathersOf(program, relation, base);
  return data;
}

const withoutForms = ({ exact, structural, named, ...tensor }) => tensor;

// Inputs first, then definitions as they stand in the text; what functions brought along before.
function inTextOrder({ inputs, lets, order }) {
  const names = [...inputs, ...lets.filter((let_) => let_.isHidden)].map(({ name }) => name).concat(order);
  const places = new Map(names.map((name, n) => [name, n]));
  return (one, other) => places.get(one.name) - places.get(other.name);
}

// ------------------------------------------------------------------------ work

function checkWork({ lets, sizes }) {
  let work = 0;
  for (const { name, axes, clauses, span } of lets) {
    const cells = axes.reduce((product, axis) => product * axis.extent, 1);
    if (!(cells <= MOST_CELLS)) throw new Mistake(`\`${name}\` would have ${cells.toLocaleString("en")} numbers, and a page takes at most ${MOST_CELLS.toLocaleString("en")}`, inText(span), "make a range shorter; `ix show` and `ix run` take more");
    work += cells * clauses.reduce((sum, { body, guard }) => sum + workOf(body, sizes) + (guard === null ? 0 : workOf(guard, sizes)), 0);
    if (work > MOST_WORK) throw new Mistake(`\`${name}\` would look at more than ${MOST_WORK.toLocaleString("en")} points`, inText(span), "make a range shorter; `ix run` takes more");
  }
}

// About how many points are looked at for one value.
function workOf(expr, sizes) {
  const parts = partsIn(expr).reduce((sum, part) => sum + workOf(part, sizes), 0);
  const ends = (end) => (end[0] === "const" ? end[1] : end[0] === "size" ? sizes[end[1]] : end[0] === "map" ? Math.max(1, ...end[2].map(ends)) : 1);
  if (expr[0] === "reduce") return expr[2].reduce((product, [, low, high]) => product * Math.max(1, ends(high) - (low[0] === "const" ? low[1] : 0)), 1) * (1 + parts);
  return expr[0] === "normalize" ? 2 * (sizes[expr[2]] ?? 8) * (1 + parts) : 1 + parts;
}

const inText = (span) => (span.length > 2 ? [0, 0] : span);

// ---------------------------------------------------------------------- values

function relationOf(lets, text) {
  const relation = Object.create(null);
  for (const { name, axes, clauses, isHidden } of lets) {
    for (const { body } of clauses) for (const part of walkIn(body)) if (part[0] === "array") part[4] = part.span.length > 2 ? "figures" : text.slice(...part.span);
    relation[name] = {
      coordinates: axes.map((axis) => axis.coordinate), hidden: isHidden,
      clauses: clauses.map(({ slots, ranges, body, guard, parts }) => {
        for (const end of [...slots, ...ranges.flatMap(([, low, high]) => [low, high])]) spelled(end);
        for (const part of parts ?? []) [part.guard, part.body].forEach((expr) => spelled(expr));
        return { slots, ranges, body, guard, parts, guardText: guard === null ? null : spelled(guard), text: spelled(body) };
      }),
    };
  }
  return relation;
}

// Every definition, computed into the tensors of a page; what it must not do is found on the way.
function computed(data, program, text) {
  const relation = new Relation(data);
  const lets = new Map(program.lets.map((let_) => [let_.name, let_]));
  const problem = relation.again([...lets.keys()], longestWork, new Strict(relation, lets).check);
  if (problem !== "") {
    const { span, call } = lets.get(relation.failed) ?? { span: [0, 0], call: null };
    const place = span.length > 2 ? call?.span ?? [0, 0] : span;
    throw new Mistake(problem, place, relation.help ?? (problem.startsWith("This takes too long") ? "make a range shorter; `ix run` takes as long as it needs" : null));
  }
  for (const { condition, message, span } of program.asserts) if (!relation.value(condition, {})) throw new Mistake(`this does not hold: ${message}`, span, text.slice(...condition.span.slice(0, 2)));
  for (const tensor of data.tensors.filter(({ name }) => lets.has(name))) {
    const table = relation.tensors.get(tensor.name);
    tensor.masked = Array.from({ length: table.size }, (_, offset) => offset).filter((offset) => table.mask(offset));
    tensor.values = table.values;
  }
  return relation;
}

// What the compiler would have refused: points without a clause or with two, and absent points where 0 would lie.
class Strict {
  constructor(relation, lets) {
    this.relation = relation;
    this.lets = lets;
    this.leaky = new Map([...lets.values()].map(({ name }) => [name, new Uint8Array(relation.tensors.get(name).size)]));
    this.isGuarded = [...lets.values()].some(({ clauses }) => clauses.some(({ guard }) => guard !== null));
    this.rows = new Map(); // The last row of each normaliser that was looked at.
    this.check = (name, offset, found, isOut) => this.look(name, offset, found, isOut);
  }

  look(name, offset, found, isOut) {
    const { relation } = this;
    const place = placeOf(relation.tensors.get(name).shape, offset);
    const { isHidden, clauses } = this.lets.get(name);
    if (found === null) {
      if (!isHidden) throw new Impossible(`no clause says what ${label(name, place)} is`);
      return;
    }
    const holds = (found.clause.parts ?? []).filter(({ guard }) => relation.value(guard, found.point));
    if (holds.length > 1 || (clauses.length > 1 && this.fitting(name, place) > 1)) throw new Impossible(`${label(name, place)} is defined by two clauses`);
    if (!this.isGuarded) return;
    const { guard, body } = found.clause;
    if (guard !== null) this.leaks(guard, found.point);
    this.leaky.get(name)[offset] = Number(isOut || this.leaks(body, found.point));
  }

  fitting(name, place) {
    const { page } = this.relation;
    return page.relation[name].clauses.filter((clause) => {
      const point = {};
      const isHere = clause.slots.every((slot, axis) => {
        if (slot[0] !== "coord") return this.relation.value(slot, {}) === place[axis];
        point[slot[1]] = place[axis];
        return true;
      });
      return isHere && clause.ranges.every(([coordinate, low, high]) => this.relation.value(low, point) <= point[coordinate] && point[coordinate] < this.relation.value(high, point));
    }).length;
  }

  // Whether a value may be absent at a point. A place inside that cannot bear it is refused.
  leaks(expr, point) {
    const { relation } = this;
    const some = (parts) => parts.map((part) => this.leaks(part, point)).some(Boolean);
    switch (expr[0]) {
      case "read": {
        expr[2].forEach((index) => this.refuse(this.leaks(index, point), "an index", expr));
        const table = relation.tensors.get(expr[1]);
        const offset = table.offset(relation.place(expr, point));
        table.demand?.(offset);
        return this.leaky.get(expr[1])?.[offset] === 1;
      }
      case "map": {
        const [, op, parts] = expr;
        if (op === "&&" || op === "||") {
          some([parts[0]]);
          if (Boolean(relation.value(parts[0], point)) === (op === "&&")) some([parts[1]]);
          return false;
        }
        const found = parts.map((part) => this.leaks(part, point));
        parts.forEach((part, n) => this.refuse(found[n] && isSensitive(op, n, parts), ["/", "//", "%"].includes(op) ? `a divisor of \`${op === "//" ? "/" : op}\`` : /^[=!<>]/.test(op) ? "a comparison" : `\`${op}\``, part));
        return expr.kind !== "bool" && found.some(Boolean);
      }
      case "if":
        some([expr[1]]);
        return some([relation.value(expr[1], point) ? expr[2] : expr[3]]);
      case "reduce": case "normalize": {
        const key = expr[0] === "normalize" ? otherThan(expr[2], point) : null;
        if (key !== null && this.rows.get(expr) === key) return false;
        if (key !== null) this.rows.set(expr, key);
        const inner = expr[0] === "reduce" ? relation.points(expr[2], point) : this.along(expr, point);
        for (const at of inner) {
          if (expr[4] !== null) this.leaks(expr[4], at);
          if (expr[4] !== null && !relation.value(expr[4], at)) continue;
          this.refuse(this.leaks(expr[3], at) && WORDS.scanning.includes(expr[1]), `\`${expr[1]}\``, expr[3]);
        }
        return false;
      }
      default: return false;
    }
  }

  * along([, , name], point) {
    const [low, high] = point[`range of ${name}`] ?? [0, this.relation.sizes[name] ?? 0];
    for (let step = low; step < high; step += 1) yield { ...point, [name]: step };
  }

  refuse(isBad, reader, expr) {
    if (!isBad) return;
    this.relation.help = "repeat the guard where it is read: `… where …`";
    throw new Impossible(`${textOf(expr)} is absent at some points, and ${reader} would read it there`);
  }
}

// Whether an operation may not read an absent point as this argument: with 0 in its place it need not be 0.
function isSensitive(op, n, parts) {
  const figure = (part) => (part[0] === "const" ? part[1] : part[0] === "map" && part[1] === "neg" && part[2][0][0] === "const" ? -part[2][0][1] : NaN);
  if (op === "**") return n === 1 || !(parts[1][0] === "const" && parts[1][1] > 0);
  if (op === "clamp") return n > 0 || !(figure(parts[1]) <= 0 && figure(parts[2]) >= 0);
  const first = own(WORDS.present, op);
  return first !== undefined && (first === "every" || first.includes(n));
}

// ----------------------------------------------------------------------- steps

// The definitions that are nothing but figures.
function figuresOf(lets) {
  const found = new Set();
  for (const { name, clauses } of lets) {
    const isFigure = ({ body, guard }) => guard === null && (body[0] === "array" || (body[0] === "const" && !body.isPi) || (body[0] === "read" && found.has(body[1])));
    if (clauses.every(isFigure)) found.add(name);
  }
  return found;
}

function stepsOf({ lets }, figures, text) {
  const byName = new Map(lets.map((let_) => [let_.name, let_]));
  const steps = lets.filter(({ name }) => !figures.has(name));
  const owners = new Map();
  for (const let_ of reversed(steps)) {
    const owner = let_.isHidden ? owners.get(let_.name) ?? let_.name : let_.name;
    for (const name of readsOfLet(let_)) owners.set(name, owner);
  }
  const seen = (let_, found = new Set(), done = new Set()) => {
    for (const name of readsOfLet(let_)) {
      if (done.has(name)) continue;
      done.add(name);
      if (byName.get(name)?.isHidden) seen(byName.get(name), found, done);
      else found.add(name);
    }
    return found;
  };
  const line = (at) => text.slice(0, at).split("\n").length;
  return steps.map((let_) => {
    const lines = [];
    for (const span of [...let_.clauses.map((clause) => clause.span), let_.span, let_.call?.span]) {
      if (span === undefined || span.length > 2) continue;
      const [first, last] = [line(span[0]), line(Math.max(span[0], span[1] - 1))];
      if (!lines.some(([low, high]) => low <= first && last <= high)) lines.push([first, last]);
    }
    return { name: let_.name, inside: let_.isHidden ? owners.get(let_.name) ?? let_.name : null, words: stepWords(let_), reads: [...seen(let_)], lines };
  });
}

// Each coordinate with its space and what happens to it, definition by definition.
function coordinatesIn({ inputs, lets, spaces, order }, text) {
  const names = new Set();
  const written = lets.filter((let_) => !let_.isHidden).sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
  for (const { axes } of [...inputs, ...written]) for (const { coordinate } of axes) names.add(coordinate.replace(/^\.\./, ""));
  const bound_ = new Set(lets.flatMap((let_) => [...saidIn(let_).filter((part) => part[0] === "reduce").flatMap((part) => part[2]), ...let_.clauses.flatMap((clause) => clause.ranges)]).map(([name]) => name));
  for (const { kind, text: word } of tokensOf(text)) if (kind === "name" && bound_.has(word)) names.add(word);
  return [...names].map((name, colour) => {
    const story = written.flatMap((let_) => {
      const words = let_.axes.some(({ coordinate }) => coordinate.replace(/^\.\./, "") === name) ? ["survives"] : [];
      for (const part of saidIn(let_)) {
        if (part[0] === "reduce" && part[2].some(([over]) => over === name)) words.push(`consumed by ${part[1]}`);
        if (part[0] === "normalize" && part[2] === name) words.push(`normalised by ${part[1]}`);
      }
      return words.length > 0 ? [[let_.name, [...new Set(words)].sort((a, b) => Number(b === "survives") - Number(a === "survives") || (a < b ? -1 : 1)).join(", ")]] : [];
    });
    return { name, colour, space: spaces.get(name) ?? null, story };
  });
}

// --------------------------------------------------------------------- gathers

// Sums over one coordinate of weights times values, or such a sum divided by another number: who listens to whom. What
// makes weights of a factor are its numbers; of a sum that was a gather before, also that it alone knows who asks and
// who answers.
function gathersOf({ lets, spaces }, relation, base) {
  const first = base.communication[0]?.definition;
  const found = lets.flatMap((let_) => {
    const [{ body, guard }] = let_.clauses;
    const sum_ = body[0] === "map" && body[1] === "/" ? body[2][0] : body;
    if (let_.clauses.length > 1 || sum_[0] !== "reduce" || sum_[1] !== "sum" || sum_[2].length !== 1) return [];
    const [[key, low, high]] = sum_[2];
    const home = let_.axes.map((axis) => axis.coordinate);
    const before = base.communication.find((entry) => entry.definition === let_.name && entry.key === key && String(entry.home) === String(home));
    const isAsking = (name) => spaces.get(name) !== undefined && spaces.get(name) === spaces.get(key);
    const factors = factorsIn(sum_[3], relation, 3);
    const plain = factors.filter((factor) => isWeight(factor, key, relation));
    const weights = plain.length > 0 || before === undefined ? plain : factors.filter((factor) => freeIn(factor).has(key) && freeIn(factor).has(before.query));
    if (weights.length !== 1) return [];
    const [weight] = weights;
    const values = factors.filter((factor) => factor !== weight);
    const heard = new Set(values.flatMap((factor) => [...freeIn(factor)]));
    const shared = home.filter((name) => freeIn(weight).has(name));
    const alone = shared.filter((name) => !heard.has(name));
    const asked = alone.length > 0 ? alone : shared;
    const query = shared.find((name) => name === before?.query) ?? asked.find(isAsking) ?? asked.at(-1);
    if (query === undefined || !heard.has(key)) return [];
    const apart_ = query === before?.query ? before.apart : home.filter((name) => name !== query && freeIn(weight).has(name));
    const divided = sum_ === body ? weight : applied("/", [weight, ...body[2].slice(1)], "real", body.span);
    spelled(divided);
    const tensor = heldBy(divided, query, key);
    return [{
      definition: let_.name, query, key, keys: [low, high], guard: sum_[4], where: guard, carry: home.filter((name) => name !== query && !apart_.includes(name)), apart: apart_, home, weight: divided, tensor, values,
      after: projectionOf(let_, lets), compare: before?.compare ?? comparedIn(weight, relation), ...(tensor === null ? { heads: [], words: {} } : patternsOf(relation.tensors.get(tensor.name), tensor)),
    }];
  });
  return found.sort((one, other) => Number(other.definition === first) - Number(one.definition === first));
}

// The factors of a product, also of one that has a name of its own.
function factorsIn(expr, relation, depth) {
  if (expr[0] === "map" && expr[1] === "*") return expr[2].flatMap((part) => factorsIn(part, relation, depth));
  const clauses = expr[0] === "read" ? relation.page.relation[expr[1]]?.clauses : undefined;
  const isProduct = depth > 0 && clauses?.length === 1 && clauses[0].guard === null && clauses[0].body[0] === "map" && clauses[0].body[1] === "*" && !walkIn(clauses[0].body).some((part) => part[0] === "normalize");
  if (!isProduct) return [expr];
  const values = new Map(clauses[0].slots.map((slot, n) => [slot[1], expr[2][n]]));
  const opened = substituted(clauses[0].body, values);
  spelled(opened);
  return factorsIn(opened, relation, depth - 1);
}

// Whether a factor is a share of the key: a softmax over it, or a tensor whose numbers make 1 along it.
function isWeight(factor, key, relation) {
  if (factor[0] === "normalize") return factor[1] === "softmax" && factor[2] === key;
  if (factor[0] !== "read" || factor[2].filter((index) => index[0] === "coord" && index[1] === key).length !== 1) return false;
  const table = relation.tensors.get(factor[1]);
  const along = factor[2].findIndex((index) => index[1] === key);
  const values = [...table.values].map(Number);
  if (table.size === 0 || table.shape.length < 2 || values.some((value) => !(value >= 0))) return false;
  const sums = new Map();
  values.forEach((value, offset) => {
    const row = String(placeOf(table.shape, offset).filter((_, n) => n !== along));
    sums.set(row, (sums.get(row) ?? 0) + value);
  });
  const totals = [...sums.values()];
  return totals.every((total) => Math.abs(total - 1) < 1e-6 || total === 0) && totals.some((total) => total > 0);
}

function heldBy(weight, query, key) {
  if (weight[0] !== "read" || weight[2].some((index) => index[0] !== "coord")) return null;
  const coordinates = weight[2].map((index) => index[1]);
  if (!coordinates.includes(query) || !coordinates.includes(key) || new Set(coordinates).size < coordinates.length) return null;
  return { name: weight[1], coordinates, query: coordinates.indexOf(query), key: coordinates.indexOf(key) };
}

// The coordinates over which queries and keys were compared.
function comparedIn(weight, relation, depth = 3) {
  const sums = walkIn(weight).filter((part) => part[0] === "reduce" && part[1] === "sum").flatMap((part) => part[2].map(([name]) => name));
  if (sums.length > 0 || depth === 0) return [...new Set(sums)];
  return [...new Set(readsIn(weight).flatMap((read) => (relation.page.relation[read[1]]?.clauses ?? []).flatMap(({ body }) => comparedIn(body, relation, depth - 1))))];
}

// `sum[h, e](out[…, h, …, e] * W_O[h, e, m])`: what takes on what was gathered.
function projectionOf(gather, lets) {
  const sumIn = (expr) => {
    if (expr[0] === "reduce") return expr[1] === "sum" ? expr : null;
    const found = expr[0] === "map" && expr[1] === "+" ? expr[2].map(sumIn).filter((part) => part !== null) : [];
    return found.length === 1 ? found[0] : null;
  };
  for (const { name, clauses } of lets) {
    const sum_ = clauses.length === 1 ? sumIn(clauses[0].body) : null;
    if (sum_ === null || sum_[3][0] !== "map" || sum_[3][1] !== "*") continue;
    const taken = sum_[3][2].filter((part) => part[0] === "read" && part[1] === gather.name);
    const rest = sum_[3][2].filter((part) => !taken.includes(part));
    if (taken.length !== 1 || rest.length !== 1 || rest[0][0] === "map" || taken[0][2].some((index) => index[0] !== "coord")) continue;
    const over = new Set(sum_[2].map(([found]) => found));
    return { definition: name, home: taken[0][2].map((index) => index[1]), matrix: rest[0], features: [...freeIn(rest[0])].filter((found) => !over.has(found)).sort() };
  }
  return null;
}
