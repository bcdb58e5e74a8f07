"""Python source as text that knows how tightly it binds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...ir.conditions import MIRRORED

# How tightly an expression binds, from the tightest on.
ATOM, POWER, UNARY, TIMES, PLUS, BIT_AND, BIT_OR, COMPARE, NOT, AND, OR, CHOICE = range(12)

LEVELS = {
    **dict.fromkeys(("*", "/", "//", "%", "@"), TIMES),
    **dict.fromkeys(("+", "-"), PLUS),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), COMPARE),
    "**": POWER,
    "&": BIT_AND,
    "|": BIT_OR,
    "and": AND,
    "or": OR,
}

_DIGITS = re.compile(r"-?[\d.]+")


class Code(str):
    """The text of an expression, and how tightly it binds."""

    level: int

    def __new__(cls, text: str, level: int = ATOM) -> Code:
        self = str.__new__(cls, text)
        self.level = level
        return self


def closed(code: str, most: int = ATOM) -> str:
    """The text, in parentheses where it binds less tightly than is allowed here. A plain string is an atom."""
    level = code.level if isinstance(code, Code) else ATOM
    return f"({code})" if level > most else str(code)


def infix(sign: str, left: str, right: str) -> Code:
    """Two operands with a sign between them. Sums and products group from the left, as numbers are rounded;
    what is compared with a number stands before it. To add the negative of an operand is to subtract it."""
    level = LEVELS[sign]
    if level == PLUS and right.startswith("-") and getattr(right, "level", ATOM) <= UNARY:
        return infix("+" if sign == "-" else "-", left, Code(right[1:], POWER))
    if sign in MIRRORED and _DIGITS.fullmatch(left) and not _DIGITS.fullmatch(right):
        return infix(MIRRORED[sign], right, left)
    if level == POWER:
        return Code(f"{closed(left)} ** {closed(right)}", POWER)
    most = level - 1 if level == COMPARE else level
    return Code(f"{closed(left, most)} {sign} {closed(right, level - 1)}", level)


def chain(sign: str, parts: Sequence[Code]) -> Code:
    """Several conditions with `and` or `or` between them."""
    if len(parts) == 1:
        return parts[0]
    level = LEVELS[sign]
    return Code(f" {sign} ".join(closed(part, level - 1) for part in parts), level)


def prefix(sign: str, code: str) -> Code:
    """`-x`, `~x` or `not x`."""
    if sign == "not ":
        return Code(f"not {closed(code, COMPARE)}", NOT)
    return Code(f"{sign}{closed(code, ATOM if sign == '~' else POWER)}", UNARY)


def call(function: str, *arguments: object, **named: object) -> Code:
    given = [*map(str, arguments), *(f"{name}={one}" for name, one in named.items())]
    return Code(f"{function}({', '.join(given)})")


def method(code: str, name: str, *arguments: object, **named: object) -> Code:
    return call(f"{closed(code)}.{name}", *arguments, **named)


def indexed(code: str, slots: Sequence[str]) -> Code:
    """`code[slots]`, without the last ones that take all; the code itself where all do."""
    kept = list(slots)
    while kept and kept[-1] == ":":
        kept.pop()
    if not kept:
        return code if isinstance(code, Code) else Code(code)
    return Code(f"{closed(code)}[{', '.join(kept)}]")


def tupled(parts: Iterable[object]) -> Code:
    """A tuple, also of one or none."""
    texts = list(map(str, parts))
    return Code(f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})")


def quoted(text: str) -> str:
    """A string literal, in double quotes where that needs no escape."""
    return f'"{text}"' if text.isprintable() and '"' not in text and "\\" not in text else repr(text)
