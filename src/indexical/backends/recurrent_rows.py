"""Storage of a recurrence while it is computed: an array that is filled in, or rows by step."""

from __future__ import annotations

from ..ir import nodes as ir
from ..ir.affine import number, of_atom, polynomial
from . import clauses, indexing, sizes, views
from .base import Value
from .clauses import zero_of
from .code import Comprehension, Dict, Index, Name, Node, Tuple, call, infix, method
from .lowering import Lowering, Stored
from .scope import Scope
from .views import Access


def prepare(low: Lowering, let: ir.Let, stepped: tuple[int, ...], before: int = 0) -> None:
    """A place for the steps of a definition, with so many of zeros before the first."""
    dtype = low.dtypes[let.name]
    low.whole_names[let.name] = variable = low.text.fresh(let.name)
    if low.text.dialect.fills_rows and steps_kept(low, let) is None:
        low.text.assign(variable, low.text.dialect.full(clauses.storage_shape(low, let), zero_of(let), dtype))
        low.stored[let.name] = Stored(variable, dtype, growing=True)
    else:
        variable = low.text.fresh(f"{let.name}_rows")
        low.stored[let.name] = stored = Stored(variable, dtype, rows=stepped, growing=True, before=before)
        if before:
            steps = tuple(range(-before, 0))
            low.text.update(variable, method("dict", "fromkeys", steps, empty_row(low, let, stored)))
        else:
            low.text.update(variable, Dict())


def steps_kept(low: Lowering, let: ir.Let) -> int | None:
    """The number of steps of a definition that are kept at a time; None for all."""
    recurrence = low.recurrences.get(let.name)
    return None if recurrence is None else recurrence.kept


def forget(low: Lowering, let: ir.Let, step: Node, forward: bool) -> None:
    """A step that no later one reads is let go."""
    kept = steps_kept(low, let)
    if kept is not None:
        last = infix("-" if forward else "+", step, kept)
        low.text.do(method(low.stored[let.name].variable, "pop", last, None))


def assemble(low: Lowering, let: ir.Let, stepped: tuple[int, ...]) -> None:
    """The steps of a recurrence as one array."""
    stored = low.stored[let.name]
    if steps_kept(low, let) is not None:
        low.stored[let.name] = Stored(stored.variable, stored.dtype, rows=stored.rows)
        return
    low.stored[let.name] = Stored(stored.variable, stored.dtype)
    if not stored.rows:
        return
    counts = [sizes.extent(low, let.axes[n].extent) for n in stepped]
    if len(stepped) == 1 and any(not isinstance(clause.slots[stepped[0]], ir.Coord) for clause in let.clauses):
        step = low.text.fresh(let.axes[stepped[0]].coordinate.name)
        low.text.release(step)
        row = Index(Name(stored.variable), (Name(step),))
        code = low.text.dialect.stack(Comprehension(row, step, call("range", counts[0])), stepped[0])
    else:
        code = so_far(low, let, stored, counts)
    variable = low.whole_names[let.name]
    low.text.assign(variable, code)
    low.stored[let.name] = Stored(variable, stored.dtype)


def so_far(low: Lowering, let: ir.Let | ir.Input, stored: Stored, counts: list[Node]) -> Node:
    """The steps so far, as one array, with zeros for the others."""
    row = empty_row(low, let, stored)
    return call(low.text.helper("stacked"), stored.variable, tuple(counts), stored.rows, row)


def empty_row(low: Lowering, let: ir.Let | ir.Input, stored: Stored) -> Node:
    lengths = tuple(sizes.extent(low, axis.extent) for n, axis in enumerate(let.axes) if n not in stored.rows)
    return low.text.dialect.full(Tuple(lengths), zero_of(let), stored.dtype or low.compute)


def read_rows(
    low: Lowering,
    tensor: str,
    stored: Stored,
    base: Value,
    indices: list[ir.Expr],
    extents: list[ir.Expr],
    message: str,
    scope: Scope,
) -> Value:
    """A definition that is still being computed: one row of it, or all rows there are."""
    let = low.tensors[tensor]
    accesses = [row_access(low, indices[axis], stored, scope) for axis in stored.rows]
    if any(access is None or access.how != "fixed" for access in accesses):
        if ("so far", tensor) not in low.known:
            counts = [sizes.extent(low, extents[axis]) for axis in stored.rows]
            whole = base.but(so_far(low, let, stored, counts))
            low.known["so far", tensor] = low.text.keep(whole, "so_far")
        return indexing.at(low, low.known["so far", tensor], indices, extents, message, scope)
    safe = True
    for axis, access in zip(stored.rows, accesses, strict=True):
        assert access is not None
        safe = views.bounded(low, access, indices[axis], extents[axis], message, scope) is not None and safe
    safe = safe and (not scope.conditions() or is_earlier(low, tensor, [indices[axis] for axis in stored.rows], scope))
    key = tuple(sizes.number(low, indices[axis], scope) for axis in stored.rows)
    if safe or stored.before:
        row = base.but(Index(Name(stored.variable), key))
    else:
        place = key[0] if len(key) == 1 else Tuple(key)
        row = base.but(method(stored.variable, "get", place, empty_row(low, let, stored)))
    others = [n for n in range(len(indices)) if n not in stored.rows]
    if not others:
        return row
    return indexing.at(low, row, [indices[n] for n in others], [extents[n] for n in others], message, scope)


def row_access(low: Lowering, index: ir.Expr, stored: Stored, scope: Scope) -> Access | None:
    """An index of a step. Of what is computed only the last step may have been kept, and that is one number, even
    where an array has it."""
    if stored.growing:
        return views.access(low, index, scope)
    place = polynomial(index)
    return Access("fixed", (), place, place + 1, number(1))


def is_earlier(low: Lowering, tensor: str, indices: list[ir.Expr], scope: Scope) -> bool:
    """Whether a row was computed in an earlier turn of the loops around or before in this one, whatever a guard
    says."""
    for index, (step, forward) in zip(indices, low.turning, strict=False):
        here = next((c for c, place in scope.places.items() if place.step == step), None)
        if here is None:
            return False
        behind = of_atom(here) - low.prover.polynomial(index)
        behind = behind if forward else -behind
        if low.prover.entails(scope.box, behind - 1):
            return True
        if not low.prover.entails(scope.box, behind):
            return False
    return len(indices) == 1 and tensor in low.done
