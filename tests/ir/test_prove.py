"""What is proved is true, by trying every point of a small box; what is called certain always happens."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexical.ir import build
from indexical.ir.affine import Polynomial, expression, number, of_atom, polynomial
from indexical.ir.nodes import Const, Coord, Expr, Map, Range, Size
from indexical.ir.prove import Assumptions, always_possible
from indexical.ir.types import Coordinate
from indexical.source import Source, Span

SPAN = Span(Source("", ""), 0, 0)
COORDINATES = [Coordinate(name) for name in "ijk"]
SIZES = [build.size(Coordinate(name), SPAN) for name in "nm"]
ASKS, ANSWERS, THIRD = (build.coord(coordinate, SPAN) for coordinate in COORDINATES)
N, M = SIZES


def whole(value: int) -> Expr:
    return build.whole(value, SPAN)


def apply(op: str, left: Expr, right: Expr) -> Expr:
    return build.apply(op, (left, right), "whole", SPAN)


def compare(op: str, left: Expr, right: Expr) -> Expr:
    return build.apply(op, (left, right), "bool", SPAN)


small = st.integers(-3, 3)


@st.composite
def affine(draw: st.DrawFn) -> Polynomial:
    """A small affine form in i, j, k, n and m."""
    result = number(draw(st.integers(-4, 4)))
    for atom in (*COORDINATES, *SIZES):
        result = result + number(draw(st.sampled_from([0, 0, 0, -2, -1, 1, 1, 2]))) * of_atom(atom)
    return result


def at(value: Polynomial, point: dict[object, int]) -> int:
    total = 0
    for monomial, factor in value.terms.items():
        for atom, power in monomial:
            factor *= point[atom] ** power
        total += factor
    return total


def points(n: int, m: int):
    for i, j, k in product(range(n), range(n), range(m)):
        yield {COORDINATES[0]: i, COORDINATES[1]: j, COORDINATES[2]: k, N: n, M: m}


BOX = (
    Assumptions()
    .within(Range(COORDINATES[0], whole(0), N, True, SPAN))
    .within(Range(COORDINATES[1], whole(0), N, True, SPAN))
    .within(Range(COORDINATES[2], whole(0), M, True, SPAN))
)


@given(st.lists(affine(), max_size=3), affine())
def test_what_is_entailed_holds_everywhere(facts: list[Polynomial], goal: Polynomial) -> None:
    known = BOX
    for fact in facts:
        known = known.assuming(compare(">=", expression(fact, SPAN), whole(0)))
    if known.entails(goal):
        for n, m in product(range(4), range(4)):
            for point in points(n, m):
                if all(at(fact, point) >= 0 for fact in facts):
                    assert at(goal, point) >= 0


@given(affine(), affine())
def test_what_is_always_possible_happens(fact: Polynomial, wrong: Polynomial) -> None:
    if always_possible((*BOX.known, fact, wrong)):
        for n, m in product((3, 4), (3, 5)):
            assert any(at(fact, point) >= 0 and at(wrong, point) >= 0 for point in points(n, m))


@given(affine(), affine())
def test_polynomials_add_and_multiply(left: Polynomial, right: Polynomial) -> None:
    point = {COORDINATES[0]: 2, COORDINATES[1]: -3, COORDINATES[2]: 5, N: 7, M: 11}
    assert at(left + right, point) == at(left, point) + at(right, point)
    assert at(left - right, point) == at(left, point) - at(right, point)
    assert at(left * right, point) == at(left, point) * at(right, point)
    assert polynomial(expression(left * right, SPAN)) == left * right


@pytest.mark.parametrize(
    ("facts", "goal", "holds"),
    [
        ([compare("<=", ANSWERS, ASKS)], compare(">=", ASKS, ANSWERS), True),
        ([compare("<", ANSWERS, ASKS)], compare("!=", ASKS, ANSWERS), True),
        ([compare("<=", ANSWERS, ASKS)], compare("<", ANSWERS, ASKS), False),
        ([], compare("<", apply("+", apply("*", ASKS, M), THIRD), apply("*", N, M)), True),
        ([], compare("<", apply("//", ASKS, whole(2)), N), True),
        ([], compare("<", apply("%", ASKS, whole(4)), whole(4)), True),
        (
            [compare("==", ASKS, apply("*", whole(2), ANSWERS))],
            compare("==", apply("%", ASKS, whole(2)), whole(0)),
            False,
        ),
        ([compare("<=", ANSWERS, ASKS)], compare("<=", apply("min", apply("-", ASKS, ANSWERS), M), ASKS), True),
        ([compare("<=", ANSWERS, ASKS)], compare(">=", apply("min", apply("-", ASKS, ANSWERS), THIRD), whole(0)), True),
        ([], compare(">=", apply("min", apply("-", ASKS, ANSWERS), THIRD), whole(0)), False),
        ([], compare("<", apply("max", ASKS, ANSWERS), N), True),
        (
            [compare("<", ASKS, apply("//", N, whole(2)))],
            compare("<", apply("+", ASKS, apply("//", N, whole(2))), N),
            True,
        ),
    ],
)
def test_examples(facts: list[Expr], goal: Expr, holds: bool) -> None:
    known = BOX
    for fact in facts:
        known = known.assuming(fact)
    assert known.proves(goal) is holds


@given(st.integers(-20, 20), st.integers(-6, 6).filter(bool))
def test_constants_divide_as_the_language_does(a: int, b: int) -> None:
    quotient, remainder = apply("//", whole(a), whole(b)), apply("%", whole(a), whole(b))
    assert polynomial(quotient).constant == int(a / b)
    assert polynomial(remainder).constant == a - int(a / b) * b


@given(st.integers(1, 6), st.integers(-3, 3).filter(bool))
def test_a_quotient_and_its_remainder_are_what_was_divided(n: int, times: int) -> None:
    x = apply("+", ASKS, apply("*", whole(2), ANSWERS))
    parts = [apply("*", whole(times * n), apply("//", x, whole(n))), apply("*", whole(times), apply("%", x, whole(n)))]
    wanted = polynomial(apply("*", whole(times), x))
    assert polynomial(apply("+", *parts)) == polynomial(apply("+", *reversed(parts))) == wanted
    assert polynomial(apply("+", parts[0], apply("%", x, whole(n + 1)))) != wanted


@st.composite
def arithmetic(draw: st.DrawFn, depth: int = 3) -> Expr:
    """A whole expression of coordinates, sizes and small numbers, with quotients and remainders."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from((ASKS, ANSWERS, THIRD, N, M, N, M, whole(1), whole(2), whole(3))))
    op = draw(st.sampled_from(("+", "-", "*", "//", "//", "%", "max", "min")))
    return apply(op, draw(arithmetic(depth=depth - 1)), draw(arithmetic(depth=depth - 1)))


