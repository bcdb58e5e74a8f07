"""The work of compiling and planning grows with the program, and not with its square: counted in steps, not seconds."""

from __future__ import annotations

import cProfile
import pstats
from collections import Counter
from typing import Any

import pytest

import indexical as ix
from indexical.ir import walk

torch = pytest.importorskip("torch")

WEIGHTS = {
    "gain_1": "m",
    "bias_1": "m",
    "W_Q": "h, m, d",
    "W_K": "h, m, d",
    "W_V": "h, m, e",
    "W_O": "h, e, m",
    "gain_2": "m",
    "bias_2": "m",
    "W_in": "m, f",
    "b_in": "f",
    "W_out": "f, m",
    "b_out": "m",
}


def stack(layers: int) -> str:
    """So many transformer blocks, each on the one before."""
    inputs = [f"{name}_{n}[{axes}]" for n in range(layers) for name, axes in WEIGHTS.items()]
    lines = ["use std::layers::{transformer_block};", f"input Y_0[i, m], {', '.join(inputs)};"]
    for n in range(layers):
        given = ", ".join(f"{name}_{n}" for name in WEIGHTS)
        lines.append(f"let Y_{n + 1} = transformer_block(Y_{n}, {given}, 1e-5);")
    return "\n".join([*lines, f"output Y_{layers};"])


def arrays(layers: int) -> list[Any]:
    sizes = {"i": 4, "m": 4, "h": 2, "d": 2, "e": 2, "f": 8}
    shapes = ["i, m", *(axes for _ in range(layers) for axes in WEIGHTS.values())]
    return [torch.zeros([sizes[name] for name in axes.split(", ")]) for axes in shapes]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the tree is walked down, and how often it is built anew."""
    counted: Counter[str] = Counter()

    def counting(name: str) -> Any:
        original = getattr(walk, name)

        def call(*given: Any) -> Any:
            counted[name] += 1
            return original(*given)

        return call

    for name in ("children", "rebuild"):
        monkeypatch.setattr(walk, name, counting(name))
    return counted


def test_a_layer_costs_the_same_in_a_deep_stack(steps: Counter[str]) -> None:
    """Five layers take no more work for each than two do: the lints and the plan look at each layer once."""
    found = []
    for layers in (2, 5):
        steps.clear()
        program = ix.compile(stack(layers))
        compiled = steps.total()
        program.plan(*arrays(layers))
        found.append((compiled / layers, (steps.total() - compiled) / layers))
    (shallow_compiled, shallow_planned), (deep_compiled, deep_planned) = found
    assert deep_compiled < 1.2 * shallow_compiled
    assert deep_planned < 1.1 * shallow_planned


@pytest.mark.sampled(0)
def test_a_layer_of_a_gradient_costs_the_same_in_a_deep_stack(steps: Counter[str]) -> None:
    """Four layers take no more work for each than two do, to derive them and to plan what was derived. Work that is no
    walk over the tree counts too: sets of all definitions, an order of the whole program, names."""
    found = []
    for layers in (1, 1, 2, 4):  # the first, to load what planning loads
        program, given = ix.compile(stack(layers)), arrays(layers)
        steps.clear()
        gradient = ix.grad(program)
        derived = steps.total()
        profile = cProfile.Profile()
        profile.runcall(gradient.plan, *given, given[0])
        calls = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
        found.append((derived, steps.total() - derived, calls))
    # Of further layers: weights are looked for a few definitions deep, which the first one does not have.
    for one, two, four in zip(*found[1:], strict=True):
        assert (four - two) / 2 < 1.05 * (two - one)


def test_an_exponential_far_behind_is_no_attention() -> None:
    """The slope of GELU is an exponential: what flows back through it is not refused as an attention."""
    gradient, given = ix.grad(ix.compile(stack(1))), arrays(1)
    plan = gradient.plan(*given, given[0])
    assert [step.gradient is not None for step in plan.steps].count(True) == 1
    assert not [refusal for step in plan.steps for refusal in step.refusals if refusal.way == "fused attention"]
