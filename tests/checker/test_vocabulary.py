"""The words that a program may use as names, those that it may not, and the programs that used them before."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import indexical as ix
from indexical.syntax.tokens import KEYWORDS
from indexical.syntax.vocabulary import FUNCTIONS, LIBRARY, NORMALISERS, REDUCTIONS, RESERVED

ROOT = Path(__file__).resolve().parents[2]
X = np.array([0.5, -1.25, 2.0])

# A word in every place where a name is given, in a program whose value is the same for all of them.
PLACES = {
    "input": "input {w}[i]; let out[i] = 2 * {w}[i];",
    "scalar input": "input x[i], {w}; let out[i] = x[i] * {w};",
    "definition": "input x[i]; let {w}[i] = x[i] + x[i]; let out[i] = {w}[i];",
    "several clauses": "input x[i]; let {w}[0] = 2 * x[0]; let {w}[i in 1..size(i)] = 2 * x[i]; let out[i] = {w}[i];",
    "constant": "input x[i]; let {w} = 2; let out[i] = x[i] * {w};",
    "whole tensor": "input x[i]; let {w} = x; let out[i] = 2 * {w}[i];",
    "coordinate": "input x[{w}]; let out[{w}] = 2 * x[{w}];",
    "summed coordinate": "input x[i]; let out[i] = sum[{w} in 0..2](x[i] + 0 * {w});",
    "space": "space place({w}); input x[{w}]; let out[{w}] = x[{w}] + x[{w}] * ({w} + 1) - x[{w}] * {w};",
    "function": "fn {w}(y) {{ 2 * y }} input x[i]; let out[i] = {w}(x[i]);",
    "function of a tensor": "fn {w}(y[i]) -> [i] {{ 2 * y[i] }} input x[i]; let out = {w}(x);",
    "parameter": "fn f({w}[i]) -> [i] {{ 2 * {w}[i] }} input x[i]; let out = f(x);",
    "scalar parameter": "fn f({w}) {{ 2 * {w} }} input x[i]; let out[i] = f(x[i]);",
    "local": "fn f(y[i]) -> [i] {{ let {w}[i] = 2 * y[i]; {w}[i] }} input x[i]; let out = f(x);",
    "abbreviation": "input x[i]; let out[i] = {w} * x[i] where {w} = 2;",
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("place", PLACES)
def test_words_of_the_library_are_free(place: str) -> None:
    for word in sorted(LIBRARY):
        text = PLACES[place].format(w=word)
        assert {found.code for found in ix.check(text)} <= {"IX220"}, text
        program = ix.compile(text)
        given = {name: 2.0 if place == "scalar input" and name == word else X for name in program.inputs}
        for backend in ("reference", "numpy", "torch"):
            np.testing.assert_allclose(np.asarray(program(**given, backend=backend)), 2 * X, err_msg=text)


@pytest.mark.parametrize("place", sorted(PLACES.keys() - {"abbreviation"}))
def test_reserved_words_are_not(place: str) -> None:
    for word in sorted(RESERVED):
        assert any(found.severity == "error" for found in ix.check(PLACES[place].format(w=word))), word
        assert [f.code for f in ix.check(f"input x[i]; let {word}[i] = x[i];")] == ["IX203"]


def test_the_reference_lists_the_words_that_are_reserved_for_good() -> None:
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    found = re.search(r"\*\*reserved for good\*\*[^:]*: the keywords `([^`]*)`, and `([^`]*)`", page)
    assert found is not None
    assert set(found[1].split()) == set(KEYWORDS)
    assert set(found[2].split()) == RESERVED
    free = re.search(r"\*\*library\*\*: `pi`, the normalisers `([^`]*)`, and the\selementwise functions but", page)
    assert free is not None
    assert {"pi", *free[1].split(), *FUNCTIONS} - {"max", "min"} == LIBRARY
    assert {*REDUCTIONS, *NORMALISERS} <= RESERVED | LIBRARY


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("input exp[i]; let out[i] = exp(exp[i]);", ["exp"]),
        ("input x[i]; let rank[i] = rank[i](x[i]); let out[i] = rank[i] + 1;", ["rank"]),
        ("fn gelu(x) { x } input x[i]; let out[i] = gelu(x[i]);", ["gelu"]),
        ("input x[log]; let out = sum[log](log(x[log]));", ["log"]),
        ("input exp[i], log[i]; let out[i] = sqrt(exp[i] * log[i]);", []),
        ("input x[i]; let out[i] = exp(x[i]); // exp is no name here", []),
        ("input pi; let out = 2 * pi;", []),
    ],
)
def test_a_note_says_which_is_meant(text: str, names: list[str]) -> None:
    found = [finding for finding in ix.check(text) if finding.code == "IX220"]
    assert [finding.severity for finding in found] == ["note"] * len(names)
    assert [finding.labels[0].span.text.split("[")[0] for finding in found] == names
    assert len(ix.check(text)) == len(found)


def test_a_tensor_hides_no_function_and_a_function_does() -> None:
    tensor = ix.compile("input exp[i]; let out[i] = exp(exp[i]);")
    np.testing.assert_allclose(tensor(X), np.exp(X))
    function = ix.compile("fn exp(x) { x + log1p(x * x) } input x[i]; let out[i] = exp(x[i]);")
    np.testing.assert_allclose(function(X), X + np.log1p(X * X))
    ranked = ix.compile("input x[i]; let rank[i] = rank[i](x[i]); let out[i] = x[rank[i]];")
    np.testing.assert_allclose(ranked(X), X[[1, 2, 0]])


def test_functions_of_another_file_keep_the_library() -> None:
    """The standard library applies its own words, whatever the program calls so."""
    text = """use std::norms::{layer_norm};
    fn sqrt(x) { x } fn rsqrt(x) { x } fn exp(x) { x }
    input x[i], gain[i], bias[i];
    let out = layer_norm(x, gain, bias, 1e-5);
    let same[i] = sqrt(x[i]) + rsqrt(x[i]) + exp(x[i]);"""
    out, same = ix.compile(text)(X, np.ones(3), np.zeros(3))
    np.testing.assert_allclose(out, (X - X.mean()) / np.sqrt(X.var() + 1e-5))
    np.testing.assert_allclose(same, 3 * X)


@pytest.mark.parametrize("name", ["input pi[i], x[i];", "input x[i]; let pi[i] = x[i];", "input x[pi];"])
def test_pi_is_printed_where_a_tensor_is_called_so(name: str) -> None:
    index = "pi" if "x[pi]" in name else "i"
    text = f"fn turn() {{ pi }} {name} let out[{index}] = x[{index}] ** 2 * turn() * gelu(x[{index}]);"
    program = ix.compile(text)
    derived = ix.grad(program, of="out", by="x")
    read = ix.compile(derived.source_text)
    given = {name: X if name != "d_out" else np.ones(3) for name in derived.inputs}
    plain = ix.grad(ix.compile("input x[i]; let out[i] = x[i] ** 2 * pi * gelu(x[i]);"), of="out", by="x")
    for one in (derived, read):
        np.testing.assert_allclose(one(**given), plain(X, np.ones(3)), rtol=1e-12)


# ------------------------------------------------------------------- programs of all times

# The programs that were wrong on purpose, each with the codes of its errors.
WRONG = {
    "broken/batch_and_position_swapped": {"IX303"},
    "broken/groups_interleaved": {"IX425"},
    "broken/guard_on_wrong_pair": {"IX423"},
    "broken/guard_reversed": {"IX423"},
    "broken/query_and_key_swapped": {"IX422"},
    "broken/residual_at_key": {"IX424"},
}


def ever() -> list[tuple[str, str]]:
    """Every program that stood in `examples/` at some time, without its comments, and those that differ in nothing
    else only once; with its name there."""
    text = (Path(__file__).parent / "history.txt").read_text(encoding="utf-8")
    parts = re.split(r"^//// examples/(.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.sampled(0)
def test_every_example_of_all_times_compiles() -> None:
    programs = ever()
    assert len(programs) > 180
    for name, text in programs:
        stem = name.split("#")[0].rsplit(".", 1)[0]
        errors = {found.code for found in ix.check(text) if found.severity == "error"}
        assert errors == WRONG.get(stem, set()), f"{name}\n{text}"
