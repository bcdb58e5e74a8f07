"""Names of a program in emitted code: letters of any alphabet, and words that Python or the code has uses for."""

from __future__ import annotations

import ast
from importlib import resources
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.engine.carried import ALONE

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.sampled(4)

NAMES = ("μ", "é", "Å", "变", "class", "lambda", "match", "_", "__debug__", "torch", "np", "math", "Refused", "program")
OURS = ("device", "reversed", "rows", "keys", "head", "arrays", "gradients", "k0", "r1", "check", "attend", "n_i")

FORMS = {
    "definition": "input x[i]; let {}[i] = x[i] * 2; let y[i] = {}[i] + sum[j]({}[j]); output {}, y;",
    "coordinate": "input x[{}]; let y[{}] = x[{}] * 2 + {};",
    "function": "input x[i]; fn {}(a) {{ a * 2 }} let y[i] = {}(x[i]);",
    "attention": "input x[i], u[j]; let {}[i] = sum[j](softmax[j](tanh(x[i] * u[j]) where j <= i) * u[j]);",
    "query": "input {}[i], u[j]; let y[i] = sum[j](softmax[j](tanh({}[i] * u[j]) where j <= i) * u[j]);",
    "recurrence": "input x[t]; let {}[0] = x[0]; let {}[t in 1..size(t)] = {}[t - 1] * 0.5 + x[t];",
    "step": "input x[{}]; let h[0] = x[0]; let h[{} in 1..size({})] = tanh(h[{} - 1] * 0.5 + x[{}]);",
}


def numbers(found: Any) -> list[np.ndarray]:
    return [np.asarray(value) for value in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*NAMES, *OURS])
def test_a_name_in_emitted_code(name: str, form: str) -> None:
    program = ix.compile(FORMS[form].replace("{}", name).replace("{{", "{").replace("}}", "}"))
    arrays = [np.array([1.0, 2.0, 3.0])] * len(program.inputs)
    expected = numbers(program(*arrays, backend="reference"))
    for call in (arrays, [torch.tensor(array) for array in arrays]):
        for found, right in zip(numbers(program(*call)), expected, strict=True):
            np.testing.assert_allclose(found, right)


def test_names_that_python_would_make_one_are_no_names() -> None:
    """Python takes `ﬁ` for `fi` and the micro sign for the letter mu: a call by name could not tell them apart."""
    for name in ("ſ", "ﬁ", "µ", "𝐱", "e\u0301"):
        (found, *_) = ix.check(f"input {name}[i]; let y[i] = 1;")
        assert found.code == "IX103"


def test_a_call_by_a_name_beyond_ascii() -> None:
    program = ix.compile("input μ[i], é[i]; let y[i] = μ[i] - é[i];")
    assert program(é=np.ones(2), μ=np.zeros(2)).tolist() == [-1, -1]


def test_kernels_that_stand_in_one_module_have_different_names() -> None:
    folder = resources.files("indexical.backends.kernels")
    files = [path for path in folder.iterdir() if path.name.startswith(("torch_", "triton_"))]
    # Some stand for others in a text of its own.
    files = [path for path in files if path.name.removesuffix(".py") not in ALONE.values()]
    owners: dict[str, list[str]] = {}
    for path in files:
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                owners.setdefault(statement.name, []).append(path.name)
    assert len(files) > 5
    assert {name: {*found} for name, found in owners.items() if len(found) > 1} == {}
