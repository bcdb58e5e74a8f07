// The arithmetic of a cell as a line of figures: `0.5·1 + 0.3·3 + 0.2·5`, in the form that was chosen.
"use strict";

const MOST_TERMS = 8; // Of a longer sum, the first and the last terms.
const LONGEST_LINE = 400;

// How tightly a text holds together: what holds less than its surroundings ask is put in parentheses.
const LOOSE = 0, SUM = 2, PRODUCT = 3, SIGN = 4, ATOM = 5;
const INFIX = {
  "||": [LOOSE, " || "], "&&": [LOOSE, " && "], "==": [1, " == "], "!=": [1, " != "], "<": [1, " < "], "<=": [1, " <= "], ">": [1, " > "], ">=": [1, " >= "],
  "+": [SUM, " + "], "-": [SUM, " - "], "*": [PRODUCT, "·"], "/": [PRODUCT, " / "], "//": [PRODUCT, " // "], "%": [PRODUCT, " % "], "**": [SIGN, "^"],
};

class Writer {
  // `number` gives the text of an element of a tensor. A shallow text has a number for each sum.
  constructor(relation, number, isShallow = false) {
    this.relation = relation;
    this.number = number;
    this.isShallow = isShallow;
  }

  line(expr, point) {
    const { text } = this.write(expr, point);
    return text.length > LONGEST_LINE ? null : text;
  }

  write(expr, point) {
    const value = () => figure(decimal(this.relation.value(expr, point)));
    switch (expr[0]) {
      case "read": return figure(this.number(expr[1], this.relation.place(expr, point)));
      case "if": return this.write(this.relation.value(expr[1], point) ? expr[2] : expr[3], point);
      case "map": return this.map(expr, point);
      case "reduce": return this.isShallow ? figure(short(Number(this.relation.value(expr, point)))) : this.reduce(expr, point);
      case "normalize": return this.isShallow ? figure(short(Number(this.relation.value(expr, point)))) : this.normalize(expr, point);
      default: return value();
    }
  }

  inside(expr, point, level) {
    const found = this.write(expr, point);
    return found.level < level ? `(${found.text})` : found.text;
  }

  map(expr, point) {
    const [, op, operands] = expr;
    if ((op === "*" || op === "/") && this.relation.isMasked(expr, point)) return figure("0");
    if (op.startsWith("as ")) return this.write(operands[0], point);
    if (op === "neg") return { text: `-${this.inside(operands[0], point, SIGN)}`, level: SIGN };
    const known = INFIX[op];
    if (known === undefined || operands.length !== 2) return { text: `${op}(${operands.map((operand) => this.write(operand, point).text).join(", ")})`, level: ATOM };
    const [level, sign] = known;
    const strict = op === "-" || op === "/" || op === "//" || op === "%" || op === "**" ? 1 : 0;
    return { text: this.inside(operands[0], point, level) + sign + this.inside(operands[1], point, level + strict), level };
  }

  reduce(expr, point) {
    const [, op, ranges, body, guard] = expr;
    const level = op === "prod" ? PRODUCT : op === "sum" || op === "mean" ? SUM : LOOSE;
    const points = [...this.relation.points(ranges, point)].filter((inner) => (guard === null || this.relation.value(guard, inner)) && !(level === SUM && this.relation.isMasked(body, inner)));
    const terms = cut(points).map((inner) => (inner === null ? "…" : this.inside(body, inner, level)));
    if (op === "sum") return terms.length ? { text: terms.join(" + "), level: terms.length > 1 ? SUM : PRODUCT } : figure("0");
    if (op === "prod") return terms.length ? { text: terms.join("·"), level: PRODUCT } : figure("1");
    if (op === "mean" && terms.length) return { text: `(${terms.join(" + ")}) / ${points.length}`, level: PRODUCT };
    return { text: `${op}(${terms.join(", ")})`, level: ATOM };
  }

  normalize(expr, point) {
    const [, op, name, body, guard] = expr;
    if (op === "rank") return figure(`${this.relation.value(expr, point)}`);
    if (guard !== null && !this.relation.value(guard, point)) return figure(op === "log_softmax" ? "-∞" : "0");
    const row = this.relation.row(expr, point).filter((entry) => op !== "cumsum" || entry.step <= point[name]);
    if (op === "cumsum") return { text: cut(row).map((entry) => (entry === null ? "…" : this.inside(body, entry.inner, SUM))).join(" + "), level: SUM };
    const exp = (entry) => (entry === null ? "…" : `exp(${this.write(body, entry.inner).text})`);
    const whole = cut(row).map(exp).join(" + ");
    const here = this.write(body, point).text;
    return op === "softmax" ? { text: `exp(${here}) / (${whole})`, level: PRODUCT } : { text: `${here} - log(${whole})`, level: SUM };
  }
}

function figure(text) {
  const isSigned = /^[-−]/.test(text);
  if (/^[-−]?[\p{L}\p{N}_.√∞]+$/u.test(text)) return { text, level: isSigned ? SUM : ATOM };
  return { text, level: /[+\s]|.[-−]/.test(text.replace(/\[[^\]]*\]/g, "")) ? LOOSE : /[/·]/.test(text) ? PRODUCT : isSigned ? SUM : ATOM };
}

function cut(items) {
  return items.length <= MOST_TERMS ? items : [...items.slice(0, MOST_TERMS - 2), null, items.at(-1)];
}

// ------------------------------------------------------------------ fractions

// A whole number or a quotient of two, as a pair of big integers; null for every other form.
function ratio(text) {
  const found = /^(-?\d+)(?:\/(\d+))?$/.exec(text);
  return found === null ? null : [BigInt(found[1]), BigInt(found[2] ?? 1)];
}

function lowest([above, below]) {
  let [a, b] = [above < 0n ? -above : above, below];
  while (b) [a, b] = [b, a % b];
  return a === 0n ? [0n, 1n] : [above / a, below / a];
}

const times = ([a, b], [c, d]) => lowest([a * c, b * d]);
const plus = ([a, b], [c, d]) => lowest([a * d + c * b, b * d]);
const ratioText = ([a, b]) => (b === 1n ? String(a) : `${a}/${b}`);
