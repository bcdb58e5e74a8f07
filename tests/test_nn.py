"""A program as a module of PyTorch: parameters, state, training."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402
from indexical import nn  # noqa: E402

LINEAR = "input x[b, i], W[i, j], c[j]; let y[b, j] = sum[i](x[b, i] * W[i, j]) + c[j];"
ATTENTION = """input X[b, i, m], A[m, h, d], B[m, h, d], C[m, h, e], D[h, e, n], bias[h, r];
let Q[b, h, i, d] = sum[m](X[b, i, m] * A[m, h, d]);
let K[b, h, i, d] = sum[m](X[b, i, m] * B[m, h, d]);
let V[b, h, i, e] = sum[m](X[b, i, m] * C[m, h, e]);
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) + bias[h, clamp(i - j, 0, size(r) - 1)];
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i);
let out[b, i, n] = sum[h, e, j](weights[b, h, i, j] * V[b, h, j, e] * D[h, e, n]);
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work is no faster with more, and much slower where others want the processor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def linear() -> Any:
    return nn.Module(LINEAR, {"W": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "c": torch.tensor([0.5, -0.5])})


def refused(function: Any, *arrays: Any, **named: Any) -> ix.CallError:
    with pytest.raises(ix.CallError) as caught:
        function(*arrays, **named)
    return caught.value


def test_a_layer() -> None:
    module = linear()
    x = torch.tensor([[1.0, 1.0], [0.0, 2.0]])
    assert module(x).tolist() == [[4.5, 5.5], [6.5, 7.5]]
    assert module(x=x).tolist() == module(x).tolist()
    assert [name for name, _ in module.named_parameters()] == ["W", "c"]
    assert all(parameter.requires_grad for parameter in module.parameters())
    module(x).sum().backward()
    assert module.W.grad.tolist() == [[1.0, 1.0], [3.0, 3.0]]
    assert module.c.grad.tolist() == [2.0, 2.0]


def test_a_program_a_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "linear.ix"
    file.write_text(LINEAR)
    given = {"W": torch.ones(2, 2), "c": torch.zeros(2)}
    x = torch.ones(1, 2)
    for program in (LINEAR, ix.compile(LINEAR), str(file), file):
        assert nn.Module(program, given)(x).tolist() == [[2.0, 2.0]]
    with pytest.raises(ix.CompileError):
        nn.Module("let y = ;", {})


def test_shapes_start_out_normal() -> None:
    torch.manual_seed(0)
    module = nn.Module(LINEAR, {"W": (400, 100), "c": [100]})
    assert module.W.shape == (400, 100)
    assert module.W.std().item() == pytest.approx(1 / math.sqrt(400), rel=0.05)
    assert abs(module.W.mean().item()) < 0.01
    assert module(torch.ones(3, 400)).shape == (3, 100)
    assert nn.Module("input s, x[i]; let y[i] = s * x[i];", {"s": ()}).s.shape == ()


def test_buffers_and_what_cannot_learn() -> None:
    text = "input x[i], p[k] : i64, scale[k]; let y[k] = scale[k] * x[p[k]];"
    module = nn.Module(text, {"p": torch.tensor([2, 0]), "scale": torch.nn.Buffer(torch.tensor([2.0, 3.0]))})
    assert list(module.parameters()) == []
    assert [name for name, _ in module.named_buffers()] == ["p", "scale"]
    assert list(module.state_dict()) == ["p", "scale"]
    assert module(torch.tensor([5.0, 6.0, 7.0])).tolist() == [14.0, 15.0]
    shared = torch.nn.Parameter(torch.ones(2, 2))
    twice = [nn.Module(LINEAR, {"W": shared, "c": torch.zeros(2)}) for _ in range(2)]
    assert twice[0].W is twice[1].W is shared


def test_other_outputs() -> None:
    text = LINEAR + "let total[b] = sum[j](y[b, j]);"
    given = {"W": torch.ones(2, 2), "c": torch.zeros(2)}
    x = torch.ones(1, 2)
    assert nn.Module(text, given)(x).tolist() == [4.0]
    assert nn.Module(text, given, outputs="y")(x).tolist() == [[2.0, 2.0]]
    found = nn.Module(text, given, outputs=("total", "y"))(x)
    assert found._fields == ("total", "y")
    assert nn.Module(text, given)(x, outputs="y").tolist() == [[2.0, 2.0]]


