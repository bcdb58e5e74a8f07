"""Definitions that read a bounded number of positions back: of what they read, the last rows are all that is kept.

A sum over positions that takes only recent ones may run over these alone; so may the columns of what it sums. All that
read each other so have one window. Where one of them wants more, none has it.
"""

from __future__ import annotations

from collections.abc import Collection

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.graph import components
from ..ir.types import Coordinate
from ..ir.walk import rebuild, walk
from ..records import dataclass
from .past import Split
from .positions import sizes_in

# A definition that takes positions, or a tensor that is kept: one name may be both.
_Node = tuple[str, bool]


@dataclass(frozen=True)
class Windows:
    """The definitions whose positions are recent ones, the tensors that are kept as far, and how far that is."""

    lets: frozenset[str]
    kept: frozenset[str]
    reach: tuple[ir.Expr, ...]


NO_WINDOWS = Windows(frozenset(), frozenset(), ())


def windows_of(split: Split, outputs: Collection[str]) -> Windows:
    """The windows of a program along positions."""
    finder = _Finder(split, outputs)
    lets: set[str] = set()
    kept: set[str] = set()
    reach: dict[ir.Expr, None] = {}
    for nodes in components(finder.ties):
        far = [split.reach.get(name) for name, is_kept in nodes if is_kept]
        far += [split.taken.get(name) for name, is_kept in nodes if not is_kept and name in finder.taking]
        bounds = [bound for bound in far if bound is not None]
        if len(bounds) == len(far) and finder.wide.isdisjoint(nodes) and any(is_kept for _, is_kept in nodes):
            lets |= {name for name, is_kept in nodes if not is_kept}
            kept |= {name for name, is_kept in nodes if is_kept}
            reach |= dict.fromkeys(bounds)
    return Windows(frozenset(lets), frozenset(kept), tuple(reach))


def positions_in(expr: ir.Reduce, row: Coordinate) -> frozenset[Coordinate]:
    """The coordinates of a reduction that run over all positions."""
    length = polynomial(build.size(row, expr.span))
    return frozenset(r.coordinate for r in expr.ranges if r.from_zero and polynomial(r.upper) == length)


class _Finder:
    def __init__(self, split: Split, outputs: Collection[str]) -> None:
        self.split = split
        self.ties: dict[_Node, set[_Node]] = {(name, True): set() for name in split.kept}
        self.taking: set[str] = set()
        # Those that need all positions.
        self.wide: set[_Node] = {(name, True) for name in split.kept if split.steps(name) or split.offset[name]}
        for let in (split.program.definitions[name] for name in split.rows):
            node = (let.name, False)
            self.ties.setdefault(node, set())
            columns = [n for n in split.along[let.name] if n != split.axis[let.name]]
            if columns and (let.name in outputs or split.offset[let.name]):
                self.wide.add(node)
            for clause in let.clauses:
                slots = [clause.slots[n] for n in columns]
                own = frozenset(slot.coordinate for slot in slots if isinstance(slot, ir.Coord))
                if columns and (len(let.clauses) > 1 or len(own) < len(columns)):
                    self.wide.add(node)
                if own and any(r.coordinate in own and not r.from_zero for r in clause.ranges):
                    self.wide.add(node)
                self.follow(clause.body, let, clause.slots[split.axis[let.name]], own)
                if clause.guard is not None:
                    self.follow(clause.guard, let, clause.slots[split.axis[let.name]], own)

    def tie(self, one: _Node, other: _Node) -> None:
        self.ties.setdefault(one, set()).add(other)
        self.ties.setdefault(other, set()).add(one)

    def follow(self, expr: ir.Expr, let: ir.Let, slot: ir.Expr, bound: frozenset[Coordinate]) -> None:
        """Look at all that an expression reads at positions, of which some are `bound`."""
        node = (let.name, False)
        inner = bound
        if isinstance(expr, ir.Reduce):
            taken = positions_in(expr, self.split.row)
            inner = (bound - expr.coordinates) | taken
            if taken:
                self.taking.add(let.name)
            others = [r for r in expr.ranges if r.coordinate not in taken]
            if any(self.split.row in sizes_in(r.upper) | sizes_in(r.lower) for r in others):
                self.wide.add(node)
            if taken and expr.op in ("argmax", "argmin"):
                self.wide.add(node)
        if isinstance(expr, ir.Normalize) and expr.coordinate in bound:
            self.taking.add(let.name)
        if isinstance(expr, ir.Read) and self.split.along[expr.tensor]:
            self.read(expr, let, slot, bound)

        def child(part: ir.Expr) -> ir.Expr:
            self.follow(part, let, slot, inner)
            return part

        rebuild(expr, child)

    def read(self, read: ir.Read, let: ir.Let, slot: ir.Expr, bound: frozenset[Coordinate]) -> None:
        split, node = self.split, (let.name, False)
        is_local = split.is_local(read, let, slot)
        for number in split.along[read.tensor]:
            if is_local and number == split.axis[read.tensor]:
                continue
            index = read.indices[number]
            other = (read.tensor, not is_local)
            if not is_local and read.tensor not in split.kept:
                if not index.type.coordinates.isdisjoint(bound):
                    self.wide.add(node)
            elif isinstance(index, ir.Coord) and index.coordinate in bound:
                self.tie(node, other)
            else:
                self.wide.add(other)


def taps_of(split: Split, name: str) -> int | None:
    """How many rows back a tensor is read at most, where every read is at a distance that is no position's."""
    reach = split.reach.get(name)
    if not isinstance(reach, ir.Const) or split.steps(name):
        return None
    for let in (split.program.definitions[other] for other in split.rows):
        columns = [n for n in split.along[let.name] if n != split.axis[let.name]]
        for clause in let.clauses:
            slot = clause.slots[split.axis[let.name]]
            parts = [part for expr in (clause.body, clause.guard) if expr is not None for part in walk(expr)]
            taken = {c for part in parts if isinstance(part, ir.Reduce) for c in positions_in(part, split.row)}
            taken |= {c for n in columns for c in clause.slots[n].type.coordinates}
            for read in (part for part in parts if isinstance(part, ir.Read) and part.tensor == name):
                if split.is_local(read, let, slot):
                    continue
                distance = polynomial(slot) - polynomial(read.indices[split.axis[name]])
                coordinates = {atom for atom in distance.atoms if isinstance(atom, Coordinate)}
                others = distance.atoms - coordinates
                if not isinstance(slot, ir.Coord) or slot.coordinate in coordinates or others or coordinates & taken:
                    return None
    return int(reach.value) + split.offset[name]
