"""Laws of values and operations: interning, hygiene, transposes, layouts, weakness, hoisting."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.engine import door, drawing
from tests.engine.drawing import Drawn
from tests.engine.judging import Judged

import indexical as ix
from indexical.engine import rules, show
from indexical.engine.layouts import layouts
from indexical.engine.lower import lower
from indexical.engine.ops import Carried, Definition, Iota, Plan, Read, Value, Write, apply, host, value
from indexical.engine.order import reachable, roots_of
from indexical.engine.show import printer
from indexical.ir import build
from indexical.ir.types import DEFAULT_DTYPE, LIBRARY_NAMES

TARGET = rules.Target(frozenset(), False)


def judged(generator: str, seed: int) -> Judged | None:
    case = drawing.draw(generator, seed)
    try:
        return None if case is None else Judged(case)
    except ix.Error:
        return None


def printed(plan: Plan, library: str = "numpy") -> Callable[..., Any]:
    found: Callable[..., Any] = door.load(show.show(plan, door.DIALECTS[library]()))["program"]
    return found


# ------------------------------------------------------------------- what is known of an input


@pytest.mark.parametrize("counts", [False, True])
def test_numbers_of_points_do_not_overflow(counts: bool) -> None:
    program = ix.compile("input n[b]: i64, x[i]; let y[b, i] = (n[b] + i + size(i) >= 0) && x[i] > 0;").ir
    program = replace(program, inputs=tuple(replace(one, counts=counts and one.name == "n") for one in program.inputs))
    built = door.build(program, {"n": "i64", "x": "f64"}, "numpy", program.outputs)
    assert ("does not fit in 64 bits" in built.source) != counts
    (found,) = built(np.array([2, 0]), np.array([1.0, -1.0]))
    assert found.tolist() == [[True, False]] * 2


# ---------------------------------------------------------------------- interning, hygiene


@pytest.mark.parametrize("generator", ["programs", "guarded", "derivable"])
def test_equal_operations_are_one_value(generator: str) -> None:
    """Two lowerings of one program are the same values, and an operation made again has the value that it had."""
    for seed in range(4):
        case = judged(generator, seed)
        if case is not None:
            first, second = (case.built("numpy", False).lowered for _ in range(2))
            for name, definition in first.definitions.items():
                assert definition.value is second.definitions[name].value
            for one in reachable(roots_of(first)):
                parts = {field.name: getattr(one.op, field.name) for field in dataclasses.fields(one.op)}
                assert value(type(one.op)(**parts)) is one


def renamed(case: Drawn, letters: Mapping[str, str]) -> Drawn:
    """A drawn program with its coordinates under other names; its arrays have theirs."""
    return replace(case, text=re.sub(r"\b[a-z]\b", lambda found: letters.get(found[0], found[0]), case.text))


@pytest.mark.parametrize("generator", ["decays", "guarded"])
def test_names_of_coordinates_do_not_matter(generator: str) -> None:
    """Bound axes that are called like others capture nothing: any renaming of coordinates leaves all values."""
    count = 0
    for seed in range(10):
        case = drawing.draw(generator, seed)
        assert case is not None
        taken = {name for name in case.arrays if len(name) == 1}
        letters = sorted(set(re.findall(r"\b[b-ei-tm]\b", case.text)) - taken)
        others = Random(seed).sample(letters, len(letters))
        new = renamed(case, dict(zip(letters, others, strict=True)))
        if new.text == case.text:
            continue
        try:
            fault = Judged(new).fault("numpy", False)
        except ix.CompileError:
            continue
        assert fault is None, f"{new!r}\n{fault}"
        count += 1
    assert count > 2


def test_two_binders_of_one_name_do_not_capture() -> None:
    text = "input x[a, d], y[b, d]; let s[a, b] = sum[d](x[a, d] * x[b, d]); let out[a, d] = sum[b](s[a, b] * y[b, d]);"
    noise = np.random.default_rng(0)
    x, y = noise.normal(size=(3, 2)), noise.normal(size=(3, 2))
    plan = rules.optimise(lower(ix.compile(text).ir, {"x": "f64", "y": "f64"}, ("out",)), TARGET)
    np.testing.assert_allclose(printed(plan)(x, y), x @ x.T @ y)


def test_no_renaming_captures_a_name_of_a_guard() -> None:
    """The sum is over `j`, and the guard speaks of `i`: nothing may call `j` so."""
    text = "input x[i], w[i]; let out[i] = sum[j in 0..size(i)](x[j] where i == argmin[k](w[k]));"
    x, w = np.array([1.0, 2.0, 4.0]), np.array([3.0, 1.0, 2.0])
    plan = rules.optimise(lower(ix.compile(text).ir, {"x": "f64", "w": "f64"}, ("out",)), TARGET)
    np.testing.assert_allclose(printed(plan)(x, w), [0.0, 7.0, 0.0])


# --------------------------------------------------------------------------------- transpose


PLACES = [(1, 0, -2), (2, 1, -1), (1, -1, 2), (-1, 0, 4), (3, 2, 0), (1, 1, 9)]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(("step", "other", "start"), PLACES)
def test_a_write_is_the_transpose_of_a_read(library: str, step: int, other: int, start: int) -> None:
    """⟨read x, y⟩ = ⟨x, write y⟩, also where the places leave the source: there a read is 0, and a write left out."""
    program = ix.compile("input x[m], y[i, j]; let r[i, j] = y[i, j]; let w[m] = x[m];").ir
    plan = lower(program, {"x": "f64", "y": "f64"}, ("r", "w"))
    x, y = plan.inputs
    span = program.lets[0].span
    number = [host(build.whole(n, span)) for n in (step, other, start)]
    i, j = (value(Iota(axis)) for axis in y.axes)
    place = apply("+", apply("+", apply("*", i, number[0]), apply("*", j, number[1])), number[2])
    found = {
        "r": value(Read(x, ((x.axes[0].name, place),), "masked")),
        "w": value(Write(y, ((x.axes[0], place),), y.axes, "add", "masked")),
    }
    definitions = {name: replace(plan.definitions[name], value=one) for name, one in found.items()}
    noise = np.random.default_rng(0)
    arrays = [noise.normal(size=shape) for shape in ((5,), (3, 4))]
    function = printed(rules.legalise(replace(plan, definitions=definitions), TARGET), library)
    given = arrays if library == "numpy" else [door.torch.from_numpy(array) for array in arrays]
    r, w = (np.asarray(one) for one in function(*given))
    assert np.allclose((r * arrays[1]).sum(), (w * arrays[0]).sum())
    inside = [(a, b) for a, b in np.ndindex(3, 4) if 0 <= step * a + other * b + start < 5]
    assert all(r[point] == arrays[0][step * point[0] + other * point[1] + start] for point in inside)
    assert np.count_nonzero(r) == len(inside)


# ----------------------------------------------------------------------------------- layouts


@pytest.mark.sampled(6)
@pytest.mark.parametrize("generator", drawing.GENERATORS)
def test_any_order_of_axes_gives_the_same_numbers(generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(700, 706):
        case = judged(generator, seed)
        if case is None:
            continue
        draw = Random(seed)

        def shuffled(plan: Plan, draw: Random = draw) -> Any:
            """The order of all that the printer is free to order, drawn."""
            order: Any = layouts(plan)
            free = (one for one in order if len(order[one]) > 1 and type(one.op).__name__ in ("Map", "Reduce", "Read"))
            return {**order, **{one: tuple(draw.sample(order[one], len(order[one]))) for one in free}}

        monkeypatch.setattr(printer, "layouts", shuffled)
        for library in ("numpy", "torch"):
            fault = case.fault(library, isolate=False)
            assert fault is None, f"{case.case!r}\n{fault}"


# -------------------------------------------------------------------------------------- weakness


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_literals_and_coordinates_take_the_dtype_they_meet(library: str, dtype: Any) -> None:
    text = """input x[i];
    let t[i] = i * 0.5 + 1 / 3;
    let u[i, k in 0..3] = exp(-k) * t[i];
    let y[i] = sum[k in 0..3](u[i, k]) * x[i] + size(i);"""
    built = door.build(ix.compile(text).ir, {"x": dtype}, library, ("y",))
    x = np.linspace(0, 1, 4).astype(LIBRARY_NAMES[dtype])
    [found] = built(x if library == "numpy" else door.torch.from_numpy(x))
    assert door.dtype_name(found) == LIBRARY_NAMES[dtype]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("generator", ["programs", "derivable"])
def test_the_dtype_in_the_plan_is_the_dtype_of_the_array(generator: str, library: str) -> None:
    """Of every value outside of loops: all of them are handed out, as definitions without a cast."""
    for seed in range(20):
        case = judged(generator, seed)
        if case is None or case.wanted is None:
            continue
        plan = case.built(library, False).plan
        let = next(iter(plan.definitions.values())).let
        made = [one for one in reachable(roots_of(plan)) if _is_array(one)]
        every = {f"v{n}": Definition(f"v{n}", one.axes, one, one.kind, _dtype(one), let) for n, one in enumerate(made)}
        if not every:
            continue
        whole = replace(plan, definitions={**plan.definitions, **every}, wanted=tuple(every))
        with np.errstate(all="ignore"):
            found = printed(whole, library)(*case.arrays(library))
        for one, array in zip(made, found if len(made) > 1 else (found,), strict=True):
            assert door.dtype_name(array) == LIBRARY_NAMES[_dtype(one)], f"{case.case!r}\n{one!r}"


def _is_array(one: Value) -> bool:
    is_inside = bool(one.symbols) or any(isinstance(part.op, Carried) for part in reachable((one,)))
    return not one.is_host and bool(one.axes) and not is_inside


def _dtype(one: Value) -> Any:
    return one.dtype or DEFAULT_DTYPE[one.kind]


# --------------------------------------------------------------------------------------- hoisting


class Counting:
    """NumPy, with a count of the calls of its functions."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if not callable(found) or isinstance(found, type):
            return found

        def counted(*args: Any, **others: Any) -> Any:
            self.calls[name] += 1
            return found(*args, **others)

        return counted


def test_what_does_not_vary_with_a_step_is_computed_before_the_loop() -> None:
    text = """input x[t, c], W[c, e];
    let h[0, c] = x[0, c];
    let h[t in 1..size(t), c] = sin(h[t - 1, c]) + sum[e](exp(W[c, e])) + log(x[t, c] ** 2 + 1);"""
    built = door.build(ix.compile(text).ir, {"x": "f64", "W": "f64"}, "numpy", ("h",))
    calls = []
    for steps in (4, 9):
        counting = built.scope["np"] = Counting()
        noise = np.random.default_rng(0)
        built(noise.normal(size=(steps, 2)), noise.normal(size=(2, 2)))
        calls.append(counting.calls)
    assert calls[0]["exp"] == calls[1]["exp"] == 1
    assert (calls[0]["sin"], calls[1]["sin"]) == (3, 8)
