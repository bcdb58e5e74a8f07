"""Absence: a guarded-out point reads as 0 in sums and arithmetic, and is never read where 0 would lie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import assert_never

from ..diagnostics import Fix, Label, Sink
from ..ir import build
from ..ir import nodes as ir
from ..ir.conditions import fails
from ..ir.context import Trail, assume, inside
from ..ir.functions import operation
from ..ir.walk import at
from ..records import dataclass, field, replace
from ..source import Span
from .reporting import report_all

# What gathers points other than by adding them up: of an absent one, 0 would lie.
SCANNING = frozenset(("prod", "max", "min", "mean", "argmax", "argmin", "softmax", "log_softmax", "rank"))


@dataclass(frozen=True, slots=True)
class Exposure:
    """A value is absent unless `present` holds: `tensor` was guarded, and read at `span`. Where that could not be
    `said` in the letters of the reader, it is in others."""

    present: ir.Expr
    tensor: str
    guard: ir.Expr
    span: Span
    clause: ir.Clause | None = None
    said: bool = True


@dataclass(slots=True)
class _Search:
    lets: Mapping[str, ir.Let]
    sink: Sink
    # The clause that is looked through, and the reductions and normalisers around the place in it, the innermost last.
    clause: ir.Clause | None = None
    around: tuple[ir.Reduce | ir.Normalize, ...] = ()
    known: dict[str, list[Exposure]] = field(default_factory=dict)


def check(program: ir.Program, sink: Sink) -> None:
    """Report every read of an absent point where 0 would not do. The rule looks through definitions."""
    lets = program.definitions
    if all(clause.guard is None for let in program.lets for clause in let.clauses):
        return
    search = _Search(lets, sink)
    for name, let in lets.items():
        search.sink = Sink()
        _of_let(name, search)
        report_all(search.sink, let, program, sink)
    search.sink = sink
    for claim in program.asserts:
        _leaks(claim.condition, (), search)


def _of_let(name: str, search: _Search) -> list[Exposure]:
    """The conditions under which a definition may be absent, in terms of its own coordinates."""
    if name in search.known:
        return search.known[name]
    search.known[name] = []
    result: list[Exposure] = []
    for clause in search.lets[name].clauses:
        if clause.guard is not None:
            result.append(Exposure(clause.guard, name, clause.guard, clause.span, clause))
    search.known[name] = list(result)
    outside = search.clause, search.around
    for clause in search.lets[name].clauses:
        search.clause, search.around = clause, ()
        trail: Trail = clause.ranges
        if clause.guard is not None:
            _leaks(clause.guard, trail, search)
            trail = (*trail, (clause.guard, True))
        result += [replace(leak, clause=clause) for leak in _leaks(clause.body, trail, search)]
    search.known[name] = result
    search.clause, search.around = outside
    return result


def _leaks(expr: ir.Expr, trail: Trail, search: _Search) -> list[Exposure]:
    """The conditions under which an expression may be absent. A place inside that cannot bear it is reported."""
    match expr:
        case ir.Const() | ir.Coord() | ir.Size():
            return []
        case ir.Read() | ir.Array():
            for index in expr.indices:
                _refuse(_leaks(index, trail, search), "an index", index.span, search)
            return _of_read(expr, trail, search) if isinstance(expr, ir.Read) else []
        case ir.Map(op, arguments):
            found: list[Exposure] = []
            for number, (argument, inner_trail) in enumerate(inside(expr, trail)):
                leaks = _leaks(argument, inner_trail, search)
                if leaks and is_sensitive(op, number, arguments):
                    _refuse(leaks, _shown(op), expr.span, search)
                else:
                    found += leaks
            return [] if expr.type.kind == "bool" else found
        case ir.Select(condition):
            _, then, otherwise = (_leaks(part, part_trail, search) for part, part_trail in inside(expr, trail))
            gone = [_unless(leak, fails(condition)) for leak in then]
            return gone + [_unless(leak, condition) for leak in otherwise]
        case ir.Reduce() | ir.Normalize():
            parts = inside(expr, trail)
            search.around += (expr,)
            within = [_leaks(part, part_trail, search) for part, part_trail in parts]
            if expr.op in SCANNING:
                _refuse(within[-1], f"`{expr.op}`", expr.span, search)
            search.around = search.around[:-1]
            return []
        case _:
            assert_never(expr)


def _unless(leak: Exposure, condition: ir.Expr) -> Exposure:
    return replace(leak, present=build.apply("||", (condition, leak.present), "bool", leak.present.span))


def _of_read(read: ir.Read, trail: Trail, search: _Search) -> list[Exposure]:
    """The exposures of what is read, less those that the reader's own guards exclude."""
    if read.tensor not in search.lets:
        return []
    result = []
    for exposure in _of_let(read.tensor, search):
        clause = exposure.clause
        assert clause is not None
        present = at(clause, exposure.present, read.indices)
        said = present is not None and exposure.said
        if present is None:
            present = exposure.present
        known = assume(trail, search.lets)
        for slot, index in zip(clause.slots, read.indices, strict=True):
            if not isinstance(slot, ir.Coord):
                known = known.assuming(build.apply("==", (index, slot), "bool", index.span))
        if known.consistent and not known.proves(present):
            result.append(Exposure(present, exposure.tensor, exposure.guard, read.span, said=said))
    return result


