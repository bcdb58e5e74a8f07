"""Memory as a budget: kept to in a measurement, with the same values and gradients, and refused with the least."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.plan.test_growth import stack
from tests.variants import roster

import indexical as ix
from indexical.cli import main
from indexical.run.amounts import limit_of
from indexical.run.samples import random_arrays

torch = pytest.importorskip("torch")
nn = pytest.importorskip("indexical.nn")

from tests.run.measuring import peak  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"i": 24, "m": 8, "h": 2, "d": 4, "e": 4, "f": 40}
WIDE = {"i": 24, "d": 4, "e": 40}
TWICE = """input x[i, d], W[d, e], U[e, d];
let h[i, e] = tanh(sum[d](x[i, d] * W[d, e]));
let g[i, e] = h[i, e] * sigmoid(h[i, e]);
let y[i, d] = x[i, d] + sum[e](g[i, e] * U[e, d]);
let k[i, e] = tanh(sum[d](y[i, d] * W[d, e]));
let out[i, d] = y[i, d] + sum[e](k[i, e] * U[e, d]);
output out;
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Attention of the library has room of its own for each thread: of small arrays that is most."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def compiled(name: str) -> ix.Program:
    if name.startswith("stack"):
        return ix.compile(stack(int(name.split()[1])))
    return ix.compile(TWICE if name == "twice" else ROOT / "examples" / f"{name}.ix")


def drawn(program: ix.Program, sizes: Mapping[str, int], dtype: Any = torch.float32) -> dict[str, Any]:
    known = {axis.coordinate.name for tensor in program.ir.inputs for axis in tensor.axes}
    sample, _ = random_arrays(program.ir, {}, {name: size for name, size in sizes.items() if name in known}, seed=1)
    found = {name: torch.as_tensor(np.asarray(array)) for name, array in sample.arrays.items()}
    return {name: x.to(dtype).requires_grad_() if x.is_floating_point() else x for name, x in found.items()}


def step(program: ix.Program, arrays: Mapping[str, Any], **options: Any) -> list[Any]:
    """The results of a call, and the gradient of each input."""
    found = program(**arrays, **options)
    results = list(found) if isinstance(found, tuple) else [found]
    learned = [array for array in arrays.values() if array.requires_grad]
    asked = [result for result in results if result.requires_grad]
    weights = [torch.arange(one.numel(), dtype=one.dtype).cos().reshape(one.shape) for one in asked]
    gradients = torch.autograd.grad(asked, learned, weights, allow_unused=True) if asked else ()
    return [*results, *gradients]


def least(call: Callable[[], Any]) -> int:
    """The least budget, as the refusal of a smaller one names it."""
    with pytest.raises(ix.CallError, match="IX536") as refusal:
        call()
    found = re.search(r"memory=(\d+)", str(refusal.value))
    assert found is not None
    return int(found[1])


def near(one: torch.Tensor, other: torch.Tensor) -> None:
    """Hold two arrays to one another by the length of their difference: two printers round in other places, and layers
    multiply what is rounded."""
    assert torch.equal(one.isnan(), other.isnan())
    assert (one - other).nan_to_num().norm() <= 1e-12 + 1e-3 * other.nan_to_num().norm()


