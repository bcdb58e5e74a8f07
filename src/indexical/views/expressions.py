"""Expressions of a Program as the tree of a text that means the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar, assert_never

from ..checker.guards import mentioned
from ..ir import nodes as ir
from ..ir.functions import operation
from ..ir.types import Coordinate, Kind, join
from ..ir.walk import fresh, fresh_name
from ..records import dataclass, field, replace
from ..syntax import tree
from ..syntax.tokens import KEYWORDS
from ..syntax.vocabulary import RESERVED
from .figures import NOWHERE, Unwritable, array, constant, denominators, is_decimal, is_integral, numerators
from .inference import Guarded, Setting, evidence, short_index, simplified

Written = TypeVar("Written")

_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
_ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "**"))
# `i_1`, and `j_1_2` that was `j_1`.
_NUMBERED = re.compile(r"(.+)_\d+")
# Comparisons that chain: `0 <= a < n`.
_CHAINS = ({"<", "<="}, {">", ">="}, {"=="})


class Clash(Exception):
    """A coordinate has a name that means something else where it stands."""

    def __init__(self, coordinate: Coordinate, name: str) -> None:
        self.coordinate = coordinate
        self.name = name


def legal(name: str) -> str:
    """The name, or the nearest that the language allows."""
    kept = "".join(character if character.isalnum() or character == "_" else "_" for character in name)
    if not kept or not (kept[0].isalpha() or kept[0] == "_"):
        kept = f"_{kept}"
    return f"{kept}_" if kept in RESERVED or kept in KEYWORDS else kept


def circle_name(setting: Setting) -> str:
    """The name of a function that gives `pi` in a program that calls a tensor so."""
    return fresh_name("pi", set(setting.names.values()))


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a statement: the coordinates in force there, with their printed names and ranges.

    `owner` is the definition that the statement is of. `avoided` are names that a coordinate cannot have, and `taken`
    those that are left to others that have them already.
    """

    setting: Setting
    owner: str = ""
    avoided: frozenset[tuple[Coordinate, str]] = frozenset()
    taken: frozenset[str] = frozenset()
    names: Mapping[Coordinate, str] = field(default_factory=dict)
    ranges: Mapping[Coordinate, ir.Range] = field(default_factory=dict)

    def binding(self, ranges: tuple[ir.Range, ...]) -> Place:
        """The place inside what binds these coordinates."""
        here = self
        for range in ranges:
            name = here.free_name(range)
            names = {**here.names, range.coordinate: name}
            here = replace(here, names=names, ranges={**here.ranges, range.coordinate: range})
        return here

    def free_name(self, range: ir.Range) -> str:
        """A name for a coordinate that hides nothing, and is not declared to be of another space.

        Its own, if that will do. What was renamed to `i_1` beside an `i` that is not here is `i` again.
        """
        name = legal(range.coordinate.name)
        base, times = self.first_name(name)
        left = {own for coordinate, own in self.avoided if legal(coordinate.name) == own}
        candidates = [] if times and base in self.taken - left else [base]
        candidates += [name] if times == 1 else []
        for candidate in candidates:
            if self.is_free(range, candidate):
                return candidate
        unfit = {*self.names.values(), *self.setting.names.values(), *self.setting.sizes, *self.setting.spaces, base}
        return fresh(Coordinate(base), unfit | {name for _, name in self.avoided}).name

    def first_name(self, name: str) -> tuple[str, int]:
        """Return the name of a coordinate before it was renamed, and how often it was. What a reader has called `d_1`
        is no `d` that was renamed, nor is `d_1_1`, which was renamed after it."""
        base, times = name, 0
        while base not in self.setting.kept and (found := _NUMBERED.fullmatch(base)) is not None:
            base, times = str(found[1]), times + 1
        return (base, times) if times and base in self.setting.coordinates else (name, 0)

    def is_free(self, range: ir.Range, name: str) -> bool:
        if name in self.names.values() or name in self.setting.names.values() or self.is_foreign(range, name):
            return False
        return (range.coordinate, name) not in self.avoided

    def is_foreign(self, range: ir.Range, name: str) -> bool:
        declared = self.setting.spaces.get(name)
        if declared is None or range.coordinate.rest or range.coordinate.space == declared:
            return False
        return self.setting.classes.known(id(range)) != declared

    def settled(self, write: Callable[[Place], Written]) -> Written:
        """Write here, with other names for coordinates whose own names mean something else."""
        place = self
        while True:
            try:
                return write(place)
            except Clash as clash:
                place = replace(place, avoided=place.avoided | {(clash.coordinate, clash.name)})

    def without(self, coordinate: Coordinate) -> Place:
        """Return the place of the bounds of a coordinate: it is not in scope in its own range."""
        return replace(self, names={c: name for c, name in self.names.items() if c != coordinate})

    def name_of(self, coordinate: Coordinate) -> str:
        assert coordinate in self.names, f"`{coordinate}` is free in `{self.owner}`"
        return self.names[coordinate]

    def circle(self) -> tree.Expr:
        """`pi`; where a tensor is called so, a function that gives it: functions see no tensors of the program."""
        for bound, name in self.names.items():
            if name == "pi":
                raise Clash(bound, name)
        if "pi" not in self.setting.names.values():
            return tree.Name("pi", NOWHERE)
        return tree.Call(circle_name(self.setting), NOWHERE, (), NOWHERE)

    def sized(self, coordinate: Coordinate) -> tree.Expr:
        """`size(c)` of the inputs' `c`. Where another `c` is bound, that one has to step aside."""
        known = self.setting.sizes.get(coordinate.name)
        if coordinate.rest:
            raise Unwritable(f"the language has no word for how many points `{coordinate}` has")
        if not isinstance(known, ir.Size) or known.coordinate != coordinate:
            raise Unwritable(f"no input has the coordinate `{coordinate}`, and its size is asked for")
        for bound, name in self.names.items():
            if name == coordinate.name and not self.setting.is_same(self.setting.extent(self.ranges[bound]), known):
                raise Clash(bound, name)
        return tree.Call("size", NOWHERE, (tree.Name(coordinate.name, NOWHERE),), NOWHERE)


