// The text of a program as a tree, by the grammar of the language. The first mistake ends it, with its place.
"use strict";

const MOST_DEEP = 100; // Brackets in one another, and nodes in one another.
const MOST_AXES = 32;
const KEYWORDS = new Set("space input let output fn use assert expect where in as if else true false".split(" "));
const STATEMENTS = new Set("space input let output fn use assert expect".split(" "));
const CLOSING = { "(": ")", "[": "]", "{": "}" };
// How tightly an operator holds its left side.
const [OR, AND, COMPARE, ADD, MULTIPLY, CAST, UNARY, POWER] = [1, 2, 3, 4, 5, 6, 7, 8];
const POWERS = new Map([["||", OR], ["&&", AND], ["+", ADD], ["-", ADD], ["*", MULTIPLY], ["/", MULTIPLY], ["%", MULTIPLY], ["as", CAST], ["**", POWER],
  ...["==", "!=", "<", "<=", ">", ">="].map((sign) => [sign, COMPARE])]);
const TOKEN = /(?<space>\s+)|(?<comment>\/\/[^\n]*)|(?<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?<name>[\p{L}\p{Nl}\p{No}_][\p{L}\p{N}_]*)|(?<text>"(?:[^"\\\n]|\\[^\n])*")|(?<symbol>\.\.=|\.\.|::|->|\*\*|<=|>=|==|!=|&&|\|\||[()[\]{},;:=+\-*/%<>!~@])/uy;

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
  if (digits.length > 400 || Math.abs(Number(exponent)) > 400) throw new Mistake("this number is too long to be meant", [at, end]);
}

// A reader of tokens; each method takes one part of the grammar.
class Parser {
  constructor(text) {
    this.text = text;
    this.tokens = tokensOf(text);
    this.at = 0;
    this.depth = 0;
  }

  get token() {
    return this.tokens[this.at];
  }

  is(text, ahead = 0) {
    const token = this.tokens[Math.min(this.at + ahead, this.tokens.length - 1)];
    return token.text === text && (token.kind === "symbol" || token.kind === "keyword");
  }

  take() {
    const { token } = this;
    if (token.kind !== "end") this.at += 1;
    return token;
  }

  accept(text) {
    return this.is(text) ? this.take() : null;
  }

  expect(text, purpose) {
    return this.is(text) ? this.take() : this.fail(`expected \`${text}\` ${purpose}`);
  }

  name(purpose) {
    if (this.token.kind !== "name") this.fail(`expected ${purpose}`);
    const { text, start, end } = this.take();
    return { kind: "Name", name: text, span: [start, end] };
  }

  since(start) {
    return [start, Math.max(start, this.at > 0 ? this.tokens[this.at - 1].end : 0)];
  }

  place() {
    const { token } = this;
    if (token.kind !== "end" || this.at === 0) return [token.start, token.end];
    return [this.tokens[this.at - 1].end, this.tokens[this.at - 1].end];
  }

  found() {
    const { kind, text } = this.token;
    return kind === "end" ? "the end of the text" : kind === "keyword" ? `the word \`${clipped(text)}\`` : `\`${clipped(text)}\``;
  }

  fail(expected, help = null) {
    throw new Mistake(`${expected}, found ${this.found()}`, this.place(), help ?? own(WORDS.foreign, this.token.text) ?? null);
  }

  listed(opening, item, what) {
    const start = this.expect(opening, `before ${what}`);
    const items = [];
    while (!this.is(CLOSING[opening])) {
      items.push(item());
      if (this.accept(",") === null) break;
    }
    this.close(start, what);
    return items;
  }

  close(opening, what) {
    const closing = CLOSING[opening.text];
    if (this.is(closing)) return this.take();
    const help = this.is("=") ? "a size is stated as `i in 0..5`, and `==` compares" : this.is("where") ? "a guard stands after the whole right-hand side, or inside the bracket of a reduction or normaliser" : null;
    return this.fail(`expected \`${closing}\` after ${what}`, help);
  }

  deepen(act) {
    this.depth += 1;
    if (this.depth > MOST_DEEP) throw new Mistake(`this is nested more than ${MOST_DEEP} deep`, this.place(), "name a part of it with `let`");
    const found = act();
    this.depth -= 1;
    return found;
  }

  // ------------------------------------------------------------- statements

