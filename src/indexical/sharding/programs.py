"""The programs of one block: what a machine computes of a unit, compiled."""

from __future__ import annotations

from collections.abc import Mapping

from ..api import Program
from ..checker.recurrence import arrange
from ..diagnostics import CompileError, Sink
from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import fresh_name, reads_of, rebuild
from ..records import replace
from ..transform.excerpt import excerpt
from ..transform.local import Held, Interval, localized
from ..views.source import unwritten
from .moving import Block
from .prepared import total_of
from .units import Cut, Layout, Unit, summed_points


class Programs:
    """The programs of a layout, each made when it is first asked for; blocks that compute the same share one."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.known: dict[ir.Program, Program] = {}
        self.made: dict[object, tuple[Program, tuple[str, ...]]] = {}
        self.given = [let.name for let in layout.program.lets if let.name not in layout.free]

    def of_unit(self, unit: Unit, block: Block) -> tuple[Program, tuple[str, ...]]:
        """The program of a block, and the names of what it takes, in order."""
        key = (unit.number, block)
        if key not in self.made:
            program, wanted = self.layout.program, self.alive(unit, block)
            if unit.merged is not None:
                program, total = self._with_total(unit)
                wanted = (*wanted, total)
            cut = excerpt(program, [name for name in self.given if name not in unit.names], wanted)
            self.made[key] = self._compiled(cut, unit, block, {}, self._summed(unit, block, cut))
        return self.made[key]

    def alive(self, unit: Unit, block: Block) -> tuple[str, ...]:
        """The definitions of a unit that have points on a block, or points to sum over."""

        def has_points(name: str) -> bool:
            for dimension, cut in unit.cuts[name].items():
                if cut.axis is not None:
                    first, last = self.layout.rows(name, dimension)[self.layout.mesh.place(block, dimension)]
                elif cut.way == "sum":
                    first, last = self._points(name, cut, dimension, block)
                else:
                    continue
                if first >= last:
                    return False
            return True

        return tuple(name for name in unit.wanted if has_points(name))

    def of_ring(self, unit: Unit, block: Block, keys: Interval) -> tuple[Program, tuple[str, ...]]:
        """The program of a block and of some keys, which arrive as `…_passed`."""
        key = (unit.number, block, keys)
        if key not in self.made:
            assert unit.ring is not None
            program, total = self._with_total(unit)
            program, passed = _with_passed(program, unit)
            wanted = (*unit.names, total)
            cut = excerpt(program, [name for name in self.given if name not in unit.names], wanted)
            asked = {unit.ring.attention.coordinate: keys}
            held = {}
            for name, new in passed.items():
                found = list(self._held(unit, name, block))
                found[unit.ring.passed[name]] = keys
                held[new] = tuple(found)
            summed = dict.fromkeys(wanted, asked)
            self.made[key] = self._compiled(cut, unit, block, held, summed)
        return self.made[key]

    def _with_total(self, unit: Unit) -> tuple[ir.Program, str]:
        """The program with the logarithm of what an attention's weights are divided by."""
        (name,) = unit.names
        attention = unit.ring.attention if unit.ring is not None else unit.merged
        assert attention is not None
        program = self.layout.program
        let = program.definitions[name]
        body = let.clauses[0].body
        assert isinstance(body, ir.Reduce)
        sized = replace(attention, key=body.ranges[0])
        score, guard = _score(body)
        sized = replace(sized, score=score, guard=() if guard is None else (guard,))
        total = fresh_name(f"{name}_total", program.tensors)
        return replace(program, lets=(*program.lets, total_of(let, sized, total))), total

    def _summed(self, unit: Unit, block: Block, cut: ir.Program) -> dict[str, dict[Coordinate, Interval]]:
        found: dict[str, dict[Coordinate, Interval]] = {}
        for name in unit.names:
            for dimension, way in unit.cuts[name].items():
                if way.way == "sum" and way.coordinate is not None:
                    points = self._points(name, way, dimension, block)
                    found.setdefault(name, {})[way.coordinate] = points
        if unit.merged is not None:
            found |= {let.name: found[unit.names[0]] for let in cut.lets if let.name not in self.layout.program.tensors}
        return found

    def _points(self, name: str, cut: Cut, dimension: str, block: Block) -> Interval:
        """The points that a block sums over."""
        body = self.layout.program.definitions[name].clauses[0].body
        assert isinstance(body, ir.Reduce)
        range = next(range for range in body.ranges if range.coordinate == cut.coordinate)
        mesh = self.layout.mesh
        return summed_points(mesh, range, dimension)[mesh.place(block, dimension)]

    def _held(self, unit: Unit, name: str, block: Block, whole: bool = False) -> Held:
        """The points of an input of a unit that a block has; `whole` where it has more than it needs."""
        layout = self.layout
        held: list[Interval | None] = [None] * len(layout.program.tensors[name].axes)
        for dimension, axis in layout.homes[name].items():
            rows = unit.needs.get(name, {}).get(dimension) or (None if whole else layout.rows(name, dimension))
            held[axis] = None if rows is None else rows[layout.mesh.place(block, dimension)]
        return tuple(held)

    def _own(self, unit: Unit, name: str, block: Block) -> tuple[Held, Held]:
        """The points of a definition that a block has once it is computed, and those that it computes."""
        layout = self.layout
        let = layout.program.definitions[name]
        held: list[Interval | None] = [None] * len(let.axes)
        own = list(held)
        for dimension, cut in unit.cuts[name].items():
            if cut.axis is not None:
                first, last = layout.rows(name, dimension)[layout.mesh.place(block, dimension)]
                own[cut.axis] = (first, last)
                back = unit.reach[name] if cut.way == "handed" else 0
                held[cut.axis] = (max(first - back, 0), last)
        return tuple(held), tuple(own)

    def _compiled(
        self,
        cut: ir.Program,
        unit: Unit,
        block: Block,
        held: Mapping[str, Held],
        summed: Mapping[str, Mapping[Coordinate, Interval]],
    ) -> tuple[Program, tuple[str, ...]]:
        """The program of a block, compiled, and the names of its inputs; blocks with the same program share it."""
        free = [let for let in cut.lets if let.name in self.layout.free]
        everything: dict[str, Held] = dict(held)
        own: dict[str, Held] = {}
        for tensor in cut.inputs:
            if tensor.name not in everything:
                everything[tensor.name] = self._held(unit, tensor.name, block)
        for let in cut.lets:
            if let.name in unit.names:
                everything[let.name], own[let.name] = self._own(unit, let.name, block)
            elif let.name in self.layout.free and not any(let.name == r.tensor for f in free for r in reads_of(f)):
                everything[let.name] = own[let.name] = self._held(unit, let.name, block, whole=True)
            elif let.name in self.layout.program.tensors:
                everything[let.name] = own[let.name] = (None,) * len(let.axes)
            else:  # The total of an attention has axes of it.
                everything[let.name] = own[let.name] = self._like(unit, block, let)
        local = localized(cut, everything, own, summed)
        names = tuple(tensor.name for tensor in local.inputs)
        if local not in self.known:
            self.known[local] = compiled(local, f"unit {unit.number}")
        return self.known[local], names

    def _like(self, unit: Unit, block: Block, let: ir.Let) -> Held:
        (name,) = unit.names
        held, _ = self._own(unit, name, block)
        whole = self.layout.program.definitions[name]
        slots = whole.clauses[0].slots
        places = [slots.index(slot) for slot in let.clauses[0].slots]
        return tuple(held[place] for place in places)


