"""Programs with further definitions, in an order in which some are computed at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.graph import components
from ..ir.needs import asserted, members, reached
from ..ir.walk import reads_of, walk
from ..source import Span
from .steps import Gradient


def definition(name: str, ranges: Sequence[ir.Range], body: ir.Expr, call: Span | None = None) -> ir.Let:
    """A hidden definition with these coordinates."""
    slots = tuple(build.coord(r.coordinate, r.span) for r in ranges)
    axes = tuple(ir.Axis(r.coordinate, r.upper) for r in ranges)
    clause = ir.Clause(slots, tuple(ranges), body, None, body.span)
    return ir.Let(name, axes, "real", (clause,), True, body.span, call)


def extended(program: ir.Program, made: list[ir.Let], changed: Mapping[str, ir.Let]) -> ir.Program:
    """The program with further definitions, and some in another form."""
    lets = tuple(changed.get(let.name, let) for let in program.lets)
    order = (*program.order, *(ir.Once(let.name) for let in made))
    return replace(program, lets=(*lets, *made), order=order)


def preceded(
    program: ir.Program, before: Mapping[str, Sequence[ir.Let]], changed: Mapping[str, ir.Let]
) -> ir.Program:
    """The program with further definitions right before some, and some in another form."""
    lets = tuple(new for let in program.lets for new in (*before.get(let.name, ()), changed.get(let.name, let)))
    order: list[ir.Order] = []
    for item in program.order:
        order += [ir.Once(new.name) for new in before.get(item.name, ())] if isinstance(item, ir.Once) else []
        order.append(item)
    return replace(program, lets=lets, order=tuple(order))


@dataclass(frozen=True, slots=True)
class Uses:
    """The definitions that are needed, and by the name of each tensor the needed definitions that read it, each with
    its reads of it. `stepped` are those that are made of themselves."""

    needed: frozenset[str]
    readers: Mapping[str, list[tuple[ir.Let, list[ir.Read]]]]
    stepped: frozenset[str]


def uses_of(program: ir.Program, wanted: tuple[str, ...]) -> Uses:
    """The readers of each definition that is wanted, asserted or needed for one that is; each is walked once."""
    lets = program.definitions
    reads: dict[str, Sequence[ir.Read]] = {}

    def step(name: str) -> list[str]:
        reads[name] = reads_of(lets[name]) if name in lets else []
        return [read.tensor for read in reads[name]]

    needed = frozenset(lets.keys() & reached((*wanted, *asserted(program)), step))
    readers: dict[str, list[tuple[ir.Let, list[ir.Read]]]] = {}
    for let in program.lets:
        by_name: dict[str, list[ir.Read]] = {}
        for read in reads_of(let) if let.name in needed else ():
            by_name.setdefault(read.tensor, []).append(read)
        for name, found in by_name.items():
            readers.setdefault(name, []).append((let, found))
    stepped = program.recurrent
    return Uses(needed, readers, stepped)


def arranged(program: ir.Program, gradients: list[Gradient]) -> ir.Program | str:
    """The program in an order in which all gradients of one attention are computed at once."""
    lets = program.definitions
    owners: dict[str, ir.Order] = {}
    for item in program.order:
        owners.update(dict.fromkeys(members(item), item))
    position = {id(item): n for n, item in enumerate(program.order)}
    edges: dict[int, list[int]] = {}
    for here, item in enumerate(program.order):
        reads = {read.tensor for name in members(item) for read in reads_of(lets[name])}
        edges[here] = sorted({position[id(owners[name])] for name in reads if name in owners} - {here})
    for gradient in gradients:
        own = [position[id(owners[name])] for name in gradient.definitions]
        reads = {p.tensor for p in walk(gradient.arriving) if isinstance(p, ir.Read)}
        attention = gradient.attend.attention
        for part in (attention.score, attention.value, *attention.guard, attention.key.lower, attention.key.upper):
            reads |= {p.tensor for p in walk(part) if isinstance(p, ir.Read)}
        given = {position[id(owners[name])] for name in reads if name in owners}
        for one in own:
            edges[one] = sorted({*edges[one], *given, *(d for other in own for d in edges[other])} - {one})
    groups = components(edges)
    if any(len(group) > 1 for group in groups):
        return "what arrives is made of what flows back"
    order = tuple(program.order[group[0]] for group in groups)
    return replace(program, order=order)
