"""Weights that are not only gathered with: the definitions that are made of them, in normal form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ir import nodes as ir
from ..ir.algebra.normal import Binder, Form, Product, Sum, TooLarge, multiplied, product
from ..ir.algebra.normalize import Algebra
from ..ir.algebra.predicates import is_exponential
from ..ir.algebra.sums import opened
from ..ir.types import Coordinate
from ..ir.walk import parts_of, reads_of, walk
from .cotangents import Use, Weights, parted, relaxed, use_of
from .ordering import Uses, needed_for
from .softmaxes import weights_of


def flows_back(let: ir.Let, uses: Uses) -> bool:
    """Whether weights are not only gathered with: they are read twice in one definition, or not summed over the key."""
    body = weights_of(let)
    assert body is not None
    key = [slot.coordinate for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)].index(body.coordinate)
    for other, reads in uses.readers.get(let.name, ()):
        slots = {slot.coordinate for c in other.clauses for slot in c.slots if isinstance(slot, ir.Coord)}
        if len(reads) > 1 or any(read.indices[key].type.coordinates & slots for read in reads):
            return True
    return False


def _pointwise(name: str, program: ir.Program) -> set[str]:
    """The weights, and the definitions that are made of them point by point, however often."""
    found = {name}
    recurrent = {n for item in program.order if isinstance(item, ir.Stepwise) for n, _ in item.axes}
    lets = {let.name: let for let in program.lets}
    for item in program.order:
        if not isinstance(item, ir.Once) or item.name in recurrent:
            continue
        let = lets[item.name]
        if len(let.clauses) != 1 or let.kind != "real":
            continue
        slots = {slot.coordinate for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)}
        reads = (r for r in reads_of(let) if r.tensor in found)
        if any(read.type.coordinates and read.type.coordinates <= slots for read in reads):
            found.add(let.name)
    return found


def _parts(let: ir.Let) -> Iterator[ir.Expr]:
    return (part for expr in parts_of(let) for part in walk(expr))


@dataclass
class Flowing:
    """The weights of this name, and what is made of them."""

    program: ir.Program
    name: str
    wanted: tuple[str, ...]

    def __post_init__(self) -> None:
        self.lets = {let.name: let for let in self.program.lets}
        let = self.lets[self.name]
        clause = let.clauses[0]
        body = clause.body
        assert isinstance(body, ir.Normalize)
        axes = tuple(slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord))
        ranges = {r.coordinate: r for r in clause.ranges}
        ordered = tuple(ranges[c] for c in axes)
        self.weights = Weights(self.name, axes, axes.index(body.coordinate), ordered, body.guard)
        self.algebra = Algebra(self.program)
        self.pointwise = _pointwise(self.name, self.program)
        others = [let for let in self.program.lets if let.name not in self.pointwise]
        exponential = {let.name for let in others if any(map(is_exponential, _parts(let)))}
        self.algebra.kept |= {self.name, *exponential}
        self.opening = self.pointwise | self._averages()
        gathers = {let.name for let in self.program.lets if self._reads(let, {self.name})} - self.pointwise
        few = [let for let in self.program.lets if len(let.axes) < len(axes)]
        self.results = gathers | {let.name for let in few if self._reads(let, gathers)}
        self.needed = needed_for(self.program, self.wanted)

    def _averages(self) -> set[str]:
        """Definitions with one point for each row of the weights, and what as large as these is made of them."""
        count = len(self.weights.axes)
        few = {let.name for let in self.program.lets if len(let.axes) < count and self._reads(let, {self.name})}
        return few | {let.name for let in self.program.lets if len(let.axes) == count and self._reads(let, few)}

    def _reads(self, let: ir.Let, names: set[str]) -> bool:
        return any(read.tensor in names for read in reads_of(let))

    @property
    def readers(self) -> list[ir.Let]:
        """What is needed and reads something that is made of the weights point by point."""
        lets = [let for let in self.program.lets if let.name in self.needed - self.pointwise]
        return [let for let in lets if any(read.tensor in self.pointwise for read in reads_of(let))]

    def made_of(self) -> set[str]:
        """The definitions that are made of the weights in another way than attention is; none where they are only
        gathered with."""
        others = {let.name for let in self.readers if not self.is_gather(let)}
        return others | (self.pointwise & self.needed) - {self.name} if others else set()

    def is_derived(self) -> bool:
        """Whether weights stand beside weights somewhere, as in what flows back through a softmax."""
        return any(self._is_twice(let) for let in self.readers)

    def _is_twice(self, let: ir.Let) -> bool:
        try:
            found = self.form(let)
        except TooLarge:
            return True
        terms = () if isinstance(found, str) else found.terms
        uses = [self.uses(term) for _, term in terms if self.weights.is_in(term.key)]
        return any(len(use) != 1 or use[0][0].flow is not None for use in uses)

    def is_gather(self, let: ir.Let) -> bool:
        """Whether the weights in a definition are summed over their key, and over nothing that asks alone."""
        try:
            found = self.form(let)
        except TooLarge:
            return True
        if isinstance(found, str):
            return len(let.clauses) != 1
        for _, term in parted(found, self.weights, self.algebra).terms:
            if self.weights.is_in(term.key):
                uses = self.uses(term)
                if len(uses) != 1 or uses[0][0].flow is not None:
                    return False
                if binder_of(uses[0][0].coordinate(self.weights.key), uses[0][1]) is None:
                    return False
        return True

    def form(self, let: ir.Let) -> Form | str:
        """A definition in normal form, with all that is made of the weights point by point written out."""
        clause = let.clauses[0]
        reads = [
            r for part in parts_of(let) for r in walk(part) if isinstance(r, ir.Read) and r.tensor in self.pointwise
        ]
        inside = [r for r in walk(clause.body) if isinstance(r, ir.Read) and r.tensor in self.pointwise]
        if len(let.clauses) != 1 or self.algebra.canonical.clause(let.name) is None or len(reads) != len(inside):
            return f"`{let.name}` has several cases, or asks for the weights in a guard"
        self.algebra.work = self.algebra.depth = 0
        value = self.algebra.opened(self.algebra.plain(clause.body), lambda read: read.tensor in self.opening)
        return relaxed(value, self.weights, self.algebra)

    def uses(self, term: Product) -> list[tuple[Use, tuple[Binder, ...]]]:
        """The weights in a term: as factors under a sum; none where they are nowhere in it."""
        found = []
        for atom, power in term.factors:
            if power == 1 and isinstance(atom, Sum) and self.weights.is_in(atom.key):
                binders, body = opened(atom, self.algebra)
                rest = product([f for f in term.factors if f[0] is not atom], term.exponent, term.conditions)
                if len(body.terms) == 1:
                    use = use_of(multiplied(body.terms[0][1], rest), self.weights, self.algebra, self.results)
                    if use is not None:
                        found.append((replace(use, number=use.number * body.terms[0][0]), binders))
        return found


def binder_of(coordinate: Coordinate | None, binders: tuple[Binder, ...]) -> Binder | None:
    """The binder of a coordinate, where there is one."""
    return next((binder for binder in binders if binder.coordinate == coordinate), None)
