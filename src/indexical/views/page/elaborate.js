// Expressions and definitions: what a tree means, with the numbers of points that the arrays of the page have.
"use strict";

// Inputs turn out to be whole or true and false: the program is read again.
class Again extends Error {}

class Lowering {
  // `given`: the arrays of the page, by name: their shapes, kinds and values.
  constructor(text, given, modules) {
    this.given = given;
    this.declared = declared(parse(text));
    this.functions = functionsOf(this.declared, modules);
    this.kinds = new Map();
    this.total = 0;
    this.ids = new Map();
  }

  // ------------------------------------------------------------- whole programs

  program() {
    for (let reading = 0; reading < 40; reading += 1) {
      try {
        return this.read();
      } catch (problem) {
        if (!(problem instanceof Again)) throw problem;
      }
    }
    throw new Mistake("what the inputs are cannot be found out", [0, 0], "say it: `input at[k] : i64;`");
  }

  read() {
    Object.assign(this, { lets: new Map(), bodies: new Map(), sizes: Object.create(null), taken: new Set([...this.declared.inputs.keys(), ...this.declared.lets.keys(), ...WORDS.reserved, ...WORDS.library]), memo: new Map(), calls: [], expanding: [], attached: new Map(), count: 0, depth: 0, rehearsing: 0 });
    const scope = this.inputScope();
    for (const { group, isRecursive } of groupsOf(this.declared.lets)) {
      if (!scope.names.has(group[0])) for (const [name, meaning] of this.settled(scope, group, isRecursive)) scope.names.set(name, meaning);
      if (this.lets.size > MOST_DEFINITIONS) throw new Mistake(`this program has more than ${MOST_DEFINITIONS} definitions when all is written out`, this.declared.lets.get(group[0])[0].nameSpan, "`ix show` takes more");
    }
    const asserts = this.declared.asserts.map((claim) => {
      const frame = newFrame("assert");
      const condition = this.condition({ ...scope, frame }, claim.condition, "an assertion");
      this.finish(frame);
      return { condition, message: claim.message, span: claim.span };
    });
    this.checkClaimed(scope);
    return { inputs: this.inputs, lets: this.ordered(), order: [...this.declared.lets.keys()], sizes: this.sizes, asserts, outputs: this.outputs(), spaces: this.declared.spaces, contracts: this.declared.contracts, expects: this.declared.expects };
  }

  // What contracts and expectations speak of is there; whether they hold is for the compiler.
  checkClaimed(scope) {
    for (const { name: { name, span } } of this.declared.contracts) if (!this.declared.lets.has(name)) throw new Mistake(`no definition is called \`${name}\``, span, closest(name, this.declared.lets.keys()));
    for (const { left } of this.declared.expects) {
      for (const node of [...(left.kind === "Name" ? [left] : []), ...within(left).filter((part) => part.kind === "Index").map((part) => part.base)]) {
        if (node.kind === "Name" && !scope.names.has(node.name)) throw this.unknown(scope, node.name, node.span, true);
      }
    }
  }

  // A definition, read until what it asks of its own sizes stays the same.
  settled(scope, group, isRecursive) {
    for (let reading = 0; ; reading += 1) {
      const before = new Map(this.memo);
      const mark = [new Map(this.lets), new Set(this.taken), this.count];
      Object.assign(this, { isUnsure: false, hasAsked: false });
      let problem = null;
      let found = null;
      try {
        found = this.definition(scope, group, isRecursive);
      } catch (caught) {
        if (!(caught instanceof Mistake || caught instanceof Unsure)) throw caught;
        problem = caught;
      }
      const isSame = before.size === this.memo.size && [...this.memo].every(([key, value]) => Object.is(before.get(key), value) || (typeof value !== "number" && JSON.stringify(before.get(key)) === JSON.stringify(value)));
      if (problem === null && !this.isUnsure && (!this.hasAsked || isSame)) return found;
      if (isSame || reading >= MOST_READINGS) {
        const [first] = this.declared.lets.get(group[0]);
        throw problem instanceof Mistake ? problem : new Mistake(`the sizes of \`${first.name}\` cannot be found out`, first.nameSpan, "give its coordinates ranges, as in `i in 0..8`");
      }
      [this.lets, this.taken, this.count] = mark;
    }
  }

