"""The emitted Python as nodes: expressions, and how each of them is written."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import attrgetter, is_
from typing import Any, TypeAlias

from ...records import dataclass, replace

# How tightly an expression binds, so that parentheses stand only where they are needed.
ATOM, POWER, UNARY, PRODUCT, SUM, AND, OR, COMPARISON, NOT, BOTH, EITHER, TERNARY = range(11, -1, -1)


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, a function with the module before it, or a constant of Python's: `x`, `torch.where`, `None`."""

    text: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class String:
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments, those by name last."""

    function: Node
    arguments: tuple[Node, ...] = ()
    keywords: tuple[tuple[str, Node], ...] = ()


@dataclass(frozen=True, slots=True)
class Attribute:
    of: Node
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    of: Node
    slots: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """`start:stop:step` in an index; None for what is not written."""

    start: Node | None = None
    stop: Node | None = None
    step: Node | None = None


@dataclass(frozen=True, slots=True)
class Infix:
    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Prefix:
    """`-x`, `~x`, `not x`, and `*x` among arguments."""

    op: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Ternary:
    then: Node
    condition: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Between:
    """`low <= value < high`."""

    low: Node
    value: Node
    high: Node


@dataclass(frozen=True, slots=True)
class Tuple:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class List:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Dict:
    items: tuple[tuple[Node, Node], ...] = ()


@dataclass(frozen=True, slots=True)
class Comprehension:
    """`[item for variable in iterable]`."""

    item: Node
    variable: str
    iterable: Node


@dataclass(frozen=True, slots=True)
class Hole:
    """A place of a template that is filled in; by several parts where it is `many`."""

    name: str
    many: bool = False


Node: TypeAlias = (
    Name
    | Number
    | String
    | Call
    | Attribute
    | Index
    | Slice
    | Infix
    | Prefix
    | Ternary
    | Between
    | Tuple
    | List
    | Dict
    | Comprehension
    | Hole
)

# The Python values that stand for a node: a variable by its name, a number, None, several as a tuple.
Part: TypeAlias = "Node | str | int | tuple[Part, ...] | list[Part] | None"

NONE, ZERO, ONE, ALL = Name("None"), Number("0"), Number("1"), Slice()
NAN, ELLIPSIS = Name("math.nan"), Name("...")


# ------------------------------------------------------------------- building


def fill(template: str, /, **holes: Part) -> Node:
    """Code from a template: `fill("{x}.sum({axis})", x=value, axis=1)`. A name in braces is a hole, and `{*slots}` a
    hole for several parts among arguments, items or slots."""
    return _filled(_parsed(template), holes)


def spelled(template: str, *arguments: Part) -> Node:
    """A function of the table as a library spells it: a name, or a template with numbered holes."""
    if "{" not in template:
        return call(template, *arguments)
    return _filled(_parsed(template), {str(n): argument for n, argument in enumerate(arguments)})


@cache
def _parsed(template: str) -> Node:
    """A template as nodes. Its holes are sets, which emitted code has no use for."""
    return _node(ast.parse(template, mode="eval").body)


_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.And: "and",
    ast.Or: "or",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.USub: "-",
    ast.Invert: "~",
    ast.Not: "not ",
}
_MODULES = frozenset(
    (
        "torch",
        "torch.nn",
        "torch.nn.functional",
        "torch.compiler",
        "np",
        "math",
        "jnp",
        "jax",
        "jax.nn",
        "jax.lax",
        "tl",
    )
)


def _node(tree: ast.expr) -> Node:
    """Python's own tree as nodes."""
    match tree:
        case ast.Set([ast.Name(name)]):
            return Hole(name)
        case ast.Set([ast.Constant(int(place))]):
            return Hole(str(place))
        case ast.Set([ast.Starred(ast.Name(name))]):
            return Hole(name, True)
        case ast.Name(name):
            return Name(name)
        case ast.Constant(value):
            return _constant(value)
        case ast.Attribute(of, name):
            inner = _node(of)
            whole = isinstance(inner, Name) and inner.text in _MODULES
            return Name(f"{inner.text}.{name}") if whole and isinstance(inner, Name) else Attribute(inner, name)
        case ast.Call(function, arguments, keywords):
            named = tuple((str(keyword.arg), _node(keyword.value)) for keyword in keywords)
            return Call(_node(function), tuple(map(_node, arguments)), named)
        case ast.Subscript(of, slots):
            several = slots.elts if isinstance(slots, ast.Tuple) else [slots]
            return Index(_node(of), tuple(map(_node, several)))
        case ast.Slice(start, stop, step):
            return Slice(*(None if end is None else _node(end) for end in (start, stop, step)))
        case ast.BinOp(left, op, right):
            return Infix(_SIGNS[type(op)], _node(left), _node(right))
        case ast.BoolOp(op, values):
            return chain(_SIGNS[type(op)], list(map(_node, values)))
        case ast.Compare(left, [op], [right]):
            return Infix(_SIGNS[type(op)], _node(left), _node(right))
        case ast.Compare(low, [ast.LtE(), ast.Lt()], [value, high]):
            return Between(_node(low), _node(value), _node(high))
        case ast.UnaryOp(op, operand):
            return Prefix(_SIGNS[type(op)], _node(operand))
        case ast.Starred(operand):
            return Prefix("*", _node(operand))
        case ast.IfExp(condition, then, otherwise):
            return Ternary(_node(then), _node(condition), _node(otherwise))
        case ast.Tuple(items):
            return Tuple(tuple(map(_node, items)))
        case ast.List(items):
            return List(tuple(map(_node, items)))
        case ast.Dict(keys, values):
            return Dict(tuple((_node(k), _node(v)) for k, v in zip(keys, values, strict=True) if k is not None))
        case _:
            raise AssertionError(f"no template: {ast.unparse(tree)}")


