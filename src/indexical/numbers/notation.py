"""The notation of exact numbers: `e^1/(e^1+e^1+e^2)`, `√2/2`, `1/2·log(3)`.

A small tree is built first, from a number here or from a definition in `forms`; it is then written once, with the
brackets that its reader needs and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeAlias, assert_never

from ..records import dataclass
from .deferred import Deferred
from .digits import decimal
from .exponentials import Quotient, Sum
from .series import whole_text
from .surds import Surd
from .terms import Polynomial, Symbol, Term, size_of
from .tower import Number, Special, compare


@dataclass(frozen=True, slots=True)
class Plain:
    """A number that is written as its value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    """A name that is written as it is: a symbol, an element of a definition, or `e`."""

    symbol: Symbol


@dataclass(frozen=True, slots=True)
class Power:
    """`base^exponent`; `e^x` has the base `E`."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Added:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Times:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Over:
    top: Node
    below: Node


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Plain | Name | Power | Added | Times | Over | Call

# A form of more numbers and names than this is not written out.
LARGEST = 2_000

# Its place tells the number from a tensor of that name.
E = Name(Symbol("e", ("number",)))
ONE = Plain(1)

# How tightly a text holds together: a sum, a product or quotient, a power, a word.
_SUM, _PRODUCT, _POWER, _WORD = range(4)


def write(node: Node) -> str:
    """The whole text. Only an outermost sum has spaces in it."""
    node = canonical(node.value) if isinstance(node, Plain) else node
    if isinstance(node, Added):
        return _sum(node.parts, True)
    if isinstance(node, Plain) and isinstance(node.value, Surd):
        return _surd(node.value, True)[0]
    return _written(node)[0]


def _written(node: Node) -> tuple[str, int]:
    """The text of a part, and how tightly it holds together."""
    match node:
        case Plain(Quotient() | Polynomial() as value):
            return _written(canonical(value))
        case Plain(value):
            return _surd(value, False) if isinstance(value, Surd) else _rational(value)
        case Name(symbol):
            # A tensor that is called `e` is not the number.
            return f"`{symbol}`" if symbol.tensor == "e" and node != E else str(symbol), _WORD
        case Power(base, exponent):
            return f"{_inside(base, _WORD)}^{_exponent(exponent)}", _POWER
        case Added(parts):
            return _sum(parts, False), _SUM
        case Times(parts):
            return _product(parts), _PRODUCT
        case Over(top, below):
            return f"{_inside(top, _PRODUCT)}/{_inside(below, _POWER)}", _PRODUCT
        case Call(function, arguments):
            if function == "√":
                return f"√{_inside(arguments[0], _WORD)}", _POWER
            return f"{function}({', '.join(write(argument) for argument in arguments)})", _WORD
        case _:
            assert_never(node)


def _inside(node: Node, least: int) -> str:
    text, tightness = _written(node)
    return text if tightness >= least and not (least > _PRODUCT and text.startswith("-")) else f"({text})"


def _exponent(node: Node) -> str:
    """`e^2`, `e^-1` and `e^√2` need no brackets."""
    text, tightness = _written(node)
    return text if tightness >= _POWER and not isinstance(node, Power) else f"({text})"


def _sum(parts: tuple[Node, ...], spaced: bool) -> str:
    result = ""
    for part in parts:
        match part:
            case Plain(Surd() as value):
                text, _ = _surd(value, spaced)
            case _:
                text, _ = _written(part)
        negative = text.startswith("-")
        word = "-" if negative else "+"
        text = text[1:] if negative else text
        if not result:
            result = f"-{text}" if negative else text
        else:
            result += f" {word} {text}" if spaced else f"{word}{text}"
    return result


def _product(parts: tuple[Node, ...]) -> str:
    lead = ""
    if len(parts) > 1 and parts[0] == Plain(-1):
        lead, parts = "-", parts[1:]
    texts = [_inside(part, _PRODUCT if number == 0 else _POWER) for number, part in enumerate(parts)]
    if lead and texts[0].startswith("-"):
        texts[0] = f"({texts[0]})"
    return lead + "·".join(texts)


def _rational(value: Any) -> tuple[str, int]:
    if isinstance(value, Special):
        return repr(value), _WORD
    above, below = whole_text(value.numerator), value.denominator
    return (above, _WORD) if below == 1 else (f"{above}/{whole_text(below)}", _PRODUCT)


def _surd(value: Surd, spaced: bool) -> tuple[str, int]:
    texts = [_root(key, Fraction(c)) for key, c in sorted(value.terms.items())]
    if len(texts) == 1:
        lone = texts[0].lstrip("-").startswith("√") and "/" not in texts[0] and not texts[0].startswith("-")
        return texts[0], _POWER if lone else _PRODUCT
    result = texts[0]
    for text in texts[1:]:
        word = "-" if text.startswith("-") else "+"
        text = text.removeprefix("-")
        result += f" {word} {text}" if spaced else f"{word}{text}"
    return result, _SUM


def _root(key: int, coefficient: Fraction) -> str:
    if key == 1:
        return _rational(coefficient)[0]
    above = {1: "", -1: "-"}.get(coefficient.numerator, whole_text(coefficient.numerator))
    below = "" if coefficient.denominator == 1 else f"/{whole_text(coefficient.denominator)}"
    return f"{above}√{whole_text(key)}{below}"


def placed(node: Node, rows: Mapping[str, int]) -> Node:
    """A form of a whole row, at one point of it: `V[0]` becomes `V[0, 1]`."""
    match node:
        case Name(symbol):
            return Name(symbol.at(rows))
        case Power(base, exponent):
            return Power(placed(base, rows), placed(exponent, rows))
        case Added(parts):
            return Added(tuple(placed(part, rows) for part in parts))
        case Times(parts):
            return Times(tuple(placed(part, rows) for part in parts))
        case Over(top, below):
            return Over(placed(top, rows), placed(below, rows))
        case Call(function, arguments):
            return Call(function, tuple(placed(argument, rows) for argument in arguments))
        case _:
            return node


# ------------------------------------------------------------ canonical forms


def text_of(value: Any) -> str:
    """A number in its canonical form; of one whose form is too long to read, proven digits."""
    if isinstance(value, Polynomial) and value.symbols and size_of(value) > LARGEST:
        return "too long to be written"
    return write(canonical(value)) if size_of(value) <= LARGEST else _digits(value)


def _digits(value: Any) -> str:
    return f"≈ {decimal(value, 16)}"


def canonical(value: Any) -> Node:
    """A number by its value alone: common factors `e^a` and rationals removed, terms collected and in order."""
    if isinstance(value, Quotient):
        return _quotient(value)
    if isinstance(value, Polynomial):
        return added([times([canonical(c), *map(_atom, _ordered(m))]) for m, c in value.terms.items()])
    return Name(Symbol(_digits(value), ())) if isinstance(value, Deferred) else Plain(value)


def _quotient(value: Quotient) -> Node:
    unit, shift, rest = value.top.split()
    unit, shift, rest, factors = _balanced(unit, shift, rest, value.factors)
    if len(rest) > 1 and compare(unit, 0) == -1:
        unit, rest = -unit, Sum({a: -c for a, c in rest.terms.items()})
    above = [_sum_node(rest)] if len(rest) > 1 else []
    above += [_raised(_sum_node(f), k) for f, k in factors.items() if k > 0]
    below = [_raised(_sum_node(f), -k) for f, k in factors.items() if k < 0]
    if isinstance(unit, int | Fraction):
        unit = Fraction(unit)
        above.insert(0, Plain(unit.numerator))
        if unit.denominator != 1:
            below.insert(0, Plain(unit.denominator))
    else:
        above.insert(0, Plain(unit))
    if shift != 0:
        above.insert(1, _exponential(shift))
    return over(times(above), times(below))


def _balanced(unit: Any, shift: Any, rest: Sum, factors: dict[Sum, int]) -> tuple[Any, Any, Sum, dict[Sum, int]]:
    """A sum above without denominators keeps its exponential inside: `e + e^2`, and not `e·(1 + e)`."""
    if factors or len(rest) == 1 or shift == 0:
        return unit, shift, rest, factors
    return unit, 0, Sum({a + shift: c for a, c in rest.terms.items()}), factors


def _sum_node(part: Sum) -> Node:
    return added([times([Plain(part.terms[a]), _exponential(a)]) for a in part.exponents()])


def _exponential(exponent: Any) -> Node:
    if exponent == 0:
        return ONE
    return E if exponent == 1 else Power(E, Plain(exponent))


def _raised(node: Node, power: int) -> Node:
    return node if power == 1 else Power(node, Plain(power))


def _ordered(monomial: Any) -> list[tuple[Any, int]]:
    """The named terms first, then the symbols, each by their text."""
    if len(monomial) < 2:
        return list(monomial)  # To write it takes as long as what is inside.
    return sorted(monomial, key=lambda item: (isinstance(item[0], Symbol), write(_atom((item[0], 1)))))


def _atom(item: tuple[Any, int]) -> Node:
    atom, power = item
    if isinstance(atom, Symbol):
        node: Node = Name(atom)
    else:
        assert isinstance(atom, Term)
        inside = [canonical(argument) for argument in atom.arguments]
        match atom.function:
            case "exp":
                return Power(E, times([Plain(power), inside[0]]))
            case "inverse":
                return over(ONE, _raised(inside[0], power))
            case "sqrt":
                node = Call("√", (inside[0],))
            case "power":
                node = Power(inside[0], inside[1])
            case "pi":
                node = Name(Symbol("pi", ()))
            case function:
                node = Call(function, tuple(inside))
    return _raised(node, power) if power > 0 else over(ONE, _raised(node, -power))


# --------------------------------------------------------------- construction


def added(parts: list[Node]) -> Node:
    """A sum: parts that are 0 are left out, plain ones beside each other become one."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Added) else (part,))]
    result: list[Node] = []
    for part in flat:
        if isinstance(part, Plain) and result and isinstance(result[-1], Plain):
            part = Plain(result.pop().value + part.value)  # type: ignore[union-attr]
        if not is_plain(part, 0):
            result.append(part)
    return result[0] if len(result) == 1 else Added(tuple(result)) if result else Plain(0)


