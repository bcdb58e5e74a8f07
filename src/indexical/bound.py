"""Weights that are bound to a program for many calls: what can be done with them once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from operator import attrgetter
from typing import Any

from .api import Program
from .calculus import derived_program
from .ir import build
from .ir.walk import with_numbers
from .records import dataclass, field, replace
from .run import tensors
from .run.known import alike, unlike
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
    """The order of axes for each of some weights, and the copies that lie so. A copy stays the same array: when its
    weight has changed it is written over, so that who holds it has what the weight has."""

    orders: Mapping[str, tuple[int, ...]]
    copies: dict[str, Any] = field(default_factory=dict)
    _places: list[int] = field(default_factory=list)
    _versions: list[int] = field(default_factory=list)
    _is_alike: Callable[..., bool] = unlike
    _memory: list[Any] = field(default_factory=list)

    def of(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """The weights, those that have an order of their own as copies in it."""
        self.renew(weights)
        return {**weights, **self.copies}

    def renew(self, weights: Mapping[str, Any]) -> None:
        """Write over the copies of weights that have changed since: other numbers, or another array in their place."""
        if not self.orders:
            return
        torch = tensors.load_torch()
        given = [weights[name] for name in self.orders]
        places, versions = list(map(torch.Tensor.data_ptr, given)), list(map(_VERSION, given))
        is_alike = self._is_alike(*given)
        if is_alike and places == self._places and versions == self._versions:
            return
        # What is made in inference mode could not be written over outside of it.
        with torch.inference_mode(False), torch.no_grad():
            for number, (name, order) in enumerate(self.orders.items()):
                now = places[number], versions[number]
                if not is_alike or now != (self._places[number], self._versions[number]):
                    # An array of another rank is refused by the call.
                    turned = given[number].detach()
                    self._write(name, turned.permute(order) if turned.ndim == len(order) else turned)
            # Their memory is held, so that an array that replaces one does not come to lie in the same place.
            self._memory = [weight.detach() for weight in given]
        self._places, self._versions = places, versions
        self._is_alike = alike(tuple(given), of_one_size=True)

    def _write(self, name: str, turned: Any) -> None:
        copy = self.copies.get(name)
        if copy is not None and (copy.shape, copy.dtype) == (turned.shape, turned.dtype):
            copy.copy_(turned)
            return
        new = turned.clone(memory_format=tensors.load_torch().contiguous_format)
        if copy is None:
            self.copies[name] = new
        else:
            copy.data = new


_VERSION = attrgetter("_version")


def laid_out_for_rows(program: Program, weights: dict[str, Any]) -> tuple[Program, Layouts]:
    """The program with the axes of its weights in the order in which a product with one row reads them, and copies of
    the weights that lie so. On a GPU the order does not matter."""
    ranks = {tensor.name: len(tensor.axes) for tensor in program._program.inputs}
    lying = {name: value for name, value in weights.items() if tensors.is_tensor(value) and value.device.type == "cpu"}
    # Tensors of inference mode do not count their changes: a copy would not be known to be old.
    given = [name for name, value in lying.items() if value.ndim == ranks[name] and not value.is_inference()]
    orders = summed_last(program._program, given)
    if not orders:
        return program, Layouts({})
    derived = replace(reordered(program._program, orders), contracts=(), expects=())
    return derived_program(program, derived, "layout", sorted(orders)), Layouts(orders)
