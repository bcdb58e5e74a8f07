"""Relations and sizes, as a reader would write them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..checker.sizes import show
from ..ir import nodes as ir
from ..ir.affine import Atom, Polynomial
from ..ir.types import Coordinate


def relation(condition: ir.Expr) -> str:
    """A condition as a reader would write it."""
    match condition:
        case ir.Map("&&", (left, right)):
            return all_of((left, right))
        case ir.Map("||", (left, right)):
            return f"{relation(left)} or {relation(right)}"
        case ir.Map("!", (operand,)):
            return f"not ({relation(operand)})"
        case ir.Map("<" | "<=" | ">" | ">=" | "==" | "!=" as op, (left, right)):
            return f"{_side(left)} {op} {_side(right)}"
        case ir.Read(tensor, indices):
            return f"{tensor}[{', '.join(_side(index) for index in indices)}]"
        case _:
            return condition.span.text


def all_of(conditions: Iterable[ir.Expr]) -> str:
    """Conditions that all hold, each written once; those that leave a choice in parentheses."""
    written = {relation(condition): condition for condition in conditions}
    several = len(written) > 1
    choices = [several and isinstance(c, ir.Map) and c.op == "||" for c in written.values()]
    return " and ".join(f"({text})" if choice else text for text, choice in zip(written, choices, strict=True))


def _side(expr: ir.Expr) -> str:
    match expr:
        case ir.Read(tensor, indices) if indices:
            return f"{tensor}[{', '.join(_side(index) for index in indices)}]"
        case _:
            return show(expr)


def plain(name: str) -> str:
    """A coordinate's name without the number that inlining put behind it."""
    return re.sub(r"_\d+$", "", name)


def size_words(value: Polynomial) -> str:
    """A polynomial in the sizes: `b·h·i·j·d`, largest powers first."""
    if not value.terms:
        return "0"
    terms = []
    for monomial, factor in value.terms.items():
        atoms = sorted((_atom(atom), power) for atom, power in monomial)
        terms.append((-sum(power for _, power in atoms), atoms, factor))
    parts = []
    for _, atoms, factor in sorted(terms):
        shown = "·".join(name if power == 1 else f"{name}^{power}" for name, power in atoms)
        size = abs(factor)
        text = str(size) if not shown else shown if size == 1 else f"{size}·{shown}"
        parts.append(f" {'-' if factor < 0 else '+'} {text}")
    return "".join(parts).removeprefix(" + ").strip()


def _atom(atom: Atom) -> str:
    if isinstance(atom, Coordinate):
        return str(atom)
    return str(atom.coordinate) if isinstance(atom, ir.Size) else show(atom)
