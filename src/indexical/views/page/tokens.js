// The words of a text. What means nothing is a mistake, with its place.
"use strict";

const KEYWORDS = new Set("space input let output fn use assert expect where in as if else true false".split(" "));
const STATEMENTS = new Set("space input let output fn use assert expect".split(" "));
const TOKEN = /(?<space>\s+)|(?<comment>\/\/[^\n]*)|(?<number>[0-9]+\.(?![.\p{L}\p{N}_])(?=\s*(?:[\],;)[±.\d]|-(?:[.\d]|inf)))|(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?<name>[\p{L}\p{Nl}\p{No}_][\p{L}\p{N}_]*)|(?<text>"(?:[^"\\\n]|\\[^\n])*"|,\s*(?:dtype|device|grad_fn|requires_grad)=(?:'[^'\n]*'|<[^>\n]*>|[\p{L}\p{N}_.]+))|(?<symbol>\.\.\.(?!\d)|\.\.=|\.\.|::|->|\*\*|<=|>=|==|!=|&&|\|\||[()[\]{},;:=+\-*/%<>!~@±])/uy;

// Something is wrong with a text: what, at which places of it, and what to do.
class Mistake extends Error {
  constructor(message, span, help = null) {
    super(message);
    this.span = span;
    this.help = help;
  }
}

const clipped = (word) => (word.length <= 24 ? word : `${word.slice(0, 24)}…`);

function tokensOf(text) {
  const tokens = [];
  let at = 0;
  while (at < text.length) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (found === null) throw unreadable(text, at);
    const end = TOKEN.lastIndex;
    const [kind, word] = Object.entries(found.groups).find(([, part]) => part !== undefined);
    if (kind === "number") checkNumber(text, word, at, end);
    if (kind === "name" && (/\p{No}/u.test(word) || word.normalize("NFKC") !== word)) throw new Mistake(`\`${clipped(word)}\` cannot be a name`, [at, end], "a name is made of letters, digits and `_`");
    const escape = kind === "text" ? /\\[^"\\]/.exec(word.replace(/\\[\\"]/g, "  ")) : null;
    if (escape !== null) throw new Mistake(`\`${escape[0]}\` means nothing in a text`, [at, end], "a backslash is `\\\\`");
    if (kind !== "space" && kind !== "comment") tokens.push({ kind: kind === "name" && KEYWORDS.has(word) ? "keyword" : kind, text: word, start: at, end });
    else if (kind === "comment") tokens.comments = [...(tokens.comments ?? []), [at, at + word.trimEnd().length]];
    at = end;
  }
  tokens.push({ kind: "end", text: "", start: text.length, end: text.length });
  return tokens;
}

function unreadable(text, at) {
  const line = text.indexOf("\n", at) < 0 ? text.length : text.indexOf("\n", at);
  if (text[at] === '"') return new Mistake("this text is not closed", [at, line], 'close it with `"` on the same line');
  const letter = String.fromCodePoint(text.codePointAt(at));
  return new Mistake(`\`${letter}\` means nothing here`, [at, at + letter.length], WORDS.instead[letter] ?? null);
}

function checkNumber(text, word, at, end) {
  const glued = /^\.?[\p{L}\p{N}_]+/u.exec(text.slice(end, end + 100))?.[0];
  if (glued !== undefined) throw new Mistake(`\`${clipped(word + glued)}\` is neither a number nor a name`, [at, end + glued.length], `if it is a product, write \`${clipped(word)} * ${clipped(glued)}\``);
  const [digits, exponent = "0"] = word.toLowerCase().split("e");
  if (digits.length > 400 || Math.abs(Number(exponent)) > 10_000) throw new Mistake("this number is too long to be meant", [at, end]);
}

const own = (table, key) => (Object.hasOwn(table, key) ? table[key] : undefined);
