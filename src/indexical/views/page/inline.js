// Local definitions, recurrences and calls: a function's body in place of its call.
"use strict";

Object.assign(Lowering.prototype, {
  // ---------------------------------------------------------- local definitions

  locals(scope, block) {
    const lets = new Map();
    for (const let_ of block.lets.flatMap(apart)) {
      checkFree(let_.name, let_.nameSpan);
      const clauses = lets.get(let_.name) ?? [];
      if (clauses.length > 0 && (let_.slots === null || let_.slots.length !== (clauses[0].slots ?? []).length)) throw new Mistake(`\`${let_.name}\` is defined twice`, let_.nameSpan);
      lets.set(let_.name, [...clauses, let_]);
    }
    const names = new Map();
    for (const { group, isRecursive } of groupsOf(lets)) {
      const here = bound(scope, names);
      if (names.has(group[0])) continue;
      const [first] = lets.get(group[0]);
      const found = isRecursive ? this.recursive(here, new Map(group.map((name) => [name, lets.get(name)])), true)
        : first.names.length > 0 ? this.together(here, first, true) : new Map([[group[0], this.one(here, group[0], lets.get(group[0]), true)]]);
      for (const [name, meaning] of found) names.set(name, meaning);
    }
    return names;
  },

  // One definition, of the program or local: a tensor, or a number that stands for itself.
  one(scope, name, clauses, isLocal) {
    const [first] = clauses;
    const called = () => (isLocal ? this.newName(`${scope.frame.owner}_${name}`) : name);
    if (first.slots === null && this.isWhole(scope, first.body)) return this.alias(scope, first, called(), isLocal);
    const before = this.count;
    const drafts = clauses.map((clause) => this.draft(scope, clause));
    if (isLocal && first.slots === null && !this.isWorthKeeping(scope, drafts[0])) return { value: drafts[0].body, weight: this.count - before };
    return this.lift(scope, called(), drafts, first.name, first.nameSpan, isLocal);
  },

  isWorthKeeping(scope, { body, guard }) {
    if (guard !== null) return true;
    const scans = walkIn(body).some((part) => part[0] === "reduce" || part[0] === "normalize");
    return scans && ![...freeIn(body)].some((name) => isDependent(scope.frame.live.get(name)));
  },

  // `let (a, b) = f(x);`: every name at once.
  together(scope, let_, isLocal) {
    let node = let_.body;
    while (node.kind === "Paren") node = node.inner;
    if (let_.where.length > 0) throw new Mistake("a guard needs coordinates on the left", let_.where[0].span);
    if (node.kind !== "Call" || isBuiltin(scope, node.function)) throw new Mistake("several names are bound to a call that gives several tensors", node.span, "to define each on its own, write one `let` for each");
    const written = let_.names.map(({ name }) => name);
    const names = written.map((name) => (isLocal ? this.newName(`${scope.frame.owner}_${name}`) : name));
    return this.entered(scope, node, ({ tree }, inner) => {
      if (tree.results.length !== names.length) throw new Mistake(`\`${tree.name}\` gives ${tree.results.length === 0 ? "one number" : counted(tree.results.length, "tensor")}, and ${names.length} names are bound to it`, let_.names[0].span);
      const { body } = tree.body;
      if (body.kind !== "Tuple" || body.items.length !== names.length) throw new Mistake(`\`${tree.name}\` says that it gives ${names.length} tensors`, body.span);
      const found = this.results(inner, tree, body.items, names, isLocal);
      return new Map(written.map((name, n) => [name, found[n]]));
    });
  },

  // The tensor on the right, under a name of its own.
  alias(scope, let_, name, isHidden) {
    if (let_.where.length > 0) throw new Mistake("a guard needs coordinates on the left", let_.where[0].span, `write \`let ${let_.name}[i, …] = …\``);
    let { body } = let_;
    while (body.kind === "Paren") body = body.inner;
    if (body.kind === "Call") return this.called(scope, body, name, isHidden);
    if (body.kind === "ArrayLiteral" || body.kind === "Printed") return this.figures(scope, body, name, isHidden);
    const tensor = this.tensorOf(scope, body);
    if (tensor.kind === null) throw new Unsure();
    const taken = new Set(scope.frame.live.keys());
    const own_ = tensor.axes.map((axis) => {
      const coordinate = freed(axis.coordinate, taken);
      taken.add(coordinate);
      const binding = newBinding(coordinate, coordinate, let_.span, "");
      binding.space = axis.space;
      binding.range = [whole(axis.origin, let_.span), whole(axis.origin + axis.extent, let_.span)];
      return binding;
    });
    const slots = own_.map((binding) => coord(binding.coordinate, let_.span));
    const places = slots.map((slot, n) => (tensor.axes[n].origin === 0 ? slot : tidied(applied("-", [slot, whole(tensor.axes[n].origin, let_.span)], "whole", let_.span))));
    const read = made(["read", tensor.name, [...tensor.captured.map((binding) => coord(binding.coordinate, let_.span)), ...places], ""], tensor.kind, body.span);
    return this.lift(scope, name, [{ slots, own: own_, ranges: own_.map((binding) => [binding.coordinate, ...binding.range]), body: read, guard: null, span: let_.span }], let_.name, let_.nameSpan, isHidden);
  },

  block(scope, node, name) {
    const [value, guard] = this.valueAndGuard(scope, node, [], []);
    return guard === null ? value : this.keep(scope, name, value, guard, node);
  },

  // A value as a hidden definition, read where it stands.
  keep(scope, name, value, guard, node) {
    const tensor = this.lift(scope, this.newName(`${scope.frame.owner}_${name}`), [{ slots: [], own: [], ranges: [], body: value, guard, span: node.span }], name, node.span, true);
    return made(["read", tensor.name, tensor.captured.map((binding) => coord(binding.coordinate, node.span)), ""], tensor.kind, node.span);
  },

  // ------------------------------------------------------------------ recurrences

  // Definitions that read each other: read, with nothing said, until their kinds and sizes stay the same.
  recursive(scope, groups, isLocal) {
    const names = new Map([...groups.keys()].map((name) => [name, isLocal ? this.newName(`${scope.frame.owner}_${name}`) : name]));
    for (const [name, clauses] of groups) if (clauses.some((clause) => clause.slots === null)) throw new Mistake(`\`${name}\` is defined by itself`, clauses[0].nameSpan, "a recurrence needs a coordinate to go along");
    for (const guess of [null, "whole", "bool", "real"]) {
      const found = this.rehearsed(scope, groups, names, isLocal, guess);
      if (found !== null) return this.readGroup(scope, groups, names, found, isLocal);
    }
    return this.readGroup(scope, groups, names, this.unknowns(groups, names, "real"), isLocal);
  },

  unknowns(groups, names, kind) {
    const axes = (clause) => clause.slots.map((slot, n) => ({ coordinate: `${slot.rest ? ".." : ""}?${n}`, extent: NaN, origin: 0 }));
    return new Map([...groups].map(([name, [first]]) => [name, { tensor: true, name: names.get(name), axes: axes(first), kind, span: first.nameSpan, captured: [], recursive: true }]));
  },

  rehearsed(scope, groups, names, isLocal, guess) {
    let tensors = this.unknowns(groups, names, guess);
    const shown = (tensor) => JSON.stringify([tensor.axes.map((axis) => [String(axis.extent), axis.origin]), tensor.kind, tensor.captured.map((binding) => binding.coordinate)]);
    for (let reading = 0; reading < groups.size + 4; reading += 1) {
      const mark = [new Map(this.lets), new Set(this.taken), this.count, [...scope.frame.pending], this.isUnsure, new Set(scope.frame.live.keys())];
      this.rehearsing += 1;
      const found = this.readGroup(scope, groups, names, tensors, isLocal);
      this.rehearsing -= 1;
      this.forget(scope, mark[5]);
      [this.lets, this.taken, this.count, scope.frame.pending, this.isUnsure] = mark;
      const isSame = [...found].every(([name, tensor]) => shown(tensor) === shown(tensors.get(name)));
      tensors = new Map([...tensors, ...found]);
      if (isSame) return [...tensors.values()].every((tensor) => tensor.kind !== null) && found.size === groups.size ? tensors : null;
    }
    return null;
  },

  readGroup(scope, groups, names, tensors, isLocal) {
    const result = new Map();
    const inner = bound(scope, tensors);
    for (const [name, clauses] of groups) {
      const here = isLocal ? inner : { ...inner, frame: newFrame(name) };
      const drafts = clauses.flatMap((clause) => {
        const live = new Map(here.frame.live);
        const depth = this.calls.length;
        try {
          return [this.draft(here, clause)];
        } catch (problem) {
          if (this.rehearsing === 0 || !(problem instanceof Mistake || problem instanceof Unsure)) throw problem;
          here.frame.live = live;
          this.calls.length = depth;
          return [];
        }
      });
      if (drafts.length === 0) continue;
      result.set(name, { ...this.lift(here, names.get(name), drafts, name, clauses[0].nameSpan, isLocal), recursive: true });
      if (!isLocal && this.rehearsing === 0) this.finish(here.frame);
    }
    return result;
  },

  // ----------------------------------------------------------------------- calls

  called(scope, node, name, isHidden) {
    return this.entered(scope, node, ({ tree }, inner) => {
      if (tree.results.length > 1) throw new Mistake(`\`${tree.name}\` gives ${tree.results.length} tensors, and one is needed here`, node.span, `bind them: \`let (a, b) = ${tree.name}(…);\``);
      if (tree.results.length === 0) return this.block(inner, tree.body, tree.name);
      return this.results(inner, tree, [tree.body.body], [name ?? this.newName(`${scope.frame.owner}_${tree.name}`)], isHidden)[0];
    });
  },

  results(scope, tree, values, names, isHidden) {
    const inner = bound(scope, this.locals(scope, tree.body));
    return tree.results.map((home, n) => {
      const draft = this.draft(inner, { slots: home.slots, body: values[n], where: tree.body.where, span: values[n].span });
      return this.lift(inner, names[n], [draft], tree.name, tree.nameSpan, isHidden);
    });
  },

  entered(scope, node, act) {
    const found = scope.functions.get(node.function);
    if (found === undefined && WORDS.normalisers.includes(node.function)) throw new Mistake(`expected \`[\` and the coordinate that \`${node.function}\` normalises over`, node.functionSpan, `write \`${node.function}[j](…)\``);
    if (found === undefined) throw new Mistake(`no function is called \`${node.function}\``, node.functionSpan, scope.names.has(node.function) ? `read it: \`${node.function}[…]\`` : closest(node.function, [...scope.functions.keys(), ...Object.keys(WORDS.arity), "size"]) ?? own(WORDS.foreign, node.function) ?? null);
    if (this.calls.some(({ called }) => called === found)) throw new Mistake(`\`${node.function}\` calls itself`, node.span, "a recurrence is written with clauses: `let h[0] = …; let h[t in 1..n] = … h[t - 1] …;`");
    if (this.calls.length >= MOST_CALLS) throw new Mistake(`calls nest more than ${MOST_CALLS} deep`, node.span);
    const { parameters } = found.tree;
    if (parameters.length !== node.arguments.length) throw new Mistake(`\`${node.function}(${parameters.map((parameter) => parameter.name).join(", ")})\` takes ${counted(parameters.length, "argument")}, and ${node.arguments.length === 1 ? "1 is" : `${node.arguments.length} are`} given`, node.span);
    const [names, sizes, rests] = [new Map(), new Map(), new Map()];
    parameters.forEach((parameter, n) => {
      const argument = node.arguments[n];
      if (parameter.slots === null) {
        const before = this.count;
        names.set(parameter.name, { value: this.expression(scope, argument), weight: this.count - before });
        return;
      }
      const tensor = this.tensorOf(scope, argument);
      this.match(parameter, tensor, argument.span, sizes, rests);
      names.set(parameter.name, tensor);
    });
    this.calls.push({ called: found, node, span: node.span });
    try {
      return act(found, { names, functions: found.functions, spaces: new Map(), sizes, rests, frame: scope.frame, conditions: scope.conditions, inFunction: true });
    } catch (problem) {
      // A place in a module is not in this text: the call is.
      if (problem instanceof Mistake && problem.span.length > 2) problem.span = node.span;
      throw problem;
    } finally {
      this.calls.pop();
    }
  },

  // Whether a tensor fits a parameter. Parameters that share a coordinate name share its size.
  match(parameter, tensor, span, sizes, rests) {
    const head = parameter.slots[0]?.rest ? parameter.slots[0] : null;
    const plain = head === null ? parameter.slots : parameter.slots.slice(1);
    const lead = tensor.axes.length - plain.length;
    const shown = (list) => list.map((axis) => axis.coordinate ?? `${axis.rest ? ".." : ""}${axis.name}`).join(", ");
    if (lead < 0 || (head === null && (lead > 0 || tensor.axes.some((axis) => axis.coordinate.startsWith(".."))))) throw new Mistake(`\`${parameter.name}[${shown(parameter.slots)}]\` cannot take a tensor with the coordinates \`[${shown(tensor.axes)}]\``, span);
    if (head !== null) {
      const earlier = rests.get(head.name) ?? tensor.axes.slice(0, lead);
      if (earlier.length !== lead) throw new Mistake(`\`..${head.name}\` stands for ${lead} leading coordinates here, and for ${earlier.length} in an earlier argument`, span);
      rests.set(head.name, earlier);
    }
    plain.forEach((slot, n) => {
      if (slot.kind !== "Binder" || slot.range !== null || slot.rest) throw new Mistake("a parameter's bracket holds coordinates, without ranges", slot.span);
      const { extent } = tensor.axes[lead + n];
      const known = sizes.get(slot.name);
      if (known !== undefined && known !== extent && !Number.isNaN(known) && !Number.isNaN(extent)) throw new Mistake(`\`${slot.name}\` has ${counted(extent, "point")} here and ${known} there`, span, "arguments that share a coordinate share its size");
      sizes.set(slot.name, known === undefined || Number.isNaN(known) ? extent : known);
    });
  },
});
