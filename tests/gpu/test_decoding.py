"""Few queries over many keys on a GPU: the kernel that splits keys, beside the same relation in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

from tests.backends.triton.decoding import CASES, LATE, draw, grouped  # noqa: E402
from tests.decoding import catalogue  # noqa: E402
from tests.decoding.law import rows_of  # noqa: E402
from tests.decoding.test_rooms import HEAD, PROGRAMS, ROOM, TABLE, X  # noqa: E402

import indexical as ix  # noqa: E402
from indexical import models  # noqa: E402

ROUGH = {"f32": 2e-5, "f16": 4e-3, "bf16": 4e-2}


@pytest.mark.parametrize("dtype", ROUGH)
@pytest.mark.parametrize("name", CASES)
def test_kernel_computes_the_relation(name: str, dtype: str) -> None:
    case = replace(CASES[name], dtype=dtype)
    program = ix.compile(case.program)
    given = {n: x.cuda() for n, x in draw(case).items()}
    exact = {n: x.double() if x.is_floating_point() else x for n, x in given.items()}
    assert "split over the card" in str(program.plan(**given))
    outputs = [program(**given), program(**exact, isolate=True)]
    sides = [[out] if torch.is_tensor(out) else list(out) for out in outputs]
    for found, right in zip(*sides, strict=True):
        found = found.double()
        assert torch.equal(found.isnan(), right.isnan())
        assert torch.equal(found.isinf(), right.isinf())
        finite = right.isfinite()
        assert (found - right)[finite].abs().max().item() <= ROUGH[dtype] if finite.any() else True


def long_keys() -> tuple[ix.Program, list[Any]]:
    program = ix.compile(grouped(guard=f"{LATE}, j > i + size(j) - size(i) - 3000"))
    shapes = ((2, 8, 3, 64), (2, 2, 9000, 64), (2, 2, 9000, 64))
    return program, [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]


def test_graphs_replay_it() -> None:
    program, given = long_keys()
    expected = program(*given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = program(*given)
    found.zero_()
    graph.replay()
    assert torch.equal(found, expected)


def test_lengths_change_under_a_graph() -> None:
    """A step of decoding is captured once; how many keys there are is read on the device, when it is replayed."""
    program = ix.compile(
        """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], n[b] : i64;
        let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))) where j < n[b];
        let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);"""
    )
    shapes = ((3, 8, 1, 64), (3, 8, 5000, 64), (3, 8, 5000, 64))
    given = [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    lengths = torch.tensor([1, 700, 4000], device="cuda")
    assert "split over the card" in str(program.plan(*given, lengths))
    program(*given, lengths)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = program(*given, lengths)
    before = torch.cuda.memory_allocated()
    for now in ([2, 701, 4001], [5000, 0, 17]):
        lengths.copy_(torch.tensor(now))
        graph.replay()
        assert torch.cuda.memory_allocated() == before
        assert torch.equal(found, program(*given, lengths))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # PyTorch's compiler warns of itself.
def test_compiler_takes_it_whole() -> None:
    program, given = long_keys()
    found = torch.compile(lambda *arrays: program(*arrays) * 2, fullgraph=True)(*given)
    assert torch.equal(found, program(*given) * 2)


def test_gradients_go_another_way() -> None:
    program, given = long_keys()
    leaves = [x.requires_grad_() for x in given]
    found = program(*leaves)
    found.sum().backward()
    assert all(leaf.grad is not None and bool(leaf.grad.isfinite().all()) for leaf in leaves)


LAW = ["causal_attention", "grouped_query", "rotary", "alibi", "transformer_block", "documents"]
VARIANTS = ["soft_cap", "linear", "learned_sinks", "latent", "forgetting", "gated_delta"]
VARIANTS += ["sliding_window", "streaming", "retention"]  # Whole numbers of Python; bounds that a kernel would look at.
PAGED = ["causal_attention", "rotary", "alibi"]


@pytest.mark.parametrize(
    ("name", "variant", "pages"),
    [(n, False, None) for n in LAW] + [(n, True, None) for n in VARIANTS] + [(n, False, 3) for n in PAGED],
)
def test_captured_steps_give_what_the_whole_gives(name: str, variant: bool, pages: int | None) -> None:
    program = ix.compile(catalogue.file_of(name, variant))
    decode = ix.incremental(program, catalogue.along(program), capacity=24, pages=pages)
    arrays, length = catalogue.arrays(name, variant, decode)
    given: dict[str, Any] = {}
    for n, array in arrays.items():
        tensor = torch.as_tensor(numpy.asarray(array))
        tensor = tensor.float() if tensor.is_floating_point() else tensor
        given[n] = tensor.cuda() if tensor.ndim else tensor.item()
    exact = decode.program(**arrays, outputs=decode._wanted[0])
    fixed = {n: given[n] for n in decode.fixed}
    state, first = decode.prefill(**{n: rows_of(decode, n, given[n], 0, 1) for n in decode.inputs}, **fixed)
    found = [first]
    for at in range(1, length):
        state, out = decode.step(**{n: rows_of(decode, n, given[n], at, 1) for n in decode.inputs}, state=state)
        found.append(out)
    axis = decode._split.axis[decode._wanted[0]] - exact.ndim
    assert not decode.uncaptured
    numpy.testing.assert_allclose(torch.cat(found, axis).cpu(), exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kept", [{}, {"pages": 2}, {"pages": 2, "pool": 16}], ids=str)
def test_sequences_go_on_by_one_graph(kept: dict[str, int]) -> None:
    """Lengths of their own, an old state, a roll-back: what was given out is not overwritten."""
    table = torch.tensor(TABLE).float().cuda()
    decode = ix.incremental(HEAD + PROGRAMS["softmax"], "i", capacity=ROOM, table=table, **kept)
    x = torch.tensor(X).float().cuda()
    lengths = (2, 0, 4)
    state, _ = decode.prefill(x, lengths=lengths)
    for _ in range(2):
        found = []
        for k in range(5):
            new = torch.stack([x[n, at + k : at + k + 1] for n, at in enumerate(lengths)])
            state, out = decode.step(new, state)
            found.append(out)
        for n, at in enumerate(lengths):
            whole = decode.program(X[n : n + 1, : at + 5], TABLE[: at + 5])[0, at:]
            numpy.testing.assert_allclose(torch.cat(found, 1)[n].cpu(), whole, rtol=1e-4, atol=1e-5)
        state = state.back_to(lengths)
    assert not decode.uncaptured
    kinds = {type(graph).__name__ for graph in state._store.captures.graphs.values()}
    assert kinds == {"Captured"}
    torch.cuda.synchronize()
    held, _ = torch.cuda.memory_allocated(), decode.step(new, state)
    assert torch.cuda.memory_allocated() <= held + 4096


SIZES = {"b": 2, "l": 3, "v": 40, "m": 32, "h": 4, "g": 2, "d": 16, "e": 16, "k": 8, "f": 64, "p": 32}


@pytest.mark.parametrize("pages", [None, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_models_are_captured(family: str, dtype: Any, pages: int | None) -> None:
    """Logits of steps by a graph are those of steps without, to the last bit; in 32 bits, those of the whole."""
    program = ix.unroll(models.program(family), l=SIZES["l"])
    torch.manual_seed(0)
    weights = {
        tensor.name: torch.randn([SIZES[axis.coordinate.name] for axis in tensor.axes], device="cuda").to(dtype) * 0.3
        for tensor in program.ir.inputs
        if tensor.axes and tensor.name != "tokens"
    }
    weights["small"] = 1e-5
    tokens = torch.randint(SIZES["v"], (SIZES["b"], 20), device="cuda")
    found = []
    for graph in (True, False):
        decode = ix.incremental(program, "i", "logits", capacity=24, graph=graph, pages=pages, **weights)
        state, out = decode.prefill(tokens[:, :9])
        parts = [out]
        for at in range(9, 20):
            state, out = decode.step(tokens[:, at : at + 1], state)
            parts.append(out)
        found.append(torch.cat(parts, 1))
        assert not decode.uncaptured
    assert torch.equal(*found)
    if dtype == torch.float32:
        whole = program(tokens, outputs="logits", **weights)
        torch.testing.assert_close(found[0], whole, rtol=1e-3, atol=1e-3 * float(whole.abs().max()))


def test_what_cannot_be_captured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = ix.incremental("input x[i, d]; let y[i, d] = sum[j](x[j, d] * x[i, d] where j <= i);", "i", capacity=16)
    stepped = decode._stepped

    def waiting(*given: Any) -> Any:
        torch.cuda.synchronize()
        return stepped(*given)

    monkeypatch.setattr(decode, "_stepped", waiting)
    x = torch.randn(8, 2, device="cuda")
    state, _ = decode.prefill(x[:1])
    for at in (1, 2):
        state, out = decode.step(x[at : at + 1], state)
    with pytest.warns(RuntimeWarning, match="without a CUDA graph"):
        state, out = decode.step(x[3:4], state)
    torch.testing.assert_close(out[0], x[:4].sum(0) * x[3])
    assert "no CUDA graph" in str(decode)
    torch.randn(2, device="cuda")  # A capture that ends early would leave the generator unusable.


def test_weights_that_moved_are_captured_anew() -> None:
    weight = torch.randn(2, 2, device="cuda")
    text = "input x[i, d], w[d, e]; let k[i, e] = sum[d](x[i, d] * w[d, e]);"
    decode = ix.incremental(text + "let y[i, e] = sum[j](k[j, e] where j <= i);", "i", capacity=16, w=weight)
    x = torch.randn(8, 2, device="cuda")
    state, total = decode.prefill(x[:1])
    for at in range(1, 8):
        if at == 5:
            weight.data = torch.randn(2, 2, device="cuda")
        state, out = decode.step(x[at : at + 1], state)
        total = total + x[at : at + 1] @ weight
        torch.testing.assert_close(out, total)
    assert not decode.uncaptured
