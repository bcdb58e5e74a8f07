"""Constants and array literals as the language writes them, to the last digit."""

from __future__ import annotations

from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..source import Source, Span
from ..syntax import tree

# What is written has no place in a text yet.
NOWHERE = Span(Source("<written>", ""), 0, 0)

# From here on a number is written with an exponent.
_LARGE = 10**16
_SMALL = Fraction(1, 10**4)


class Unwritable(Exception):
    """There is no text that means this."""


def is_integral(expr: ir.Expr) -> bool:
    """Whether this is a real constant without a fraction, which may stand as a whole literal beside a real.

    The opposite of 0.0 may not: there is no whole -0.
    """
    match expr:
        case ir.Map("neg", (ir.Const(value),)) if value == 0:
            return False
        case ir.Map("neg", (operand,)):
            return is_integral(operand)
        case ir.Const(value, type, _, rounding):
            return type.kind == "real" and rounding is None and Fraction(value).denominator == 1
        case _:
            return False


def constant(const: ir.Const, beside_real: bool) -> tree.Expr:
    """A constant exactly. A fraction whose decimals never end is a quotient of reals."""
    value = const.value
    if isinstance(value, bool):
        return tree.Bool(value, NOWHERE)
    if const.rounding is not None:
        return tree.Printed(_signed(value < 0, _rounded(abs(Fraction(value)), const.rounding)), NOWHERE)
    size = abs(Fraction(value))
    if const.type.kind == "whole" or (beside_real and size.denominator == 1 and size < _LARGE):
        return _signed(value < 0, str(int(size)))
    text = decimal(size)
    if text is not None:
        return _signed(value < 0, text)
    above = decimal(Fraction(size.numerator))
    assert above is not None
    return tree.Binary("/", _signed(value < 0, above), tree.Number(str(size.denominator), NOWHERE), NOWHERE)


def decimal(value: Fraction) -> str | None:
    """A real literal that is exactly this; None where its decimals never end."""
    places = _places(value.denominator)
    if places is None:
        return None
    digits = str(value.numerator * 10**places // value.denominator)
    if value and (value < _SMALL or (value >= _LARGE and places == 0)):
        kept = digits.rstrip("0")
        exponent = len(digits) - 1 - places
        return f"{kept[0]}.{kept[1:]}e{exponent}" if len(kept) > 1 else f"{kept}e{exponent}"
    return _with_point(digits, max(places, 0)) if places else f"{digits}.0"


def _places(denominator: int) -> int | None:
    """The number of decimal places of a fraction with this denominator; None where it does not terminate."""
    count = {2: 0, 5: 0}
    for prime in count:
        while denominator % prime == 0:
            denominator //= prime
            count[prime] += 1
    return max(count.values()) if denominator == 1 else None


def _with_point(digits: str, places: int) -> str:
    digits = digits.rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


def _rounded(value: Fraction, rounding: Fraction) -> str:
    """A figure with as many places as its rounding says."""
    places = _places((2 * rounding).denominator)
    unit = 2 * rounding
    if places is None or unit != Fraction(1, 10**places) or (value / unit).denominator != 1:
        raise Unwritable(f"no figure is {value} ± {rounding}")
    return _with_point(str(int(value / unit)), places)


def _signed(negative: bool, text: str) -> tree.Expr:
    number = tree.Number(text, NOWHERE)
    return tree.Unary("-", number, NOWHERE) if negative else number


def array(shape: tuple[int, ...], cells: tuple[ir.Const, ...]) -> tree.Expr:
    """An array literal. One in which every figure was rounded is marked as a whole."""
    if not cells:
        raise Unwritable("an array literal has at least one number")
    items = [constant(cell, False) for cell in cells]
    printed = [item.literal for item in items if isinstance(item, tree.Printed)]
    if len(printed) == len(items):
        return tree.Printed(_rows(shape, printed), NOWHERE)
    return _rows(shape, items)


def _rows(shape: tuple[int, ...], items: list[tree.Expr]) -> tree.Expr:
    if len(shape) == 1:
        return tree.ArrayLiteral(tuple(items), NOWHERE)
    step = len(items) // shape[0]
    rows = [_rows(shape[1:], items[at : at + step]) for at in range(0, len(items), step)]
    return tree.ArrayLiteral(tuple(rows), NOWHERE)


def is_decimal(figures: ir.Array) -> bool:
    """Whether every figure is one number of the text."""
    return all(cell.rounding is not None or decimal(abs(Fraction(cell.value))) is not None for cell in figures.cells)


def numerators(figures: ir.Array) -> tuple[ir.Const, ...]:
    """The numerators, as reals."""
    return tuple(build.real(Fraction(Fraction(cell.value).numerator), cell.span) for cell in figures.cells)


def denominators(figures: ir.Array) -> tuple[ir.Const, ...]:
    """The denominators, as whole numbers."""
    return tuple(build.whole(Fraction(cell.value).denominator, cell.span) for cell in figures.cells)
