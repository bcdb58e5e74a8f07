"""The question whether a step can be captured in a CUDA graph, without a GPU: PyTorch's answers are made up."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from indexical.run.graphs import Places, _waits  # noqa: E402


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
