"""The plan says what runs: what is printed are the operations of the plan, and the other way round."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import indexical as ix
from indexical.engine.listing import kind_of
from indexical.engine.ops import Iota, Plan, Value, operands
from indexical.engine.order import ordered, uses
from indexical.engine.rules.places import is_arithmetic
from indexical.engine.show.printer import Printer
from indexical.engine.words import brief
from indexical.run.samples import random_arrays
from indexical.std.library import entries

pytestmark = pytest.mark.sampled(10)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(file for file in ROOT.glob("examples/**/*.ix") if file.parent.name != "variants")
# Functions of arrays; those of coordinates and numbers alone are parts of others.
STANDARD = sorted(name for name, entry in entries().items() if "[" in entry.header)
SMALL = dict.fromkeys("bhijdektmnpqrw", 3)

WHOLE = frozenset("target document w".split())

# The kinds of operations, and those of kernels that the former emitter prints.
KINDS = frozenset(
    """iota constant apply cast view pad gather scatter reduce contract normalize sort scan convolve fused join loop
    attend attend_backward blocks chunks put""".split()
)


def check(program: ix.Program, arrays: dict[str, Any], backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is printed that is not in the plan, all that the plan lists is printed, and no array twice that is read
    once; what is printed inside of a block of rows is in the plan of such a block."""
    printed: Counter[Value] = Counter()
    plans: list[Plan] = []
    made = Printer.made

    def counted(printer: Printer, one: Value) -> Any:
        printed[one] += 1
        if not any(printer.plan is known for known in plans):
            plans.append(printer.plan)
        return made(printer, one)

    monkeypatch.setattr(Printer, "made", counted)
    plan = program.plan(**arrays, backend=backend)
    assert plan.arrays is not None
    assert not plans or any(known is plan.arrays for known in plans)
    folds = sum(step.attend is not None for step in plan.steps)  # Each line of a turn, there and back.
    assert len(plans) <= 1 + sum(step.block is not None for step in plan.steps) + 50 * folds
    values = list(dict.fromkeys(one for known in plans or [plan.arrays] for one in ordered(known)))
    read = sum(map(uses, plans), Counter[Value]())
    own = {one for one in printed if isinstance(one.op, Iota)}  # A gather counts the axes that it does not move along.
    assert not printed.keys() - own - set(values)
    operations = [one for one in values if kind_of(one)]
    computed = [one for one in operations if one.axes and not is_arithmetic(one)]
    readers = {part: one for one in printed for part in operands(one.op)}
    for one in computed:
        # A product to which something is added may be one call with that.
        is_product = kind_of(one) == "contract" or getattr(one.op, "fn", "") == "*"
        assert one in printed or (is_product and getattr(readers[one].op, "fn", "") == "+"), one
        assert printed[one] <= max(1, read[one]), one
    assert {operation.name for operation in plan.operations} <= KINDS
    listed = {operation.call for operation in plan.operations}
    assert {brief(one) for one in computed} <= listed <= {brief(one) for one in operations}
    check_steps(plan)


def check_steps(plan: Any) -> None:
    """Every operation of a definition with a step is there in the plan's JSON, and kernels are what steps say."""
    in_json = [operation for step in plan.to_json()["steps"] for operation in step["operations"]]
    home = {name for step in plan.steps for name in step.definitions}
    assert len(in_json) == sum(operation.definition in home for operation in plan.operations)
    for step in plan.steps:
        names = {operation.name for operation in plan.operations if operation.definition in step.definitions}
        if step.chunks is not None:
            assert "chunks" in names, step.kernel
        elif step.attend is not None:
            assert "attend" in names, step.kernel


@pytest.mark.sampled(29)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_the_operations_of_its_plan(
    path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        program = ix.compile(path)
    except ix.CompileError:
        pytest.skip("an example of a mistake")
    if program.outputs:
        check(program, random_arrays(program.ir, {}, SMALL, 0)[0].arrays, backend, monkeypatch)


def standard(name: str) -> ix.Program:
    """A program that calls a function of the library on inputs that are its parameters. Those that index are whole."""
    entry = entries()[name]
    parameters = entry.header.removeprefix(f"{name}(").partition(")")[0]
    inputs = re.findall(r"(\w+)((?:\[[^\]]*\])?)", parameters)
    typed = [f"{given}{axes}{' : i64' if given in WHOLE else ''}" for given, axes in inputs]
    call = f"{name}({', '.join(given for given, _ in inputs)})"
    return ix.compile(f"use std::{entry.module}::{{{name}}};\ninput {', '.join(typed)};\nlet out = {call};")


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", STANDARD)
def test_a_standard_function_prints_the_operations_of_its_plan(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = standard(name)
    check(program, random_arrays(program.ir, {}, SMALL, 0)[0].arrays, backend, monkeypatch)


def test_the_plan_names_what_the_emitted_code_decides_on() -> None:
    convolution = ix.compile(
        "input x[b, c, n], w[o, c, k]; let y[b, o, i in 0..7] = sum[c, k](x[b, c, i + k] * w[o, c, k]);"
    )
    arrays = random_arrays(convolution.ir, {}, {"b": 2, "c": 3, "n": 9, "o": 2, "k": 3}, 0)[0].arrays
    plan = convolution.plan(**arrays, backend="torch")
    assert "convolve" in str(plan)
    assert "a convolution along `i`" in str(plan)


def test_operations_have_axes_sizes_and_bytes() -> None:
    program = ix.compile(
        "input A[i, k], B[k, j]; let C[i, j] = sum[k](A[i, k] * B[k, j]); let s[i] = softmax[i](C[i, 0]);"
    )
    arrays = random_arrays(program.ir, {}, {"i": 2, "j": 5, "k": 3}, 0)[0].arrays
    steps: Any = program.plan(**arrays, outputs=("C", "s")).to_json()["steps"]
    product = next(operation for operation in steps[0]["operations"] if operation["operation"] == "contract")
    assert (product["result"], product["axes"], product["shape"], product["bytes"]) == ("C", ["i", "j"], [2, 5], 80)
    assert [o["operation"] for o in steps[1]["operations"]] == ["view", "normalize"]
    assert json.dumps(steps)