  file() {
    const statements = [];
    while (this.token.kind !== "end") {
      const first = this.at;
      const statement = this.statement();
      if (this.at - first > MOST_DEEP && heightOf(statement) > MOST_DEEP) throw new Mistake(`this is nested more than ${MOST_DEEP} deep`, statement.span, "name a part of it with `let`");
      statements.push(statement);
    }
    return { kind: "File", statements };
  }

  statement() {
    const { kind, text } = this.token;
    if (kind === "keyword" && STATEMENTS.has(text)) return text === "expect" ? this.expectation() : this[text]();
    if (kind === "name" && text === "attention") return this.contract();
    const help = own(WORDS.foreign, text) ?? (kind === "name" && (this.is("=", 1) || this.is("[", 1)) ? `to define it, write \`let ${text}… = …;\`` : "a statement starts with `space`, `input`, `let`, `output`, `fn`, `use`, `attention`, `assert` or `expect`");
    return this.fail("expected a statement", help);
  }

  separated(item) {
    const items = [item()];
    while (this.accept(",") !== null) items.push(item());
    return items;
  }

  // A statement that starts with its word and ends in `;`.
  closed(kind, read) {
    const { start } = this.take();
    const parts = read();
    this.end();
    return { kind, ...parts, span: this.since(start) };
  }

  end() {
    if (this.accept(";") !== null) return;
    const last = this.tokens[this.at - 1];
    if (this.is(")") || this.is("]")) throw new Mistake(`this \`${this.token.text}\` closes nothing`, this.place());
    if (this.is(",")) this.fail("expected `;` or an operator", "a statement defines one thing: write `;` and start another");
    if (!this.text.slice(last.end, this.token.start).includes("\n") || this.is("}")) this.fail("expected `;` or an operator");
    throw new Mistake(`expected \`;\` after \`${last.text.slice(0, 24)}\``, [last.end, last.end], "every statement but `fn` ends with `;`");
  }

  space() {
    return this.closed("Space", () => ({ items: this.separated(() => {
      const { name, span } = this.name("the name of a space");
      return { kind: "SpaceItem", name, coordinates: this.listed("(", () => this.name("a coordinate"), "the coordinates of this space"), span: this.since(span[0]) };
    }) }));
  }

  input() {
    return this.closed("Input", () => ({ items: this.separated(() => {
      const { name, span } = this.name("the name of an input");
      const slots = this.is("[") ? this.slots() : null;
      return { kind: "InputItem", name, nameSpan: span, slots, dtype: this.accept(":") === null ? null : this.dtype(true), span: this.since(span[0]) };
    }) }));
  }

  output() {
    return this.closed("Output", () => ({ names: this.separated(() => this.name("the name of a definition")) }));
  }

  fn() {
    const { start } = this.take();
    const { name, span } = this.name("the name of a function");
    const parameters = this.listed("(", () => {
      const parameter = this.name("a parameter");
      return { kind: "Parameter", name: parameter.name, slots: this.is("[") ? this.slots() : null, span: this.since(parameter.span[0]) };
    }, "the parameters");
    const results = this.accept("->") === null ? [] : this.results();
    if (!this.is("{")) this.fail("expected `{` and the body of the function", `write \`fn ${name}(…) { value }\``);
    return { kind: "Fn", name, nameSpan: span, parameters, results, body: this.block(), span: this.since(start) };
  }

  results() {
    const home = () => {
      const { start } = this.token;
      return { kind: "Home", slots: this.slots(), span: this.since(start) };
    };
    if (!this.is("(")) return [home()];
    const opening = this.place();
    const homes = this.listed("(", home, "these tensors");
    if (homes.length === 0) throw new Mistake("expected the coordinates of a tensor, as in `[i]`", opening);
    return homes;
  }

  use() {
    return this.closed("Use", () => {
      const first = this.name("the path of a module");
      const path = [first.name];
      let pathSpan = first.span;
      this.expect("::", "and the names to use");
      while (this.token.kind === "name") {
        path.push(this.take().text);
        pathSpan = this.since(first.span[0]);
        this.expect("::", "and the names to use");
      }
      return { path, pathSpan, names: this.listed("{", () => this.name("a name to use"), "these names") };
    });
  }

  contract() {
    return this.closed("Contract", () => ({ name: this.name("the name of a definition after `attention`"), items: this.listed("(", () => this.contractItem(), "this contract") }));
  }

