"""Attention → a call of the kernel that the plan chose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.types import Coordinate
from ..ir.walk import walk
from ..plan.choose import FUSED, INTERVALS, TILES
from ..plan.steps import Attend, Step
from .base import ATOM, PRODUCT, UNARY, Value
from .definitions import Definer
from .expressions import Stored, constant
from .scope import Place, Scope
from .streams import Stream
from .tiles import Tile
from .values import aligned


@dataclass(frozen=True, slots=True)
class Frame:
    """The four axes that kernels take: two of what keeps apart, the rows that ask, and a last one."""

    batch: tuple[Coordinate, ...]
    row: Coordinate | None
    scope: Scope


@dataclass
class Attending(Definer):
    """Definitions, of which some are attentions that a kernel computes whole."""

    steps: dict[str, Step] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    kernels: dict[str, set[str]] = field(default_factory=dict)

    def define(self, let: ir.Let) -> None:
        step = self.steps.get(let.name)
        if step is None or step.attend is None:
            super().define(let)
            return
        self.begin(let, [self.lets[name] for name in step.covers])
        variable = self.text.fresh(let.name)
        attend = step.attend
        frame = self.frame(let, attend)
        if self.text.dialect.name == "numpy":
            value = self.blocks(let, attend, frame)
        elif step.kernel == FUSED:
            value = self.fused(let, attend, frame)
        elif step.kernel in (INTERVALS, TILES):
            value = self.intervals(let, attend, frame, step.kernel == TILES)
        else:
            value = self.stream(let, attend, frame)
        clause = let.clauses[0]
        guard = clause.guard
        if guard is not None:
            zero = Value("0", (), "real", None, ATOM, True)
            value = self.where(self.value(guard, frame.scope), self.text.short(value, let.name), zero, frame.scope, value.dtype)
        self.text.line(f"{variable} = {self.finished(let, value, clause, {}).text}")
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])

    def frame(self, let: ir.Let, attend: Attend) -> Frame:
        """One coordinate asks: that of the guard, else the last. Others that ask keep apart, too."""
        layout = attend.layout
        guarded = [c for c in layout.rows if any(c in guard.type.coordinates for guard in attend.attention.guard)]
        row = (guarded or list(layout.rows) or [None])[-1]
        batch = tuple(
            axis.coordinate for axis in let.axes if axis.coordinate != row and axis.coordinate not in layout.carry
        )
        scope = self.scope_of(let.clauses[0], {})
        key = attend.attention.key
        scope = scope.binding(key, Place(key.lower, key.upper, True))
        for range in attend.scores.dot.compared if attend.scores.dot is not None else ():
            scope = scope.binding(range, Place(range.lower, range.upper, not range.stated))
        return Frame(batch, row, scope)

    # ----------------------------------------------------------------- operands

    def operand(
        self, expr: ir.Expr, row: Coordinate | None, columns: tuple[Coordinate, ...], frame: Frame, let: ir.Let
    ) -> str:
        """An array of four axes: what keeps apart twice, a row, a column."""
        value = self.text.short(self.real(self.value(expr, frame.scope)), let.name)
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

    def unfolded(self, text: str, let: ir.Let, attend: Attend, frame: Frame) -> Value:
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
        divisors: list[str] = []
        shown = self.plain(dot.scale, divisors)
        if shown is None:
            return "1.0", build.apply("*", (dot.query, dot.scale), "real", dot.query.span)
        if not divisors:
            return shown.text, dot.query
        variable = self.text.fresh("scale")
        self.text.line(f"{variable} = {shown.text} if {' and '.join(divisors)} else math.nan")
        return variable, dot.query

    def plain(self, expr: ir.Expr, divisors: list[str]) -> Value | None:
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
                first, second = self.plain(left, divisors), self.plain(right, divisors)
                if first is None or second is None:
                    return None
                if op == "/":
                    divisors += [self.sizes[p.coordinate] for p in walk(right) if isinstance(p, ir.Size)]
                return number(f"{first.within(PRODUCT)} {op} {second.within(PRODUCT + 1)}", PRODUCT)
            case _:
                return None

    # ------------------------------------------------------------------- kernels

    def fused(self, let: ir.Let, attend: Attend, frame: Frame) -> Value:
        """The library's own kernel."""
        dot = attend.scores.dot
        assert dot is not None
        scale, query = self.scale(attend, frame)
        compared = tuple(range.coordinate for range in dot.compared)
        groups = self.grouped(attend, frame)
        q = self.operand(query, frame.row, compared, frame, let)
        causal = ", is_causal=True" if attend.shape == "causal" else ""
        words = f"{causal}, scale={scale}"
        name = self.text.helper("attend")
        if groups is not None:
            shared, test, key, answer = groups
            k = self.operand(key, attend.attention.coordinate, compared, shared, let)
            v = self.operand(answer, attend.attention.coordinate, attend.layout.carry, shared, let)
            variable = self.text.fresh(f"{let.name}_rows")
            self.text.line(f"if {test}:")
            with self.block():
                self.text.line(f"{variable} = {name}({q}, {k}, {v}{words}, enable_gqa=True)")
            self.text.line("else:")
            with self.block():
                k = self.operand(dot.key, attend.attention.coordinate, compared, frame, let)
                v = self.operand(attend.attention.value, attend.attention.coordinate, attend.layout.carry, frame, let)
                self.text.line(f"{variable} = {name}({q}, {k}, {v}{words})")
            return self.unfolded(variable, let, attend, frame)
        k = self.operand(dot.key, attend.attention.coordinate, compared, frame, let)
        v = self.operand(attend.attention.value, attend.attention.coordinate, attend.layout.carry, frame, let)
        return self.unfolded(f"{name}({q}, {k}, {v}{words})", let, attend, frame)

    def grouped(self, attend: Attend, frame: Frame) -> tuple[Frame, str, ir.Expr, ir.Expr] | None:
        """Heads that share keys and values, `K[b, h / G, j, d]`: the frame of the shared ones, when that is all
        of them, and both sides read at the shared head."""
        dot = attend.scores.dot
        if dot is None or not frame.batch:
            return None
        head = frame.batch[-1]
        found = []
        for expr in (dot.key, attend.attention.value):
            if not isinstance(expr, ir.Read):
                return None
            places = [n for n, index in enumerate(expr.indices) if head in index.type.coordinates]
            match [expr.indices[n] for n in places]:
                case [ir.Map("//", (ir.Coord(), group))] if not group.type.coordinates:
                    found.append((expr, places[0], group, self.tensors[expr.tensor].axes[places[0]].extent))
                case _:
                    return None
        (key, _, group, extent), (answer, _, other, other_extent) = found
        if group != other or polynomial(extent) != polynomial(other_extent):
            return None
        place = frame.scope.places[head]
        if not isinstance(place.start, ir.Const) or place.start.value != 0:
            return None
        shared = Coordinate(f"{head.name}_shared")
        scope = frame.scope.binding(
            ir.Range(shared, place.start, extent, False, key.span), Place(place.start, extent, True)
        )
        order = {(shared if c == head else c): scope.places[shared if c == head else c] for c in scope.places if c != shared}
        new = Frame((*frame.batch[:-1], shared), frame.row, Scope(order, scope.trail))
        test = f"{self.number(place.stop)} == {self._times(group, extent)}"
        read = [_reading(expr, n, shared) for expr, n, _, _ in found]
        return new, test, read[0], read[1]

    def _times(self, group: ir.Expr, extent: ir.Expr) -> str:
        return self.number(build.apply("*", (group, extent), "whole", extent.span))

    def intervals(self, let: ir.Let, attend: Attend, frame: Frame, tiles: bool) -> Value:
        """Each query with its intervals of keys, computed from the guard by arithmetic."""
        dot = attend.scores.dot
        assert dot is not None
        key = attend.attention.coordinate
        scale, query = self.scale(attend, frame)
        compared = tuple(range.coordinate for range in dot.compared)
        q = self.operand(query, frame.row, compared, frame, let)
        k = self.operand(dot.key, key, compared, frame, let)
        v = self.operand(attend.attention.value, key, attend.layout.carry, frame, let)
        pieces = attend.mask.pieces
        alone = len(pieces) == 1
        lower = [self.bound("max", piece.lower, attend.attention.key, frame) for piece in pieces]
        upper = [self.bound("min", piece.upper, attend.attention.key, frame) for piece in pieces]
        rest = pieces[0].rest if alone else ()
        groups = pieces[0].groups if alone else ()
        if not alone and any(piece.rest or piece.groups for piece in pieces):
            lower, upper = lower[:0], upper[:0]
            lower.append(self.bound("max", (), attend.attention.key, frame))
            upper.append(self.bound("min", (), attend.attention.key, frame))
            rest = attend.attention.guard
        bounds = self.text.fresh("lower"), self.text.fresh("upper")
        for name, texts in zip(bounds, (lower, upper), strict=True):
            self.text.line(f"{name} = torch.stack(({', '.join(texts)},))")
        words = f"{q}, {k}, {v}, {bounds[0]}, {bounds[1]}, {scale}"
        if groups:
            words += self.group_words(groups, frame, key)
        if not tiles or (attend.scores.bias is None and not rest):
            self.kernels.setdefault("torch_intervals", set()).add("attend_within")
            return self.unfolded(f"attend_within({words})", let, attend, frame)
        self.kernels.setdefault("torch_intervals", set()).add("with_tiles")
        tile = Tile(self, let, attend, frame.batch, frame.row, attend.scores.bias, rest)
        name = tile.write()
        call = self.unfolded(f"{name}({words}, arrays=[{', '.join(tile.arguments)}])", let, attend, frame)
        learned = tile.learned()
        if not learned:
            return call
        variable = self.text.fresh(f"{let.name}_rows")
        wanted = " or ".join(f"{array}.requires_grad" for array in learned)
        self.text.line(f"if torch.is_grad_enabled() and {wanted if len(learned) == 1 else f'({wanted})'}:")
        with self.block():
            streamed = self.stream(let, attend, frame)
            self.text.line(f"{variable} = {streamed.text}")
        self.text.line("else:")
        with self.block():
            self.text.line(f"{variable} = {self.turned(call, streamed.axes).text}")
        return streamed.but(text=variable, binds=ATOM)

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
        self.text.line(f"{pair} = {self.text.helper('joint')}([{', '.join(query)}], [{', '.join(keys)}])")
        return f", *{pair}"

    def stream(self, let: ir.Let, attend: Attend, frame: Frame) -> Value:
        """An online softmax over blocks of keys, for scores of any kind."""
        self.kernels.setdefault("torch_stream", set()).add("streaming")
        key, carry = attend.attention.coordinate, attend.layout.carry
        guard = () if self.is_hull(attend, frame) else attend.attention.guard
        stream = Stream(self, let, attend, frame.batch, frame.row, attend.attention.score, guard)
        name = stream.write()
        value = self.text.short(self.real(self.value(attend.attention.value, frame.scope)), let.name)
        if value.dtype != self.dtypes[let.name]:
            value = self.text.dialect.cast(self.strong(value), self.dtypes[let.name])
        axes = (*frame.batch, key, *carry)
        value = self.spread(self.turned(value, axes), axes, frame.scope)
        shown = value.text if len(carry) == 1 else f"{value.atom}[..., None]" if not carry else f"{value.atom}.flatten({-len(carry)})"
        bounds = [self.hull_of(op, attend, frame) for op in ("min", "max")]
        rows = "1" if frame.row is None else self.length(frame.row, frame.scope)
        call = f"{name}([{', '.join(stream.arguments)}], {shown}, {bounds[0]}, {bounds[1]}, {rows})"
        result = Value(call, (*frame.batch, *(() if frame.row is None else (frame.row,)), *carry), "real", self.dtypes[let.name])
        if frame.row is None or len(carry) != 1:
            result = result.but(text=f"{call}.reshape({self.shape(result.axes, frame.scope) if result.axes else '()'})")
        return result

    def is_hull(self, attend: Attend, frame: Frame) -> bool:
        """Whether one interval for each row says all that the guard says."""
        match attend.mask.pieces:
            case (piece,) if not piece.groups and not piece.rest:
                return all(bound.type.coordinates <= {frame.row} for bound in (*piece.lower, *piece.upper))
            case _:
                return False

    def hull_of(self, op: str, attend: Attend, frame: Frame) -> str:
        """As `hull`, as a tensor of one axis, counted from the first key."""
        key = attend.attention.key
        first = self.number(key.lower)
        shown = self.hull(op, attend, frame)
        less = "" if first == "0" else f" - {first}"
        rows = "1" if frame.row is None else self.length(frame.row, frame.scope)
        if shown in (self.number(key.lower), self.number(key.upper)):
            return f"torch.full(({rows},), {shown}{less}, device=device)"
        return f"{shown}{less}"

    def blocks(self, let: ir.Let, attend: Attend, frame: Frame) -> Value:
        """Blocks of rows against blocks of keys, with an online softmax, in plain NumPy."""
        self.kernels.setdefault("numpy_stream", set()).add("attend_blocks")
        key = attend.attention.key
        scores, values = self.text.fresh(f"{let.name}_scores"), self.text.fresh(f"{let.name}_values")
        rows = () if frame.row is None else (frame.row,)
        tile = Tile(self, let, attend, frame.batch, frame.row, None, ())
        windows = {axis: ("r0", "r1") for axis in rows} | {key.coordinate: ("k0", "k1")}
        self.text.line(f"def {scores}(r0, r1, k0, k1):")
        inner, scope = tile.emitter(windows, self.text)
        with self.text.indented():
            score = inner.real(inner.value(attend.attention.score, scope))
            masks = inner.masks((), build.conjunction(attend.attention.guard), scope)
            mask = inner.conjunction(masks, scope)
            if mask is not None:
                nothing = Value("-math.inf", (), "real", None, UNARY, True)
                score = inner.where(mask, self.strong(score), nothing, scope, score.dtype)
            axes = (*frame.batch, *rows, key.coordinate)
            present = tuple(a for a in axes if a in score.axes or a in rows or a == key.coordinate)
            score = inner.spread(inner.turned(score, present), present, scope)
            self.text.line(f"return {_spaced(score, axes, frame.row)}")
        self.text.line(f"def {values}(k0, k1):")
        inner, scope = tile.emitter(windows, self.text)
        with self.text.indented():
            value = inner.real(inner.value(attend.attention.value, scope))
            axes = (*frame.batch, key.coordinate, *attend.layout.carry)
            value = inner.turned(value, tuple(a for a in axes if a in value.axes))
            shown = _spaced(value, axes, key.coordinate)
            if len(attend.layout.carry) != 1:
                shown = f"{shown}[..., None]" if not attend.layout.carry else f"{_atom(shown)}.reshape(*{_atom(shown)}.shape[:{-len(attend.layout.carry)}], -1)"
            self.text.line(f"return {shown}")
        bounds = [self.hull(op, attend, frame) for op in ("min", "max")]
        count = "1" if frame.row is None else self.length(frame.row, frame.scope)
        width = " * ".join(self.length(c, frame.scope) for c in attend.layout.carry) or "1"
        lengths = [self.length(axis, frame.scope) for axis in frame.batch]
        shape = f"({', '.join([*lengths, count, width])})"
        ends = f"({self.number(key.lower)}, {self.number(key.upper)})"
        dtype = self.text.dialect.dtype(self.dtypes[let.name])
        call = f"attend_blocks({scores}, {values}, {bounds[0]}, {bounds[1]}, {count}, {ends}, {shape}, {dtype})"
        result = Value(call, (*frame.batch, *rows, *attend.layout.carry), "real", self.dtypes[let.name])
        if frame.row is None or len(attend.layout.carry) != 1:
            result = result.but(text=f"{call}.reshape({self.shape(result.axes, frame.scope) if result.axes else '()'})")
        return result

    def hull(self, op: str, attend: Attend, frame: Frame) -> str:
        """The first (one beyond the last) key that some row may hear: for each row where that is plain."""
        key = attend.attention.key
        bounds = [piece.lower if op == "min" else piece.upper for piece in attend.mask.pieces]
        otherwise = self.number(key.lower if op == "min" else key.upper)
        if len(bounds) != 1 or not bounds[0]:
            return otherwise
        expr = bounds[0][0]
        for other in bounds[0][1:]:
            expr = build.apply("max" if op == "min" else "min", (expr, other), "whole", other.span)
        if not expr.type.coordinates <= {frame.row}:
            return otherwise
        return self.value(expr, frame.scope).text


def _spaced(value: Value, axes: tuple[Coordinate, ...], row: Coordinate | None) -> str:
    """The value with a place for every axis from its first, so that it broadcasts as a batch of matrices."""
    text = aligned(value, axes).text if row is not None else value.text
    return text if row is not None else f"{_atom(text)}[..., None, :]"


def _atom(text: str) -> str:
    return text if text.isidentifier() else f"({text})"


def _reading(expr: ir.Read, axis: int, shared: Coordinate) -> ir.Expr:
    indices = tuple(build.coord(shared, index.span) if n == axis else index for n, index in enumerate(expr.indices))
    return build.read(expr.tensor, indices, expr.type.kind, expr.span)

