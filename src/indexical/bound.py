"""Weights that are bound to a program for many calls: what can be done with them once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

from .api import Program
from .calculus import derived_program
from .ir import build
from .ir.walk import with_numbers
from .records import dataclass
from .run import tensors
from .transform.layouts import reordered, summed_last


def with_floats(program: Program, weights: dict[str, Any]) -> tuple[Program, dict[str, Any]]:
    """The program with the positive floats among its weights as numbers, for which there may be better kernels; and
    the other weights."""
    given = program._program
    numbers = {
        tensor.name: build.real(Fraction(repr(weights[tensor.name])), tensor.span)
        for tensor in given.inputs
        if type(weights.get(tensor.name)) is float and 0 < weights[tensor.name] < math.inf
        if tensor.kind == "real" and not tensor.axes and tensor.dtype is None
    }
    if not numbers:
        return program, weights
    said = [f"{name}={weights[name]!r}" for name in numbers]
    derived = replace(with_numbers(given, numbers), contracts=(), expects=())
    rest = {name: value for name, value in weights.items() if name not in numbers}
    return derived_program(program, derived, "numbers", said), rest


@dataclass(eq=False)
class Layouts:
    """The order of axes for each of some tensors, and the copies that lie so, each with the version that it is of."""

    orders: Mapping[str, tuple[int, ...]]
    copies: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def of(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """The weights, those that have an order of their own as copies in it."""
        found = dict(weights)
        for name, order in self.orders.items():
            value = weights[name]
            # Tensors of inference mode do not count their versions.
            version = None if value.is_inference() else (value.data_ptr(), value._version)
            kept = self.copies.get(name)
            if kept is None or version is None or kept[0] != version:
                kept = version, value.detach().permute(order).contiguous()
                self.copies[name] = kept
            found[name] = kept[1]
        return found


def laid_out_for_rows(program: Program, weights: dict[str, Any]) -> tuple[Program, Layouts]:
    """The program with the axes of its weights in the order in which a product with one row reads them, and copies of
    the weights that lie so. On a GPU the order does not matter."""
    ranks = {tensor.name: len(tensor.axes) for tensor in program._program.inputs}
    lying = {name: value for name, value in weights.items() if tensors.is_tensor(value) and value.device.type == "cpu"}
    given = [name for name, value in lying.items() if value.ndim == ranks[name]]
    orders = summed_last(program._program, given)
    if not orders:
        return program, Layouts({})
    derived = replace(reordered(program._program, orders), contracts=(), expects=())
    return derived_program(program, derived, "layout", sorted(orders)), Layouts(orders)
