"""Small functions that the Triton kernels of an attention call. This text needs Triton and nothing else."""

import os

import triton.language as tl

from . import triton_jit as triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
LOG2_E = 1.4426950408889634 if INTERPRETED else tl.constexpr(1.4426950408889634)
LN_2 = 0.6931471805599453 if INTERPRETED else tl.constexpr(0.6931471805599453)


@triton.jit
def three_sums(x, y, z, more_x, more_y, more_z):  # type: ignore[no-untyped-def]
    """Three sums, each with one more term."""
    return x + more_x, y + more_y, z + more_z


if INTERPRETED:

    @triton.jit
    def tanh(x):  # type: ignore[no-untyped-def]
        """The hyperbolic tangent."""
        small = tl.exp(-2.0 * tl.abs(x))
        return tl.where(x < 0, -1.0, 1.0) * (1.0 - small) / (1.0 + small)

    fast_tanh = tanh

    @triton.jit
    def fast_sigmoid(x):  # type: ignore[no-untyped-def]
        """The logistic function of an exponent of 2."""
        return 1.0 / (1.0 + tl.exp2(-x))

    @triton.jit  # type: ignore[untyped-decorator]
    def no_sums(ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
        """Zeros to begin sums with."""
        return tl.zeros((ROWS, COLUMNS), tl.float32)

    @triton.jit
    def sums_together(x, y, z):  # type: ignore[no-untyped-def]
        """The sums of three arrays along their second axis."""
        return tl.sum(x, 1), tl.sum(y, 1), tl.sum(z, 1)
else:
    from triton.language.extra import libdevice

    @triton.jit
    def tanh(x):  # type: ignore[no-untyped-def]
        """The hyperbolic tangent."""
        return libdevice.tanh(x)

    @triton.jit
    def fast_tanh(x):  # type: ignore[no-untyped-def]
        """The hyperbolic tangent as the hardware has it, to eleven bits."""
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)

    @triton.jit
    def fast_sigmoid(x):  # type: ignore[no-untyped-def]
        """The logistic function of an exponent of 2, by the hardware's reciprocal, to 22 bits: a division takes eight
        times as long. What it is taken of is at least 1, so that nothing is lost where it flushes numbers near 0."""
        y = 1.0 + tl.exp2(x * -1.0)  # -x would be subtracted from 0.
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], tl.float32, is_pure=True, pack=1)

    @triton.jit
    def sums_together(x, y, z):  # type: ignore[no-untyped-def]
        """The sums of three arrays along their second axis, for which threads wait for each other once."""
        return tl.reduce((x, y, z), 1, three_sums)

    @triton.jit  # type: ignore[untyped-decorator]
    def no_sums(ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
        """Zeros to begin sums with, which the compiler does not know to be so. Zeros that it knows are written on each
        way into the second loop, and what is written there keeps matrix products from overlapping."""
        x = (tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]).to(tl.float32)
        return tl.inline_asm_elementwise("mul.f32 $0, $1, 0f00000000;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def far(place, stride):  # type: ignore[no-untyped-def]
    """The distance to a place, in 64 bits."""
    return (place + tl.full((), 0, tl.int64)) * stride


@triton.jit  # type: ignore[untyped-decorator]
def load_tile(start, near, row_stride, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Some rows of a matrix. Strides count eights: what is loaded ahead of its use lies at multiples of 16 bytes."""
    return tl.load(start + (near * (row_stride * 8))[:, None] + tl.arange(0, PADDED)[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def places_of(start, length, STEP: tl.constexpr, FEW: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first place of a tile, its places from there, and which of them are its own. A tile that would reach beyond
    the length begins earlier; where there are too few places for that, those beyond the last repeat it."""
    near = tl.arange(0, STEP)
    first = start if FEW else tl.minimum(start, length - STEP)
    fresh = start + near < length if FEW else first + near >= start
    return first, tl.minimum(near, length - 1 - start) if FEW else near, fresh


@triton.jit  # type: ignore[untyped-decorator]
def sums_of(given, start, near, row_stride, column_stride, WIDTH: tl.constexpr, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of result times cotangent, for every row of a tile."""
    columns = tl.arange(0, PADDED)[None, :]
    out = tl.load(start + near[:, None] * row_stride + columns * column_stride, mask=columns < WIDTH, other=0.0)
    return tl.sum(out.to(tl.float32) * given.to(tl.float32), 1)


@triton.jit
def level_of(level_ptr, head, rows, n_rows):  # type: ignore[no-untyped-def]
    """The addresses of the levels of some rows: 64 bits a row, from a multiple of 16 bytes on for every head."""
    return level_ptr + far(head, tl.cdiv(n_rows, 2)) * 2 + rows


@triton.jit
def store_level(level_ptr, head, rows, n_rows, total, delta):  # type: ignore[no-untyped-def]
    """Write the level of some rows: their total, and behind it what their cotangents are reduced by."""
    low = total.to(tl.uint32, bitcast=True).to(tl.int64)
    both = (delta.to(tl.int32, bitcast=True).to(tl.int64) << 32) | low
    tl.store(level_of(level_ptr, head, rows, n_rows), both)


@triton.jit
def load_level(level_ptr, head, rows, n_rows):  # type: ignore[no-untyped-def]
    """The total of some rows, and what their cotangents are reduced by. Where there are fewer rows than threads, each
    thread loads all that it needs itself: then both at once."""
    start = level_of(level_ptr, head, rows, n_rows)
    if rows.shape[0] < 128:
        both = tl.load(start)
        total = both.to(tl.int32).to(tl.float32, bitcast=True)
        delta = (both >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    else:
        halves = start.to(tl.pointer_type(tl.float32))
        total, delta = tl.load(halves), tl.load(halves + 1)
    return total, delta


@triton.jit  # type: ignore[untyped-decorator]
def bank_number(row, key, n_keys, ROWS: tl.constexpr, KEYS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The tile of a bank for the queries from `row` on and the keys from `key` on: it depends on their distance."""
    furthest = (tl.cdiv(n_keys, KEYS) - 1) * KEYS
    return (row - key + furthest) // (ROWS if ROWS < KEYS else KEYS)


@triton.jit  # type: ignore[untyped-decorator]
def load_bank(start, number, FIRST: tl.constexpr, SECOND: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile of a bank, as it lies there."""
    spots = tl.arange(0, FIRST)[:, None] * SECOND + tl.arange(0, SECOND)[None, :]
    return tl.load(start + number * (FIRST * SECOND) + spots).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def load_bank_column(start, number, near, column, SIZE: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Some of the column of a tile of a bank."""
    return tl.load(start + number * SIZE + near[:, None] * STEP + column).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def store_tile(start, tile, near, count, row_stride, column_stride, WIDTH: tl.constexpr, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the rows of a matrix that there are."""
    columns = tl.arange(0, PADDED)
    at = start + near[:, None] * row_stride + columns[None, :] * column_stride
    tl.store(at, tile.to(start.dtype.element_ty), mask=(near[:, None] < count) & (columns[None, :] < WIDTH))


@triton.jit
def several_heads(program, programs, tiles, together):  # type: ignore[no-untyped-def]
    """The head of a program, counted over all batches, and the number of its tile. Heads are taken several at a time,
    so many that they have `together` tiles: the first tile of each, then the second ones, and so on. Where first tiles
    take longest, the last programs to run are short."""
    several = tl.cdiv(together, tiles)
    first = program // (several * tiles) * several
    heads = tl.minimum(several, programs // tiles - first)
    turn = program - first * tiles
    return first + turn % heads, turn // heads


@triton.jit
def near_place(number):  # type: ignore[no-untyped-def]
    """A number that bounds places, in 32 bits. One that is beyond them all is so near that sums with places, of which
    there are fewer, do not overflow."""
    return tl.minimum(tl.maximum(number, -(2**30) + 1), 2**30 - 1).to(tl.int32)


@triton.jit  # type: ignore[untyped-decorator]
def tiles_of(first, beyond, full_first, full_beyond, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """The tiles of an interval, and those of them that lie in a full one: begin, full begin, full end, end."""
    first = tl.maximum(first, 0)
    begin = first // STEP
    end = tl.where(beyond > first, (tl.maximum(beyond, 0) + STEP - 1) // STEP, begin)
    full_begin = tl.minimum((tl.maximum(full_first, 0) + STEP - 1) // STEP, end)
    full_begin = tl.maximum(full_begin, begin)
    full_end = tl.maximum(tl.minimum(tl.maximum(full_beyond, 0) // STEP, end), full_begin)
    return begin, full_begin, full_end, end


@triton.jit
def within(begin, full_begin, full_end, end, met):  # type: ignore[no-untyped-def]
    """The tiles of a set that are met by a table, whose row this is; full where they are so in both."""
    low, full_low, full_high, high = tl.load(met), tl.load(met + 1), tl.load(met + 2), tl.load(met + 3)
    begin = tl.maximum(begin, low)
    end = tl.maximum(tl.minimum(end, high), begin)
    full_begin = tl.minimum(tl.maximum(tl.maximum(full_begin, full_low), begin), end)
    full_end = tl.maximum(tl.minimum(tl.minimum(full_end, full_high), end), full_begin)
    return begin, full_begin, full_end, end


@triton.jit
def in_order(a0, a1, a2, a3, b0, b1, b2, b3):  # type: ignore[no-untyped-def]
    """Two sets of tiles, the one that begins first ahead."""
    turn = b0 < a0
    return (
        tl.where(turn, b0, a0),
        tl.where(turn, b1, a1),
        tl.where(turn, b2, a2),
        tl.where(turn, b3, a3),
        tl.where(turn, a0, b0),
        tl.where(turn, a1, b1),
        tl.where(turn, a2, b2),
        tl.where(turn, a3, b3),
    )


@triton.jit
def behind(start, begin, full_begin, full_end, end):  # type: ignore[no-untyped-def]
    """The tiles of a set from a start on."""
    begin = tl.maximum(begin, start)
    end = tl.maximum(end, begin)
    full_begin = tl.minimum(tl.maximum(full_begin, begin), end)
    return begin, full_begin, tl.maximum(tl.minimum(full_end, end), full_begin), end


@triton.jit
def partial_tile(turn, begin, full_begin, full_end):  # type: ignore[no-untyped-def]
    """The tile of a turn among those that are not full."""
    before = full_begin - begin
    return tl.where(turn < before, begin + turn, full_end - before + turn)


@triton.jit
def partial_sums(tile):  # type: ignore[no-untyped-def]
    """The sums of the rows of a tile, each in eight parts: a thread has all terms of its own, and for what they sum up
    to threads wait for each other once, at the end."""
    return tl.sum(tl.reshape(tile, (tile.shape[0], tile.shape[1] // 8, 8)), 1)


@triton.jit  # type: ignore[untyped-decorator]
def with_product(sums, x, y, PRODUCTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums, with a product of matrices. That of 32 bits is made of its own: matrix units round what they add it to."""
    if x.dtype == tl.float32:
        return sums + tl.dot(x, y, input_precision=PRODUCTS)
    return tl.dot(x, y, sums)


@triton.jit  # type: ignore[untyped-decorator]
def absorb(score, scale, v, peak, weight, acc, PRODUCTS: tl.constexpr, raised=None):  # type: ignore[no-untyped-def]
    """A tile of scores and its values into the running softmax of base 2, whose weights are sums in parts. Scores may
    all be raised by one number."""
    highest = tl.max(score, 1) * scale
    higher = tl.maximum(peak, highest if raised is None else highest + raised)
    level = tl.where(higher == float("-inf"), 0.0, higher)
    p = tl.exp2(score * scale - (level if raised is None else level - raised)[:, None])
    fade = tl.exp2(peak - level)
    weight = weight * fade[:, None] + partial_sums(p)
    acc = with_product(acc * fade[:, None], p.to(v.dtype), v, PRODUCTS)
    return higher, weight, acc


@triton.jit
def larger(x, y):  # type: ignore[no-untyped-def]
    """The larger of two numbers, NaN where one of them is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(x, y):  # type: ignore[no-untyped-def]
    """The smaller of two numbers, NaN where one of them is."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def zero_of(acc):  # type: ignore[no-untyped-def]
    """0, or NaN where anything in an array is NaN or infinite."""
    return tl.sum(acc * 0.0)


@triton.jit
def zeros_of(sums):  # type: ignore[no-untyped-def]
    """For every row 0, or NaN where anything in it is NaN or infinite."""
    return tl.sum(sums * 0.0, 1)


@triton.jit
def unusual(acc, weight):  # type: ignore[no-untyped-def]
    """0, or NaN where anything in an array is NaN or infinite, or a row has no weight."""
    return tl.sum(acc * tl.where(weight == 0.0, float("nan"), 0.0)[:, None])


@triton.jit
def one_dot(q, k):  # type: ignore[no-untyped-def]
    """The dot products of all rows with one key."""
    return tl.sum(q.to(tl.float32) * k.to(tl.float32), 1)[:, None]


@triton.jit
def absorb_one(score, scale, v, peak, acc):  # type: ignore[no-untyped-def]
    """The value of one key, which may be NaN or infinite, to the rows that attend to it and to no others."""
    level = tl.where(peak == float("-inf"), 0.0, peak)
    p = tl.exp2(score * scale - level[:, None])
    return acc + tl.where(score == float("-inf"), 0.0, p * v.to(tl.float32))


@triton.jit
def beside(sink, peak, weight, acc):  # type: ignore[no-untyped-def]
    """Take a sink, as an exponent of 2, into the running softmax: it has weight and carries nothing."""
    higher = tl.maximum(peak, sink)
    level = tl.where(higher == float("-inf"), 0.0, higher)
    fade = tl.exp2(peak - level)
    return higher, weight * fade + tl.exp2(sink - level), acc * fade[:, None]


@triton.jit  # type: ignore[untyped-decorator]
def store_diagonals(  # type: ignore[no-untyped-def]
    sums_ptr, program, slot, slots, tile, factor, there, ROWS: tl.constexpr, KEYS: tl.constexpr, STRIP: tl.constexpr,
):
    """Write the sums of the diagonals of a tile, for every so many rows as a strip is wide. They begin with the pairs
    whose key is that much behind, counted from the first of these rows and of the columns. Rows are turned so that
    diagonals are columns; what goes past the end of a strip is on a diagonal of the strip before."""
    PARTS: tl.constexpr = ROWS // STRIP
    turned = tl.arange(0, ROWS)[:, None] % STRIP + tl.arange(0, STRIP)[None, :]
    past = tl.reshape(turned >= STRIP, (PARTS, STRIP, STRIP))
    at = slot * (KEYS + STRIP) + tl.arange(0, STRIP)[None, :]
    here = (at >= 0) & (at < slots * (KEYS + STRIP))
    at = sums_ptr + (far(program, PARTS) + tl.arange(0, PARTS))[:, None] * (slots * (KEYS + STRIP)) + at
    if KEYS == STRIP:
        left = tl.where(there[:, None], tl.gather(tile, turned % STRIP, 1), 0.0)
        left = tl.reshape(left, (PARTS, STRIP, STRIP))
        tl.store(at, tl.sum(tl.where(past, left, 0.0), 1) * factor, mask=here)
        tl.store(at + STRIP, tl.sum(tl.where(past, 0.0, left), 1) * factor, mask=here)
    else:
        left, right = tl.split(tl.permute(tl.reshape(tile, (ROWS, 2, STRIP)), (0, 2, 1)))
        left = tl.where(there[:, None], tl.gather(left, turned % STRIP, 1), 0.0)
        right = tl.where(there[:, None], tl.gather(right, turned % STRIP, 1), 0.0)
        left, right = tl.reshape(left, (PARTS, STRIP, STRIP)), tl.reshape(right, (PARTS, STRIP, STRIP))
        sums = sums_together(tl.where(past, left, 0.0), tl.where(past, right, left), tl.where(past, 0.0, right))
        # They are stored together: for each store threads would wait for each other.
        three = tl.join(tl.join(sums[0], sums[1]), tl.join(sums[2], sums[2]))
        strip = tl.arange(0, 2)[None, None, :, None] + 2 * tl.arange(0, 2)[None, None, None, :]
        tl.store(at[:, :, None, None] + strip * STRIP, three * factor, mask=here[:, :, None, None] & (strip < 3))
