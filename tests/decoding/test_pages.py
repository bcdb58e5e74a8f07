"""Decoders that hold what they keep in pages: the law, pages that states share, and pages that are let go of."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from tests.decoding import catalogue
from tests.decoding.drawn import arrays_of, drawn
from tests.decoding.law import check, pieces
from tests.decoding.test_decoding import CASES
from tests.decoding.test_rooms import HEAD, LENGTHS, PROGRAMS, TABLE, X, alone, check_alone

import indexical as ix
from indexical.run import paged
from indexical.run.emitting import emitted

NOTHING = "there is nothing to hold in pages"
GROWING = ("softmax", "angles", "quotients")


def made(name: str, **more: Any) -> Any:
    return ix.incremental(HEAD + PROGRAMS[name], "i", **{"pages": 4, "table": TABLE, **more})


def pool_of(decode: Any) -> Any:
    (pool,) = decode._pools.known
    return pool


@pytest.mark.sampled(30)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "variant"), CASES)
def test_pieces_give_what_the_whole_gives(
    name: str, variant: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paged, "SPARE", 0)  # Pages behind a window are let go of at once.
    program, along, rows = catalogue.compiled(name, variant)
    if all(memory.rows is not None for memory in ix.incremental(program, along, rows, capacity=8)._memories):
        with pytest.raises(ix.CallError, match=NOTHING):
            ix.incremental(program, along, rows, pages=2)
        return
    decoder = ix.incremental(program, along, rows, pages=2 + seed % 2)
    arrays, length = catalogue.arrays(name, variant, decoder)
    if seed == 0:
        arrays = {key: torch.as_tensor(np.asarray(value)) for key, value in arrays.items()}
    check(decoder, arrays, pieces(length, seed), "reference" if seed == 1 else None)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("seed", range(60))
def test_drawn_programs_give_the_same_in_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "SPARE", 0)
    arrays = arrays_of(seed)
    try:
        decoder = ix.incremental(drawn(seed), along="position", pages=1 + seed % 4)
    except ix.CallError as refusal:
        assert NOTHING in str(refusal) or "lie in no page" in str(refusal)  # noqa: PT017
        return
    check(decoder, arrays, pieces(6, seed % 7))


@pytest.mark.parametrize("kind", ["numpy", "torch", pytest.param("jax", marks=pytest.mark.sampled(0))])
@pytest.mark.parametrize("name", GROWING)
def test_sequences_have_lengths_of_their_own(name: str, kind: str) -> None:
    make: Any = {"numpy": np.array, "torch": torch.tensor}.get(kind)
    if kind == "jax":
        make = pytest.importorskip("jax.numpy").asarray
    close = 1e-12 if kind != "jax" else 1e-4
    decode = made(name, table=make(TABLE))
    padded = np.where(np.arange(9)[None, :, None] < np.array(LENGTHS)[:, None, None], X, np.nan)
    state, out = decode.prefill(make(padded), lengths=LENGTHS)
    behind = np.stack([X[n, length : length + 3] for n, length in enumerate(LENGTHS)])
    state, more = decode.step(make(behind[:, :2]), state)
    assert state.lengths == (6, 2, 8)
    order = [2, 1, 1]
    _, last = decode.step(make(behind[order, 2:]), state.reorder(order))
    for n, length in enumerate(LENGTHS):
        whole = alone(decode, X[n, : length + 3]) if kind != "jax" else alone(made(name), X[n, : length + 3])
        np.testing.assert_allclose(np.asarray(out)[n, :length], whole[:length], atol=close)
        assert not np.asarray(out)[n, length:].any()
        np.testing.assert_allclose(np.asarray(more)[n], whole[length : length + 2], atol=close)
        for place in (place for place, row in enumerate(order) if row == n):
            np.testing.assert_allclose(np.asarray(last)[place], whole[-1:], atol=close)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize("name", GROWING)
def test_values_are_those_without_pages_to_the_last_bit(name: str, make: Any) -> None:
    """Where there is room for as many positions, sums have the same order."""
    found = []
    for more in ({"pages": None}, {"pages": 2}, {"pages": 4}):
        decode = made(name, capacity=8, table=make(TABLE), **more)
        state, out = decode.prefill(make(X[:, :3]), lengths=[3, 1, 2])
        _, last = decode.step(make(X[:, 3:5]), state)
        found.append((np.asarray(out), np.asarray(last)))
    for out, last in found[1:]:
        assert np.array_equal(out, found[0][0])
        assert np.array_equal(last, found[0][1])


def test_pages_of_other_sizes_have_functions_of_their_own() -> None:
    """What was emitted for pages of one size, and is kept, is not taken for those of another."""
    for pages in (2, 3, 5):
        decode = made("angles", pages=pages)
        state, _ = decode.prefill(X[:, :5])
        _, out = decode.step(X[:, 5:7], state)
        np.testing.assert_allclose(out, decode.program(X[:, :7], TABLE[:7])[:, 5:], atol=1e-12)


WINDOW = """input x[b, i, d], w : i64;
    let a[b, i, j] = softmax[j](sum[d](x[b, i, d] * x[b, j, d]) where j <= i, i - j < w);
    let y[b, i, d] = sum[j](a[b, i, j] * x[b, j, d]);"""


def test_pages_behind_a_window_are_let_go_of() -> None:
    decode = ix.incremental(WINDOW, "i", pages=4, pool=60)
    x = np.random.default_rng(0).normal(size=(2, 200, 2))
    whole = decode.program(x, 3)
    state, out = decode.prefill(x[:, :120], 3, lengths=[120, 5])
    np.testing.assert_allclose(out[0], whole[0, :120], atol=1e-12)
    first, held = state, []
    for k in range(80):
        state, out = decode.step(np.stack((x[0, 120 + k], x[1, 5 + k]))[:, None], state)
        np.testing.assert_allclose(out[:, 0], np.stack((whole[0, 120 + k], whole[1, 5 + k])), atol=1e-12)
        held.append(state.nbytes // pool_of(decode).page_bytes)
    # Of each sequence the rows that can be gone back to, and those that they read: 66, in 4 to a page.
    assert max(held) <= 2 * 19
    assert state._store._held.first.tolist() == [132, 16]
    _, out = decode.step(np.stack((x[0, 140], x[1, 25]))[:, None], state.back_to([140, 25]))
    np.testing.assert_allclose(out[:, 0], np.stack((whole[0, 140], whole[1, 25])), atol=1e-12)
    with pytest.raises(ix.CallError, match="left their window of 2"):
        state.back_to([130, 17])
    _, out = decode.step(np.stack((x[0, 120], x[1, 5]))[:, None], first)
    np.testing.assert_allclose(out[:, 0], np.stack((whole[0, 120], whole[1, 5])), atol=1e-12)
    assert "let go of" in str(decode)


def test_pages_are_held_where_anything_reads_far_back() -> None:
    far = "let z[b, i, d] = sum[j](x[b, j, d] * y[b, i, d] where j <= i); output z;"
    assert ix.incremental(WINDOW + far, "i", pages=4, w=3)._stepping.reach == ()


@pytest.mark.parametrize("keep", ["bf16", "i8"])
def test_pages_hold_fewer_bits(keep: Any) -> None:
    x, table = torch.tensor(X, dtype=torch.float32), torch.tensor(TABLE, dtype=torch.float32)
    found = []
    for pages in (None, 4):
        decode = made("softmax", keep=keep, capacity=8, pages=pages, table=table)
        state, _ = decode.prefill(x[:, :5], lengths=[5, 0, 3])
        state, _ = decode.step(x[:, 5:6], state)
        found.append(decode.step(x[:, 6:8], state)[1])
    assert torch.equal(*found)


@pytest.mark.parametrize("name", GROWING)
def test_what_is_not_finite_reaches_no_other_sequence(name: str) -> None:
    """Neither through pages that others have nor through those that were let go of, or rows that were given up."""
    decode = made(name)
    x = X.copy()
    x[0] = np.nan
    state, _ = decode.prefill(x[:, :5], lengths=[5, 1, 3])
    _, out = decode.step(X[:, 5:6], state)
    del state
    state, _ = decode.prefill(X[:, :4])
    back = decode.step(np.full((3, 2, 2), np.nan), state)[0].back_to([3, 4, 2])
    _, after = decode.step(X[:, 4:5], back)
    for n, (first, second) in enumerate(zip((5, 1, 3), (3, 4, 2), strict=True)):
        check_alone(decode, after[n], X[n, :second], X[n, 4:5])
        if n:
            check_alone(decode, out[n], X[n, :first], X[n, 5:6])


def test_states_stay_what_they_are() -> None:
    """A second step from a state copies a page, and so does one from a state that went back: both others go on."""
    decode = made("softmax")
    start, _ = decode.prefill(X[:, :5])
    state, out = decode.step(X[:, 5:7], start)
    other, _ = decode.step(X[:, 7:9], start)
    back = state.back_to(3)
    decode.step(X[:, :1], back)
    whole = decode.program(X[:, :9], TABLE[:9])
    np.testing.assert_allclose(out, whole[:, 5:7], atol=1e-12)
    np.testing.assert_allclose(decode.step(X[:, 7:9], state)[1], whole[:, 7:], atol=1e-12)
    turned = X[:, [0, 1, 2, 3, 4, 7, 8, 5]]
    np.testing.assert_allclose(decode.step(X[:, 5:6], other)[1], decode.program(turned, TABLE[:8])[:, 7:], atol=1e-12)


def test_beams_share_pages_and_pages_are_let_go_of() -> None:
    decode = made("softmax")
    state, _ = decode.prefill(X[:1, :6])
    page = 4 * 2 * X.itemsize
    assert pool_of(decode).page_bytes == page
    assert state.nbytes == 2 * page
    beams = state.reorder([0] * 5)
    assert beams.nbytes == 2 * page
    after, _ = decode.step(np.repeat(X[:1, 6:7], 5, 0), beams)
    assert after.nbytes == 6 * page  # The first page is that of all.
    assert pool_of(decode).held == 6
    del state, beams, after
    gc.collect(0)
    assert pool_of(decode).held == 0


def test_words_and_text_say_pages() -> None:
    decode = made("softmax", pool=8)
    assert "in pages of a sequence's own, of 4 positions each: 8 of them and no more" in str(decode)
    state, _ = decode.prefill(X[:, :5])
    assert "  8 pages of 64 bytes, 6 of them held" in str(decode)
    assert "x_pages[table_2[b, so_far / 4], so_far % 4, d]" in decode.text
    assert state.length == 5
    assert "in pages, of 4 positions each: as many as are needed" in str(
        ix.incremental("input x[i]; let y[i] = sum[j](x[i] * exp(x[i] * x[j]) where j <= i);", "i", pages=4)
    )


def test_kernel_reads_pages_through_the_table() -> None:
    """On a GPU the kernel for few queries takes the pools and the table, and nothing is gathered for it."""
    text = """input x[b, i, m], W[h, m, d];
    let k[b, h, i, d] = sum[m](x[b, i, m] * W[h, m, d]);
    let w[b, h, i, j] = softmax[j](sum[d](k[b, h, i, d] * k[b, h, j, d]) where j <= i);
    let y[b, h, i, d] = sum[j](w[b, h, i, j] * k[b, h, j, d]);"""
    decode = ix.incremental(text, "i", pages=16, W=torch.ones(2, 4, 8))
    state, _ = decode.prefill(torch.ones(2, 20, 4))
    values = {**state._fixed, "x": torch.ones(2, 1, 4), **state._rows(1), decode._stepping.before: state._before()}
    engine = decode._step._engine
    call = engine.prepare({name: values[name] for name in decode._step.inputs}, "torch", None)
    call = type(call)(call.program, call.backend, call.values, call.bound, call.arguments, "cuda")
    plan, module = emitted(call, decode._step.outputs, False, True)
    source = module.standing_alone()
    assert "k_pages[page_of, slot_of] = " in source
    few = source.partition("and learns_nothing(")[2].partition("is None")[0]
    assert ", table]" in few
    assert "pick(" not in few
    assert "pages_inside(table," not in source  # Asking the device would make the host wait.
    assert any("split over the card" in word for step in plan.steps for word in step.words)


TOGETHER = "input x[b, i]; let y[b, i] = sum[j, c](exp(x[c, j] * x[b, i]) where j <= i);"
LEADING = "input x[..r, i]; let y[..r, i] = sum[j](exp(x[..r, i] * x[..r, j]) where j <= i);"


def too_far(first: int, count: int, **more: Any) -> Any:
    decode = made("softmax", **more)
    return decode.step(X[:, :count], decode.prefill(X[:, :first])[0])


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("a page cannot hold 0 positions", lambda: made("softmax", pages=0)),
        ("there are no pages of which a pool", lambda: made("softmax", pages=None, pool=3)),
        ("a pool of 0 pages", lambda: made("softmax", pool=0)),
        (NOTHING, lambda: made("recurrence")),
        ("of 3 pages are free, and ", lambda: too_far(4, 9, pool=3)),
        ("`table` has 10 positions, and these are 11", lambda: too_far(7, 4)),
        ("room for 8 positions, and these are 9", lambda: made("softmax", capacity=8).prefill(X)),
        ("`x` has any number of leading coordinates", lambda: ix.incremental(LEADING, "i", pages=4)),
        (
            "put into another order",
            lambda: ix.incremental(TOGETHER, "i", pages=4).prefill(X[..., 0])[0].reorder([1, 0, 2]),
        ),
    ],
)
def test_mistakes_are_findings(words: str, call: Any) -> None:
    with pytest.raises(ix.CallError, match=words):
        call()


def test_pages_of_a_state_that_is_gone_are_free_at_once() -> None:
    decode = ix.incremental(HEAD + PROGRAMS["softmax"], "i", pages=4, pool=6, table=TABLE)
    gc.disable()
    try:
        for _ in range(3):
            state, _ = decode.prefill(X[:, :7])
            state, _ = decode.step(X[:, 7:8], state)
            del state
    finally:
        gc.enable()
