"""Inputs and their arrays, drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tests.laws.draws import Choose
from tests.laws.phrases import Phrases
from tests.laws.scopes import NAMES, Scope, number, size_of
from tests.laws.terms import Dim, Fn, Input, Kind, Let, Op, Size, Tensor, Term

Array = np.ndarray[Any, Any]

WHOLE: dict[str | None, Any] = {"i8": np.int8, "u8": np.uint8, "i32": np.int32, "i64": np.int64}


class Inputs(Phrases):
    """Draws inputs, each with an array for one call."""

    def __init__(self, choose: Choose) -> None:
        super().__init__(choose)
        self.inputs: list[Input] = []
        self.arrays: dict[str, Array] = {}
        self.functions: list[Fn] = []
        self.groups: list[tuple[Let, ...]] = []
        self.sizes: dict[str, Dim] = {}
        self.tensors: list[Tensor] = []

    @property
    def scope(self) -> Scope:
        return Scope(tuple(self.tensors), tuple(self.functions), dict(self.sizes))

    def draw_inputs(self) -> None:
        self.noise = np.random.default_rng(self.choose(1 << 16))
        self.narrow = self.weighted((5, "f64"), (2, "f32"), (2, "mixed"), (1, "f16"))
        self.wild = self.chance(8)
        self.shadowing = self.chance(15)
        dims: list[Dim] = []
        for name in NAMES[: 2 + self.choose(3)]:
            if dims and self.chance(30):
                self.sizes[name] = self.pick(dims)
                continue
            dims.append(Dim(self.pick((2, 3, 1, 4)), stated=self.chance(15)))
            self.sizes[name] = dims[-1]
        if self.chance(25):
            self.spaces = {dim: tuple(n for n, d in self.sizes.items() if d is dim) for dim in dims}
            for dim in dims:
                self.spaces[dim] += (self.fresh("p"), self.fresh("p"))
        leading = None
        if not self.spaces and self.chance(20):
            leading = tuple(Dim(self.pick((2, 1, 3))) for _ in range(self.choose(3)))
        for place in range(1 + self.choose(4)):
            self.add_input("xyzwv"[place], "real", leading if self.chance(50) else None)
        if leading is not None and all(tensor.open is None for tensor in self.tensors):
            self.add_input("a", "real", leading)
        if self.chance(35):
            self.add_product()
        for name, kind, percent in (("p", "whole", 45), ("q", "whole", 15), ("b", "bool", 40)):
            if self.chance(percent):
                self.add_input(name, kind)  # type: ignore[arg-type]
        if self.chance(35):
            self.add_scalar()
        named = {name for input in self.inputs for name in input.home}
        self.sizes = {name: dim for name, dim in self.sizes.items() if name in named}

    def add_input(self, name: str, kind: Kind, leading: tuple[Dim, ...] | None = None) -> None:
        ranks = (1, 2, 3) if leading is None else (0, 1, 2)
        names = self.shuffled(list(self.sizes))[: self.pick(ranks)]
        axes = tuple(self.sizes[name] for name in names)
        tensor = Tensor(name, (*(leading or ()), *axes), kind, open=None if leading is None else len(leading))
        if kind == "whole" and self.chance(80):
            tensor.below = self.pick(list(self.sizes.values()))
        self.declare(tensor, tuple(names))

    def add_product(self) -> None:
        """An input with an axis that two coordinates make together."""
        named = sorted({name for input in self.inputs for name in input.home})
        if len(named) < 2:
            return
        high, low = self.shuffled(named)[:2]
        dims = self.sizes[high], self.sizes[low]
        words = Op(("*",), (Size(high, dims[0]), Size(low, dims[1])), "whole")
        product = Dim(size_of(dims[0]) * size_of(dims[1]), (words,), parts=dims)
        if product.size and product.size > 8:
            return
        name = "n"
        if self.spaces:
            self.spaces[product] = (name, self.fresh("p"))
        self.products.append((product, *dims))
        others = [other for other in self.sizes if self.chance(20)][:1]
        self.sizes[name] = product
        tensor = Tensor("u", (*(self.sizes[other] for other in others), product), "real")
        self.declare(tensor, (*others, name), {name: words})

    def add_scalar(self) -> None:
        """A scalar input: a real, or a whole number that says how many points something has."""
        # Sometimes it is called as a coordinate is elsewhere.
        name = self.pick([n for n in NAMES if n not in self.sizes]) if self.shadowing and not self.spaces else "s"
        if self.chance(50):
            self.declare(Tensor(name, (), "real"), ())
        else:
            self.declare(Tensor(name, (), "whole", counts=self.pick(list(self.sizes.values()))), ())

    def declare(self, tensor: Tensor, home: tuple[str, ...], stated: Mapping[str, Term] | None = None) -> None:
        dtype = self.dtype_of_input(tensor)
        tensor.given = True
        stated = dict(stated or {})
        stated.update({name: number(size_of(self.sizes[name])) for name in home if self.sizes[name].stated})
        self.inputs.append(Input(tensor, home, dtype, stated))
        self.tensors.append(tensor)
        shape = tuple(size_of(dim) for dim in tensor.axes)
        self.arrays[tensor.name] = self.array(tensor, dtype, shape)

    def dtype_of_input(self, tensor: Tensor) -> str | None:
        """What is declared. A whole or Boolean input that nothing else gives away has to be."""
        if tensor.kind == "real":
            return self.pick((None, None, "f64")) if self.narrow == "f64" else None
        if tensor.kind == "bool":
            return "bool"
        return self.pick(("i64", "i64", "i64", "i32", "i8", "u8"))

    def array(self, tensor: Tensor, dtype: str | None, shape: tuple[int, ...]) -> Array:
        noise = self.noise
        if tensor.kind == "bool":
            return noise.random(shape) < 0.6
        if tensor.kind == "whole":
            if tensor.counts is not None:
                return np.array(size_of(tensor.counts), WHOLE[dtype])
            high = size_of(tensor.below) if tensor.below is not None else 5
            low = 0 if tensor.below is not None or dtype == "u8" else -4
            return noise.integers(low, high, shape).astype(WHOLE[dtype])
        width = "f64" if dtype == "f64" else self.narrow
        width = self.pick(("f64", "f32", "int")) if width == "mixed" else width
        if width == "int":
            return noise.integers(-3, 4, shape)
        cells = noise.integers(-8, 9, shape) / 4 if self.chance(60) else noise.standard_normal(shape)
        cells = np.asarray(cells, np.float16).astype({"f64": np.float64, "f32": np.float32, "f16": np.float16}[width])
        if self.wild and cells.size:
            cells.reshape(-1)[0] = self.pick((np.nan, np.inf, -np.inf))
        return cells
