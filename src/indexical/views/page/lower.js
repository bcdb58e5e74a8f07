// A tree as a relation that the page evaluates: names, kinds and sizes are found, functions written out. Here every
// size is a number, since the numbers of the inputs are there; what a range cannot say yet is found by reading again.
"use strict";

const MOST_NODES = 30_000; // Of a program with all functions written out.
const MOST_DEFINITIONS = 400;
const MOST_CALLS = 24;
const MOST_READINGS = 12;
const MOST_CELLS = 1_000_000;

const KIND_NAMES = { bool: "true or false", whole: "a whole number", real: "a real number" };
const kindOf = (dtype) => (dtype === "bool" ? "bool" : /^[iu]\d/.test(dtype) ? "whole" : "real");
const joinKinds = (kinds) => (kinds.includes("real") ? "real" : kinds.includes("whole") ? "whole" : "bool");

// Something is not known yet: the statement is read again.
class Unsure extends Error {}

// ----------------------------------------------------------------- expressions

const made = (parts, kind, span) => Object.assign(parts, { kind, span });
const whole = (value, span) => made(["const", value], "whole", span);
const coord = (name, span) => made(["coord", name], "whole", span);
const applied = (op, parts, kind, span) => made(["map", op, parts, "", kind === "whole"], kind, span);
const all = (conditions) => conditions.filter((found) => found !== null).reduce((one, other) => (one === null ? other : applied("&&", [one, other], "bool", other.span)), null);
const zero = (expr) => expr[0] === "const" && expr[1] === 0;
const negation = (expr) => applied("!", [expr], "bool", expr.span);

// The parts of an expression with what is done to each of them.
function rebuilt(expr, act) {
  const range = ([name, low, high]) => [name, act(low), act(high)];
  const also = (guard) => (guard === null ? null : act(guard));
  switch (expr[0]) {
    case "read": return made(["read", expr[1], expr[2].map(act), ""], expr.kind, expr.span);
    case "array": return made(["array", expr[1], expr[2], expr[3].map(act), expr[4]], expr.kind, expr.span);
    case "map": return made(["map", expr[1], expr[2].map(act), "", expr[4]], expr.kind, expr.span);
    case "if": return made(["if", act(expr[1]), act(expr[2]), act(expr[3])], expr.kind, expr.span);
    case "reduce": return made(["reduce", expr[1], expr[2].map(range), act(expr[3]), also(expr[4]), null, ""], expr.kind, expr.span);
    case "normalize": return made(["normalize", expr[1], expr[2], act(expr[3]), also(expr[4]), null, ""], expr.kind, expr.span);
    default: return expr;
  }
}

function partsIn(expr) {
  const found = [];
  rebuilt(expr, (part) => { found.push(part); return part; });
  return found;
}

// An expression and all inside it, each after what is inside it.
function walkIn(expr, found = []) {
  for (const part of partsIn(expr)) walkIn(part, found);
  found.push(expr);
  return found;
}

// Everything that a definition says: its values, guards and ranges.
const saidIn = ({ clauses }) => clauses.flatMap(({ ranges, body, guard }) => [body, ...(guard === null ? [] : [guard]), ...ranges.flatMap(([, low, high]) => [low, high])]).flatMap((expr) => walkIn(expr));

const readsOfLet = (let_) => [...new Set(saidIn(let_).filter((part) => part[0] === "read").map((part) => part[1]))];

// The coordinates that an expression speaks of and does not bind.
function freeIn(expr, found = new Set()) {
  if (expr === null) return found;
  if (expr[0] === "coord") found.add(expr[1]);
  if (expr[0] === "normalize") found.add(expr[2]);
  if (expr[0] !== "reduce") {
    for (const part of partsIn(expr)) freeIn(part, found);
    return found;
  }
  const inner = new Set();
  for (const part of [expr[3], ...(expr[4] === null ? [] : [expr[4]])]) freeIn(part, inner);
  for (const [name, low, high] of [...expr[2]].reverse()) {
    inner.delete(name);
    freeIn(low, inner);
    freeIn(high, inner);
  }
  for (const name of inner) found.add(name);
  return found;
}

// An expression with others in place of coordinates. `keeps`: a normaliser runs over the same points under its name.
function substituted(expr, values, keeps = false) {
  if (values.size === 0) return expr;
  if (expr[0] === "coord") return values.has(expr[1]) ? values.get(expr[1]) : expr;
  if (expr[0] === "normalize" && values.has(expr[2]) && !keeps) {
    const other = values.get(expr[2]);
    if (other[0] !== "coord") throw new Mistake("what is normalised inside needs a name of its own", expr.span, "name it with `let`");
    const inside = rebuilt(expr, (part) => substituted(part, values));
    inside[2] = other[1];
    return inside;
  }
  const bound = expr[0] === "reduce" ? expr[2].map(([name]) => name) : [];
  const inner = bound.length === 0 ? values : new Map([...values].filter(([name]) => !bound.includes(name)));
  return rebuilt(expr, (part) => substituted(part, inner, keeps));
}

