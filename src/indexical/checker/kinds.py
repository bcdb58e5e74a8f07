"""Kinds: bool, whole, real; what each operator takes and gives."""

from __future__ import annotations

from fractions import Fraction

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.functions import operation
from ..ir.types import KIND_OF, Kind, join
from ..ir.whole import LARGEST
from ..source import Span
from .scope import Unit

_WHOLE_ARITHMETIC = frozenset(("+", "-", "*", "//", "%", "neg", "**"))

_SHOWN: dict[Kind, str] = {"bool": "true or false", "whole": "a whole number", "real": "a real number"}


def arithmetic(unit: Unit, op: str, left: ir.Expr, right: ir.Expr, span: Span) -> ir.Expr | None:
    """`+ - * / % **`; on two wholes `/` and `%` truncate toward zero."""
    if not (numeric(unit, left, f"`{op}`") and numeric(unit, right, f"`{op}`")):
        return None
    kind = join((left.type.kind, right.type.kind))
    if kind == "real":
        warn_of_quotient(unit, left)
        warn_of_quotient(unit, right)
    elif op == "/":
        op = "//"
    elif op == "**" and _is_negative(right):
        unit.report(
            "IX351",
            "a whole number to a negative power is not whole",
            right.span,
            help=f"write `({left.span.text} as f64) ** {right.span.text}`",
        )
        return None
    return build.apply(op, (left, right), kind, span)


def _is_negative(expr: ir.Expr) -> bool:
    match expr:
        case ir.Map("neg", (ir.Const(value),)):
            return value > 0
        case _:
            return False


def negate(unit: Unit, operand: ir.Expr, span: Span) -> ir.Expr | None:
    if not numeric(unit, operand, "`-`"):
        return None
    if isinstance(operand, ir.Const) and operand.type.kind == "whole" and operand.value > LARGEST:
        # The least whole number is written so, and its digits alone are none of 64 bits.
        return build.whole(-int(operand.value), span)
    return build.apply("neg", (operand,), operand.type.kind, span)


def compare(unit: Unit, op: str, left: ir.Expr, right: ir.Expr, span: Span) -> ir.Expr | None:
    """Numbers compare with numbers; `==` and `!=` also compare two Booleans."""
    kinds = {left.type.kind, right.type.kind}
    if "bool" in kinds and not (kinds == {"bool"} and op in ("==", "!=")):
        odd = left if left.type.kind == "bool" else right
        unit.report("IX351", f"`{op}` compares numbers, and this is {_SHOWN['bool']}", odd.span)
        return None
    if kinds == {"whole", "real"}:
        warn_of_quotient(unit, left)
        warn_of_quotient(unit, right)
    return build.apply(op, (left, right), "bool", span)


def cast(unit: Unit, operand: ir.Expr, dtype: str, span: Span) -> ir.Expr | None:
    kind = KIND_OF[dtype]
    if kind == "bool" and operand.type.kind != "bool":
        unit.report("IX351", f"this is {_SHOWN[operand.type.kind]}", operand.span, help="write `… != 0`")
        return None
    return build.apply(f"as {dtype}", (operand,), kind, span)


def function(unit: Unit, name: str, arguments: tuple[ir.Expr, ...], span: Span) -> ir.Expr | None:
    """An elementwise function."""
    good = [numeric(unit, argument, f"`{name}`") for argument in arguments]
    if not all(good):
        return None
    kind = join(argument.type.kind for argument in arguments) if operation(name).keeps_whole else "real"
    if kind == "real":
        for argument in arguments:
            warn_of_quotient(unit, argument)
    return build.apply(name, arguments, kind, span)


def numeric(unit: Unit, expr: ir.Expr, user: str) -> bool:
    if expr.type.kind != "bool":
        return True
    labels = [Label(expr.span)]
    help = "`(…) as f64` makes it 1 or 0; a guard stands after `where`"
    if isinstance(expr, ir.Read) and expr.tensor in unit.kinds:
        labels.append(Label(unit.kinds[expr.tensor][1], f"here `{expr.tensor}` is used as a condition"))
        help = f"say what it is where it is declared: `input {expr.tensor}[…] : bool;`, or compare it here"
    unit.report("IX351", f"{user} takes a number, and this is {_SHOWN['bool']}", *labels, help=help)
    return False


def reduction_kind(unit: Unit, op: str, body: ir.Expr) -> Kind | None:
    """The kind that a reduction or normaliser over this body has; None where it cannot be."""
    if op in ("any", "all"):
        return "bool" if condition(unit, body, f"`{op}`") else None
    if not numeric(unit, body, f"`{op}`"):
        return None
    if op in ("argmax", "argmin", "rank"):
        return "whole"
    if op in ("mean", "softmax", "log_softmax"):
        warn_of_quotient(unit, body)
        return "real"
    return body.type.kind


