"""The text of the Triton kernel of an attention, and of the one for sums that are not finite."""

from __future__ import annotations

from .triton_kernels import (
    COLUMN,
    Kernel,
    Parts,
    edges,
    load_line,
    place_before,
    roots,
    signature_of,
    steps_of,
    strides_of,
    tag,
    write_dots,
    write_exponent,
    write_score,
)
from .triton_score import KEY, dot_name


def forward_kernel(parts: Parts) -> str:
    """The kernel of the result: one tile of queries, its keys in turn."""
    queries, keys, pointers, strides = signature_of(parts)
    kernel = Kernel(parts, "forward", f"Attention of one tile of queries: {parts.about}.", KEY, False)
    printer = kernel.printer
    kernel.place("n_heads", "n_rows", "ROWS")
    kernel.add(1, "near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)", "rows = t0 + near")
    for number, q in enumerate(queries):
        kernel.add(1, load_line(q, "t0", "near", "h", f"PADDED{tag(number)}"))
    kernel.ranges(parts.forward, "KEYS")
    body = len(kernel.lines)
    if parts.scale is not None:
        kernel.add(1, 'peak = tl.full((ROWS,), float("-inf"), tl.float32)', "weight = tl.zeros((ROWS,), tl.float32)")
    kernel.add(1, "acc = no_sums(ROWS, CARRIED_PADDED)")
    printer.count(roots(parts))
    for is_partial, indent in kernel.loops(parts.forward, 1, "KEYS"):
        write_dots(kernel, indent, is_partial, keys)
        write_score(kernel, indent, is_partial, "fresh[None, :]")
        scale = None if parts.scale is None else kernel.written(indent, parts.scale)
        kernel.add(indent, load_line("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED"))
        if scale is None:
            kernel.add(indent, 'acc = tl.dot(score.to(v.dtype), v, acc, input_precision="ieee")')
        else:
            kernel.add(indent, f"peak, weight, acc = absorb(score, {scale}, v, peak, weight, acc)")
    if parts.allowed is not None:
        kernel.add(1, "tl.store(odd_ptr + tl.program_id(0), is_odd(acc))")
    if parts.sinking is not None:
        kernel.add(1, f"peak, weight, acc = beside({kernel.written(1, parts.sinking[0])}, peak, weight, acc)")
    if parts.scale is not None:
        kernel.add(
            1,
            "# A query that attends to nothing is 0, and its total infinite: so all its weights are 0 on the way back.",
            "acc = acc / tl.where(weight == 0.0, 1.0, weight)[:, None]",
        )
    _store_result(kernel)
    if parts.scale is not None:
        kernel.add(
            1,
            'total = tl.where(weight == 0.0, float("inf"), peak + tl.log2(weight))',
            "tl.store(total_ptr + far(at, n_rows) + t0 + places, total, mask=places < n_rows - t0)",
        )
    place_before(kernel, body)
    return _forward_text(kernel, queries, keys, pointers, strides)


def again_kernel(parts: Parts) -> str:
    """The kernel of a result that is not finite, key by key: a value that is NaN or infinite reaches only those queries
    that attend to it, and in a product of matrices 0 times NaN would reach all."""
    queries, keys, pointers, strides = signature_of(parts)
    about = "Attention of one tile of queries whose sums are not finite, once more and key by key."
    kernel = Kernel(parts, "forward_again", about, KEY, False, COLUMN)
    kernel.add(1, "if tl.load(odd_ptr + tl.program_id(0)) == 0:", "    return")
    kernel.place("n_heads", "n_rows", "ROWS")
    kernel.add(1, "near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)", "rows = t0 + near")
    for number, q in enumerate(queries):
        kernel.add(1, load_line(q, "t0", "near", "h", f"PADDED{tag(number)}"))
    if parts.scale is not None:
        kernel.add(1, "total = tl.load(total_ptr + far(at, n_rows) + rows)")
    kernel.ranges(parts.forward, "KEYS")
    body = len(kernel.lines)
    ends = [edges(number if len(parts.forward) > 1 else None) for number in range(len(parts.forward))]
    kernel.printer.count(roots(parts))
    kernel.add(
        1,
        "acc = no_sums(ROWS, CARRIED_PADDED)",
        f"for k0 in tl.range({ends[0][0]} * KEYS, tl.minimum({ends[-1][3]} * KEYS, n_keys), num_stages=1):",
        "    near_keys = tl.arange(0, 1)",
        "    keys = k0 + near_keys",
    )
    kernel.printer.begin()
    for number, k in enumerate(keys):
        kernel.add(2, load_line(k, "k0", "near_keys", "(h // GROUP)", f"PADDED{tag(number)}"))
        kernel.add(2, f"{dot_name(number)} = one_dot(q{tag(number)}, {k})")
    write_score(kernel, 2, True, None)
    kernel.add(2, "p = score" if parts.scale is None else f"p = tl.exp2({write_exponent(kernel, 2)} - total[:, None])")
    kernel.add(
        2,
        load_line("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED"),
        "acc += tl.where(allowed, p * v.to(tl.float32), 0.0)",
    )
    _store_result(kernel)
    place_before(kernel, body)
    return _forward_text(kernel, queries, keys, pointers, strides)


def _store_result(kernel: Kernel) -> None:
    kernel.add(
        1,
        "start = out_ptr + b * out_b + h * out_h + far(t0, out_row)",
        "places = tl.arange(0, ROWS)",
        "store_tile(start, acc, places, n_rows - t0, out_row, out_e, CARRIED, CARRIED_PADDED)",
    )


def _forward_text(kernel: Kernel, queries: list[str], keys: list[str], pointers: list[str], strides: list[str]) -> str:
    own = [*steps_of(*queries, *keys, "v"), *strides_of("out", "row", "e"), *strides]
    odd = [] if kernel.parts.allowed is None else ["odd"]
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "out", "total", *odd)]
    return kernel.text([*named, *pointers], own, ["FEW"])