  definition(scope, group, isRecursive) {
    const clauses = new Map(group.map((name) => [name, this.declared.lets.get(name)]));
    if (isRecursive) return this.recursive(scope, clauses, false);
    const [[name, [first]]] = clauses;
    const frame = newFrame(first.names.length > 0 && first.body.kind === "Call" ? first.body.function : name);
    const here = { ...scope, frame };
    const found = first.names.length > 0 ? this.together(here, first, false) : new Map([[name, this.one(here, name, clauses.get(name), false)]]);
    this.finish(frame);
    return found;
  }

  outputs() {
    const { lets, outputs } = this.declared;
    for (const { name, span } of outputs) if (!lets.has(name)) throw new Mistake(`no definition is called \`${name}\``, span, closest(name, lets.keys()));
    if (outputs.length > 0) return [...new Set(outputs.map(({ name }) => name))];
    const read = new Set([...mentionsOf(lets)].flatMap(([owner, names]) => names.filter((name) => name !== owner)));
    const unread = [...lets.keys()].filter((name) => !read.has(name));
    // Else what claims about figures speak of.
    const claimed = new Set(this.declared.expects.flatMap((claim) => within(claim)).filter((node) => node.kind === "Name").map((node) => node.name));
    const found = unread.length > 0 ? unread : [...lets.keys()].filter((name) => claimed.has(name));
    const [first] = lets.keys();
    if (found.length === 0 && first !== undefined) throw new Mistake("every definition is read by another, so none is an output", lets.get(first)[0].nameSpan, `say which: \`output ${first};\``);
    return found;
  }

  // Every definition after all that it reads, else in the order of the text.
  ordered() {
    const edges = new Map([...this.lets.values()].map((let_) => [let_.name, readsOfLet(let_).filter((name) => this.lets.has(name))]));
    return components(edges).flatMap((group) => [...group].reverse().map((name) => this.lets.get(name)));
  }

  // ---------------------------------------------------------------- expressions

  expression(scope, node) {
    this.count += 1;
    this.total += 1;
    if (this.count > MOST_NODES || this.total > 20 * MOST_NODES) throw new Mistake(`this program has more than ${MOST_NODES} nodes when all is written out`, node.span, "name a result on the way with `let`: it is then computed once");
    this.depth += 1;
    if (this.depth > 200) throw new Mistake("this is nested more than 200 deep when all is written out", node.span);
    try {
      return this.meaning(scope, node);
    } finally {
      this.depth -= 1;
    }
  }

  meaning(scope, node) {
    const { span } = node;
    switch (node.kind) {
      case "Number": return made(["const", floatOf(node)], /^\d+$/.test(node.text) ? "whole" : "real", span);
      case "Bool": return made(["const", node.value], "bool", span);
      case "Printed":
        if (shapeOf(node).length === 0) return made(["const", node.literal.kind === "Unary" ? -Number(node.literal.operand.text) : Number(node.literal.text)], "real", span);
        throw new Mistake("an array where one number is needed", span, "read it: `[…][i]`");
      case "ArrayLiteral": throw new Mistake("an array where one number is needed", span, "read it: `[…][i]`");
      case "Tuple": throw new Mistake("several values where one number is needed", span);
      case "Masked": throw new Mistake("`masked` is not a value", span, "it stands on the right of `expect … ==`");
      case "Derivative": throw new Mistake("derivatives are taken by the compiler, and not in the page", span, "`ix show` makes a page of this program, and `ix grad` writes the derivative out");
      case "Name": return this.named(scope, node);
      case "Index": return this.index(scope, this.tensorOf(scope, node.base), node.indices, node.base, span);
      case "Call": return this.call(scope, node);
      case "Unary": case "Binary": case "Comparison": case "Cast": case "If": return this.operation(scope, node);
      case "Block": return this.block(scope, node, "block");
      case "Paren": return this.expression(scope, node.inner);
      case "Reduction": return WORDS.normalisers.includes(node.operator) ? this.normaliser(scope, node) : this.reduction(scope, node);
      default: throw new Mistake("`..` stands in a bracket", span);
    }
  }

