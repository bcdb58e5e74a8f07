"""Definitions inside of a function: by operations of their own, over arrays that have names there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...ir.types import Coordinate, Dtype
from ...records import dataclass
from ..ops import Definition, Input, Number, Plan
from ..order import reachable, roots_of
from .code import Code, call
from .numbers import negated, number

if TYPE_CHECKING:
    from .printer import Printer


@dataclass(frozen=True, slots=True)
class Turns:
    """Definitions that are computed for some rows after the other. `plan` computes them for the rows from `first` on,
    so many as `count` says, which are sizes of it. `counts` has the number of all `rows`, and of the `points` of each.
    `axes` are those of the rows in what is put together, None for a sum over all rows, which has the dtype in `wide`.
    `kernel` calls the function of a turn, which is called after the `weights`; `texts` are the lines of the relation.
    A block has `room` for so many points, where that is not 0."""

    plan: Plan
    counts: Plan
    first: Coordinate
    count: Coordinate
    axes: Mapping[str, int | None]
    wide: Mapping[str, Dtype]
    kernel: str
    weights: str
    texts: tuple[str, ...]
    room: int = 0


def inside(
    p: Printer, plan: Plan, given: Mapping[str, str], deeper: int, bare: bool = False
) -> tuple[list[str], list[Code], list[str]]:
    """The lines of a plan inside of another, so much further in, the code of what is wanted of it, `bare` where that
    has just the axes with which it varies, and the arrays that it reads."""
    from .module import define
    from .outputs import output
    from .printer import Printer

    q = Printer(plan, p.d, outer=p, given=given)
    q.depth = p.depth + deeper
    q.told, q.overwrites = set(plan.definitions), p.overwrites
    for check in plan.checks:
        if check.condition.is_host:
            q.refuse(negated(q, check.condition), check.code, check.message)
    define(q)
    wanted = [plan.definitions[name] for name in plan.wanted]
    found = [_bare(q, one) if bare else output(q, one) for one in wanted]
    p.uses_device |= q.uses_device
    p.nested += [plan, *q.nested]
    read = [one.op.name for one in reachable(roots_of(plan)) if isinstance(one.op, Input)]
    return q.lines, found, list(dict.fromkeys(q.variables[name] for name in read))


def _bare(p: Printer, one: Definition) -> Code:
    """A value that meets an array with all axes of its home."""
    return p.aligned(one.value, tuple(axis.name for axis in one.home))


def in_blocks(p: Printer, turns: Turns, given: Mapping[str, str], definitions: list[Definition]) -> dict[str, str]:
    """The function of a turn, and the call that puts all turns together; the variables of what it gives."""
    p.tell(turns.texts)
    function, first, last, count = (p.fresh(name) for name in (f"{turns.weights}_block", "start", "stop", "count"))
    p.sizes |= {turns.first: first, turns.count: count}
    lines, parts, arrays = inside(p, turns.plan, given, 1)
    p.add(f"def {function}({', '.join((first, last, *arrays))}):")
    p.add(f"    {count} = {last} - {first}")
    p.lines += lines[1:] if lines and not lines[0] else lines
    p.add(f"    return {', '.join(parts)}{',' if len(parts) == 1 else ''}")
    p.add("")
    variables = {one.name: p.own_names.get(one.name) or p.fresh(one.name) for one in definitions}
    zeros = [p.d.zeros(p, p.shape(one.home), turns.wide.get(one.name, one.dtype)) for one in definitions]
    counts = [_count(p, turns.counts, name) for name in ("rows", "points")]
    axes = [turns.axes[one.name] for one in definitions]
    room = {"room": turns.room} if turns.room else {}
    code = call(turns.kernel, function, _listed(arrays), *counts, _listed(zeros), _listed(axes), **room)
    p.add(f"{', '.join(variables.values())}{',' * (len(variables) == 1)} = {code}")
    for one in definitions:
        if turns.wide.get(one.name, one.dtype) != one.dtype:
            name = variables[one.name]
            p.add(f"{name} = {p.d.cast(p, Code(name), one.dtype, True)}")
    return variables


def either(
    p: Printer, test: str, plan: Plan, given: Mapping[str, str], lines: list[str], variables: Mapping[str, str]
) -> list[str]:
    """Definitions by a plan where a test holds, and else by these lines, which give them these variables."""
    plain, found, _ = inside(p, plan, given, 1)
    margin = "    " * p.depth
    stored = [f"{margin}    {variables[name]} = {code}" for name, code in zip(plan.wanted, found, strict=True)]
    other = [f"    {line}" if line else "" for line in lines]
    return [f"{margin}if {test}:", *(line for line in plain if line), *stored, f"{margin}else:", *other]


def _count(p: Printer, counts: Plan, name: str) -> Code:
    op = counts.definitions[name].value.op
    assert isinstance(op, Number)
    return number(p, op.expr)


def _listed(items: object) -> str:
    return f"[{', '.join(map(str, items))}]"  # type: ignore[call-overload]
