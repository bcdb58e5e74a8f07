// Definitions: ranges, reductions, guards, local definitions, recurrences and calls.
"use strict";

const bound = (scope, names) => ({ ...scope, names: new Map([...scope.names, ...names]) });
const holding = (scope, condition) => (condition === null ? scope : { ...scope, conditions: [...scope.conditions, condition] });
const reversed = (list) => [...list].reverse();
// Running totals, and the reductions that some of them are.
const SCANS = { cumsum: null, cumprod: "prod", cummax: "max" };

Object.assign(Lowering.prototype, {
  // ---------------------------------------------------------------------- sizes

  // What a closed expression is: literals, sizes, whole scalars and arithmetic on them.
  number(expr) {
    switch (expr[0]) {
      case "const": return expr[1];
      case "size": return this.sizes[expr[1]];
      case "read":
        if (this.lets.has(expr[1])) return this.number(this.lets.get(expr[1]).clauses[0].body);
        return Number(this.given.get(expr[1]).values[0]);
      case "map": return (OPERATIONS[expr[1]] ?? FUNCTIONS[expr[1]])(...expr[2].map((part) => this.number(part)));
      default: return NaN;
    }
  },

  isClosed(expr) {
    if (["const", "size", "coord"].includes(expr[0])) return true;
    if (expr[0] === "read" && expr[2].length === 0) {
      const found = this.lets.get(expr[1]);
      return found === undefined ? this.declared.inputs.has(expr[1]) : found.kind === "whole" && found.clauses.length === 1 && found.clauses[0].guard === null && this.isClosed(found.clauses[0].body);
    }
    return expr[0] === "map" && ["+", "-", "*", "//", "%", "**", "neg", "max", "min", "abs"].includes(expr[1]) && expr[2].every((part) => this.isClosed(part));
  },

  bounds(scope, range, name, isOuter) {
    const [lower, upper] = [range.lower, range.upper].map((side) => {
      const found = this.ofKind(this.expression(scope, side), "whole", "the bound of a range");
      const free = [...freeIn(found)];
      if (!isOuter && free.length > 0) throw new Mistake(`the range of \`${name}\` depends on \`${free[0]}\``, side.span, "only the range of a reduction may depend on another coordinate; here, give a full range and a guard");
      if (!this.isClosed(found)) throw new Mistake(`the range of \`${name}\` cannot depend on data`, side.span, "bounds are made of whole literals, `size(…)`, whole constants and whole scalar inputs");
      if (free.length === 0 && Number.isNaN(this.number(found))) this.isUnsure = true;
      return found;
    });
    return [lower, range.inclusive ? tidied(applied("+", [upper, whole(1, upper.span)], "whole", upper.span)) : upper];
  },

  extent([lower, upper]) {
    return zero(lower) ? upper : tidied(applied("-", [upper, lower], "whole", upper.span));
  },

  sizeNode(name, size, span) {
    this.sizes[name] ??= size;
    return this.sizes[name] === size ? made(["size", name], "whole", span) : whole(size, span);
  },

  sizeCall(scope, node) {
    if (node.arguments.length !== 1 || node.arguments[0].kind !== "Name") throw new Mistake("`size` takes the name of one coordinate", node.span, "write `size(d)`");
    const [{ name, span }] = node.arguments;
    const binding = scope.names.get(name);
    return this.sizeOf(scope, name, binding?.binding ? binding : null, node.span) ?? (() => { throw new Mistake(`no coordinate \`${name}\` is in scope, and no input and no definition has one`, span, closest(name, scope.sizes.keys())); })();
  },

  sizeOf(scope, name, binding, span) {
    if (binding !== null) {
      const settled = binding.stated ?? binding.range;
      if (settled !== null) return this.extent(settled);
      this.hasAsked = true;
      const size = this.memo.get(binding.key) ?? NaN;
      if (typeof size !== "number") return size;
      if (Number.isNaN(size)) this.isUnsure = true;
      return Number.isNaN(size) ? whole(NaN, span) : this.sizeNode(binding.coordinate, size, span);
    }
    if (scope.sizes.has(name)) return this.sizeNode(name, scope.sizes.get(name), span);
    const axes = scope.inFunction ? [] : [...scope.names.values()].filter((found) => found.tensor && !found.recursive).flatMap((tensor) => tensor.axes.filter((axis) => axis.coordinate === name).map((axis) => [tensor, axis.extent]));
    if (axes.length === 0) return null;
    const odd = axes.find(([, extent]) => extent !== axes[0][1]);
    if (odd !== undefined) throw new Mistake(`\`size(${name})\` is ${axes[0][1]} in \`${axes[0][0].name}\` and ${odd[1]} in \`${odd[0].name}\``, span, `if these are two coordinates, give one another name than \`${name}\``);
    return this.sizeNode(name, axes[0][1], span);
  },

  // The range of a coordinate whose statement has been read.
  settle(scope, binding) {
    const { span } = binding;
    this.checkSpaces(binding);
    if (binding.stated !== null) binding.range = binding.stated;
    else {
      const known = binding.evidence.filter(({ extent }) => !Number.isNaN(extent));
      const [first] = known;
      const odd = known.find(({ extent, origin }) => extent !== first.extent || origin !== first.origin);
      if (odd !== undefined) {
        const what = odd.origin === first.origin ? `has ${counted(odd.extent, "point")} in ${odd.text} and ${first.extent} in ${first.text}` : `begins at ${odd.origin} in ${odd.text} and at ${first.origin} in ${first.text}`;
        throw new Mistake(`\`${binding.name}\` ${what}`, odd.span, "if these are two coordinates, give one another name");
      }
      if (known.length > 0) binding.range = [whole(first.origin, span), first.origin === 0 && !binding.coordinate.startsWith("..") ? this.sizeNode(binding.coordinate, first.extent, span) : whole(first.origin + first.extent, span)];
      else if (scope.sizes.has(binding.name) && !binding.coordinate.startsWith("..")) binding.range = [whole(0, span), this.sizeNode(binding.name, scope.sizes.get(binding.name), span)];
      else if (binding.evidence.length > 0 && (this.rehearsing > 0 || !this.memo.has(binding.key))) {
        this.isUnsure = true;
        binding.range = [whole(0, span), whole(NaN, span)];
      } else throw new Mistake(`nothing says how many points \`${binding.name}\` has`, span, `give it a range, as in \`${binding.name} in 0..8\``);
    }
    const extent = this.extent(binding.range);
    if (!zero(binding.range[0])) this.memo.set(`${binding.key} from`, this.number(binding.range[0]));
    this.memo.set(binding.key, freeIn(extent).size > 0 ? extent : this.number(extent));
    return [binding.coordinate, ...binding.range];
  },

  settleRest(scope, rest, span) {
    if (rest.parts === null) {
      const axes = scope.rests.get(rest.name);
      if (axes === undefined) throw new Mistake(`nothing says which coordinates \`..${rest.name}\` stands for`, span, "read a tensor with it, or declare an input with it");
      rest.parts = this.newParts(scope, rest, axes);
      rest.parts.forEach((part, n) => part.evidence.push({ ...axes[n], text: `\`..${rest.name}\``, span }));
    }
    return rest.parts;
  },

  // ------------------------------------------------------------------- binding

  keyOf(node) {
    if (!this.ids.has(node)) this.ids.set(node, this.ids.size);
    return `${this.calls.map(({ node: call }) => this.keyOfCall(call)).join("/")}:${this.ids.get(node)}`;
  },

  keyOfCall(node) {
    if (!this.ids.has(node)) this.ids.set(node, this.ids.size);
    return this.ids.get(node);
  },

  bind(scope, binder) {
    checkFree(binder.name, binder.span);
    if (binder.rest) return { rest: true, name: binder.name, span: binder.span, parts: null, key: this.keyOf(binder) };
    const binding = newBinding(freed(binder.name, scope.frame.live), binder.name, binder.span, this.keyOf(binder));
    binding.space = scope.spaces.get(binder.name);
    scope.frame.live.set(binding.coordinate, binding);
    return binding;
  },

  // The coordinates that the `..` of the statement around stand for: found inside, and bound outside.
  outerParts(scope) {
    return [...scope.names.values()].filter((found) => found.rest).flatMap((found) => found.parts ?? []);
  },

  forget(scope, before) {
    const outer = new Set(this.outerParts(scope).map((part) => part.coordinate));
    for (const name of [...scope.frame.live.keys()]) if (!before.has(name) && !outer.has(name)) scope.frame.live.delete(name);
  },

  reduction(scope, node) {
    const before = new Set(scope.frame.live.keys());
    const names = new Map();
    if (node.operator.startsWith("arg") && node.binders.some((binder) => binder.rest)) throw new Mistake(`\`${node.operator}\` binds coordinates that are named`, node.operatorSpan);
    node.binders.forEach((binder, n) => {
      const key = binder.rest ? `..${binder.name}` : binder.name;
      if (names.has(key) || (binder.rest && n > 0)) throw new Mistake(`\`${key}\` is bound twice, or does not lead the bracket`, binder.span);
      const binding = this.bind(scope, binder);
      if (binder.range !== null) binding.stated = this.bounds(bound(scope, names), binder.range, binder.name, true);
      names.set(key, binding);
    });
    const [inner, guard] = this.guardOf(bound(scope, names), node);
    const body = this.expression(inner, node.body);
    const parts = [...names.values()].flatMap((binding) => (binding.rest ? this.settleRest(inner, binding, node.span) : [binding]));
    const ranges = parts.map((part) => this.settle(scope, part));
    const kind = this.reductionKind(node.operator, body);
    const found = node.operator.startsWith("arg") && parts.length > 1 ? this.flat(scope, node, parts, body, guard)
      : { ranges, body, guard };
    this.forget(scope, before);
    return made(["reduce", node.operator, found.ranges, found.body, found.guard, null, ""], kind, node.span);
  },

  reductionKind(op, body) {
    if (op === "any" || op === "all") return this.ofKind(body, "bool", `what \`${op}\` scans`).kind;
    this.numeric(body, `\`${op}\``);
    if (["argmax", "argmin", "rank"].includes(op)) return "whole";
    return ["mean", "softmax", "log_softmax"].includes(op) ? "real" : body.kind;
  },

  guardOf(scope, node) {
    const inner = bound(scope, node.where.filter((part) => part.kind === "Abbreviation").map((part) => [part.name, { abbreviated: part.value }]));
    const clauses = [...node.where.filter((part) => part.kind === "Guard"), ...(this.attached.get(node) ?? [])];
    const guard = all(clauses.map((clause) => this.condition(inner, clause.condition, "a guard")));
    return [holding(inner, guard), guard];
  },

  normaliser(scope, node) {
    if (node.binders.some((binder) => binder.rest || binder.range !== null)) throw new Mistake(`\`${node.operator}\` normalises over coordinates without a range`, node.operatorSpan);
    if (node.operator in SCANS && node.binders.length > 1) throw new Mistake(`\`${node.operator}\` goes along one coordinate`, node.operatorSpan);
    const bindings = node.binders.map((binder, n) => {
      const binding = scope.names.get(binder.name);
      if (!binding?.binding) throw new Mistake(`\`${node.operator}[${binder.name}]\` needs a \`${binder.name}\` that survives it`, binder.span, `put \`${binder.name}\` on the left, or inside a reduction over it`);
      if (node.binders.findIndex((other) => other.name === binder.name) < n) throw new Mistake(`\`${binder.name}\` is bound twice`, binder.span);
      return binding;
    });
    // Inside, the coordinate runs over all its points: what holds of it outside does not hold there.
    const own_ = new Set(bindings.map((binding) => binding.coordinate));
    const outside = { ...scope, conditions: scope.conditions.filter((held) => ![...freeIn(held)].some((name) => own_.has(name))) };
    const [inner, guard] = this.guardOf(outside, node);
    const body = this.expression(inner, node.body);
    const kind = this.reductionKind(node.operator, body);
    if (bindings.length === 1 && SCANS[node.operator]) return this.upToHere(outside, node, bindings[0], body, guard, kind);
    if (bindings.length === 1) return made(["normalize", node.operator, bindings[0].coordinate, body, guard, null, ""], kind, node.span);
    const { ranges: [[place]], ranges, body: moved, guard: where, lengths } = this.flat(outside, node, bindings, body, guard);
    const found = made(["normalize", node.operator, place, moved, where, null, ""], kind, node.span);
    const own = newBinding(place, place, node.span, `${this.keyOf(node)} flat`);
    own.range = ranges[0].slice(1);
    const weights = this.lift(outside, this.newName(`${scope.frame.owner}_${node.operator}`), [{ slots: [coord(place, node.span)], own: [own], ranges, body: found, guard: null, span: node.span }], node.operator, node.operatorSpan, true);
    const at = bindings.slice(1).reduce((sum, binding, n) => applied("+", [applied("*", [sum, lengths[n + 1]], "whole", node.span), coord(binding.coordinate, node.span)], "whole", node.span), coord(bindings[0].coordinate, node.span));
    return made(["read", weights.name, [...weights.captured.map((binding) => coord(binding.coordinate, node.span)), at], ""], kind, node.span);
  },

  // A running product or maximum, as the reduction up to its point that it is. Where it begins may not be known yet.
  upToHere(scope, node, binding, body, guard, kind) {
    const { span } = node;
    const inside = walkIn(body).filter((part) => part[0] === "reduce").flatMap((part) => part[2].map(([name]) => name));
    const point = coord(freed(binding.coordinate, new Set([...scope.frame.live.keys(), ...inside])), span);
    const at = new Map([[binding.coordinate, point]]);
    const origin = binding.stated?.[0] ?? whole(this.memo.get(`${binding.key} from`) ?? 0, span);
    const size = binding.stated === null ? this.sizeOf(scope, binding.name, binding, span) : null;
    const end = binding.stated?.[1] ?? (zero(origin) ? size : tidied(applied("+", [origin, size], "whole", span)));
    const earlier = applied("<=", [point, coord(binding.coordinate, span)], "bool", span);
    const where = all([earlier, guard === null ? null : substituted(guard, at), guard]);
    return made(["reduce", SCANS[node.operator], [[point[1], origin, end]], substituted(body, at), where, null, ""], kind, span);
  },

  // Several coordinates as one, in row-major order: its range, and the body and the guard at a place in it.
  flat(scope, node, bindings, body, guard) {
    const { span } = node;
    const lengths = bindings.map((binding) => {
      if (binding.stated !== null && !zero(binding.stated[0])) throw new Mistake(`\`${node.operator}\` runs over several coordinates, and \`${binding.name}\` has no plain range from 0`, node.operatorSpan, `give \`${binding.name}\` a full range and a guard`);
      return this.sizeOf(scope, binding.name, binding, span);
    });
    const isPlain = body[0] === "read" && body[2].every((index) => index[0] === "coord");
    const scores = isPlain ? body : this.keep(scope, "scores", body, guard, node);
    const count = lengths.slice(1).reduce((product, length) => applied("*", [product, length], "whole", span), lengths[0]);
    const place = freed(bindings.map((binding) => binding.coordinate).join(""), new Set([...scope.frame.live.keys(), ...scope.names.keys()]));
    const values = new Map();
    let rest = coord(place, span);
    reversed(bindings.map((binding, n) => [binding, lengths[n]])).forEach(([binding, length], n) => {
      values.set(binding.coordinate, n === bindings.length - 1 ? rest : applied("%", [rest, length], "whole", span));
      rest = applied("//", [rest, length], "whole", span);
    });
    return { ranges: [[place, whole(0, span), count]], body: substituted(scores, values), guard: guard === null ? null : substituted(guard, values), lengths };
  },

  // -------------------------------------------------------------------- clauses

  // The guards of a declaration that are its own; the others are left with the reductions beside them.
  attach(scope, body, where) {
    const short = new Map(where.filter((part) => part.kind === "Abbreviation").map((part) => [part.name, part.value]));
    const inner = bound(scope, [...short].map(([name, value]) => [name, { abbreviated: value }]));
    const beside = besideIn(body);
    for (const node of beside) this.attached.delete(node);
    const own_ = where.filter((part) => part.kind === "Guard").filter((clause) => {
      const names = spokenIn(clause.condition, short);
      const takers = beside.filter((node) => node.binders.some((binder) => names.has(binder.name)));
      if (takers.length > 1) throw new Mistake(`this guard could belong to ${takers.map((node) => `\`${node.operator}[${node.binders.map((binder) => binder.name).join(", ")}]\``).join(" and ")}`, clause.span, "write it inside the bracket it belongs to: `sum[j](… where …)`");
      if (takers.length === 1) this.attached.set(takers[0], [...(this.attached.get(takers[0]) ?? []), clause]);
      return takers.length === 0;
    });
    const deeper = new Set(within(body).filter((node) => node.kind === "Reduction").flatMap((node) => node.binders.map((binder) => binder.name)));
    return [inner, own_, deeper];
  },

  valueAndGuard(scope, body, where, slots) {
    const [here, own_, deeper] = this.attach(scope, body, where);
    const guard = all(own_.map((clause) => {
      const missing = [...spokenIn(clause.condition, new Map())].find((name) => deeper.has(name) && !here.names.has(name));
      if (missing !== undefined) throw new Mistake(`\`${missing}\` is bound deeper inside, and this guard stands outside`, clause.span, `write the guard inside the bracket that binds \`${missing}\`: \`sum[${missing}](… where …)\``);
      return this.condition(here, clause.condition, "a guard");
    }));
    const inner = holding(here, guard);
    if (body.kind === "Block") {
      const [value, also] = this.valueAndGuard(bound(inner, this.locals(inner, body)), body.body, body.where, slots);
      return [value, all([guard, also])];
    }
    if (slots.length > 0 && this.isWhole(inner, body)) {
      const tensor = this.tensorOf(inner, body);
      if (tensor.axes.length === 0) return [this.readAt(inner, tensor, [], body.span), guard];
      const indices = slots.map((slot) => (slot.kind !== "Binder" ? slot : { kind: slot.rest ? "Rest" : "Name", name: slot.name, span: slot.span }));
      return [this.index(inner, tensor, indices, body, body.span), guard];
    }
    return [this.expression(inner, body), guard];
  },

  isWhole(scope, node) {
    switch (node.kind) {
      case "Name": return (scope.names.get(node.name)?.axes?.length ?? 0) > 0;
      case "ArrayLiteral": return true;
      case "Printed": return shapeOf(node).length > 0;
      case "Call": return (scope.functions.get(node.function)?.tree.results.length ?? 0) > 0;
      case "Derivative": return true;
      case "Paren": return this.isWhole(scope, node.inner);
      default: return false;
    }
  },

  // One `let` that defines values point by point.
  draft(scope, let_) {
    const before = new Map(scope.frame.live);
    const slots = let_.slots ?? [];
    const names = new Map();
    slots.forEach((slot, n) => {
      if (slot.kind !== "Binder") return;
      const key = slot.rest ? `..${slot.name}` : slot.name;
      if (names.has(key)) throw new Mistake(`\`${key}\` stands twice on the left`, slot.span, "a coordinate stands once there");
      if (slot.rest && n > 0) throw new Mistake("`..` leads a bracket, once", slot.span);
      names.set(key, this.bind(scope, slot));
    });
    for (const slot of slots) if (slot.kind === "Binder" && slot.range !== null) names.get(slot.name).stated = this.bounds(bound(scope, [...names].filter(([name]) => name !== slot.name)), slot.range, slot.name, false);
    const places = new Map(slots.filter((slot) => slot.kind !== "Binder").map((slot) => {
      const place = this.ofKind(this.expression(scope, slot), "whole", "the place of a base case");
      if (freeIn(place).size > 0 || !this.isClosed(place)) throw new Mistake("the place of a base case is made of literals and sizes", slot.span, "or name a coordinate here");
      return [slot, tidied(place)];
    }));
    const inner = bound(scope, names);
    const [body, guard] = this.valueAndGuard(inner, let_.body, let_.where, slots);
    const own_ = [];
    const found = slots.flatMap((slot) => {
      if (slot.kind !== "Binder") return [places.get(slot)];
      const parts = slot.rest ? this.settleRest(inner, names.get(`..${slot.name}`), slot.span) : [names.get(slot.name)];
      own_.push(...parts);
      return parts.map((part) => coord(part.coordinate, slot.span));
    });
    const ranges = own_.map((binding) => this.settle(scope, binding));
    scope.frame.live.clear();
    for (const [name, binding] of before) scope.frame.live.set(name, binding);
    for (const part of this.outerParts(scope)) scope.frame.live.set(part.coordinate, part);
    return { slots: found, own: own_, ranges, body, guard, span: let_.span };
  },
});

