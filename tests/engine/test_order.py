"""Order: nothing is read before it is made, or after printed code lets go of it; loops; and programs that are long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import process_time

import pytest
from tests.engine.test_specialise import lowered, sizes

from indexical.engine import rules
from indexical.engine.constants import apart
from indexical.engine.describe import costed
from indexical.engine.dialects import dialect
from indexical.engine.ledger import bytes_of
from indexical.engine.ops import Input, Loop, Number, Plan, Result, Value, operands
from indexical.engine.order import expression, inlined, ordered, reachable, roots_of, scheduled, turned
from indexical.engine.show import statements
from indexical.engine.specialise import specialise
from indexical.engine.typed import stepped

EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").rglob("*.ix") if "broken" not in path.parts
)
LOOPS = ["lstm.ix", "heat_equation.ix", "smith_waterman.ix", "gated_recurrence.ix"]
LOOPED = [path for path in EXAMPLES if path.name in LOOPS]


@pytest.fixture(scope="module", params=dict.fromkeys([*EXAMPLES[::4], *LOOPED]), ids=lambda path: path.stem)
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


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_nothing_is_read_after_it_is_gone(plan: Plan, library: str) -> None:
    """What a loop reads in each turn is there until all turns are done, and what is wanted to the end."""
    text = statements(plan, dialect(library))
    named = {one for one, _ in text.values}
    roots, gone = set(roots_of(plan)), set[Value]()
    for one, freed in text.values:
        turns = turned(one) if isinstance(one.op, Result) else []
        for part in expression(one, frozenset(ordered(plan)) - named):
            assert not gone & {*operands(part.op), *turns, *(read for each in turns for read in operands(each.op))}
        assert not gone & set(freed)
        gone |= set(freed)
    assert not gone & roots
    assert not any(isinstance(one.op, Input | Number) for one in gone)


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
        "statements": lambda: statements(plan, dialect("numpy")),
        "specialise": lambda: specialise(plan, sizes(i=4, j=4)),
        "apart": lambda: apart(specialise(plan, sizes(i=4, j=4))),
        "bytes": lambda: bytes_of(plan, sizes(i=4, j=4), "numpy"),
        "costs": lambda: [*costed(plan, sizes(i=4, j=4), "torch", {}, {})],
    }
    for name, run in passes.items():
        begin = process_time()
        run()
        assert process_time() - begin < 4, name
