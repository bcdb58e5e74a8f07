"""Arrays are given back when they were read for the last time: a deep stack takes the room of one layer."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from tests.plan.test_growth import arrays, stack

import indexical as ix
from indexical.backends.old.code import fill
from indexical.backends.old.layout import Statement, written
from indexical.backends.old.liveness import FEW, released

torch = pytest.importorskip("torch")


def assign(target: str, code: str, indent: int = 1) -> Statement:
    return Statement(indent, 0, "assign", target, fill(code))


BLANK = Statement(1, 0, "blank")


def body(*extra: Statement) -> list[Statement]:
    """A function of many steps, each of which reads the one before."""
    steps = [line for n in range(FEW + 2) for line in (assign(f"a_{n + 1}", f"a_{n} + 1"), BLANK)]
    return [assign("n", "x.shape[0]"), assign("a_0", "x * n"), BLANK, *steps, *extra]


def run(statements: list[Statement], x: Any) -> Any:
    scope: dict[str, Any] = {}
    exec("\n".join(("def program(x):", *written(statements))), scope)
    return scope["program"](x)


def deleted(statements: list[Statement]) -> list[str]:
    return [word for statement in statements if statement.kind == "del" for word in statement.words]


def test_each_name_is_deleted_behind_the_paragraph_that_reads_it_last() -> None:
    before = body(Statement(1, 0, "return", code=fill(f"a_{FEW + 2}")))
    found = released(before)
    assert deleted(found) == [f"a_{n}" for n in range(FEW + 2)]
    lines = written(found)
    assert lines[lines.index("    a_1 = a_0 + 1") + 1] == "    del a_0"
    assert run(found, np.ones(2)).tolist() == run(before, np.ones(2)).tolist()


def test_a_short_function_stays_as_it_is() -> None:
    before = [assign("a", "x + 1"), BLANK, assign("b", "a + 1"), BLANK, Statement(1, 0, "return", code=fill("b"))]
    assert released(before) == before


def test_what_may_be_missing_or_is_read_later_is_not_deleted() -> None:
    """One branch alone gives `b` a value; `later` is called after `d` was written last."""
    before = body(
        Statement(1, 0, "if", code=fill("n > 3")),
        assign("b", "a_0 + 1", 2),
        assign("c", "b", 2),
        Statement(1, 0, "else"),
        assign("c", "a_0", 2),
        BLANK,
        assign("d", "c + 1"),
        Statement(1, 0, "def", "later", fill("()")),
        Statement(2, 1, "return", code=fill("d")),
        BLANK,
        assign("e", "c * 2"),
        assign("g", "later()"),
        BLANK,
        assign("h", "c * 3"),
        BLANK,
        Statement(1, 0, "return", code=fill("e + g + h")),
    )
    found = released(before)
    assert {"c", "d"} <= set(deleted(found))
    lines = written(found)
    assert lines.index("    g = later()") < next(n for n, line in enumerate(lines) if "del d" in line)
    assert not {"b", "e", "g", "n", "later"} & set(deleted(found))
    for length in (2, 5):
        assert run(found, np.ones(length)).tolist() == run(before, np.ones(length)).tolist()


def test_what_a_function_of_blocks_reads_stays() -> None:
    """`turn` may be called after the function has returned; `a_0` is given to it, `size` is not."""
    before = body(
        assign("size", "x + 2"),
        Statement(1, 0, "def", "turn", fill("(a_0)")),
        Statement(2, 1, "return", code=fill("a_0 * size")),
        BLANK,
        Statement(1, 0, "unpack", code=fill("in_blocks(turn, [a_0])"), place=fill("(y,)")),
        BLANK,
        assign("z", "y + 1"),
        BLANK,
        Statement(1, 0, "return", code=fill("z")),
    )
    found = deleted(released(before))
    assert {"a_0", "y"} <= set(found)
    assert "size" not in found


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
