// Lifting: clauses inside a statement become a definition of the program; what it mentions of the statement around it
// are leading axes of it.
"use strict";

Object.assign(Lowering.prototype, {
  lift(scope, name, given, called, span, isHidden) {
    const { frame } = scope;
    const [captured, conditions] = this.captured(scope, given);
    for (const binding of captured) if (isDependent(binding)) throw new Mistake(`\`${called}\` depends on \`${binding.name}\`, whose range is not a plain one from 0 or later`, span, `give \`${binding.name}\` a full range and a guard`);
    const kinds = given.map((draft) => draft.body.kind);
    const kind = joinKinds(kinds);
    if (kinds.includes("bool") && kind !== "bool") throw new Mistake(`the clauses of \`${called}\` are of different kinds`, span);
    const count = given[0].slots.length;
    const origins = Array.from({ length: count }, (_, n) => Math.max(0, Math.min(...given.map((draft) => this.first(draft, n))) || 0));
    let drafts = origins.some((origin) => origin > 0) ? given.map((draft) => this.moved(frame, draft, origins)) : given;
    if (drafts.length > 1 && drafts.some((draft) => draft.guard !== null)) drafts = [this.cases(called, drafts)];
    const axes = origins.map((origin, n) => this.axisOf(drafts, n, name, origin));
    const clauses = drafts.map(({ slots, ranges, body, guard, span: place, parts }) => ({ slots, ranges, body, guard: all([...conditions, guard]), span: place, parts }));
    frame.pending.push({ name, captured, axes, kind, clauses, isHidden, span, call: this.calls[0] ?? null });
    this.bodies.set(name, drafts.map((draft) => draft.body));
    return { tensor: true, name, axes, kind, span, captured, recursive: false };
  },

  // The coordinates around that are mentioned, and the conditions around that speak of them.
  captured(scope, drafts) {
    const { live } = scope.frame;
    if (live.size === 0) return [[], []];
    const wanted = new Set();
    for (const { body, guard, own: own_ } of drafts) for (const name of freeIn(guard, freeIn(body))) if (!own_.some((binding) => binding.coordinate === name)) wanted.add(name);
    const conditions = [];
    let waiting = [...scope.conditions];
    for (let size = -1; size !== conditions.length;) {
      size = conditions.length;
      waiting = waiting.filter((condition) => {
        const names = [...freeIn(condition)];
        if (!names.some((name) => wanted.has(name))) return true;
        names.forEach((name) => wanted.add(name));
        conditions.push(condition);
        return false;
      });
    }
    return [[...live.values()].filter((binding) => wanted.has(binding.coordinate)), conditions];
  },

  rangeOf(draft, n) {
    const slot = draft.slots[n];
    return slot[0] === "coord" ? draft.ranges.find(([name]) => name === slot[1]) : null;
  },

  first(draft, n) {
    const range = this.rangeOf(draft, n);
    return this.number(range === null ? draft.slots[n] : range[1]);
  },

  after(draft, n) {
    const range = this.rangeOf(draft, n);
    return range === null ? this.number(draft.slots[n]) + 1 : this.number(range[2]);
  },

  axisOf(drafts, n, name, origin) {
    const named = drafts.find((draft) => draft.slots[n][0] === "coord");
    const coordinate = named?.slots[n][1] ?? `${name}_${n}`;
    const extent = Math.max(...drafts.map((draft) => this.after(draft, n)));
    if (Number.isNaN(extent)) this.isUnsure = true;
    return { coordinate, extent: Math.max(0, extent), origin, space: named?.own.find((binding) => binding.coordinate === coordinate)?.space };
  },

  // A clause with every axis counted from its first point; what it brought along for its coordinates too.
  moved(frame, draft, origins) {
    const by = new Map();
    const slots = draft.slots.map((slot, n) => {
      if (slot[0] === "coord" && origins[n] > 0) by.set(slot[1], whole(origins[n], slot.span));
      return slot[0] === "coord" || origins[n] === 0 ? slot : tidied(applied("-", [slot, whole(origins[n], slot.span)], "whole", slot.span));
    });
    const own_ = draft.own.filter((binding) => by.has(binding.coordinate));
    const inner = new Map(frame.pending.filter((pending) => pending.captured.some((binding) => own_.includes(binding))).map((pending) => [pending.name, new Set(pending.captured.flatMap((binding, n) => (own_.includes(binding) ? [n] : [])))]));
    const shift = (expr) => {
      if (expr === null) return null;
      if (expr[0] === "coord") return by.has(expr[1]) ? applied("+", [expr, by.get(expr[1])], "whole", expr.span) : expr;
      if (expr[0] === "read" && inner.has(expr[1])) return made(["read", expr[1], expr[2].map((index, n) => (inner.get(expr[1]).has(n) ? index : tidied(shift(index)))), ""], expr.kind, expr.span);
      return tidied(rebuilt(expr, (part) => tidied(shift(part))));
    };
    const moveRange = ([name, low, high]) => (by.has(name) ? [name, ...[low, high].map((end) => tidied(applied("-", [end, by.get(name)], "whole", end.span)))] : [name, low, high]);
    for (const pending of frame.pending) {
      if (inner.has(pending.name)) pending.clauses = pending.clauses.map((clause) => ({ ...clause, ranges: clause.ranges.map(([name, low, high]) => [name, shift(low), shift(high)]), body: shift(clause.body), guard: shift(clause.guard) }));
    }
    for (const binding of own_) binding.range = moveRange([binding.coordinate, ...binding.range]).slice(1);
    return { ...draft, slots, ranges: draft.ranges.map(moveRange), body: shift(draft.body), guard: shift(draft.guard) };
  },

  // Clauses that are told apart by their guards, as one: each where its own points are and its own guard holds.
  cases(name, drafts) {
    const { span } = drafts[0];
    const count = drafts[0].slots.length;
    const named = Array.from({ length: count }, (_, n) => drafts.find((draft) => draft.slots[n][0] === "coord"));
    const places = named.map((draft, n) => draft?.slots[n][1] ?? freed(`${name}_${n}`, new Set(drafts.flatMap((other) => other.own.map((binding) => binding.coordinate)))));
    const ends = places.map((_, n) => [Math.min(...drafts.map((draft) => this.first(draft, n))), Math.max(...drafts.map((draft) => this.after(draft, n)))]);
    const parts = drafts.map((draft) => {
      const values = new Map();
      const guards = [];
      draft.slots.forEach((slot, n) => {
        const here = coord(places[n], slot.span);
        if (slot[0] === "coord" && slot[1] !== places[n]) values.set(slot[1], here);
        const [low, high] = [this.first(draft, n), this.after(draft, n)];
        if (slot[0] !== "coord") guards.push(applied("==", [here, slot], "bool", slot.span));
        else {
          if (low !== ends[n][0]) guards.push(applied(">=", [here, whole(low, slot.span)], "bool", slot.span));
          if (high !== ends[n][1]) guards.push(applied("<", [here, whole(high, slot.span)], "bool", slot.span));
        }
      });
      const guard = all([...guards, draft.guard === null ? null : substituted(draft.guard, values)]);
      return { guard: guard ?? made(["const", true], "bool", span), body: substituted(draft.body, values), span: draft.span };
    });
    const body = parts.slice(0, -1).reduceRight((found, part) => made(["if", part.guard, part.body, found], joinKinds([part.body.kind, found.kind]), span), parts.at(-1).body);
    const guard = parts.map((part) => part.guard).reduce((one, other) => applied("||", [one, other], "bool", span));
    return { slots: places.map((place) => coord(place, span)), own: drafts.flatMap((draft) => draft.own), ranges: places.map((place, n) => [place, whole(ends[n][0], span), whole(ends[n][1], span)]), body, guard, span, parts };
  },

  // The statement has been read: its definitions join the program.
  finish(frame) {
    for (const { name, captured, axes, kind, clauses, isHidden, span, call } of frame.pending) {
      const ranges = captured.map((binding) => [binding.coordinate, ...binding.range]);
      const lead = captured.map((binding) => ({ coordinate: binding.coordinate, extent: this.number(binding.range[1]), origin: 0, space: binding.space }));
      this.lets.set(name, {
        name, kind, isHidden, span, call, axes: [...lead, ...axes],
        clauses: clauses.map((clause) => ({ ...clause, slots: [...captured.map((binding) => coord(binding.coordinate, span)), ...clause.slots], ranges: [...ranges, ...clause.ranges] })),
      });
    }
    frame.pending = [];
  },
});
