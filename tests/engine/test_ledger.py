"""The ledger of a plan says the bytes that a call holds: within 5 % of what is measured, at sizes that matter."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.engine import door
from tests.engine.test_specialise import lowered, sizes
from tests.run.measuring import peak

import indexical as ix
from indexical.engine import lower as lowering
from indexical.engine import rules, show
from indexical.engine.counted import Counted, moved, multiplications
from indexical.engine.kept import Taken
from indexical.engine.ledger import bytes_of
from indexical.engine.ops import Contract, Plan
from indexical.engine.order import ordered
from indexical.engine.way_back import Call
from indexical.run.bind import Bound, bind
from indexical.run.samples import random_arrays

EXAMPLES = Path(__file__).parents[2] / "examples"
# A library's own buffers, whatever the arrays are.
FIXED = 160 * 1024

# Programs of arrays that are neither attention nor tiny, each at sizes that make arrays of a few MiB.
CASES: dict[str, dict[str, int]] = {
    "convolution.ix": {"b": 2, "c": 8, "o": 8, "x": 96, "y": 96},
    "gated_recurrence.ix": {"t": 64, "d": 96, "e": 96},
    "variants/cosformer.ix": {"h": 4, "i": 512, "j": 512, "d": 64, "e": 64},
    "variants/delta_rule.ix": {"h": 4, "t": 64, "d": 64, "e": 64},
    "variants/linear.ix": {"h": 8, "i": 512, "j": 512, "d": 128, "e": 128},
    "variants/performer.ix": {"h": 8, "i": 512, "j": 512, "d": 64, "e": 64, "r": 128},
    "variants/pointer.ix": {"i": 128, "j": 128, "d": 64, "a": 64, "e": 64},
    "variants/relu.ix": {"h": 4, "i": 512, "j": 512, "d": 32, "e": 32},
    "variants/retention.ix": {"h": 4, "i": 512, "j": 512, "d": 32, "e": 32},
    "variants/sigmoid.ix": {"h": 4, "i": 512, "j": 512, "d": 32, "e": 32},
    "variants/softpick.ix": {"h": 4, "i": 512, "j": 512, "d": 32, "e": 32},
    "variants/stick_breaking.ix": {"h": 2, "i": 512, "j": 512, "d": 32, "e": 32},
    "variants/taylor.ix": {"h": 4, "i": 512, "j": 512, "d": 32, "e": 32},
    "variants/test_time_training.ix": {"h": 4, "t": 64, "d": 64, "e": 64},
}
TEXTS = {
    "layer norm": (
        "input x[i, d], g[d]; let m[i] = mean[d](x[i, d]); let v[i] = mean[d]((x[i, d] - m[i]) ** 2);"
        "let y[i, d] = (x[i, d] - m[i]) * rsqrt(v[i] + 0.00001) * g[d];",
        {"i": 2048, "d": 512},
    ),
    "chain": (
        "input x[i, j]; let a[i, j] = exp(x[i, j]); let b[i, j] = a[i, j] + x[i, j]; let c[i, j] = tanh(b[i, j]);"
        "let y[i] = sum[j](c[i, j] * b[i, j]);",
        {"i": 1024, "j": 1024},
    ),
    "products": (
        "input A[i, k], B[k, j], C[j, l]; let AB[i, j] = sum[k](A[i, k] * B[k, j]);"
        "let y[i, l] = sum[j](relu(AB[i, j]) * C[j, l]);",
        {"i": 1024, "k": 256, "j": 1024, "l": 512},
    ),
    "gather": ("input x[n, d], p[i] : i64; let y[i, d] = x[p[i], d] * 2;", {"n": 512, "i": 4096, "d": 256}),
}


def measured(library: str, plan: Plan, arrays: list[Any], frees: bool) -> int:
    """The most bytes that a call of the printed function holds beside its inputs."""
    function = door.load(show.show(plan, door.DIALECTS[library](), frees=frees))["program"]
    given = [torch.as_tensor(array) for array in arrays] if library == "torch" else arrays
    function(*given)
    if library == "torch":
        return peak(lambda: function(*given))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    function(*given)
    most = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return most


def drawn(text: str, given: dict[str, int]) -> tuple[Plan, Bound, list[Any]]:
    """A program as operations, for arrays of some sizes, and these."""
    program = ix.compile(text).ir
    names = {axis.coordinate.name for tensor in program.inputs for axis in tensor.axes}
    found = random_arrays(program, {}, {name: size for name, size in given.items() if name in names}, 0)[0].arrays
    arrays = {n: a.astype("f4") if np.asarray(a).dtype == "f8" else a for n, a in found.items()}
    bound = bind(program, arrays)
    dtypes = {tensor.name: bound.dtypes[tensor.name] for tensor in program.inputs}
    plan = rules.optimise(lowering.lower(program, dtypes), rules.Target())
    return plan, bound, [arrays[tensor.name] for tensor in program.inputs]


def check(text: str, given: dict[str, int], library: str, frees: bool = True) -> None:
    plan, bound, arrays = drawn(text, given)
    ledger = bytes_of(plan, bound.sizes, library, frees=frees)
    got = measured(library, plan, arrays, frees)
    assert got > 10 * FIXED
    assert abs(ledger.peak - got) <= 0.05 * got + FIXED, (ledger.peak, got, ledger.largest)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_the_ledger_says_what_is_measured(name: str, library: str) -> None:
    check(str(EXAMPLES / name), CASES[name], library)


@pytest.mark.parametrize("name", CASES)
def test_arrays_of_jax_are_counted(name: str) -> None:
    """At least those that hold its results; what JAX makes besides is not measured."""
    plan, bound, arrays = drawn(str(EXAMPLES / name), CASES[name])
    function = door.load(show.show(plan, door.DIALECTS["numpy"]()))["program"]
    found = function(*arrays)
    results = found if isinstance(found, tuple) else (found,)
    assert bytes_of(plan, bound.sizes, "jax").peak >= sum(result.nbytes for result in results)


@pytest.mark.parametrize("frees", [False, True])
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", TEXTS)
def test_the_ledger_of_small_programs(name: str, library: str, frees: bool) -> None:
    check(*TEXTS[name], library, frees)


@pytest.mark.parametrize("name", [*CASES, *TEXTS])
def test_the_ledger_says_what_is_measured_there_and_back(name: str) -> None:
    plan, bound, arrays = drawn(*((str(EXAMPLES / name), CASES[name]) if name in CASES else TEXTS[name]))
    given = [torch.as_tensor(array) for array in arrays]
    learned = [array.requires_grad_() for array in given if array.is_floating_point()]
    names = [tensor.name for tensor, array in zip(plan.program.inputs, given, strict=True) if array.requires_grad]
    text = show.statements(plan, door.DIALECTS["torch"]())
    ledger = Call(plan, Counted(bound.sizes, {}), "torch", text, frozenset(names), no_kernel).whole(())
    function = door.load(show.show(plan, door.DIALECTS["torch"](), frees=True))["program"]

    def step() -> Any:
        found = function(*given)
        results = [one for one in (found if isinstance(found, tuple) else (found,)) if one.requires_grad]
        return torch.autograd.grad(results, learned, [torch.ones_like(one) for one in results], allow_unused=True)

    step()
    got = peak(step)
    assert got > 10 * FIXED
    assert abs(ledger.peak - got) <= 0.05 * got, (ledger.peak, got, ledger.largest)


def no_kernel(*asked: Any) -> Taken:
    raise AssertionError(asked)


def test_work_is_counted() -> None:
    plan = rules.optimise(lowered("input A[i, k], B[k, j]; let C[i, j] = sum[k](A[i, k] * B[k, j]);"), rules.Target())
    counted = Counted(sizes(i=3, j=5, k=7), {})
    [product] = [one for one in ordered(plan) if isinstance(one.op, Contract)]
    assert multiplications(product, counted) == 3 * 5 * 7
    assert moved(product, counted) == 4 * (3 * 7 + 7 * 5 + 3 * 5)
