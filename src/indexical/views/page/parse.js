// The text of a program as a tree, by the grammar of the language. The first mistake ends it, with its place.
"use strict";

const MOST_DEEP = 100; // Brackets in one another, and nodes in one another.
const MOST_AXES = 32;
const CLOSING = { "(": ")", "[": "]", "{": "}" };
// How tightly an operator holds its left side.
const [OR, AND, COMPARE, ADD, MULTIPLY, CAST, UNARY, POWER] = [1, 2, 3, 4, 5, 6, 7, 8];
const POWERS = new Map([["||", OR], ["&&", AND], ["+", ADD], ["-", ADD], ["*", MULTIPLY], ["/", MULTIPLY], ["%", MULTIPLY], ["as", CAST], ["**", POWER],
  ...["==", "!=", "<", "<=", ">", ">="].map((sign) => [sign, COMPARE])]);

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
      this.statementAt = first;
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

  let() {
    return this.deepen(() => this.closed("Let", () => {
      const names = this.is("(") ? this.together() : [];
      const name = names[0] ?? this.name("a name after `let`");
      const slots = this.is("[") && names.length === 0 ? this.slots() : null;
      if (this.accept("=") === null) this.fail(`expected \`=\` and what \`${name.name}\` is`);
      return { name: name.name, nameSpan: name.span, slots, body: this.expression(), where: this.where(), names, printed: this.asPrinted() };
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
}

// The shape of a literal: rows, columns, …; a number has none.
function shapeOf(literal) {
  const shape = [];
  for (let inner = literal; ["ArrayLiteral", "Printed", "Pasted"].includes(inner.kind); inner = inner.kind === "ArrayLiteral" ? inner.items[0] : inner.literal) if (inner.kind === "ArrayLiteral") shape.push(inner.items.length);
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
