"""Relations as a reader would write them."""

from __future__ import annotations

import pytest

import indexical as ix


@pytest.mark.parametrize(
    ("guard", "hears"),
    [
        ("j <= i, j < 2 || i - j < 3", "j <= i and (j < 2 or i - j < 3)"),
        ("j < 2 || i - j < 3", "j < 2 or i - j < 3"),
        ("i < 1 || j <= i && (j < 2 || i - j < 3)", "i < 1 or j <= i and (j < 2 or i - j < 3)"),
        ("j <= i, j <= i", "j <= i"),
    ],
)
def test_choice_among_conditions_stands_in_parentheses(guard: str, hears: str) -> None:
    program = ix.compile(
        "input S[i, j], V[j, e];\n"
        f"let w[i, j] = softmax[j](S[i, j] where {guard});\n"
        "let out[i, e] = sum[j](w[i, j] * V[j, e]);\n"
    )
    assert program.roles[0].hears == hears
    assert program.facts["w"].guard == (hears,)


@pytest.mark.parametrize("home", ["v, u", "y, x"])
def test_keys_that_are_heard_together_go_by_their_own_names(home: str) -> None:
    """Whatever the letters are that keys and values were declared with."""
    program = ix.compile(
        f"input Q[y, x, d], K[{home}, d], V[{home}, e];\n"
        "let s[y, x, v, u] = sum[d](Q[y, x, d] * K[v, u, d]) / sqrt(size(d));\n"
        "let w[y, x, v, u] = softmax[v, u](s[y, x, v, u]) where v <= y, abs(u - x) <= 1 || v == y;\n"
        "let out[y, x, e] = sum[v, u](w[y, x, v, u] * V[v, u, e]);\n"
        "attention out(query y, query x, key v, key u, compare d, carry e);\n"
    )
    (roles,) = program.roles
    assert (roles.query, roles.key) == (("x", "y"), ("v", "u"))
    assert roles.hears == "v <= y and (abs(u - x) <= 1 or v == y)"
