"""Cross-entropy, however it is spelled: the logarithm of a sum of exponentials, less the number at one class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ...ir.types import Coordinate
from ...records import replace
from ..ops import Axis, Iota, Library, Map, Normalize, Read, Reduce, Value, Write, apply, value
from ..order import reachable
from .patterns import Found, No, Target
from .terms import Term, added, cast, factors_of, names_of, terms_of, total

CROSS_ENTROPY = "cross_entropy"
_MOST = 8  # Terms that are looked at: the last of a stack of layers is a sum of them all.
_DEPTH = 2  # Logarithms and reads that are taken apart inside each other.


def is_logarithm(one: Value) -> bool:
    """Whether a value may be the logarithm of weights for all classes."""
    return isinstance(one.op, Map | Normalize) and one.op.fn in ("+", "-", "log", "log_softmax")


def cross_entropy(one: Value, found: Found, target: Target) -> Value | No | None:
    """The logarithm of a sum of exponentials, less the number at one class for each row, and other terms."""
    if CROSS_ENTROPY not in target.kernels or one.dtype not in ("f32", "f64"):
        return None
    refused = None
    terms = _read_apart(one.op, _DEPTH) if isinstance(one.op, Read) else _terms(one, _DEPTH)
    for whole, exponent, classes in _totals(terms):
        for read in terms:
            if read.positive == whole.positive or not isinstance(read.value.op, Read):
                continue
            loss = _loss(read.value.op, classes)
            if not isinstance(loss, Library):
                refused = refused or loss
                continue
            others = [term for term in terms if term is not whole and term is not read]
            # What the exponents have in excess of the logits is the same for all classes, and stands beside the loss.
            logits = loss.args[0]
            exponents = _signed(exponent, whole.positive)
            beside = [_as_among(exponents, part) for term in others for part in _signed(term.value, term.positive)]
            rest, gone = _cancelled([*exponents, *_signed(logits, not whole.positive), *beside])
            if any(classes.name in term.value.names for term in rest) or _refuses(gone) - _refuses(loss.args):
                continue
            if read.value.op.outside == "masked" or read.value.op.under is not None:
                return No("a place that a guard removes may be no class", "cross-entropy")
            return added([Term(value(loss), whole.positive), *rest])
    return refused


def _loss(read: Read, classes: Axis) -> Library | No | None:
    """The cross-entropy at the class that is read."""
    name, index = classes.name, dict(read.index)
    place = index.pop(name, None)
    logits = value(Read(read.source, tuple(index.items()), read.outside)) if index else read.source
    rows = logits.names - {name}
    if place is None or classes not in logits.axes:
        return None
    if place.names != rows or not rows:
        return No("there is not one class for each row")
    if read.outside == "check":  # The places themselves, each refused where it is none.
        place = value(Read(value(Iota(classes)), ((name, place),), "check"))
    order = tuple(sorted(rows))
    layouts = (("", (order, (name,))), ("", (order,)))
    axes = tuple(logits.axis(row) for row in order)
    words = (("reduction", "none"),)
    return Library(CROSS_ENTROPY, (logits, cast(place, "i64")), layouts, axes, (order,), words, "real", logits.dtype)


def reduce_loss(one: Value, found: Found, target: Target) -> Value | No | None:
    """The sum or the mean of the loss of all rows, or of less it, is the kernel's own."""
    reduced, loss = one.op, found["loss"].op
    assert isinstance(reduced, Reduce)
    assert isinstance(loss, Library)
    if loss.kernel != CROSS_ENTROPY:
        return None
    if reduced.where is not None:
        return No("a guard leaves out some rows, and the kernel adds up all")
    if names_of(reduced.over) != names_of(loss.axes):
        return No("the kernel adds up along all axes of its rows, and not along some")
    whole = value(replace(loss, axes=(), result=(), words=(("reduction", reduced.fn),)))
    return whole if reduced.source is found["loss"] else apply("neg", whole)


def _totals(terms: Sequence[Term]) -> Iterator[tuple[Term, Value, Axis]]:
    """The terms that are the logarithm of a sum of exponentials, with the exponent and the axis of the sum."""
    for term in terms:
        match term.value.op:
            case Map("log", (Value(op=Reduce("sum", Value(op=Map("exp", (exponent,))), (axis,), None)),)):
                yield term, exponent, axis


# ---------------------------------------------------------------------- taken apart


