"""Attention as one Triton kernel: which parts of its score and guard the kernel takes, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import polynomial, step_of
from ....ir.dtypes import real_dtype
from ....ir.functions import FUNCTIONS
from ....ir.text import shown
from ....ir.types import Coordinate, Dtype, widest
from ....ir.walk import children, substitute, walk
from ....plan.steps import Attend, Dot, Softpick
from ....plan.target import STREAM, WIDEST
from ....records import dataclass
from .reach import reach
from .scores import dot_of

_SIGNS = frozenset(("+", "-", "*", "/", "//", "%", "neg", "&&", "||", "!", "==", "!=", "<", "<=", ">", ">="))
_TAKEN: frozenset[Dtype] = frozenset(("f16", "bf16", "f32"))


def dots_of(expr: ir.Expr, rows: frozenset[Coordinate], key: Coordinate) -> Iterator[tuple[ir.Expr, Dot | str]]:
    """The sums in a score that vary with query and key, each as a dot product or with the reason why it is none."""
    if key not in expr.type.coordinates or not expr.type.coordinates & rows:
        return
    if isinstance(expr, ir.Reduce):
        found = dot_of(expr, rows, key) if expr.op == "sum" else None
        yield expr, found if found is not None else f"`{expr.op}` in the score is no dot product"
        return
    for child in children(expr):
        yield from dots_of(child, rows, key)


def refusal(attend: Attend, dtypes: Mapping[str, Dtype]) -> str | None:
    """Why the kernel does not compute an attention of these dtypes; None where it does."""
    attention, row = attend.attention, attend.row
    if not set(dtypes.values()) & {"f16", "bf16", "f32", "f64"} <= _TAKEN:
        return "matrix units have no f64"
    if row is None:
        return "there is one query for each point of the batch"
    if isinstance(attention.normaliser, Softpick):
        return "its weights are picked, and it knows exponentials and weights that nothing normalises"
    starts = (attention.key.lower, attend.domain.range(row).lower)
    if not all(isinstance(start, ir.Const) and start.value == 0 for start in starts):
        return "queries or keys begin above 0"
    if not attend.domain.pieces:
        return "no query attends to any key"
    rows, key = frozenset((row,)), attention.coordinate
    dots = list(dict.fromkeys(dots_of(attention.score, rows, key)))
    if not dots:
        return "no dot product in the score"
    for _, found in dots:
        if isinstance(found, str):
            return found
    for expr in attention.parts:
        reason = unprinted(expr, rows, key)
        if reason is not None:
            return reason
    for table in tables_of(attention.score, row, key):
        if not table.index.type.coordinates <= {row, key}:
            return f"`{shown(table.index)}` is an index that depends on more than query and key"
        if None in ends_of(attend, table.index):
            return f"`{shown(table.index)}` is an index of which the ends are not known"
    if tables_of(build.conjunction(attention.guard), row, key):
        return "a guard reads a table at a function of query and key"
    return None


def product_dtypes(
    dots: Iterable[Dot], value: ir.Expr, dtypes: Mapping[str, Dtype], weak: frozenset[str], result: Dtype
) -> tuple[Dtype, ...]:
    """The dtype in which each dot product is taken, and behind these the one in which weights are multiplied with
    values: what promotion gives of both sides. Arrays in the rest of a score widen the `result` and no product."""
    sides = [*((dot.query, dot.key) for dot in dots), (value,)]
    return tuple(widest(real_dtype(side, dtypes, weak) for side in both) or result for both in sides)


def compares_plainly(attend: Attend) -> bool:
    """Whether both sides of the one dot product in a score are those of the score itself, so that the gradients of the
    kernel are theirs; and another kernel has gradients where this one leaves a call to it."""
    row, own = attend.row, attend.scores.dot
    if row is None or own is None or attend.otherwise == STREAM:
        return False
    dots = list(dict.fromkeys(dots_of(attend.attention.score, frozenset((row,)), attend.attention.coordinate)))
    found = dots[0][1]
    return len(dots) == 1 and isinstance(found, Dot) and (found.query, found.key) == (own.query, own.key)


def limits(attend: Attend, otherwise: str) -> tuple[str, ...]:
    """The calls that the kernel leaves to another one, in words."""
    row, key = attend.row, attend.attention.coordinate
    assert row is not None
    words = [f"where a head is more than {WIDEST} wide: by {otherwise}"]
    pair = {row, key}
    reads = (part for part in walk(attend.attention.score) if isinstance(part, ir.Read) and part.type.kind == "real")
    for read in dict.fromkeys(read for read in reads if pair <= read.type.coordinates):
        table = table_of(read, row, key)
        if table is not None and not table.is_relative:
            words.append(f"where `{read.tensor}` wants a gradient: by {otherwise}")
    for table in tables_of(attend.attention.score, row, key):
        words.append(f"where sizes let `{shown(table.index)}` leave `{table.read.tensor}`: by {otherwise}")
    return tuple(words)


@dataclass(frozen=True)
class Table:
    """A read of a tensor along one axis of which the place is a function of query and key."""

    read: ir.Read
    axis: int
    row: Coordinate
    key: Coordinate

    @property
    def index(self) -> ir.Expr:
        return self.read.indices[self.axis]

    @property
    def is_relative(self) -> bool:
        """Whether the place depends on the distance of query and key alone."""
        return _is_relative(self.index, self.row, self.key)

    @property
    def is_distinct(self) -> bool:
        """Whether it changes with each step of the query, by the same number."""
        return bool(step_of(self.index, self.row))

    @property
    def rule(self) -> Rule | None:
        """The place by arithmetic, where it depends on the distance of query and key alone."""
        return _rule(self.index, self.row, self.key) if self.is_relative else None


@dataclass(frozen=True)
class Rule:
    """The place of pairs in a table: so many steps for each that the key is behind its query, and an offset; then at
    least one number, then at most another, None where there is none."""

    slope: int
    offset: ir.Expr
    least: ir.Expr | None = None
    most: ir.Expr | None = None

    def plus(self, more: ir.Expr) -> Rule:
        def moved(end: ir.Expr) -> ir.Expr:
            return build.apply("+", (end, more), "whole", end.span)

        return Rule(self.slope, moved(self.offset), self.least and moved(self.least), self.most and moved(self.most))

    def negative(self) -> Rule:
        def turned(end: ir.Expr) -> ir.Expr:
            return build.apply("neg", (end,), "whole", end.span)

        found = Rule(-self.slope, turned(self.offset), None, self.least and turned(self.least))
        return found if self.most is None else found.at_least(turned(self.most))

    def at_least(self, end: ir.Expr) -> Rule:
        """The rule with places below `end` moved to it."""
        least = end if self.least is None else build.apply("max", (self.least, end), "whole", end.span)
        most = None if self.most is None else build.apply("max", (self.most, end), "whole", end.span)
        return Rule(self.slope, self.offset, least, most)

    def at_most(self, end: ir.Expr) -> Rule:
        most = end if self.most is None else build.apply("min", (self.most, end), "whole", end.span)
        return Rule(self.slope, self.offset, self.least, most)


def _rule(expr: ir.Expr, row: Coordinate, key: Coordinate) -> Rule | None:
    """A function of the distance of query and key as a rule; None where it is more than sums and ends."""
    slope = step_of(expr, row)
    if slope is not None:
        zero = build.whole(0, expr.span)
        return Rule(slope, substitute(expr, {row: zero, key: zero}))
    match expr:
        case ir.Map("neg", (inner,)):
            found = _rule(inner, row, key)
            return found and found.negative()
        case ir.Map("-", (left, right)):
            negative = build.apply("neg", (right,), "whole", right.span)
            return _rule(build.apply("+", (left, negative), "whole", expr.span), row, key)
        case ir.Map("clamp", (inner, least, most)):
            ends = build.apply("max", (inner, least), "whole", expr.span)
            return _rule(build.apply("min", (ends, most), "whole", expr.span), row, key)
        case ir.Map("+" | "min" | "max" as op, (left, right)):
            inner, end = (right, left) if not left.type.coordinates else (left, right)
            found = None if end.type.coordinates else _rule(inner, row, key)
            return found and {"+": found.plus, "min": found.at_most, "max": found.at_least}[op](end)
    return None


def table_of(expr: ir.Expr, row: Coordinate, key: Coordinate) -> Table | None:
    """A read as one of a table; None where it is none."""
    if not isinstance(expr, ir.Read) or not {row, key} <= expr.type.coordinates:
        return None
    tied = [n for n, index in enumerate(expr.indices) if index.type.coordinates & {row, key}]
    return Table(expr, tied[0], row, key) if len(tied) == 1 else None


def tables_of(expr: ir.Expr | None, row: Coordinate, key: Coordinate) -> list[Table]:
    """The tables that an expression reads."""
    parts = () if expr is None else walk(expr)
    found = (table_of(part, row, key) for part in parts)
    return [table for table in dict.fromkeys(found) if table is not None]


def ends_of(attend: Attend, place: ir.Expr) -> tuple[ir.Expr | None, ir.Expr | None]:
    """The least and the largest value of a whole number of query and key, free of coordinates: at pairs that meet, or
    at all where that is not known."""
    ranges = {range.coordinate: range for range in attend.domain.box}
    lowest = highest = None
    for guard in (attend.attention.guard, ()):
        found = reach(place, ranges, attend.domain.lets, guard)
        lowest, highest = lowest or _known(found.lowest), highest or _known(found.highest)
        if lowest is not None and highest is not None:
            break
    return lowest, highest


def _known(end: ir.Expr | None) -> ir.Expr | None:
    return None if end is None or end.type.coordinates else end


def _is_relative(expr: ir.Expr, row: Coordinate, key: Coordinate) -> bool:
    if not expr.type.coordinates & {row, key}:
        return True
    if expr.type.kind == "whole":
        terms = polynomial(expr)
        moved = polynomial(substitute(expr, {c: _next(c, expr) for c in (row, key)}))
        if terms == moved:
            return True
    match expr:
        case ir.Map("==" | "!=" | "<" | "<=" | ">" | ">=", (left, right)):
            return _is_relative(build.apply("-", (left, right), "whole", expr.span), row, key)
        case ir.Map() | ir.Select():
            return all(_is_relative(child, row, key) for child in children(expr))
    return False


def _next(coordinate: Coordinate, like: ir.Expr) -> ir.Expr:
    return build.apply("+", (build.coord(coordinate, like.span), build.whole(1, like.span)), "whole", like.span)


def unprinted(expr: ir.Expr, rows: frozenset[Coordinate], key: Coordinate) -> str | None:
    """The first part that varies with query and key and that the kernel cannot compute."""
    coordinates = expr.type.coordinates
    pair = key in coordinates and bool(coordinates & rows)
    match expr:
        case ir.Const() | ir.Coord() | ir.Size():
            return None
        case ir.Reduce() if pair:
            return None if expr.op == "sum" else f"`{expr.op}` in a guard or score"
        case ir.Read() | ir.Array() | ir.Reduce() | ir.Normalize():
            if not pair:
                return None
            if not isinstance(expr, ir.Read):
                return "an array literal read at query and key, or a normaliser in the score"
            bare = [index.coordinate for index in expr.indices if isinstance(index, ir.Coord)]
            tied = [index for index in expr.indices if index.type.coordinates & {*rows, key}]
            if len(tied) == 2 and all(isinstance(index, ir.Coord) for index in tied) and len(set(bare)) == len(bare):
                return None
            if len(tied) != 1:
                return f"`{expr.tensor}` is read at several functions of query and key"
            return None
        case ir.Map(op):
            if op not in _SIGNS and not op.startswith("as f") and not _power(expr):
                if op not in FUNCTIONS or FUNCTIONS[op].triton == "unknown":
                    return f"`{op}` has no spelling in Triton"
                if expr.type.kind != "real" and op not in ("min", "max", "clamp", "abs", "relu"):
                    return f"`{op}` of whole numbers"
            if op == "%" and expr.type.kind == "real":
                return "a remainder of reals"
        case ir.Select():
            pass
    for child in children(expr):
        reason = unprinted(child, rows, key)
        if reason is not None:
            return reason
    return None


def _power(expr: ir.Map) -> bool:
    """Whether this is a small whole power."""
    match expr:
        case ir.Map("**", (_, ir.Const(exponent))):
            return not isinstance(exponent, bool) and exponent in (1, 2, 3, 4)
    return False
