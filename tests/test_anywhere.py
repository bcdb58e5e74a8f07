"""The attentions that `benchmarks/anywhere.py` draws: their programs compile, and small ones are right."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType

import pytest

import indexical as ix

torch = pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
# Points of all scores up to which a row is evaluated here.
SMALL = 20_000


@pytest.fixture(scope="module")
def anywhere() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import anywhere  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(BENCHMARKS))
    found: ModuleType = anywhere
    return found


@pytest.mark.parametrize("number", range(0, 200, 4))
def test_a_drawn_row_compiles_and_is_right_where_it_is_small(number: int, anywhere: ModuleType) -> None:
    row = anywhere.draw(0, number, "cpu", None)
    assert row.words
    ix.compile(row.program)
    if row.sizes["b"] * row.sizes["h"] * row.sizes["i"] * row.sizes["j"] > SMALL:
        return
    options = argparse.Namespace(seed=0, device="cpu", fresh=False, peers=("plain",))
    contest = anywhere.Contest(row, options)
    assert (contest.measured.wrong, contest.measured.refused) == ("", {})
    assert contest.measured.errors.keys() == {"ours", "plain"}


def test_every_kind_is_drawn(anywhere: ModuleType) -> None:
    """A score, a guard or a normaliser that no row has would never be measured."""
    import contest.drawn as drawn  # type: ignore[import-not-found]

    rows = [anywhere.draw(0, number, "cpu", None) for number in range(200)]
    for kind in ("score", "guard", "normaliser"):
        assert {getattr(row, kind).words for row in rows} == {one.words for one in getattr(drawn, f"{kind.upper()}S")}


def test_a_wrong_result_is_found(anywhere: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale that is a little off in the program, and not in what it is compared with."""
    row = next(row for n in range(200) if "sqrt(size(d))" in (row := anywhere.draw(0, n, "cpu", None)).program)
    text = row.program.replace("size(d)", "1 + size(d)")
    monkeypatch.setattr(type(row), "program", property(lambda _: text))
    options = argparse.Namespace(seed=0, device="cpu", fresh=False, peers=("plain",))
    assert anywhere.Contest(row, options).measured.wrong
