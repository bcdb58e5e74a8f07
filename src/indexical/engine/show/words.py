"""What arrays are called that have no name in the relation."""

from __future__ import annotations

from ...ir.types import Kind
from ..ops import Contract, Iota, Map, Normalize, Plan, Read, Reduce, Table, Value
from ..order import reachable, roots_of

_WORDS = {"sum": "total", "mean": "mean", "max": "largest", "min": "smallest", "prod": "product", "rank": "rank"}
_KINDS: dict[Kind, str] = {"bool": "mask", "whole": "number", "real": "part"}


def places_of(plan: Plan) -> set[Value]:
    """The values that say where arrays are read."""
    reads = [one.op for one in reachable(roots_of(plan)) if isinstance(one.op, Read)]
    return set(reachable([at for op in reads for _, at in op.index]))


def word_for(one: Value) -> str:
    """What a value is called by what it is; a whole one is a `number`, if it is no place."""
    match one.op:
        case Iota(axis):
            return axis.name.name
        case Reduce(fn) | Normalize(fn) if fn in _WORDS:
            return _WORDS[fn]
        case Normalize("softmax"):
            return "weights"
        case Contract():
            return "product"
        case Table():
            return "table"
        case Read():
            return "mask" if one.kind == "bool" else "picked"
        case Map("where") if one.kind == "real":
            return "chosen"
        case Map(fn) if one.kind == "real" and fn.isidentifier():
            return fn
    return _KINDS[one.kind]
