"""Values in the order in which they are made, their readers, and what stands in one expression.

Every pass here takes time linear in the program, and none is recursive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from ..ir.affine import number, polynomial
from ..ir.types import Coordinate
from ..records import replace
from ..source import Span
from .merging import merge_of
from .ops import (
    Carried,
    Contract,
    Definition,
    Input,
    Iota,
    Library,
    Loop,
    Map,
    Normalize,
    Number,
    Opaque,
    Plan,
    Read,
    Reduce,
    Result,
    Store,
    Value,
    Write,
    value,
    with_operands,
)
from .typed import stepped

# So many operations are printed in one expression.
_WIDEST = 4
_INLINED = (Map, Read, Reduce, Contract, Normalize, Library)


def reachable(roots: Iterable[Value]) -> list[Value]:
    """Every value that some are made of, each after its operands."""
    seen: dict[Value, None] = {}
    waiting = list(roots)[::-1]
    while waiting:
        before = [part for part in waiting[-1].parts if part not in seen]
        if before:
            waiting += before[::-1]
        else:
            seen[waiting.pop()] = None
    return list(seen)


def roots_of(plan: Plan) -> list[Value]:
    """What a call has to compute: the definitions that are wanted, and the conditions of its checks."""
    wanted = [plan.definitions[name].value for name in plan.wanted if name in plan.definitions]
    return [*wanted, *(check.condition for check in plan.checks)]


def ordered(plan: Plan) -> list[Value]:
    """Every value that a call computes, in the order in which it does: definitions as the text has them, each after
    what it is made of; then the conditions of checks."""
    roots = roots_of(plan)
    values = reachable([*(one.value for one in plan.definitions.values()), *roots])
    needed = set(roots)
    for one in reversed(values):
        if one in needed:
            needed.update(one.parts)
    return [one for one in values if one in needed]


def uses(plan: Plan) -> Counter[Value]:
    """How often each value is read, or asked for by the caller."""
    roots = roots_of(plan)
    found = Counter(roots)
    for one in reachable(roots):
        found.update(one.parts)
    return found


def definition_of(plan: Plan) -> dict[Value, Definition]:
    """The definition that a value has its name from: the first of several."""
    found: dict[Value, Definition] = {}
    for one in plan.definitions.values():
        found.setdefault(one.value, one)
    return found


def owners_of(plan: Plan) -> dict[Value, str]:
    """The definition that each value is first needed for, in the order of the text; those that only a check needs are
    the last one's."""
    found: dict[Value, str] = {}
    waiting: list[Value] = []
    names, last = definition_of(plan), ""
    for one in ordered(plan):
        waiting.append(one)
        if one in names:
            last = names[one].name
            found.update(dict.fromkeys(waiting, last))
            waiting = []
    return found | dict.fromkeys(waiting, last)


def names_in(plan: Plan) -> dict[Value, str]:
    """The definitions of a plan as a program writes them, with their axes; what is an input, or a number, has its own
    name."""
    named = {one: each for one, each in definition_of(plan).items() if not isinstance(one.op, Input | Number | Iota)}
    return {
        one: f"{each.name}[{', '.join(str(axis.name) for axis in each.home)}]" if each.home else each.name
        for one, each in named.items()
    }


def mapped(
    plan: Plan,
    change: Callable[[Value], Value],
    memo: dict[Value, Value] | None = None,
    instead: Mapping[Value, Value] | None = None,
) -> Plan:
    """The plan with every value changed, operands first; `change` gets a value whose operands are changed. What each
    value became is written into `memo`. Others may be given that stand `instead` of some."""
    memo, instead = {} if memo is None else memo, instead or {}
    for one in reachable([*plan.inputs, *(each.value for each in plan.definitions.values()), *roots_of(plan)]):
        new = with_operands(one, memo.__getitem__)
        memo[one] = instead[one] if one in instead else change(one if new is one.op else value(new))
    return replaced(plan, memo)


def replaced(plan: Plan, memo: Mapping[Value, Value]) -> Plan:
    """The plan with other values in the place of its own."""
    spans: dict[Value, Span] = {}
    for one, span in plan.spans.items():
        spans.setdefault(memo.get(one, one), span)
    return replace(
        plan,
        inputs=tuple(memo[one] for one in plan.inputs),
        definitions={name: replace(each, value=memo[each.value]) for name, each in plan.definitions.items()},
        checks=tuple(replace(check, condition=memo[check.condition]) for check in plan.checks),
        spans=spans,
    )


# --------------------------------------------------------------------------- loops


