"""The text of the Triton kernel of an attention."""

from __future__ import annotations

from .triton_kernels import (
    Kernel,
    Parts,
    load_line,
    place_before,
    roots,
    signature_of,
    steps_of,
    strides_of,
    tag,
    write_dots,
    write_score,
)
from .triton_score import KEY, PAIR


def forward_kernel(parts: Parts) -> str:
    """The kernel of the result: one tile of queries, its keys in turn."""
    queries, keys, *_ = signature_of(parts)
    kernel = Kernel(parts, "forward", f"Attention of one tile of queries: {parts.about}.", KEY, False)
    take_forward(kernel)
    printer = kernel.printer
    kernel.place("n_heads", "n_rows", "ROWS", parts.forward)
    kernel.add(1, "near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)", "rows = t0 + near")
    for number, q in enumerate(queries):
        kernel.add(1, load_line(q, "t0", "near", "h", f"PADDED{tag(number)}"))
    kernel.ranges(parts.forward, "KEYS")
    body = len(kernel.lines)
    if parts.scale is not None:
        kernel.add(1, 'peak = tl.full((ROWS,), float("-inf"), tl.float32)', "weight = tl.zeros((ROWS, 8), tl.float32)")
    kernel.add(1, "acc = no_sums(ROWS, CARRIED_PADDED)")
    printer.count(roots(kernel))
    for is_partial, indent in kernel.loops(parts.forward, 1, "KEYS"):
        write_dots(kernel, indent, is_partial, keys)
        write_score(kernel, indent, is_partial, "fresh[None, :]")
        scale = None if parts.scale is None else kernel.written(indent, parts.scale, PAIR)
        kernel.add(indent, load_line("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED"))
        if scale is None:
            kernel.add(indent, "acc = with_product(acc, score.to(v.dtype), v, PRODUCTS)")
        else:
            raised = ""
            if kernel.slant is not None:
                sign = kernel.slant.key_sign.removeprefix("+")
                raised = f", {sign}{kernel.written(indent, kernel.slant.by_tile)}"
            kernel.add(indent, f"peak, weight, acc = absorb(score, {scale}, v, peak, weight, acc, PRODUCTS{raised})")
    if parts.scale is not None:
        kernel.add(1, "weight = tl.sum(weight, 1)")
    if kernel.slant is not None:
        kernel.add(1, f"peak {kernel.slant.row_sign}= {kernel.written(1, kernel.slant.by_row)}")
    if parts.sinking is not None:
        kernel.add(1, f"peak, weight, acc = beside({kernel.written(1, parts.sinking[0])}, peak, weight, acc)")
    kernel.add(1, "places = tl.arange(0, ROWS)")
    if parts.scale is not None:
        kernel.add(
            1,
            "# A query of which all scores are -inf is NaN.",
            "acc = acc / weight[:, None]",
            "total = peak + tl.log2(weight)",
            "tl.store(total_ptr + far(at, n_rows) + t0 + places, total, mask=places < n_rows - t0)",
        )
    kernel.add(1, *store_result())
    kernel.mark("ROWS", ["acc"])
    place_before(kernel, body)
    return kernel.text()


def take_forward(kernel: Kernel, *more: str) -> None:
    """Say which parameters the kernel of the result has."""
    queries, keys, pointers, strides = signature_of(kernel.parts)
    odd = [] if kernel.parts.allowed is None else ["odd"]
    own = [*steps_of(*queries, *keys, "v"), *strides_of("out", "row", "e"), *strides]
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "out", "total", *odd)]
    kernel.takes([*named, *pointers], own, ["FEW"], more)


def store_result() -> list[str]:
    """The lines that write the result."""
    start = "start = out_ptr + b * out_b + h * out_h + far(t0, out_row)"
    return [start, "store_tile(start, acc, places, n_rows - t0, out_row, out_e, CARRIED, CARRIED_PADDED)"]
