"""Emitted source that is kept: found by all that it depends on, by nothing less, and as good as new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.ir import nodes as ir
from indexical.ir import whole
from indexical.run import cached, emitting, kernel
from indexical.run.parts import Part
from indexical.run.samples import random_arrays
from indexical.source import Span

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system does not say who owns a file")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.ix"))
ATTENTION = (ROOT / "examples" / "causal_attention.ix").read_text(encoding="utf-8")
SUM = "input x[i, d], y[j, d]; let z[i, j] = sum[d](x[i, d] * y[j, d]);"
X = np.arange(6.0).reshape(2, 3)


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends for which a plan was made since, while texts are kept in a folder of their own."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("IX_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cached, "digest_of_sources", lambda: "as they are")
    found: list[str] = []
    planned_kernels = emitting.planned_kernels

    def counted(*given: Any) -> Any:
        found.append(given[3])
        return planned_kernels(*given)

    monkeypatch.setattr(emitting, "planned_kernels", counted)
    return found


def test_a_known_program_is_not_planned(planned: list[str]) -> None:
    first = ix.compile(SUM)(X, X)
    assert planned == ["numpy"]
    assert ix.compile(SUM)(X, X).tolist() == first.tolist()
    assert planned == ["numpy"]


def test_passes_are_printed_of_a_known_program_too(
    planned: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ix.compile(SUM)(X, X)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("IX_DUMP", "1")
    for _ in range(2):
        ix.compile(SUM)(X, X)
        assert capsys.readouterr().err.startswith("lowered\n")
    assert planned == ["numpy"] * 3


CALLS: dict[str, Callable[[], Any]] = {
    "another text": lambda: ix.compile(SUM + "\n")(X, X),
    "another dtype": lambda: ix.compile(SUM)(X.astype("f4"), X.astype("f4")),
    "a dtype of one input": lambda: ix.compile(SUM)(X, X.astype("f4")),
    "tensors": lambda: ix.compile(SUM)(torch.tensor(X), torch.tensor(X)),
    "isolated": lambda: ix.compile(SUM)(X, X, isolate=True),
    "not made again": lambda: ix.compile(SUM)(X, X, recompute=False),
}


@pytest.mark.parametrize("how", CALLS)
def test_another_call_is_planned(planned: list[str], how: str) -> None:
    ix.compile(SUM)(X, X)
    for _ in range(2):
        CALLS[how]()
        assert len(planned) == 2


def test_another_output_is_planned(planned: list[str]) -> None:
    text = "input x[i]; let a[i] = 2 * x[i]; let b[i] = 3 * x[i]; output a, b;"
    for outputs in ("a", "b", ("a", "b"), ("b", "a")):
        found = [np.asarray(ix.compile(text)(X[0], outputs=outputs)).tolist() for _ in range(2)]
        assert found[0] == found[1]
    assert len(planned) == 4


def test_another_rank_is_planned(planned: list[str]) -> None:
    text = "input x[..r, i]; let y[..r] = sum[i](x[..r, i]);"
    for _ in range(2):
        assert ix.compile(text)(X).tolist() == [3, 12]
        assert ix.compile(text)(X[None]).tolist() == [[3, 12]]
        assert ix.compile(text)(X[0]) == 3
    assert len(planned) == 3


OTHERS: dict[str, tuple[Any, str, Any]] = {
    "Indexical": (cached, "__version__", "0.0.0"),
    "its sources": (cached, "digest_of_sources", lambda: "edited"),
    "NumPy": (np, "__version__", "9.9.9"),
    "Python": (sys, "version", "4.0"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_version_is_planned(planned: list[str], what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ix.compile(SUM)(X, X)
    monkeypatch.setattr(*OTHERS[what])
    ix.compile(SUM)(X, X)
    assert len(planned) == 2


def test_another_torch_is_planned(planned: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS["tensors"]()
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    CALLS["tensors"]()
    assert len(planned) == 2


def test_modules_are_part_of_a_program(planned: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.ix").write_text("use twice::{twice}; input x[i]; let y[i] = twice(x[i]);")
    (tmp_path / "twice.ix").write_text("use factor::{times}; fn twice(x) { times(x) }")
    for factor in (2, 3, 2):
        (tmp_path / "factor.ix").write_text(f"fn times(x) {{ {factor} * x }}")
        assert ix.compile(tmp_path / "program.ix")(np.ones(1)).tolist() == [factor]
    assert len(planned) == 2


def test_sources_that_have_changed_keep_nothing(
    planned: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("IX_CACHE", str(tmp_path / "kept"))
    cached.digest_of_sources.cache_clear()
    monkeypatch.setattr(cached, "LOADED", 0)
    ix.compile(SUM)(X, X)
    assert "have changed" in (cached.store_in_use().problem or "")
    assert not (tmp_path / "kept").exists()
    cached.digest_of_sources.cache_clear()


def test_a_text_that_was_edited_is_not_run(planned: list[str], tmp_path: Path) -> None:
    ix.compile(SUM)(X, X)
    (file,) = (tmp_path / "kept").iterdir()
    kept = file.read_text()
    file.write_text(kept.replace("import numpy as np", "raise SystemExit"))
    assert file.read_text() != kept
    ix.compile(SUM)(X, X)
    assert len(planned) == 2
    assert file.read_text() == kept


@pytest.mark.parametrize("parts", ["[]{", '[{"array": ["z", 8]}]', '[{"array": 1}]', "[1]", "{}x"])
def test_parts_that_cannot_be_read(planned: list[str], parts: str) -> None:
    store = cached.store_in_use()
    store.put("0" * 64, f"# {parts}\nimport math\n")
    assert cached.find("0" * 64, Span(ix.compile(SUM).ir.source, 0, 0)) is None


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_kept_is_as_good_as_new(planned: list[str], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[int, list[tuple[Part, ...]]] = {0: [], 1: []}
    load = kernel.load
    for turn in made:
        def loading(text: str, wanted: Any, parts: Any, turn: int = turn) -> Any:
            made[turn].append(parts)
            return load(text, wanted, parts)

        monkeypatch.setattr(kernel, "load", loading)
        program = ix.compile(path)
        arrays = random_arrays(program.ir, {}, {"d": 4}, 0)[0].arrays
        found = [program(**arrays)]
        tensors = {name: torch.as_tensor(value) for name, value in arrays.items()}
        found.append(program(**tensors))
        if turn == 0:
            first, plans = found, len(planned)
    for ours, theirs in zip(first, found, strict=True):
        outputs = (ours,) if len(program.outputs) == 1 else ours
        others = (theirs,) if len(program.outputs) == 1 else theirs
        for one, other in zip(outputs, others, strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    assert made[0] == made[1] != []
    assert len(planned) == plans


def test_warnings_are_given_again(planned: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LARGE", 0)
    q = torch.randn(1, 2, 4, 3)
    derived = str(ix.grad(ATTENTION))
    said = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program = ix.compile(ATTENTION)
            torch.func.jvp(lambda q, program=program: program(q, q, q), (q,), (q,))
            ix.compile(derived)(q, q, q, q.clone().requires_grad_())
        said.append([str(warning.message) for warning in caught if warning.category is ix.SlowPath])
        assert {warning.filename for warning in caught if warning.category is ix.SlowPath} <= {__file__}
    assert said[0] == said[1] != []


def test_extents_are_read_as_they_were_written() -> None:
    text = "input n: i64, x[i]; let y[j in 0..2 * n + size(i)] = 1.0 * j;"
    program = ix.compile(text).ir
    extent = program.lets[-1].axes[0].extent
    assert isinstance(extent, ir.Map)
    assert whole.from_json(json.loads(json.dumps(whole.to_json(extent))), extent.span) == extent


FRESH = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy
import indexical as ix
print(ix.compile(sys.argv[2])(numpy.ones((2, 3)), numpy.ones((2, 3))).tolist())
print(*(name for name in sys.modules if name.startswith("indexical")))
"""


def test_a_new_process_loads_no_plan_and_no_backend(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    package = str(Path(ix.__file__).parents[1])
    environment = {**os.environ, "IX_CACHE": str(tmp_path / "kept")}
    loaded = []
    for _ in range(2):
        command = [sys.executable, "-I", "-c", FRESH, package, SUM]
        result = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
        value, modules = result.stdout.splitlines()
        assert json.loads(value) == [[3, 3], [3, 3]]
        loaded.append(modules.split())
    assert "indexical.backends.old.plan.choose" in loaded[0]
    rooms = ("plan.steps", "backends.opaque", "backends.old", "run.reference", "numbers", "transform")
    assert not [name for name in loaded[1] if name.removeprefix("indexical.").startswith(rooms)]
    assert len(loaded[1]) <= 128