def turned(result: Value) -> list[Value]:
    """The values that are made in each turn of a loop, whose result this is: those that vary with its steps."""
    assert isinstance(result.op, Result)
    steps = stepped(result.op.loop)
    seen: dict[Value, None] = {}
    waiting = list(result.parts)
    while waiting:
        one = waiting.pop()
        if one not in seen and one.symbols & steps:
            seen[one] = None
            waiting += one.parts
    return list(seen)


def stored(loop: Loop) -> dict[str, list[Store]]:
    """What a loop and those in it store, by definition."""
    found: dict[str, list[Store]] = {}
    for item in loop.body:
        for name, stores in (stored(item) if isinstance(item, Loop) else {item.name: [item]}).items():
            found.setdefault(name, []).extend(stores)
    return found


def read_by_rows(plan: Plan) -> dict[Value, tuple[Value, ...]]:
    """What is made step by step and read at single steps alone, and these steps: nobody needs all rows as one array. A
    kernel gives all steps or the last."""
    whole = set(roots_of(plan))
    steps: dict[Value, dict[Value, None]] = {}
    for one in reachable(whole):
        for part in one.parts:
            if isinstance(part.op, Result | Opaque):
                step = _step_read(one, part)
                if step is None or (isinstance(part.op, Opaque) and not _is_last(step, part.op)):
                    whole.add(part)
                else:
                    steps.setdefault(part, {})[step] = None
    return {one: tuple(found) for one, found in steps.items() if one not in whole}


def stepped_along(op: Result | Opaque) -> tuple[Coordinate, ...]:
    """The axes along which rows are made; of a kernel, the one of which it can give the last step alone."""
    if isinstance(op, Result):
        return op.of.steps
    return () if op.step.end is None else (op.home[op.step.end[0]].name,)


def _step_read(reader: Value, source: Value) -> Value | None:
    """The step at which a value reads rows, where that is one number, the same in all turns of loops."""
    op, made = reader.op, source.op
    assert isinstance(made, Result | Opaque)
    steps = stepped_along(made)
    if not isinstance(op, Read) or len(steps) != 1 or merge_of(op) is not None:
        return None
    if op.outside == "masked" or op.under is not None:
        return None  # Where nobody asks for the row, it may not be there.
    index = dict(op.index)
    step = index.get(steps[0])
    return step if step is not None and step.is_host and not step.symbols and source not in index.values() else None


def _is_last(step: Value, op: Opaque) -> bool:
    """Whether a step is the one at which a kernel ends."""
    assert isinstance(step.op, Number)
    axis, forward = op.step.end
    last = polynomial(op.home[axis].extent) - 1 if forward else number(0)
    return bool((polynomial(step.op.expr) - last).constant == 0)


# --------------------------------------------------------------------- expressions


def inlined(plan: Plan) -> frozenset[Value]:
    """The values that are printed inside the one expression that reads them, and have no name: of few operations, read
    once, no definition. What is checked is printed twice, in the check and where it is read, and so has a name."""
    values = ordered(plan)
    times, refuses = Counter(roots_of(plan)), set(definition_of(plan))
    for one in values:
        times.update(one.parts)
        if isinstance(one.op, Read | Write) and one.op.outside == "check":
            refuses.update(one.parts)
        elif not isinstance(one.op, Result):  # What varies with fewer steps than its reader is made before the loop.
            refuses.update(part for part in one.parts if part.symbols != one.symbols)
    length: dict[Value, int] = {}
    found: set[Value] = set()
    for one in values:
        length[one] = 1 + sum(length[part] for part in one.parts if part in found)
        is_short = isinstance(one.op, _INLINED) and length[one] <= _WIDEST
        if is_short and one.axes and times[one] <= 1 and one not in refuses:
            found.add(one)
    return frozenset(found)


def scheduled(plan: Plan, inside: frozenset[Value]) -> list[Value]:
    """The values in the order in which printed code makes them: before an expression all that has a name in it, then
    what stands `inside` it, from left to right."""
    return [part for one in ordered(plan) if one not in inside for part in expression(one, inside)]


def expression(one: Value, inside: frozenset[Value]) -> list[Value]:
    """A value after all that stands inside its expression, from left to right."""
    waiting, found = [one], []
    while waiting:
        part = waiting.pop()
        found.append(part)
        waiting += [each for each in part.parts if each in inside]
    return found[::-1]


def is_view(one: Value) -> bool:
    """Whether a value takes no memory of its own: a number, an input, or a read that is strides alone."""
    match one.op:
        case Input() | Number() | Iota():
            return True
        case Read(source, index, outside) if outside == "never" or all(at.is_host for _, at in index):
            return all(at.known.whole is not None for _, at in index) and not isinstance(source.op, Carried)
    return not one.axes
