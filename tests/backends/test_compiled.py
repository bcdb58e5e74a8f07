"""Inside `torch.compile`: one whole graph for all sizes, there and back, for every kernel."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.backends.drawing import compiled, distance, draw, gradients, learning  # noqa: E402

import indexical as ix  # noqa: E402
from indexical import nn  # noqa: E402

NAMES = ["causal", "window", "documents for each batch", "mask", "ALiBi", "soft cap"]
SIZES = (17, 33, 64)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.compiler.reset()
    yield
    torch.compiler.reset()
    torch.set_num_threads(threads)


class Counting:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph: Any, _: Any) -> Any:
        self.graphs.append(graph)
        return graph


def whole(function: Any, backend: Any) -> Any:
    return torch.compile(function, fullgraph=True, dynamic=True, backend=backend)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*NAMES, "scale from a number"])
def test_one_graph_for_all_sizes(name: str) -> None:
    program, counting = compiled(name), Counting()
    call = whole(lambda *arrays: 2 * program(*arrays), counting)
    for size in SIZES:
        arrays = [*draw(name, i=size, j=size).values()]
        learned = learning(dict(enumerate(arrays)))
        out, expected = call(*arrays), 2 * program(*arrays)
        assert distance(out, expected) <= 1e-12
        for ours, theirs in zip(gradients(out, learned), gradients(expected, learned), strict=True):
            assert distance(ours, theirs) <= 1e-12
    assert len(counting.graphs) == 1


def test_what_is_no_attention() -> None:
    program = ix.compile(
        "input x[i, k], W[k, j], p[i] : i64;"
        "let y[i, j] = gelu(sum[k](x[i, k] * W[k, j])); let z[i] = max[j](y[p[i], j]); let t = mean[i](z[i]);"
        "output z, t;"
    )
    counting = Counting()
    call = whole(lambda *arrays: program(*arrays), counting)
    for size in SIZES:
        arrays = torch.randn(size, 3, requires_grad=True), torch.randn(3, 4), torch.arange(size).flip(0)
        out, expected = call(*arrays), program(*arrays)
        assert torch.allclose(out.z, expected.z)
        assert torch.allclose(out.t, expected.t)
        assert torch.allclose(*(torch.autograd.grad(found.z.sum(), arrays[0])[0] for found in (out, expected)))
    assert len(counting.graphs) == 1


def test_a_recurrence() -> None:
    program = ix.compile("input x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = tanh(h[t - 1]) + x[t];")
    counting = Counting()
    call = torch.compile(lambda x: program(x), fullgraph=True, backend=counting)
    x = torch.randn(6, requires_grad=True)
    assert torch.allclose(call(x), program(x))
    assert torch.allclose(*(torch.autograd.grad(found.sum(), x)[0] for found in (call(x), program(x))))
    assert len(counting.graphs) == 1


def test_other_outputs_and_isolation() -> None:
    program, counting = compiled("causal"), Counting()
    call = whole(lambda *arrays: program(*arrays, outputs=("weights", "out"), isolate=True), counting)
    arrays = [*draw("causal").values()]
    found = call(*arrays)
    assert torch.allclose(found.weights, program(*arrays, outputs="weights"))
    assert torch.allclose(found.out, program(*arrays))
    assert len(counting.graphs) == 1


def test_a_module_learns_inside_a_graph() -> None:
    text = "input x[b, i], W[i, j], c[j]; let y[b, j] = tanh(sum[i](x[b, i] * W[i, j]) + c[j]);"
    module = nn.Module(text, {"W": (3, 2), "c": torch.zeros(2)})
    counting = Counting()
    call = whole(module, counting)
    for size in (5, 9):
        x = torch.randn(size, 3)
        module.zero_grad()
        call(x).sum().backward()
        found = [parameter.grad.clone() for parameter in module.parameters()]
        module.zero_grad()
        module(x).sum().backward()
        assert all(torch.allclose(one, p.grad) for one, p in zip(found, module.parameters(), strict=True))
    assert len(counting.graphs) == 1


def test_a_tensor_that_does_not_fit_is_refused() -> None:
    call = whole(lambda *arrays: compiled("window")(*arrays), Counting())
    arrays = draw("window")
    with pytest.raises(Exception, match="`K` is not"):
        call(arrays["Q"], arrays["K"][..., :2], arrays["V"])


@pytest.mark.parametrize("name", ["window", "soft cap"])
def test_the_way_back_is_compiled_ahead(name: str) -> None:
    """Through the graphs that `torch.compile` makes of both ways, before any code is written for them."""
    program = compiled(name)
    call = whole(lambda *arrays: torch.sin(program(*arrays)), "aot_eager")
    for size in SIZES[:2]:
        arrays = [array.requires_grad_() for array in draw(name, i=size, j=size).values()]
        out, expected = call(*arrays), torch.sin(program(*arrays))
        assert distance(out, expected) <= 1e-12
        flows = [torch.autograd.grad(found.square().sum(), arrays) for found in (out, expected)]
        for ours, theirs in zip(*flows, strict=True):
            assert distance(ours, theirs) <= 1e-12


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own.
def test_inductor_writes_code_around_it() -> None:
    program = compiled("window")
    call = whole(lambda *arrays: torch.relu(program(*arrays)), "inductor")
    for size in SIZES[:2]:
        arrays = [*draw("window", torch.float32, i=size, j=size).values()]
        assert distance(call(*arrays), torch.relu(program(*arrays))) <= 1e-5


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("input x[i, j], n; let y = x[n, 1];", (2,)),
        ("input x[i, j], n; let y[j] = x[n, j];", (torch.tensor(2),)),
        ("input x[i, j], n : i32; let y[j] = x[n, j];", (torch.tensor(2, dtype=torch.int32),)),
        ("input x[i, j], n; let y[i] = x[i, n - 1] where i > n;", (torch.tensor(2),)),
        ("input x[i, j], n, m; let y = x[n, m];", (torch.tensor(2), torch.tensor(1))),
        ("input x[i, j], p[k], q[k]; let y[k] = x[p[k], q[k]];", (torch.tensor([0, 3]), torch.tensor([2, 1]))),
    ],
)
def test_a_table_read_at_places(text: str, places: tuple[Any, ...]) -> None:
    program = ix.compile(text)
    x, again = (torch.arange(12.0, dtype=torch.float64).reshape(4, 3).requires_grad_() for _ in range(2))
    expected = program(x, *places)
    assert torch.equal(expected, torch.as_tensor(program(x.detach(), *places, backend="reference")))
    found = torch.compile(lambda *arrays: program(*arrays), fullgraph=True, backend="aot_eager")(again, *places)
    assert torch.equal(found, expected)
    for result in (found, expected):
        result.sum().backward()
    assert torch.equal(x.grad, again.grad)
