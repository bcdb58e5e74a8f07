"""Contractions as they are printed: the numbers of every way, what is copied, what is one call, what comes first."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from tests.engine import door
from tests.engine.contractions import Contraction, drawn
from torch.utils._python_dispatch import TorchDispatchMode

import indexical as ix
from indexical.engine.ops import Contract, Plan
from indexical.engine.order import reachable, roots_of

DTYPES: dict[str, Any] = {"float64": "f64", "float32": "f32", "float16": "f16"}


def built(case: Contraction, library: str, dtype: str = "float64") -> door.Built:
    program = case.program
    return door.build(program, {one.name: DTYPES[dtype] for one in program.inputs}, library, ("out",))


def called(made: door.Built, library: str, arrays: list[Any]) -> Any:
    if library == "torch":
        arrays = [torch.from_numpy(array) for array in arrays]
    if library == "jax":
        import jax

        with jax.enable_x64(True):
            arrays = [jax.numpy.asarray(array) for array in arrays]
    return door.as_numpy(made(*arrays)[0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("library", door.LIBRARIES)
@pytest.mark.parametrize("several", [False, True], ids=["two", "several"])
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (0, 1, 2)], ids=["some", "few"])
def test_contractions_have_the_numbers_of_einsum(library: str, several: bool, sizes: tuple[int, ...]) -> None:
    for seed in range(4 if library == "jax" else 60):
        case = drawn(seed, several)
        arrays = case.arrays(Random(seed), sizes)
        found, expected = called(built(case, library), library, arrays), case.expected(arrays)
        assert found.shape == expected.shape, case.text
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=case.text)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_short_floats_are_summed_in_32_bits(library: str) -> None:
    """However many there are: sums in 16 bits would stay at 2048 here."""
    for text in (
        "input x[b, k]; input y[b, k];\nlet out[b] = sum[k](x[b, k] * y[b, k]);",
        "input x[b, k]; input y[k];\nlet out[b] = sum[k](x[b, k] * y[k]);",
        "input x[b, i, k]; input y[b, k, j];\nlet out[b, i, j] = sum[k](x[b, i, k] * y[b, k, j]);",
    ):
        program = ix.compile(text).ir
        made = door.build(program, {"x": "f16", "y": "f16"}, library, ("out",))
        shapes = [[2 if str(axis.coordinate) in "bij" else 8192 for axis in one.axes] for one in program.inputs]
        arrays: list[Any] = [np.ones(shape, "float16") for shape in shapes]
        assert (called(made, library, arrays) == 8192).all(), text


# ------------------------------------------------------------------------------- copies and calls


class Counting(TorchDispatchMode):
    """What PyTorch does while this is entered, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, call: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        self.names.append(call.overloadpacket.__name__)
        return call(*given, **(named or {}))

    @property
    def copies(self) -> int:
        return sum(name in ("clone", "copy_", "_to_copy", "contiguous") for name in self.names)


def counted(text: str, shapes: dict[str, list[int]], wanted: str) -> Counting:
    """What a program calls, of arrays of 32 bits."""
    made = door.build(ix.compile(text).ir, dict.fromkeys(shapes, "f32"), "torch", (wanted,))
    arrays = [torch.randn(shape) for shape in shapes.values()]
    with Counting() as counting:
        made(*arrays)
    return counting


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("input x[i, k]; input y[j, k];\nlet out[i, j] = sum[k](x[i, k] * y[j, k]);", ([3, 4], [5, 4])),
        ("input x[k, i]; input y[k, j];\nlet out[j, i] = sum[k](x[k, i] * y[k, j]);", ([4, 3], [4, 5])),
        ("input x[b, i, k]; input y[h, e, k];\nlet out[b, i, h, e] = sum[k](x[b, i, k] * y[h, e, k]);",
         ([2, 3, 4], [2, 5, 4])),
        ("input x[i, k]; input y[h, k, e];\nlet out[h, i, e] = sum[k](x[i, k] * y[h, k, e]);", ([3, 4], [2, 4, 5])),
        ("input x[b, h, i, e]; input y[b, h, j, e];\nlet out[b, h, i, j] = sum[e](x[b, h, i, e] * y[b, h, j, e]);",
         ([2, 3, 4, 5], [2, 3, 6, 5])),
        ("input x[b, g, r, i, e]; input y[b, g, j, e];\n"
         "let out[b, g, r, i, j] = sum[e](x[b, g, r, i, e] * y[b, g, j, e]);", ([2, 3, 2, 4, 5], [2, 3, 6, 5])),
        ("input x[b, i, h, e]; input y[d, h, e];\nlet out[b, i, d] = sum[h, e](x[b, i, h, e] * y[d, h, e]);",
         ([2, 3, 4, 5], [6, 4, 5])),
        ("input x[b, k]; input y[b, k, j];\nlet out[b, j] = sum[k](x[b, k] * y[b, k, j]);", ([2, 3], [2, 3, 4])),
    ],
)  # fmt: skip
def test_factors_that_lie_well_are_not_copied(text: str, shapes: tuple[list[int], list[int]]) -> None:
    assert not counted(text, dict(zip("xy", shapes, strict=True)), "out").copies


