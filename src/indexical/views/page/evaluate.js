// The relation, evaluated at a point: what a cell scanned, term by term. Values come from the tables of the page.
"use strict";

class Relation {
  constructor(page) {
    this.page = page;
    this.tensors = new Map(page.tensors.map((tensor) => [tensor.name, new Table(tensor)]));
    this.sizes = page.sizes;
    this.isExact = page.tensors.some((tensor) => tensor.exact !== undefined);
  }

  value(expr, point) {
    switch (expr[0]) {
      case "const": return expr[1];
      case "coord": return point[expr[1]];
      case "size": return this.sizes[expr[1]];
      case "read": return this.read(expr, point);
      case "map": return this.apply(expr, point);
      case "if": return this.value(this.value(expr[1], point) ? expr[2] : expr[3], point);
      case "reduce": return this.reduce(expr, point);
      case "normalize": return this.normalize(expr, point);
      case "array": return expr[2][offsetOf(expr[1], expr[3].map((index) => this.value(index, point)))];
      default: throw new Error(`unknown expression ${expr[0]}`);
    }
  }

  place(expr, point) {
    return expr[2].map((index) => this.value(index, point));
  }

  read(expr, point) {
    const table = this.tensors.get(expr[1]);
    const place = this.place(expr, point);
    // A changed number may be an index: then it may lead outside.
    if (this.isChecked && place.some((at, axis) => !(at >= 0 && at < table.shape[axis]))) throw new Impossible(`${expr[1]}[${place.join(", ")}] would be read, and it has no such point`);
    return table === undefined ? NaN : table.at(place);
  }

  apply(expr, point) {
    const [, op, operands] = expr;
    if (op === "&&") return this.value(operands[0], point) && this.value(operands[1], point);
    if (op === "||") return this.value(operands[0], point) || this.value(operands[1], point);
    if ((op === "*" || op === "/") && this.isMasked(expr, point)) return 0;
    const values = operands.map((operand) => this.value(operand, point));
    if (op.startsWith("as ")) return cast(op.slice(3), values[0], this.isExact);
    const known = OPERATIONS[op] ?? FUNCTIONS[op];
    if (known === undefined) throw new Error(`unknown operation ${op}`);
    return known(...values);
  }

  // A factor that a guard removed carries nothing: what it multiplies is not read.
  isMasked(expr, point) {
    switch (expr[0]) {
      case "read": {
        const table = this.tensors.get(expr[1]);
        return table !== undefined && table.isMasked(this.place(expr, point));
      }
      case "map":
        if (expr[1] === "*") return expr[2].some((operand) => this.isMasked(operand, point));
        return (expr[1] === "/" || expr[1] === "neg") && this.isMasked(expr[2][0], point);
      case "normalize": return expr[1] !== "log_softmax" && expr[1] !== "rank" && expr[4] !== null && !this.value(expr[4], point);
      case "if": return this.isMasked(this.value(expr[1], point) ? expr[2] : expr[3], point);
      default: return false;
    }
  }

  // Every point of some ranges, the last running fastest. A normaliser inside asks for the range it runs over.
  *points(ranges, outer) {
    if (ranges.length === 0) {
      yield outer;
      return;
    }
    const [name, lower, upper] = ranges[0];
    const [low, high] = [this.value(lower, outer), this.value(upper, outer)];
    for (let step = low; step < high; step += 1) {
      this.spend?.();
      yield* this.points(ranges.slice(1), { ...outer, [name]: step, [`range of ${name}`]: [low, high] });
    }
  }

  reduce(expr, point) {
    const [, op, ranges, body, guard] = expr;
    const values = [];
    const places = [];
    for (const inner of this.points(ranges, point)) {
      if (guard === null || this.value(guard, inner)) {
        values.push(this.value(body, inner));
        places.push(inner[ranges[0][0]]);
      }
    }
    return REDUCTIONS[op](values, places);
  }

  normalize(expr, point) {
    const [, op, name, body, guard] = expr;
    const isLeftOut = guard !== null && !this.value(guard, point);
    if (isLeftOut && op !== "rank") return op === "log_softmax" ? -Infinity : 0;
    const row = this.row(expr, point);
    if (op === "rank") return isLeftOut ? row.length : placeIn(row, point[name]);
    if (op === "cumsum") {
      return row.filter((entry) => entry.step <= point[name]).reduce((sum, entry) => sum + entry.value, 0);
    }
    row.share ??= shareOf(op, row);
    return row.share(this.value(body, point));
  }