// Whether the range of a coordinate depends on another one, or may start below 0.
function isDependent(binding) {
  if (!binding?.stated) return false;
  const [lower, upper] = binding.stated;
  return lower[0] !== "const" || lower[1] < 0 || freeIn(upper).size > 0;
}

// The reductions and normalisers in no bracket of an expression: a guard behind all of it may belong to them.
function besideIn(expr) {
  switch (expr.kind) {
    case "Reduction": return [expr];
    case "Unary": case "Cast": return besideIn(expr.operand);
    case "Binary": return [...besideIn(expr.left), ...besideIn(expr.right)];
    case "Comparison": return expr.operands.flatMap(besideIn);
    default: return [];
  }
}

// The names in an expression, those that it abbreviates too, less those that it binds. `size(j)` does not speak of a `j`.
function spokenIn(expr, short, inside = new Set()) {
  const nodes = within(expr);
  const sized = new Set(nodes.filter((node) => node.kind === "Call" && node.function === "size").map((node) => node.arguments[0]));
  const found = new Set();
  for (const node of nodes) {
    if (node.kind !== "Name" || sized.has(node)) continue;
    found.add(node.name);
    if (short.has(node.name) && !inside.has(node.name)) for (const name of spokenIn(short.get(node.name), short, new Set([...inside, node.name]))) found.add(name);
  }
  for (const node of nodes) if (node.kind === "Reduction" && !WORDS.normalisers.includes(node.operator)) for (const binder of node.binders) found.delete(binder.name);
  return found;
}
