"""The axes that kernels take: batch axes, queries, a last one; and operands in that shape."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import renamed_apart, walk
from ..plan.steps import Attend, Step
from .base import Value
from .code import (
    ALL,
    NAN,
    NONE,
    ZERO,
    Index,
    Infix,
    List,
    Name,
    Node,
    Number,
    Part,
    Prefix,
    Ternary,
    call,
    chain,
    fill,
)
from .expressions import constant
from .layout import Statement
from .scope import Place, Scope
from .tiles import Meeting, spaced
from .values import aligned


@dataclass(frozen=True, slots=True)
class Frame:
    """The four axes that kernels take: two batch axes, the query axis, and a last one. Queries, keys and values are
    read at pairs that the guards keep: `heard` is the `scope` with these guards."""

    batch: tuple[Coordinate, ...]
    row: Coordinate | None
    scope: Scope
    heard: Scope


@dataclass
class Framed(Meeting):
    """Operands and results of kernels and the bounds of their keys, in the coordinates of an attention. `functions` are
    the functions of tiles, `inner` their statements."""

    steps: dict[str, Step] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    inner: list[Statement] = field(default_factory=list)

    def helped(self, name: str, text: str) -> str:
        """A small function above the emitted one, that kernels are called through."""
        self.text.helpers.setdefault(name, text)
        return name

    def frame(self, let: ir.Let, attend: Attend) -> Frame:
        """One coordinate is the query axis: that of the guard, else the last. Others of the query become batch axes."""
        layout, row = attend.layout, attend.row
        batch = tuple(
            axis.coordinate for axis in let.axes if axis.coordinate != row and axis.coordinate not in layout.carry
        )
        scope = self.scope_of(let.clauses[0], {})
        key = attend.attention.key
        scope = scope.binding(key, self.key_place(let, key))
        for range in attend.scores.dot.compared if attend.scores.dot is not None else ():
            scope = scope.binding(range, Place(range.lower, range.upper, not range.stated))
        return Frame(batch, row, scope, self.heard_scope(let, attend, scope))

    def heard_scope(self, let: ir.Let, attend: Attend, scope: Scope) -> Scope:
        """The scope at pairs of a query and a key that the guards of an attention and of its definition keep."""
        guard = build.conjunction((let.clauses[0].guard, *attend.attention.guard))
        return scope.where(None if guard is None else renamed_apart(guard, {c.name for c in scope.places}))

    def key_place(self, let: ir.Let, key: ir.Range) -> Place:
        """The keys. Where no range was stated, there are as many as every axis has that they index."""
        bound = [r for part in walk(let.clauses[0].body) if isinstance(part, ir.Reduce) for r in part.ranges]
        stated = any(range.stated for range in bound if range.coordinate == key.coordinate)
        return Place(key.lower, key.upper, not stated)

    # ----------------------------------------------------------------- operands

    def operand(
        self, expr: ir.Expr, row: Coordinate | None, columns: tuple[Coordinate, ...], frame: Frame, let: ir.Let
    ) -> Node:
        """An array of four axes: two batch axes, a row, a column."""
        value = self.text.short(self.real(self.heard_value(expr, frame.heard)), let.name)
        dtype = self.dtypes[let.name]
        if value.dtype != dtype:
            value = self.text.dialect.cast(self.strong(value), dtype)
        rows = (row,) if row is not None else ()
        inner = (*rows, *columns)
        present = tuple(axis for axis in frame.batch if axis in value.axes)
        value = self.turned(value, (*present, *inner))
        missing = tuple(axis for axis in inner if axis not in value.axes)
        if missing or present != frame.batch:
            value = self.spread(value, (*frame.batch, *inner), frame.scope)
        code = value.code
        if row is None:
            code = fill("{x}[..., None, :]" if columns else "{x}[..., None]", x=code)
        if not columns:
            code = fill("{x}[..., None]", x=code)
        if len(columns) > 1:
            code = self.text.dialect.flatten(code, -len(columns), -1)
        return self.folded_batch(code, len(frame.batch))

    def folded_batch(self, code: Node, count: int) -> Node:
        """The batch axes, as two."""
        if count == 0:
            return fill("{x}[None, None]", x=code)
        if count == 1:
            return fill("{x}[None]", x=code)
        return code if count == 2 else self.text.dialect.flatten(code, 0, count - 2)

    def restored(self, code: Node, let: ir.Let, attend: Attend, frame: Frame) -> Value:
        """The result of a kernel with its own axes again."""
        carry = attend.layout.carry
        code = self.unfolded_columns(self.unfolded_batch(code, frame), carry, frame)
        rows: tuple[Coordinate, ...] = () if frame.row is None else (frame.row,)
        if frame.row is None:
            code = Index(code, (*(ALL for _ in frame.batch), ZERO))
        return Value(code, (*frame.batch, *rows, *carry), "real", self.dtypes[let.name])

    def unfolded_batch(self, code: Node, frame: Frame) -> Node:
        """An array whose first two axes were folded batch axes, with the axes that they were made of."""
        if len(frame.batch) < 2:
            return fill("{x}[0]" if frame.batch else "{x}[0, 0]", x=code)
        if len(frame.batch) == 2:
            return code
        return self.text.dialect.unflatten(code, 0, self.shape(frame.batch[:-1], frame.scope), self.text)

    def unfolded_columns(self, code: Node, columns: tuple[Coordinate, ...], frame: Frame) -> Node:
        """An array whose last axis was all columns, with an axis for each."""
        if not columns:
            return fill("{x}[..., 0]", x=code)
        if len(columns) == 1:
            return code
        return self.text.dialect.unflatten(code, -1, self.shape(columns, frame.scope), self.text)

    def scale(self, attend: Attend, frame: Frame) -> tuple[Node, ir.Expr]:
        """The scale of the scores as a plain number, and the query's side; a scale from an array goes there."""
        dot = attend.scores.dot
        assert dot is not None
        if dot.scale is None:
            return Number("1.0"), dot.query
        if self.is_scaled_before(attend):
            return Number("1.0"), build.apply("*", (dot.query, dot.scale), "real", dot.query.span)
        scale = self.plain_scale(dot.scale)
        assert scale is not None
        if not isinstance(scale, Ternary):
            return scale, dot.query
        variable = self.text.fresh("scale")
        self.text.assign(variable, scale)
        return Name(variable), dot.query

    def is_scaled_before(self, attend: Attend) -> bool:
        """Whether a kernel is handed a query that is scaled already: it takes plain numbers, and one that masks before
        it scales would turn its -inf around."""
        scale = None if attend.scores.dot is None else attend.scores.dot.scale
        if scale is None:
            return False
        negative = any(isinstance(part, ir.Const) and part.value < 0 for part in walk(scale))
        return negative or self.plain_scale(scale) is None

    def plain_scale(self, expr: ir.Expr) -> Node | None:
        """A scale of figures, sizes and their roots, in plain Python; None for any other. By 0 it is NaN."""
        divisors: list[Node] = []
        code = self._figures(expr, divisors)
        return code if code is None or not divisors else Ternary(code, chain("and", divisors), NAN)

    def _figures(self, expr: ir.Expr, divisors: list[Node]) -> Node | None:
        """The scale itself. `divisors` grow by the sizes that it divides by."""
        match expr:
            case ir.Const():
                return constant(expr).code
            case ir.Size(coordinate):
                return Name(self.sizes[coordinate])
            case ir.Map("sqrt", (ir.Size(coordinate),)):
                return call("math.sqrt", self.sizes[coordinate])
            case ir.Map("*" | "/" as op, (left, right)) if expr.type.kind == "real":
                first, second = self._figures(left, divisors), self._figures(right, divisors)
                if first is None or second is None:
                    return None
                if op == "/":
                    divisors += [Name(self.sizes[p.coordinate]) for p in walk(right) if isinstance(p, ir.Size)]
                return Infix(op, first, second)
            case _:
                return None

    # -------------------------------------------------------------- who is heard

    def bound(self, op: str, bounds: tuple[ir.Expr, ...], key: ir.Range, frame: Frame) -> Node:
        """A bound of every row's keys, counted from the first key: three axes, of which the first two may be 1."""
        first = key.lower
        expr = bounds[0] if bounds else key.lower if op == "max" else key.upper
        for other in bounds[1:]:
            expr = build.apply(op, (expr, other), "whole", other.span)
        if first != build.whole(0, expr.span):
            expr = build.apply("-", (expr, first), "whole", expr.span)
        return self.three(self.value(expr, frame.scope), frame.row, frame)

    def three(self, value: Value, last: Coordinate | None, frame: Frame) -> Node:
        """A whole array as (batch or 1, head or 1, rows)."""
        lasts = () if last is None else (last,)
        if value.python:
            length: Part = 1 if last is None else self.length(last, frame.scope)
            return call("torch.full", (1, 1, length), value.code, device="device")
        many = len(frame.batch) > 2 and any(axis in value.axes for axis in frame.batch)
        axes = tuple(a for a in (*frame.batch, *lasts) if a in value.axes or a in lasts or many)
        code = self.spread(self.turned(value, axes), axes, frame.scope).code
        if last is None:
            code = fill("{x}[..., None]", x=code)
        if many:
            return self.folded_batch(code, len(frame.batch))
        new = [NONE] * (2 - len(frame.batch))
        return spaced(code, [*new, *(ALL if axis in axes else NONE for axis in frame.batch[:2])])

    def group_operands(
        self, groups: tuple[tuple[ir.Expr, ir.Expr], ...], frame: Frame, key: Coordinate
    ) -> tuple[Node, ...]:
        """The groups of queries and keys; several of them as one."""
        query = [self.three(self.value(asks, frame.scope), frame.row, frame) for asks, _ in groups]
        keys = [self.three(self.value(answers, frame.scope), key, frame) for _, answers in groups]
        if len(groups) == 1:
            return query[0], keys[0]
        pair = self.text.fresh("groups")
        self.text.assign(pair, call(self.helped("joint", JOINT), List(tuple(query)), List(tuple(keys))))
        return (Prefix("*", Name(pair)),)

    def is_hull(self, attend: Attend) -> bool:
        """Whether one interval for each row says all that the guard says."""
        return len(attend.keys) == 1 and attend.keys[0].is_interval

    def hull_of(self, op: str, attend: Attend, frame: Frame) -> Node:
        """The first key (the one beyond the last) that each row may attend to, counted from the first there is."""
        key = attend.attention.key
        expr = self.hull_expr(op, attend)
        if expr is None:
            expr = key.lower if op == "min" else key.upper
        if key.lower != build.whole(0, key.span):
            expr = build.apply("-", (expr, key.lower), "whole", key.span)
        value = self.value(expr, frame.scope)
        rows = () if frame.row is None else (frame.row,)
        if value.python:
            length: Part = 1 if frame.row is None else self.length(frame.row, frame.scope)
            return call("torch.full", (length,), value.code, device="device")
        axes = (*frame.batch, *rows)
        inner = tuple(axis for axis in axes if axis in value.axes or axis in rows)
        shown = aligned(self.spread(self.turned(value, inner), inner, frame.scope), axes)
        return shown.code if rows else fill("{x}[..., None]", x=shown.code)

    def hull_expr(self, op: str, attend: Attend) -> ir.Expr | None:
        """The bounds of the one piece as one; None where there are several pieces, or none to say."""
        if len(attend.keys) != 1:
            return None
        bounds = attend.keys[0].lower if op == "min" else attend.keys[0].upper
        expr = bounds[0] if bounds else None
        for other in bounds[1:]:
            assert expr is not None
            expr = build.apply("max" if op == "min" else "min", (expr, other), "whole", other.span)
        return expr

    def hull(self, op: str, attend: Attend, frame: Frame) -> Node:
        """The first (one beyond the last) key that some row may attend to: for each row where that is plain."""
        key = attend.attention.key
        expr = self.hull_expr(op, attend)
        if expr is None or not expr.type.coordinates <= {frame.row}:
            return self.number(key.lower if op == "min" else key.upper)
        return self.value(expr, frame.scope).code


def hears_somebody(attend: Attend) -> ir.Expr:
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
