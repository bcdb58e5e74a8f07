"""Which function a call is given to, what comes out of it, and that programs may be shared and copied."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.run.test_engine import CAUSAL, SCALED, codes, drawn, refused  # noqa: E402

import indexical as ix  # noqa: E402

SEVERAL = "input x[i]; let doubled[i] = 2 * x[i]; let total = sum[i](doubled[i]); let last[i] = doubled[i] + total;"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ------------------------------------------------------------------------------------- signatures


def test_one_function_for_all_sizes() -> None:
    program = ix.compile(CAUSAL)
    for size in (1, 2, 7, 0, 30):
        assert program(*drawn((size, 3), (size, 3), (size, 4))).shape == (size, 4)
    assert len(program._engine.kernels) == 1
    program(*drawn((2, 3), (2, 3), (2, 3), dtype=torch.float32))
    assert len(program._engine.kernels) == 2
    program(*(array.numpy() for array in drawn((2, 3), (2, 3), (2, 3))))
    assert len(program._engine.kernels) == 3
    program(*drawn((2, 3), (2, 3), (2, 3)), outputs="weights")
    program(*drawn((4, 3), (4, 3), (4, 3)), outputs="weights")
    assert len(program._engine.kernels) == 4
    program(*drawn((2, 3), (2, 3), (2, 3)), isolate=True)
    assert len(program._engine.kernels) == 5
    names = ("Q", "K", "V")
    program(**dict(zip(names, drawn((2, 3), (2, 3), (2, 3)), strict=True)))
    assert len(program._engine.kernels) == 5


def test_ranks_are_a_signature() -> None:
    program = ix.compile("input x[..r, i]; let y[..r] = sum[i](x[..r, i]);")
    for shape in ((3,), (2, 3), (4, 3), (2, 2, 3)):
        assert program(torch.ones(shape)).shape == shape[:-1]
    assert len(program._engine.kernels) == 3


def test_numbers_are_no_signature_of_their_own() -> None:
    program = ix.compile(SCALED)
    for scalar in (1.0, 2.0, -3.5):
        assert program(torch.ones(2), scalar).tolist() == [scalar] * 2
    assert len(program._engine.kernels) == 1


def test_a_first_call_does_not_look_at_every_cell() -> None:
    arrays = [torch.zeros(1000, 100, dtype=torch.bfloat16) for _ in range(2)]
    start = time.process_time()
    ix.compile("input x[i, j], y[i, j]; let z[i, j] = x[i, j] + y[i, j];")(*arrays)
    assert time.process_time() - start < 0.4


def test_a_slow_path_is_said_once() -> None:
    text = "input s[i, j], v[j]; let w[i, j] = softmax[i](s[i, j]); let out[i] = sum[j](w[i, j] * v[j]);"
    large = torch.zeros(3000, 3000), torch.zeros(3000)
    program = ix.compile(text)
    with pytest.warns(ix.SlowPath, match="`out` is computed with all its scores in memory"):
        program(*large)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program(*large)
        ix.compile(text)(torch.zeros(4, 4), torch.zeros(4))


def test_looking_at_a_plan_loads_nothing() -> None:
    program = ix.compile(CAUSAL)
    arrays = drawn((2, 3), (2, 3), (2, 3))
    assert "weights" in str(program.plan(*arrays))
    assert "def program(Q, K, V):" in program.source(*arrays)
    assert not program._engine.kernels


# --------------------------------------------------------------------------------------- outputs


def test_outputs_are_computed_only_when_asked_for() -> None:
    program = ix.compile(CAUSAL)
    arrays = drawn((4, 3), (4, 3), (4, 3))
    assert {step.definition for step in program.plan(*arrays).steps} == {"out"}
    assert program.plan(*arrays).unbuilt == ("scores", "weights")
    weights = program(*arrays, outputs="weights")
    assert torch.allclose(weights.sum(1), torch.ones(4, dtype=torch.float64))
    assert "out" not in {step.definition for step in program.plan(*arrays, outputs="weights").steps}
    both = program(*arrays, outputs=("weights", "out"))
    assert both._fields == ("weights", "out")
    assert torch.allclose(both.weights @ arrays[2], both.out)
    assert torch.allclose(both.out, program(*arrays))


def test_several_outputs_are_a_named_tuple() -> None:
    program = ix.compile(SEVERAL)
    for x in (torch.arange(3.0), np.arange(3.0)):
        assert program(x).tolist() == [6.0, 8.0, 10.0]
        found = program(x, outputs=["total", "doubled"])
        assert found._fields == ("total", "doubled")
        assert found.total.shape == ()
        assert type(found.total) is type(found.doubled)
        assert found.total == 6.0
        assert program(x, outputs=["last"])._fields == ("last",)
    assert codes(refused(program, torch.ones(2), outputs="lst")) == ["IX508"]
    assert codes(refused(program, torch.ones(2), outputs=[])) == ["IX508"]


PASSED_ON = {
    "itself": "input x[i, j]; let y[i, j] = x[i, j];",
    "whole": "input x[i, j]; let y = x;",
    "turned": "input x[i, j]; let y[j, i] = x[i, j];",
    "part": "input x[i, j]; let y[k in 0..size(i) - 1, j] = x[k + 1, j];",
    "diagonal": "input x[i, j]; let y[i] = x[i, i];",
    "spread": "input x[i, j]; let y[i, j, k in 0..2] = x[i, j];",
    "guarded": "input x[i, j]; let y[i, j] = x[i, j] where i < 100;",
    "times one": "input x[i, j]; let y[i, j] = 1 * x[i, j];",
    "rest": "input x[..r]; let y[..r] = x[..r];",
    "cast": "input x[i, j]; let y[i, j] = x[i, j] as f64;",
    "chosen": "input x[i, j]; let y[i, j] = if size(i) > 0 { x[i, j] } else { 0 };",
    "through another": "input x[i, j]; let z[i, j] = x[i, j]; let y[i, j] = z[i, j]; output y;",
    "packed": "input x[i, j]; let y[m in 0..size(i) * size(j)] = x[m / size(j), m % size(j)];",
}


@pytest.mark.parametrize("name", PASSED_ON)
def test_outputs_are_no_inputs(name: str) -> None:
    """Whoever writes to what came out changes nothing that went in."""
    program = ix.compile(PASSED_ON[name])
    x = torch.arange(9.0, dtype=torch.float64).reshape(3, 3)
    for given in (x, x.numpy()):
        before = given + 0
        first, second = program(given), program(given)
        first[...] = -1
        assert (given == before).all()
        assert not (second == -1).any()


def test_outputs_do_not_share() -> None:
    program = ix.compile("input x[i]; let y[i] = x[i] + 1; let z[i] = y[i]; output y, z;")
    for given in (torch.ones(3), np.ones(3)):
        found = program(given)
        found.y[...] = 0
        assert found.z.tolist() == [2.0, 2.0, 2.0]


# ------------------------------------------------------------------------- threads, copies, pickles


@pytest.mark.parametrize("score", ["scores[i, j]", "tanh(scores[i, j])"])
def test_first_calls_from_several_threads(score: str) -> None:
    program = ix.compile(CAUSAL.replace("softmax[j](scores[i, j])", f"softmax[j]({score})").replace("j <= i", "j < i"))
    arrays = [array.requires_grad_() for array in drawn((9, 3), (9, 3), (9, 3))]
    found: list[Any] = []
    start = threading.Barrier(5)

    def call() -> None:
        start.wait()
        out = program(*arrays)
        found.append((out, torch.autograd.grad(out.sum(), arrays)))

    threads = [threading.Thread(target=call) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 5
    for out, gradients in found:
        assert torch.equal(out, found[0][0])
        assert all(map(torch.equal, gradients, found[0][1]))


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda program: pickle.loads(pickle.dumps(program))])
def test_copies(again: Any, called: bool) -> None:
    program = ix.compile(CAUSAL)
    arrays = drawn((4, 3), (4, 3), (4, 3))
    if called:
        program(*arrays)
        program(*(array.numpy() for array in arrays))
    other = again(program)
    assert other.source_text == program.source_text
    assert other.inputs == program.inputs
    assert torch.equal(other(*arrays), program(*arrays))
    assert str(other.plan(*arrays)) == str(program.plan(*arrays))


def test_a_program_that_is_dropped_is_gone() -> None:
    program = ix.compile(SCALED)
    program(np.ones(3), 2.0)
    gone = weakref.ref(program)
    gc.disable()
    try:
        del program
        assert gone() is None
    finally:
        gc.enable()
