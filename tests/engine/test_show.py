"""The text that a plan is printed as: read here as a person reads it, line by line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import indexical as ix
from indexical.ir.types import Dtype

from .door import LIBRARIES, Built, build

DTYPES: dict[str, Dtype] = {"x": "f32", "y": "f32", "w": "f32", "table": "f32", "k": "i64"}


def built(text: str, library: str = "torch") -> Built:
    program = ix.compile(text).ir
    dtypes = {one.name: DTYPES[one.name] for one in program.inputs if one.name in DTYPES}
    return build(program, dtypes, library, program.outputs)


def body(text: str, library: str = "torch") -> list[str]:
    """The lines of the function that are neither comments nor checks of sizes."""
    lines = built(text, library).source.split("def program(")[1].splitlines()[1:]
    found, skips = [], False
    for line in lines:
        plain = line.strip()
        skips = skips or (plain.startswith("if ") and ".shape" in plain)
        if plain and not plain.startswith("#") and not skips:
            found.append(plain)
        skips = skips and not plain.startswith("raise")
    return found


VIEWS = {
    "a slice": ("let a[i in 0..size(n) - 2] = x[i + 2];", "a = x[2:]"),
    "a stride": ("let a[i in 0..size(n) / 2] = x[2 * i];", "a = x[:2 * (n_n // 2):2]"),
    "a flip": ("let a[i in 0..size(n)] = x[size(n) - 1 - i];", "a = x.flip(0)"),
    "a shift under a guard": (
        "let a[i in 0..size(n)] = if i > 0 { x[i - 1] } else { 0.0 };",
        "a = torch.where(i > 0, padded(x, {0: (-1, n_n - 1)}), 0.0)",
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_reads_are_views(name: str) -> None:
    text, line = VIEWS[name]
    assert line in body(f"input x[n]; {text} output a;")


PAIRS = {
    "a diagonal": ("let a[i in 0..4] = x[i, i];", "a = x.diagonal(0, 0, 1)"),
    "a split": ("let a[n, h in 0..2, d in 0..2] = x[n, h * 2 + d];", "a = x.reshape(4, 2, 2)"),
    "a window": ("let a[n, i in 0..3, k in 0..2] = x[n, i + k];", "a = windows(x, 1, 3, 2, 1)"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_reads_of_two_axes_are_views(name: str) -> None:
    text, line = PAIRS[name]
    assert line in body(f"input x[n in 0..4, m in 0..4]; {text} output a;")


def test_a_place_outside_reads_zero_and_no_other_cell() -> None:
    """The cells that a clipped place would read are infinite, and 0 times that is NaN."""
    text = "input x[n], k[m] : i64; let a[m] = sum[n](x[k[m]] where n == 0 && k[m] >= 0 && k[m] < size(n)); output a;"
    x, k = np.array([np.inf, 1.0, np.inf], np.float32), np.array([-1, 1, 3])
    for library in ("numpy", "torch"):
        given = (torch.tensor(x), torch.tensor(k)) if library == "torch" else (x, k)
        (found,) = built(text, library)(*given)
        assert np.asarray(found).tolist() == [0.0, 1.0, 0.0]


def test_a_gather_is_refused_by_name() -> None:
    made = built("input table[v, d], k[n] : i64; let a[n, d] = table[k[n], d]; output a;")
    with pytest.raises(ValueError, match="an index of `table` is out of bounds") as refusal:
        made(torch.zeros(3, 2), torch.tensor([0, 3]))
    assert refusal.value.args[0] == "IX305"


def test_sizes_are_refused_in_words() -> None:
    made = built("input x[n, m], y[m]; let a[n] = sum[m](x[n, m] * y[m]); output a;")
    with pytest.raises(ValueError, match="with the sizes of the other inputs") as refusal:
        made(torch.zeros(3, 2), torch.zeros(3))
    assert refusal.value.args == ("IX304", "`y` is not [m] with the sizes of the other inputs")


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_results_have_memory_of_their_own(library: str) -> None:
    source = built("input x[n, m]; let a[m, n] = x[n, m]; let b[n, m] = x[n, m]; output a, b;", library).source
    given = [line for line in source.splitlines() if line.startswith("    return")]
    copy = "clone" if library == "torch" else "copy"
    assert given == [f"    return x.T.{copy}(), x.{copy}()"]


def test_arrays_of_numpy_run_forward() -> None:
    (found,) = built("input x[n]; let a[i in 0..size(n)] = exp(x[size(n) - 1 - i]); output a;", "numpy")(np.arange(3.0))
    assert min(found.strides) > 0
    torch.from_numpy(found)


def test_an_input_that_cancels_has_a_zero_gradient() -> None:
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    made = built("input x[n], y[n]; let a[n] = x[n]; let b[n] = a[n] + sum[m in 0..0](y[m]); output b;")
    (found,) = made(x, y)
    found.sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [0.0] * 3


RECURRENCE = """
input x[t, d];
let h[0, d] = 0.0;
let h[s in 1..=size(t), d] = tanh(h[s - 1, d] + x[s - 1, d]);
output h;
"""


def test_a_recurrence_keeps_rows_that_autograd_follows() -> None:
    lines = body(RECURRENCE)
    assert "x_steps = x.unbind(0)" in lines
    assert "h_rows[s] = torch.tanh(h_rows[s - 1] + x_steps[s - 1])" in lines
    x = torch.randn(5, 2, requires_grad=True)
    (found,) = built(RECURRENCE)(x)
    found.sum().backward()
    assert x.grad is not None
    assert x.grad.abs().min() > 0


def test_a_recurrence_fills_an_array_of_numpy() -> None:
    assert "h[s] = np.tanh(h[s - 1] + x[s - 1])" in body(RECURRENCE, "numpy")


def test_what_a_loop_does_not_change_stands_before_it() -> None:
    step = "let h[t, e] = (if t > 0 { h[t - 1, e] } else { 0.0 }) + sum[d](exp(w[d, e]) * x[t, d]);"
    lines = body(f"input x[t, d], w[d, e]; {step} output h;")
    loop = next(n for n, line in enumerate(lines) if line.startswith("for "))
    assert any("torch.exp(w)" in line for line in lines[:loop])
    assert not any("torch.exp" in line for line in lines[loop:])


def test_what_is_made_of_rows_of_a_loop_before_stands_before_the_next() -> None:
    """Also where that loop checks its places: it has ended."""
    first = "let h[t, d] = (if t > 0 { h[t - 1, k[d]] } else { 0.0 }) + tanh(x[t, d]);"
    second = "let g[t] = (if t > 0 { tanh(g[t - 1]) } else { 0.0 }) + sum[d](exp(h[t, d]));"
    lines = body(f"input x[t, d], k[d] : i64; {first} {second} output g;")
    loop = max(n for n, line in enumerate(lines) if line.startswith("for "))
    assert any("torch.exp(h[1:])" in line for line in lines[:loop])


def test_the_negative_of_a_term_is_subtracted() -> None:
    (line,) = (line for line in body("input x[i], y[i]; let out[i] = x[i] + (-exp(y[i]));") if "exp" in line)
    assert "x - torch.exp(y)" in line
    (line,) = (line for line in body("input x[i], y[i]; let out[i] = x[i] - (-exp(y[i]) * y[i]);") if "exp" in line)
    assert "x - -torch.exp(y) * y" in line  # The product is negative, and not the term.


BELOW = ("d < size(d) / 2", "size(d) / 2 > d", "d <= size(d) / 2 - 1", "size(d) / 2 - 1 >= d")
ABOVE = ("d >= size(d) / 2", "size(d) / 2 <= d", "d > size(d) / 2 - 1", "size(d) / 2 - 1 < d")


@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("above", ABOVE)
def test_halves_are_put_together_in_any_spelling(below: str, above: str) -> None:
    low, high = "-x[i, d + size(d) / 2]", "x[i, d - size(d) / 2]"
    one = f"let one[i, d] = if {below} {{ {low} }} else {{ {high} }};"
    two = f"let two[i, d] = if {above} {{ {high} }} else {{ {low} }};"
    program = ix.compile(f"input x[i, d]; {one} {two}").ir
    made = build(program, {"x": "f32"}, "torch", ("one", "two"))
    assert "where" not in made.source.split("def program(")[1]
    x = torch.arange(12.0).reshape(2, 6)
    expected = torch.cat((-x[:, 3:], x[:, :3]), 1)
    assert all(torch.equal(found, expected) for found in made(x))


PROGRAMS = ("lstm", "convolution", "rotary", "grouped_query", "smith_waterman", "documents", "heat_equation")


@pytest.mark.parametrize("library", LIBRARIES)
def test_sources_are_without_findings(library: str, tmp_path: Path) -> None:
    """No import that is not used, none that is missing, no name that is not read."""
    examples = Path(__file__).parents[2] / "examples"
    for name in PROGRAMS:
        program = ix.compile((examples / f"{name}.ix").read_text()).ir
        dtypes = {one.name: "f32" if one.kind == "real" else "i64" for one in program.inputs}
        made = build(program, dtypes, library, program.outputs)  # type: ignore[arg-type]
        (tmp_path / f"{name}.py").write_text(made.source)
    findings = _checked(tmp_path)
    assert not findings, "\n".join(findings)


def _checked(folder: Path) -> Sequence[str]:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E,F,I,B", "--ignore=E501,B905"]
    command += ["--output-format=concise", str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if folder.name in line]
