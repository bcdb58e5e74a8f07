"""The cotangent of a softmax, found in normal forms: `weights * (g - sum[key](weights * g))`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.normal import (
    Atom,
    Binder,
    Form,
    Group,
    Leaf,
    Number,
    Product,
    Sum,
    form,
    multiplied,
    plus,
    product,
    times,
)
from ....ir.algebra.normalize import Algebra
from ....ir.algebra.predicates import mentions, reads_in
from ....ir.algebra.sums import opened, replaced, summed
from ....ir.types import Coordinate
from ....ir.walk import substitute
from ....records import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """A definition that is a softmax, as factors of products see it."""

    name: str
    axes: tuple[Coordinate, ...]
    key: int
    ranges: tuple[ir.Range, ...]
    guard: ir.Expr | None

    def binder(self, axis: int, coordinate: Coordinate, algebra: Algebra) -> Binder:
        """An axis of it, under another name."""
        r = self.ranges[axis]
        return Binder(coordinate, algebra.whole(r.lower), algebra.whole(r.upper), r.stated)

    def at(self, indices: tuple[ir.Expr, ...]) -> dict[Coordinate, ir.Expr]:
        return dict(zip(self.axes, indices, strict=True))

    def is_in(self, value: Form | Product | Atom) -> bool:
        """Whether it is read somewhere in a form or in a part of one."""
        return mentions(value, self.name)

    def held(self, indices: tuple[ir.Expr, ...], algebra: Algebra) -> Mapping[str, ir.Expr]:
        """The conditions that hold wherever it is not 0."""
        if self.guard is None:
            return {}
        return algebra.conditions(substitute(self.guard, self.at(indices)))


@dataclass(frozen=True, slots=True)
class Use:
    """A product that has weights as a factor, read at `indices`: its other factors, and the cotangent of the weights
    where the derivative of the softmax is a factor too, in the weights' own coordinates."""

    indices: tuple[ir.Expr, ...]
    rest: Product
    number: Number
    flow: Form | None

    def coordinate(self, axis: int) -> Coordinate | None:
        """The coordinate that an axis is read at, where that is all and no other axis is."""
        index = self.indices[axis]
        if not isinstance(index, ir.Coord):
            return None
        others = [other for n, other in enumerate(self.indices) if n != axis]
        return None if any(index.coordinate in other.type.coordinates for other in others) else index.coordinate


def relaxed(value: Form, weights: Weights, algebra: Algebra) -> Form:
    """A form in which nothing is asked that holds wherever the weights beside it are not 0."""
    if not weights.is_in(value):
        return value
    terms: list[tuple[Number, Product]] = []
    for number, term in value.terms:
        found = _relaxed(term, weights, algebra)
        terms += [(number * own, part) for own, part in found.terms]
    return form(terms)


def _relaxed(term: Product, weights: Weights, algebra: Algebra) -> Form:
    """The product without the conditions that its weights imply, in its groups and sums too."""
    if _is_relaxed(term, weights):
        return form(((1, term),))
    conditions = dict(term.conditions)
    for atom, power in term.factors:
        indices = _read_at(atom, weights)
        if indices is not None and power > 0:
            for key in weights.held(indices, algebra):
                conditions.pop(key, None)
    result = form(((1, product((), term.exponent, conditions)),))
    for atom, power in term.factors:
        inner = form(((1, product(((atom, power),))),))
        if power == 1 and isinstance(atom, Group):
            inner = _factored(relaxed(atom.form, weights, algebra), weights)
        elif power == 1 and isinstance(atom, Sum) and not atom.softmax and weights.is_in(atom):
            binders, body = opened(atom, algebra)
            inner = summed(relaxed(body, weights, algebra), binders, algebra)
        result = times(result, inner)
    return result


def _is_relaxed(term: Product, weights: Weights) -> bool:
    """Whether nothing is asked in a product, nor in what it is made of, that has the weights in it."""
    if not weights.is_in(term):
        return True
    if term.conditions:
        return False
    for atom, power in term.factors:
        if power == 1 and isinstance(atom, Group):
            return False
        if power == 1 and isinstance(atom, Sum) and not atom.softmax and not _is_relaxed(atom.body, weights):
            return False
    return True


