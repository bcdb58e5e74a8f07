"""The text of Triton kernels that compute a tile once more, key by key or query by query, where products of matrices
gave sums that are not finite: there 0 times NaN is NaN, and would reach those who may not hear it.

They are kernels of their own, launched behind the others: in these they would take registers, and time to compile.
"""

from __future__ import annotations

from ...ir import nodes as ir
from .triton_backward import key_cotangent, level_line, place_among, store_keys, take_keys, write_cotangents
from .triton_forward import store_result, take_forward
from .triton_kernels import (
    ALONE,
    Kernel,
    Parts,
    edges,
    in_brackets,
    load_line,
    place_before,
    roots,
    signature_of,
    tag,
    write_allowed,
    write_exponent,
    write_score,
)
from .triton_queries import store_queries, take_queries
from .triton_score import KEY, PAIR, ROW, dot_name

# So many rows of a tile at a time: few, since little is to be compiled for what is rare. And so many programs of the
# kernel before are looked at by one.
LEAD, SEVERAL = 16, 16


def forward_again(parts: Parts) -> str:
    """The kernel for results that are not finite, and for queries that have no weight."""
    about = "Attention of tiles of queries where it is not finite, or where one attends to nothing, key by key."
    kernel = Kernel(parts, "forward_again", about, KEY, False, ALONE)
    take_forward(kernel, "programs")
    _begin_marked(kernel, "ROWS")
    body = _begin_queries(kernel, "total = tl.load(total_ptr + far(at, n_rows) + rows)")
    kernel.printer.count(roots(kernel))
    kernel.add(2, "odd = tl.load(odd_ptr + marked * ROWS + places)")
    kernel.add(2, f"acc = tl.zeros(({LEAD}, CARRIED_PADDED), tl.float32)")
    if parts.scale is not None:
        _write_silence(kernel)
        kernel.add(2, "odd = tl.where(silent, 0.0, odd)")
    kernel.add(2, "if tl.sum(odd, 0) != 0.0:")
    kernel.indent += 1
    _write_one_key(kernel)
    kernel.add(3, "p = score" if parts.scale is None else f"p = tl.exp2({write_exponent(kernel, 3)} - total[:, None])")
    kernel.add(3, "acc += tl.where(allowed, p * v.to(tl.float32), 0.0)")
    kernel.add(2, *store_result())
    kernel.indent -= 1
    place_before(kernel, body, 2)
    return kernel.text()


def _write_silence(kernel: Kernel) -> None:
    """Tell queries that attend to nothing from those of which all scores are -inf: neither has any weight, but the
    result of the first is 0, and their total infinite, so that all their weights are 0 on the way back."""
    first, last = _ends(len(kernel.parts.forward), "KEYS", "n_keys")
    kernel.add(2, 'silent = total == float("-inf")', "if tl.max(silent.to(tl.int32), 0) > 0:")
    kernel.add(3, f"heard = tl.zeros(({LEAD},), tl.int32)", f"for k0 in tl.range({first}, {last}, KEYS, num_stages=1):")
    kernel.printer.begin()
    kernel.add(4, "fresh = k0 + tl.arange(0, KEYS) < n_keys", "keys = tl.minimum(k0 + tl.arange(0, KEYS), n_keys - 1)")
    write_allowed(kernel, 4, "fresh[None, :]")
    kernel.add(4, "heard += tl.max(allowed.to(tl.int32), 1)")
    start, _ = store_result()
    kernel.add(
        3,
        "nobody = silent & (heard == 0) & (places < n_rows - t0)",
        'total = tl.where(nobody, float("inf"), total)',
        "tl.store(total_ptr + far(at, n_rows) + t0 + places, total, mask=nobody)",
        start,
        "start += places[:, None] * out_row + tl.arange(0, CARRIED_PADDED)[None, :] * out_e",
        "tl.store(start, acc, mask=nobody[:, None] & (tl.arange(0, CARRIED_PADDED)[None, :] < CARRIED))",
    )