def is_sensitive(op: str, number: int, arguments: tuple[ir.Expr, ...]) -> bool:
    """Whether an elementwise function may not read an absent point as this argument."""
    if op == "**":
        positive = isinstance(arguments[1], ir.Const) and arguments[1].value > 0
        return number == 1 or not positive
    if op == "clamp":
        low, high = arguments[1], arguments[2]
        around = isinstance(low, ir.Const | ir.Map) and _number(low) <= 0 <= _number(high)
        return number > 0 or not around
    return number in operation(op).present


def _number(expr: ir.Expr) -> float | Fraction:
    match expr:
        case ir.Const(value):
            return Fraction(value)
        case ir.Map("neg", (ir.Const(value),)):
            return -Fraction(value)
        case _:
            return float("nan")


def _shown(op: str) -> str:
    if op in ("/", "//", "%"):
        return f"a divisor of `{'/' if op == '//' else op}`"
    return "a comparison" if op in ("==", "!=", "<", "<=", ">", ">=") else f"`{op}`"


def _refuse(leaks: list[Exposure], reader: str, span: Span, search: _Search) -> None:
    for leak in leaks:
        guard = leak.guard.span.text
        name = leak.span.text if search.lets[leak.tensor].hidden else leak.tensor
        search.sink.report(
            "IX309",
            f"`{name}` is absent where `{guard}` fails, and {reader} would read it there",
            Label(leak.span if leak.span.source is span.source else span, f"absent where `{guard}` fails"),
            Label(span, f"read by {reader}"),
            Label(leak.guard.span, "the guard"),
            help=f"repeat the guard where it is read: `… where {guard}`",
            fix=_repeated(leak, span, search),
        )


def _repeated(leak: Exposure, span: Span, search: _Search) -> Fix | None:
    """The guard of what is read, in the letters of its reader: in the innermost bracket that binds one of them, else
    at the end of the definition. None where it cannot be written there."""
    condition, clause = leak.present, search.clause
    if clause is None or not leak.said:
        return None
    place, text = clause.span, clause.span.text
    named, letters = {coordinate.rstrip("'") for coordinate in condition.type.coordinates}, condition.type.coordinates
    if len(named) < len(letters) or any(coordinate.rest for coordinate in letters):
        return None
    for scan in reversed(search.around):
        # Inside a normaliser its coordinate has another name.
        bound = {str(c) for c in scan.coordinates} if isinstance(scan, ir.Reduce) else {f"{scan.coordinate}'"}
        if bound & letters:
            place, text = scan.span, scan.span.text
            break
    if place.source is not span.source or text[-1:] not in (")", ";") or place.source is not leak.guard.span.source:
        return None
    inner = text[text.index("](") + 2 : -1] if text.endswith(")") else text[:-1]
    from ..ir.text import shown  # Only what is wrong is written out.

    joint = ", " if _has_where(inner) else " where "
    end = Span(place.source, place.end - 1, place.end - 1)
    return Fix(end, joint + shown(condition))


def _has_where(text: str) -> bool:
    """Whether a `where` stands in this text, outside all brackets in it."""
    depth = 0
    for word in re.findall(r"\w+|[^\w\s]", text):
        depth += (word in "([{") - (word in ")]}")
        if word == "where" and depth == 0:
            return True
    return False
