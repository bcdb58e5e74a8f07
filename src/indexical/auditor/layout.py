"""Layouts: how the named axes of a tensor lie in an array, as in `b i (h d)`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic


def refusal(message: str, help: str) -> CallError:
    """The question itself is at fault."""
    return CallError([Diagnostic("IX515", message, help=help)])


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of an array, each with the factors that are packed in it. A factor that is a number is that long."""

    dims: tuple[tuple[str, ...], ...]

    @property
    def factors(self) -> tuple[str, ...]:
        return tuple(factor for dim in self.dims for factor in dim)

    def __str__(self) -> str:
        return " ".join(dim[0] if len(dim) == 1 else f"({' '.join(dim)})" for dim in self.dims)

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(math.prod(size_of(factor, sizes) for factor in dim) for dim in self.dims)

    def split(self, array: Any, sizes: Mapping[str, int], order: Sequence[str]) -> Any:
        """The array with one axis a factor, in the order that is asked for."""
        parts = array.reshape([size_of(factor, sizes) for factor in self.factors])
        return parts.transpose([self.factors.index(factor) for factor in order])

    def join(self, array: Any, sizes: Mapping[str, int], order: Sequence[str]) -> Any:
        """The reverse of `split`."""
        parts = array.transpose([list(order).index(factor) for factor in self.factors])
        return np.ascontiguousarray(parts).reshape(self.shape(sizes))


def size_of(factor: str, sizes: Mapping[str, int]) -> int:
    return int(factor.partition("#")[0]) if factor[0].isdigit() else sizes[factor]


def parse_layout(name: str, text: Any) -> Layout:
    """`b i (h d)` as a layout. The second of two axes with one letter, as in `n n`, has a mark: `n'`."""
    if not isinstance(text, str) or not re.fullmatch(r"(\s*(\w+|\(\s*\w+(\s+\w+)*\s*\))\s*)*", text):
        raise refusal(f"the axes of `{name}` cannot be read: {text!r}", "axes look like `b h i d`, packed ones `(h d)`")
    dims: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for part in re.findall(r"\([^)]*\)|\w+", text):
        factors = []
        for factor in part.strip("()").split():
            fresh = factor
            if factor in seen:
                fresh = f"{factor}#{len(seen)}" if factor.isdigit() else f"{factor}'"
            if fresh in seen:
                raise refusal(f"the axes of `{name}` have `{factor}` too often", "every axis has a letter of its own")
            seen.add(fresh)
            factors.append(fresh)
        dims.append(tuple(factors))
    return Layout(tuple(dims))


def parse_axes(axes: Mapping[str, str] | str) -> dict[str, Layout]:
    """Layouts by name, from a mapping or from `x=b i c, out=b i c`."""
    if isinstance(axes, str):
        pairs = [part.partition("=") for part in axes.split(",") if part.strip()]
        if any(not equals for _, equals, _ in pairs):
            raise refusal(f"axes cannot be read: {axes!r}", "they look like `x=b i c, out=b i c`")
        axes = {name.strip(): text for name, _, text in pairs}
    return {name: parse_layout(name, text) for name, text in axes.items()}


def check_ranks(layouts: Mapping[str, Layout], shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse layouts that name more or fewer axes than the arrays have."""
    for name, layout in layouts.items():
        if name in shapes and len(shapes[name]) != len(layout.dims):
            message = f"`{name}` has {len(shapes[name])} axes, and `{layout}` names {len(layout.dims)}"
            raise refusal(message, f"its shape is {tuple(shapes[name])}: name each axis once")


def infer_sizes(
    layouts: Mapping[str, Layout], shapes: Mapping[str, Sequence[int]], known: Mapping[str, int]
) -> dict[str, int]:
    """The size of every factor, from the shapes of the arrays and what is known already."""
    sizes = dict(known)
    pending = [
        (name, dim, length)
        for name, layout in layouts.items()
        if name in shapes
        for dim, length in zip(layout.dims, shapes[name], strict=True)
    ]
    while pending:
        rest = []
        for name, dim, length in pending:
            unknown = [factor for factor in dim if not factor[0].isdigit() and factor not in sizes]
            whole = math.prod(size_of(factor, sizes) for factor in dim if factor not in unknown)
            if len(unknown) > 1:
                rest.append((name, dim, length))
            elif len(unknown) == 1 and length % max(whole, 1) == 0:
                sizes[unknown[0]] = length // max(whole, 1)
            elif unknown or whole != length:
                product = " × ".join(f"{f} = {size_of(f, sizes)}" for f in dim if f not in unknown)
                raise refusal(
                    f"an axis of `{name}` is `{' '.join(dim)}` and {length} long, which does not fit {product}",
                    "the same letter is the same size everywhere; `heads` says how many heads are packed in an axis",
                )
        if len(rest) == len(pending):
            name, dim, _ = rest[0]
            raise refusal(
                f"the sizes packed in `({' '.join(dim)})` of `{name}` are not known",
                "say the number of heads: `Contract(heads=8)`, or `--heads 8`",
            )
        pending = rest
    return sizes
