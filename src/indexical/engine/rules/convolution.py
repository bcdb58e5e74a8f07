"""Sums over shifted windows as the library's convolution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...ir.affine import Polynomial, affine_parts, expression, number, polynomial
from ...ir.types import Coordinate
from ...records import dataclass
from ..ops import Axis, Contract, Input, Iota, Library, Read, Value, all_of, conjuncts, host, value
from ..order import reachable
from .guards import inside
from .patterns import Found, No, Target
from .terms import NOWHERE, applied, fresh, is_number, length, names_of, whole

KERNEL = "convolution"
_MOST = 3  # Axes that are shifted: a library has no convolution in more.
_DTYPES = ("f32", "f64")


@dataclass(frozen=True, slots=True)
class Window:
    """An index `begin + step * count + dilation * size`: a place for every count, and for every size from there on.
    Where the dilation is below 0 the sizes count down, and `begin` is the place of the last."""

    name: Coordinate
    count: Axis
    size: Axis
    step: int
    dilation: int
    begin: Polynomial

    @property
    def reach(self) -> Polynomial:
        """The number of places from the first to the last."""
        last = (polynomial(self.count.extent) - 1) * number(self.step)
        return last + (polynomial(self.size.extent) - 1) * number(abs(self.dilation)) + 1


def convolve(one: Value, found: Found, target: Target) -> Value | No | None:
    """A contraction with an array that is read at the sum of an axis that stays and one that is summed."""
    op = one.op
    assert isinstance(op, Contract)
    if KERNEL not in target.kernels or len(op.factors) != 2:
        return None
    refused = None
    for shifted, other in (op.factors, op.factors[::-1]):
        windows = _windows(shifted, op)
        if not windows:
            continue
        if all(_is_apart(window) for window in windows):
            refused = No("its windows do not overlap: a product of matrices reads each place once")
            continue
        if target.isolate:
            return No("a convolution lets an infinite number reach its neighbours", KERNEL)
        if one.dtype not in _DTYPES:
            return No("a convolution of numbers that are not of 32 or 64 bits rounds in between", KERNEL)
        made = _convolution(one, shifted, other, windows)
        if made is not None:
            return made
        refused = No("its axes are not those of a convolution")
    return refused


def _is_apart(window: Window) -> bool:
    """Whether no place is in two windows: a split of an axis, in which the places of a window are neighbours, or the
    windows are."""
    size, count = (polynomial(axis.extent).constant for axis in (window.size, window.count))
    neighbours = window.dilation == 1 and size is not None and window.step >= size
    return neighbours or (window.step == 1 and count is not None and abs(window.dilation) >= count)


def _windows(shifted: Value, op: Contract) -> list[Window]:
    """The windows of a factor that has no other indices but names; none where it has others."""
    read = shifted.op
    if not isinstance(read, Read):
        return []
    if read.outside == "check" and any(inside(test, shifted) is None for test in conjuncts(read.under)):
        return []
    found: list[Window] = []
    for name, at in read.index:
        window = _window(name, at, op)
        if window is not None:
            found.append(window)
        elif not isinstance(at.op, Iota):
            return []
    renamed = {at.op.axis.name for _, at in read.index if isinstance(at.op, Iota)}
    kept = read.source.names.difference(dict(read.index)) | renamed
    if any({window.count.name, window.size.name} & kept for window in found):
        return []  # A diagonal.
    return _in_order(found, read.source) if len(found) <= _MOST else []


def _in_order(windows: list[Window], source: Value) -> list[Window]:
    """Windows in the order in which an input has their axes, that a kernel takes as it lies in memory."""
    if len(windows) < 2:
        return windows
    inputs = [one.op for one in reachable([source]) if isinstance(one.op, Input)]
    homes = [[axis.name for axis in op.home] for op in inputs]
    home = next((home for home in homes if all(window.name in home for window in windows)), None)
    return windows if home is None else sorted(windows, key=lambda window: home.index(window.name))


def _window(name: Coordinate, at: Value, op: Contract) -> Window | None:
    whole, over = at.known.whole, names_of(op.over)
    if whole is None or len(at.names) != 2 or len(at.names & over) != 1:
        return None
    parts = affine_parts(whole, at.names)
    if parts is None or parts[0].keys() != at.names:
        return None
    (size,) = at.names & over
    (count,) = at.names - over
    step, dilation, first = parts[0][count].constant, parts[0][size].constant, parts[1]
    if step is None or dilation is None or step < 0:
        return None
    if dilation < 0:  # It counts down from its last point.
        first = first + (polynomial(at.extent(size)) - 1) * number(dilation)
    return Window(name, at.axis(count), at.axis(size), step, dilation, first)


def _convolution(one: Value, shifted: Value, other: Value, windows: Sequence[Window]) -> Value | None:
    """The call of the kernel; None where an axis has no role in a convolution."""
    op = one.op
    assert isinstance(op, Contract)
    over = names_of(op.over)
    counts, sizes = [w.count.name for w in windows], [w.size.name for w in windows]
    mine, theirs = shifted.names - {*counts, *sizes}, other.names - {*sizes}
    if not other.names.issuperset(sizes) or theirs & {*counts} or len({*counts, *sizes}) < 2 * len(windows):
        return None
    if (mine ^ theirs) & over or not mine or not theirs:
        return None
    groups, inner = _sorted((mine & theirs) - over), _sorted(mine & theirs & over)
    batch, outer = _sorted(mine - theirs), _sorted(theirs - mine)
    source, names = _spans(shifted, windows, one.names | over)
    last = tuple((count,) for count in counts)
    order = (*groups, *batch, *outer, *counts)
    return value(
        Library(
            KERNEL,
            (source, _turned(other, windows)),
            (
                ("", (groups, batch, inner, *((name,) for name in names))),
                ("", (groups, outer, inner, *((name,) for name in sizes))),
            ),
            tuple(one.axis(name) for name in order),
            (groups, batch, outer, *last),
            (
                ("counts", tuple(length(w.count) for w in windows)),
                ("steps", tuple(w.step for w in windows)),
                ("dilations", tuple(abs(w.dilation) for w in windows)),
            ),
            "real",
            one.dtype,
        )
    )


def _sorted(names: frozenset[Coordinate]) -> tuple[Coordinate, ...]:
    return tuple(sorted(names))


def _spans(
    shifted: Value, windows: Sequence[Window], taken: frozenset[Coordinate]
) -> tuple[Value, tuple[Coordinate, ...]]:
    """The array with all places that its windows have, one after the other, and the names of these axes."""
    read = shifted.op
    assert isinstance(read, Read)
    index = dict(read.index)
    names: list[Coordinate] = []
    for window in windows:
        name = fresh(window.name, taken | read.source.names | shifted.names | {*names})
        places = value(Iota(Axis(name, expression(window.reach, NOWHERE))))
        begin = host(expression(window.begin, NOWHERE))
        index[window.name] = places if is_number(begin, 0) else applied("+", places, begin)
        names.append(name)
    found = tuple(sorted(index.items(), key=lambda pair: pair[0]))
    under = all_of(_some(windows), *_asked(shifted, index)) if read.outside == "check" else None
    return value(Read(read.source, found, read.outside, under)), tuple(names)


def _asked(shifted: Value, places: Mapping[Coordinate, Value]) -> Iterator[Value]:
    """The conditions under which a place has to be there, each of the place itself."""
    read = shifted.op
    assert isinstance(read, Read)
    for test in conjuncts(read.under):
        found = inside(test, shifted)
        assert found is not None
        name, side = found
        if side == "first":
            yield applied(">=", places[name], whole(0))
        else:
            yield applied("<", places[name], host(read.source.extent(name)))


def _some(windows: Sequence[Window]) -> Value:
    """Whether there are windows, and points in them: else nothing is read, and no place has to be there."""
    some = [applied(">", host(axis.extent), whole(0)) for w in windows for axis in (w.count, w.size)]
    first, *rest = some
    for one in rest:
        first = applied("&&", first, one)
    return first


def _turned(other: Value, windows: Sequence[Window]) -> Value:
    """What is multiplied, with the axes turned around along which the places count down."""
    index = []
    for window in windows:
        if window.dilation < 0:
            last = host(expression(polynomial(window.size.extent) - 1, NOWHERE))
            index.append((window.size.name, applied("-", last, value(Iota(window.size)))))
    return value(Read(other, tuple(sorted(index, key=lambda pair: pair[0])))) if index else other