def test_free_definitions_lie_as_they_are_delivered() -> None:
    """The heads of a projection are one product, whose order nobody asks for: only the result is permuted."""
    text = """input x[b, i, d], W[h, e, d], u[h, e];
    let q[b, h, i, e] = sum[d](x[b, i, d] * W[h, e, d]) + u[h, e];
    let out[b, h, i, e] = relu(q[b, h, i, e]);"""
    names = counted(text, {"x": [2, 3, 4], "W": [2, 5, 4], "u": [2, 5]}, "out").names
    assert "addmm" in names
    assert "add" not in names
    assert names.count("permute") == 1


@pytest.mark.parametrize(
    ("text", "shapes", "call"),
    [
        ("input x[i, k], y[j, k], z[j];\nlet out[i, j] = sum[k](x[i, k] * y[j, k]) + z[j];",
         {"x": [3, 4], "y": [5, 4], "z": [5]}, "addmm"),
        ("input x[i, k], y[k, j], z[i, j];\nlet out[i, j] = z[i, j] + sum[k](x[i, k] * y[k, j]);",
         {"x": [3, 4], "y": [4, 5], "z": [3, 5]}, "addmm"),
        ("input x[i, k], y[k], z[i];\nlet out[i] = sum[k](x[i, k] * y[k]) + z[i];",
         {"x": [3, 4], "y": [4], "z": [3]}, "addmv"),
        ("input x[b, i, k], y[b, k, j], z[b, i, j];\nlet out[b, i, j] = sum[k](x[b, i, k] * y[b, k, j]) + z[b, i, j];",
         {"x": [2, 3, 4], "y": [2, 4, 5], "z": [2, 3, 5]}, "baddbmm"),
    ],
)  # fmt: skip
def test_a_product_and_what_is_added_are_one_call(text: str, shapes: dict[str, list[int]], call: str) -> None:
    names = counted(text, shapes, "out").names
    assert call in names
    assert "add" not in names


def test_a_product_that_is_read_twice_is_computed_once() -> None:
    text = """input x[i, k], y[k, j], z[j];
    let p[i, j] = sum[k](x[i, k] * y[k, j]);
    let out[i, j] = p[i, j] + z[j] + max[i](p[i, j]);"""
    names = counted(text, {"x": [3, 4], "y": [4, 5], "z": [5]}, "out").names
    assert sum(name in ("mm", "addmm") for name in names) == 1


# ------------------------------------------------------------------------------------------ pairs


def contractions(plan: Plan) -> list[Contract]:
    return [one.op for one in reachable(roots_of(plan)) if isinstance(one.op, Contract)]


def test_the_cheapest_pair_is_contracted_first() -> None:
    """Of two matrices and a vector, a matrix by the vector, and that by the other one: no product of matrices."""
    text = "input a[i, j], b[j, k], c[k];\nlet out[i] = sum[j, k](a[i, j] * b[j, k] * c[k]);"
    made = door.build(ix.compile(text).ir, {"a": "f64", "b": "f64", "c": "f64"}, "numpy", ("out",))
    assert [len(op.factors) for op in contractions(made.plan)] == [2, 2]
    assert all(min(len(one.axes) for one in op.factors) == 1 for op in contractions(made.plan))


def test_an_axis_of_one_factor_is_summed_before() -> None:
    text = "input a[i, j, l], b[j, k];\nlet out[i, k] = sum[j, l](a[i, j, l] * b[j, k]);"
    made = door.build(ix.compile(text).ir, {"a": "f64", "b": "f64"}, "numpy", ("out",))
    [op] = contractions(made.plan)
    assert [len(one.axes) for one in op.factors] == [2, 2]
