"""States that each step asks before it writes to them (the delta rule), in any spelling: one kernel, one value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402
from indexical.backends.kernels import numpy_delta, torch_delta  # noqa: E402

CHUNKS = "chunks of matrix products"
VARIANTS = Path(__file__).resolve().parents[2] / "examples" / "variants"
SIDES = "input Q[t, d], K[t, d], V[t, e], b[t], a[t];"
ASKED = "let out[t, e] = sum[d](Q[t, d] * S[t, d, e]);"
PROGRAMS = {
    "as published": f"{SIDES} let S[0, d, e] = b[0] * K[0, d] * V[0, e];"
    "let S[t in 1..size(t), d, e] = S[t - 1, d, e]"
    f" + b[t] * K[t, d] * (V[t, e] - sum[c](K[t, c] * S[t - 1, c, e])); {ASKED}",
    "multiplied out": f"{SIDES} let S[0, d, e] = K[0, d] * V[0, e] * b[0];"
    "let S[t in 1..size(t), d, e] = b[t] * K[t, d] * V[t, e] - sum[c](K[t, d] * b[t] * S[t - 1, c, e] * K[t, c])"
    f" + S[t - 1, d, e]; {ASKED}",
    "a product with a matrix": f"{SIDES} let S[0, e, d] = b[0] * V[0, e] * K[0, d];"
    "let S[t in 1..size(t), e, d] = a[t] * sum[c](S[t - 1, e, c]"
    " * ((if c == d { 1.0 } else { 0.0 }) - b[t] * K[t, c] * K[t, d])) + b[t] * V[t, e] * K[t, d];"
    "let out[t, e] = sum[d](S[t, e, d] * Q[t, d]);",
    "a matrix with a name": f"{SIDES} let S[0, d, e] = b[0] * V[0, e] * K[0, d];"
    "let A[t, c, d] = (if c == d { 1 } else { 0 }) - b[t] * K[t, c] * K[t, d];"
    f"let S[t in 1..size(t), d, e] = sum[c](A[t, c, d] * S[t - 1, c, e]) + b[t] * K[t, d] * V[t, e]; {ASKED}",
    "a name for what stood": f"{SIDES} let S[0, d, e] = b[0] * K[0, d] * V[0, e];"
    "let stood[t in 0..size(t), e] = if t > 0 { sum[c](K[t, c] * S[t - 1, c, e]) } else { 0.0 };"
    f"let S[t in 1..size(t), d, e] = S[t - 1, d, e] + b[t] * K[t, d] * (V[t, e] - stood[t, e]); {ASKED}",
    "a block": f"{SIDES} let S[0, d, e] = b[0] * K[0, d] * V[0, e];"
    "let S[t in 1..size(t), d, e] = { let stood = sum[c](K[t, c] * S[t - 1, c, e]);"
    f" S[t - 1, d, e] + b[t] * K[t, d] * (V[t, e] - stood) }}; {ASKED}",
    "one clause": f"{SIDES} let S[t, d, e] = b[t] * K[t, d] * V[t, e] + (if t > 0 {{ S[t - 1, d, e]"
    f" - b[t] * K[t, d] * sum[c](K[t, c] * S[t - 1, c, e]) }} else {{ 0 }}); {ASKED}",
    "the other layout": f"{SIDES} let S[0, e, d] = V[0, e] * b[0] * K[0, d];"
    "let S[t in 1..size(t), e, d] = S[t - 1, e, d]"
    " + (V[t, e] - sum[c](S[t - 1, e, c] * K[t, c])) * b[t] * K[t, d];"
    "let out[t, e] = sum[d](S[t, e, d] * Q[t, d]);",
    "steps last, other names": "input q[m, s], k[m, s], v[n, s], rate[s];"
    "let o[n, s] = sum[x](M[x, n, s] * q[x, s]) / sqrt(size(m)) + v[n, s];"
    "let M[m, n, s in 1..size(s)] = M[m, n, s - 1]"
    " + rate[s] * k[m, s] * (v[n, s] - sum[p](M[p, n, s - 1] * k[p, s]));"
    "let M[m, n, 0] = rate[0] * k[m, 0] * v[n, 0]; output o;",
    "from 0": f"{SIDES} let S[0, d in 0..size(d), e in 0..size(e)] = 0.0;"
    "let S[t in 1..size(t), d, e] = S[t - 1, d, e]"
    f" + b[t] * K[t, d] * (V[t, e] - sum[c](K[t, c] * S[t - 1, c, e])); {ASKED}",
    "a step more": f"{SIDES} let S[0, d in 0..size(d), e in 0..size(e)] = 0.0;"
    "let S[t in 1..=size(t), d, e] = S[t - 1, d, e]"
    " + b[t - 1] * K[t - 1, d] * (V[t - 1, e] - sum[c](K[t - 1, c] * S[t - 1, c, e]));"
    "let out[t, e] = sum[d](Q[t, d] * S[t + 1, d, e]);",
    "before it is written": f"{SIDES} let S[0, d in 0..size(d), e in 0..size(e)] = 0.0;"
    "let S[t in 1..=size(t), d, e] = S[t - 1, d, e]"
    " + b[t - 1] * K[t - 1, d] * (V[t - 1, e] - sum[c](K[t - 1, c] * S[t - 1, c, e]));"
    "let out[t in 0..size(t), e] = sum[d](Q[t, d] * S[t, d, e]);",
    "a gate": f"{SIDES} let S[0, d, e] = b[0] * K[0, d] * V[0, e];"
    "let S[t in 1..size(t), d, e] = a[t] * (S[t - 1, d, e] - b[t] * K[t, d] * sum[c](K[t, c] * S[t - 1, c, e]))"
    f" + b[t] * K[t, d] * V[t, e]; {ASKED}",
    "a gate by its logarithm": f"{SIDES} let keep[t] = sigmoid(a[t]); let S[0, d, e] = b[0] * K[0, d] * V[0, e];"
    "let S[t in 1..size(t), d, e] = { let faded[c] = keep[t] * S[t - 1, c, e];"
    f" faded[d] + b[t] * K[t, d] * (V[t, e] - sum[c](K[t, c] * faded[c])) }}; {ASKED}",
    "a number for a gate": f"{SIDES} let S[0, d, e] = b[0] * K[0, d] * V[0, e];"
    "let S[t in 1..size(t), d, e] = 0.9 * S[t - 1, d, e]"
    f" + b[t] * K[t, d] * (V[t, e] - sum[c](K[t, c] * S[t - 1, c, e])); {ASKED}",
    "asks for something else": f"{SIDES} let S[0, d, e] = K[0, d] * V[0, e];"
    "let S[t in 1..size(t), d, e] = S[t - 1, d, e]"
    f" + K[t, d] * (V[t, e] - sum[c](Q[t, c] * S[t - 1, c, e]) / 2); {ASKED}",
    "asks twice": f"{SIDES} let S[0, d, e] = K[0, d] * V[0, e];"
    "let S[t in 1..size(t), d, e] = S[t - 1, d, e] + K[t, d] * (V[t, e]"
    f" - sum[c](Q[t, c] * S[t - 1, c, e]) * b[t] - sum[c](K[t, c] * S[t - 1, c, e])); {ASKED}",
    "keys of two axes": "input Q[t, d, f], K[t, d, f], V[t, e], b[t]; let S[0, d, f, e] = b[0] * K[0, d, f] * V[0, e];"
    "let S[t in 1..size(t), d, f, e] = S[t - 1, d, f, e]"
    " + b[t] * K[t, d, f] * (V[t, e] - sum[c, g](K[t, c, g] * S[t - 1, c, g, e]));"
    "let out[t, e] = sum[d, f](Q[t, d, f] * S[t, d, f, e]);",
    "heads": "input Q[h, t, d], K[h, t, d], V[h, t, e], b[h, t], a[h]; let S[h, 0, d, e] = b[h, 0] * K[h, 0, d]"
    " * V[h, 0, e]; let S[h, t in 1..size(t), d, e] = { let stood = a[h] * sum[c](K[h, t, c] * S[h, t - 1, c, e]);"
    " a[h] * S[h, t - 1, d, e] + b[h, t] * K[h, t, d] * (V[h, t, e] - stood) };"
    "let out[h, t, e] = sum[d](Q[h, t, d] * S[h, t, d, e]);",
    "by the library": "use std::recurrence::{delta_attention}; input Q[h, t, d], K[h, t, d], V[h, t, e], b[h, t];"
    "let out = delta_attention(Q, K, V, b);",
    "gradient descent": f"{SIDES} let S[0, d in 0..size(d), e in 0..size(e)] = 0.0;"
    "let S[t in 1..=size(t), d, e] = { let w[c, f] = S[t - 1, c, f];"
    " let loss = sum[f]((sum[c](K[t - 1, c] * w[c, f]) - V[t - 1, f]) ** 2) / 2;"
    " w[d, e] - b[t - 1] * (@loss / @w)[d, e] };"
    "let out[t, e] = sum[d](Q[t, d] * S[t + 1, d, e]);",
}
# What is nearly one, and what the plan says of it.
PUBLISHED = PROGRAMS["as published"]
OTHERS = {
    "the state is wanted": (f"{PUBLISHED} output out, S;", "all steps of the state are read"),
    "another direction": (
        PUBLISHED.replace("b[t] * K[t, d] * (V[t, e] - sum", "b[t] * K[t, d] * V[t, e] - Q[t, d] * (sum"),
        "not written along",
    ),
    "a first step of its own": (
        PUBLISHED.replace("b[0] * K[0, d] * V[0, e]", "Q[0, d] * V[0, e]"),
        "its first step",
    ),
    "decays of features": (
        PUBLISHED.replace("] = S[t - 1, d, e]", "] = K[t, d] * S[t - 1, d, e]"),
        "a decay of its own",
    ),
    "factors of what is carried": (
        PUBLISHED.replace("- sum[c]", "- V[t, e] * sum[c]"),
        "at each point that is carried",
    ),
    "not linear": (PUBLISHED.replace("- sum[c](K[t, c] * S[t - 1, c, e])", "- tanh(sum[c](S[t - 1, c, e]))"), None),
    "half of it": (PUBLISHED.replace("sum[c](", "sum[c in 0..2]("), None),
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 4 positions."""
    for module in (numpy_delta, torch_delta):
        monkeypatch.setattr(module, "DELTA_CHUNK", 4)


