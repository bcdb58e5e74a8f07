// A relation as the language writes it, and definitions as steps in words.
"use strict";

const LEVELS = { "||": 0, "&&": 1, "+": 3, "-": 3, "*": 4, "/": 4, "//": 4, "%": 4, neg: 5, "**": 6 };
const VERBS = {
  sum: "sum over", mean: "mean over", prod: "product over", max: "largest over", min: "smallest over", any: "whether any over", all: "whether all over",
  argmax: "place of the largest over", argmin: "place of the smallest over",
};

// An expression as a text; each part of it is given its own on the way.
function spelled(expr, level = 0) {
  switch (expr[0]) {
    case "const": return expr.isPi ? "pi" : typeof expr[1] === "boolean" || expr.kind === "whole" ? String(expr[1]) : String(Number(expr[1].toPrecision(6)));
    case "coord": return expr[1];
    case "size": return `size(${expr[1]})`;
    case "read":
      expr[3] = expr[2].length > 0 ? `${expr[1]}[${expr[2].map((index) => spelled(index)).join(", ")}]` : expr[1];
      return expr[3];
    case "map": {
      const [text, mine] = spelledMap(expr);
      expr[3] = text;
      return mine < level ? `(${text})` : text;
    }
    case "if": return `if ${spelled(expr[1])} { ${spelled(expr[2])} } else { ${spelled(expr[3])} }`;
    case "reduce": {
      for (const [, low, high] of expr[2]) [low, high].forEach((end) => spelled(end));
      return spelledScan(expr, expr[2].map(([name]) => name).join(", "));
    }
    case "normalize": return spelledScan(expr, expr[2]);
    default: return expr[4];
  }
}

function spelledMap([, op, parts]) {
  const mine = LEVELS[op] ?? 2;
  if (op === "neg" || op === "!") return [`${op === "neg" ? "-" : "!"}${spelled(parts[0], 5)}`, 9];
  if (parts.length === 2 && !/^\p{L}/u.test(op)) return [`${spelled(parts[0], mine)} ${op === "//" ? "/" : op} ${spelled(parts[1], mine + 1)}`, mine];
  if (op.startsWith("as ")) return [`${spelled(parts[0], 5)} ${op}`, 9];
  return [`${op}(${parts.map((part) => spelled(part)).join(", ")})`, 9];
}

function spelledScan(expr, names) {
  expr[5] = expr[4] === null ? null : spelled(expr[4]);
  expr[6] = `${expr[1]}[${names}](${spelled(expr[3])}${expr[5] === null ? "" : ` where ${expr[5]}`})`;
  return expr[6];
}

// What a definition does, coordinate by coordinate: which are kept, summed over and normalised over.
function stepWords({ clauses }) {
  const clause = clauses.at(-1);
  const scans = walkIn(clause.body);
  const acts = [...new Set(scans.flatMap((part) => {
    const where = part[5] ? part[5] : null;
    if (part[0] === "reduce") return [`${VERBS[part[1]]} ${part[2].map(([name]) => `\`${name}\``).join(", ")}${where === null ? "" : ` where \`${where}\``}`];
    return part[0] === "normalize" ? [`${part[1]} over \`${part[2]}\`${where === null ? "" : `, among those where \`${where}\``}`] : [];
  }))];
  const normalised = new Set(scans.filter((part) => part[0] === "normalize").map((part) => part[2]));
  const apart_ = clause.ranges.map(([name]) => name).filter((name) => !normalised.has(name)).map((name) => `\`${name}\``);
  return `${apart_.length > 0 ? `for each ${apart_.join(", ")}: ` : ""}${acts.length > 0 ? acts.join("; ") : "point by point; nothing is summed"}${clause.guard === null ? "" : `; only where \`${spelled(clause.guard)}\``}${clauses.length > 1 ? ` (${clauses.length} clauses)` : ""}`;
}

// The text line by line, as words with what they are: a coordinate, a tensor, a keyword, a number, a comment.
function wordsOf(text, tensors, coordinates) {
  const tokens = tokensOf(text);
  const kindOfToken = ({ kind, text: word }) => (kind !== "name" ? kind : tensors.has(word) ? "tensor" : coordinates.has(word) ? "coordinate" : "name");
  const marks = [...(tokens.comments ?? []).map(([start, end]) => [start, end, "comment"]), ...tokens.map((token) => [token.start, token.end, kindOfToken(token)])]
    .filter(([, , kind]) => ["coordinate", "tensor", "keyword", "number", "comment"].includes(kind)).sort((a, b) => a[0] - b[0]);
  const pieces = [];
  let at = 0;
  for (const [start, end, kind] of marks) {
    pieces.push([text.slice(at, start), ""], [text.slice(start, end), kind]);
    at = end;
  }
  pieces.push([text.slice(at), ""]);
  const lines = [[]];
  for (const [words, kind] of pieces) words.split("\n").forEach((part, n) => {
    if (n > 0) lines.push([]);
    if (part !== "") lines.at(-1).push([part, kind]);
  });
  while (lines.length > 0 && lines.at(-1).length === 0) lines.pop();
  return lines;
}
