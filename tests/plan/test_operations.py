"""The plan says what runs: the calls of the emitted source are the operations of the plan, and the other way round."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import indexical as ix
from indexical.backends.operations import kind_of
from indexical.run.samples import random_arrays
from indexical.std.library import entries

pytestmark = pytest.mark.sampled(10)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(file for file in ROOT.glob("examples/**/*.ix") if file.parent.name != "variants")
# Functions of arrays; those of coordinates and numbers alone are parts of others.
STANDARD = sorted(name for name, entry in entries().items() if "[" in entry.header)
SMALL = dict.fromkeys("bhijdektmnpqrw", 3)

# Plain Python, about sizes.
HOST = frozenset("int float getattr as_whole max min abs range reversed Refused slice dict.fromkeys block_rows".split())
WHOLE = frozenset("target document w".split())
HOST_METHODS = frozenset("fromkeys pop get indices backward".split())


def called(function: ast.FunctionDef) -> Counter[str]:
    """The calls of a library, of kernels and of helpers, by name, as Python's own parser finds them."""
    found: Counter[str] = Counter()
    for part in (inner for statement in function.body for inner in ast.walk(statement)):
        match part:
            case ast.Call(ast.Name(name)) if name not in HOST:
                found[name] += 1
            case ast.Call(ast.Attribute(ast.Name("torch" | "np"), _) | ast.Attribute(ast.Attribute()) as named):
                found[ast.unparse(named).rpartition(".")[2]] += 1
            case ast.Call(ast.Attribute(ast.Name(of), "backward")) if of.startswith("attend"):
                found["backward"] += 1
            case ast.Call(ast.Attribute(of, name)) if name not in HOST_METHODS and ast.unparse(of) != "math":
                found[name] += 1
            case ast.BinOp(_, ast.MatMult(), _):
                found["@"] += 1
    return found


def functions(source: str) -> list[ast.FunctionDef]:
    """The emitted function, and those of tiles that it hands to a kernel."""
    tree = ast.parse(source)
    made = [part.value.args for part in tree.body if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call)]
    tiles = {argument.id for arguments in made for argument in arguments if isinstance(argument, ast.Name)}
    return [p for p in tree.body if isinstance(p, ast.FunctionDef) and (p.name == "program" or p.name in tiles)]


def check(program: ix.Program, arrays: dict[str, Any], backend: str) -> None:
    plan = program.plan(**arrays, backend=backend)
    # As a call runs it: what stands in a file also takes scalars in other forms.
    call, wanted = program._prepared((), arrays, None, backend)
    source = program._shown.emitted(call, wanted, False)[1].standing_alone()
    in_source = sum((called(function) for function in functions(source)), Counter[str]())
    in_plan = Counter(operation.call.rpartition(".")[2] for operation in plan.operations)
    assert in_plan == in_source
    assert not [operation.call for operation in plan.operations if operation.name == "unknown"]
    listed = [operation for step in plan.to_json()["steps"] for operation in step["operations"]]  # type: ignore[attr-defined]
    home = {name for step in plan.steps for name in step.definitions}
    assert len(listed) == sum(operation.definition in home for operation in plan.operations)
    for step in plan.steps:
        names = {operation.name for operation in plan.operations if operation.definition in step.definitions}
        if step.chunks is not None:
            assert "chunks" in names, step.kernel
        elif step.attend is not None:
            assert "attend" in names, step.kernel
        if step.norm is not None:
            assert "fused" in names, step.kernel
        if step.kernel == "scan":
            assert names & {"scan", "normalize", "reduce"}


@pytest.mark.sampled(29)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_call_of_an_example_is_an_operation_of_its_plan(path: Path, backend: str) -> None:
    try:
        program = ix.compile(path)
    except ix.CompileError:
        pytest.skip("an example of a mistake")
    if program.outputs:
        check(program, random_arrays(program.ir, {}, SMALL, 0)[0].arrays, backend)


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
def test_every_call_of_a_standard_function_is_an_operation_of_its_plan(name: str, backend: str) -> None:
    program = standard(name)
    check(program, random_arrays(program.ir, {}, SMALL, 0)[0].arrays, backend)


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
    assert [o["operation"] for o in steps[1]["operations"]] == ["normalize"]
    assert json.dumps(steps)


def test_a_call_that_no_table_knows_is_said_to_be_unknown() -> None:
    assert kind_of("torch.frobnicate") == "unknown"
    assert kind_of("torch.nn.functional.softplus") == "apply"
