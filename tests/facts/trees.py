"""Program texts as trees that can be taken apart and put together again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from indexical.diagnostics import Sink
from indexical.source import Source, Span
from indexical.syntax import tree
from indexical.syntax.format import format_statement
from indexical.syntax.parse import parse
from indexical.syntax.tokens import KEYWORDS
from indexical.syntax.vocabulary import NORMALISERS, RESERVED

Node = TypeVar("Node")
Statements = tuple[tree.Statement, ...]
Scope = tuple[tree.Binder, ...]

NOWHERE = Span(Source("<rewritten>", ""), 0, 0)


def read(text: str) -> Statements:
    """The statements of a text; its comments are left out."""
    sink = Sink()
    file = parse(Source("<text>", text), sink)
    assert not sink.failed, "\n".join([text, *map(str, sink)])
    return file.statements


def write(statements: Iterable[tree.Statement]) -> str:
    return "".join(format_statement(statement) + "\n" for statement in statements)


# ------------------------------------------------------------------- building


def name(word: str) -> tree.Name:
    return tree.Name(word, NOWHERE)


def number(text: str) -> tree.Expr:
    value: tree.Expr = tree.Number(text.lstrip("-"), NOWHERE)
    return tree.Unary("-", value, NOWHERE) if text.startswith("-") else value


def call(function: str, *arguments: tree.Expr) -> tree.Call:
    return tree.Call(function, NOWHERE, arguments, NOWHERE)


def binary(operator: str, left: tree.Expr, right: tree.Expr) -> tree.Binary:
    return tree.Binary(operator, left, right, NOWHERE)


def paren(expr: tree.Expr) -> tree.Paren:
    return tree.Paren(expr, NOWHERE)


def compare(left: tree.Expr, operator: str, right: tree.Expr) -> tree.Comparison:
    return tree.Comparison((left, right), (operator,), NOWHERE)


def at(tensor: str, coordinates: Iterable[str | tree.Expr]) -> tree.Expr:
    """A tensor read at coordinates; a scalar where there are none."""
    indices = tuple(name(c) if isinstance(c, str) else c for c in coordinates)
    return tree.Index(name(tensor), indices, NOWHERE) if indices else name(tensor)


def binder(word: str, range: tree.Range | None = None) -> tree.Binder:
    return tree.Binder(word, range, False, NOWHERE)


def guard(condition: tree.Expr) -> tree.Guard:
    return tree.Guard(condition, NOWHERE)


def reduction(
    operator: str, binders: Iterable[tree.Binder], body: tree.Expr, where: Iterable[tree.Clause] = ()
) -> tree.Reduction:
    return tree.Reduction(operator, NOWHERE, tuple(binders), body, tuple(where), NOWHERE)


def let(word: str, slots: Iterable[tree.Slot] | None, body: tree.Expr, where: Iterable[tree.Clause] = ()) -> tree.Let:
    return tree.Let(word, NOWHERE, None if slots is None else tuple(slots), body, tuple(where), NOWHERE)


# ------------------------------------------------------------------- changing


def descend(node: Node, visit: Callable[[Any], Any]) -> Node:
    """The node with `visit` applied to what stands directly inside it."""
    parts: dict[str, Any] = {}
    for part in fields(node):  # type: ignore[arg-type]
        value = getattr(node, part.name)
        if not part.compare or value is None or isinstance(value, str | bool):
            continue
        if isinstance(value, tuple):
            parts[part.name] = tuple(item if isinstance(item, str) else visit(item) for item in value)
        else:
            parts[part.name] = visit(value)
    return replace(node, **parts) if parts else node  # type: ignore[type-var]


def change(node: Node, visit: Callable[[Any], Any]) -> Node:
    """The node with `visit` applied to everything inside it, then to itself."""
    result: Node = visit(descend(node, lambda part: change(part, visit)))
    return result


def put(node: Node, old: tree.Node, new: tree.Node) -> Node:
    """The node with one of its parts, this very one, in another form."""
    if node is old:
        return new  # type: ignore[return-value]
    return descend(node, lambda part: put(part, old, new))


def rename(node: Node, words: Mapping[str, str]) -> Node:
    """The node with every name in another word, whatever it names."""

    def visit(part: Any) -> Any:
        if isinstance(part, tree.Call) and part.function in words:
            return replace(part, function=words[part.function])
        if isinstance(part, tree.Use):
            return part
        return replace(part, name=words[part.name]) if getattr(part, "name", None) in words else part

    def safe(part: Any) -> Any:
        return part if isinstance(getattr(part, "name", ""), tree.Name) else visit(part)

    return change(node, safe)


def names_in(node: tree.Node) -> set[str]:
    """Every word that names something here, calls included."""
    found = set()
    for part in tree.walk(node):
        found.add(getattr(part, "function", None) or getattr(part, "name", None))
    return {word for word in found if isinstance(word, str)}


def fresh(words: Iterable[str], taken: Collection[str]) -> Iterator[str]:
    """Words that name nothing yet."""
    used = {*taken, *KEYWORDS, *RESERVED, "attention"}
    for word in words:
        if word not in used:
            used.add(word)
            yield word
    number = 0
    while True:
        number += 1
        if f"x{number}" not in used:
            yield f"x{number}"


# ---------------------------------------------------------------------- scope


def coordinates_of(slots: Iterable[tree.Slot] | None) -> list[str]:
    return [slot.name for slot in slots or () if isinstance(slot, tree.Binder)]


def spoken(expr: tree.Node) -> set[str]:
    """The names that an expression takes from outside, tensors and what `size` asks for left out."""
    match expr:
        case tree.Name(word):
            return {word}
        case tree.Index(tree.Name(), indices):
            return set().union(*(spoken(index) for index in indices))
        case tree.Call("size"):
            return set()
        case tree.Reduction(operator=operator, binders=binders):
            own = {binder.name for binder in binders}
            ranges = [spoken(binder.range) for binder in binders if binder.range is not None]
            inner = spoken(expr.body).union(*(spoken(clause) for clause in expr.where))
            inner = inner | own if operator in NORMALISERS else inner - own
            return inner.union(*ranges)
        case _:
            return set().union(*(spoken(child) for child in tree.children(expr)))


def sized(expr: tree.Node) -> set[str]:
    """The coordinates whose `size` is asked for."""
    return {
        argument.name
        for part in tree.walk(expr)
        if isinstance(part, tree.Call) and part.function == "size"
        for argument in part.arguments
        if isinstance(argument, tree.Name)
    }


def tensors_in(expr: tree.Node) -> list[tree.Index]:
    return [part for part in tree.walk(expr) if isinstance(part, tree.Index) and isinstance(part.base, tree.Name)]


def places(expr: tree.Expr, scope: Scope) -> Iterator[tuple[tree.Expr, Scope]]:
    """Every expression inside one, itself included, with the coordinates around it; indices are left out."""
    yield expr, scope
    match expr:
        case tree.Index() | tree.Block() | tree.If() | tree.Derivative():
            return
        case tree.Reduction(operator=operator, binders=binders, body=body, where=where):
            inner = scope if operator in NORMALISERS else (*scope, *binders)
            yield from places(body, inner)
            for clause in where:
                if isinstance(clause, tree.Guard):
                    yield from places(clause.condition, inner)
        case tree.Call("size"):
            return
        case _:
            for child in tree.children(expr):
                yield from places(child, scope)  # type: ignore[arg-type]


def substitute(expr: Node, values: Mapping[str, tree.Expr]) -> Node:
    """Values for coordinates. What is bound inside must have been renamed apart."""

    def visit(part: Any) -> Any:
        if isinstance(part, tree.Reduction) and part.operator in NORMALISERS:
            (own,) = part.binders
            value = values.get(own.name)
            return replace(part, binders=(replace(own, name=value.name),)) if isinstance(value, tree.Name) else part
        return part

    def inside(part: Any) -> Any:
        match part:
            case tree.Name(word) if word in values:
                return values[word]
            case tree.Index(base, indices):
                return replace(part, base=base, indices=tuple(inside(index) for index in indices))
            case tree.Call("size"):
                return part
            case _:
                return descend(part, inside)

    return inside(change(expr, visit))  # type: ignore[no-any-return]


def apart(expr: Node, taken: Collection[str], shunned: Collection[str] = ()) -> Node:
    """What an expression binds, under names that are not taken. Every binder gets one of its own, and keeps
    it where it can; a new one is none of those `shunned`."""
    used = set(taken)

    def inside(part: Any) -> Any:
        part = descend(part, inside) if not isinstance(part, tree.Name) else part
        if isinstance(part, tree.Reduction) and part.operator not in NORMALISERS:
            for own in part.binders:
                word = own.name if own.name not in used else next(fresh("uvwxyz", {*used, *shunned}))
                used.add(word)
                if word != own.name:
                    part = _bind(part, own.name, word)
        return part

    return inside(expr)  # type: ignore[no-any-return]


def _bind(part: tree.Reduction, old: str, new: str) -> tree.Reduction:
    value = {old: name(new)}
    binders = tuple(replace(b, name=new) if b.name == old else b for b in part.binders)
    where = tuple(substitute(clause, value) for clause in part.where)
    body = rename_sizes(substitute(part.body, value), old, new)
    return replace(part, binders=binders, body=body, where=where)


def rename_sizes(expr: Node, old: str, new: str) -> Node:
    """`size(old)` inside the binder of `old`, after it was renamed."""

    def visit(part: Any) -> Any:
        if isinstance(part, tree.Call) and part.function == "size" and part.arguments == (name(old),):
            return replace(part, arguments=(name(new),))
        return part

    return change(expr, visit)
