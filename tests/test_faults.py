"""The border of the package: mistakes of ours have a code, a definition and a line; deep work has room."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexical as ix
from indexical import calculus, faults
from indexical.cli import main
from indexical.engine.lower import elementwise
from indexical.ir.walk import Inexpressible

CHOICE = "input x[i];\n\nlet y[i] = if x[i] > 0 { x[i] } else { 0.1 * x[i] };\n"


def raising(problem: BaseException, name: str = "<indexical test>") -> Callable[..., Any]:
    """A function that raises this, as if it stood in the package."""
    space: dict[str, Any] = {"problem": problem}
    exec(compile("def fail(*given, **named):\n    raise problem\n", name, "exec"), space)
    function: Callable[..., Any] = space["fail"]
    return function


@pytest.fixture
def without_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "where", raising(KeyError("where")))


@pytest.mark.usefixtures("without_choices")
@pytest.mark.parametrize("ask", ["__call__", "plan", "source"])
def test_a_mistake_of_ours_names_the_definition_and_its_line(ask: str) -> None:
    with pytest.raises(ix.Error) as caught:
        getattr(ix.compile(CHOICE), ask)([1.0, -2.0])
    (found,) = caught.value.diagnostics
    assert found.code == "IX901"
    assert "`y`" in found.message
    assert found.labels[0].span.line == 3
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.__traceback__ is not None


@pytest.mark.usefixtures("without_choices")
def test_a_mistake_of_ours_is_one_finding_of_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "choice.ix"
    file.write_text(CHOICE, encoding="utf-8")
    assert main(["run", str(file), "--random"]) == 1
    assert "error[IX901]: a mistake in Indexical, at `y`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "problem",
    [KeyError("d_t"), AssertionError(), IndexError(3), AttributeError("x"), ZeroDivisionError(), Inexpressible(),
     TypeError("odd"), ValueError("odd"), RecursionError()],
    ids=repr,
)  # fmt: skip
def test_no_internal_exception_leaves_the_package(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculus, "gradient", raising(problem))
    with pytest.raises(ix.Error, match="IX901") as caught:
        ix.grad(CHOICE)
    assert caught.value.__cause__ is problem
    assert caught.value.diagnostics[0].labels[0].span.line == 3


@pytest.mark.parametrize("problem", [MemoryError(), OSError("no disk"), ImportError("torch"), KeyboardInterrupt()])
def test_what_is_no_mistake_of_ours_stays_as_it_is(problem: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculus, "gradient", raising(problem))
    with pytest.raises(type(problem)) as caught:
        ix.grad(CHOICE)
    assert caught.value is problem


def test_an_exception_of_the_users_own_lines_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculus, "gradient", raising(KeyError("theirs"), "/home/user/model.py"))
    with pytest.raises(KeyError, match="theirs"):
        ix.grad(CHOICE)


@pytest.mark.parametrize("problem", [ValueError("math domain error"), TypeError("no"), KeyError("k")])
def test_a_known_call_that_fails_is_made_again_with_all_checks(problem: Exception) -> None:
    program = ix.compile("input x[i]; let y[i] = x[i] * 2;")
    x = np.arange(3.0)
    found = program(x)
    caller = program._caller
    assert caller is not None
    for likes in caller.known.values():
        for key, like in likes.items():
            likes[key] = replace(like, function=raising(problem))
    np.testing.assert_array_equal(program(x), found)


def test_wrong_arguments_are_told_as_python_tells_them() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        ix.grad()  # type: ignore[call-arg]


def test_deep_work_is_done_again_on_a_larger_stack() -> None:
    def count(n: int) -> int:
        return 0 if n == 0 else 1 + count(n - 1)

    limit, size = sys.getrecursionlimit(), threading.stack_size()
    assert faults.deep(count)(20 * limit) == 20 * limit
    assert (sys.getrecursionlimit(), threading.stack_size()) == (limit, size)


@pytest.mark.sampled(0)
@pytest.mark.parametrize("last_first", [False, True])
def test_a_long_chain_of_definitions_is_computed_and_differentiated(last_first: bool) -> None:
    count = 300
    lets = ["let a0[i] = x[i];", *(f"let a{n}[i] = 0.5 * a{n - 1}[i] + x[i];" for n in range(1, count))]
    lets.append(f"let out[i] = a{count - 1}[i];")
    program = ix.compile("\n".join(["input x[i];", *(reversed(lets) if last_first else lets), "output out;"]))
    np.testing.assert_allclose(program([1.0, 2.0]), [2.0, 4.0])
    np.testing.assert_allclose(ix.grad(program)([1.0, 2.0], [1.0, 1.0]), [2.0, 2.0])
    assert program.facts["out"].survives == ("i",)


# ------------------------------------------------------------------------------------- infinities, as they are written

INFINITIES = ("-1.0 / 0", "-1 / 0.0", "-(1.0 / 0)", "0 - 1 / 0.0", "log(0.0)", "none")
USES = (
    "let out[i] = max[j in 0..size(i)](if j <= i { x[j] } else { NONE });",
    "let out[i] = max(x[i], NONE);",
    "let out[i] = sum[j in 0..size(i)](softmax[j](if j <= i { x[j] } else { NONE }) * x[j]);",
    "let out[i] = x[i] where x[i] > NONE;",
    "let out[i] = if i == 0 { max(NONE, x[i]) } else { max(out[i - 1], x[i]) };",
    "let out[i] = clamp(x[i], NONE, 1.0);",
    "let out[i] = exp(NONE) + 2.0 * x[i];",
)


@given(st.sampled_from(INFINITIES), st.sampled_from(USES), st.integers(0, 99))
def test_infinities_are_numbers_like_others(written: str, use: str, seed: int) -> None:
    """Their programs run and have derivatives, which are those of small changes."""
    program = ix.compile(f"input x[i]; let none = -1.0 / 0; {use.replace('NONE', written)}")
    x, along, back = np.random.default_rng(seed).standard_normal((3, 4))
    value = program(x, backend="reference", outputs="out")
    np.testing.assert_allclose(program(x, outputs="out"), value, rtol=1e-12)
    ends = [program(x + h * along, outputs="out") for h in (1e-6, -1e-6)]
    slope = float(np.sum((ends[0] - ends[1]) * back)) / 2e-6
    gradient = ix.grad(program, of="out")
    assert float(np.sum(gradient(x, back) * along)) == pytest.approx(slope, rel=1e-4, abs=1e-6)
    assert str(gradient)
