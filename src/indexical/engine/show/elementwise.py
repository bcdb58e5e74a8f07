"""Elementwise functions, operators and casts as Python source, with the checks of whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.types import Dtype
from ..ops import Map, Value
from .code import LEVELS, Code, call, infix, prefix
from .contract import added
from .numbers import is_never_negative, is_positive, negated
from .rounding import SIGNS, mixed, rounded, stands_here

if TYPE_CHECKING:
    from .printer import Printer

_CONNECTIVES = {"&&": "&", "||": "|"}
_CHECKED = {"+": "add", "-": "subtract", "*": "multiply", "abs": "magnitude", "**": "checked_power"}
_NONE = {
    "some max": "`max` of whole numbers over no points has no value",
    "some min": "`min` of whole numbers over no points has no value",
    "some mean": "`mean` over no points has no value",
    "some argmax": "`argmax` over no points has no value",
    "some argmin": "`argmin` over no points has no value",
}


def mapped(p: Printer, one: Value) -> Code:
    """An elementwise function of values whose axes meet by name."""
    op = one.op
    assert isinstance(op, Map)
    fn, args = op.fn, op.args
    if fn == "where" and p.is_number(args[0]):
        return _chosen(p, one)
    own = p.order_of(one)
    if fn in _NONE:
        _check_some(p, fn, args[1])
        return p.aligned(args[0], own)
    if fn.startswith("as "):
        return _cast(p, one, args[0], op.checked)
    if fn == "+" and not op.checked and (sum_ := added(p, one)) is not None:
        return sum_
    if fn == "+" and (scaled := _scaled(p, one)) is not None:
        return scaled
    codes = [p.aligned(arg, own) for arg in (mixed(p, args) if fn in SIGNS else args)]
    if fn == "where":
        return p.d.where(p, codes, one)
    if op.checked and one.kind == "whole":
        return _checked(p, fn, codes, args, one)
    if fn in _CONNECTIVES:
        return infix(_CONNECTIVES[fn], *codes)
    if fn == "!":
        return prefix("~", codes[0])
    if fn == "neg":
        return prefix("-", codes[0])
    if fn in ("//", "%"):
        return _divided(p, fn, codes, args)
    if fn == "**" and one.kind == "whole" and not is_never_negative(args[1]):
        return p.call("raised", *codes)
    if fn in LEVELS:
        return infix(fn, *codes)
    return p.d.function(p, fn, codes, args)


def _scaled(p: Printer, one: Value) -> Code | None:
    """The sum of an array and a product of two, which is one call of few in a step of a loop; None elsewhere."""
    op = one.op
    assert isinstance(op, Map)
    if not p.steps or () not in p.d.added or one.dtype not in ("f32", "f64"):
        return None
    for product, other in (op.args, op.args[::-1]):
        match product.op:
            case Map("*", factors) if stands_here(p, product) and all(
                part.axes and part.dtype == one.dtype for part in (other, *factors)
            ):
                p.computed(product)
                p.absorbed.add(product)
                return p.d.call(p, p.d.added[()], *(p.aligned(part, p.order_of(one)) for part in (other, *factors)))
    return None


def _chosen(p: Printer, one: Value) -> Code:
    """One array or another, as a number of the host says; what is not chosen is not computed."""
    assert isinstance(one.op, Map)
    test, *others = one.op.args
    names = p.order_of(one)
    axes = tuple(one.axis(name) for name in names)
    yes, no = (p.whole(other, axes, one.dtype) for other in others)
    return p.d.branch(p, test, p.code(test), yes, no)


def _check_some(p: Printer, fn: str, some: Value) -> None:
    """Refuse a reduction that is over no points somewhere."""
    (p.refuse if some.is_host else p.check)(negated(p, some), "IX310", _NONE[fn])


def _cast(p: Printer, one: Value, arg: Value, checked: bool) -> Code:
    """An array in another dtype. A real one becomes whole where it fits."""
    short = rounded(p, one, arg)
    if short is not None:
        return short
    dtype: Dtype = one.dtype or "f64"
    if checked and one.kind == "whole":
        code = p.named(arg)
        bits = 31 if dtype == "i32" else 63
        if arg.kind == "real":
            inside = f"(-(2.0**{bits}) <= {code}) & ({code} < 2.0**{bits})"
            p.check(f"~({inside})", "IX505", f"this is not a whole number that {dtype} holds")
        else:
            outside = f"({code} < -(2**{bits})) | ({code} >= 2**{bits})"
            p.check(outside, "IX505", f"this whole number does not fit in {bits + 1} bits")
    code = p.aligned(arg, p.order_of(one))
    if one.kind == "bool":
        return code
    return p.d.cast(p, code, dtype, not p.is_number(arg))


def _checked(p: Printer, fn: str, codes: list[Code], args: tuple[Value, ...], one: Value) -> Code:
    """A function of whole numbers, refused where it leaves 64 bits or divides by 0."""
    if fn in ("//", "%"):
        return _divided(p, fn, codes, args, checked=True)
    if fn == "neg":
        return p.call("subtract", 0, codes[0])
    if fn == "**" and not is_never_negative(args[1]):
        refused = p.refuse if args[1].is_host else p.check
        refused(infix("<", codes[1], Code("0")), "IX505", "a whole number to a negative power is not whole")
    if fn not in _CHECKED:
        return p.d.function(p, fn, codes, args)
    return p.call(_CHECKED[fn], *codes)


def _divided(p: Printer, fn: str, codes: list[Code], args: tuple[Value, ...], checked: bool = False) -> Code:
    """A whole quotient or remainder, truncated toward zero: that is `//` where nothing is negative. By 0 it is refused
    where it is checked, and some number where a guard removes it."""
    if args[0].kind == "real":
        return p.d.remainder(p, codes, args)
    by = args[1].known.whole.constant if args[1].known.whole is not None else None
    if checked and not by:
        refused = p.refuse if args[1].is_host else p.check
        refused(infix("==", codes[1], Code("0")), "IX505", "a whole number divided by zero")
    if checked and fn == "//" and args[0].known.least <= -(2**63) and args[1].known.least <= -1 <= args[1].known.most:
        edge = f"({codes[0]} == -(2**63)) & ({codes[1]} == -1)"
        p.check(edge, "IX505", "this whole number does not fit in 64 bits")
    if args[1].is_host and all(map(is_never_negative, args)):
        some = checked or is_positive(args[1])
        return infix(fn, codes[0], codes[1] if some else call("max", 1, codes[1]))
    return p.d.divide(p, fn, codes, args)
