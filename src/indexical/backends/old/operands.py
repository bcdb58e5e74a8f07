"""The axes that kernels take: batch axes, queries, a last one; and operands in that shape."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate, Dtype
from ...ir.walk import renamed_apart, walk
from ...plan.steps import Attend
from ...records import dataclass
from . import arrays, clauses, sizes
from .base import Value
from .code import ALL, NAN, NONE, ZERO, Index, Infix, List, Name, Node, Number, Part, Prefix, Ternary, call, chain, fill
from .elementwise import constant
from .lowering import Lowering
from .reads import is_plain_read
from .scope import Place, Scope
from .values import aligned, spaced


@dataclass(frozen=True, slots=True)
class Frame:
    """The four axes that kernels take: two batch axes, the query axis, and a last one. Queries, keys and values are
    read at pairs that the guards keep: `kept` is the `scope` with these guards. `total` is the variable for the
    logarithm of what the weights of each query are divided by, where that is wanted: batch axes and the query axis. The
    last so many of the batch axes are `heads`, which become the second of the two."""

    batch: tuple[Coordinate, ...]
    row: Coordinate | None
    scope: Scope
    kept: Scope
    total: str | None = None
    heads: int = 1


def add_helper(low: Lowering, name: str, text: str) -> str:
    """A small function above the emitted one, that kernels are called through."""
    low.text.helpers.setdefault(name, text)
    return name


def frame_of(let: ir.Let, attend: Attend) -> Frame:
    """One coordinate is the query axis: that of the guard, else the last. Others of the query become batch axes."""
    layout, row = attend.layout, attend.row
    batch = tuple(
        axis.coordinate for axis in let.axes if axis.coordinate != row and axis.coordinate not in layout.carry
    )
    scope = clauses.scope_of(let.clauses[0])
    key = attend.attention.key
    scope = scope.binding(key, key_place(let, key))
    for range in attend.scores.dot.compared if attend.scores.dot is not None else ():
        scope = scope.binding(range, Place(range.lower, range.upper, not range.stated))
    return Frame(batch, row, scope, kept_scope(let, attend, scope))


def kept_scope(let: ir.Let, attend: Attend, scope: Scope) -> Scope:
    """The scope at pairs of a query and a key that the guards of an attention and of its definition keep."""
    guard = build.conjunction((let.clauses[0].guard, *attend.attention.guard))
    return scope.where(None if guard is None else renamed_apart(guard, {c.name for c in scope.places}))


def key_place(let: ir.Let, key: ir.Range) -> Place:
    """The keys. Where no range was stated, there are as many as every axis has that they index."""
    bound = [r for part in walk(let.clauses[0].body) if isinstance(part, ir.Reduce) for r in part.ranges]
    stated = any(range.stated for range in bound if range.coordinate == key.coordinate)
    return Place(key.lower, key.upper, not stated)


# ----------------------------------------------------------------- operands


def operand(
    low: Lowering,
    expr: ir.Expr,
    row: Coordinate | None,
    columns: tuple[Coordinate, ...],
    frame: Frame,
    let: ir.Let,
    dtype: Dtype | None = None,
) -> Node:
    """An array of four axes: two batch axes, a row, a column; of the dtype of the definition, unless one is given."""
    value = low.text.short(arrays.as_real(low, operand_value(low, expr, frame.kept)), let.name)
    dtype = dtype or low.dtypes[let.name]
    if value.dtype != dtype:
        value = low.text.dialect.cast(arrays.as_array(low, value), dtype)
    rows = (row,) if row is not None else ()
    inner = (*rows, *columns)
    present = tuple(axis for axis in frame.batch if axis in value.axes)
    value = arrays.in_order(low, value, (*present, *inner))
    missing = tuple(axis for axis in inner if axis not in value.axes)
    if missing or present != frame.batch:
        value = arrays.broadcast(low, value, (*frame.batch, *inner), frame.scope)
    code = value.code
    if row is None:
        code = fill("{x}[..., None, :]" if columns else "{x}[..., None]", x=code)
    if not columns:
        code = fill("{x}[..., None]", x=code)
    if len(columns) > 1:
        code = low.text.dialect.flatten(code, -len(columns), -1)
    return folded_batch(low, code, len(frame.batch), frame.heads)


def folded_batch(low: Lowering, code: Node, count: int, heads: int = 1) -> Node:
    """The batch axes, as two: the second is made of the last so many of them."""
    if count == 0:
        return fill("{x}[None, None]", x=code)
    lead = count - heads
    if heads > 1:
        code = low.text.dialect.flatten(code, lead, count - 1)
    code = spaced(code, [*[ALL] * lead, *[NONE] * (heads == 0)])
    if lead == 0:
        return fill("{x}[None]", x=code)
    return code if lead == 1 else low.text.dialect.flatten(code, 0, lead - 1)


def restored(low: Lowering, code: Node, let: ir.Let, attend: Attend, frame: Frame) -> Value:
    """The result of a kernel with its own axes again."""
    carry = attend.layout.carry
    code = unfolded_columns(low, unfolded_batch(low, code, frame), carry, frame)
    rows: tuple[Coordinate, ...] = () if frame.row is None else (frame.row,)
    if frame.row is None:
        code = Index(code, (*(ALL for _ in frame.batch), ZERO))
    return Value(code, (*frame.batch, *rows, *carry), "real", low.dtypes[let.name])


def with_total(low: Lowering, code: Node, let: ir.Let, frame: Frame, folded: bool = True) -> Node:
    """The result of a kernel, where it gives the totals of its rows, too, once these are stored."""
    if frame.total is None:
        return code
    rows, total = low.text.fresh(f"{let.name}_attended"), low.text.fresh("totals")
    low.text.unpack([rows, total], code)
    found = unfolded_batch(low, Name(total), frame) if folded else Name(total)
    if frame.row is None:
        found = fill("{x}[..., 0]", x=found)
    low.text.assign(frame.total, found)
    return Name(rows)


def unfolded_batch(low: Lowering, code: Node, frame: Frame) -> Node:
    """An array whose first two axes were folded batch axes, with the axes that they were made of."""
    if not frame.batch:
        return fill("{x}[0, 0]", x=code)
    lead, heads = frame.batch[: -frame.heads], frame.batch[-frame.heads :]
    if len(heads) > 1:
        code = low.text.dialect.unflatten(code, 1, sizes.shape(low, heads, frame.scope), low.text)
    if not lead:
        return fill("{x}[0]", x=code)
    if len(lead) == 1:
        return code
    return low.text.dialect.unflatten(code, 0, sizes.shape(low, lead, frame.scope), low.text)


def unfolded_columns(low: Lowering, code: Node, columns: tuple[Coordinate, ...], frame: Frame) -> Node:
    """An array whose last axis was all columns, with an axis for each."""
    if not columns:
        return fill("{x}[..., 0]", x=code)
    if len(columns) == 1:
        return code
    return low.text.dialect.unflatten(code, -1, sizes.shape(low, columns, frame.scope), low.text)


def scale(low: Lowering, attend: Attend) -> tuple[Node, ir.Expr]:
    """The scale of the scores as a plain number, and the query's side; a scale from an array goes there."""
    dot = attend.scores.dot
    assert dot is not None
    if dot.scale is None:
        return Number("1.0"), dot.query
    if is_scaled_before(low, attend):
        return Number("1.0"), build.apply("*", (dot.query, dot.scale), "real", dot.query.span)
    scale = plain_scale(low, dot.scale)
    assert scale is not None
    if not isinstance(scale, Ternary):
        return scale, dot.query
    variable = low.text.fresh("scale")
    low.text.assign(variable, scale)
    return Name(variable), dot.query


