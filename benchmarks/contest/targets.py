"""The table of targets, and what was measured against it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isnan

from .cells import Cell
from .memory import Growth
from .peers import OURS, PEERS
from .starting import First
from .timing import NOISY, Times
from .variants import short

MIB = 1 << 20
SIZE = 4096
WITH_MASK = ("sdpa mask", "sdpa bias", "sdpa bias f32")
KERNELS = ("sdpa", *WITH_MASK)
# Two errors are the same where one is at most so many times the other.
SAME_ERROR = 1.1


@dataclass(slots=True)
class Results:
    """Everything that was measured; `ours` says whether we took part."""

    ours: bool = True
    cells: list[Cell] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    first: dict[str, First] = field(default_factory=dict)
    calls: dict[str, Times] = field(default_factory=dict)
    contractions: dict[str, Times] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One figure beside its limit; None where it could not be measured, and then it is not met."""

    target: str
    case: str
    found: float | None
    limit: float
    unit: str = "×"

    @property
    def met(self) -> bool:
        return self.found is not None and not isnan(self.found) and self.found <= self.limit

    def to_json(self) -> dict[str, object]:
        whole = {"target": self.target, "case": self.case, "found": self.found, "limit": self.limit}
        return {**whole, "unit": self.unit, "met": self.met}


# Variant, peers of which the fastest counts, limit; at the largest size, and at a further one.
FORWARD: tuple[tuple[str, tuple[str, ...], float, int | None], ...] = (
    ("full", ("sdpa",), 1.03, None),
    ("causal", ("sdpa",), 1.03, None),
    ("full by hand", ("sdpa",), 1.05, None),
    ("causal by hand", ("sdpa",), 1.05, None),
    ("window", ("flex",), 0.7, None),
    ("window", WITH_MASK, 0.35, 2048),
    ("documents", ("flex",), 0.6, None),
    ("documents", WITH_MASK, 0.15, None),
    ("alibi", tuple(PEERS), 1.0, None),
    ("prefix", tuple(PEERS), 1.0, None),
    ("softcap", tuple(PEERS), 1.0, None),
    ("mask", tuple(PEERS), 1.0, None),
)
BACKWARD = {"window": 0.3, "documents": 0.3}
# These have no mask to make: the plain call, and whatever else can do it, stand in.
INSTEAD = {"full": ("sdpa",), "full by hand": ("sdpa",), "softcap": ("flex", "eager", "einops", "einx")}


def judge(results: Results) -> list[Verdict]:
    """Every target for which something was measured; none where we did not take part."""
    if not results.ours:
        return []
    size = judged_size(results.cells)
    return [
        *_forward([cell for cell in results.cells if not cell.backward], size),
        *_errors([cell for cell in results.cells if not cell.backward]),
        *_backward([cell for cell in results.cells if cell.backward], size),
        *_memory(results.growths),
        *_starting(results),
    ]


def judged_size(cells: Iterable[Cell]) -> int:
    """4096, or the largest below it that was measured."""
    sizes = {cell.setting.size for cell in cells}
    return max((size for size in sizes if size <= SIZE), default=max(sizes, default=SIZE))


def _forward(cells: list[Cell], size: int) -> Iterator[Verdict]:
    for variant, peers, limit, further in FORWARD:
        for cell in cells:
            if cell.setting.variant.name != variant or cell.setting.size not in (size, further):
                continue
            peer = cell.fastest(peers)
            if peer is None:
                continue
            if peers == tuple(PEERS):
                yield _at_its_error(cell, peer, limit)
            else:
                yield Verdict("forward", _case(cell, peer), cell.ratio(peer), limit)


def _at_its_error(cell: Cell, peer: str, limit: float) -> Verdict:
    """The time beside the fastest peer's, which counts only where the error is no worse than that peer's."""
    ours, theirs = cell.gaps.get(OURS), cell.gaps[peer]
    case, found = _case(cell, peer), cell.ratio(peer)
    if ours is not None and ours.rms > SAME_ERROR * theirs.rms:
        case, found = f"{case}: error {ours.rms / theirs.rms:.2f} × as large", None
    return Verdict("forward, at its error", case, found, limit)


def _errors(cells: list[Cell]) -> Iterator[Verdict]:
    """The worst rms error of each dtype, beside the most exact call of SDPA on the same input; else FlexAttention's."""
    worst: dict[str, tuple[float, str]] = {}
    for cell in cells:
        kernels = [name for name in KERNELS if name in cell.gaps] or [name for name in ("flex",) if name in cell.gaps]
        best = min(kernels, key=lambda name: cell.gaps[name].rms, default=None)
        if best is None or OURS not in cell.gaps:
            continue
        found = cell.gaps[OURS].rms / max(cell.gaps[best].rms, 1e-300)
        dtype = short(cell.setting.dtype)
        worst[dtype] = max(worst.get(dtype, (0.0, "")), (found, f"{_case(cell, best)}"))
    for found, case in worst.values():
        yield Verdict("rms error, the worst", case, found, SAME_ERROR)


def _backward(cells: list[Cell], size: int) -> Iterator[Verdict]:
    for cell in cells:
        name = cell.setting.variant.name
        peer = cell.fastest(INSTEAD.get(name, WITH_MASK))
        if cell.setting.size == size and peer is not None:
            yield Verdict("forward + backward", _case(cell, peer), cell.ratio(peer), BACKWARD.get(name, 1.0))


def _memory(growths: list[Growth]) -> Iterator[Verdict]:
    ours = [growth for growth in growths if growth.contestant == OURS]
    for growth in ours:
        setting = growth.setting
        kind = "memory, backward" if growth.backward else "memory"
        case = f"{setting.variant.name}, {short(setting.dtype)}, N = {setting.size}"
        found = None if growth.bytes is None else growth.bytes / MIB
        yield Verdict(kind, case, found, 4 * growth.output / MIB + 32, "MiB")
        for half in ours:
            same = half.setting.variant == setting.variant and half.setting.dtype == setting.dtype
            if same and half.backward == growth.backward and 2 * half.setting.size == setting.size:
                both = growth.bytes is not None and half.bytes is not None
                found = (growth.bytes or 0) / max(half.bytes or 0, half.output) if both else None
                yield Verdict(f"{kind}, N doubled", case, found, 2.2)


def _starting(results: Results) -> Iterator[Verdict]:
    for name, first in results.first.items():
        if name.startswith(f"{OURS}, "):
            yield Verdict("first call", name.removeprefix(f"{OURS}, "), 1e3 * first.whole, 50, "ms")
    for name, times in results.calls.items():
        if name.startswith("sdpa, "):
            case = name.removeprefix("sdpa, ")
            ours = results.calls.get(f"{OURS}, {case}")
            found = None if ours is None else 1e6 * (ours.median - times.median)
            yield Verdict("extra time per call, N = 16", case, found, 5, "µs")
    for name, times in results.contractions.items():
        if name.startswith("einsum, "):
            case = name.removeprefix("einsum, ")
            ours = results.contractions.get(f"{OURS}, {case}")
            found = None if ours is None else ours.median / times.median
            yield Verdict("sum[d](Q * K) ÷ einsum", case, found, 1.0)


def _case(cell: Cell, peer: str) -> str:
    setting = cell.setting
    size = "" if setting.size == SIZE else f", N = {setting.size}"
    noisy = " *" if cell.others > NOISY else ""
    return f"{setting.variant.name} ÷ {peer}, {short(setting.dtype)}{size}{noisy}"
