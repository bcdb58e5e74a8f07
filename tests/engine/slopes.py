"""The gradient of a drawn program by every way: autograd of PyTorch and JAX through emitted code, the derivative as a
program (by the reference and by each library), and finite differences of the reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tests.engine import door
from tests.engine.drawing import Array, Drawn
from tests.engine.judging import Judged

import indexical as ix
from indexical.run.kernel import Engine
from indexical.run.pointwise import evaluate_bound

# Of finite differences; how far these, and how far two derivatives, may be from each other.
STEP, STEEP, CLOSE = 1e-5, 1e-5, 1e-7
_TAKES: dict[str, Callable[[Array], Any]] = {"numpy": np.asarray, "torch": torch.from_numpy}


def moved_off_kinks(case: Drawn) -> Drawn:
    """The same program at a point that is no tie and no zero of anything."""
    noise = np.random.default_rng(case.seed)
    reals = {name: array for name, array in case.arrays.items() if array.dtype.kind == "f"}
    near = {name: array + 1e-2 * noise.uniform(0.5, 1, array.shape) for name, array in reals.items()}
    return replace(case, arrays={**case.arrays, **near})


class Differentiated(Judged):
    """A drawn program, and one of its outputs as a function of its real inputs."""

    def __init__(self, case: Drawn) -> None:
        super().__init__(case)
        kinds = {let.name: let.kind for let in self.program.ir.lets}
        self.of = next((name for name in reversed(self.program.outputs) if kinds.get(name) == "real"), None)
        self.reals = tuple(name for name, array in case.arrays.items() if array.dtype.kind == "f")
        self.noise = np.random.default_rng(case.seed)

    @cached_property
    def value(self) -> Array | None:
        """The output; None where there is none, or it is not finite."""
        if self.of is None or not self.reals:
            return None
        try:
            found = evaluate_bound(self.bound, (self.of,))[self.of]
        except ix.Error:
            return None
        return found if np.isfinite(found).all() else None

    @cached_property
    def cotangent(self) -> Array:
        """What flows back from the output; 1 from a scalar, which no derivative asks for."""
        assert self.value is not None
        return self.noise.standard_normal(self.value.shape) if self.value.ndim else np.ones(())

    @cached_property
    def direction(self) -> dict[str, Array]:
        """Where to go from here. What is 0 stays: on one side of it there may be no value."""
        arrays = self.case.arrays
        return {name: self.noise.standard_normal(arrays[name].shape) * (arrays[name] != 0) for name in self.reals}

    @cached_property
    def slope(self) -> float | None:
        """The derivative along the direction by central differences; None where two steps disagree."""
        assert self.value is not None

        of = self.of or ""

        def total(step: float) -> float:
            moved = {name: self.case.arrays[name] + step * self.direction[name] for name in self.reals}
            bound = self.engine.prepare({**self.case.arrays, **moved}, "numpy").bound
            return float((evaluate_bound(bound, (of,))[of] * self.cotangent).sum())

        narrow, wide = ((total(step) - total(-step)) / (2 * step) for step in (STEP, 2 * STEP))
        return narrow if abs(wide - narrow) <= STEEP / 4 * max(1.0, abs(narrow)) else None

    # ------------------------------------------------------------------------------------ ways

    def ways(self, jax: bool) -> Iterator[tuple[str, dict[str, Array]]]:
        """The gradient by every way, by its name."""
        backward = self.backward()
        if backward is None:
            return
        derivative, moving = backward
        expected = self.as_program(derivative, moving, "reference")
        if not all(np.isfinite(cells).all() for cells in expected.values()):
            return
        yield "ix.grad by the reference", expected
        yield "autograd", self.autograd(isolate=False)
        yield "isolated autograd", self.autograd(isolate=True)
        for library in ("numpy", "torch"):
            yield f"ix.grad by {library}", self.as_program(derivative, moving, library)
        if jax:
            yield "jax.vjp", self.by_jax()

    def backward(self) -> tuple[ix.Program, tuple[str, ...]] | None:
        """The derivative by all inputs that flow into the output, and those; None where none does."""
        by = list(self.reals)
        while by:
            try:
                return ix.grad(self.program, of=self.of, by=tuple(by)), tuple(by)
            except ix.Error as refusal:
                still = re.match(r"nothing flows from `(\w+)`", refusal.diagnostics[0].message)
                if still is None:
                    return None
                by.remove(still[1])
        return None

    def as_program(self, derivative: ix.Program, moving: tuple[str, ...], library: str) -> dict[str, Array]:
        new = [name for name in derivative.inputs if name not in self.program.inputs]
        given = {**self.case.arrays, **dict.fromkeys(new, self.cotangent)}
        bound = Engine(derivative.ir).prepare({name: given[name] for name in derivative.inputs}, "numpy").bound
        if library == "reference":
            found = [evaluate_bound(bound, derivative.outputs)[name] for name in derivative.outputs]
        else:
            dtypes = {t.name: bound.dtypes[t.name] for t in derivative.ir.inputs if t.name in bound.dtypes}
            built = door.build(derivative.ir, dtypes, library, derivative.outputs, frees=True)
            arrays = [np.array(given[name]) for name in derivative.inputs]
            found = [door.as_numpy(one) for one in built(*map(_TAKES[library], arrays))]
        return self._with_zeros(dict(zip(moving, found, strict=True)))

    def autograd(self, isolate: bool) -> dict[str, Array]:
        """By PyTorch, through the emitted code."""
        built = self._function("torch", isolate)
        arrays = self.case.arrays
        leaves = {name: torch.tensor(array, requires_grad=name in self.reals) for name, array in arrays.items()}
        [out] = built(*(leaves[name] for name in self.program.inputs))
        if not out.requires_grad:
            return self._with_zeros({})
        wanted = [leaves[name] for name in self.reals]
        found = torch.autograd.grad(out, wanted, torch.from_numpy(np.array(self.cotangent)), allow_unused=True)
        parts = zip(self.reals, found, strict=True)
        return self._with_zeros({name: part.numpy() for name, part in parts if part is not None})

    def by_jax(self) -> dict[str, Array]:
        """By JAX, through the emitted code while it is traced."""
        import jax

        built = self._function("jax", False)
        with jax.enable_x64(True):
            rest = {name: jax.numpy.asarray(array) for name, array in self.case.arrays.items()}

            def out(reals: Mapping[str, Any]) -> Any:
                return built(*({**rest, **reals}[name] for name in self.program.inputs))[0]

            _, pull = jax.vjp(out, {name: rest[name] for name in self.reals})
            [found] = pull(jax.numpy.asarray(self.cotangent))
        return self._with_zeros({name: np.asarray(part) for name, part in found.items()})

    def _function(self, library: str, isolate: bool) -> door.Built:
        assert self.of is not None
        dtypes = {t.name: self.bound.dtypes[t.name] for t in self.program.ir.inputs if t.name in self.bound.dtypes}
        return door.build(self.program.ir, dtypes, library, (self.of,), isolate, frees=True)

    def _with_zeros(self, found: Mapping[str, Array]) -> dict[str, Array]:
        return {name: found.get(name, np.zeros(self.case.arrays[name].shape)) for name in self.reals}

    # ------------------------------------------------------------------------------- the law

    def slope_fault(self, jax: bool = False) -> str | None:
        """How the ways to the gradient differ; None where they agree, or nothing is to be said."""
        if self.value is None or self.slope is None:
            return None
        expected: dict[str, Array] | None = None
        for way, found in self.ways(jax):
            expected = expected or found
            along = [float((cells * self.direction[name]).sum()) for name, cells in found.items()]
            if not all(np.isfinite(cells).all() for cells in found.values()):
                return f"{way}: not finite\n{found}"
            if abs(sum(along) - self.slope) > STEEP * max(1.0, sum(map(abs, along))):
                return f"{way}: a slope of {sum(along)}, not {self.slope}"
            for name, cells in found.items():
                right = expected[name]
                largest = max(1.0, float(np.abs(right).max(initial=0)))
                if cells.shape != right.shape or np.abs(cells - right).max(initial=0) > CLOSE * largest:
                    return f"{way}: `d_{name}` is {cells}, and should be {right}"
        return None
