"""Definitions that are computed together for some rows of a coordinate after the other, so that what is as large as
rows × keys is never there whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ....ir import nodes as ir
from ....ir.affine import polynomial
from ....ir.graph import components
from ....ir.needs import asserted, members, reached
from ....ir.types import Coordinate
from ....ir.walk import children, parts_of, reads_of, walk
from ....plan.steps import Block, Gathering
from ....records import dataclass, field, replace
from .early_keys import early_keys
from .parts import Split, sums_rows
from .softmaxes import weights_of

Reads = Callable[[str], set[str]]


def cut(
    program: ir.Program,
    start: str | Gathering,
    wanted: tuple[str, ...],
    needed: set[str],
    reading: Mapping[str, set[str]],
) -> tuple[ir.Program, Block] | str:
    """The program, and what of it is computed for some rows of weights, or of what gathers with them, after the other;
    or why nothing is, with nothing to say where they are one row. `reading` says what is read by definitions that a
    kernel computes."""
    search = _Cut(program, start, {*asserted(program), *wanted}, needed, reading)
    reasons = []
    for axis in search.candidates():
        found = search.along(axis)
        if not isinstance(found, str):
            return found
        reasons.append(found)
    return reasons[0] if reasons else ""


@dataclass
class _Cut:
    program: ir.Program
    start: str | Gathering
    wanted: set[str]
    needed: set[str]
    reading: Mapping[str, set[str]]
    inner: dict[str, int] = field(default_factory=dict)
    totals: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lets = self.program.definitions
        self.recurrent = self.program.recurrent
        self.weights = self.start if isinstance(self.start, str) else self.start.definition
        self.key = -1
        if isinstance(self.start, Gathering):
            self.keys = self.start.key.upper
        else:
            let = self.lets[self.weights]
            body = weights_of(let)
            assert body is not None
            self.key = [axis.coordinate for axis in let.axes].index(body.coordinate)
            self.keys = let.axes[self.key].extent
        self.readers: dict[str, list[ir.Let]] = {}
        for other in self.program.lets:
            if other.name in self.needed:
                for name in self.read_of(other.name):
                    self.readers.setdefault(name, []).append(other)

    def candidates(self) -> list[int]:
        """The query axes of the weights: first those in their guard, then those as long as the key axis."""
        let = self.lets[self.weights]
        if isinstance(self.start, Gathering):
            here = self.fits(let) and self.start.key.from_zero
            return [n for n, a in enumerate(let.axes) if a.coordinate in self.start.queries] if here else []
        body = weights_of(let)
        assert body is not None
        spoken = frozenset() if body.guard is None else body.guard.type.coordinates
        axes = [n for n in range(len(let.axes)) if n != self.key and self._asks(n)]
        alike = [polynomial(axis.extent) == polynomial(let.axes[self.key].extent) for axis in let.axes]
        return sorted(axes, key=lambda n: (let.axes[n].coordinate not in spoken, not alike[n], -n))

    def _asks(self, axis: int) -> bool:
        """Whether something that varies with the key does not vary with an axis of the weights."""
        let = self.lets[self.weights]
        row, key = let.axes[axis].coordinate, let.axes[self.key].coordinate
        waiting, seen = [(let, row, key)], {let.name}
        while waiting:
            let, row, key = waiting.pop()
            for read in reads_of(let):
                bare = [i.coordinate if isinstance(i, ir.Coord) else None for i in read.indices]
                if key in read.type.coordinates and row not in read.type.coordinates and read.type.kind == "real":
                    return True
                other = self.lets.get(read.tensor)
                if other is not None and key in bare and row in bare and other.name not in seen:
                    seen.add(other.name)
                    slots = other.clauses[0].slots
                    at = [slot.coordinate if isinstance(slot, ir.Coord) else None for slot in slots]
                    there, back = at[bare.index(row)], at[bare.index(key)]
                    if there is not None and back is not None:
                        waiting.append((other, there, back))
        return False

    # ------------------------------------------------------------------------- who is in

    def along(self, axis: int) -> tuple[ir.Program, Block] | str:
        """The program in blocks of rows along an axis of the weights, and what is in a block; the reason where there is
        none."""
        let = self.lets[self.weights]
        self.rows = let.axes[axis].extent
        self.inner, self.totals = {self.weights: axis}, set()
        waiting = [self.weights]
        while waiting:
            name = waiting.pop()
            for reader in self.readers.get(name, []) if self.is_large(name) else []:
                found = self.enter(reader)
                if isinstance(found, str):
                    return found
                waiting += found
            waiting += self.read_by(name)
        between = self.between()
        if between is not None:
            return between
        if isinstance(self.start, Gathering):
            large = [name for name in self.lets if self.is_large(name)]
            if not large:
                return "nothing as large as its weights has a name"
            self.weights = large[0]
            extents = [polynomial(axis.extent) for axis in self.lets[self.weights].axes]
            there = [n for n, e in enumerate(extents) if e == polynomial(self.keys) and n != self.inner[self.weights]]
            self.key = there[0] if len(there) == 1 else -1
        return self.checked() or self.built()

    def is_large(self, name: str) -> bool:
        """Whether a definition has a point for every row and key."""
        axis = self.inner.get(name, -1)
        others = [polynomial(a.extent) for n, a in enumerate(self.lets[name].axes) if n != axis]
        return axis >= 0 and polynomial(self.keys) in others

    def read_by(self, name: str) -> list[str]:
        """The definitions with a point for every row and key that an inner one reads row by row: inner ones too."""
        found = []
        for read, row in self.row_reads(name):
            other = self.lets.get(read.tensor)
            bare = [i.coordinate if isinstance(i, ir.Coord) else None for i in read.indices]
            if other is None or other.name in self.inner or row not in bare or not self.fits(other):
                continue
            self.inner[other.name] = bare.index(row)
            if self.is_large(other.name) and other.name in self.needed:
                found.append(other.name)
            else:
                del self.inner[other.name]
        return found

    def row_reads(self, name: str) -> Iterator[tuple[ir.Read, Coordinate]]:
        """Every read of a definition that is in, with the coordinate of its rows."""
        let = self.lets[name]
        if name in self.inner:
            slot = let.clauses[0].slots[self.inner[name]]
            if isinstance(slot, ir.Coord):
                yield from ((read, slot.coordinate) for read in reads_of(let))
        elif name in self.totals:
            indices = [read.indices[self.inner[read.tensor]] for read in reads_of(let) if read.tensor in self.inner]
            rows = dict.fromkeys(index.coordinate for index in indices if isinstance(index, ir.Coord))
            yield from ((read, row) for read, sums in _under_sums(let) for row in rows if row in sums)

    def fits(self, let: ir.Let) -> bool:
        """Whether a definition is one clause over all its points."""
        if len(let.clauses) != 1 or let.name in self.recurrent or let.captured:
            return False
        clause = let.clauses[0]
        return all(r.from_zero for r in clause.ranges) and all(isinstance(slot, ir.Coord) for slot in clause.slots)

    def enter(self, let: ir.Let) -> list[str] | str:
        """Take in a definition that reads an inner one, row by row or as a sum over all rows; or say why not."""
        if let.name in self.inner or let.name in self.totals:
            return []
        if not self.fits(let) or let.name in self.reading:
            return f"`{let.name}` is computed in several cases or step by step"
        slots = [slot.coordinate for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)]
        axes: set[int] = set()
        for read, sums in _under_sums(let):
            if read.tensor not in self.inner:
                continue
            index = read.indices[self.inner[read.tensor]]
            if not isinstance(index, ir.Coord):
                return f"`{let.name}` reads `{read.tensor}` at other rows than its own"
            axes.add(slots.index(index.coordinate) if index.coordinate in slots else -1)
            if index.coordinate not in slots and not self.is_whole(sums.get(index.coordinate)):
                return f"`{let.name}` needs all rows of `{read.tensor}` at once"
        if len(axes - {-1}) > 1:
            return f"`{let.name}` reads rows of what it needs along several coordinates"
        if -1 in axes:
            self.totals.add(let.name)
            return [let.name]
        self.inner[let.name] = axes.pop()
        return [let.name]

    def is_whole(self, r: ir.Range | None) -> bool:
        """Whether a sum runs over all rows."""
        if r is None:
            return False
        return r.from_zero and polynomial(r.upper) == polynomial(self.rows)

    def between(self) -> str | None:
        """Take in the definitions that depend on inner ones and that inner ones need; or say why not."""
        while True:
            after = self.reached(self.readers_of, {*self.inner, *self.totals})
            before = self.reached(self.read_of, set(self.inner))
            missing = [n for n in self.lets if n in after & before and n not in self.inner and n in self.needed]
            if any(name in self.totals for name in missing):
                # Definitions no larger than a row that need such a sum are computed after all blocks.
                later = [
                    n for n in self.inner if not self.is_large(n) and self.reached(self.read_of, {n}) & self.totals
                ]
                if not later:
                    return "a sum over all rows is needed by them"
                self.totals.update(later)
                self.inner = {name: axis for name, axis in self.inner.items() if name not in later}
                continue
            if not missing:
                return None
            for name in missing:
                found = self.enter(self.lets[name])
                if isinstance(found, str):
                    return found
                if name in self.totals:
                    return f"`{name}` is a sum over all rows, and needed by them"

    def readers_of(self, name: str) -> set[str]:
        return {let.name for let in self.readers.get(name, [])}

    def read_of(self, name: str) -> set[str]:
        if name in self.reading:
            return self.reading[name] & self.lets.keys()
        return {read.tensor for read in reads_of(self.lets[name]) if read.tensor in self.lets}

    def reached(self, steps: Reads, start: set[str]) -> set[str]:
        """All that lies behind some definitions, one or more steps away."""
        return set(reached({name for each in start for name in steps(each)}, steps))

    # --------------------------------------------------------------------------- checks

    def checked(self) -> str | None:
        """Why definitions cannot be computed row by row after all."""
        count = len(self.lets[self.weights].axes)
        large = [n for n in self.inner if self.is_large(n) or (len(self.lets[n].axes) == count and self.is_placed(n))]
        if isinstance(self.start, str) and not set(large) - {self.weights} and not self.totals:
            return "nothing as large as its weights is computed from them"
        for name in self.inner:
            reason = self._fault(name)
            if reason is not None:
                return reason
        for name in self.totals:
            slots = [slot.coordinate for slot in self.lets[name].clauses[0].slots if isinstance(slot, ir.Coord)]
            for read, sums in _under_sums(self.lets[name]):
                index = read.indices[self.inner[read.tensor]] if read.tensor in self.inner else None
                if index is None or (isinstance(index, ir.Coord) and index.coordinate in slots):
                    continue
                if not isinstance(index, ir.Coord) or not self.is_whole(sums.get(index.coordinate)):
                    return f"`{name}` needs all rows of `{read.tensor}` at once"
        return None

    def is_placed(self, name: str) -> bool:
        """Whether a definition has the weights in other places of their rows."""
        reads = [read for read in reads_of(self.lets[name]) if read.tensor == self.weights]
        return any(not isinstance(read.indices[self.key], ir.Coord) for read in reads)

    def _fault(self, name: str) -> str | None:
        """The reason why a definition cannot be computed for some rows alone; None where it can."""
        let = self.lets[name]
        clause = let.clauses[0]
        slot = clause.slots[self.inner[name]]
        assert isinstance(slot, ir.Coord)
        row = slot.coordinate
        parts = [part for expr in parts_of(let) for part in walk(expr)]
        if any(isinstance(part, ir.Normalize) and part.coordinate == row for part in parts):
            return f"`{name}` is normalised over its rows"
        if polynomial(let.axes[self.inner[name]].extent) != polynomial(self.rows):
            return f"`{name}` has other rows"
        for read in reads_of(let):
            index = read.indices[self.inner[read.tensor]] if read.tensor in self.inner else None
            if index is not None and (not isinstance(index, ir.Coord) or index.coordinate != row):
                return f"`{name}` reads `{read.tensor}` at other rows than its own"
            for n, other in enumerate(read.indices):
                bare = isinstance(other, ir.Coord) and other.coordinate == row
                extent = self.program.tensors[read.tensor].axes[n].extent
                if bare and polynomial(extent) != polynomial(self.rows):
                    return f"`{read.tensor}` has other rows"
        return None

    # ------------------------------------------------------------------------- building

    def built(self) -> tuple[ir.Program, Block] | str:
        """The program with a definition for every sum over rows."""
        made: dict[str, list[ir.Let]] = {}
        changed = dict(self.lets)
        totals: list[str] = []
        for name in [n for n in self.lets if n in self.totals]:
            let = self.lets[name]
            clause = let.clauses[0]
            if sums_rows(clause.body, self.inner) and clause.guard is None:
                totals.append(name)
                continue
            split = Split(self.inner, let, [*self.program.tensors])
            body = split.rewritten(clause.body)
            if split.failed:
                return f"in `{name}` a sum over rows stands under another"
            made[name] = [new for new, _ in split.made]
            totals += [new.name for new, axis in split.made if axis is None]
            self.inner |= {new.name: axis for new, axis in split.made if axis is not None}
            changed[name] = replace(let, clauses=(replace(clause, body=body),))
        lets = tuple(new for let in self.program.lets for new in (*made.get(let.name, []), changed[let.name]))
        order: list[ir.Order] = []
        for item in self.program.order:
            order += [ir.Once(new.name) for new in made.get(item.name, [])] if isinstance(item, ir.Once) else []
            order.append(item)
        program = replace(self.program, lets=lets, order=tuple(order))
        names = [item.name for item in order if isinstance(item, ir.Once)]
        return _ordered(program, self.block(program.definitions, totals, names), self.reading)

    def block(self, changed: Mapping[str, ir.Let], totals: list[str], names: list[str]) -> Block:
        inner = [name for name in names if name in self.inner]
        others = self.needed - set(inner) - set(totals)
        outside = {read.tensor for name in others - self.reading.keys() for read in reads_of(changed[name])}
        outside |= {tensor for name in others & self.reading.keys() for tensor in self.reading[name]}
        kept = tuple(name for name in inner if name in self.wanted or name in outside)
        large = tuple(name for name in inner if name in self.lets and self.is_large(name))
        row = self.lets[self.weights].axes[self.inner[self.weights]].coordinate
        places = tuple((name, self.inner[name]) for name in inner)
        early = None
        if not set(large) & set(kept) and self.key >= 0:
            early = early_keys(changed, self.inner, set(totals), self.weights, self.key)
        return Block(self.weights, row, self.rows, places, kept, tuple(totals), large, self.keys, early)


def _under_sums(let: ir.Let) -> Iterator[tuple[ir.Read, Mapping[Coordinate, ir.Range]]]:
    """Every read of a definition, with the ranges of the sums around it."""
    for expr in parts_of(let):
        waiting: list[tuple[ir.Expr, Mapping[Coordinate, ir.Range]]] = [(expr, {})]
        while waiting:
            part, sums = waiting.pop()
            if isinstance(part, ir.Read):
                yield part, sums
            if isinstance(part, ir.Reduce) and part.op == "sum":
                inside = {**sums, **{r.coordinate: r for r in part.ranges}}
                waiting += [(b, sums) for r in part.ranges for b in (r.lower, r.upper)]
                waiting += [(inner, inside) for inner in (part.body, part.guard) if inner is not None]
                continue
            waiting += [(child, sums) for child in children(part)]


def _ordered(program: ir.Program, block: Block, reading: Mapping[str, set[str]]) -> tuple[ir.Program, Block] | str:
    """The program in an order in which a block is computed at once, after all that it reads."""
    lets = program.definitions
    inside = {name for name, _ in block.inner} | set(block.totals)
    owner = {}
    for number, item in enumerate(program.order):
        for name in members(item):
            owner[name] = number if name not in inside else -1
    edges: dict[int, list[int]] = {}
    for name, number in owner.items():
        read = reading[name] if name in reading else {part.tensor for part in reads_of(lets[name])}
        given = {owner[tensor] for tensor in read if tensor in owner}
        edges[number] = sorted({*edges.get(number, []), *given} - {number})
    groups = components(edges)
    if any(len(group) > 1 for group in groups):
        return "what the rows need is made of sums over them"
    order: list[ir.Order] = []
    for (number,) in groups:
        order += (
            [program.order[number]]
            if number >= 0
            else [item for item in program.order if isinstance(item, ir.Once) and item.name in inside]
        )
    return replace(program, order=tuple(order)), block