  named(scope, node) {
    const found = scope.names.get(node.name);
    if (found?.binding) return coord(found.coordinate, node.span);
    if (found?.value !== undefined) {
      this.count += found.weight;
      return found.value;
    }
    if (found?.abbreviated !== undefined) {
      if (this.expanding.includes(node.name)) throw new Mistake(`\`${node.name}\` abbreviates itself`, node.span);
      this.expanding.push(node.name);
      try {
        return this.expression(scope, found.abbreviated);
      } finally {
        this.expanding.pop();
      }
    }
    if (found?.tensor) return this.single(scope, found, `\`${node.name}\``, node.name, node.span);
    if (found === undefined && node.name === "pi") return Object.assign(made(["const", Math.PI], "real", node.span), { isPi: true });
    throw this.unknown(scope, node.name, node.span, false);
  }

  // A tensor where one number is needed: that is one only where it is a scalar.
  single(scope, tensor, shown, read, span) {
    if (tensor.axes.length === 0) return this.readAt(scope, tensor, [], span);
    throw new Mistake(`${shown} is a whole tensor, and one number is needed here`, span, `read it: \`${read}[${tensor.axes.map((axis) => axis.coordinate).join(", ")}]\``);
  }

  unknown(scope, name, span, isRead) {
    if (name === "pi") return new Mistake("`pi` is one number, and is read without a bracket", span);
    if (WORDS.normalisers.includes(name)) return new Mistake(`expected \`(\` and what \`${name}\` scans`, span, `write \`${name}[j](…)\``);
    if (!isRead && (scope.sizes.has(name) || scope.spaces.has(name))) return new Mistake(`nothing binds the coordinate \`${name}\` here`, span, `put it on the left, or consume it: \`sum[${name}](…)\`; the number of its points is \`size(${name})\``);
    const otherwise = scope.functions.has(name) ? `\`${name}\` is a function: write \`${name}(…)\`` : isRead ? `declare it, \`input ${name}[…];\`, or define it, \`let ${name}[…] = …;\`` : `if it is a coordinate, put it on the left, or consume it: \`sum[${name}](…)\``;
    return new Mistake(`nothing defines \`${name}\`${scope.inFunction ? " in this function" : ""}`, span, closest(name, [...scope.names.keys(), ...scope.functions.keys()]) ?? own(WORDS.foreign, name) ?? otherwise);
  }

  operation(scope, node) {
    const { span } = node;
    if (node.kind === "Unary") {
      if (node.operator === "!") return applied("!", [this.condition(scope, node.operand, "what `!` negates")], "bool", span);
      const inner = this.numeric(this.expression(scope, node.operand), "`-`");
      return applied("neg", [inner], inner.kind, span);
    }
    if (node.kind === "Binary" && (node.operator === "&&" || node.operator === "||")) {
      const first = this.condition(scope, node.left, `a side of \`${node.operator}\``);
      const inner = { ...scope, conditions: [...scope.conditions, node.operator === "&&" ? first : negation(first)] };
      return applied(node.operator, [first, this.condition(inner, node.right, `a side of \`${node.operator}\``)], "bool", span);
    }
    if (node.kind === "Binary") return this.arithmetic(node.operator, this.expression(scope, node.left), this.expression(scope, node.right), span);
    if (node.kind === "Cast") {
      const inner = this.expression(scope, node.operand);
      if (node.dtype === "bool" && inner.kind !== "bool") throw new Mistake(`this is ${KIND_NAMES[inner.kind]}`, inner.span, "write `… != 0`");
      return applied(`as ${node.dtype}`, [inner], kindOf(node.dtype), span);
    }
    if (node.kind === "Comparison") {
      const operands = node.operands.map((operand) => this.expression(scope, operand));
      return all(node.operators.map((op, n) => this.compare(op, operands[n], operands[n + 1], span)));
    }
    const test = this.condition(scope, node.condition, "the condition of an `if`");
    const then = this.expression({ ...scope, conditions: [...scope.conditions, test] }, node.then);
    const otherwise = this.expression({ ...scope, conditions: [...scope.conditions, negation(test)] }, node.otherwise);
    if ((then.kind === "bool") !== (otherwise.kind === "bool")) throw new Mistake("the branches of an `if` are of different kinds", otherwise.span);
    return made(["if", test, then, otherwise], joinKinds([then.kind, otherwise.kind]), span);
  }

