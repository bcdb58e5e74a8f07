"""Reads: `tensor[indices]`, and the tensors that names, calls and array literals stand for."""

from __future__ import annotations

from ..diagnostics import Fix, Label
from ..ir import build
from ..ir import nodes as ir
from ..source import Span
from ..syntax import tree
from ..syntax.vocabulary import FOREIGN, FOREIGN_WORDS, NORMALISERS
from . import derivatives, elaborate, inline, kinds, literals, sizes
from .names import counted, suggest
from .scope import Abbreviated, Binding, Evidence, Poison, RestBinding, Scope, Tensor, Unit, Value


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
                unknown_name(unit, scope, name, span, tensor=True)
            return None
        case tree.Call(function) if not inline.is_builtin(scope, function):
            result = inline.call(unit, scope, node)
            if result is not None and not isinstance(result, Tensor):
                unit.report("IX209", f"`{function}` gives one number, not a tensor", node.span)
                return None
            return result
        case tree.ArrayLiteral() | tree.Printed():
            return literals.literal_tensor(unit, scope, node)
        case tree.Paren(inner):
            return tensor_of(unit, scope, inner)
        case tree.Derivative():
            return derivatives.derivative(unit, scope, node)
        case tree.Index(tree.Name(name)) if isinstance(scope.names.get(name), Tensor):
            message = "a whole tensor is wanted here, and this is one number of it"
            unit.report("IX209", message, node.span, help=f"write `{name}`")
            return None
        case _:
            elaborate.expression(unit, scope, node)
            unit.report("IX209", "only a tensor can be read with `[…]` or passed whole", node.span)
            return None


def unknown_name(unit: Unit, scope: Scope, name: str, span: Span, tensor: bool = False) -> None:
    """Report a name that nothing has here, with what was probably meant. `tensor` is True where it is read."""
    if name in unit.broken:
        return
    if name == "pi":
        unit.report("IX209", "`pi` is one number, and is read without a bracket", span)
        return
    if name in NORMALISERS:
        unit.report("IX101", f"expected `(` and what `{name}` scans", span, help=f"write `{name}[j](…)`")
        return
    if not tensor and (name in scope.sizes or name in scope.spaces):
        help = f"put it on the left, or consume it: `sum[{name}](…)`; the number of its points is `size({name})`"
        if scope.frame.owner == "assert":
            help = f"an assertion speaks of all points: `all[{name}](…)`"
        unit.report("IX201", f"nothing binds the coordinate `{name}` here", span, help=help)
        return
    if scope.in_function and name in unit.taken:
        help = f"a function sees only its parameters: pass `{name}` to it"
        unit.report("IX201", f"nothing defines `{name}` in this function", span, help=help)
        return
    known = (known for known in (*scope.names, *scope.functions) if not known.startswith(".."))
    closest, fix = suggest(name, known, span, unit.sink)
    if name in scope.functions:
        otherwise = f"`{name}` is a function: write `{name}(…)`"
    elif tensor:
        otherwise = f"declare it, `input {name}[…];`, or define it, `let {name}[…] = …;`"
    else:
        otherwise = f"if it is a coordinate, put it on the left, or consume it: `sum[{name}](…)`"
    if fix is None and name in FOREIGN_WORDS:
        fix = Fix(span, FOREIGN_WORDS[name])
    unit.report("IX201", f"nothing defines `{name}`", span, help=closest or FOREIGN.get(name, otherwise), fix=fix)


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
    found = elaborate.expressions(unit, scope, plain)  # type: ignore[arg-type]
    if tensor is None:
        # Its sizes are not known: a coordinate that only indexes it has none, and that is no new mistake.
        for index in found or ():
            if isinstance(index, ir.Coord) and index.coordinate.name in scope.frame.live:
                scope.frame.live[index.coordinate.name].broken = True
        return None
    axes = tensor.axes
    if rest is None and axes and axes[0].coordinate.rest:
        head = axes[0].coordinate
        unit.report(
            "IX205", f"`{base.text}` has leading axes `{head}`", base, help=f"read it as `{base.text}[{head}, …]`"
        )
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
    return None if found is None else read_at(unit, scope, tensor, (*leading, *found), span)


def _report_rank(unit: Unit, tensor: Tensor, given: int, base: Span, span: Span) -> None:
    home = ", ".join(str(axis.coordinate) for axis in tensor.axes)
    if not tensor.axes:
        unit.report("IX205", f"`{base.text}` is a scalar, read without a bracket", span)
        return
    unit.report(
        "IX205",
        f"`{base.text}` has {counted(len(tensor.axes), 'coordinate')} and is read with {given}",
        Label(span),
        Label(tensor.span, f"`[{home}]` here"),
    )


def _rest_parts(
    unit: Unit, scope: Scope, rest: tree.Rest, axes: tuple[ir.Axis, ...], base: Span
) -> tuple[ir.Expr, ...] | None:
    binding = scope.names.get(f"..{rest.name}")
    if not isinstance(binding, RestBinding):
        unit.report(
            "IX201",
            f"nothing binds `..{rest.name}` here",
            rest.span,
            help=f"put `..{rest.name}` on the left, or reduce it",
        )
        return None
    if not sizes.resolve_rest(unit, scope, binding, axes, base.text, rest.span) or binding.parts is None:
        return None
    return tuple(build.coord(part.coordinate, rest.span) for part in binding.parts)


def read_at(unit: Unit, scope: Scope, tensor: Tensor, indices: tuple[ir.Expr, ...], span: Span) -> ir.Expr | None:
    good = True
    places: list[ir.Expr] = []
    for number, (axis, index) in enumerate(zip(tensor.axes, indices, strict=True)):
        places.append(index if axis.origin is None else sizes.counted_from(index, axis.origin))
        if not kinds.whole(unit, index, "an index"):
            good = False
        elif isinstance(index, ir.Coord) and not index.coordinate.rest:
            binding = scope.frame.live.get(index.coordinate.name)
            if binding is not None:
                extent = None if tensor.recursive and sizes.is_unknown(axis) else axis.extent
                place = index.span if index.span.source is span.source else span
                binding.evidence.append(Evidence(extent, f"`{tensor.name}`'s axis {number}", place, axis.origin))
    if not good or tensor.kind is None:
        return None
    captured = tuple(build.coord(binding.coordinate, span) for binding in tensor.captured)
    return build.read(tensor.name, (*captured, *places), tensor.kind, span)
