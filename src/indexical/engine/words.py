"""Operations in words, as the plan prints them: near to the language, with names for what is computed before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir import nodes as ir
from ..ir.affine import Polynomial
from ..ir.text import shown
from ..ir.types import Coordinate
from .ops import (
    Axis,
    Carried,
    Contract,
    Either,
    Fold,
    Input,
    Iota,
    Join,
    Library,
    Loop,
    Map,
    Normalize,
    Number,
    Op,
    Opaque,
    Outside,
    Put,
    Read,
    Reduce,
    Result,
    Store,
    Table,
    Tiles,
    Value,
    Write,
)
from .order import reachable

Names = Mapping[Value, str]

# How tightly the language's operators bind; a name or a call binds tightest.
_LEVELS = {"||": 0, "&&": 1, "+": 3, "-": 3, "*": 4, "/": 4, "//": 4, "%": 4, "**": 6}
_COMPARE, _OPEN, _TIGHT = 2, 3, 7
_OUTSIDE: dict[Outside, str] = {"never": "", "masked": ", 0 outside", "check": ", refused outside"}


def brief(one: Value, names: Names | None = None) -> str:
    """The operation of a value and its axes; an operand that has no name is a dot."""
    return f"{_operation(one, names or {}, 0)[0]} {axes_text(one.axes)}"


def operation_text(one: Value, names: Names) -> str:
    """The operation of a value, with operands by their names, and those that have none as expressions."""
    return _operation(one, names, _DEEPEST)[0]


def as_written(one: Value, names: Names) -> str:
    """A value as a program might write it: with the axes of arrays, and the places that they are read at."""
    found = dict(names)
    for part in reachable([one]):
        match part.op:
            case Input(name, home) if home:
                found.setdefault(part, f"{name}{axes_text(home)}")
            case Read(Value(op=Input(name, home)), index):
                given = dict(index)
                slots = (given.get(axis.name, axis.name) for axis in home)
                texts = (_operand(at, found, _DEEPEST) if isinstance(at, Value) else str(at) for at in slots)
                found.setdefault(part, f"{name}[{', '.join(texts)}]")
            case Map("as i64", (inner,)) if inner.kind == "whole" and inner in found:
                found.setdefault(part, found[inner])
    return _operand(one, found, _DEEPEST)


# An expression has few operations in it, unless somebody gives names to nothing.
_DEEPEST = 12


def axes_text(axes: Iterable[Axis]) -> str:
    return f"[{_over(axes)}]"


def _over(axes: Iterable[Axis]) -> str:
    return ", ".join(str(axis.name) for axis in axes)


def _operand(one: Value, names: Names, depth: int, level: int = 0) -> str:
    """A name, a number, an axis, or an operation as an expression, in brackets where it binds less tightly."""
    if one in names:
        return names[one]
    match one.op:
        case Number(expr):
            return shown(expr, level)
        case Input(name) | Carried(name):
            return name
        case Iota(axis):
            return str(axis.name)
    if depth == 0:
        return "·"
    code, own = _operation(one, names, depth - 1)
    return f"({code})" if own < level else code


def _operation(one: Value, names: Names, depth: int) -> tuple[str, int]:
    """The text of an operation, and how tightly it binds."""
    op: Op = one.op
    match op:
        case Input(name, home):
            return f"input {name}{axes_text(home)}", _TIGHT
        case Number(expr):
            return shown(expr), _TIGHT
        case Iota(axis):
            return f"0, 1, .. along {axis.name}", _TIGHT
        case Table(home):
            return f"table{axes_text(home)}", _TIGHT
        case Map(fn, args):
            return _map(fn, args, names, depth)
        case Read(source, index, outside):
            read = f"{_operand(source, names, depth, _TIGHT)}[{_places(index, names, depth)}]"
            return read + _OUTSIDE[outside], _TIGHT if outside == "never" else _OPEN
        case Write(values, index, gone):
            how = "put" if op.combine == "set" else "add"
            at = _places(tuple((axis.name, place) for axis, place in index), names, depth)
            over = f"[{_over(gone)}]" if gone else ""
            return f"{how}{over} {_operand(values, names, depth, _OPEN)} at {at}{_OUTSIDE[op.outside]}", 0
        case Put(into, index, values):
            new = _operand(values, names, depth, _OPEN)
            return f"put {new} into {_operand(into, names, depth, _TIGHT)}[{_places(index, names, depth)}]", 0
        case Library(kernel, args):
            return f"{kernel}({', '.join(_operand(arg, names, depth) for arg in args)})", _TIGHT
        case _:
            return _whole(op, names, depth), 0


def _whole(op: Op, names: Names, depth: int) -> str:
    """An operation that binds loosely: one that folds axes, or puts several values together."""
    match op:
        case Reduce(fn, source, over, where):
            return f"{fn}[{_over(over)}] {_operand(source, names, depth, _OPEN)}{_guard(where, names, depth)}"
        case Normalize(fn, source, along, where):
            return f"{fn}[{along.name}] {_operand(source, names, depth, _OPEN)}{_guard(where, names, depth)}"
        case Contract(factors, over):
            product = " × ".join(_operand(one, names, depth, _TIGHT) for one in factors)
            return f"contract[{_over(over)}] {product}" if over else f"product {product}"
        case Join(_, parts):
            clauses = (f"[{_list(slots, names, depth)}] = {_operand(part, names, depth)}" for slots, part in parts)
            return f"join {'; '.join(clauses)}"
        case Opaque(name, kernel, _, operands):
            return f"{kernel} for {name} of {', '.join(names.get(one, given) for given, one in operands)}"
        case Fold(normaliser, score, carried, key, where=where):
            weights, guard = f"{normaliser}({_operand(score, names, depth)})", _guard(where, names, depth)
            return f"fold[{key.name}] {weights} × {_operand(carried, names, depth, _TIGHT)}{guard}"
        case Tiles(leaves=leaves):
            return f"tiles of {_list(leaves, names, depth)}"
        case Either(many=many):
            return f"all pairs at once, or {_operand(many, names, depth)}"
        case Carried(name, steps=steps):
            return f"{name} so far, along {', '.join(map(str, steps))}"
        case Result(loop, of):
            return f"{of.name} after the loop over {loop.symbol}"
    raise TypeError(op)


def _map(fn: str, args: tuple[Value, ...], names: Names, depth: int) -> tuple[str, int]:
    match fn, args:
        case "where", (test, then, other):
            parts = (_operand(test, names, depth), _operand(then, names, depth), _operand(other, names, depth))
            return "if {} {{ {} }} else {{ {} }}".format(*parts), _TIGHT
        case "neg" | "!", (one,):
            return f"{'-' if fn == 'neg' else '!'}{_operand(one, names, depth, 5)}", 5
        case _, (left, right) if not fn[0].isalpha():
            level = _LEVELS.get(fn, _COMPARE)
            sign = "/" if fn == "//" else fn
            return f"{_operand(left, names, depth, level)} {sign} {_operand(right, names, depth, level + 1)}", level
        case _, (one,) if fn.startswith("as "):
            return f"{_operand(one, names, depth, 5)} {'as f32' if fn == 'as wide' else fn}", 5
    return f"{fn}({_list(args, names, depth)})", _TIGHT


def _list(values: Iterable[Value], names: Names, depth: int) -> str:
    return ", ".join(_operand(one, names, depth) for one in values)


def _guard(where: Value | None, names: Names, depth: int) -> str:
    return "" if where is None else f" where {_operand(where, names, depth)}"


def _places(index: tuple[tuple[Coordinate, Value], ...], names: Names, depth: int) -> str:
    """The places of a read, each by the axis of the source that it is a place of."""
    return ", ".join(f"{axis} = {_place(at, names, depth)}" for axis, at in index)


def _place(at: Value, names: Names, depth: int) -> str:
    known = at.known.whole
    return _operand(at, names, depth) if at in names or known is None else polynomial_text(known)


def polynomial_text(known: Polynomial) -> str:
    """A whole number as a sum: terms with axes first, the plain number last."""
    terms = sorted(known.terms.items(), key=lambda term: (not term[0], str(sorted(map(str, term[0])))))
    result = ""
    for monomial, factor in terms:
        atoms = [_atom(atom) + (f" ** {power}" if power > 1 else "") for atom, power in monomial]
        parts = [*([] if abs(factor) == 1 and atoms else [str(abs(factor))]), *sorted(atoms)]
        sign = ("-" if factor < 0 else "") if not result else " - " if factor < 0 else " + "
        result += sign + " * ".join(parts)
    return result or "0"


def _atom(atom: Coordinate | ir.Expr) -> str:
    return str(atom) if isinstance(atom, Coordinate) else shown(atom, 5)


def loop_lines(loop: Loop, names: Names, indent: str = "") -> list[str]:
    """A loop, a line for every clause in it."""
    way = "" if loop.forward else ", from the last"
    lines = [f"{indent}for {loop.symbol} in 0..{_operand(loop.count, names, _DEEPEST)}{way}"]
    for item in loop.body:
        if isinstance(item, Loop):
            lines += loop_lines(item, names, indent + "  ")
        else:
            lines.append(f"{indent}  {_store(item, names)}")
    return lines


def _store(item: Store, names: Names) -> str:
    slots = [*item.steps, *(at for _, at in item.slots)]
    tests = " && ".join(_operand(test, names, _DEEPEST, 1) for test in item.tests)
    under = f"if {tests}: " if tests else ""
    return f"{under}{item.name}[{_list(slots, names, _DEEPEST)}] = {_operand(item.value, names, _DEEPEST)}"

