"""Sizes to ask at: the example's own; smaller ones, cut from it; others, where sizes coincide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .calling import Foreign, Unusable
from .contract import Contract
from .layout import Layout, size_of
from .sanity import plain

_SMALL = {"b": 2, "i": 7, "j": 7}
_MANY = 100  # Lanes times keys, beyond which a smaller example is cut.


def cut(foreign: Foreign, layouts: Mapping[str, Layout], sizes: dict[str, int], contract: Contract) -> dict[str, int]:
    """Make the example smaller where it is large and the callable takes less; return the sizes that it has then."""
    lanes = max(_product(layout, sizes) for name, layout in layouts.items() if name in foreign.example)
    if lanes <= _MANY:
        return sizes
    smaller = _smaller(sizes, contract)
    without = [
        name
        for name, value in foreign.example.items()
        if hasattr(value, "shape") and value.shape and name not in layouts
    ]
    if smaller == sizes or without:
        return sizes
    kept = foreign.example
    foreign.example = {
        name: _sliced(value, layouts[name], sizes, smaller) if name in layouts else value
        for name, value in kept.items()
    }
    shape, foreign.out_shape = foreign.out_shape, layouts["out"].shape(smaller)
    try:
        if foreign({name: plain(value) for name, value in foreign.example.items()}).shape == foreign.out_shape:
            return smaller
    except Unusable:
        pass
    foreign.example, foreign.out_shape = kept, shape
    return sizes


def _product(layout: Layout, sizes: Mapping[str, int]) -> int:
    """Lanes times positions, by the letters that are cut or that are heads."""
    product = 1
    for factor in layout.factors:
        if factor in ("b", "h", "g", "i", "j"):
            product *= sizes[factor]
    return product


def _smaller(sizes: dict[str, int], contract: Contract) -> dict[str, int]:
    fixed = {"i", "j"} if contract.regions is not None else set()
    smaller = {
        name: min(size, _SMALL[name]) if name in _SMALL and name not in fixed else size for name, size in sizes.items()
    }
    if contract.window is not None and "i" in smaller and "i" not in fixed:
        for name in ("i", "j"):
            if name in sizes:
                smaller[name] = min(sizes[name], max(_SMALL[name], contract.window + 3))
    i, j = sizes.get("i"), sizes.get("j")
    if i is not None and j is not None and not fixed and i != j and smaller["i"] == smaller["j"]:
        smaller["i" if i < j else "j"] = max(1, min(i, j, smaller["j"] - 3))
    return smaller


def _sliced(value: Any, layout: Layout, sizes: Mapping[str, int], smaller: Mapping[str, int]) -> Any:
    if not hasattr(value, "shape"):
        return value
    parts = value.reshape([size_of(factor, sizes) for factor in layout.factors])
    parts = parts[tuple(slice(0, size_of(factor, smaller)) for factor in layout.factors)]
    return parts.reshape(layout.shape(smaller))


def other_sizes(
    foreign: Foreign, layouts: Mapping[str, Layout], sizes: dict[str, int], contract: Contract
) -> dict[str, int] | None:
    """Sizes of which no two are the same, where those of the example are; None where nothing would be learnt."""
    letters = [letter for letter in ("b", "h", "g", "i", "d") if letter in sizes]
    coincide = len({sizes[letter] for letter in letters}) < len(letters)
    if contract.regions is not None or not (coincide or sizes.get("b") == 1):
        return None
    if any(hasattr(value, "shape") and value.shape and name not in layouts for name, value in foreign.example.items()):
        return None
    taken = {sizes[letter] for letter in ("h", "g", "d", "e") if letter in sizes}
    chosen = dict(sizes)
    if "b" in sizes:
        chosen["b"] = next(size for size in (2, 3, 4, 5, 6) if size not in taken or size == 6)
        taken.add(chosen["b"])
    length = next(size for size in range(max(5, (contract.window or 0) + 3), 99) if size not in taken)
    for letter in ("i", "j"):
        if letter in sizes:
            chosen[letter] = length
    if "i" in sizes and "j" in sizes and sizes["i"] != sizes["j"]:
        chosen["i" if sizes["i"] < sizes["j"] else "j"] = length - 2
    return chosen