def parted(value: Form, weights: Weights, algebra: Algebra) -> Form:
    """A form with every sum apart that gathers with these weights plus others: `(w - u) * v` is `w * v - u * v`."""
    terms: list[tuple[Number, Product]] = []
    for number, term in value.terms:
        if not any(isinstance(atom, Sum) and _mixing(atom.body, weights) for atom, _ in term.factors):
            terms.append((number, term))
            continue
        found = form(((1, product((), term.exponent, term.conditions)),))
        for atom, power in term.factors:
            inner = form(((1, product(((atom, power),))),))
            if power == 1 and isinstance(atom, Sum) and not atom.softmax and _mixing(atom.body, weights) is not None:
                binders, body = opened(atom, algebra)
                inner = summed(_multiplied_out(body, weights), binders, algebra)
            found = times(found, inner)
        terms += [(number * own, part) for own, part in found.terms]
    return form(terms)


def _multiplied_out(value: Form, weights: Weights) -> Form:
    """Products without groups of which some terms have the weights as a factor."""
    terms: list[tuple[Number, Product]] = []
    for number, term in value.terms:
        group = _mixing(term, weights)
        if group is None:
            terms.append((number, term))
            continue
        rest = product([f for f in term.factors if f[0] is not group], term.exponent, term.conditions)
        inner = form((number * own, multiplied(rest, part)) for own, part in group.form.terms)
        terms += _multiplied_out(inner, weights).terms
    return form(terms)


def _mixing(term: Product, weights: Weights) -> Group | None:
    """The first group among the factors of a product that has the weights as a factor of one of its terms."""
    for group, power in term.factors:
        if power == 1 and isinstance(group, Group):
            factors = [atom for _, inner in group.form.terms for atom, _ in inner.factors]
            if any(_read_at(atom, weights) is not None for atom in factors):
                return group
    return None


def _factored(value: Form, weights: Weights) -> Form:
    """A sum of terms that all have the weights as a factor, as a product of these and of the sum of what is left."""
    shared = [
        (atom, power)
        for atom, power in (value.terms[0][1].factors if len(value.terms) > 1 else ())
        if _read_at(atom, weights) is not None
        and all(any(a.key == atom.key and n == power for a, n in term.factors) for _, term in value.terms[1:])
    ]
    keys = {atom.key for atom, _ in shared}
    left = [
        (n, product([f for f in term.factors if f[0].key not in keys], term.exponent, term.conditions))
        for n, term in value.terms
    ]
    return times(form(((1, product(shared)),)), form(left)) if shared else value


def _read_at(atom: Atom, weights: Weights) -> tuple[ir.Expr, ...] | None:
    match atom:
        case Leaf(ir.Read(tensor, indices)) if tensor == weights.name:
            return indices
        case _:
            return None


def use_of(term: Product, weights: Weights, algebra: Algebra, results: Collection[str] = ()) -> Use | None:
    """Weights as a factor of a product, once and to the first power; None where they are anything else in it.
    `results` are definitions that what was gathered may be written out of."""
    reads = [(n, at) for n, (atom, _) in enumerate(term.factors) if (at := _read_at(atom, weights)) is not None]
    if len(reads) != 1 or term.factors[reads[0][0]][1] != 1 or term.exponent is not None:
        return None
    place, indices = reads[0]
    others = [factor for n, factor in enumerate(term.factors) if n != place]
    for n, (atom, power) in enumerate(others):
        if power == 1 and isinstance(atom, Group):
            found = _flow(atom.form, indices, weights, algebra, results)
            if found is None and weights.is_in(atom):
                return None
            if found is None:
                continue
            number, flow = found
            rest = product([factor for m, factor in enumerate(others) if m != n], None, term.conditions)
            return None if weights.is_in(rest) else Use(indices, rest, number, flow)
    rest = product(others, None, term.conditions)
    return None if weights.is_in(rest) else Use(indices, rest, 1, None)


