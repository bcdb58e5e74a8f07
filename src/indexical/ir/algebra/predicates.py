"""Properties of normal forms: a copy, weights, a logarithm, a mask, terms that nearly cancel."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .. import build
from .. import nodes as ir
from ..formulas import read
from ..functions import FUNCTIONS
from ..walk import walk
from .normal import Atom, Form, Function, Group, Leaf, Logarithm, Number, Product, Sum, magnitude


def is_exponential(expr: ir.Expr) -> bool:
    """Whether something is exponentiated here; a power of a fixed base is an exponential too."""
    return exponential_of(expr) is not None or (isinstance(expr, ir.Normalize) and "softmax" in expr.op)


def is_logarithm(expr: ir.Expr) -> bool:
    """Whether a logarithm is taken here."""
    return isinstance(expr, ir.Normalize | ir.Map) and expr.op in ("log", "log_softmax")


def exponential_of(expr: ir.Expr) -> tuple[ir.Expr | None, ir.Expr] | None:
    """The base and the exponent of an exponential with a fixed base, which is e where it is None."""
    match expr:
        case ir.Map("exp", (exponent,)):
            return None, exponent
        case ir.Map(op, (exponent,)) if op in BASES:
            return build.whole(BASES[op], expr.span), exponent
        case ir.Map("**", (base, exponent)) if exponent.type.coordinates and not base.type.coordinates:
            return base, exponent
        case _:
            return None


def _base(definition: str) -> int | None:
    """The base in `exp(x * log(base))`."""
    names: dict[str, Any] = {"x": "x"}
    match read(definition, names, lambda number: number, lambda op, values: (op, *values)):
        case ("exp", ("*", "x", ("log", Fraction(denominator=1) as base))):
            return int(base)
        case _:
            return None


# The functions that are powers of a number, by their definitions.
BASES = {
    name: base
    for name, row in FUNCTIONS.items()
    if row.definition is not None and (base := _base(row.definition)) is not None
}


def is_root(expr: ir.Expr) -> bool:
    """Whether a root is taken, or one over a root: `sqrt` and `rsqrt`."""
    return isinstance(expr, ir.Map) and expr.op.endswith("sqrt")


def holds_exponential(atom: Atom) -> bool:
    """Whether weights were taken apart inside a factor. Their shift is gone there, so that as it stands it might
    overflow where what was written does not."""
    match atom:
        case Group(inner):
            terms = [term for _, term in inner.terms]
        case Sum(body=body):
            terms = [body]
        case Function(arguments=arguments):
            inside = [a for argument in arguments for _, term in argument.terms for a, _ in term.factors]
            return any(map(holds_exponential, inside))
        case _:
            return False
    return any(term.exponent is not None or any(holds_exponential(a) for a, _ in term.factors) for term in terms)


def reads_in(value: Form) -> Iterator[ir.Read]:
    """Every read that is a factor somewhere in a form."""
    for _, term in value.terms:
        yield from _reads_in_product(term)


def _reads_in_product(term: Product) -> Iterator[ir.Read]:
    if term.exponent is not None:
        yield from reads_in(term.exponent)
    for atom, _ in term.factors:
        match atom:
            case Leaf(ir.Read() as read):
                yield read
            case Function(arguments=arguments):
                for argument in arguments:
                    yield from reads_in(argument)
            case Group(inner):
                yield from reads_in(inner)
            case Sum(body=body):
                yield from _reads_in_product(body)


def mentions(value: Form | Product | Atom, tensor: str) -> bool:
    """Whether a tensor is read anywhere in a form or a part of one: as a factor, in an index, a condition, a bound."""
    match value:
        case Form(terms):
            return any(mentions(term, tensor) for _, term in terms)
        case Product(factors, exponent, conditions):
            if any(mentions(atom, tensor) for atom, _ in factors):
                return True
            if exponent is not None and mentions(exponent, tensor):
                return True
            return any(_reads(condition, tensor) for condition in conditions.values())
        case Leaf(expr):
            return _reads(expr, tensor)
        case Function(arguments=arguments):
            return any(mentions(argument, tensor) for argument in arguments)
        case Logarithm(expr, weights):
            return _reads(expr, tensor) or mentions(weights, tensor)
        case Group(inner):
            return mentions(inner, tensor)
        case Sum(binders, body):
            bounds = [bound for binder in binders for bound in (binder.lower, binder.upper)]
            return mentions(body, tensor) or any(_reads(bound, tensor) for bound in bounds)


def _reads(expr: ir.Expr, tensor: str) -> bool:
    return any(isinstance(part, ir.Read) and part.tensor == tensor for part in walk(expr))


def is_mask(value: Form) -> bool:
    """A number that stands for minus infinity."""
    return len(value.terms) == 1 and value.terms[0][0] <= LARGE and value.terms[0][1].key == ""


# No score is as low as this, and e to it is 0 in every dtype, whatever score is added to it.
LARGE = -(10**8)


def is_copy(value: Form) -> bool:
    """A read, times numbers that vary with nothing; a product that is larger than each of its factors; or a
    condition as a number."""
    if len(value.terms) != 1:
        return False
    term = value.terms[0][1]
    if term.conditions or term.exponent is not None:
        return not term.factors and term.exponent is None
    varying = [atom for atom, _ in term.factors if atom.coordinates]
    if not all(isinstance(atom, Leaf) and isinstance(atom.expr, ir.Read) for atom in varying):
        return False
    if any(not isinstance(atom, Leaf) for atom, _ in term.factors):
        return False
    return len(varying) <= 1 or all(atom.coordinates != term.coordinates for atom in varying)


def adds_apart(expr: ir.Expr) -> bool:
    """Whether a factor adds two parts that read different tensors: nothing of them cancels, so it is no copy."""
    match expr:
        case ir.Map("+" | "-", (left, right)):
            here, there = ({p.tensor for p in walk(side) if isinstance(p, ir.Read)} for side in (left, right))
            return bool(here and there) and here.isdisjoint(there)
        case ir.Map("*" | "/" | "neg", arguments):
            return any(map(adds_apart, arguments))
        case _:
            return False


def is_normalized(*values: Form) -> bool:
    """Whether a normaliser stands in a form as it is written: then it may only be read under its own range."""
    return any(f"({op} " in value.key for value in values for op in ("softmax", "log_softmax", "cumsum", "rank"))


def has_logarithm(value: Form) -> bool:
    """Whether a term of a form is a logarithm of weights."""
    return any(isinstance(atom, Logarithm) for _, term in value.terms for atom, _ in term.factors)


def are_opposed(one: tuple[Number, Product], other: tuple[Number, Product]) -> bool:
    """Whether two terms may be large and nearly cancel, as in `f[i] - f[j]` and in `1000 - 1000 * m[j]`: then the
    one is not left out without the other, and their difference is taken first."""
    if one[0] != -other[0]:
        return False
    left, right = one[1], other[1]
    if left.exponent is not None or right.exponent is not None:
        return False
    if not left.coordinates or not right.coordinates:
        small, large = (left, right) if not left.coordinates else (right, left)
        known = {atom.key: power for atom, power in large.factors}
        return magnitude(one[0]) >= 16 and all(known.get(atom.key) == power for atom, power in small.factors)
    if left.conditions or right.conditions or len(left.factors) != len(right.factors):
        return False
    return all(_are_alike(a[0], b[0]) for a, b in zip(left.factors, right.factors, strict=True) if a[1] == b[1])


def _are_alike(left: Atom, right: Atom) -> bool:
    """Whether two factors are equal but for where they are read."""
    match left, right:
        case Leaf(ir.Read(tensor=name)), Leaf(ir.Read(tensor=other)):
            return name == other
        case Leaf(ir.Coord()), Leaf(ir.Coord()):
            return True
        case _:
            return left.key == right.key
