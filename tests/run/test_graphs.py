"""The question whether a step can be captured in a CUDA graph, without a GPU: PyTorch's answers are made up."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from inspect import getclosurevars
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.decoding.test_rooms import HEAD, PROGRAMS, ROOM, TABLE, X  # noqa: E402

import indexical as ix  # noqa: E402
from indexical.run import graphs  # noqa: E402
from indexical.run.graphs import Places, _waits  # noqa: E402
from indexical.run.stores import Store  # noqa: E402


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    found: list[object] = []

    def choose(mode: object) -> None:
        found.append(mode)
        if mode == "warn":
            warnings.warn("this mode does not find all synchronizing operations", UserWarning, stacklevel=2)

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", choose)
    return found


def test_a_step_that_waits_is_found(modes: list[object]) -> None:
    def wait() -> None:
        warnings.warn("called a synchronizing CUDA operation", UserWarning, stacklevel=1)

    def fail() -> None:
        raise RuntimeError("not this\nat all")

    assert _waits(lambda: None) is None
    reason = _waits(wait)
    assert reason is not None
    assert reason.startswith("it waits for the device, or copies to it (test_graphs.py, line ")

    def fail_without_a_word() -> None:
        raise RuntimeError

    assert _waits(fail) == "not this"
    assert _waits(fail_without_a_word) == "RuntimeError"
    assert modes == ["warn", 0] * 4


def test_places_have_what_the_state_has_that_is_stepped_from() -> None:
    class Held:
        _store = Store((), 0)

        def __init__(self, at: int) -> None:
            self._tails = (torch.full((2,), float(at)),)
            self._at = torch.tensor([at])

        def _before(self) -> object:
            return self._at

    first, second = Held(3), Held(7)
    places = Places(torch.tensor([0]), (torch.zeros(2),))
    for state in (first, second, first):
        places.hold(state)  # type: ignore[arg-type]
        assert (int(places.at), places.tails[0].tolist()) == (int(state._at), [float(state._at)] * 2)
    places.state = lambda: first
    places.at.fill_(4)  # As a replay leaves it, where the state has what is there.
    places.hold(first)  # type: ignore[arg-type]
    assert int(places.at) == 4


class Again:
    """A graph without a GPU: what it does is done once more, and its results are put where they were."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.found = call()

    def replay(self) -> None:
        for place, found in zip(self.found, self.call(), strict=True):
            place.copy_(found)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, modes: list[object]) -> list[Again]:
    made: list[Again] = []

    def recorded(call: Any) -> tuple[Again, Any]:
        made.append(Again(call))
        # A capture runs nothing, and this has: what it read is to be put there once more.
        getclosurevars(call).nonlocals["places"].state = None
        return made[-1], made[-1].found

    monkeypatch.setattr(graphs, "_recorded", recorded)
    monkeypatch.setattr(graphs, "_is_on_gpu", torch.is_tensor)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    return made


KEPT = {
    "room": {},
    "pages": {"pages": 2},
    "few pages": {"pages": 2, "pool": 40},
    "pages of 8 bits": {"pages": 3, "keep": "i8"},
    "room of 16 bits": {"keep": "bf16"},
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("name", ["softmax", "angles", "quotients"])
def test_replayed_steps_give_what_plain_ones_give(name: str, kept: str, pretended: list[Again]) -> None:
    """Steps from states in any order, of which some go back and some are put into another order."""
    x, table = torch.tensor(X), torch.tensor(TABLE)
    decoders = [
        ix.incremental(HEAD + PROGRAMS[name], "i", capacity=ROOM, graph=graph, table=table, **KEPT[kept])
        for graph in (True, False)
    ]
    lengths = [2, 0, 4], [1, 3, 2]
    states = [[decode.prefill(x[:, :5], lengths=own)[0] for decode in decoders] for own in lengths]
    for n in range(15):
        which, new = n // 3 % 2, x[:, n % 9 : n % 9 + 1]
        found = [decode.step(new, state) for decode, state in zip(decoders, states[which], strict=True)]
        torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=1e-12)
        states[which] = [state for state, _ in found]
        if states[which][0].length == 7:
            states[which] = [state.back_to([1, 0, 2]).reorder([2, 0, 0]) for state in states[which]]
    assert not decoders[0].uncaptured
    assert pretended
    assert all(state.lengths == plain.lengths for state, plain in states)


BOTH = """let r[b, i, d] = (if i > 0 { r[b, i - 1, d] } else { 0 }) * 0.5 + x[b, i, d] * table[i, d];
    let y[b, i, e] = sum[j](softmax[j](sum[d](r[b, i, d] * r[b, j, d]) where j <= i) * x[b, j, e]);"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "kept"),
    [*((PROGRAMS[name], "room") for name in ("total", "recurrence", "taps")), (BOTH, "room"), (BOTH, "pages")],
)
def test_replayed_steps_hand_on_what_plain_ones_do(text: str, kept: str, pretended: list[Again]) -> None:
    """Steps of one and of two positions, from two states of one prefill and from the first of them once more."""
    x, table = torch.tensor(X), torch.tensor(TABLE)
    found: list[list[Any]] = []
    for graph in (True, False):
        decode = ix.incremental(HEAD + text, "i", capacity=ROOM, graph=graph, table=table, **KEPT[kept])
        first, _ = decode.prefill(x[:, :1])
        states, outs = [first, first.reorder([2, 2, 0]), first], []
        for count in (1, 1, 1, 2, 2, 2):
            for n, state in enumerate(states):
                states[n], out = decode.step(x[:, state.length : state.length + count] * (n + 1), state)
                outs.append(out)
        found.append(outs)
        assert not decode.uncaptured
    assert pretended
    for mine, plain in zip(*found, strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=1e-12)


def test_arrays_of_numpy_are_copied_anew_for_each_first_pass() -> None:
    class OnGPU(torch.Tensor):
        is_cuda = True

    text = "input x[i], t[k]; let y[i] = sum[j](x[j] where j <= i) * sum[k](t[k]);"
    decode = ix.incremental(text, "i", capacity=4)
    like = [torch.zeros(1).as_subclass(OnGPU)]
    for value, is_one in ((np.arange(4.0), False), (torch.ones(4), True), (2.0, True)):
        first, second = (decode._fixed_for_steps({"t": value}, like) for _ in range(2))
        assert (first is second) == is_one
