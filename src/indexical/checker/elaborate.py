"""Expressions: tree to typed nodes. None stands for what is reported already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.conditions import fails
from ..ir.walk import renamed_apart
from ..records import replace
from ..source import Span
from ..syntax import tree
from ..syntax.vocabulary import FUNCTIONS, NORMALISERS
from . import definitions, derivatives, inline, kinds, reads, reductions, sizes
from .names import counted, given, suggest
from .scope import Abbreviated, Binding, Poison, RestBinding, Scope, Tensor, Unit, Value

# An inlined program may have this many nodes, standing this deep in one another.
MAXIMUM_NODES = 30_000
MAXIMUM_NESTING = 200


def expression(unit: Unit, scope: Scope, node: tree.Expr) -> ir.Expr | None:
    """A scalar expression at a place of the text."""
    unit.count += 1
    if unit.count > MAXIMUM_NODES:
        if not unit.overgrown:
            unit.overgrown = True
            help = "name a result on the way with `let`: it is then computed once"
            message = f"this program has more than {MAXIMUM_NODES} nodes when all is inlined"
            unit.report("IX216", message, node.span, help=help)
        return None
    unit.depth += 1
    if unit.depth > MAXIMUM_NESTING:
        unit.report("IX106", f"this is nested more than {MAXIMUM_NESTING} deep when all is inlined", node.span)
        result = None
    else:
        result = _expression(unit, scope, node)
    unit.depth -= 1
    return result


def _expression(unit: Unit, scope: Scope, node: tree.Expr) -> ir.Expr | None:
    # The commonest first.
    match node:
        case tree.Name():
            return _name(unit, scope, node)
        case tree.Index(base, indices, span):
            tensor = reads.tensor_of(unit, scope, base)
            return reads.read(unit, scope, tensor, indices, base.span, span)
        case tree.Unary() | tree.Binary() | tree.Comparison() | tree.Cast() | tree.If():
            return _operation(unit, scope, node)
        case tree.Number(text, span):
            return kinds.literal(text, span)
        case tree.Call():
            return _call(unit, scope, node)
        case tree.Paren(inner):
            return expression(unit, scope, inner)
        case tree.Reduction():
            take = reductions.normaliser if node.operator in NORMALISERS else reductions.reduction
            return take(unit, scope, node)
        case tree.Block():
            return definitions.block_value(unit, scope, node)
        case tree.Bool(value, span):
            return build.truth(value, span)
        case tree.Printed(tree.Number(text), span):
            return kinds.literal(text, span, printed=True)
        case tree.Printed(tree.Unary(_, tree.Number(text)), span):
            return kinds.literal(text, span, printed=True, negative=True)
        case tree.ArrayLiteral() | tree.Printed() | tree.Pasted():
            unit.report("IX209", "an array where one number is needed", node.span, help="read it: `[…][i]`")
            return None
        case tree.Tuple(_, span):
            help = "several values are what a function gives: `fn f(x[i]) -> ([i], [i]) { …; (a[i], b[i]) }`"
            unit.report("IX209", "several values where one number is needed", span, help=help)
            return None
        case tree.Masked(span):
            unit.report("IX209", "`masked` is not a value", span, help="it stands on the right of `expect … ==`")
            return None
        case tree.Derivative(_, _, span):
            found = derivatives.derivative(unit, scope, node)
            return None if found is None else _whole(unit, scope, found, f"`{span.text}`", f"({span.text})", span)
        case _:
            assert_never(node)


def expressions(unit: Unit, scope: Scope, nodes: Iterable[tree.Expr]) -> tuple[ir.Expr, ...] | None:
    """All of these, so that every mistake among them is found; None where there is one."""
    found = [expression(unit, scope, node) for node in nodes]
    whole = tuple([expr for expr in found if expr is not None])
    return whole if len(whole) == len(found) else None


# ---------------------------------------------------------------------- names


def _name(unit: Unit, scope: Scope, node: tree.Name) -> ir.Expr | None:
    meaning = scope.names.get(node.name)
    match meaning:
        case Binding(coordinate):
            return build.coord(coordinate, node.span)
        case Value(expr, weight):
            unit.count += weight
            return renamed_apart(expr, set(scope.frame.live))
        case Abbreviated(value):
            return _abbreviated(unit, scope, node, value)
        case Tensor():
            return _whole(unit, scope, meaning, f"`{node.name}`", node.name, node.span)
        case Poison():
            return None
        case None if node.name == "pi":
            return build.pi(node.span)
        case RestBinding() | None:
            reads.unknown_name(unit, scope, node.name, node.span)
            return None
        case _:
            assert_never(meaning)


def _whole(unit: Unit, scope: Scope, tensor: Tensor, shown: str, read: str, span: Span) -> ir.Expr | None:
    """A tensor where one number is needed: that is one only where it is a scalar."""
    if not tensor.axes:
        return reads.read_at(unit, scope, tensor, (), span)
    home = ", ".join(str(axis.coordinate) for axis in tensor.axes)
    message = f"{shown} is a whole tensor, and one number is needed here"
    unit.report("IX209", message, span, help=f"read it: `{read}[{home}]`")
    return None


def _abbreviated(unit: Unit, scope: Scope, node: tree.Name, value: tree.Expr) -> ir.Expr | None:
    if node.name in unit.expanding:
        unit.report("IX208", f"`{node.name}` abbreviates itself", node.span)
        return None
    unit.expanding.append(node.name)
    result = expression(unit, scope, value)
    unit.expanding.pop()
    return result


# ----------------------------------------------------------------- operations


def _operation(
    unit: Unit, scope: Scope, node: tree.Unary | tree.Binary | tree.Comparison | tree.Cast | tree.If
) -> ir.Expr | None:
    match node:
        case tree.Unary("-", operand, span):
            inner = expression(unit, scope, operand)
            return None if inner is None else kinds.negate(unit, inner, span)
        case tree.Unary(_, operand, span):
            inner = condition(unit, scope, operand, "what `!` negates")
            return None if inner is None else build.apply("!", (inner,), "bool", span)
        case tree.Binary("&&" | "||" as op, left, right, span):
            first = condition(unit, scope, left, f"a side of `{op}`")
            inner_scope = scope if first is None else scope.given(first if op == "&&" else fails(first))
            second = condition(unit, inner_scope, right, f"a side of `{op}`")
            return None if first is None or second is None else build.apply(op, (first, second), "bool", span)
        case tree.Binary(op, left, right, span):
            sides = expressions(unit, scope, (left, right))
            return None if sides is None else kinds.arithmetic(unit, op, sides[0], sides[1], span)
        case tree.Comparison(operands, operators, span):
            return _comparison(unit, scope, operands, operators, span)
        case tree.Cast(operand, dtype, span):
            inner = expression(unit, scope, operand)
            return None if inner is None else kinds.cast(unit, inner, dtype, span)
        case tree.If():
            return _conditional(unit, scope, node)
        case _:
            assert_never(node)


def condition(unit: Unit, scope: Scope, node: tree.Expr, what: str) -> ir.Expr | None:
    """An expression that must be true or false."""
    found = expression(unit, scope, node)
    return found if found is not None and kinds.condition(unit, found, what) else None


def _comparison(
    unit: Unit, scope: Scope, operands: tuple[tree.Expr, ...], operators: tuple[str, ...], span: Span
) -> ir.Expr | None:
    found = expressions(unit, scope, operands)
    if found is None:
        return None
    links = [
        kinds.compare(unit, op, left, right, left.span.to(right.span) if len(operators) > 1 else span)
        for op, left, right in zip(operators, found, found[1:], strict=False)
    ]
    return None if None in links else build.conjunction(links)


def _conditional(unit: Unit, scope: Scope, node: tree.If) -> ir.Expr | None:
    test = condition(unit, scope, node.condition, "the condition of an `if`")
    then = expression(unit, scope.given(test), node.then)
    otherwise = expression(unit, scope if test is None else scope.given(fails(test)), node.otherwise)
    if test is None or then is None or otherwise is None:
        return None
    if (then.type.kind == "bool") != (otherwise.type.kind == "bool"):
        unit.report(
            "IX351",
            "the branches of an `if` are of different kinds",
            Label(then.span, then.type.kind),
            Label(otherwise.span, otherwise.type.kind),
        )
        return None
    if "real" in (then.type.kind, otherwise.type.kind):
        kinds.warn_of_quotient(unit, then)
        kinds.warn_of_quotient(unit, otherwise)
    return build.select(test, then, otherwise, node.span)


def _call(unit: Unit, scope: Scope, node: tree.Call) -> ir.Expr | None:
    if node.function == "size":
        return _size(unit, scope, node)
    if not inline.is_builtin(scope, node.function):
        result = inline.call(unit, scope, node)
        if not isinstance(result, Tensor):
            return result
        if result.axes:
            shown = ", ".join(str(axis.coordinate) for axis in result.axes)
            unit.report(
                "IX209",
                f"`{node.function}` gives a whole tensor, and one number is needed here",
                node.span,
                help=f"read it: `{node.function}(…)[{shown}]`",
            )
            return None
        return reads.read_at(unit, scope, result, (), node.span)
    wanted = FUNCTIONS[node.function]
    count = len(node.arguments)
    arguments = expressions(unit, scope, node.arguments)
    if count != wanted and not (wanted is None and count >= 2):
        takes = "two or more arguments" if wanted is None else counted(wanted, "argument")
        help = "it is `clamp(x, low, high)`" if node.function == "clamp" else None
        unit.report("IX206", f"`{node.function}` takes {takes}, and {given(count)}", node.span, help=help)
        return None
    return None if arguments is None else kinds.function(unit, node.function, arguments, node.span)


def _size(unit: Unit, scope: Scope, node: tree.Call) -> ir.Expr | None:
    if len(node.arguments) != 1 or not isinstance(node.arguments[0], tree.Name):
        unit.report("IX206", "`size` takes the name of one coordinate", node.span, help="write `size(d)`")
        return None
    name = node.arguments[0]
    meaning = scope.names.get(name.name)
    binding = meaning if isinstance(meaning, Binding) else None
    found = sizes.size_of(unit, scope, name.name, binding, node.span)
    if isinstance(found, ir.Size | ir.Const):
        found = replace(found, span=node.span)
    if found is None and name.name not in unit.broken:
        help, fix = suggest(name.name, scope.sizes, name.span, unit.sink)
        message = f"no coordinate `{name.name}` is in scope, and no input and no definition has one"
        unit.report("IX201", message, name.span, help=help, fix=fix)
    return found
