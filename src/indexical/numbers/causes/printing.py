"""The usual ways in which a right value becomes a wrong figure: cut off, in percent, at another place of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Decimal

from ...records import dataclass
from .example import Figure


@dataclass(frozen=True, slots=True)
class Slip:
    """A way to print a value. `figures` are the figures that come of it, the likeliest first; `words` are a whole
    sentence, and `prior` says in bits how unusual it is. `habit` is what an author does with all figures of a table,
    and not with one."""

    kind: str
    words: str
    prior: float
    figures: Callable[[Figure, Decimal], tuple[Decimal, ...]]
    habit: bool = False


def in_units(value: Decimal, unit: Decimal, rounding: str = ROUND_HALF_EVEN) -> Decimal:
    """A value in whole units; itself where it has more digits than are computed with."""
    found = value.quantize(unit, rounding)
    return found if found.is_finite() else value


def _printed(value: Decimal, places: int, rounding: str) -> Decimal:
    return in_units(value, Decimal(1).scaleb(-places), rounding)


def rounded_down(value: Decimal, places: int) -> tuple[Decimal, ...]:
    """A value whose digits are cut off. What is a decimal may be a hair more here, and in floats a hair less."""
    return tuple(_printed(value + value * Decimal(hair), places, ROUND_DOWN) for hair in ("1e-40", "-1e-12"))


def _cut(figure: Figure, value: Decimal) -> tuple[Decimal, ...]:
    return () if figure.digits is None else rounded_down(value, figure.digits)


def _up(figure: Figure, value: Decimal) -> tuple[Decimal, ...]:
    return () if figure.digits is None else (_printed(value, figure.digits, ROUND_UP),)


def _to_fewer(figure: Figure, value: Decimal) -> tuple[Decimal, ...]:
    """The value, rounded to fewer places than were written."""
    found = (_printed(value, places, ROUND_HALF_EVEN) for places in reversed(range(figure.digits or 0)))
    return tuple(value for value in found if value)


def _twice(figure: Figure, value: Decimal) -> tuple[Decimal, ...]:
    """The value, rounded to one or two places more first."""
    if figure.digits is None:
        return ()
    once = (_printed(value, figure.digits + more, ROUND_HALF_UP) for more in (1, 2))
    return tuple(_printed(value, figure.digits, ROUND_HALF_UP) for value in once)


def _times(factor: str) -> Callable[[Figure, Decimal], tuple[Decimal, ...]]:
    """The value, multiplied; a whole figure may have been rounded to it. A figure near 0 says nothing."""
    by = Decimal(factor)

    def figures(figure: Figure, value: Decimal) -> tuple[Decimal, ...]:
        if not figure.wanted or (abs(by) < 1 and abs(figure.wanted) < 10 * figure.unit):
            return ()
        whole = figure.digits is None and by > 1
        return (_printed(value * by, 0, ROUND_HALF_EVEN) if whole else value * by,)

    return figures


def _with_two_digits_swapped(figure: Figure, value: Decimal) -> tuple[Decimal, ...]:
    """The figure with two digits swapped that stand side by side, the last ones first."""
    if figure.digits is None:
        return ()
    sign, digits, _ = _printed(value, figure.digits, ROUND_HALF_EVEN).as_tuple()
    found = []
    for at in reversed(range(len(digits) - 1)):
        if digits[at] != digits[at + 1]:
            swapped = (*digits[:at], digits[at + 1], digits[at], *digits[at + 2 :])
            found.append(Decimal((sign, swapped, -figure.digits)))
    return tuple(found)


SLIPS = (
    Slip("cut", "it is cut off, not rounded", -1, _cut, habit=True),
    Slip("twice", "it is rounded twice: to more places first, and from there once more", 1, _twice),
    Slip("up", "it is rounded up, away from 0", 3, _up, habit=True),
    Slip("fewer", "it is rounded to fewer places than are written", 1, _to_fewer),
    Slip("percent", "it is in percent", 0, _times("100")),
    Slip("percent", "it is a share, and the value is in percent", 1, _times("0.01")),
    Slip("sign", "it has the other sign", 0, _times("-1")),
    Slip("point", "its point is moved by one place", 2, _times("10")),
    Slip("point", "its point is moved by one place", 2, _times("0.1")),
    Slip("digits", "two of its digits are swapped", -1.5, _with_two_digits_swapped),
)


# ----------------------------------------------------------------- arrangements


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A table whose figures stand at other places. `source` gives the place of the value that is printed at a place;
    None where there is none. Places are counted from 0."""

    kind: str
    words: str
    prior: float
    source: Callable[[tuple[int, ...]], tuple[int, ...] | None]


def arrangements(names: tuple[str, ...], shape: tuple[int, ...], first: tuple[int, ...]) -> Iterator[Arrangement]:
    """The usual ways to print a table at other places than its own. The text counts its axes from `first`."""
    for one in range(len(shape)):
        for other in range(one + 1, len(shape)):
            if shape[one] == shape[other] > 1:
                words = f"the table is transposed: `{names[one]}` and `{names[other]}` are swapped"
                yield Arrangement("transposed", words, 0, _exchanged(one, other))
    for axis, length in enumerate(shape):
        if length < 2:
            continue
        for step in (1, -1) if length > 2 else ():
            words = f"the figures are those of the {'next' if step > 0 else 'previous'} position along `{names[axis]}`"
            yield Arrangement("position", words, 2, _shifted(axis, step, length))
        if length > 2:
            words = f"the figures stand in reverse order along `{names[axis]}`"
            yield Arrangement("order", words, 2, _reversed(axis, length))
        if len(shape) > 1 or length > 2:
            for one in range(min(length, 12)):
                for other in range(one + 1, min(length, 12)):
                    words = " and ".join(f"`{names[axis]} = {at + first[axis]}`" for at in (one, other))
                    yield Arrangement("swapped", f"{words} are swapped", 1, _swapped(axis, one, other))


def _exchanged(one: int, other: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    def source(place: tuple[int, ...]) -> tuple[int, ...]:
        found = list(place)
        found[one], found[other] = found[other], found[one]
        return tuple(found)

    return source


def _shifted(axis: int, step: int, length: int) -> Callable[[tuple[int, ...]], tuple[int, ...] | None]:
    def source(place: tuple[int, ...]) -> tuple[int, ...] | None:
        at = place[axis] + step
        return (*place[:axis], at, *place[axis + 1 :]) if 0 <= at < length else None

    return source


def _reversed(axis: int, length: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    return lambda place: (*place[:axis], length - 1 - place[axis], *place[axis + 1 :])


def _swapped(axis: int, first: int, second: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    turned = {first: second, second: first}
    return lambda place: (*place[:axis], turned.get(place[axis], place[axis]), *place[axis + 1 :])
