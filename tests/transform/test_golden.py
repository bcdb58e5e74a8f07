"""Derivatives as they are printed, reviewed when they change: `python -m tests.transform.test_golden` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexical as ix

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "derivatives"

PLAIN = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]);
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""

BACKWARD = """let d_V[b, h, j, e]       = sum[i](weights[b, h, i, j] * d_out[b, h, i, e]);
let d_weights[b, h, i, j] = sum[e](d_out[b, h, i, e] * V[b, h, j, e]);
let d_scores[b, h, i, j]  = weights[b, h, i, j] * (d_weights[b, h, i, j] - sum[j_1](weights[b, h, i, j_1] * d_weights[b, h, i, j_1]));
let d_Q[b, h, i, d]       = sum[j](d_scores[b, h, i, j] * K[b, h, j, d]) / sqrt(size(d));
let d_K[b, h, j, d]       = sum[i](d_scores[b, h, i, j] * Q[b, h, i, d]) / sqrt(size(d));
"""  # noqa: E501

# What is differentiated: an example of the project, or a text; of what, by what.
CASES: dict[str, tuple[str, str, tuple[str, ...] | None]] = {
    "plain_attention": (PLAIN, "out", ("Q", "K", "V")),
    "causal_attention": ("examples/causal_attention.ix", "out", None),
    "sliding_window": ("examples/sliding_window.ix", "out", None),
    "alibi": ("examples/alibi.ix", "out", None),
    "documents": ("examples/documents.ix", "out", None),
    "grouped_query": ("examples/grouped_query.ix", "out", None),
    "rotary": ("examples/rotary.ix", "out", None),
    "multi_head_sublayer": ("examples/multi_head_sublayer.ix", "", None),
    "transformer_block": ("examples/transformer_block.ix", "", None),
    "convolution": ("examples/convolution.ix", "", None),
    "heat_equation": ("examples/heat_equation.ix", "", None),
    "lstm": ("examples/lstm.ix", "", None),
    "gather": ("input E[n, m], p[i]; let y[i, m] = E[p[i], m];", "y", ("E",)),
    "repacked_heads": (
        "input x[b, i, m], W[h, d, o]; let y[b, i, o] = sum[h, d](x[b, i, h * size(d) + d] * W[h, d, o]);",
        "y",
        None,
    ),
    "recurrence": (
        "input A[m, n], x[t, m], start[m]; let h[0, m] = start[m];"
        "let h[t in 1..size(t), m] = tanh(sum[n](A[m, n] * h[t - 1, n]) + x[t, m]);",
        "h",
        None,
    ),
    "cross_entropy": (
        "input s[i, j], p[i, j]; let loss = -mean[i](sum[j](p[i, j] * log_softmax[j](s[i, j])));",
        "loss",
        ("s",),
    ),
    "max_pooling": ("input x[i, j]; let y[i] = max[j](x[i, j] where j <= i);", "y", None),
}


def derivative(name: str) -> ix.Program:
    text, of, by = CASES[name]
    program = ix.compile(str(ROOT / text) if text.endswith(".ix") else text)
    return ix.grad(program, of or None, by)


@pytest.mark.parametrize("name", CASES)
def test_it_is_printed_as_before(name: str) -> None:
    assert str(derivative(name)) == (GOLDEN / f"{name}.ix").read_text()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_it_stands_on_its_own(name: str, tmp_path: Path) -> None:
    """The printed text is a program without findings, in the layout of the house."""
    from indexical.cli import main

    path = tmp_path / f"{name}.ix"
    path.write_text(str(derivative(name)))
    assert main(["check", "--strict", str(path)]) == 0
    assert main(["fmt", "--check", str(path)]) == 0


def statements(text: str) -> list[str]:
    """The statements of a program, without layout and comments."""
    lines = [line.partition("//")[0] for line in text.splitlines()]
    return [" ".join(part.split()) for part in "\n".join(lines).split(";") if part.strip()]


def close(text: str) -> str:
    return "".join(text.split())


def test_attention_is_these_relations_and_nothing_else() -> None:
    found = statements(str(derivative("plain_attention")))
    inputs = "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], d_out[b, h, i, e]"
    wanted = [inputs, *statements(PLAIN)[1:3], *statements(BACKWARD), "output d_Q, d_K, d_V"]
    assert list(map(close, found)) == list(map(close, wanted))


def test_the_transpose_of_the_gather_says_so() -> None:
    allowed = [line for line in str(derivative("plain_attention")).splitlines() if "allow(" in line]
    assert len(allowed) == 1
    assert allowed[0].startswith("let d_V[")
    assert allowed[0].endswith("// allow(IX402): transpose of the gather")


def test_the_guard_stands_where_the_forward_had_it() -> None:
    plain, causal = (statements(str(derivative(name))) for name in ("plain_attention", "causal_attention"))
    guarded = [close(line) for line in causal if "where" in line]
    assert [line.partition("[")[0] for line in guarded] == ["letweights", "letd_scores"]
    without = [close(line).replace("wherej<=i", "") for line in causal if not line.startswith("space")]
    assert without == list(map(close, plain))


def test_the_order_of_by_is_the_order_of_the_outputs() -> None:
    program = ix.compile(PLAIN)
    assert ix.grad(program, by=("V", "Q")).outputs == ("d_V", "d_Q")


if __name__ == "__main__":
    for name in CASES:
        (GOLDEN / f"{name}.ix").write_text(str(derivative(name)))
