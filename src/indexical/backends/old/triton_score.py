"""Expressions over one tile of queries and keys, as Triton: each part computed as early as what it varies with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeAlias

from ...ir import build
from ...ir import nodes as ir
from ...ir.algebra.factors import Factor, factors_of
from ...ir.conditions import negated
from ...ir.functions import FUNCTIONS
from ...ir.types import Coordinate, Kind
from ...ir.walk import walk
from ...plan.steps import Dot
from ...records import dataclass, field
from ...transform.slopes import partials
from .code import (
    Name,
    Node,
    Number,
    call,
    chain,
    fill,
    infix,
    method,
    negative,
    show,
    spelled,
)
from .plan.gpu import Table, table_of
from .triton_places import FIRST_KEY, NEAR, NEAR_KEYS, TILE, counted_from_tile, saturated
from .triton_words import array_name

Axis: TypeAlias = Literal["row", "key"]

NOWHERE: frozenset[Axis] = frozenset()
ROW: frozenset[Axis] = frozenset(("row",))
KEY: frozenset[Axis] = frozenset(("key",))
PAIR: frozenset[Axis] = ROW | KEY
LOG2E = Fraction(math.log2(math.e))

# By names that no tensor can have: the cotangent of the scores, its two parts (weights times the cotangents of weights,
# and weights, of which the mean of the former is yet to be taken off).
SEEDS = D_SCORE, GAINED, WEIGHT = "d_score'", "gained'", "p'"
D_SINK = "d_sink'"


@dataclass(eq=False)
class Cell:
    """A value of a tile: its axes, and its code from that of its parts, which stand side by side with a `sign` between
    them where it has one. A `plain` one is a name or a number. An `open` one may be NaN or infinite where its parts are
    finite, as the square root of a distance is at keys that are ahead."""

    axes: frozenset[Axis]
    kind: Kind
    make: Callable[..., Node]
    parts: tuple[Cell, ...] = ()
    label: str = ""
    plain: bool = False
    operand: Operand | None = None
    sign: str = ""
    open: bool = False

    @cached_property
    def is_open(self) -> bool:
        """Whether it, or what it is made of for each query, key or pair, is so."""
        return bool(self.axes) and (self.open or any(part.is_open for part in self.parts))

    @property
    def name(self) -> str:
        """Its name where it has a line of its own: its label, or one by its kind and axes."""
        kinds = {"whole": ("number", "row_place", "key_place", "distance"), "bool": ("holds",) * 4}
        words = kinds.get(self.kind, ("factor", "row_term", "key_term", "term"))
        return self.label or words[(NOWHERE, ROW, KEY, PAIR).index(self.axes)]

    @property
    def subject(self) -> str:
        """The name of what it is made of above all, which varies with most; nothing where that has none."""
        if self.operand is not None:
            return self.operand.name
        if not self.parts:
            code = show(self.make())
            return code if code.isidentifier() else ""
        return next(filter(None, (part.subject for part in sorted(self.parts, key=lambda part: -len(part.axes)))), "")


@dataclass(eq=False)
class Operand:
    """An array that a kernel reads besides queries, keys and values: at each head, and along these axes."""

    expr: ir.Expr
    name: str
    axes: frozenset[Axis]
    table: Table | None = None

    @property
    def pointer(self) -> str:
        return f"{self.name}_ptr"

    @property
    def strides(self) -> tuple[str, ...]:
        own = ("at",) if self.table is not None else tuple(a for a in ("row", "key") if a in self.axes)
        return tuple(f"{self.name}_{axis}" for axis in ("b", "h", *own))

    @property
    def level(self) -> str:
        """The axes along which it varies, in a word."""
        if self.table is not None:
            return "distances" if self.table.is_distinct else "table"
        return "".join(a for a in ("row", "key") if a in self.axes)

    @property
    def is_learned(self) -> bool:
        return self.expr.type.kind == "real"


# What flows to each dot product and array of a score: a value of the pair, and a number of the program that this is yet
# to be multiplied with.
Flow = dict[ir.Expr, tuple[Cell, Cell | None]]


@dataclass
class Terms:
    """The values of a tile of one attention, each kept once; `numbers` are what the kernel is told by the host. With
    `tiled`, a program has a tile of its own, from which distances are counted."""

    batch: tuple[Coordinate, ...]
    row: Coordinate
    key: Coordinate
    dots: dict[ir.Expr, Dot]
    number: Callable[[ir.Expr], str | None]
    fast: bool
    tiled: bool = False
    taken: set[str] = field(default_factory=set)
    operands: list[Operand] = field(default_factory=list)
    numbers: dict[str, Kind] = field(default_factory=dict)
    cells: dict[tuple[ir.Expr, bool], Cell] = field(default_factory=dict)
    partly: set[ir.Expr] = field(default_factory=set)  # Those to which nothing flows where a condition fails.
    distances: dict[Cell, str] = field(default_factory=dict)  # Each of a query and a key with this sign between them.

    def fresh(self, name: str) -> str:
        name = array_name(name)
        result, number = name, 1
        while result in self.taken:
            number += 1
            result = f"{name}_{number}"
        self.taken.add(result)
        return result

    # ---------------------------------------------------------------------- values

    def value(self, expr: ir.Expr) -> Cell:
        return self._kept(expr, False)

    def bound(self, expr: ir.Expr) -> Cell:
        """The value of a bound of places."""
        return self.value(saturated(expr))

    def real(self, expr: ir.Expr) -> Cell:
        """The value as a real: whole numbers become real while they are few, not where they fill a tile."""
        return self._kept(expr, expr.type.kind == "whole")

    def _kept(self, expr: ir.Expr, converted: bool) -> Cell:
        found = self.cells.get((expr, converted))
        if found is None:
            found = self._converted(expr) if converted else self._made(expr)
            self.cells[expr, converted] = found
        return found

    def _converted(self, expr: ir.Expr) -> Cell:
        # Places are exact as reals. What is given may be too large for that: the difference of two times.
        early = self.value(expr).axes == PAIR and not any(isinstance(part, ir.Read) for part in walk(expr))
        even = counted_from_tile(expr, self.row, self.key) if early and self.tiled else None
        if even is not None:
            sides = self.offset(even.row, "row_offset"), self.offset(even.key, "key_offset")
            distance = self.joined(even.sign, sides, "real", "distance")
            self.distances[distance] = even.sign
            return distance
        match expr:
            case ir.Const(value):
                return _plain(Number(repr(float(value))), "real")
            case ir.Map("+" | "-" | "*" as op, (left, right)) if early:
                return self.joined(op, (self.real(left), self.real(right)), "real", "distance")
            case ir.Map("neg", (operand,)):
                return self._unary(lambda x: negative(x), self.real(operand), "real")
            case ir.Map("abs" | "max" | "min" | "clamp" as op, arguments) if early:
                return self._function(op, tuple(map(self.real, arguments)), "real", places=True)
        whole = self.value(expr)
        return self._unary(lambda x: method(x, "to", "tl.float32"), whole, "real", _about("real", whole))

    def offset(self, expr: ir.Expr, label: str) -> Cell:
        """A whole number that is counted from a tile, as a real."""
        cell = self.real(expr)
        cell.label = label
        return cell

    def _made(self, expr: ir.Expr) -> Cell:
        kind = expr.type.kind
        if expr in self.dots:
            number = list(self.dots).index(expr)
            return Cell(PAIR, "real", lambda: Name(dot_name(number)), plain=True)
        match expr:
            case ir.Const(value):
                return _plain(Name(str(value)) if isinstance(value, bool) else constant(value, kind), kind)
            case ir.Read(tensor, ()) if tensor in SEEDS:
                return Cell(PAIR, "real", lambda: Name(tensor[:-1]), plain=True)
            case ir.Read(tensor, ()) if tensor == D_SINK:
                return Cell(ROW, "real", lambda: Name("sunk"), plain=True)
            case ir.Read(tensor, ()) if tensor in (*TILE, FIRST_KEY):
                return _plain(Name(tensor[:-1]), "whole")
            case ir.Read(tensor, ()) if tensor == NEAR_KEYS:
                return Cell(KEY, "whole", lambda: Name(tensor[:-1]), plain=True)
            case ir.Coord(coordinate) if coordinate == self.row:
                return Cell(ROW, "whole", lambda: Name("rows"), plain=True)
            case ir.Coord(coordinate) if coordinate == self.key:
                return Cell(KEY, "whole", lambda: Name("keys"), plain=True)
            case ir.Coord(coordinate) if coordinate in self.batch and len(self.batch) <= 2:
                return _plain(Name("h" if coordinate == self.batch[-1] else "b"), "whole")
            case ir.Map() if kind == "real" and expr.op in ("*", "/"):
                return self._product(factors_of(expr))
            case ir.Map(op, arguments):
                return self._map(expr, op, arguments)
            case ir.Select(condition, then, otherwise):
                sides = [self.real(side) if kind == "real" else self.value(side) for side in (then, otherwise)]
                return self._call("tl.where", (self.value(condition), *sides), kind)
        told = self.number(expr)
        if told is not None:
            self.numbers[told] = kind
            return _plain(Name(told), kind)
        return self._operand(expr)

    def _map(self, expr: ir.Map, op: str, arguments: tuple[ir.Expr, ...]) -> Cell:
        kind = expr.type.kind
        if self.fast and op in _BINARY:
            return self._function(op, (self.scaled(arguments[0]),), kind)
        real = kind == "real" or any(argument.type.kind == "real" for argument in arguments)
        cells = tuple(self.real(argument) if real else self.value(argument) for argument in arguments)
        if op == NEAR:
            return self._unary(lambda x: call("near_place", x), cells[0], kind, cells[0].subject)
        if kind == "whole":
            cells = tuple(map(self._wide, cells))
        match op:
            case "+" | "-" | "*" | "//" | "%" | "==" | "!=" | "<" | "<=" | ">" | ">=":
                return self.joined(op, cells, kind)
            case "&&":
                return self.joined("&", cells, kind)
            case "||":
                return self.joined("|", cells, kind)
            case "!":
                return self._unary(lambda x: infix("==", x, 0), cells[0], kind)
            case "neg":
                return self._unary(lambda x: negative(x), cells[0], kind)
            case "**":
                assert isinstance(arguments[1], ir.Const)
                times = int(arguments[1].value)
                base = self._named(cells[0])
                # Places have 31 bits, and reals 127 before the point.
                return Cell(base.axes, kind, lambda x: chain("*", [x] * times), (base,), open=times > 4)
        if op.startswith("as "):
            return cells[0]
        return self._function(op, cells, kind)

    def _function(self, op: str, cells: tuple[Cell, ...], kind: Kind, places: bool = False) -> Cell:
        """A function of the table, of whole numbers or of `places` where none is NaN."""
        row = FUNCTIONS[op]
        assert row.triton != "unknown"
        spelling = (self.fast and row.triton.fast) or row.triton.call
        if places or kind == "whole":
            spelling = spelling.replace("larger", "tl.maximum").replace("smaller", "tl.minimum")
        if op in ("max", "min"):
            result = cells[0]
            for other in cells[1:]:
                result = self._call(spelling, (result, other), kind)
            return result
        if spelling.count("{0}") > 1:
            cells = (self._named(cells[0]), *cells[1:])
        label, is_open = _about(op, *cells), not row.finite
        return Cell(_joint(cells), kind, lambda *codes: spelled(spelling, *codes), cells, label, open=is_open)

    def _named(self, cell: Cell) -> Cell:
        """The cell, which is used several times and so has a name."""
        if cell.plain:
            return cell
        return Cell(cell.axes, cell.kind, lambda *codes: codes[0], (cell, cell), cell.label)

    def _product(self, factors: list[Factor]) -> Cell:
        """A product: what is the same for the whole program is one number."""
        cells = [(self.real(f.expr), f.inverse) for f in factors]
        scalar = [(cell, inverse) for cell, inverse in cells if not cell.axes]
        others = [(cell, inverse) for cell, inverse in cells if cell.axes]
        if not others or not scalar:
            result = self._times(cells)
            if len(cells) > 1 and not others and _reads_array(result):
                result.label = result.label or _about("scaled", result)
            return result
        number = self._times(scalar)
        label = _about("scaled", number) if _reads_array(number) else "scale"
        number = Cell(NOWHERE, "real", number.make, number.parts, label, number.plain)
        product = self._times(others)
        return self.joined("*", (product, number), "real", _about("scaled", product))

    def _times(self, cells: list[tuple[Cell, bool]]) -> Cell:
        result: Cell | None = None
        for cell, inverse in sorted(cells, key=lambda pair: pair[1]):
            if result is None:
                result = self.joined("/", (_plain(Number("1.0"), "real"), cell), "real") if inverse else cell
            else:
                result = self.joined("/" if inverse else "*", (result, cell), "real")
        assert result is not None
        return result

    def joined(self, op: str, cells: tuple[Cell, ...], kind: Kind, label: str = "") -> Cell:
        """Cells side by side with a sign between them."""
        by_zero = op == "/" and bool(cells[1].axes)
        return Cell(_joint(cells), kind, lambda *codes: chain(op, list(codes)), cells, label, sign=op, open=by_zero)

    def label(self, expr: ir.Expr, label: str) -> None:
        """Say what a value is called, unless it is a name or called something already."""
        cell = self.value(expr)
        cell.label = cell.label or label

    def all_of(self, cells: Iterable[Cell]) -> Cell | None:
        """A test that all of these hold; None where there are none."""
        several = tuple(cells)
        if len(several) < 2:
            return several[0] if several else None
        return self.joined("&", several, "bool")

    def _call(self, function: str, cells: tuple[Cell, ...], kind: Kind) -> Cell:
        return Cell(_joint(cells), kind, lambda *codes: call(function, *codes), cells)

    def _wide(self, cell: Cell) -> Cell:
        """A whole number that is computed with: one that is given may have too few bits for what comes of it."""
        return cell if cell.operand is None else self._unary(lambda x: method(x, "to", "tl.int64"), cell, "whole")

    def _unary(self, make: Callable[[Node], Node], cell: Cell, kind: Kind, label: str = "") -> Cell:
        return Cell(cell.axes, kind, make, (cell,), label)

    # -------------------------------------------------------------------- operands

    def _operand(self, expr: ir.Expr) -> Cell:
        """An array of the program, read where the tile is."""
        coordinates = expr.type.coordinates
        axes: frozenset[Axis] = frozenset()
        axes |= ROW if self.row in coordinates else NOWHERE
        axes |= KEY if self.key in coordinates else NOWHERE
        label = expr.tensor if isinstance(expr, ir.Read) else "known"
        table = table_of(expr, self.row, self.key)
        if array_name(label) in self.taken and len(axes) == 1:
            label = f"{''.join(axes)}_{label}"
        operand = Operand(expr, self.fresh(label), axes, table)
        self.operands.append(operand)
        parts = self._lead(operand)
        if table is not None:
            parts.append(
                self.joined("*", (self.value(table.index), _plain(Name(operand.strides[2]), "whole")), "whole")
            )
        for axis, name in (("row", "rows"), ("key", "keys")):
            if axis in axes and table is None:
                stride = f"{operand.name}_{axis}"
                place = f"{operand.name}_{name}"
                own = Cell(ROW if axis == "row" else KEY, "whole", self._offset(name, stride), (), place)
                parts.append(own)
        kind = expr.type.kind

        def load(*codes: Node) -> Node:
            loaded: Node = call("tl.load", chain("+", list(codes)))
            return method(loaded, "to", "tl.float32") if kind == "real" else loaded

        def load_truth(*codes: Node) -> Node:
            return infix("!=", load(*codes), 0)

        make = load_truth if kind == "bool" else load
        return Cell(_joint(parts), kind, make, tuple(parts), operand.name, operand=operand)

    def _lead(self, operand: Operand) -> list[Cell]:
        """The place of an array at a head."""
        place: Node = fill("{p} + b * {b} + h * {h}", p=operand.pointer, b=operand.strides[0], h=operand.strides[1])
        return [Cell(NOWHERE, "whole", lambda: place, (), f"{operand.name}_at")]

    def _offset(self, name: str, stride: str) -> Callable[[], Node]:
        return lambda: fill("{x}.to(tl.int64) * {s}", x=name, s=stride)

    # ---------------------------------------------------------------------- scores

    def in_base_two(self, score: ir.Expr) -> tuple[Cell, Cell]:
        """The score times log2(e), as a value of the pair and a positive number of the program to multiply it with."""
        larger = build.apply("*", (score, build.real(LOG2E, score.span)), "real", score.span)
        factors = factors_of(larger)
        outer = [f for f in factors if not self.real(f.expr).axes and _is_positive(f.expr)]
        inner = [f for f in factors if f not in outer]
        if not outer or not inner:
            return self.real(larger), UNSCALED
        number = self._times([(self.real(f.expr), f.inverse) for f in outer])
        number = Cell(NOWHERE, "real", number.make, number.parts, "scale", number.plain)
        return self._product(inner), number

    def scaled(self, exponent: ir.Expr) -> Cell:
        """An exponent of e as one of 2."""
        return self.real(_scaled(exponent, build.real(LOG2E, exponent.span)))

    def backward(self, score: ir.Expr, seed: str) -> Flow:
        """The cotangent of every dot product and array in the score, from that of the score."""
        found: dict[ir.Expr, list[ir.Expr]] = {}
        self._flow(score, build.read(seed, (), "real", score.span), found)
        result: Flow = {}
        for leaf, terms in found.items():
            if any(isinstance(part, ir.Select) for term in terms for part in walk(term)):
                self.partly.add(leaf)
            if len(terms) > 1:
                total = terms[0]
                for term in terms[1:]:
                    total = build.apply("+", (total, term), "real", score.span)
                result[leaf] = self.real(total), None
                continue
            factors = [(self.real(f.expr), f.inverse) for f in factors_of(terms[0])]
            outer = [(cell, inverse) for cell, inverse in factors if not cell.axes]
            inner = [(cell, inverse) for cell, inverse in factors if cell.axes]
            result[leaf] = self._times(inner), self._times(outer) if outer else None
        return result

    def chosen(self, score: ir.Expr) -> dict[ir.Expr, Cell]:
        """For dot products that stand in branches of a score alone, whether one of these is taken."""
        found: dict[ir.Expr, list[ir.Expr | None]] = {}
        self._branch(score, None, found)
        result: dict[ir.Expr, Cell] = {}
        for leaf, conditions in found.items():
            known = tuple(self.value(condition) for condition in dict.fromkeys(conditions) if condition is not None)
            if None not in conditions:
                result[leaf] = known[0] if len(known) == 1 else self.joined("|", known, "bool")
        return result

    def _branch(self, expr: ir.Expr, taken: ir.Expr | None, found: dict[ir.Expr, list[ir.Expr | None]]) -> None:
        if expr in self.dots:
            found.setdefault(expr, []).append(taken)
            return
        match expr:
            case ir.Map(_, arguments):
                for argument in arguments:
                    self._branch(argument, taken, found)
            case ir.Select(condition, then, otherwise):
                self._branch(then, build.conjunction((taken, condition)), found)
                self._branch(otherwise, build.conjunction((taken, negated(condition))), found)

    def _flow(self, expr: ir.Expr, gradient: ir.Expr, found: dict[ir.Expr, list[ir.Expr]]) -> None:
        if expr.type.kind != "real":
            return
        if expr in self.dots:
            found.setdefault(expr, []).append(gradient)
            return
        match expr:
            case ir.Map():
                for argument, partial in zip(expr.arguments, partials(expr), strict=True):
                    if partial is not None:
                        self._flow(argument, self._through(gradient, partial), found)
            case ir.Select(condition, then, otherwise):
                zero = build.real(Fraction(0), expr.span)
                self._flow(then, build.select(condition, gradient, zero, expr.span), found)
                self._flow(otherwise, build.select(condition, zero, gradient, expr.span), found)
            case ir.Const() | ir.Coord() | ir.Size():
                pass
            case _ if self.value(expr).operand is not None:
                found.setdefault(expr, []).append(gradient)
            case _:
                pass

    def _through(self, gradient: ir.Expr, partial: ir.Expr) -> ir.Expr:
        """The gradient times a derivative: 0 where one of the two is 0 by a condition, also if the other is NaN.
        Numbers of the program are multiplied with outside of conditions, once."""
        match gradient, partial:
            case _, ir.Const(value) if value in (0, 1):
                return gradient if value else partial
            case ir.Const(value=0), _:
                return gradient
            case _ if not partial.type.coordinates & {self.row, self.key}:
                return build.apply("*", (gradient, partial), "real", gradient.span)
            case ir.Map("*", (inner, number)), _ if not number.type.coordinates & {self.row, self.key}:
                return build.apply("*", (self._through(inner, partial), number), "real", gradient.span)
            case ir.Select(condition, then, otherwise), _:
                sides = self._through(then, partial), self._through(otherwise, partial)
                return build.select(condition, *sides, gradient.span)
            case _, ir.Select(condition, then, otherwise):
                sides = self._through(gradient, then), self._through(gradient, otherwise)
                return build.select(condition, *sides, gradient.span)
            case ir.Map("+", (ir.Select() as left, ir.Select() as right)), _:
                sides = self._through(left, partial), self._through(right, partial)
                return build.apply("+", sides, "real", gradient.span)
            case _, ir.Map("+", (ir.Select() as left, ir.Select() as right)):
                sides = self._through(gradient, left), self._through(gradient, right)
                return build.apply("+", sides, "real", gradient.span)
        return build.apply("*", (gradient, partial), "real", gradient.span)


# Functions whose fast form takes an exponent of 2.
_BINARY = frozenset(name for name, row in FUNCTIONS.items() if row.triton != "unknown" and row.triton.binary)


def dot_name(number: int) -> str:
    return "dot" if number == 0 else f"dot_{number + 1}"


_LARGE = 1 << 28


def constant(value: int | Fraction, kind: Kind) -> Node:
    """A number as it is written. A large whole one has 64 bits, so that what is added to it does not overflow."""
    if value == LOG2E:
        return Name("LOG2_E")
    if kind == "real":
        return Number(repr(float(value)))
    return Number(str(value)) if abs(int(value)) < _LARGE else fill(f"tl.full((), {value}, tl.int64)")


def _plain(code: Node, kind: Kind) -> Cell:
    return Cell(NOWHERE, kind, lambda: code, plain=True)


# What an exponent of 2 is multiplied with that is one already.
UNSCALED = _plain(Number("1.0"), "real")


def _about(word: str, *cells: Cell) -> str:
    """A label for what is made of cells: the word, and what it is about."""
    subject = next((cell.subject for cell in cells if cell.subject), "value")
    return f"{word}_{subject}"


def _reads_array(cell: Cell) -> bool:
    return cell.operand is not None or any(map(_reads_array, cell.parts))


def _joint(cells: Iterable[Cell]) -> frozenset[Axis]:
    return NOWHERE.union(*(cell.axes for cell in cells))


def _scaled(expr: ir.Expr, by: ir.Expr) -> ir.Expr:
    """The expression times a number, which goes to where it costs least."""
    match expr:
        case ir.Map("+" | "-" as op, (left, right)):
            return build.apply(op, (_scaled(left, by), _scaled(right, by)), "real", expr.span)
        case ir.Map("neg", (operand,)):
            return build.apply("neg", (_scaled(operand, by),), "real", expr.span)
    return build.apply("*", (expr, by), "real", expr.span)


def _is_positive(expr: ir.Expr) -> bool:
    match expr:
        case ir.Const(value):
            return value > 0
        case ir.Size():
            return True
        case ir.Map("sqrt", (inner,)):
            return _is_positive(inner)
    return False
