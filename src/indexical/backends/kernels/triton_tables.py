"""Small Triton kernels before and behind those of an attention: what is known of rows on the way back, the tiles that
meet by labels or by a mask, and what is read from a table and summed for it. This text needs Triton and nothing else.
"""

import triton.language as tl

from . import triton_jit as triton
from .triton_tile import LOG2_E, far, store_level, sums_of


@triton.jit  # type: ignore[untyped-decorator]
def level_kernel(  # type: ignore[no-untyped-def]
    out_ptr,
    given_ptr,
    level_ptr,
    total_ptr,
    gain_ptr,
    out_b,
    out_h,
    out_row,
    out_e,
    given_b,
    given_h,
    given_row,
    given_e,
    n_heads,
    n_rows,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The level of every query: its total, a logarithm to base 2, and the sum of result times cotangent, less the
    cotangent of the total where there is one."""
    tiles = tl.cdiv(n_rows, ROWS)
    at = tl.program_id(0) // tiles
    r0 = (tl.program_id(0) % tiles) * ROWS
    b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)
    near, columns = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - r0), tl.arange(0, PADDED)[None, :]
    start = given_ptr + b * given_b + h * given_h + far(r0, given_row)
    given = tl.load(start + near[:, None] * given_row + columns * given_e, mask=columns < WIDTH, other=0.0)
    start = out_ptr + b * out_b + h * out_h + far(r0, out_row)
    delta = sums_of(given, start, near, out_row, out_e, WIDTH, PADDED)
    rows = r0 + near
    if gain_ptr is not None:
        delta -= tl.load(gain_ptr + far(at, n_rows) + rows) * LOG2_E
    store_level(level_ptr, at, rows, n_rows, tl.load(total_ptr + far(at, n_rows) + rows), delta)


@triton.jit  # type: ignore[untyped-decorator]
def ends_of(start, step, tile, length, STEP: tl.constexpr, GRAIN: tl.constexpr):  # type: ignore[no-untyped-def]
    """The least and the largest label of some tiles: from labels, or from those of every so many."""
    if GRAIN == 1:
        places = tl.minimum(tile[:, None] * STEP + tl.arange(0, STEP)[None, :], length - 1).to(tl.int64)
        labels = tl.load(start + places * step).to(tl.int64)
        ends = tl.min(labels, 1), tl.max(labels, 1)
    else:  # What is behind a return is compiled, too, and would give labels of other types.
        spans = tile[:, None] * (STEP // GRAIN) + tl.arange(0, STEP // GRAIN)[None, :]
        spans = start + tl.minimum(spans, tl.cdiv(length, GRAIN) - 1) * 2
        ends = tl.min(tl.load(spans), 1), tl.max(tl.load(spans + 1), 1)
    return ends


@triton.jit(do_not_specialize=["n_rows", "n_keys"])  # type: ignore[untyped-decorator]
def spans_kernel(  # type: ignore[no-untyped-def]
    row_ptr, key_ptr, row_span_ptr, key_span_ptr, row_b, row_h, row_at, key_b, key_h, key_at, n_heads, n_rows, n_keys,
    GRAIN: tl.constexpr, OWN: tl.constexpr,
):
    """The least and the largest label of every so many queries, and of every so many keys."""
    programs = tl.cdiv(tl.cdiv(n_rows, GRAIN), OWN)
    both = programs + tl.cdiv(tl.cdiv(n_keys, GRAIN), OWN)
    at, turn = tl.program_id(0) // both, tl.program_id(0) % both
    b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)
    if turn < programs:
        _store_spans(row_span_ptr, row_ptr + b * row_b + h * row_h, row_at, at, turn, n_rows, GRAIN, OWN)
    else:
        _store_spans(key_span_ptr, key_ptr + b * key_b + h * key_h, key_at, at, turn - programs, n_keys, GRAIN, OWN)


@triton.jit  # type: ignore[untyped-decorator]
def _store_spans(span_ptr, labels, step, at, turn, length, GRAIN: tl.constexpr, OWN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Some spans of labels, of one head or of all."""
    spans = tl.cdiv(length, GRAIN)
    span = turn * OWN + tl.arange(0, OWN)
    least, most = ends_of(labels, step, span, length, GRAIN, 1)
    found = span_ptr + (far(at, spans) + span) * 2
    tl.store(found, least, mask=span < spans)
    tl.store(found + 1, most, mask=span < spans)


@triton.jit(do_not_specialize=["n_rows", "n_keys"])  # type: ignore[untyped-decorator]
def labels_kernel(  # type: ignore[no-untyped-def]
    row_ptr, key_ptr, row_table_ptr, key_table_ptr,
    row_b, row_h, row_at, key_b, key_h, key_at, n_heads, n_rows, n_keys,
    ROWS: tl.constexpr, KEYS: tl.constexpr, OTHER_ROWS: tl.constexpr, OTHER_KEYS: tl.constexpr,
    GRAIN: tl.constexpr, OWN: tl.constexpr, SEVERAL: tl.constexpr,
):
    """For tiles of queries the tiles of keys that they may meet by their labels, and for tiles of keys those of
    queries, in tiles of other sizes: both, or one of them. The labels are given, or their spans."""
    programs = 0 if row_table_ptr is None else tl.cdiv(tl.cdiv(n_rows, ROWS), OWN)
    both = programs + (0 if key_table_ptr is None else tl.cdiv(tl.cdiv(n_keys, OTHER_KEYS), OWN))
    at, turn = tl.program_id(0) // both, tl.program_id(0) % both
    b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)
    rows, keys = row_ptr + b * row_b + h * row_h, key_ptr + b * key_b + h * key_h
    if row_table_ptr is not None and turn < programs:
        _store_meeting(
            row_table_ptr, rows, keys, row_at, key_at, at, turn, n_rows, n_keys, ROWS, KEYS, GRAIN, OWN, SEVERAL
        )
    if key_table_ptr is not None and turn >= programs:
        turn -= programs
        _store_meeting(
            key_table_ptr, keys, rows, key_at, row_at, at, turn, n_keys, n_rows, OTHER_KEYS, OTHER_ROWS,
            GRAIN, OWN, SEVERAL,
        )


