"""The plugin for pytest: files are tests, claims are tests, and it costs nothing where there are none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What a run inside a run loads is dropped after it, and NumPy can be loaded only once: it is here before.
import indexical.pages
import indexical.pytest_plugin  # noqa: F401
from indexical.cli import main

pytest_plugins = ["pytester"]

FIGURES = """\
let scores[i, j] = [[1.0, 2.0], [3.0, 5.0]];
let w[i, j] = softmax[j](scores[i, j]);

expect sum[j](w[i, j]) == 1;
expect w == [[0.269, 0.731], [0.119, 0.882]];
expect w[0, 0] == 0.269;
"""
LESSON = """\
# A lesson

```ix
let x[i] = [1, 2];
let y[i] = 2 * x[i];
expect y == [2, 5];
```

```python
print("nothing of ours")
```

```question
What is y[1]?
answer: y[1]
```
"""


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\n")
    return pytester


def run(folder: pytest.Pytester, *words: str) -> pytest.RunResult:
    return folder.runpytest_inprocess("-p", "indexical.pytest_plugin", "-p", "no:cacheprovider", *words)


def test_every_claim_is_a_test(folder: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    folder.path.joinpath("figures.ix").write_text(FIGURES)
    result = run(folder, "-v", "-p", "no:randomly")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "figures.ix::check PASSED*",
            "figures.ix::line 4: sum[[]j](w[[]i, j]) == 1 PASSED*",
            "figures.ix::line 5: w == [[][[]0.269, 0.731], [[]0.119, 0.882]] FAILED*",
        ]
    )
    capsys.readouterr()
    main(["verify", "figures.ix"])
    told = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(told) if line.startswith("fails"))
    shown = result.stdout.str()
    assert "\n".join(told[start : start + 3]) in shown
    assert "Traceback" not in shown
    assert "pytest_plugin.py" not in shown


def test_a_mistake_is_shown_as_check_shows_it(folder: pytest.Pytester) -> None:
    folder.path.joinpath("wrong.ix").write_text("input x[i];\nlet y[i] = X[i];\nexpect y[0] == 1;\n")
    folder.path.joinpath("warned.ix").write_text("input x[i], z[i];\nlet y[i] = x[i];\n")
    folder.path.joinpath("module.ix").write_text("fn twice(x) { 2 * x }\n")
    folder.path.joinpath("symbol.ix").write_text("input x[i];\nlet y = x[0];\nexpect y == 1;\n")
    result = run(folder)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["error[[]IX201]: nothing defines `X`", "* --> wrong.ix:2:12", "*did you mean `x`?"])
    result.stdout.fnmatch_lines(["error[[]IX5*"])
    assert "Traceback" not in result.stdout.str()
    run(folder, "--ix-strict", "warned.ix").assert_outcomes(failed=1)


def test_one_claim_is_chosen_by_its_name(folder: pytest.Pytester) -> None:
    folder.path.joinpath("figures.ix").write_text(FIGURES)
    run(folder, "figures.ix::line 5: w == [[0.269, 0.731], [0.119, 0.882]]").assert_outcomes(failed=1)
    run(folder, "-k", "check or 4").assert_outcomes(passed=2, deselected=2)


def test_what_cannot_be_read_is_told(folder: pytest.Pytester) -> None:
    folder.path.joinpath("bytes.ix").write_bytes(b"let y = \xff;")
    result = run(folder)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["error[[]IX108]: `bytes.ix` cannot be read: it is not UTF-8 text (byte 8)"])
    assert "Traceback" not in result.stdout.str()


def test_lessons_are_tests_where_one_says_so(folder: pytest.Pytester) -> None:
    folder.path.joinpath("lesson.md").write_text(LESSON)
    folder.path.joinpath("readme.md").write_text("# Nothing\n\n```ix other.ix\n```\n")
    assert run(folder).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result = run(folder, "--ix-lessons", "-v")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["lesson.md::program 1: line 6: y == [[]2, 5] FAILED*", "fails*line 6: y == [[]2, 5]*"])
    folder.makeini("[pytest]\nix_lessons = less*.md\nix_programs = none/*.ix\n")
    folder.path.joinpath("left_out.ix").write_text("wrong")
    run(folder).assert_outcomes(passed=2, failed=1)


def test_it_loads_nothing_before_it_is_needed(tmp_path: Path) -> None:
    script = "import sys, indexical.pytest_plugin; print(*sorted(n for n in sys.modules if n.split('.')[0] in "
    script += "('indexical', 'numpy', 'torch')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", cwd=tmp_path)
    assert done.stdout.split() == ["indexical", "indexical.pytest_plugin"], done.stderr


def test_figures_of_a_page_are_a_test(folder: pytest.Pytester) -> None:
    page = "```ix\nlet x = 3;\n```\n\n4 <!-- ix: x -->\n"
    folder.path.joinpath("page.md").write_text(page)
    result = run(folder, "--ix-lessons", "page.md", "-v")
    result.stdout.fnmatch_lines(["page.md::figures FAILED*", "*page.md:5:1*"])
    folder.path.joinpath("page.md").write_text(page.replace("4 <", "3 <"))
    run(folder, "--ix-lessons", "page.md", "-v").stdout.fnmatch_lines(["page.md::figures PASSED*"])
