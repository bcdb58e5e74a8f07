"""Expressions: tree to typed nodes. None stands for what is reported already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import fresh
from ..source import Span
from ..syntax import tree
from ..syntax.vocabulary import FUNCTIONS, NORMALISERS
from . import definitions, inline, kinds, sizes
from .names import suggest
from .scope import Abbreviated, Binding, Evidence, Meaning, Poison, RestBinding, Scope, Tensor, Unit, Value

# An inlined program may have this many nodes, standing this deep in one another.
MAXIMUM_NODES = 30_000
MAXIMUM_NESTING = 200


def expression(unit: Unit, scope: Scope, node: tree.Expr) -> ir.Expr | None:
    """A scalar expression at a place of the text."""
    unit.count += 1
    if unit.count > MAXIMUM_NODES:
        if unit.count == MAXIMUM_NODES + 1:
            unit.report("IX216", f"this program has more than {MAXIMUM_NODES} nodes when all is inlined", node.span)
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
    match node:
        case tree.Number(text, span):
            return kinds.literal(text, span)
        case tree.Bool(value, span):
            return build.truth(value, span)
        case tree.Printed(tree.Number(text), span):
            return kinds.literal(text, span, printed=True)
        case tree.Printed(tree.Unary(_, tree.Number(text)), span):
            return kinds.literal(text, span, printed=True, negative=True)
        case tree.ArrayLiteral() | tree.Printed():
            unit.report("IX209", "an array where one number is needed", node.span, help="read it: `[…][i]`")
            return None
        case tree.Masked(span):
            unit.report("IX209", "`masked` is not a value", span, help="it stands on the right of `expect … ==`")
            return None
        case tree.Derivative(_, _, span):
            unit.report("IX215", "derivatives cannot be taken yet", span)
            return None
        case tree.Name():
            return _name(unit, scope, node)
        case tree.Index(base, indices, span):
            tensor = tensor_of(unit, scope, base)
            return read(unit, scope, tensor, indices, base.span, span)
        case tree.Call():
            return _call(unit, scope, node)
        case tree.Unary() | tree.Binary() | tree.Comparison() | tree.Cast() | tree.If():
            return _operation(unit, scope, node)
        case tree.Block():
            return definitions.block_value(unit, scope, node)
        case tree.Paren(inner):
            return expression(unit, scope, inner)
        case tree.Reduction():
            return _normaliser(unit, scope, node) if node.operator in NORMALISERS else _reduction(unit, scope, node)
        case _:
            assert_never(node)


def expressions(unit: Unit, scope: Scope, nodes: Iterable[tree.Expr]) -> tuple[ir.Expr, ...] | None:
    """All of these, so that every mistake among them is found; None where there is one."""
    found = [expression(unit, scope, node) for node in nodes]
    whole = tuple(expr for expr in found if expr is not None)
    return whole if len(whole) == len(found) else None


# ---------------------------------------------------------------------- names


def _name(unit: Unit, scope: Scope, node: tree.Name) -> ir.Expr | None:
    meaning = scope.names.get(node.name)
    match meaning:
        case Binding(coordinate):
            return build.coord(coordinate, node.span)
        case Value(expr, weight):
            unit.count += weight
            return expr
        case Abbreviated(value):
            return _abbreviated(unit, scope, node, value)
        case Tensor(axes=()):
            return _read_at(unit, scope, meaning, (), node.span)
        case Tensor(name, axes):
            shown = ", ".join(str(axis.coordinate) for axis in axes)
            unit.report(
                "IX209",
                f"`{node.name}` is a whole tensor, and one number is needed here",
                node.span,
                help=f"read it: `{node.name}[{shown}]`",
            )
            return None
        case Poison():
            return None
        case RestBinding() | None:
            unknown_name(unit, scope, node.name, node.span)
            return None
        case _:
            assert_never(meaning)


def _abbreviated(unit: Unit, scope: Scope, node: tree.Name, value: tree.Expr) -> ir.Expr | None:
    if node.name in unit.expanding:
        unit.report("IX208", f"`{node.name}` abbreviates itself", node.span)
        return None
    unit.expanding.append(node.name)
    result = expression(unit, scope, value)
    unit.expanding.pop()
    return result


def unknown_name(unit: Unit, scope: Scope, name: str, span: Span) -> None:
    if name in unit.broken:
        return
    known = [known for known in scope.names if not known.startswith("..")]
    if name in scope.sizes or name in scope.spaces:
        unit.report(
            "IX201",
            f"nothing binds the coordinate `{name}` here",
            span,
            help=f"put it on the left, or consume it: `sum[{name}](…)`",
        )
        return
    help, fix = suggest(name, (*known, *scope.functions), span)
    if help is None and name in scope.functions:
        help = f"`{name}` is a function: write `{name}(…)`"
    unit.report("IX201", f"nothing defines `{name}`", span, help=help, fix=fix)


# ---------------------------------------------------------------------- reads


def tensor_of(unit: Unit, scope: Scope, node: tree.Expr) -> Tensor | None:
    """The tensor that a bare name, a call or an array literal stands for."""
    match node:
        case tree.Name(name, span):
            meaning = scope.names.get(name)
            if isinstance(meaning, Tensor):
                return meaning
            if isinstance(meaning, Binding | Value | Abbreviated):
                unit.report("IX209", f"`{name}` is one number, not a tensor", span)
            elif not isinstance(meaning, Poison):
                unknown_name(unit, scope, name, span)
            return None
        case tree.Call(function, function_span) if function not in FUNCTIONS and function != "size":
            result = inline.call(unit, scope, node)
            if result is not None and not isinstance(result, Tensor):
                unit.report("IX209", f"`{function}` gives one number, not a tensor", node.span)
                return None
            return result
        case tree.ArrayLiteral() | tree.Printed():
            return definitions.literal_tensor(unit, scope, node)
        case tree.Paren(inner):
            return tensor_of(unit, scope, inner)
        case tree.Derivative(_, _, span):
            unit.report("IX215", "derivatives cannot be taken yet", span)
            return None
        case _:
            expression(unit, scope, node)
            unit.report("IX209", "only a tensor can be read with `[…]` or passed whole", node.span)
            return None


def read(
    unit: Unit,
    scope: Scope,
    tensor: Tensor | None,
    indices: tuple[tree.Expr | tree.Rest, ...],
    base: Span,
    span: Span,
) -> ir.Expr | None:
    """`tensor[indices]`. A coordinate that is an index by itself gets its size from that axis."""
    rest = indices[0] if indices and isinstance(indices[0], tree.Rest) else None
    plain = indices[1:] if rest is not None else indices
    for stray in (index for index in plain if isinstance(index, tree.Rest)):
        unit.report("IX213", "`..` leads a bracket, once", stray.span)
        return None
    found = expressions(unit, scope, plain)  # type: ignore[arg-type]
    if tensor is None:
        return None
    axes = tensor.axes
    if rest is None and axes and axes[0].coordinate.rest:
        head = axes[0].coordinate
        unit.report("IX205", f"`{base.text}` has leading axes `{head}`", base, help=f"read it as `{base.text}[{head}, …]`")
        return None
    if len(plain) > len(axes) or (rest is None and len(plain) < len(axes)):
        _report_rank(unit, tensor, len(plain), base, span)
        return None
    leading: tuple[ir.Expr, ...] = ()
    if rest is not None:
        parts = _rest_parts(unit, scope, rest, axes[: len(axes) - len(plain)], base)
        if parts is None:
            return None
        leading = parts
    return None if found is None else _read_at(unit, scope, tensor, (*leading, *found), span)


def _report_rank(unit: Unit, tensor: Tensor, given: int, base: Span, span: Span) -> None:
    home = ", ".join(str(axis.coordinate) for axis in tensor.axes)
    unit.report(
        "IX205",
        f"`{base.text}` has {len(tensor.axes)} coordinates and is read with {given}",
        Label(span),
        Label(tensor.span, f"`[{home}]` here"),
    )


def _rest_parts(
    unit: Unit, scope: Scope, rest: tree.Rest, axes: tuple[ir.Axis, ...], base: Span
) -> tuple[ir.Expr, ...] | None:
    binding = scope.names.get(f"..{rest.name}")
    if not isinstance(binding, RestBinding):
        unit.report(
            "IX201", f"nothing binds `..{rest.name}` here", rest.span, help=f"put `..{rest.name}` on the left, or reduce it"
        )
        return None
    if not sizes.resolve_rest(unit, scope, binding, axes, base.text, rest.span) or binding.parts is None:
        return None
    return tuple(build.coord(part.coordinate, rest.span) for part in binding.parts)


def _read_at(
    unit: Unit, scope: Scope, tensor: Tensor, indices: tuple[ir.Expr, ...], span: Span
) -> ir.Expr | None:
    good = True
    for number, (axis, index) in enumerate(zip(tensor.axes, indices, strict=True)):
        if not kinds.whole(unit, index, "an index"):
            good = False
        elif isinstance(index, ir.Coord) and not index.coordinate.rest:
            binding = scope.frame.live.get(index.coordinate.name)
            if binding is not None:
                extent = None if tensor.recursive and _is_unknown(axis) else axis.extent
                place = index.span if index.span.source is span.source else span
                binding.evidence.append(Evidence(extent, f"`{tensor.name}`'s axis {number}", place))
    if not good or tensor.kind is None:
        return None
    captured = tuple(build.coord(binding.coordinate, span) for binding in tensor.captured)
    return build.read(tensor.name, (*captured, *indices), tensor.kind, span)


def _is_unknown(axis: ir.Axis) -> bool:
    return isinstance(axis.extent, ir.Size) and axis.extent.coordinate.name == "?"


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
            inner_scope = scope if first is None else scope.given(first if op == "&&" else opposite(first))
            second = condition(unit, inner_scope, right, f"a side of `{op}`")
            return None if first is None or second is None else build.apply(op, (first, second), "bool", span)
        case tree.Binary(op, left, right, span):
            sides = expressions(unit, scope, (left, right))
            return None if sides is None else kinds.arithmetic(unit, op, *sides, span)
        case tree.Comparison(operands, operators, span):
            return _comparison(unit, scope, operands, operators, span)
        case tree.Cast(operand, dtype, span):
            inner = expression(unit, scope, operand)
            return None if inner is None else kinds.cast(unit, inner, dtype, span)
        case tree.If():
            return _conditional(unit, scope, node)
        case _:
            assert_never(node)


def opposite(condition: ir.Expr) -> ir.Expr:
    return build.apply("!", (condition,), "bool", condition.span)


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
    otherwise = expression(unit, scope if test is None else scope.given(opposite(test)), node.otherwise)
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
    if node.function not in FUNCTIONS:
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
        return _read_at(unit, scope, result, (), node.span)
    wanted = FUNCTIONS[node.function]
    given = len(node.arguments)
    arguments = expressions(unit, scope, node.arguments)
    if given != wanted and not (wanted is None and given >= 2):
        unit.report(
            "IX206", f"`{node.function}` takes {wanted or 'two or more'} arguments, and {given} are given", node.span
        )
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
    if found is None and name.name not in unit.broken:
        help, fix = suggest(name.name, scope.sizes, name.span)
        message = f"no coordinate `{name.name}` is in scope, and no input has one"
        unit.report("IX201", message, name.span, help=help, fix=fix)
    return found


# ----------------------------------------------------- reductions, normalisers


def bind(unit: Unit, scope: Scope, binder: tree.Binder) -> Binding | RestBinding:
    """A new coordinate. In the Program its name differs from all that are in force around it."""
    warn_of_hiding(unit, scope, binder)
    if binder.rest:
        return RestBinding(binder.name, binder.span)
    coordinate = Coordinate(binder.name, False, scope.spaces.get(binder.name))
    binding = Binding(fresh(coordinate, set(scope.frame.live)), binder.name, binder.span)
    scope.frame.live[binding.coordinate.name] = binding
    return binding


def warn_of_hiding(unit: Unit, scope: Scope, binder: tree.Binder) -> None:
    hidden = scope.names.get(f"..{binder.name}" if binder.rest else binder.name)
    if hidden is None or isinstance(hidden, Poison):
        return
    shown = f"..{binder.name}" if binder.rest else binder.name
    unit.report(
        "IX204",
        f"`{shown}` hides another `{shown}`",
        Label(binder.span, "from here on, this one is meant"),
        Label(hidden.span, "hidden"),
        help="give one of them another name",
    )


def _reduction(unit: Unit, scope: Scope, node: tree.Reduction) -> ir.Expr | None:
    live = dict(scope.frame.live)
    inner, bindings, good = _bind_all(unit, scope, node)
    inner, guard, guarded = _guard(unit, inner, node)
    body = expression(unit, inner, node.body)
    ranges = []
    for binding in bindings:
        parts = [binding] if isinstance(binding, Binding) else sizes.settle_rest(unit, inner, binding)
        ranges += [sizes.settle(unit, scope, part) for part in parts]
    for name in set(scope.frame.live) - set(live):
        if not any(part.coordinate.name == name for part in _outer_parts(scope)):
            del scope.frame.live[name]
    if body is None or not good or not guarded or None in ranges:
        return None
    kind = kinds.reduction_kind(unit, node.operator, body)
    known = tuple(range for range in ranges if range is not None)
    return None if kind is None else build.reduce(node.operator, known, body, guard, kind, node.span)


def _outer_parts(scope: Scope) -> list[Binding]:
    """What the `..` coordinates of the statement around stand for: found inside, but bound outside."""
    rests = [meaning for meaning in scope.names.values() if isinstance(meaning, RestBinding)]
    return [part for rest in rests for part in rest.parts or ()]


def _bind_all(
    unit: Unit, scope: Scope, node: tree.Reduction
) -> tuple[Scope, list[Binding | RestBinding], bool]:
    names: dict[str, Meaning] = {}
    good = True
    if node.operator in ("argmax", "argmin") and (len(node.binders) != 1 or node.binders[0].rest):
        unit.report("IX206", f"`{node.operator}` binds one coordinate", node.operator_span)
        good = False
    for number, binder in enumerate(node.binders):
        key = f"..{binder.name}" if binder.rest else binder.name
        if key in names or (binder.rest and number):
            unit.report("IX211", f"`{key}` is bound twice, or does not lead the bracket", binder.span)
            good = False
            continue
        binding = bind(unit, scope, binder)
        if binder.range is not None and isinstance(binding, Binding):
            good &= sizes.state_range(unit, scope.binding(names), binding, binder.range, expression, outer=True)
        names[key] = binding
    bindings = [binding for binding in names.values() if isinstance(binding, Binding | RestBinding)]
    return scope.binding(names), bindings, good


def _guard(unit: Unit, scope: Scope, node: tree.Reduction) -> tuple[Scope, ir.Expr | None, bool]:
    """The guard of a reduction, written inside its bracket or attached from outside."""
    inside = {c.name: Abbreviated(c.value, c.span) for c in node.where if isinstance(c, tree.Abbreviation)}
    scope = scope.binding(inside)
    clauses = [clause for clause in node.where if isinstance(clause, tree.Guard)]
    clauses += unit.attached.get(id(node), [])
    found = [condition(unit, scope, clause.condition, "a guard") for clause in clauses]
    guard = build.conjunction(found)
    return scope.given(guard), guard, None not in found


def _normaliser(unit: Unit, scope: Scope, node: tree.Reduction) -> ir.Expr | None:
    binder = node.binders[0]
    binding = scope.names.get(binder.name)
    if len(node.binders) != 1 or binder.rest or binder.range is not None:
        unit.report("IX210", f"`{node.operator}` normalises over one coordinate, without a range", node.operator_span)
        return None
    if not isinstance(binding, Binding):
        unit.report(
            "IX210",
            f"`{node.operator}[{binder.name}]` needs a `{binder.name}` that survives it",
            Label(binder.span, "not in scope outside"),
            help=f"put `{binder.name}` on the left, or inside a reduction over it",
        )
        return None
    inner, guard, guarded = _guard(unit, scope, node)
    body = expression(unit, inner, node.body)
    if body is None or not guarded:
        return None
    kind = kinds.reduction_kind(unit, node.operator, body)
    return None if kind is None else build.normalize(node.operator, binding.coordinate, body, guard, kind, node.span)
