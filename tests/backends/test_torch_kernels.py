"""The kernels for PyTorch on the CPU: beside the same attention written out, at its limits, and inside graphs."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.backends import hearing as cases  # noqa: E402
from tests.backends.hearing import (  # noqa: E402
    SIZES,
    asking,
    drawn,
    error,
    gradients,
    hearing,
    hearings,
    spoiled,
    tensors,
    written_out,
)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from indexical.backends.kernels import (  # noqa: E402
    torch_fused,
    torch_intervals,
    torch_operator,
    torch_plans,
)
from indexical.engine.carried import carried, kernel_file  # noqa: E402
from indexical.engine.show.imports import imported  # noqa: E402

pytestmark = pytest.mark.sampled(6)

NAMES = list(hearings(1, 1, 2, 2))
CAPPED = cases.capped_alone("capped")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work is no faster with more, and much slower where others want the processor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ---- Within intervals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", SIZES)
def test_within_intervals_as_written_out(size: str, name: str) -> None:
    compare_within(size, name)


@pytest.mark.parametrize("name", NAMES)
def test_within_intervals_without_fused_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (torch_fused, torch_plans):
        monkeypatch.setattr(module, "fused_kernel", lambda *_: None)
    monkeypatch.setattr(torch_plans, "_recent", [])
    compare_within("wide values, two batches", name)


def compare_within(size: str, name: str) -> None:
    given = hearing(size, name)
    inputs = asking(tensors(size))
    wanted = written_out(*inputs, given.allowed(), 0.3)
    found = torch_intervals.attend_within(*inputs, *given.arguments(0.3))
    assert error(found, wanted) < 1e-12
    for got, want in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
        assert error(got, want) < 1e-11


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["window", "documents", "prefix", "sink and window", "groups"])
def test_error_is_that_of_the_library(name: str, dtype: torch.dtype) -> None:
    rows, width = (1100, 32) if dtype == torch.float32 else (300, 16)  # Some processors emulate 16 bits.
    given = hearings(1, 2, rows, rows)[name]
    inputs = asking(drawn(*[(1, 2, rows, width)] * 3, dtype=dtype))
    exact = asking(inputs, dtype=torch.float64)
    truth = written_out(*exact, given.allowed(), 0.2)
    library = torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask=given.allowed(), scale=0.2)
    found = torch_intervals.attend_within(*inputs, *given.arguments(0.2))
    assert error(found, truth) <= 1.5 * error(library, truth)
    for got, peer, want in zip(
        *(gradients(out, by) for out, by in ((found, inputs), (library, inputs), (truth, exact))), strict=True
    ):
        assert error(got, want) <= 2 * error(peer, want)


def test_gradients_by_differences() -> None:
    inputs = asking(drawn((2, 2, 9, 3), (2, 2, 8, 3), (2, 2, 8, 2)))
    given = hearings(2, 2, 9, 8)["groups"]
    assert torch.autograd.gradcheck(lambda *qkv: torch_intervals.attend_within(*qkv, *given.arguments(0.5)), inputs)


def alibi(arrays: Sequence[Any], batch: slice, head: slice, rows: Any, keys: Any) -> tuple[Any, Any]:
    rows, keys = (torch.arange(at.start, at.stop) if isinstance(at, slice) else at for at in (rows, keys))
    return arrays[0][head, None, None] * (keys - rows[:, None]), None


def given_mask(arrays: Sequence[Any], batch: slice, head: slice, rows: Any, keys: Any) -> tuple[Any, Any]:
    return None, arrays[0][rows][:, keys]


def given_both(arrays: Sequence[Any], batch: slice, head: slice, rows: Any, keys: Any) -> tuple[Any, Any]:
    return arrays[0][batch, head][:, :, rows][..., keys], arrays[1][..., keys]


def given_to_keys(arrays: Sequence[Any], batch: slice, head: slice, rows: Any, keys: Any) -> tuple[Any, Any]:
    return arrays[0][keys], None


WITH_TILES = {
    tile.__name__: torch_intervals.with_tiles(tile.__name__, tile)
    for tile in (alibi, given_mask, given_both, given_to_keys)
}


WITH_TILES["relative"] = torch_intervals.with_tiles("relative", alibi, relative=True)


@pytest.mark.parametrize("name", ["full", "causal", "window", "prefix", "three of any", "few", "groups"])
@pytest.mark.parametrize("kind", WITH_TILES)
def test_tiles_as_written_out(kind: str, name: str) -> None:
    size = "wide values, two batches"
    batch, heads, rows, keys, _, _ = SIZES[size]
    given, inputs = hearing(size, name), asking(tensors(size))
    slope, whole, to_keys = drawn((heads,), (batch, heads, rows, keys), (keys,), seed=3)
    some, padding = whole[0, 0] < -1.5, to_keys < 0
    relative = slope[:, None, None] * (torch.arange(keys) - torch.arange(rows)[:, None]) / 100
    arrays, bias, mask = {
        "alibi": ([slope / 100], relative, True),
        "relative": ([slope / 100], relative, True),
        "given_mask": ([some], None, some),
        "given_both": ([whole, padding], whole, padding),
        "given_to_keys": ([to_keys], to_keys, True),
    }[kind]
    before = [array.clone() for array in arrays]
    wanted = written_out(*inputs, given.allowed() & mask, 0.3, bias)
    found = WITH_TILES[kind](*inputs, *given.arguments(0.3), arrays=arrays)
    assert error(found, wanted) < 1e-12
    for got, want in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
        assert error(got, want) < 1e-11
    assert all(map(torch.equal, arrays, before))


@pytest.mark.parametrize("kind", ["alibi", "relative"])
def test_keys_too_far_to_be_heard_are_silent(kind: str) -> None:
    """Weights that would not be normal numbers are 0: the error is that of the library, the time is not."""
    rows, heads = 1000, 2
    given = hearings(1, heads, rows, rows)["causal"]
    inputs = asking(drawn(*[(1, heads, rows, 16)] * 3, dtype=torch.float32))
    exact, slope = asking(inputs, dtype=torch.float64), torch.tensor([0.5, 0.01])
    bias = slope[:, None, None] * (torch.arange(rows) - torch.arange(rows)[:, None])
    truth = written_out(*exact, given.allowed(), 0.3, bias.double())
    library = torch.nn.functional.scaled_dot_product_attention(
        *inputs, attn_mask=bias.masked_fill(~given.allowed(), -math.inf), scale=0.3
    )
    found = WITH_TILES[kind](*inputs, *given.arguments(0.3), arrays=[slope])
    assert error(found, truth) <= 1.5 * error(library, truth)
    for got, peer, want in zip(
        gradients(found, inputs), gradients(library, inputs), gradients(truth, exact), strict=True
    ):
        assert error(got, want) <= 2 * error(peer, want)


def test_tiles_refuse_a_gradient_they_do_not_give() -> None:
    inputs, given = tensors("one row"), hearing("one row", "full")
    slope = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="alibi gives no gradient to the arrays"):
        WITH_TILES["alibi"](*inputs, *given.arguments(0.3), arrays=[slope])
    with torch.no_grad():
        WITH_TILES["alibi"](*inputs, *given.arguments(0.3), arrays=[slope])


@pytest.mark.parametrize("name", ["window", "documents", "causal", "groups"])
def test_any_layout(name: str) -> None:
    """Heads that share keys, axes in another order, a last axis with a stride: the numbers are the same."""
    batch, heads, rows, width = 2, 3, 450, 8
    given = hearings(batch, heads, rows, rows)[name]
    query, key, value = drawn((batch, rows, heads, width), (batch, 1, width, rows), (batch, 1, rows, 2 * width))
    views = query.transpose(1, 2), key.mT.expand(-1, heads, -1, -1), value[..., ::2].expand(-1, heads, -1, -1)
    found = torch_intervals.attend_within(*views, *given.arguments(0.3))
    assert found.is_contiguous()
    assert error(found, written_out(*views, given.allowed(), 0.3)) < 1e-12


@pytest.mark.parametrize("name", ["window", "few", "padded", "three of any", "groups", "sink and window"])
def test_what_nobody_hears_changes_nothing(name: str) -> None:
    size = "more keys"
    given, inputs = hearing(size, name), tensors(size)
    allowed = given.allowed().expand(2, 2, -1, -1)
    clean, bad = asking(inputs), asking(spoiled(inputs, allowed))
    wanted = torch_intervals.attend_within(*clean, *given.arguments(0.3))
    found = torch_intervals.attend_within(*bad, *given.arguments(0.3))
    assert torch.equal(found, wanted)
    for got, want in zip(gradients(found, bad), gradients(wanted, clean), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("kind", ["alibi", "relative"])
def test_what_nobody_hears_changes_no_bias(kind: str) -> None:
    given = hearings(1, 2, 300, 800)["window"]
    inputs = drawn(*[(1, 2, size, 8) for size in (300, 800, 800)], dtype=torch.float32)
    clean, bad = asking(inputs), asking(spoiled(inputs, given.allowed().expand(1, 2, -1, -1)))
    slope = torch.tensor([9.0, 0.1])
    wanted, found = (WITH_TILES[kind](*by, *given.arguments(0.3), arrays=[slope]) for by in (clean, bad))
    assert torch.equal(found, wanted)
    assert all(map(torch.equal, gradients(found, bad), gradients(wanted, clean)))


def test_a_mask_that_nobody_passes_changes_nothing() -> None:
    query, key, value = tensors("more keys")
    given = hearing("more keys", "full")
    mask = drawn((60, 800))[0] < 1
    mask[:, 10:700:3] = False
    bad = asking(spoiled((query, key, value), mask.expand(2, 2, -1, -1)))
    found = WITH_TILES["given_mask"](*bad, *given.arguments(0.3), arrays=[mask])
    assert torch.equal(found, WITH_TILES["given_mask"](query, key, value, *given.arguments(0.3), arrays=[mask]))
    assert all(bool(part.isfinite().all()) for part in gradients(found, bad))


def test_who_hears_nothing_gets_nothing() -> None:
    inputs = asking(tensors("square"))
    given = hearing("square", "few")
    found = torch_intervals.attend_within(*inputs, *given.arguments(0.3))
    deaf = ~given.allowed()[0, 0].any(-1)
    assert deaf.any()
    assert not found[:, :, deaf].any()
    assert not gradients(found, inputs)[0][:, :, deaf].any()


@pytest.mark.parametrize(("rows", "keys", "heads", "carried"), [(0, 5, 2, 3), (5, 0, 2, 3), (5, 5, 0, 3), (5, 5, 2, 0)])
def test_empty_axes(rows: int, keys: int, heads: int, carried: int) -> None:
    inputs = asking(drawn((1, heads, rows, 4), (1, heads, keys, 4), (1, heads, keys, carried)))
    bounds = torch.zeros(1, 1, 1, rows, dtype=torch.int64), torch.full((1, 1, 1, rows), keys)
    found = torch_intervals.attend_within(*inputs, *bounds, 0.3)
    assert found.shape == (1, heads, rows, carried)
    assert not found.any()
    assert not any(part.any() for part in gradients(found, inputs))


def test_queries_of_no_width_hear_the_mean() -> None:
    inputs = asking(drawn((1, 2, 9, 0), (1, 2, 9, 0), (1, 2, 9, 3)))
    given = hearings(1, 2, 9, 9)["causal"]
    found = torch_intervals.attend_within(*inputs, *given.arguments(0.3))
    wanted = written_out(*inputs, given.allowed(), 0.3)
    assert error(found, wanted) < 1e-12
    assert error(gradients(found, inputs)[2], gradients(wanted, inputs)[2]) < 1e-12


class Largest(TorchDispatchMode):
    """The largest tensor that any operation gives."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, torch.Tensor) and not part._is_view():
                self.size = max(self.size, part.numel())
        return result


