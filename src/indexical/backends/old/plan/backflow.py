"""Weights that are not only gathered with: the definitions that are made of them, in normal form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from ....ir import nodes as ir
from ....ir.algebra.contents import Contents
from ....ir.algebra.normal import Binder, Form, Product, Sum, TooLarge, multiplied, product
from ....ir.algebra.normalize import Algebra
from ....ir.algebra.predicates import is_exponential
from ....ir.algebra.sums import opened
from ....ir.types import Coordinate
from ....ir.walk import parts_of, reads_of, walk
from ....records import dataclass, replace
from .cotangents import Use, Weights, parted, relaxed, use_of
from .ordering import Uses
from .softmaxes import weights_of


def flows_back(let: ir.Let, uses: Uses) -> bool:
    """Whether weights are not only gathered with: they are read twice in one definition, or not summed over the key."""
    body = weights_of(let)
    assert body is not None
    key = [slot.coordinate for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)].index(body.coordinate)
    for other, reads in uses.readers(let.name):
        slots = {slot.coordinate for c in other.clauses for slot in c.slots if isinstance(slot, ir.Coord)}
        if len(reads) > 1 or any(read.indices[key].type.coordinates & slots for read in reads):
            return True
    return False


def _pointwise(name: str, uses: Uses) -> set[str]:
    """The weights, and the definitions that are made of them point by point, however often."""
    found = {name}
    waiting = [name]
    while waiting:
        for let, reads in uses.readers(waiting.pop()):
            if let.name in found or let.name in uses.stepped or len(let.clauses) != 1 or let.kind != "real":
                continue
            slots = {slot.coordinate for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)}
            if any(read.type.coordinates and read.type.coordinates <= slots for read in reads):
                found.add(let.name)
                waiting.append(let.name)
    return found


@dataclass
class Scene:
    """A program whose weights are examined one after the other, with the facts that all of them share.

    `exponential` are definitions with an exponential in them, `copies` those that only read another, or nearly.
    """

    program: ir.Program
    wanted: tuple[str, ...]
    contents: Contents

    def __post_init__(self) -> None:
        self.uses = Uses(self.program, self.wanted)
        self.exponential = {let.name for let in self.program.lets if _is_exponential(let)}
        algebra = Algebra(self.program, set(self.exponential), self.contents)
        self.copies = {let.name for let in self.program.lets if algebra.is_copied(let.name)}
        self.caution = algebra.caution

    def change(self, program: ir.Program, changed: Sequence[ir.Let]) -> None:
        """Go on with a program that says the same, in which these definitions are new or have another form."""
        self.program = program
        self.uses.change(program, changed)
        for let in changed:
            self.caution = self.caution.beside(let, self.contents)
            self.copies.discard(let.name)
            self.exponential.discard(let.name)
            if _is_exponential(let):
                self.exponential.add(let.name)


def _is_exponential(let: ir.Let) -> bool:
    return any(is_exponential(part) for expr in parts_of(let) for part in walk(expr))


@dataclass
class Flowing:
    """The weights of this name, and what is made of them."""

    scene: Scene
    name: str

    def __post_init__(self) -> None:
        self.program = self.scene.program
        self.lets = self.program.definitions
        let = self.lets[self.name]
        clause = let.clauses[0]
        body = clause.body
        assert isinstance(body, ir.Normalize)
        axes = tuple(slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord))
        ranges = {r.coordinate: r for r in clause.ranges}
        ordered = tuple(ranges[c] for c in axes)
        self.weights = Weights(self.name, axes, axes.index(body.coordinate), ordered, body.guard)
        self.pointwise = _pointwise(self.name, self.scene.uses)
        few = {let.name for let in self._readers({self.name}) if len(let.axes) < len(axes)}
        # Definitions with one point for each row of the weights, and what as large as these is made of them.
        self.opening = self.pointwise | few | {r.name for r in self._readers(few) if len(r.axes) == len(axes)}
        gathers = {let.name for let in self._readers({self.name})} - self.pointwise
        self.results = gathers | {let.name for let in self._readers(gathers) if len(let.axes) < len(axes)}
        self.algebra = Algebra(self.program, self._closed(), self.scene.contents)
        self.algebra.caution = self.scene.caution
        self._forms: dict[str, Form | str | None] = {}
        self._uses: dict[Product, list[tuple[Use, tuple[Binder, ...]]]] = {}

    def _closed(self) -> set[str]:
        """The definitions that are not written out: all that are not made of the weights, or are more than copies."""
        exponential = self.scene.exponential
        apart = exponential - self.pointwise
        if exponential & self.pointwise == {self.name}:
            apart |= self.lets.keys() - self.opening - self.results - self._large() - self.scene.copies
        return apart | {self.name}

    def _large(self) -> set[str]:
        """The definitions as large as the weights that are read beside them, directly or through copies."""
        found: set[str] = set()
        waiting = [*self.opening, *(let.name for let in self.readers)]
        while waiting:
            for read in reads_of(self.lets[waiting.pop()]):
                if len(read.type.coordinates) >= len(self.weights.axes) and read.tensor not in found:
                    found.add(read.tensor)
                    waiting += [read.tensor] if read.tensor in self.scene.copies else []
        return found

    def _readers(self, names: Iterable[str]) -> list[ir.Let]:
        """The definitions that are needed and read one of these."""
        found = {let.name: let for name in names for let, _ in self.scene.uses.readers(name)}
        return list(found.values())

    @cached_property
    def readers(self) -> list[ir.Let]:
        """The needed definitions that read something computed point by point from the weights."""
        found = {let.name for let in self._readers(self.pointwise)} - self.pointwise
        return [let for let in self.program.lets if let.name in found]

    def made_of(self) -> set[str]:
        """The definitions that are made of the weights in another way than attention is; none where they are only
        gathered with."""
        others = {let.name for let in self.readers if not self.is_gather(let)}
        return others | self.pointwise - {self.name} if others else set()

    def is_derived(self) -> bool:
        """Whether a product has the weights twice as a factor, as the derivative of a softmax does."""
        return any(self._is_twice(let) for let in self.readers)

    def _is_twice(self, let: ir.Let) -> bool:
        try:
            found = self.form(let)
            terms = () if isinstance(found, str) else found.terms
            uses = [self.uses(term) for _, term in terms if self.weights.is_in(term)]
        except TooLarge:
            return True
        return any(len(use) != 1 or use[0][0].flow is not None for use in uses)

    def is_gather(self, let: ir.Let) -> bool:
        """Whether the weights in a definition are summed over their key, and over no axis of the query alone."""
        try:
            return self._gathers(let)
        except TooLarge:
            return True

    def _gathers(self, let: ir.Let) -> bool:
        found = self.form(let)
        if isinstance(found, str):
            return len(let.clauses) != 1
        for _, term in parted(found, self.weights, self.algebra).terms:
            if self.weights.is_in(term):
                uses = self.uses(term)
                if len(uses) != 1 or uses[0][0].flow is not None:
                    return False
                if binder_of(uses[0][0].coordinate(self.weights.key), uses[0][1]) is None:
                    return False
        return True

    def form(self, let: ir.Let) -> Form | str:
        """A definition in normal form, with all that is made of the weights point by point written out; found once."""
        self.algebra.work = self.algebra.depth = 0
        if let.name not in self._forms:
            self._forms[let.name] = None
            self._forms[let.name] = self._form(let)
        found = self._forms[let.name]
        if found is None:
            raise TooLarge
        return found

    def _form(self, let: ir.Let) -> Form | str:
        clause = let.clauses[0]
        reads = [read for read in reads_of(let) if read.tensor in self.pointwise]
        inside = [r for r in walk(clause.body) if isinstance(r, ir.Read) and r.tensor in self.pointwise]
        if len(let.clauses) != 1 or self.algebra.canonical.clause(let.name) is None or len(reads) != len(inside):
            return f"`{let.name}` has several cases, or asks for the weights in a guard"
        value = self.algebra.opened(self.algebra.plain(clause.body), lambda read: read.tensor in self.opening)
        return relaxed(value, self.weights, self.algebra)

    def uses(self, term: Product) -> list[tuple[Use, tuple[Binder, ...]]]:
        """The weights in a term: as factors under a sum; none where they are nowhere in it."""
        if term not in self._uses:
            self._uses[term] = list(self._uses_in(term))
        return self._uses[term]

    def _uses_in(self, term: Product) -> Iterator[tuple[Use, tuple[Binder, ...]]]:
        for atom, power in term.factors:
            if power == 1 and isinstance(atom, Sum) and self.weights.is_in(atom):
                binders, body = opened(atom, self.algebra)
                rest = product([f for f in term.factors if f[0] is not atom], term.exponent, term.conditions)
                if len(body.terms) == 1:
                    use = use_of(multiplied(body.terms[0][1], rest), self.weights, self.algebra, self.results)
                    if use is not None:
                        yield replace(use, number=use.number * body.terms[0][0]), binders


def binder_of(coordinate: Coordinate | None, binders: tuple[Binder, ...]) -> Binder | None:
    """The binder of a coordinate, where there is one."""
    return next((binder for binder in binders if binder.coordinate == coordinate), None)
