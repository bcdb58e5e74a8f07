"""The choice of tiles: which configurations are tried, what is kept, and by whom it is found again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import indexical as ix
from indexical.run.store import Store
from indexical.run.tuning import MOST, Choices, Tiling, Tilings, candidates, choices_in_use, tune_kernels

torch = pytest.importorskip("torch")

USUAL: Tilings = ((64, 64, 4, 3), (64, 32, 4, 2), (32, 64, 8, 2))
KERNEL = SimpleNamespace(__name__="out_forward", cache_key="abc")
OTHER = SimpleNamespace(__name__="out_forward", cache_key="another text")
ABOUT = ((64, 64, 64, 64), 1, torch.float16)


class Device:
    """A device whose kernels take as long as this says, and write down which tiles they are run with."""

    def __init__(self, choices: Choices, seconds: dict[tuple[int, Tiling], float], wrong: Tiling | None = None) -> None:
        self.choices, self.seconds, self.wrong = choices, seconds, wrong
        self.tried: dict[int, list[Tiling]] = {0: [], 1: [], 2: []}

    def run(self, *parts: int) -> list[Any]:
        tilings = self.choices.tilings(KERNEL, ABOUT, USUAL)
        for part in parts:
            if tilings[part] not in self.tried[part]:
                self.tried[part].append(tilings[part])
        own = [self.seconds.get((part, tilings[part]), 1.0) for part in parts]
        if 0.0 in own:
            raise RuntimeError("out of shared memory")
        self.now = sum(own)
        return [torch.full((3,), 2.0 if self.wrong in [tilings[part] for part in parts] else 1.0)]

    def time(self, run: Any) -> float:
        run()
        return self.now

    def tuned(self, learns: bool = True) -> list[Any]:
        back = (lambda: self.run(1, 2)) if learns else None
        return tune_kernels(self.choices, lambda: self.run(0), back, self.time, lambda _: None)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "kept").mkdir(mode=0o700)
    return Store(str(tmp_path / "kept"))


@pytest.mark.parametrize("part", range(3))
def test_few_configurations_are_tried_and_the_usual_one_first(part: int) -> None:
    for usual in (*USUAL, (128, 64, 4, 3), (256, 16, 8, 1), (16, 256, 4, 4)):
        found = candidates(usual, part)
        assert found[0] == usual
        assert 1 < len(found) <= MOST
        assert len(set(found)) == len(found)
        assert all(rows <= 256 and 16 <= keys <= 256 and warps in (4, 8) for rows, keys, warps, *_ in found)
        assert part == 0 or {one[0] for one in found} == {usual[0]}


def test_the_fastest_is_kept_for_later_calls_and_processes(store: Store) -> None:
    choices = Choices(store)
    fast = [candidates(USUAL[part], part)[-1] for part in range(3)]
    device = Device(choices, {(0, fast[0]): 0.5, (1, fast[1]): 0.99, (2, fast[2]): 0.25})
    tuned = device.tuned()
    # The second is faster by less than times vary.
    wanted = (fast[0], USUAL[1], fast[2])
    assert [one.chosen for one in tuned] == list(wanted)
    assert "2.00 times as fast" in str(tuned[0])
    assert "as before" in str(tuned[1])
    assert all(len(tried) <= MOST for tried in device.tried.values())
    assert choices.tilings(KERNEL, ABOUT, USUAL) == wanted
    assert Choices(store).tilings(KERNEL, ABOUT, USUAL) == wanted


def test_what_is_kept_serves_nothing_else(store: Store) -> None:
    fast = candidates(USUAL[0], 0)[1]
    Device(Choices(store), {(0, fast): 0.5}).tuned()
    later = Choices(store)
    moved: Tilings = ((128, 64, 8, 3), USUAL[1], USUAL[2])
    assert later.tilings(OTHER, ABOUT, USUAL) == USUAL
    assert later.tilings(KERNEL, (*ABOUT[:2], torch.bfloat16), USUAL) == USUAL
    assert later.tilings(KERNEL, ABOUT, moved) == moved
    assert later.tilings(KERNEL, ABOUT, USUAL)[0] == fast


def test_what_fails_or_is_wrong_is_not_chosen(store: Store) -> None:
    usual, wrong, failing, slow = candidates(USUAL[0], 0)
    device = Device(Choices(store), {(0, wrong): 0.1, (0, failing): 0.0, (0, slow): 3.0}, wrong)
    (tuned,) = device.tuned(learns=False)
    assert device.tried == {0: [usual, wrong, failing, slow], 1: [], 2: []}
    assert tuned.chosen == usual


def test_tiles_that_are_not_among_todays_are_not_taken(store: Store) -> None:
    choices = Choices(store)
    choices.tilings(KERNEL, ABOUT, USUAL)
    (key,) = choices.seen
    for text in ("[[1, 2, 3, 4], [64, 32, 4, 2], [32, 64, 8, 2]]", "no list", "[1, 2, 3]", "[[64, 64, 4, 3]]"):
        store.put(key, text)
        assert Choices(store).tilings(KERNEL, ABOUT, USUAL) == USUAL


def test_launches_are_recorded_anew_when_a_choice_changes(store: Store) -> None:
    choices = Choices(store)
    epoch = choices.epoch
    Device(choices, {}).tuned()
    assert choices.epoch > epoch


PROGRAM = "input x[i];\nlet y[i] = 2 * x[i];"


def test_without_a_gpu_it_is_an_error() -> None:
    with pytest.raises(ix.CallError, match="no array is on one"):
        ix.tune(PROGRAM, torch.zeros(3))


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert choices_in_use() is not None
    monkeypatch.setenv("IX_TUNE", "0")
    assert ix.tune(PROGRAM, torch.zeros(3)) == ()
    assert "IX_TUNE=0" in capsys.readouterr().err
    assert choices_in_use() is None
