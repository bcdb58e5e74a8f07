"""Derivatives of attention as programs, against PyTorch's own: every variant, twice, in little room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.backends.drawing import as_numpy, compiled, distance, draw, is_real  # noqa: E402
from tests.backends.test_memory import PLAINLY, settle, status  # noqa: E402
from tests.backends.variants import VARIANTS  # noqa: E402

import indexical as ix  # noqa: E402

pytestmark = pytest.mark.sampled(6)

ROOT = Path(__file__).resolve().parents[2]

# A row that hears nobody is 0 / 0 in these, and so is what flows back through it.
DIVIDES = [name for name in VARIANTS if name.startswith("hand-made")]
NAMES = [name for name in VARIANTS if name not in DIVIDES]
# What needs blocks of rows with PyTorch; all others have a kernel with a way back, or are no larger than their keys.
QUERY = ["one query", "one query, some keys"]

_derived: dict[str, ix.Program] = {}


def derived(name: str) -> ix.Program:
    """The derivative of a variant by all its arrays of reals."""
    if name not in _derived:
        _derived[name] = ix.grad(compiled(name), of="out", by=learned(draw(name)))
    return _derived[name]


def learned(arrays: dict[str, Any]) -> list[str]:
    return [name for name, array in arrays.items() if is_real(array) and array.ndim]


def given(name: str, dtype: torch.dtype = torch.float64, **sizes: int) -> dict[str, Any]:
    """The arrays of a variant, and what arrives at its result."""
    arrays = draw(name, dtype, **sizes)
    out = compiled(name)(**arrays, backend="torch")
    arriving = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7)).to(dtype)
    program = derived(name)
    return {key: {**arrays, "d_out": arriving}[key] for key in program.inputs}


def right(name: str, arrays: dict[str, Any]) -> list[torch.Tensor]:
    """What autograd says of the relations as they stand."""
    forward = compiled(name)
    own = {key: array for key, array in {**draw(name), **arrays}.items() if key in forward.inputs}
    leaves = {key: array.detach().clone().requires_grad_() if is_real(array) else array for key, array in own.items()}
    wanted = [leaves[key] for key in learned(own)]
    out = forward(**leaves, isolate=True)
    found = torch.autograd.grad(out, wanted, arrays["d_out"], allow_unused=True)
    return [torch.zeros_like(a) if g is None else g for g, a in zip(found, wanted, strict=True)]


def several(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", list(NAMES)[::3])
def test_every_third_variant_has_the_gradients_of_autograd(name: str) -> None:
    program, arrays = derived(name), given(name)
    expected = right(name, arrays)
    for arguments in (arrays, as_numpy(arrays)):
        found = several(program(**arguments))
        assert all(distance(a, b) < 1e-10 for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*QUERY, "keys from the third")][::3])
def test_nothing_as_large_as_the_scores_is_built(name: str) -> None:
    program, arrays = derived(name), given(name)
    for arguments in (arrays, as_numpy(arrays)):
        steps = program.plan(**arguments).steps
        whole = {definition for step in steps for definition in (step.definition, *step.beside)}
        assert not whole & {"scores", "weights", "d_weights", "d_scores"}


@pytest.mark.parametrize("name", ["causal", "window", "ALiBi", "soft cap", "documents, sorted", "key padding mask"])
def test_gradients_are_differentiated_again(name: str) -> None:
    """Second order through our derivative is second order through autograd's."""
    program, arrays = derived(name), given(name)
    forward = compiled(name)
    keys = learned({key: array for key, array in arrays.items() if key in forward.inputs})

    def seconds(first: Any, leaves: dict[str, Any]) -> list[Any]:
        total = sum((part * torch.sin(torch.arange(part.numel()).view(part.shape))).sum() for part in first)
        return list(torch.autograd.grad(total, [leaves[key] for key in (*keys, "d_out")]))

    def leaves() -> dict[str, Any]:
        return {k: a.detach().clone().requires_grad_() if is_real(a) else a for k, a in arrays.items()}

    ours, theirs = leaves(), leaves()
    own = {key: array for key, array in theirs.items() if key in forward.inputs}
    out = forward(**own, isolate=True)
    first = torch.autograd.grad(out, [theirs[key] for key in keys], theirs["d_out"], create_graph=True)
    expected = seconds(first, theirs)
    found = seconds(several(program(**ours)), ours)
    assert all(distance(a, b) < 1e-9 for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["causal", "window", "ALiBi", "soft cap"])
