"""The emitted Python as nodes: expressions, and how each of them is written."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TypeAlias

from ...records import dataclass

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


def parts(code: Node) -> tuple[Node, ...]:
    """The nodes that a node is made of."""
    match code:
        case Call(function, arguments, keywords):
            return (function, *arguments, *(part for _, part in keywords))
        case Attribute(of) | Prefix(_, of):
            return (of,)
        case Index(of, slots):
            return (of, *slots)
        case Slice(start, stop, step):
            return tuple(part for part in (start, stop, step) if part is not None)
        case Infix(_, left, right):
            return (left, right)
        case Ternary(first, second, third) | Between(first, second, third):
            return (first, second, third)
        case Tuple(items) | List(items):
            return items
        case Dict(items):
            return tuple(part for item in items for part in item)
        case Comprehension(item, _, iterable):
            return (item, iterable)
        case _:
            return ()


def rebuilt(code: Node, change: Callable[[Node], Node]) -> Node:
    """The node with each of its parts changed, in the order of `parts`."""
    match code:
        case Call(function, arguments, keywords):
            changed = change(function), tuple(map(change, arguments))
            return Call(*changed, tuple((key, change(part)) for key, part in keywords))
        case Attribute(of, name):
            return Attribute(change(of), name)
        case Prefix(op, operand):
            return Prefix(op, change(operand))
        case Index(of, slots):
            return Index(change(of), tuple(map(change, slots)))
        case Slice():
            ends = (code.start, code.stop, code.step)
            return Slice(*(None if end is None else change(end) for end in ends))
        case Infix(op, left, right):
            return Infix(op, change(left), change(right))
        case Ternary(first, second, third):
            return Ternary(change(first), change(second), change(third))
        case Between(first, second, third):
            return Between(change(first), change(second), change(third))
        case Tuple(items):
            return Tuple(tuple(map(change, items)))
        case List(items):
            return List(tuple(map(change, items)))
        case Dict(items):
            return Dict(tuple((change(key), change(value)) for key, value in items))
        case Comprehension(item, variable, iterable):
            return Comprehension(change(item), variable, change(iterable))
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
            waiting += reversed(parts(code))


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


def binding(code: Node) -> int:
    """The precedence of an expression."""
    match code:
        case Infix(op):
            return _INFIX[op]
        case Prefix(op):
            return _PREFIX[op]
        case Number(text):
            return UNARY if text.startswith("-") else ATOM
        case Ternary():
            return TERNARY
        case Between():
            return COMPARISON
        case _:
            return ATOM


def within(code: Node, level: int) -> str:
    """The text as an operand of something that binds this tightly."""
    return show(code) if binding(code) >= level else f"({show(code)})"


def atom(code: Node) -> str:
    """The text, fit for an attribute or an index behind it."""
    return f"({show(code)})" if isinstance(code, Number) else within(code, ATOM)


def show(code: Node) -> str:
    """An expression as text, on one line."""
    match code:
        case Name(text) | Number(text):
            return text
        case Call(function, arguments, keywords):
            shown = [*map(show, arguments), *(f"{key}={show(part)}" for key, part in keywords)]
            return f"{atom(function)}({', '.join(shown)})"
        case Attribute(of, name):
            return f"{atom(of)}.{name}"
        case Index(of, slots):
            return f"{atom(of)}[{', '.join(map(show, slots))}]"
        case Slice(start, stop, step):
            ends = ":".join("" if end is None else show(end) for end in (start, stop))
            return ends if step is None else f"{ends}:{show(step)}"
        case Infix(op, left, right):
            before, after = _sides(op)
            return f"{within(left, before)} {op} {within(right, after)}"
        case Prefix(op, operand):
            return op + within(operand, _PREFIX[op])
        case Ternary(then, condition, otherwise):
            return f"{within(then, EITHER)} if {within(condition, EITHER)} else {within(otherwise, TERNARY)}"
        case Between(low, value, high):
            return " ".join((within(low, SUM), "<=", within(value, SUM), "<", within(high, SUM)))
        case Tuple(items):
            return f"({', '.join(map(show, items))}{',' if len(items) == 1 else ''})"
        case List(items):
            return f"[{', '.join(map(show, items))}]"
        case Dict(items):
            return "{" + ", ".join(f"{show(key)}: {show(value)}" for key, value in items) + "}"
        case Comprehension(item, variable, iterable):
            return f"[{show(item)} for {variable} in {show(iterable)}]"
        case String(value):
            return quoted(value)
        case Hole(name):
            return f"{{{name}}}"


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


def quoted(text: str) -> str:
    """A text as Python writes it, between double quotes where that needs no escape."""
    return f'"{text}"' if '"' not in text and "\\" not in text and text.isprintable() else repr(text)