@triton.jit  # type: ignore[untyped-decorator]
def _store_meeting(  # type: ignore[no-untyped-def]
    table_ptr, labels, others, label_at, other_at, at, turn, length, other_length,
    STEP: tl.constexpr, OTHER_STEP: tl.constexpr, GRAIN: tl.constexpr, OWN: tl.constexpr, SEVERAL: tl.constexpr,
):
    """For some tiles, the tiles whose labels each may meet, from the first to the last, and those that have its one
    label alone. All other labels, or their spans, are read once for so many tiles."""
    tiles, other_tiles = tl.cdiv(length, STEP), tl.cdiv(other_length, OTHER_STEP)
    tile = turn * OWN + tl.arange(0, OWN)
    least, most = ends_of(labels, label_at, tile, length, STEP, GRAIN)
    least, most = least[:, None], most[:, None]
    first = tl.full((OWN, SEVERAL), 1 << 30, tl.int32)
    last = tl.full((OWN, SEVERAL), -1, tl.int32)
    full_first, full_last = first, last
    count = tl.zeros((OWN, SEVERAL), tl.int32)
    for start in range(0, other_tiles, SEVERAL):
        other = start + tl.arange(0, SEVERAL)
        low, high = ends_of(others, other_at, other, other_length, OTHER_STEP, GRAIN)
        low, high, other = low[None, :], high[None, :], other[None, :]
        meets = (low <= most) & (high >= least) & (other < other_tiles)
        first = tl.where(meets, tl.minimum(first, other), first)
        last = tl.where(meets, other, last)
        alone = meets & (low == high) & (least == most)
        full_first = tl.where(alone, tl.minimum(full_first, other), full_first)
        full_last = tl.where(alone, other, full_last)
        count += alone.to(tl.int32)
    found = table_ptr + (far(at, tiles) + tile) * 4
    there, first, last, count = tile < tiles, tl.min(first, 1), tl.max(last, 1), tl.sum(count, 1)
    _store_met(found, there, first, last, tl.min(full_first, 1), tl.max(full_last, 1), count)


