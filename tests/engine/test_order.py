"""Order and lifetimes: nothing is read before it is made or after it is gone; loops; and programs that are long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import process_time

import pytest
from tests.engine.test_specialise import lowered, sizes

from indexical.engine import rules
from indexical.engine.constants import apart
from indexical.engine.describe import describe
from indexical.engine.ledger import bytes_of
from indexical.engine.ops import Input, Loop, Number, Plan, Result, Value, operands
from indexical.engine.order import (
    expression,
    inlined,
    lifetimes,
    ordered,
    reachable,
    roots_of,
    scheduled,
    turned,
)
from indexical.engine.specialise import specialise
from indexical.engine.typed import stepped

EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").rglob("*.ix") if "broken" not in path.parts
)
LOOPS = ["lstm.ix", "heat_equation.ix", "smith_waterman.ix", "gated_recurrence.ix"]


@pytest.fixture(scope="module", params=EXAMPLES[::4], ids=lambda path: path.stem)
def plan(request: pytest.FixtureRequest) -> Plan:
    return rules.optimise(lowered(str(request.param)), rules.Target())


def test_a_value_comes_after_what_it_is_made_of(plan: Plan) -> None:
    values = ordered(plan)
    place = {one: n for n, one in enumerate(values)}
    assert len(place) == len(values)
    assert set(values) == set(reachable(roots_of(plan)))
    assert all(place[part] < place[one] for one in values for part in operands(one.op))


def test_what_stands_inside_has_one_reader_and_stands_there(plan: Plan) -> None:
    inside = inlined(plan)
    readers: dict[Value, list[Value]] = {}
    for one in ordered(plan):
        for part in operands(one.op):
            readers.setdefault(part, []).append(one)
    assert all(len(readers[one]) == 1 for one in inside)
    assert not inside & {one.value for one in plan.definitions.values()}
    assert sorted(map(id, scheduled(plan, inside))) == sorted(map(id, ordered(plan)))
    for one in ordered(plan):
        if one not in inside:
            assert all(part in inside for part in expression(one, inside)[:-1])


def test_nothing_is_read_after_it_is_gone(plan: Plan) -> None:
    for inside in (frozenset[Value](), inlined(plan)):
        gone: set[Value] = set()
        made: set[Value] = set()
        bodies = [set(turned(one)) for one in ordered(plan) if isinstance(one.op, Result)]
        for one, freed in lifetimes(plan, inside):
            is_turned = any(one in body for body in bodies)
            assert is_turned or not gone & set(operands(one.op))
            assert one not in made
            made.add(one)
            assert not gone & set(freed)
            gone |= set(freed)
        kept = {one for one in made - gone if not isinstance(one.op, Input | Number)}
        assert kept == {one for one in roots_of(plan) if not isinstance(one.op, Input | Number)}


# --------------------------------------------------------------------------- loops


def _inner(loop: Loop) -> Iterator[Loop]:
    yield loop
    for item in loop.body:
        if isinstance(item, Loop):
            yield from _inner(item)


@pytest.mark.parametrize("name", LOOPS)
def test_what_is_made_in_a_turn_varies_with_its_step(name: str) -> None:
    """Hoisting: all else that a loop reads is made before it, and nothing outside varies with a step."""
    path = next(path for path in EXAMPLES if path.name == name)
    plan = rules.optimise(lowered(str(path)), rules.Target())
    results = [one for one in ordered(plan) if isinstance(one.op, Result)]
    assert results
    bodies: set[Value] = set()
    for one in results:
        assert isinstance(one.op, Result)
        steps = stepped(one.op.loop)
        assert steps == {loop.symbol for loop in _inner(one.op.loop)}
        body = turned(one)
        assert body
        assert all(part.symbols & steps for part in body)
        bodies |= set(body)
        assert not one.symbols & steps
    assert all(not one.symbols for one in ordered(plan) if one not in bodies)


@pytest.mark.parametrize("name", LOOPS)
def test_what_a_loop_reads_is_there_until_all_turns_are_done(name: str) -> None:
    path = next(path for path in EXAMPLES if path.name == name)
    plan = rules.optimise(lowered(str(path)), rules.Target())
    lives = lifetimes(plan, inlined(plan))
    ends = {part: place for place, (_, freed) in enumerate(lives) for part in freed}
    for place, (one, _) in enumerate(lives):
        if isinstance(one.op, Result):
            read = {part for each in turned(one) for part in operands(each.op)}
            assert all(ends[part] >= place for part in read if part in ends)


# ------------------------------------------------------------------ programs that are long


def chain(length: int) -> Plan:
    lines = ["input x[i], W[i, j];", "let y0[i] = x[i];"]
    lines += [f"let y{n}[i] = tanh(y{n - 1}[i] * 0.5 + x[i]) + {n};" for n in range(1, length)]
    return lowered("\n".join([*lines, f"let out[i] = y{length - 1}[i];"]))


@pytest.mark.sampled(0)
def test_a_long_chain_of_definitions_is_no_matter() -> None:
    """Every pass is linear, and none is recursive: 3,000 definitions take about a second each."""
    plan = chain(3000)
    passes = {
        "ordered": lambda: ordered(plan),
        "lifetimes": lambda: lifetimes(plan, inlined(plan)),
        "specialise": lambda: specialise(plan, sizes(i=4, j=4)),
        "apart": lambda: apart(specialise(plan, sizes(i=4, j=4))),
        "bytes": lambda: bytes_of(plan, sizes(i=4, j=4), "numpy"),
        "describe": lambda: describe(plan, sizes(i=4, j=4), "torch"),
    }
    for name, run in passes.items():
        begin = process_time()
        run()
        assert process_time() - begin < 4, name
