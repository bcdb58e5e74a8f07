"""Sums of products: taken apart into contractions, whatever stands around the products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ..ops import Axis, Contract, Map, Number, Read, Reduce, Value, all_of, apply, conjuncts, host, value
from .cost import points
from .patterns import Found, No, Target
from .terms import (
    NOWHERE,
    Factor,
    Term,
    added,
    applied,
    cast,
    factors_of,
    length,
    names_of,
    product,
    promoted,
    real,
    summed,
    terms_of,
    total,
    where,
    whole,
    zero,
)

# The largest whole number, and a limit that no float of 32 bits exceeds.
_LONGEST, _FINITE = 2.0**63, 3e38

# ---------------------------------------------------------------------- taken apart


def split_sum(one: Value, found: Found, target: Target) -> Value | No | None:
    """Terms that are products of matrices are summed each for itself, the other terms together."""
    op = summed(one)
    if one.kind != "real":
        return None
    terms = terms_of(op.source)
    apart = [term for term in terms if is_contractable(term.value, op.over, op.where)]
    if len(terms) < 2 or not apart:
        return None
    rest = [term for term in terms if not is_contractable(term.value, op.over, op.where)]
    sums = [Term(total(cast(term.value, one.dtype), op.over, op.where), term.positive) for term in apart]
    if rest:
        sums.append(Term(total(cast(added(rest), one.dtype), op.over, op.where)))
    return added(sums)


def sum_for_mean(one: Value, found: Found, target: Target) -> Value | No | None:
    """A mean is a sum over the number of points, whatever becomes of the sum."""
    op = summed(one)
    if op.source.is_host and op.where is None:
        return None
    if op.where is None:
        lengths = reduce(lambda a, b: build.apply("*", (a, b), "whole", NOWHERE), map(length, op.over))
        count = host(build.apply("as real", (lengths,), "real", NOWHERE))
    else:
        count = apply(f"as {one.dtype or 'real'}", total(whole(1), op.over, op.where))
    return applied("/", total(op.source, op.over, op.where), count)


def sign_out(one: Value, found: Found, target: Target) -> Value | No | None:
    """The sum of what is negated is negated."""
    op = summed(one)
    return None if one.kind != "real" else applied("neg", total(found["x"], op.over, op.where))


def multiply_out(one: Value, found: Found, target: Target) -> Value | No | None:
    """A factor that is itself a sum, of terms with other axes: each is multiplied and summed for itself."""
    op = summed(one)
    if one.kind != "real":
        return None
    factors = factors_of(op.source)
    for n, factor in enumerate(factors):
        groups = [] if factor.inverse else _groups(factor.value, op)
        if len(groups) < 2:
            continue
        if any(other.value is factor.value for m, other in enumerate(factors) if m != n):
            return No("a square is not multiplied out: what cancels in it would be lost")
        if target.isolate:
            return No("an infinite factor would meet each term for itself")
        sums = []
        for group in groups:
            positive = any(term.positive for term in group)
            signed = group if positive else [Term(term.value) for term in group]
            inside = multiplied([*factors[:n], Factor(added(signed)), *factors[n + 1 :]])
            sums.append(Term(total(cast(inside, one.dtype), op.over, op.where), positive))
        return added(sums)
    return None


def _groups(one: Value, op: Reduce) -> list[list[Term]]:
    """The terms of a sum: each that is an outer product for itself, the others in groups of the same axes. One
    with fewer axes joins a group that has these and more, but not one that has the axes of all: that is what is best
    kept apart."""
    terms = terms_of(_opened(one))
    apart = [term for term in terms if is_outer(term.value, op.over)]
    if apart:
        rest = [term for term in terms if term not in apart]
        return [*([term] for term in apart), *([rest] if rest else [])] if len(terms) > 1 else []
    if len(terms) < 2:
        return []
    groups: dict[frozenset[Coordinate], list[Term]] = {}
    for term in terms:
        groups.setdefault(term.value.names, []).append(term)
    every = frozenset[Coordinate]().union(*groups)
    if not all(_moves(term.value) for term in groups.get(every, ())):
        return []  # The sum has no more points than this term.
    for small in sorted(groups, key=len):
        larger = [names for names in groups if small < names and names != every]
        if larger:
            groups[min(larger, key=len)] += groups.pop(small)
    return list(groups.values())


def _moves(one: Value) -> bool:
    """Whether this is read at places of several axes, at more of them than there are: a contraction may come before the
    read."""
    match one.op:
        case Read(source, index) if any(len(at.names) > 1 for _, at in index):
            return points(one.axes) > points(source.axes)
    return False


def _opened(one: Value) -> Value:
    """A view of a sum as the sum of views."""
    match one.op:
        case Read(Value(op=Map("+" | "-" as fn, args)), index, "never"):
            given = [tuple((name, at) for name, at in index if name in arg.names) for arg in args]
            parts = [value(Read(arg, own)) if own else arg for arg, own in zip(args, given, strict=True)]
            return applied(fn, *parts)
    return one


def multiplied(factors: Sequence[Factor]) -> Value:
    """The product of factors, over the divisors."""
    above = [factor.value for factor in factors if not factor.inverse]
    below = [factor.value for factor in factors if factor.inverse]
    result = product(above) if above else real(1)
    return applied("/", *promoted((result, product(below)))) if below else result


def take_factor_out(one: Value, found: Found, target: Target) -> Value | No | None:
    """A factor that does not vary with what is summed leaves the sum; so does a divisor that is not 0."""
    op = summed(one)
    over = names_of(op.over)
    factors = factors_of(op.source)
    fixed = [factor for factor in factors if not factor.value.names & over]
    if not fixed or len(fixed) == len(factors) or one.kind != "real":
        return None
    out = [factor for factor in fixed if _may_leave(factor, target)]
    if not out and is_contractable(op.source, op.over, op.where):
        return None  # It goes into a factor of the contraction.
    if not out:
        return No("a factor that may be infinite is not taken out of a sum that may be empty")
    rest = [factor for factor in factors if factor not in out]
    inside = total(cast(multiplied(rest), one.dtype), op.over, op.where)
    return multiplied([Factor(inside), *out])


def _may_leave(factor: Factor, target: Target) -> bool:
    """Whether 0 times a factor, or over it, is 0."""
    expr = factor.value.op.expr if isinstance(factor.value.op, Number) else None
    if not factor.inverse:
        return target.is_finite(factor.value) and (expr is None or _largest(expr) <= _FINITE)
    return isinstance(expr, ir.Const) and expr.value != 0


def _largest(number: ir.Expr) -> float:
    """A bound of a number of sizes, whatever its sign; infinity where none is known, as of one over the size of an axis
    that may have no points."""
    match number:
        case ir.Const(given):
            return abs(float(given))
        case ir.Map("as real", (counted,)) | ir.Map("neg", (counted,)):
            return _largest(counted)
        case ir.Map("*", (one, other)):
            return _largest(one) * _largest(other)
        case ir.Map("+" | "-", (one, other)):
            return _largest(one) + _largest(other)
        case ir.Map("/", (one, ir.Const(by))) if by != 0:
            return _largest(one) / abs(float(by))
        case ir.Map("sqrt", (ir.Const(given),)) if given >= 0:
            return math.sqrt(given)
        case ir.Map("sqrt", (ir.Size() | ir.Map("as real", (ir.Size(),)),)):
            return _LONGEST
    return _LONGEST if number.type.kind == "whole" else math.inf


# ---------------------------------------------------------------------- contractions


def is_outer(one: Value, over: Sequence[Axis]) -> bool:
    """Whether a product is larger than each of its factors."""
    bound = names_of(over)
    arrays = [f.value.names for f in factors_of(one) if not f.inverse and f.value.names & bound]
    return one.kind == "real" and len(arrays) > 1 and frozenset[Coordinate]().union(*arrays) not in arrays


def is_contractable(one: Value, over: Sequence[Axis], guard: Value | None = None) -> bool:
    """Whether a product is larger than each of its factors; or one of a matrix and vectors, of which one has the axes
    of the guard."""
    bound = names_of(over)
    arrays = [f.value.names for f in factors_of(one) if not f.inverse and f.value.names & bound]
    if is_outer(one, over) or one.kind != "real" or len(arrays) < 2:
        return is_outer(one, over)
    every = frozenset[Coordinate]().union(*arrays)
    vectors = [names for names in arrays if names != every]
    tests = conjuncts(guard)
    return len(vectors) == len(arrays) - 1 and all(any(test.names <= names for names in vectors) for test in tests)


def contract(one: Value, found: Found, target: Target) -> Value | No | None:
    """A sum of products as one contraction. A guard becomes 0 in factors that have its axes, and in all of these that
    may be infinite where it fails."""
    op = summed(one)
    over = names_of(op.over)
    if not is_contractable(op.source, op.over, op.where):
        return None
    arrays = _arrays(factors_of(op.source), over)
    tests = conjuncts(op.where)
    reason = _mask(arrays, tests, target)
    if reason is not None:
        return No(reason)
    arrays = _nested([cast(array, one.dtype) for array in promoted(arrays)], over)
    idle = [axis for axis in op.over if not any(axis.name in array.names for array in arrays)]
    gone = tuple(axis for axis in op.over if axis not in idle)
    result = value(Contract(tuple(arrays), gone))
    return total(result, idle) if idle else result


def _arrays(factors: Sequence[Factor], over: frozenset[Coordinate]) -> list[Value]:
    """The arrays of a product: numbers and divisors go into the smallest that has their axes. The sum of no products
    is then 0 whatever these are."""
    arrays = [f.value for f in factors if not f.inverse and f.value.names & over]
    for factor in factors:
        if not factor.inverse and factor.value.names & over:
            continue
        home = _home(arrays, factor.value.names)
        if home is None:
            arrays.append(applied("/", real(1), factor.value) if factor.inverse else factor.value)
        else:
            arrays[home] = applied("/" if factor.inverse else "*", *promoted((arrays[home], factor.value)))
    return arrays


def _home(arrays: Sequence[Value], names: frozenset[Coordinate]) -> int | None:
    """The smallest of some arrays that has these axes; what is read at places stays a read, where it may."""
    having = [n for n, array in enumerate(arrays) if names <= array.names]
    return min(having, key=lambda n: (len(arrays[n].axes), isinstance(arrays[n].op, Read)), default=None)


def _mask(arrays: list[Value], tests: Sequence[Value], target: Target) -> str | None:
    """Put conditions into the factors that have their axes; the reason, where that would not remove what they do."""
    covered: dict[int, list[Value]] = {}
    alone: list[Value] = []
    for test in tests:
        homes = [n for n, array in enumerate(arrays) if test.names <= array.names]
        wild = [n for n, array in enumerate(arrays) if not target.is_finite(array)]
        if not set(wild) <= set(homes):
            return "a factor may be infinite where the guard fails, and 0 times that is not 0"
        home = _home(arrays, test.names)
        if home is None:
            alone.append(test)
            continue
        for n in wild or [home]:
            covered.setdefault(n, []).append(test)
    for n, own in covered.items():
        mask = all_of(*own)
        assert mask is not None
        arrays[n] = where(mask, arrays[n], zero("real"))
    for test in alone:
        arrays.append(where(test, real(1), zero("real")))
    return None


def _nested(arrays: list[Value], over: frozenset[Coordinate]) -> list[Value]:
    """Factors of more than two that have no axis which another has not go into the least of those, unless a product of
    the two would sum an axis away."""
    while len(arrays) > 2:
        pair = _pair(arrays, over)
        if pair is None:
            break
        merged = applied("*", arrays[pair[1]], arrays[pair[0]])
        arrays = [array for n, array in enumerate(arrays) if n not in pair] + [merged]
    return arrays


def _pair(arrays: Sequence[Value], over: frozenset[Coordinate]) -> tuple[int, int] | None:
    for n, small in enumerate(arrays):
        home = _home([a if m != n else zero("real") for m, a in enumerate(arrays)], small.names)
        if home is None:
            continue
        others = frozenset[Coordinate]().union(*(a.names for m, a in enumerate(arrays) if m not in (n, home)))
        if not (over & small.names) - others:
            return n, home
    return None


def scale_factors(one: Value, found: Found, target: Target) -> Value | No | None:
    """Contractions that are scaled by a number other than 0 are those of scaled factors, which have fewer cells."""
    op = one.op
    assert isinstance(op, Map)
    if one.kind != "real":
        return None
    if _divides_by_none(op, one.axes):
        return No("the divisor is 0 where the sum has no points, and 0 / 0 is not 0")
    scaled = []
    for term in terms_of(found["scaled"]):
        inner = term.value.op
        if not isinstance(inner, Contract):
            return None
        smallest = min(range(len(inner.factors)), key=lambda n: len(inner.factors[n].axes))
        factors = list(inner.factors)
        factors[smallest] = applied(op.fn, factors[smallest], found["scale"])
        scaled.append(Term(value(Contract(tuple(factors), inner.over)), term.positive))
    return added(scaled)


def _divides_by_none(op: Map, axes: Sequence[Axis]) -> bool:
    """Whether a number is divided by the size of an axis other than these, which may have no points."""
    lengths = [axis.extent for axis in axes]
    waiting = [(arg.op.expr, op.fn == "/") for arg in op.args if isinstance(arg.op, Number)]
    for expr, below in waiting:
        match expr:
            case ir.Size() if below and expr not in lengths:
                return True
            case ir.Map("/", (above, divisor)):
                waiting += [(above, below), (divisor, True)]
            case ir.Map(_, arguments):
                waiting += [(argument, below) for argument in arguments]
    return False


def is_size(one: Value) -> bool:
    """Whether a number is positive, unless it is made of the size of an axis without points."""
    waiting = [one.op.expr] if isinstance(one.op, Number) else []
    for expr in waiting:
        match expr:
            case ir.Const(number) if number > 0:
                pass
            case ir.Size():
                pass
            case ir.Map("sqrt" | "*" | "/" | "as real", arguments):
                waiting += arguments
            case _:
                return False
    return bool(waiting)


def join_sums(one: Value, found: Found, target: Target) -> Value | No | None:
    """The sum of a contraction is one contraction over more axes, of 16 bits too."""
    op, inner = summed(one), found["inner"].op
    assert isinstance(inner, Contract)
    if names_of(op.over) & names_of(inner.over):
        return None
    if op.where is not None:
        return No("the sum of the contraction has a guard, and its factors do not")
    present = tuple(axis for axis in op.over if axis.name in found["inner"].names)
    if not present:
        return None
    over = tuple(sorted((*inner.over, *present), key=lambda axis: axis.name))
    joined = cast(value(Contract(inner.factors, over)), one.dtype)
    idle = [axis for axis in op.over if axis not in present]
    return total(joined, idle) if idle else joined