def agree(program: ix.Program, arrays: Mapping[str, Any], exactly: bool = True) -> set[int]:
    """Hold values and gradients under budgets from the least to no limit to those without; how often definitions are
    computed again."""
    # What is computed again is so by the same operations: without a limit, they are those of another printer.
    plain, unlimited = step(program, arrays), step(program, arrays, memory="1TB")
    for one, other in zip(plain, unlimited, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            near(other, one)
    low = least(lambda: program(**arrays, memory=1))
    high = program.plan(**arrays, memory="1TB").budget
    assert least(lambda: program.plan(**arrays, memory=int(0.99 * low))) == low
    assert high is not None
    assert not high.again
    assert low <= high.peak == high.whole
    counts = set()
    for limit in sorted({low, (low + high.peak) // 2, high.peak}):
        budget = program.plan(**arrays, memory=limit).budget
        assert budget is not None
        assert budget.peak <= limit == budget.limit
        counts.add(len(budget.again))
        for one, other in zip(unlimited, step(program, arrays, memory=limit), strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                # Blocks of other sizes are summed in another order.
                tolerance = {"rtol": 0.0, "atol": 0.0} if exactly and budget.room is None else {}
                torch.testing.assert_close(other, one, equal_nan=True, **tolerance)
    return counts


@pytest.mark.parametrize("name", ["stack 1", "twice", "lstm", "decoder"])
def test_values_and_gradients_are_those_without_a_budget(name: str) -> None:
    program = compiled(name)
    sizes = {"twice": WIDE, "decoder": {"t": 6, "m": 8, "n": 8}}.get(name, SIZES)
    counts = agree(program, drawn(program, sizes))
    assert len(counts) > (name in ("stack 1", "twice"))


@pytest.mark.sampled(0)
@pytest.mark.parametrize("layers", [2, 12])
def test_values_and_gradients_of_a_stack_are_those_without_a_budget(layers: int) -> None:
    program = compiled(f"stack {layers}")
    assert len(agree(program, drawn(program, SIZES))) > 1


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", roster.NAMES)
def test_variants_of_the_catalogue_keep_a_budget(name: str) -> None:
    # Rows that are sorted by their bucket are summed in another order, and so are the parts of a gradient of which some
    # are computed again and others not. Scores that are computed at once under one budget are streamed under another.
    program, arrays = roster.compiled(name), roster.arrays(name)
    is_one_way = "all at once" not in str(program.plan(**arrays))
    agree(program, arrays, exactly=is_one_way and name not in ("hashed_buckets", "multi_head"))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_peak_that_the_plan_names_is_measured(share: float) -> None:
    measure(2, share)


@pytest.mark.sampled(0)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.6, 1.0])
def test_the_peak_of_twelve_blocks_is_measured(share: float) -> None:
    measure(12, share)


def measure(layers: int, share: float) -> None:
    """Hold the peak under a budget between the least and none to the one that is measured."""
    program = compiled(f"stack {layers}")
    arrays = drawn(program, {"i": 256, "m": 128, "h": 2, "d": 64, "e": 64, "f": 512})
    low = least(lambda: program.plan(**arrays, memory=1))
    whole = program.plan(**arrays, memory="1TB").budget
    assert whole is not None
    assert low < 0.75 * whole.peak
    limit = int(low + share * (whole.peak - low))
    budget = program.plan(**arrays, memory=limit).budget
    assert budget is not None
    step(program, arrays, memory=limit)
    found = peak(lambda: step(program, arrays, memory=limit))
    assert found <= 1.1 * limit
    assert 0.9 * found <= budget.peak <= 1.1 * found


def test_tiles_of_a_kernel_are_counted() -> None:
    """What a kernel needs for itself is several times what it returns."""
    program = ix.compile(
        """input Q[h, i, d], K[h, j, d], V[h, j, e], w : i64;
        let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));
        let out[h, i, e] = sum[j](softmax[j](s[h, i, j] where i - w < j && j <= i) * V[h, j, e]);"""
    )
    arrays: dict[str, Any] = {name: torch.randn(2, 1024, 32, requires_grad=True) for name in "QKV"}

    def call(**options: Any) -> Any:
        return program(**arrays, w=64, **options).sum().backward()

    call()
    for array in arrays.values():
        array.grad = None
    budget = program.plan(**arrays, w=64, memory="1GB").budget
    assert budget is not None
    found = peak(call)
    assert 0.9 * found <= budget.peak <= 1.1 * found


def test_what_is_as_large_as_rows_by_keys_goes_by_blocks() -> None:
    program = ix.compile(
        """input Q[i, d], K[j, d], V[j, e];
        let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]));
        let u[i, j] = w[i, j] * w[i, j];
        let out[i, e] = sum[j](u[i, j] * V[j, e]) / sum[j](u[i, j]);"""
    )
    arrays = drawn(program, {"i": 600, "j": 500, "d": 4, "e": 3})
    low = least(lambda: program(**arrays, memory=1))
    plan = program.plan(**arrays, memory=low)
    assert low < 600 * 500 * 4 < plan.budget.whole
    assert plan.budget.room < 600 * 500
    assert "blocks of rows have" in str(plan)
    agree(program, arrays)
    assert peak(lambda: step(program, arrays, memory=low)) <= 1.1 * low


def test_a_second_derivative_is_the_same() -> None:
    program = compiled("twice")
    arrays = drawn(program, {"i": 12, "d": 1, "e": 2}, torch.float64)
    low = least(lambda: program(**arrays, memory=1))
    assert program.plan(**arrays, memory=low).budget.again
    given = [array.detach().requires_grad_() for array in arrays.values()]
    assert torch.autograd.gradgradcheck(lambda *some: program(*some, memory=low), given)


def test_without_a_gradient_the_budget_is_that_of_the_call() -> None:
    program, options = compiled("stack 1"), {"memory": "1MB"}
    arrays = drawn(program, SIZES)
    learning = program.plan(**arrays, **options).budget
    with torch.no_grad():
        budget = program.plan(**arrays, **options).budget
        low = least(lambda: program(**arrays, memory=1))
        assert torch.equal(program(**arrays, memory=low), program(**arrays, memory="1TB"))
        near(program(**arrays, memory=low), program(**arrays))
    assert budget.peak == low < learning.peak
    assert not budget.learns
    assert not budget.kept


def test_the_plan_lists_what_is_kept_and_what_is_computed_again() -> None:
    program = compiled("stack 1")
    arrays = drawn(program, SIZES)
    low = least(lambda: program(**arrays, memory=1))
    plan = program.plan(**arrays, memory=low)
    said = plan.to_json()["memory"]
    text = str(plan)
    assert said["limit"] == low >= said["peak"]
    assert said["without_a_budget"] == program.plan(**arrays, memory="1TB").budget.peak
    assert said["inputs"] == sum(array.nbytes for array in arrays.values())
    kept = {one["name"] for one in said["kept"]}
    assert "Y_1_Y" in kept
    assert all(name in text for name in kept)
    assert all(0 < one["work"] < 1 for one in said["computed_again"])
    assert "computed again on the way back" in text
    assert {"segment"} == {one.name for one in plan.operations if one.call == "again"}


def test_the_emitted_source_stands_alone() -> None:
    program = compiled("twice")
    arrays = drawn(program, WIDE)
    low = least(lambda: program(**arrays, memory=1))
    text = program.source(**arrays, memory=low)
    scope: dict[str, Any] = {}
    exec(text, scope)
    assert "indexical" not in text
    assert text.count("= again(") == len(program.plan(**arrays, memory=low).budget.again)
    assert torch.equal(scope["program"](*arrays.values()), program(**arrays))


def test_a_call_is_planned_once_for_each_of_its_sizes() -> None:
    program = ix.compile(TWICE)
    arrays = drawn(program, WIDE)
    for _ in range(3):
        step(program, arrays, memory="1MB")
        step(program, drawn(program, {**WIDE, "i": 7}), memory="1MB")
    assert len(program._engine.kernels) == 2


def test_one_graph_has_no_budget() -> None:
    """`torch.compile(fullgraph=True)` gives this as the reason of its own error."""
    program = ix.compile(TWICE)
    arrays = drawn(program, WIDE)
    with patch.object(program, "_is_traced", lambda: True), pytest.raises(NotImplementedError, match="fullgraph=True"):
        program(**arrays, memory="1MB")


def test_a_module_keeps_a_budget() -> None:
    program = compiled("stack 1")
    arrays = drawn(program, SIZES)
    parameters = {name: array.detach() for name, array in arrays.items() if name != "Y_0"}
    low = least(lambda: program(**arrays, memory=1))
    module, plain = nn.Module(program, parameters, memory=low), nn.Module(program, parameters)
    for each in (module, plain):
        each(arrays["Y_0"]).sum().backward()
    assert module.memory == low
    pairs = zip(module.parameters(), plain.parameters(), strict=True)
    for one, other in pairs:
        near(one.grad, other.grad)
    with pytest.raises(ix.CallError, match="IX535"):
        nn.Module(program, parameters, memory="much")


def test_an_input_that_is_called_memory_is_an_array() -> None:
    program = ix.compile("input x[i], memory[i]; let y[i] = x[i] * memory[i];")
    x = torch.arange(3.0, requires_grad=True)
    assert torch.equal(program(x=x, memory=x), x * x)
    assert program.plan(x=x, memory=x).budget is None
    assert torch.equal(program(x, x, memory="1MB"), x * x)
    module = nn.Module(program, {}, memory="1MB")
    assert torch.equal(module(x, x, outputs="y"), x * x)


def test_others_who_decide_what_is_kept_are_refused_by_name() -> None:
    program = compiled("twice")
    arrays = [array.detach() for array in drawn(program, SIZES).values()]
    numbers = [array.numpy() for array in arrays]

    def refused(call: Callable[[], Any], words: str) -> None:
        with pytest.raises(ix.CallError, match=words):
            call()

    refused(lambda: program(*numbers, memory="1GB"), "IX536.*not with numpy")
    refused(lambda: program.plan(*numbers, memory="1GB"), "IX536.*not with numpy")
    refused(lambda: program(*arrays, memory="1GB", backend="reference"), "IX536.*not with reference")
    sums = torch.func.grad(lambda x: program(x, *arrays[1:], memory="1GB").sum())
    refused(lambda: sums(arrays[0]), "IX536.*torch.func")
    mapped = torch.func.vmap(lambda x: program(x, *arrays[1:], memory="1GB"))
    refused(lambda: mapped(arrays[0][None]), "IX536.*torch.func")
    with torch.autocast("cpu"):
        refused(lambda: program(*arrays, memory="1GB"), "IX536.*torch.autocast")
    assert program(*numbers, memory="1GB", backend="torch").shape == arrays[0].shape


def test_a_number_in_an_array_that_decides_the_sizes_is_known() -> None:
    program = ix.compile("input x[i], n : i64; let y[a in 0..n, i] = x[i] * a; let z[i] = sum[a](y[a, i] ** 2);")
    x = torch.ones(8, requires_grad=True)
    peaks = [program.plan(x, torch.tensor(n), memory="1GB").budget.peak for n in (4, 400)]
    assert peaks[1] > 50 * peaks[0] > 0


AMOUNTS = {"2GiB": 2 << 30, " 1.5 GB": 1_500_000_000, "512mib": 512 << 20, ".5KiB": 512, "7": 7, 12: 12, 2e9: 2 * 10**9}


@pytest.mark.parametrize("amount", AMOUNTS)
def test_an_amount_of_memory_is_read(amount: Any) -> None:
    assert limit_of(amount) == AMOUNTS[amount]
    assert limit_of(math.inf) == limit_of(10**5000) == limit_of("9" * 400 + "GB") > 1 << 50


NO_AMOUNTS = ["", "much", "1e9", "-1GB", "2 GiB of it", "0", "0.4B", 0, -3, 0.5, True, math.nan, [1]]


@pytest.mark.parametrize("amount", NO_AMOUNTS)
def test_any_other_amount_is_refused(amount: Any) -> None:
    program = compiled("twice")
    with pytest.raises(ix.CallError, match="IX535"):
        program(*drawn(program, SIZES).values(), memory=amount)


def test_the_command_plans_under_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twice.ix"
    path.write_text(TWICE)
    command = ["plan", str(path), "--sizes", "i=24,d=8,e=40"]
    assert main([*command, "--memory", "1MiB"]) == 0
    assert "of 1.0 MiB" in capsys.readouterr().out
    assert main([*command, "--memory", "1KiB"]) == 1
    assert "IX536" in capsys.readouterr().err
    assert main(["run", str(path), "--random", "--backend", "torch", "--memory", "much"]) == 1
    assert "IX535" in capsys.readouterr().err
