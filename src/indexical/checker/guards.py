"""The place that a guard attaches to: the one reduction or normaliser at its own bracket depth that binds a
coordinate of it, else to the declaration."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnostics import Label
from ..syntax import tree
from ..syntax.vocabulary import NORMALISERS
from .scope import Abbreviated, Scope, Unit


def attach(
    unit: Unit, scope: Scope, body: tree.Expr, where: tuple[tree.Clause, ...]
) -> tuple[Scope, list[tree.Guard], set[str]]:
    """The scope with the abbreviations of `where`, the guards that are the declaration's own, and the
    coordinates that are bound deeper inside. The other guards are left with their reductions."""
    if not where:
        return scope, [], set()
    abbreviations = {c.name: c for c in where if isinstance(c, tree.Abbreviation)}
    scope = scope.binding({name: Abbreviated(c.value, c.span) for name, c in abbreviations.items()})
    beside = list(at_this_depth(body))
    own: list[tree.Guard] = []
    attached: dict[int, list[tree.Guard]] = {}
    for clause in where:
        if not isinstance(clause, tree.Guard):
            continue
        names = mentioned(clause.condition, abbreviations)
        takers = [node for node in beside if any(binder.name in names for binder in node.binders)]
        if len(takers) > 1:
            _report_several(unit, clause, takers)
        elif takers:
            attached.setdefault(id(takers[0]), []).append(clause)
        else:
            own.append(clause)
    unit.attached.update(attached)
    inside = tree.walk(body) if own else ()
    return scope, own, {b.name for node in inside if isinstance(node, tree.Reduction) for b in node.binders}


def at_this_depth(expr: tree.Expr) -> Iterator[tree.Reduction]:
    """The reductions and normalisers in no bracket of this expression: a guard behind all of it may attach to them."""
    match expr:
        case tree.Reduction():
            yield expr
        case tree.Unary(operand=operand) | tree.Cast(operand=operand):
            yield from at_this_depth(operand)
        case tree.Binary(_, left, right):
            yield from at_this_depth(left)
            yield from at_this_depth(right)
        case tree.Comparison(operands):
            for operand in operands:
                yield from at_this_depth(operand)


def mentioned(
    expr: tree.Expr, abbreviations: dict[str, tree.Abbreviation], inside: frozenset[str] = frozenset()
) -> set[str]:
    """The names in an expression, those that it abbreviates included and those it binds itself left out: what it
    normalises over survives. `size(j)` does not speak of a `j`."""
    found: set[str] = set()
    for node in spoken(expr):
        if isinstance(node, tree.Name):
            found.add(node.name)
            if node.name in abbreviations and node.name not in inside:
                found |= mentioned(abbreviations[node.name].value, abbreviations, inside | {node.name})
    scans = (node for node in tree.walk(expr) if isinstance(node, tree.Reduction))
    return found - {b.name for node in scans if node.operator not in NORMALISERS for b in node.binders}


def spoken(expr: tree.Expr) -> Iterator[tree.Node]:
    """The nodes of an expression, without the names in `size(…)`."""
    sized = {
        id(node.arguments[0])
        for node in tree.walk(expr)
        if isinstance(node, tree.Call) and node.function == "size" and node.arguments
    }
    return (node for node in tree.walk(expr) if id(node) not in sized)


def _report_several(unit: Unit, clause: tree.Guard, takers: list[tree.Reduction]) -> None:
    labels = [Label(node.operator_span, "this one?") for node in takers]
    shown = " and ".join(f"`{node.operator}[{', '.join(b.name for b in node.binders)}]`" for node in takers)
    unit.report(
        "IX212",
        f"this guard could belong to {shown}",
        Label(clause.span),
        *labels,
        help="write it inside the bracket it belongs to: `sum[j](… where …)`",
    )