def _constant(value: object) -> Node:
    if isinstance(value, str):
        return String(value)
    return (
        ELLIPSIS
        if value is ...
        else Name(str(value))
        if value is None or isinstance(value, bool)
        else Number(repr(value))
    )


def _filled(code: Node, holes: Mapping[str, Part]) -> Node:
    match code:
        case Hole(name, False):
            return node(holes[name])
        case Call(function, arguments, keywords):
            named = tuple((key, _filled(part, holes)) for key, part in keywords)
            return Call(_filled(function, holes), _several(arguments, holes), named)
        case Index(of, slots):
            return Index(_filled(of, holes), _several(slots, holes))
        case Tuple(items):
            return Tuple(_several(items, holes))
        case List(items):
            return List(_several(items, holes))
        case Name() | Number() | String():
            return code
        case _:
            return rebuilt(code, lambda part: _filled(part, holes))


def _several(codes: tuple[Node, ...], holes: Mapping[str, Part]) -> tuple[Node, ...]:
    result: list[Node] = []
    for code in codes:
        if isinstance(code, Hole) and code.many:
            found = holes[code.name]
            assert isinstance(found, tuple | list)
            result += map(node, found)
        else:
            result.append(_filled(code, holes))
    return tuple(result)


def node(part: Part) -> Node:
    """A part as a node."""
    if part is None:
        return NONE
    if isinstance(part, str):
        return Name(part)
    if isinstance(part, bool):
        return Name(str(part))
    if isinstance(part, int):
        return Number(str(part))
    if isinstance(part, tuple):
        return Tuple(tuple(map(node, part)))
    if isinstance(part, list):
        return List(tuple(map(node, part)))
    return part


def call(function: str | Node, *arguments: Part, **keywords: Part) -> Call:
    """A call of a function by its name."""
    return Call(node(function), tuple(map(node, arguments)), tuple((key, node(part)) for key, part in keywords.items()))


