"""Calls of a known signature bind nothing; whatever else differs is found out, and said as on a first call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.run.test_engine import CAUSAL, SCALED, codes, drawn, refused  # noqa: E402

import indexical as ix  # noqa: E402
from indexical import nn  # noqa: E402
from indexical.run import kernel  # noqa: E402
from indexical.run.bind import bind  # noqa: E402
from indexical.run.known import alike  # noqa: E402

SEVERAL = "input x[i], y[i]; let total = sum[i](x[i] * y[i]); let both[i] = x[i] + y[i]; output total, both;"
RUNNING = "input x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = 0.5 * h[t - 1] + x[t]; output h;"
WHOLES = "input p[i]: i32, v[j]; let y[i] = v[p[i]];"
HALVES = "input x[i]: bf16; let y[i] = x[i] + x[i];"


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for every call that is bound."""
    calls: list[str] = []

    def counted(program: Any, *rest: Any) -> Any:
        calls.append(str(program.source.name))
        return bind(program, *rest)

    monkeypatch.setattr(kernel, "bind", counted)
    return calls


def ways() -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    """Calls, each of them twice the same."""
    q, k, v = drawn((4, 3), (4, 3), (4, 5))
    named = {"Q": q, "K": k, "V": v}
    yield "by position", CAUSAL, lambda p: p(q, k, v)
    yield "by name", CAUSAL, lambda p: p(**named)
    yield "both", CAUSAL, lambda p: p(q, V=v, K=k)
    yield "one of others", CAUSAL, lambda p: p(q, k, v, outputs="weights")
    yield "a list", CAUSAL, lambda p: p(q, k, v, outputs=["weights", "out"])
    yield "a tuple of one", CAUSAL, lambda p: p(**named, outputs=("weights",))
    yield "isolated", CAUSAL, lambda p: p(q, k, v, isolate=True)
    yield "kept", CAUSAL, lambda p: p(q, k, v, recompute=False)
    yield "backend", CAUSAL, lambda p: p(q, k, v, backend="numpy")
    yield "numpy", CAUSAL, lambda p: p(*(array.numpy() for array in (q, k, v)))
    yield "numpy by name", CAUSAL, lambda p: p(**{name: array.numpy() for name, array in named.items()})
    yield "numpy among tensors", CAUSAL, lambda p: p(q, k.numpy(), v)
    yield "several", SEVERAL, lambda p: p(q[0], k[0])
    yield "several of numpy", SEVERAL, lambda p: p(x=q[0].numpy(), y=k[0].numpy())
    yield "wholes for reals", SEVERAL, lambda p: p(np.arange(3), np.arange(3.0))
    yield "the other byte order", SEVERAL, lambda p: p(np.arange(3.0).astype(">f8"), np.arange(3.0))
    yield "a number", SCALED, lambda p: p(q[0], 2.0)
    yield "a whole number", SCALED, lambda p: p(q[0], 3)
    yield "a number of numpy", SCALED, lambda p: p(q[0].numpy(), np.float64(2.0))
    yield "a tensor of one number", SCALED, lambda p: p(q[0], torch.tensor(2.0))
    yield "a number with a dtype", "input x[i], s: f32; let y[i] = s * x[i];", lambda p: p(q[0], 0.1)
    yield "a dtype in numpy", "input x[i], s: f32; let y[i] = s * x[i];", lambda p: p(q[0].numpy(), 0.1)
    yield "narrow wholes", WHOLES, lambda p: p(torch.tensor([0, 1], dtype=torch.int32), v[0])
    yield "halves", HALVES, lambda p: p(torch.ones(2, dtype=torch.bfloat16))
    yield "a recurrence", RUNNING, lambda p: p(q[0])
    yield "any rank", "input x[..r, i]; let y[..r] = sum[i](x[..r, i]);", lambda p: p(x=q)


WAYS = {name: (text, call) for name, text, call in ways()}


def parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", WAYS)
def test_a_second_call_binds_nothing(name: str, bound: list[str]) -> None:
    text, call = WAYS[name]
    program = ix.compile(text)
    first = call(program)
    assert bound
    bound.clear()
    second = call(program)
    assert not bound
    assert type(second).__name__ == type(first).__name__
    assert getattr(second, "_fields", None) == getattr(first, "_fields", None)
    for one, other in zip(parts(first), parts(second), strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        assert np.array_equal(np.asarray(one), np.asarray(other)) if name != "halves" else torch.equal(one, other)


def test_a_module_binds_once(bound: list[str]) -> None:
    text = "input X[i, m], W[m, n], c[n]; let a[i, n] = sum[m](X[i, m] * W[m, n]); let y[i, n] = a[i, n] + c[n];"
    module = nn.Module(text, {"W": (3, 2), "c": (2,)})
    calls: list[Callable[[Any], Any]] = [
        lambda x: module(x),
        lambda x: module(X=x),
        lambda x: module(x, outputs=("a", "y")),
        lambda x: module(x, isolate=True),
    ]
    for call in calls:
        call(torch.ones(4, 3))
        bound.clear()
        for size in (4, 1, 6):
            call(torch.ones(size, 3))
        assert not bound


def test_another_signature_is_another_kernel(bound: list[str]) -> None:
    program = ix.compile("input x[..r, i], s; let y[..r, i] = s * x[..r, i];")
    x = torch.ones(2)
    calls = [(x, 2.0), (x.double(), 2.0), (x[None], 2.0), (x, torch.tensor(2.0)), (x.numpy(), 2.0), (x.long(), 2.0)]
    for n, (array, scale) in enumerate(calls):
        for _ in range(2):
            assert program(x=array, s=scale).tolist() == (2 * array).tolist()
        assert len(bound) == n + 1
    assert program._caller is not None
    found = program._caller.known[None, None, False, True, False].values()
    assert len({id(known.function) for known in found}) == len(calls)
    program(x, 2)
    assert program(x, 2).dtype == program(x, 2.0).dtype


def test_an_array_that_is_given_twice_is_known_again() -> None:
    """PyTorch's guards refuse what comes twice. A call with other arrays, or of other sizes, is told apart."""
    program = ix.compile("input x[i], y[i], z[i]; let w[i] = x[i] * y[i] - z[i];")
    x, y = torch.arange(3.0), torch.ones(3)
    for _ in range(40):
        assert program(x, y, x).tolist() == [0.0, 0.0, 0.0]
    assert program._caller is not None
    is_alike = program._caller._expected[0].is_alike
    assert program._caller._expected[0].sized
    assert is_alike(x, y, x)
    assert is_alike(y, x, y)
    assert not is_alike(x, y, y)
    assert not is_alike(x, x, x)
    for given in ((y, x, y), (x, y, y), (x, x, x), (torch.ones(4), y, y), (y, torch.ones(4), y)):
        try:
            found = program(*given)
        except ix.CallError:
            assert given[0].shape != given[1].shape
        else:
            assert found.tolist() == (given[0] * given[1] - given[2]).tolist()
    grown = alike((x, x), of_one_size=True, growing={0: -1})
    assert grown(x, x)
    four = torch.ones(4)
    assert not grown(four, four)  # Of the second, the size was known.


def test_a_call_that_was_the_same_for_long_may_change() -> None:
    """After some calls of one kind, that kind is asked for first: any other has still its own kernel."""
    program = ix.compile("input x[..r, i], y[i]; let z[..r, i] = x[..r, i] * y[i];")
    x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([3.0, 0.0])
    for _ in range(8):
        assert program(x, y).tolist() == [[3.0, 0.0]]
    assert program._caller is not None
    is_alike = program._caller._expected[-1].is_alike
    assert is_alike(x, y)
    others = [
        (x.double(), y),
        (x[0], y),
        (x[None], y),
        (torch.nn.Parameter(x), y),
        (x.clone().requires_grad_(), y),
        (x, y.numpy()),
        (x.expand(4, 2).T.contiguous().T, y),
    ]
    for one, other in others:
        assert not is_alike(one, other) or one.dtype == x.dtype
        expected = one.detach() * torch.as_tensor(other)
        found = program(one, other)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert torch.equal(found.detach(), expected)
        assert found.requires_grad == one.requires_grad
    with pytest.raises(ix.CallError):
        program(x, torch.ones(3))
    with pytest.raises(ix.CallError):
        program(x.to_sparse(), y)
    with pytest.raises(ix.CallError):
        program(x)
    assert program(x, y, isolate=True).tolist() == program(x, y).tolist() == [[3.0, 0.0]]
    mapped = torch.func.vmap(program, in_dims=(0, None))(torch.stack([x, 2 * x]), y)
    assert mapped.tolist() == [[[3.0, 0.0]], [[6.0, 0.0]]]
    with torch.inference_mode():
        assert program(torch.tensor([[1.0, 2.0]]), y).tolist() == [[3.0, 0.0]]


# ------------------------------------------------------------------ what may differ under one signature

WRONG: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "a size": (CAUSAL, ((4, 3), (4, 3), (4, 5)), ((4, 3), (4, 2), (4, 5))),
    "a size of one axis": (SEVERAL, ((3,), (3,)), ((3,), (4,))),
    "a stated size": ("input x[i in 0..3]; let y[i] = x[i];", ((3,),), ((4,),)),
    "leading axes": (
        "input x[..r, i], y[..r, i]; let z[..r, i] = x[..r, i] * y[..r, i];", ((2, 3), (2, 3)), ((2, 3), (1, 3))
    ),
    "an axis that a definition has": (
        "input x[i], y[j]; let z[i in 0..size(i) + 1] = 1.0; let s = sum[j](z[j] * y[j]);", ((3,), (4,)), ((3,), (3,))
    ),
    "values of another length": (
        "input Q[i, d], K[j, d], U[m]; let V[p in 0..size(m)] = 2 * U[p];"
        "let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])); let out[i] = sum[j](w[i, j] * V[j]);",
        ((2, 3), (4, 3), (4,)),
        ((2, 3), (4, 3), (5,)),
    ),
    "a read beyond": ("input x[i], y[j]; let z[i] = x[i] + y[i + 1];", ((3,), (4,)), ((3,), (3,))),
    "a base case that is not there": (RUNNING, ((3,),), ((0,),)),
    "an assertion": ('input x[i]; let y[i] = x[i]; assert size(i) > 2, "too few";', ((3,),), ((2,),)),
}


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said_as_on_a_first_call(name: str, kind: str) -> None:
    text, right, wrong = WRONG[name]
    program = ix.compile(text)
    fit, unfit = ([a.numpy() if kind == "numpy" else a for a in drawn(*shapes)] for shapes in (right, wrong))
    for _ in range(2):
        program(*fit)
    expected = refused(ix.compile(text), *unfit)
    for given in ({}, {"isolate": True}):
        assert str(refused(program, *unfit, **given)) == str(expected)
        assert str(refused(program, **dict(zip(program.inputs, unfit, strict=True)), **given)) == str(expected)
    program(*fit)