def is_scaled_before(low: Lowering, attend: Attend) -> bool:
    """Whether a kernel is handed a query that is scaled already: it takes plain numbers, and one that masks before
    it scales would turn its -inf around."""
    scale = None if attend.scores.dot is None else attend.scores.dot.scale
    if scale is None:
        return False
    negative = any(isinstance(part, ir.Const) and part.value < 0 for part in walk(scale))
    return negative or plain_scale(low, scale) is None


def plain_scale(low: Lowering, expr: ir.Expr) -> Node | None:
    """A scale of figures, sizes and their roots, in plain Python; None for any other. By 0 it is NaN."""
    divisors: list[Node] = []
    code = _figures(low, expr, divisors)
    return code if code is None or not divisors else Ternary(code, chain("and", divisors), NAN)


def _figures(low: Lowering, expr: ir.Expr, divisors: list[Node]) -> Node | None:
    """The scale itself. `divisors` grow by the sizes that it divides by."""
    match expr:
        case ir.Const():
            return constant(expr).code
        case ir.Size(coordinate):
            return Name(low.sizes[coordinate])
        case ir.Map("sqrt", (ir.Size(coordinate),)):
            return call("math.sqrt", low.sizes[coordinate])
        case ir.Map("*" | "/" as op, (left, right)) if expr.type.kind == "real":
            first, second = _figures(low, left, divisors), _figures(low, right, divisors)
            if first is None or second is None:
                return None
            if op == "/":
                divisors += [Name(low.sizes[p.coordinate]) for p in walk(right) if isinstance(p, ir.Size)]
            return Infix(op, first, second)
        case _:
            return None