@pytest.mark.parametrize("name", ["window", "documents", "prefix", "dilated", "three of any"])
def test_nothing_is_as_large_as_queries_by_keys(name: str) -> None:
    rows, width = 4096, 8
    given = hearings(1, 1, rows, rows)[name]
    query, key, value = drawn(*[(1, 1, rows, width)] * 3, dtype=torch.float32)
    lower, upper, scale, *groups = given.arguments(0.3)
    rest = (lower, upper, *groups, None, scale, [])
    saved = (*torch_intervals._run(None, False, False, False, query, key, value, *rest),)
    with Largest() as forward:
        torch_intervals._run(None, False, False, False, query, key, value, *rest)
    with Largest() as backward:
        torch_intervals._run(None, False, False, True, saved[0], query, key, value, *saved, *rest)
    assert max(forward.size, backward.size) <= torch_plans.TILE_ROWS * rows < rows * rows / 16


# ---- Inside graphs, and in other texts ------------------------------------------------------------------------------


@pytest.mark.sampled(0)
def test_one_graph_for_all_sizes() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")

    def layer(query: Any, key: Any, value: Any) -> Any:
        row = torch.arange(query.shape[2])
        lower, upper = (row - 5)[None, None, None], (row + 1)[None, None, None]
        bias = torch.zeros(query.shape[2], key.shape[2], dtype=query.dtype)
        within = torch_intervals.attend_within(
            query, key, value, lower, upper, 0.5, row[None, None] // 20, row[None, None] // 20
        )
        sloped = WITH_TILES["alibi"](query, key, value, lower, upper, 0.5, arrays=[query[0, :, 0, 0].detach()])
        return within + sloped + CAPPED([query, key, bias], value, row - 5, row + 1)

    compiled = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
    for size in (40, 50, 70):
        inputs, same = (asking(drawn(*[(2, 3, size, 4)] * 3)) for _ in range(2))
        found, wanted = compiled(*inputs), layer(*same)
        assert torch.equal(found, wanted)
        assert all(map(torch.equal, gradients(found, inputs), gradients(wanted, same)))
    assert counter.frame_count == 1


