"""Attention by Triton kernels on a GPU: every variant that they take, forward and backward, beside double precision."""

from __future__ import annotations

from typing import Any

import pytest

import indexical as ix

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

from tests.backends.triton import attending  # noqa: E402
from tests.backends.variants import SIZES, VARIANTS  # noqa: E402

from indexical.backends.kernels import triton_gradients  # noqa: E402
from indexical.plan.target import TRITON  # noqa: E402

# Each dtype and shape is compiled anew: all variants in one of them, some in more.
SOME = ("window", "prefix for each batch", "documents for each batch", "ALiBi", "soft cap", "relative bias")
SHAPES = {
    "odd": {"i": 201, "j": 201, "d": 64, "e": 128, "r": 401},
    "wide": {"i": 130, "j": 130, "d": 128, "e": 64, "r": 260},
}
WIDTHS = {
    "narrow": {"i": 77, "j": 77, "d": 33, "e": 80, "r": 153},
    "widest": {"i": 140, "j": 140, "d": 256, "e": 192, "r": 280},
}
MOST = {"float32": 5e-5, "float16": 8e-3, "bfloat16": 6e-2}
SUMMED = {"float32": 5, "float16": 2, "bfloat16": 2}


def drawn(name: str, dtype: Any, larger: dict[str, int]) -> dict[str, Any]:
    """The arrays of a variant, on the GPU."""
    torch.manual_seed(1)
    variant = VARIANTS[name]
    sizes = {**SIZES, **larger, **variant.sizes}
    found: dict[str, Any] = {}
    for tensor in ix.compile(variant.text).ir.inputs:
        if tensor.name in variant.given:
            found[tensor.name] = variant.given[tensor.name](sizes)
        else:
            found[tensor.name] = torch.randn([sizes[axis.coordinate.name] for axis in tensor.axes]).to(dtype)
    return {name: array.cuda() if torch.is_tensor(array) else array for name, array in found.items()}


def is_learned(array: Any) -> bool:
    return torch.is_tensor(array) and array.is_floating_point()


def results(program: ix.Program, given: dict[str, Any], weight: Any, **options: Any) -> list[Any]:
    out = program(**given, **options)
    learned = [array for array in given.values() if is_learned(array)]
    return [out, *torch.autograd.grad((out * weight.to(out.dtype)).sum(), learned)]


def learning(given: dict[str, Any], dtype: Any = None) -> dict[str, Any]:
    return {
        name: array.detach().to(dtype or array.dtype).requires_grad_() if is_learned(array) else array
        for name, array in given.items()
    }


CASES = [(name, "odd", "bfloat16") for name in VARIANTS if name not in SOME]
CASES += [(name, shape, dtype) for name in SOME for shape in SHAPES for dtype in MOST]
CASES += [(name, shape, "bfloat16") for name in ("window", "ALiBi", "relative bias", "bias") for shape in WIDTHS]


@pytest.mark.parametrize(("name", "shape", "dtype"), CASES)
def test_kernel_computes_the_relation(name: str, shape: str, dtype: str) -> None:
    program = ix.compile(VARIANTS[name].text)
    given = drawn(name, getattr(torch, dtype), (SHAPES | WIDTHS)[shape])
    if not any(step.kernel == TRITON for step in program.plan(**given).steps):
        pytest.skip("not by a Triton kernel")
    with torch.no_grad():
        weight = torch.randn_like(program(**given).double())
    right = results(program, learning(given, torch.float64), weight, isolate=True)
    ours = results(program, learning(given), weight)
    assert torch.equal(ours[0].isnan(), right[0].isnan())
    for found, expected in zip(ours, right, strict=True):
        assert found.is_cuda
        missing = expected.isnan()
        assert not (found.isnan() & ~missing).any()  # A quotient over no keys is NaN; the kernel's gradient of it is 0.
        if missing.all():
            continue
        scale = max(1.0, expected[~missing].abs().max().item())
        # A slope's gradient adds terms of both signs over all pairs.
        most = MOST[dtype] * (SUMMED[dtype] if expected.numel() <= 8 else 1)
        assert (found.double() - expected)[~missing].abs().max().item() <= most * scale


@pytest.mark.parametrize("places", [{"V": 30, "K": 90, "Q": 120, "d_out": 170}, {"V": 170}, {"K": 170}, {"d_out": 9}])
@pytest.mark.parametrize(
    "name",
    [
        *("window", "ALiBi", "relative bias", "gate", "soft cap", "sigmoid", "bias", "sink", "mask in tiles"),
        *("some queries", "lengths of queries", "branches"),
    ],
)
def test_what_is_not_finite_stays_with_those_who_hear_it(name: str, places: dict[str, int]) -> None:
    program, given = ix.compile(attending.VARIANTS[name].text), attending.drawn(name, torch.bfloat16, SHAPES["odd"])
    given = {key: array.cuda() if torch.is_tensor(array) else array for key, array in given.items()}
    attending.check_odd_values(program, program, given, places)


@pytest.mark.parametrize(("rows", "keys"), [(0, 5), (5, 0), (1, 1), (1, 300), (300, 1)])
def test_few_positions(rows: int, keys: int) -> None:
    program = ix.compile(VARIANTS["two-sided window"].text)
    shapes = {"Q": (2, 2, rows, 16), "K": (2, 2, keys, 16), "V": (2, 2, keys, 16)}
    given = {name: torch.randn(shape, device="cuda", dtype=torch.float16) for name, shape in shapes.items()}
    weight = torch.randn(2, 2, rows, 16, device="cuda", dtype=torch.float64)
    right = results(program, learning(given, torch.float64), weight, isolate=True)
    for found, expected in zip(results(program, learning(given), weight), right, strict=True):
        assert torch.allclose(found.double(), expected, atol=8e-3)


