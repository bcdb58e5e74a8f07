"""What the plan says of rules: how a definition is computed otherwise than it is written."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.types import Coordinate
from ..ops import Contract, Library, Map, Put, Read, Reduce, Value, Write, conjuncts
from ..order import is_view
from ..words import Names, as_written
from .choices import group_of
from .places import is_arithmetic, pinned, solved


def at_one_point(before: Value, after: Value, names: Names) -> str:
    """A sum of which a condition leaves one point."""
    assert isinstance(before.op, Reduce)
    found = pinned(before.op)
    assert found is not None
    axis, place, _ = found
    if is_arithmetic(place):
        return ""  # It is a view.
    test = next(test for test in conjuncts(before.op.where) if solved(test, axis) is place)
    direct = place in test.parts
    written = f"{axis.name} == {as_written(place, names)}" if direct else as_written(test, names)
    return f"read at `{written}`; 0 where that is no `{axis.name}`"


def into_places(before: Value, after: Value, names: Names) -> str:
    """A sum of what belongs to a place, into these places, or by the conditions that these are worked out from."""
    assert isinstance(before.op, Reduce)
    assert isinstance(after.op, Write)
    over = _listed(axis.name for axis in after.op.gone)
    tests = [test for test in conjuncts(before.op.where) if isinstance(test.op, Map) and test.op.fn == "=="]
    direct = {place for test in tests for place in test.parts}
    by = (place if place in direct else _naming(tests, axis.name) for axis, place in after.op.index)
    return f"scatter-add over {over} by {', '.join(f'`{as_written(one, names)}`' for one in by)}"


def into_array(before: Value, after: Value, names: Names) -> str:
    """New rows that are written into an array of the caller."""
    assert isinstance(after.op, Put)
    at = ", ".join(f"`{axis} = {as_written(place, names)}`" for axis, place in after.op.index)
    return f"rows are written into `{as_written(after.op.into, names)}`, which was given away, at {at}"


def _naming(tests: Iterable[Value], name: Coordinate) -> Value:
    """The first of some conditions that names an axis."""
    return next(test for test in tests if name in test.names)


def by_groups(before: Value, after: Value, names: Names) -> str:
    """A sum over the members of each group."""
    assert isinstance(before.op, Reduce)
    test = next(test for test in conjuncts(before.op.where) if group_of(test, before.op) is not None)
    return f"`{as_written(test, names)}`: the members of a group are put side by side"


def for_each_remainder(before: Value, after: Value, names: Names) -> str:
    """A sum of which a condition leaves every s-th point."""
    assert isinstance(after.op, Read)
    (axis,) = after.op.index[0][1].axes
    return f"one sum for each remainder of `{axis.name}`: nothing is multiplied that leaves another"


def by_chosen_matrices(before: Value, after: Value, names: Names) -> str:
    """Rows times the matrix that each of them chooses."""
    made = after.op.source if isinstance(after.op, Reduce) else after
    assert isinstance(made.op, Library)
    place = made.op.args[-1]
    while isinstance(place.op, Map) or (isinstance(place.op, Read) and place.op.outside == "check"):
        place = place.op.args[0] if isinstance(place.op, Map) else place.op.index[0][1]
    rows = _listed(place.names)
    return f"rows of {rows} grouped by `{as_written(place, names)}`, a product of matrices for each"


def by_convolution(before: Value, after: Value, names: Names) -> str:
    """A sum over windows. The axes along which they move come last in what the kernel returns."""
    assert isinstance(after.op, Library)
    _, _, _, *counts = after.op.result
    return f"a convolution along {_listed(name for group in counts for name in group)}"


def before_the_read(before: Value, after: Value, names: Names) -> str:
    """A table that is contracted before it is read."""
    assert isinstance(after.op, Read)
    return f"a product for each place of the table, read at {_places(after.op, names)}"


def before_the_contraction(before: Value, after: Value, names: Names) -> str:
    """A table whose weights are added up before they are contracted."""
    assert isinstance(before.op, Contract)
    over = frozenset(axis.name for axis in before.op.over)
    reads = (factor.op for factor in before.op.factors if isinstance(factor.op, Read) and not is_view(factor))
    place = next(at for read in reads for _, at in read.index if at.names & over)
    return f"weights are added up for each place `{as_written(place, names)}` of the table: one product of matrices"


def _places(op: Read | Write, names: Names) -> str:
    return ", ".join(f"`{as_written(at, names)}`" for _, at in op.index)


def _listed(names: Iterable[Coordinate]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(set(names)))
