"""The question whether a step can be captured in a CUDA graph, without a GPU: PyTorch's answers are made up."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from indexical.run.graphs import _waits  # noqa: E402


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
        warnings.warn("called a synchronizing CUDA operation", UserWarning, stacklevel=2)

    def fail() -> None:
        raise RuntimeError("not this\nat all")

    assert _waits(lambda: None) is None
    assert _waits(wait) == "it waits for the device, or copies to it"
    assert _waits(fail) == "not this"
    assert modes == ["warn", 0] * 3
