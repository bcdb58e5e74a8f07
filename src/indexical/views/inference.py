"""Inference about printed statements: what the checker finds by itself, and so need not be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from ..checker.spaces import Classes, tied
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import expression, of_atom, polynomial
from ..ir.context import constants_of
from ..ir.functions import operation
from ..ir.prove import Assumptions
from ..ir.types import Coordinate
from ..ir.walk import parts_of, rebuild, walk
from ..records import dataclass

# A guard, where there is one, and what it guards.
Guarded: TypeAlias = tuple[ir.Expr | None, ir.Expr]
# The conditions around a read, and whether each of them holds or fails.
Conditions: TypeAlias = tuple[tuple[ir.Expr, bool], ...]
Reads: TypeAlias = Iterator[tuple[ir.Read | ir.Array, Conditions]]


class Evidence(NamedTuple):
    """An axis that a coordinate indexes bare: how long it is, whether that is known before the statement is read, and
    what holds there. Of `exact` evidence the checker knows; other indices are only bare in the end: `i + 1 - 1`."""

    extent: ir.Expr
    early: bool
    exact: bool
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Setting:
    """The surroundings of a statement.

    `names` has the printed name of each tensor, `coordinates` the names of all coordinates and `kept` those that are
    never changed; `sizes` what `size(c)` says where no `c` is bound, `spaces` what is declared; `figures` are array
    literals that stand where they are read; `groups` has what each definition reads round in a circle.
    """

    names: Mapping[str, str]
    coordinates: frozenset[str]
    kept: frozenset[str]
    tensors: Mapping[str, ir.Input | ir.Let]
    sizes: Mapping[str, ir.Expr]
    spaces: Mapping[str, str]
    classes: Classes
    figures: Mapping[str, ir.Array]
    groups: Mapping[str, frozenset[str]]

    def constants(self, name: str) -> ir.Expr | None:
        """Return the value of a whole scalar of the program."""
        found = self.tensors.get(name)
        return constants_of({name: found})(name) if isinstance(found, ir.Let) else None

    def difference(self, left: ir.Expr, right: ir.Expr) -> int | None:
        """The difference of two whole expressions; None where that is not known."""
        return (polynomial(left, self.constants) - polynomial(right, self.constants)).constant

    def is_same(self, left: ir.Expr, right: ir.Expr) -> bool:
        return left == right or self.difference(left, right) == 0

    def extent(self, range: ir.Range) -> ir.Expr:
        """The number of points of a range: the value of `size(c)` where it is bound."""
        if build.is_number(range.lower, 0):
            return range.upper
        return expression(polynomial(range.upper) - polynomial(range.lower), range.span)

    def is_inferred(self, range: ir.Range, name: str, evidence: list[Evidence]) -> bool:
        """Whether a coordinate under this name gets this range without a word.

        It has the size of the axes that it indexes bare; if it indexes none, that of the inputs' coordinate.
        """
        if range.coordinate.rest:
            return True
        if not build.is_number(range.lower, 0):
            return False
        if range.stated and any(isinstance(part, ir.Read) for part in walk(range.upper)):
            # Someone gave this size a name, and meant it to be read.
            return all(found.extent == range.upper and found.early for found in evidence) and bool(evidence)
        differences = [self.difference(found.extent, range.upper) for found in evidence]
        for found, difference in zip(evidence, differences, strict=True):
            if difference is not None and difference != 0:
                return False
            # Axes that may differ have to agree: too much to ask if the range was stated, or a part is read.
            if difference is None and (range.stated or self._is_partial(found, range.coordinate)):
                return False
        known = [difference for found, difference in zip(evidence, differences, strict=True) if found.early]
        if known:
            return known[0] == 0
        return name in self.sizes and self.is_same(self.sizes[name], range.upper)

    def _is_partial(self, found: Evidence, coordinate: Coordinate) -> bool:
        """Whether conditions alone keep a coordinate on an axis, which may then be shorter than its range."""
        if not found.exact:
            return True
        known = Assumptions(constants=self.constants)
        for condition, holds in found.conditions:
            known = known.assuming(condition, holds)
        return known.entails(polynomial(found.extent, self.constants) - of_atom(coordinate) - 1)


def simplified(expr: ir.Expr) -> ir.Expr:
    """A bound in fewer words, if there are any: `size(y) / 2` for `(size(y) - 2 + 2) / 2`."""
    if not isinstance(expr, ir.Map):
        return expr
    inner = rebuild(expr, simplified)
    shorter = expression(polynomial(inner), expr.span)
    varies_alike = shorter.type.coordinates == inner.type.coordinates
    return shorter if varies_alike and _length(shorter) < _length(inner) else inner


def short_index(index: ir.Expr) -> ir.Expr:
    """An index in fewer words, if it then belongs to its axis no more and no less: `i * 1` is not tied to it."""
    shorter = simplified(index)
    return shorter if tied(shorter) == tied(index) else index


def _length(expr: ir.Expr) -> int:
    return sum(1 for _ in walk(expr))


def evidence(coordinate: Coordinate, parts: Guarded, setting: Setting, owner: str) -> list[Evidence]:
    """The axes that a coordinate indexes bare in a body and its guard, in the order in which they are read."""
    circle = setting.groups.get(owner, frozenset())
    found: list[Evidence] = []
    for read, conditions in _reads_guarded(parts, coordinate, ()):
        if isinstance(read, ir.Array):
            extents: list[ir.Expr] = [build.whole(length, read.span) for length in read.shape]
        else:
            extents = [axis.extent for axis in setting.tensors[read.tensor].axes]
        early = isinstance(read, ir.Array) or read.tensor not in circle
        for extent, index in zip(extents, read.indices, strict=True):
            bare = short_index(index)
            if isinstance(bare, ir.Coord) and bare.coordinate == coordinate:
                found.append(Evidence(extent, early, bare == index, conditions))
    return found


def _reads_guarded(parts: Guarded, coordinate: Coordinate, held: Conditions) -> Reads:
    """The reads of a guard, then of what it guards."""
    guard, body = parts
    if guard is not None:
        yield from _reads(guard, coordinate, held)
        held = (*held, (guard, True))
    yield from _reads(body, coordinate, held)


def _reads(expr: ir.Expr, coordinate: Coordinate, held: Conditions) -> Reads:
    """The reads inside an expression, a coordinate being bound outside: guards first, indices before reads."""
    match expr:
        case ir.Const() | ir.Coord() | ir.Size():
            return
        case ir.Map("&&", (left, right)):
            yield from _reads_guarded((left, right), coordinate, held)
        case ir.Read(_, inner) | ir.Array(indices=inner) | ir.Map(_, inner):
            for part in inner:
                yield from _reads(part, coordinate, held)
            if not isinstance(expr, ir.Map):
                yield expr, held
        case ir.Select(condition, then, otherwise):
            yield from _reads_guarded((condition, then), coordinate, held)
            yield from _reads(otherwise, coordinate, (*held, (condition, False)))
        case ir.Reduce() | ir.Normalize():
            if not (isinstance(expr, ir.Reduce) and coordinate in expr.coordinates):
                yield from _reads_guarded((expr.guard, expr.body), coordinate, held)


# ---------------------------------------------------------------------- kinds


def asked_kinds(program: ir.Program) -> set[str]:
    """The inputs that are whole or Boolean because they are used as an index or as a condition."""
    lets = program.definitions
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [part for expr in _everything(program) for node in walk(expr) for part in _demanding(node)]
    waiting += [clause.guard for let in program.lets for clause in let.clauses if clause.guard is not None]
    waiting += [bound for let in program.lets for clause in let.clauses for bound in _places(clause)]
    waiting += [claim.condition for claim in program.asserts]
    while waiting:
        expr = waiting.pop()
        match expr:
            case ir.Read(tensor) if tensor not in lets:
                found.add(tensor)
            case ir.Read(tensor) if tensor not in seen and expr.type.kind != "real":
                seen.add(tensor)
                waiting += [clause.body for clause in lets[tensor].clauses]
            case ir.Map(op, arguments) if operation(op).keeps_whole:
                waiting += arguments
            case ir.Select(_, then, otherwise):
                waiting += [then, otherwise]
            case ir.Reduce("sum" | "prod" | "max" | "min", _, body):
                waiting.append(body)
    return found


def _everything(program: ir.Program) -> Iterator[ir.Expr]:
    for let in program.lets:
        yield from parts_of(let)
    for claim in program.asserts:
        yield claim.condition
    for contract in program.contracts:
        yield from (size for _, size in contract.flags if size is not None)


def _places(clause: ir.Clause) -> Iterator[ir.Expr]:
    yield from (slot for slot in clause.slots if not isinstance(slot, ir.Coord))
    for range in clause.ranges:
        yield from (range.lower, range.upper)


def _demanding(node: ir.Expr) -> tuple[ir.Expr, ...]:
    """Return the operands of a node that have to be whole or Boolean."""
    match node:
        case ir.Read(_, indices) | ir.Array(indices=indices):
            return indices
        case ir.Map("&&" | "||" | "!", arguments):
            return arguments
        case ir.Select(condition):
            return (condition,)
        case ir.Reduce(op, ranges, body, guard):
            bounds = [bound for range in ranges for bound in (range.lower, range.upper)]
            return (*bounds, *(() if guard is None else (guard,)), *((body,) if op in ("any", "all") else ()))
        case ir.Normalize(guard=guard) if guard is not None:
            return (guard,)
        case _:
            return ()
