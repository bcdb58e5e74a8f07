"""Recurrences along a coordinate that is split: block after block, each from the state of the one before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..ir.types import LIBRARY_NAMES
from ..transform.local import Interval
from .moving import Block, Values
from .pieces import pulled
from .units import Rows, Unit

if TYPE_CHECKING:
    from .running import Run


def hand_on(run: Run, unit: Unit, dimension: str) -> None:
    """A recurrence along a split coordinate: block after block, each from the state of the one before."""
    held = run.held(unit)
    runs: dict[Block, tuple[dict[str, Any], list[Any]]] = {}
    for name in unit.wanted:
        dtype = getattr(torch, LIBRARY_NAMES[run.dtypes[name]])
        run.values[name] = {
            b: torch.empty(run.layout.shape(name, b), dtype=dtype, device=run.device) for b in run.owned
        }
    for place in range(run.mesh.blocks(dimension)):
        before = {name: _before(run, unit, name, dimension, place) for name in unit.wanted}
        states = {
            name: run.gathered(name, run.values[name], dimension, _wanted(run, dimension, rows, place))
            for name, rows in before.items()
        }
        first, last = run.layout.rows(unit.names[0], dimension)[place]
        for block in run.owned:
            if run.mesh.place(block, dimension) != place or not run.programs.alive(unit, block):
                continue
            program, names = run.programs.of_unit(unit, block)
            given = {n: held[n][block] if n in held else states[n.removesuffix("_before")][block] for n in names}
            runs[block] = run.run(program, names, given, unit.wanted)
            for name, array in zip(unit.wanted, runs[block][1], strict=True):
                axis, start = run.axis(name, dimension), before[name][0]
                skipped = first - start if before[name][0] < before[name][1] else 0
                run.values[name][block] = array.detach().narrow(axis, skipped, last - first)
    if run.learned & set(unit.wanted):
        run.back.append(lambda: _handed_back(run, unit, dimension, held, runs))


def _before(run: Run, unit: Unit, name: str, dimension: str, place: int) -> Interval:
    first, last = run.layout.rows(name, dimension)[place]
    return (max(first - unit.reach[name], 0), first) if first < last else (0, 0)


def _wanted(run: Run, dimension: str, rows: Interval, place: int) -> Rows:
    """Points that one block along a dimension wants, and no other."""
    return tuple(rows if other == place else (0, 0) for other in range(run.mesh.blocks(dimension)))


def _handed_back(
    run: Run,
    unit: Unit,
    dimension: str,
    held: Mapping[str, Values],
    runs: Mapping[Block, tuple[dict[str, Any], list[Any]]],
) -> None:
    """Take the way back of a recurrence from the last block to the first, each with what later ones owe its state."""
    # What comes back from later blocks is added in place.
    given = {n: {b: x.clone() for b, x in run.arrived(n).items()} for n in unit.wanted if n in run.learned}
    leaves: dict[Block, dict[str, Any]] = {block: {} for block in run.owned}
    for place in reversed(range(run.mesh.blocks(dimension))):
        for block in runs:
            if run.mesh.place(block, dimension) != place:
                continue
            cotangents: list[Any] = []
            for name, array in zip(unit.wanted, runs[block][1], strict=True):
                if name not in given:
                    cotangents.append(None)
                    continue
                cotangent, axis = torch.zeros_like(array), run.axis(name, dimension)
                rows = given[name][block]
                cotangent.narrow(axis, array.shape[axis] - rows.shape[axis], rows.shape[axis]).copy_(rows)
                cotangents.append(cotangent)
            leaves[block] = pulled(*runs[block], cotangents)
        for name in given:
            rows = _before(run, unit, name, dimension, place)
            _hand_back(run, name, dimension, rows, place, leaves, given[name])
    run.return_cotangents(unit, held, leaves)


def _hand_back(
    run: Run,
    name: str,
    dimension: str,
    rows: Interval,
    place: int,
    leaves: Mapping[Block, Mapping[str, Any]],
    given: Values,
) -> None:
    """The cotangents of a state, added to those of the blocks that it came from."""
    axis = run.axis(name, dimension)
    before: Values = {}
    for block in run.owned:
        found = leaves[block].get(f"{name}_before")
        length = rows[1] - rows[0] if run.mesh.place(block, dimension) == place else 0
        shape = [length if number == axis else n for number, n in enumerate(given[block].shape)]
        before[block] = given[block].new_zeros(shape) if found is None else found
    held = _wanted(run, dimension, rows, place)
    run.add_back(given, before, dimension, held, run.layout.rows(name, dimension), axis)
