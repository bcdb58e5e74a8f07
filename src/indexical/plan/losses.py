"""Cross-entropy, in any definition that spells it out: e to less the loss is the softmax of `x[i, c]` over `c`, at the
class `t[i]`; for each point, added up or the mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.canonical import text
from ..ir.algebra.normal import Binder, Form, Logarithm, Product, Sum, TooLarge, form, plus
from ..ir.algebra.normalize import Algebra
from ..ir.algebra.predicates import reads_in
from ..ir.algebra.sums import replaced
from ..ir.algebra.writing import written
from ..ir.graph import reached
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, at, fresh, reads_of, walk
from ..records import dataclass

Lets: TypeAlias = Mapping[str, ir.Let]
Reduction: TypeAlias = Literal["none", "sum", "mean"]


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """The cross-entropy of `logits` and the class `target`, which is one of those of `classes`: at each point of
    `rows`, added up or their mean. `read` is the tensor that has a class as its index, `totals` are the definitions
    with the sums over all classes, which need not be built."""

    logits: ir.Expr
    classes: ir.Range
    target: ir.Expr
    rows: tuple[ir.Range, ...]
    reduction: Reduction
    read: str
    totals: frozenset[str]

    @property
    def parts(self) -> tuple[ir.Expr, ...]:
        """The expressions that have to be evaluated."""
        return (self.logits, self.target)


def find_losses(program: ir.Program, names: Iterable[str]) -> dict[str, CrossEntropy]:
    """The definitions among these that are a cross-entropy."""
    lets = program.definitions
    chosen = {name: lets[name] for name in names}
    logarithms = {name for name in chosen if _has_logarithm(lets[name])}
    if not logarithms:
        return {}
    algebra = Algebra(program)
    found = {}
    for name, let in chosen.items():
        if name in logarithms or not logarithms.isdisjoint(read.tensor for read in reads_of(let)):
            logarithms.add(name)
            loss = _find(let, chosen, algebra)
            if loss is not None:
                found[name] = loss
    return found


def _has_logarithm(let: ir.Let) -> bool:
    parts = (part for clause in let.clauses for part in walk(clause.body))
    return any(isinstance(part, ir.Map | ir.Normalize) and part.op in ("log", "log_softmax") for part in parts)


def _find(let: ir.Let, lets: Lets, algebra: Algebra) -> CrossEntropy | None:
    """The cross-entropy that a definition is; None where it is anything else."""
    clause = _plain(let)
    if clause is None or let.kind != "real":
        return None
    body, minus, reduction, rows = clause.body, False, _NONE, clause.ranges
    while True:
        match body:
            case ir.Map("neg", (inner,)):
                body, minus = inner, not minus
            case ir.Reduce("sum" | "mean" as op, ranges, inner, None) if reduction == "none" and not let.axes:
                body, reduction, rows = inner, op, ranges
            case ir.Read(tensor) if tensor in lets and (opened := _opened(body, lets[tensor])) is not None:
                body = opened
            case _:
                break
    if any(limit.type.coordinates for range in rows for limit in (range.lower, range.upper)) or not rows:
        return None
    loss = body if minus else build.apply("neg", (body,), "real", body.span)
    return _at_class(loss, rows, reduction, let, lets, algebra)


_NONE: Reduction = "none"


def _plain(let: ir.Let) -> ir.Clause | None:
    """The only clause of a definition, where it has no guard and all of its slots are coordinates."""
    clause = let.clauses[0]
    if len(let.clauses) > 1 or clause.guard is not None:
        return None
    return clause if all(isinstance(slot, ir.Coord) for slot in clause.slots) else None


def _opened(read: ir.Read, let: ir.Let) -> ir.Expr | None:
    """The definition that is read, at these indices; None where that cannot be written down."""
    inside = _plain(let)
    return None if inside is None else at(inside, inside.body, read.indices)


def _at_class(
    logarithm: ir.Expr, rows: tuple[ir.Range, ...], reduction: Reduction, let: ir.Let, lets: Lets, algebra: Algebra
) -> CrossEntropy | None:
    """The logarithm of a softmax at one class for each row."""
    bound = {range.coordinate: range for range in rows}
    algebra.work = algebra.depth = 0
    try:
        weights = _weights(_exponential(logarithm, bound, algebra), algebra, set(bound))
        if weights is None:
            return None
        above, below, classes = weights
        for target in _classes_read(above, bound.keys()):
            there = replaced(below, {classes.coordinate: target}, algebra)
            if not plus(there, above, -1).terms:
                break
        else:
            return None
    except (TooLarge, Inexpressible):
        return None
    varying = form(term for term in below.terms if classes.coordinate in term[1].coordinates)
    logits = written(varying, logarithm.span)
    if logits.type.coordinates != bound.keys() | {classes.coordinate} or not _is_all(logits, classes, algebra):
        return None
    read = next((part.tensor for part in walk(logarithm) if isinstance(part, ir.Read) and target in part.indices), "")
    spared = lets.keys() & _read_through(reads_of(let), lets) - _read_through((*walk(logits), *walk(target)), lets)
    totals = {name for name in spared if any(_is_total(p) for clause in lets[name].clauses for p in walk(clause.body))}
    return CrossEntropy(logits, classes, target, rows, reduction, read or let.name, frozenset(totals))


def _exponential(logarithm: ir.Expr, scope: Mapping[Coordinate, ir.Range], algebra: Algebra) -> Form:
    """e to an expression. A definition that is a logarithm of weights has these at any class, however it is written."""
    inner = algebra.definition(logarithm.tensor) if isinstance(logarithm, ir.Read) else None
    match () if inner is None else inner.terms:
        case ((1, Product(((Logarithm(weights=weights), 1),), None, conditions)),) if not conditions:
            assert isinstance(logarithm, ir.Read)
            slots = algebra.lets[logarithm.tensor].clauses[0].slots
            values = {s.coordinate: i for s, i in zip(slots, logarithm.indices, strict=True) if isinstance(s, ir.Coord)}
            return replaced(weights, {c: algebra.whole(index) for c, index in values.items()}, algebra)
    return algebra.form(build.apply("exp", (logarithm,), "real", logarithm.span), scope)


def _weights(value: Form, algebra: Algebra, taken: set[Coordinate]) -> tuple[Form, Form, ir.Range] | None:
    """The exponents above and below the line of a softmax, and the classes that it sums over."""
    if len(value.terms) != 1:
        return None
    number, term = value.terms[0]
    match term.factors:
        case ((Sum((Binder() as binder,), body), -1),) if number == 1 and not term.conditions:
            if term.exponent is None or body.exponent is None or body.factors or body.conditions:
                return None
            span = binder.upper.span
            named = binder.upper.coordinate if isinstance(binder.upper, ir.Size) else Coordinate("c")
            classes = ir.Range(fresh(named, {c.name for c in taken}), binder.lower, binder.upper, binder.stated, span)
            if not classes.is_counted:
                return None
            at_class = {binder.coordinate: build.coord(classes.coordinate, span)}
            return term.exponent, replaced(body.exponent, at_class, algebra), classes
    return None


def _classes_read(value: Form, rows: Iterable[Coordinate]) -> Iterable[ir.Expr]:
    """The indices in a form that may be a class for each row."""
    for read in reads_in(value):
        for index in read.indices:
            own = index.type.coordinates
            if not isinstance(index, ir.Coord) and own and own <= set(rows):
                yield index


def _is_all(logits: ir.Expr, classes: ir.Range, algebra: Algebra) -> bool:
    """Whether there is no other class than those that are summed over: what is read at another is out of bounds."""
    tensors = algebra.program.tensors
    for part in walk(logits):
        if not isinstance(part, ir.Read):
            continue
        for index, axis in zip(part.indices, tensors[part.tensor].axes, strict=True):
            if classes.coordinate not in index.type.coordinates:
                continue
            same = not classes.stated or text(algebra.whole(axis.extent)) == text(classes.upper)
            if not isinstance(index, ir.Coord) or not same:
                return False
    return True


def _read_through(parts: Iterable[ir.Expr], lets: Lets) -> set[str]:
    """The tensors that are read in some parts, through definitions too."""
    start = [part.tensor for part in parts if isinstance(part, ir.Read)]
    return set(reached(start, lambda name: [read.tensor for read in reads_of(lets[name])] if name in lets else []))


def _is_total(part: ir.Expr) -> bool:
    return isinstance(part, ir.Normalize) or (isinstance(part, ir.Reduce) and part.op == "sum")
