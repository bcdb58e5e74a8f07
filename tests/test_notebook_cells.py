"""Cells of a notebook: `%load_ext indexical`, `%%ix name`, findings in place of tracebacks. Skipped without IPython."""

from __future__ import annotations

import atexit
import builtins
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

interactiveshell = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")

ATTENTION = """%%ix attention
input Q[i, d], K[j, d], V[j, e];
let w[i, j]   = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where j <= i;
let out[i, e] = sum[j](w[i, j] * V[j, e]);"""

Cell = Callable[[str], tuple[Any, str, list[Any]]]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cell]:
    """A function that runs a cell in a new shell: what it gives, what it prints, what it displays."""
    before = set(vars(builtins))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "displayhook", sys.displayhook)
    settings = sys.modules["traitlets"].config.Config({"HistoryManager": {"enabled": False}})
    shell = interactiveshell.InteractiveShell(config=settings)
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda *things: shown.extend(things))
    monkeypatch.setattr(interactiveshell.InteractiveShell, "_instance", shell)
    shell.run_cell("%load_ext indexical\nimport indexical as ix, numpy as np\nQ = np.eye(3); vals = np.ones((3, 2))")

    def run(text: str) -> tuple[Any, str, list[Any]]:
        shown.clear()
        result = shell.run_cell(text, store_history=True)
        out, err = capsys.readouterr()
        return result, re.sub(r"\x1b\[[0-9;]*m", "", out + err), list(shown)

    yield run
    atexit.unregister(shell.atexit_operations)
    for name in set(vars(builtins)) - before:
        delattr(builtins, name)


def test_a_cell_becomes_a_program(cell: Cell) -> None:
    result, _, shown = cell(ATTENTION)
    assert (result.success, shown) == (True, [])
    assert result.result.__name__ == "attention"
    assert "<b>let</b>" in result.result._repr_html_()
    again, _, _ = cell("attention(Q, Q, vals, outputs='w')[0]")
    assert np.array_equal(again.result, [1, 0, 0])
    quiet, _, _ = cell(ATTENTION.replace("attention", "again --quiet", 1))
    assert (quiet.success, quiet.result) == (True, None)


def test_a_cell_is_called_at_once(cell: Cell) -> None:
    line = "%%ix --inputs Q,K V=2*vals --outputs w"
    cell("K = Q")
    result, _, _ = cell(ATTENTION.replace("%%ix attention", line))
    assert result.result.shape == (3, 3)
    result, _, shown = cell(ATTENTION.replace("%%ix attention", "%%ix --inputs"))
    assert not result.success
    assert "the notebook has no variable `V` for the input `V`" in repr(shown[0])
    result, _, _ = cell("%%ix --outputs y\nlet y = 2;")
    assert result.result == 2


def test_mistakes_are_findings(cell: Cell) -> None:
    result, text, (found,) = cell("%%ix broken\ninput x[i];\nlet y[i] = X[i]; // <b>")
    assert not result.success
    assert repr(found).startswith(
        "error[IX201]: nothing defines `X`\n  --> Cell In[1]:3:12\n  3 | let y[i] = X[i]; // <b>\n"
    )
    html = found._repr_html_()
    assert "let y[i] = X[i]; // &lt;b&gt;\n    |            ^\n" in html
    assert "did you mean `x`?" in html
    assert "CompileError: error[IX201]: nothing defines `X` (Cell In[1]:3:12)" in text
    assert "Traceback" not in text
    assert ".py" not in text
    result, _, (warning,) = cell("%%ix warned\ninput x[i], z[i];\nlet y[i] = x[i];")
    assert result.success
    assert "warning[IX413]" in repr(warning)


def test_a_wrong_call_is_a_finding_with_its_line(cell: Cell) -> None:
    cell(ATTENTION)
    _, text, (found,) = cell("def layer(x):\n    return attention(x, x)\n\nlayer(Q)")
    assert "the input `V` is missing" in repr(found)
    assert "Cell In[1]:2:25" in repr(found)
    assert text.strip().splitlines() == [
        "CallError: error[IX501]: the input `V` is missing (Cell In[1]:2:25)",
        "Cell In[2], line 4: layer(Q)",
        "Cell In[2], line 2: return attention(x, x)",
    ]


def test_functions_in_cells_know_their_cell(cell: Cell) -> None:
    _, _, (found,) = cell('@ix.program\ndef f(x: "i"):\n    """let y[i] = x[k];"""')
    assert "--> Cell In[1]:3:21" in repr(found)
    result, _, _ = cell('@ix.program\ndef f(x: "i", n: int = 2):\n    """let y[i] = n * x[i];\n\n    """\nf([1.0])')
    assert result.result.tolist() == [2.0]


def test_a_question_mark_shows_the_program(cell: Cell) -> None:
    cell(ATTENTION)
    _, text, _ = cell("attention?")
    assert "Q: 'i d'" in text
    assert "attention(Q[i, d], K[j, d], V[j, e]) -> out[i, e]\n\ninput Q[i, d]" in text
    assert "Init docstring" not in text
    assert "--outputs NAMES" in cell("%%ix?")[1]


@pytest.mark.parametrize("line", ["--foo", "no-name", "a 'b", "a --outputs"])
def test_wrong_options_are_told(line: str, cell: Cell) -> None:
    _, text, _ = cell(f"%%ix {line}\nlet y = 1;")
    assert text.startswith("UsageError: ")
    assert "Traceback" not in text


def test_commands_are_run(cell: Cell) -> None:
    assert "IX108  error" in cell("%ix explain")[1]
    result, text, _ = cell("%ix chek x.ix")
    assert "did you mean `check`?" in text
    assert result.success


def test_what_is_loaded_can_be_taken_back(cell: Cell) -> None:
    cell("%unload_ext indexical")
    assert "`%%ix` not found" in cell("%%ix a\nlet y = 1;")[1]
    _, text, shown = cell("ix.compile('let y = x;')")
    assert shown == []
    assert text.startswith("CompileError: error[IX201]: nothing defines `x`")


def test_findings_of_a_list_are_readable(cell: Cell) -> None:
    _, text, _ = cell("print(get_ipython().display_formatter.format(ix.check('let y = x;'))[0]['text/plain'])")
    assert "[error[IX201]: nothing defines `x`\n  --> <text>:1:9\n" in text


def test_a_notebook_is_run() -> None:
    """The whole way, with a kernel of its own: outputs as they are saved, and a run that stops at a mistake."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    texts = [
        "%load_ext indexical\nimport indexical as ix, numpy as np\nQ = K = V = np.eye(2)",
        ATTENTION,
        "attention(Q, K, V)",
        "attention.plan(Q, K, V)",
        "attention.facts",
        "ix.trace(attention, [[1]], [[1]], [[2]], at='out[0, 0]')",
        "%%ix broken\nlet y = x;",
        "1 + 1",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in texts])
    client = nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3")
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="nothing defines `x`"):
        client.execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert [[each.output_type for each in found] for found in outputs] == [
        [],
        *[["execute_result"]] * 5,
        ["display_data", "error"],
        [],
    ]
    assert all("text/html" in found[0].data for found in outputs[1:2] + outputs[3:7])
    assert 'class="indexical"' in outputs[6][0].data["text/html"]
    assert outputs[6][1].traceback == ["CompileError: error[IX201]: nothing defines `x` (Cell In[7]:2:9)"]
