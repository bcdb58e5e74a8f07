"""Numbers as written: a whole one that 64 bits do not hold stands only where it becomes real, and a real one that they
do not hold only where nothing is computed in floats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain

from ..diagnostics import Diagnostic, Label, Sink
from ..ir import nodes as ir
from ..ir.types import KIND_OF
from ..ir.walk import children, parts_in, parts_of, walk
from ..ir.whole import LARGEST
from .reporting import report_all


def check(program: ir.Program, sink: Sink) -> None:
    """Report every number that is used as a whole one and has more than 64 bits."""
    claimed = [axis.extent for tensor in program.inputs for axis in tensor.axes]
    claimed += [claim.condition for claim in program.asserts]
    claimed += [expr for expect in program.expects for expr in expect.expressions]
    if not any(map(_is_too_large, _numbers(program, claimed))):
        return
    for let in program.lets:
        found = Sink()
        bodies = {id(clause.body) for clause in let.clauses}
        for part in parts_of(let):
            _report(part, let.kind == "real" and id(part) in bodies, found)
        report_all(found, let, program, sink)
    for tensor in program.inputs:
        for axis in tensor.axes:
            _report(axis.extent, False, sink)
    for claim in program.asserts:
        _report(claim.condition, False, sink)
    for expect in program.expects:
        for expr in expect.expressions:
            _report(expr, True, sink)


def _numbers(program: ir.Program, claimed: Iterable[ir.Expr]) -> Iterator[ir.Const]:
    """Every number in the definitions of a program, and in what is claimed."""
    for part in chain(*(parts_in(let) for let in program.lets), *map(walk, claimed)):
        if isinstance(part, ir.Const):
            yield part
        elif isinstance(part, ir.Array):
            yield from part.cells


def _report(expr: ir.Expr, becomes_real: bool, sink: Sink) -> None:
    for number in _too_large(expr, becomes_real):
        shown = str(number.value)
        help = f"write `{shown}.0` if a real number is meant" if len(shown) <= 40 else "write it with a point: `1e30`"
        sink.report("IX104", "this whole number does not fit in 64 bits", Label(number.span), help=help)


def beyond_floats(program: ir.Program) -> list[Diagnostic]:
    """A finding for every real number that would be an infinity or 0 in floats of 64 bits. Exact numbers hold it."""
    found: dict[ir.Const, Diagnostic] = {}
    for number in _numbers(program, [claim.condition for claim in program.asserts]):
        side = _side(number.value) if isinstance(number.value, Fraction) and number not in found else None
        if side is not None:
            help = "`ix exact` and `ix verify` compute with it"
            message = f"this number is {side}, and this is computed in floats"
            found[number] = Diagnostic("IX104", message, (Label(number.span),), help=help)
    return list(found.values())


def _side(value: Fraction) -> str | None:
    if abs(value.numerator.bit_length() - value.denominator.bit_length()) < 1000:
        return None
    try:
        near = float(value)
    except OverflowError:
        return "beyond all that 64 bits hold"
    return "nearer to 0 than any of 64 bits" if not near and value else None


def _too_large(expr: ir.Expr, becomes_real: bool) -> Iterator[ir.Const]:
    waiting = [(expr, becomes_real)]
    while waiting:
        expr, becomes_real = waiting.pop()
        if isinstance(expr, ir.Const) and not becomes_real and _is_too_large(expr):
            yield expr
        if isinstance(expr, ir.Array):
            yield from filter(_is_too_large, expr.cells)
        waiting += [(child, _is_made_real(child, expr, becomes_real)) for child in children(expr)]


def _is_too_large(number: ir.Const) -> bool:
    return number.type.kind == "whole" and not -LARGEST - 1 <= number.value <= LARGEST


def _is_made_real(child: ir.Expr, parent: ir.Expr, becomes_real: bool) -> bool:
    """Whether a number becomes real in what stands around it."""
    match parent:
        case ir.Map(op) if op.startswith("as "):
            return KIND_OF[op[3:]] == "real"
        case ir.Map(_, arguments):
            return parent.type.kind == "real" or any(other.type.kind == "real" for other in arguments)
        case ir.Select(condition, _, _):
            return child is not condition and (becomes_real or parent.type.kind == "real")
        case ir.Reduce(_, _, body) | ir.Normalize(_, _, body):
            return child is body and parent.type.kind == "real"
        case _:
            return False
