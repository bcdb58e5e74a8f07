"""A Program made ready to be written: only what is needed, in the order of reading, each definition a whole box."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heappop, heappush

from ..ir import build
from ..ir import nodes as ir
from ..ir.context import constants_of
from ..ir.graph import components
from ..ir.needs import asserted, made_of, needed, read_in
from ..ir.prove import Assumptions
from ..ir.types import Coordinate
from ..ir.walk import fresh, reads_of, rebuild, substitute, walk
from ..records import replace


def arranged(program: ir.Program) -> ir.Program:
    """The same Program, without what only its expectations need and without these."""
    program = _needed(_unproved(program))
    program = replace(program, lets=tuple(_from_zero(let) for let in program.lets), order=())
    program = _rests_first(_without_aliases(_inputs_apart(program)))
    return replace(program, lets=tuple(_in_order(program)))


def ranges_in(clause: ir.Clause) -> Iterator[ir.Range]:
    """Every range that a clause binds."""
    yield from clause.ranges
    for part in (clause.body, *(() if clause.guard is None else (clause.guard,))):
        for node in walk(part):
            if isinstance(node, ir.Reduce):
                yield from node.ranges


# ----------------------------------------------------------------- what is needed


def _unproved(program: ir.Program) -> ir.Program:
    """The assertions that are left for the run."""
    known = Assumptions(constants=constants_of(program.definitions))
    left = tuple(claim for claim in program.asserts if not known.proves(claim.condition))
    return replace(program, asserts=left)


def _needed(program: ir.Program) -> ir.Program:
    """Keep what stands in the text, unless only expectations read it; of what was brought along, only what is read."""
    lets = program.definitions
    contracts = tuple(contract for contract in program.contracts if contract.name in lets)
    wanted = needed(program, (*program.outputs, *(contract.name for contract in contracts)))
    expected = _closure(read_in(*(expect.body for expect in program.expects)), lets)
    idle = [name for name, let in lets.items() if not let.hidden and name not in expected]
    kept = wanted | _closure(idle, lets)
    return replace(
        program,
        lets=tuple(let for let in program.lets if let.name in kept),
        contracts=contracts,
        expects=(),
    )


def _closure(names: Iterable[str], lets: dict[str, ir.Let]) -> set[str]:
    """The definitions that some are made of."""
    return lets.keys() & made_of(names, lets)


# ------------------------------------------------------------------ a whole box


def _from_zero(let: ir.Let) -> ir.Let:
    """A captured coordinate that starts later starts at 0, and the points before are absent: they are never read."""
    if not let.captured:
        return let
    return replace(let, captured=0, clauses=tuple(_clause_from_zero(clause, let.captured) for clause in let.clauses))


def _clause_from_zero(clause: ir.Clause, captured: int) -> ir.Clause:
    leading = {slot.coordinate for slot in clause.slots[:captured] if isinstance(slot, ir.Coord)}
    conditions: list[ir.Expr] = []
    ranges: list[ir.Range] = []
    for range in clause.ranges:
        if range.coordinate in leading and not build.is_number(range.lower, 0):
            here = build.coord(range.coordinate, range.span)
            conditions.append(build.apply(">=", (here, range.lower), "bool", range.span))
            range = replace(range, lower=build.whole(0, range.span), stated=True)
        ranges.append(range)
    guard = build.conjunction((*conditions, clause.guard))
    return replace(clause, ranges=tuple(ranges), guard=guard)


# ------------------------------------------------------------------------ inputs


def _inputs_apart(program: ir.Program) -> ir.Program:
    """Inputs that share a coordinate share its size: one of another length gets another name. Constants of the
    program are written out in their sizes."""
    lets = program.definitions
    owned = {axis.coordinate: axis.extent for tensor in program.inputs for axis in tensor.axes if _is_own(axis)}
    taken = {c.name for tensor in program.inputs for c in (axis.coordinate for axis in tensor.axes)}
    taken |= {range.coordinate.name for let in program.lets for c in let.clauses for range in ranges_in(c)}
    inputs = []
    for tensor in program.inputs:
        axes = []
        for axis in tensor.axes:
            extent = _without_constants(axis.extent, lets)
            coordinate = axis.coordinate
            if owned.setdefault(coordinate, extent) != extent:
                coordinate = fresh(coordinate, taken)
                taken.add(coordinate.name)
            axes.append(ir.Axis(coordinate, extent))
        inputs.append(replace(tensor, axes=tuple(axes)))
    return replace(program, inputs=tuple(inputs))


def _is_own(axis: ir.Axis) -> bool:
    return isinstance(axis.extent, ir.Size) and axis.extent.coordinate == axis.coordinate


def _without_constants(expr: ir.Expr, lets: Mapping[str, ir.Let]) -> ir.Expr:
    if isinstance(expr, ir.Read) and not expr.indices and expr.tensor in lets:
        return _without_constants(lets[expr.tensor].clauses[0].body, lets)
    return rebuild(expr, lambda inner: _without_constants(inner, lets))


# ----------------------------------------------------------------------- aliases


def _without_aliases(program: ir.Program) -> ir.Program:
    """`let o = norm(X);` is what the function's result is, under the name and the coordinates of `o`."""
    lets = dict(program.definitions)
    reads = Counter(read.tensor for let in program.lets for read in reads_of(let))
    reads.update(asserted(program))
    for name in [let.name for let in program.lets]:
        while name in lets and (repeated := _repeated(lets[name], lets, reads)) is not None:
            lets[name] = _under_name(lets[name], repeated)
            del lets[repeated.name]
    return replace(program, lets=tuple(lets[let.name] for let in program.lets if let.name in lets))


