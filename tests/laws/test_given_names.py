"""What a program calls its inputs, definitions and coordinates does not matter to emitted code, whatever words this has
uses for: Python's, those of its libraries, of its kernels and small functions, and those of its own variables."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.scalars import Case, cases
from tests.laws.test_scalars import arguments, assert_same, loaded, outputs, with_gradients
from tests.pairs import ALL, called_few
from tests.profiles import examples

import indexical as ix
from indexical.backends.old.base import dialect_of
from indexical.engine.kernel_texts import reserved
from indexical.syntax.tokens import KEYWORDS
from indexical.syntax.vocabulary import DTYPES, WORDS

torch = pytest.importorskip("torch")

WORD = re.compile(r"[^\W\d]\w*")
OURS = WORDS | KEYWORDS | {*DTYPES}
LIBRARIES = "torch np jnp jax math functools triton tl F Fraction Refused program device self".split()
ODD = "_ __ ___ a__b part__1 place__1 x_2 n_i n_h rows_ r0_ dict_ lead_r".split()


@cache
def words(backend: str) -> list[str]:
    """Names that emitted code may have a use for, whatever the program."""
    known = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *reserved(backend), *dialect_of(backend).helpers}
    return sorted(name for name in {*known, *LIBRARIES, *ODD} - OURS if name.isidentifier())


def words_in(text: str) -> list[str]:
    """The names in an emitted text, but for what its kernels have inside."""
    tree = ast.parse(text)
    functions = [part for part in tree.body if isinstance(part, ast.FunctionDef)]
    program = next(function for function in functions if function.name == "program")
    read = {part.id for part in ast.walk(program) if isinstance(part, ast.Name)}
    called = [function for function in functions if function.name in read or function.name.startswith("out_")]
    found = {part.id for each in called for part in ast.walk(each) if isinstance(part, ast.Name)}
    found |= {part.arg for each in called for part in ast.walk(each) if isinstance(part, ast.arg)}
    return sorted({*read, *found, *(function.name for function in functions)} - OURS)


def renamed(case: Case, found: Sequence[str], backend: str, data: st.DataObject) -> tuple[str, dict[str, str]]:
    """The text of a program in which some names are others, and what became of them."""
    own = sorted({*WORD.findall(case.text)} - OURS)
    free = sorted({*words(backend), *found} - {*own})
    often = sorted({*found} - {*own})
    some = data.draw(st.lists(st.sampled_from(own), min_size=1, unique=True))
    new = data.draw(
        st.lists(st.sampled_from(often) | st.sampled_from(free), min_size=len(some), max_size=len(some), unique=True)
    )
    names = dict(zip(some, new, strict=True))
    return WORD.sub(lambda word: names.get(word[0], word[0]), case.text), names


@given(cases(), st.data())
def test_names_do_not_matter_to_pytorch(case: Case, data: st.DataObject) -> None:
    with called_few(data.draw(st.sampled_from((0, ALL)))):
        plain = ix.compile(case.text)
        forms = {name: data.draw(st.sampled_from(("number", "learned"))) for name in case.scalars}
        given = arguments(case, plain, forms)
        text, names = renamed(case, words_in(plain.source(*given, backend="torch")), "torch", data)
        program = ix.compile(text)
        values, flows = with_gradients(lambda *each: plain(*each, backend="torch"), given)
        emitted = loaded(program.source(*given, backend="torch"))
        for way in (lambda *each: program(*each, backend="torch"), emitted):
            found, found_flows = with_gradients(way, given)
            for ours, theirs in zip((*found, *found_flows), (*values, *flows), strict=True):
                assert_same(ours, theirs, f"{text}\n{names}")


@pytest.mark.parametrize("name", ["d_score", "flow", "part", "gradients"])
def test_an_array_may_be_called_as_a_variable_of_the_way_back(name: str) -> None:
    text = "input Q[i, d], K[j, d], V[j, e]; let w[i, j] = sigmoid(sum[d](Q[i, d] * K[j, d]) - 0.5) where j <= i;"
    text += "let out[i, e] = sum[j](w[i, j] * V[j, e]);"
    given = list(torch.linspace(-1.0, 2.0, 45, dtype=torch.float64).sin().reshape(3, 5, 3))
    given = [array.requires_grad_() for array in given]
    with called_few(0):
        plain, other = ix.compile(text), ix.compile(text.replace("K[", f"{name}["))
        (value,), flows = with_gradients(lambda *each: plain(*each, backend="torch"), given)
        (found,), found_flows = with_gradients(lambda *each: other(*each, backend="torch"), given)
    for ours, theirs in zip((found, *found_flows), (value, *flows), strict=True):
        assert_same(ours, theirs, name)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_definition_may_be_called_as_the_kernel_that_computes_it(backend: str) -> None:
    text = "input Q[i, d], K[j, d], V[j, e];"
    text += "let chunk_products[i, e] = sum[j](sum[d](Q[i, d] * K[j, d]) * V[j, e] where j <= i);"
    program = ix.compile(text)
    given = np.sin(np.arange(54.0)).reshape(3, 6, 3)
    assert "chunk_products(" in program.source(*given, backend=backend)
    np.testing.assert_allclose(program(*given, backend=backend), program(*given, backend="reference"))


@given(cases(), st.data())
def test_names_do_not_matter_to_numpy(case: Case, data: st.DataObject) -> None:
    check("numpy", case, data)


@examples(0.2)
@given(cases(), st.data())
def test_names_do_not_matter_to_jax(case: Case, data: st.DataObject) -> None:
    pytest.importorskip("jax")
    check("jax", case, data)


def check(backend: str, case: Case, data: st.DataObject) -> None:
    """A program under other names gives what the reference says of it, called and emitted."""
    plain = ix.compile(case.text)
    given: list[Any] = [*case.arrays.values(), *case.scalars.values()]
    text, names = renamed(case, words_in(plain.source(*given, backend=backend)), backend, data)
    program = ix.compile(text)
    values = outputs(plain(*given, backend="reference"))
    for found in (program(*given, backend=backend), loaded(program.source(*given, backend=backend))(*given)):
        for ours, theirs in zip(outputs(found), values, strict=True):
            assert_same(ours, theirs, f"{text}\n{names}")
