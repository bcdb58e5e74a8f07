"""One mistake, one finding, under the right words. Each text has nothing else wrong with it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checker.reporting import findings

import indexical as ix

MISTAKES = {
    # Names.
    "unknown tensor": ("input x[i]; let y[i] = z[i];", "IX201", "z"),
    "unknown scalar": ("let y = n + 1;", "IX201", "n"),
    "unbound coordinate": ("input x[i, j]; let y[i] = x[i, j];", "IX201", "j"),
    "unknown function": ("input x[i]; let y[i] = exq(x[i]);", "IX201", "exq"),
    "unknown output": ("input x[i]; let y[i] = x[i]; output z;", "IX201", "z"),
    "unknown size": ("input x[i]; let y[i] = x[i] / size(k);", "IX201", "k"),
    "unknown rest": ("input x[..r]; let y = x[..s];", "IX201", "..s"),
    "unknown contract": ("input x[i]; let y[i] = x[i]; attention z(query i);", "IX201", "z"),
    "input twice": ("input x[i], x[j]; let y = 1;", "IX202", "x"),
    "input and definition": ("input x[i]; let x[i] = 1;", "IX202", "x"),
    "two scalars": ("let a = 1; let a = 2;", "IX202", "a"),
    "two spaces": ("space p(i), q(i); input x[i]; let y[i] = x[i];", "IX202", "i"),
    "two parameters": ("fn f(x, x) { x } let y = f(1, 2);", "IX202", "x"),
    "reserved": ("let sum = 1;", "IX203", "sum"),
    "reserved coordinate": ("let y[max in 0..3] = 1;", "IX203", "max in 0..3"),
    "hidden coordinate": ("input x[i]; let y[i] = sum[i](x[i]);", "IX204", "i"),
    "hidden scalar": ("let i = 1; input x[j]; let y = i + sum[i in 0..3](i);", "IX204", "i in 0..3"),
    "too few indices": ("input x[i, j]; let y[i] = x[i];", "IX205", "x[i]"),
    "too many indices": ("input x[i]; let y[i] = x[i, i];", "IX205", "x[i, i]"),
    "explicit read of rest": ("input x[..r, i]; let y[b in 0..2, i] = x[b, i];", "IX205", "x"),
    "clauses of two ranks": ("let f[0] = 1; let f[i in 1..3, j in 0..2] = 2;", "IX205", "f"),
    "rank of an argument": ("fn f(x[i]) { sum[i](x[i]) } input a[i, j]; let y = f(a);", "IX205", "a"),
    "arguments of exp": ("let y = exp(1, 2);", "IX206", "exp(1, 2)"),
    "arguments of max": ("let y = max(1);", "IX206", "max(1)"),
    "arguments of a function": ("fn f(a, b) { a + b } let y = f(1);", "IX206", "f(1)"),
    "size of an expression": ("input x[i]; let y[i] = x[i] / size(i + 1);", "IX206", "size(i + 1)"),
    "unknown module": ("use std::nonsense::{f}; let y = 1;", "IX207", "std::nonsense"),
    "recursive function": ("fn f(a) { f(a) } let y = f(1);", "IX208", "f(a)"),
    "recursive abbreviation": ("let y = z where z = z + 1;", "IX208", "z"),
    "scalar defined by itself": ("let y = y + 1;", "IX208", "y"),
    "bare tensor": ("input x[i]; let y = x * 2;", "IX209", "x"),
    "tensor result": ("fn f(x[i]) -> [i] { x[i] } input a[i]; let y = f(a) + 1;", "IX209", "f(a)"),
    "index of a number": ("let a = 1; let y = sum[i in 0..3](i[0]);", "IX209", "i"),
    "array as a number": ("let y = 1 + [1, 2];", "IX209", "[1, 2]"),
    "masked": ("let y = masked;", "IX209", "masked"),
    "normaliser without survivor": ("input x[i]; let y = softmax[i](x[i]);", "IX210", "i"),
    "twice on the left": ("input x[i]; let y[i, i] = x[i];", "IX211", "i"),
    "twice in a reduction": ("input x[i]; let y = sum[i, i](x[i]);", "IX211", "i"),
    "two takers": ("input a[j], b[j]; let y = sum[j](a[j]) + sum[j](b[j]) where j > 0;", "IX212", "j > 0"),
    "taker deeper inside": ("input a[j]; let y = sqrt(sum[j](a[j])) where j > 0;", "IX212", "j > 0"),
    "rest of two ranks": ("input a[i, j], b[i]; let y = sum[..r](a[..r] * b[..r]);", "IX213", "..r"),
    "rest not leading": ("input a[i, j]; let y[i, j in 0..2] = a[i, ..r];", "IX213", "..r"),
    "derivative": ("input x; let y = floor(x); let z = @y / @x;", "IX218", "@y / @x"),
    "no output": ("let a[0] = 1; let a[t in 1..3] = b[t - 1]; let b[t in 0..3] = a[t];", "IX217", "b"),
    # Sizes.
    "no size": ("let y[k] = 1;", "IX301", "k"),
    "no size from a sum": ("input x[n]; let y = sum[i, k in 0..2](x[i + k]);", "IX301", "i"),
    "range over a coordinate": ("input x[i]; let y[i, j in 0..i] = x[i];", "IX302", "i"),
    "range over data": ("input x[i] : i64; let y = sum[j in 0..x[0]](j);", "IX302", "x[0]"),
    "range of an input": ("input x[i in 1..3]; let y[i] = x[i];", "IX302", "1"),
    "literals of two sizes": ("let a[i] = [1, 2]; let b[i] = [1, 2, 3]; let y[i] = a[i] + b[i];", "IX304", "i"),
    "below": ("input a[i]; let y[i] = a[i - 1];", "IX305", "i - 1"),
    "past the end": ("input a[i]; let y[i] = a[i + 1];", "IX305", "i + 1"),
    "past a literal": ("let y[i in 0..3] = [1, 2][i];", "IX305", "i"),
    "partly guarded": ("input a[i]; let y[i] = a[i + 1] where i >= 0;", "IX305", "i + 1"),
    "in one of two cases": ("input a[i]; let y[i] = a[i - 1] where i == 2 || i <= 0;", "IX305", "i - 1"),
    "inside a normaliser": ("input a[j]; let y[j] = softmax[j](a[j - 1]);", "IX305", "j - 1"),
    "gap": ("let f[0] = 1; let f[n in 2..5] = 2;", "IX306", "f"),
    "no base case": ("let f[n in 1..5] = f[n - 1] + 2;", "IX306", "f[n - 1]"),
    "before the first": ("let f[n in 1..5] = 2; let y = f[0];", "IX305", "0"),
    "two beginnings": ("input x[n]; let f[n in 1..5] = 2; let y[n] = f[n] + x[n];", "IX304", "n"),
    "gap in two coordinates": ("let f[0, i in 0..4] = 1; let f[t in 1..3, 0] = 2;", "IX306", "f"),
    "overlap": ("let f[0] = 1; let f[n in 0..5] = 2;", "IX307", "let f[n in 0..5] = 2;"),
    "reads itself": ("let f[n in 0..5] = f[n] + 1;", "IX308", "f[n]"),
    "reads both ways": (
        "let f[0] = 1; let f[4] = 1; let f[n in 1..4] = f[n - 1] + f[n + 1];",
        "IX308",
        "f[n - 1]",
    ),
    "round in a circle at one step": (
        "let a[0] = 1.0; let b[s in 1..3] = a[s]; let c[s in 1..3] = 2 * b[s]; let a[s in 1..3] = c[s]; output a;",
        "IX308",
        "c[s]",
    ),
    "ahead by as much as back": (
        "let a[0] = 1.0; let b[s in 1..5] = a[s - 1] + 1; let c[s in 2..4] = b[s + 1];"
        "let a[s in 1..5] = b[s] + (if 2 <= s && s < 4 { c[s] } else { 0.0 }); output a;",
        "IX308",
        "b[s + 1]",
    ),
    "itself beside others in order": (
        "let a[0] = 1.0; let b[s in 1..3] = a[s - 1]; let c[s in 1..3] = 2 * b[s]; let a[s in 1..3] = c[s] + a[s];"
        "output a;",
        "IX308",
        "a[s]",
    ),
    "name in a literal": ("let a = 2.0; let q[k] = [a, 1.0];", "IX101", "a"),
    "coordinate in a literal": ("let q[k] = [1, 2 * k];", "IX101", "k"),
    "element in a literal": ("let a[i] = [1]; let q[k] = [sqrt(a[0]), 1.0];", "IX101", "a[0]"),
    "size in a literal": ("input x[i]; let q[k] = [size(i), 2];", "IX101", "size(i)"),
    "reduction in a literal": ("let q[k] = [sum[j in 0..3](j), 2];", "IX101", "sum[j in 0..3](j)"),
    "row that is read in a literal": ("let q[k] = [[1, 2][0], 3];", "IX101", "[1, 2][0]"),
    "expression that was printed": ("let q[k] = ~[1 / 3.0, 0.5];", "IX101", "1 / 3.0"),
    "Boolean and number in a literal": ("let q[k] = [true, 1 + 1];", "IX351", "[true, 1 + 1]"),
    # Kinds.
    "quotient in a literal": ("let q[k] = [1 / 2, 6 / 3];", "IX352", "1 / 2"),
    "quotient beside a real in a literal": ("let q[k] = [1 / 2, 0.5];", "IX352", "1 / 2"),
    "real index": ("input a[i]; let y[i] = a[i * 1.0];", "IX351", "i * 1.0"),
    "real guard": ("input a[i]; let y = sum[i](a[i] where a[i] + 1);", "IX351", "a[i] + 1"),
    "sum of Booleans": ("input a[i]; let y = sum[i](a[i] > 0);", "IX351", "a[i] > 0"),
    "Boolean times real": ("input a[i]; let y[i] = a[i] * (i > 0);", "IX351", "i > 0"),
    "branches": ("let y[i in 0..3] = if i > 0 { 1 } else { true };", "IX351", "{ 1 }"),
    "negative power": ("let y = 2 ** -1;", "IX351", "-1"),
    "whole and Boolean": ("input p[i], a[j]; let y[i] = a[p[i]] where p[i];", "IX351", "p[i]"),
    "quotient": ("let y = 2.5 * (7 / 2);", "IX352", "7 / 2"),
    "quotient in a root": ("input x[i]; let y[i] = x[i] / sqrt(size(i) / 2);", "IX352", "size(i) / 2"),
    "never true": ('let n = 3; assert n > 4, "n is large";', "IX506", "n > 4"),
    "allow that silences nothing": ("let y = 1; // allow(IX204): nothing", "IX214", "// allow(IX204): nothing"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_one_mistake_is_one_finding(name: str) -> None:
    text, code, under = MISTAKES[name]
    found = findings(text)
    assert [entry[0] for entry in found] == [code], found
    if name not in ("branches", "reads both ways"):
        assert found[0][1] == under


RIGHT = {
    "rebinding within a space": "space p(i, j); input x[i]; let y[i, j] = x[i] * x[j];",
    "same letter, other size": "input x[i], y[j]; let a = sum[k](x[k]); let b = sum[k](y[k]);",
    "disjoint reductions": "input x[i], y[j]; let a = sum[k](x[k]) + sum[k](y[k]);",
    "figures as inputs": "let x[t] = [1, 2, 3]; let h[0] = 0; let h[t in 1..size(t)] = h[t - 1] + x[t];",
    "guarded shift": "input x[i]; let y[i] = if i > 0 { x[i - 1] } else { 0 };",
    "guarded by and": "input x[i]; let y[i] = (if i > 0 && x[i - 1] > 0 { 1 } else { 0 });",
    "guarded by or": "input x[i]; let y[i] = (if i == 0 || x[i - 1] > 0 { 1 } else { 0 });",
    "guarded by a named guard": "input x[i]; let inner[i] = i >= 1; let y[i] = x[i - 1] where inner[i];",
    "packed heads": "input x[m in 0..12]; let y[h in 0..3, d in 0..4] = x[h * 4 + d];",
    "unpacked heads": "input x[h in 0..3, d in 0..4]; let y[m in 0..12] = x[m / 4, m % 4];",
    "packed heads, any size": "input x[h, d]; let y[m in 0..size(h) * size(d)] = x[m / size(d), m % size(d)];",
    "constant": "let D = 4; input x[m in 0..12]; let y[h in 0..3, d in 0..D] = x[h * D + d];",
    "half": "input x[d]; let y[d] = if d < size(d) / 2 { x[d + size(d) / 2] } else { x[d - size(d) / 2] };",
    "allowed": "let y = 2.5 * (7 / 2); // allow(IX352): truncation is meant",
    "allowed above": "// allow(IX352): truncation is meant\nlet y = 2.5 * (7 / 2);",
    "statements in any order": "let z[i] = y[i] + 1; let y[i] = x[i]; input x[i];",
    "scan of the past": "let f[0] = 1; let f[n in 1..6] = sum[m in 0..n](f[m]);",
    "backward": "input x[t]; let b[size(t) - 1] = 0.0; let b[t in 0..size(t) - 1] = b[t + 1] + x[t];",
    "absence in a sum": "input x[i, j]; let m[i, j] = x[i, j] where j <= i; let y[i] = sum[j](m[i, j]);",
    "absence under tanh": "input x[i]; let m[i] = x[i] where i > 0; let y[i] = tanh(m[i]) * 2;",
    "function, clashing coordinates": "fn f(x[i], s) { sum[i](x[i] * s) } input x[i]; let y[i] = f(x, x[i]);",
    "uncalled function": "fn f(x[i], k) -> [i] { x[i] * k where i >= 0 } let y = 1;",
}


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    assert findings(RIGHT[name]) == []


def test_every_mistake_of_a_file_is_found_at_once() -> None:
    text = """
