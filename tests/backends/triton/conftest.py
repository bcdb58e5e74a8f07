"""A machine with a GPU that is not there."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from tests.backends.triton.driving import Driver

if TYPE_CHECKING:
    from indexical.backends.kernels.triton_launch import Binary, Form


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A machine with one GPU, whose memory is that of the CPU."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from indexical.backends.kernels import triton_launch

    fake = Driver()
    monkeypatch.setattr(triton_launch, "_cuda", lambda: fake)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 0)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 77, raising=False)
    monkeypatch.setattr(triton_launch, "_families", {})
    return fake


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Form]:
    """The kernels that were compiled, which take no time."""
    from indexical.backends.kernels.triton_launch import Binary, Form

    found: list[Form] = []

    def compile(given: Form, *_: Any, **__: Any) -> Binary:
        found.append(given)
        return Binary("scale", b"", 128, 1024, 0, [])

    monkeypatch.setattr(Form, "compiled", compile)
    return found