# ---------------------------------------------------------------- expressions


def written_expression(expr: ir.Expr, place: Place, beside_real: bool = False) -> tree.Expr:
    """An expression at a place. What stands `beside_real` is real whatever is written: `2` will do for 2.0."""
    match expr:
        case ir.Const():
            return constant(expr, beside_real)
        case ir.Coord(coordinate):
            if coordinate.rest:
                raise Unwritable(f"`{coordinate}` stands for several coordinates, and is no number")
            return tree.Name(place.name_of(coordinate), NOWHERE)
        case ir.Size(coordinate):
            return place.sized(coordinate)
        case ir.Read(tensor, indices) if tensor in place.setting.figures:
            return _figures(place.setting.figures[tensor], indices, place)
        case ir.Read(tensor, indices):
            name = tree.Name(place.setting.names[tensor], NOWHERE)
            return _indexed(name, indices, place) if indices else name
        case ir.Array(indices=indices):
            return _figures(expr, indices, place)
        case ir.Map():
            found = _operation(expr, place, beside_real)
            return _times_one(found) if comes_out_whole(expr) and not beside_real else found
        case ir.Select():
            return _choice(expr, place)
        case ir.Reduce() if not expr.ranges and expr.guard is None:
            return written_expression(expr.body, place)
        case ir.Reduce() | ir.Normalize():
            return scan(expr, place, inside=True)
        case _:
            assert_never(expr)


def _indexed(base: tree.Expr, indices: tuple[ir.Expr, ...], place: Place) -> tree.Expr:
    return tree.Index(base, tuple(_index(index, place) for index in indices), NOWHERE)


def _figures(figures: ir.Array, indices: tuple[ir.Expr, ...], place: Place) -> tree.Expr:
    """An array literal, read. Fractions whose decimals never end are two literals, one over the other."""
    if is_decimal(figures):
        return _indexed(array(figures.shape, figures.cells), indices, place)
    above, below = array(figures.shape, numerators(figures)), array(figures.shape, denominators(figures))
    return tree.Binary("/", _indexed(above, indices, place), _indexed(below, indices, place), NOWHERE)


def _index(index: ir.Expr, place: Place) -> tree.Expr | tree.Rest:
    if isinstance(index, ir.Coord) and index.coordinate.rest:
        return tree.Rest(place.name_of(index.coordinate), NOWHERE)
    return written_expression(short_index(index), place)


# ------------------------------------------------------------------------ kinds


