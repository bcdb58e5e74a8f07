"""Every way to the outputs of a program and to their gradients: calls, isolated calls, emitted files, on both sides of
the sizes at which another kernel is chosen. All are compared with the reference, and its finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from tests.laws.guarded import Guarded
from tests.laws.guarded_arrays import distance
from tests.laws.guarded_grids import Array
from tests.pairs import ALL, called_few

import indexical as ix

CLOSE = 1e-9
# How a program is called, how many pairs of a query and a key are few, and whether its inputs learn.
WAYS = (
    *(("called", pairs, learns) for pairs in (ALL, 0) for learns in (True, False)),
    *(("emitted", pairs, True) for pairs in (ALL, 0)),
    *((way, ALL, learns) for way, learns in (("isolated", True), ("isolated", False), ("emitted", False))),
)
# Of finite differences, and how far they may be from a derivative.
STEP, STEEP = 1e-5, 1e-5


def emitted(program: ix.Program, arrays: Mapping[str, Any]) -> Any:
    """The results of the emitted file, called as it stands."""
    text = program.source(**arrays)
    scope: dict[str, Any] = {"__name__": "emitted"}
    exec(compile(text, "<emitted>", "exec"), scope)
    return scope["program"](*(arrays[name] for name in program.inputs))


def ways(program: ix.Program, case: Guarded, backends: Sequence[str]) -> Iterator[tuple[str, Any, list[Any]]]:
    """The name of each way, its results, and the leaves that learn: none where nothing does."""
    for backend, (way, pairs, learns) in product(backends, WAYS):
        if learns and backend != "torch":
            continue
        arrays = {name: given(array, backend, learns) for name, array in case.arrays.items()}
        with called_few(pairs), warnings.catch_warnings():
            warnings.simplefilter("error")
            found = emitted(program, arrays) if way == "emitted" else program(**arrays, isolate=way == "isolated")
        found = found if isinstance(found, tuple) else (found,)
        leaves = [arrays[name] for name in case.reals] if learns else []
        yield f"{way} by {backend}{', learning' * learns}, {'few' if pairs else 'many'} pairs", found, leaves


def given(array: Array, backend: str, learns: bool) -> Any:
    if backend == "numpy":
        return array
    if backend == "torch":
        return torch.tensor(array, requires_grad=learns and array.dtype.kind == "f")
    from jax import numpy as jnp

    return jnp.asarray(array)


def check(case: Guarded, backends: Sequence[str] = ("numpy", "torch")) -> None:
    """All ways say what the reference says, and autograd what its finite differences say."""
    program = ix.compile(case.text)
    expected = reference(program, case.arrays)
    noise = np.random.default_rng(len(case.text))
    # Nothing is asked of numbers that are not finite.
    cotangents = [np.where(np.isfinite(one), noise.normal(size=one.shape), 0.0) for one in expected]
    direction = {name: noise.normal(size=case.arrays[name].shape) for name in case.reals}
    slope = finite_slope(program, case, direction, cotangents)
    for way, found, leaves in ways(program, case, backends):
        for name, one, right in zip(program.outputs, found, expected, strict=True):
            cells = one.detach().numpy() if isinstance(one, torch.Tensor) else np.asarray(one)
            words = f"{case!r}\n{way}: `{name}` is\n{cells!r}\nand should be\n{right!r}"
            assert cells.shape == right.shape, words
            assert distance(cells, right) <= CLOSE * max(1.0, np.abs(right[np.isfinite(right)]).max(initial=0)), words
        if leaves and slope is not None:
            flows = pulled_back(found, cotangents, leaves)
            words = f"{case!r}\n{way}: {dict(zip(case.reals, flows, strict=True))}"
            assert all(np.isfinite(flow).all() for flow in flows), words
            parts = [float((flow * direction[name]).sum()) for name, flow in zip(case.reals, flows, strict=True)]
            size = max(1.0, sum(map(abs, parts)))
            assert abs(sum(parts) - slope) <= STEEP * size, f"{words}\nhave a slope of {sum(parts)}, not {slope}"


def pulled_back(found: Sequence[Any], cotangents: Sequence[Array], leaves: Sequence[Any]) -> list[Array]:
    """What flows back to each leaf; 0 where nothing does."""
    pairs = zip(found, cotangents, strict=True)
    moving = [(one, torch.from_numpy(flow)) for one, flow in pairs if one.requires_grad and flow.any()]
    outputs, flows = ([pair[n] for pair in moving] for n in (0, 1))
    parts = torch.autograd.grad(outputs, leaves, flows, allow_unused=True) if moving else [None] * len(leaves)
    whole = zip(leaves, parts, strict=True)
    return [np.zeros(tuple(leaf.shape)) if part is None else part.numpy() for leaf, part in whole]


def reference(program: ix.Program, arrays: Mapping[str, Array]) -> list[Array]:
    found = program(**arrays, backend="reference")
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


def finite_slope(
    program: ix.Program, case: Guarded, direction: Mapping[str, Array], cotangents: Sequence[Array]
) -> float | None:
    """The derivative along a direction by central differences; None where two steps disagree, as at a kink."""

    def difference(step: float) -> float:
        moved = ({name: case.arrays[name] + sign * step * direction[name] for name in direction} for sign in (1, -1))
        high, low = (reference(program, {**case.arrays, **reals}) for reals in moved)
        with np.errstate(invalid="ignore"):
            parts = [np.where(c == 0, 0.0, (a - b) * c).sum() for a, b, c in zip(high, low, cotangents, strict=True)]
        return float(sum(parts)) / (2 * step)

    wide, narrow = difference(2 * STEP), difference(STEP)
    return narrow if abs(wide - narrow) <= STEEP / 4 * max(1.0, abs(narrow)) else None
