"""Sums over no points: whether what was written is then a quotient of two of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ....ir import nodes as ir
from ....ir.algebra.canonical import text
from ....ir.algebra.normal import Binder
from ....ir.algebra.normalize import Algebra
from ....ir.walk import parts_of, reads_of, walk
from ....records import dataclass

_Outcome: TypeAlias = Literal["zero", "nan", "other"]

# Definitions are looked through so many deep; below that nothing is known.
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class Written:
    """An expression as it stands in a definition."""

    expr: ir.Expr
    definition: str


def is_undefined(algebra: Algebra, written: Written, key: Binder) -> bool:
    """Whether an expression is 0 / 0 where the range of the key has no points. The normal form of an expression
    takes a divisor out of a sum over the keys, which is 0 over none of them whatever it is divided by; what is
    written does not. The same is done where the definition is read in another sum over the keys: nothing is said then.
    """
    limits = text(key.lower), text(key.upper)
    return _outcome(algebra, written.expr, limits, 0) == "nan" and not _is_scanned(algebra, written.definition, limits)


def _is_scanned(algebra: Algebra, name: str, limits: tuple[str, str]) -> bool:
    """Whether a definition that is made of this one sums over the same range."""
    reached, lets = {name}, algebra.program.lets
    for _ in lets:
        more = {let.name for let in lets if not reached.isdisjoint(read.tensor for read in reads_of(let))}
        if more <= reached:
            break
        reached |= more
    parts = [part for let in lets if let.name in reached - {name} for expr in parts_of(let) for part in walk(expr)]
    return any(isinstance(part, ir.Reduce) and limits in _limits(algebra, part) for part in parts)


def _limits(algebra: Algebra, expr: ir.Reduce) -> list[tuple[str, str]]:
    return [(text(algebra.whole(range.lower)), text(algebra.whole(range.upper))) for range in expr.ranges]


def _outcome(algebra: Algebra, expr: ir.Expr, limits: tuple[str, str], depth: int) -> _Outcome:
    """The value of an expression where the range between these limits has no points: 0, NaN, or something else."""
    def of(part: ir.Expr) -> _Outcome:
        return _outcome(algebra, part, limits, depth + 1)

    match expr:
        case ir.Reduce("sum", _, body):
            return "zero" if limits in _limits(algebra, expr) else of(body)
        case ir.Read(tensor) if tensor in algebra.lets and depth < _DEEPEST:
            clauses = algebra.lets[tensor].clauses
            return of(clauses[0].body) if len(clauses) == 1 and clauses[0].guard is None else "other"
        case ir.Map("neg", (operand,)):
            return of(operand)
        case ir.Map("*" | "/" | "+" | "-" as op, (left, right)):
            return _combined(op, of(left), of(right))
        case _:
            return "other"


def _combined(op: str, left: _Outcome, right: _Outcome) -> _Outcome:
    if "nan" in (left, right) or (op == "/" and left == right == "zero"):
        return "nan"
    if op == "/":
        return left if left == "zero" else "other"
    both = {left, right}
    return "zero" if both == {"zero"} or (op == "*" and "zero" in both) else "other"
