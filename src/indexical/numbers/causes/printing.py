"""The usual ways in which a right value becomes a wrong figure: cut off, in percent, at another place of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Decimal

from ...records import dataclass
from .example import Figure, Prediction


@dataclass(frozen=True, slots=True)
class Slip:
    """A way to print a value. `fits` says whether a figure is that value, printed so; `words` are a whole sentence.
    `habit` is what an author does with all figures of a table, and not with one."""

    kind: str
    words: str
    cost: int
    fits: Callable[[Figure, Decimal], bool]
    habit: bool = False
    least: float = 0


def _printed(value: Decimal, places: int, rounding: str) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-places), rounding)


def _as(rounding: str) -> Callable[[Figure, Decimal], bool]:
    """The value, rounded in another way to the places of the figure."""
    return lambda figure, value: figure.digits is not None and _printed(value, figure.digits, rounding) == figure.wanted


def is_cut(figure: Figure, value: Decimal) -> bool:
    """The value, cut off; in floats, where what is a decimal may be a hair less."""
    hair = value - value * Decimal("1e-12")
    return any(_as(ROUND_DOWN)(figure, near) for near in (value, hair))


def _to_fewer(figure: Figure, value: Decimal) -> bool:
    """The value, rounded to fewer places than were written."""
    digits, wanted = figure.digits, figure.wanted
    assert wanted is not None
    if digits is None or not wanted:
        return False
    return any(_printed(value, places, ROUND_HALF_EVEN) == wanted for places in range(digits))


def _twice(figure: Figure, value: Decimal) -> bool:
    """The value, rounded to one or two places more first."""
    if figure.digits is None:
        return False
    once = (_printed(value, figure.digits + more, ROUND_HALF_UP) for more in (1, 2))
    return any(_printed(value, figure.digits, ROUND_HALF_UP) == figure.wanted for value in once)


def _times(factor: Decimal) -> Callable[[Figure, Decimal], bool]:
    """The value, multiplied; a whole figure may have been rounded to it. A figure near 0 says nothing."""

    def fits(figure: Figure, value: Decimal) -> bool:
        assert figure.wanted is not None
        if factor < 1 and abs(figure.wanted) < 10 * figure.unit:
            return False
        half = max(figure.half, Decimal("0.5")) if factor > 1 else figure.half
        half = figure.half if figure.digits is not None else half
        return bool(figure.wanted) and abs(value * factor - figure.wanted) <= half

    return fits


def _negated(figure: Figure, value: Decimal) -> bool:
    return bool(figure.wanted) and Prediction(-value, False).fits(figure)


def _with_two_digits_swapped(figure: Figure, value: Decimal) -> bool:
    if figure.digits is None or figure.wanted is None:
        return False
    right = str(abs(_printed(value, figure.digits, ROUND_HALF_EVEN))).replace(".", "")
    wrong = str(abs(_printed(figure.wanted, figure.digits, ROUND_HALF_EVEN))).replace(".", "")
    if len(right) != len(wrong) or (value < 0) != (figure.wanted < 0):
        return False
    apart = [at for at, (one, other) in enumerate(zip(right, wrong, strict=True)) if one != other]
    match apart:
        case [first, second]:
            return second == first + 1 and right[first] == wrong[second] and right[second] == wrong[first]
    return False


SLIPS = (
    Slip("cut", "it is cut off, not rounded", 1, is_cut, habit=True),
    Slip("twice", "it is rounded twice: to more places first, and from there once more", 2, _twice, least=-1),
    Slip("up", "it is rounded up, away from 0", 2, _as(ROUND_UP), habit=True, least=-1),
    Slip("fewer", "it is rounded to fewer places than are written", 2, _to_fewer, least=-1),
    Slip("percent", "it is in percent", 2, _times(Decimal(100)), least=3),
    Slip("percent", "it is a share, and the value is in percent", 3, _times(Decimal("0.01")), least=3),
    Slip("sign", "it has the other sign", 3, _negated, least=3),
    Slip("point", "its point is moved by one place", 4, _times(Decimal(10)), least=4),
    Slip("point", "its point is moved by one place", 4, _times(Decimal("0.1")), least=4),
    Slip("digits", "two of its digits are swapped", 4, _with_two_digits_swapped, least=4),
)


# ----------------------------------------------------------------- arrangements


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A table whose figures stand at other places. `source` gives the place of the value that is printed at a place;
    None where there is none."""

    kind: str
    words: str
    cost: float
    source: Callable[[tuple[int, ...]], tuple[int, ...] | None]


def arrangements(names: tuple[str, ...], shape: tuple[int, ...]) -> Iterator[Arrangement]:
    """The usual ways to print a table at other places than its own."""
    for one in range(len(shape)):
        for other in range(one + 1, len(shape)):
            if shape[one] == shape[other] > 1:
                words = f"the table is transposed: `{names[one]}` and `{names[other]}` are swapped"
                yield Arrangement("transposed", words, 3, _exchanged(one, other))
    for axis, length in enumerate(shape):
        if length < 2:
            continue
        for step in (1, -1) if length > 2 else ():
            words = f"the figures are those of the {'next' if step > 0 else 'previous'} position along `{names[axis]}`"
            yield Arrangement("position", words, 5, _shifted(axis, step, length))
        if length > 2:
            words = f"the figures stand in reverse order along `{names[axis]}`"
            yield Arrangement("order", words, 6, _reversed(axis, length))
        if len(shape) > 1 or length > 2:
            for first in range(min(length, 12)):
                for second in range(first + 1, min(length, 12)):
                    words = f"`{names[axis]} = {first}` and `{names[axis]} = {second}` are swapped"
                    yield Arrangement("swapped", words, 6, _swapped(axis, first, second))


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
