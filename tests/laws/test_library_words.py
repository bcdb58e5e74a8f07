"""Laws of names: a program whose tensors and coordinates are called like words of the library means what it meant, in
every backend, as a derivative, as text and as emitted source."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from random import Random
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.laws.agreement import is_within
from tests.laws.derivable import Derivable, directed, generated
from tests.laws.derivable_texts import FAMILIES
from tests.laws.programs import Case, cases
from tests.laws.test_backends import BACKENDS, Call, check

import indexical as ix
from indexical.diagnostics import Sink
from indexical.run.samples import random_arrays
from indexical.source import Source
from indexical.syntax import tree
from indexical.syntax.format import format_source
from indexical.syntax.parse import parse
from indexical.syntax.tokens import tokenize
from indexical.syntax.vocabulary import LIBRARY

Array = np.ndarray[Any, Any]


def statements(text: str) -> tuple[tree.Statement, ...]:
    return parse(Source("test", text), Sink()).statements


def names_in(text: str) -> list[str]:
    """The names that a text gives: of tensors, parameters and coordinates, and of no function."""
    nodes = [node for statement in statements(text) for node in tree.walk(statement)]
    functions = {node.name for node in nodes if isinstance(node, tree.Fn)}
    named = tree.InputItem | tree.Let | tree.Parameter | tree.Binder
    return [name for name in dict.fromkeys(n.name for n in nodes if isinstance(n, named)) if name not in functions]


def drawn_names(text: str, words: Collection[str], seed: int) -> dict[str, str]:
    """Words of the library for some of the names of a text."""
    chance = Random(seed)
    old, new = names_in(text), sorted(words)
    chance.shuffle(old)
    chance.shuffle(new)
    return dict(zip(old[: chance.randint(1, len(old))], new, strict=False))


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with other names, token by token."""
    tokens, _ = tokenize(Source("test", text), Sink())
    for token in reversed(tokens):
        if token.kind == "name" and token.text in names:
            text = text[: token.start] + names[token.text] + text[token.end :]
    return text


@given(cases(), st.integers(0, 10**6))
def test_words_of_the_library_are_names_like_others(case: Case, seed: int) -> None:
    assume(is_within(case))
    names = drawn_names(case.text, LIBRARY - set(re.findall(r"\w+", case.text)), seed)
    text = renamed(case.text, names)
    laid_out = format_source(parse(Source("test", text), Sink()))
    assert statements(laid_out) == statements(text), text
    called = Call(text, {names.get(name, name): array for name, array in case.arrays.items()})
    plain = Call(case.text, case.arrays)
    assert (called.wanted is None) == (plain.wanted is None), text
    for name, value in (plain.wanted or {}).items():
        assert called.wanted is not None
        np.testing.assert_array_equal(called.wanted[names.get(name, name)], value, err_msg=text)
    for backend in BACKENDS:
        check(called, backend, isolate=called.is_loud)


def derivable(number: int) -> Derivable | None:
    return directed(number) if number < len(FAMILIES) else generated(number)


def values(program: ix.Program, given: Mapping[str, Array]) -> list[Array] | None:
    """The value of every output; None where the call is refused."""
    try:
        found = program(**given)
    except ix.CallError:
        return None
    return list(found) if len(program.outputs) > 1 else [found]


@given(st.integers(0, len(FAMILIES) + 400).map(derivable), st.integers(0, 10**6))
def test_derivatives_apply_words_that_are_also_names(case: Derivable | None, seed: int) -> None:
    """The names may be words that the program applies, or its derivative alone."""
    assume(case is not None)
    assert case is not None
    names = drawn_names(case.text, LIBRARY, seed)
    program = ix.compile(renamed(case.text, names))
    try:
        wanted = ix.grad(ix.compile(case.text), of=case.of, by=case.by)
    except ix.CallError:
        assume(False)
    found = ix.grad(program, of=names.get(case.of, case.of), by=[names.get(name, name) for name in case.by])
    read = ix.compile(found.source_text)
    assert (read.inputs, read.outputs) == (found.inputs, found.outputs), found.source_text
    given = {**random_arrays(wanted._program, case.arrays, {}, 0)[0].arrays, **case.arrays}
    theirs = {mine: given[name] for mine, name in zip(found.inputs, wanted.inputs, strict=True)}
    expected = values(wanted, given)
    for derived in (found, read):
        mine = values(derived, theirs)
        assert (mine is None) == (expected is None), found.source_text
        for one, other in zip(mine or (), expected or (), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=found.source_text)