def compiled(program: ir.Program, name: str) -> Program:
    """The program of a Program that has no text. The whole program was checked; a part of it is put in order."""
    sink = Sink()
    lets = tuple(replace(let, captured=0) if let.name in program.outputs else let for let in program.lets)
    found = unwritten(replace(program, lets=lets), name)
    found = replace(found, order=arrange(found.definitions, sink))
    if sink.failed:
        raise CompileError([finding for finding in sink if finding.severity == "error"])
    texts = ("local", repr(found.inputs), repr(found.lets), repr(found.outputs))
    return Program(found.source, found, texts=texts)


def _score(body: ir.Reduce) -> tuple[ir.Expr, ir.Expr | None]:
    """The score of an attention that is spelled as this room spells it, and its guard."""
    assert isinstance(body.body, ir.Map)
    weights = body.body.arguments[0]
    assert isinstance(weights, ir.Normalize)
    return weights.body, weights.guard


def _with_passed(program: ir.Program, unit: Unit) -> tuple[ir.Program, dict[str, str]]:
    """The program in which a unit reads what travels under another name: it may also read its own points of it."""
    assert unit.ring is not None
    key = unit.ring.attention.coordinate
    tensors = program.tensors
    names = {name: fresh_name(f"{name}_passed", tensors) for name in unit.ring.passed}
    axes = unit.ring.passed

    def changed(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Read(tensor, indices) if tensor in names and key in indices[axes[tensor]].type.coordinates:
                return build.read(names[tensor], indices, expr.type.kind, expr.span)
        return rebuild(expr, changed)

    lets = []
    for let in program.lets:
        if let.name in unit.names or let is program.lets[-1]:
            clause = let.clauses[0]
            let = replace(let, clauses=(replace(clause, body=changed(clause.body)),))
        lets.append(let)
    inputs = [
        ir.Input(new, tensors[name].axes, tensors[name].kind, getattr(tensors[name], "dtype", None), tensors[name].span)
        for name, new in names.items()
    ]
    return replace(program, lets=tuple(lets), inputs=(*program.inputs, *inputs)), names