# -------------------------------------------------------------- the keys of a query


def bound(low: Lowering, op: str, bounds: tuple[ir.Expr, ...], key: ir.Range, frame: Frame) -> Node:
    """A bound of every row's keys, counted from the first key: three axes, of which the first two may be 1."""
    first = key.lower
    expr = bounds[0] if bounds else key.lower if op == "max" else key.upper
    for other in bounds[1:]:
        expr = build.apply(op, (expr, other), "whole", other.span)
    if first != build.whole(0, expr.span):
        expr = build.apply("-", (expr, first), "whole", expr.span)
    return three(low, low.value(expr, frame.scope), frame.row, frame)


def three(low: Lowering, value: Value, last: Coordinate | None, frame: Frame) -> Node:
    """A whole array as (batch or 1, head or 1, rows)."""
    lasts = () if last is None else (last,)
    if value.python:
        length: Part = 1 if last is None else sizes.length(low, last, frame.scope)
        return call("torch.full", (1, 1, length), value.code, device="device")
    many = len(frame.batch) > 2 and any(axis in value.axes for axis in frame.batch)
    axes = tuple(a for a in (*frame.batch, *lasts) if a in value.axes or a in lasts or many)
    code = arrays.broadcast(low, arrays.in_order(low, value, axes), axes, frame.scope).code
    if last is None:
        code = fill("{x}[..., None]", x=code)
    if many:
        return folded_batch(low, code, len(frame.batch))
    new = [NONE] * (2 - len(frame.batch))
    return spaced(code, [*new, *(ALL if axis in axes else NONE for axis in frame.batch[:2])])


def sink_operand(low: Lowering, attend: Attend, frame: Frame, four: bool) -> Node | None:
    """The sink of each row, as a logarithm: with an axis for each batch axis and one for the rows,
    of which any may be 1, or with `four` the three that come before the width; None for nothing."""
    sink = attend.attention.sink
    if sink is None:
        return None
    value = arrays.as_array(low, arrays.as_real(low, low.value(sink, frame.scope)))
    rows = () if frame.row is None else (frame.row,)
    if not four:
        axes = (*frame.batch, *rows)
        code = aligned(arrays.in_order(low, value, tuple(a for a in axes if a in value.axes)), axes).code
        return code if rows and value.axes else fill("{x}[..., None]", x=code)
    many = len(frame.batch) > 2 and any(axis in value.axes for axis in frame.batch)
    lead = frame.batch if many else tuple(a for a in frame.batch if a in value.axes)
    inner = (*lead, *(a for a in rows if a in value.axes))
    value = arrays.in_order(low, value, tuple(a for a in inner if a in value.axes))
    code = arrays.broadcast(low, value, inner, frame.scope).code
    row: list[Node] = [ALL if rows and rows[0] in value.axes else NONE]
    if many:
        return folded_batch(low, spaced(code, [*(ALL for _ in lead), *row]), len(frame.batch))
    new = [NONE] * (2 - min(2, len(frame.batch)))
    return spaced(code, [*new, *(ALL if axis in lead else NONE for axis in frame.batch[:2]), *row])


