"""Worked examples with a mistake in them: the cause is named. With nonsense in them: none is."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from typing import Any

import numpy as np
import pytest

import indexical as ix

Array = np.ndarray[Any, Any]

QUERIES = np.array([[1.3, -0.4], [0.2, 0.9], [-0.7, 1.1]])
KEYS = np.array([[0.8, 0.5], [-0.3, 1.2], [0.6, -0.9]])
VALUES = np.array([[1.7, 0.3], [-0.6, 2.1], [0.4, 1.4]])
PAST = np.tril(np.ones((3, 3), bool))


def figure(value: float, places: int, rounding: str = ROUND_HALF_EVEN) -> str:
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-places), rounding))


def table(values: Array, places: int, rounding: str = ROUND_HALF_EVEN) -> str:
    if not np.ndim(values):
        return figure(float(values), places, rounding)
    return f"[{', '.join(table(row, places, rounding) for row in values)}]"


def rounded(values: Array, places: int) -> Array:
    return np.vectorize(lambda value: float(figure(value, places)))(values)  # type: ignore[no-any-return]


def softmax(scores: Array, axis: int = -1, mask: Array | None = None) -> Array:
    raised = np.exp(scores) if mask is None else np.where(mask, np.exp(scores), 0)
    return raised / raised.sum(axis, keepdims=True)  # type: ignore[no-any-return]


PROGRAM = f"""
let Q[i, d] = {table(QUERIES, 1)};
let K[j, d] = {table(KEYS, 1)};
let V[j, e] = {table(VALUES, 1)};
let scores[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j] where j <= i);
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
"""


def example(
    root: float = np.sqrt(2),
    attend: Callable[[Array], Array] = lambda scores: softmax(scores, -1, PAST),
    step: Callable[[Array], Array] = lambda values: values,
    gather: Callable[[Array], Array] = lambda weights: weights @ VALUES,
    places: int = 3,
    rounding: str = ROUND_HALF_EVEN,
) -> dict[str, str]:
    """The figures of an author who computes in this way, as text by definition."""
    scores = QUERIES @ KEYS.T / root
    weights = attend(step(scores))
    out = gather(step(weights))
    return {n: table(v, places, rounding) for n, v in (("scores", scores), ("weights", weights), ("out", out))}


def verified(figures: dict[str, str]) -> Any:
    found = ix.verify(ix.compile(PROGRAM + "".join(f"expect {name} == {text};\n" for name, text in figures.items())))
    json.dumps(found.to_json(), allow_nan=False)
    assert str(found)
    return found


def kinds(found: Any) -> set[str | None]:
    return {cell.cause and cell.cause.kind for claim in found.claims for cell in claim.cells if cell.verdict == "fails"}


def test_right_figures_have_no_cause() -> None:
    found = verified(example())
    assert found
    assert found.cause is None


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("figures", "kind", "words"),
    [
        (example(root=1), "scale", "it is not divided by `sqrt(size(d))`"),
        (example(root=2), "scale", "it is divided by `size(d)`, without the root"),
        (example(attend=lambda s: softmax(s, 0, PAST)), "axis", "softmax is taken over `i`, not over `j`"),
        (example(attend=softmax), "mask", "the mask `j <= i` is left out"),
        (example(attend=lambda s: softmax(s, -1, PAST.T)), "mask", "the mask is reversed"),
        (example(attend=lambda s: softmax(s) * PAST), "mask", "after softmax"),
        (example(attend=lambda s: softmax(s * PAST)), "mask", "counted by softmax"),
        (example(gather=lambda w: w @ KEYS), "other", "`K` is read in place of `V`"),
        (example(rounding=ROUND_DOWN), "cut", "cut off, not rounded"),
        (example(step=lambda values: rounded(values, 2), places=2), "printed", "taken as printed ("),
    ],
)
def test_a_mistake_in_every_figure_is_named_as_one(figures: dict[str, str], kind: str, words: str) -> None:
    found = verified(figures)
    assert not found
    assert kinds(found) == {kind}
    assert words in str(found)
    assert kind == "printed" or found.cause is not None


WEIGHTS = softmax(QUERIES @ KEYS.T / np.sqrt(2), -1, PAST)


def exchanged(values: Array) -> Array:
    result = values.copy()
    result[1, 0], result[2, 1] = values[2, 1], values[1, 0]
    return result


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("weights", "kind"),
    [
        (table(100 * WEIGHTS, 1), "percent"),
        (table(WEIGHTS.T, 3), "transposed"),
        (table(exchanged(WEIGHTS), 3), "swapped"),
        (table(np.roll(WEIGHTS, -1, 0), 3), "position"),
        (table(-WEIGHTS, 3), "sign"),
        (table(WEIGHTS + np.eye(3) * 0.037, 3), None),
        (table(WEIGHTS + 0.113, 2), None),
        (table(WEIGHTS**2 + 0.05, 2), None),
        (table(np.array([[0.91, 0.09, 0.0], [0.25, 0.75, 0.0], [0.33, 0.51, 0.16]]), 2), None),
    ],
)
def test_figures_at_wrong_places_and_nonsense(weights: str, kind: str | None) -> None:
    assert kinds(verified({"weights": weights})) == {kind}


def test_the_fewest_printed_figures_are_named() -> None:
    found = ix.verify(
        ix.compile("""
        let a[j] = [0.7071, 0.5, 2.0]; let b[j] = a[j] * 2; let c = b[0] + b[1];
        expect b == [1.41, 1.00, 4.00]; expect c * 100 == 241;""")
    )
    assert found.cause is not None
    assert found.cause.text == "holds if `b[0]` is taken as printed (1.41, not 1.4142)"


def test_a_long_chain_is_explained_step_by_step() -> None:
    found = ix.verify(
        ix.compile("""
        let x[t] = [0.31, 0.77, 0.52, 0.94]; let h[0] = x[0]; let h[t in 1..4] = tanh(h[t - 1] + x[t]);
        expect h == [0.31, 0.79, 0.86, 0.95];
        output h;""")
    )
    (claim,) = found.claims
    assert claim.cause is None
    assert claim.hint is not None
    assert claim.hint.text == "holds if `h[1]` is taken as printed (0.79, not 0.7931…)"
    assert claim.hint.chance > 1 / 20
    assert "close, and nothing tried explains it better than chance; it holds if `h[1]`" in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "let x = 1 / 0.0; expect x == 1.5;",
        "input x; let y = x * 2; expect y == 3.0; expect y - y == 1.0;",
        "let a[i] = [1, 2, 3]; let n = sum[i](a[i]); expect n == 7;",
        "let s[j] = [1.0, 2.0]; let k = argmax[j](s[j]); expect k == 0;",
        "let x[i] = [1.0, 4.0]; let y[i] = log(x[i] - 1); expect y == [0.5, 1.5];",
    ],
)
def test_what_cannot_be_computed_otherwise_has_no_cause(text: str) -> None:
    given = {"x": "0.1"} if text.startswith("input") else {}
    assert not ix.verify(ix.compile(text), **given)
