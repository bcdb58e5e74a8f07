"""Weights by name: every softmax of a program is a definition, and no two definitions are the same softmax."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ....facts.distributions import ranking
from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.canonical import text
from ....ir.algebra.contents import Contents
from ....ir.conditions import conjuncts_of
from ....ir.types import Coordinate
from ....ir.walk import children, fresh_name, is_bare, reads_of, rebuild, substitute, walk
from ....records import dataclass, field, replace
from .ordering import definition, preceded
from .reach import reach

Scope = Mapping[Coordinate, ir.Range]


def may_flow_back(program: ir.Program, contents: Contents) -> bool:
    """Whether softmaxes might be used in another way than each to gather, once in a definition: known before they have
    names."""
    known = {let.name: weights_of(_guarded_within(let)) for let in program.lets}
    weights = {name: whole for name, whole in known.items() if whole is not None}
    for let in program.lets:
        own = {slot.coordinate for clause in let.clauses for slot in clause.slots if isinstance(slot, ir.Coord)}
        parts = [part for part in contents.operations(let) if isinstance(part, ir.Normalize) and part.op == "softmax"]
        inside = [part for part in parts if let.name not in weights or part is not let.clauses[0].body]
        reads = [read for read in reads_of(let) if read.tensor in weights]
        keys = [_key_of(program.definitions[read.tensor], weights[read.tensor]) for read in reads]
        asked = [read.indices[key].type.coordinates for read, key in zip(reads, keys, strict=True)]
        asked += [frozenset((part.coordinate,)) for part in inside]
        if len(asked) > 1 or any(coordinates & own for coordinates in asked):
            return True
    return False


def _key_of(let: ir.Let, weights: ir.Normalize) -> int:
    """The axis along which weights are normalised."""
    coordinates = [slot.coordinate for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)]
    return coordinates.index(weights.coordinate)


def name_softmaxes(program: ir.Program, needed: set[str]) -> ir.Program:
    """The same program with a definition for every softmax inside of an expression; where one is written twice, in
    place or under another name, all read the first."""
    naming = _Naming(program)
    before: dict[str, list[ir.Let]] = {}
    for item in program.order:
        if isinstance(item, ir.Once) and item.name in needed:
            made = len(naming.made)
            naming.define(item.name)
            before[item.name] = naming.made[made:]
    return preceded(program, before, naming.lets) if naming.changed else program


def weights_of(let: ir.Let) -> ir.Normalize | None:
    """The softmax that a definition is; None where it is none, or more than that."""
    if len(let.clauses) != 1 or let.clauses[0].guard is not None:
        return None
    clause = let.clauses[0]
    body = clause.body
    if not isinstance(body, ir.Normalize) or body.op != "softmax":
        return None
    slots = [slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord)]
    starts = all(r.from_zero for r in clause.ranges)
    return body if len(slots) == len(clause.slots) and starts and body.coordinate in slots else None


def gathering_by_place(program: ir.Program) -> set[str]:
    """The definitions that gather with weights which are built anyway: with these a table is read at a place of query
    and key, and they are added up for each place. A kernel would compute the same weights once more."""
    weights = {let.name for let in program.lets if weights_of(let) is not None}
    if not weights:
        return set()
    reads = {let.name: list(reads_of(let)) for let in program.lets}
    readers = [let for let in program.lets if any(read.tensor in weights for read in reads[let.name])]
    clauses = (clause for let in readers for clause in let.clauses)
    sums = ((part, clause) for clause in clauses for part in walk(clause.body) if isinstance(part, ir.Reduce))
    lets = program.definitions
    built = {name for part, clause in sums for name in _added_up(part, clause, weights, lets)}
    return {name for name, read in reads.items() if any(one.tensor in built for one in read)}


def _added_up(expr: ir.Reduce, clause: ir.Clause, weights: set[str], lets: Mapping[str, ir.Let]) -> set[str]:
    """The weights of a sum in which a table is read at a place of its key and of something else that is counted, and
    has coordinates that these have not."""
    reads = [part for part in walk(expr.body) if isinstance(part, ir.Read)]
    asked = build.varying(read for read in reads if read.tensor in weights)
    ranges = {range.coordinate: range for range in (*clause.ranges, *expr.ranges)}
    for read in reads:
        places = [index for index in read.indices if not isinstance(index, ir.Coord)]
        if len(places) != 1 or read.type.coordinates <= asked:
            continue
        varies = places[0].type.coordinates
        if len(varies) > 1 and varies & expr.coordinates and reach(places[0], ranges, lets).highest is not None:
            return {read.tensor for read in reads} & weights
    return set()


def gathering_selected(program: ir.Program, contents: Contents) -> set[str]:
    """The definitions that sum over the first of a ranking, `rank[j](…) < 64`, or under weights of these: there are
    places of so many, and no other is read."""
    lets = program.definitions
    guards = ((let.name, guard) for let in program.lets for guard in _guards(contents.operations(let)))
    selected = {name for name, guard in guards if _is_selection(guard, lets)}
    if not selected:
        return selected
    return selected | {let.name for let in program.lets if any(read.tensor in selected for read in reads_of(let))}


def _guards(parts: Iterable[ir.Expr]) -> Iterator[ir.Expr]:
    """The guards of what is reduced or normalised."""
    for part in parts:
        if isinstance(part, _GUARDED) and part.guard is not None:
            yield part.guard


_GUARDED = (ir.Reduce, ir.Normalize)


def _is_selection(guard: ir.Expr, lets: Mapping[str, ir.Let]) -> bool:
    return any(first_places(fact, lets) is not None for fact in conjuncts_of(guard))


def first_places(fact: ir.Expr, lets: Mapping[str, ir.Let]) -> tuple[ir.Normalize, int] | None:
    """The ranking and the number in `rank[j](…) < 64`, whichever way round it is written."""
    match fact:
        case ir.Map("<" | "<=" as op, (place, ir.Const(int(limit)))):
            pass
        case ir.Map(">" | ">=" as op, (ir.Const(int(limit)), place)):
            pass
        case _:
            return None
    order = ranking(place, lets)
    return None if order is None else (order, limit + ("=" in op))


def _guarded_within(let: ir.Let) -> ir.Let:
    """A definition that is a softmax under a guard on its queries, with the guard in the softmax: both are 0 there."""
    clause = let.clauses[0]
    if clause.guard is None:
        return let
    whole = weights_of(replace(let, clauses=(replace(clause, guard=None), *let.clauses[1:])))
    if whole is None or whole.coordinate in clause.guard.type.coordinates:
        return let
    guard = build.conjunction((clause.guard, whole.guard))
    body = build.normalize("softmax", whole.coordinate, whole.body, guard, "real", whole.span)
    return replace(let, clauses=(replace(clause, guard=None, body=body),))


@dataclass
class _Naming:
    program: ir.Program
    made: list[ir.Let] = field(default_factory=list)
    known: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    same: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    changed: bool = False

    def __post_init__(self) -> None:
        self.lets = dict(self.program.definitions)

    def define(self, name: str) -> None:
        """A definition that is a softmax is known from here on; any other reads those that are."""
        let = _guarded_within(self.lets[name])
        if let is not self.lets[name]:
            self.changed = True
            self.lets[name] = let
        clauses = []
        for clause in let.clauses:
            scope = {r.coordinate: r for r in clause.ranges}
            body = self.rewritten(clause.body, scope, weights_of(let) is not None)
            clauses.append(clause if body is clause.body else replace(clause, body=body))
        if any(new is not old for new, old in zip(clauses, let.clauses, strict=True)):
            self.changed = True
            let = self.lets[name] = replace(let, clauses=tuple(clauses))
        whole = weights_of(let)
        if whole is None:
            return
        slots = [slot.coordinate for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)]
        key, order = _shape(whole, {r.coordinate: r for r in let.clauses[0].ranges})
        if set(order) != set(slots):
            return
        places = tuple(order.index(c) for c in slots)
        if key in self.known:
            other, theirs = self.known[key]
            self.same[name] = (other, tuple(places.index(p) for p in theirs))
        else:
            self.known[key] = (name, places)

    def rewritten(self, expr: ir.Expr, scope: Scope, itself: bool = False) -> ir.Expr:
        """An expression that reads weights by the one name they have; not where it is what has that name `itself`."""
        if isinstance(expr, ir.Reduce):
            scope = {**scope, **{r.coordinate: r for r in expr.ranges}}
        parts = children(expr)
        changed = [self.rewritten(child, scope) for child in parts]
        if any(new is not old for new, old in zip(changed, parts, strict=True)):
            waiting = iter(changed)
            expr = rebuild(expr, lambda _: next(waiting))
        match expr:
            case ir.Read(tensor, indices) if tensor in self.same:
                other, order = self.same[tensor]
                return build.read(other, tuple(indices[n] for n in order), "real", expr.span)
            case ir.Normalize("softmax") if not itself and is_bare(expr):
                return self.named(expr, scope)
            case _:
                return expr

    def named(self, expr: ir.Normalize, scope: Scope) -> ir.Expr:
        ranges = {c: scope[c] for c in scope if c in expr.type.coordinates}
        if not all(r.is_counted for r in ranges.values()):
            return expr
        key, order = _shape(expr, ranges)
        if key in self.known:
            name, places = self.known[key]
            indices = tuple(build.coord(order[n], expr.span) for n in places)
            return build.read(name, indices, "real", expr.span)
        name = self._fresh()
        own = (*(c for c in ranges if c != expr.coordinate), expr.coordinate)
        self.made.append(definition(name, [ranges[c] for c in own], expr))
        self.known[key] = (name, tuple(order.index(c) for c in own))
        return build.read(name, tuple(build.coord(c, expr.span) for c in own), "real", expr.span)

    def _fresh(self) -> str:
        return fresh_name("weights", self.program.tensors.keys() | {let.name for let in self.made})


def _shape(expr: ir.Normalize, ranges: Scope) -> tuple[str, list[Coordinate]]:
    """A softmax as text that no name of a coordinate takes part in, and the coordinates in the order in which they are
    met in it."""
    met = [part.coordinate for part in walk(expr) if isinstance(part, ir.Coord | ir.Normalize)]
    order = [c for c in dict.fromkeys(met) if c in expr.type.coordinates]
    marks: dict[Coordinate, ir.Expr] = {c: build.coord(Coordinate(f"'{n}"), expr.span) for n, c in enumerate(order)}
    limits = ";".join(f"{text(ranges[c].lower)}..{text(ranges[c].upper)}" for c in order)
    return f"{text(substitute(expr, marks))} {limits}", order
