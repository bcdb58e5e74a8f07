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
    Object.assign(this, { lets: new Map(), bodies: new Map(), sizes: Object.create(null), taken: new Set([...this.declared.inputs.keys(), ...this.declared.lets.keys(), ...WORDS.reserved]), memo: new Map(), calls: [], expanding: [], attached: new Map(), count: 0, depth: 0, rehearsing: 0 });
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
    const found = [...lets.keys()].filter((name) => !read.has(name));
    const [first] = lets.keys();
    if (found.length === 0 && first !== undefined) throw new Mistake("every definition is read by another, so none is an output", lets.get(first)[0].nameSpan, `say which: \`output ${first};\``);
    return found;
  }

  // Every definition after all that it reads, else in the order of the text.
  ordered() {
    const edges = new Map([...this.lets.values()].map((let_) => [let_.name, readsOfLet(let_).filter((name) => this.lets.has(name))]));
    return components(edges).flatMap((group) => [...group].reverse().map((name) => this.lets.get(name)));
  }

  // --------------------------------------------------------------------- inputs

  inputScope() {
    const [names, sizes, rests] = [new Map(), this.literalSizes(), new Map()];
    const scope = { names, functions: this.functions, spaces: this.declared.spaces, sizes, rests, frame: newFrame("input"), conditions: [], inFunction: false };
    this.inputs = [];
    const waiting = [];
    const said = new Map();
    for (const item of this.declared.inputs.values()) {
      const array = this.given.get(item.name);
      if (array === undefined) throw new Mistake(`the page has no numbers for \`${item.name}\``, item.nameSpan, closest(item.name, this.given.keys()) ?? `give it figures, as in \`let ${item.name}[i] = [1, 2, 3];\`; \`ix show\` takes arrays`);
      const slots = item.slots ?? [];
      const shape = this.fitted(item, slots, array);
      const axes = slots.map((slot, n) => {
        if (slot.kind !== "Binder") throw new Mistake("an input's bracket holds coordinates", slot.span, "a size is stated as `i in 0..5`");
        checkFree(slot.name, slot.span);
        if (slot.rest && n > 0) throw new Mistake("`..` leads a bracket, once", slot.span);
        if (slots.findIndex((other) => other.name === slot.name) < n) throw new Mistake(`\`${slot.name}\` stands twice in one bracket`, slot.span, "give one another name");
        const axis = { coordinate: slot.rest ? `..${slot.name}` : slot.name, extent: shape[n], origin: 0, space: this.declared.spaces.get(slot.name) };
        if (slot.range !== null) waiting.push([slot, shape[n]]);
        if (slot.rest) rests.set(slot.name, [axis]);
        else {
          const known = said.get(slot.name);
          if (known !== undefined && known[1] !== shape[n]) throw new Mistake(`\`${slot.name}\` has ${counted(shape[n], "point")} in \`${item.name}\` and ${known[1]} in \`${known[0]}\``, slot.span, "if these are two coordinates, give one another name");
          said.set(slot.name, [item.name, shape[n]]);
          sizes.set(slot.name, shape[n]);
        }
        return axis;
      });
      const kind = item.dtype === null ? this.kinds.get(item.name) ?? "real" : kindOf(item.dtype);
      this.checkValues(item, array, kind);
      names.set(item.name, { tensor: true, name: item.name, axes, kind, span: item.span, captured: [], recursive: false });
      this.inputs.push({ name: item.name, axes, kind, shape, span: item.span });
    }
    for (const [slot, extent] of waiting) {
      const [low, high] = this.bounds(scope, slot.range, slot.name, false).map((bound) => this.number(bound));
      if (low !== 0) throw new Mistake(`the range of an input's \`${slot.name}\` must start at 0`, slot.range.lower.span);
      if (high !== extent) throw new Mistake(`\`${slot.name}\` has ${counted(high, "point")} here, and the page's array has ${extent}`, slot.range.span, "`ix show` takes other arrays");
    }
    return scope;
  }

  // The shape of an array, with all that `..r` stands for as one axis.
  fitted(item, slots, { shape }) {
    const lead = shape.length - slots.length;
    if (lead === 0) return shape;
    if (lead > 0 && slots[0]?.rest) return [shape.slice(0, lead + 1).reduce((product, length) => product * length, 1), ...shape.slice(lead + 1)];
    throw new Mistake(`\`${item.name}\` has ${counted(slots.length, "coordinate")} here, and the page's array has ${shape.length}`, item.span, "`ix show` takes other arrays");
  }

  checkValues(item, array, kind) {
    const isBool = array.kind === "bool";
    if (isBool !== (kind === "bool")) throw new Mistake(`\`${item.name}\` is ${KIND_NAMES[kind]} here, and the page's array holds ${isBool ? "true and false" : "numbers"}`, item.span, isBool ? `declare it \`${item.name}… : bool\`` : "`ix show` takes other arrays");
    if (kind === "whole" && array.kind !== "whole" && !array.values.every((value) => Number.isInteger(value))) throw new Mistake(`\`${item.name}\` is used as a whole number, and the page's numbers for it are not whole`, item.span, "`… as i64` truncates");
  }

  // Figures in the text stand for inputs: their coordinates have sizes too, where they agree.
  literalSizes() {
    const found = new Map();
    for (const clauses of this.declared.lets.values()) {
      const shape = shapeOf(clauses[0].body);
      const slots = clauses[0].slots ?? [];
      if (clauses.length > 1 || shape.length === 0 || shape.length !== slots.length) continue;
      slots.forEach((slot, n) => { if (slot.kind === "Binder" && slot.range === null && !slot.rest) found.set(slot.name, found.has(slot.name) && found.get(slot.name) !== shape[n] ? NaN : shape[n]); });
    }
    return new Map([...found].filter(([, size]) => !Number.isNaN(size)));
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
      case "Number": return made(["const", Number(node.text)], /^\d+$/.test(node.text) ? "whole" : "real", span);
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
    if (!Object.hasOwn(WORDS.arity, node.function)) {
      const found = this.called(scope, node, null, true);
      return found.tensor ? this.single(scope, found, `what \`${node.function}\` gives`, `${node.function}(…)`, node.span) : found;
    }
    const wanted = WORDS.arity[node.function];
    const parts = node.arguments.map((argument) => this.expression(scope, argument));
    if (wanted === null ? parts.length < 2 : parts.length !== wanted) throw new Mistake(`\`${node.function}\` takes ${wanted === null ? "two or more arguments" : counted(wanted, "argument")}, and ${parts.length === 1 ? "1 is" : `${parts.length} are`} given`, node.span, node.function === "clamp" ? "it is `clamp(x, low, high)`" : null);
    for (const part of parts) this.numeric(part, `\`${node.function}\``);
    return applied(node.function, parts, WORDS.whole.includes(node.function) ? joinKinds(parts.map((part) => part.kind)) : "real", node.span);
  }

  // ---------------------------------------------------------------------- reads

  tensorOf(scope, node) {
    switch (node.kind) {
      case "Name": {
        const found = scope.names.get(node.name);
        if (found?.tensor) return found;
        if (found === undefined || found.rest) throw this.unknown(scope, node.name, node.span, true);
        throw new Mistake(`\`${node.name}\` is one number, not a tensor`, node.span);
      }
      case "Call":
        if (!Object.hasOwn(WORDS.arity, node.function) && node.function !== "size") {
          const found = this.called(scope, node, null, true);
          if (!found.tensor) throw new Mistake(`\`${node.function}\` gives one number, not a tensor`, node.span);
          return found;
        }
        break;
      case "ArrayLiteral": case "Printed": return this.figures(scope, node, null, true);
      case "Paren": return this.tensorOf(scope, node.inner);
      case "Derivative": return this.meaning(scope, node);
      case "Index":
        if (node.base.kind === "Name" && scope.names.get(node.base.name)?.tensor) throw new Mistake("a whole tensor is wanted here, and this is one number of it", node.span, `write \`${node.base.name}\``);
        break;
      default:
    }
    throw new Mistake("only a tensor can be read with `[…]` or passed whole", node.span);
  }

  index(scope, tensor, indices, base, span) {
    const rest = indices[0]?.kind === "Rest" ? indices[0] : null;
    const plain = rest === null ? indices : indices.slice(1);
    const stray = plain.find((index) => index.kind === "Rest");
    if (stray !== undefined) throw new Mistake("`..` leads a bracket, once", stray.span);
    const shown = base.kind === "Name" ? base.name : tensor.name;
    const found = plain.map((index) => this.expression(scope, index));
    const { axes } = tensor;
    if (rest === null && axes[0]?.coordinate.startsWith("..")) throw new Mistake(`\`${shown}\` has leading axes \`${axes[0].coordinate}\``, base.span, `read it as \`${shown}[${axes[0].coordinate}, …]\``);
    if (plain.length > axes.length || (rest === null && plain.length < axes.length)) {
      if (axes.length === 0) throw new Mistake(`\`${shown}\` is a scalar, read without a bracket`, span);
      throw new Mistake(`\`${shown}\` has ${counted(axes.length, "coordinate")} and is read with ${plain.length}`, span, `it is \`${shown}[${axes.map((axis) => axis.coordinate).join(", ")}]\``);
    }
    const lead = rest === null ? [] : this.restParts(scope, rest, axes.slice(0, axes.length - plain.length), shown);
    return this.readAt(scope, tensor, [...lead, ...found], span);
  }

  restParts(scope, rest, axes, shown) {
    const binding = scope.names.get(`..${rest.name}`);
    if (!binding?.rest) throw new Mistake(`nothing binds \`..${rest.name}\` here`, rest.span, `put \`..${rest.name}\` on the left, or reduce it`);
    binding.parts ??= this.newParts(scope, binding, axes);
    const kinds = (list) => list.map(({ coordinate }) => coordinate.startsWith("..")).join();
    if (kinds(binding.parts) !== kinds(axes)) throw new Mistake(`\`..${rest.name}\` stands for different coordinates in one statement`, rest.span);
    binding.parts.forEach((part, n) => part.evidence.push({ extent: axes[n].extent, origin: axes[n].origin, text: `\`${shown}\``, span: rest.span }));
    return binding.parts.map((part) => coord(part.coordinate, rest.span));
  }

  newParts(scope, binding, axes) {
    return axes.map((axis, n) => {
      const isRest = axis.coordinate.startsWith("..");
      const name = freed(axis.coordinate.replace(/^\.\./, ""), new Set([...[...scope.frame.live.keys()].map((taken) => taken.replace(/^\.\./, "")), ...scope.names.keys()]));
      const part = newBinding(isRest ? `..${name}` : name, name, binding.span, `${binding.key} ${n}`);
      scope.frame.live.set(part.coordinate, part);
      return part;
    });
  }

  readAt(scope, tensor, indices, span) {
    const places = tensor.axes.map((axis, n) => {
      const index = this.ofKind(indices[n], "whole", "an index", indices[n].kind === "real" ? "`… as i64` truncates it" : null);
      const binding = index[0] === "coord" ? scope.frame.live.get(index[1]) : undefined;
      if (binding !== undefined && !index[1].startsWith("..")) binding.evidence.push({ extent: axis.extent, origin: axis.origin, text: `\`${tensor.name}\``, span });
      const tied = tiedTo(index);
      const tie = tied === null ? undefined : scope.frame.live.get(tied);
      if (tie !== undefined && axis.space !== undefined) tie.spaces.set(axis.space, { tensor: tensor.name, span });
      return axis.origin === 0 ? index : tidied(applied("-", [index, whole(axis.origin, span)], "whole", span));
    });
    if (tensor.kind === null) throw new Unsure();
    return made(["read", tensor.name, [...tensor.captured.map((binding) => coord(binding.coordinate, span)), ...places], ""], tensor.kind, span);
  }

  // A coordinate of one space may not index an axis of another. One that runs through several is let be.
  checkSpaces({ name, space, spaces }) {
    const others = [...spaces.keys()].filter((other) => other !== space);
    if (space === undefined || others.length !== 1) return;
    const { tensor, span } = spaces.get(others[0]);
    throw new Mistake(`\`${name}\` is of the space \`${space}\`, and this axis of \`${tensor}\` is of the space \`${others[0]}\``, span, "give each axis a coordinate of its own space");
  }

  // An array literal as a definition of its own.
  figures(scope, node, name, isHidden) {
    const shape = shapeOf(node);
    const cells = [];
    const collect = (part) => {
      if (part.kind === "ArrayLiteral") part.items.forEach(collect);
      else if (part.kind === "Printed" && shapeOf(part).length > 0) collect(part.literal);
      else if (part.kind === "Unary") cells.push(this.arithmeticless(part));
      else cells.push(this.expression(scope, part));
    };
    collect(node);
    const kinds = new Set(cells.map((cell) => cell.kind));
    if (kinds.has("bool") && kinds.size > 1) throw new Mistake("an array literal mixes numbers with `true` and `false`", node.span);
    const isPrinted = node.kind === "Printed" || within(node).some((part) => part.kind === "Printed");
    const kind = isPrinted ? "real" : joinKinds([...kinds]);
    const axes = shape.map((extent, n) => ({ coordinate: `axis_${n}`, extent, origin: 0 }));
    const slots = axes.map((axis) => coord(axis.coordinate, node.span));
    const body = made(["array", shape, cells.map((cell) => cell[1]), slots, "figures"], kind, node.span);
    const clause = { slots, ranges: axes.map((axis) => [axis.coordinate, whole(0, node.span), whole(axis.extent, node.span)]), body, guard: null, span: node.span };
    const called = name ?? this.newName(`${scope.frame.owner}_figures`);
    scope.frame.pending.push({ name: called, captured: [], axes, kind, clauses: [clause], isHidden, span: node.span, call: this.calls[0] ?? null });
    return { tensor: true, name: called, axes, kind, span: node.span, captured: [], recursive: false };
  }

  arithmeticless(part) {
    const isWhole = /^\d+$/.test(part.operand.text);
    return made(["const", -Number(part.operand.text)], isWhole ? "whole" : "real", part.span);
  }

  newName(base) {
    const name = freed(base, this.taken, 2);
    this.taken.add(name);
    return name;
  }
}