def query_again(parts: Parts) -> str:
    """The kernel for gradients of queries that are not finite."""
    about = "The gradients of tiles of queries where they are not finite, once more and key by key."
    kernel = Kernel(parts, "backward_query_again", about, KEY, False, ALONE)
    take_queries(kernel, "programs")
    _begin_marked(kernel, "ROWS")
    dots = tuple(parts.terms.dots)
    flows = [parts.cotangents[dot] for dot in dots]
    body = _begin_queries(kernel, level_line("at"))
    kernel.add(2, load_line("given", "t0", "near", "h", "CARRIED_PADDED"))
    kernel.printer.count(roots(kernel, *parts.chosen.values(), *(cell for pair in flows for cell in pair)))
    for number in kernel.dots:
        kernel.add(2, f"d_q{tag(number)} = tl.zeros(({LEAD}, PADDED{tag(number)}), tl.float32)")
    _write_one_key(kernel)
    write_cotangents(kernel, 3, True, alone=True)
    for number, (cell, _) in enumerate(flows):
        _write_share(kernel, 3, dots[number], f"d_q{tag(number)}", kernel.written(3, cell), f"k{tag(number)}")
    kernel.add(2, *store_queries(kernel))
    place_before(kernel, body, 2)
    return kernel.text()


def key_again(parts: Parts) -> str:
    """The kernel for gradients of keys and values that are not finite."""
    about = "The gradients of tiles of keys and values where they are not finite, once more and query by query."
    kernel = Kernel(parts, "backward_key_again", about, ROW, True, ALONE)
    take_keys(kernel, "programs")
    _begin_marked(kernel, "KEYS")
    queries, keys, *_ = signature_of(parts)
    flows = [parts.cotangents[dot] for dot in parts.terms.dots]
    _place(kernel, "(n_heads // GROUP)", "n_keys", "KEYS")
    kernel.add(1, "shared = h", f"for lead in tl.range(0, KEYS, {LEAD}):")
    kernel.add(2, f"places = lead + tl.arange(0, {LEAD})", "near = tl.minimum(places, n_keys - 1 - t0)")
    kernel.add(2, "keys = t0 + near")
    for number, k in enumerate(keys):
        kernel.add(2, load_line(k, "t0", "near", "shared", f"PADDED{tag(number)}"))
        kernel.add(2, f"d_{k} = tl.zeros(({LEAD}, PADDED{tag(number)}), tl.float32)")
    kernel.add(2, load_line("v", "t0", "near", "shared", "CARRIED_PADDED"))
    kernel.add(2, f"d_v = tl.zeros(({LEAD}, CARRIED_PADDED), tl.float32)")
    before = len(kernel.lines)
    kernel.add(2, "for member in range(0, GROUP):")
    kernel.add(3, "h = shared * GROUP + member", "head = b * n_heads + h")
    kernel.ranges(parts.transposed, "ROWS", 3)
    body = len(kernel.lines)
    kernel.printer.count(roots(kernel, *parts.chosen.values(), *(cell for pair in flows for cell in pair)))
    _write_loop(kernel, 3, "r0", "ROWS", "n_rows", len(parts.transposed))
    kernel.add(4, "near_rows = tl.arange(0, 1)", "rows = r0 + near_rows")
    for number, q in enumerate(queries):
        kernel.add(4, load_line(q, "r0", "near_rows", "h", f"PADDED{tag(number)}"))
        kernel.add(4, f"{dot_name(number)} = one_dot(k{tag(number)}, {q})")
    if parts.scale is not None:
        kernel.add(4, level_line("head"))
    kernel.add(4, load_line("given", "r0", "near_rows", "h", "CARRIED_PADDED"))
    write_score(kernel, 4, True, None)
    write_cotangents(kernel, 4, True, alone=True)
    for dot, q, k in zip(parts.terms.dots, queries, keys, strict=True):
        _write_share(kernel, 4, dot, f"d_{k}", key_cotangent(kernel, 4, dot), q)
    kernel.add(2, *store_keys(kernel))
    place_among(kernel, before, body, 2)
    return kernel.text()


