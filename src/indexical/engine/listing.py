"""The operations of a plan as a list, each for the definition that it is first needed for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..ir.types import DEFAULT_DTYPE, Dtype
from ..records import dataclass, replace
from .layouts import layouts
from .merging import merge_of
from .ops import (
    Axis,
    Carried,
    Contract,
    Either,
    Fold,
    Input,
    Iota,
    Join,
    Library,
    Map,
    Normalize,
    Number,
    Opaque,
    Plan,
    Put,
    Read,
    Reduce,
    Result,
    Table,
    Tiles,
    Value,
    Write,
)
from .order import is_view, ordered, owners_of, roots_of
from .words import brief


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: `name` is what kind of operation it is, `call` says it in words. It is first needed for a
    definition, and goes into the array `result`, where that has a name of the program; with these axes."""

    definition: str
    name: str
    call: str
    result: str
    axes: tuple[Axis, ...] | None
    dtype: Dtype | None


# The kinds of normalisers and of library kernels that are called otherwise.
_ALONG = {"softmax": "normalize", "log_softmax": "normalize"}
_FUSED = {
    "among_first": "sort",
    "by_place": "contract",
    "convolution": "convolve",
    "decayed": "scan",
    "products_by_place": "contract",
    "rank": "sort",
    "top": "sort",
}


def operations_of(plan: Plan, inside: Mapping[Value, Plan] | None = None) -> Iterator[Operation]:
    """The operations in the order in which they run. Those `inside` of a kernel or of tiles, by the value that they are
    printed for, are there for what this computes, and stand before it."""
    owners, orders, indices = owners_of(plan), layouts(plan), _only_indices(plan)
    for one in ordered(plan):
        if inside and one in inside:
            yield from (replace(each, definition=owners[one]) for each in operations_of(inside[one]))
        if kind_of(one) and one not in indices:
            axes = tuple(map(one.axis, orders.get(one, tuple(axis.name for axis in one.axes))))
            yield _listed(one, owners[one], plan, axes)


def _only_indices(plan: Plan) -> set[Value]:
    """Sums of axes and numbers that only say which view a read is: no array of them is made."""
    needed = set(roots_of(plan))
    for one in reversed(ordered(plan)):
        if one in needed:
            index = {at for _, at in one.op.index} if isinstance(one.op, Read) and _is_shift(one.op) else set()
            needed.update(part for part in one.parts if part not in index)
    return {one for one in ordered(plan) if one not in needed}


def _listed(one: Value, definition: str, plan: Plan, axes: tuple[Axis, ...]) -> Operation:
    own = plan.definitions.get(definition)
    result = definition if own is not None and own.value is one else ""
    return Operation(definition, kind_of(one), brief(one), result, axes, one.dtype or DEFAULT_DTYPE[one.kind])


def kind_of(one: Value) -> str:
    """The kind of an operation, in one word; none for what is no operation on arrays."""
    match one.op:
        case Input() | Number() | Carried():
            return ""
        case Iota():
            return "iota"
        case Table():
            return "constant"
        case Map(fn):
            return "cast" if fn.startswith("as ") else "apply"
        case Read(outside=outside):
            if is_view(one) or not _is_shift(one.op):
                return "view" if is_view(one) else "gather"
            return "pad" if outside == "masked" else "view"
        case Write(combine="add"):
            return "scatter"
        case Write() | Put():
            return "put"
        case Reduce():
            return "reduce"
        case Contract():
            return "contract"
        case Normalize(fn):
            return _ALONG.get(fn, "scan")
        case Library(kernel):
            return _FUSED.get(kernel, "fused")
        case Join():
            return "join"
        case Result():
            return "loop"
        case Fold() | Tiles() | Either():
            return "attend"
        case Opaque(step=kernel):
            return str(kernel.kind)
    raise TypeError(one.op)


# Kernels of the library that compute a definition, with what the plan calls them.
_KERNELS = {
    "by_place": "rows grouped by place",
    "cross_entropy": "cross_entropy",
    "layer_norm": "layer_norm",
    "rms_norm": "rms_norm",
}


def kernel_of(one: Value) -> str | None:
    """The kernel of the library that a value is computed by, but for its sign, its layout, and a sum of it."""
    while True:
        match one.op:
            case Map("neg", (inner,)) | Read(source=inner) | Reduce("sum" | "mean", source=inner):
                one = inner
            case Map(fn, (inner,)) if fn.startswith("as "):
                one = inner
            case Library(kernel):
                return _KERNELS.get(kernel)
            case _:
                return None


def _is_shift(op: Read) -> bool:
    """Whether all places are sums of axes and numbers, or read axes as one."""
    if (merge := merge_of(op)) is not None:
        return not isinstance(merge.source.op, Read) or _is_shift(merge.source.op)
    return all(at.known.whole is not None for _, at in op.index)