@triton.jit(do_not_specialize=["length", "other_length"])  # type: ignore[untyped-decorator]
def mask_kernel(  # type: ignore[no-untyped-def]
    mask_ptr,
    table_ptr,
    mask_b,
    mask_h,
    mask_own,
    mask_other,
    n_heads,
    length,
    other_length,
    STEP: tl.constexpr,
    OTHER_STEP: tl.constexpr,
):
    """The tiles in which a mask keeps some pair, from the first to the last, and those in which it keeps all. Where it
    does not vary with the others, a tile of these is as good as all."""
    tiles = tl.cdiv(length, STEP)
    at = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)
    places = tl.minimum(tile * STEP + tl.arange(0, STEP), length - 1).to(tl.int64)
    own = mask_ptr + b * mask_b + h * mask_h + places[:, None] * mask_own
    first = tl.full((), 1 << 30, tl.int32)
    last = tl.full((), -1, tl.int32)
    full_first, full_last, count = first, last, tl.full((), 0, tl.int32)
    others = tl.cdiv(other_length, OTHER_STEP)
    alike = tl.where(mask_other == 0, tl.maximum(others, 1), 1)
    for turn in range(tl.cdiv(others, alike)):
        theirs = tl.minimum(turn * OTHER_STEP + tl.arange(0, OTHER_STEP), other_length - 1).to(tl.int64)
        kept = tl.load(own + theirs[None, :] * mask_other).to(tl.int32)
        some, every = tl.max(tl.max(kept, 1), 0) > 0, tl.min(tl.min(kept, 1), 0) > 0
        first = tl.where(some, tl.minimum(first, turn), first)
        last = tl.where(some, turn + alike - 1, last)
        full_first = tl.where(every, tl.minimum(full_first, turn), full_first)
        full_last = tl.where(every, turn + alike - 1, full_last)
        count += every.to(tl.int32) * alike
    _store_met(table_ptr + (far(at, tiles) + tile) * 4, True, first, last, full_first, full_last, count)


@triton.jit
def _store_met(found, there, first, last, full_first, full_last, count):  # type: ignore[no-untyped-def]
    """The ends of the tiles that are met, and of those that are full where no other lies between them."""
    end, full_end = last + 1, full_last + 1
    whole = full_end - full_first == count
    tl.store(found, tl.minimum(first, end), mask=there)
    tl.store(found + 1, tl.where(whole, full_first, 0), mask=there)
    tl.store(found + 2, tl.where(whole, full_end, 0), mask=there)
    tl.store(found + 3, end, mask=there)


@triton.jit
def place_at(places_ptr, n, n_rows, n_keys, slope, offset, least, most):  # type: ignore[no-untyped-def]
    """The places in a table of distances of a query from its key, counted from the least that there is: from an array,
    or by their rule."""
    n = tl.minimum(tl.maximum(n, 0), n_rows + n_keys - 2)
    if places_ptr is None:
        place = (n - (n_keys - 1)).to(tl.int64) * slope + offset
        place = tl.minimum(tl.maximum(place, least), most)
    else:
        place = tl.load(places_ptr + n)
    return place


