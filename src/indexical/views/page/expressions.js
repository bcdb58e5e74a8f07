// Expressions and literals: operators by how tightly they hold.
"use strict";

Object.assign(Parser.prototype, {
  expression(least = OR) {
    return this.deepen(() => {
      const { start } = this.token;
      let left = this.prefix();
      for (;;) {
        const power = this.token.kind === "symbol" || this.token.kind === "keyword" ? POWERS.get(this.token.text) ?? 0 : 0;
        if (power === 0 || power < least || this.endsHere()) return left;
        left = this.infix(left, power, start);
      }
    });
  },

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
  },

  dtype(isStored) {
    const known = isStored ? [...WORDS.dtypes, ...WORDS.stored] : WORDS.dtypes;
    if (this.token.kind !== "name" || !known.includes(this.token.text)) this.fail("expected a dtype", `one of ${known.join(", ")}`);
    return this.take().text;
  },

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
  },

  number() {
    const { text, start, end } = this.take();
    return { kind: "Number", text, span: [start, end] };
  },

  parenthesised() {
    const opening = this.take();
    const items = [this.expression()];
    while (this.accept(",") !== null && !this.is(")")) items.push(this.expression());
    this.close(opening, items.length === 1 ? "this expression" : "these values");
    const span = this.since(opening.start);
    return items.length > 1 ? { kind: "Tuple", items, span } : this.postfix({ kind: "Paren", inner: items[0], span }, opening.start);
  },

  named() {
    const { text, start, end } = this.take();
    const scans = WORDS.reductions.includes(text);
    const binds = scans || WORDS.normalisers.includes(text);
    if (binds && this.is("[") && (WORDS.reserved.includes(text) || this.isApplied())) return this.reduction(text, start, end);
    if (this.is("(")) {
      if (binds && WORDS.reserved.includes(text) && !Object.hasOwn(WORDS.arity, text)) this.fail(`expected \`[\` and the coordinate that \`${text}\` ${scans ? "consumes" : "normalises over"}`, `write \`${text}[j](…)\``);
      return { kind: "Call", function: text, functionSpan: [start, end], arguments: this.listed("(", () => this.expression(), "these arguments"), span: this.since(start) };
    }
    return text === "masked" ? { kind: "Masked", span: [start, end], text: "masked" } : { kind: "Name", name: text, span: [start, end] };
  },

  // Whether the bracket that opens here is followed by what is scanned: `rank[i, j]` reads a tensor of that name.
  isApplied() {
    let [brackets, braces] = [0, 0];
    for (let at = this.at; at < this.tokens.length - 1; at += 1) {
      const { text } = this.tokens[at];
      brackets += (text === "[") - (text === "]");
      braces += (text === "{") - (text === "}");
      if (brackets === 0) return this.tokens[at + 1].text === "(";
      if (text === ";" && braces === 0) break;
    }
    return true;
  },

  postfix(base, start) {
    let found = base;
    while (this.is("[")) found = { kind: "Index", base: found, indices: this.listed("[", () => (this.is("..") ? this.rest() : this.expression()), "these indices"), span: this.since(start) };
    if (found.kind === "Index" && found.base.kind === "Name" && this.is("(")) {
      // Nothing but a reduction or a normaliser is followed by what it scans.
      const meant = closest(found.base.name, [...WORDS.reductions, ...WORDS.normalisers]);
      if (meant !== null) throw new Mistake(`no reduction and no normaliser is called \`${found.base.name}\``, found.base.span, meant);
    }
    return found;
  },

  rest() {
    const { start } = this.expect("..", "");
    return { kind: "Rest", name: this.name("a name after `..`").name, span: this.since(start) };
  },

  reduction(operator, start, end) {
    const binders = this.listed("[", () => this.binder(), "these coordinates");
    if (binders.length === 0) throw new Mistake(`expected a coordinate for \`${operator}\``, this.since(start));
    if (!this.is("(")) this.fail(`expected \`(\` and what \`${operator}\` scans`, `write \`${operator}[${binders.map((binder) => binder.name).join(", ")}](…)\``);
    const opening = this.take();
    const body = this.expression();
    const where = this.where();
    this.close(opening, `what \`${operator}\` scans`);
    return { kind: "Reduction", operator, operatorSpan: [start, end], binders, body, where, span: this.since(start) };
  },

  binder() {
    if (this.is("..")) {
      const { name, span } = this.rest();
      return { kind: "Binder", name, range: null, rest: true, span };
    }
    const { name, span } = this.name("a coordinate");
    return { kind: "Binder", name, range: this.accept("in") === null ? null : this.range(), rest: false, span: this.since(span[0]) };
  },

  range() {
    return this.deepen(() => {
      const { start } = this.token;
      const lower = this.expression(ADD);
      if (!this.is("..") && !this.is("..=")) this.fail("expected `..` and the end of the range", "`0..n` leaves `n` out, `0..=n` takes it in");
      const inclusive = this.take().text === "..=";
      return { kind: "Range", lower, upper: this.expression(ADD), inclusive, span: this.since(start) };
    });
  },

  where() {
    return this.accept("where") === null ? [] : this.separated(() => {
      const { start, text, kind } = this.token;
      if (kind !== "name" || !this.is("=", 1)) return { kind: "Guard", condition: this.expression(), span: this.since(start) };
      this.take();
      this.take();
      return { kind: "Abbreviation", name: text, value: this.expression(), span: this.since(start) };
    });
  },

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
  },

  block() {
    const opening = this.expect("{", "to open a block");
    const lets = [];
    while (this.is("let")) {
      lets.push(this.let());
      if (lets.at(-1).printed) throw new Mistake("a block has nothing that was printed", lets.at(-1).span, "it stands behind a definition of the program, or behind its `expect`");
    }
    if (this.is("}") || this.token.text === "return") this.fail("expected the block's value", "a block ends in an expression without `;`");
    const body = this.expression();
    const where = this.where();
    this.close(opening, "this block");
    return { kind: "Block", lets, body, where, span: this.since(opening.start) };
  },

  derivative() {
    const { start } = this.take();
    const of = this.name("a name after `@`");
    if (!this.is("/") || !this.is("@", 1)) this.fail("expected `/ @` and a name", "a derivative is `@y / @x`, over two names");
    this.take();
    this.take();
    return { kind: "Derivative", of, by: this.name("a name after `@`"), span: this.since(start) };
  },

  // --------------------------------------------------------------- literals

  printed() {
    const { start } = this.take();
    if (!this.is("[") && !this.is("-") && this.token.kind !== "number") this.fail("expected a number or an array after `~`");
    return { kind: "Printed", literal: this.literal(), span: this.since(start) };
  },

  literal() {
    const { kind, text, start, end } = this.token;
    if (kind === "number") return this.number();
    if (this.accept("-") !== null) {
      if (this.token.kind !== "number") this.fail("expected a number after `-`");
      return { kind: "Unary", operator: "-", operand: this.number(), span: this.since(start) };
    }
    if (this.is("[")) return this.array();
    if (this.is("~")) return this.printed();
    if (this.accept("true") !== null || this.accept("false") !== null) return { kind: "Bool", value: text === "true", span: [start, end] };
    if (kind !== "name" || text !== "masked") this.fail("expected a number", "a printed array holds plain numbers or rows of them");
    this.take();
    return { kind: "Masked", span: [start, end], text: "masked" };
  },

  // A number, a row, or an expression: whether that is constant is found where it is given a meaning.
  cell() {
    const { start } = this.token;
    return this.is("[") ? this.postfix(this.array(), start) : this.expression(ADD);
  },

  array() {
    const { start } = this.token;
    const items = this.deepen(() => this.listed("[", () => this.cell(), "this array"));
    const span = this.since(start);
    return this.rows(items, span);
  },

  // Rows of an array, all alike.
  rows(items, span) {
    if (items.length === 0) throw new Mistake("an array literal needs at least one number", span);
    const first = shapeOf(items[0]);
    if (first.length >= MOST_AXES) throw new Mistake(`more than ${MOST_AXES} axes in one array`, span);
    const odd = items.find((item) => String(shapeOf(item)) !== String(first));
    if (odd !== undefined) throw new Mistake("the rows of an array literal must be alike", odd.span);
    return { kind: "ArrayLiteral", items, span };
  },
});
