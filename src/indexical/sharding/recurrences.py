"""How definitions that are made of each other are split: where they do not step, or with a state that is handed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..ir import build
from ..ir import nodes as ir
from ..ir.context import visit_clause
from ..transform.local import number_of
from .units import Cut, Needs

if TYPE_CHECKING:
    from .planning import Planner


def cut_group(planner: Planner, item: ir.Stepwise) -> None:
    """Definitions that are made of each other: split where they do not step, or handed on where they do."""
    names = [name for name, _ in item.axes]
    stepped = dict(item.axes)
    own = {name: planner.own_axes(planner.lets[name]) for name in names}
    for name in names:
        planner.homes[name], planner.cuts[name], planner.needs[name] = {}, {}, {}
    for dimension in planner.mesh.names:
        cuts = _cuts(planner, item, names, stepped, own, dimension)
        for name, cut in cuts.items():
            if cut.axis is not None:
                planner.homes[name][dimension] = cut.axis
        needs = {name: planner.needs_of(planner.lets[name], dimension, cut) for name, cut in cuts.items()}
        if not _is_kept(planner, names, needs, cuts, dimension):
            reason = "its points read each other across blocks"
            for name in names:
                planner.homes[name].pop(dimension, None)
                if planner.handed.get(name) == dimension:
                    del planner.handed[name]
            cuts = {name: Cut("whole", reason=reason) for name in names}
            needs = {name: planner.needs_of(planner.lets[name], dimension, cuts[name]) for name in names}
        for name, cut in cuts.items():
            planner.settle(planner.lets[name], dimension, cut, {n: r for n, r in needs[name].items() if n not in names})


def _cuts(
    planner: Planner,
    item: ir.Stepwise,
    names: Sequence[str],
    stepped: Mapping[str, int],
    own: Mapping[str, Mapping[str, int]],
    dimension: str,
) -> dict[str, Cut]:
    """The cut of each definition of a recurrence along a dimension: handed on, each its own part, or whole with the
    reason."""
    axes = {name: own[name].get(dimension) for name in names}
    if not any(axis is not None for axis in axes.values()):
        return {name: Cut("whole") for name in names}
    handed = [name for name in names if axes[name] == stepped[name]]
    reason = ""
    if any(axis is None or not planner.can_be_split(planner.lets[n], axis) for n, axis in axes.items()):
        reason = "not all that it is made of has that coordinate"
    elif handed and (len(handed) < len(names) or any(isinstance(inner, ir.Stepwise) for inner in item.body)):
        reason = "it steps along several coordinates"
    elif handed:
        reach = _reach(planner, names, stepped, item.forward)
        if isinstance(reach, str):
            reason = reach
        else:
            for name in names:
                planner.reach[name] = reach[name]
                planner.handed[name] = dimension
            return {name: Cut("handed", axes[name]) for name in names}
    if reason:
        return {name: Cut("whole", reason=reason) for name in names}
    return {name: Cut("own", axes[name]) for name in names}


def _reach(planner: Planner, names: Sequence[str], stepped: Mapping[str, int], forward: bool) -> dict[str, int] | str:
    """How many steps back each part of a recurrence is read; or why its state cannot be handed on."""
    if not forward:
        return "it steps backward"
    if planner.at_once:
        return "all ranks compute at once"
    if len({planner.extents[name][axis] for name, axis in stepped.items()}) > 1:
        return "what it is made of has other lengths"
    reach = dict.fromkeys(names, 0)
    for name in names:
        for clause in planner.lets[name].clauses:
            slot = clause.slots[stepped[name]]
            for part, _ in visit_clause(clause):
                if isinstance(part, ir.Read) and part.tensor in stepped:
                    index = part.indices[stepped[part.tensor]]
                    back = number_of(build.apply("-", (slot, index), "whole", index.span))
                    if back is None or back < 0:
                        return "it reads other steps than those a fixed number before"
                    reach[part.tensor] = max(reach[part.tensor], back)
    return reach


def _is_kept(
    planner: Planner, names: Sequence[str], needs: Mapping[str, Needs], cuts: Mapping[str, Cut], dimension: str
) -> bool:
    """Whether each block reads of the group just what it computes, or what is handed on to it."""
    for name in names:
        for other in needs[name].keys() & set(names):
            axis = cuts[other].axis
            held = planner.mesh.points(planner.extents[other][axis or 0] or 0, dimension)
            reach = planner.reach.get(other, 0) if cuts[other].way == "handed" else 0
            for need, (first, last) in zip(needs[name][other], held, strict=True):
                if need[0] < need[1] and not (first - reach <= need[0] and need[1] <= last):
                    return False
    return True
