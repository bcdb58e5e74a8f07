"""Plans are well formed after lowering, every rule and every pass; and the specification sees what is not.

Beside these, `conftest.py` verifies what is rewritten when any test of the engine compiles a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine import door, drawing
from tests.engine.drawing import Drawn
from tests.engine.judging import Judged
from tests.engine.test_rules import LAYERS, MINIMAL, drawn, random_layer

import indexical as ix
from indexical.engine import rules, spec
from indexical.engine.alike import share_alike
from indexical.engine.constants import apart
from indexical.engine.lower import lower
from indexical.engine.ops import Contract, Map, Plan, Read, Reduce, Value, Write, apply, host, operands, value
from indexical.engine.specialise import Sizes, specialise
from indexical.ir import build
from indexical.ir import nodes as ir
from indexical.ir.types import Dtype
from indexical.run.bind import bind
from indexical.run.samples import random_arrays
from indexical.source import Source, Span

EACH = 10
EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").rglob("*.ix") if "broken" not in path.parts
)
DIALECTS = {name: make() for name, make in door.DIALECTS.items()}


def targets() -> Iterator[tuple[str, rules.Target]]:
    """Every dialect with its kernels and what it rounds once, for inputs that are finite and for others."""
    for name, dialect in DIALECTS.items():
        for isolate in (False, True):
            target = rules.Target(frozenset(dialect.kernels), isolate, dialect.rounds_once)
            yield f"{name}{', isolated' * isolate}", target


def passes(plan: Plan, target: rules.Target, sizes: Sizes) -> Iterator[tuple[str, Plan]]:
    """A lowered plan after each pass, by its name, with what is kept from call to call in the end."""
    yield "lowering", plan
    for name in ("FIRST", "RULES", "STORES", "LEGAL"):
        plan = rules.rewrite(plan, getattr(rules, name), target)
        yield name, plan
    plan = share_alike(plan)
    yield "`share_alike`", plan
    plan = specialise(plan, sizes)
    yield "`specialise`", plan
    two = apart(plan)
    yield "`apart`", two.plan
    yield "`apart`, kept", two.kept


def check(program: ir.Program, dtypes: Mapping[str, Dtype], sizes: Sizes, library: str = "") -> None:
    """No pass leaves a plan that is not well formed, whatever it is rewritten for, or for one library."""
    lowered = {isolate: lower(program, dict(dtypes), program.outputs, isolate) for isolate in (False, True)}
    for words, target in targets():
        if not words.startswith(library):
            continue
        before, legal = None, False
        for name, plan in passes(lowered[target.isolate], target, sizes):
            legal |= name == "LEGAL"
            if plan is not before or name == "LEGAL":
                assert not spec.verify(plan, legal), f"for {words}, after {name}:\n{spec.verify(plan, legal)}"
            before = plan


def check_sample(program: ir.Program, library: str = "") -> None:
    bound = bind(program, random_arrays(program, {}, {}, 0)[0].arrays)
    check(program, {one.name: bound.dtypes[one.name] for one in program.inputs}, bound.sizes, library)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_well_formed_after_every_pass(path: Path) -> None:
    check_sample(ix.compile(path).ir)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("path", [path for path in EXAMPLES if "models" not in path.parts], ids=lambda path: path.stem)
def test_their_gradients_are_well_formed_after_every_pass(path: Path) -> None:
    with suppress(ix.Error):  # Of some there is none.
        check_sample(ix.grad(ix.compile(path)).ir, "torch")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MINIMAL)
def test_the_program_of_a_rule_is_well_formed_after_every_pass(name: str) -> None:
    check_case(drawn(MINIMAL[name]))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(len(LAYERS)))
def test_layers_are_well_formed_after_every_pass(seed: int) -> None:
    check_case(random_layer(seed))


def check_case(case: Drawn) -> None:
    judged = Judged(case)
    check(judged.program.ir, {one: judged.bound.dtypes[one] for one in case.arrays}, judged.bound.sizes)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("start", [600, 600 + EACH])
@pytest.mark.parametrize("generator", drawing.GENERATORS)
def test_drawn_programs_are_well_formed_after_every_pass(generator: str, start: int) -> None:
    for seed in range(start, start + EACH):
        case = drawing.draw(generator, seed)
        with suppress(ix.Error):
            if case is not None:
                check_case(case)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("generator", drawing.GENERATORS)
def test_drawn_programs_are_well_formed_after_every_rule_alone(generator: str) -> None:
    for seed in range(600, 600 + EACH):
        case = drawing.draw(generator, seed)
        try:
            judged = None if case is None else Judged(case)
        except ix.Error:
            continue
        if judged is not None:
            chosen = list(targets())
            words, target = chosen[seed % len(chosen)]
            lowered = judged.built("numpy", target.isolate).lowered
            for rule in rules.RULES:
                faults = spec.verify(rules.rewrite(lowered, (rule,), target))
                assert not faults, f"{case!r}\nfor {words}, after {rule.name}:\n" + "\n".join(faults)


# ------------------------------------------------------------------- what is not well formed


TEXT = "input x[i, j], y[j, k], n[i] : i64; let z[i, k] = sum[j](x[i, j] * y[j, k]) where n[i] > 0; let w = 1.0;"
HERE = Span(Source("", "here"), 0, 0)


def given() -> tuple[Plan, dict[str, Value]]:
    plan = lower(ix.compile(TEXT).ir, {"x": "f32", "y": "f32", "n": "i64"}, ("z", "w"))
    return plan, {getattr(one.op, "name", ""): one for one in plan.inputs}


def _whole(number: int) -> Value:
    return host(build.whole(number, HERE))


# What is wrong, and a value of the axes `i` and `k`, or of fewer, that is so.
FAULTS: dict[str, Callable[[dict[str, Value]], Value]] = {
    "not sorted by name": lambda a: value(Read(a["x"], (("j", _whole(0)), ("i", _whole(0))))),
    "which the source has not": lambda a: value(Read(a["n"], (("k", _whole(0)),))),
    "is real, not whole": lambda a: value(Read(a["x"], (("j", a["x"]), ("i", _whole(0))))),
    "no check": lambda a: value(Read(a["n"], (("i", _whole(0)),), "masked", apply(">", a["n"], _whole(0)))),
    "one is there twice": lambda a: value(Reduce("sum", a["x"], (a["x"].axis("j"), a["x"].axis("j")))),
    "which no operand has": lambda a: value(Contract((a["x"], a["x"]), (a["y"].axis("k"),))),
    "an argmax over 2 axes": lambda a: value(Reduce("argmax", a["x"], a["x"].axes)),
    "promotion is a cast": lambda a: value(Map("+", (a["n"], value(Map("as f32", (a["n"],)))))),
    "a condition of `where` is no truth": lambda a: value(Map("where", (a["n"], a["n"], a["n"]))),
    "`tanh` has 2 arguments": lambda a: value(Map("tanh", (a["x"], a["x"]))),
    "is real, and no truth": lambda a: value(Reduce("sum", a["x"], (a["x"].axis("j"),), a["x"])),
    "stays from the values": lambda a: value(Write(a["x"], ((a["x"].axis("i"), a["n"]),), (a["x"].axis("j"),))),
}


@pytest.mark.parametrize("words", FAULTS)
def test_the_specification_sees(words: str) -> None:
    plan, inputs = given()
    assert not spec.verify(plan)
    broken = replace(plan.definitions["w"], value=FAULTS[words](inputs), home=inputs["x"].axes, kind="real")
    plan = replace(plan, definitions={**plan.definitions, "w": broken})
    assert any(words in fault for fault in spec.verify(plan)), spec.verify(plan)
    with pytest.raises(spec.Malformed, match=re.escape(words)):
        spec.check(plan)


def test_a_definition_has_the_axes_of_its_home() -> None:
    plan, inputs = given()
    wrong = replace(plan.definitions["w"], value=inputs["x"])
    faults = spec.verify(replace(plan, definitions={**plan.definitions, "w": wrong}))
    assert any("has no axis `i`, and its value has" in fault for fault in faults)


def test_a_guard_is_legal_only_before_it_is_a_where() -> None:
    guarded = lower(ix.compile("input x[i]; let y = sum[i](x[i] where i > 2);").ir, {"x": "f64"}, ("y",))
    assert not spec.verify(guarded)
    assert any("was to become a `where`" in fault for fault in spec.verify(guarded, legal=True))
    assert not spec.verify(rules.legalise(guarded, rules.Target(frozenset(), False)), legal=True)


def test_what_is_inside_a_loop_is_not_outside_of_it() -> None:
    text = "input x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = tanh(h[t - 1]) + x[t]; let w[t] = x[t];"
    plan = lower(ix.compile(text).ir, {"x": "f64"}, ("h", "w"))
    assert not spec.verify(plan)
    loop = plan.definitions["h"].value
    inside = next(one for one in operands(loop.op) if one.symbols and one.kind == "real")
    escaped = replace(plan.definitions["w"], value=inside)
    faults = spec.verify(replace(plan, definitions={**plan.definitions, "w": escaped}))
    assert any("a step of a loop that is over" in fault for fault in faults)
