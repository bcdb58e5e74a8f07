"""The proof that no position reads one after it: then a program can be computed one position after another.

If a position is made of what stands at it and before it, the first positions are what they are however many follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..diagnostics import Label
from ..facts.contracts import later_pair
from ..facts.dependence import Dependence, Scan
from ..facts.positions import is_declared
from ..facts.view import View
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Atom, Polynomial, expression, polynomial, tidied
from ..ir.context import Trail, assume, inside
from ..ir.domain import Domain
from ..ir.graph import components
from ..ir.text import shown
from ..ir.types import Coordinate
from ..ir.walk import fresh, meaning, reads_of, rebuild, substitute, walk
from ..records import replace
from ..source import Span
from .past import Split, found
from .positions import COMPARISONS, Unsplit, sizes_in

# The scan of a tensor whose name is that of a definition behind this says that a reduction of it takes a position.
_TAKEN = "@"


def split(program: ir.Program, along: str, fixed: Collection[str], outputs: Sequence[str]) -> Split:
    """The program along the positions of a coordinate or space, none of which reads one after it."""
    result = found(program, along, fixed, outputs)
    prover = _Prover(View(result.program), result, outputs, program)
    prover.check()
    reach = prover.reaches()
    taken = {name.removeprefix(_TAKEN): far for name, far in reach.items() if name.startswith(_TAKEN)}
    return replace(result, reach={name: reach.get(name) for name in result.kept}, taken=taken)


class _Between(Dependence):
    """The scans of what has one position, through what has pairs of them: as many proofs as there are reads."""

    def __init__(self, program: ir.Program, split: Split) -> None:
        super().__init__(program, influence=True)
        self.cut = frozenset(name for name in split.axis if len(split.along[name]) == 1)
        reads = {let.name: [r.tensor for r in reads_of(let) if r.tensor in self.lets] for let in program.lets}
        left = {name: [read for read in read_ if read not in self.cut] for name, read_ in reads.items()}
        self.loops = {
            name: tuple(group)
            for group in components(left)
            for name in group
            if len(group) > 1 or name in left[name]
        }
        self.endless = frozenset(self.loops)

    def group(self, name: str) -> tuple[str, ...]:
        return self.loops.get(name, ())

    def _through(self, scan: Scan, home: ir.Let) -> Iterator[Scan]:
        if scan.tensor in self.cut:
            yield scan
        else:
            yield from super()._through(scan, home)


class _Prover:
    """The proof that no position reads one after it, and how far back each reads."""

    def __init__(self, view: View, split: Split, outputs: Sequence[str], written: ir.Program) -> None:
        self.view, self.split, self.outputs, self.written = view, split, outputs, written
        self.length = build.size(split.row, view.program.inputs[0].span)
        single = [name for name in split.rows if len(split.along[name]) == 1]
        self.roots = dict.fromkeys((*single, *(name for name in outputs if name in split.axis)))
        lets = tuple(self._counted(let) for let in view.program.lets)
        self.between = _Between(replace(view.program, lets=lets), split)

    def _counted(self, let: ir.Let) -> ir.Let:
        """The definition in which a reduction over positions also reads the position that it takes."""

        def change(expr: ir.Expr, ranges: Mapping[Coordinate, ir.Range]) -> ir.Expr:
            inner = {**ranges, **{r.coordinate: r for r in expr.ranges}} if isinstance(expr, ir.Reduce) else ranges
            expr = rebuild(expr, lambda child: change(child, inner))
            if not isinstance(expr, ir.Reduce | ir.Normalize):
                return expr
            bound = expr.ranges if isinstance(expr, ir.Reduce) else (inner[expr.coordinate],)
            for one in bound:
                if self.split.row in sizes_in(one.upper) | sizes_in(one.lower):
                    taken = build.read(_TAKEN + let.name, (build.coord(one.coordinate, expr.span),), "real", expr.span)
                    body = build.apply("*", (expr.body, taken), expr.body.type.kind, expr.span)
                    expr = replace(expr, body=body)
            return expr

        def whole(clause: ir.Clause) -> ir.Clause:
            ranges = {range.coordinate: range for range in clause.ranges}
            body = change(clause.body, ranges)
            return replace(clause, body=body, guard=clause.guard and change(clause.guard, ranges))

        return replace(let, clauses=tuple(map(whole, let.clauses)))

    def check(self) -> None:
        """Refuse a program in which a position depends on one after it, or on how many there are."""
        for let, scan, domain, own, index in self.scans():
            # A pair of positions is there when both are.
            places = [own, *(build.coord(let.axes[n].coordinate, let.span) for n in self._columns(let))]
            orders = [build.apply("<=", (index, place), "bool", index.span) for place in places if place != index]
            if len(orders) == len(places) and not any(map(domain.proves, orders)) and not domain.is_empty():
                self._refuse(let, scan, own, index)
        for name in self.view.made_of(*self.outputs):
            tensor = self.view.program.tensors[name]
            for number, axis in enumerate(tensor.axes):
                if number not in self.split.along[name] and not self._is_table(tensor, axis):
                    self._check_extent(tensor, axis)
            if isinstance(tensor, ir.Let):
                self._check_sizes(tensor)

    def _is_table(self, tensor: ir.Input | ir.Let, axis: ir.Axis) -> bool:
        """Whether an axis of an input that stays what it is has as many points as there are positions."""
        return isinstance(tensor, ir.Input) and isinstance(axis.extent, ir.Size)

    def _check_extent(self, tensor: ir.Input | ir.Let, axis: ir.Axis) -> None:
        if self.split.row in sizes_in(axis.extent):
            words = f"`{axis.coordinate.name}` runs over no positions, and has more points the more there are"
            message = f"`{tensor.name}` grows with the positions, but not by one for each"
            raise Unsplit(message, Label(tensor.span, words))

    def _columns(self, let: ir.Let) -> list[int]:
        return [n for n in self.split.along[let.name] if n != self.split.axis[let.name]]

    def scans(self) -> Iterator[tuple[ir.Let, Scan, Domain, ir.Expr, ir.Expr]]:
        """Every read of a row by another one: with where that is, its own position and that read."""
        for name in self.roots:
            let = self.view.lets[name]
            axis = let.axes[self.split.axis[name]]
            own = _less(build.coord(axis.coordinate, let.span), self.split.offset[name])
            for scan in sorted(self.between.of(name), key=lambda scan: scan.tensor.startswith(_TAKEN)):
                if scan.tensor.startswith(_TAKEN):
                    index = scan.indices[0]
                elif scan.tensor in self.split.axis:
                    scan = self._found(scan, let)
                    index = _less(scan.indices[self.split.axis[scan.tensor]], self.split.offset[scan.tensor])
                else:
                    continue
                yield let, scan, self.view.scanning(let, scan), own, index

    def _found(self, scan: Scan, let: ir.Let) -> Scan:
        """A scan at an index that `argmax` or `argmin` finds, as one of every point that it may find."""
        axis = self.split.axis[scan.tensor]
        index = meaning(scan.indices[axis], self.between.lets) or scan.indices[axis]
        if not isinstance(index, ir.Reduce) or index.op not in ("argmax", "argmin") or len(index.ranges) != 1:
            return scan
        used = {c.name for c in (*index.coordinates, *(range.coordinate for range in scan.ranges))}
        used |= {one.coordinate.name for one in let.axes}
        place = build.coord(fresh(index.ranges[0].coordinate, used), index.span)
        guard = index.guard and substitute(index.guard, {index.ranges[0].coordinate: place})
        return replace(
            scan,
            indices=(*scan.indices[:axis], place, *scan.indices[axis + 1 :]),
            ranges=(*scan.ranges, replace(index.ranges[0], coordinate=place.coordinate)),
            conditions=scan.conditions if guard is None else (*scan.conditions, guard),
        )

    def _refuse(self, let: ir.Let, scan: Scan, own: ir.Expr, index: ir.Expr) -> None:
        """Raise the refusal of a read that comes after its own position, with two positions where some are found."""
        pair = later_pair(scan, index, own, 0, let)
        row = self.split.row.name
        if scan.tensor.startswith(_TAKEN):
            what = f"takes position {pair[1]}" if pair else "takes all positions"
            words = "this reduction takes it"
        else:
            place = f"position {pair[1]}" if pair else f"`{shown(index)}`"
            what = f"reads `{scan.tensor}` at {place}"
            words = "read here"
        if pair is None:
            message = f"`{let.name}` {what}, and nothing proves that this does not come after its own position"
        else:
            message = f"`{let.name}` at position {pair[0]} {what}, which comes after it"
        help = f"a guard such as `where j <= {row}` removes the positions after it{self._or_whole(scan)}"
        raise Unsplit(message, Label(index.span, words), Label(let.span, "for every position of this"), help=help)

    def _or_whole(self, scan: Scan) -> str:
        """More help: a tensor that is read may be a memory that is there as a whole, though no space says so."""
        given = [t.name for t in self.view.program.inputs if self.split.along[t.name]]
        made_of = [name for name in self.view.made_of(scan.tensor) if name in given]
        if len(made_of) != 1 or len(given) == 1:
            return ""
        name = made_of[0]
        if is_declared(View(self.written).space_of(name, self.split.along[name][0])):
            return ""
        return f"; if `{name}` is known as a whole, declare a space for its own positions, or give it here: `{name}=…`"

    def _check_sizes(self, let: ir.Let) -> None:
        """Refuse a value or a guard that depends on how many positions there are; bounds that always hold do not."""
        for clause in let.clauses:
            trail: Trail = clause.ranges
            for expr in (clause.guard, clause.body):
                for size in () if expr is None else self._loose(expr, trail):
                    message = f"`{let.name}` depends on how many positions there are"
                    raise Unsplit(message, Label(size.span, "this changes with every further position"))
                if expr is clause.guard and expr is not None:
                    trail = (*trail, (expr, True))

    def _loose(self, expr: ir.Expr, trail: Trail) -> Iterator[ir.Size]:
        """The number of positions, wherever it is more than the end of a range or a bound that always holds."""
        if isinstance(expr, ir.Size) and expr.coordinate == self.split.row:
            yield expr
        if self.split.row not in sizes_in(tidied(expr)):  # A difference of two sizes that are one.
            return
        is_bound = isinstance(expr, ir.Map) and expr.op in COMPARISONS
        if is_bound and assume(trail, self.view.lets).proves(expr):
            return
        bounds = 2 * len(expr.ranges) if isinstance(expr, ir.Reduce) else 0
        for part, path in inside(expr, trail)[bounds:]:
            yield from self._loose(part, path)

    def reaches(self) -> dict[str, ir.Expr | None]:
        """How many positions back each that is kept is read at most, or those that a reduction takes are; None where
        nothing bounds it."""
        found: dict[str, ir.Expr | None] = {}
        inputs = {tensor.name for tensor in self.view.program.inputs}
        for _, scan, domain, own, index in self.scans():
            if index == own or found.get(scan.tensor, own) is None:
                continue
            here = _reach(domain, polynomial(own) - polynomial(index), index.span)
            parts = () if here is None else walk(here)
            if any(isinstance(part, ir.Read) and part.tensor not in inputs for part in parts):
                here = None
            if here is not None and self.split.row in sizes_in(here):
                here = None
            before = found.get(scan.tensor)
            found[scan.tensor] = here if before is None or here is None else _larger(before, here)
        return found


def _less(expr: ir.Expr, number: int) -> ir.Expr:
    return build.apply("-", (expr, build.whole(number, expr.span)), "whole", expr.span) if number else expr


def _reach(domain: Domain, distance: Polynomial, span: Span) -> ir.Expr | None:
    """A bound of a distance that does not vary; None where none is stated."""
    if distance.constant is not None:
        return build.whole(distance.constant, span)
    most: ir.Expr | None = None
    for known in domain.contexts:
        widths = [row + distance for row in known.known]
        bounds = [width for width in widths if not any(_varies(atom) for atom in width.atoms)]
        if not bounds:
            return None
        best = min(bounds, key=lambda width: (width.constant is None, width.constant or 0))
        here = expression(best, span)
        most = here if most is None else _larger(most, here)
    return most


def _varies(atom: Atom) -> bool:
    return isinstance(atom, Coordinate) or bool(atom.type.coordinates)


def _larger(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    if one == other:
        return one
    if isinstance(one, ir.Const) and isinstance(other, ir.Const):
        return one if int(one.value) >= int(other.value) else other
    return build.apply("max", (one, other), "whole", one.span)