  contractItem() {
    let word = this.name("a role or a flag");
    const { start } = { start: word.span[0] };
    const flag = (words, argument) => ({ kind: "FlagItem", flag: words, argument, span: this.since(start) });
    if (WORDS.roles.includes(word.name)) return { kind: "RoleItem", role: word.name, coordinate: this.name(`the coordinate with the role \`${word.name}\``), span: this.since(start) };
    if (word.name === "groups") {
      word = this.name("`contiguous` or `interleaved`");
      if (WORDS.groupings.includes(word.name)) return flag(`groups ${word.name}`, this.expression(ADD));
    } else if (word.name === "rows") {
      for (const words of WORDS.rows) {
        const parts = words.split(" ");
        if (!parts.every((part, n) => this.tokens[this.at + n]?.text === part)) continue;
        this.at += parts.length;
        return flag(`rows ${words}`, null);
      }
      this.fail("expected what the rows sum to", `write ${WORDS.rows.map((words) => `\`rows ${words}\``).join(", ")}`);
    } else if (WORDS.flags.includes(word.name)) {
      if (word.name !== "causal" || this.token.text !== "offset") return flag(word.name, null);
      this.take();
      return flag("causal offset", this.expression(ADD));
    }
    throw new Mistake(`\`${word.name}\` is neither a role nor a flag of a contract`, word.span, `roles: ${WORDS.roles.join(", ")}`);
  }

  assert() {
    return this.closed("Assert", () => {
      const condition = this.expression();
      this.expect(",", "and the message of the assertion");
      if (this.token.kind !== "text") this.fail("expected the message of the assertion", 'a text between quotes: `"…"`');
      return { condition, message: this.take().text.slice(1, -1).replaceAll('\\"', '"').replaceAll("\\\\", "\\") };
    });
  }

  expectation() {
    return this.closed("Expect", () => {
      const left = this.expression(ADD);
      this.expect("==", "and the published figure");
      return { left, literal: this.literal() };
    });
  }

  let() {
    return this.deepen(() => this.closed("Let", () => {
      const names = this.is("(") ? this.together() : [];
      const name = names[0] ?? this.name("a name after `let`");
      const slots = this.is("[") && names.length === 0 ? this.slots() : null;
      if (this.accept("=") === null) this.fail(`expected \`=\` and what \`${name.name}\` is`);
      return { name: name.name, nameSpan: name.span, slots, body: this.expression(), where: this.where(), names };
    }));
  }

  together() {
    const opening = this.place();
    const names = this.listed("(", () => this.name("a name for what the call gives"), "these names");
    if (names.length < 2) throw new Mistake("expected two names or more", opening, "one tensor is bound as `let a = f(…);`");
    return names;
  }

  slots() {
    const opening = this.place();
    const slots = this.listed("[", () => this.slot(), "these coordinates");
    if (slots.length > MOST_AXES) throw new Mistake(`more than ${MOST_AXES} coordinates on one tensor`, opening);
    return slots;
  }

  slot() {
    if (this.is("..") || (this.token.kind === "name" && this.is("in", 1))) return this.binder();
    const value = this.expression();
    return value.kind === "Name" ? { kind: "Binder", name: value.name, range: null, rest: false, span: value.span } : value;
  }

  // ------------------------------------------------------------ expressions

  expression(least = OR) {
    return this.deepen(() => {
      const { start } = this.token;
      let left = this.prefix();
      for (;;) {
        const power = this.token.kind === "symbol" || this.token.kind === "keyword" ? POWERS.get(this.token.text) ?? 0 : 0;
        if (power === 0 || power < least) return left;
        left = this.infix(left, power, start);
      }
    });
  }

  infix(left, power, start) {
    if (power === COMPARE) {
      const [operands, operators] = [[left], []];
      while (this.token.kind === "symbol" && POWERS.get(this.token.text) === COMPARE) {
        operators.push(this.take().text);
        operands.push(this.expression(ADD));
      }
      return { kind: "Comparison", operands, operators, span: this.since(start) };
    }
    const operator = this.take().text;
    if (power === CAST) {
      const dtype = this.dtype(false);
      if (this.is("**")) this.fail("expected the cast in parentheses before a power", `write \`(… as ${dtype}) ** …\``);
      return { kind: "Cast", operand: left, dtype, span: this.since(start) };
    }
    // `**` groups to the right and takes a signed exponent; all others group to the left.
    const right = this.expression(power === POWER ? UNARY : power + 1);
    return { kind: "Binary", operator, left, right, span: this.since(start) };
  }

  dtype(isStored) {
    const known = isStored ? [...WORDS.dtypes, ...WORDS.stored] : WORDS.dtypes;
    if (this.token.kind !== "name" || !known.includes(this.token.text)) this.fail("expected a dtype", `one of ${known.join(", ")}`);
    return this.take().text;
  }

  prefix() {
    const { kind, text, start, end } = this.token;
    if (kind === "number") return this.number();
    if (kind === "name") return this.postfix(this.named(), start);
    if (kind === "text" || kind === "end") this.fail("expected an expression");
    switch (text) {
      case "-": case "!":
        this.take();
        return { kind: "Unary", operator: text, operand: this.expression(UNARY), span: this.since(start) };
      case "(": return this.parenthesised();
      case "[": return this.postfix(this.array(), start);
      case "~": return this.postfix(this.printed(), start);
      case "{": return this.block();
      case "if": return this.conditional();
      case "true": case "false":
        this.take();
        return { kind: "Bool", value: text === "true", span: [start, end] };
      case "@": return this.derivative();
      default: return this.fail("expected an expression");
    }
  }

  number() {
    const { text, start, end } = this.take();
    return { kind: "Number", text, span: [start, end] };
  }

  parenthesised() {
    const opening = this.take();
    const items = [this.expression()];
    while (this.accept(",") !== null && !this.is(")")) items.push(this.expression());
    this.close(opening, items.length === 1 ? "this expression" : "these values");
    const span = this.since(opening.start);
    return items.length > 1 ? { kind: "Tuple", items, span } : this.postfix({ kind: "Paren", inner: items[0], span }, opening.start);
  }

  named() {
    const { text, start, end } = this.take();
    const scans = WORDS.reductions.includes(text);
    const binds = scans || WORDS.normalisers.includes(text);
    if (binds && this.is("[")) return this.reduction(text, start, end);
    if (this.is("(")) {
      if (binds && !Object.hasOwn(WORDS.arity, text)) this.fail(`expected \`[\` and the coordinate that \`${text}\` ${scans ? "consumes" : "normalises over"}`, `write \`${text}[j](…)\``);
      return { kind: "Call", function: text, functionSpan: [start, end], arguments: this.listed("(", () => this.expression(), "these arguments"), span: this.since(start) };
    }
    return text === "masked" ? { kind: "Masked", span: [start, end] } : { kind: "Name", name: text, span: [start, end] };
  }

  postfix(base, start) {
    let found = base;
    while (this.is("[")) found = { kind: "Index", base: found, indices: this.listed("[", () => (this.is("..") ? this.rest() : this.expression()), "these indices"), span: this.since(start) };
    return found;
  }

  rest() {
    const { start } = this.expect("..", "");
    return { kind: "Rest", name: this.name("a name after `..`").name, span: this.since(start) };
  }

  reduction(operator, start, end) {
    const binders = this.listed("[", () => this.binder(), "these coordinates");
    if (binders.length === 0) throw new Mistake(`expected a coordinate for \`${operator}\``, this.since(start));
    if (!this.is("(")) this.fail(`expected \`(\` and what \`${operator}\` scans`, `write \`${operator}[${binders.map((binder) => binder.name).join(", ")}](…)\``);
    const opening = this.take();
    const body = this.expression();
    const where = this.where();
    this.close(opening, `what \`${operator}\` scans`);
    return { kind: "Reduction", operator, operatorSpan: [start, end], binders, body, where, span: this.since(start) };
  }

  binder() {
    if (this.is("..")) {
      const { name, span } = this.rest();
      return { kind: "Binder", name, range: null, rest: true, span };
    }
    const { name, span } = this.name("a coordinate");
    return { kind: "Binder", name, range: this.accept("in") === null ? null : this.range(), rest: false, span: this.since(span[0]) };
  }

  range() {
    return this.deepen(() => {
      const { start } = this.token;
      const lower = this.expression(ADD);
      if (!this.is("..") && !this.is("..=")) this.fail("expected `..` and the end of the range", "`0..n` leaves `n` out, `0..=n` takes it in");
      const inclusive = this.take().text === "..=";
      return { kind: "Range", lower, upper: this.expression(ADD), inclusive, span: this.since(start) };
    });
  }

  where() {
    return this.accept("where") === null ? [] : this.separated(() => {
      const { start, text, kind } = this.token;
      if (kind !== "name" || !this.is("=", 1)) return { kind: "Guard", condition: this.expression(), span: this.since(start) };
      this.take();
      this.take();
      return { kind: "Abbreviation", name: text, value: this.expression(), span: this.since(start) };
    });
  }

  conditional() {
    const { start } = this.take();
    const condition = this.expression();
    const then = this.block();
    this.expect("else", "and what the value is otherwise");
    const otherwise = this.is("if") ? this.deepen(() => {
      const inner = this.conditional();
      return { kind: "Block", lets: [], body: inner, where: [], span: inner.span };
    }) : this.block();
    return { kind: "If", condition, then, otherwise, span: this.since(start) };
  }

  block() {
    const opening = this.expect("{", "to open a block");
    const lets = [];
    while (this.is("let")) lets.push(this.let());
    if (this.is("}") || this.token.text === "return") this.fail("expected the block's value", "a block ends in an expression without `;`");
    const body = this.expression();
    const where = this.where();
    this.close(opening, "this block");
    return { kind: "Block", lets, body, where, span: this.since(opening.start) };
  }

  derivative() {
    const { start } = this.take();
    const of = this.name("a name after `@`");
    if (!this.is("/") || !this.is("@", 1)) this.fail("expected `/ @` and a name", "a derivative is `@y / @x`, over two names");
    this.take();
    this.take();
    return { kind: "Derivative", of, by: this.name("a name after `@`"), span: this.since(start) };
  }

  // --------------------------------------------------------------- literals

  printed() {
    const { start } = this.take();
    if (!this.is("[") && !this.is("-") && this.token.kind !== "number") this.fail("expected a number or an array after `~`");
    return { kind: "Printed", literal: this.literal(), span: this.since(start) };
  }

  literal() {
    const { kind, text, start, end } = this.token;
    if (kind === "number") return this.number();
    if (this.accept("-") !== null) {
      if (this.token.kind !== "number") this.fail("expected a number after `-`", "an array literal holds plain numbers");
      return { kind: "Unary", operator: "-", operand: this.number(), span: this.since(start) };
    }
    if (this.is("[")) return this.array();
    if (this.is("~")) return this.printed();
    if (this.accept("true") !== null || this.accept("false") !== null) return { kind: "Bool", value: text === "true", span: [start, end] };
    if (kind !== "name" || text !== "masked") this.fail("expected a number", "an array literal holds plain numbers, `true`, `false` or rows of them");
    this.take();
    return { kind: "Masked", span: [start, end] };
  }

  array() {
    const { start } = this.token;
    const items = this.deepen(() => this.listed("[", () => this.literal(), "this array"));
    const span = this.since(start);
    if (items.length === 0) throw new Mistake("an array literal needs at least one number", span);
    const first = shapeOf(items[0]);
    if (first.length >= MOST_AXES) throw new Mistake(`more than ${MOST_AXES} axes in one array`, span);
    const odd = items.find((item) => String(shapeOf(item)) !== String(first));
    if (odd !== undefined) throw new Mistake("the rows of an array literal must be alike", odd.span);
    return { kind: "ArrayLiteral", items, span };
  }
}

const own = (table, key) => (Object.hasOwn(table, key) ? table[key] : undefined);

// The shape of a literal: rows, columns, …; a number has none.
function shapeOf(literal) {
  const shape = [];
  for (let inner = literal; inner.kind === "ArrayLiteral" || inner.kind === "Printed"; inner = inner.kind === "Printed" ? inner.literal : inner.items[0]) if (inner.kind === "ArrayLiteral") shape.push(inner.items.length);
  return shape;
}

const isNode = (value) => value !== null && typeof value === "object" && value.kind !== undefined;

function childrenOf(node) {
  return Object.values(node).flatMap((part) => (Array.isArray(part) ? part.filter(isNode) : isNode(part) ? [part] : []));
}

function heightOf(node) {
  let tallest = 0;
  const waiting = [[node, 1]];
  while (waiting.length > 0) {
    const [part, level] = waiting.pop();
    tallest = Math.max(tallest, level);
    for (const child of childrenOf(part)) waiting.push([child, level + 1]);
  }
  return tallest;
}

// Every node inside another, itself too.
function within(node) {
  const found = [node];
  for (let at = 0; at < found.length; at += 1) found.push(...childrenOf(found[at]));
  return found;
}

const parse = (text) => new Parser(text).file();
