"""The emitted source: it runs where there is no Indexical, and reads as it was reviewed.

`python -m tests.backends.test_source` rewrites `tests/golden/` after a change that was meant.
"""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.backends import drawing  # noqa: E402
from tests.backends.alone import tensor  # noqa: E402
from tests.backends.drawing import as_numpy, compiled, draw  # noqa: E402
from tests.test_examples import SIZES  # noqa: E402

import indexical as ix  # noqa: E402
from indexical.run.samples import random_arrays, stand_ins  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = "convolution lstm online_softmax rotary smith_waterman transformer_block".split()
GOLDEN = ROOT / "tests" / "golden"
BACKENDS = ("numpy", "torch")

# One for each kernel, and what is computed without one.
KINDS = """causal|window|documents and parts|mask|ALiBi|soft cap under a mask|grouped|one query, some keys
|keys from the third|cap from a number""".replace("\n", "").split("|")
PLAIN = {
    "product": "input A[i, k], B[k, j]; let C[i, j] = sum[k](A[i, k] * B[k, j]);",
    "gather": "input x[i], p[k] : i64; let y[k] = x[p[k]] where p[k] >= 0;",
    "reductions": "input x[i, j]; let y[i] = max[j](x[i, j]) + prod[j](x[i, j]); let a = argmax[i](y[i]); output y, a;",
    "normalisers": "input x[i, j]; let y[i, j] = softmax[j](x[i, j]) + log_softmax[i](x[i, j]) + cumsum[j](x[i, j]);",
    "functions": "input x[i]; let y[i] = erf(x[i]) + gelu(x[i]) + silu(x[i]) + clamp(x[i], -1, 1) + round(x[i]);",
    "wholes": "input p[k] : i64; let y[k] = p[k] / 3 + p[k] % 3 - p[k] ** 2;",
    "recurrence": "input x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = tanh(h[t - 1]) + x[t];",
    "asserted": 'input x[i]; assert all[i](x[i] > -100), "no less than -100"; let y[i] = x[i];',
}


@pytest.fixture(autouse=True)
def many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is that of every call, few pairs and many."""
    monkeypatch.setattr(drawing, "_compiled", {})


@cache
def cases() -> dict[str, tuple[ix.Program, dict[str, Any]]]:
    """Programs with NumPy arrays for them."""
    found: dict[str, tuple[ix.Program, dict[str, Any]]] = {}
    for name in KINDS:
        found[name] = compiled(name), as_numpy(draw(name))
    for name, text in PLAIN.items():
        program = ix.compile(text)
        found[name] = program, random_arrays(program.ir, {}, {"i": 4}, 0)[0].arrays
    for name in EXAMPLES:
        program = ix.compile(ROOT / "examples" / f"{name}.ix")
        found[name] = program, random_arrays(program.ir, {}, SIZES.get(name, {}), 0)[0].arrays
    return found


@cache
def texts(backend: str) -> dict[str, str]:
    return {name: program.source(*arrays.values(), backend=backend) for name, (program, arrays) in cases().items()}


@cache
def alone(backend: str) -> Any:
    """What the emitted texts give in a process that cannot import Indexical: by name, values and gradients."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "cases")
        path.write_bytes(pickle.dumps([(name, texts(backend)[name], [*cases()[name][1].values()]) for name in cases()]))
        run = [sys.executable, "-I", "-W", "error", str(Path(__file__).with_name("alone.py")), str(path), backend]
        result = subprocess.run(run, capture_output=True, encoding="utf-8", cwd=folder)
        assert result.returncode == 0, result.stderr
        return pickle.loads(path.with_suffix(".out").read_bytes())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", BACKENDS)