def _repeated(let: ir.Let, lets: Mapping[str, ir.Let], reads: Counter[str]) -> ir.Let | None:
    """Return the definition that this one repeats point by point, if nothing else reads it."""
    if len(let.clauses) > 1 or let.clauses[0].guard is not None:
        return None
    clause = let.clauses[0]
    body = clause.body
    if not isinstance(body, ir.Read) or body.indices != clause.slots or body.tensor not in lets:
        return None
    found = lets[body.tensor]
    plain = len(found.clauses) == 1 and found.clauses[0].guard is None
    plain = plain and all(isinstance(slot, ir.Coord) for slot in (*found.clauses[0].slots, *clause.slots))
    alike = [axis.extent for axis in found.axes] == [range.upper for range in clause.ranges]
    whole = all(build.is_number(range.lower, 0) for range in (*clause.ranges, *found.clauses[0].ranges))
    ordered = tuple(range.coordinate for range in clause.ranges) == tuple(slot for slot in _slots(clause))
    once = found.hidden and found is not let and reads[found.name] == 1
    return found if once and plain and alike and whole and ordered and found.kind == let.kind else None


def _slots(clause: ir.Clause) -> Iterator[Coordinate]:
    return (slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord))


def _under_name(let: ir.Let, found: ir.Let) -> ir.Let:
    old, clause = let.clauses[0], found.clauses[0]
    names = dict(zip(_slots(clause), _slots(old), strict=True))
    values: dict[Coordinate, ir.Expr] = {
        coordinate: build.coord(name, old.span) for coordinate, name in names.items() if coordinate != name
    }
    ranges = tuple(replace(range, coordinate=names[range.coordinate]) for range in clause.ranges)
    body = substitute(clause.body, values)
    return replace(let, clauses=(replace(clause, slots=old.slots, ranges=ranges, body=body),))


# ------------------------------------------------------------------ leading rests


def _rests_first(program: ir.Program) -> ir.Program:
    """`..r` leads its bracket: the axes of what was brought along are put in such an order."""
    orders = {let.name: _order(let) for let in program.lets if let.hidden}
    moved = {name: order for name, order in orders.items() if order != sorted(order)}
    if not moved:
        return program

    def change(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, change)
        if isinstance(expr, ir.Read) and expr.tensor in moved:
            return replace(expr, indices=tuple(expr.indices[at] for at in moved[expr.tensor]))
        return expr

    lets = []
    for let in program.lets:
        order = moved.get(let.name, list(range(len(let.axes))))
        clauses = tuple(
            replace(
                clause,
                slots=tuple(clause.slots[at] for at in order),
                body=change(clause.body),
                guard=clause.guard and change(clause.guard),
            )
            for clause in let.clauses
        )
        lets.append(replace(let, axes=tuple(let.axes[at] for at in order), clauses=clauses))
    asserts = tuple(replace(claim, condition=change(claim.condition)) for claim in program.asserts)
    return replace(program, lets=tuple(lets), asserts=asserts)


def _order(let: ir.Let) -> list[int]:
    return sorted(range(len(let.axes)), key=lambda at: not let.axes[at].coordinate.rest)


# -------------------------------------------------------------- order of reading


def _in_order(program: ir.Program) -> list[ir.Let]:
    """Each definition after all that it reads, but for recurrences; else as they stood. What was brought along
    stands just before what first needs it, and derivatives behind all the others."""
    lets = program.definitions
    place = {name: number for number, name in enumerate(lets)}
    hidden = {name: let for name, let in lets.items() if let.hidden}
    placed: dict[str, ir.Let] = {}
    for let in (let for let in program.lets if not let.hidden):
        brought = _closure([read.tensor for read in reads_of(let)], hidden)
        for name in sorted(brought, key=place.__getitem__):
            placed[name] = hidden.pop(name)
        placed.setdefault(let.name, let)
    names = _sorted(list({**placed, **lets}), lets)
    tensors = program.tensors.keys()
    derived = {name for name in names if is_derivative(name, tensors)}
    others = [name for name in names if name not in derived]
    if _closure(others, lets).isdisjoint(derived):
        names = others + [name for name in names if name in derived]
    return [lets[name] for name in names]


def is_derivative(name: str, tensors: Collection[str]) -> bool:
    """Whether a definition is called `d_x` or `dot_x` after something that there is."""
    start = next((len(mark) for mark in ("d_", "dot_") if name.startswith(mark)), None)
    return start is not None and any(name[start:end] in tensors for end in range(start + 1, len(name) + 1))


def _sorted(names: list[str], lets: Mapping[str, ir.Let]) -> list[str]:
    """The names in this order, as far as each can stand after what it reads."""
    reads = {name: sorted({read.tensor for read in reads_of(let)} & lets.keys()) for name, let in lets.items()}
    circles = {name: set(group) for group in components(reads) for name in group}
    waiting = {name: set(reads[name]) - circles[name] for name in names}
    readers: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        for read in waiting[name]:
            readers.setdefault(read, []).append(number)
    ready = [number for number, name in enumerate(names) if not waiting[name]]
    result: list[str] = []
    while ready:
        name = names[heappop(ready)]
        result.append(name)
        for number in readers.get(name, ()):
            waiting[names[number]].discard(name)
            if not waiting[names[number]]:
                heappush(ready, number)
    return result
