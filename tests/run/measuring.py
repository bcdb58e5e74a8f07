"""The most memory that a call of PyTorch takes on a CPU, as its allocator counts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def peak(call: Callable[[], Any]) -> int:
    """The most bytes that there were at once of all that was allocated since the call began."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    found: Any = profiler.profiler
    events = [event for event in found.kineto_results.events() if event.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):  # type: ignore[no-any-return]
        live += event.nbytes()
        most = max(most, live)
    return most
