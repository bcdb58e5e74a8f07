"""Calls with PyTorch's tensors, and with a mixture: what goes in, what comes out, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.pairs import called_few  # noqa: E402

import indexical as ix  # noqa: E402

DOUBLE = "input x[i]; let y[i] = 2 * x[i];"
SCALED = "input x[i], s; let y[i] = s * x[i];"
PRODUCT = "input A[i, k], B[k, j]; let C[i, j] = sum[k](A[i, k] * B[k, j]);"
GATHER = "input x[i], p[k] : i64; let y[k] = x[p[k]];"
CAUSAL = """input Q[i, d], K[j, d], V[j, e];
let scores[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
"""
FILTER = "input x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = 0.5 * h[t - 1] + x[t];"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work is no faster with more, and much slower where others want the processor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def refused(program: ix.Program, *arrays: Any, **named: Any) -> ix.CallError:
    with pytest.raises(ix.CallError) as caught:
        program(*arrays, **named)
    return caught.value


def codes(error: ix.CallError) -> list[str]:
    return [found.code for found in error.diagnostics]


def drawn(*shapes: tuple[int, ...], dtype: Any = torch.float64) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype) for shape in shapes]


# ------------------------------------------------------------------------------------ in and out


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_give_tensors_of_their_dtype(dtype: Any) -> None:
    for text, shapes in ((DOUBLE, [(5,)]), (PRODUCT, [(2, 3), (3, 4)]), (CAUSAL, [(5, 3)] * 3), (FILTER, [(4,)])):
        arrays = drawn(*shapes, dtype=dtype)
        out = ix.compile(text)(*arrays)
        assert isinstance(out, torch.Tensor)
        assert (out.dtype, out.device) == (dtype, arrays[0].device)
        exact = ix.compile(text)(*(array.double().numpy() for array in arrays))
        assert isinstance(exact, np.ndarray)
        most = 8 * torch.finfo(dtype).eps
        assert out.double().numpy() == pytest.approx(exact, abs=most, rel=most)


def test_numpy_gives_numpy_of_its_dtype() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        assert ix.compile(DOUBLE)(np.ones(3, dtype)).dtype == dtype
    assert ix.compile(DOUBLE)(np.ones(3, ">f4")).dtype == np.float32
    assert ix.compile(DOUBLE)([1.0, 2.0]).dtype == np.float64


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_integers_are_reals_where_reals_are_due_and_indices_where_those_are(dtype: str) -> None:
    whole = torch.tensor([3, 0]).to(getattr(torch, dtype))
    out = ix.compile(DOUBLE)(whole)
    assert out.dtype == torch.float64
    assert out.tolist() == [6.0, 0.0]
    assert ix.compile(GATHER)(torch.arange(4.0), whole).tolist() == [3.0, 0.0]
    assert ix.compile(DOUBLE)(whole.numpy()).dtype == np.float64


def test_gradients_flow() -> None:
    a, b = drawn((2, 3), (3, 4))
    program = ix.compile(PRODUCT)
    assert not program(a, b).requires_grad
    a.requires_grad_()
    out = program(a, b)
    assert out.requires_grad
    (gradient,) = torch.autograd.grad(out.sum(), a, retain_graph=True)
    assert torch.allclose(gradient, b.sum(1).expand(2, 3))
    with torch.no_grad():
        assert not program(a, b).requires_grad
    with torch.inference_mode():
        assert program(a, b).is_inference()
    out.sum().backward()
    assert torch.equal(a.grad, gradient)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (DOUBLE, [(4,)]),
        (PRODUCT, [(2, 3), (3, 4)]),
        (CAUSAL, [(5, 3), (5, 3), (5, 2)]),
        (FILTER, [(5,)]),
        ("input x[t]; let y[0] = x[0]; let y[t in 1..size(t)] = tanh(y[t - 1]) * x[t];", [(5,)]),
        ("input x[i], k[w]; let y[i in 0..size(i) - 2] = sum[w](x[i + w] * k[w]);", [(6,), (3,)]),
        ("input x[i, j]; let y[i] = max[j](x[i, j]) + prod[j](x[i, j]) + mean[j](x[i, j]);", [(3, 4)]),
        ("input x[i, j]; let y[i, j] = log_softmax[j](x[i, j]) + cumsum[j](x[i, j]);", [(3, 4)]),
        ("input x[i]; let y[i] = if x[i] > 0 { x[i] ** 3 } else { x[i] * x[i] };", [(6,)]),
        ("input x[..r, i]; let y[..r] = sum[i](erf(x[..r, i]) where i > 0);", [(2, 3, 4)]),
    ],
)
def test_gradients_are_right_to_the_second(text: str, shapes: list[tuple[int, ...]]) -> None:
    program = ix.compile(text)
    arrays = [array.requires_grad_() for array in drawn(*shapes)]
    assert torch.autograd.gradcheck(program, arrays, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda *given: program(*given, isolate=True), arrays, fast_mode=True)


@pytest.mark.parametrize(
    "body",
    [
        "if x[i] > 0 { sqrt(x[i]) } else { x[i] * x[i] }",
        "if x[i] > 0 { log(x[i]) } else { 0 }",
        "if x[i] != 0 { 1 / x[i] } else { 0 }",
        "if x[i] > 0 { x[i] ** 0.5 } else { 0 }",
        "log(x[i]) where x[i] > 0",
        "if i == 0 { log(x[i]) } else { 0 }",
        "sum[k in 0..size(i)](rsqrt(x[k]) where x[k] > 0)",
    ],
)
def test_nothing_flows_back_from_a_branch_that_is_not_taken(body: str) -> None:
    program = ix.compile(f"input x[i]; let y[i] = {body};")
    x = torch.tensor([1.0, -2.0, 0.0, 4.0], dtype=torch.float64, requires_grad=True)
    for isolate in (False, True):
        (gradient,) = torch.autograd.grad(program(x, isolate=isolate).sum(), x)
        assert bool(gradient.isfinite().all())


def test_a_second_derivative_that_a_kernel_has_not_is_refused_in_words() -> None:
    """Over few pairs the library's own kernel runs, which refuses in its own words."""
    for guard in ("j < i", "j <= i, i - j < 3"):
        # Over few pairs it is PyTorch's own kernel that has none.
        for pairs, words in ((25, "is not implemented"), (24, "no second derivative")):
            q, k, v = (array.requires_grad_() for array in drawn(*[(5, 3)] * 3))
            with called_few(pairs):
                program = ix.compile(CAUSAL.replace("j <= i", guard))
                (gradient,) = torch.autograd.grad(program(q, k, v).square().sum(), q, create_graph=True)
            with pytest.raises(RuntimeError, match=words):
                torch.autograd.grad(gradient.sum(), q)


def test_any_strides() -> None:
    program = ix.compile(CAUSAL)
    usual = drawn((5, 3), (5, 3), (5, 3))
    expected = program(*usual)
    turned = [array.T.contiguous().T for array in usual]
    assert not turned[0].is_contiguous()
    assert torch.allclose(program(*turned), expected)
    apart = [torch.stack([array, array], -1).flatten(1)[:, ::2] for array in usual]
    assert torch.allclose(program(*apart), expected)
    backwards = [np.ascontiguousarray(array.numpy()[::-1, ::-1])[::-1, ::-1] for array in usual]
    assert program(*backwards) == pytest.approx(expected.numpy())
    row = torch.randn(1, 3, dtype=torch.float64)
    assert torch.allclose(program(row.expand(5, 3), *usual[1:]), program(row.repeat(5, 1), *usual[1:]))
    assert torch.allclose(ix.compile(PRODUCT)(row.expand(2, 3), usual[0].T), row.repeat(2, 1) @ usual[0].T)


@pytest.mark.parametrize("shapes", [[(0, 3), (3, 2)], [(2, 0), (0, 2)], [(2, 3), (3, 0)], [(0, 0), (0, 0)]])
def test_axes_of_no_points(shapes: list[tuple[int, ...]]) -> None:
    a, b = (array.requires_grad_() for array in drawn(*shapes))
    out = ix.compile(PRODUCT)(a, b)
    assert torch.equal(out, a @ b)
    assert [g.shape for g in torch.autograd.grad(out.sum(), (a, b))] == [a.shape, b.shape]


@pytest.mark.parametrize(
    ("scalar", "dtype"),
    [
        (2, torch.float32),
        (2.0, torch.float32),
        (torch.tensor(2.0), torch.float32),
        (torch.tensor(2.0, dtype=torch.bfloat16), torch.float32),
        (torch.tensor(2.0, dtype=torch.float64), torch.float64),
        (torch.tensor(2), torch.float64),
        (np.float32(2), torch.float32),
        (np.array(2.0), torch.float64),
    ],
)
def test_scalars(scalar: Any, dtype: Any) -> None:
    out = ix.compile(SCALED)(torch.ones(3), scalar)
    assert out.dtype == dtype
    assert out.tolist() == [2.0, 2.0, 2.0]
    if getattr(scalar, "dtype", None) != torch.bfloat16:
        same = scalar.numpy() if isinstance(scalar, torch.Tensor) else scalar
        assert str(ix.compile(SCALED)(np.ones(3, np.float32), same).dtype) == str(dtype).removeprefix("torch.")


def test_a_scalar_learns() -> None:
    scale = torch.tensor(2.0, requires_grad=True)
    ix.compile(SCALED)(torch.arange(3.0), scale).sum().backward()
    assert scale.grad == 3.0


def test_a_scalar_decides_a_size() -> None:
    program = ix.compile("input n : i64; let y[k in 0..n] = k * k;")
    assert program(torch.tensor(3)).tolist() == [0, 1, 4]
    assert program(torch.tensor(-1)).tolist() == []
    assert program(4, backend="torch").tolist() == [0, 1, 4, 9]


def test_lists_arrays_and_tensors_together() -> None:
    program = ix.compile(PRODUCT)
    b = torch.ones(2, 2, requires_grad=True)
    for a in (np.ones((1, 2), np.float32), torch.ones(1, 2)):
        out = program(a, b)
        assert isinstance(out, torch.Tensor)
        assert out.dtype == torch.float32
        assert out.tolist() == [[2.0, 2.0]]
        assert out.requires_grad
    assert program([[1.0, 1.0]], b).tolist() == [[2.0, 2.0]]


def test_a_backend_may_be_asked_for() -> None:
    program = ix.compile(DOUBLE)
    tensor, array = torch.ones(3, requires_grad=True), np.ones(3)
    assert isinstance(program(array, backend="torch"), torch.Tensor)
    assert isinstance(program(tensor, backend="numpy"), np.ndarray)
    assert isinstance(program(tensor, backend="reference"), np.ndarray)
    assert codes(refused(program, tensor, backend="fortran")) == ["IX509"]


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        (PRODUCT, [np.zeros((2, 3)), np.zeros((4, 5))]),
        (PRODUCT, [np.zeros(2), np.zeros((2, 2))]),
        (PRODUCT, [np.zeros((2, 2, 2)), np.zeros(2)]),
        ("input x[i], z[j]; let y[k] = x[k] * z[k];", [np.zeros(3), np.zeros(1)]),
        ("input x[d in 0..3]; let y[d] = x[d];", [np.zeros(4)]),
        ("input x[..r, i], y[..r, i]; let z[..r] = sum[i](x[..r, i] + y[..r, i]);", [np.zeros((2, 3)), np.zeros(3)]),
        (GATHER, [np.zeros(3), np.array([0.5])]),
        (GATHER, [np.zeros(3), np.array([True])]),
        (DOUBLE, [np.array([True])]),
        (DOUBLE, [np.array([1j])]),
        ("input b[k] : bool; let y[k] = b[k];", [np.array([0, 1])]),
        ("input x[k] : f32; let y[k] = x[k];", [np.array([0.1])]),
        ("input p[k] : i32; let y[k] = p[k];", [np.array([1], np.int64)]),
        (FILTER, [np.zeros(0)]),
        ("input x[i]; let a = argmax[i](x[i]);", [np.zeros(0)]),
        (GATHER, [np.zeros(3), np.array([0, 3])]),
        (GATHER, [np.zeros(3), np.array([-1, 0])]),
        ('input x[i]; assert sum[i](x[i]) > 0, "it sums to more than 0"; let y[i] = x[i];', [np.zeros(3)]),
        ("input x[i] : i64; let y[i] = 10 / x[i];", [np.array([1, 0])]),
        ("input x[i] : i64; let y[i] = x[i] * x[i];", [np.array([1, 2**40])]),
    ],
)
def test_tensors_are_refused_in_the_same_words_as_arrays(text: str, arrays: list[Any]) -> None:
    program = ix.compile(text)
    in_numpy = refused(program, *arrays).diagnostics
    in_torch = refused(program, *map(torch.from_numpy, arrays)).diagnostics
    assert [(found.code, found.message, found.labels, found.notes) for found in in_torch] == [
        (found.code, found.message, found.labels, found.notes) for found in in_numpy
    ]