@given(st.lists(arithmetic(2), max_size=2), arithmetic(), arithmetic(2))
def test_what_is_proved_of_quotients_holds_wherever_it_is_evaluated(facts: list[Expr], left: Expr, right: Expr) -> None:
    known = BOX
    conditions = [compare("<=", fact, ASKS) for fact in facts]
    for condition in conditions:
        known = known.assuming(condition)
    goals = [compare("<=", left, right), compare("<=", right, left), compare("<=", left, ASKS)]
    goals = [goal for goal in goals if known.proves(goal)]
    for n, m in product(range(1, 5), range(1, 5)) if goals else ():
        for point in points(n, m):
            for goal in goals:
                parts = [part for each in (*conditions, goal) for part in each.arguments]  # type: ignore[attr-defined]
                try:
                    values = [valued(part, point) for part in parts]
                except ZeroDivisionError:
                    continue
                pairs = list(zip(values[::2], values[1::2], strict=True))
                if all(a <= b for a, b in pairs[:-1]):
                    assert pairs[-1][0] <= pairs[-1][1], (goal, point)


def valued(expr: Expr, point: dict[object, int]) -> int:
    """The value of a whole expression at a point; quotients and remainders as the language has them."""
    match expr:
        case Const(value):
            return int(value)
        case Coord(coordinate):
            return point[coordinate]
        case Size():
            return point[expr]
        case Map(op, (left, right)):
            a, b = valued(left, point), valued(right, point)
            if op in ("//", "%"):
                quotient = abs(a) // abs(b) * (1 if (a >= 0) == (b > 0) else -1)
                return quotient if op == "//" else a - quotient * b
            return {"+": a + b, "-": a - b, "*": a * b, "max": max(a, b), "min": min(a, b)}[op]
    raise AssertionError(expr)


# Whole numbers with divisors that are sizes, or made of them: each is at most `j`, whatever the sizes.
_SIZES = (N, apply("*", N, M), apply("+", N, whole(1)), apply("*", whole(2), N), apply("//", N, M))
_AT_MOST = {
    "a quotient": lambda j, n: apply("//", j, n),
    "a remainder": lambda j, n: apply("%", j, n),
    "the start of a block": lambda j, n: apply("*", apply("//", j, n), n),
    "the same by its remainder": lambda j, n: apply("-", j, apply("%", j, n)),
    "a block of blocks": lambda j, n: apply("//", apply("//", j, n), whole(2)),
    "a quotient twice": lambda j, n: apply("//", apply("//", j, n), n),
    "a place in a block of blocks": lambda j, n: apply("%", apply("//", j, n), whole(2)),
    "a quotient by more": lambda j, n: apply("//", j, apply("+", n, whole(1))),
    "itself, taken apart": lambda j, n: apply("+", apply("*", apply("//", j, n), n), apply("%", j, n)),
    "an even quotient": lambda j, n: apply("//", apply("*", j, n), n),
}


@pytest.mark.parametrize("form", _AT_MOST)
@pytest.mark.parametrize("size", range(len(_SIZES)))
def test_positions_are_divided_by_named_sizes(form: str, size: int) -> None:
    known = BOX.assuming(compare("<=", ANSWERS, ASKS))
    value = _AT_MOST[form](ANSWERS, _SIZES[size])
    assert known.proves(compare("<=", value, ASKS))
    assert not known.proves(compare("<", value, ANSWERS))
