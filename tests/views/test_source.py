"""Programs written as source: the text means what the Program says, and reads as if a person had written it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.programs import random_case
from tests.views.renaming import renamed
from tests.views.structure import structure

import indexical as ix
from indexical.diagnostics import Sink
from indexical.ir import build
from indexical.ir import nodes as ir
from indexical.ir.types import Coordinate, Kind
from indexical.run.samples import random_arrays
from indexical.source import Source, Span
from indexical.std.library import entries
from indexical.syntax.format import format_source
from indexical.syntax.parse import parse
from indexical.views.figures import Unwritable
from indexical.views.source import written

pytestmark = pytest.mark.sampled(4)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted([*(ROOT / "examples").glob("*.ix"), *(ROOT / "examples" / "lessons").glob("*.ix")])
NOWHERE = Span(Source("<test>", ""), 0, 0)

# ------------------------------------------------------------------------ the law


def check_written(program: ix.Program, arrays: Mapping[str, Any] | None = None) -> str:
    """The text of a program compiles to the same program, warns of nothing new, is laid out, and stays as it is."""
    text = written(program.ir)
    again = ix.compile(text)
    assert codes(again) <= codes(program), text
    assert again.outputs == program.outputs, text
    assert [(t.name, t.dtype) for t in again.ir.inputs] == [(t.name, t.dtype) for t in program.ir.inputs], text
    assert structure(again.ir) == structure(program.ir), text
    assert format_source(parse(Source("<text>", text), Sink())) == text
    assert written(again.ir) == text
    if arrays is not None:
        names = [name for name in program.definitions if name in again.definitions]
        assert answer(program, arrays, names) == answer(again, arrays, names), text
    return text


def codes(program: ix.Program) -> set[str]:
    return {found.code for found in program.diagnostics if found.severity == "warning"}


def answer(program: ix.Program, arrays: Mapping[str, Any], names: list[str]) -> list[object]:
    """What a program gives, to the last bit; where it fails, how."""
    try:
        values = program(**arrays, outputs=names, backend="reference")
    except ix.Error as problem:
        return [found.code for found in problem.diagnostics]
    found = [np.asarray(value) for value in (values if len(names) > 1 else [values])]
    return [(value.dtype, value.shape, value.tobytes()) for value in found]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples(file: Path) -> None:
    program = ix.compile(file)
    sample, _ = random_arrays(program.ir, {}, {"h": 4, "g": 2, "d": 4, "t": 3, "y": 5, "x": 6}, 0)
    check_written(program, sample.arrays)


@pytest.mark.parametrize("name", entries())
def test_functions_of_the_library(name: str) -> None:
    entry = entries()[name]
    declared = ", ".join(p.span.text for p in entry.fn.parameters)
    given = ", ".join(p.name for p in entry.fn.parameters)
    check_written(
        ix.compile(f"use std::{entry.module}::{{{name}}};\ninput {declared};\nlet result = {name}({given});\n")
    )


@pytest.mark.parametrize("tens", range(10))
def test_generated_programs(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        case = random_case(seed)
        try:
            program = ix.compile(case.text)
        except ix.Error:
            continue
        check_written(program, case.arrays)


@pytest.mark.parametrize("tens", range(6))
def test_generated_programs_whose_coordinates_are_called_anything(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        case = random_case(seed)
        try:
            program = ix.compile(case.text)
        except ix.Error:
            continue
        other = renamed(program.ir, seed)
        text = written(other)
        again = ix.compile(text)
        assert structure(again.ir) == structure(other), text
        assert "IX204" not in codes(again), text
        names = [name for name in program.definitions if name in again.definitions]
        assert answer(program, case.arrays, names) == answer(again, case.arrays, names), text


# ---------------------------------------------------------------------- constants


@pytest.mark.parametrize(
    ("value", "alone", "beside"),
    [
        (Fraction(2), "2.0", "2"),
        (Fraction(-2), "-2.0", "-2"),
        (Fraction(1, 4), "0.25", "0.25"),
        (Fraction(-3, 8), "-0.375", "-0.375"),
        (Fraction(1, 3), "1.0 / 3", "1.0 / 3"),
        (Fraction(-22, 7), "-22.0 / 7", "-22.0 / 7"),
        (Fraction(1, 10**5), "1e-5", "1e-5"),
        (Fraction(123, 10**9), "1.23e-7", "1.23e-7"),
        (Fraction(1, 10**4), "0.0001", "0.0001"),
        (Fraction(10**30), "1e30", "1e30"),
        (Fraction(10**30 + 1), "1.000000000000000000000000000001e30", None),
        (Fraction(0.1), None, None),
        (Fraction(2**70, 3**20), None, None),
    ],
)
def test_constants_are_exact(value: Fraction, alone: str | None, beside: str | None) -> None:
    number = build.real(value, NOWHERE)
    program = of_body("input x[i]; let y[i] = x[i];", lambda body: build.apply("*", (body, number), "real", NOWHERE))
    product = written(program)
    single = written(of_body("input x[i]; let y[i] = x[i];", lambda _: number))
    if alone is not None:
        assert f"= {alone};" in single
    if beside is not None:
        assert f"x[i] * {beside};" in product or f"x[i] * ({beside});" in product
    assert exact_value(single) == value


def exact_value(text: str) -> Fraction:
    """What the only definition of a text says, worked out exactly."""

    def value(expr: ir.Expr) -> Fraction:
        match expr:
            case ir.Const(number):
                return Fraction(number)
            case ir.Map("neg", (operand,)):
                return -value(operand)
            case ir.Map("/", (left, right)):
                return value(left) / value(right)
        raise AssertionError(expr)

    return value(ix.compile(text).ir.lets[0].clauses[0].body)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("(x[i] + 1.0) ** 2.0", "(x[i] + 1) ** 2"),
        ("-x[i] ** 2", "-x[i] ** 2"),
        ("(-x[i]) ** 2", "(-x[i]) ** 2"),
        ("(x[i] ** 2) ** 3", "(x[i] ** 2) ** 3"),
        ("x[i] ** (2 ** 3)", "x[i] ** 2 ** 3"),
        ("x[i] ** -1", "x[i] ** -1"),
        ("max(x[i], -0.0) * -2.0", "max(x[i], -0.0) * -2"),
        ("x[i] - (x[i] - x[i])", "x[i] - (x[i] - x[i])"),
        ("(x[i] * x[i]) / x[i]", "x[i] * x[i] / x[i]"),
        ("x[i] * (x[i] / x[i])", "x[i] * (x[i] / x[i])"),
        ("x[i] * (i / 2 as f64)", "x[i] * (i / 2 as f64)"),
        ("x[i] * ((i / 2) as f64)", "x[i] * (i / 2) as f64"),
        ("max(x[i], 0.0)", "max(x[i], 0)"),
        ("max(1.0, 2.0) * 3.0", "max(1.0, 2.0) * 3"),
        ("if 0 <= i && i < 3 { x[i] } else { 0.0 }", "if 0 <= i < 3 { x[i] } else { 0.0 }"),
        ("1.0 / 3.0 * x[i]", "1.0 / 3 * x[i]"),
        ("[0.5, 1.0, 2.0][min(i, 2)]", "[0.5, 1.0, 2.0][min(i, 2)]"),
        ("~0.50 * x[i]", "~0.50 * x[i]"),
        ("~-3 * x[i]", "~-3 * x[i]"),
        ("x[i] as f32 as f64", "x[i] as f32 as f64"),
        ("!(i < 2) as f64", "!(i < 2) as f64"),
    ],
)
def test_expressions(body: str, shown: str) -> None:
    text = check_written(ix.compile(f"input x[i]; let y[i] = {body};"))
    assert shown in text


# ------------------------------------------------------- what a transform may make


def of_body(text: str, change: Any) -> ir.Program:
    """A program whose last definition has another body."""
    program = ix.compile(text).ir
    let = program.lets[-1]
    clause = replace(let.clauses[0], body=change(let.clauses[0].body))
    last = replace(let, clauses=(clause,), kind=clause.body.type.kind)
    return replace(program, lets=(*program.lets[:-1], last), order=())


def size(name: str) -> ir.Expr:
    return build.size(Coordinate(name), NOWHERE)


def apply(op: str, *arguments: ir.Expr, kind: Kind = "real") -> ir.Expr:
    return build.apply(op, arguments, kind, NOWHERE)


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (lambda x: apply("/", size("i"), size("j")), "1.0 * size(i) / size(j)"),
        (lambda x: apply("*", x, apply("/", size("i"), size("j"))), "x[i, j] * (1.0 * size(i) / size(j))"),
        (lambda x: apply("/", build.whole(3, NOWHERE), size("j")), "3.0 / size(j)"),
        (lambda x: apply("*", x, apply("*", size("i"), size("j"))), "x[i, j] * (size(i) * size(j))"),
        (lambda x: apply("exp", apply("+", size("i"), size("j"))), "exp(1.0 * (size(i) + size(j)))"),
        (lambda x: apply("neg", size("i")), "1.0 * -size(i)"),
        (lambda x: apply("//", size("i"), size("j"), kind="whole"), "size(i) / size(j)"),
        (
            lambda x: build.select(apply(">", x, build.real(Fraction(0), NOWHERE), kind="bool"), x, x, NOWHERE),
            "x[i, j] > 0",
        ),
    ],
)
def test_kinds_are_kept(made: Any, shown: str) -> None:
    program = of_body("input x[i, j]; let y[i, j] = x[i, j];", made)
    text = written(program)
    assert shown in text
    again = ix.compile(text)
    assert again.ir.lets[-1].kind == program.lets[-1].kind
    assert written(again.ir) == text


def test_bound_coordinate_steps_aside_for_the_size_of_an_input() -> None:
    """Here `d` has 2 points, and the size that is asked for is that of the inputs' `d`."""
    text = "input x[d]; let y[d in 0..2] = x[d] * 1.0;"
    program = of_body(text, lambda body: apply("*", body, apply("sqrt", size("d"))))
    assert "let y[d_1 in 0..2] = x[d_1] * 1 * sqrt(size(d));" in written(program)


