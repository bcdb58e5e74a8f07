"""Recurrences along a coordinate that is split: block after block, each from the state of the one before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..ir.types import LIBRARY_NAMES
from ..transform.local import Interval
from .moving import Block, Transfer, Values
from .pieces import pulled, together
from .units import Unit

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
        states = {name: _sent_on(run, name, dimension, rows, place) for name, rows in before.items()}
        for block in run.owned:
            first, last = run.layout.rows(unit.names[0], dimension)[place]
            if run.mesh.place(block, dimension) != place or first >= last:
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


def _sent_on(run: Run, name: str, dimension: str, rows: Interval, place: int) -> Values:
    """The last points before a block, from the blocks that have them."""
    axis = run.axis(name, dimension)
    values = run.values[name]
    wanted = tuple(rows if p == place else (0, 0) for p in range(run.mesh.blocks(dimension)))
    transfers = run.transfers(values, dimension, wanted, run.layout.rows(name, dimension), axis)
    pieces: dict[Block, list[Any]] = {}
    like = values[run.owned[0]]
    for one, array in zip(transfers, run.carrier.move(transfers, like)(), strict=True):
        if array is not None and one.target in values:
            pieces.setdefault(one.target, []).append(array)
    return {block: together(found, like, axis) for block, found in pieces.items()}


def _handed_back(
    run: Run,
    unit: Unit,
    dimension: str,
    held: Mapping[str, Values],
    runs: Mapping[Block, tuple[dict[str, Any], list[Any]]],
) -> None:
    given = {name: dict(run.arrived(name)) for name in unit.wanted if name in run.learned}
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
    own, axis = run.layout.rows(name, dimension), run.axis(name, dimension)
    before = {b: x[f"{name}_before"] for b, x in leaves.items() if x.get(f"{name}_before") is not None}
    transfers, places = [], []
    like = given[run.owned[0]]
    for target in run.all(dimension):
        if run.mesh.place(target, dimension) != place:
            continue
        for source in run.mesh.line(target, dimension):
            start, end = own[run.mesh.place(source, dimension)]
            lower, upper = max(rows[0], start), min(rows[1], end)
            if lower >= upper:
                continue
            shape = list(run.layout.shape(name, source))
            shape[axis] = upper - lower
            array = None
            if target in run.owned:
                found = before.get(target)
                array = like.new_zeros(shape) if found is None else found.narrow(axis, lower - rows[0], upper - lower)
            transfers.append(Transfer(target, source, tuple(shape), array))
            places.append(lower - start)
    for one, array, at in zip(transfers, run.carrier.move(transfers, like)(), places, strict=True):
        if array is not None and one.target in given:
            given[one.target] = given[one.target].clone()
            given[one.target].narrow(axis, at, array.shape[axis]).add_(array)