def test_it_gives_the_same_numbers_where_there_is_no_indexical(backend: str) -> None:
    for name, (program, arrays) in cases().items():
        given = [*map(tensor, arrays.values())] if backend == "torch" else [*arrays.values()]
        outs = program(*given, backend=backend)
        outs = outs if isinstance(outs, tuple) else (outs,)
        values, flows = alone(backend)[name]
        for ours, theirs in zip(outs, values, strict=True):
            shown = ours.detach().numpy() if backend == "torch" else ours
            assert shown.dtype == theirs.dtype
            np.testing.assert_allclose(shown, theirs, rtol=1e-13, atol=1e-13, err_msg=name)
        if flows:
            learned = [array for array in given if isinstance(array, torch.Tensor) and array.requires_grad]
            total = sum(out.sum() for out in outs if out.requires_grad)
            for ours, theirs in zip(torch.autograd.grad(total, learned, allow_unused=True), flows, strict=True):
                assert (ours is None) == (theirs is None), name
                np.testing.assert_allclose(0 if ours is None else ours, 0 if theirs is None else theirs, err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_imports_nothing_of_ours(backend: str) -> None:
    for name, text in texts(backend).items():
        tree = ast.parse(text)
        modules = {part.module for part in ast.walk(tree) if isinstance(part, ast.ImportFrom)}
        modules |= {alias.name for part in ast.walk(tree) if isinstance(part, ast.Import) for alias in part.names}
        roots = {(module or "").split(".")[0] for module in modules}
        library = {"math", "fractions", "collections", "itertools", "functools", "threading", "typing"}
        assert roots <= {*library, backend}, name


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_shows_the_relation(backend: str) -> None:
    text = texts(backend)["causal"]
    assert "# let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);" in text
    assert "def program(Q, K, V):" in text
    assert re.search(r"^ +out = ", text, re.MULTILINE)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_refuses_what_does_not_fit(backend: str) -> None:
    scope: dict[str, Any] = {"__name__": "emitted"}
    library = np if backend == "numpy" else torch
    program = ix.compile(PLAIN["product"])
    exec(program.source(np.ones((2, 2)), np.ones((2, 2)), backend=backend), scope)
    assert scope["program"](library.ones((2, 3)), library.ones((3, 1))).tolist() == [[3.0], [3.0]]
    with pytest.raises(ValueError, match="`B` is not"):
        scope["program"](library.ones((2, 3)), library.ones((2, 3)))


PROGRAMS = sorted(path for path in (ROOT / "examples").rglob("*.ix") if path.parent.name != "broken")
# Of a name that somebody gave, and of `zip` in texts that older Pythons read, there is nothing to say.
RUFF = "ruff check --isolated --line-length=120 --select=E,F,W,I,B --ignore=E741,B905 --output-format=concise -".split()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_ruff_finds_nothing(path: Path) -> None:
    program = ix.compile(path)
    arrays = stand_ins(program.ir, {}, "f32")[0].arrays
    for backend in ("numpy", "torch", "jax"):
        text = program.source(**arrays, backend=backend)
        found = subprocess.run([sys.executable, "-m", *RUFF], input=text, capture_output=True, encoding="utf-8")
        assert found.returncode == 0, f"{backend}: {found.stdout}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scalar_is_a_number_or_an_array(backend: str) -> None:
    program = ix.compile("input x[i], cap; let half = cap / 2; let y[i] = half * tanh(x[i] / cap);")
    array = np.linspace(-1, 1, 5)
    x = torch.tensor(array) if backend == "torch" else array
    right = np.asarray(program(array, 3.0, backend="reference"))
    for cap in (3.0, 3, np.float64(3), torch.tensor(3.0, dtype=torch.float64) if backend == "torch" else np.array(3.0)):
        scope: dict[str, Any] = {"__name__": "emitted"}
        exec(program.source(x, cap, backend=backend), scope)
        for other in (3.0, x[:1].sum() + 4):
            np.testing.assert_allclose(np.asarray(scope["program"](x, other)), right, rtol=1e-12)
            np.testing.assert_allclose(np.asarray(program(x, other, backend=backend)), right, rtol=1e-12)


def test_a_file_has_only_the_kernels_that_it_calls() -> None:
    program = ix.compile("input x[t], a[t]; let h[0] = x[0]; let h[t in 1..size(t)] = a[t] * h[t - 1] + x[t];")
    arrays = {"x": np.ones(64), "a": np.ones(64)}
    text = program.source(**{name: torch.tensor(array) for name, array in arrays.items()}, backend="torch")
    kernels = Path(ix.__file__).parent / "backends" / "kernels"
    own = re.findall(r"^def (\w+)", (kernels / "torch_scan.py").read_text(encoding="utf-8"), re.MULTILINE)
    defined = [name for name in own if f"\ndef {name}(" in text]
    assert defined
    assert all(len(re.findall(rf"\b{name}\b", text)) > 1 for name in defined)
    assert text.count("import torch\n") == 1


def test_what_one_turn_alone_reads_is_a_variable_of_it() -> None:
    text = """input x[t, d];
    let h[0, d] = x[0, d];
    let h[t in 1..size(t), d] = {
        let m[e] = tanh(h[t - 1, e]);
        sin(m[d]) + m[d] * sum[e](m[e]) + x[t, d]
    };"""
    program = ix.compile(text)
    x = np.random.default_rng(0).normal(size=(5, 3))
    source = program.source(torch.tensor(x), backend="torch")
    assert "            h_m = torch.tanh(h_rows[t - 1])" in source
    assert "h_m_rows" not in source
    right = program(x, backend="reference")
    np.testing.assert_allclose(program(x), right)
    np.testing.assert_allclose(program(torch.tensor(x)), right)


# -------------------------------------------------------------------------------------------- golden

SOFT_CAP = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], cap;

