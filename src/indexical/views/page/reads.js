// Reads: tensors by name, by call and by literal, and the places in them.
"use strict";

Object.assign(Lowering.prototype, {
  tensorOf(scope, node) {
    switch (node.kind) {
      case "Name": {
        const found = scope.names.get(node.name);
        if (found?.tensor) return found;
        if (found === undefined || found.rest) throw this.unknown(scope, node.name, node.span, true);
        throw new Mistake(`\`${node.name}\` is one number, not a tensor`, node.span);
      }
      case "Call":
        if (!isBuiltin(scope, node.function)) {
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
  },

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
  },

  restParts(scope, rest, axes, shown) {
    const binding = scope.names.get(`..${rest.name}`);
    if (!binding?.rest) throw new Mistake(`nothing binds \`..${rest.name}\` here`, rest.span, `put \`..${rest.name}\` on the left, or reduce it`);
    binding.parts ??= this.newParts(scope, binding, axes);
    const kinds = (list) => list.map(({ coordinate }) => coordinate.startsWith("..")).join();
    if (kinds(binding.parts) !== kinds(axes)) throw new Mistake(`\`..${rest.name}\` stands for different coordinates in one statement`, rest.span);
    binding.parts.forEach((part, n) => part.evidence.push({ extent: axes[n].extent, origin: axes[n].origin, text: `\`${shown}\``, span: rest.span }));
    return binding.parts.map((part) => coord(part.coordinate, rest.span));
  },

  newParts(scope, binding, axes) {
    return axes.map((axis, n) => {
      const isRest = axis.coordinate.startsWith("..");
      const name = freed(axis.coordinate.replace(/^\.\./, ""), new Set([...[...scope.frame.live.keys()].map((taken) => taken.replace(/^\.\./, "")), ...scope.names.keys()]));
      const part = newBinding(isRest ? `..${name}` : name, name, binding.span, `${binding.key} ${n}`);
      scope.frame.live.set(part.coordinate, part);
      return part;
    });
  },

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
  },

  // A coordinate of one space may not index an axis of another. One that runs through several is let be.
  checkSpaces({ name, space, spaces }) {
    const others = [...spaces.keys()].filter((other) => other !== space);
    if (space === undefined || others.length !== 1) return;
    const { tensor, span } = spaces.get(others[0]);
    throw new Mistake(`\`${name}\` is of the space \`${space}\`, and this axis of \`${tensor}\` is of the space \`${others[0]}\``, span, "give each axis a coordinate of its own space");
  },

  // An array literal as a definition of its own.
  figures(scope, node, name, isHidden) {
    const shape = shapeOf(node);
    const cells = [];
    const collect = (part) => {
      if (part.kind === "ArrayLiteral") part.items.forEach(collect);
      else if (part.kind === "Printed" && shapeOf(part).length > 0) collect(part.literal);
      else if (part.kind === "Unary" && part.operand.kind === "Number") cells.push(this.arithmeticless(part));
      else cells.push(this.constant(scope, part));
    };
    collect(node);
    const kinds = new Set(cells.map((cell) => cell.kind));
    if (kinds.has("bool") && kinds.size > 1) throw new Mistake("an array literal mixes numbers with `true` and `false`", node.span);
    const isPrinted = node.kind === "Printed" || within(node).some((part) => part.kind === "Printed");
    const kind = isPrinted ? "real" : joinKinds([...kinds]);
    const axes = shape.map((extent, n) => ({ coordinate: `axis_${n}`, extent, origin: 0 }));
    const slots = axes.map((axis) => coord(axis.coordinate, node.span));
    const ranges = axes.map((axis) => [axis.coordinate, whole(0, node.span), whole(axis.extent, node.span)]);
    // Where a cell is computed, each is a clause.
    const clauses = cells.every((cell) => cell[0] === "const")
      ? [{ slots, ranges, body: made(["array", shape, cells.map((cell) => cell[1]), slots, "figures"], kind, node.span), guard: null, span: node.span }]
      : cells.map((body, n) => ({ slots: placeOf(shape, n).map((at) => whole(at, node.span)), ranges: [], body, guard: null, span: node.span }));
    const called = name ?? this.newName(`${scope.frame.owner}_figures`);
    scope.frame.pending.push({ name: called, captured: [], axes, kind, clauses, isHidden, span: node.span, call: this.calls[0] ?? null });
    return { tensor: true, name: called, axes, kind, span: node.span, captured: [], recursive: false };
  },

  arithmeticless(part) {
    const isWhole = /^\d+$/.test(part.operand.text);
    return made(["const", -floatOf(part.operand)], isWhole ? "whole" : "real", part.span);
  },

  // A cell of an array literal.
  constant(scope, part) {
    const { owner } = scope.frame;
    const found = varyingIn(scope, part);
    if (found !== null) throw new Mistake("this is not constant, and the cells of an array literal are", found.span, `give every cell a clause: \`let ${owner}[0] = …;\`, \`let ${owner}[1] = …;\``);
    return this.expression(scope, part);
  },

  newName(base) {
    const name = freed(base, this.taken, 2);
    this.taken.add(name);
    return name;
  },
});

// A number as floats have it. One that they do not hold is for exact numbers alone.
function floatOf({ text, span }) {
  const value = Number(text);
  if (!Number.isFinite(value)) throw new Mistake("this number is beyond all that 64 bits hold, and this is computed in floats", span, "`ix exact` and `ix verify` compute with it");
  if (value === 0 && /[1-9]/.test(text.toLowerCase().split("e")[0])) throw new Mistake("this number is nearer to 0 than any of 64 bits, and this is computed in floats", span, "`ix exact` and `ix verify` compute with it");
  return value;
}

// The first part of an expression that is not constant: a name, an element, what runs over a coordinate.
function varyingIn(scope, node) {
  switch (node.kind) {
    case "Number": case "Bool": case "Masked": return null;
    case "Printed": return shapeOf(node).length === 0 ? null : node;
    case "Name": return node.name === "pi" && !scope.names.has("pi") ? null : node;
    case "Paren": return varyingIn(scope, node.inner);
    case "Unary": case "Cast": return node.operator === "!" ? node : varyingIn(scope, node.operand);
    case "Binary": return ["&&", "||"].includes(node.operator) ? node : varyingIn(scope, node.left) ?? varyingIn(scope, node.right);
    case "Call": return !Object.hasOwn(WORDS.arity, node.function) || scope.functions.has(node.function) ? node : node.arguments.map((each) => varyingIn(scope, each)).find((found) => found !== null) ?? null;
    default: return node;
  }
}

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
