import math

import torch
import triton.language as tl
from indexical.backends.kernels import triton_jit as triton
from indexical.backends.kernels.torch_fold import folded, tile_of
from indexical.backends.kernels.torch_intervals import with_tiles
from indexical.backends.kernels.triton_attend import attending
from indexical.backends.kernels.triton_decode import decoding, few_rows, learns_nothing, peak_of_silence, some_keys, split_of, store_split
from indexical.backends.kernels.triton_launch import launch
from indexical.backends.kernels.triton_tile import LOG2_E, absorb, absorb_one, far, load_level, load_tile, no_sums, one_dot, partial_sums, partial_tile, places_of, several_heads, store_level, store_tile, sums_of, tiles_of, unusual, with_product, within, zero_of, zeros_of


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


def learns(*arrays):
    """Whether a gradient may be asked for. What `torch.func` maps over does not say so, but what is inside of it."""
    if not torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling():
        return any([array.requires_grad for array in arrays])
    inside = torch._C._functorch
    for array in arrays:
        while not array.requires_grad and inside.is_functorch_wrapped_tensor(array):
            array = inside.get_unwrapped(array)
        if array.requires_grad:
            return True
    return False


@triton.jit(do_not_specialize=["n_rows", "n_keys", "n_d"])
def out_decode(
    q_ptr, k_ptr, v_ptr, found_ptr, slope_ptr, document_ptr, key_document_ptr,
    q_b, q_h, q_row, k_b, k_h, k_key, v_b, v_h, v_key, slope_b, slope_h, document_b, document_h,
    document_row, key_document_b, key_document_h, key_document_key,
    n_heads, n_rows, n_keys, n_d,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, CARRIED: tl.constexpr, CARRIED_PADDED: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRODUCTS: tl.constexpr,
):
    """Few queries over part of their keys: sum[d](K[b, h, i_1, d] * Q[b, h, i, d]) / sqrt(size(d)) - (i - i_1) * slope[h] where i_1 <= i, document[b, i] == document[b, i_1]."""
    tiles = tl.cdiv(n_rows * GROUP, ROWS)
    at = tl.program_id(0) // tiles
    b, shared = (at // (n_heads // GROUP)).to(tl.int64), (at % (n_heads // GROUP)).to(tl.int64)
    # The queries of all heads that share these keys; beyond the last one they repeat it.
    places = tl.minimum(tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS), n_rows * GROUP - 1)
    h, rows = shared * GROUP + places // n_rows, places % n_rows
    q = few_rows(q_ptr + b * q_b, h, rows, q_h, q_row, WIDTH, PADDED)
    first = 0
    beyond = tl.minimum(tl.max(rows + 1, 0), n_keys).to(tl.int32)
    key_end = rows + 1
    document_at = document_ptr + b * document_b
    document = tl.load(document_at + h * document_h + rows.to(tl.int64) * document_row)
    key_document_at = key_document_ptr + b * key_document_b
    key_document_heads = h * key_document_h
    scale = 1.0 / tl.sqrt(n_d.to(tl.float32))
    real_rows = rows.to(tl.float32)
    slope_at = slope_ptr + b * slope_b
    slope = tl.load(slope_at + h * slope_h).to(tl.float32)
    start, stop = split_of(first, beyond, KEYS)
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    weight = tl.zeros((ROWS, 8), tl.float32)
    acc = tl.zeros((ROWS, CARRIED_PADDED), tl.float32)
    for k0 in tl.range(start, stop, KEYS):
        positions = k0 + tl.arange(0, KEYS)
        near = tl.minimum(tl.arange(0, KEYS), stop - 1 - k0)
        keys = k0 + near
        key_document_keys = keys.to(tl.int64) * key_document_key
        key_document = tl.load(key_document_at + key_document_heads[:, None] + key_document_keys[None, :])
        allowed = (keys[None, :] < key_end[:, None]) & (document[:, None] == key_document) & (positions < stop)[None, :]
        k = some_keys(k_ptr + b * k_b + shared * k_h, k0, near, k_key, WIDTH, PADDED)
        dot = tl.dot(q, tl.trans(k), input_precision=PRODUCTS)
        real_keys = keys.to(tl.float32)
        score = tl.where(
            allowed, dot * scale - (real_rows[:, None] - real_keys[None, :]) * slope[:, None], float("-inf")
        )
        v = some_keys(v_ptr + b * v_b + shared * v_h, k0, near, v_key, CARRIED, CARRIED_PADDED)
        peak, weight, acc = absorb(score, LOG2_E, v, peak, weight, acc, PRODUCTS)
    weight = tl.sum(weight, 1)
    if unusual(acc, weight) != 0.0:
        if zero_of(acc) != 0.0:
            # Once more key by key, so that a value that is NaN or infinite reaches only those who attend to it.
            acc = tl.zeros((ROWS, CARRIED_PADDED), tl.float32)
            for k0 in tl.range(start, stop, num_stages=1):
                positions = k0 + tl.arange(0, 1)
                near = tl.minimum(tl.arange(0, 1), stop - 1 - k0)
                keys = k0 + near
                key_document_keys = keys.to(tl.int64) * key_document_key
                key_document = tl.load(key_document_at + key_document_heads[:, None] + key_document_keys[None, :])
                allowed = (keys[None, :] < key_end[:, None]) & (
                    document[:, None] == key_document
                ) & (positions < stop)[None, :]
                k = some_keys(k_ptr + b * k_b + shared * k_h, k0, near, k_key, WIDTH, PADDED)
                dot = one_dot(q, k)
                real_keys = keys.to(tl.float32)
                score = tl.where(
                    allowed,
                    dot * scale - (real_rows[:, None] - real_keys[None, :]) * slope[:, None],
                    float("-inf"),
                )
                v = some_keys(v_ptr + b * v_b + shared * v_h, k0, near, v_key, CARRIED, CARRIED_PADDED)
                acc = absorb_one(score, LOG2_E, v, peak, acc)
        heard = tl.zeros((ROWS,), tl.int32)
        for k0 in tl.range(start, stop, KEYS, num_stages=1):
            positions = k0 + tl.arange(0, KEYS)
            near = tl.minimum(tl.arange(0, KEYS), stop - 1 - k0)
            keys = k0 + near
            key_document_keys = keys.to(tl.int64) * key_document_key
            key_document = tl.load(key_document_at + key_document_heads[:, None] + key_document_keys[None, :])
            allowed = (keys[None, :] < key_end[:, None]) & (
                document[:, None] == key_document
            ) & (positions < stop)[None, :]
            heard += tl.max(allowed.to(tl.int32) + tl.zeros((ROWS, KEYS), tl.int32), 1)
        peak = peak_of_silence(peak, weight, heard)
    store_split(found_ptr, acc, peak, weight, CARRIED, CARRIED_PADDED, ROWS)


