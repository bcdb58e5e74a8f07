"""The claims of a program about itself: contracts, assertions, expectations."""

from __future__ import annotations

from dataclasses import replace

from ..diagnostics import Label
from ..ir import nodes as ir
from ..ir.conditions import fails
from ..ir.prove import Assumptions
from ..syntax import tree
from ..syntax.literals import array_shape
from . import definitions, elaborate, kinds, lifting, literals, reads, sizes
from .names import suggest
from .scope import Binding, Frame, Poison, Scope, Tensor, Unit


def contracts(unit: Unit, found: list[tree.Contract], scope: Scope) -> tuple[ir.Contract, ...]:
    """The contracts, about definitions that exist. Whether they hold is for the facts to say."""
    result = []
    for contract in found:
        name = contract.name
        if not isinstance(scope.names.get(name.name), Tensor) or name.name not in unit.lets:
            if name.name not in unit.broken and not isinstance(scope.names.get(name.name), Poison):
                help, fix = suggest(name.name, unit.lets, name.span)
                unit.report("IX201", f"no definition is called `{name.name}`", name.span, help=help, fix=fix)
            continue
        roles = [(item.role, item.coordinate.name) for item in contract.items if isinstance(item, tree.RoleItem)]
        flags = []
        for item in contract.items:
            if isinstance(item, tree.FlagItem):
                here = replace(scope, frame=Frame(name.name))
                size = None if item.argument is None else elaborate.expression(unit, here, item.argument)
                words = "the offset" if item.flag.startswith("causal") else "the size of a group"
                if size is None or kinds.whole(unit, size, words):
                    flags.append((item.flag, size))
        result.append(ir.Contract(name.name, tuple(roles), tuple(flags), contract.span))
    return tuple(result)


def asserts(unit: Unit, found: list[tree.Assert], scope: Scope) -> tuple[ir.Assert, ...]:
    """The assertions that are left for the run: neither proved nor refuted."""
    result = []
    for claim in found:
        here = replace(scope, frame=Frame("assert"))
        condition = elaborate.condition(unit, here, claim.condition, "what is asserted")
        lifting.finish(unit, here.frame)
        if condition is None:
            continue
        condition = sizes.fill(unit, here.frame, condition)
        known = Assumptions(constants=unit.constant)
        if known.proves(condition):
            continue
        if known.proves(fails(condition)):
            unit.report("IX506", f"this never holds: {claim.message}", Label(claim.condition.span))
            continue
        result.append(ir.Assert(condition, claim.message, claim.span))
    return tuple(result)


def expects(unit: Unit, found: list[tree.Expect], scope: Scope) -> tuple[ir.Expect, ...]:
    result = [_expect(unit, claim, scope) for claim in found]
    return tuple(expect for expect in result if expect is not None)


def _expect(unit: Unit, claim: tree.Expect, scope: Scope) -> ir.Expect | None:
    """`expect left == literal;`: the coordinates that are free on the left run over all their points."""
    here = replace(scope, frame=Frame("expect"))
    if isinstance(claim.left, tree.Name) and claim.left.name not in scope.names and claim.left.name != "pi":
        reads.unknown_name(unit, here, claim.left.name, claim.left.span, tensor=True)
        return None
    slots = _free_coordinates(here, claim.left)
    if definitions.is_whole(here, claim.left):
        tensor = reads.tensor_of(unit, here, claim.left)
        if tensor is None:
            return None
        slots = tuple(_slot(axis, claim) for axis in tensor.axes)
    let = tree.Let("expect", claim.span, slots, claim.left, (), claim.span)
    draft = definitions.draft(unit, here, let)
    lifting.finish(unit, here.frame)
    if draft is None:
        return None
    shape = array_shape(claim.literal)
    if shape and len(shape) != len(draft.ranges):
        unit.report(
            "IX205", f"the figures have {len(shape)} axes and the left side has {len(draft.ranges)}", claim.literal.span
        )
        return None
    leaves = literals.leaves(claim.literal, False)
    figures = tuple(literals.figure(leaf, printed) for leaf, printed in leaves)
    digits = tuple(_digits(leaf) for leaf, _ in leaves)
    body = sizes.fill(unit, here.frame, draft.body)
    return ir.Expect(draft.ranges, body, shape, figures, digits, claim.span)


def _slot(axis: ir.Axis, claim: tree.Expect) -> tree.Binder:
    return tree.Binder(axis.coordinate.name, None, axis.coordinate.rest, claim.left.span)


def _free_coordinates(scope: Scope, left: tree.Expr) -> tuple[tree.Slot, ...]:
    """The names on the left that nothing defines, in the order in which they stand."""
    bound = {b.name for node in tree.walk(left) if isinstance(node, tree.Reduction) for b in node.binders}
    sized = {
        node.arguments[0]
        for node in tree.walk(left)
        if isinstance(node, tree.Call) and node.function == "size" and node.arguments
    }
    free: dict[str, tree.Slot] = {}
    for node in tree.walk(left):
        if isinstance(node, tree.Name) and node not in sized and node.name not in bound:
            meaning = scope.names.get(node.name)
            if (meaning is None and node.name != "pi") or isinstance(meaning, Binding):
                free.setdefault(node.name, tree.Binder(node.name, None, False, node.span))
    return tuple(free.values())


def _digits(leaf: tree.Expr) -> int | None:
    """To how many places a figure was written; None for one without a decimal point, which is exact."""
    number = leaf.operand if isinstance(leaf, tree.Unary) else leaf
    if isinstance(number, tree.Number) and "." in number.text:
        return kinds.decimals(number.text)
    return None
