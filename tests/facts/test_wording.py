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
