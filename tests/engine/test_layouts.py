"""Orders of axes in memory: any are right, few are permuted, and they are found in time that grows with the plan."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.engine import door
from tests.engine.contractions import drawn

import indexical as ix
from indexical.engine import layouts as layouts_file
from indexical.engine.layouts import layouts
from indexical.engine.ops import Contract, Map, Normalize, Plan, Read, Reduce, Write
from indexical.engine.order import reachable, roots_of
from indexical.engine.show import printer

# What is computed may lie in any order; what is given, stored or the result of a kernel lies as it does.
FREE = (Map, Reduce, Contract, Normalize, Read, Write)

CHAIN = """input x[b, i, d], W[h, e, d], V[d, h, e];
let q[b, h, i, e] = sum[d](x[b, i, d] * W[h, e, d]);
let s[b, h, i, j] = sum[e](q[b, h, i, e] * q[b, h, j, e]);
let w[b, h, i, j] = log_softmax[j](s[b, h, i, j]) + cumsum[j](s[b, h, i, j]);
let a[b, h, i, e] = sum[j](w[b, h, i, j] * q[b, h, j, e]) / max[j](w[b, h, i, j]);
let y[b, i, d] = sum[h, e](a[b, h, i, e] * V[d, h, e]) + x[b, i, d];"""


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_any_order_of_any_value_gives_the_same_numbers(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = ix.compile(CHAIN).ir
    numbers = np.random.default_rng(0)
    arrays: list[Any] = [numbers.normal(size=shape) for shape in ((2, 3, 4), (2, 5, 4), (4, 2, 5))]
    if library == "torch":
        arrays = [door.torch.from_numpy(array) for array in arrays]
    wanted = ("y", "w")
    dtypes: dict[str, Any] = dict.fromkeys("xWV", "f64")
    expected = [door.as_numpy(one) for one in door.build(program, dtypes, library, wanted)(*arrays)]
    for seed in range(20):
        monkeypatch.setattr(printer, "layouts", partial(_shuffled, Random(seed)))
        made = door.build(program, dtypes, library, wanted)
        for found, right in zip(made(*arrays), expected, strict=True):
            np.testing.assert_allclose(door.as_numpy(found), right, rtol=1e-9, err_msg=made.source)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("several", [False, True], ids=["two", "several"])
def test_contractions_of_any_order_give_the_same_numbers(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40):
        case = drawn(seed, several)
        arrays = case.arrays(Random(seed), (1, 2, 3, 4))
        monkeypatch.setattr(printer, "layouts", partial(_shuffled, Random(seed)))
        program = case.program
        made = door.build(program, {one.name: "f64" for one in program.inputs}, "torch", ("out",))
        [found] = made(*map(door.torch.from_numpy, arrays))
        np.testing.assert_allclose(door.as_numpy(found), case.expected(arrays), rtol=1e-9, atol=1e-9)


def _shuffled(draw: Random, plan: Plan) -> Any:
    order: dict[Any, Any] = dict(layouts(plan))
    for one in order:
        if isinstance(one.op, FREE):
            order[one] = tuple(draw.sample(order[one], len(order[one])))
    return order


def test_every_value_has_all_its_axes_in_some_order() -> None:
    plan = door.build(ix.compile(CHAIN).ir, dict.fromkeys("xWV", "f32"), "torch", ("y",)).plan
    order = layouts(plan)
    assert set(order) == set(reachable(roots_of(plan)))
    assert all(len(order[one]) == len(one.axes) and set(order[one]) == one.names for one in order)


def test_what_is_asked_for_lies_as_it_is_written() -> None:
    text = "input x[i, j];\nlet y[j, i] = exp(x[i, j]);\nlet z[i] = sum[j](y[j, i]);"
    program = ix.compile(text).ir
    for wanted, expected in ((("y", "z"), ["j", "i"]), (("z",), ["i", "j"])):
        plan = door.build(program, {"x": "f32"}, "numpy", wanted).plan
        assert [str(name) for name in layouts(plan)[plan.definitions["y"].value]] == expected


def test_ways_are_weighed_once_for_each_contraction(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many layers there are, the pass looks at each of their products once."""
    asked: list[Contract] = []
    weigh = layouts_file.product_of

    def counting(op: Contract, *given: Any) -> Any:
        asked.append(op)
        return weigh(op, *given)

    for layers in (4, 32):
        lines = ["input x0[i, d], W[e, d];"]
        lines += [f"let x{n + 1}[i, d] = relu(sum[e](x{n}[i, e] * W[e, d])) + {n};" for n in range(layers)]
        program = ix.compile("\n".join(lines)).ir
        plan = door.build(program, {"x0": "f32", "W": "f32"}, "torch", (f"x{layers}",)).plan
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr(layouts_file, "product_of", counting)
            layouts(plan)
        assert len(asked) == layers