def times(parts: list[Node]) -> Node:
    """A product: 0 makes it 0, a 1 is left out, and plain factors go together at its head."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Times) else (part,))]
    factor: Any = 1
    rest: list[Node] = []
    for part in flat:
        if isinstance(part, Plain):
            factor = factor * part.value
        else:
            rest.append(part)
    if not isinstance(factor, Number) and factor == 0:
        return Plain(0)
    if factor != 1 or not rest:
        rest.insert(0, Plain(factor))
    if len(rest) > 1 and isinstance(rest[0], Plain) and isinstance(rest[1], Over):
        rest[:2] = [_scaled(rest[0].value, rest[1])]
    return rest[0] if len(rest) == 1 else Times(tuple(rest))


def _scaled(factor: Any, quotient: Over) -> Node:
    """`3 · x/y` is `3·x/y`, and `1/2 · 1/y` is `1/(2·y)`."""
    top = times([Plain(factor), quotient.top])
    if isinstance(top, Plain) and isinstance(top.value, Fraction):
        return over(Plain(top.value.numerator), times([Plain(top.value.denominator), quotient.below]))
    return Over(top, quotient.below)


def over(top: Node, below: Node) -> Node:
    return top if is_plain(below, 1) else Over(top, below)


def is_plain(node: Node, value: int) -> bool:
    return isinstance(node, Plain) and not isinstance(node.value, Number) and node.value == value