const newFrame = (owner) => ({ owner, live: new Map(), pending: [] });
const newBinding = (coordinate, name, span, key) => ({ binding: true, coordinate, name, span, key, stated: null, range: null, evidence: [], spaces: new Map() });

// The coordinate that an index ties to its axis: only `c` and `c ± k` do.
function tiedTo(index) {
  if (index[0] === "coord") return index[1];
  if (index[0] !== "map" || (index[1] !== "+" && index[1] !== "-")) return null;
  const [left, right] = index[2];
  if (freeIn(right).size === 0) return tiedTo(left);
  return index[1] === "+" && freeIn(left).size === 0 ? tiedTo(right) : null;
}

// A whole expression with its constants added up: `t + 1 - 1` is `t`.
function tidied(expr) {
  if (expr[0] !== "map" || expr.kind !== "whole" || (expr[1] !== "+" && expr[1] !== "-")) return expr;
  let constant = 0;
  let isPlain = true;
  const terms = [];
  const collect = (part, sign) => {
    if (part[0] === "map" && (part[1] === "+" || part[1] === "-") && part.kind === "whole") {
      collect(part[2][0], sign);
      collect(part[2][1], part[1] === "+" ? sign : -sign);
    } else if (part[0] === "const") constant += sign * part[1];
    else {
      isPlain &&= sign > 0 || terms.length > 0;
      terms.push([sign, part]);
    }
  };
  collect(expr, 1);
  if (!isPlain) return expr;
  if (terms.length === 0) return whole(constant, expr.span);
  const sum = terms.slice(1).reduce((found, [sign, part]) => applied(sign > 0 ? "+" : "-", [found, part], "whole", expr.span), terms[0][1]);
  return constant === 0 ? sum : applied(constant > 0 ? "+" : "-", [sum, whole(Math.abs(constant), expr.span)], "whole", expr.span);
}