  arithmetic(op, left, right, span) {
    this.numeric(left, `\`${op}\``);
    this.numeric(right, `\`${op}\``);
    const kind = joinKinds([left.kind, right.kind]);
    if (kind === "whole" && op === "**" && right[1] === "neg") throw new Mistake("a whole number to a negative power is not whole", right.span, "write `(… as f64) ** …`");
    return applied(kind === "whole" && op === "/" ? "//" : op, [left, right], kind, span);
  }

  compare(op, left, right, span) {
    const isBool = [left, right].map((side) => side.kind === "bool");
    if (isBool.includes(true) && !(isBool.every(Boolean) && (op === "==" || op === "!="))) throw new Mistake(`\`${op}\` compares numbers, and this is true or false`, (isBool[0] ? left : right).span);
    return applied(op, [left, right], "bool", span);
  }

  numeric(expr, user) {
    if (expr.kind === "bool") throw new Mistake(`${user} takes a number, and this is true or false`, expr.span, "`(…) as f64` makes it 1 or 0; a guard stands after `where`");
    return expr;
  }

  condition(scope, node, what) {
    return this.ofKind(this.expression(scope, node), "bool", what, "compare it: `… != 0`");
  }

  ofKind(expr, kind, what, help = null) {
    if (expr.kind === kind) return expr;
    this.demand(expr, kind);
    throw new Mistake(`${what} is ${KIND_NAMES[kind]}, and this is ${KIND_NAMES[expr.kind]}`, expr.span, help);
  }

  // Ask the inputs without a dtype that an expression is made of to be of another kind, and read again.
  demand(expr, kind) {
    const waiting = [expr];
    const seen = new Set();
    let isAsked = false;
    while (waiting.length > 0) {
      const part = waiting.pop();
      if (part.kind === kind) continue;
      const input = part[0] === "read" ? this.declared.inputs.get(part[1]) : undefined;
      if (input !== undefined && input.dtype === null) {
        if (this.kinds.has(part[1])) throw new Mistake(`\`${part[1]}\` cannot be both ${KIND_NAMES[kind]} and ${KIND_NAMES[this.kinds.get(part[1])]}`, part.span, "say what it is where it is declared: `input NAME[…] : i64;`");
        this.kinds.set(part[1], kind);
        isAsked = true;
      } else if (part[0] === "read" && this.bodies.has(part[1]) && !seen.has(part[1])) {
        seen.add(part[1]);
        waiting.push(...this.bodies.get(part[1]));
      } else if (part[0] === "map" && kind === "whole" && WORDS.whole.includes(part[1])) waiting.push(...part[2]);
      else if (part[0] === "if") waiting.push(part[2], part[3]);
      else if (part[0] === "reduce" && ["sum", "prod", "max", "min"].includes(part[1])) waiting.push(part[3]);
    }
    if (isAsked) throw new Again();
  }

  call(scope, node) {
    if (node.function === "size") return this.sizeCall(scope, node);
    if (!isBuiltin(scope, node.function)) {
      const found = this.called(scope, node, null, true);
      return found.tensor ? this.single(scope, found, `what \`${node.function}\` gives`, `${node.function}(…)`, node.span) : found;
    }
    const wanted = WORDS.arity[node.function];
    const parts = node.arguments.map((argument) => this.expression(scope, argument));
    if (wanted === null ? parts.length < 2 : parts.length !== wanted) throw new Mistake(`\`${node.function}\` takes ${wanted === null ? "two or more arguments" : counted(wanted, "argument")}, and ${parts.length === 1 ? "1 is" : `${parts.length} are`} given`, node.span, node.function === "clamp" ? "it is `clamp(x, low, high)`" : null);
    for (const part of parts) this.numeric(part, `\`${node.function}\``);
    return applied(node.function, parts, WORDS.whole.includes(node.function) ? joinKinds(parts.map((part) => part.kind)) : "real", node.span);
  }
}

const newFrame = (owner) => ({ owner, live: new Map(), pending: [] });
const newBinding = (coordinate, name, span, key) => ({ binding: true, coordinate, name, span, key, stated: null, range: null, evidence: [], spaces: new Map() });
