"""Storage of a recurrence while it is computed: an array that is filled in, or rows by step."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir import nodes as ir
from ..ir.affine import number, of_atom, polynomial
from ..plan.scans import Recurrence
from .base import Value
from .clauses import Clauses, zero_of
from .code import Comprehension, Dict, Index, Name, Node, Tuple, call, infix, method
from .scope import Scope
from .state import Stored
from .views import Access


@dataclass
class Rows(Clauses):
    """Arrays of zeros that are filled in, or dictionaries of rows, by step, so that gradients flow. `turning` are the
    loops around, outermost first: the variable of each, and whether it goes forward.
    `recurrences` are those of the plan, `done` what has its row in this turn already."""

    recurrences: dict[str, Recurrence] = field(default_factory=dict)
    turning: list[tuple[Node, bool]] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    whole_names: dict[str, str] = field(default_factory=dict)

    def prepare(self, let: ir.Let, stepped: tuple[int, ...], before: int = 0) -> None:
        """A place for the steps of a definition, with so many of zeros before the first."""
        dtype = self.dtypes[let.name]
        self.whole_names[let.name] = variable = self.text.fresh(let.name)
        if self.text.dialect.fills_rows and self.kept(let) is None:
            self.text.assign(variable, self.text.dialect.full(self.home(let, ()), zero_of(let), dtype))
            self.stored[let.name] = Stored(variable, dtype, growing=True)
        else:
            variable = self.text.fresh(f"{let.name}_rows")
            self.stored[let.name] = stored = Stored(variable, dtype, rows=stepped, growing=True, before=before)
            if before:
                steps = tuple(range(-before, 0))
                self.text.update(variable, method("dict", "fromkeys", steps, self.empty_row(let, stored)))
            else:
                self.text.update(variable, Dict())

    def kept(self, let: ir.Let) -> int | None:
        """The number of steps of a definition that are kept at a time; None for all."""
        recurrence = self.recurrences.get(let.name)
        return None if recurrence is None else recurrence.kept

    def forget(self, let: ir.Let, step: Node, forward: bool) -> None:
        """A step that no later one reads is let go."""
        kept = self.kept(let)
        if kept is not None:
            last = infix("-" if forward else "+", step, kept)
            self.text.do(method(self.stored[let.name].variable, "pop", last, None))

    def assemble(self, let: ir.Let, stepped: tuple[int, ...]) -> None:
        """The steps of a recurrence as one array."""
        stored = self.stored[let.name]
        if self.kept(let) is not None:
            self.stored[let.name] = Stored(stored.variable, stored.dtype, rows=stored.rows)
            return
        self.stored[let.name] = Stored(stored.variable, stored.dtype)
        if not stored.rows:
            return
        counts = [self.extent(let.axes[n].extent) for n in stepped]
        if len(stepped) == 1 and any(not isinstance(clause.slots[stepped[0]], ir.Coord) for clause in let.clauses):
            step = self.text.fresh(let.axes[stepped[0]].coordinate.name)
            self.text.taken.discard(step)
            row = Index(Name(stored.variable), (Name(step),))
            code = self.text.dialect.stack(Comprehension(row, step, call("range", counts[0])), stepped[0])
        else:
            code = self.so_far(let, stored, counts)
        variable = self.whole_names[let.name]
        self.text.assign(variable, code)
        self.stored[let.name] = Stored(variable, stored.dtype)

    def so_far(self, let: ir.Let | ir.Input, stored: Stored, counts: list[Node]) -> Node:
        """The steps so far, as one array, with zeros for the others."""
        row = self.empty_row(let, stored)
        return call(self.text.helper("stacked"), stored.variable, tuple(counts), stored.rows, row)

    def empty_row(self, let: ir.Let | ir.Input, stored: Stored) -> Node:
        lengths = tuple(self.extent(axis.extent) for n, axis in enumerate(let.axes) if n not in stored.rows)
        return self.text.dialect.full(Tuple(lengths), zero_of(let), stored.dtype or self.compute)

    def read_rows(
        self,
        tensor: str,
        stored: Stored,
        base: Value,
        indices: list[ir.Expr],
        extents: list[ir.Expr],
        message: str,
        scope: Scope,
    ) -> Value:
        """A definition that is still being computed: one row of it, or all rows there are."""
        let = self.tensors[tensor]
        accesses = [self.row_access(indices[axis], stored, scope) for axis in stored.rows]
        if any(access is None or access.how != "fixed" for access in accesses):
            if ("so far", tensor) not in self.known:
                counts = [self.extent(extents[axis]) for axis in stored.rows]
                whole = base.but(self.so_far(let, stored, counts))
                self.known["so far", tensor] = self.text.keep(whole, "so_far")
            return self.at(self.known["so far", tensor], indices, extents, message, scope)
        safe = True
        for axis, access in zip(stored.rows, accesses, strict=True):
            assert access is not None
            safe = self.bounded(access, indices[axis], extents[axis], message, scope) is not None and safe
        safe = safe and (
            not scope.conditions() or self.is_earlier(tensor, [indices[axis] for axis in stored.rows], scope)
        )
        key = tuple(self.number(indices[axis], scope) for axis in stored.rows)
        if safe or stored.before:
            row = base.but(Index(Name(stored.variable), key))
        else:
            place = key[0] if len(key) == 1 else Tuple(key)
            row = base.but(method(stored.variable, "get", place, self.empty_row(let, stored)))
        others = [n for n in range(len(indices)) if n not in stored.rows]
        if not others:
            return row
        return self.at(row, [indices[n] for n in others], [extents[n] for n in others], message, scope)

    def row_access(self, index: ir.Expr, stored: Stored, scope: Scope) -> Access | None:
        """An index of a step. Of what is computed only the last step may have been kept, and that is one number, even
        where an array has it."""
        if stored.growing:
            return self.access(index, scope)
        place = polynomial(index)
        return Access("fixed", (), place, place + 1, number(1))

    def is_earlier(self, tensor: str, indices: list[ir.Expr], scope: Scope) -> bool:
        """Whether a row was computed in an earlier turn of the loops around or before in this one, whatever a guard
        says."""
        for index, (step, forward) in zip(indices, self.turning, strict=False):
            here = next((c for c, place in scope.places.items() if place.step == step), None)
            if here is None:
                return False
            behind = of_atom(here) - self.prover.polynomial(index)
            behind = behind if forward else -behind
            if self.prover.entails(scope.box, behind - 1):
                return True
            if not self.prover.entails(scope.box, behind):
                return False
        return len(indices) == 1 and tensor in self.done