def group_operands(
    low: Lowering, groups: tuple[tuple[ir.Expr, ir.Expr], ...], frame: Frame, key: Coordinate
) -> tuple[Node, ...]:
    """The groups of queries and keys; several of them as one."""
    query = [three(low, low.value(asks, frame.scope), frame.row, frame) for asks, _ in groups]
    keys = [three(low, low.value(answers, frame.scope), key, frame) for _, answers in groups]
    if len(groups) == 1:
        return query[0], keys[0]
    pair = low.text.fresh("groups")
    low.text.assign(pair, call(add_helper(low, "joint", JOINT), List(tuple(query)), List(tuple(keys))))
    return (Prefix("*", Name(pair)),)


def is_hull(attend: Attend) -> bool:
    """Whether one interval for each row says all that the guard says."""
    return len(attend.keys) == 1 and attend.keys[0].is_interval


def hull_of(low: Lowering, op: str, attend: Attend, frame: Frame) -> Node:
    """The first key (the one beyond the last) that each row may attend to, counted from the first there is."""
    key = attend.attention.key
    expr = hull_expr(op, attend)
    if expr is None:
        expr = key.lower if op == "min" else key.upper
    if key.lower != build.whole(0, key.span):
        expr = build.apply("-", (expr, key.lower), "whole", key.span)
    value = low.value(expr, frame.scope)
    rows = () if frame.row is None else (frame.row,)
    if value.python:
        length: Part = 1 if frame.row is None else sizes.length(low, frame.row, frame.scope)
        return call("torch.full", (length,), value.code, device="device")
    axes = (*frame.batch, *rows)
    inner = tuple(axis for axis in axes if axis in value.axes or axis in rows)
    shown = aligned(arrays.broadcast(low, arrays.in_order(low, value, inner), inner, frame.scope), axes)
    return shown.code if rows else fill("{x}[..., None]", x=shown.code)


def hull_expr(op: str, attend: Attend) -> ir.Expr | None:
    """The bounds of the one piece as one; None where there are several pieces, or none to say."""
    if len(attend.keys) != 1:
        return None
    bounds = attend.keys[0].lower if op == "min" else attend.keys[0].upper
    expr = bounds[0] if bounds else None
    for other in bounds[1:]:
        assert expr is not None
        expr = build.apply("max" if op == "min" else "min", (expr, other), "whole", other.span)
    return expr


def hull(low: Lowering, op: str, attend: Attend, frame: Frame) -> Node:
    """The first (one beyond the last) key that some row may attend to: for each row where that is plain."""
    key = attend.attention.key
    expr = hull_expr(op, attend)
    if expr is None or not expr.type.coordinates <= {frame.row}:
        return sizes.number(low, key.lower if op == "min" else key.upper)
    return low.value(expr, frame.scope).code


def operand_value(low: Lowering, expr: ir.Expr, kept: Scope) -> Value:
    """A query, key or value: it is evaluated where some pair that it takes part in is kept."""
    asked = kept if is_plain_read(low, expr, kept) else low.prover.projected(kept, expr.type.coordinates)
    return low.value(expr, asked)


def has_a_key(attend: Attend) -> ir.Expr:
    """Whether a row attends to any key at all, of a guard that is intervals."""
    key = attend.attention.key
    result: ir.Expr | None = None
    for piece in attend.keys:
        low, high = key.lower, key.upper
        for bound in piece.lower:
            low = build.apply("max", (low, bound), "whole", bound.span)
        for bound in piece.upper:
            high = build.apply("min", (high, bound), "whole", bound.span)
        some = build.apply("<", (low, high), "bool", key.span)
        result = some if result is None else build.apply("||", (result, some), "bool", key.span)
    assert result is not None
    return result


JOINT = '''
def joint(queries, keys):
    """Several groups as one: equal where all of them are."""
    query, key = queries[0], keys[0]
    for asks, answers in zip(queries[1:], keys[1:]):
        if asks.numel() == 0 or answers.numel() == 0:
            continue
        least = torch.minimum(asks.min(), answers.min())
        count = torch.maximum(asks.max(), answers.max()) - least + 1
        query, key = query * count + asks - least, key * count + answers - least
    return query, key
'''