def test_no_gradients_need_be_enabled(name: str, mode: Any) -> None:
    program, arrays = derived(name), given(name)
    expected = right(name, arrays)
    with mode():
        found = several(program(**arrays))
    assert all(distance(a, b) < 1e-10 for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["causal", "window", "soft cap"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_numbers(name: str, dtype: torch.dtype) -> None:
    program, arrays = derived(name), given(name, dtype)
    wide = {key: array.double() if is_real(array) else array for key, array in arrays.items()}
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 6e-2, torch.float16: 1e-2}[dtype]
    found = several(program(**arrays))
    assert all(part.dtype == dtype for part in found)
    assert all(distance(a.double(), b) < tolerance for a, b in zip(found, right(name, wide), strict=True))


@pytest.mark.parametrize(
    "sizes", [{"j": 0}, {"i": 0}, {"d": 0}, {"e": 0}, {"b": 0}, {"i": 1, "j": 1}, {"i": 3, "j": 7}]
)
@pytest.mark.parametrize("name", ["causal", "full", "window", "soft cap"])
def test_odd_sizes(name: str, sizes: dict[str, int]) -> None:
    program = derived(name)
    lengths = {"b": 2, "h": 2, "i": 5, "j": 5, "d": 3, "e": 4, **sizes}
    shapes = {"Q": "bhid", "K": "bhjd", "V": "bhje", "d_out": "bhie"}
    generator = torch.Generator().manual_seed(0)
    arrays = {
        key: torch.randn([lengths[c] for c in shape], dtype=torch.float64, generator=generator)
        for key, shape in shapes.items()
    }
    expected = several(program(**as_numpy(arrays), backend="reference"))
    for arguments in (arrays, as_numpy(arrays)):
        found = several(program(**arguments))
        assert all(distance(a, b) < 1e-10 for a, b in zip(found, expected, strict=True))


def test_a_query_that_hears_nobody_gives_nothing_back() -> None:
    program = derived("strictly causal")
    arrays = given("strictly causal")
    for arguments in (arrays, as_numpy(arrays)):
        to_query = np.asarray(program(**arguments).d_Q)
        assert (to_query[:, :, 0] == 0).all()
        assert np.isfinite(to_query).all()


@pytest.mark.parametrize("name", ["causal", "window", "soft cap"])
def test_arrays_may_lie_in_any_order(name: str) -> None:
    program, arrays = derived(name), given(name)
    turned = {key: array.mT.contiguous().mT for key, array in arrays.items()}
    expected = right(name, arrays)
    assert all(distance(a, b) < 1e-10 for a, b in zip(several(program(**turned)), expected, strict=True))


@pytest.mark.parametrize("name", ["causal", "window", "ALiBi", "soft cap"])
def test_the_source_runs_without_us(name: str) -> None:
    program, arrays = derived(name), given(name)
    for arguments in (arrays, as_numpy(arrays)):
        text = program.source(**arguments)
        assert "indexical" not in text
        scope: dict[str, Any] = {"__name__": "emitted"}
        exec(compile(text, "emitted", "exec"), scope)
        found = scope["program"](*arguments.values())
        expected = right(name, arrays)
        assert all(distance(a, b) < 1e-10 for a, b in zip(several(found), expected, strict=True))


@pytest.mark.parametrize("name", ["causal", "window", "soft cap"])
def test_one_graph(name: str) -> None:
    """`torch.compile` reads a derivative as one graph."""
    program, arrays = derived(name), given(name)

    def call(*values: Any) -> Any:
        return tuple(program(*values))

    with torch.no_grad():
        found = torch.compile(call, fullgraph=True, backend="aot_eager")(*arrays.values())
    assert all(distance(a, b) < 1e-10 for a, b in zip(found, right(name, arrays), strict=True))


def test_a_call_says_that_it_keeps_the_weights_for_a_second_derivative() -> None:
    program = derived("causal")
    arrays = given("causal", torch.float32, b=1, h=2, i=2304, j=2304, d=4, e=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program(**arrays)
    wanting = {name: array.requires_grad_() for name, array in arrays.items()}
    with pytest.warns(ix.SlowPath, match="under `torch.no_grad\\(\\)`"):
        program(**wanting)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        program(**wanting)


# ------------------------------------------------------------------------------- memory

POSITIONS, HEADS, WIDTH = 2048, 4, 64
OUTPUT = HEADS * POSITIONS * WIDTH * 4
SQUARE = HEADS * POSITIONS * POSITIONS * 4
MEASURED = ["window", "soft cap", "causal", "documents, sorted", "mask"]


def grow(name: str) -> dict[str, int]:
    """By how many bytes the process grows in a call of a derivative."""
    program = derived(name)
    found = {}
    for step in ("torch", "numpy"):
        for size in (64, POSITIONS):  # The first call loads and compiles.
            arrays = given(name, torch.float32, b=1, h=HEADS, i=size, j=size, d=WIDTH, e=WIDTH)
            arguments = arrays if step == "torch" else as_numpy(arrays)
            before = settle()
            out = program(**arguments)
            found[step] = status("VmHWM") - before
            del out
    return found


@pytest.mark.sampled(0)
def test_memory_is_linear() -> None:
    """In one process for all variants."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the highest use of memory so far cannot be forgotten here")
    run = [sys.executable, "-W", "error", "-m", "tests.backends.test_gradients"]
    result = subprocess.run(run, cwd=ROOT, env={**os.environ, **PLAINLY}, capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    growth = json.loads(result.stdout)
    assert list(growth) == MEASURED
    for name, found in growth.items():
        for step in ("torch", "numpy"):
            assert 3 * OUTPUT <= found[step] <= 12 * OUTPUT + (56 << 20) < SQUARE * 2, (name, step)


if __name__ == "__main__":
    print(json.dumps({name: grow(name) for name in MEASURED}))
