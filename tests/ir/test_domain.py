"""Domains against every point of small boxes: what is exact is equal, all else is larger, what is proved is true."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexical.ir import build, whole
from indexical.ir.domain import Domain, Slice
from indexical.ir.nodes import Const, Coord, Expr, Map, Range, Read, Select, Size
from indexical.ir.pairs import Pairs
from indexical.ir.text import shown
from indexical.ir.types import Coordinate
from indexical.source import Source, Span

SPAN = Span(Source("", ""), 0, 0)
ASKING, ANSWERING, LAST = (Coordinate(name) for name in "ijk")
N, M = (build.size(Coordinate(name), SPAN) for name in "nm")
ASKS, ANSWERS, THIRD = (build.coord(coordinate, SPAN) for coordinate in (ASKING, ANSWERING, LAST))
ZERO = build.whole(0, SPAN)
BOX = (Range(ASKING, ZERO, N, True, SPAN), Range(ANSWERING, ZERO, N, True, SPAN), Range(LAST, ZERO, M, True, SPAN))
SIZES = [(0, 2), (1, 1), (3, 2), (5, 3)]

Point = dict[object, int]


# --------------------------------------------------------------------------------- evaluation


def value(expr: Expr, point: Point) -> int:
    """A whole or Boolean expression at a point; tables hold what their name and indices come to."""
    match expr:
        case Const(number):
            return int(number)
        case Coord(coordinate) | Size(coordinate):
            return point[coordinate if isinstance(expr, Coord) else expr]
        case Read(_, ()):
            return point[expr]
        case Read(tensor, indices):
            return Random(f"{tensor}{[value(index, point) for index in indices]}").randrange(2)
        case Select(condition, then, otherwise):
            return value(then if value(condition, point) else otherwise, point)
        case Map("&&", (left, right)):
            return value(left, point) and value(right, point)
        case Map("||", (left, right)):
            return value(left, point) or value(right, point)
        case Map(op, arguments):
            return applied(op, [value(argument, point) for argument in arguments])
    raise AssertionError(expr)


def applied(op: str, numbers: list[int]) -> int:
    match op, numbers:
        case "!", [a]:
            return not a
        case "==" | "!=" | "<" | "<=" | ">" | ">=", [a, b]:
            orders = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
            return orders[op]
    arguments = tuple(build.whole(number, SPAN) for number in numbers)
    return whole.value(build.apply(op, arguments, "whole", SPAN), lambda leaf: 0)


def points(domain: Domain, n: int, m: int) -> Iterator[Point]:
    """Every point of the box."""

    def further(point: Point, ranges: tuple[Range, ...]) -> Iterator[Point]:
        if not ranges:
            yield point
            return
        for place in range(value(ranges[0].lower, point), value(ranges[0].upper, point)):
            yield from further({**point, ranges[0].coordinate: place}, ranges[1:])

    yield from further({N: n, M: m}, domain.box)


def holds(domain: Domain, point: Point) -> bool:
    inside = all(value(r.lower, point) <= point[r.coordinate] < value(r.upper, point) for r in domain.box)
    return inside and any(all(value(fact, point) for fact in piece.facts) for piece in domain.pieces)


def in_slice(one: Slice, place: int, point: Point) -> bool:
    return (
        all(value(bound, point) <= place for bound in one.lower)
        and all(place < value(bound, point) for bound in one.upper)
        and all(value(asks, point) == value(answers, point) for asks, answers in one.labels)
        and all(value(condition, point) for condition in one.rest)
    )


def key_of(point: Point, coordinates: tuple[Coordinate, ...]) -> tuple[int, ...]:
    return tuple(point[c] for c in coordinates)


# --------------------------------------------------------------------------------- generation


def compare(op: str, left: Expr, right: Expr) -> Expr:
    return build.apply(op, (left, right), "bool", SPAN)


def apply(op: str, *arguments: Expr) -> Expr:
    return build.apply(op, arguments, "whole", SPAN)


def figure(number: int) -> Expr:
    return build.whole(number, SPAN)


comparisons = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
coordinates = st.sampled_from([ASKS, ANSWERS, ANSWERS, THIRD])
small = st.integers(-3, 3).map(figure)


@st.composite
def sums(draw: st.DrawFn) -> Expr:
    """A small affine form."""
    result = draw(coordinates)
    for _ in range(draw(st.integers(0, 2))):
        term = draw(st.sampled_from([ASKS, ANSWERS, THIRD, N, M]))
        factor = draw(st.sampled_from([1, 1, 1, 2, 3]))
        term = term if factor == 1 else apply("*", figure(factor), term)
        result = apply(draw(st.sampled_from("+-")), result, term)
    return result


@st.composite
def facts(draw: st.DrawFn) -> Expr:
    """One condition of each kind that guards are made of."""
    left, right, number = draw(coordinates), draw(coordinates), draw(small)
    step = figure(draw(st.integers(2, 3)))
    difference = apply("-", left, right)
    kind = draw(st.sampled_from("affine affine affine near order block stride remainder label own opaque edge".split()))
    match kind:
        case "affine":
            return compare(draw(comparisons), draw(sums()), number)
        case "near":
            return compare(draw(comparisons), apply("abs", difference), number)
        case "order":
            return compare(draw(comparisons), left, apply("+", right, number))
        case "block":
            return compare(draw(comparisons), apply("//", left, step), apply("//", right, step))
        case "stride":
            return compare("==", apply("%", apply("+", difference, number), step), ZERO)
        case "remainder":
            return compare("==", apply("%", left, step), apply("%", right, step))
        case "label":
            read = [build.read("doc", (index,), "whole", SPAN) for index in (left, right)]
            return compare("==", read[0], apply("+", read[1], number))
        case "own":
            return build.read("kept", (left,), "bool", SPAN)
        case "edge":
            sides = (left, apply("+", right, number))
            return compare(draw(comparisons), apply(draw(st.sampled_from(["max", "min"])), *sides), draw(coordinates))
        case _:
            return build.read("table", (left, right), "bool", SPAN)


def joined(pair: tuple[str, Expr, Expr]) -> Expr:
    return compare(*pair)


guards = st.recursive(
    facts(),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["&&", "&&", "||"]), inner, inner).map(joined),
        inner.map(lambda condition: build.apply("!", (condition,), "bool", SPAN)),
    ),
    max_leaves=4,
)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[Range, ...]:
    """Three coordinates, of which the last may end where the first is."""
    if draw(st.integers(0, 3)):
        return BOX
    upper = apply("+", ASKS, figure(draw(st.integers(0, 2))))
    return (*BOX[:2], Range(LAST, ZERO, upper, True, SPAN))


@st.composite
def domains(draw: st.DrawFn) -> tuple[Domain, Expr]:
    guard = draw(guards)
    return Domain.of(draw(boxes()), (guard,)), guard


# --------------------------------------------------------------------------------------- laws


@given(domains())
def test_a_domain_has_the_points_of_its_guard(drawn: tuple[Domain, Expr]) -> None:
    domain, guard = drawn
    assert domain.exact
    for n, m in SIZES:
        for point in points(domain, n, m):
            assert holds(domain, point) == bool(value(guard, point))
            condition = domain.condition(SPAN)
            assert (condition is None or bool(value(condition, point))) == bool(value(guard, point))


@given(domains(), domains())
def test_intersections_and_unions(left: tuple[Domain, Expr], right: tuple[Domain, Expr]) -> None:
    both, either = left[0].intersect(right[0]), left[0].union(right[0])
    assert both.exact
    assert either.exact
    for n, m in SIZES:
        for i, j, k in product(range(n), range(n), range(n + 2)):
            point = {N: n, M: m, ASKING: i, ANSWERING: j, LAST: k}
            one, other = holds(left[0], point), holds(right[0], point)
            assert holds(both, point) == (one and other)
            assert holds(either, point) == (one or other)


@given(domains(), st.sampled_from([(ANSWERING,), (LAST,), (ASKING,), (ANSWERING, LAST), (ASKING, ANSWERING)]))
def test_a_projection_has_the_points_that_some_point_stands_behind(
    drawn: tuple[Domain, Expr], gone: tuple[Coordinate, ...]
) -> None:
    domain, _ = drawn
    found = domain.project(gone)
    assert found is not None
    assert found.coordinates == tuple(c for c in domain.coordinates if c not in gone)
    for n, m in SIZES:
        wanted = {key_of(point, found.coordinates) for point in points(domain, n, m) if holds(domain, point)}
        has = {key_of(point, found.coordinates) for point in points(found, n, m) if holds(found, point)}
        assert wanted <= has
        if found.exact:
            assert wanted == has


@given(domains(), st.sampled_from([ASKING, ANSWERING, LAST]), st.booleans())
def test_slices_have_the_points_of_a_coordinate(drawn: tuple[Domain, Expr], coordinate: Coordinate, near: bool) -> None:
    domain, guard = drawn
    apart = [c for c in (ASKING, ANSWERING, LAST) if c != coordinate][: 1 if near else 2]
    found = domain.bounds(coordinate, apart)
    for n, m in SIZES:
        for point in points(domain, n, m):
            assert any(in_slice(one, point[coordinate], point) for one in found) == bool(value(guard, point))
    for one in found:
        for bound in (*one.lower, *one.upper, *(asks for asks, _ in one.labels)):
            assert coordinate not in bound.type.coordinates
        for _, answers in one.labels:
            assert not answers.type.coordinates & set(apart)


@given(
    domains(),
    st.sampled_from([(ASKING, ANSWERING), (ANSWERING, ASKING), (ASKING, LAST), (LAST, ANSWERING)]),
    st.integers(0, 3),
    st.integers(1, 3),
)
def test_blocks_of_keys_are_empty_full_or_between(
    drawn: tuple[Domain, Expr], pair: tuple[Coordinate, Coordinate], start: int, length: int
) -> None:
    domain, _ = drawn
    query, key = pair
    stop = build.read("stop", (), "whole", SPAN)
    blocks = Pairs(domain, query, key).blocks(figure(start), stop)
    for n, m in SIZES:
        for point in points(domain, n, m):
            if not start <= point[query] < start + length <= value(domain.range(query).upper, point):
                continue
            there = {**point, stop: start + length}
            ends = [(b.first, b.beyond, b.full_first, b.full_beyond) for b in blocks]
            values = [[value(end, there) for end in four] for four in ends]
            place, heard = point[key], holds(domain, point)
            inside = [first <= place < beyond for first, beyond, _, _ in values]
            if not any(inside):
                assert not heard
            for block, (_, _, first, beyond) in zip(blocks, values, strict=True):
                asked = all(value(a, point) == value(b, point) for a, b in block.labels)
                if first <= place < beyond and asked and all(value(c, point) for c in block.rest):
                    assert heard


@given(domains(), domains(), sums())
def test_what_is_proved_is_true(left: tuple[Domain, Expr], right: tuple[Domain, Expr], index: Expr) -> None:
    domain, other = left[0], right[0]
    sure = domain.contains(index, N), domain.implies(other), domain.is_empty()
    for n, m in SIZES:
        for point in points(domain, n, m):
            if holds(domain, point):
                assert not sure[2]
                assert not sure[0] or 0 <= value(index, point) < n
                assert not sure[1] or holds(other, point)


# ----------------------------------------------------------------------------------- examples


def label(index: Expr) -> Expr:
    return build.read("doc", (index,), "whole", SPAN)


CAUSAL = compare("<=", ANSWERS, ASKS)
PROJECTIONS = [
    ((CAUSAL,), "", True),
    ((compare("<", ASKS, ANSWERS),), "i <= size(n) - 2", True),
    ((CAUSAL, compare("<", apply("+", ASKS, figure(2)), ANSWERS)), "false", True),
    ((compare("==", ANSWERS, ASKS), compare("==", label(ANSWERS), ZERO)), "doc[i] == 0", True),
    ((compare("==", apply("*", figure(2), ANSWERS), ASKS),), "(i + 1) / 2 <= i / 2", True),
    ((compare(">=", ASKS, figure(2)), CAUSAL, compare("==", apply("%", ANSWERS, figure(3)), ZERO)), "i >= 2", True),
    ((compare("==", apply("%", ANSWERS, figure(3)), figure(0)), compare("<", ANSWERS, figure(2))), "", False),
    ((CAUSAL, compare("==", label(ASKS), label(ANSWERS))), "", False),
]


@pytest.mark.parametrize(("conditions", "left", "exact"), PROJECTIONS)
def test_projections_to_the_queries(conditions: tuple[Expr, ...], left: str, exact: bool) -> None:
    found = Domain.of(BOX[:2], conditions).project((ANSWERING,))
    assert found is not None
    condition = found.condition(SPAN)
    shown_facts = "" if condition is None else shown(condition)
    assert (shown_facts, found.exact) == (left, exact)


def test_a_domain_that_is_larger_than_meant_is_implied_by_none() -> None:
    larger = Domain.of(BOX, (CAUSAL, compare("==", label(ASKS), label(ANSWERS)))).project((ANSWERING,))
    assert larger is not None
    assert not larger.exact
    assert not Domain.of(BOX).implies(larger)
    assert Domain.of(BOX, (compare("<", ANSWERS, ASKS),)).implies(Domain.of(BOX, (CAUSAL,)))


def test_of_a_coordinate_without_points_nothing_is_left() -> None:
    found = Domain.of(BOX).project((LAST,))
    assert found is not None
    condition = found.condition(SPAN)
    assert condition is not None
    assert shown(condition) == "1 <= size(m)"


def test_what_is_in_bounds_where_a_guard_holds() -> None:
    distance = apply("-", ASKS, ANSWERS)
    assert Domain.of(BOX, (CAUSAL,)).contains(distance, N)
    assert not Domain.of(BOX).contains(distance, N)
    assert Domain.of(BOX, (CAUSAL, compare("<", ASKS, ANSWERS))).is_empty()
