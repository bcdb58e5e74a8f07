"""Programs with further definitions, in an order in which some are computed at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ....ir import build
from ....ir import nodes as ir
from ....ir.graph import components
from ....ir.needs import members, needed, read_in
from ....ir.walk import reads_of
from ....plan.steps import Gradient
from ....records import replace
from ....source import Span


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


class Uses:
    """The readers of each tensor of a program, among the definitions that are `needed`: wanted, asserted, or read by
    one that is. `stepped` are those that are made of themselves."""

    def __init__(self, program: ir.Program, wanted: tuple[str, ...]) -> None:
        self.wanted = wanted
        self.lets: dict[str, ir.Let] = {}
        self.stepped = program.recurrent
        self._readers: dict[str, dict[str, list[ir.Read]]] = {}
        for let in program.lets:
            self._put(let)
        self.needed = needed(program, wanted)

    def change(self, program: ir.Program, changed: Iterable[ir.Let]) -> None:
        """Go on with a program in which these definitions are new, or have another form."""
        other = False
        for let in changed:
            known = self.lets.get(let.name)
            if known is not None:
                other = True
                for read in reads_of(known):
                    self._readers[read.tensor].pop(let.name, None)
            self._put(let)
        if other:
            self.needed = needed(program, self.wanted)

    def _put(self, let: ir.Let) -> None:
        self.lets[let.name] = let
        for read in reads_of(let):
            self._readers.setdefault(read.tensor, {}).setdefault(let.name, []).append(read)

    def readers(self, name: str) -> list[tuple[ir.Let, list[ir.Read]]]:
        """The needed definitions that read a tensor, each with its reads of it."""
        found = self._readers.get(name, {}).items()
        return [(self.lets[reader], reads) for reader, reads in found if reader in self.needed]


def _dependencies(program: ir.Program) -> tuple[dict[str, int], dict[int, list[int]]]:
    """The place of each definition in the order of a program, and for each place those of all that it reads."""
    lets = program.definitions
    places = {name: n for n, item in enumerate(program.order) for name in members(item)}
    edges: dict[int, list[int]] = {}
    for here, item in enumerate(program.order):
        reads = {read.tensor for name in members(item) for read in reads_of(lets[name])}
        edges[here] = sorted({places[name] for name in reads if name in places} - {here})
    return places, edges


def _ordered(program: ir.Program, edges: Mapping[int, list[int]]) -> ir.Program | None:
    """The program in an order in which all is behind what it points to; None where there is none."""
    groups = components(edges)
    if any(len(group) > 1 for group in groups):
        return None
    return replace(program, order=tuple(program.order[group[0]] for group in groups))


def following(program: ir.Program, name: str, other: str) -> ir.Program | None:
    """The program with a definition behind another one that computes it; None where that one is made of it."""
    places, edges = _dependencies(program)
    edges[places[name]].append(places[other])
    return _ordered(program, edges)


def arranged(program: ir.Program, gradients: list[Gradient]) -> ir.Program | str:
    """The program in an order in which all gradients of one attention are computed at once."""
    places, edges = _dependencies(program)
    for gradient in gradients:
        own = [places[name] for name in gradient.definitions]
        attention = gradient.attend.attention
        parts = attention.score, attention.value, *attention.guard, attention.key.lower, attention.key.upper
        reads = set(read_in(gradient.arriving, *parts))
        given = {places[name] for name in reads if name in places}
        for one in own:
            edges[one] = sorted({*edges[one], *given, *(d for other in own for d in edges[other])} - {one})
    return _ordered(program, edges) or "what arrives is made of what flows back"
