"""Equations of JAX as operations of the graph: most are PyTorch's under other names; the rest have rules here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ir.affine import Polynomial, number
from .reductions import scanned
from .rules import RULES, Asked, Unreadable, place, rule
from .values import Count, Full, Gathered, Indices, Map, Node, Patched, View, replaced

# An operation of the graph: its name, its arguments and its keywords.
Operation = tuple[str, tuple[Any, ...], dict[str, Any]]
Words = Mapping[str, Any]

# Equations that take the same arguments in the same order as an operation of PyTorch.
_SAME = {
    **{name: name for name in "exp exp2 expm1 log log1p sqrt rsqrt tanh abs sin cos erf floor ceil neg".split()},
    **{name: name for name in "add sub mul eq ne lt le gt ge pow square".split()},
    **dict.fromkeys(
        ("copy", "copy_p", "stop_gradient", "device_put", "reduce_precision", "sharding_constraint"), "alias"
    ),
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "not": "bitwise_not",
    "logistic": "sigmoid",
    "rem": "fmod",
    "convert_element_type": "_to_copy",
    "clamp": "between",
}
_REDUCTIONS = {
    "reduce_sum": "sum",
    "reduce_max": "amax",
    "reduce_min": "amin",
    "reduce_prod": "prod",
    "reduce_and": "all",
    "reduce_or": "any",
}


def operation(name: str, given: tuple[Any, ...], words: Words) -> Operation:
    """The operation of the graph that an equation is; one that no rule knows is called one of JAX, since a rule of
    PyTorch may go by its name."""
    if name in _SAME:
        return _SAME[name], given, {}
    if name in _REDUCTIONS:
        return _REDUCTIONS[name], (given[0], tuple(words["axes"])), {}
    made = _OTHERS.get(name)
    return unread(name, given) if made is None else made(given, words)


def unread(name: str, given: tuple[Any, ...]) -> Operation:
    return f"{name} of JAX", given, {}


def _scan(name: str) -> Callable[[tuple[Any, ...], Words], Operation]:
    return lambda given, words: ("scan", (given[0], words["axis"], name, words["reverse"]), {})


def _extreme(name: str) -> Callable[[tuple[Any, ...], Words], Operation]:
    """The larger or the smaller of two; the largest element that there can be adds nothing."""

    def made(given: tuple[Any, ...], words: Words) -> Operation:
        none = float("-inf") if name == "maximum" else float("inf")
        for one, other in (given, given[::-1]):
            if isinstance(one, float) and one == none:
                return "alias", (other,), {}
        return name, given, {}

    return made


def _power(given: tuple[Any, ...], words: Words) -> Operation:
    power = words["y"]
    return ("reciprocal", given, {}) if power == -1 else ("pow", (*given, power if power > 0 else float(power)), {})


def _chosen(given: tuple[Any, ...], words: Words) -> Operation:
    return ("where", (given[0], given[2], given[1]), {}) if len(given) == 3 else unread("select_n", given)


def _padded(given: tuple[Any, ...], words: Words) -> Operation:
    if any(inner for _, _, inner in words["padding_config"]):
        return unread("pad", given)
    widths = tuple(width for low, high, _ in reversed(words["padding_config"]) for width in (low, high))
    return "pad", (given[0], widths, given[1]), {}


def _dims(given: tuple[Any, ...], words: Words) -> Operation:
    (left, right), (left_batch, right_batch) = words["dimension_numbers"]
    return "dot_general", (*given, tuple(left), tuple(right), tuple(left_batch), tuple(right_batch)), {}


def _gathered(given: tuple[Any, ...], words: Words) -> Operation:
    dims = words["dimension_numbers"]
    named = ("offset_dims", "start_index_map", "operand_batching_dims", "start_indices_batching_dims")
    return "gather_slices", (*given, tuple(words["slice_sizes"])), {name: tuple(getattr(dims, name)) for name in named}


def _scattered(given: tuple[Any, ...], words: Words) -> Operation:
    dims = words["dimension_numbers"]
    if dims.operand_batching_dims or words.get("update_jaxpr") is not None:
        return unread("scatter", given)
    named = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    return "write_slice", given, {name: tuple(getattr(dims, name)) for name in named}


_OTHERS: dict[str, Callable[[tuple[Any, ...], Words], Operation]] = {
    "max": _extreme("maximum"),
    "min": _extreme("minimum"),
    "integer_pow": _power,
    "select_n": _chosen,
    "pad": _padded,
    "dot_general": _dims,
    "gather": _gathered,
    "scatter": _scattered,
    "div": lambda given, words: ("quotient", given, {}),
    "round": lambda given, words: ("round", given, {}) if int(words["rounding_method"]) else unread("round", given),
    "reshape": lambda given, words: ("reshape", given, {}) if words["dimensions"] is None else unread("reshape", given),
    "squeeze": lambda given, words: ("squeeze", (given[0], tuple(words["dimensions"])), {}),
    "transpose": lambda given, words: ("permute", (given[0], tuple(words["permutation"])), {}),
    "rev": lambda given, words: ("flip", (given[0], tuple(words["dimensions"])), {}),
    "broadcast_in_dim": lambda given, words: ("spread", (given[0], tuple(words["broadcast_dimensions"])), {}),
    "iota": lambda given, words: ("iota", (words["dimension"],), {}),
    "concatenate": lambda given, words: ("cat", (given, words["dimension"]), {}),
    "stack": lambda given, words: ("stack", (given, words["axis"]), {}),
    "tile": lambda given, words: ("tile", (given[0], tuple(words["reps"])), {}),
    "split": lambda given, words: ("split", (given[0], tuple(words["sizes"]), words["axis"]), {}),
    "slice": lambda given, words: ("cut", (given[0], tuple(words["start_indices"]), words["strides"]), {}),
    "dynamic_slice": lambda given, words: ("cut_at", given, {}),
    "argmax": lambda given, words: ("argmax", (given[0], tuple(words["axes"])), {}),
    "argmin": lambda given, words: ("argmin", (given[0], tuple(words["axes"])), {}),
    **{scan: _scan(scan) for scan in ("cumsum", "cumprod", "cummax", "cummin")},
    "top_k": lambda given, words: ("topk", (given[0], words["k"], words.get("axis", -1)), {}),
    "sort": lambda given, words: _sorted(given, words),
}


def _sorted(given: tuple[Any, ...], words: Words) -> Operation:
    if words["num_keys"] != 1 or len(given) > 2:
        return unread("sort", given)
    return "sort_along", (*given, words["dimension"]), {}


# ------------------------------------------------------------------------------------- rules of their own


@rule("scan")
def scan(asked: Asked, x: Node, axis: Any, op: str, backwards: bool) -> Node:
    return scanned(asked, op, x, axis, backwards)


@rule("quotient")
def quotient(asked: Asked, x: Any, y: Any) -> Node:
    found: Node = RULES["div" if asked.kind == "real" else "floor_divide"](asked, x, y)
    return found


@rule("between")
def between(asked: Asked, low: Any, x: Node, high: Any) -> Node:
    return asked.apply("min", asked.apply("max", x, low), high)


@rule("iota")
def iota(asked: Asked, axis: Any) -> Node:
    at = place(axis, len(asked.shape))
    count = Count(asked.shape, "whole", lambda i: i[at], site=asked.site)
    return count if asked.kind == "whole" else asked.apply("real", count)


@rule("spread")
def spread(asked: Asked, x: Any, axes: Any) -> Node:
    """An array whose axes are given places in a larger shape, and which is repeated along the others."""
    source = asked.node(x)
    if isinstance(source, Full):
        return Full(asked.shape, source.kind, source.value, site=asked.site)
    places = [place(axis, len(asked.shape)) for axis in axes]
    ones = [extent.constant == 1 for extent in source.shape]
    repeats = any(
        extent.constant != 1 and (axis not in places or source.shape[places.index(axis)].constant == 1)
        for axis, extent in enumerate(asked.shape)
    )

    def move(at: Indices) -> Indices:
        return tuple(number(0) if one else at[axis] for axis, one in zip(places, ones, strict=True))

    return View(asked.shape, source.kind, source=source, move=move, expands=repeats, site=asked.site)


@rule("cut")
def cut(asked: Asked, x: Node, starts: tuple[Polynomial, ...], steps: Any) -> Node:
    steps = steps or tuple(number(1) for _ in starts)
    if asked.shape == x.shape and all(step.constant == 1 for step in steps):
        return x

    def move(at: Indices) -> Indices:
        return tuple(start + step * i for start, step, i in zip(starts, steps, at, strict=True))

    return View(asked.shape, x.kind, source=x, move=move, restricts=True, site=asked.site)


@rule("cut_at")
def cut_at(asked: Asked, x: Node, *starts: Any) -> Node:
    """A stretch of each axis, from a place on that may be a value."""
    if all(isinstance(start, Polynomial) for start in starts):
        return cut(asked, x, starts, None)
    tables: dict[int, tuple[Node, Callable[[Indices], Indices]]] = {}
    for axis, (start, size, extent) in enumerate(zip(starts, asked.shape, x.shape, strict=True)):
        if size == extent:
            continue
        count = Count((size,), "whole", lambda i: i[0], site=asked.site)
        places = asked.apply("+", count, start, kind="whole", shape=(size,))
        tables[axis] = (places, lambda i, axis=axis: (i[axis],))  # type: ignore[misc]
    return Gathered(asked.shape, x.kind, source=x, tables=tables, move=lambda i: i, site=asked.site)


@rule("dot_general")
def dot_general(asked: Asked, x: Node, y: Node, *axes: tuple[Any, ...]) -> Node:
    """The axes that are summed together, those that are shared, then what is left of the left and of the right."""
    ranks = (len(x.shape), len(y.shape)) * 2
    summed, summed_too, shared, shared_too = (
        [place(axis, rank) for axis in part] for part, rank in zip(axes, ranks, strict=True)
    )
    free = [axis for axis in range(len(x.shape)) if axis not in (*summed, *shared)]
    free_too = [axis for axis in range(len(y.shape)) if axis not in (*summed_too, *shared_too)]
    rank = len(asked.shape)
    whole = (*asked.shape, *(x.shape[axis] for axis in summed))
    first, last = len(shared), len(shared) + len(free)

    def placed(source: Node, wanted: dict[int, int]) -> Node:
        ones = [extent.constant == 1 for extent in source.shape]

        def move(at: Indices) -> Indices:
            return tuple(number(0) if one else at[wanted[axis]] for axis, one in enumerate(ones))

        return View(whole, source.kind, source=source, move=move, expands=True, site=asked.site)

    left = {**{a: n for n, a in enumerate(shared)}, **{a: first + n for n, a in enumerate(free)}}
    right = {**{a: n for n, a in enumerate(shared_too)}, **{a: last + n for n, a in enumerate(free_too)}}
    left |= {a: rank + n for n, a in enumerate(summed)}
    right |= {a: rank + n for n, a in enumerate(summed_too)}
    body = Map(whole, asked.kind, "*", (placed(x, left), placed(y, right)), site=asked.site)
    return asked.reduced("sum", body, tuple(range(rank, len(whole))), False) if summed else body


@rule("gather_slices")
def gather_slices(
    asked: Asked,
    x: Node,
    ids: Node,
    sizes: tuple[Polynomial, ...],
    *,
    offset_dims: Any,
    start_index_map: Any,
    operand_batching_dims: Any,
    start_indices_batching_dims: Any,
) -> Node:
    """Elements at places that an array says: its last axis has a place for each of some axes of the source."""
    rank, width = len(x.shape), len(ids.shape) - 1
    offsets = [place(axis, len(asked.shape)) for axis in offset_dims]
    found = [place(axis, rank) for axis in start_index_map]
    batching = [place(axis, rank) for axis in operand_batching_dims]
    batch = [axis for axis in range(len(asked.shape)) if axis not in offsets]
    kept = [axis for axis in range(rank) if axis not in (*found, *batching)]
    wholes = [axis for axis in found if sizes[axis].constant != 1]
    if wholes or len(kept) != len(offsets) or any(sizes[axis] != x.shape[axis] for axis in kept):
        raise Unreadable("stretches of an array are taken from places that data say")
    ids = _from_start(ids)

    def table(number_of: int) -> tuple[Node, Callable[[Indices], Indices]]:
        ones = [extent.constant == 1 for extent in ids.shape[:width]]

        def where(at: Indices) -> Indices:
            own = (number(0) if one else at[axis] for axis, one in zip(batch, ones, strict=True))
            return (*own, number(number_of))

        return ids, where

    shared = {axis: batch[place(b, width)] for axis, b in zip(batching, start_indices_batching_dims, strict=True)}
    lasting = {**shared, **dict(zip(kept, offsets, strict=True))}

    def move(at: Indices) -> Indices:
        return tuple(at[lasting[axis]] if axis in lasting else number(0) for axis in range(rank))

    tables = {axis: table(number_of) for number_of, axis in enumerate(found)}
    return Gathered(asked.shape, x.kind, source=x, tables=tables, move=move, site=asked.site)


def _from_start(ids: Node) -> Node:
    """Places without the choice that counts negative ones from the end: a relation has none."""
    if isinstance(ids, View):
        return replaced(ids, _from_start(ids.source))
    if isinstance(ids, Map) and ids.op == "if":
        condition, then, otherwise = ids.arguments
        negative = isinstance(condition, Map) and condition.op == "<" and condition.arguments[0] is otherwise
        if negative and isinstance(then, Map) and then.op == "+" and otherwise in then.arguments:
            return otherwise
    return ids


@rule("write_slice")
def write_slice(
    asked: Asked,
    x: Node,
    start: Node,
    value: Any,
    *,
    update_window_dims: Any,
    inserted_window_dims: Any,
    scatter_dims_to_operand_dims: Any,
) -> Node:
    """An array with one stretch of it written anew, from a place on that is known."""
    rank = len(x.shape)
    inserted = [place(axis, rank) for axis in inserted_window_dims]
    moved = [place(axis, rank) for axis in scatter_dims_to_operand_dims]
    part = asked.node(value)
    if len(start.shape) != 1 or len(update_window_dims) != len(part.shape):
        raise Unreadable("elements are written at places that data say")
    starts = {axis: _known(start, number(place_of)) for place_of, axis in enumerate(moved)}
    rest = [axis for axis in range(rank) if axis not in inserted]
    sizes = {axis: part.shape[n] for n, axis in enumerate(rest)}

    def inverse(at: Indices) -> tuple[Indices, tuple[Polynomial, ...]]:
        gaps: list[Polynomial] = []
        for axis, first in starts.items():
            inside = at[axis] - first
            gaps += (inside, sizes.get(axis, number(1)) - 1 - inside)
        return tuple(at[axis] - starts.get(axis, number(0)) for axis in rest), tuple(gaps)

    if not starts:
        return part if part.shape == x.shape else _refuse_write()
    return Patched(asked.shape, x.kind, source=x, part=part, inverse=inverse, site=asked.site)


def _refuse_write() -> Node:
    raise Unreadable("elements are written at places that data say")


def _known(start: Node, at: Polynomial) -> Polynomial:
    """The number that an array of places has at one of them."""
    from .writing import known_whole

    found = known_whole(start, (at,) if len(start.shape) == 1 and start.shape[0].constant != 1 else (number(0),))
    if found is None:
        raise Unreadable("elements are written at places that data say")
    return found
