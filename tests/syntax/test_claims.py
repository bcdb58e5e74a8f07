"""Claims as people write them: tolerances, expressions, what libraries print, printed steps."""

from __future__ import annotations

import numpy as np
import pytest

import indexical as ix
from indexical.diagnostics import Sink
from indexical.source import Source
from indexical.syntax import tree
from indexical.syntax.format import format_source
from indexical.syntax.parse import parse


def claim(text: str) -> tree.Expect:
    sink = Sink()
    (found,) = parse(Source("text", f"expect {text};"), sink).statements
    assert not sink.failed
    assert isinstance(found, tree.Expect)
    return found


def formatted(text: str) -> str:
    sink = Sink()
    file = parse(Source("text", text), sink)
    assert not sink.failed
    result = format_source(file)
    again = parse(Source("text", result), Sink())
    assert again.statements == file.statements
    assert format_source(again) == result
    return result


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("x==0.5±0.01", "x == 0.5 ± 0.01"),
        ("x == 0.5 +- 0.01", "x == 0.5 ± 0.01"),
        ("x == 0.5+- 1e-3 as printed", "x == 0.5 ± 1e-3 as printed"),
        ("x == 0.5 + -0.01", "x == 0.5 + -0.01"),
        ("x == (a == b)", "x == (a == b)"),
        ("x == 1/3 - pi ± 2", "x == 1 / 3 - pi ± 2"),
        ("x == [1/3, 2 * y[0], masked]", "x == [1 / 3, 2 * y[0], masked]"),
        ("x == [0.1 -0.2 3.]", "x == array([0.1, -0.2, 3.])"),
        ("x == [[1.  0.5]\n [ -inf 2. ]]", "x == array([[1., 0.5], [-inf, 2.]])"),
        ("x == [[1., 2.], [3., 4.]]", "x == [[1., 2.], [3., 4.]]"),
        (
            "x == tensor([[1.0000e+00, 2.], [3., -4.]], dtype=torch.float64)",
            "x == tensor([[1.0000e+00, 2.], [3., -4.]])",
        ),
        ("x == tensor([1.], device='cuda:0', grad_fn=<SumBackward0>)", "x == tensor([1.])"),
        ("x == tensor(0.7311, requires_grad=True) as printed", "x == tensor(0.7311) as printed"),
        ("x == array([1, 2], dtype=float32)", "x == array([1, 2])"),
        ("x == [y - 1, -y]", "x == [y - 1, -y]"),
        ("x == tensor", "x == tensor"),
        ("x == ~[0.1, 0.2]", "x == ~[0.1, 0.2]"),
    ],
)
def test_claims_are_read_and_written_back(text: str, layout: str) -> None:
    assert formatted(f"expect {text};") == f"expect {layout};\n"


def test_definitions_are_read_as_printed() -> None:
    assert formatted("let a[i]=b[i]*2 where i>0 as printed;") == "let a[i] = b[i] * 2 where i > 0 as printed;\n"
    assert formatted("let a=b as f32;let printed=a+printed;") == "let a       = b as f32;\nlet printed = a + printed;\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expect x == 0.5 ± y;", "expected how far from the figure the value may be, found `y`"),
        ("expect x == nan;", "`nan` is no figure"),
        ("expect x == [1.0, inf];", "`inf` is no figure"),
        ("expect x == [1.0, 2.0, ..., 9.0];", "figures are left out here"),
        ("expect x == [0.1 0.2;", "expected `]` after this array, found `;`"),
        ("expect x == [[1 2] [3]];", "the rows of an array literal must be alike"),
        ("expect x == tensor([1.0;", "expected `]` after this array, found `;`"),
        ("let y = { let a = 1 as printed; a };", "a block has nothing that was printed"),
        ("let y = [1 2];", "expected `]` after this array, found `2`"),
    ],
)
def test_what_is_no_claim_is_reported(text: str, message: str) -> None:
    sink = Sink()
    parse(Source("text", text), sink)
    assert message in [finding.message for finding in sink]


