"""Patterns: the word of a row is the first that holds, and its figures are what their formulas say."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from indexical.diagnostics import CallError
from indexical.run.patterns import POSITIONAL, THRESHOLDS, TOLERANCES, WORDS, Row, find_patterns

EXAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "worked_examples.json"
PRINTED = {"peaked": [0.01, 0.95, 0.04], "uniform": [0.33, 0.33, 0.34], "sparse": [0.0, 0.0, 0.5, 0.0, 0.5]}


def alone(row: Any, causal: bool | None = None) -> Row:
    (found,) = find_patterns([row], causal=causal).rows(())
    return found


def word_at(position: int, row: list[float]) -> str:
    """The word of a row in a square head, which hears nothing else, and is causal if the row is."""
    head = np.zeros((len(row), len(row)))
    head[position] = row
    return str(find_patterns(head).words[position])


def spread(keys: int, **weights: float) -> list[float]:
    """A row with some weights (`k3=0.5`), and the rest shared evenly by the other keys."""
    given = {int(name[1:]): weight for name, weight in weights.items()}
    rest = (1 - sum(given.values())) / (keys - len(given))
    return [given.get(key, rest) for key in range(keys)]


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize("word", PRINTED)
def test_the_printed_rows_have_their_words(word: str) -> None:
    assert alone(PRINTED[word]).word == word
    (found,) = find_patterns(PRINTED[word]).rows(())
    assert found.word == word


def test_the_printed_rows_are_those_of_the_file() -> None:
    if not EXAMPLES.exists():
        pytest.skip("the examples are not here")
    (lesson,) = [e for e in json.loads(EXAMPLES.read_text(encoding="utf-8"))["examples"] if "patterns" in e]
    assert {word: [float(w) for w in row] for word, row in lesson["patterns"].items()} == PRINTED


@pytest.mark.parametrize(
    ("position", "row", "word"),
    [
        # not a distribution
        (0, [-0.1, 1.1, 0], "not a distribution"),
        (0, [0.5, 0.4, 0], "not a distribution"),
        (0, [float("nan"), 1, 0], "not a distribution"),
        (0, [float("inf"), 0, 0], "not a distribution"),
        (0, [float("inf"), float("-inf"), 0], "not a distribution"),
        (0, [1e308, 1e308, 1e308], "not a distribution"),
        (0, [0.5, 0.5 + 2e-5, 0], "not a distribution"),
        (0, [0.5, 0.5 + 5e-6, 0], "mixed"),
        # silent
        (1, [0, 0, 0], "silent"),
        (1, [0, -0.0, 0], "silent"),
        (1, [0, 1e-300, 0], "not a distribution"),
        # uniform
        (1, [0.33, 0.33, 0.34], "uniform"),
        (1, [0.31, 0.33, 0.36], "uniform"),
        (1, [0.29, 0.35, 0.36], "mixed"),
        (1, [0.5, 0.5], "uniform"),
        # causal-average
        (1, [0.5, 0.5, 0, 0], "causal-average"),
        (2, [0.31, 0.33, 0.36, 0], "causal-average"),
        (2, [0.25, 0.33, 0.42, 0], "mixed"),
        (2, [1 / 3, 1 / 3, 1 / 3 - 1e-9, 1e-9], "mixed"),
        (3, [0.25, 0.25, 0.25, 0.25], "uniform"),
        (0, [1, 0, 0, 0], "peaked"),
        # previous-token
        (2, [0.1, 0.6, 0.2, 0.1], "previous-token"),
        (2, [0, 1, 0, 0], "previous-token"),
        (2, [0.11, 0.59, 0.2, 0.1], "mixed"),
        (1, [0.9, 0.1, 0, 0], "previous-token"),
        (0, [0.05, 0.0, 0.0, 0.95], "peaked"),
        # first-token sink
        (3, [0.6, 0.2, 0.1, 0.1], "first-token sink"),
        (3, [1, 0, 0, 0], "first-token sink"),
        (3, [0.59, 0.2, 0.11, 0.1], "mixed"),
        (0, [0.6, 0.2, 0.1, 0.1], "mixed"),
        # peaked
        (3, [0.02, 0.9, 0.04, 0.04], "peaked"),
        (3, [0, 0, 0, 1], "peaked"),
        (3, [0.04, 0.89, 0.04, 0.03], "mixed"),
        # sparse
        (3, [0, 0.5, 0, 0.5], "sparse"),
        (3, [0, 0.5, 0.2, 0.3], "mixed"),
        # mixed
        (3, [0.1, 0.4, 0.3, 0.2], "mixed"),
    ],
)
def test_word_of_a_row_in_a_head(position: int, row: list[float], word: str) -> None:
    assert word_at(position, row) == word


def test_sparse_without_a_single_zero() -> None:
    """Three of sixteen keys have 0.96; the near miss has 0.94 on three and needs more of the rest than a quarter."""
    assert word_at(8, spread(16, k0=0.32, k3=0.32, k15=0.32)) == "sparse"
    assert word_at(8, spread(16, k0=0.31, k3=0.31, k15=0.31)) == "mixed"


def test_sparse_counts_the_keys_that_could_be_heard() -> None:
    """A causal row at position 3 hears all that it could; a row of a head that is not causal could hear eight."""
    row = [0.1, 0.4, 0.3, 0.2, 0, 0, 0, 0]
    head = np.zeros((8, 8))
    head[3] = row
    assert find_patterns(head).words[3] == "mixed"
    assert find_patterns(head, causal=False).words[3] == "sparse"
    head[0, 7] = 1
    assert find_patterns(head).words[3] == "sparse"
    assert find_patterns(head, causal=True).words[3] == "mixed"


def test_local_needs_most_in_a_narrow_window() -> None:
    assert word_at(10, spread(32, k9=0.2, k10=0.2, k12=0.22)) == "local"
    assert word_at(10, spread(32, k6=0.2, k10=0.2, k12=0.22)) == "mixed"
    assert word_at(10, spread(32, k9=0.18, k10=0.18, k12=0.18)) == "mixed"
    assert word_at(10, spread(19, k9=0.2, k10=0.2, k12=0.25)) == "mixed", "five of nineteen keys are no narrow window"
    assert word_at(0, spread(32, k0=0.4, k2=0.4)) == "local"


def test_window_of_a_causal_row_ends_at_its_position() -> None:
    head = np.zeros((16, 16))
    head[11, :12] = spread(12, k9=0.3, k11=0.4)
    head[10, :11] = spread(11, k8=0.3, k10=0.4)
    words = find_patterns(head).words
    assert (words[11], words[10]) == ("local", "mixed")


def test_window_grows_with_the_keys() -> None:
    """Sixteen keys behind a position, each even: local among 512 keys, not among 64."""
    for keys, word in ((512, "local"), (64, "sparse")):
        row = np.zeros(keys)
        row[keys - 24 : keys - 8] = 1 / 16
        assert word_at(keys - 8, row.tolist()) == word


def test_uniform_wins_over_rounding() -> None:
    """Of two even keys, a rounding does not make one the majority."""
    assert word_at(1, [0.5000001, 0.4999999]) == "uniform"
    assert word_at(1, [0.5000001, 0.4999999, 0, 0]) == "causal-average"
    assert word_at(3, [0.5000001, 0, 0.4999999, 0, 0]) == "sparse"


# ------------------------------------------------------------------- position


def test_a_lone_row_has_the_last_position_but_no_word_from_it() -> None:
    row = alone([0.01, 0.95, 0.04])
    assert (row.position, row.on_previous, row.word) == (2, 0.95, "peaked")
    assert alone([0.01, 0.95, 0.04], causal=True).word == "previous-token"
    assert alone([0.95, 0.01, 0.04]).word == "peaked"
    assert alone([0.95, 0.01, 0.04], causal=True).word == "first-token sink"
    assert alone(spread(32, k30=0.4, k31=0.4)).word == "mixed"
    assert alone(spread(32, k30=0.4, k31=0.4), causal=True).word == "local"


@given(st.lists(st.integers(0, 9), min_size=1, max_size=24).filter(any), st.randoms(use_true_random=False))
def test_the_word_of_a_lone_row_does_not_depend_on_the_order_of_keys(parts: list[int], random: Any) -> None:
    before = alone(np.array(parts) / sum(parts)).word
    random.shuffle(parts)
    assert alone(np.array(parts) / sum(parts)).word == before
    assert before not in POSITIONAL


@pytest.mark.parametrize("row", [[1.0], [1]])
def test_one_key_is_peaked(row: list[float]) -> None:
    assert alone(row).word == alone(row, causal=True).word == "peaked"


def test_fewer_queries_stand_at_the_end() -> None:
    whole = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    decoded = find_patterns(whole[4:])
    assert decoded.position.tolist() == [4, 5]
    assert decoded.words.tolist() == find_patterns(whole).words[4:].tolist() == ["causal-average", "uniform"]
    assert decoded.heads[0].causal is True


def test_more_queries_start_at_the_beginning() -> None:
    found = find_patterns(np.full((4, 2), 0.5))
    assert found.position.tolist() == [0, 1, 2, 3]
    assert found.figures.on_self.tolist() == [0.5, 0.5, 0, 0]
    assert found.figures.on_previous.tolist() == [0, 0.5, 0.5, 0]
    assert found.words.tolist() == ["uniform"] * 4


@pytest.mark.parametrize(
    ("head", "causal"),
    [
        (np.eye(3), True),
        (np.eye(3, k=1), False),
        (np.tril(np.ones((2, 4)), 2) / [[3], [4]], True),
        (np.ones((2, 4)) / 4, False),
        (np.ones((1, 4)) / 4, None),
        (np.ones((3, 1)), None),
        (np.zeros((3, 3)), True),
        (np.array([[1, np.nan], [0, 1]]), False),
    ],
)
def test_causal_is_found(head: np.ndarray[Any, Any], causal: bool | None) -> None:
    assert find_patterns(head).heads[0].causal is causal
    assert find_patterns(head, causal=True).heads[0].causal is causal, "what is said does not change what is found"


# -------------------------------------------------------------------- figures


def test_figures_are_those_of_the_formulas() -> None:
    random = np.random.default_rng(5)
    weights = random.dirichlet(np.ones(7), size=(2, 3, 5))
    weights[0, 0, 0] = [0.5, 0, 0.25, 0, 0.25, 0, 0]
    found = find_patterns(weights)
    for head in found.heads:
        for row in found.rows(head.index):
            values = weights[head.index][row.query].tolist()
            entropy = -sum(w * math.log2(w) for w in values if w)
            assert row.head == head.index
            assert row.position == 2 + row.query
            assert row.entropy == pytest.approx(entropy)
            assert row.effective_keys == pytest.approx(2**entropy)
            assert (row.largest, row.largest_key) == (max(values), values.index(max(values)))
            assert (row.on_self, row.on_previous) == (values[row.position], values[row.position - 1])
            assert row.on_first == values[0]
            assert row.distance == pytest.approx(sum(w * abs(row.position - key) for key, w in enumerate(values)))
            assert row.heard == sum(w > 0 for w in values)
            assert row.total == pytest.approx(1)
            largest = sorted(values, reverse=True)
            assert sum(largest[: row.carrying]) >= 0.95 > sum(largest[: row.carrying - 1])


def test_heads_sum_up_their_rows() -> None:
    weights = np.random.default_rng(6).dirichlet(np.full(6, 0.3), size=(4, 6))
    weights[2, 1] = 0
    weights[2, 3, 0] = 7
    found = find_patterns(weights)
    assert [head.index for head in found.heads] == [(0,), (1,), (2,), (3,)]
    for head in found.heads:
        rows = list(found.rows(head.index))
        good = [row for row in rows if row.word not in ("silent", "not a distribution")]
        assert list(head.counts) == list(WORDS)
        assert {word: number for word, number in head.counts.items() if number} == {
            word: sum(row.word == word for row in rows) for word in {row.word for row in rows}
        }
        assert [head.counts[word] for word in head.words] == [max(head.counts.values())] * len(head.words)
        for name in ("entropy", "effective_keys", "on_self", "on_previous", "on_first", "distance"):
            assert getattr(head, name) == pytest.approx(np.mean([getattr(row, name) for row in good]))
    assert found.heads[2].counts["silent"] == found.heads[2].counts["not a distribution"] == 1


def test_a_tie_between_words_is_not_decided() -> None:
    assert find_patterns([[0.2, 0.5, 0.3], [0.3, 0.3, 0.4]]).heads[0].word == "mixed"
    (tied,) = find_patterns([[0.2, 0.5, 0.3], [1 / 3, 1 / 3, 1 / 3]]).heads
    assert (tied.word, tied.words) == (None, ("uniform", "mixed"))
    assert tied.evidence == "uniform 1 of 2 rows, mixed 1 of 2 rows"


def test_induction_needs_a_token_that_stood_there_before() -> None:
    weights = np.eye(6)[[0, 3, 2, 1, 2, 2]]
    tokens = list("abxabx")
    assert find_patterns(weights, tokens=tokens).words[3:].tolist() == ["induction", "induction", "peaked"]
    assert "induction" not in find_patterns(weights).words
    assert "induction" not in find_patterns(weights, tokens=list("abcdef")).words
    assert find_patterns(np.eye(6)[[0, 0, 0, 0, 0, 3]], tokens=tokens).words[5] == "induction"
    with pytest.raises(CallError, match="a token for each key: 6, and there are 2"):
        find_patterns(weights, tokens=["a", "b"])


def test_rows_that_are_no_distributions_have_no_spread() -> None:
    for row in (alone([0.0, 0.0]), alone([0.5, 0.1]), alone([-1.0, 2.0])):
        assert math.isnan(row.entropy)
        assert math.isnan(row.effective_keys)
        assert math.isnan(row.distance)
        assert row.carrying == 0
    assert alone([0.0, 0.0]).largest_key == -1
    assert alone([0.5, 0.1]).largest_key == 0
    assert alone([0.5, 0.1]).total == 0.6
    assert alone([-1.0, 2.0]).heard == 1
    broken = alone([0.1, float("nan"), 0.9])
    assert math.isnan(broken.largest)
    assert broken.largest_key == 1
    assert math.isnan(find_patterns([[0.0, 0.0]]).heads[0].entropy)


@pytest.mark.parametrize("row", [[1.0], [1.0, 0.0], [0.0, 1.0, 0.0]])
def test_entropy_is_never_minus_zero(row: list[float]) -> None:
    assert str(alone(row).entropy) == "0.0"


# --------------------------------------------------------------------- arrays


def softmax(scores: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.softmax(scores, -1).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("keys", [3, 64, 1000])
def test_softmax_is_a_distribution_in_every_dtype(dtype: torch.dtype, keys: int) -> None:
    scores = torch.randn((4, 8, keys), generator=torch.Generator().manual_seed(keys))
    found = find_patterns(softmax(scores, dtype).requires_grad_())
    assert found.dtype == str(dtype).removeprefix("torch.")
    assert found.tolerance == TOLERANCES[found.dtype]
    assert all(head.counts["not a distribution"] == 0 for head in found.heads)


def test_sums_are_held_against_the_dtype() -> None:
    row = torch.tensor([[0.5, 0.51]])
    assert find_patterns(row.bfloat16()).words.tolist() == ["uniform"]
    assert find_patterns(row).words.tolist() == ["not a distribution"]
    assert find_patterns(np.array([[0.5, 0.503]], np.float16)).words.tolist() == ["uniform"]
    assert find_patterns(np.array([[0.5, 0.503]], np.float32)).words.tolist() == ["not a distribution"]


def test_whole_numbers_and_booleans() -> None:
    for dtype in (bool, np.uint8, np.int64):
        found = find_patterns(np.eye(3, dtype=dtype))
        assert found.words.tolist() == ["peaked"] * 3
        assert found.tolerance == 0
    assert find_patterns(np.ones((1, 2), bool)).words.tolist() == ["not a distribution"]
    assert find_patterns(np.eye(2, dtype=np.longdouble)).tolerance == TOLERANCES["float64"]


def test_the_array_is_kept_and_cannot_be_written_through() -> None:
    weights = np.eye(3)
    found = find_patterns(weights)
    assert np.shares_memory(found.weights, weights)
    assert not found.weights.flags.writeable
    assert weights.flags.writeable


@pytest.mark.parametrize("shape", [(0,), (1, 0), (0, 3), (3, 0), (0, 0), (2, 0, 3), (2, 3, 0), (0, 3, 3), (2, 0, 1, 4)])
def test_empty_axes(shape: tuple[int, ...]) -> None:
    found = find_patterns(np.zeros(shape))
    for head in found.heads:
        assert head.word == ("silent" if found.queries else None)
        assert all(row.word == "silent" for row in found.rows(head.index))
        assert math.isnan(head.entropy)
    assert found.words.size == len(found.heads) * found.queries


@pytest.mark.parametrize(
    ("weights", "code", "message"),
    [
        (np.eye(2) * 1j, "IX504", "complex numbers"),
        ("0.5 0.5", "IX504", "text"),
        (["a", "b"], "IX504", "text"),
        ({"a": 1}, "IX504", "got dict"),
        ([[1.0], [0.5, 0.5]], "IX504", "cannot be made an array"),
        (np.array(["2020-01-01"], "datetime64[D]"), "IX504", "datetime64"),
        (np.ma.masked_equal(np.eye(2), 0), "IX504", r"filled\(0\)"),
        (torch.eye(2).to_sparse(), "IX504", "cannot be made an array"),
        (torch.empty(2, 2, device="meta"), "IX504", "cannot be made an array"),
        (torch.eye(2) * 1j, "IX504", "complex numbers"),
        (1.0, "IX502", "at least 1 axis"),
        (np.float32(1), "IX502", "at least 1 axis"),
    ],
)
def test_what_is_refused(weights: Any, code: str, message: str) -> None:
    with pytest.raises(CallError, match=message) as caught:
        find_patterns(weights)
    assert [found.code for found in caught.value.diagnostics] == [code]


# ----------------------------------------------------------------------- laws


@st.composite
def stacks(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Heads of distributions, and now and then of rows that are none."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 24)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = random.normal(size=shape) * draw(st.sampled_from([0, 0.01, 1, 3, 30]))
    if draw(st.booleans()):
        scores = np.where(np.tri(*shape[1:], k=max(0, shape[2] - shape[1])) > 0, scores, -np.inf)
    weights: np.ndarray[Any, Any] = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    place = tuple(int(random.integers(size)) for size in shape)
    weights[place] = draw(st.sampled_from([weights[place], 0.0, -1.0, np.nan, np.inf, -np.inf, 1e308, 5e-324]))
    return weights


@given(stacks(), st.sampled_from([None, True, False]))
def test_every_row_has_one_word_and_figures_in_their_bounds(weights: np.ndarray[Any, Any], causal: bool | None) -> None:
    found = find_patterns(weights, causal=causal)
    keys = found.keys
    for head in found.heads:
        assert sum(head.counts.values()) == found.queries
        for row in found.rows(head.index):
            if row.word not in ("silent", "not a distribution"):
                assert 0 <= row.entropy <= math.log2(keys) + 1e-9
                assert 1 <= row.effective_keys <= keys * (1 + 1e-9)
                assert 1 <= row.carrying <= row.heard <= keys
                assert 0 <= row.distance <= max(row.position, keys - 1)
                assert row.largest == weights[head.index][row.query][row.largest_key]


@given(stacks(), st.randoms(use_true_random=False))
def test_heads_do_not_depend_on_each_other(weights: np.ndarray[Any, Any], random: Any) -> None:
    order = list(range(len(weights)))
    random.shuffle(order)
    before, after = find_patterns(weights), find_patterns(weights[order])
    assert after.words.tolist() == before.words[order].tolist()
    assert [head.counts for head in after.heads] == [before.heads[n].counts for n in order]
    for n in range(len(weights)):
        assert find_patterns(weights[n]).words.tolist() == before.words[n].tolist()


def test_heads_read_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(1).dirichlet(np.full(8, 0.2), size=(3, 5, 8))
    before = find_patterns(weights)
    monkeypatch.setattr("indexical.run.patterns.MOST_AT_ONCE", 100)
    after = find_patterns(weights)
    assert after.heads == before.heads
    assert after.words.tolist() == before.words.tolist()


def test_many_rows_take_little_time() -> None:
    weights = np.random.default_rng(2).dirichlet(np.full(512, 0.1), size=(8, 512)).astype(np.float32)
    start = time.perf_counter()
    find_patterns(weights)
    assert time.perf_counter() - start < 2


def test_tables_speak_of_what_there_is() -> None:
    assert set(POSITIONAL) < set(WORDS)
    assert list(WORDS)[-1] == "mixed"
    assert all(threshold.meaning.endswith(".") for threshold in THRESHOLDS.values())
