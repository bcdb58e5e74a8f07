"""Arrays are given back when they were read for the last time: a deep stack takes the room of one layer."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from tests.plan.test_growth import arrays, stack

import indexical as ix
from indexical.backends.liveness import FEW, released

torch = pytest.importorskip("torch")


def body(*extra: str) -> list[str]:
    """A function of many steps, each of which reads the one before."""
    steps = [line for n in range(FEW + 2) for line in (f"    a_{n + 1} = a_{n} + 1", "")]
    return ["    n = x.shape[0]", "    a_0 = x * n", "", *steps, *extra]


def run(lines: list[str], x: Any) -> Any:
    scope: dict[str, Any] = {}
    exec("\n".join(("def program(x):", *lines)), scope)
    return scope["program"](x)


def deleted(lines: list[str]) -> list[str]:
    return [name for line in lines if line.startswith("    del ") for name in line[8:].split(", ")]


def test_each_name_is_deleted_behind_the_paragraph_that_reads_it_last() -> None:
    lines = body(f"    return a_{FEW + 2}")
    found = released(lines)
    assert deleted(found) == [f"a_{n}" for n in range(FEW + 2)]
    assert found[found.index("    a_1 = a_0 + 1") + 1] == "    del a_0"
    assert run(found, np.ones(2)).tolist() == run(lines, np.ones(2)).tolist()


def test_a_short_function_stays_as_it_is() -> None:
    lines = ["    a = x + 1", "", "    b = a + 1", "", "    return b"]
    assert released(lines) == lines


def test_what_may_be_missing_or_is_read_later_is_not_deleted() -> None:
    """One branch alone gives `b` a value; `later` is called after `d` was written last, and nobody knows when the one
    without a name is."""
    lines = body(
        "    if n > 3:",
        "        b = a_0 + 1",
        "        c = b",
        "    else:",
        "        c = a_0",
        "",
        "    d = c + 1",
        "    def later():",
        "        return d",
        "",
        "    e = c * 2",
        "    f = lambda: e",
        "    g = later()",
        "",
        "    h = c * 3",
        "",
        "    return f() + g + h",
    )
    found = released(lines)
    assert {"c", "d"} <= set(deleted(found))
    assert found.index("    g = later()") < found.index("    del d")
    assert not {"b", "e", "f", "n", "later"} & set(deleted(found))
    for length in (2, 5):
        assert run(found, np.ones(length)).tolist() == run(lines, np.ones(length)).tolist()


def test_a_deep_stack_takes_the_room_of_few_layers() -> None:
    peaks = []
    for layers in (3, 12):
        program, given = ix.compile(stack(layers)), [array.numpy() for array in wide(layers)]
        program(*given)
        tracemalloc.start()
        program(*given)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def wide(layers: int) -> list[Any]:
    return [array.repeat(*([8] * array.ndim)) for array in arrays(layers)]
