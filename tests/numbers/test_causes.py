"""Worked examples with a mistake in them: the cause is named. With nonsense in them: none is."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from pathlib import Path
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
        "let x = 1e300; expect x == 1.5;",
        "let x = 1e400; expect x == 1.5;",
        "let x = exp(exp(10.0)); expect x == 1.5;",
        "let x[i] = [1 / 2.0, 1 / 6.0, sqrt(2)]; let s = sum[i](x[i]); expect x == [0.5, 0.17, 1.42]; expect s == 7.1;",
    ],
)
def test_what_cannot_be_computed_otherwise_has_no_cause(text: str) -> None:
    given = {"x": "0.1"} if text.startswith("input") else {}
    assert not ix.verify(ix.compile(text), **given)


# ------------------------------------------------------------------ no cause that does not follow


def causes(text: str) -> dict[str, str | None]:
    """The kind of cause of every claim that fails, by its left side."""
    found = ix.verify(ix.compile(text))
    return {claim.left: claim.cause and claim.cause.kind for claim in found.claims if claim.verdict == "fails"}


ANGLES = """
let d = 512.0; let base1 = 10000.0 ** (2 / d); let angle[p in 1..3] = p / base1;
expect base1 == 1.0027; expect angle[1] == 0.997; expect sin(angle[1]) == 0.84; expect sin(angle[2]) == 0.91;"""


def test_what_printed_figures_explain_alone_is_credited_to_nothing_else() -> None:
    found = causes(ANGLES)
    assert found == {"base1": None, "angle[1]": "printed", "sin(angle[1])": "printed", "sin(angle[2])": "printed"}


CELL = """
let c = 0.8; let f = sigmoid(0.32); let i = sigmoid(0.23); let g = tanh(0.11); let C = f * c + i * g;
expect f == 0.58; expect i == 0.56; expect g == 0.11; expect i * g == 0.062; expect C == 0.526;"""


def test_three_printed_figures_explain_one_and_evidence_adds_up_over_claims() -> None:
    found = ix.verify(ix.compile(CELL))
    (product, cell) = found.failing
    assert cell.cause is not None
    assert cell.cause.text.startswith("holds if `f`, `i` and `g` are taken as printed (0.58, not 0.5793…;")
    assert cell.cause.figures == 2
    assert product.cause is not None
    assert product.cause.chance == cell.cause.chance < 1 / 20
    # Each of them alone is no more than chance.
    for alone in ("expect C == 0.526;", "expect i * g == 0.062;"):
        rest = CELL.replace(alone, "")
        assert set(causes(rest).values()) == {None}


def test_claimed_parts_of_a_definition_are_read_as_printed() -> None:
    found = ix.verify(
        ix.compile("""
        let a = 0.314; let b = 2.718; let c = 10 * (a * b) + 20 * (a + b);
        expect a * b == 0.9; expect a + b == 3.0; expect c == 69.0;""")
    )
    assert found.cause is not None
    assert found.cause.text == "holds if `a * b` and `a + b` are taken as printed (0.9, not 0.853…; 3.0, not 3.032)"


def test_an_unrelated_claim_changes_no_cause() -> None:
    text = "let f = sigmoid(0.32); let k = f * 0.8; expect f == 0.58; expect k == 0.464;"
    more = "let g = sigmoid(0.23) * tanh(0.11); expect g == 0.062;"
    assert causes(text) == {"k": "printed"}
    assert causes(text.replace("expect f", f"{more} expect f")) == {"k": "printed", "g": None}


def test_elements_are_named_as_the_text_counts_them() -> None:
    text = "let x[p in 2..4] = sqrt(p as f64); let y = 100 * x[3]; expect x == [1.41, 1.73]; expect y == 173.0;"
    found = ix.verify(ix.compile(text))
    assert found.cause is not None
    assert found.cause.text == "holds if `x[3]` is taken as printed (1.73, not 1.7320…)"


def test_no_figure_explains_itself() -> None:
    assert causes("let x[i] = [1.26, 2.51]; let s = sum[i](x[i]) / 3; expect s == 1.30;") == {"s": None}


def test_the_evidence_is_told_in_words() -> None:
    found = ix.verify(ix.compile(ANGLES))
    told = [line.strip() for line in str(found).splitlines() if "evidence:" in line]
    causes_found = [claim.cause for claim in found.failing if claim.cause is not None]
    assert len(told) == len(causes_found) == 3
    for line, cause in zip(told, causes_found, strict=True):
        assert line.startswith(f"evidence: one in {round(1 / cause.chance):,} such fits of 3 figures would be an acc")
        assert cause.evidence in line
    assert found.to_json()["claims"][1]["cause"]["evidence"] == causes_found[0].evidence


@pytest.mark.sampled(4)
@pytest.mark.parametrize("step", [-0.01, 0.01])
@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize("name", ["scores", "weights", "out"])
def test_a_right_figure_that_is_moved_by_a_unit_has_no_cause(name: str, at: int, step: float) -> None:
    """Every other such figure would fit something that is tried."""
    figures = example(places=2)
    numbers = figures[name].strip("[]").replace("], [", ", ").split(", ")
    moved = figures[name].replace(numbers[at], figure(float(numbers[at]) + step, 2), 1)
    assert kinds(verified({**figures, name: moved})) == {None}


NETWORK = """
let x[m] = [0.7, -1.2, 0.4]; let W[k, m] = [[0.5, -0.3, 0.8], [1.1, 0.2, -0.6]]; let b[k] = [0.1, -0.2];
let z[k] = sum[m](W[k, m] * x[m]) + b[k]; let a[k] = sigmoid(z[k]); let g[k] = gelu(z[k]);
let mu = mean[m](x[m]); let v = sum[m]((x[m] - mu) ** 2) / (size(m) - 1); let s = sqrt(v);
let w[t] = [0.9, 0.5, -0.4]; let y[p in 0..2] = sum[t](w[t] * [1.0, 2.0, 4.0, 3.0][p + t]);
let h = -sum[k](a[k] * log(a[k]) / 1.0 + (1 - a[k]) * log(1 - a[k]));
let pe[i in 0..3] = sin(5 / 100.0 ** (2 * i / 6.0)); let qe[i in 0..3] = cos(5 / 100.0 ** (2 * i / 6.0));
let beta = 0.9; let gamma = 0.65; let e1 = beta * 3.1 + (1 - beta) * 2.2; let e2 = gamma * e1 - beta * 0.7;
"""
NAMES = ("z", "a", "g", "v", "s", "y", "h", "pe", "qe", "e1", "e2")


def figures_of(text: str) -> dict[str, str]:
    found = ix.compile(text)(outputs=NAMES)
    return {name: table(np.asarray(values), 6) for name, values in zip(NAMES, found, strict=True)}


SLIPS = {
    "tanh for sigmoid": (("sigmoid(", "tanh("), "function", "`tanh` is taken for `sigmoid`"),
    "an activation left out": (("gelu(z[k])", "z[k]"), "left out", "`gelu` is left out"),
    "gelu with tanh": (
        ("gelu(z[k])", "0.5 * z[k] * (1 + tanh(sqrt(2 / pi) * (z[k] + 0.044715 * z[k] ** 3)))"),
        "function",
        "`gelu` is taken in its form with `tanh`",
    ),
    "a kernel flipped": (("w[t] * [", "w[2 - t] * ["), "flipped", "`w` is flipped"),
    "a population": (("/ (size(m) - 1)", "/ size(m)"), "reduction", "not by one less"),
    "a population in one place": (("sqrt(v)", "sqrt(v * 2 / 3)"), "reduction", "where it is read later"),
    "the last term left out": (("sum[m](W", "sum[m in 0..2](W"), "left out", "the last term along `m` is left out"),
    "logarithms to base 10": (("log(", "log(10.0) ** -1 * log("), "base", "to base 10, not e throughout"),
    "half the exponent": (("2 * i / 6.0", "i / 6.0"), "left out", "the factor `2` is left out everywhere"),
    "two scalars exchanged": (
        ("beta = 0.9; let gamma = 0.65", "beta = 0.65; let gamma = 0.9"),
        "exchanged",
        "`beta` and `gamma` are exchanged",
    ),
    "a bias left out": ((" + b[k]", ""), "left out", "`b[k]` is not added"),
    "a number of an earlier version": (("[0.7, -1.2, 0.4]", "[0.7, -1.2, 0.9]"), "stale", "is 0.9, not 0.4"),
    "sine for cosine": (("sin(", "SIN("), "function", "sine and cosine are exchanged everywhere"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SLIPS)
def test_what_people_get_wrong_is_named(name: str) -> None:
    (old, new), kind, words = SLIPS[name]
    changed = NETWORK.replace(old, new)
    if new == "SIN(":
        changed = changed.replace("cos(", "sin(").replace("SIN(", "cos(")
    figures, right = figures_of(changed), figures_of(NETWORK)
    assert figures != right
    found = ix.verify(ix.compile(NETWORK + "".join(f"expect {n} == {text};\n" for n, text in figures.items())))
    told = [claim.cause for claim in found.failing]
    first = told[0]
    assert first is not None, str(found)
    assert (first.kind, words in first.text) == (kind, True), first.text
    assert all(cause is None or cause.kind in (kind, "printed") for cause in told), str(found)


@pytest.mark.parametrize(("value", "figure"), [("0.4271", "0.4217"), ("3.1527", "3.1572"), ("12.83", "12.38")])
def test_swapped_last_digits_are_named(value: str, figure: str) -> None:
    text = f"let a = {value}; let b = a + 0; expect b == {figure};"
    assert causes(text) == {"b": "digits"}


def test_a_number_in_a_function_is_one_number() -> None:
    """Two calls of a function whose text has another number since, and a function that is another one."""
    text = "fn act(v) { sigmoid(1.5 * v + 0.2) } let a = act(0.7); let b = act(-1.3);"
    figures = ix.compile(text.replace("1.5", "1.7"))(outputs=("a", "b"))
    found = ix.verify(ix.compile(f"{text} expect a == {float(figures[0]):.4f}; expect b == {float(figures[1]):.4f};"))
    assert found.cause is not None
    assert found.cause.text == "holds if `1.5` is 1.7, not 1.5"
    figures = ix.compile(text.replace("sigmoid", "tanh"))(outputs=("a", "b"))
    found = ix.verify(ix.compile(f"{text} expect a == {float(figures[0]):.4f}; expect b == {float(figures[1]):.4f};"))
    assert found.cause is not None
    assert "`tanh` is taken for `sigmoid`" in found.cause.text


def test_the_printed_figures_that_are_named_leave_the_others_as_they_are() -> None:
    found = ix.verify(
        ix.compile("""
        let x[d] = [2.4, 3.9, 0.9, 3.0]; let gamma[d] = [1.2, 0.6, 1.9, 1.7]; let beta[d] = [0.1, 0.0, 0.3, 0.2];
        let mu = mean[d](x[d]); let var = mean[d]((x[d] - mu) ** 2);
        let y[d] = gamma[d] * (x[d] - mu) / sqrt(var) + beta[d];
        expect mu == 2.6; expect var == 1.20; expect y == [-0.1, 0.7, -2.6, 0.8];""")
    )
    cause = found.failing[1].cause
    assert cause is not None
    # With `mu` alone the third figure would fail.
    assert cause.text.startswith("holds if `mu` and `var` are taken as printed")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            """let rate = 0.1; let w1 = 0.5 - rate * 1.37; let w2 = 1.2 + rate * 0.82;
            expect w1 == 0.4315; expect w2 == 1.2410;""",
            "`rate` is 0.05, not 0.1",
        ),
        (
            """let x[m] = [1.5, -0.8, 0.4]; let y[m] = tanh(x[m]); let s = sum[m](y[m] * (m + 1.5));
            expect y == [0.9051, -0.5370, 0.3799]; expect s == 1.3449;""",
            "`x[1]` is -0.6, not -0.8",
        ),
        (
            """let b = -0.8; let y = sigmoid(b * 0.62); let z = tanh(b * 0.31) + 2; let other = 3.1 * exp(0.3);
            expect other == 9.9999; expect y == 0.4081; expect z == 1.8161;""",
            "`b` is -0.6, not -0.8",
        ),
    ],
)
def test_a_stale_number_is_found(text: str, words: str) -> None:
    told = {str(claim.cause) for claim in ix.verify(ix.compile(text)).failing if claim.left != "other"}
    assert told == {f"holds if {words}"}


def test_one_figure_shows_no_stale_number() -> None:
    """Every figure would fit some other number."""
    text = "let a[i] = [12, 7, 31, 9]; let n = sum[i](a[i]); expect n == "
    assert {causes(f"{text}{figure};")["n"] for figure in (74, 71, 45, 42, 33, 89)} == {None}


def test_figures_behind_one_number_are_one_figure() -> None:
    """What follows from a wrong figure as printed, or from a step without one, says nothing of how it came about."""
    whole = "let a[i] = [13, 21, 12]; let d = sum[i](a[i]); let n = 3 * d + 7; let k = n * n;"
    for wrong in (52, 41, 60):
        n = 3 * wrong + 7
        found = causes(f"{whole} expect d == {wrong}; expect n == {n}; expect k == {n * n};")
        assert found == {"d": None, "n": "printed", "k": "printed"}
    hidden = """let s[j] = [2.0, 1.0, 0.1]; let a = 0.7; let t = a * exp(0.3) + 0.2; let w[j] = softmax[j](s[j] / t);
    expect w == [0.5746, 0.2794, 0.1460];"""
    assert causes(hidden) == {"w": None}


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            """let H = -(9.0 / 14) * log(9.0 / 14) / log(2.0) - (5.0 / 14) * log(5.0 / 14) / log(2.0);
            let L = -(6.0 / 8) * log(6.0 / 8) / log(2.0) - (2.0 / 8) * log(2.0 / 8) / log(2.0);
            expect H == 0.6518; expect L == 0.5623;""",
            "base",
            "to base e, not 2",
        ),
        (
            """let tf[w] = [0.3, 0.1, 0.5]; let df[w] = [40.0, 7.0, 250.0]; let idf[w] = log(1000.0 / df[w]);
            let tfidf[w] = tf[w] * idf[w]; expect tfidf == [0.9600, 0.5000, 0.7000];""",
            "rounded early",
            "`idf` is rounded to 1 place",
        ),
        (
            """let s[i, j] = [[1.0, 0.5, 0.2], [0.3, 2.0, 0.7], [0.4, 0.1, 0.8]];
            let w[i, j] = softmax[j](s[i, j]) where j <= i;
            expect w == [[0.486, masked, masked], [0.126, 0.687, masked], [0.309, 0.229, 0.461]];""",
            "mask",
            "applied after softmax",
        ),
        (
            """let p = 0.35; let se = sqrt(p * (1 - p) / 120); let lo = p - 1.96 * se; let hi = p + 1.96 * se;
            expect se == 0.04354; expect lo == 0.27816; expect hi == 0.42184;""",
            "stale",
            "`1.96` is 1.65, not 1.96",
        ),
    ],
)
def test_more_of_what_people_get_wrong(text: str, kind: str, words: str) -> None:
    found = ix.verify(ix.compile(text)).failing
    assert {claim.cause and claim.cause.kind for claim in found} == {kind}, str(found)
    assert all(words in str(claim.cause) for claim in found)


def test_two_mistakes_that_fit_alike_are_both_told() -> None:
    text = "let x = 0.7319; let y = 3 * tanh(x) + 20; expect y == 22.1957;"
    found = ix.verify(ix.compile(text))
    assert found.cause is not None
    assert "`tanh` is left out of `tanh(x)`" in found.cause.text
    assert "; or if, in `y`, `relu` is taken for `tanh`" in found.cause.text


def test_a_wrong_index_on_a_page_hides_no_printed_figure() -> None:
    """Read as printed, the index would point past the end of the table."""
    text = """let s[j] = [0.1, 0.9, 0.4]; let k = argmax[j](s[j]); let top = s[k]; let a = sqrt(3.0); let y = 100 * a;
    expect k == 7; expect top == 0.9; expect a == 1.73; expect y == 173.0;"""
    assert causes(text) == {"k": None, "y": "printed"}
    assert causes("let n = 7; let m = 3 * n; expect n == 6.5; expect m == 19;")["m"] is None


def test_no_printed_figure_is_named_that_a_figure_does_not_read() -> None:
    program = Path(__file__).parents[2] / "examples" / "published" / "gru_step.ix"
    late = ix.verify(program).failing[-1]
    assert late.left == "after"
    assert late.hint is not None
    assert late.hint.text == "holds if `fresh[1]` is taken as printed (0.337, not 0.33637…)"
