"""How the suite runs: in two parts, with Hypothesis the same way every time.

`python -m pytest` runs the quick part and says what it leaves out. `--part=rest` runs all that is left out, and every
law again with more examples; `--part=all` runs the two at once. `.ci/run` runs one after the other.
`--hypothesis-profile=search` draws thousands of new examples of each law, and changes nothing else.
"""

from __future__ import annotations

import gc
import os
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from tests import profiles

# Tests plan and emit what they test; those of the cache choose a folder of their own.
os.environ["IX_CACHE"] = "0"

# Workers side by side have a core each: more threads than cores only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

COUNTS = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=("quick", "rest", "all"),
        help="quick: without what `sampled` leaves out (the default, but where a test is named with `::`); "
        "rest: what quick leaves out, and all laws with more examples; all: both",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Only the assertions of tests say what they compared: those of packages that bring a plugin along, as this one
    does, are compiled as they stand."""
    config.pluginmanager.rewrite_hook._must_rewrite.clear()  # type: ignore[attr-defined]
    profiles.register()
    settings.load_profile(config.getoption("--hypothesis-profile") or ("quick" if _part(config) == "quick" else "rest"))


def _part(config: pytest.Config) -> str:
    chosen: str | None = config.getoption("--part")
    return chosen or ("all" if any("::" in word for word in config.args) else "quick")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of two workers none waits while the other has tests left, wherever the long ones stand."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


# ------------------------------------------------------------------------------- the parts


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the items of the part that runs. What `-k` and its like leave out is gone before."""
    part = _part(config)
    quick, rest = [is_quick(item) for item in items], [is_rest(item) for item in items]
    assert all(one or other for one, other in zip(quick, rest, strict=True)), "the two parts are all that is collected"
    config.stash[COUNTS] = {"quick": sum(quick), "rest": sum(rest), "all": len(items)}
    if part != "all":
        chosen = dict(zip(map(id, items), quick if part == "quick" else rest, strict=True))
        config.hook.pytest_deselected(items=[item for item in items if not chosen[id(item)]])
        items[:] = [item for item in items if chosen[id(item)]]


def is_quick(item: pytest.Item) -> bool:
    """Whether the quick part has it: of what is marked `sampled(n)` it has one case in n, the same ones every time; a
    test that has no cases is one in n only where n is 0, which leaves out all."""
    marks = [mark.args[0] for mark in item.iter_markers("sampled")]
    if 0 in marks:
        return False
    return not marks or not hasattr(item, "callspec") or crc32(item.nodeid.encode()) % marks[0] == 0


def is_rest(item: pytest.Item) -> bool:
    """Whether the rest has it: what the quick part leaves out, and laws, which draw more examples there."""
    return is_law(item) or not is_quick(item)


def is_law(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells its counts to the process that prints them."""
    if hasattr(session.config, "workeroutput") and COUNTS in session.config.stash:
        session.config.workeroutput["counts"] = session.config.stash[COUNTS]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    if "counts" in getattr(node, "workeroutput", {}):
        node.config.stash[COUNTS] = node.workeroutput["counts"]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How many cases there are, how many were run, and the command that runs the others."""
    counts = config.stash.get(COUNTS, None)
    if counts is None:
        return
    part, drawn = _part(config), settings().max_examples
    left = counts["all"] - counts["quick"]
    line = f"{part} part: {counts[part]} of {counts['all']} cases, {drawn} examples of most laws"
    if part == "quick" and left:
        line += f"; `python -m pytest -n 2 --part=rest` runs the {left} that are left out"
    if part == "rest":
        line += f": {left} that the quick part leaves out, and again the laws ({counts['rest'] - left})"
    terminalreporter.write_line(line.replace("all part:", "both parts:"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not walk through it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