def whole(unit: Unit, expr: ir.Expr, what: str) -> bool:
    """Whether this is a whole number, as `what` must be. An untyped input is inferred to be one."""
    if expr.type.kind == "whole":
        return True
    if not demand(unit, expr, "whole"):
        help = "`… as i64` truncates it" if expr.type.kind == "real" else None
        unit.report("IX351", f"{what} is a whole number, and this is {_SHOWN[expr.type.kind]}", expr.span, help=help)
    return False


def condition(unit: Unit, expr: ir.Expr, what: str) -> bool:
    """Whether this is a Boolean, as `what` must be. An untyped input is inferred to be one."""
    if expr.type.kind == "bool":
        return True
    if not demand(unit, expr, "bool"):
        unit.report(
            "IX351",
            f"{what} is true or false, and this is {_SHOWN[expr.type.kind]}",
            expr.span,
            help="compare it: `… != 0`",
        )
    return False


def demand(unit: Unit, expr: ir.Expr, kind: Kind) -> bool:
    """Ask the untyped inputs that this is made of to be of another kind; whether there are any.

    The program is then read again, with that kind.
    """
    asked = False
    seen: set[str] = set()
    waiting = [expr]
    while waiting:
        expr = waiting.pop()
        if expr.type.kind == kind:
            continue
        match expr:
            case ir.Read(tensor) if tensor in unit.untyped:
                asked = _ask(unit, tensor, kind, expr.span) or asked
            case ir.Read(tensor) if tensor in unit.bodies and tensor not in seen:
                seen.add(tensor)
                waiting += unit.bodies[tensor]
            case ir.Map(op, arguments) if kind == "whole" and operation(op).keeps_whole:
                waiting += arguments
            case ir.Select(_, then, otherwise):
                waiting += [then, otherwise]
            case ir.Reduce("sum" | "prod" | "max" | "min", _, body):
                waiting.append(body)
    return asked


def _ask(unit: Unit, tensor: str, kind: Kind, span: Span) -> bool:
    earlier = unit.demands.get(tensor) or unit.kinds.get(tensor)
    if earlier is not None and earlier[0] != kind:
        unit.report(
            "IX351",
            f"`{tensor}` cannot be both {_SHOWN[kind]} and {_SHOWN[earlier[0]]}",
            Label(span, f"{_SHOWN[kind]} here"),
            Label(earlier[1], f"{_SHOWN[earlier[0]]} here"),
            help="say what it is where it is declared: `input NAME[…] : i64;`",
        )
        return True
    unit.demands[tensor] = (kind, span)
    return True


def warn_of_quotient(unit: Unit, expr: ir.Expr, then: str = ", and then meets a real number") -> None:
    """A whole number is about to become real, or stands for good: if a quotient was truncated on the way, say so."""
    if expr.type.kind != "whole":
        return
    waiting = [expr]
    while waiting:
        expr = waiting.pop()
        match expr:
            case ir.Map("//", (left, right)):
                if _divides(left, right) or _is_size(expr.span.text):
                    continue
                shown = expr.span.text if len(expr.span.text) <= 40 else "a / b"
                unit.report(
                    "IX352",
                    f"this quotient of whole numbers is truncated{then}",
                    Label(expr.span, "whole / whole truncates toward zero"),
                    help=f"if that is meant, write `({shown}) as f64`; if not, make one side real first",
                )
                return
            case ir.Map(op, arguments) if op in _WHOLE_ARITHMETIC:
                waiting += arguments


def _is_size(text: str) -> bool:
    """Whether a quotient is written as the number of points that it is: `size(k)`, where `k in 0..n / 2`."""
    return text.startswith("size(") and text.find(")") == len(text) - 1


def _divides(left: ir.Expr, right: ir.Expr) -> bool:
    match left, right:
        case ir.Const(a), ir.Const(b):
            return b != 0 and a % b == 0
        case _:
            return False


def literal(text: str, span: Span, printed: bool = False, negative: bool = False) -> ir.Const:
    """A number as written, exactly. One with a point or an exponent is real, any other is whole."""
    sign = -1 if negative else 1
    if text.isdigit():
        value = sign * int(text)
        if printed:
            return build.real(Fraction(value), span, Fraction(1, 2))
        return build.whole(value, span)
    rounding = Fraction(10) ** -decimals(text) / 2 if printed else None
    return build.real(sign * Fraction(text), span, rounding)


def decimals(text: str) -> int:
    """To how many decimal places a number is written: 2 for `0.25`, -2 for `1.2e3`."""
    digits, _, exponent = text.lower().partition("e")
    return len(digits.partition(".")[2]) - int(exponent or 0)
