// Claims: figures as people write them, or paste them from what a library printed.
"use strict";

Object.assign(Parser.prototype, {
  expectation() {
    return this.closed("Expect", () => {
      const left = this.expression(ADD);
      this.expect("==", "and the published figure");
      return { left, literal: this.claimed(), tolerance: this.tolerance(), printed: this.asPrinted() };
    });
  },

  // Whether what looks like an operator ends a statement: `as printed`, or the `+-` of a tolerance.
  endsHere() {
    return this.is("+") ? this.isTolerance() : this.is("as") && this.tokens[this.at + 1].text === "printed";
  },

  isTolerance() {
    const [sign, number] = this.tokens.slice(this.at + 1, this.at + 3);
    return this.tokens[this.statementAt ?? 0].text === "expect" && this.is("+") && this.is("-", 1) && sign.start === this.token.end && number !== undefined && number.start > sign.end;
  },

  asPrinted() {
    if (!this.is("as") || this.tokens[this.at + 1].text !== "printed") return false;
    this.take();
    this.take();
    return true;
  },

  // The right side: a figure, an array of them, what a library printed, or any expression.
  claimed() {
    const { kind, text, start } = this.token;
    if (kind === "name" && WORDS.pasted.includes(text) && this.is("(", 1)) {
      this.take();
      const opening = this.take();
      const literal = this.is("[") ? this.figures([]) : this.figure();
      while (this.token.kind === "text" && this.token.text.startsWith(",")) this.take();
      this.close(opening, "these figures");
      return { kind: "Pasted", word: text, literal, span: this.since(start) };
    }
    if (!this.is("[")) return this.infinite() ?? this.expression(ADD);
    const missing = [];
    const literal = this.figures(missing);
    return missing.length > 0 ? { kind: "Pasted", word: "array", literal, span: this.since(start) } : literal;
  },

  // An array whose commas may be missing, as NumPy prints it.
  figures(missing) {
    const opening = this.take();
    const items = [];
    this.deepen(() => {
      while (!this.is("]")) {
        if (this.is("...")) throw new Mistake("figures are left out here", this.place(), "let the library print all figures");
        items.push(this.is("[") ? this.figures(missing) : this.figure());
        if (this.accept(",") !== null || this.is("]")) continue;
        if (!this.startsFigure() && !this.is("...")) break;
        missing.push(this.token.start);
      }
      this.close(opening, "this array");
    });
    return this.rows(items, this.since(opening.start));
  },

  // Whether another figure follows with nothing but space between.
  startsFigure() {
    const { kind, start, end } = this.token;
    const isApart = start > this.tokens[this.at - 1].end;
    if (this.is("-")) return isApart && this.tokens[this.at + 1].start === end;
    return kind === "number" || this.is("[") || (kind === "name" && isApart);
  },

  // One figure of an array: a number, or an expression where an operator follows.
  figure() {
    const first = this.at;
    if (this.token.kind === "number" || (this.is("-") && this.tokens[this.at + 1].kind === "number")) {
      const found = this.literal();
      if (this.is(",") || this.is("]") || this.is(")") || this.startsFigure()) return found;
      this.at = first;
    }
    if (this.token.kind === "text") this.fail("expected a figure");
    return this.infinite() ?? this.expression(ADD);
  },

  // `-inf`, as libraries print a score that a mask removed: the claim that it is masked.
  infinite() {
    const { kind, text, start } = this.token;
    if (this.is("-") && this.tokens[this.at + 1].text === "inf") {
      this.take();
      this.take();
      return { kind: "Masked", span: this.since(start), text: "-inf" };
    }
    if (kind === "name" && ["nan", "inf", "NaN"].includes(text)) throw new Mistake(`\`${text}\` is no figure`, this.place(), "a masked score is `-inf` or `masked`; other figures are numbers");
    return null;
  },

  // `± 0.01` or `+- 0.01`: how far from the figure the value may be.
  tolerance() {
    if (this.accept("±") === null) {
      if (!this.isTolerance()) return null;
      this.take();
      this.take();
    }
    if (this.token.kind !== "number") this.fail("expected how far from the figure the value may be", "write `± 0.01`");
    return this.number();
  },
});
