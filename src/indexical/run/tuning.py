"""The tiles of Triton kernels: which were found to be fastest on a device, and how that is found and kept."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..records import dataclass, field
from .store import Store, current_store

# Rows and keys of a tile, warps, how many tiles are loaded ahead, and a bound of registers or 0 for none.
Tiling: TypeAlias = tuple[int, ...]
# Those of the kernels of one attention: the result, and the gradients of queries and of keys.
Tilings: TypeAlias = tuple[Tiling, Tiling, Tiling]
PARTS = ("forward", "backward to queries", "backward to keys")
# So many configurations of a kernel are tried, the usual one among them.
MOST = 4
# One that is not faster by this share is no better: times vary by as much.
GAIN = 0.03


def candidates(usual: Tiling, part: int) -> list[Tiling]:
    """The configurations of a kernel that are tried, at most `MOST`, the usual one first. How many rows a tile of the
    kernel for queries has stays: sums of tiles have a place each."""
    rows, keys, warps, stages, *_ = usual
    larger = (2 * rows, keys, 2 * warps, stages, 0) if part == 0 else (rows, 2 * keys, warps, stages, 0)
    smaller = (rows, keys // 2, warps, stages + 1, 0)
    deeper = (rows, keys, warps, stages - 1 if stages > 2 else stages + 1, 0)
    found = [usual, larger, smaller, deeper]
    fitting = [one for one in found if one[0] <= 256 and 16 <= one[1] <= 256 and one[2] in (4, 8)]
    return list(dict.fromkeys([usual, *fitting]))[:MOST]


class Tuned(NamedTuple):
    """A kernel with its usual tiles and the chosen ones, and the seconds of a call with each."""

    kernel: str
    part: str
    usual: Tiling
    chosen: Tiling
    before: float
    after: float

    def __str__(self) -> str:
        rows, keys, warps, stages, *_ = self.chosen
        tiles = f"{rows} × {keys}, {warps} warps, {stages} stages"
        kept = "as before" if self.chosen == self.usual else f"{self.before / self.after:.2f} times as fast"
        return f"{self.kernel}, {self.part}: {tiles}, {kept} ({1e3 * self.after:.3f} ms)"


@dataclass
class Choices:
    """The tiles that were kept in a folder, by all that they depend on. While they are tuned, `trying` stands in for
    what is kept, and `seen` are the kernels that a call has launched: their names and their usual tiles."""

    store: Store
    found: dict[str, Tilings] = field(default_factory=dict)
    trying: dict[str, Tilings] = field(default_factory=dict)
    seen: dict[str, tuple[str, Tilings]] = field(default_factory=dict)
    keys: dict[tuple[Any, ...], str] = field(default_factory=dict)
    epoch: int = 0

    def tilings(self, kernel: Any, about: tuple[Any, ...], usual: Tilings) -> Tilings:
        """The tiles to take for a kernel with arguments like these."""
        asked = (id(kernel), about, usual)
        key = self.keys.get(asked)
        if key is None:
            key = self.keys[asked] = key_of(kernel, about, usual)
        self.seen[key] = (kernel.__name__, usual)
        if key in self.trying:
            return self.trying[key]
        if key not in self.found:
            self.found[key] = self._kept(key, usual)
        return self.found[key]

    def _kept(self, key: str, usual: Tilings) -> Tilings:
        """The tiles that were kept, if each is one of the configurations that would be tried today."""
        try:
            kept = [tuple(one) for one in json.loads(self.store.get(key) or "[]")]
        except (ValueError, TypeError):
            return usual
        known = len(kept) == 3 and all(one in candidates(usual[n], n) for n, one in enumerate(kept))
        return (kept[0], kept[1], kept[2]) if known else usual

    def attempt(self, key: str, tilings: Tilings | None) -> None:
        """Take these tiles from now on; None for what is kept."""
        self.epoch += 1
        if tilings is None:
            self.trying.pop(key, None)
        else:
            self.trying[key] = tilings

    def keep(self, key: str, tilings: Tilings) -> None:
        """Take these tiles in later calls, in later processes too where there is a folder."""
        self.attempt(key, None)
        self.found[key] = tilings
        self.store.put(key, json.dumps(tilings))


def key_of(kernel: Any, about: tuple[Any, ...], usual: Tilings) -> str:
    """The digest of all that a choice depends on: the kernel with what it calls, its widths and dtype, the device, the
    usual tiles, and the versions of Triton and PyTorch."""
    torch, triton = sys.modules["torch"], sys.modules.get("triton")
    known = (getattr(kernel, name, None) for name in ("digest", "cache_key"))
    source = next(filter(None, known), None) or inspect.getsource(kernel.fn)
    device: tuple[Any, ...] = ("none",)
    if torch.cuda.is_available():
        device = (torch.cuda.get_device_name(), torch.cuda.get_device_capability())
    versions = [1, torch.__version__, getattr(triton, "__version__", None)]
    everything = json.dumps([versions, source, device, usual, about], default=str)
    return hashlib.sha256(f"tiles {everything}".encode()).hexdigest()


_in_use: dict[str, Choices] = {}


def choices_in_use() -> Choices | None:
    """The choices of this process: none under `IX_TUNE=0`. Without a folder they last as long as it does."""
    if is_off():
        return None
    store = current_store()
    return _in_use.setdefault(f"{store.folder} {store.problem}", Choices(store))


def is_off() -> bool:
    return os.environ.get("IX_TUNE") == "0"


# Runs something often enough, and gives the seconds that one run takes.
Timer: TypeAlias = Callable[[Callable[[], Any]], float]
# A call, and the way back from its results: what it gives are the tensors that kernels have written.
Run: TypeAlias = Callable[[], Sequence[Any]]


def tune_kernels(
    choices: Choices, forward: Run, backward: Run | None, timer: Timer, say: Callable[[str], None]
) -> list[Tuned]:
    """Try the configurations of every kernel that a call launches, one kernel at a time, and keep the fastest: of those
    that fail, or give other numbers than the usual one, none is taken."""
    choices.seen.clear()
    choices.epoch += 1  # Launches that were recorded do not ask for tiles.
    forward()
    if backward is not None:
        backward()
    result = []
    for key, (name, usual) in list(choices.seen.items()):
        chosen: list[Tiling] = list(usual)
        for part in range(1 if backward is None else 3):
            run = forward if part == 0 or backward is None else backward
            say(f"{name}, {PARTS[part]}")
            times = _times(choices, key, chosen, part, run, timer)
            before = times[usual[part]]
            best = min(times, key=times.__getitem__)
            chosen[part] = best if times[best] < (1 - GAIN) * before else usual[part]
            result.append(Tuned(name, PARTS[part], usual[part], chosen[part], before, times[chosen[part]]))
        choices.keep(key, (chosen[0], chosen[1], chosen[2]))
    return result


def _times(
    choices: Choices, key: str, chosen: Sequence[Tiling], part: int, run: Run, timer: Timer
) -> dict[Tiling, float]:
    """The seconds of a run with each configuration of one kernel that gives what the usual one gives."""
    wanted: list[Any] | None = None
    times: dict[Tiling, float] = {}
    for one in candidates(chosen[part], part):
        tilings = [one if n == part else other for n, other in enumerate(chosen)]
        choices.attempt(key, (tilings[0], tilings[1], tilings[2]))
        try:
            found = run()
            if wanted is None:
                wanted = [x.clone() for x in found]
            elif not _are_close(found, wanted):
                continue
            times[one] = timer(run)
        except RuntimeError:  # More registers or shared memory than there are.
            if wanted is None:
                raise
    choices.attempt(key, None)
    return times


def _are_close(found: Iterable[Any], wanted: Iterable[Any]) -> bool:
    """Whether arrays agree but for rounding: tiles of other sizes add in another order."""
    for one, other in zip(found, wanted, strict=True):
        size = float(other[other.isfinite()].abs().max()) if other.isfinite().any() else 1.0
        least = 2e-2 if one.itemsize == 2 else 1e-4
        if not bool(one.isclose(other, rtol=least, atol=least * size, equal_nan=True).all()):
            return False
    return True
