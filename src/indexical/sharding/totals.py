"""Sums, largest values and attentions whose parts are on several blocks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from ..ir import nodes as ir
from .moving import Values
from .pieces import heard, part, quotient, summed, weight
from .prepared import TOTALS
from .units import Unit

if TYPE_CHECKING:
    from .running import Run


def add_up(run: Run, unit: Unit) -> None:
    for name in unit.wanted:
        sums = [(dimension, cut) for dimension, cut in unit.cuts[name].items() if cut.way == "sum"]
        values = run.values.pop(part(name), None)
        for dimension, cut in sums:
            assert values is not None
            values = _total(run, name, values, dimension, cut.scatter)
        if values is not None:
            run.values[name] = values
            if name in run.learned:
                _pass_back(run, name)


def _pass_back(run: Run, name: str) -> None:
    """Give each part of a sum, on the way back, the cotangent of the whole."""

    def back() -> None:
        run.give(part(name), frozenset(), run.arrived(name))

    run.back.append(back)


def _total(run: Run, name: str, values: Values, dimension: str, scatter: int | None) -> Values:
    body = run.layout.program.definitions[name].clauses[0].body
    assert isinstance(body, ir.Reduce)
    op = TOTALS[body.op]
    truth = values[run.owned[0]].dtype == torch.bool
    parts = {block: x.to(torch.uint8) for block, x in values.items()} if truth else values
    if scatter is not None:
        return _scattered(run, name, parts, dimension)
    found = run.carrier.total(parts, dimension, op)
    if op != "sum" and name in run.learned:
        _pick(run, name, parts, found, dimension)
    return {block: x.to(torch.bool) for block, x in found.items()} if truth else found


def _pick(run: Run, name: str, parts: Values, found: Values, dimension: str) -> None:
    """Give the cotangent of a maximum, on the way back, to the block that had it; those that tie share it."""

    def back() -> None:
        had = {block: (parts[block] == found[block]).to(found[block].dtype) for block in run.owned}
        count = run.carrier.total(had, dimension, "sum")
        for given in run.arriving.get(part(name), {}).values():
            for block in run.owned:
                given[block] = given[block] * had[block] / count[block]

    run.back.append(back)


def _scattered(run: Run, name: str, parts: Values, dimension: str) -> Values:
    """The sum of parts, of which each block keeps its own points: what others keep is sent to them."""
    axis = run.axis(name, dimension)
    own = run.layout.rows(name, dimension)
    whole = ((0, own[-1][1]),) * len(own)
    result = run.spread_back(parts, dimension, whole, own, axis)

    def back() -> None:
        arriving = run.arriving.get(part(name), {})
        for dimensions, given in list(arriving.items()):
            arriving[dimensions] = run.gathered(name, given, dimension, whole)

    if name in run.learned:
        run.back.append(back)
    return result


def merge(run: Run, unit: Unit, names: tuple[str, ...]) -> None:
    """An attention to keys in several blocks: each block's own is weighted by its share of all weights."""
    (name,) = unit.wanted
    dimension = next(d for d, cut in unit.cuts[name].items() if cut.way == "sum")
    outs, totals = run.values.pop(names[0]), run.values.pop(names[1])
    shape = partial(run.layout.shape_beside, name)
    top = run.carrier.total(totals, dimension, "max")
    shares = {b: weight(totals[b], top[b]) for b in run.owned}
    total = run.carrier.total(shares, dimension, "sum")
    weights = {b: quotient(shares[b], total[b]).reshape(shape(b)) for b in run.owned}
    parts = {b: heard(outs[b], totals[b], shape(b)) for b in run.owned}
    found = run.carrier.total({b: parts[b] * weights[b] for b in run.owned}, dimension, "sum")
    run.values[name] = found

    def back() -> None:
        given = run.arrived(name)
        run.give(names[0], frozenset(), {b: weights[b] * given[b] for b in run.owned})
        gone = {b: weights[b] * (parts[b] - found[b]) * given[b] for b in run.owned}
        run.give(names[1], frozenset(), {b: summed(gone[b], shape(b), totals[b].shape) for b in run.owned})

    if name in run.learned:
        run.back.append(back)
