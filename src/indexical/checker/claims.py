"""The claims of a program about itself: contracts, assertions, expectations."""

from __future__ import annotations

from fractions import Fraction

from ..diagnostics import Label
from ..ir import nodes as ir
from ..ir.conditions import fails
from ..ir.prove import Assumptions
from ..ir.walk import walk
from ..records import replace
from ..syntax import tree
from ..syntax.literals import array_shape
from ..syntax.vocabulary import NORMALISERS
from . import definitions, elaborate, kinds, lifting, literals, reads, sizes
from .names import Declarations, suggest
from .scope import Binding, Frame, Poison, Scope, Tensor, Unit


def contracts(unit: Unit, found: list[tree.Contract], scope: Scope) -> tuple[ir.Contract, ...]:
    """The contracts, about definitions that exist. Whether they hold is for the facts to say."""
    result = []
    for contract in found:
        name = contract.name
        if not isinstance(scope.names.get(name.name), Tensor) or name.name not in unit.lets:
            if name.name not in unit.broken and not isinstance(scope.names.get(name.name), Poison):
                help, fix = suggest(name.name, unit.lets, name.span, unit.sink)
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
        condition = sizes.finished(unit, here.frame, condition)
        known = Assumptions(constants=unit.constant)
        if known.proves(condition):
            continue
        if known.proves(fails(condition)):
            unit.report("IX506", f"this never holds: {claim.message}", Label(claim.condition.span))
            continue
        result.append(ir.Assert(condition, claim.message, claim.span))
    return tuple(result)


def expects(unit: Unit, declared: Declarations, scope: Scope) -> tuple[ir.Expect, ...]:
    """The claims about figures. A definition that is read as printed has all its claims so."""
    printed = {name: lets[0] for name, lets in declared.lets.items() if any(let.printed for let in lets)}
    result = []
    for claim in declared.expects:
        found = _expect(unit, claim, scope)
        if found is None:
            continue
        tensor = found.body.tensor if isinstance(found.body, ir.Read) else ""
        if claim.printed or tensor in printed:
            found = replace(found, printed=_check_printed(unit, claim, found))
        result.append(found)
    claimed = {expect.body.tensor for expect in result if isinstance(expect.body, ir.Read)}
    for name, let in printed.items():
        if name not in claimed and name in unit.lets and not unit.sink.failed:
            help = f"claim them: `expect {name} == …;`"
            unit.report("IX219", f"`{name}` has no figures that could be read as printed", let.name_span, help=help)
    return tuple(result)


def _check_printed(unit: Unit, claim: tree.Expect, found: ir.Expect) -> bool:
    """Whether the figures of a claim can stand for what was computed: the left side is an element of a definition."""
    body = found.body
    if isinstance(body, ir.Read) and body.tensor in unit.lets:
        plain = not any(isinstance(part, ir.Read) for index in body.indices for part in walk(index))
        if plain and all(figure is None or isinstance(figure, ir.Const) for figure in found.figures):
            return True
    help = "the left side is a definition or an element of one, the right side figures"
    unit.report("IX219", "only figures of a definition are read as printed", claim.span, help=help)
    return False


def _expect(unit: Unit, claim: tree.Expect, scope: Scope) -> ir.Expect | None:
    """`expect left == right;`: the coordinates that are free on the left run over all their points."""
    here = replace(scope, frame=Frame("expect"))
    if isinstance(claim.left, tree.Name) and claim.left.name not in scope.names and claim.left.name != "pi":
        reads.unknown_name(unit, here, claim.left.name, claim.left.span, tensor=True)
        return None
    left, slots = _placed(unit, here, claim.left, claim)
    if left is None:
        return None
    tolerance = None if claim.tolerance is None else Fraction(claim.tolerance.text)
    if not _is_figures(claim.literal):
        return _expect_alike(unit, here, claim, left, slots, tolerance)
    draft = definitions.draft(unit, here, tree.Let("expect", claim.span, slots, left, (), claim.span))
    leaves = literals.leaves(claim.literal, False)
    figures = _figures(unit, here, leaves)
    lifting.finish(unit, here.frame)
    if draft is None or figures is None:
        return None
    shape = array_shape(claim.literal)
    if shape and len(shape) != len(draft.ranges):
        unit.report(
            "IX205", f"the figures have {len(shape)} axes and the left side has {len(draft.ranges)}", claim.literal.span
        )
        return None
    body = sizes.finished(unit, here.frame, draft.body, draft.ranges)
    filled = [f if f is None or isinstance(f, ir.Const) else sizes.finished(unit, here.frame, f) for f in figures]
    digits = _pasted([leaf for leaf, _ in leaves], isinstance(claim.literal, tree.Pasted))
    return ir.Expect(draft.ranges, body, shape, tuple(filled), tuple(digits), claim.span, tolerance)


def _figures(unit: Unit, scope: Scope, leaves: list[tuple[tree.Expr, bool]]) -> list[ir.Expr | None] | None:
    """Figures as they were written, None for `masked`, and expressions without coordinates; None where one of these
    cannot be read."""
    found: list[ir.Expr | None] = []
    for leaf, printed in leaves:
        figure: ir.Expr | None = literals.figure(leaf, printed)
        if figure is None and not isinstance(leaf, tree.Masked):
            figure = elaborate.expression(unit, scope, _in_reals(leaf))
            if figure is None:
                return None
        found.append(figure)
    return found


