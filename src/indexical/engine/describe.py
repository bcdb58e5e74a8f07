"""The plan as a person reads it: a line for every operation, and for known sizes what each costs.

    scores[h, i, j]  f32 = contract[d] Q × K / sqrt(size(d))

What has no name in the program is called %1, %2 and so on; what is printed inside an expression has no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ..records import dataclass
from .counted import Counted, moved, multiplications
from .dialects import dialect
from .ledger import bytes_of
from .ops import Carried, Either, Input, Iota, Loop, Number, Opaque, Plan, Result, Tiles, Value
from .order import definition_of, expression, inlined, ordered, scheduled, turned
from .specialise import Sizes
from .words import axes_text, loop_lines, operation_text

Scalars: TypeAlias = Mapping[str, int]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Line:
    """An operation as a line of the plan: what it makes, how, and inside which loops."""

    value: Value
    made: str
    how: str
    depth: int = 0

    def __str__(self) -> str:
        return f"{'  ' * self.depth}{self.made} = {self.how}" if self.how else f"{'  ' * self.depth}{self.made}"


def costed(plan: Plan, sizes: Sizes, library: str, scalars: Scalars, names: dict[Value, str]) -> Iterator[str]:
    """The lines of a plan for known sizes, each with what it costs, and the bytes that are there at once in a call by a
    library, where that does not arrange its memory itself. A kernel may need more."""
    counted, inside = Counted(sizes, scalars), inlined(plan)
    lines = operation_lines(plan, names)
    yield f"{'multiplications':>15}  {'moved':>10}"
    for line in lines:
        yield f"{_cost(line.value, inside, counted) if line.how else ' ' * 28}  {line}"
    if not dialect(library).updates_in_place:  # XLA has arrays as it likes.
        return
    ledger = bytes_of(plan, sizes, library, scalars)
    kernels = any(isinstance(line.value.op, Opaque | Tiles | Either) for line in lines)
    beside = ", beside what kernels need" if kernels else ""
    yield f"{size_text(ledger.peak)} at once, {size_text(ledger.results)} of them results{beside}"


def _cost(one: Value, inside: frozenset[Value], counted: Counted) -> str:
    """The multiplications of a line and the bytes that it moves, with all that stands inside it; in a loop, of one
    turn."""
    parts = expression(one, inside)
    times, size = sum(multiplications(part, counted) for part in parts), sum(moved(part, counted) for part in parts)
    return f"{times:>15,}  {size_text(size):>10} "


def size_text(number: int) -> str:
    """Bytes, in the largest unit of which there is one."""
    size, unit = float(number), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


# --------------------------------------------------------------------------- lines


def operation_lines(plan: Plan, names: dict[Value, str] | None = None) -> list[Line]:
    """A line for every operation that is computed on its own, in the order in which they run; what a loop computes in a
    turn stands inside it. `names` are those that values have already; others get theirs here."""
    inside = inlined(plan)
    names = {} if names is None else names
    _give_names(plan, inside, names)
    owners = definition_of(plan)
    in_loop = {part for one in ordered(plan) if isinstance(one.op, Result) for part in turned(one)}
    lines = [Line(one, _made(one, f"input {names[one]}"), "") for one in plan.inputs]
    done: set[Loop] = set()
    for one in scheduled(plan, inside):
        if one in inside or one in in_loop or isinstance(one.op, Number | Input | Iota):
            continue
        if isinstance(one.op, Result) and one.op.loop not in done:
            done.add(one.op.loop)
            lines += _loop(one, inside, names)
        if one in owners or not isinstance(one.op, Result):
            lines.append(Line(one, _made(one, names[one]), operation_text(one, names)))
    return lines


def _made(one: Value, name: str) -> str:
    home = one.op.home if isinstance(one.op, Input) else one.axes
    dtype = one.dtype or {"whole": "i64", "bool": "bool", "real": "real"}[one.kind]
    return f"{name}{axes_text(home) if home else ''}  {dtype}"


def _give_names(plan: Plan, inside: frozenset[Value], names: dict[Value, str]) -> None:
    """Names for all that has a line: that of the program, the one it had before, or a number that nothing has."""
    given = {one: each.name for one, each in definition_of(plan).items() if not isinstance(one.op, Number | Input)}
    given |= {one: one.op.name for one in plan.inputs if isinstance(one.op, Input)}
    taken = set(names.values())
    fresh = (name for number in range(1, 1 << 62) if (name := f"%{number}") not in taken)
    for one in ordered(plan):
        before = names.pop(one, "")
        if one not in given and one not in inside and not isinstance(one.op, Number | Iota | Carried):
            names[one] = before if before.startswith("%") else next(fresh)
    names |= given


def _loop(result: Value, inside: frozenset[Value], names: dict[Value, str]) -> Iterator[Line]:
    """A loop: what it computes in each turn, then the clauses that it stores."""
    assert isinstance(result.op, Result)
    head, *clauses = loop_lines(result.op.loop, names)
    yield Line(result, head, "")
    for one in reversed(turned(result)):
        if one not in inside and not isinstance(one.op, Number | Iota | Carried):
            yield Line(one, _made(one, names[one]), operation_text(one, names), 1)
    yield from (Line(result, clause, "") for clause in clauses)
