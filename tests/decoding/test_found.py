"""Programs that were decoded wrongly, crashed or were refused for no reason, in all ways to keep what is past."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.decoding.law import check

import indexical as ix

HEAD = "space batch(b), position(i, j, k), feature(d, e); input x[b, i, d];"
PROGRAMS = {
    "a range up to its own position": "let y[b, i, d] = mean[j in 0..=i](x[b, j, d]);",
    "a range of some positions": "let y[b, i, d] = sum[j in max(0, i - 2)..=i](x[b, j, d] * (j + 1));",
    "weights over a range": "let y[b, i, e] = sum[j in 0..=i](softmax[j](x[b, i, 0] * x[b, j, 1]) * x[b, j, e]);",
    "weights that are no total": "let y[b, i, e] = sum[j in 0..=i](softmax[j](x[b, j, 0]) * x[b, j, e]);",
    "a guard that is no total": "let y[b, i, e] = sum[j in 0..=i](x[b, j, e] where rank[j](x[b, j, 0]) < 2);",
    "ranges in ranges": "let y[b, i, d] = sum[j in 0..=i, k in 0..=j](x[b, j, d] * x[b, k, d]);",
    "all earlier results": "let y[b, 0, d] = x[b, 0, d];"
    "let y[b, i in 1..size(i), d] = x[b, i, d] + sum[j in 0..i](0.3 ** (i - j) * y[b, j, d]);",
    "layers": "let z[0, b, i, d] = x[b, i, d]; let z[l in 1..3, b, i, e] = z[l - 1, b, i, e]"
    "+ sum[j](softmax[j](sum[d](z[l - 1, b, i, d] * z[l - 1, b, j, d]) where j <= i) * z[l - 1, b, j, e]);"
    "let y[b, i, d] = z[2, b, i, d];",
}
X = np.random.default_rng(0).normal(size=(2, 5, 3))
WAYS: list[dict[str, Any]] = [{}, {"capacity": 6}, {"pages": 2}]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("way", WAYS, ids=["growing", "room", "pages"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_pieces_give_what_the_whole_gives(name: str, way: dict[str, Any]) -> None:
    decoder = ix.incremental(HEAD + PROGRAMS[name] + "output y;", "i", **way)
    assert decoder.text
    for make in (np.array, torch.tensor):
        check(decoder, {"x": make(X)}, (0, 1, 2, 2))


@pytest.mark.parametrize("way", WAYS, ids=["growing", "room", "pages"])
def test_tables_for_pairs_and_for_keys_are_weights(way: dict[str, Any]) -> None:
    text = (
        "input T[i, j], P[s, d]; let w[b, i, j] = softmax[j](x[b, i, 0] * P[j, 0] + T[i, j]) where j <= i;"
        "let y[b, i, e] = sum[j](w[b, i, j] * x[b, j, e]); output w, y;"
    )
    draw = np.random.default_rng(1)
    tables = {"T": draw.normal(size=(6, 6)), "P": draw.normal(size=(6, 3))}
    decoder = ix.incremental(HEAD + text, "i", **tables, **way)
    assert decoder.text
    check(decoder, {"x": X, "T": tables["T"][:5, :5], "P": tables["P"][:5]}, (0, 1, 2, 2))


@pytest.mark.parametrize("way", WAYS, ids=["growing", "room", "pages"])
@pytest.mark.parametrize("dtype", ["bool", "i8", "i32", "i64"])
def test_kept_numbers_have_the_dtype_that_they_had(dtype: str, way: dict[str, Any]) -> None:
    is_bool = dtype == "bool"
    both = "u[b, i] && u[b, j]" if is_bool else "u[b, i] * u[b, j]"
    text = (
        f"input t[b, i] : {dtype}; let u[b, i] = {'!' if is_bool else '2 *'} t[b, i];"
        f"let y[b, i] = {'any' if is_bool else 'sum'}[j](t[b, j] && {both} where j <= i);"
    )
    decoder = ix.incremental(text if is_bool else text.replace("&&", "*"), "i", **way)
    assert decoder.text
    array = np.arange(10).reshape(2, 5) % 3
    given = torch.tensor(array.astype("int8" if dtype == "i8" else dtype.replace("i", "int")))
    for counts in ((0, 1, 4), (2, 1, 2)):
        check(decoder, {"t": given}, counts)
        state, out = decoder.prefill(given[:, :2])
        assert decoder.step(given[:, 2:], state)[1].dtype == out.dtype == decoder.program(given).dtype


def test_a_memory_is_told_from_positions() -> None:
    """What attends to another sequence has to say that it is one: that it reads all of it is no looking ahead then."""
    text = (
        "{}input x[b, i, d], mem[b, s, d]; let w[b, i, s] = softmax[s](sum[d](x[b, i, d] * mem[b, s, d]));"
        "let y[b, i, e] = sum[s](w[b, i, s] * mem[b, s, e]);"
    )
    mem = np.random.default_rng(2).normal(size=(2, 4, 3))
    with pytest.raises(ix.Error, match="if `mem` is known as a whole, declare a space for its own positions"):
        ix.incremental(text.format(""), "i")
    check(ix.incremental(text.format(""), "i", mem=mem), {"x": X, "mem": mem}, (0, 1, 4))
    check(ix.incremental(text.format("space memory(s), position(i);"), "i"), {"x": X, "mem": mem}, (2, 3))


@pytest.mark.parametrize("keep", ["bf16", "i8"])
def test_what_is_kept_in_fewer_bits_may_be_wanted_too(keep: Any) -> None:
    text = "let k[b, i, d] = tanh(x[b, i, d]); let y[b, i, d] = sum[j](k[b, i, d] * k[b, j, d] where j <= i); output "
    for outputs in ("k, y;", "k;"):
        check(
            ix.incremental(HEAD + text + outputs, "i", ["k", "y"], keep), {"x": torch.tensor(X)}, (0, 1, 4), close=0.02
        )


@pytest.mark.parametrize("way", WAYS, ids=["growing", "room", "pages"])
def test_no_positions_may_follow_none(way: dict[str, Any]) -> None:
    text = (
        "let k[b, i, d] = x[b, i / 2, d] - x[b, 0, d];"
        "let y[b, i, d] = sum[j](k[b, j, d] * k[b, i, d] where j <= i) + (if i >= 2 { k[b, i - 2, d] } else { 0 });"
    )
    check(ix.incremental(HEAD + text, "i", "y", **way), {"x": X}, (0, 0, 0, 3, 0, 2))


def test_a_total_over_no_positions_reads_no_first_one() -> None:
    text = "let k[b, i, d] = x[b, i, d] - x[b, 0, d]; let y[b, i, d] = cumsum[i](k[b, i, d]) * x[b, i, d];"
    for make in (np.array, torch.tensor):
        check(ix.incremental(HEAD + text, "i", "y"), {"x": make(X)}, (0, 2, 3))