def _is_figures(literal: tree.Expr) -> bool:
    """Whether the right side is a figure, or an array; else it is an expression, at the points of the left side."""
    return bool(array_shape(literal)) or isinstance(
        literal, tree.Number | tree.Bool | tree.Masked | tree.Printed | tree.Pasted
    ) or (isinstance(literal, tree.Unary) and isinstance(literal.operand, tree.Number))


def _placed(
    unit: Unit, scope: Scope, node: tree.Expr, claim: tree.Expect
) -> tuple[tree.Expr | None, tuple[tree.Slot, ...]]:
    """A side of a claim, and its coordinates: those of a whole tensor, or the names that nothing defines."""
    if not definitions.is_whole(scope, node):
        return node, _free_coordinates(scope, node)
    tensor = reads.tensor_of(unit, scope, node)
    return (None, ()) if tensor is None else (node, tuple(_slot(axis, claim) for axis in tensor.axes))


def _expect_alike(
    unit: Unit,
    scope: Scope,
    claim: tree.Expect,
    left: tree.Expr,
    slots: tuple[tree.Slot, ...],
    tolerance: Fraction | None,
) -> ir.Expect | None:
    """Two sides that are computed, at the same points."""
    whole = [definitions.is_whole(scope, side) for side in (left, claim.literal)]
    right, others = _placed(unit, scope, claim.literal, claim)
    if right is None:
        return None
    if whole[0] and isinstance(right, tree.Name) and others and not whole[1]:
        reads.unknown_name(unit, scope, right.name, right.span, tensor=True)
        return None
    if whole[1] and len(others) != len(slots):
        unit.report("IX205", f"the right side has {len(others)} axes and the left side has {len(slots)}", right.span)
        return None
    names = {slot.name for slot in slots if isinstance(slot, tree.Binder)}
    if not whole[1]:
        slots += tuple(slot for slot in others if isinstance(slot, tree.Binder) and slot.name not in names)
    sides = tuple(
        _element(side, slots) if is_whole else side
        for side, is_whole in zip((left, _in_reals(right)), whole, strict=True)
    )
    both = tree.Comparison(sides, ("==",), claim.span)
    draft = definitions.draft(unit, scope, tree.Let("expect", claim.span, slots, both, (), claim.span))
    lifting.finish(unit, scope.frame)
    if draft is None:
        return None
    body = sizes.finished(unit, scope.frame, draft.body, draft.ranges)
    assert isinstance(body, ir.Map)
    return ir.Expect(draft.ranges, body.arguments[0], (), (body.arguments[1],), (None,), claim.span, tolerance)


def _element(side: tree.Expr, slots: tuple[tree.Slot, ...]) -> tree.Expr:
    """A whole tensor, at the coordinates of a claim."""
    indices = tuple(tree.Name(slot.name, side.span) for slot in slots if isinstance(slot, tree.Binder))
    return tree.Index(side, indices, side.span)


def _in_reals(node: tree.Expr) -> tree.Expr:
    """The right side of a claim, in which `1 / 3` is a third: whole numbers as written are not divided as wholes."""
    match node:
        case tree.Binary("/", left, right, span) if _is_plain(left) and _is_plain(right):
            return tree.Binary("/", tree.Cast(left, "f64", left.span), right, span)
        case tree.Binary(op, left, right, span):
            return tree.Binary(op, _in_reals(left), _in_reals(right), span)
        case tree.Unary(op, operand, span):
            return tree.Unary(op, _in_reals(operand), span)
        case tree.Paren(inner, span):
            return tree.Paren(_in_reals(inner), span)
        case tree.Call(arguments=arguments):
            return replace(node, arguments=tuple(map(_in_reals, arguments)))
        case _:
            return node


def _is_plain(node: tree.Expr) -> bool:
    """Whether an expression is made of whole numbers as written."""
    parts = [part for part in tree.walk(node) if not isinstance(part, tree.Binary | tree.Unary | tree.Paren)]
    return all(isinstance(part, tree.Number) and part.text.isdigit() for part in parts)


def _pasted(leaves: list[tree.Expr], pasted: bool) -> list[int | None]:
    """To how many places each figure was written. A library writes all to as many as the longest has, and may leave
    zeros at the end out; beside `1.` there are two at least."""
    found = [_digits(leaf) for leaf in leaves]
    texts = [leaf.operand if isinstance(leaf, tree.Unary) else leaf for leaf in leaves]
    plain = [isinstance(text, tree.Number) and "e" not in text.text.lower() for text in texts]
    known = [digits for digits, here in zip(found, plain, strict=True) if here and digits is not None]
    if not pasted or not known:
        return found
    most = max(known) if min(known) else max(2, *known)
    return [most if here and digits is not None else digits for digits, here in zip(found, plain, strict=True)]


def _slot(axis: ir.Axis, claim: tree.Expect) -> tree.Binder:
    return tree.Binder(axis.coordinate.name, None, axis.coordinate.rest, claim.left.span)


def _free_coordinates(scope: Scope, left: tree.Expr) -> tuple[tree.Slot, ...]:
    """The names on the left that nothing defines, in the order in which they stand. What is normalised survives."""
    reductions = [node for node in tree.walk(left) if isinstance(node, tree.Reduction)]
    bound = {b.name for node in reductions if node.operator not in NORMALISERS for b in node.binders}
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
