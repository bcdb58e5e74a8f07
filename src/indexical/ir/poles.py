"""Poles: expressions that may be NaN or infinite where all that they are made of is finite.

Where a guard removes a point, nothing there may be heard of: 0 times an infinity is NaN, in a product and on its way
back, where each factor is the slope of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..records import dataclass, field
from . import nodes as ir
from .algebra.safety import Sides, infinities, is_open
from .functions import operation
from .operations import REALS
from .walk import walk

LINEAR = frozenset(("+", "-", "neg"))


@dataclass(slots=True)
class Poles:
    """The definitions of a program, and what was found of them."""

    lets: Mapping[str, ir.Let]
    _infinite: dict[str, Sides] = field(default_factory=dict)
    _undefined: dict[str, bool] = field(default_factory=dict)
    _poles: dict[str, bool] = field(default_factory=dict)

    def may_be_infinite(self, expr: ir.Expr, sides: Collection[float] = REALS) -> bool:
        """Whether this may be one of these infinities at points that a guard removed."""
        return not infinities(expr, self.lets, self._infinite).isdisjoint(sides)

    def may_be_undefined(self, expr: ir.Expr) -> bool:
        """Whether this may be NaN or infinite at points that a guard removed: the logarithm of a distance, say. It is
        not where another number stands in for what it is made of there."""
        match expr:
            case ir.Read(tensor) if tensor in self.lets:
                if tensor not in self._undefined:
                    self._undefined[tensor] = False  # A definition that reads itself is asked once.
                    bodies = [clause.body for clause in self.lets[tensor].clauses if clause.guard is None]
                    self._undefined[tensor] = any(map(self.may_be_undefined, bodies))
                return self._undefined[tensor]
            case ir.Map(op, arguments):
                if not is_learned(expr):
                    return any(map(is_open, walk(expr)))
                if op in ("*", "/"):
                    left, right = arguments
                    pairs = ((left, right), (right, left))
                    return any(not is_learned(other) and self.may_be_undefined(factor) for factor, other in pairs)
                own = [argument for argument in arguments if op in LINEAR or not is_learned(argument)]
                return any(map(self.may_be_undefined, own))
            case ir.Select(_, then, otherwise):
                return self.may_be_undefined(then) or self.may_be_undefined(otherwise)
            case ir.Reduce("sum" | "mean", body=body, guard=None):
                return self.may_be_undefined(body)
        return False

    def may_be_nonfinite(self, expr: ir.Expr) -> bool:
        """Whether this may make an infinity or NaN of finite numbers, or read one from where no guard is."""
        reals = [part for part in walk(expr) if part.type.kind == "real"]
        return any(_makes_infinities(part) or (isinstance(part, ir.Read) and self._has(part.tensor)) for part in reals)

    def _has(self, tensor: str) -> bool:
        """Whether a definition may be infinite or NaN of finite numbers by a pole of a function in it, where it has no
        guard of its own. An overflow is none."""
        if tensor not in self.lets:
            return False
        if tensor not in self._poles:
            self._poles[tensor] = False
            bodies = [clause.body for clause in self.lets[tensor].clauses if clause.guard is None]
            self._poles[tensor] = any(self._is_pole(part) for body in bodies for part in walk(body))
        return self._poles[tensor]

    def _is_pole(self, part: ir.Expr) -> bool:
        match part:
            case ir.Read(tensor):
                return self._has(tensor)
            case ir.Map("**", (_, ir.Const(exponent))) if exponent >= 0:
                return False
            case ir.Map(op, arguments) if part.type.kind == "real" and not operation(op).finite:
                row = operation(op)
                by = row.undefined or (() if row.domain == REALS else range(len(arguments)))
                return any(not is_positive(arguments[number]) for number in by)
        return False


def is_learned(expr: ir.Expr) -> bool:
    """Whether an expression may need a gradient."""
    return any(isinstance(part, ir.Read) and part.type.kind == "real" for part in walk(expr))


def is_positive(expr: ir.Expr) -> bool:
    """Whether a number is a size or the root of one, or is written out and more than 0."""
    if isinstance(expr, ir.Map) and expr.op == "sqrt":
        expr = expr.arguments[0]
    return isinstance(expr, ir.Size) or (isinstance(expr, ir.Const) and expr.value > 0)


def _makes_infinities(expr: ir.Expr) -> bool:
    """Whether an operation itself may: by a division, a pole, an overflow, or over no points."""
    match expr:
        case ir.Map(op):
            return not operation(op).finite
        case ir.Reduce("max" | "min" | "mean", ranges, _, guard):
            return guard is not None or any(r.depends_on for r in ranges)
        case ir.Normalize("log_softmax", guard=guard):
            return guard is not None
    return False
