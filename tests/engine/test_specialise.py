"""A plan for known sizes computes what the plan computes, and refuses what it refuses; what is kept is never shared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from tests.engine import door, drawing
from tests.engine.drawing import Drawn
from tests.engine.judging import Judged

import indexical as ix
from indexical.engine import lower as lowering
from indexical.engine import rules, show
from indexical.engine.constants import Apart, apart
from indexical.engine.ops import Input, Map, Plan, Read, Reduce
from indexical.engine.order import ordered
from indexical.engine.specialise import specialise
from indexical.ir.text import shown
from indexical.ir.types import Coordinate, Dtype, Kind

pytestmark = pytest.mark.sampled(8)


class Sized(door.Built):
    """A program for the sizes of one call, with what is the same in all calls computed before."""

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        first = super().__call__(*(_own(array) for array in arrays))
        for one in first:  # What a caller does to a result changes no later one.
            if isinstance(one, torch.Tensor) and 0 not in one.stride():
                one.zero_()
        return super().__call__(*arrays)


def _own(array: Any) -> Any:
    return array.clone() if isinstance(array, torch.Tensor) else array


class SizedCall(Judged):
    """A call by a plan for its own sizes."""

    def built(self, library: str, isolate: bool, plainly: bool = False) -> door.Built:
        dialect = door.DIALECTS[library]()
        lowered = self.lowered(isolate)
        small = specialise(lowered, self.bound.sizes)
        target = rules.Target(getattr(dialect, "kernels", frozenset()), isolate)
        plan = specialise(rules.optimise(small, target), self.bound.sizes)
        assert specialise(small, self.bound.sizes) == small
        assert specialise(plan, self.bound.sizes) == plan
        two = apart(plan)
        source = show.emit_sized(two, dialect).standing_alone()
        return Sized(lowered, two.plan, source, door.load(source, device="cpu"))

    def lowered(self, isolate: bool = False) -> Plan:
        dtypes = {t.name: self.bound.dtypes[t.name] for t in self.program.ir.inputs if t.name in self.bound.dtypes}
        return lowering.lower(self.program.ir, dtypes, tuple(self.names), isolate)


def check(cases: Iterable[Drawn | None]) -> None:
    """Compare with the reference where the plan for any sizes says what that says."""
    found = []
    for case in filter(None, cases):
        try:
            plain, sized = Judged(case), SizedCall(case)
        except ix.Error:
            continue
        for library in ("numpy", "torch"):
            for isolate in (False, True):
                fault = sized.fault(library, isolate)
                if fault is not None and plain.fault(library, isolate) is None:
                    found.append(f"{case!r}\n{fault}")
    assert not found, f"{len(found)} faults, the first of which:\n{found[0]}"


@pytest.mark.parametrize("generator", drawing.GENERATORS)
@pytest.mark.parametrize("start", [0, 25])
def test_sized_plans_compute_what_the_reference_says(generator: str, start: int) -> None:
    check(drawing.draw(generator, seed) for seed in range(start, start + 25))


@pytest.mark.sampled(0)
def test_sized_plans_refuse_what_the_reference_refuses() -> None:
    cases = (drawing.draw("guarded", seed) for seed in range(400, 440))
    check(None if case is None else drawing.misplaced(case, case.seed) for case in cases)


@pytest.mark.sampled(0)
def test_axes_without_points() -> None:
    cases = (drawing.draw("guarded", seed) for seed in range(500, 515))
    check(empty for case in cases if case is not None for empty in drawing.emptied(case))


# ------------------------------------------------------------------------ what sizes decide


DTYPES: dict[Kind, Dtype] = {"real": "f32", "whole": "i64", "bool": "bool"}


def lowered(text: str) -> Plan:
    program = ix.compile(text).ir
    return lowering.lower(program, {t.name: DTYPES[t.kind] for t in program.inputs})


def sizes(**given: int) -> dict[Coordinate, int]:
    return {Coordinate(name): size for name, size in given.items()}


def functions(plan: Plan) -> set[str]:
    return {one.op.fn for one in ordered(plan) if isinstance(one.op, Map)}


def test_a_guard_that_always_holds_is_gone() -> None:
    plan = lowered("input x[i, j]; let y[i] = sum[j](x[i, j] where j <= i + 7);")
    held = [one.op.where for one in ordered(plan) if isinstance(one.op, Reduce)]
    assert held != [None]
    for length, guards in ((8, [None]), (9, held)):
        small = specialise(plan, sizes(i=4, j=length))
        found = [one.op.where for one in ordered(small) if isinstance(one.op, Reduce)]
        assert (found == [None]) == (guards == [None])


def test_a_choice_that_is_decided_is_made() -> None:
    plan = lowered("input x[i], y[i]; let z[i] = if i < 4 { x[i] } else { y[i] };")
    assert "where" in functions(specialise(plan, sizes(i=5)))
    assert specialise(plan, sizes(i=4)).definitions["z"].value.op == Input("x", *_home(plan, 4))


def _home(plan: Plan, length: int) -> tuple[Any, ...]:
    one = specialise(plan, sizes(i=length)).inputs[0].op
    assert isinstance(one, Input)
    return one.home, one.kind, one.dtype


def test_a_read_that_is_proved_in_bounds_is_not_checked() -> None:
    plan = lowered("input x[i]; let y[j in 0..3] = x[2 * j];")
    assert [one.op.outside for one in ordered(plan) if isinstance(one.op, Read)] == ["check"]
    assert [one.op.outside for one in ordered(specialise(plan, sizes(i=5))) if isinstance(one.op, Read)] == ["never"]
    assert [one.op.outside for one in ordered(specialise(plan, sizes(i=4))) if isinstance(one.op, Read)] == ["check"]


def test_a_size_that_is_not_given_stays() -> None:
    """Of a step of decoding, the past grows."""
    plan = lowered("input q[d], K[j, d]; let s[j] = sum[d](q[d] * K[j, d]) / size(d);")
    small = specialise(plan, sizes(d=8))
    extents = {axis.name.name: shown(axis.extent) for one in ordered(small) for axis in one.axes}
    assert extents == {"d": "8", "j": "size(j)"}


# ---------------------------------------------------------------------------- what is kept


def kept_of(text: str, held: tuple[str, ...] = (), **given: int) -> Apart:
    return apart(rules.optimise(specialise(lowered(text), sizes(**given)), rules.Target()), held)


def test_masks_and_tables_are_kept() -> None:
    two = kept_of("input x[i, j]; let y[i, j] = if j <= i { x[i, j] } else { 0 } * [1.0, 2.0, 3.0][j % 3];", i=4, j=6)
    assert not any(isinstance(one.op, Map) and one.kind == "bool" for one in ordered(two.plan))
    assert [one.kind for one in two.plan.inputs[1:]] == [d.kind for d in two.kept.definitions.values()]
    assert not two.kept.inputs


@pytest.mark.parametrize(
    "text",
    [
        "input x[i, d]; let near[i, j in 0..size(i)] = i - j < 2;",
        "input x[i, d]; let near[i, j in 0..size(i)] = (i - j) as f64;",
        "input x[i, d]; let sums[i, j in 0..size(i)] = i + j; let near[i] = sums[i, 2];",
    ],
)
def test_what_is_handed_out_is_made_anew(text: str) -> None:
    two = kept_of(text, i=5, d=3)
    handed = [two.plan.definitions[name].value for name in two.plan.wanted]
    assert not set(handed) & set(two.plan.inputs)


def test_a_large_mask_is_made_in_each_call() -> None:
    text = "input x[i, j]; let y[i, j] = if j <= i { x[i, j] } else { 0 };"
    assert kept_of(text, i=1024, j=1024).kept.wanted
    assert [d.home for d in kept_of(text, i=1025, j=1024).kept.definitions.values()] != []
    assert all(len(d.home) == 1 for d in kept_of(text, i=1025, j=1024).kept.definitions.values())


def test_places_of_slices_are_no_arrays() -> None:
    two = kept_of("input x[i]; let y[j in 0..3] = x[2 * j + 1];", i=8)
    assert not two.kept.wanted


def test_views_of_weights_are_kept_and_have_their_numbers() -> None:
    text = "input x[i, d], W[g, d, e]; let y[i, e] = sum[d](x[i, d] * W[1, d, e]);"
    two = kept_of(text, ("W",), i=2, d=3, e=4, g=2)
    assert [one.op.name for one in two.kept.inputs if isinstance(one.op, Input)] == ["W"]
    weight = torch.randn(2, 3, 4)
    source = show.emit_sized(two, door.DIALECTS["torch"]()).standing_alone()
    scope = door.load(source, device="cpu", W=weight)
    x = torch.randn(2, 3)
    assert torch.allclose(scope["program"](x, weight), x @ weight[1])
    weight.zero_()
    assert not scope["kept_0"].any()