  // The points of a normalised coordinate that the guard keeps.
  row(expr, point) {
    const [, , name, body, guard] = expr;
    // While all cells are computed, those of a row follow each other: it is made once for them.
    const key = this.rows === undefined ? null : otherThan(name, point);
    const last = this.rows?.get(expr);
    if (last !== undefined && last.key === key) return last.found;
    const [low, high] = point[`range of ${name}`] ?? [0, this.sizes[name] ?? 0];
    const found = [];
    for (let step = low; step < high; step += 1) {
      this.spend?.();
      const inner = { ...point, [name]: step };
      if (guard === null || this.value(guard, inner)) found.push({ step, inner, value: this.value(body, inner) });
    }
    this.rows?.set(expr, { key, found });
    return found;
  }

  // The clause that defines a cell, and the values of its coordinates there.
  clauseAt(name, place) {
    for (const clause of this.page.relation[name].clauses) {
      const point = {};
      const fits = clause.slots.every((slot, axis) => {
        if (slot[0] === "coord") {
          point[slot[1]] = place[axis];
          return true;
        }
        return this.value(slot, {}) === place[axis];
      });
      if (!fits) continue;
      const inside = clause.ranges.every(([coordinate, low, high]) => {
        const bounds = [this.value(low, point), this.value(high, point)];
        point[`range of ${coordinate}`] = bounds;
        return bounds[0] <= point[coordinate] && point[coordinate] < bounds[1];
      });
      if (inside) return { clause, point };
    }
    return null;
  }

  // What a cell is made of: its reductions and normalisers with their terms, and what it reads besides.
  trace(name, place) {
    const found = this.page.relation[name] === undefined ? null : this.clauseAt(name, place);
    const table = this.tensors.get(name);
    const masked = table.isMasked(place);
    if (found === null) return { name, place, masked, scans: [], reads: [], clause: null, point: {} };
    const { clause, point } = found;
    if (masked && clause.guard !== null && !this.value(clause.guard, point)) {
      return { name, place, masked, scans: [], reads: [], clause, point };
    }
    const scans = [];
    const reads = [];
    this.collect(clause.body, point, scans, reads);
    return { name, place, masked, scans, reads, clause, point };
  }

  collect(expr, point, scans, reads) {
    switch (expr[0]) {
      case "reduce":
        scans.push(this.scanned(expr, point));
        return;
      case "normalize":
        scans.push(this.normalised(expr, point));
        return;
      case "read":
        reads.push({ name: expr[1], place: this.place(expr, point) });
        for (const index of expr[2]) this.collect(index, point, scans, reads);
        return;
      case "map":
        if ((expr[1] === "*" || expr[1] === "/") && this.isMasked(expr, point)) return;
        for (const operand of expr[2]) this.collect(operand, point, scans, reads);
        return;
      case "if":
        this.collect(expr[1], point, scans, reads);
        this.collect(this.value(expr[1], point) ? expr[2] : expr[3], point, scans, reads);
        return;
      default:
    }
  }

  scanned(expr, point) {
    const [, op, ranges, body, guard, guardText, text] = expr;
    const names = ranges.map((range) => range[0]);
    const terms = [];
    const excluded = [];
    let running = null;
    for (const inner of this.points(ranges, point)) {
      const at = names.map((name) => inner[name]);
      if (guard !== null && !this.value(guard, inner)) {
        excluded.push(at);
        continue;
      }
      const value = this.value(body, inner);
      running = running === null ? value : (RUNNING[op] ?? ((a, b) => b))(running, value);
      terms.push({ at, value, running, inner, masked: this.isMasked(body, inner), factors: this.factors(body, inner) });
    }
    const whole = terms.reduce((sum, term) => sum + Math.abs(term.value), 0);
    // Terms of both signs have no shares: they take from each other.
    const shared = (op === "sum" || op === "mean") && whole > 0 && terms.every((term) => term.value >= 0);
    for (const term of terms) term.share = shared ? term.value / whole : null;
    return { op, names, text, body, guardText, terms, excluded, normalises: false, value: this.value(expr, point) };
  }