@triton.jit(do_not_specialize=["n_rows", "n_keys", "length", "count", "slope", "offset", "least", "most"])  # type: ignore[untyped-decorator]
def bank_kernel(  # type: ignore[no-untyped-def]
    table_ptr, places_ptr, bank_ptr, table_b, table_h, table_at,
    n_heads, n_rows, n_keys, length, count, slope, offset, least, most,
    ROWS: tl.constexpr, KEYS: tl.constexpr, FLIPPED: tl.constexpr,
):
    """One tile of a bank: what a table has for every pair of queries and keys at one distance of their tiles. A table
    that is read at a distance is the same along diagonals, so that few such tiles serve all, and they load in rows."""
    at = tl.program_id(0) // count
    number = tl.program_id(0) % count
    b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)
    furthest = (tl.cdiv(n_keys, KEYS) - 1) * KEYS
    rows, keys = tl.arange(0, ROWS)[:, None], tl.arange(0, KEYS)[None, :]
    apart = number * (ROWS if ROWS < KEYS else KEYS) - furthest + rows - keys
    place = place_at(places_ptr, apart + n_keys - 1, n_rows, n_keys, slope, offset, least, most)
    place = tl.minimum(tl.maximum(place, 0), length - 1)
    tile = tl.load(table_ptr + b * table_b + h * table_h + place * table_at)
    spots = keys * ROWS + rows if FLIPPED else rows * KEYS + keys
    tl.store(bank_ptr + far(tl.program_id(0), ROWS * KEYS) + spots, tile)


