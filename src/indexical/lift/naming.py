"""Names for coordinates, by their roles, and for definitions."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from ..ir.affine import Polynomial
from ..syntax.tokens import KEYWORDS
from ..syntax.vocabulary import WORDS
from .definitions import Definition, arrange
from .expressions import Expr, Op, Over, Read, axes_in, parts
from .indices import Axis, Quotient, atom, atoms_in, parts_of
from .recording import Site, _source
from .values import Leaf

# What is left to choose from where no role says anything.
_SPARE = "cmnokrstuwlpqvxyzfag"


class Names:
    """The letter of every coordinate; a letter has one extent throughout, so that its size can be spoken of."""

    def __init__(self, definitions: list[Definition], leaves: list[Leaf], axes: Mapping[str, str]) -> None:
        """`axes` are letters that arguments are to have."""
        self.definitions = definitions
        self.leaves = leaves
        self.letters: dict[Axis, str] = {}
        self.homes: dict[Leaf, list[str | None]] = {leaf: [None] * len(leaf.shape) for leaf in leaves}
        self._extents: dict[str, Polynomial] = {}
        self._scopes: dict[Axis, list[set[Axis]]] = {}
        self._taken = {leaf.name for leaf in leaves}
        for definition in definitions:
            scope = {*definition.axes, *axes_in(definition.body)}
            for axis in scope:
                self._scopes.setdefault(axis, []).append(scope)
        self._take(axes)
        self._find_roles()
        self._spread()
        self._fill()

    # ------------------------------------------------------------------------------- letters

    def _take(self, axes: Mapping[str, str]) -> None:
        for leaf in self.leaves:
            letters = axes.get(leaf.name, "").split()
            if len(letters) == len(leaf.shape):
                for place, (letter, extent) in enumerate(zip(letters, leaf.shape, strict=True)):
                    fits = self._extents.get(letter, extent) == extent and letter not in self._taken
                    if fits and letter.isidentifier() and letter not in self.homes[leaf]:
                        self.homes[leaf][place] = letter
                        self._extents.setdefault(letter, extent)

    def may_have(self, axis: Axis, letter: str) -> bool:
        if letter in self._taken or self._extents.get(letter, axis.extent) != axis.extent:
            return False
        return not any(
            self.letters.get(other) == letter
            for scope in self._scopes.get(axis, ())
            for other in scope
            if other is not axis
        )

    def give(self, axis: Axis, *letters: str) -> None:
        """The first of these letters that the coordinate may have, if it has none."""
        if axis in self.letters:
            return
        for letter in letters:
            if self.may_have(axis, letter):
                self.letters[axis] = letter
                self._extents.setdefault(letter, axis.extent)
                return

    def _find_roles(self) -> None:
        found = [d for d in self.definitions if isinstance(d.body, Over) and d.body.op in ("softmax", "log_softmax")]
        for weights in found:
            gathers = [(d, over, read) for d, over, read in self._reads_under_sums(weights)]
            self._name_weights(weights, gathers)
        for weights in found:
            for definition, over, read in self._reads_under_sums(weights):
                self._name_gather(definition, over, read)
            assert isinstance(weights.body, Over)
            for score in _read_definitions(weights.body.body):
                for part in parts(score.body):
                    if isinstance(part, Over) and part.op == "sum":
                        for axis in part.axes:
                            self.give(axis, "d", "f", "r")
        self._name_groups()

    def _name_groups(self) -> None:
        """Name axes that are read at `h / 4`, which heads share: they are groups."""
        for definition in self.definitions:
            for read in parts(definition.body):
                if isinstance(read, Read) and isinstance(read.tensor, Definition):
                    for axis, index in zip(read.tensor.axes, read.indices, strict=True):
                        for part in parts_of(index):
                            if isinstance(part, Quotient) and index == atom(part):
                                heads = (self.letters.get(head) for head in self._bare(part.of))
                                self.give(axis, *("g" for head in heads if head == "h"))

    def _reads_under_sums(self, weights: Definition) -> Iterator[tuple[Definition, Over, Read]]:
        for definition in self.definitions:
            for over in parts(definition.body):
                if isinstance(over, Over) and over.op == "sum":
                    for read in factors(over.body):
                        if isinstance(read, Read) and _leads_to(read.tensor, weights):
                            yield definition, over, read

    def _name_weights(self, weights: Definition, gathers: list[tuple[Definition, Over, Read]]) -> None:
        assert isinstance(weights.body, Over)
        keys = set(weights.body.axes)
        shared: set[Axis] | None = None
        for _, over, read in gathers:
            if isinstance(read.tensor, Definition) and len(read.indices) == len(weights.axes):
                pairs = zip(weights.axes, read.indices, strict=True)
                summed = {axis for axis, index in pairs if any(index == atom(a) for a in over.axes)}
                others = [f for f in factors(over.body) if f is not read]
                beside = {a for f in others for a in axes_in(f)}
                pairs = zip(weights.axes, read.indices, strict=True)
                if others:
                    shared = {axis for axis, index in pairs if axis not in summed and set(atoms_in(index)) & beside}
                    keys = summed or keys
                    break
        rest = [axis for axis in weights.axes if axis not in keys]
        queries = [] if shared is None else [axis for axis in rest if axis not in shared]
        queries = (queries or rest)[-max(len(keys), 1) :]
        batch = [axis for axis in rest if axis not in queries]
        for axis in keys:
            self.give(axis, "j", "k", "l")
        for axis in queries:
            self.give(axis, "i", "n", "m")
        heads = [axis for axis in batch if self._is_packed(axis)] or (batch[-1:] if len(batch) > 1 else [])
        for axis in heads:
            self.give(axis, "h", "g", "r")
        for axis in batch:
            self.give(axis, "b", "g", "r", "n")

    def _name_gather(self, definition: Definition, over: Over, read: Read) -> None:
        if not isinstance(read.tensor, Definition):
            return
        for axis, index in zip(read.tensor.axes, read.indices, strict=True):
            for other in self._bare(index):
                self.give(other, self.letters.get(axis, "j"))
        inside = {a for f in factors(over.body) if f is not read for a in axes_in(f)}
        for axis in definition.axes:
            if axis in inside:
                self.give(axis, "e", "f", "d")

    def _is_packed(self, axis: Axis) -> bool:
        """Whether a coordinate is a part of an axis somewhere: `h * 64 + d`."""
        for definition in self.definitions:
            for part in parts(definition.body):
                if isinstance(part, Read):
                    for index in part.indices:
                        if axis in parts_of(index):
                            moving = [a for a in atoms_in(index) if isinstance(a, Axis)]
                            if len(moving) > 1:
                                return True
                    for other, index in zip(getattr(part.tensor, "axes", ()), part.indices, strict=False):
                        if index == atom(axis) and other is not axis and self._splits(other):
                            return True
        return False

    def _splits(self, axis: Axis) -> bool:
        for definition in self.definitions:
            for part in parts(definition.body):
                if isinstance(part, Read) and isinstance(part.tensor, Leaf):
                    for index in part.indices:
                        found = atoms_in(index)
                        if axis in found and len([a for a in found if isinstance(a, Axis)]) > 1:
                            return True
        return False

    def _bare(self, index: Polynomial) -> list[Axis]:
        return [a for a in atoms_in(index) if isinstance(a, Axis) and index == atom(a)]

    def _spread(self) -> None:
        """Letters go along reads, from what is read to who reads it and back, until nothing changes."""
        before = -1
        ranked = list(reversed(self.definitions))
        while before != len(self.letters):
            before = len(self.letters)
            for definition in ranked:
                for part in parts(definition.body):
                    if not isinstance(part, Read):
                        continue
                    if isinstance(part.tensor, Definition):
                        for axis, index in zip(part.tensor.axes, part.indices, strict=True):
                            for other in self._bare(index):
                                if other in self.letters:
                                    self.give(axis, self.letters[other])
                                elif axis in self.letters:
                                    self.give(other, self.letters[axis])
            if before == len(self.letters):
                self._spread_inputs()

    def _spread_inputs(self) -> None:
        """The home of an input: the letters it is read with, `i` before `j` where it is read with both."""
        for leaf in self.leaves:
            home = self.homes[leaf]
            for place, extent in enumerate(leaf.shape):
                asked = list(self._readers(leaf, place))
                found = sorted(
                    {self.letters[a] for a in asked if a in self.letters}, key=lambda c: (c == "j", c == "e")
                )
                if home[place] is None:
                    for letter in found:
                        if (
                            letter not in home
                            and self._extents.get(letter, extent) == extent
                            and letter not in self._taken
                        ):
                            home[place] = letter
                            self._extents.setdefault(letter, extent)
                            break
                if home[place] is not None:
                    for axis in asked:
                        self.give(axis, str(home[place]))

    def _readers(self, leaf: Leaf, place: int) -> Iterator[Axis]:
        for definition in self.definitions:
            for part in parts(definition.body):
                if isinstance(part, Read) and part.tensor is leaf:
                    for axis in self._bare(part.indices[place]):
                        if axis.extent == leaf.shape[place]:
                            yield axis

    def _fill(self) -> None:
        """Coordinates that no role reached take what is left of the alphabet; what hangs on it follows."""
        if not any(isinstance(d.body, Over) and d.body.op == "softmax" for d in self.definitions):
            self._by_place()
        spare = [*_SPARE, *(f"{letter}{n}" for n in range(1, 99) for letter in "cmn")]
        for definition in reversed(self.definitions):
            for axis in (*axes_in(definition.body), *definition.axes):
                if axis not in self.letters:
                    used = [c for c in spare if self._extents.get(c) == axis.extent]
                    self.give(axis, *used, *(c for c in spare if c not in self._extents), *spare)
                    self._spread()
        for leaf in self.leaves:
            home = self.homes[leaf]
            for place, extent in enumerate(leaf.shape):
                if home[place] is None:
                    free = [c for c in spare if c not in home and c not in self._taken]
                    known = [c for c in free if self._extents.get(c) == extent]
                    home[place] = next(iter([*known, *(c for c in free if c not in self._extents)]))
                    self._extents.setdefault(str(home[place]), extent)

    def _by_place(self) -> None:
        """Name an axis of an argument, where nothing is normalised, as its place suggests."""
        for leaf in self.leaves:
            rank = len(leaf.shape)
            if leaf.given and rank in (3, 4):
                for place, letters in enumerate(("b", "hg", "ij", "de") if rank == 4 else ("b", "ij", "dec")):
                    for axis in self._readers(leaf, place):
                        self.give(axis, *letters)
        self._spread()

    @property
    def spoken(self) -> set[str]:
        """The letters whose size can be asked for: those of inputs and of definitions."""
        return {*self.extents, *(self.letters[axis] for d in self.definitions for axis in d.axes)}

    @property
    def extents(self) -> dict[str, Polynomial]:
        """The extent of every letter of an input."""
        given = {letter for home in self.homes.values() for letter in home}
        return {letter: extent for letter, extent in self._extents.items() if letter in given}


_ORDER = {"b": 0, "g": 1, "h": 1, "i": 2, "j": 3, "d": 4, "e": 5, "f": 6}


def order_axes(definitions: list[Definition], letters: dict[Axis, str]) -> None:
    """The coordinates of what is no result in the order in which they are usually written."""
    moved: dict[Definition, list[int]] = {}
    for definition in definitions:
        spelled = [letters[axis] for axis in definition.axes]
        if not definition.result and all(letter in _ORDER for letter in spelled):
            moved[definition] = sorted(range(len(spelled)), key=lambda place: _ORDER[spelled[place]])
    arrange(definitions, moved)


def factors(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Op) and expr.op == "*":
        for argument in expr.arguments:
            yield from factors(argument)
    else:
        yield expr


def _leads_to(tensor: Any, weights: Definition) -> bool:
    """Whether a tensor is these weights, or a function of them over the same coordinates."""
    if tensor is weights:
        return True
    if not isinstance(tensor, Definition) or len(tensor.axes) != len(weights.axes):
        return False
    own = {atom(axis) for axis in tensor.axes}
    return any(isinstance(p, Read) and p.tensor is weights and set(p.indices) == own for p in parts(tensor.body))


def _read_definitions(expr: Expr) -> list[Definition]:
    return [p.tensor for p in parts(expr) if isinstance(p, Read) and isinstance(p.tensor, Definition)]


# ------------------------------------------------------------------------------------- names of definitions


def name_definitions(definitions: list[Definition], leaves: Iterable[Leaf], letters: Iterable[str]) -> None:
    """`weights`, `scores`, `Q`, `K`, `V` by their roles, `out` for a result; others as the caller's variable."""
    taken = {*(leaf.name for leaf in leaves), *letters, *KEYWORDS, *WORDS, "masked"}
    results = [d for d in definitions if d.result]
    softmaxes = [d for d in definitions if isinstance(d.body, Over) and d.body.op in ("softmax", "log_softmax")]

    def call(definition: Definition, name: str) -> None:
        if definition.name:
            return
        chosen, count = name, 2
        while chosen in taken:
            chosen, count = f"{name}_{count}", count + 1
        taken.add(chosen)
        definition.name = chosen

    for weights in softmaxes:
        call(weights, "weights")
        assert isinstance(weights.body, Over)
        for scores in _read_definitions(weights.body.body):
            if set(scores.axes) & set(weights.body.axes) and not scores.result:
                call(scores, "scores")
    main = results[:1]
    for definition in main:
        call(definition, "out")
    for weights in softmaxes:
        assert isinstance(weights.body, Over)
        for definition in definitions:
            for over in parts(definition.body):
                if isinstance(over, Over) and over.op == "sum":
                    reads = [f for f in factors(over.body) if isinstance(f, Read)]
                    if len(reads) > 1 and any(_leads_to(read.tensor, weights) for read in reads):
                        call(definition, "out" if definition.result else "heard")
                        for read in reads:
                            if isinstance(read.tensor, Definition) and not _leads_to(read.tensor, weights):
                                call(read.tensor, "V")
        keys = set(weights.body.axes)
        for scores in _read_definitions(weights.body.body):
            for over in parts(scores.body):
                if isinstance(over, Over) and over.op == "sum":
                    for factor in factors(over.body):
                        if isinstance(factor, Read) and isinstance(factor.tensor, Definition):
                            heard = any(keys & set(atoms_in(index)) for index in factor.indices)
                            call(factor.tensor, "K" if heard else "Q")
    for definition in definitions:
        if definition.part_of is None:
            call(definition, "out" if definition.result else variable(definition.site) or "part")
    for definition in definitions:
        if definition.part_of is not None:
            leaf, reader = definition.part_of
            call(definition, f"{leaf.name}_{reader.name}")


@cache
def _assignments(file: str) -> tuple[tuple[int, int, str], ...]:
    source = _source(file)
    if source is None:
        return ()
    try:
        tree = ast.parse(source.text)
    except SyntaxError:
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.append((node.lineno, node.end_lineno or node.lineno, node.targets[0].id))
    return tuple(found)


def variable(site: Site | None) -> str | None:
    """The name of the variable that the statement at a place sets."""
    if site is None:
        return None
    for first, last, name in _assignments(site.file):
        if first <= site.line <= last and not keyword.iskeyword(name):
            return name.strip("_") or None
    return None