def test_layouts_are_taken_as_they_come() -> None:
    """Heads behind positions, and gaps between rows: strides, not copies."""
    program = ix.compile(VARIANTS["window"].text)
    whole = torch.randn(2, 150, 3, 4, 64, device="cuda", dtype=torch.bfloat16)
    given = {name: whole[:, :, n].transpose(1, 2) for n, name in enumerate("QKV")}
    plain = {name: array.contiguous() for name, array in given.items()}
    assert torch.equal(program(**given), program(**plain))


def test_same_gradients_every_time() -> None:
    program = ix.compile(VARIANTS["relative bias"].text)
    given = drawn("relative bias", torch.bfloat16, SHAPES["odd"])
    weight = torch.randn(2, 2, 201, SHAPES["odd"]["e"], device="cuda")
    first, second = (results(program, learning(given), weight) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("room", [2.0, 0.05, 0.0])
@pytest.mark.parametrize("name", ["relative bias, far", "relative bias, parts", "relative bias in documents"])
def test_tables_learn_in_any_room(name: str, room: float) -> None:
    """The kernel for queries sums diagonals, for all heads or some at a time, or another kernel does."""
    program, given = ix.compile(attending.VARIANTS[name].text), attending.drawn(name, torch.float16, SHAPES["odd"])
    given = {key: array.cuda() if torch.is_tensor(array) else array for key, array in given.items()}
    weight = torch.randn_like(program(**given).double())
    right = results(program, learning(given, torch.float64), weight, isolate=True)
    with attending.changed(triton_gradients, "_STRIPS", room):
        ours = results(program, learning(given), weight)
    for found, expected in zip(ours, right, strict=True):
        scale = max(1.0, expected.abs().max().item())
        assert (found.double() - expected).abs().max().item() <= MOST["float16"] * scale


@pytest.mark.parametrize("name", ["ALiBi", "documents for each batch", "relative bias", "window"])
def test_calls_that_are_repeated_compute_anew(name: str) -> None:
    """A call of known layouts is launched from a tape: with its own tensors, wherever they lie."""
    program, sizes = ix.compile(VARIANTS[name].text), SHAPES["odd"]
    first = drawn(name, torch.bfloat16, sizes)
    for change in range(6):
        given = {key: -array.flip(-1) * 0.7**change if is_learned(array) else array for key, array in first.items()}
        if change == 4:  # At an odd address the kernel is another one.
            given["Q"] = torch.cat([given["Q"].flatten()[:1], given["Q"].flatten()])[1:].view(given["Q"].shape)
        plain = program(**given)
        weight = torch.randn_like(plain.double())
        right = results(program, learning(given, torch.float64), weight, isolate=True)
        ours = results(program, learning(given), weight)
        assert torch.equal(plain, ours[0])
        for found, expected in zip(ours, right, strict=True):
            scale = max(1.0, expected.abs().max().item())
            assert (found.double() - expected).abs().max().item() <= 2 * MOST["bfloat16"] * scale


def test_graphs_replay_a_call_and_its_gradients() -> None:
    program, given = ix.compile(VARIANTS["ALiBi"].text), learning(drawn("ALiBi", torch.bfloat16, SHAPES["odd"]))

    def run(given: dict[str, Any]) -> list[Any]:
        out = program(**given)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), list(given.values()))]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(12):  # Until calls are launched from a tape, by the function for these sizes.
            run(given)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run(given)
    with torch.no_grad():
        given["Q"].mul_(-0.5)
    graph.replay()
    right = run(learning({name: array.detach() for name, array in given.items()}))
    assert all(torch.equal(one, other) for one, other in zip(found, right, strict=True))


def test_a_frozen_table_leaves_the_other_gradients() -> None:
    """A call that is repeated gives the gradients of queries alone, where a table wants none."""
    program, given = ix.compile(VARIANTS["relative bias"].text), drawn("relative bias", torch.bfloat16, SHAPES["odd"])
    learned = learning(given)
    found = []
    for frozen in (False, True, True):
        arrays = {name: array.detach() if frozen and name not in "QKV" else array for name, array in learned.items()}
        found.append(torch.autograd.grad(program(**arrays).sum(), [arrays["Q"], arrays["K"], arrays["V"]]))
    for again in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], again, strict=True))


@pytest.mark.parametrize("length", [1000, 8500])
def test_causal_products_short_and_long(length: int) -> None:
    """One kernel of all pairs, and chunks of matrix products: the same numbers."""
    text = """
    input Q[h, i, d], K[h, j, d], V[h, j, e], decay[h];
    let w[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) * exp(-decay[h] * (i - j)) / sqrt(size(d)) where j <= i;
    let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
    """
    torch.manual_seed(2)
    arrays = [torch.randn(2, length, 64) for _ in "QKV"] + [torch.tensor([0.02, 0.003])]
    program = ix.compile(text)
    sides = []
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.float64)):
        given = [array.to(device, dtype).requires_grad_() for array in arrays]
        out = program(*given)
        sides.append([out.detach(), *torch.autograd.grad(out.square().sum(), given)])
    for found, exact in zip(*sides, strict=True):
        assert float((found.cpu().double() - exact).norm() / exact.norm()) < 2e-5