def test_the_words_do_not_depend_on_what_was_called_before() -> None:
    for text, good, bad in (
        (PRODUCT, [torch.ones(2, 2), torch.ones(2, 2)], [torch.ones(2, 3), torch.ones(2, 2)]),
        (GATHER, [torch.ones(3), torch.tensor([0])], [torch.ones(3), torch.tensor([3])]),
        (CAUSAL, [torch.ones(2, 2)] * 3, [torch.ones(2, 2), torch.ones(3, 2), torch.ones(2, 2)]),
    ):
        fresh = str(refused(ix.compile(text), *bad))
        program = ix.compile(text)
        program(*good)
        program(*good)
        assert str(refused(program, *bad)) == fresh


def test_a_failure_says_where() -> None:
    error = refused(ix.compile(GATHER), torch.arange(4.0), torch.tensor([1, 2, 7]))
    assert codes(error) == ["IX305"]
    assert "`k = 2`" in str(error)
    assert "x[p[k]]" in str(error)
    error = refused(ix.compile("input n[i, j] : i64; let y[i, j] = 10 / n[i, j];"), torch.tensor([[1, 1], [0, 1]]))
    assert "`i = 1`, `j = 0`" in str(error)


def test_a_failure_in_what_is_not_asked_for_is_none() -> None:
    program = ix.compile("input x[i], p[k] : i64; let y[k] = x[p[k]]; let z[k] = 2 * p[k];")
    given = torch.arange(3.0), torch.tensor([0, 9])
    assert program(*given, outputs="z").tolist() == [0, 18]
    assert codes(refused(program, *given)) == ["IX305"]


