"""Rewriting: every value from its operands up, by the first rule of a table that applies, again until none does.

Work that waits is kept in a list, and not on Python's stack: a program may be deeper than that. What was rewritten once
is remembered by its value, and two sides are compared by what only one of them has, so that the time is that of the
values made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache, lru_cache, partial
from heapq import heappop, heappush
from typing import TypeAlias

from ...records import dataclass, replace
from ..ops import Applied, Op, Plan, Refused, Result, Value, value, with_operands
from ..order import names_in, owners_of, reachable, replaced, roots_of
from ..words import brief
from .patterns import No, Rule, Target, always

# A value, and the number of the first rule that it is rewritten by.
Key: TypeAlias = tuple[Value, int]
# A value to be rewritten by the rules from a number on: asked for by yielding it, answered by what it became.
Work: TypeAlias = Generator[Key, Value, Value]
# The class of an operation, and its function, where it has one.
Kind: TypeAlias = tuple[type, str | None]


@dataclass(slots=True)
class Step:
    """A rule that matched a value, and what it made of it; not `taken` where that would have cost more."""

    rule: Rule
    before: Value
    after: Value
    taken: bool = False


@dataclass(frozen=True, slots=True)
class Declined:
    """A rule that matched a value and was not applied."""

    rule: Rule
    before: Value
    why: No


def rewrite(plan: Plan, rules: tuple[Rule, ...], target: Target, steps: list[Step] | None = None) -> Plan:
    """The plan rewritten by a table of rules, with the rules that were applied and those that were refused. The `steps`
    are added to a list, in the order in which they were tried."""
    values = reachable([*plan.inputs, *(each.value for each in plan.definitions.values()), *roots_of(plan)])
    writer = Rewriter(rules, target)
    writer.plain = {one for one in values if not writer.is_met(one)}
    if len(writer.plain) == len(values):
        return plan
    writer.shared = _shared(plan, values)
    memo = {one: writer.rewritten(one) for one in values}
    if not writer.steps and not any(isinstance(each, Declined) for trail in writer.trails.values() for each in trail):
        return plan
    result = replaced(plan, memo)
    if steps is not None:
        steps += writer.steps
    return _told(result, plan, writer, values)


def _told(result: Plan, plan: Plan, writer: Rewriter, values: Iterable[Value]) -> Plan:
    """The rewritten plan with the rules that made it, each for the definition that it is first needed for."""
    owners, names = owners_of(plan), cache(partial(names_in, result))
    applied, refused = dict.fromkeys(plan.applied), dict.fromkeys(plan.refused)
    seen: set[Key] = set()
    for one in values:
        if one not in owners:
            continue
        for rule in writer.trail_of((one, 0), seen):
            match rule:
                case Step(Rule(name, words=words), before, after):
                    said = words(before, after, names()) if words is not None else ""
                    applied.setdefault(Applied(owners[one], brief(before), name, said))
                case Declined(Rule(name), before, No(reason, way)):
                    refused.setdefault(Refused(owners[one], brief(before), name, reason, way))
    return replace(result, refused=tuple(refused), applied=tuple(applied))


def _shared(plan: Plan, values: Iterable[Value]) -> frozenset[Value]:
    """The values that are there whatever becomes of one that reads them: the caller's, and those that several read."""
    readers: dict[Value, set[object]] = {}
    for one in values:
        reader = one.op.loop if isinstance(one.op, Result) else one
        for part in one.parts:
            readers.setdefault(part, set()).add(reader)
    return frozenset(roots_of(plan)) | {one for one, found in readers.items() if len(found) > 1}


@lru_cache(maxsize=32)
def _by_kind(rules: tuple[Rule, ...]) -> dict[Kind, tuple[tuple[int, Rule], ...]]:
    """What is known of a table, for all plans: the rules for each kind of operation."""
    return {}