@triton.jit(do_not_specialize=["n_rows", "n_keys", "low", "slots", "skipped"])  # type: ignore[untyped-decorator]
def strips_kernel(  # type: ignore[no-untyped-def]
    sums_ptr, span_ptr, found_ptr, n_rows, n_keys, low, slots, skipped,
    ROWS: tl.constexpr, KEYS: tl.constexpr, STRIP: tl.constexpr, MANY: tl.constexpr,
):
    """The sums of all pairs at as many distances as a strip is wide, from those of the diagonals of tiles, in a fixed
    order: so many parts of the queries at a time. There are sums of heads behind those that are skipped."""
    before = tl.cdiv(n_rows - 1, STRIP)
    strips = before + tl.cdiv(n_keys, STRIP)
    at = tl.program_id(0) // strips
    ahead = tl.program_id(0) % strips - before  # Of a key, in strips.
    tiles = tl.cdiv(n_rows, ROWS)
    parts = tiles * (ROWS // STRIP)
    inside = tl.arange(0, STRIP)[None, :]
    found = tl.zeros((STRIP,), tl.float32)
    last = tl.minimum(parts, tl.cdiv(n_keys, STRIP) - ahead)
    for first in tl.range(tl.maximum(-1 - ahead, 0), last, MANY, num_stages=1):
        part = first + tl.arange(0, MANY)
        query = part // (ROWS // STRIP)
        span = span_ptr + (far(skipped + at, tiles) + query) * 2
        begin = tl.load(span, mask=part < last, other=0)
        end = tl.load(span + 1, mask=part < last, other=0)
        start = tl.maximum(query * ROWS + low, 0) // KEYS
        place = part + ahead + 1
        for more in tl.static_range(2):
            key = place // (KEYS // STRIP) - more
            slot = key - start
            kept = (key >= begin) & (key < end) & (slot >= 0) & (slot < slots)
            if more:
                kept &= place % (KEYS // STRIP) == 0
            strip = place % (KEYS // STRIP) + more * (KEYS // STRIP)
            sums = (far(at, parts) + part) * (slots * (KEYS + STRIP)) + slot * (KEYS + STRIP) + strip * STRIP
            found += tl.sum(tl.load(sums_ptr + sums[:, None] + inside, mask=kept[:, None], other=0.0), 0)
    n = n_keys - 1 - ahead * STRIP - tl.arange(0, STRIP)
    there = (n >= 0) & (n < n_rows + n_keys - 1)
    tl.store(found_ptr + far(skipped + at, n_rows + n_keys - 1) + n, found, mask=there)


@triton.jit(do_not_specialize=["n_rows", "n_keys", "count", "top"])  # type: ignore[untyped-decorator]
def diagonals_kernel(  # type: ignore[no-untyped-def]
    sums_ptr, found_ptr, n_rows, n_keys, count, top, ROWS: tl.constexpr, STEP: tl.constexpr, MANY: tl.constexpr,
):
    """The sums of all pairs at some distances, from those of programs: strips of diagonals, from the furthest key on.
    The last strip of a program and the first of the next one have the same distances."""
    blocks = tl.cdiv(n_rows + n_keys - 1, MANY)
    at = tl.program_id(0) // blocks
    n = (tl.program_id(0) % blocks) * MANY + tl.arange(0, MANY)
    turn = (top + 1) * STEP - n_keys + n
    there = (turn >= 0) & (n < n_rows + n_keys - 1)
    turn = tl.maximum(turn, 0)
    strip = turn // STEP
    program = strip // (ROWS // STEP)
    start = sums_ptr + (far(at, count) + program) * (ROWS + STEP) + STEP - 1 - turn % STEP
    strip = strip % (ROWS // STEP)
    own = tl.load(start + strip * STEP, mask=there & (program < count), other=0.0)
    before = there & (strip == 0) & (program > 0) & (program <= count)
    own += tl.load(start - STEP, mask=before, other=0.0)
    tl.store(found_ptr + far(at, n_rows + n_keys - 1) + n, own, mask=n < n_rows + n_keys - 1)


@triton.jit(do_not_specialize=["n_rows", "n_keys", "length", "slope", "offset", "least", "most"])  # type: ignore[untyped-decorator]
def distance_kernel(  # type: ignore[no-untyped-def]
    sums_ptr, places_ptr, found_ptr, n_rows, n_keys, length, slope, offset, least, most, MANY: tl.constexpr,
):
    """The gradient of a table in which each distance has a place of its own, at some of them."""
    distances = n_rows + n_keys - 1
    blocks = tl.cdiv(distances, MANY)
    at = tl.program_id(0) // blocks
    n = (tl.program_id(0) % blocks) * MANY + tl.arange(0, MANY)
    place = place_at(places_ptr, n, n_rows, n_keys, slope, offset, least, most)
    value = tl.load(sums_ptr + far(at, distances) + n, mask=n < distances, other=0.0)
    tl.store(found_ptr + far(at, length) + place, value, mask=(n < distances) & (place >= 0) & (place < length))


@triton.jit(do_not_specialize=["n_rows", "n_keys", "length", "slope", "offset", "least", "most"])  # type: ignore[untyped-decorator]
def place_kernel(  # type: ignore[no-untyped-def]
    sums_ptr, places_ptr, found_ptr, n_rows, n_keys, length, slope, offset, least, most,
    OWN: tl.constexpr, MANY: tl.constexpr, SEVERAL: tl.constexpr,
):
    """The gradient of some entries of a table in which several distances may have the same place: they are added in
    their order, so that the sum is the same each time."""
    blocks = tl.cdiv(length, OWN)
    at = tl.program_id(0) // blocks
    own = (tl.program_id(0) % blocks) * OWN
    entries = own + tl.arange(0, OWN)
    found = tl.zeros((OWN,), tl.float32)
    distances = n_rows + n_keys - 1
    sums = sums_ptr + far(at, distances)
    for n0 in tl.range(0, distances, MANY, num_stages=1):
        places = place_at(places_ptr, n0 + tl.arange(0, MANY), n_rows, n_keys, slope, offset, least, most)
        if (tl.min(places, 0) < own + OWN) & (tl.max(places, 0) >= own):
            for n1 in tl.range(n0, tl.minimum(n0 + MANY, distances), SEVERAL, num_stages=1):
                n = n1 + tl.arange(0, SEVERAL)
                place = place_at(places_ptr, n, n_rows, n_keys, slope, offset, least, most)
                value = tl.load(sums + n, mask=n < distances, other=0.0)
                found += tl.sum(tl.where(place[:, None] == entries[None, :], value[:, None], 0.0), 0)
    tl.store(found_ptr + far(at, length) + entries, found, mask=entries < length)
