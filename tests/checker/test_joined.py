"""Normalisers and `argmax` over several coordinates: what is said of them, and how they are planned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import indexical as ix

IMAGE = """
input Q[b, i, d], K[b, y, x, d], V[b, y, x, e];
let s[b, i, y, x] = sum[d](Q[b, i, d] * K[b, y, x, d]) / sqrt(size(d));
let w[b, i, y, x] = softmax[y, x](s[b, i, y, x]);
let out[b, i, e]  = sum[y, x](w[b, i, y, x] * V[b, y, x, e]);
attention out(query i, key y, key x, compare d, carry e, batch b);
"""


def test_the_facts_know_the_distribution_and_who_answers() -> None:
    program = ix.compile(IMAGE)
    assert program.diagnostics == ()
    story = program.facts["w"]
    assert [(found.over, found.always) for found in story.distribution] == [("y, x", True)]
    assert story.independent == ("b", "i")
    (roles,) = program.roles
    assert (roles.definition, roles.query, roles.compare, roles.carry) == ("out", ("i",), ("d",), ("e",))
    with pytest.raises(ix.Error, match="IX421"):
        ix.compile(IMAGE.replace("key y, key x", "key i"))


@pytest.mark.parametrize("way", ["by name", "in place", "in a function"])
def test_it_is_fused_like_one(way: str) -> None:
    text = IMAGE[: IMAGE.index("attention")]
    if way == "in place":
        text = text.replace("w[b, i, y, x] * V", "softmax[y, x](s[b, i, y, x]) * V")
        text = text.replace("let w[b, i, y, x] = softmax[y, x](s[b, i, y, x]);", "")
    elif way == "in a function":
        text = text.replace("= softmax[y, x](s[b, i, y, x]);", "= over(s)[b, i, y, x];")
        text += "fn over(s[..r, y, x]) -> [..r, y, x] { softmax[y, x](s[..r, y, x]) }"
    program = ix.compile(text)
    noise = torch.Generator().manual_seed(1)
    arrays = [torch.randn(*shape, generator=noise) for shape in ((2, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4))]
    plan = str(program.plan(*arrays))
    assert "by scaled_dot_product_attention" in plan
    Q, K, V = arrays
    wanted = torch.nn.functional.scaled_dot_product_attention(Q, K.flatten(1, 2), V.flatten(1, 2))
    torch.testing.assert_close(program(*arrays), wanted)


def test_exact_and_traced() -> None:
    text = "let A[y, x] = [[1, 2], [0, 1]]; let w[y, x] = softmax[y, x](A[y, x] where y <= x);"
    program = ix.compile(text + "let m = argmax[y, x](A[y, x]); expect sum[y, x](w[y, x]) == 1;")
    assert "e^1/(e^1+e^2+e^1)  e^2/(e^1+e^2+e^1)" in str(ix.exact(program))
    assert "holds" in str(ix.verify(program))
    assert "normalises yx = 0, 1, 3, by softmax" in str(ix.trace(program, at="w[0, 1]"))


def test_three_coordinates_and_the_order_of_places() -> None:
    program = ix.compile("input A[z, y, x]; let m = argmax[z, y, x](A[z, y, x]); let n = argmin[x, z, y](A[z, y, x]);")
    array = np.random.default_rng(2).standard_normal((2, 3, 4))
    for backend in ("reference", "numpy", "torch"):
        found = program(array, backend=backend)
        assert [int(place) for place in found] == [array.argmax(), array.transpose(2, 0, 1).argmin()]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("let m = argmax[y in 1..3, x](A[y, x]);", "IX210"),
        ("let m = argmax[y, x in 0..=y](A[y, x]);", "IX210"),
        ("let m[y] = softmax[y, x](A[y, 0]);", "IX210"),
        ("let m[y] = softmax[y, y](A[y, 0]);", "IX211"),
        ("let m[y, x] = cumsum[y, x](A[y, x]);", "IX210"),
        ("let m[y, x] = cummax[y, x](A[y, x]);", "IX210"),
        ("let m[y, x] = softmax[y, x in 0..2](A[y, x]);", "IX210"),
    ],
)
def test_what_has_no_order_is_refused(text: str, code: str) -> None:
    with pytest.raises(ix.Error, match=code):
        ix.compile(f"input A[y, x]; {text}")


def test_sizes_have_to_agree_as_ever() -> None:
    program = ix.compile("input A[y, x], B[u, v]; let w[y, x] = softmax[y, x](A[y, x] + B[y, x]);")
    with pytest.raises(ix.Error, match="IX304"):
        program(np.ones((2, 3)), np.ones((2, 4)))
