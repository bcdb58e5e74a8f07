"""Plans are well formed after lowering, every rule and every pass; and the specification sees what is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.engine import drawing
from tests.engine.judging import Judged

import indexical as ix
from indexical.engine import rules, spec
from indexical.engine.lower import lower
from indexical.engine.ops import Contract, Map, Plan, Read, Reduce, Value, Write, apply, host, operands, value
from indexical.engine.specialise import specialise
from indexical.ir import build
from indexical.source import Source, Span

EACH = 10


def plans(judged: Judged, isolate: bool) -> dict[str, Plan]:
    """A program after lowering, after each rule alone, after all of them, and for the sizes of its call."""
    target = rules.Target(frozenset(), isolate)
    lowered = judged.built("numpy", isolate).lowered
    found = {"lowering": lowered}
    for rule in rules.RULES:
        found[f"the rule `{rule.name}`"] = rules.rewrite(lowered, (rule,), target)
    found["all rules"] = rules.optimise(lowered, target)
    found["`specialise`"] = specialise(found["all rules"], judged.bound.sizes)
    return found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("start", [600, 600 + EACH])
@pytest.mark.parametrize("generator", drawing.GENERATORS)
def test_plans_are_well_formed_after_every_rule_and_pass(generator: str, start: int) -> None:
    for seed in range(start, start + EACH):
        case = drawing.draw(generator, seed)
        try:
            judged = None if case is None else Judged(case)
        except ix.Error:
            continue
        if judged is not None:
            for name, plan in plans(judged, isolate=bool(seed % 2)).items():
                faults = spec.verify(plan, legal=name in ("all rules", "`specialise`"))
                assert not faults, f"{case!r}\nafter {name}:\n" + "\n".join(faults)


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
