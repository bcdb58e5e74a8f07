"""Elementwise functions, operators and casts as Python source, with the checks of whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.functions import FUNCTIONS
from ...ir.types import Dtype
from ..ops import Contract, Map, Reduce, Value
from ..order import roots_of
from .code import LEVELS, Code, call, infix, prefix
from .contract import added
from .numbers import is_never_negative, is_positive, negated
from .rounding import SIGNS, mixed, rounded, stands_here
from .words import word_for

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
    if fn == "where" and (test := _test_of(p, args[0])):
        return _where_some_fail(p, one, test)
    if fn in _NONE:
        _check_some(p, fn, args[1])
        return p.aligned(args[0], own)
    if fn.startswith("as "):
        return _cast(p, one, args[0], op.checked)
    if fn == "+" and not op.checked and (sum_ := added(p, one)) is not None:
        return sum_
    if fn == "+" and (scaled := _scaled(p, one)) is not None:
        return scaled
    if p.overwrites and (over := _overwritten(p, one, args)) is not None:
        return over
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


def _test_of(p: Printer, condition: Value) -> str:
    """The test that tells the tiles of which not all pairs are allowed, of their mask, or of who is heard by some."""
    match condition.op:
        case Reduce("any", mask):
            return p.masks.get(mask, "")
    return p.masks.get(condition, "")


def _where_some_fail(p: Printer, one: Value, test: str) -> Code:
    """A choice by a mask that is made for some tiles alone: in others it is what is chosen where the mask holds."""
    assert isinstance(one.op, Map)
    condition, then, otherwise = one.op.args
    own = p.order_of(one)
    definition = p.definition_of.get(one)
    name = p.fresh(word_for(then)) if definition is None else p.own_names[definition.name]
    is_whole = then.names == one.names
    code = p.aligned(then, own) if is_whole else p.whole(then, tuple(map(one.axis, own)), one.dtype)
    p.add(f"{name} = {code}")
    p.add(f"if {test}:")
    p.depth += 1
    mask = p.aligned(condition, own)
    p.add(f"{name} = {p.d.where(p, [mask, Code(name), p.aligned(otherwise, own)], one)}")
    p.depth -= 1
    p.names[one] = name
    return Code(name)


def _overwritten(p: Printer, one: Value, args: tuple[Value, ...]) -> Code | None:
    """A function computed in the array of an operand that nobody else needs; None where there is none."""
    assert isinstance(one.op, Map)
    fn, own = one.op.fn, p.order_of(one)
    template = p.d.overwriting.get(fn)
    if template is None and fn in FUNCTIONS and p.d.spelling(FUNCTIONS[fn]).in_place:
        template = f"{{0}}.{p.d.spelling(FUNCTIONS[fn]).call.rpartition('.')[2]}_()"
    if template is None or one.kind != "real":
        return None
    for n, arg in enumerate(args):
        others = [other for m, other in enumerate(args) if m != n]
        if n and fn not in ("+", "*"):
            break
        if arg.dtype == one.dtype and arg.axes == one.axes and p.order_of(arg) == own and is_free(p, arg):
            codes = [p.code(arg, 10**6), *(p.aligned(other, own) for other in others)]
            return p.template(template, codes)
    return None


def is_free(p: Printer, one: Value) -> bool:
    """Whether an array is one of its own, which nothing reads later."""
    if one in p.names:
        return one in p.dying
    return p.uses[one] <= 1 and one not in p.definition_of and is_made(p, one)


def is_made(p: Printer, one: Value) -> bool:
    """Whether a value is a new array, and no view of another one."""
    match one.op:
        case Contract() | Reduce():
            return True
        case Map("where", (test, then, _)) if _test_of(p, test):
            # In some tiles it is what is chosen, which nothing else may read.
            alone = p.uses[then] <= 1 and then not in roots_of(p.plan)
            return then.axes == one.axes and alone and is_made(p, then)
        case Map("where", (test, *_)) if p.is_number(test):
            return False  # One of two arrays.
        case Map(fn) if not fn.startswith(("as ", "some ")):
            return bool(one.axes) and one.kind == "real"
    return False


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
