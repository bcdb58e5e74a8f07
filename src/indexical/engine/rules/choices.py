"""Rows that choose a matrix, and sums of what belongs to a group."""

from __future__ import annotations

from typing import TypeAlias

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...records import dataclass
from ..ops import (
    Axis,
    Contract,
    Iota,
    Library,
    Map,
    Number,
    Outside,
    Read,
    Reduce,
    Value,
    Write,
    all_of,
    conjuncts,
    host,
    value,
)
from ..order import is_view
from .patterns import Found, No, Target
from .places import is_arithmetic, placed
from .terms import NOWHERE, applied, cast, factors_of, fresh, length, names_of, product, total, whole

BY_PLACE, PRODUCTS = "by_place", "products_by_place"
Names: TypeAlias = frozenset[Coordinate]
BY_GROUPS = "rows grouped by place"  # What the plan calls it.


def sum_groups(one: Value, found: Found, target: Target) -> Value | No | None:
    """The sum over the members of a group: under `h / 4 == g` these are `g * 4 + r`."""
    op = one.op
    assert isinstance(op, Reduce)
    tests = conjuncts(op.where)
    for n, test in enumerate(tests):
        found_group = group_of(test, op)
        if found_group is not None:
            return _members(op, found_group, tests[:n] + tests[n + 1 :])
    return None


@dataclass(frozen=True, slots=True)
class Groups:
    """The `members` of groups: member / width is its group, or what member % width leaves."""

    members: Axis
    width: int
    groups: Axis
    by_remainder: bool


def group_of(test: Value, op: Reduce) -> Groups | None:
    """The groups, where a condition says which members each has."""
    match test.op:
        case Map("==", (a, b)):
            for quotient, group in ((a, b), (b, a)):
                match quotient.op, group.op:
                    case (
                        Map("//" | "%" as fn, (Value(op=Iota(member)), Value(op=Number(ir.Const(int() as width))))),
                        Iota(which),
                    ) if member in op.over and width > 0 and which.name not in names_of(op.over):
                        return Groups(member, width, which, fn == "%")
    return None


def _members(op: Reduce, groups: Groups, others: list[Value]) -> Value | No | None:
    member, which, width = groups.members, groups.groups, groups.width
    if member.name not in op.source.names:
        return None
    if which.name in op.source.names:
        return No("what is summed varies with the group itself")
    taken = op.source.names | names_of(op.over) | {which.name}
    inside = Axis(fresh(member.name, taken), _members_each(groups))
    group, number = value(Iota(which)), value(Iota(inside))
    first, second = (number, group) if groups.by_remainder else (group, number)
    place = applied("+", applied("*", first, whole(width)), second)
    given = {member.name: place}
    full = not groups.by_remainder and _is_full(which, width, member)
    outside: Outside = "never" if full else "masked"
    there = None if full else applied("<", place, host(member.extent))
    remains = applied("<", group, whole(width)) if groups.by_remainder else None
    source = value(Read(op.source, ((member.name, place),), outside))
    over = tuple(sorted((inside if axis == member else axis for axis in op.over), key=lambda axis: axis.name))
    guard = all_of(there, remains, *(placed(other, given) for other in others))
    return value(Reduce(op.fn, source, over, guard, op.checked))


def _members_each(groups: Groups) -> ir.Expr:
    """The number of members that a group has at most."""
    if not groups.by_remainder:
        return build.whole(groups.width, NOWHERE)
    less = build.apply("+", (groups.members.extent, build.whole(groups.width - 1, NOWHERE)), "whole", NOWHERE)
    return build.apply("//", (less, build.whole(groups.width, NOWHERE)), "whole", NOWHERE)


def _is_full(groups: Axis, width: int, members: Axis) -> bool:
    """Whether every group has all of its members."""
    match groups.extent, members.extent:
        case ir.Map("//", (count, ir.Const(divisor))), extent if divisor == width and count == extent:
            return True
        case ir.Const(int() as count), ir.Const(int() as extent):
            return count * width <= extent
    return False