def comes_out_whole(expr: ir.Expr) -> bool:
    """Whether what is real in the Program would be whole as it is printed. Beside a real that does no harm."""
    return expr.type.kind == "real" and _printed_kind(expr) == "whole"


def _printed_kind(expr: ir.Expr) -> Kind:
    """The kind that the checker would find in the printed expression, before anything is done about it."""
    match expr:
        case ir.Map(op, arguments) if operation(op).keeps_whole and op != "/":
            return join(argument.type.kind for argument in arguments)
        case ir.Select(_, then, otherwise):
            return join((then.type.kind, otherwise.type.kind))
        case ir.Reduce("sum" | "prod" | "max" | "min", _, body) | ir.Normalize("cumsum", _, body):
            return body.type.kind
        case _:
            return expr.type.kind


def _times_one(written: tree.Expr) -> tree.Expr:
    return tree.Binary("*", tree.Number("1.0", NOWHERE), written, NOWHERE)


# ------------------------------------------------------------------- operations


def _operation(expr: ir.Map, place: Place, beside_real: bool) -> tree.Expr:
    match expr.op, expr.arguments:
        case "neg", (operand,):
            beside_real = beside_real and (is_integral(expr) or not is_integral(operand))
            return tree.Unary("-", _operand(operand, place, beside_real), NOWHERE)
        case "!", (operand,):
            return tree.Unary("!", _operand(operand, place), NOWHERE)
        case "&&", _:
            parts = conjuncts(expr, place)
            result = parts[0]
            for part in parts[1:]:
                result = tree.Binary("&&", result, part, NOWHERE)
            return result
        case "||", (left, right):
            return tree.Binary("||", _operand(left, place), _operand(right, place), NOWHERE)
        case op, (_, _) if op in _COMPARISONS:
            return _comparison([expr], place)
        case op, arguments if op in _ARITHMETIC:
            return _arithmetic(op, arguments, place)
        case op, (operand,) if op.startswith("as "):
            return tree.Cast(_operand(operand, place), op[3:], NOWHERE)
        case "pi", ():
            return place.circle()
        case op, arguments:
            meets = operation(op).keeps_whole and any(_is_surely_real(argument) for argument in arguments)
            inner = tuple(written_expression(argument, place, meets) for argument in arguments)
            return tree.Call(op, NOWHERE, inner, NOWHERE)


def _operand(expr: ir.Expr, place: Place, beside_real: bool = False) -> tree.Expr:
    """An expression beside an operator. An `if` there is put in parentheses: its braces would seem to end it."""
    written = written_expression(expr, place, beside_real)
    return tree.Paren(written, NOWHERE) if isinstance(written, tree.If) else written


def _is_surely_real(expr: ir.Expr) -> bool:
    return expr.type.kind == "real" and not is_integral(expr) and not comes_out_whole(expr)


def _arithmetic(op: str, arguments: tuple[ir.Expr, ...], place: Place) -> tree.Expr:
    """`/` of two wholes would truncate: then one of them is made real."""
    meets = any(_is_surely_real(argument) for argument in arguments)
    sides = []
    for number, argument in enumerate(arguments):
        beside = meets or (number > 0 and arguments[0].type.kind == "real")
        sides.append(_operand(argument, place, beside))
    if op == "/" and all(argument.type.kind == "whole" for argument in arguments):
        sides[0] = as_real(arguments[0], sides[0])
    result = sides[0]
    for side in sides[1:]:
        result = tree.Binary("/" if op == "//" else op, result, side, NOWHERE)
    return result


def as_real(expr: ir.Expr, written: tree.Expr) -> tree.Expr:
    if isinstance(expr, ir.Const) and isinstance(written, tree.Number):
        return tree.Number(f"{written.text}.0", NOWHERE)
    return _times_one(written)


def _comparison(links: list[ir.Map], place: Place) -> tree.Expr:
    """A chain of comparisons, each of which starts with what the one before it ends with."""
    operands = [links[0].arguments[0], *(link.arguments[1] for link in links)]
    meets = any(_is_surely_real(operand) for operand in operands)
    sides = tuple(_operand(operand, place, meets) for operand in operands)
    return tree.Comparison(sides, tuple(link.op for link in links), NOWHERE)