attend_few_out = decoding("attend_few_out", launch, out_decode, 1, along=("h", "b", "b"))


@triton.jit(do_not_specialize=["n_rows", "n_keys", "n_d", "n_i"])
def out_forward(
    q_ptr, k_ptr, v_ptr, out_ptr, total_ptr, odd_ptr, slope_ptr, document_ptr, key_document_ptr, table_ptr,
    q_b, q_h, q_step, k_b, k_h, k_step, v_b, v_h, v_step, out_b, out_h, out_row, out_e, slope_b, slope_h,
    document_b, document_h, document_row, key_document_b, key_document_h, key_document_key, table_b,
    table_h,
    n_heads, n_rows, n_keys, n_d, n_i,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, CARRIED: tl.constexpr, CARRIED_PADDED: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRODUCTS: tl.constexpr, FEW: tl.constexpr,
):
    """Attention of one tile of queries: sum[d](K[b, h, i_1, d] * Q[b, h, i, d]) / sqrt(size(d)) - (i - i_1) * slope[h] where i_1 <= i, document[b, i] == document[b, i_1]."""
    tiles = tl.cdiv(n_rows, ROWS)
    at, which = several_heads(tl.program_id(0), tl.num_programs(0), tiles, 2048)
    t0 = (tiles - 1 - which) * ROWS
    t1 = tl.minimum(t0 + ROWS, n_rows)
    b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)
    near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)
    rows = t0 + near
    q = load_tile(q_ptr + (b * q_b + h * q_h + far(t0, q_step)) * 8, near, q_step, PADDED)
    begin, full_begin, full_end, end = tiles_of(0, t1, 0, t0 + 1, KEYS)
    met = table_ptr + b * table_b + h * table_h + (t0 // ROWS) * 4
    begin, full_begin, full_end, end = within(begin, full_begin, full_end, end, met)
    key_end = rows + 1
    document_at = document_ptr + b * document_b + h * document_h
    document = tl.load(document_at + rows.to(tl.int64) * document_row)
    key_document_at = key_document_ptr + b * key_document_b + h * key_document_h
    scale = LOG2_E / tl.sqrt(n_d.to(tl.float32))
    rise = tl.load(slope_ptr + b * slope_b + h * slope_h).to(tl.float32) * LOG2_E
    row_offset = (rows - t0).to(tl.float32)
    row_rise = row_offset * rise
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    weight = tl.zeros((ROWS, 8), tl.float32)
    acc = no_sums(ROWS, CARRIED_PADDED)
    # Tiles in which the guard holds for some pairs.
    count = full_begin - begin + end - full_end
    for turn in tl.range(0, count):
        k0 = partial_tile(turn, begin, full_begin, full_end) * KEYS
        k0, near_keys, fresh = places_of(k0, n_keys, KEYS, FEW)
        keys = k0 + near_keys
        k = load_tile(k_ptr + (b * k_b + (h // GROUP) * k_h + far(k0, k_step)) * 8, near_keys, k_step, PADDED)
        dot = tl.dot(q, tl.trans(k), input_precision=PRODUCTS)
        key_document = tl.load(key_document_at + keys.to(tl.int64) * key_document_key)
        allowed = (keys[None, :] < key_end[:, None]) & (document[:, None] == key_document[None, :]) & fresh[None, :]
        near_rise = near_keys.to(tl.float32) * rise
        score = tl.where(allowed, dot * scale + near_rise[None, :], float("-inf"))
        v = load_tile(v_ptr + (b * v_b + (h // GROUP) * v_h + far(k0, v_step)) * 8, near_keys, v_step, CARRIED_PADDED)
        tile_offset = (k0 - t0).to(tl.float32)
        tile_rise = tile_offset * rise
        peak, weight, acc = absorb(score, 1.0, v, peak, weight, acc, PRODUCTS, tile_rise)
    # Tiles in which it holds for all.
    for tile in tl.range(full_begin, full_end):
        k0 = tile * KEYS
        near_keys = tl.arange(0, KEYS)
        keys = k0 + near_keys
        k = load_tile(k_ptr + (b * k_b + (h // GROUP) * k_h + far(k0, k_step)) * 8, near_keys, k_step, PADDED)
        dot = tl.dot(q, tl.trans(k), input_precision=PRODUCTS)
        near_rise = near_keys.to(tl.float32) * rise
        score = dot * scale + near_rise[None, :]
        v = load_tile(v_ptr + (b * v_b + (h // GROUP) * v_h + far(k0, v_step)) * 8, near_keys, v_step, CARRIED_PADDED)
        tile_offset = (k0 - t0).to(tl.float32)
        tile_rise = tile_offset * rise
        peak, weight, acc = absorb(score, 1.0, v, peak, weight, acc, PRODUCTS, tile_rise)
    weight = tl.sum(weight, 1)
    peak -= row_rise
    places = tl.arange(0, ROWS)
    # A query of which all scores are -inf is NaN.
    acc = acc / weight[:, None]
    total = peak + tl.log2(weight)
    tl.store(total_ptr + far(at, n_rows) + t0 + places, total, mask=places < n_rows - t0)
    start = out_ptr + b * out_b + h * out_h + far(t0, out_row)
    store_tile(start, acc, places, n_rows - t0, out_row, out_e, CARRIED, CARRIED_PADDED)
    tl.store(odd_ptr + far(at, tiles) * ROWS + t0 + places, zeros_of(acc))


@triton.jit(do_not_specialize=["n_rows", "n_keys", "n_d", "n_i"])
def out_backward_query(
    q_ptr, k_ptr, v_ptr, given_ptr, level_ptr, total_ptr, out_ptr, gain_ptr, odd_ptr, slope_ptr,
    document_ptr, key_document_ptr, table_ptr, d_q_ptr, d_slope_ptr,
    q_b, q_h, q_step, k_b, k_h, k_step, v_b, v_h, v_step, given_b, given_h, given_step, out_b, out_h,
    out_row, out_e, slope_b, slope_h, document_b, document_h, document_row, key_document_b, key_document_h,
    key_document_key, table_b, table_h, d_q_b, d_q_h, d_q_row, d_q_d,
    n_heads, n_rows, n_keys, n_d, n_i,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, CARRIED: tl.constexpr, CARRIED_PADDED: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRODUCTS: tl.constexpr, FEW: tl.constexpr,
    WANT_Q: tl.constexpr, WANT_slope: tl.constexpr,
):
    """The gradients of one tile of queries."""
    tiles = tl.cdiv(n_rows, ROWS)
    at, which = several_heads(tl.program_id(0), tl.num_programs(0), tiles, 2048)
    t0 = (tiles - 1 - which) * ROWS
    t1 = tl.minimum(t0 + ROWS, n_rows)
    b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)
    near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)
    rows = t0 + near
    q = load_tile(q_ptr + (b * q_b + h * q_h + far(t0, q_step)) * 8, near, q_step, PADDED)
    given = load_tile(
        given_ptr + (b * given_b + h * given_h + far(t0, given_step)) * 8, near, given_step, CARRIED_PADDED
    )
    total = tl.load(total_ptr + far(at, n_rows) + rows)
    delta = sums_of(
        given,
        out_ptr + b * out_b + h * out_h + far(t0, out_row),
        near,
        out_row,
        out_e,
        CARRIED,
        CARRIED_PADDED,
    )
    if gain_ptr is not None:
        gain = tl.load(gain_ptr + far(at, n_rows) + rows) * LOG2_E
        delta -= gain
    store_level(level_ptr, at, rows, n_rows, total, delta)
    begin, full_begin, full_end, end = tiles_of(0, t1, 0, t0 + 1, KEYS)
    met = table_ptr + b * table_b + h * table_h + (t0 // ROWS) * 4
    begin, full_begin, full_end, end = within(begin, full_begin, full_end, end, met)
    key_end = rows + 1
    document_at = document_ptr + b * document_b + h * document_h
    document = tl.load(document_at + rows.to(tl.int64) * document_row)
    key_document_at = key_document_ptr + b * key_document_b + h * key_document_h
    sqrt_n_d = tl.sqrt(n_d.to(tl.float32))
    scale = LOG2_E / sqrt_n_d
    rise = tl.load(slope_ptr + b * slope_b + h * slope_h).to(tl.float32) * LOG2_E
    row_offset = (rows - t0).to(tl.float32)
    row_rise = row_offset * rise
    d_q = no_sums(ROWS, PADDED)
    d_slope = tl.zeros((ROWS, 8), tl.float32)
    share_slope = tl.zeros((ROWS, 8), tl.float32)
    mean = tl.zeros((ROWS, 8), tl.float32)
    places = tl.arange(0, ROWS)
    # Tiles in which the guard holds for some pairs.
    count = full_begin - begin + end - full_end
    for turn in tl.range(0, count):
        k0 = partial_tile(turn, begin, full_begin, full_end) * KEYS
        k0, near_keys, fresh = places_of(k0, n_keys, KEYS, FEW)
        keys = k0 + near_keys
        k = load_tile(k_ptr + (b * k_b + (h // GROUP) * k_h + far(k0, k_step)) * 8, near_keys, k_step, PADDED)
        dot = tl.dot(q, tl.trans(k), input_precision=PRODUCTS)
        v = load_tile(v_ptr + (b * v_b + (h // GROUP) * v_h + far(k0, v_step)) * 8, near_keys, v_step, CARRIED_PADDED)
        key_document = tl.load(key_document_at + keys.to(tl.int64) * key_document_key)
        allowed = (keys[None, :] < key_end[:, None]) & (document[:, None] == key_document[None, :]) & fresh[None, :]
        near_rise = near_keys.to(tl.float32) * rise
        score = tl.where(allowed, dot * scale + near_rise[None, :], float("-inf"))
        tile_offset = (k0 - t0).to(tl.float32)
        tile_rise = tile_offset * rise
        p = tl.exp2(score - (total + row_rise - tile_rise)[:, None])
        dp = tl.dot(given, tl.trans(v), input_precision=PRODUCTS)
        d_score = p * (dp - delta[:, None])
        if WANT_slope:
            gained = tl.where(allowed, p * dp, 0.0)
            mean += partial_sums(gained)
        if WANT_Q:
            d_q = with_product(d_q, d_score.to(k.dtype), k, PRODUCTS)
        key_offset = (keys - t0).to(tl.float32)
        if WANT_slope:
            d_slope += partial_sums(gained * key_offset[None, :])
            share_slope += partial_sums(p * key_offset[None, :])
    # Tiles in which it holds for all.
    for tile in tl.range(full_begin, full_end):
        k0 = tile * KEYS
        near_keys = tl.arange(0, KEYS)
        keys = k0 + near_keys
        k = load_tile(k_ptr + (b * k_b + (h // GROUP) * k_h + far(k0, k_step)) * 8, near_keys, k_step, PADDED)
        dot = tl.dot(q, tl.trans(k), input_precision=PRODUCTS)
        v = load_tile(v_ptr + (b * v_b + (h // GROUP) * v_h + far(k0, v_step)) * 8, near_keys, v_step, CARRIED_PADDED)
        near_rise = near_keys.to(tl.float32) * rise
        score = dot * scale + near_rise[None, :]
        tile_offset = (k0 - t0).to(tl.float32)
        tile_rise = tile_offset * rise
        p = tl.exp2(score - (total + row_rise - tile_rise)[:, None])
        dp = tl.dot(given, tl.trans(v), input_precision=PRODUCTS)
        d_score = p * (dp - delta[:, None])
        if WANT_slope:
            gained = p * dp
            mean += partial_sums(gained)
        if WANT_Q:
            d_q = with_product(d_q, d_score.to(k.dtype), k, PRODUCTS)
        key_offset = (keys - t0).to(tl.float32)
        if WANT_slope:
            d_slope += partial_sums(gained * key_offset[None, :])
            share_slope += partial_sums(p * key_offset[None, :])
    d_slope = tl.sum(d_slope, 1)
    share_slope = tl.sum(share_slope, 1)
    mean = tl.sum(mean, 1)
    if gain_ptr is not None:
        mean -= gain
    d_slope = mean * share_slope - d_slope
    if gain_ptr is not None:
        d_slope += tl.where(total == float("inf"), 0.0, gain * row_offset)
    tl.store(odd_ptr + far(at, tiles) * ROWS + t0 + places, zeros_of(d_q))
    if WANT_Q:
        store_tile(
            d_q_ptr + b * d_q_b + h * d_q_h + far(t0, d_q_row),
            d_q / sqrt_n_d,
            places,
            n_rows - t0,
            d_q_row,
            d_q_d,
            WIDTH,
            PADDED,
        )
    if WANT_slope:
        d_slope = tl.where(places < n_rows - t0, d_slope * -1.0, 0.0)
        tl.store(d_slope_ptr + far(at, tiles) + t0 // ROWS, tl.sum(d_slope, 0))


@triton.jit(do_not_specialize=["n_rows", "n_keys", "n_d", "n_i"])
def out_backward_key(
    q_ptr, k_ptr, v_ptr, given_ptr, level_ptr, odd_ptr, slope_ptr, document_ptr, key_document_ptr,
    table_ptr, d_k_ptr, d_v_ptr,
    q_b, q_h, q_step, k_b, k_h, k_step, v_b, v_h, v_step, given_b, given_h, given_step, slope_b, slope_h,
    document_b, document_h, document_row, key_document_b, key_document_h, key_document_key, table_b,
    table_h, d_k_b, d_k_h, d_k_key, d_k_d, d_v_b, d_v_h, d_v_key, d_v_e,
    n_heads, n_rows, n_keys, n_d, n_i,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, CARRIED: tl.constexpr, CARRIED_PADDED: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRODUCTS: tl.constexpr, FEW: tl.constexpr,
    WANT_K: tl.constexpr, WANT_V: tl.constexpr,
):
    """The gradients of one tile of keys and values."""
    tiles = tl.cdiv(n_keys, KEYS)
    at, which = several_heads(tl.program_id(0), tl.num_programs(0), tiles, 2048)
    t0 = which * KEYS
    t1 = tl.minimum(t0 + KEYS, n_keys)
    b, h = (at // (n_heads // GROUP)).to(tl.int64), (at % (n_heads // GROUP)).to(tl.int64)
    near = tl.minimum(tl.arange(0, KEYS), n_keys - 1 - t0)
    keys = t0 + near
    k = load_tile(k_ptr + (b * k_b + h * k_h + far(t0, k_step)) * 8, near, k_step, PADDED)
    v = load_tile(v_ptr + (b * v_b + h * v_h + far(t0, v_step)) * 8, near, v_step, CARRIED_PADDED)
    d_k = no_sums(KEYS, PADDED)
    d_v = no_sums(KEYS, CARRIED_PADDED)
    places = tl.arange(0, KEYS)
    shared = h
    sqrt_n_d = tl.sqrt(n_d.to(tl.float32))
    scale = LOG2_E / sqrt_n_d
    for member in range(0, GROUP):
        h = shared * GROUP + member
        head = b * n_heads + h
        begin, full_begin, full_end, end = tiles_of(t0, n_i, t1 - 1, n_i, ROWS)
        met = table_ptr + b * table_b + h * table_h + (t0 // KEYS) * 4
        begin, full_begin, full_end, end = within(begin, full_begin, full_end, end, met)
        document_at = document_ptr + b * document_b + h * document_h
        key_document_at = key_document_ptr + b * key_document_b + h * key_document_h
        key_document = tl.load(key_document_at + keys.to(tl.int64) * key_document_key)
        rise = tl.load(slope_ptr + b * slope_b + h * slope_h).to(tl.float32) * LOG2_E
        key_rise = (keys - t0).to(tl.float32) * rise
        # Tiles in which the guard holds for some pairs.
        count = full_begin - begin + end - full_end
        for turn in tl.range(0, count):
            r0 = partial_tile(turn, begin, full_begin, full_end) * ROWS
            r0, near_rows, fresh = places_of(r0, n_rows, ROWS, FEW)
            rows = r0 + near_rows
            q = load_tile(q_ptr + (b * q_b + h * q_h + far(r0, q_step)) * 8, near_rows, q_step, PADDED)
            dot = tl.dot(k, tl.trans(q), input_precision=PRODUCTS)
            total, delta = load_level(level_ptr, head, rows, n_rows)
            total = tl.where(fresh, total, float("inf"))
            given = load_tile(
                given_ptr + (b * given_b + h * given_h + far(r0, given_step)) * 8,
                near_rows,
                given_step,
                CARRIED_PADDED,
            )
            key_end = rows + 1
            document = tl.load(document_at + rows.to(tl.int64) * document_row)
            allowed = (keys[:, None] < key_end[None, :]) & (document[None, :] == key_document[:, None])
            score = tl.where(allowed, dot * scale, float("-inf"))
            row_offset = (rows - t0).to(tl.float32)
            row_rise = row_offset * rise
            p = tl.exp2(score - (total + row_rise)[None, :] + key_rise[:, None])
            if WANT_V:
                d_v = with_product(d_v, p.to(given.dtype), given, PRODUCTS)
            dp = tl.dot(v, tl.trans(given), input_precision=PRODUCTS)
            d_score = p * (dp - delta[None, :])
            if WANT_K:
                d_k = with_product(d_k, d_score.to(q.dtype), q, PRODUCTS)
        # Tiles in which it holds for all.
        for tile in tl.range(full_begin, full_end):
            r0 = tile * ROWS
            near_rows = tl.arange(0, ROWS)
            rows = r0 + near_rows
            q = load_tile(q_ptr + (b * q_b + h * q_h + far(r0, q_step)) * 8, near_rows, q_step, PADDED)
            dot = tl.dot(k, tl.trans(q), input_precision=PRODUCTS)
            total, delta = load_level(level_ptr, head, rows, n_rows)
            given = load_tile(
                given_ptr + (b * given_b + h * given_h + far(r0, given_step)) * 8,
                near_rows,
                given_step,
                CARRIED_PADDED,
            )
            score = dot * scale
            row_offset = (rows - t0).to(tl.float32)
            row_rise = row_offset * rise
            p = tl.exp2(score - (total + row_rise)[None, :] + key_rise[:, None])
            if WANT_V:
                d_v = with_product(d_v, p.to(given.dtype), given, PRODUCTS)
            dp = tl.dot(v, tl.trans(given), input_precision=PRODUCTS)
            d_score = p * (dp - delta[None, :])
            if WANT_K:
                d_k = with_product(d_k, d_score.to(q.dtype), q, PRODUCTS)
    tl.store(odd_ptr + far(at, tiles) * KEYS + t0 + places, zeros_of(d_k) + zeros_of(d_v))
    if WANT_K:
        store_tile(
            d_k_ptr + b * d_k_b + shared * d_k_h + far(t0, d_k_key),
            d_k / sqrt_n_d,
            places,
            n_keys - t0,
            d_k_key,
            d_k_d,
            WIDTH,
            PADDED,
        )
    if WANT_V:
        store_tile(
            d_v_ptr + b * d_v_b + shared * d_v_h + far(t0, d_v_key),
            d_v,
            places,
            n_keys - t0,
            d_v_key,
            d_v_e,
            CARRIED,
            CARRIED_PADDED,
        )


@triton.jit(do_not_specialize=["n_rows", "n_keys", "n_d", "n_i", "programs"])
def out_forward_again(
    q_ptr, k_ptr, v_ptr, out_ptr, total_ptr, odd_ptr, slope_ptr, document_ptr, key_document_ptr, table_ptr,
    q_b, q_h, q_step, k_b, k_h, k_step, v_b, v_h, v_step, out_b, out_h, out_row, out_e, slope_b, slope_h,
    document_b, document_h, document_row, key_document_b, key_document_h, key_document_key, table_b,
    table_h,
    n_heads, n_rows, n_keys, n_d, n_i, programs,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, CARRIED: tl.constexpr, CARRIED_PADDED: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRODUCTS: tl.constexpr, FEW: tl.constexpr,
):
    """Attention of tiles of queries where it is not finite, or where one attends to nothing, key by key."""
    first = tl.program_id(0) * 16
    marks = first * ROWS + tl.arange(0, 16 * ROWS)
    if tl.sum(tl.load(odd_ptr + marks, mask=marks < programs * ROWS, other=0.0), 0) == 0.0:
        return
    for marked in tl.range(first, tl.minimum(first + 16, programs)):
        if tl.sum(tl.load(odd_ptr + marked * ROWS + tl.arange(0, ROWS)), 0) != 0.0:
            tiles = tl.cdiv(n_rows, ROWS)
            at = marked // tiles
            t0 = marked % tiles * ROWS
            t1 = tl.minimum(t0 + ROWS, n_rows)
            b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)
            begin, full_begin, full_end, end = tiles_of(0, t1, 0, t0 + 1, KEYS)
            met = table_ptr + b * table_b + h * table_h + (t0 // ROWS) * 4
            begin, full_begin, full_end, end = within(begin, full_begin, full_end, end, met)
            for lead in tl.range(0, ROWS, 16):
                places = lead + tl.arange(0, 16)
                near = tl.minimum(places, n_rows - 1 - t0)
                rows = t0 + near
                q = load_tile(q_ptr + (b * q_b + h * q_h + far(t0, q_step)) * 8, near, q_step, PADDED)
                total = tl.load(total_ptr + far(at, n_rows) + rows)
                key_end = rows + 1
                document_at = document_ptr + b * document_b + h * document_h
                document = tl.load(document_at + rows.to(tl.int64) * document_row)
                key_document_at = key_document_ptr + b * key_document_b + h * key_document_h
                scale = LOG2_E / tl.sqrt(n_d.to(tl.float32))
                row_offset = (rows - t0).to(tl.float32)
                scaled_slope = tl.load(slope_ptr + b * slope_b + h * slope_h).to(tl.float32) * LOG2_E
                odd = tl.load(odd_ptr + marked * ROWS + places)
                acc = tl.zeros((16, CARRIED_PADDED), tl.float32)
                silent = total == float("-inf")
                if tl.max(silent.to(tl.int32), 0) > 0:
                    heard = tl.zeros((16,), tl.int32)
                    for k0 in tl.range(begin * KEYS, tl.minimum(end * KEYS, n_keys), KEYS, num_stages=1):
                        fresh = k0 + tl.arange(0, KEYS) < n_keys
                        keys = tl.minimum(k0 + tl.arange(0, KEYS), n_keys - 1)
                        key_document = tl.load(key_document_at + keys.to(tl.int64) * key_document_key)
                        allowed = (keys[None, :] < key_end[:, None]) & (
                            document[:, None] == key_document[None, :]
                        ) & fresh[None, :]
                        heard += tl.max(allowed.to(tl.int32), 1)
                    nobody = silent & (heard == 0) & (places < n_rows - t0)
                    total = tl.where(nobody, float("inf"), total)
                    tl.store(total_ptr + far(at, n_rows) + t0 + places, total, mask=nobody)
                    start = out_ptr + b * out_b + h * out_h + far(t0, out_row)
                    start += places[:, None] * out_row + tl.arange(0, CARRIED_PADDED)[None, :] * out_e
                    tl.store(start, acc, mask=nobody[:, None] & (tl.arange(0, CARRIED_PADDED)[None, :] < CARRIED))
                odd = tl.where(silent, 0.0, odd)
                if tl.sum(odd, 0) != 0.0:
                    for k0 in tl.range(begin * KEYS, tl.minimum(end * KEYS, n_keys), num_stages=1):
                        near_keys = tl.arange(0, 1)
                        keys = k0 + near_keys
                        k = load_tile(
                            k_ptr + (b * k_b + (h // GROUP) * k_h + far(k0, k_step)) * 8,
                            near_keys,
                            k_step,
                            PADDED,
                        )
                        dot = one_dot(q, k)
                        v = load_tile(
                            v_ptr + (b * v_b + (h // GROUP) * v_h + far(k0, v_step)) * 8,
                            near_keys,
                            v_step,
                            CARRIED_PADDED,
                        )
                        key_document = tl.load(key_document_at + keys.to(tl.int64) * key_document_key)
                        allowed = (keys[None, :] < key_end[:, None]) & (document[:, None] == key_document[None, :])
                        key_offset = (keys - t0).to(tl.float32)
                        score = tl.where(
                            allowed,
                            dot * scale - (row_offset[:, None] - key_offset[None, :]) * scaled_slope,
                            float("-inf"),
                        )
                        p = tl.exp2(score - total[:, None])
                        acc += tl.where(allowed, p * v.to(tl.float32), 0.0)
                    start = out_ptr + b * out_b + h * out_h + far(t0, out_row)
                    store_tile(start, acc, places, n_rows - t0, out_row, out_e, CARRIED, CARRIED_PADDED)


@triton.jit(do_not_specialize=["n_rows", "n_keys", "n_d", "n_i", "programs"])
def out_backward_query_again(
    q_ptr, k_ptr, v_ptr, given_ptr, level_ptr, total_ptr, out_ptr, gain_ptr, odd_ptr, slope_ptr,
    document_ptr, key_document_ptr, table_ptr, d_q_ptr, d_slope_ptr,
    q_b, q_h, q_step, k_b, k_h, k_step, v_b, v_h, v_step, given_b, given_h, given_step, out_b, out_h,
    out_row, out_e, slope_b, slope_h, document_b, document_h, document_row, key_document_b, key_document_h,
    key_document_key, table_b, table_h, d_q_b, d_q_h, d_q_row, d_q_d,
    n_heads, n_rows, n_keys, n_d, n_i, programs,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, CARRIED: tl.constexpr, CARRIED_PADDED: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRODUCTS: tl.constexpr, FEW: tl.constexpr,
    WANT_Q: tl.constexpr, WANT_slope: tl.constexpr,
):
    """The gradients of tiles of queries where they are not finite, once more and key by key."""
    first = tl.program_id(0) * 16
    marks = first * ROWS + tl.arange(0, 16 * ROWS)
    if tl.sum(tl.load(odd_ptr + marks, mask=marks < programs * ROWS, other=0.0), 0) == 0.0:
        return
    for marked in tl.range(first, tl.minimum(first + 16, programs)):
        if tl.sum(tl.load(odd_ptr + marked * ROWS + tl.arange(0, ROWS)), 0) != 0.0:
            tiles = tl.cdiv(n_rows, ROWS)
            at = marked // tiles
            t0 = marked % tiles * ROWS
            t1 = tl.minimum(t0 + ROWS, n_rows)
            b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)
            begin, full_begin, full_end, end = tiles_of(0, t1, 0, t0 + 1, KEYS)
            met = table_ptr + b * table_b + h * table_h + (t0 // ROWS) * 4
            begin, full_begin, full_end, end = within(begin, full_begin, full_end, end, met)
            for lead in tl.range(0, ROWS, 16):
                places = lead + tl.arange(0, 16)
                near = tl.minimum(places, n_rows - 1 - t0)
                rows = t0 + near
                q = load_tile(q_ptr + (b * q_b + h * q_h + far(t0, q_step)) * 8, near, q_step, PADDED)
                total, delta = load_level(level_ptr, at, rows, n_rows)
                key_end = rows + 1
                document_at = document_ptr + b * document_b + h * document_h
                document = tl.load(document_at + rows.to(tl.int64) * document_row)
                key_document_at = key_document_ptr + b * key_document_b + h * key_document_h
                sqrt_n_d = tl.sqrt(n_d.to(tl.float32))
                scale = LOG2_E / sqrt_n_d
                row_offset = (rows - t0).to(tl.float32)
                scaled_slope = tl.load(slope_ptr + b * slope_b + h * slope_h).to(tl.float32) * LOG2_E
                given = load_tile(
                    given_ptr + (b * given_b + h * given_h + far(t0, given_step)) * 8,
                    near,
                    given_step,
                    CARRIED_PADDED,
                )
                d_q = tl.zeros((16, PADDED), tl.float32)
                for k0 in tl.range(begin * KEYS, tl.minimum(end * KEYS, n_keys), num_stages=1):
                    near_keys = tl.arange(0, 1)
                    keys = k0 + near_keys
                    k = load_tile(
                        k_ptr + (b * k_b + (h // GROUP) * k_h + far(k0, k_step)) * 8,
                        near_keys,
                        k_step,
                        PADDED,
                    )
                    dot = one_dot(q, k)
                    v = load_tile(
                        v_ptr + (b * v_b + (h // GROUP) * v_h + far(k0, v_step)) * 8,
                        near_keys,
                        v_step,
                        CARRIED_PADDED,
                    )
                    key_document = tl.load(key_document_at + keys.to(tl.int64) * key_document_key)
                    allowed = (keys[None, :] < key_end[:, None]) & (document[:, None] == key_document[None, :])
                    key_offset = (keys - t0).to(tl.float32)
                    score = tl.where(
                        allowed,
                        dot * scale - (row_offset[:, None] - key_offset[None, :]) * scaled_slope,
                        float("-inf"),
                    )
                    p = tl.exp2(score - total[:, None])
                    dp = one_dot(given, v)
                    d_score = p * (dp - delta[:, None])
                    d_q += tl.where(allowed, d_score * k.to(tl.float32), 0.0)
                if WANT_Q:
                    store_tile(
                        d_q_ptr + b * d_q_b + h * d_q_h + far(t0, d_q_row),
                        d_q / sqrt_n_d,
                        places,
                        n_rows - t0,
                        d_q_row,
                        d_q_d,
                        WIDTH,
                        PADDED,
                    )


@triton.jit(do_not_specialize=["n_rows", "n_keys", "n_d", "n_i", "programs"])
def out_backward_key_again(
    q_ptr, k_ptr, v_ptr, given_ptr, level_ptr, odd_ptr, slope_ptr, document_ptr, key_document_ptr,
    table_ptr, d_k_ptr, d_v_ptr,
    q_b, q_h, q_step, k_b, k_h, k_step, v_b, v_h, v_step, given_b, given_h, given_step, slope_b, slope_h,
    document_b, document_h, document_row, key_document_b, key_document_h, key_document_key, table_b,
    table_h, d_k_b, d_k_h, d_k_key, d_k_d, d_v_b, d_v_h, d_v_key, d_v_e,
    n_heads, n_rows, n_keys, n_d, n_i, programs,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, CARRIED: tl.constexpr, CARRIED_PADDED: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRODUCTS: tl.constexpr, FEW: tl.constexpr,
    WANT_K: tl.constexpr, WANT_V: tl.constexpr,
):
    """The gradients of tiles of keys and values where they are not finite, once more and query by query."""
    first = tl.program_id(0) * 16
    marks = first * KEYS + tl.arange(0, 16 * KEYS)
    if tl.sum(tl.load(odd_ptr + marks, mask=marks < programs * KEYS, other=0.0), 0) == 0.0:
        return
    for marked in tl.range(first, tl.minimum(first + 16, programs)):
        if tl.sum(tl.load(odd_ptr + marked * KEYS + tl.arange(0, KEYS)), 0) != 0.0:
            tiles = tl.cdiv(n_keys, KEYS)
            at = marked // tiles
            t0 = marked % tiles * KEYS
            t1 = tl.minimum(t0 + KEYS, n_keys)
            b, h = (at // (n_heads // GROUP)).to(tl.int64), (at % (n_heads // GROUP)).to(tl.int64)
            shared = h
            for lead in tl.range(0, KEYS, 16):
                places = lead + tl.arange(0, 16)
                near = tl.minimum(places, n_keys - 1 - t0)
                keys = t0 + near
                k = load_tile(k_ptr + (b * k_b + shared * k_h + far(t0, k_step)) * 8, near, k_step, PADDED)
                d_k = tl.zeros((16, PADDED), tl.float32)
                v = load_tile(v_ptr + (b * v_b + shared * v_h + far(t0, v_step)) * 8, near, v_step, CARRIED_PADDED)
                d_v = tl.zeros((16, CARRIED_PADDED), tl.float32)
                sqrt_n_d = tl.sqrt(n_d.to(tl.float32))
                scale = LOG2_E / sqrt_n_d
                key_offset = (keys - t0).to(tl.float32)
                for member in range(0, GROUP):
                    h = shared * GROUP + member
                    head = b * n_heads + h
                    begin, full_begin, full_end, end = tiles_of(t0, n_i, t1 - 1, n_i, ROWS)
                    met = table_ptr + b * table_b + h * table_h + (t0 // KEYS) * 4
                    begin, full_begin, full_end, end = within(begin, full_begin, full_end, end, met)
                    document_at = document_ptr + b * document_b + h * document_h
                    key_document_at = key_document_ptr + b * key_document_b + h * key_document_h
                    key_document = tl.load(key_document_at + keys.to(tl.int64) * key_document_key)
                    scaled_slope = tl.load(slope_ptr + b * slope_b + h * slope_h).to(tl.float32) * LOG2_E
                    for r0 in tl.range(begin * ROWS, tl.minimum(end * ROWS, n_rows), num_stages=1):
                        near_rows = tl.arange(0, 1)
                        rows = r0 + near_rows
                        q = load_tile(q_ptr + (b * q_b + h * q_h + far(r0, q_step)) * 8, near_rows, q_step, PADDED)
                        dot = one_dot(k, q)
                        total, delta = load_level(level_ptr, head, rows, n_rows)
                        given = load_tile(
                            given_ptr + (b * given_b + h * given_h + far(r0, given_step)) * 8,
                            near_rows,
                            given_step,
                            CARRIED_PADDED,
                        )
                        key_end = rows + 1
                        document = tl.load(document_at + rows.to(tl.int64) * document_row)
                        allowed = (keys[:, None] < key_end[None, :]) & (document[None, :] == key_document[:, None])
                        row_offset = (rows - t0).to(tl.float32)
                        score = tl.where(
                            allowed,
                            dot * scale - (row_offset[None, :] - key_offset[:, None]) * scaled_slope,
                            float("-inf"),
                        )
                        p = tl.exp2(score - total[None, :])
                        if WANT_V:
                            d_v += tl.where(allowed, p * given.to(tl.float32), 0.0)
                        dp = one_dot(v, given)
                        d_score = p * (dp - delta[None, :])
                        d_k += tl.where(allowed, d_score * q.to(tl.float32), 0.0)
                if WANT_K:
                    store_tile(
                        d_k_ptr + b * d_k_b + shared * d_k_h + far(t0, d_k_key),
                        d_k / sqrt_n_d,
                        places,
                        n_keys - t0,
                        d_k_key,
                        d_k_d,
                        WIDTH,
                        PADDED,
                    )
                if WANT_V:
                    store_tile(
                        d_v_ptr + b * d_v_b + shared * d_v_h + far(t0, d_v_key),
                        d_v,
                        places,
                        n_keys - t0,
                        d_v_key,
                        d_v_e,
                        CARRIED,
                        CARRIED_PADDED,
                    )


attend_out = attending(
    "attend_out",
    out_forward,
    out_backward_query,
    out_backward_key,
    None,
    1,
    ("", "row", "key"),
    (True, False, False),
    tiled=(1, 2),
    normalised=True,
    work="marked",
    again=(out_forward_again, out_backward_query_again, out_backward_key_again),
    along=("h", "b", "b"),
)


def out_tile_2(arrays, batch, head, rows, keys):
    """The bias of a tile's scores, and the mask of its pairs."""
    slope, document = arrays
    device = slope.device
    n_h = slope.shape[0]
    n_b = document.shape[0]
    b0, b1, _ = batch.indices(n_b)
    h0, h1, _ = head.indices(n_h)
    r0, r1 = rows.start, rows.stop
    k0, k1 = keys.start, keys.stop
    i_2 = torch.arange(r0, max(r0, r1), device=device)
    i_1 = torch.arange(k0, max(k0, k1), device=device)
    out_2 = -slope[h0:h1].to(torch.float32)
    out_3 = (i_2[:, None] - i_1).to(torch.float32) * out_2[:, None, None]
    kept = document[b0:b1, r0:r1][:, :, None] == document[b0:b1, k0:k1][:, None]
    return out_3[None, :, :, :], ((i_1 <= i_2[:, None]) & kept)[:, None, :, :]


attend_out_2 = with_tiles("attend_out_2", out_tile_2)


def like_folded_2(tensors, sizes, scalars):
    n_i, n_b, n_d, n_h, n_e = sizes
    return (
        tensors[0].new_empty((n_b, n_h, n_i, n_e), dtype=torch.float32),
        tensors[0].new_empty((n_b, n_h, n_i), dtype=torch.float32),
    )


def rows_of_folded_2(tensors, sizes, scalars):
    device = tensors[0].device
    K, Q, part, V, document, document_2 = tensors
    n_i, n_b, n_d, n_h, n_e = sizes
    pairs, keys_2 = tile_of(tensors[0])
    folded_2, totals = like_folded_2(tensors, sizes, scalars)
    i_step = max(1, pairs // max(1, n_b * n_h * min(n_i, keys_2)))
    for i0 in range(0, n_i, i_step):
        i1 = min(i0 + i_step, n_i)
        i_count = i1 - i0
        i_2 = torch.arange(i_count, device=device)
        number = i_2 + i0
        part_2 = Q[:, :, i0:i1].to(torch.float32) / math.sqrt(n_d)
        i_1_end = min(n_i, i0 + i_count)
        peak = torch.full((n_b, n_h, i_count), -torch.inf, dtype=torch.float32, device=device)
        gathered = torch.zeros((n_b, n_h, i_count, n_e), dtype=torch.float32, device=device)
        total = torch.zeros((n_b, n_h, i_count), dtype=torch.float32, device=device)
        for i_1_start in range(0, i_1_end, keys_2):
            i_1_stop = min(i_1_start + keys_2, i_1_end)
            i_1_count = i_1_stop - i_1_start
            i_1 = torch.arange(i_1_count, device=device)
            number_2 = i_1 + i_1_start
            mask = document[:, i0:i1][:, None] == document_2[:, i_1_start:i_1_stop][:, :, None]
            mask_2 = (number_2[:, None] <= number) & mask
            part_3 = (number[:, None] - number_2).to(torch.float32) * part[:, None, None]
            part_4 = (part_2 @ K[:, :, i_1_start:i_1_stop].to(torch.float32).permute(0, 1, 3, 2)).sub_(part_3)
            score = torch.where(mask_2.permute(0, 2, 1)[:, None], part_4, -math.inf)
            peak_2 = torch.maximum(peak, score.amax(-1))
            level = torch.where(peak_2 == -math.inf, 0.0, peak_2)
            fade = (peak - level).mul_(1.4426950408889634).exp2_()
            weights = score.sub_(level[:, :, :, None]).mul_(1.4426950408889634).exp2_()
            chosen = torch.where(
                mask_2.any(-1)[:, None, :, None], V[:, :, i_1_start:i_1_stop].to(torch.float32), 0.0
            )
            gathered_2 = (gathered * fade[:, :, :, None]).add_(weights @ chosen)
            total_2 = fade.mul_(total).add_(weights.sum(-1))
            peak, gathered, total = peak_2, gathered_2, total_2
        folded_2[:, :, i0:i1] = torch.where(
            (total == 0.0)[:, :, :, None], 0.0, gathered / total[:, :, :, None]
        )
        totals[:, :, i0:i1] = torch.log(total).add_(torch.where(peak == -math.inf, 0.0, peak))
    return (folded_2, totals)


def back_from_folded_2(arriving, found, tensors, sizes, scalars, sums):
    device = tensors[0].device
    d_folded_2, d_totals = arriving
    folded_2, totals = found
    d_K, d_Q, d_part, d_V, d_document, d_document_2 = sums
    K, Q, part, V, document, document_2 = tensors
    n_i, n_b, n_d, n_h, n_e = sizes
    pairs, keys_2 = tile_of(tensors[0])
    i_step = max(1, pairs // max(1, n_b * n_h * min(n_i, keys_2)))
    for i0 in range(0, n_i, i_step):
        i1 = min(i0 + i_step, n_i)
        i_count = i1 - i0
        i_2 = torch.arange(i_count, device=device)
        number = i_2 + i0
        part_2 = (d_folded_2[:, :, i0:i1] * folded_2[:, :, i0:i1]).sum(-1).neg_().add_(d_totals[:, :, i0:i1])
        part_2_2 = Q[:, :, i0:i1].to(torch.float32) / math.sqrt(n_d)
        chosen = torch.where(totals[:, :, i0:i1] == -math.inf, math.inf, totals[:, :, i0:i1])
        i_1_end = min(n_i, i0 + i_count)
        for i_1_start in range(0, i_1_end, keys_2):
            i_1_stop = min(i_1_start + keys_2, i_1_end)
            i_1_count = i_1_stop - i_1_start
            i_1 = torch.arange(i_1_count, device=device)
            number_2 = i_1 + i_1_start
            mask = document[:, i0:i1][:, :, None] == document_2[:, i_1_start:i_1_stop][:, None]
            mask_2 = (number_2 <= number[:, None]) & mask
            part_3 = K[:, :, i_1_start:i_1_stop].to(torch.float32)
            part_2_3 = (number[:, None] - number_2).to(torch.float32)
            part_4 = (part_2_2 @ part_3.permute(0, 1, 3, 2)).sub_(part_2_3 * part[:, None, None])
            score = torch.where(mask_2[:, None], part_4, -math.inf)
            weights = score.sub_(chosen[:, :, :, None]).mul_(1.4426950408889634).exp2_()
            chosen_2 = torch.where(
                mask_2.any(1)[:, None, :, None], V[:, :, i_1_start:i_1_stop].to(torch.float32), 0.0
            )
            part_5 = (
                d_folded_2[:, :, i0:i1] @ chosen_2.permute(0, 1, 3, 2)
            ).add_(part_2[:, :, :, None]).mul_(weights)
            d_score_2 = torch.where(mask_2[:, None], part_5, 0.0)
            if d_K is not None:
                d_K[:, :, i_1_start:i_1_stop] += d_score_2.permute(0, 1, 3, 2) @ part_2_2
            if d_Q is not None:
                i_1_2 = torch.arange(i_1_count, device=device)
                mask_3 = document[:, i0:i1][:, None] == document_2[:, i_1_start:i_1_stop][:, :, None]
                chosen_3 = torch.where(
                    (((i_1_2 + i_1_start)[:, None] <= number) & mask_3).any(-1)[:, None, :, None], part_3, 0.0
                )
                d_Q[:, :, i0:i1] += (d_score_2 @ chosen_3).div_(math.sqrt(n_d))
            if d_part is not None:
                d_part += (-d_score_2).sum(0).reshape(
                    n_h, i_count * i_1_count
                ) @ part_2_3.reshape(i_count * i_1_count)
            if d_V is not None:
                d_V[:, :, i_1_start:i_1_stop] += weights.permute(0, 1, 3, 2) @ d_folded_2[:, :, i0:i1]


attend_folded_2 = folded("attend_folded_2", rows_of_folded_2, back_from_folded_2, like_folded_2, 2)


def program(Q, K, V, document, slope):
    device = Q.device
    n_b, n_h, n_i, n_d = Q.shape
    if K.shape != (n_b, n_h, n_i, n_d):
        raise Refused("IX304", "`K` is not [b, h, i, d] with the sizes of the other inputs")
    n_e = V.shape[3]
    if V.shape != (n_b, n_h, n_i, n_e):
        raise Refused("IX304", "`V` is not [b, h, i, e] with the sizes of the other inputs")
    if document.shape != (n_b, n_i):
        raise Refused("IX304", "`document` is not [b, i] with the sizes of the other inputs")
    if slope.shape != (n_h,):
        raise Refused("IX304", "`slope` is not [h] with the sizes of the other inputs")

    # let scores[b, h, i, j]  = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) - slope[h] * (i - j);
    # let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i, document[b, i] == document[b, j];
    # let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
    if n_i <= 16 and n_d <= 256 and n_e <= 256 and learns_nothing(slope, Q, K, V):
        out = attend_few_out([Q, K, V, slope, document, document], [n_d], [])
    else:
        if n_d <= 256 and n_e <= 256:
            out = attend_out([Q, K, V, slope, document, document], [n_d, n_i], [])
        else:
            if learns(slope):
                part = slope.to(torch.float32)
                folded_2 = attend_folded_2(
                    [K, Q, part, V, document, document], [n_i, n_b, n_d, n_h, n_e], []
                )[0]
                out_2 = folded_2.to(torch.bfloat16)
                out = out_2
            else:
                scale = 1 / math.sqrt(n_d) if n_d else math.nan
                i = torch.arange(n_i, device=device)
                out_2 = i + 1
                lower = torch.stack((torch.full((1, 1, n_i), 0, device=device),))
                upper = torch.stack((out_2[None, None],))
                out = attend_out_2(Q, K, V, lower, upper, scale, arrays=[slope, document])
    return out