def test_inner_coordinate_steps_aside_too() -> None:
    program = of_body(
        "input x[d]; let y = sum[d in 0..2](x[d]);",
        lambda body: replace(body, body=apply("*", body.body, apply("sqrt", size("d")))),
    )
    assert "sum[d_1 in 0..2](x[d_1] * sqrt(size(d)))" in written(program)


def test_definition_guarded_and_normalised_over_one_coordinate() -> None:
    text = check_written(ix.compile("input s[i, j]; let w[i, j] = (softmax[j](s[i, j])) where j <= i;"))
    assert "let w[i, j] = (softmax[j](s[i, j])) where j <= i;" in text
    text = check_written(ix.compile("input s[i, j]; let w[i, j] = softmax[j](s[i, j]) where j <= i;"))
    assert "let w[i, j] = softmax[j](s[i, j]) where j <= i;" in text
    text = check_written(ix.compile("input s[i, j]; let w[i, j] = softmax[j](s[i, j] where i > 0);"))
    assert "let w[i, j] = softmax[j](s[i, j] where i > 0);" in text
    both = "input s[i, j]; let w[i, j] = (softmax[j](s[i, j] where j < 3)) where j <= i;"
    text = check_written(ix.compile(both))
    assert "let w[i, j] = (softmax[j](s[i, j] where j < 3)) where j <= i;" in text


