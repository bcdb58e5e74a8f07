"""Attentions whose arrays have several dtypes, on a GPU: drawn ones beside the same relation in float64."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

from tests.backends.triton.mixed import check, draw  # noqa: E402

import indexical as ix  # noqa: E402
from indexical.plan.target import TRITON  # noqa: E402

DTYPES = ("bf16", "f16", "f32")


def sizes(rng: random.Random, keys: int, queries: int) -> dict[str, int]:
    return {"i": queries, "j": keys, "d": rng.choice([32, 64, 128]), "e": rng.choice([40, 64, 128])}


@pytest.mark.parametrize("seed", range(30))
def test_attention_and_its_gradients(seed: int) -> None:
    """The first call is planned, the second recorded, and the third launched from the record."""
    rng = random.Random(seed)
    length = rng.choice([77, 130, 201])
    case = draw(lambda _, options: rng.choice(options), DTYPES, sizes(rng, length, length))
    case = replace(case, given={name: array.cuda() for name, array in case.given.items()})
    program = ix.compile(case.text)
    for _ in range(3):
        check(case, program)


@pytest.mark.parametrize("seed", range(20))
def test_few_queries(seed: int) -> None:
    rng = random.Random(seed)
    case = draw(lambda _, options: rng.choice(options), DTYPES, sizes(rng, 1500, rng.choice([1, 4])), learns=False)
    case = replace(case, given={name: array.cuda() for name, array in case.given.items()})
    program = ix.compile(case.text)
    check(case, program, learns=False)
    found = [program(**case.given) for _ in range(40)]  # Launches are recorded on the way.
    assert all(torch.equal(found[0], again) for again in found[1:])


def test_slopes_in_float32_leave_products_in_bfloat16() -> None:
    """They would take some seventy times as long in float32."""
    text = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], slope[h];
    let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) - slope[h] * (i - j)) where j <= i;
    let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);"""
    program = ix.compile(text)
    q, k, v = (torch.randn(1, 8, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in "QKV")
    slope = torch.rand(8, device="cuda")
    assert [step.kernel for step in program.plan(q, k, v, slope).steps] == [TRITON]
    seconds = []
    for given in (slope, slope.bfloat16()):
        for _ in range(40):  # A function for these sizes is made on the way.
            program(q, k, v, given)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(20):
            program(q, k, v, given)
        last.record()
        torch.cuda.synchronize()
        seconds.append(first.elapsed_time(last))
    assert seconds[0] < 3 * seconds[1]


def test_products_of_float32_have_all_digits_unless_pytorch_may_leave_some_out() -> None:
    text = """input Q[h, i, d], K[h, j, d], V[h, j, e];
    let weights[h, i, j] = softmax[j](30 * tanh(sum[d](Q[h, i, d] * K[h, j, d]) / 30)) where j <= i;
    let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);"""
    program = ix.compile(text)
    given = [torch.randn(2, 900, 64, device="cuda", requires_grad=True) for _ in "QKV"]
    assert [step.kernel for step in program.plan(*given).steps] == [TRITON]

    def found(arrays: list[torch.Tensor], **flags: bool) -> list[torch.Tensor]:
        out = program(*arrays, **flags)
        return [out.detach(), *torch.autograd.grad(out.sin().sum(), arrays)]

    wanted = found([x.detach().double().requires_grad_() for x in given], isolate=True)

    def errors() -> list[float]:
        pairs = zip(found(given), wanted, strict=True)
        return [float((one.double() - other).norm() / other.norm()) for one, other in pairs]

    before = torch.get_float32_matmul_precision()
    try:
        for precision, least, most in (("highest", 0, 1e-6), ("high", 1e-6, 3e-5), ("highest", 0, 1e-6)):
            torch.set_float32_matmul_precision(precision)
            for _ in range(40):  # A call that is recorded is not taken for one with other products.
                assert all(least <= error <= most for error in errors()), precision
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("carried", [1, 16, 100])
def test_narrow_values_are_the_same_whatever_was_in_memory(carried: int, dtype: torch.dtype) -> None:
    """Beside a fold that carries nothing at all, and with ways back between the calls."""
    program = ix.compile("""input Q[h, i, d], K[h, j, d], V[h, j, e];
    let x[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) ** 2 where j <= i;
    let weights[h, i, j] = x[h, i, j] / sum[k](x[h, i, k]);
    let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);""")
    widths = (128, 128, carried)
    given = [torch.randn(4, 2048, n, device="cuda", dtype=dtype, requires_grad=True) for n in widths]
    wide = [x.detach().double().requires_grad_() for x in given]
    wanted = program(*wide, isolate=True)
    wanted = [wanted.detach(), *torch.autograd.grad(wanted.sin().sum(), wide)]
    most = 1e-5 if dtype == torch.float32 else 0.05
    for _ in range(6):
        filled = [torch.full((1 << 24,), torch.nan, device="cuda") for _ in range(6)]
        del filled
        out = program(*given)
        found = [out.detach(), *torch.autograd.grad(out.sin().sum(), given)]
        for one, other in zip(found, wanted, strict=True):
            assert float((one.double() - other).norm() / other.norm()) < most