def test_what_numpy_prints_is_claimed_to_its_places() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(3, 4)) * 10.0 ** rng.integers(-2, 3, size=(3, 4)).round(3)
    values[0, 0], values[1, 2] = 1, -2.5
    rows = ", ".join("[" + ", ".join(repr(float(x)) for x in row) + "]" for row in values)
    for options in (
        {},
        {"precision": 3},
        {"precision": 2, "suppress": True},
        {"floatmode": "fixed"},
        {"linewidth": 24},
    ):
        with np.printoptions(**options):  # type: ignore[arg-type]
            for shown in (str(values), repr(values)):
                assert ix.verify(ix.compile(f"let x[i, j] = [{rows}]; expect x == {shown};")), shown
                wrong = shown.replace("2.5", "2.6", 1)
                assert not ix.verify(ix.compile(f"let x[i, j] = [{rows}]; expect x == {wrong};")), wrong


@pytest.mark.parametrize(
    ("claims", "verdicts"),
    [
        ("expect x == 0.5 ± 0.012; expect x == 0.5 ± 0.0119;", ["holds", "fails"]),
        ("expect x == 64 / 125; expect x == 1 / 2; expect 2 * x == 128/125;", ["holds", "fails", "holds"]),
        ("expect v == [exp(0) / (1 + exp(1)), 1 - v[0]]; expect v == w;", ["holds", "holds"]),
        ("expect v[j] == w[j] ± 0.1; expect v == x ± 0.3; expect v[j] == j;", ["holds", "holds", "fails"]),
        ("expect p == pi; expect p == 3.14 ± 0.01; expect p / 6 == [pi / 6];", None),
    ],
)
def test_tolerances_and_expressions(claims: str, verdicts: list[str] | None) -> None:
    program = """let x = 0.512; let s[j] = [0, 1]; let v[j] = softmax[j](s[j]); let p = pi;
    let w[j] = exp(s[j]) / sum[k](exp(s[k])); """
    if verdicts is None:
        with pytest.raises(ix.CompileError, match="1 axes and the left side has 0"):
            ix.compile(program + claims)
        claims, verdicts = claims.rpartition("expect")[0], ["holds", "holds"]
    assert [claim.verdict for claim in ix.verify(ix.compile(program + claims)).claims] == verdicts


@pytest.mark.parametrize(
    "figures",
    [
        "expect b == [1.41, 1.00] as printed; expect c == 2.4100; expect c == 2.4142;",
        "expect b[0] == 1.41 as printed; expect c == 2.4100; expect c == 2.4142;",
        "expect b[j] == tensor([1.41, 1.00]) as printed; expect c == 2.4100; expect c == 2.4142;",
        "expect b == [1.41, 1.00] ± 0.02 as printed; expect c == 2.4100; expect c == 2.4142;",
    ],
)
def test_later_steps_read_what_was_printed(figures: str) -> None:
    program = "let a[j] = [0.7071, 0.5]; let b[j] = a[j] * 2; let c = sum[j](b[j]); "
    assert [claim.verdict for claim in ix.verify(ix.compile(program + figures)).claims] == ["holds", "holds", "fails"]
    marked = program.replace("* 2;", "* 2 as printed;") + figures.replace(" as printed", "")
    assert [claim.verdict for claim in ix.verify(ix.compile(marked)).claims] == ["holds", "holds", "fails"]
    assert float(ix.exact(ix.compile(program + figures))["c"]) == 2.4142
    wrong = ix.verify(ix.compile(program + figures.replace("1.41", "1.47", 1)))
    assert [claim.verdict for claim in wrong.claims] == ["fails", "fails", "fails"]


def test_a_recurrence_goes_on_from_printed_figures() -> None:
    text = """let x[t] = [0.31, 0.77, 0.52]; let h[0] = x[0]; let h[t in 1..3] = tanh(h[t - 1] + x[t]);
    expect h == [0.31, 0.79, 0.86] as printed;"""
    assert ix.verify(ix.compile(text))
    assert not ix.verify(ix.compile(text.replace(" as printed", "")))


def test_claims_alone_need_no_output() -> None:
    steps = """let x[t] = [1.0, 2.0]; let h[0] = 1.0; let h[t in 1..2] = c[t] * x[t];
    let c[t in 0..2] = if t > 0 { h[t - 1] } else { 0.0 }; """
    assert ix.verify(ix.compile(steps + "expect h == [1.0, 2.0];"))
    with pytest.raises(ix.CompileError, match="output h;"):
        ix.compile(steps)