def test_captured_coordinate_that_starts_later() -> None:
    program = ix.compile(
        """
        input x[t, m];
        let h[0, m] = x[0, m];
        let h[t in 1..size(t), m] = { let total = sum[m](h[t - 1, m]); total * x[t, m] };
        """
    )
    text = check_written(program, {"x": np.arange(12.0).reshape(4, 3)})
    assert "let h_total[t]            = sum[m](h[t - 1, m]) where t >= 1;" in text


def test_inputs_of_different_lengths_have_different_coordinates() -> None:
    program = ix.compile("input x[i]; let y[i in 0..size(i) + 1] = 1.0; let z = sum[i](x[i] * y[0]);").ir
    span = program.lets[0].span
    cotangent = ir.Input("d_y", program.lets[0].axes, "real", None, span)
    text = written(replace(program, inputs=(*program.inputs, cotangent), order=()))
    assert "input x[i], d_y[i_1 in 0..size(i) + 1];" in text


def test_constants_are_written_out_in_the_sizes_of_inputs() -> None:
    program = ix.compile("input x[i]; let steps = 3; let y[t in 0..=steps] = x[0] * t;").ir
    cotangent = ir.Input("d_y", program.lets[-1].axes, "real", None, program.lets[-1].span)
    text = written(replace(program, inputs=(*program.inputs, cotangent), order=()))
    assert "d_y[t in 0..4];" in text
    ix.compile(text)


def test_size_with_a_name_keeps_it() -> None:
    text = check_written(ix.compile("input y[i, j]; let n = size(j); let z[j in 0..n, i] = y[i, j];"))
    assert "let z[j in 0..n, i] = y[i, j];" in text


