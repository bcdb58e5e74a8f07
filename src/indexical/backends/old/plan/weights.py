"""Weights that are normalised over what a sum consumes, found in a normal form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from ....facts.distributions import keeps_a_point
from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.canonical import text
from ....ir.algebra.normal import (
    EMPTY,
    ONE,
    ZERO,
    Atom,
    Binder,
    Form,
    Leaf,
    Logarithm,
    Number,
    Product,
    Sum,
    constant,
    form,
    function,
    is_total,
    multiplied,
    plus,
    product,
    under,
)
from ....ir.algebra.normalize import Algebra
from ....ir.algebra.predicates import LARGE, exponential_of, holds_exponential, reads_in
from ....ir.algebra.safety import arranged, is_open
from ....ir.algebra.sums import is_safe_atom, is_safe_form, opened, split, summed
from ....ir.algebra.weights import Total, carried, inlined, log_of, matched, summand, totals
from ....ir.algebra.writing import written, written_atom
from ....ir.context import Trail
from ....ir.needs import made_of, read_in
from ....ir.types import NOWHERE, Coordinate
from ....ir.walk import walk
from ....plan.steps import Empty, Origin
from ....records import dataclass, replace
from ....source import Span
from .empty_sums import Written, is_undefined


@dataclass(frozen=True, slots=True)
class Gathered:
    """A term with an attention in it, and what that is multiplied with: `inside` of the sum over `others`,
    and `outside` of it. `sink` is the logarithm of what is added to the sum of its exponentials; where it is `free`,
    the score is the weight itself; where weights are picked, the sink counts from an `origin`. A `total` is the
    logarithm of the sum of the exponentials, and gathers nothing. `heard` says that every query of a sink surely has a
    key, if there are any."""

    key: Binder
    score: Form
    guard: Mapping[str, ir.Expr]
    value: Form
    empty: Empty
    others: tuple[Binder, ...]
    inside: Product
    outside: Product
    number: Number
    doubts: tuple[str, ...]
    sink: Form | None = None
    free: bool = False
    origin: Origin | None = None
    total: bool = False
    heard: bool = False

    @property
    def coordinates(self) -> frozenset[Coordinate]:
        """The coordinates that the attention varies with."""
        guards = [condition.type.coordinates for condition in self.guard.values()]
        bounds = (self.key.lower.type.coordinates, self.key.upper.type.coordinates)
        sink = ZERO if self.sink is None else self.sink
        found = self.score.coordinates.union(self.value.coordinates, sink.coordinates, *guards, *bounds)
        return found - {self.key.coordinate}


@dataclass(frozen=True, slots=True)
class _Site:
    """A product under a sum, taken apart: what is summed over, what is inside and outside of the sum."""

    algebra: Algebra
    trail: Trail
    number: Number
    binders: tuple[Binder, ...]
    inner: Product
    outer: Product
    written: Written


def gather(algebra: Algebra, number: Number, term: Product, trail: Trail, written: Written) -> Gathered | list[str]:
    """The attention in a term, or why there is none: nothing to say where nothing is normalised."""
    reasons: list[str] = []
    for atom, power in term.factors:
        if power != 1 or not isinstance(atom, Sum):
            continue
        rest = [factor for factor in term.factors if factor[0] is not atom]
        outer = product(rest, term.exponent, term.conditions, term.absent, term.skipped)
        binders, body = opened(atom, algebra)
        if len(body.terms) != 1:
            continue
        own, inner = body.terms[0]
        site = _Site(algebra, trail, number * own, binders, inner, outer, written)
        for total in totals((*site.inner.factors, *site.outer.factors)):
            found = _match(site, total)
            if isinstance(found, Gathered):
                return found
            if found:
                reasons.append(found)
    return reasons


def _match(site: _Site, total: Total) -> Gathered | str:
    """The gather whose weights this total normalises, by the first coordinate that fits; the reason where none does."""
    if len(total.sum.binders) > 1:
        return "its weights are normalised over several coordinates at once"
    over = total.sum.binders[0]
    limits = text(over.lower), text(over.upper)
    apart = "the sum runs over other points than its weights are normalised over"
    reason = apart
    for key in site.binders:
        same = (text(key.lower), text(key.upper)) == limits
        if same or not (key.stated or over.stated):
            key = Binder(key.coordinate, over.lower, over.upper, key.stated)
            found = _match_key(site, total, key)
            if isinstance(found, Gathered):
                # Two sizes that were taken from one axis are one size, or no call fits.
                return found if same or _is_read(found.score, key.coordinate) else apart
            reason = found if same else reason
    return reason


def _is_read(score: Form, key: Coordinate) -> bool:
    """Whether something in the score is read at the key itself, and so decides how many keys there are."""
    indices = [index for read in reads_in(score) for index in read.indices]
    return any(isinstance(index, ir.Coord) and index.coordinate == key for index in indices)


def _match_key(site: _Site, total: Total, key: Binder) -> Gathered | str:
    """The attention over one of the coordinates that are summed."""
    coordinate = key.coordinate
    exponent = site.inner.exponent
    share = summand(site.algebra, total.sum, coordinate)
    if isinstance(share, str):
        return share
    if exponent is None:
        return "what is summed is not what its weights are normalised by"
    raised = _raised_apart(site, exponent, share, coordinate)
    if raised is not None:
        exponent = plus(exponent, raised, -1)
        site, raised = _with_shift(site, raised)
    caution = site.algebra.caution.under(site.inner.conditions.values()) if site.inner.conditions else None
    values = [
        (atom, power)
        for atom, power in site.inner.factors
        if atom is not total.atom
        and (coordinate in atom.coordinates or (caution is not None and not is_safe_atom(atom, caution)))
    ]
    if not values and raised is None:
        beside = [atom for atom, _ in (*site.inner.factors, *site.outer.factors) if atom is not total.atom]
        return "nothing in it varies with the key" if any(atom.coordinates for atom in beside) else ""
    if any(holds_exponential(atom) for atom, _ in values):
        return "other sums of exponentials stand beside it"
    span = key.lower.span
    gathered = [*(written_atom(atom, span) for atom, _ in values), *([] if raised is None else [written(raised, span)])]
    brought = frozenset().union(*(carried(one, coordinate) for one in gathered))
    exponents = matched(site.algebra, exponent, share, coordinate, brought)
    if exponents is None:
        return "what is exponentiated above the line and below it differ"
    above, below = exponents
    held = {**site.inner.conditions, **site.outer.conditions}
    if any(condition not in held for condition in share.conditions):
        return "the points that are summed are not those that the weights are normalised over"
    score, level = split(below, frozenset((coordinate,)))
    if score is None:
        return "the weights do not vary with what is summed"
    sink = log_of(total.sink) if total.sink.terms else None
    if total.sink.terms:
        if sink is None:
            return "what is added to what its weights are divided by may be negative: a kernel adds e to something"
        if coordinate in sink.coordinates:
            return "what is added to what its weights are divided by varies with the key"
        # What all scores of a query share goes to the other side.
        if level is not None and _may_be_unheard(site.algebra, level, share, key, site.trail, site.binders):
            return "what all scores of a query share may have no value where it hears nobody"
        sink = sink if level is None else plus(sink, level, -1)
    left = plus(above, below, -1)
    if caution is not None and not is_safe_form(left, caution):
        return "what is left of the exponents may only be evaluated where the guard holds"
    if sink is not None and holds_extreme(site.algebra, left, span):
        return "what is left of the exponents may be infinite where a row keeps no key"
    return _described(site, total, key, score, left, share, values, raised, sink)


def _raised_apart(site: _Site, exponent: Form, share: Product, key: Coordinate) -> Form | None:
    """The part of an exponent that is one of the values, as in `weights[i, j] * exp(V[j, e])`: it is exponentiated by
    itself where it is written, and varies with nothing that asks. None where there is none."""
    assert share.exponent is not None
    answers = [read.type.coordinates for read in reads_in(share.exponent) if key in read.type.coordinates]
    asks = share.exponent.coordinates - frozenset((key,)).union(*answers)
    left = plus(exponent, share.exponent, -1)
    found, _ = split(left, frozenset((key,)))
    if found is None or found.coordinates & asks or share.exponent.coordinates <= found.coordinates:
        return None  # It varies with who asks.
    varying = form(term for term in found.terms if key in term[1].coordinates)
    names = {read.tensor for read in reads_in(varying)}
    lets = site.algebra.lets
    behind = made_of(read_in(site.written.expr), lets)
    exprs = [site.written.expr, *(clause.body for name in behind if name in lets for clause in lets[name].clauses)]
    raised = (one[1] for expr in exprs for part in walk(expr) if (one := exponential_of(part)) is not None)
    return found if any(names and _is_of(one, names) for one in raised) else None


def _with_shift(site: _Site, raised: Form) -> tuple[_Site, Form]:
    """What is raised with what was taken off it before: the same for all keys, it stands outside of their sum, where
    each of the two may be infinite."""
    if site.outer.exponent is None:
        return site, raised
    taken = [term for term in site.outer.exponent.terms if term[1].coordinates <= raised.coordinates]
    left = [term for term in site.outer.exponent.terms if term not in taken]
    outer = site.outer
    outer = product(outer.factors, form(left), outer.conditions, outer.absent, outer.skipped)
    return replace(site, outer=outer), plus(raised, form(taken))


def _is_of(expr: ir.Expr, names: set[str]) -> bool:
    """Whether an expression reads all of these tensors, and varies with nothing else."""
    reads = [part for part in walk(expr) if isinstance(part, ir.Read) and part.tensor in names]
    varies = frozenset().union(*(read.type.coordinates for read in reads))
    return {read.tensor for read in reads} == names and expr.type.coordinates == varies


def _described(
    site: _Site,
    total: Total,
    key: Binder,
    score: Form,
    left: Form,
    share: Product,
    values: list[tuple[Atom, Number]],
    raised: Form | None,
    sink: Form | None,
) -> Gathered:
    """The parts of a gather: its score, guard and value, what stands beside it, and what it gives where it hears
    nobody."""
    coordinate = key.coordinate
    guard = dict(share.conditions)
    more = () if raised is None else reads_in(raised)
    read = [*values, *((Leaf(read, "", read.type.coordinates, 0), 1) for read in more)]
    key, bounds = widened(site.algebra, key, read)
    beside = {k: c for k, c in site.inner.conditions.items() if k not in guard}
    caution = site.algebra.caution.under(beside.values())
    value = form(((1, product(values, raised)),))
    exposed = bool(beside) and not is_safe_form(value, caution)
    wanted = {k: c for k, c in beside.items() if exposed or coordinate in c.type.coordinates}
    value = form(((1, product(values, raised, wanted)),))
    guard |= bounds
    score, guard, doubts = _unmasked(site, key, score, guard)
    rest = product([factor for factor in _less(site.inner, total.atom) if factor not in values], left)
    held = held_beside(site.algebra, site.trail, site.binders, key, guard, form(((1, rest),)))
    inside = product(rest.factors, left, {**held, **{k: c for k, c in beside.items() if k not in wanted}})
    outside = site.outer
    if any(atom is total.atom for atom, _ in outside.factors):
        outside = product(_less(outside, total.atom), outside.exponent, outside.conditions)
    others = [b for b in site.binders if b.coordinate != coordinate]
    kept = score.coordinates.union(inside.coordinates, *(c.type.coordinates for c in guard.values()))
    kept = kept if sink is None else kept | sink.coordinates
    own = [b for b in others if b.coordinate in value.coordinates and b.coordinate not in kept]
    value = summed(value, own, site.algebra)
    empty: Empty = "zero" if sink is not None else _empty(site, total.sum, key, guard, bool(bounds))
    others = [b for b in others if b not in own]
    number = site.number / Fraction(total.number)
    heard = sink is not None and (not guard or keeps_a_key(site.algebra, site.trail, site.binders, key, guard))
    if sink is not None:
        sink = under(sink, held_beside(site.algebra, site.trail, site.binders, key, guard, sink), False)
    outer = tuple(others), inside, outside, number, doubts, sink
    return Gathered(key, score, guard, value, empty, *outer, heard=heard)


def holds_extreme(algebra: Algebra, value: Form, span: Span) -> bool:
    """Whether the largest or the least of some numbers is in this, through definitions too: it may be infinite where a
    row keeps no key."""
    return any(isinstance(part, ir.Reduce) and part.op in ("max", "min") for part in _parts(algebra, value, span))


def _parts(algebra: Algebra, value: Form, span: Span) -> Iterator[ir.Expr]:
    """All expressions in a form, through definitions too."""
    exprs = [written(value, span)]
    names = [name for name in made_of(read_in(*exprs), algebra.lets) if name in algebra.lets]
    exprs += [clause.body for name in names for clause in algebra.lets[name].clauses]
    return (part for expr in exprs for part in walk(expr))


def _may_be_unheard(
    algebra: Algebra, level: Form, share: Product, key: Binder, trail: Trail, binders: tuple[Binder, ...]
) -> bool:
    """Whether a row may keep no key, at which what its scores share may be undefined."""
    if not share.conditions or not any(map(is_open, _parts(algebra, level, key.lower.span))):
        return False
    return not keeps_a_key(algebra, trail, binders, key, share.conditions)


def gather_total(algebra: Algebra, logarithm: Logarithm, trail: Trail, expr: ir.Expr, name: str) -> Gathered | None:
    """The logarithm of a sum of exponentials over one coordinate: what is left of it stands `inside` as an exponent.
    None where it is of anything else."""
    terms = logarithm.weights.terms
    sums = [(number, term) for number, term in terms if len(term.factors) == 1 and is_total(term.factors[0][0])]
    if len(sums) != 1:
        return None
    ((number, term),) = sums
    atom, power = term.factors[0]
    if not isinstance(atom, Sum) or power != 1 or number <= 0 or term.conditions or len(atom.binders) != 1:
        return None
    binders, body = opened(atom, algebra)
    own, share = body.terms[0]
    if len(body.terms) != 1 or own <= 0 or share.factors or share.exponent is None:
        return None
    key = binders[0]
    exponent = inlined(algebra, share.exponent, share.exponent, key.coordinate, NOWHERE)[0]
    exponent = _simplified(algebra, exponent, share.conditions)
    score, level = split(exponent, frozenset((key.coordinate,)))
    apart = ZERO if term.exponent is None else term.exponent
    beside = [
        (Fraction(n) / number / own, product(t.factors, plus(ZERO if t.exponent is None else t.exponent, apart, -1)))
        for n, t in terms
        if t is not term and not t.conditions
    ]
    sink = log_of(form(beside)) if len(beside) == len(terms) - 1 else None
    if score is None or (beside and sink is None) or (sink is not None and key.coordinate in sink.coordinates):
        return None
    if sink is not None and level is not None:
        if _may_be_unheard(algebra, level, share, key, trail, (key,)):
            return None
        sink = plus(sink, level, -1)
    values: list[tuple[Atom, Number]] = [(Leaf(read, "", read.type.coordinates, 0), 1) for read in reads_in(score)]
    guard = dict(share.conditions)
    key, bounds = widened(algebra, key, values)
    site = _Site(algebra, trail, 1, (key,), share, EMPTY, Written(expr, name))
    score, guard, doubts = _unmasked(site, key, score, {**guard, **bounds})
    left = apart if level is None else plus(apart, level)
    left = plus(left, function("log", (constant(number * own),))) if number * own != 1 else left
    inside = product((), left)
    return Gathered(key, score, guard, ONE, "zero", (), inside, EMPTY, 1, doubts, sink, total=True)


def widened(algebra: Algebra, key: Binder, values: list[tuple[Atom, Number]]) -> tuple[Binder, dict[str, ir.Expr]]:
    """A key whose range depends on the query, over the whole axis that it indexes; and the range as a guard."""
    if not key.lower.type.coordinates and not key.upper.type.coordinates:
        return key, {}
    tensors = algebra.program.tensors
    for atom, _ in values:
        if isinstance(atom, Leaf) and isinstance(atom.expr, ir.Read) and atom.expr.tensor in tensors:
            for axis, index in zip(tensors[atom.expr.tensor].axes, atom.expr.indices, strict=True):
                if isinstance(index, ir.Coord) and index.coordinate == key.coordinate:
                    zero = build.whole(0, index.span)
                    bounds = algebra.conditions(build.apply("<", (index, key.upper), "bool", index.span))
                    if text(key.lower) != "0":
                        first = algebra.conditions(build.apply("<=", (key.lower, index), "bool", index.span))
                        bounds = {**first, **bounds}
                    return Binder(key.coordinate, zero, algebra.whole(axis.extent), False), dict(bounds)
    return key, {}


def _less(term: Product, total: Atom) -> list[tuple[Atom, Number]]:
    found = [(atom, power + 1 if atom is total else power) for atom, power in term.factors]
    return [(atom, power) for atom, power in found if power]


# ------------------------------------------------------------------ rows without a key


def _empty(site: _Site, total: Sum, key: Binder, guard: Mapping[str, ir.Expr], bounded: bool) -> Empty:
    """The value of a row without keys: 0 from `softmax`, or where nothing is divided; else 0 / 0. Where points differ
    in that, 0 is given for all."""
    if total.softmax or (bounded and not is_undefined(site.algebra, site.written, total.binders[0])):
        return "zero"
    if not guard or keeps_a_key(site.algebra, site.trail, site.binders, key, guard):
        return "keyless" if is_undefined(site.algebra, site.written, total.binders[0]) else "zero"
    inner, outer = site.inner, site.outer
    return "zero" if guard.keys() & (inner.absent | inner.skipped | outer.absent | outer.skipped) else "nan"


def held_beside(
    algebra: Algebra, trail: Trail, binders: tuple[Binder, ...], key: Binder, guard: Mapping[str, ir.Expr], one: Form
) -> dict[str, ir.Expr]:
    """The conditions under which a factor of the query alone has to have a value, once it stands beside the sum over
    keys that it was in: those on the query, and that it keeps a key. None where the factor has a value everywhere."""
    span = key.lower.span
    safe = not guard or is_safe_form(one, algebra.caution.under(guard.values()))
    if safe and not any(map(is_open, _parts(algebra, one, span))):
        return {}
    pairs = {k: c for k, c in guard.items() if key.coordinate in c.type.coordinates}
    held = {k: c for k, c in guard.items() if k not in pairs}
    if pairs and not keeps_a_key(algebra, trail, binders, key, pairs):
        keys = ir.Range(key.coordinate, key.lower, key.upper, key.stated, span)
        held.update(algebra.conditions(has_keys(keys, build.conjunction(pairs.values()))))
    return held


def has_keys(key: ir.Range, guard: ir.Expr | None = None) -> ir.Expr:
    """Whether there are any keys at all; with a guard, whether it keeps one."""
    if guard is not None:
        return build.reduce("any", (key,), guard, None, "bool", key.span)
    return build.apply("<", (key.lower, key.upper), "bool", key.span)


def keeps_a_key(
    algebra: Algebra, trail: Trail, binders: tuple[Binder, ...], key: Binder, guard: Mapping[str, ir.Expr]
) -> bool:
    """Whether it is certain that every row keeps a key."""
    condition = build.conjunction(guard.values())
    span = key.lower.span
    ranges = tuple(ir.Range(b.coordinate, b.lower, b.upper, b.stated, span) for b in binders)
    weights = build.normalize("softmax", key.coordinate, build.whole(0, span), condition, "real", span)
    return keeps_a_point(weights, (*trail, *ranges), algebra.lets)


# --------------------------------------------------------------- masks by large numbers


def _unmasked(
    site: _Site, key: Binder, score: Form, guard: dict[str, ir.Expr]
) -> tuple[Form, dict[str, ir.Expr], tuple[str, ...]]:
    """A score without the large numbers that keep points out, where a guard can say the same."""
    found: dict[str, ir.Expr] = {}
    terms = []
    score = _complemented(site.algebra, score)
    for number, term in score.terms:
        if term.conditions and not term.factors and term.exponent is None and number <= LARGE:
            found.update(_opposite(site.algebra, term.conditions))
        else:
            terms.append((number, term))
    doubts: tuple[str, ...] = ()
    if found:
        if keeps_a_key(site.algebra, site.trail, site.binders, key, {**guard, **found}):
            guard = {**guard, **found}
            score = form(terms)
        else:
            doubts = ("a large number in the score stands for a guard, and a row might keep no key",)
    return _simplified(site.algebra, score, guard), arranged(guard), doubts


def _opposite(algebra: Algebra, conditions: Mapping[str, ir.Expr]) -> Mapping[str, ir.Expr]:
    condition = build.conjunction(conditions.values())
    assert condition is not None
    return algebra.canonical.conditions(condition, False)


def _complemented(algebra: Algebra, score: Form) -> Form:
    """`c - c * x`, for an `x` that is 1 where a condition holds and else 0, as `c` where it fails."""
    terms = list(score.terms)
    for number, term in score.terms:
        if term.scalar:
            key = "·".join(atom.key for atom, _ in term.factors)
            for other in score.terms:
                same = "·".join(atom.key for atom, _ in other[1].factors) == key and other[1].exponent is None
                if same and other[0] == -number and other[1].conditions:
                    terms.remove((number, term))
                    terms.remove(other)
                    terms.append((number, product(term.factors, None, _opposite(algebra, other[1].conditions))))
                    break
    return form(terms)


def _simplified(algebra: Algebra, score: Form, guard: Mapping[str, ir.Expr]) -> Form:
    """A score where the guard holds: its conditions need not be asked again."""
    terms = []
    for number, term in score.terms:
        left = {k: c for k, c in term.conditions.items() if k not in guard}
        if any(set(algebra.canonical.conditions(c, False)) <= guard.keys() for c in left.values()):
            continue
        terms.append((number, product(term.factors, term.exponent, left) if term.conditions else term))
    return form(terms)


def placed(algebra: Algebra, found: Gathered, read: ir.Read) -> Form:
    """The term with a read in place of its attention."""
    key = f"1{text(read)}" if read.indices else f"0{text(read)}"
    atom = Leaf(read, key, read.type.coordinates, 0)
    inner = multiplied(found.inside, product(((atom, 1),)))
    result = summed(form(((1, inner),)), found.others, algebra)
    return form((found.number * own, multiplied(found.outside, term)) for own, term in result.terms)
