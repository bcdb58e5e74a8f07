"""One cell: a variant at a size, in a dtype, forward or with its gradients; all who can take part, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .exact import Gap, exact_gradients, exact_output, gap, heads_asked
from .peers import CONTESTANTS, OURS, Absent, Call
from .timing import Patience, Times, compete, once, progress
from .variants import Inputs, Setting, draw, short

Step = Callable[[], tuple[Tensor, ...]]


@dataclass(slots=True)
class Cell:
    """What was measured, by contestant; and why the others did not take part."""

    setting: Setting
    backward: bool
    times: dict[str, Times] = field(default_factory=dict)
    gaps: dict[str, Gap] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def others(self) -> float:
        """The share of the machine that other processes used while times were taken."""
        return max((times.others for times in self.times.values()), default=0.0)

    def ratio(self, peer: str) -> float | None:
        """Our time, divided by the peer's."""
        if OURS not in self.times or peer not in self.times:
            return None
        return self.times[OURS].median / self.times[peer].median

    def fastest(self, names: Iterable[str]) -> str | None:
        """Whose median is the least, of those named who took part."""
        here = [name for name in names if name in self.times]
        return min(here, key=lambda name: self.times[name].median, default=None)

    def to_json(self) -> dict[str, object]:
        return {
            "variant": self.setting.variant.name,
            "size": self.setting.size,
            "dtype": short(self.setting.dtype),
            "device": self.setting.device,
            "backward": self.backward,
            "seconds": {
                name: {"first": t.first, "median": t.median, "low": t.low, "high": t.high, "runs": t.runs}
                for name, t in self.times.items()
            },
            "others": self.others,
            "errors": {name: {"max": g.largest, "rms": g.rms} for name, g in self.gaps.items()},
            "refused": self.refused,
        }


def measure(setting: Setting, backward: bool, names: Iterable[str], patience: Patience) -> Cell:
    """Each contestant once, for its error, and then all in turn, for their times.

    A contestant that fails is left out with what it said; nobody is left out in silence.
    """
    cell = Cell(setting, backward)
    progress(f"  {setting}{', with gradients' if backward else ''}")
    if setting.device == "cuda":
        torch.cuda.empty_cache()
    inputs = draw(setting, backward)
    truth: tuple[Tensor, ...] | None = None
    calls: dict[str, Step] = {}
    first: dict[str, float] = {}
    for name in names:
        step = _built(cell, name, inputs)
        if step is None:
            continue
        try:
            with torch.set_grad_enabled(backward):
                first[name], found = once(step, setting.device)
        except Exception as problem:  # Whatever a peer raises is a finding about the peer.
            cell.refused[name] = _said(problem)
            continue
        if truth is None:
            truth = _truth(setting, inputs, backward)
        cell.gaps[name] = gap(found, truth)
        calls[name] = step
    del truth
    with torch.set_grad_enabled(backward):
        cell.times = compete(calls, first, patience, setting.device)
    progress("    " + ", ".join(f"{name} {1e3 * times.median:.4g} ms" for name, times in cell.times.items()))
    return cell


def step_of(call: Call, inputs: Inputs, setting: Setting, backward: bool) -> Step:
    """What is timed: the call, or the call and the gradients of `(out * random).sum()`."""
    if not backward:
        return lambda: (call(),)
    leaves, cotangent = inputs.leaves(setting.variant), inputs.cotangent
    return lambda: torch.autograd.grad((call() * cotangent).sum(), leaves)


def _built(cell: Cell, name: str, inputs: Inputs) -> Step | None:
    """The step of a contestant; None, and noted, where it does not take part."""
    try:
        built = CONTESTANTS[name](cell.setting, inputs)
    except Absent as problem:
        cell.refused[name] = str(problem)
        return None
    except Exception as problem:  # As above: also ours is shown as failed, and the others go on.
        cell.refused[name] = _said(problem)
        return None
    if isinstance(built, str):
        cell.refused[name] = built
        return None
    return step_of(built, inputs, cell.setting, cell.backward)


def _truth(setting: Setting, inputs: Inputs, backward: bool) -> tuple[Tensor, ...]:
    heads = heads_asked(setting)
    return exact_gradients(setting, inputs, heads) if backward else (exact_output(setting, inputs, heads),)


def _said(problem: Exception) -> str:
    lines = str(problem).strip().splitlines() or [""]
    return f"{type(problem).__name__}: {lines[0][:160]}"
