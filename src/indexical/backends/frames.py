"""The axes that kernels take: what keeps apart, who asks, a last one; and operands in that shape."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import renamed_apart, walk
from ..plan.steps import Attend, Step
from .base import ATOM, PRODUCT, Value
from .expressions import constant
from .scope import Place, Scope
from .tiles import Meeting
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
    """Operands and results of kernels, the bounds of what is heard, in the coordinates of an attention."""

    steps: dict[str, Step] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)

    def helped(self, name: str, text: str) -> str:
        """A small function above the emitted one, that kernels are called through."""
        self.text.helpers.setdefault(name, text)
        return name

    def frame(self, let: ir.Let, attend: Attend) -> Frame:
        """One coordinate asks: that of the guard, else the last. Others that ask keep apart, too."""
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
    ) -> str:
        """An array of four axes: what keeps apart twice, a row, a column."""
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
        text = value.atom
        if row is None:
            text = f"{text}[..., None, :]" if columns else f"{text}[..., None]"
        if not columns:
            text = f"{text}[..., None]"
        if len(columns) > 1:
            text = f"{text}.flatten({-len(columns)})"
        return self.folded_batch(text, len(frame.batch))

    def folded_batch(self, text: str, count: int) -> str:
        """What keeps apart, as two axes."""
        if count == 0:
            return f"{text}[None, None]"
        if count == 1:
            return f"{text}[None]"
        return text if count == 2 else f"{text}.flatten(0, {count - 2})"

    def restored(self, text: str, let: ir.Let, attend: Attend, frame: Frame) -> Value:
        """The result of a kernel with its own axes again."""
        batch, carry = frame.batch, attend.layout.carry
        value = Value(text, (), "real", self.dtypes[let.name])
        if len(batch) < 2:
            value = value.but(text=f"{value.atom}[0, 0]" if not batch else f"{value.atom}[0]")
        elif len(batch) > 2:
            value = value.but(text=f"{value.atom}.unflatten(0, {self.shape(batch[:-1], frame.scope)})")
        if not carry:
            value = value.but(text=f"{value.atom}[..., 0]")
        elif len(carry) > 1:
            value = value.but(text=f"{value.atom}.unflatten(-1, {self.shape(carry, frame.scope)})")
        rows: tuple[Coordinate, ...] = () if frame.row is None else (frame.row,)
        if frame.row is None:
            value = value.but(text=f"{value.atom}[{', '.join([':'] * len(batch) + ['0'])}]")
        return replace(value, axes=(*batch, *rows, *carry))

    def scale(self, attend: Attend, frame: Frame) -> tuple[str, ir.Expr]:
        """The scale of the scores as a plain number, and the query's side; a scale from an array goes there."""
        dot = attend.scores.dot
        assert dot is not None
        if dot.scale is None:
            return "1.0", dot.query
        if self.is_scaled_before(attend):
            return "1.0", build.apply("*", (dot.query, dot.scale), "real", dot.query.span)
        divisors: list[str] = []
        shown = self.plain_scale(dot.scale, divisors)
        assert shown is not None
        if not divisors:
            return shown.text, dot.query
        variable = self.text.fresh("scale")
        self.text.line(f"{variable} = {shown.text} if {' and '.join(divisors)} else math.nan")
        return variable, dot.query

    def is_scaled_before(self, attend: Attend) -> bool:
        """Whether a kernel is handed a query that is scaled already: it takes plain numbers, and one that masks before
        it scales would turn its -inf around."""
        scale = None if attend.scores.dot is None else attend.scores.dot.scale
        if scale is None:
            return False
        negative = any(isinstance(part, ir.Const) and part.value < 0 for part in walk(scale))
        return negative or self.plain_scale(scale, []) is None

    def plain_scale(self, expr: ir.Expr, divisors: list[str]) -> Value | None:
        """A scale of figures, sizes and their roots, in plain Python; None for any other. By 0 it is NaN."""

        def number(text: str, binds: int = ATOM) -> Value:
            return Value(text, (), "real", None, binds, True)

        match expr:
            case ir.Const():
                return constant(expr)
            case ir.Size(coordinate):
                return number(self.sizes[coordinate])
            case ir.Map("sqrt", (ir.Size(coordinate),)):
                return number(f"math.sqrt({self.sizes[coordinate]})")
            case ir.Map("*" | "/" as op, (left, right)) if expr.type.kind == "real":
                first, second = self.plain_scale(left, divisors), self.plain_scale(right, divisors)
                if first is None or second is None:
                    return None
                if op == "/":
                    divisors += [self.sizes[p.coordinate] for p in walk(right) if isinstance(p, ir.Size)]
                return number(f"{first.within(PRODUCT)} {op} {second.within(PRODUCT + 1)}", PRODUCT)
            case _:
                return None

    # -------------------------------------------------------------- who is heard

    def bound(self, op: str, bounds: tuple[ir.Expr, ...], key: ir.Range, frame: Frame) -> str:
        """A bound of every row's keys, counted from the first key: three axes, of which the first two may be 1."""
        first = key.lower
        expr = bounds[0] if bounds else key.lower if op == "max" else key.upper
        for other in bounds[1:]:
            expr = build.apply(op, (expr, other), "whole", other.span)
        if first != build.whole(0, expr.span):
            expr = build.apply("-", (expr, first), "whole", expr.span)
        return self.three(self.value(expr, frame.scope), frame.row, frame)

    def three(self, value: Value, last: Coordinate | None, frame: Frame) -> str:
        """A whole array as (batch or 1, head or 1, rows)."""
        lasts = () if last is None else (last,)
        if value.python:
            length = "1" if last is None else self.length(last, frame.scope)
            return f"torch.full((1, 1, {length}), {value.text}, device=device)"
        many = len(frame.batch) > 2
        axes = tuple(a for a in (*frame.batch, *lasts) if a in value.axes or a in lasts or many)
        value = self.spread(self.turned(value, axes), axes, frame.scope)
        if last is None:
            value = replace(value, text=f"{value.atom}[..., None]")
        if many:
            return f"{value.atom}.flatten(0, {len(frame.batch) - 2})"
        slots = ["None"] * (2 - len(frame.batch)) + [":" if axis in axes else "None" for axis in frame.batch]
        if slots == [":", ":"]:
            return value.text
        return f"{value.atom}[{', '.join(slots)}]"

    def group_words(self, groups: tuple[tuple[ir.Expr, ir.Expr], ...], frame: Frame, key: Coordinate) -> str:
        """The groups of queries and keys; several of them as one."""
        query = [self.three(self.value(asks, frame.scope), frame.row, frame) for asks, _ in groups]
        keys = [self.three(self.value(answers, frame.scope), key, frame) for _, answers in groups]
        if len(groups) == 1:
            return f", {query[0]}, {keys[0]}"
        pair = self.text.fresh("groups")
        self.text.line(f"{pair} = {self.helped('joint', JOINT)}([{', '.join(query)}], [{', '.join(keys)}])")
        return f", *{pair}"

    def is_hull(self, attend: Attend) -> bool:
        """Whether one interval for each row says all that the guard says."""
        return len(attend.keys) == 1 and attend.keys[0].is_interval

    def hull_of(self, op: str, attend: Attend, frame: Frame) -> str:
        """The first key (the one beyond the last) that each row may hear, counted from the first there is."""
        key = attend.attention.key
        expr = self.hull_expr(op, attend)
        if expr is None:
            expr = key.lower if op == "min" else key.upper
        if key.lower != build.whole(0, key.span):
            expr = build.apply("-", (expr, key.lower), "whole", key.span)
        value = self.value(expr, frame.scope)
        rows = () if frame.row is None else (frame.row,)
        if value.python:
            length = "1" if frame.row is None else self.length(frame.row, frame.scope)
            return f"torch.full(({length},), {value.text}, device=device)"
        axes = (*frame.batch, *rows)
        inner = tuple(axis for axis in axes if axis in value.axes or axis in rows)
        shown = aligned(self.spread(self.turned(value, inner), inner, frame.scope), axes)
        return shown.text if rows else f"{shown.atom}[..., None]"

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

    def hull(self, op: str, attend: Attend, frame: Frame) -> str:
        """The first (one beyond the last) key that some row may hear: for each row where that is plain."""
        key = attend.attention.key
        expr = self.hull_expr(op, attend)
        if expr is None or not expr.type.coordinates <= {frame.row}:
            return self.number(key.lower if op == "min" else key.upper)
        return self.value(expr, frame.scope).text


def hears_somebody(attend: Attend) -> ir.Expr:
    """Whether a row hears any key at all, of a guard that is intervals."""
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