// ----------------------------------------------------------------------- names

// The first of a, a_1, a_2 … or a, a_2, a_3 … that is free.
function freed(name, taken, first = 1) {
  let [found, number] = [name, first];
  while (taken.has(found)) {
    found = `${name}_${number}`;
    number += 1;
  }
  return found;
}

// The name that was probably meant: the closest by letters that are exchanged, left out or added.
function closest(name, known) {
  const far = (one, other) => {
    let row = Array.from({ length: other.length + 1 }, (_, n) => n);
    for (let i = 1; i <= one.length; i += 1) {
      const next = [i];
      for (let j = 1; j <= other.length; j += 1) next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1)));
      row = next;
    }
    return row.at(-1);
  };
  const word = name.slice(0, 40);
  const found = [...known].filter((other) => other !== name && (other.length > 1 || name.length === 1) && !other.startsWith("..")).slice(0, 500)
    .map((other) => [other.toLowerCase() === name.toLowerCase() ? 0 : far(word, other.slice(0, 40)), other]).sort((a, b) => a[0] - b[0])[0];
  return found !== undefined && found[0] <= Math.max(name.length, found[1].length) * 0.4 ? `did you mean \`${found[1]}\`?` : null;
}

const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

// Whether a call is of the language's own function: the program's come first.
const isBuiltin = (scope, name) => name === "size" || (Object.hasOwn(WORDS.arity, name) && !scope.functions.has(name));

function checkFree(name, span) {
  if (WORDS.reserved.includes(name)) throw new Mistake(`\`${name}\` is a word of the language`, span, "choose another name");
  if (name === "__proto__") throw new Mistake("`__proto__` cannot be a name here", span, "choose another name");
}

// Everything that a file declares. Clauses of one definition stand under its name.
function declared(file) {
  const found = { inputs: new Map(), lets: new Map(), functions: new Map(), spaces: new Map(), uses: [], outputs: [], contracts: [], asserts: [], expects: [] };
  const places = new Map();
  const claim = (name, span) => {
    checkFree(name, span);
    if (places.has(name)) throw new Mistake(`\`${name}\` is defined twice`, span, "give one of them another name");
    places.set(name, span);
  };
  const takers = {
    Input: ({ items }) => items.forEach((item) => { claim(item.name, item.nameSpan); found.inputs.set(item.name, item); }),
    Let: (let_) => apart(let_).forEach((one) => {
      if (!found.lets.has(one.name)) claim(one.name, one.nameSpan);
      found.lets.set(one.name, [...(found.lets.get(one.name) ?? []), one]);
    }),
    Fn: (fn) => {
      claim(fn.name, fn.nameSpan);
      const names = fn.parameters.map((parameter) => { checkFree(parameter.name, parameter.span); return parameter.name; });
      const twice = fn.parameters.find(({ name }, n) => names.indexOf(name) < n);
      if (twice !== undefined) throw new Mistake(`\`${twice.name}\` is defined twice`, twice.span);
      found.functions.set(fn.name, fn);
    },
    Space: ({ items }) => items.forEach((item) => item.coordinates.forEach(({ name, span }) => {
      checkFree(name, span);
      if ((found.spaces.get(name) ?? item.name) !== item.name) throw new Mistake(`\`${name}\` is declared in two spaces, \`${found.spaces.get(name)}\` and \`${item.name}\``, span);
      found.spaces.set(name, item.name);
    })),
    Use: (use) => { use.names.forEach(({ name, span }) => claim(name, span)); found.uses.push(use); },
    Output: ({ names }) => found.outputs.push(...names),
    Contract: (contract) => found.contracts.push(contract),
    Assert: (claim_) => found.asserts.push(claim_),
    Expect: (claim_) => found.expects.push(claim_),
  };
  for (const statement of file.statements) takers[statement.kind](statement);
  for (const clauses of found.lets.values()) checkClauses(clauses);
  return found;
}

const apart = (let_) => (let_.names.length === 0 ? [let_] : let_.names.map(({ name, span }) => ({ ...let_, name, nameSpan: span })));

// Several clauses define one name only where each has a bracket, all of one length, and they are told apart.
function checkClauses([first, ...others]) {
  const isEverywhere = (clause) => (clause.slots ?? []).every((slot) => slot.kind === "Binder" && slot.range === null);
  const isGuarded = (clause) => [...clause.where, ...(clause.body.kind === "Block" ? clause.body.where : [])].some((part) => part.kind === "Guard");
  for (const clause of others) {
    const isTwice = isEverywhere(clause) && isEverywhere(first) && !isGuarded(clause) && !isGuarded(first);
    if (!clause.slots?.length || !first.slots?.length || isTwice) throw new Mistake(`\`${clause.name}\` is defined twice`, clause.nameSpan);
    if (clause.slots.length !== first.slots.length) throw new Mistake(`the clauses of \`${clause.name}\` have ${first.slots.length} and ${clause.slots.length} coordinates`, clause.nameSpan);
  }
}