class Rewriter:
    """The state of one pass over a plan."""

    def __init__(self, rules: tuple[Rule, ...], target: Target, shared: frozenset[Value] = frozenset()) -> None:
        self.rules, self.target, self.shared = rules, target, shared
        self.plain: set[Value] = set()  # Values of the plan that no rule is for.
        self.made_anyway: set[Value] = set()
        self.done: dict[Key, Value] = {}
        self.heights: dict[Value, int] = {}
        self.by_kind = _by_kind(rules)
        self.steps: list[Step] = []
        self.trails: dict[Key, list[Step | Declined | Key]] = {}

    def rewritten(self, one: Value) -> Value:
        """A value whose operands are rewritten, and then itself."""
        stays = one in self.plain and all(self.done.get((part, 0)) is part for part in one.parts)
        if stays and (one, 0) not in self.done:
            self.trails[one, 0] = [(part, 0) for part in one.parts]
            self.done[one, 0] = one
            if one in self.shared:
                self.made_anyway.add(one)
            return one
        waiting: dict[Key, Work] = {}
        asked: Key = (one, 0)
        while True:
            answer = self.done.get(asked)
            if answer is None and asked in waiting:
                answer = asked[0]  # Two rules that undo each other end here.
            elif answer is None:
                waiting[asked] = self._work(*asked)
            while waiting:
                key = next(reversed(waiting))
                try:
                    asked = next(waiting[key]) if answer is None else waiting[key].send(answer)
                    break
                except StopIteration as end:
                    del waiting[key]
                    answer = self.done[key] = end.value
                    if key[1] == 0:
                        self.done.setdefault((end.value, 0), end.value)
                    if key[0] in self.shared and key[1] == 0:
                        self.made_anyway.add(end.value)
            else:
                assert answer is not None
                return answer

    def _work(self, one: Value, begin: int) -> Work:
        trail = self.trails[one, begin] = []
        if begin == 0:
            trail += [(part, 0) for part in one.parts]
            new = yield from self._with_parts(one)
            if new is not one:
                trail.append((new, 0))
                return (yield new, 0)
        for number, rule in self._rules_of(one.op):
            if number < begin:
                continue
            for found in rule.pattern.match(one, {}):
                made = rule.apply(one, found, self.target)
                if isinstance(made, No):
                    trail.append(Declined(rule, one, made))
                elif made is not None and made is not one:
                    step = Step(rule, one, made)
                    self.steps.append(step)
                    result = yield made, 0
                    if rule.cost is not always:
                        other = yield one, number + 1
                        if self.difference(result, other, rule.cost) > 0:
                            trail += [Declined(rule, one, No("it would cost more")), (one, number + 1)]
                            return other
                    step.taken = True
                    trail += [step, (made, 0)]
                    return result
        return one

    def _with_parts(self, one: Value) -> Generator[Key, Value, Value]:
        """The same of rewritten operands."""
        new: dict[Value, Value] = {}
        for part in one.parts:
            if part not in new:
                new[part] = yield part, 0
        if all(part is other for part, other in new.items()):
            return one
        return value(with_operands(one, new.__getitem__))

    def trail_of(self, key: Key, seen: set[Key]) -> Iterator[Step | Declined]:
        """The rules on the way to what a value became, in their order, but those that were seen before. What was tried
        and is not a part of it is not on the way."""
        waiting: list[Step | Declined | Key] = [key]
        while waiting:
            top = waiting.pop()
            if isinstance(top, Step | Declined):
                yield top
            elif top not in seen:
                seen.add(top)
                waiting += reversed(self.trails.get(top, ()))

    def _rules_of(self, op: Op) -> tuple[tuple[int, Rule], ...]:
        """The rules for operations of this class and function, with their numbers in the table."""
        kind = type(op), getattr(op, "fn", None)
        found = self.by_kind.get(kind)
        if found is None:
            found = tuple((n, rule) for n, rule in enumerate(self.rules) if rule.pattern.is_of(*kind))
            self.by_kind[kind] = found
        return found

    def is_met(self, one: Value) -> bool:
        """Whether a value is like the pattern of some rule. Where none of a plan is, it stays as it is."""
        return any(rule.pattern.match(one, {}) for _, rule in self._rules_of(one.op))

    def difference(self, one: Value, other: Value, cost: Callable[[Value], float]) -> float:
        """How much more one value costs than another: of what is made for both, or anyway, nothing is looked at.

        From the top down by height, a value comes after all that read it; what both sides read is left with all
        that it is made of."""
        sides: dict[Value, set[int]] = {one: {1}}
        sides.setdefault(other, set()).add(-1)
        waiting: list[tuple[int, int, Value]] = []
        for top in sides:
            heappush(waiting, (-self.height(top), id(top), top))
        total = 0.0
        while waiting:
            _, _, top = heappop(waiting)
            if len(sides[top]) == 2 or top in self.made_anyway:
                continue
            (sign,) = sides[top]
            total += sign * cost(top)
            for part in top.parts:
                if part not in sides:
                    sides[part] = set()
                    heappush(waiting, (-self.height(part), id(part), part))
                sides[part].add(sign)
        return total

    def height(self, one: Value) -> int:
        """The length of the longest way from a value to a leaf."""
        waiting = [one]
        while waiting:
            top = waiting[-1]
            if top in self.heights:
                waiting.pop()
                continue
            parts = top.parts
            missing = [part for part in parts if part not in self.heights]
            if missing:
                waiting += missing
            else:
                self.heights[waiting.pop()] = 1 + max((self.heights[part] for part in parts), default=0)
        return self.heights[one]