def conjuncts(expr: ir.Expr, place: Place) -> list[tree.Expr]:
    """Split a conjunction into its parts, each written on its own; `0 <= a && a < n` is one chain."""
    groups: list[list[ir.Expr]] = []
    for part in _left_spine(expr):
        if groups and _continues(groups[-1][-1], part):
            groups[-1].append(part)
        else:
            groups.append([part])
    return [
        _comparison([link for link in group if isinstance(link, ir.Map)], place)
        if len(group) > 1
        else _operand(group[0], place)
        for group in groups
    ]


def _left_spine(expr: ir.Expr) -> list[ir.Expr]:
    parts: list[ir.Expr] = []
    while isinstance(expr, ir.Map) and expr.op == "&&":
        parts.append(expr.arguments[1])
        expr = expr.arguments[0]
    return [expr, *reversed(parts)]


def _continues(last: ir.Expr, next: ir.Expr) -> bool:
    if not (isinstance(last, ir.Map) and isinstance(next, ir.Map)):
        return False
    one_way = any({last.op, next.op} <= chain for chain in _CHAINS)
    return one_way and last.arguments[1] == next.arguments[0]


def _choice(expr: ir.Select, place: Place) -> tree.Expr:
    condition = written_expression(expr.condition, place)
    branches = [written_expression(branch, place) for branch in (expr.then, expr.otherwise)]
    if comes_out_whole(expr):
        branches[0] = as_real(expr.then, branches[0])
    then, otherwise = (tree.Block((), branch, (), NOWHERE) for branch in branches)
    return tree.If(condition, then, otherwise, NOWHERE)


# -------------------------------------------------------- reductions, normalisers


def scan(expr: ir.Reduce | ir.Normalize, place: Place, inside: bool) -> tree.Reduction:
    """A reduction or a normaliser, its guard `inside` its bracket or left to stand behind all."""
    if isinstance(expr, ir.Normalize):
        name = place.name_of(expr.coordinate)
        inner, binders = place, [tree.Binder(name, None, False, NOWHERE)]
    else:
        ordered = sorted(expr.ranges, key=lambda range: not range.coordinate.rest)
        inner = place.binding(tuple(ordered))
        binders = [
            binder(range, inner, _bounded(place, inner, ordered[:number]), (expr.guard, expr.body))
            for number, range in enumerate(ordered)
        ]
    body = written_expression(expr.body, inner)
    if comes_out_whole(expr):
        body = as_real(expr.body, body)
    where = guards(expr.guard, inner) if inside else ()
    return tree.Reduction(expr.op, NOWHERE, tuple(binders), body, where, NOWHERE)


def _bounded(outer: Place, inner: Place, before: list[ir.Range]) -> Place:
    """Return the place of the bounds of a range: only the coordinates bound before it are in scope."""
    known = {range.coordinate for range in before}
    names = {c: name for c, name in inner.names.items() if c in known or c in outer.names}
    return replace(inner, names=names)


def binder(range: ir.Range, inner: Place, outer: Place, parts: Guarded) -> tree.Binder:
    """A coordinate where it is bound, with its range where the text does not say it; its bounds stand `outer`."""
    name = inner.name_of(range.coordinate)
    found = evidence(range.coordinate, parts, inner.setting, inner.owner)
    if inner.setting.is_inferred(range, name, found):
        return tree.Binder(name, None, range.coordinate.rest, NOWHERE)
    return tree.Binder(name, stated(range, outer), False, NOWHERE)


def stated(range: ir.Range, outer: Place) -> tree.Range:
    lower = written_expression(simplified(range.lower), outer)
    match simplified(range.upper):
        case ir.Map("+", (last, ir.Const(1))):
            return tree.Range(lower, written_expression(last, outer), True, NOWHERE)
        case upper:
            return tree.Range(lower, written_expression(upper, outer), False, NOWHERE)


def guards(guard: ir.Expr | None, place: Place) -> tuple[tree.Clause, ...]:
    """Return the guards that stand behind `where`."""
    if guard is None:
        return ()
    return tuple(tree.Guard(part, NOWHERE) for part in conjuncts(guard, place))


def attaches(clause: tree.Clause, taker: tree.Reduction) -> bool:
    """Whether a guard behind the whole would go to this reduction."""
    assert isinstance(clause, tree.Guard)
    names = mentioned(clause.condition, {})
    return any(bound.name in names for bound in taker.binders)
