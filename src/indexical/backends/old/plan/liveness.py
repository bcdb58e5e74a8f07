"""Recurrences of which only the last step is read: earlier steps are not kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ....ir import nodes as ir
from ....ir.affine import polynomial
from ....ir.context import constants_of
from ....ir.needs import needed
from ....ir.walk import reads_of, walk
from ....plan.scans import Recurrence
from ....records import replace


def keep_last(
    program: ir.Program, wanted: Collection[str], recurrences: Mapping[str, Recurrence]
) -> dict[str, Recurrence]:
    """The recurrences, with how many steps are there at a time where at most the last one is read in the end."""
    lets = program.definitions
    result = dict(recurrences)
    asked = [part for claim in program.asserts for part in walk(claim.condition) if isinstance(part, ir.Read)]
    names = needed(program, wanted)
    for order in program.order:
        if not isinstance(order, ir.Stepwise) or any(isinstance(item, ir.Stepwise) for item in order.body):
            continue
        group = dict(order.axes)
        outside = [read for name in names - set(group) for read in reads_of(lets[name])] + asked
        for name, axis in group.items():
            ends = [read.indices[axis] for read in outside if read.tensor == name]
            if name in wanted or name not in names or (ends and not _ends_last(name, group, order.forward, lets)):
                continue
            if not all(_is_last(end, lets[name], axis, order.forward, lets) for end in ends):
                continue
            scan = recurrences[name].scan
            back = scan.offset if scan is not None else _reach(name, group, order.forward, lets)
            if back is not None and (scan is None or (back == 1 and ends)):
                result[name] = replace(recurrences[name], kept=max(1, back))
    return result


def _ends_last(name: str, group: Mapping[str, int], forward: bool, lets: Mapping[str, ir.Let]) -> bool:
    """Whether no other definition of a recurrence goes further: its last step is there when the loop ends."""
    constants = constants_of(lets)
    extents = {other: polynomial(lets[other].axes[axis].extent, constants) for other, axis in group.items()}
    beyond = [(extents[name] - extent).constant for extent in extents.values()]
    return not forward or all(steps is not None and steps >= 0 for steps in beyond)


def _is_last(index: ir.Expr, let: ir.Let, axis: int, forward: bool, lets: Mapping[str, ir.Let]) -> bool:
    """Whether an index is that of the last step."""
    constants = constants_of(lets)
    last = polynomial(let.axes[axis].extent, constants) - 1 if forward else 0
    return (polynomial(index, constants) - last).constant == 0


def _reach(name: str, group: Mapping[str, int], forward: bool, lets: Mapping[str, ir.Let]) -> int | None:
    """The number of steps back that a definition is read within its recurrence; None where that is not fixed."""
    constants = constants_of(lets)
    furthest = 0
    for other, axis in group.items():
        for clause in lets[other].clauses:
            parts = (clause.body, *(() if clause.guard is None else (clause.guard,)))
            for part in (part for expr in parts for part in walk(expr)):
                if not isinstance(part, ir.Read) or part.tensor != name:
                    continue
                here, there = clause.slots[axis], part.indices[group[name]]
                distance = (polynomial(here, constants) - polynomial(there, constants)).constant
                if distance is None:
                    return None
                furthest = max(furthest, distance if forward else -distance)
    return furthest