  normalised(expr, point) {
    const [, op, name, body, guard, guardText, text] = expr;
    const row = this.row(expr, point);
    const kept = new Set(row.map((entry) => entry.step));
    const [low, high] = point[`range of ${name}`] ?? [0, this.sizes[name] ?? 0];
    const excluded = [];
    for (let step = low; step < high; step += 1) if (!kept.has(step)) excluded.push([step]);
    const shared = op === "cumsum" || op === "rank" ? () => null : shareOf(op, row);
    const share = (entry) => (op === "rank" ? placeIn(row, entry.step) : shared(entry.value));
    const terms = row.map((entry) => ({
      at: [entry.step],
      value: entry.value,
      running: null,
      share: share(entry),
      factors: this.factors(body, entry.inner),
      inner: entry.inner,
      here: entry.step === point[name],
    }));
    return { op, names: [name], text, body, guardText, terms, excluded, normalises: true, value: this.normalize(expr, point) };
  }

  factors(body, point) {
    if (body[0] === "map" && body[1] === "*") return body[2].flatMap((operand) => this.factors(operand, point));
    const value = this.value(body, point);
    if (body[0] === "read") {
      return [{ text: body[3], value, name: body[1], place: this.place(body, point), reads: [] }];
    }
    const scans = [];
    const reads = [];
    this.collect(body, point, scans, reads);
    for (const scan of scans) reads.push(...readsOf(scan));
    return [{ text: textOf(body), value, name: null, place: null, reads }];
  }

  // Every element that a trace read, each once.
  sources(trace) {
    const found = new Map();
    const add = (read) => found.set(`${read.name}[${read.place}]`, read);
    for (const scan of trace.scans) for (const read of readsOf(scan)) add(read);
    for (const read of trace.reads) add(read);
    return [...found.values()];
  }
}

// A point without one of its coordinates, as a text.
function otherThan(name, point) {
  let key = "";
  for (const at in point) if (at !== name) key += `${point[at]} `;
  return key;
}

function readsOf(scan) {
  return scan.terms.filter((term) => !term.masked).flatMap((term) => term.factors.flatMap((factor) => (factor.name === null ? factor.reads : [factor])));
}

function textOf(expr) {
  const text = expr[expr.length - 1];
  if (expr[0] === "map") return expr[3];
  if (typeof text === "string") return text;
  return expr[0] === "const" || expr[0] === "coord" ? String(expr[1]) : expr[0] === "size" ? `size(${expr[1]})` : "…";
}

function offsetOf(shape, place) {
  return place.reduce((sum, index, axis) => sum * shape[axis] + index, 0);
}

// The cells of a tensor, in row-major order.
class Table {
  constructor(tensor) {
    this.tensor = tensor;
    this.shape = tensor.shape;
    this.size = tensor.shape.reduce((product, length) => product * length, 1);
    if (tensor.bytes !== undefined) {
      const { buffer } = bytesOf(tensor.bytes);
      this.values = tensor.wide ? new Float64Array(buffer) : new Float32Array(buffer);
      const bits = typeof tensor.masked === "string" ? bytesOf(tensor.masked) : null;
      this.mask = (offset) => bits !== null && ((bits[offset >> 3] >> (7 - (offset & 7))) & 1) === 1;
    } else {
      this.values = tensor.values.map((value) => (typeof value === "string" ? Number(SPECIAL[value] ?? value) : value));
      const masked = new Set(tensor.masked);
      this.mask = (offset) => masked.has(offset);
    }
  }

  offset(place) {
    return offsetOf(this.shape, place);
  }

  // While numbers are computed again, a cell is computed when it is asked for.
  at(place) {
    const offset = this.offset(place);
    this.demand?.(offset);
    return this.values[offset];
  }

  isMasked(place) {
    return this.mask(this.offset(place));
  }

  isNamed(offset) {
    this.names ??= new Set(this.tensor.named ?? []);
    return this.names.has(offset);
  }