// The functions that a file may call: its own, and those of the modules that the page has.
function functionsOf(found, modules, loading = []) {
  const functions = new Map();
  for (const use of found.uses) {
    const path = use.path.join("::");
    if (own(modules, path) === undefined) throw new Mistake(`the page has no module \`${path}\``, use.pathSpan, closest(path, Object.keys(modules)) ?? `it has ${Object.keys(modules).join(", ")}; \`ix show\` reads others`);
    if (loading.includes(path)) throw new Mistake(`\`${path}\` uses itself`, use.pathSpan);
    const there = moduleOf(path, modules, [...loading, path]);
    for (const { name, span } of use.names) {
      if (!there.has(name)) throw new Mistake(`\`${path}\` has no function \`${name}\``, span, closest(name, there.keys()));
      functions.set(name, there.get(name));
    }
  }
  for (const [name, tree] of found.functions) functions.set(name, { tree, functions });
  return functions;
}

// A module; its places are marked, for they are in another text.
function moduleOf(path, modules, loading) {
  const tree = parse(modules[path]);
  for (const node of within(tree)) for (const span of [node.span, node.nameSpan, node.operatorSpan, node.functionSpan]) if (span?.length === 2) span.push(path);
  return functionsOf(declared(tree), modules, loading);
}

// ----------------------------------------------------------------------- order

// The names that clauses mention, other than as coordinates that they bind.
function mentionsIn(node, bound, found) {
  switch (node.kind) {
    case "Name":
      if (!bound.has(node.name)) found.add(node.name);
      return;
    case "Index":
      if (node.base.kind === "Name") found.add(node.base.name);
      else mentionsIn(node.base, bound, found);
      for (const index of node.indices) mentionsIn(index, bound, found);
      return;
    case "Reduction": {
      const inner = new Set([...bound, ...node.binders.map((binder) => binder.name)]);
      for (const child of childrenOf(node)) mentionsIn(child, inner, found);
      return;
    }
    case "Let": case "Block": {
      // A guard may speak of what a reduction beside it binds.
      const beside = node.where.length === 0 ? [] : within(node.body).filter((part) => part.kind === "Reduction").flatMap((part) => part.binders.map((binder) => binder.name));
      const inner = new Set([...bound, ...beside]);
      for (const child of childrenOf(node)) if (!(node.names ?? []).includes(child)) mentionsIn(child, node.where.includes(child) ? inner : bound, found);
      return;
    }
    default:
      for (const child of childrenOf(node)) mentionsIn(child, bound, found);
  }
}

// The definitions among these that each of them mentions.
function mentionsOf(lets) {
  return new Map([...lets].map(([name, clauses]) => {
    const found = new Set();
    for (const clause of clauses) mentionsIn(clause, new Set((clause.slots ?? []).filter((slot) => slot.kind === "Binder").map((slot) => slot.name)), found);
    return [name, [...found].filter((other) => lets.has(other))];
  }));
}

// Definitions in an order in which each comes after all that it reads; those that read each other are together.
function groupsOf(lets) {
  const mentioned = mentionsOf(lets);
  const after = new Map([...mentioned].map(([name, names]) => [name, [...names]]));
  for (const [name, clauses] of lets) {
    const asked = new Set(clauses.flatMap((clause) => within(clause)).filter((node) => node.kind === "Call" && node.function === "size").flatMap((node) => node.arguments.map((argument) => argument.name)));
    if (asked.size === 0) continue;
    for (const [other, [first]] of lets) {
      const hasOne = first.slots === null || first.slots.some((slot) => slot.kind === "Binder" && asked.has(slot.name));
      if (hasOne && !reaches(other, name, after)) after.get(name).push(other);
    }
  }
  return components(after).map((group) => ({ group, isRecursive: group.length > 1 || mentioned.get(group[0]).includes(group[0]) }));
}

function reaches(from, to, edges) {
  const seen = new Set([from]);
  for (const name of seen) for (const next of edges.get(name) ?? []) seen.add(next);
  return seen.has(to);
}

// Strongly connected parts of a graph, each after those that it leads to.
function components(edges) {
  const [index, low, stack, found] = [new Map(), new Map(), [], []];
  const visit = (name) => {
    index.set(name, index.size);
    low.set(name, index.get(name));
    stack.push(name);
    for (const next of edges.get(name) ?? []) {
      if (!index.has(next)) {
        visit(next);
        low.set(name, Math.min(low.get(name), low.get(next)));
      } else if (stack.includes(next)) low.set(name, Math.min(low.get(name), index.get(next)));
    }
    if (low.get(name) === index.get(name)) found.push(stack.splice(stack.indexOf(name)));
  };
  for (const name of edges.keys()) if (!index.has(name)) visit(name);
  return found;
}
