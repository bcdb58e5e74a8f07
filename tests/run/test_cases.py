"""A first text is for calls like the first alone; what they never come to is printed once a call comes to it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest
import torch
from tests.pairs import called_few

import indexical as ix
from indexical.run import kernel

GIVEN = "input Q[h, i, d], K[h, j, d], V[h, j, e], slope[h];"
SCORE = "sum[d](Q[h, i, d] * K[h, j, d])"
PROGRAMS = {
    "bias": f"{SCORE} + slope[h] * (j - i)) where j <= i",
    "window": f"{SCORE}) where j <= i, i - j < 5",
    "cap": f"3 * tanh({SCORE} / 3)) where j <= i",
    "full": f"{SCORE})",
}
# Few pairs and many: the limits lie between.
KINDS = tuple((size, learns) for size in (6, 60) for learns in (False, True))


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with called_few(2 * 30**2):
        yield


def program_of(weights: str) -> ix.Program:
    lines = f"let w[h, i, j] = softmax[j]({weights}; let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);"
    return ix.compile(GIVEN + lines)


def arrays(size: int, learns: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    shapes = (2, size, 4), (2, size, 4), (2, size, 3), (2,)
    return [torch.randn(shape, generator=generator).requires_grad_(learns) for shape in shapes]


def check(program: ix.Program, size: int, learns: bool) -> None:
    """The values of a call and its gradients are those of the plain lowering, in twice the digits."""
    given = arrays(size, learns)
    wide = [array.detach().double().requires_grad_(learns) for array in given]
    found, expected = program(*given), program(*wide, isolate=True)
    assert torch.allclose(found.double(), expected, atol=1e-4)
    if learns:
        for one, other in zip(grads(found, given), grads(expected, wide), strict=True):
            assert torch.allclose(one.double(), other, rtol=1e-3, atol=2e-3)


def grads(out: torch.Tensor, given: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    found = torch.autograd.grad((out * out).sum(), given, allow_unused=True)
    return tuple(torch.zeros_like(array) if one is None else one for one, array in zip(found, given, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_of_all_kinds_agree_in_any_order(name: str) -> None:
    for first, second in permutations(KINDS, 2):
        program = program_of(PROGRAMS[name])
        for size, learns in (first, second, first):
            check(program, size, learns)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are loaded."""
    found: list[str] = []
    load = kernel.load

    def loading(text, *given):  # type: ignore[no-untyped-def]
        found.append(text)
        return load(text, *given)

    monkeypatch.setattr(kernel, "load", loading)
    monkeypatch.setenv("IX_CACHE", "0")
    return found


def test_a_call_of_few_pairs_prints_no_tiles(texts: list[str]) -> None:
    program = program_of(PROGRAMS["bias"])
    program(*arrays(6, False))
    program(*arrays(7, False))
    assert len(texts) == 1
    assert "def out_tile" not in texts[0]
    assert "back_from_out" not in texts[0]
    program(*arrays(60, True))
    assert len(texts) == 2
    assert "def out_tile" in texts[1]
    assert "back_from_out" in texts[1]
    assert f'"{kernel.ELSEWHERE}"' not in texts[1]
    for size, learns in KINDS:
        program(*arrays(size, learns))
    assert len(texts) == 2


def test_a_text_that_is_shown_is_for_all_calls() -> None:
    program = program_of(PROGRAMS["bias"])
    program(*arrays(6, False))
    source = program.source(*arrays(6, False))
    assert f'"{kernel.ELSEWHERE}"' not in source
    assert "def out_tile" in source


def test_a_text_that_was_kept_for_some_calls_gives_way(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("IX_CACHE", str(tmp_path))
    for size, learns in (*KINDS, *reversed(KINDS)):
        check(program_of(PROGRAMS["bias"]), size, learns)
    loaded = program_of(PROGRAMS["bias"])
    loaded(*arrays(6, False))
    (known,) = (made for key, made in loaded._engine.kernels.items() if not key[2])
    assert known.case is None


def test_compiled_calls_take_any_size() -> None:
    program = program_of(PROGRAMS["cap"])
    program(*arrays(6, False))
    step = torch.compile(program, backend="eager", dynamic=True)
    for size in (6, 800):
        given = arrays(size, False)
        assert torch.allclose(step(*given), program(*given, isolate=True), atol=1e-4)
