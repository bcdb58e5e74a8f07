"""How much memory one call takes at its highest, beyond what was there before it.

On the CPU each figure comes from a process of its own: imports, a warm call at a small size, the inputs, then one
call. On the GPU the allocator keeps the count.
"""

from __future__ import annotations

import ctypes
import re
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import torch

from .cells import Step, step_of
from .peers import CONTESTANTS
from .variants import BATCH, HEADS, Setting, draw, short

SMALL = 64


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes beyond the inputs, the output among them; or why there is no figure."""

    setting: Setting
    backward: bool
    contestant: str
    bytes: int | None
    refused: str = ""

    @property
    def output(self) -> int:
        """The bytes of the output itself."""
        element = torch.empty((), dtype=self.setting.dtype).element_size()
        return BATCH * HEADS * self.setting.size * self.setting.variant.value_width * element

    def to_json(self) -> dict[str, object]:
        return {
            "variant": self.setting.variant.name,
            "size": self.setting.size,
            "dtype": short(self.setting.dtype),
            "backward": self.backward,
            "contestant": self.contestant,
            "bytes": self.bytes,
            "output": self.output,
            "refused": self.refused,
        }


def grow(setting: Setting, backward: bool, contestant: str) -> Growth:
    """The growth of one contestant in one cell."""
    try:
        if setting.device == "cuda":
            found = _on_cuda(setting, backward, contestant)
        else:
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                found = fresh.submit(_on_cpu, setting, backward, contestant).result()
    except Exception as problem:  # Whatever a contestant raises, or what ended its process, is what is shown.
        return Growth(setting, backward, contestant, None, f"{type(problem).__name__}: {str(problem)[:160]}")
    return Growth(setting, backward, contestant, *((None, found) if isinstance(found, str) else (found, "")))


def _on_cuda(setting: Setting, backward: bool, contestant: str) -> int | str:
    step = _step(setting, backward, contestant)
    if isinstance(step, str):
        return step
    with torch.set_grad_enabled(backward):
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = step()
        torch.cuda.synchronize()
        found = torch.cuda.max_memory_allocated() - before
        del kept
    return found


def _on_cpu(setting: Setting, backward: bool, contestant: str) -> int | str:
    torch.set_num_threads(2)
    with torch.set_grad_enabled(backward):
        small = _step(replace(setting, size=min(SMALL, setting.size)), backward, contestant)
        if isinstance(small, str):
            return small
        if contestant != "flex":
            small()
        step = _step(setting, backward, contestant)
        if isinstance(step, str):
            return step
        if contestant == "flex":
            step()  # It compiles for this size alone, and the compiler's own memory is not meant.
        before = _settle()
        kept = step()
        found = _highest() - before
        del kept
    return max(found, 0)


def _step(setting: Setting, backward: bool, contestant: str) -> Step | str:
    inputs = draw(setting, backward)
    built = CONTESTANTS[contestant](setting, inputs)
    return built if isinstance(built, str) else step_of(built, inputs, setting, backward)


def _settle() -> int:
    """Give back what is free, forget the highest so far, and say how much is held."""
    if sys.platform != "linux":
        return _highest()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _highest() -> int:
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _status("VmHWM")


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])