@pytest.mark.parametrize("kind", ["intervals", "stream"])
def test_operators_keep_their_contracts(kind: str) -> None:
    query, key, value = asking(drawn((1, 2, 70, 4), (1, 2, 60, 4), (1, 2, 60, 3)))
    row = torch.arange(70)
    if kind == "intervals":
        names, arguments = (
            torch.ops.indexical_backends_kernels_torch_operator,
            (*cases.plain(row - 9, row + 1), None, None, None, 0.3, []),
        )
        torch.library.opcheck(names.attend_within.default, (query, key, value, *arguments))
    else:
        names, bias = torch.ops.indexical_backends_kernels_torch_operator, torch.zeros(70, 60, dtype=torch.float64)
        with FlopCounterMode(display=False):  # A mode sees operators, and so they are registered.
            CAPPED([query, key, bias], value, row - 9, row + 1)
        torch.library.opcheck(names.capped.default, ([query, key, bias, value, row - 9, row + 1], [], []))


def test_operators_are_registered_by_their_first_call() -> None:
    """Much of what a program brings along is never called, and to register an operator takes a while."""
    space = getattr(torch.ops, torch_operator.OPERATORS.ns)
    attend = torch_intervals.with_tiles("called_late", None)
    assert not hasattr(space, "called_late")
    inputs, given = drawn(*[(1, 1, 5, 2)] * 3), hearings(1, 1, 5, 5)["window"]
    found = attend(*inputs, *given.arguments(0.5))
    assert hasattr(space, "called_late")
    assert torch.equal(found, torch_intervals.attend_within(*inputs, *given.arguments(0.5)))