def method(of: Part, name: str, *arguments: Part, **keywords: Part) -> Call:
    """A call of a method."""
    return call(Attribute(node(of), name), *arguments, **keywords)


def index(of: Part, *slots: Part) -> Index:
    """Some slots of an array."""
    return Index(node(of), tuple(map(node, slots)))


def infix(op: str, left: Part, right: Part) -> Infix:
    return Infix(op, node(left), node(right))


def chain(op: str, parts: list[Node]) -> Node:
    """Several operands with the same sign between them."""
    result, *others = parts
    for part in others:
        result = Infix(op, result, part)
    return result


def negative(part: Part) -> Prefix:
    return Prefix("-", node(part))


# -------------------------------------------------------------------- walking


_PARTS: dict[type[object], Callable[[Any], tuple[Node, ...]]] = {
    Call: lambda code: (code.function, *code.arguments, *(part for _, part in code.keywords)),
    Attribute: lambda code: (code.of,),
    Prefix: lambda code: (code.operand,),
    Index: lambda code: (code.of, *code.slots),
    Slice: lambda code: tuple(part for part in (code.start, code.stop, code.step) if part is not None),
    Infix: lambda code: (code.left, code.right),
    Ternary: lambda code: (code.then, code.condition, code.otherwise),
    Between: lambda code: (code.low, code.value, code.high),
    Tuple: lambda code: code.items,
    List: lambda code: code.items,
    Dict: lambda code: tuple(part for item in code.items for part in item),
    Comprehension: lambda code: (code.item, code.iterable),
    **dict.fromkeys((Name, Number, String, Hole), lambda _: ()),
}


def parts(code: Node) -> tuple[Node, ...]:
    """The nodes that a node is made of."""
    return _PARTS[type(code)](code)


def rebuilt(code: Node, change: Callable[[Node], Node]) -> Node:
    """The node with each of its parts changed, in the order of `parts`; itself where none is another one then."""
    before = parts(code)
    found = tuple(map(change, before))
    return code if all(map(is_, before, found)) else with_parts(code, found)


def with_parts(code: Node, found: tuple[Node, ...]) -> Node:
    """The node with other parts, in the order of `parts`."""
    match code:
        case Call(_, arguments, keywords):
            end = len(arguments) + 1
            named = zip(keywords, found[end:], strict=True)
            return Call(found[0], found[1:end], tuple((key, part) for (key, _), part in named))
        case Attribute(_, name):
            return Attribute(found[0], name)
        case Prefix(op):
            return Prefix(op, found[0])
        case Index():
            return Index(found[0], found[1:])
        case Slice():
            waiting = iter(found)
            return Slice(*(None if end is None else next(waiting) for end in (code.start, code.stop, code.step)))
        case Infix(op):
            return Infix(op, *found)
        case Dict():
            return Dict(tuple(zip(found[::2], found[1::2], strict=True)))
        case Comprehension(_, variable):
            return Comprehension(found[0], variable, found[1])
        case Tuple() | List():
            return type(code)(found)
        case Ternary() | Between():
            return type(code)(*found)
        case _:
            return code


def names(code: Node) -> Iterator[str]:
    """The variables that an expression reads, in order and as often as it reads them."""
    waiting = [code]
    while waiting:
        code = waiting.pop()
        if isinstance(code, Name):
            yield code.text
        else:
            waiting += parts(code)[::-1]


def renamed(code: Node, known: Mapping[str, str]) -> Node:
    """The node with other names for some variables."""
    if isinstance(code, Name):
        return Name(known[code.text]) if code.text in known else code
    if isinstance(code, Comprehension) and code.variable in known:
        code = replace(code, variable=known[code.variable])
    return rebuilt(code, lambda part: renamed(part, known))


# ------------------------------------------------------------------- printing

