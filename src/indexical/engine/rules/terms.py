"""Values that rules make: numbers, choices, products; and products and sums taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import inf

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import expression, is_counted, polynomial
from ...ir.types import Coordinate, Kind, widest
from ...records import dataclass
from ...source import Source, Span
from .. import ops
from ..ops import Axis, Map, Number, Reduce, Value, apply, host, value

# Numbers that a rule makes are nowhere in the text.
NOWHERE = Span(Source("", ""), 0, 0)


def zero(kind: Kind) -> Value:
    """0, or false."""
    match kind:
        case "bool":
            return host(build.truth(False, NOWHERE))
        case "whole":
            return whole(0)
    return real(0)


def whole(number: int) -> Value:
    return host(build.whole(number, NOWHERE))


def real(number: int) -> Value:
    return host(build.real(Fraction(number), NOWHERE))


def truth() -> Value:
    """What holds everywhere."""
    return host(build.truth(True, NOWHERE))


def is_truth(one: Value) -> bool:
    """Whether this is known to hold everywhere."""
    match one.op:
        case Number(ir.Map("||", sides)):
            return any(is_truth(host(side)) for side in sides)
        case Number(expr):
            return expr == build.truth(True, NOWHERE)
    return False


def infinity(sign: int) -> Value:
    """An infinity of the host. The language has no literal for it."""
    largest = build.apply("as inf", (), "real", NOWHERE)
    return host(build.apply("neg", (largest,), "real", NOWHERE) if sign < 0 else largest)


def is_number(one: Value, number: int) -> bool:
    """Whether this is a literal of that value."""
    return isinstance(one.op, Number) and build.is_number(one.op.expr, number)


def applied(fn: str, *args: Value) -> Value:
    """An elementwise function; a number of the host of such numbers. A cast of one is no such number."""
    if not all(isinstance(arg.op, Number) for arg in args) or fn == "where" or fn.startswith("as "):
        return apply(fn, *args)
    given = tuple(arg.op.expr for arg in args if isinstance(arg.op, Number))
    return host(build.apply(fn, given, apply(fn, *args).kind, NOWHERE))


def where(test: Value, then: Value, otherwise: Value) -> Value:
    return apply("where", test, then, otherwise)


def kept(test: Value | None, one: Value) -> Value:
    """A value where a condition holds, and 0 elsewhere."""
    match one.op:
        case Map("where", (same, _, otherwise)) if same is test and is_number(otherwise, 0):
            return one
    return one if test is None else where(test, one, zero(one.kind))


def cast(one: Value, dtype: str | None) -> Value:
    """A value in a dtype. A number of the host takes the dtype that it meets."""
    same = dtype is None or one.dtype == dtype or (one.dtype is None and one.kind == "real" and dtype == "f64")
    return one if one.is_host or same else ops.cast(one, str(dtype))


def promoted(values: Sequence[Value]) -> list[Value]:
    """Reals in the widest of their dtypes."""
    dtype = widest(one.dtype for one in values)
    return [cast(one, dtype) for one in values]


def product(factors: Iterable[Value]) -> Value:
    """The product of some factors, small ones first: what is made on the way is then no larger than it has to be."""
    first, *rest = sorted(factors, key=lambda one: len(one.axes))
    for one in rest:
        first = applied("*", *promoted((first, one)))
    return first


def total(source: Value, over: Sequence[Axis], guard: Value | None = None) -> Value:
    """The sum of a value over axes. Of a number of the host it is such a number."""
    if source.is_host and guard is None:
        for axis in over:
            source = applied("*", source, host(length(axis)))
        return source
    return value(Reduce("sum", source, tuple(over), guard))


def length(axis: Axis) -> ir.Expr:
    """The number of points of an axis, whose extent may be below 0."""
    if is_counted(polynomial(axis.extent)):
        return axis.extent
    return build.apply("max", (axis.extent, build.whole(0, NOWHERE)), "whole", NOWHERE)


def last_point(axis: Axis) -> Value:
    """The last point of an axis; -1 where it has none."""
    return host(expression(polynomial(axis.extent) - 1, NOWHERE))


def summed(one: Value) -> Reduce:
    """The sum that a value is."""
    assert isinstance(one.op, Reduce)
    return one.op


def names_of(axes: Iterable[Axis]) -> frozenset[Coordinate]:
    return frozenset(axis.name for axis in axes)


def fresh(name: Coordinate, taken: Iterable[Coordinate]) -> Coordinate:
    """A name like this one that is not taken."""
    used = {one.name for one in taken}
    text, number = f"{name.name}_at", 1
    while text in used:
        number += 1
        text = f"{name.name}_at{number}"
    return Coordinate(text)


# ------------------------------------------------------------------ taken apart


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a product, or a divisor."""

    value: Value
    inverse: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """A value that is added, or subtracted."""

    value: Value
    positive: bool = True


def factors_of(one: Value) -> list[Factor]:
    """The factors and divisors of a product of reals, from left to right, signs apart."""
    found: list[Factor] = []
    waiting = [Factor(one)]
    while waiting:
        top = waiting.pop()
        match top.value.op:
            case Map("*", (a, b)):
                waiting += [Factor(b, top.inverse), Factor(a, top.inverse)]
            case Map("/", (a, b)):
                waiting += [Factor(b, not top.inverse), Factor(a, top.inverse)]
            case _:
                found.append(top)
    return found


def terms_of(one: Value, most: float = inf) -> list[Term]:
    """What is added up to a value, from left to right; of more terms than `most`, some stay together, and so do
    those of a checked sum."""
    found: list[Term] = []
    waiting = [Term(one)]
    while waiting:
        top = waiting.pop()
        match top.value.op:
            case _ if len(found) + len(waiting) >= most:
                found.append(top)
            case Map("+", (a, b), False):
                waiting += [Term(b, top.positive), Term(a, top.positive)]
            case Map("-", (a, b), False):
                waiting += [Term(b, not top.positive), Term(a, top.positive)]
            case Map("neg", (a,), False):
                waiting.append(Term(a, not top.positive))
            case _:
                found.append(top)
    return found


def added(terms: Sequence[Term]) -> Value:
    """The sum of some terms; it begins with one that is added, where there is one."""
    ordered = sorted(terms, key=lambda term: not term.positive)
    result = ordered[0].value if ordered[0].positive else applied("neg", ordered[0].value)
    for term in ordered[1:]:
        result = applied("+" if term.positive else "-", *promoted((result, term.value)))
    return result
