"""Definitions that are asked for only where some conditions hold: every read of them stands under these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from . import nodes as ir
from .context import Trail, places_of
from .graph import components
from .needs import asserted, made_of
from .prove import conjuncts, no_definitions
from .walk import reads_of, substitute, walk


def asked_where(program: ir.Program, wanted: Iterable[str]) -> dict[str, list[ir.Expr]]:
    """For definitions of one clause, the facts about their coordinates that hold wherever they are read. Those that are
    wanted or asserted, and those that read themselves, are asked for everywhere."""
    lets = program.definitions
    asked = (*wanted, *asserted(program))
    needed = [name for name in made_of(asked, lets) if name in lets]
    single = {name for name in needed if len(lets[name].clauses) == 1 and _has_own_slots(lets[name].clauses[0])}
    edges = {name: [read.tensor for read in reads_of(lets[name]) if read.tensor in lets] for name in needed}
    groups = components(edges)
    recurrent = {name for group in groups for name in group if len(group) > 1 or name in edges[name]}
    single -= {*asked, *recurrent}
    found: dict[str, list[ir.Expr]] = {}
    for group in reversed(groups):
        for name in group:
            for clause in lets[name].clauses:
                for expr, trail in places_of(clause):
                    if isinstance(expr, ir.Read) and expr.tensor in single and found.get(expr.tensor) != []:
                        facts = _facts(expr, trail, found.get(name, ()), lets)
                        known = found.get(expr.tensor, facts)
                        found[expr.tensor] = [fact for fact in known if fact in facts]
    return {name: facts for name, facts in found.items() if facts}


def _has_own_slots(clause: ir.Clause) -> bool:
    return all(isinstance(slot, ir.Coord) for slot in clause.slots)


def _facts(read: ir.Read, trail: Trail, more: Sequence[ir.Expr], lets: Mapping[str, ir.Let]) -> list[ir.Expr]:
    """The facts at a read that speak of coordinates at which it reads alone, in terms of the definition's own. `more`
    are known of where the reader is asked for."""
    slots = lets[read.tensor].clauses[0].slots
    bare = [(index, slot) for index, slot in zip(read.indices, slots, strict=True) if isinstance(index, ir.Coord)]
    own = {index.coordinate: slot for index, slot in bare}
    facts = [fact for step in trail if isinstance(step, tuple) for fact in conjuncts(*step, no_definitions)]
    spoken = [fact for fact in (*facts, *more) if own.keys() >= fact.type.coordinates and fact.type.coordinates]
    plain = [f for f in spoken if not any(isinstance(part, ir.Read) and part.tensor in lets for part in walk(f))]
    return [substitute(fact, own) for fact in plain]