def arrays(program: ix.Program, count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    lengths = {"t": count, "s": count, "d": 3, "e": 2, "f": 2, "h": 2, "m": 3, "n": 2}
    shapes = [[lengths[axis.coordinate.name] for axis in tensor.axes] for tensor in program.ir.inputs]
    return [torch.randn(shape, dtype=torch.float64, generator=generator) / 2 for shape in shapes]


def out_of(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_the_relation(name: str) -> None:
    program = ix.compile(PROGRAMS[name])
    for count in (1, 3, 4, 5, 11):
        given = arrays(program, count)
        assert any(step.kernel == CHUNKS for step in program.plan(*given).steps), program.plan(*given)
        right = out_of(program(*(array.numpy() for array in given), backend="reference"))
        np.testing.assert_allclose(out_of(program(*(array.numpy() for array in given))), right, 1e-9, 1e-9)
        leaves = [array.clone().requires_grad_() for array in given]
        np.testing.assert_allclose(out_of(program(*leaves)).detach(), right, rtol=1e-9, atol=1e-9)
        if count not in (1, 11):
            continue
        flows = [
            torch.autograd.grad((out_of(program(*leaves, isolate=isolate)) ** 2).sum(), leaves, allow_unused=True)
            for isolate in (False, True)
        ]
        for mine, plain in zip(*flows, strict=True):
            if mine is not None and plain is not None:
                torch.testing.assert_close(mine, plain, rtol=1e-8, atol=1e-8)
            else:  # Nothing is asked of it: where there is one position, no step decays.
                assert all(part is None or bool((part.abs() < 1e-9).all()) for part in (mine, plain))


@pytest.mark.parametrize("name", ["a step more", "by the library", "gradient descent"])
def test_nothing_is_asked_where_there_are_no_steps(name: str) -> None:
    program = ix.compile(PROGRAMS[name])
    given = arrays(program, 0)
    assert out_of(program(*given)).shape == out_of(program(*(x.numpy() for x in given))).shape
    assert 0 in out_of(program(*given)).shape


@pytest.mark.parametrize("name", OTHERS)
def test_the_plan_says_why_not(name: str) -> None:
    body, reason = OTHERS[name]
    program = ix.compile(body)
    given = arrays(program, 11)
    steps = program.plan(*given).steps
    assert not any(step.kernel == CHUNKS for step in steps)
    refusals = [refusal for step in steps for refusal in step.refusals]
    assert any(reason is None or (refusal.way == CHUNKS and reason in refusal.reason) for refusal in refusals), refusals
    right = out_of(program(*(array.numpy() for array in given), backend="reference"))
    np.testing.assert_allclose(out_of(program(*given)), right, rtol=1e-9, atol=1e-9)


def test_gates_that_vanish_are_exact() -> None:
    """A gate of 0, gates below the least number, and gates of either sign: no division, no NaN."""
    program = ix.compile(PROGRAMS["a gate"])
    given = arrays(program, 14)
    given[4][5], given[4][9], given[4][10:12] = 0.0, -0.7, 1e-200
    right = out_of(program(*(array.numpy() for array in given), backend="reference"))
    np.testing.assert_allclose(program(*given), right, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(program(*(array.numpy() for array in given)), right, rtol=1e-9, atol=1e-9)
    leaves = [array.clone().requires_grad_() for array in given]
    flows = [torch.autograd.grad((program(*leaves, isolate=way) ** 2).sum(), leaves) for way in (False, True)]
    for mine, plain in zip(*flows, strict=True):
        torch.testing.assert_close(mine, plain)
    narrow = [array.to(torch.bfloat16) for array in given]
    np.testing.assert_allclose(program(*narrow).float(), right, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", ["delta_rule", "gated_delta"])
def test_variants_of_the_catalogue_are_chunks(name: str) -> None:
    program = ix.compile(VARIANTS / f"{name}.ix")
    steps = program.plan(*(array.float() for array in arrays(program, 11))).steps
    assert [step.kernel for step in steps if step.definition == "out"] == [CHUNKS]


def test_memory_grows_with_the_positions_alone() -> None:
    """What autograd keeps for the way back is linear in the number of positions."""
    program = ix.compile(PROGRAMS["a gate"])
    kept = []
    for count in (32, 64, 128):
        leaves = [array.requires_grad_() for array in arrays(program, count)]
        seen: dict[int, int] = {}

        def put(array: torch.Tensor, seen: dict[int, int] = seen) -> torch.Tensor:
            seen[array.untyped_storage().data_ptr()] = array.untyped_storage().nbytes()
            return array

        with torch.autograd.graph.saved_tensors_hooks(put, lambda array: array):
            found = program(*leaves)
        kept.append(sum(seen.values()))
        assert found.requires_grad
    assert kept[2] - kept[1] < 2.2 * (kept[1] - kept[0]), kept
