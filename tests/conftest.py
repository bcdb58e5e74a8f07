"""How the whole suite runs: Hypothesis the same way every time, and at length when asked.

`HYPOTHESIS_PROFILE=long python -m pytest tests/laws` searches with new examples in each run.
"""

from __future__ import annotations

import gc
import os
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings

# Tests plan and emit what they test; those of the cache choose a folder of their own.
os.environ["IX_CACHE"] = "0"

# Workers side by side have a core each: more threads than cores only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("long", deadline=None, derandomize=False, max_examples=4000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config: pytest.Config) -> None:
    """Only the assertions of tests say what they compared: those of packages that bring a plugin along, as this one
    does, are compiled as they stand."""
    config.pluginmanager.rewrite_hook._must_rewrite.clear()  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of two workers none waits while the other has tests left, wherever the long ones stand."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The usual suite leaves out what is marked `long`, and of the cases of a test that is marked `sampled(n)` it runs
    one in n, the same ones every time."""
    if settings.get_current_profile_name() == "long":
        return
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in gone]


def _is_left_out(item: pytest.Item) -> bool:
    if item.get_closest_marker("long") is not None:
        return True
    marker = item.get_closest_marker("sampled")
    return marker is not None and hasattr(item, "callspec") and bool(crc32(item.nodeid.encode()) % marker.args[0])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not walk through it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