def _flow(
    value: Form, indices: tuple[ir.Expr, ...], weights: Weights, algebra: Algebra, results: Collection[str]
) -> tuple[Number, Form] | None:
    """`n · (g - sum[key](weights * g))` as `n` and `g`, in the weights' own coordinates."""
    key = indices[weights.key]
    names = [index.coordinate for index in indices if isinstance(index, ir.Coord)]
    if not isinstance(key, ir.Coord) or len(set(names)) != len(indices) or not value.coordinates <= set(names):
        return None
    home: dict[Coordinate, ir.Expr] = {
        name: build.coord(axis, key.span) for name, axis in zip(names, weights.axes, strict=True)
    }
    large = {r.tensor for r in reads_in(value) if r.type.coordinates >= set(names)}
    value = algebra.opened(value, lambda read: read.tensor in large)
    plain = [term for term in value.terms if key.coordinate in term[1].coordinates]
    means = [term for term in value.terms if key.coordinate not in term[1].coordinates]
    if not plain or not means:
        return None
    number = plain[0][0]
    own = replaced(form((Fraction(n) / number, term) for n, term in plain), home, algebra)
    mean = replaced(form((-Fraction(n) / number, term) for n, term in means), home, algebra)
    if weights.is_in(own):
        return None
    if mean.key == mean_of(own, weights, algebra).key:
        return number, own
    return (number, own) if _is_by_result(mean, own, weights, algebra, results) else None


def _is_by_result(mean: Form, own: Form, weights: Weights, algebra: Algebra, results: Collection[str]) -> bool:
    """Whether a mean is written with the result of the gather: `sum[carried](arriving * result)`."""
    gather = gathered(own, weights, algebra)
    if gather is None:
        return False
    result = mean_of(form(((gather.number, gather.value),)), weights, algebra)
    expected = summed(times(form(((1, gather.arriving),)), result), gather.carried, algebra)
    return algebra.opened(mean, lambda read: read.tensor in results).key == expected.key


def mean_of(value: Form, weights: Weights, algebra: Algebra) -> Form:
    """`sum[key](weights * value)`, in the weights' own coordinates."""
    binder = weights.binder(weights.key, weights.axes[weights.key], algebra)
    return summed(times(read_of(weights, algebra), value), [binder], algebra)


def read_of(weights: Weights, algebra: Algebra) -> Form:
    """The weights at their own coordinates."""
    span = weights.ranges[0].span
    return algebra.again(build.read(weights.name, tuple(build.coord(c, span) for c in weights.axes), "real", span))


def adjoint_of(flow: Form, weights: Weights, algebra: Algebra) -> Form:
    """The cotangent of the scores, where `flow` is that of the weights."""
    return times(read_of(weights, algebra), plus(flow, mean_of(flow, weights, algebra), -1))


@dataclass(frozen=True, slots=True)
class Gather:
    """`sum[carried](arriving * value)`: the cotangent of weights that have gathered `value`."""

    carried: tuple[Binder, ...]
    arriving: Product
    value: Product
    number: Number


def gathered(flow: Form, weights: Weights, algebra: Algebra) -> Gather | None:
    """The cotangent of a gather with these weights and the value it gathers, found in the cotangent of the weights;
    None where they are not gathered with once, or not alone. It counts where the weights are not 0."""
    key = weights.axes[weights.key]
    held = weights.held(tuple(build.coord(c, weights.ranges[0].span) for c in weights.axes), algebra)
    if len(flow.terms) != 1:
        return None
    number, term = flow.terms[0]
    carried: tuple[Binder, ...] = ()
    for atom, power in term.factors:
        if power == 1 and isinstance(atom, Sum) and _is_mixed(atom.body, key):
            binders, body = opened(atom, algebra)
            if carried or len(body.terms) != 1:
                return None
            carried = binders
            rest = product([f for f in term.factors if f[0] is not atom], term.exponent, term.conditions)
            number, term = number * body.terms[0][0], multiplied(body.terms[0][1], rest)
    if term.exponent is not None:
        return None
    sides: list[tuple[list[tuple[Atom, Number]], dict[str, ir.Expr]]] = [([], {}), ([], {})]
    for atom, power in term.factors:
        sides[key in atom.coordinates][0].append((atom, power))
    for name, condition in term.conditions.items():
        if name not in held:
            sides[key in condition.type.coordinates][1][name] = condition
    arriving, value = (product(factors, None, conditions) for factors, conditions in sides)
    return Gather(carried, arriving, value, number)


def _is_mixed(body: Product, key: Coordinate) -> bool:
    """Whether some factors vary with the key, and others do not."""
    found = {key in atom.coordinates for atom, _ in body.factors}
    return found == {True, False}
