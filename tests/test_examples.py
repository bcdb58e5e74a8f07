"""The example programs: silent, canonical, run as their comments say, and right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import published
from tests.std.plain import Array, attend, convolve, gelu, heads, lower, merge, norm, pad, same, sigmoid, softmax

import indexical as ix
from indexical.cli import main
from indexical.run.samples import random_arrays

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "examples").glob("*.ix"))
PUBLISHED = sorted((ROOT / "examples" / "published").glob("*.ix"))
SIZES = {
    "alibi": {"b": 2, "h": 3, "i": 4, "j": 4, "d": 3, "e": 2},
    "clusters": {"t": 7, "n": 2},
    "complex_scores": {"i": 4, "j": 3, "h": 2, "d": 3},
    "convolution": {"b": 2, "c": 2, "y": 5, "x": 4, "o": 2},
    "decoder": {"t": 4, "m": 3, "n": 3},
    "embedding": {"i": 6, "n": 4, "e": 3},
    "experts": {"t": 5, "m": 3, "n": 2, "e": 4},
    "gated_recurrence": {"t": 40, "d": 2, "e": 3},
    "gradient_descent": {"i": 5, "d": 3},
    "grouped_query": {"b": 2, "h": 4, "g": 2, "i": 4, "j": 4, "d": 3, "e": 2},
    "half_precision": {"i": 3, "h": 2, "d": 4, "n": 3},
    "heat_equation": {"x": 6},
    "language_model_loss": {"i": 4, "c": 5},
    "lstm": {"b": 2, "t": 3, "m": 2, "n": 2, "p": 2},
    "moving_averages": {"t": 5, "n": 2},
    "nearest_neighbours": {"i": 6, "j": 6, "d": 2, "e": 2},
    "online_softmax": {"i": 3, "j": 5},
    "recurrent_net": {"t": 4, "m": 2, "n": 3, "p": 3},
    "resampling": {"i": 9, "k": 3},
    "rotary": {"b": 2, "h": 2, "i": 4, "j": 4, "d": 4, "e": 2},
    "sliding_window": {"b": 2, "h": 1, "i": 5, "j": 5},
    "transformer_block": {"b": 2, "i": 3, "m": 4, "h": 2, "d": 2, "e": 2, "f": 5},
}


def by_name(file: Path) -> str:
    return file.stem


@pytest.mark.parametrize("file", [*FILES, *PUBLISHED], ids=by_name)
def test_example_has_no_errors_and_no_warnings(file: Path) -> None:
    assert [str(found) for found in ix.check(file) if found.severity != "note"] == []


@pytest.mark.parametrize("file", [*FILES, *PUBLISHED], ids=by_name)
def test_example_is_canonical(file: Path) -> None:
    assert main(["fmt", "--check", str(file)]) == 0


@pytest.mark.parametrize("file", FILES, ids=by_name)
def test_example_runs_as_its_comment_says(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = re.search(r"^// ix (run .*)$", file.read_text("utf-8"), re.MULTILINE)
    command = ["run", f"examples/{file.name}", "--random"] if written is None else shlex.split(written[1])
    assert command[1] == f"examples/{file.name}"
    monkeypatch.chdir(ROOT)
    assert main(command) == 0
    assert capsys.readouterr().out


# --------------------------------------------------------------- what they give


def alibi(a: Mapping[str, Array]) -> Array:
    i, j = np.arange(4)[:, None], np.arange(4)
    slope = np.array([2**-4, 2**-8, 2**-2])[:, None, None]
    return attend(a["Q"], a["K"], a["V"], lower(4, 4), -slope * np.abs(i - j))


def causal(a: Mapping[str, Array]) -> Array:
    return attend(a["Q"], a["K"], a["V"], lower(a["Q"].shape[-2], a["K"].shape[-2]))


def decoder(a: Mapping[str, Array]) -> Array:
    made = [a["start"]]
    for given in a["given"][1:]:
        before = np.stack(made)
        weights = softmax(before @ made[-1] / np.sqrt(len(made[-1])))
        made.append(np.tanh(a["W"] @ (weights @ before) + given))
    return np.stack(made)


def gated_recurrence(a: Mapping[str, Array]) -> Array:
    keep, state, rows = sigmoid(a["gate"]), 0.0, []
    for t, kept in enumerate(keep):
        state = (kept * state if t else 0) + (1 - kept) * np.outer(a["K"][t], a["V"][t])
        rows.append(a["Q"][t] @ state)
    return np.stack(rows)


def clusters(a: Mapping[str, Array]) -> tuple[Array, ...]:
    of = np.clip(a["label"], 0, 2)[:, None] == np.arange(3)
    members = of.sum(0)
    count = np.maximum(members, 1)[:, None]
    centre = of.T @ a["x"] / count
    moment = np.einsum("tk,tn,tm->knm", of, a["x"], a["x"]) / count[..., None]
    return members, centre, moment - centre[:, :, None] * centre[:, None]


def complex_scores(a: Mapping[str, Array]) -> tuple[Array, ...]:
    product = np.einsum("ihd,jhd->ij", a["a"] + 1j * a["b"], a["c"] - 1j * a["e"])
    return product.real, product.imag, product.real - 6 * np.exp(a["log_price"])


def convolution(a: Mapping[str, Array]) -> Array:
    seen = convolve(pad(a["image"], same((3, 3))), a["kernel"]) + a["bias"][:, None, None]
    bent = np.maximum(seen, 0)[..., :4, :4]
    return np.asarray(bent.reshape(2, 2, 2, 2, 2, 2).max((3, 5)))


def documents(a: Mapping[str, Array]) -> Array:
    document = a["document"][:, None]
    together = document[..., :, None] == document[..., None, :]
    return attend(a["Q"], a["K"], a["V"], together & lower(*together.shape[-2:]))


def embedding(a: Mapping[str, Array]) -> tuple[Array, ...]:
    word = a["word"]
    rows = a["table"][word] * (word != 0)[:, None]
    return rows + a["scale"] * a["codes"][word], np.bincount(word, minlength=4)


def experts(a: Mapping[str, Array]) -> tuple[Array, ...]:
    liking = a["x"] @ a["gate"].T
    order = np.argsort(-liking, -1)
    weights = np.where(liking >= np.take_along_axis(liking, order[:, 1:2], 1), sigmoid(liking), 0)
    all_of = np.einsum("enm,tm->ten", a["W"], a["x"])
    first = all_of[np.arange(5), order[:, 0]]
    return np.einsum("te,ten->tn", weights, all_of), first, np.where(weights == weights.max(1)[:, None], weights, 0)


def fibonacci(a: Mapping[str, Array]) -> Array:
    found = [0, 1]
    while len(found) < 51:
        found.append(found[-1] + found[-2])
    return np.array(found)


def gradient_descent(a: Mapping[str, Array]) -> Array:
    x = np.zeros(a["A"].shape[1])
    for _ in range(20):
        x = x - 0.05 * a["A"].T @ (a["A"] @ x - a["y"])
    return x


def grouped_query(a: Mapping[str, Array]) -> Array:
    return attend(a["Q"], np.repeat(a["K"], 2, axis=1), np.repeat(a["V"], 2, axis=1), lower(4, 4))


def half_precision(a: Mapping[str, Array]) -> tuple[Array, ...]:
    x, weight = (a[name].astype(np.float16).astype(np.float32) for name in ("x", "W"))
    even = (x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.001)).astype(np.float16).astype(np.float32)
    mixed = np.einsum("ihd,nhd->in", even, weight).astype(np.float16)
    return (mixed.astype(np.float32) * 2).astype(np.float16), np.tanh(np.einsum("ihd,nhd->in", x, weight))


def heat_equation(a: Mapping[str, Array]) -> Array:
    rows = [a["start"]]
    for _ in range(10):
        row = rows[-1].copy()
        row[1:-1] += 0.25 * np.diff(rows[-1], 2)
        rows.append(row)
    return np.stack(rows)


def language_model_loss(a: Mapping[str, Array]) -> tuple[Array, ...]:
    loss = -np.log(softmax(a["scores"])[np.arange(4), a["next"]]).mean()
    return np.exp(loss), loss, loss


def lstm(a: Mapping[str, Array]) -> Array:
    shown = cell = np.zeros((2, 2))
    found = [shown]
    for t in range(3):
        past = np.einsum("gnp,bp->gbn", a["U"], shown) + a["bias"][:, None]
        write, keep, propose, show = np.einsum("gnm,bm->gbn", a["W"], a["x"][:, t]) + past
        cell = sigmoid(keep) * cell + sigmoid(write) * np.tanh(propose)
        shown = sigmoid(show) * np.tanh(cell)
        found.append(shown)
    return np.stack(found, 1)


def moving_averages(a: Mapping[str, Array]) -> tuple[Array, ...]:
    x, keep = a["x"], sigmoid(a["gate"])
    smooth, gated = [x[0]], [x[0]]
    for t in range(1, 5):
        smooth.append(a["rate"] * smooth[-1] + x[t])
        gated.append(keep[t] * gated[-1] + x[t])
    aged = [sum(keep[s] ** (t - s) * x[s] for s in range(t + 1)) for t in range(5)]
    return np.stack(smooth), np.stack(gated), np.stack(aged), x.cumsum(0) / np.arange(1, 6)[:, None]


def nearest_neighbours(a: Mapping[str, Array]) -> tuple[Array, ...]:
    distance = ((a["x"][:, None] - a["x"]) ** 2).sum(-1)
    order = np.argsort(distance, -1, kind="stable")  # Each is nearest to itself.
    return a["value"][order[:, 1:4]].mean(1), np.argsort(order, -1)


def recurrent_net(a: Mapping[str, Array]) -> Array:
    state, rows = np.zeros(3), []
    for heard in a["x"]:
        state = np.tanh(a["W"] @ heard + a["bias"] + a["U"] @ state)
        rows.append(state)
    return np.stack(rows)


def resampling(a: Mapping[str, Array]) -> tuple[Array, ...]:
    x, tap = a["x"], a["tap"]
    wide = np.zeros(18)
    wide[::2] = x
    return x[:8].reshape(4, 2).mean(1), np.convolve(wide, tap)[:18], np.convolve(x, tap)[:9]


def sublayer(a: Mapping[str, Array], x: Array) -> Array:
    q, k, v = (heads(x, a[name]) for name in ("W_Q", "W_K", "W_V"))
    return merge(attend(q, k, v, lower(x.shape[1], x.shape[1])), a["W_O"])


def rotary(a: Mapping[str, Array]) -> Array:
    def turn(x: Array) -> Array:
        angle = np.arange(4)[:, None] / 10000 ** (np.arange(2) / 2)
        first, second = x[..., :2], x[..., 2:]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    return attend(turn(a["Q"]), turn(a["K"]), a["V"], lower(4, 4))


def sliding_window(a: Mapping[str, Array]) -> Array:
    return attend(a["Q"], a["K"], a["V"], lower(5, 5) & ~lower(5, 5, -3))


def smith_waterman(a: Mapping[str, Array]) -> tuple[Array, int]:
    across, down = "TGTTACGG", "GGTTGACTA"
    score = np.zeros((10, 9), int)
    for y, one in enumerate(down, 1):
        for x, other in enumerate(across, 1):
            step = score[y - 1, x - 1] + (3 if one == other else -3)
            score[y, x] = max(0, step, score[y - 1, x] - 2, score[y, x - 1] - 2)
    return score, 13


def transformer_block(a: Mapping[str, Array]) -> Array:
    y = a["X"] + sublayer(a, norm(a["X"], a["gain_1"], a["bias_1"], 1e-5))
    inner = gelu(norm(y, a["gain_2"], a["bias_2"], 1e-5) @ a["W_in"] + a["b_in"])
    return np.asarray(y + inner @ a["W_out"] + a["b_out"])


PLAIN: dict[str, Callable[[Mapping[str, Array]], Any]] = {
    "alibi": alibi,
    "causal_attention": causal,
    "clusters": clusters,
    "complex_scores": complex_scores,
    "convolution": convolution,
    "documents": documents,
    "embedding": embedding,
    "experts": experts,
    "fibonacci": fibonacci,
    "gradient_descent": gradient_descent,
    "grouped_query": grouped_query,
    "decoder": decoder,
    "gated_recurrence": gated_recurrence,
    "half_precision": half_precision,
    "heat_equation": heat_equation,
    "language_model_loss": language_model_loss,
    "lstm": lstm,
    "moving_averages": moving_averages,
    "multi_head_sublayer": lambda a: a["X"] + sublayer(a, a["X"]),
    "nearest_neighbours": nearest_neighbours,
    "online_softmax": lambda a: (softmax(a["scores"]), 0.0),
    "recurrent_net": recurrent_net,
    "resampling": resampling,
    "rotary": rotary,
    "sliding_window": sliding_window,
    "smith_waterman": smith_waterman,
    "transformer_block": transformer_block,
}


@pytest.mark.parametrize("file", FILES, ids=by_name)
@pytest.mark.parametrize("seed", [0, 1])
def test_example_agrees_with_numpy(file: Path, seed: int) -> None:
    program = ix.compile(file)
    sample, _ = random_arrays(program.ir, {}, SIZES.get(file.stem, {}), seed)
    found = program(**sample.arrays)
    wanted = PLAIN[file.stem](sample.arrays)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for one, other in pairs:
        assert one.shape == np.shape(other)
        close = 1e-3 if one.dtype == np.float16 else 1e-9
        np.testing.assert_allclose(one, other, rtol=close, atol=close / 1e3)


def test_figures_of_smith_waterman_are_the_published_ones() -> None:
    """What the file expects is what it computes, written there once more by hand."""
    program = ix.compile(ROOT / "examples" / "smith_waterman.ix")
    written = [figure.value for expect in program.ir.expects for figure in expect.figures if figure is not None]
    score, best = program()
    assert written == [int(best), *score.ravel().tolist()]


# ------------------------------------------------------------------------------- public sources


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "exact.md").read_text("utf-8")


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", published.NAMES)
def test_page_tells_the_verdict_on_a_public_source(name: str, page: str) -> None:
    """How many of its figures hold and fail, and the causes that are named."""
    line = published.line(published.verified(name))
    assert f"\n{line}\n" in page, "python benchmarks/published.py --write docs/exact.md writes the table anew"


def test_page_tells_of_all_public_sources_in_order_and_adds_them_up(page: str) -> None:
    _, _, rest = page.partition(f"{published.BEGIN}\n")
    told, _, _ = rest.partition(f"\n{published.END}")
    head, lines = told.splitlines()[0], told.splitlines()[4:]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    assert [re.sub(r"^\[`(\w+)`\].*$", r"\1", row[1]) for row in cells] == published.NAMES
    figures, holding, failing = (sum(int(row[column]) for row in cells) for column in (2, 3, 4))
    unknown = sum(int(row[6].strip(" |") or 0) for row in cells)
    undecided = sum(map(int, re.findall(r"(\d+) undecided", told)))
    wrong = sum(row[4] != "0" for row in cells)
    assert figures == holding + failing + undecided
    assert head == (
        f"{len(cells)} sources, {figures} figures: {failing} fail, in {wrong} sources; "
        f"a cause is named for {failing - unknown}."
    )


def test_public_sources_have_an_address_each() -> None:
    """Two programs of one source compute different things of it."""
    heads = [file.read_text("utf-8").splitlines()[:3] for file in PUBLISHED]
    assert [file.stem for file in PUBLISHED] == published.NAMES
    assert all(re.fullmatch(r"// Source: .+\.", head[1]) for head in heads)
    assert all(re.fullmatch(r"// https?://[^\s)]+", head[2]) for head in heads)
    assert len({(head[1], head[2]) for head in heads}) == len(heads)