def test_whole_numbers_are_looked_at() -> None:
    program = ix.compile("input n: i32, x[i]; let y[i] = x[i] * (n as f64);")
    x = torch.ones(2)
    assert program(3, x).tolist() == program(3, x).tolist() == [3.0, 3.0]
    for large in (2**31, -(2**31) - 1, 2**80):
        assert str(refused(program, large, x)) == str(refused(ix.compile(program.source_text), large, x))


def test_halves_in_numpy_are_looked_at() -> None:
    program = ix.compile(HALVES)
    for _ in range(2):
        assert program(np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    assert codes(refused(program, np.array([1.001, 1], np.float32))) == ["IX503"]


def test_wide_wholes_are_looked_at() -> None:
    program = ix.compile("input p[i]; let y[i] = p[i] + 1;".replace("p[i];", "p[i]: i64;", 1))
    for _ in range(2):
        assert program(np.ones(2, np.uint64)).tolist() == [2, 2]
    assert codes(refused(program, np.full(2, 2**64 - 1, np.uint64))) == ["IX503"]


def test_masked_arrays_and_those_of_others_are_never_known() -> None:
    program = ix.compile(SEVERAL)
    for _ in range(2):
        program(np.ma.array(np.ones(3)), np.ones(3))
    assert codes(refused(program, np.ma.array(np.ones(3), mask=[True, False, False]), np.ones(3))) == ["IX504"]
    for _ in range(2):
        assert program([1.0, 2.0], [3.0, 4.0]).total == 11.0


def test_tensors_that_are_not_dense() -> None:
    program = ix.compile("input x[i, j]; let y[i] = sum[j](x[i, j]);")
    x = torch.ones(2, 3)
    for _ in range(2):
        program(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for odd in (x.to_sparse(), nested):
        assert codes(refused(program, odd)) == codes(refused(ix.compile(program.source_text), odd)) == ["IX504"]


def test_arrays_larger_than_memory() -> None:
    """Sizes that disagree with all memory are refused before anything is allocated, on a later call too."""
    program = ix.compile("input x[i], y[j], z[k]; let p[i, j, k] = x[i] * y[j] * z[k];")
    for _ in range(2):
        program(*(torch.ones(2) for _ in range(3)))
    assert codes(refused(program, *(torch.ones(1).expand(10**6) for _ in range(3)))) == ["IX507"]


COVERED = {
    RUNNING: True,
    "input x[t, d]; let h[0, d] = x[0, d]; let h[t in 1..size(t), d] = h[t - 1, d] + x[t, d]; output h;": True,
    "input x[t]; let h[0] = 0; let h[t in 1..size(t) + 1] = 0.5 * h[t - 1] + x[t - 1]; output h;": True,
    "input x[t]; let h[size(t) - 1] = 0; let h[t in 0..size(t) - 1] = h[t + 1] + x[t]; output h;": True,
    "input x[t]; let h[0] = 1; let h[1] = 1; let h[t in 2..size(t)] = h[t - 1] + h[t - 2] + x[t]; output h;": True,
    "input x[t]; let h[0] = 1; let h[t in 1..size(t) / 2 + 1] = h[t - 1] + x[t]; output h;": True,
    "input x[t]; let h[0] = 1; let h[t in 1..min(size(t), 9)] = h[t - 1] + x[t]; output h;": True,
    "input x[t]; let h[0] = 1; let h[t in 1..size(t) % 3 + 2] = h[t - 1] + x[t]; output h;": False,
}


@pytest.mark.parametrize("text", COVERED)
def test_a_recurrence_is_known_by_its_sizes(text: str, bound: list[str]) -> None:
    """Where its clauses follow one another, for all sizes; else for those that were there before. What a first call
    refuses is refused."""
    program = ix.compile(text)
    rank = len(program.ir.inputs[0].axes)
    for size in (3, 4, 6, 3, 4):
        program(torch.ones(*[size] * rank))
    assert len(bound) == (1 if COVERED[text] else 3)
    for size in (2, 1, 0):
        again = torch.ones(*[size] * rank)
        try:
            expected = str(ix.compile(text)(again).tolist())
        except ix.CallError as error:
            expected = str(error)
        try:
            found = str(program(again).tolist())
        except ix.CallError as error:
            found = str(error)
        assert found == expected


def test_a_derivative_still_warns() -> None:
    back = ix.grad(CAUSAL, of="out", by=("Q", "K", "V"))
    small = [torch.ones(4, 2) for _ in range(4)]
    for _ in range(2):
        back(*small)
    large = [torch.zeros(3000, 2, requires_grad=True), *(torch.zeros(3000, 2) for _ in range(3))]
    with pytest.warns(ix.SlowPath, match="an array requires a gradient"):
        back(*large)