_INFIX = {"**": POWER, "and": BOTH, "or": EITHER, "&": AND, "|": OR}
_INFIX |= dict.fromkeys(("*", "/", "//", "%", "@"), PRODUCT)
_INFIX |= dict.fromkeys(("+", "-"), SUM)
_INFIX |= dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not"), COMPARISON)
_PREFIX = {"-": UNARY, "~": UNARY, "not ": NOT, "*": ATOM}


_BINDING: dict[type[object], Callable[[Any], int]] = {
    Infix: lambda code: _INFIX[code.op],
    Prefix: lambda code: _PREFIX[code.op],
    Number: lambda code: UNARY if code.text.startswith("-") else ATOM,
    Ternary: lambda code: TERNARY,
    Between: lambda code: COMPARISON,
}


def binding(code: Node) -> int:
    """The precedence of an expression."""
    found = _BINDING.get(type(code))
    return ATOM if found is None else found(code)


def within(code: Node, level: int) -> str:
    """The text as an operand of something that binds this tightly."""
    return show(code) if binding(code) >= level else f"({show(code)})"


def atom(code: Node) -> str:
    """The text, fit for an attribute or an index behind it."""
    return f"({show(code)})" if isinstance(code, Number) else within(code, ATOM)


def show(code: Node) -> str:
    """An expression as text, on one line."""
    return _SHOWN[type(code)](code)


def _shown_call(code: Call) -> str:
    shown = [*map(show, code.arguments), *(f"{key}={show(part)}" for key, part in code.keywords)]
    return f"{atom(code.function)}({', '.join(shown)})"


def _shown_slice(code: Slice) -> str:
    ends = ":".join("" if end is None else show(end) for end in (code.start, code.stop))
    return ends if code.step is None else f"{ends}:{show(code.step)}"


def _shown_infix(code: Infix) -> str:
    before, after = _SIDES[code.op]
    return f"{within(code.left, before)} {code.op} {within(code.right, after)}"


def _shown_ternary(code: Ternary) -> str:
    condition, otherwise = within(code.condition, EITHER), within(code.otherwise, TERNARY)
    return f"{within(code.then, EITHER)} if {condition} else {otherwise}"


_SHOWN: dict[type[object], Callable[[Any], str]] = {
    Name: attrgetter("text"),
    Number: attrgetter("text"),
    Call: _shown_call,
    Attribute: lambda code: f"{atom(code.of)}.{code.name}",
    Index: lambda code: f"{atom(code.of)}[{', '.join(map(show, code.slots))}]",
    Slice: _shown_slice,
    Infix: _shown_infix,
    Prefix: lambda code: code.op + within(code.operand, _PREFIX[code.op]),
    Ternary: _shown_ternary,
    Between: lambda code: " ".join((within(code.low, SUM), "<=", within(code.value, SUM), "<", within(code.high, SUM))),
    Tuple: lambda code: f"({', '.join(map(show, code.items))}{',' if len(code.items) == 1 else ''})",
    List: lambda code: f"[{', '.join(map(show, code.items))}]",
    Dict: lambda code: "{" + ", ".join(f"{show(key)}: {show(value)}" for key, value in code.items) + "}",
    Comprehension: lambda code: f"[{show(code.item)} for {code.variable} in {show(code.iterable)}]",
    String: lambda code: quoted(code.value),
    Hole: lambda code: f"{{{code.name}}}",
}


def _sides(op: str) -> tuple[int, int]:
    """The precedences that the operands of an operator need at least."""
    level = _INFIX[op]
    if level == POWER:
        return POWER + 1, UNARY
    if level == COMPARISON:
        return COMPARISON + 1, COMPARISON + 1
    if op == "|":  # `(a & b) | c` is easier to read than without the brackets.
        return AND + 1, AND + 1
    return level, level + 1


_SIDES = {op: _sides(op) for op in _INFIX}


def quoted(text: str) -> str:
    """A text as Python writes it, between double quotes where that needs no escape."""
    return f'"{text}"' if '"' not in text and "\\" not in text and text.isprintable() else repr(text)