def _write_share(kernel: Kernel, indent: int, dot: ir.Expr, target: str, cotangent: str, side: str) -> None:
    """Add the share of a pair to a gradient: 0 where the pair is not allowed, or its dot product is not chosen."""
    chosen = kernel.parts.chosen.get(dot)
    kept = "allowed" if chosen is None else f"allowed & {in_brackets(kernel.written(indent, chosen, PAIR))}"
    kernel.add(indent, f"{target} += tl.where({kept}, {in_brackets(cotangent)} * {side}.to(tl.float32), 0.0)")


def _place(kernel: Kernel, heads: str, length: str, step: str) -> None:
    """The tile that is marked, and its batch and head."""
    kernel.add(1, f"tiles = tl.cdiv({length}, {step})", "at = marked // tiles", f"t0 = marked % tiles * {step}")
    kernel.place_rest(heads, length, step)


def _begin_marked(kernel: Kernel, step: str) -> None:
    """Begin a kernel of tiles of which another one has marked some rows; `marked` counts them."""
    kernel.add(
        1,
        f"first = tl.program_id(0) * {SEVERAL}",
        f"marks = first * {step} + tl.arange(0, {SEVERAL} * {step})",
        f"if tl.sum(tl.load(odd_ptr + marks, mask=marks < programs * {step}, other=0.0), 0) == 0.0:",
        "    return",
        f"for marked in tl.range(first, tl.minimum(first + {SEVERAL}, programs)):",
        f"    if tl.sum(tl.load(odd_ptr + marked * {step} + tl.arange(0, {step})), 0) != 0.0:",
    )
    kernel.indent = 2


def _begin_queries(kernel: Kernel, known: str) -> int:
    """Begin a tile of queries, some of them at a time, with the line that loads what is `known` of each; the place in
    it of what the loop over keys needs."""
    _place(kernel, "n_heads", "n_rows", "ROWS")
    kernel.ranges(kernel.parts.forward, "KEYS")
    kernel.add(1, f"for lead in tl.range(0, ROWS, {LEAD}):")
    kernel.add(2, f"places = lead + tl.arange(0, {LEAD})", "near = tl.minimum(places, n_rows - 1 - t0)")
    kernel.add(2, "rows = t0 + near")
    for number in kernel.dots:
        kernel.add(2, load_line(f"q{tag(number)}", "t0", "near", "h", f"PADDED{tag(number)}"))
    if kernel.parts.scale is not None:
        kernel.add(2, known)
    return len(kernel.lines)


def _write_one_key(kernel: Kernel) -> None:
    """Begin the loop over keys: a key, its value and its scores."""
    _write_loop(kernel, 2, "k0", "KEYS", "n_keys", len(kernel.parts.forward))
    kernel.add(3, "near_keys = tl.arange(0, 1)", "keys = k0 + near_keys")
    for number in kernel.dots:
        k = f"k{tag(number)}"
        kernel.add(3, load_line(k, "k0", "near_keys", "(h // GROUP)", f"PADDED{tag(number)}"))
        kernel.add(3, f"{dot_name(number)} = one_dot(q{tag(number)}, {k})")
    kernel.add(3, load_line("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED"))
    write_score(kernel, 3, True, None)


def _write_loop(kernel: Kernel, indent: int, name: str, step: str, length: str, count: int) -> None:
    """Begin a loop over places one by one, from the first tile to the last."""
    first, last = _ends(count, step, length)
    kernel.add(indent, f"for {name} in tl.range({first}, {last}, num_stages=1):")
    kernel.printer.begin()


def _ends(count: int, step: str, length: str) -> tuple[str, str]:
    """The first place of the tiles of so many blocks, and the one behind the last."""
    ends = [edges(number if count > 1 else None) for number in range(count)]
    return f"{ends[0][0]} * {step}", f"tl.minimum({ends[-1][3]} * {step}, {length})"
