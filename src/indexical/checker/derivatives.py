"""`@y / @x`: a derivative as a tensor of its own, defined by what the layer above derives."""

from __future__ import annotations

from dataclasses import replace

from ..diagnostics import Label
from ..syntax import tree
from . import reads
from .scope import Refusal, Scope, Tensor, Unit


def derivative(
    unit: Unit, scope: Scope, node: tree.Derivative, name: str | None = None, hidden: bool = True
) -> Tensor | None:
    """The Jacobian: `y`'s coordinates followed by `x`'s. Under a name of its own where it is given one."""
    of, by = (_tensor(unit, scope, part) for part in (node.of, node.by))
    if of is None or by is None:
        return None
    wanted = name or f"d_{of.name}_d_{by.name}"
    known = unit.lets.get(wanted)
    if name is None and known is not None and known.derived == (of.name, by.name):
        return Tensor(wanted, known.axes, "real", node.span)
    wanted = name or unit.fresh_name(wanted)
    if unit.derive is None:
        unit.report("IX215", "nothing here knows how to take a derivative", node.span)
        return None
    try:
        lets = unit.derive(unit.inputs, tuple(unit.lets.values()), of.name, by.name, wanted, unit.taken, node.span)
    except Refusal as refusal:
        unit.report("IX218", str(refusal), node.span)
        return None
    homes = (*of.axes, *by.axes)
    for let in lets:
        unit.taken.add(let.name)
        if let.name == wanted:
            found = zip(let.axes, homes, strict=True)
            let = replace(let, axes=tuple(replace(axis, origin=home.origin) for axis, home in found))
        unit.lets[let.name] = replace(
            let, hidden=hidden or let.name != wanted, call=node.span, derived=(of.name, by.name)
        )
    return Tensor(wanted, unit.lets[wanted].axes, "real", node.span)


def _tensor(unit: Unit, scope: Scope, node: tree.Name) -> Tensor | None:
    """One side of a derivative: an input or a definition of the program, and real."""
    found = reads.tensor_of(unit, scope, node)
    if found is None:
        return None
    if found.recursive and found.name not in unit.lets:
        unit.report("IX208", f"`{node.name}` is defined by its own derivative", node.span)
        return None
    if found.kind != "real":
        message = f"`{node.name}` is {found.kind}: it has no derivative"
        places = (Label(node.span), Label(found.span, f"{found.kind}, from here"))
        help = "a real has one: write its figures with a point, `1.0`, or `as f64`" if found.kind == "whole" else None
        unit.report("IX218", message, *places, help=help)
        return None
    if found.name not in unit.lets and all(tensor.name != found.name for tensor in unit.inputs):
        help = "name it with a `let` of the program, and differentiate there"
        unit.report("IX218", f"`{node.name}` belongs to the middle of a statement", node.span, help=help)
        return None
    return found