  // How many decimals its numbers are shown with, at most two.
  digits() {
    this.decimals ??= [0, 1].find((digits) => this.values.every((value) => !Number.isFinite(value) || Math.abs(value * 10 ** digits - Math.round(value * 10 ** digits)) < 1e-9)) ?? 2;
    return this.decimals;
  }

  // From the smallest to the largest value that is there.
  range() {
    if (this.known === undefined) {
      let low = Infinity;
      let high = -Infinity;
      for (let offset = 0; offset < this.values.length; offset += 1) {
        const value = Number(this.values[offset]);
        if ((value < low || value > high) && Number.isFinite(value) && !this.mask(offset)) {
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
      this.known = low > high ? [0, 0] : [low, high];
    }
    return this.known;
  }
}

const SPECIAL = { inf: "Infinity", "-inf": "-Infinity", nan: "NaN" };

function bytesOf(text) {
  if (Uint8Array.fromBase64 !== undefined) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

// Softmax and log_softmax along a row, as a function of one of its values.
function shareOf(op, row) {
  const most = REDUCTIONS.max(row.map((entry) => entry.value));
  const whole = row.reduce((total, entry) => total + Math.exp(entry.value - most), 0);
  return op === "softmax" ? (value) => Math.exp(value - most) / whole : (value) => value - most - Math.log(whole);
}

// How many come before a point of a row in decreasing order: of equal ones the first, and NaN after all numbers.
function placeIn(row, step) {
  const mine = row.find((entry) => entry.step === step).value;
  const isBefore = ({ step: at, value }) =>
    value > mine || (Number.isNaN(mine) && !Number.isNaN(value)) ||
    ((value === mine || (Number.isNaN(mine) && Number.isNaN(value))) && at < step);
  return row.filter(isBefore).length;
}

// To whole: truncated toward zero. To real: rounded to the digits of the dtype, unless the page is exact.
function cast(dtype, value, isExact) {
  if (dtype === "bool") return value;
  if (/^[iu]\d/.test(dtype)) return Math.trunc(Number(value));
  const digits = { f32: 24, f16: 11, bf16: 8 }[dtype];
  if (isExact || digits === undefined || !Number.isFinite(Number(value)) || Number(value) === 0) return Number(value);
  const unit = 2 ** (Math.floor(Math.log2(Math.abs(value))) - digits + 1);
  return roundEven(value / unit) * unit;
}

function erf(x) {
  // A series near 0 and a continued fraction far from it: a decimal for the eye, not a proof.
  if (Math.abs(x) > 3) return Math.sign(x) * (1 - Math.exp(-x * x) / (Math.abs(x) * Math.sqrt(Math.PI)) * (1 - 1 / (2 * x * x)));
  let term = x;
  let sum = x;
  for (let n = 1; n < 60; n += 1) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

function roundEven(x) {
  const below = Math.floor(x);
  const rest = x - below;
  return rest === 0.5 ? below + (below % 2 === 0 ? 0 : 1) : Math.round(x);
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

const OPERATIONS = {
  "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b, "//": (a, b) => Math.trunc(a / b),
  "%": (a, b) => a % b, "**": (a, b) => a ** b, neg: (a) => -a, "!": (a) => !a,
  "==": (a, b) => a === b, "!=": (a, b) => a !== b, "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
};

const sum = (values) => values.reduce((total, value) => total + Number(value), 0);
// The first place of the best value; of the first NaN where there is one.
const best = (better) => (values, places) => {
  let found = -1;
  values.forEach((value, index) => {
    if (found < 0 || (!Number.isNaN(values[found]) && (Number.isNaN(value) || better(value, values[found])))) found = index;
  });
  return found < 0 ? -1 : places[found];
};

const REDUCTIONS = {
  sum, mean: (values) => sum(values) / values.length, prod: (values) => values.reduce((a, b) => a * b, 1),
  max: (values) => values.reduce((a, b) => Math.max(a, b), -Infinity), min: (values) => values.reduce((a, b) => Math.min(a, b), Infinity),
  any: (values) => values.some(Boolean), all: (values) => values.every(Boolean),
  argmax: best((a, b) => a > b), argmin: best((a, b) => a < b),
};

const RUNNING = { sum: (a, b) => a + b, mean: (a, b) => a + b, prod: (a, b) => a * b, max: Math.max, min: Math.min };