def test_what_is_no_dense_tensor() -> None:
    sparse = torch.ones(3).to_sparse()
    error = refused(ix.compile(DOUBLE), sparse)
    assert codes(error) == ["IX504"]
    assert "to_dense" in str(error)


def test_what_is_no_dense_tensor_after_what_is() -> None:
    program = ix.compile(DOUBLE)
    program(torch.ones(3))
    assert codes(refused(program, torch.ones(3).to_sparse())) == ["IX504"]


def test_tensors_on_different_devices() -> None:
    error = refused(ix.compile(PRODUCT), torch.ones(2, 2), torch.ones(2, 2, device="meta"))
    assert codes(error) == ["IX510"]
    assert "`A` is on cpu and `B` on meta" in str(error)


@pytest.mark.parametrize("guard", ["", " where j <= i", " where j < i", " where i - j < 3"])
@pytest.mark.parametrize("score", ["scores[i, j]", "tanh(scores[i, j])"])
def test_tensors_without_numbers(guard: str, score: str) -> None:
    text = CAUSAL.replace(" where j <= i", guard).replace("softmax[j](scores[i, j])", f"softmax[j]({score})")
    out = ix.compile(text)(*(torch.ones(5, 3, device="meta") for _ in range(3)))
    assert out.device.type == "meta"
    assert out.shape == (5, 3)


def test_arguments_by_name_and_place() -> None:
    program = ix.compile(PRODUCT)
    a, b = drawn((2, 3), (3, 4))
    assert torch.equal(program(B=b, A=a), program(a, b))
    assert torch.equal(program(a, B=b), program(a, b))
    assert codes(refused(program, a)) == ["IX501"]
    assert codes(refused(program, a, b, b)) == ["IX501"]
    assert codes(refused(program, a, b, A=a)) == ["IX501"]
    assert codes(refused(program, a, b, D=a)) == ["IX501"]


def test_too_large_is_said_so() -> None:
    program = ix.compile("input x[i]; let y[i, j in 0..size(i), k in 0..size(i)] = x[i] * x[j] * x[k];")
    assert codes(refused(program, torch.ones(200_000))) == ["IX507"]
    assert codes(refused(program, np.ones(200_000))) == ["IX507"]


def test_too_large_after_what_is_not() -> None:
    program = ix.compile("input n : i64; let y[k in 0..n] = k;")
    program(torch.tensor(3))
    assert codes(refused(program, torch.tensor(10**14))) == ["IX507"]