def _signed(one: Value, positive: bool) -> list[Term]:
    """What is added up to a value, or to less it, with reads of sums as reads of each term."""
    found: list[Term] = []
    for term in terms_of(one, _MOST):
        inner = [Term(term.value)]
        match term.value.op:
            case Read(outside="never" | "check", under=None) as read:
                inner = [Term(_read_at(read, part.value), part.positive) for part in terms_of(read.source, _MOST)]
        found += [Term(part.value, (part.positive == term.positive) == positive) for part in inner]
    return found


def _read_at(read: Read, source: Value) -> Value:
    """Another array, read where one is read, along the axes that it has."""
    index = tuple((name, at) for name, at in read.index if name in source.names)
    return value(replace(read, source=source, index=index)) if index else source


def _terms(one: Value, depth: int) -> list[Term]:
    """What is added up to a value, with the logarithms of weights, and reads of these, taken apart."""
    terms = terms_of(one, _MOST)
    if depth == 0:
        return terms
    found: list[Term] = []
    for term in terms:
        inner = [Term(term.value)]
        match term.value.op:
            case Map("log", (weights,)):
                inner = _logarithm(weights, depth - 1) or inner
            case Normalize("log_softmax", source, along, None):
                inner = _log_softmax(source, along)
            case Read(outside="never" | "check", under=None) as read:
                inner = _read_apart(read, depth - 1)
        found += [Term(part.value, part.positive == term.positive) for part in inner]
    return found


def _log_softmax(source: Value, along: Axis) -> list[Term]:
    return [Term(source), Term(_log_total(source, along), False)]


def _log_total(exponent: Value, axis: Axis) -> Value:
    return apply("log", total(apply("exp", exponent), (axis,)))


def _logarithm(weights: Value, depth: int) -> list[Term]:
    """What is added up to the logarithm of a product of exponentials, of sums of these and of softmaxes: none of these
    is below 0. Nothing, of any other product."""
    found: list[Term] = []
    for factor in factors_of(weights):
        match factor.value.op:
            case Map("exp", (exponent,)):
                inner = [Term(exponent)]
            case Reduce("sum", Value(op=Map("exp")), _, None):
                inner = [Term(apply("log", factor.value))]
            case Normalize("softmax", source, along, None):
                inner = _log_softmax(source, along)
            case Read(source, index, "never" | "check" as outside, None):
                inner = _read_apart(Read(apply("log", source), index, outside), depth)
            case _:
                return []
        found += [Term(part.value, part.positive != factor.inverse) for part in inner]
    return found


def _read_apart(read: Read, depth: int) -> list[Term]:
    """A read of a sum with a total as reads of its terms: of those together that have the same axes which are read. A
    total is that of the exponents which are read."""
    terms = _terms(read.source, depth)
    if len(terms) > 1 and not any(_totals(terms)):
        return [Term(value(read))]
    groups: dict[frozenset[Coordinate], list[Term]] = {}
    for term in terms:
        groups.setdefault(term.value.names.intersection(dict(read.index)), []).append(term)
    found = groups.pop(frozenset(), [])
    for names, group in groups.items():
        own = replace(read, index=tuple((name, at) for name, at in read.index if name in names))
        totals = [each for each in _totals(group) if all(each[2].name not in at.names for _, at in own.index)]
        for whole, exponent, axis in totals:
            found.append(Term(_log_total(_read_at(own, exponent), axis), whole.positive))
        rest = [term for term in group if all(term is not whole for whole, _, _ in totals)]
        if rest:
            found.append(Term(_read_at(own, added(rest))))
    return found


def _as_among(exponents: Sequence[Term], term: Term) -> Term:
    """A term as it stands among the exponents: a read that is inside where there is a class, which the loss sees to."""
    match term.value.op:
        case Read(source, index, "check", None):
            same = value(Read(source, index, "masked"))
            return Term(same, term.positive) if any(same is other.value for other in exponents) else term
    return term


def _cancelled(terms: Iterable[Term]) -> tuple[list[Term], list[Value]]:
    """The terms without those that are added and subtracted, and the latter."""
    times: Counter[Value] = Counter()
    given = list(terms)
    for term in given:
        times[term.value] += 1 if term.positive else -1
    rest = [Term(one, count > 0) for one, count in times.items() for _ in range(abs(count))]
    left = {term.value for term in rest}
    return rest, [one for one in times if one not in left]


def _refuses(values: Iterable[Value]) -> set[object]:
    """What values are made of that is refused at some numbers, and the places that are, each with its axis."""
    found: set[object] = set()
    for one in reachable(values):
        match one.op:
            case Read(source, index, "check", under):
                found.update((source.axis(name), at, under) for name, at in index)
            case Write(outside="check") | Map(checked=True) | Reduce(checked=True) | Normalize(checked=True):
                found.add(one)
    return found
