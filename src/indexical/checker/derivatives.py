"""`@y / @x`: a derivative as a tensor of its own, defined by what the layer above derives.

Inside a block or a function both may be definitions of it. They share the coordinates around them, and are derived when
their statement has been read. In a step of a recurrence, what the step reads of the recurrence is held.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..diagnostics import Label
from ..ir import nodes as ir
from ..ir.needs import made_of, reached, read_in
from ..ir.walk import fresh
from ..records import replace
from ..source import Span
from ..syntax import tree
from . import reads, sizes
from .scope import Abbreviated, Frame, Pending, Refusal, Scope, Tensor, Unit, Value


def derivative(
    unit: Unit, scope: Scope, node: tree.Derivative, name: str | None = None, hidden: bool = True
) -> Tensor | None:
    """The Jacobian: `y`'s coordinates followed by `x`'s. Under a name of its own where it is given one."""
    of, by = (_tensor(unit, scope, part) for part in (node.of, node.by))
    if of is None or by is None:
        return None
    if unit.derive is None:
        unit.report("IX215", "nothing here knows how to take a derivative", node.span)
        return None
    wanted = name or f"d_{of.name}_d_{by.name}"
    local = {pending.name for pending in scope.frame.pending}
    if of.name in local or by.name in local:
        return _promised(unit, scope, node, (of, by), name, hidden)
    known = unit.lets.get(wanted)
    if name is None and known is not None and known.derived == (of.name, by.name):
        return Tensor(wanted, known.axes, "real", node.span)
    wanted = name or unit.fresh_name(wanted)
    lets = _derived(unit, unit.inputs, tuple(unit.lets.values()), (of.name, by.name), wanted, node)
    if lets is None:
        return None
    _join(unit, lets, wanted, (*of.axes, *by.axes), hidden, node.span, (of.name, by.name))
    return Tensor(wanted, unit.lets[wanted].axes, "real", node.span)


def sides_of(block: tree.Block) -> frozenset[str]:
    """The names in a block that a derivative in it is of, or by: a number among them is kept as a definition."""
    parts = tree.walk(block) if "@" in block.span.text else ()
    found = (node for node in parts if isinstance(node, tree.Derivative))
    return frozenset(side.name for node in found for side in (node.of, node.by))


def _derived(
    unit: Unit,
    inputs: tuple[ir.Input, ...],
    lets: tuple[ir.Let, ...],
    sides: tuple[str, str],
    name: str,
    node: tree.Derivative,
) -> tuple[ir.Let, ...] | None:
    """The definitions of a derivative under a name; None, and reported, where it is not there."""
    assert unit.derive is not None
    try:
        return unit.derive(inputs, lets, *sides, name, unit.taken, node.span)
    except Refusal as refusal:
        message = str(refusal)
        for side, written in zip(sides, (node.of, node.by), strict=True):
            message = message.replace(f"`{side}`", f"`{written.name}`")
        unit.report("IX218", message, node.span)
        return None


def _join(
    unit: Unit,
    lets: tuple[ir.Let, ...],
    wanted: str,
    homes: tuple[ir.Axis, ...],
    hidden: bool,
    span: Span,
    sides: tuple[str, str],
) -> None:
    """Add the definitions of a derivative to the program; its last axes begin where those of `homes` do."""
    for let in lets:
        unit.taken.add(let.name)
        if let.name == wanted:
            first = len(let.axes) - len(homes)
            own = zip(let.axes[first:], homes, strict=True)
            let = replace(let, axes=(*let.axes[:first], *(replace(axis, origin=home.origin) for axis, home in own)))
        unit.lets[let.name] = replace(let, hidden=hidden or let.name != wanted, call=span, derived=sides)


# ------------------------------------------------------- inside of a statement


def _promised(
    unit: Unit,
    scope: Scope,
    node: tree.Derivative,
    sides: tuple[Tensor, Tensor],
    name: str | None,
    hidden: bool,
) -> Tensor | None:
    """The derivative of a definition of a block or a function, which is found when its statement has been read."""
    of, by = sides
    frame = scope.frame
    if unit.stepping and all(pending.name != by.name for pending in frame.pending):
        help = f"name what this step reads of it, `let here[…] = {node.by.name}[…];`, and differentiate by that"
        message = f"`{node.by.name}` is no definition of this step, and what other steps make of it is not known here"
        unit.report("IX218", message, node.by.span, help=help)
        return None
    if not _reads(unit, frame, of.name, by.name):
        held = [name for name in unit.stepping if _reads(unit, frame, of.name, name)]
        message = f"`{node.of.name}` does not depend on `{node.by.name}`"
        mend = f"it reads `{held[0]}` itself: read `{node.by.name}` there instead" if held else None
        unit.report("IX218", message, node.span, help=mend)
        return None
    names = (of.name, by.name)
    for pending in frame.pending if name is None else ():
        if pending.derives == names:
            return Tensor(pending.name, pending.axes, "real", node.span, pending.captured)
    taken: set[str] = {binding.coordinate.name for binding in of.captured}
    axes: list[ir.Axis] = []
    for axis in (*of.axes, *by.axes):
        coordinate = fresh(axis.coordinate, taken)
        taken.add(coordinate.name)
        axes.append(replace(axis, coordinate=coordinate))
    wanted = name or unit.fresh_name(f"d_{of.name}_d_{by.name}")
    home = tuple(axes)
    pending = Pending(wanted, of.captured, home, "real", (), hidden, node.span, None, names, node, unit.stepping)
    frame.pending.append(pending)
    return Tensor(wanted, home, "real", node.span, of.captured)


def _reads(unit: Unit, frame: Frame, of: str, by: str) -> bool:
    """Whether a definition of the statement reads a tensor, itself or through others."""
    steps = {pending.name: pending for pending in frame.pending}

    def read(name: str) -> Iterable[str]:
        if name in unit.stepping:
            return ()
        if name not in steps:
            return made_of((name,), unit.lets)
        parts = (part for clause in steps[name].clauses for part in (clause.body, clause.guard) if part is not None)
        return steps[name].derives or read_in(*parts)

    return by in reached((of,), read)


def finish(unit: Unit, frame: Frame, pending: Pending) -> None:
    """A derivative inside of a statement that has been read: its definitions join the program."""
    of, by = pending.derives
    assert pending.written is not None
    if not {of, by} <= unit.lets.keys() | {tensor.name for tensor in unit.inputs}:
        return
    held = []
    for name, tensor in pending.held.items():
        let = unit.lets.get(name)
        axes = tuple(sizes.fill_axis(unit, frame, axis) for axis in tensor.axes) if let is None else let.axes
        held.append(ir.Input(name, axes, tensor.kind or "real", None, tensor.span))
    inputs = (*unit.inputs, *held)
    known = {name: let for name, let in unit.lets.items() if name not in pending.held}
    near = made_of((of, by, *read_in(*(axis.extent for tensor in inputs for axis in tensor.axes))), known)
    lets = tuple(let for name, let in known.items() if name in near)
    found = _derived(unit, inputs, lets, (of, by), pending.name, pending.written)
    if found is not None:
        _join(unit, found, pending.name, pending.axes, pending.hidden, pending.span, (of, by))
        unit.lets[pending.name] = replace(unit.lets[pending.name], captured=len(pending.captured))


def _tensor(unit: Unit, scope: Scope, node: tree.Name) -> Tensor | None:
    """One side of a derivative: an input or a definition, and real."""
    meaning = scope.names.get(node.name)
    if isinstance(meaning, Value | Abbreviated):
        help = f"name it, `let here = {node.name};`, and read `here` in what is differentiated"
        unit.report("IX218", f"`{node.name}` stands for an expression, and is no definition", node.span, help=help)
        return None
    found = reads.tensor_of(unit, scope, node)
    if found is None:
        return None
    if found.name in unit.stepping:
        help = f"name what a step reads of it, `let here[…] = {node.name}[…];`, in a block, and differentiate by `here`"
        unit.report("IX218", f"`{node.name}` is not there yet: this is one of the steps to it", node.span, help=help)
        return None
    if found.kind != "real":
        message = f"`{node.name}` is {found.kind}: it has no derivative"
        places = (Label(node.span), Label(found.span, f"{found.kind}, from here"))
        mend = "a real has one: write its figures with a point, `1.0`, or `as f64`" if found.kind == "whole" else None
        unit.report("IX218", message, *places, help=mend)
        return None
    return found