def test_second_derivatives_are_refused() -> None:
    inputs = asking(tensors("one row"))
    found = torch_intervals.attend_within(*inputs, *hearing("one row", "full").arguments(0.3))
    (first,) = torch.autograd.grad(found.sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(first.sum(), inputs[1:2])
    bias = torch.zeros(1, 9, dtype=torch.float64)
    found = CAPPED([inputs[0], inputs[1], bias], inputs[2], torch.zeros(1).long(), torch.full((1,), 9))
    (first,) = torch.autograd.grad(found.sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="capped has no second derivative"):
        torch.autograd.grad(first.sum(), inputs[1:2])


@pytest.mark.sampled(0)
def test_texts_stand_together_in_one_file_and_alone(tmp_path: Path) -> None:
    """Pasted twice into one module that cannot see Indexical, they run; and no name of one is a name of the other."""
    above = carried((file, kernel_file(file).parts) for file in ("torch_intervals", "torch_fold"))
    known = {"math", "itertools", "functools", "collections.abc", "typing", "threading", "torch"}
    assert {module for module, _ in above.imports} <= known
    nodes = ast.parse(above.text).body
    targets = [t for n in nodes for t in (n.targets if isinstance(n, ast.Assign) else [getattr(n, "target", n)])]
    defined = [getattr(target, "id", getattr(target, "name", "")) for target in targets]
    assert len(defined) == len(set(defined)) > 50
    pasted = "\n".join([imported(above.imports), above.text] * 2)
    use = (
        "import sys\nassert 'indexical' not in sys.modules\n"
        "query = torch.ones(1, 1, 3, 2)\nrow = torch.arange(3)[None, None, None]\n"
        "assert attend_within(query, query, query, 0 * row, row + 1, 1.0).eq(1).all()\n"
    )
    (tmp_path / "pasted.py").write_text(pasted + "\n\n" + use, encoding="utf-8")
    subprocess.run([sys.executable, "-I", "-W", "error", str(tmp_path / "pasted.py")], check=True)