input x[i], y[j];
let a[i] = x[j];
let b = sum[i](z[i]);
let c[i] = x[i - 1];
let d = c * 2;
let e[i] = 1 +;
let f[i] = e[i];
let g[i] = a[i] + b;
"""
    found = findings(text)
    assert [code for code, _ in found] == ["IX201", "IX201", "IX305", "IX209", "IX101"]


def test_a_mistake_in_a_function_is_shown_with_its_call() -> None:
    (found,) = ix.check("fn f(x[i]) { sum[i](x[i + 0.5]) }\ninput a[k];\nlet y = f(a);")
    assert found.code == "IX351"
    assert found.labels[0].span.text == "i + 0.5"


@pytest.mark.parametrize(
    ("text", "shape", "code"),
    [
        ("input a[i]; let y[i] = a[i + 1] where i > 0;", (2,), "IX305"),
        ("input a[j]; let y[j] = if j > 0 { softmax[j](a[j - 1]) } else { 0 };", (2,), "IX305"),
        ("input x[i]; let f[0, i] = x[i]; let f[t in 1..3, 0] = 1.0;", (2,), "IX306"),
    ],
)
def test_what_only_the_sizes_decide_is_found_in_the_run(text: str, shape: tuple[int, ...], code: str) -> None:
    program = ix.compile(text)
    assert program(np.ones((1,) * len(shape))).size
    with pytest.raises(ix.CallError) as raised:
        program(np.ones(shape))
    assert [found.code for found in raised.value.diagnostics] == [code]