let scores[b, h, i, j]  = cap * tanh(sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) / cap);
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""
REVIEWED: dict[str, str | Path] = {
    "causal_attention": ROOT / "examples" / "causal_attention.ix",
    "sliding_window": ROOT / "examples" / "sliding_window.ix",
    "soft_cap": SOFT_CAP,
    "convolution": ROOT / "examples" / "convolution.ix",
    "lstm": ROOT / "examples" / "lstm.ix",
}
DOCUMENTS = """input Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e], document[b, i] : i64, slope[h];

let scores[b, h, i, j]  = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) - slope[h] * (i - j);
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i, document[b, i] == document[b, j];
let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""
# What is emitted for a GPU is reviewed of one program, whose kernels have most of what kernels may have.
GOLDENS = [*((name, backend) for name in REVIEWED for backend in BACKENDS), ("documents", "triton")]


def written(name: str, backend: str) -> str:
    """The emitted module, with its kernels imported: those are read where they stand."""
    program = ix.compile(DOCUMENTS if name == "documents" else REVIEWED[name])
    dtype: Any = "bf16" if backend == "triton" else "f32"
    arrays = stand_ins(program.ir, {}, dtype)[0].arrays
    how = ("torch", "cuda") if backend == "triton" else (backend, "cpu")
    call = program._engine.imagine(arrays, dtype, *how)
    return program._engine.emitted(call, program.outputs, False)[1].linked()


@pytest.mark.parametrize(("name", "backend"), GOLDENS)
def test_it_reads_as_it_was_reviewed(name: str, backend: str) -> None:
    file = GOLDEN / f"{name}_{backend}.py"
    assert written(name, backend) == file.read_text(encoding="utf-8"), (
        f"{file.relative_to(ROOT)} has changed: if that is meant, run `python -m tests.backends.test_source`"
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "text",
    [
        "input x[i]; let выход[i] = 2 * x[i];",
        "input x[ι]; let out[ι] = sum[j in 0..size(ι)](x[j] where j <= ι);",
        "input χ[i]; let é[i] = χ[i] + 1; let out[i] = é[i] * é[i];",
    ],
)
def test_names_beyond_ascii_are_kept(text: str, backend: str) -> None:
    """What they name is used, and not dropped as if nobody read it."""
    program = ix.compile(text)
    x = np.array([1.0, 2.0, 4.0])
    found = np.asarray(program(x, backend=backend))
    assert np.array_equal(found, program(x, backend="reference"))


def test_nothing_else_is_reviewed() -> None:
    expected = {f"{name}_{backend}.py" for name, backend in GOLDENS}
    assert {file.name for file in GOLDEN.glob("*.py")} == expected


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, backend in GOLDENS:
        (GOLDEN / f"{name}_{backend}.py").write_text(written(name, backend), encoding="utf-8")
    print(f"wrote {len(GOLDENS)} files to {GOLDEN}")