def test_state_makes_a_round_trip() -> None:
    torch.manual_seed(0)
    one, other = (nn.Module(LINEAR, {"W": (3, 2), "c": (2,)}) for _ in range(2))
    x = torch.randn(4, 3)
    assert not torch.equal(one(x), other(x))
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(one(x), other(x))
    with pytest.raises(RuntimeError, match="size mismatch"):
        nn.Module(LINEAR, {"W": (2, 2), "c": (2,)}).load_state_dict(one.state_dict())


@pytest.mark.parametrize("again", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("called", [False, True])
def test_copies_are_their_own(again: Any, called: bool) -> None:
    module = linear()
    x = torch.ones(2, 2)
    if called:
        module(x)
    other = again(module)
    assert torch.equal(other(x), module(x))
    with torch.no_grad():
        other.W.zero_()
    assert module.W.abs().sum() > 0
    assert not torch.equal(other(x), module(x))


def test_dtype_and_device_move() -> None:
    module = linear().double()
    assert module(torch.ones(1, 2, dtype=torch.float64)).dtype == torch.float64
    module = linear().to(torch.bfloat16)
    assert module(torch.ones(1, 2, dtype=torch.bfloat16)).dtype == torch.bfloat16
    error = refused(linear().to("meta"), torch.ones(1, 2))
    assert [found.code for found in error.diagnostics] == ["IX510"]


def test_it_is_a_module_among_others() -> None:
    stack = torch.nn.Sequential(linear(), torch.nn.ReLU(), linear())
    assert len(list(stack.parameters())) == 4
    assert sorted(stack.state_dict()) == ["0.W", "0.c", "2.W", "2.c"]
    assert stack(torch.ones(1, 2)).shape == (1, 2)
    assert "x -> y" in repr(stack)


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ([], {}),
        ([torch.ones(1, 2), torch.ones(1, 2)], {}),
        ([torch.ones(1, 2)], {"x": torch.ones(1, 2)}),
        ([torch.ones(1, 2)], {"z": torch.ones(1, 2)}),
        ([torch.ones(1, 2)], {"W": torch.ones(2, 2)}),
    ],
)
def test_arguments_that_do_not_fit(arrays: list[Any], named: dict[str, Any]) -> None:
    error = refused(linear(), *arrays, **named)
    assert {found.code for found in error.diagnostics} == {"IX501"}


def test_parameters_that_do_not_fit() -> None:
    error = refused(nn.Module, LINEAR, {"w": (2, 2)})
    assert [found.code for found in error.diagnostics] == ["IX501"]
    assert "`W`" in str(error)
    error = refused(nn.Module(LINEAR, {"W": (2, 2), "c": (3,)}), torch.ones(1, 2))
    assert [found.code for found in error.diagnostics] == ["IX304"]
    for wrong in (["W"], {"W": 3}, {"W": "ab"}, {"W": (2, -1)}, {"W": (2, 2.5)}, {"W": np.ones((2, 2))}):
        assert [found.code for found in refused(nn.Module, LINEAR, wrong).diagnostics] == ["IX515"]
    for name in ("forward", "program", "training", "float"):
        text = f"input {name}[i], x[i]; let y[i] = {name}[i] * x[i];"
        assert [found.code for found in refused(nn.Module, text, {name: (2,)}).diagnostics] == ["IX501"]


def test_it_learns_to_copy_from_two_steps_back() -> None:
    """One head with a bias for each distance: whatever the tokens are, all that is needed is to look two back."""
    torch.manual_seed(0)
    tokens = 5
    shapes = {"A": (tokens, 1, 2), "B": (tokens, 1, 2), "C": (tokens, 1, tokens), "D": (1, tokens, tokens)}
    module = nn.Module(ATTENTION, {**shapes, "bias": (1, 4)})
    optimizer = torch.optim.Adam(module.parameters(), lr=0.2)
    for _ in range(60):
        told = torch.randint(tokens, (16, 9))
        logits = module(torch.nn.functional.one_hot(told, tokens).float())
        loss = torch.nn.functional.cross_entropy(logits[:, 2:].flatten(0, 1), told[:, :-2].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    told = torch.randint(tokens, (4, 30))
    heard = torch.nn.functional.one_hot(told, tokens).float()
    assert torch.equal(module(heard).argmax(-1)[:, 2:], told[:, :-2])
    weights = module(heard, outputs="weights")
    assert weights[0, 0, 10].argmax() == 8