def choose_matrices(one: Value, found: Found, target: Target) -> Value | No | None:
    """Rows times the matrix that each of them chooses: all rows of one matrix at once."""
    op = one.op
    assert isinstance(op, Contract)
    if BY_PLACE not in target.kernels or len(op.factors) < 2:
        return None
    for n, table in enumerate(op.factors):
        read = table.op
        if not isinstance(read, Read) or is_view(table) or len(read.index) != 1:
            continue
        [(name, place)] = read.index
        x = product(op.factors[:n] + op.factors[n + 1 :])
        rows = place.names
        over = names_of(op.over) - rows
        columns = read.source.names - over - {name}
        varies = x.names - over
        if is_arithmetic(place) or not rows or not columns or not over or not over <= read.source.names & x.names:
            continue
        if rows & read.source.names or not (varies <= rows or rows <= varies):
            continue
        if varies & columns:
            return No(f"`{min(varies & columns)}` is in the table and in what it is multiplied with", BY_GROUPS)
        if read.outside == "masked" or read.under is not None:
            return No("its place may be out of bounds where a guard removes it", BY_GROUPS)
        return _by_place(one, read, x, rows | varies, columns, over)
    return None


def _by_place(one: Value, read: Read, x: Value, rows: Names, columns: Names, over: Names) -> Value:
    """The kernel; rows that are summed are so after it."""
    assert isinstance(one.op, Contract)
    [(name, place)] = read.index
    if read.outside == "check":  # The places themselves, each refused where it is none.
        place = value(Read(value(Iota(read.source.axis(name))), ((name, place),), "check"))
    mine, theirs, inner = tuple(sorted(rows)), tuple(sorted(columns)), tuple(sorted(over))
    layouts = (("", (mine, inner)), ("", ((name,), theirs, inner)), ("", (mine,)))
    found = {axis.name: axis for each in (place, x, read.source) for axis in each.axes}
    axes = tuple(found[each] for each in (*mine, *theirs))
    args = (cast(x, one.dtype), cast(read.source, one.dtype), cast(place, "i64"))
    made = value(Library(BY_PLACE, args, layouts, axes, (mine, theirs), (), "real", one.dtype))
    summed = tuple(axis for axis in one.op.over if axis.name in rows)
    return total(made, summed) if summed else made


def products_by_place(one: Value, found: Found, target: Target) -> Value | No | None:
    """Products of two rows each that are added at the place of the row: a product of matrices for each place, over the
    rows that have it."""
    op = one.op
    assert isinstance(op, Write)
    if PRODUCTS not in target.kernels or op.combine != "add" or op.outside != "masked" or op.under is not None:
        return None
    rows = names_of(op.gone)
    factors = factors_of(op.values)
    sides = list(dict.fromkeys(names for factor in factors if (names := factor.value.names - rows)))
    [(axis, place), *more] = op.index
    if more or place.names != rows or len(sides) != 2 or sides[0] & sides[1] or one.dtype not in ("f32", "f64"):
        return None
    if any(factor.inverse for factor in factors):
        return No("one row is divided by the other, and not multiplied")
    first = [factor.value for factor in factors if factor.value.names - rows != sides[1]]
    second = [factor.value for factor in factors if factor.value.names - rows == sides[1]]
    args = (*(cast(product(side), one.dtype) for side in (first, second)), cast(place, "i64"))
    mine, left, right = tuple(sorted(rows)), tuple(sorted(sides[0])), tuple(sorted(sides[1]))
    layouts = (("", (mine, left)), ("", (mine, right)), ("", (mine,)))
    axes = (axis, *(one.axis(name) for name in (*left, *right)))
    words = (("count", length(axis)),)
    return value(Library(PRODUCTS, args, layouts, axes, ((axis.name,), left, right), words, "real", one.dtype))