def test_hidden_names_are_made_legal_and_free() -> None:
    program = ix.compile("input x[i]; let a[i] = x[i] + 1; let i_sum = sum[i](a[i]);").ir
    strange = {"a": "max"}

    def changed(expr: ir.Expr) -> ir.Expr:
        return build.read(strange.get(expr.tensor, expr.tensor), expr.indices, "real", NOWHERE)

    first = replace(program.lets[0], name="max", hidden=True)
    last = program.lets[1]
    body = last.clauses[0].body
    assert isinstance(body, ir.Reduce)
    clause = replace(last.clauses[0], body=replace(body, body=changed(body.body)))
    text = written(replace(program, lets=(first, replace(last, clauses=(clause,))), order=()))
    assert "let max_[i] = x[i] + 1;" in text
    assert [found.code for found in ix.compile(text).diagnostics] == []


def test_kind_of_an_input_that_nothing_asks_for_any_more() -> None:
    program = ix.compile("input x[i], p[i]; let y[i] = x[p[i]];").ir
    assert "input x[i], p[i];" in written(program)
    text = written(of_program(program, lambda body: build.read("p", body.indices[0].indices, "whole", NOWHERE)))
    assert "p[i] : i64" in text


def of_program(program: ir.Program, change: Any) -> ir.Program:
    let = program.lets[-1]
    clause = replace(let.clauses[0], body=change(let.clauses[0].body))
    last = replace(let, clauses=(clause,), kind=clause.body.type.kind)
    return replace(program, lets=(*program.lets[:-1], last), order=())


def test_function_applied_in_another_space_than_its_letters_say() -> None:
    program = ix.compile(
        """
        space position(i), feature(d);
        input x[i, d];
        fn total(g[i]) { sum[i](g[i]) }
        fn centred(g[i]) -> [i] { let middle = mean[i](g[i]); g[i] - middle }
        input bias[d];
        let y[i, d] = x[i, d] + centred(bias)[d] * total(bias);
        """
    )
    text = check_written(program, {"x": np.ones((2, 3)), "bias": np.arange(3.0)})
    assert "mean[i_1](bias[i_1])" in text


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("input x[i]; let y[i] = x[i];", lambda body: apply("*", body, size("gone"))),
        (
            "input x[..r]; let y[..r] = x[..r];",
            lambda body: apply("*", body, build.size(Coordinate("r", True), NOWHERE)),
        ),
        ("input x[..r]; let y[..r] = x[..r];", lambda body: apply("*", body, body.indices[0])),
    ],
)
def test_what_the_language_has_no_words_for(text: str, made: Any) -> None:
    with pytest.raises(Unwritable):
        written(of_body(text, made))


# ------------------------------------------------------------------------ reading


def test_remark_silences_what_it_stands_behind() -> None:
    program = ix.compile(
        """
        input Q[i, d], K[j, d], V[j, e], d_out[i, e];
        let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
        let d_V[j, e] = sum[i](weights[i, j] * d_out[i, e]);
        let out[i, e] = sum[j](weights[i, j] * V[j, e]);
        """
    )
    assert codes(program) == {"IX402"}
    text = written(program.ir, {"d_V": "// allow(IX402): transpose of the gather"})
    assert "d_out[i, e]);  // allow(IX402): transpose of the gather\n" in text
    assert codes(ix.compile(text)) == set()
    assert format_source(parse(Source("<text>", text), Sink())) == text


def test_expectations_and_what_only_they_read_are_left_out() -> None:
    text = check_written(
        ix.compile("input x[i]; let y = sum[i](x[i] * 1); let z = y * 0; output y; expect z == 0;"),
        {"x": np.ones(3)},
    )
    assert "z" not in text


def test_multi_head_attention_from_the_library() -> None:
    program = ix.compile(
        """
        use std::layers::{causal_multi_head_attention};
        space batch(b), position(i), model(m), head(h), feature(d, e);
        input X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e], W_O[h, e, m];
        let heard = causal_multi_head_attention(X, W_Q, W_K, W_V, W_O);
        """
    )
    assert (
        check_written(program)
        == """\
space batch(b), position(i), model(m), head(h), feature(d, e);

input X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e], W_O[h, e, m];

let heard_Q[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]);
let heard_K[b, h, i, d] = sum[m](X[b, i, m] * W_K[h, m, d]);
let heard_V[b, h, i, d] = sum[m](X[b, i, m] * W_V[h, m, d]);
let heard_scaled_scores[b, h, i, j] =
    sum[d](heard_Q[b, h, i, d] * heard_K[b, h, j, d]) / sqrt(size(d));
let heard_weights[b, h, i, j] = softmax[j](heard_scaled_scores[b, h, i, j]) where j <= i;
let heard_O[b, h, i, e]       = sum[j](heard_weights[b, h, i, j] * heard_V[b, h, j, e]);
let heard[b, i, n]            = sum[h, e](heard_O[b, h, i, e] * W_O[h, e, n]);

output heard;
"""
    )
