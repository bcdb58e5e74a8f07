"""The text of the Triton kernels of the gradients of an attention to keys and to tables, and what all share that go
back."""

from __future__ import annotations

from ...ir import nodes as ir
from .code import Name, names, show
from .triton_kernels import (
    Kernel,
    Parts,
    in_brackets,
    load_line,
    multiplied,
    opposite,
    place_before,
    roots,
    signature_of,
    steps_of,
    strides_of,
    tag,
    width_of,
    write_exponent,
    write_key_places,
    write_score,
)
from .triton_score import KEY, NOWHERE, PAIR, ROW, Cell, Operand, dot_name


def write_cotangents(kernel: Kernel, indent: int, is_partial: bool, alone: bool = False) -> None:
    """The weights of a tile and the cotangents of its scores, from those of the result. Of one key or query `alone`
    there are no products of matrices."""
    lead = "[None, :]" if kernel.printer.flipped else "[:, None]"
    scale = kernel.parts.scale
    if scale is None:
        kernel.add(indent, "p = score")
    else:
        kernel.add(indent, f"p = tl.exp2({write_exponent(kernel, indent)} - {_level(kernel, indent)})")
    if kernel.printer.flipped:
        dot = "d_v = with_product(d_v, p.to(given.dtype), given, PRODUCTS)"
        kernel.add(indent, "if WANT_V:")
        kernel.add(indent + 1, "d_v += tl.where(allowed, p * given.to(tl.float32), 0.0)" if alone else dot)
    own, other = ("v", "given") if kernel.printer.flipped else ("given", "v")
    dot = f"tl.dot({own}, tl.trans({other}), input_precision=PRODUCTS)"
    kernel.add(indent, f"dp = one_dot({own}, {other})" if alone else f"dp = {dot}")
    if scale is not None:
        kernel.add(indent, f"d_score = p * (dp - delta{lead})")
    else:
        kernel.add(indent, "d_score = tl.where(allowed, dp, 0.0)" if is_partial else "d_score = dp")


def _level(kernel: Kernel, indent: int) -> str:
    """The totals of rows, less what their scores are yet to be raised by."""
    lead, other = ("[None, :]", "[:, None]") if kernel.printer.flipped else ("[:, None]", "[None, :]")
    if kernel.slant is None:
        return f"total{lead}"
    slant, by_row = kernel.slant, kernel.written(indent, kernel.slant.by_row)
    if kernel.printer.flipped:
        level = f"(total {opposite(slant.row_sign)} {by_row}){lead}"
        return f"{level} {slant.key_sign} {kernel.written(indent, slant.by_key, NOWHERE)}{other}"
    by_tile = kernel.written(indent, slant.by_tile)
    return f"(total {opposite(slant.row_sign)} {by_row} {opposite(slant.key_sign)} {by_tile}){lead}"


def level_line(head: str) -> str:
    """The line that loads what is known of the rows of a head."""
    return f"total, delta = load_level(level_ptr, {head}, rows, n_rows)"


def known_of_rows(parts: Parts, *more: str) -> list[str]:
    """The arrays of what is known of rows, where weights are normalised, and of marks, where pairs are left out."""
    return [*([] if parts.scale is None else ["level", *more]), *([] if parts.allowed is None else ["odd"])]


def kept_pairs(kernel: Kernel, code: str, is_partial: bool) -> str:
    """The terms that are summed or stored for each pair of a tile, 0 for those that are not allowed: their weight is 0,
    and what it is multiplied with may be NaN."""
    return f"tl.where(allowed, {code}, 0.0)" if is_partial and kernel.parts.allowed is not None else code


def key_kernel(parts: Parts) -> str:
    """The kernel of the gradients of keys and values, and of arrays that vary with the key alone."""
    queries, keys, *_ = signature_of(parts)
    kernel = Kernel(parts, "backward_key", "The gradients of one tile of keys and values.", ROW, True)
    learned = take_keys(kernel)
    printer, dots = kernel.printer, tuple(parts.terms.dots)
    kernel.place("(n_heads // GROUP)", "n_keys", "KEYS", parts.transposed)
    kernel.add(1, "near = tl.minimum(tl.arange(0, KEYS), n_keys - 1 - t0)", "keys = t0 + near")
    for number, k in enumerate(keys):
        kernel.add(1, load_line(k, "t0", "near", "h", f"PADDED{tag(number)}"))
    kernel.add(1, load_line("v", "t0", "near", "h", "CARRIED_PADDED"))
    for number in kernel.dots:
        kernel.add(1, f"d_k{tag(number)} = no_sums(KEYS, PADDED{tag(number)})")
    kernel.add(1, "d_v = no_sums(KEYS, CARRIED_PADDED)", "places = tl.arange(0, KEYS)", "shared = h")
    before = len(kernel.lines)
    kernel.add(1, "for member in range(0, GROUP):")
    kernel.add(2, "h = shared * GROUP + member", "head = b * n_heads + h")
    for operand in learned:
        kernel.add(2, f"d_{operand.name} = tl.zeros((KEYS, 8), tl.float32)")
    kernel.ranges(parts.transposed, "ROWS", 2)
    body = len(kernel.lines)
    wanted = [parts.cotangents[expr][0] for expr in (*dots, *(o.expr for o in learned))]
    outer = [parts.cotangents[expr][1] for expr in (*dots, *(o.expr for o in learned))]
    printer.count(roots(kernel, *wanted, *outer))
    for is_partial, indent in kernel.loops(parts.transposed, 2, "ROWS"):
        if is_partial:
            kernel.add(indent, "r0, near_rows, fresh = places_of(r0, n_rows, ROWS, FEW)")
        else:
            kernel.add(indent, "near_rows = tl.arange(0, ROWS)")
        kernel.add(indent, "rows = r0 + near_rows")
        for number, q in enumerate(queries):
            kernel.add(indent, load_line(q, "r0", "near_rows", "h", f"PADDED{tag(number)}"))
            dot = f"tl.dot(k{tag(number)}, tl.trans({q}), input_precision=PRODUCTS)"
            kernel.add(indent, f"{dot_name(number)} = {dot}")
        if parts.scale is not None:
            kernel.add(indent, level_line("head"))
        if is_partial and parts.scale is not None:
            kernel.add(indent, 'total = tl.where(fresh, total, float("inf"))')
        kernel.add(indent, load_line("given", "r0", "near_rows", "h", "CARRIED_PADDED"))
        if parts.scale is None:
            write_score(kernel, indent, is_partial, "fresh[None, :]")
        else:
            write_score(kernel, indent, is_partial and parts.allowed is not None, None)
        write_cotangents(kernel, indent, is_partial)
        for number, expr in enumerate(dots):
            is_open = parts.cotangents[expr][0].is_open
            code = kept_pairs(kernel, key_cotangent(kernel, indent, expr), is_partial and is_open)
            q, name = queries[number], f"d_k{tag(number)}"
            kernel.add(indent, f"if WANT_K{tag(number)}:")
            dot = f"with_product({name}, {in_brackets(code)}.to({q}.dtype), {q}, PRODUCTS)"
            kernel.add(indent + 1, f"{name} = {dot}")
        for operand in learned:
            code = kept_pairs(kernel, kernel.written(indent, parts.cotangents[operand.expr][0]), is_partial)
            kernel.add(indent, f"if WANT_{operand.name}:")
            kernel.add(indent + 1, f"d_{operand.name} += partial_sums({code})")
    for operand in learned:
        factor = parts.cotangents[operand.expr][1]
        name = f"d_{operand.name}"
        code = f"tl.sum({name}, 1)"
        code = code if factor is None else multiplied(code, show(printer.written(factor, NOWHERE)))
        kernel.add(2, f"if WANT_{operand.name}:")
        kernel.add(3, f"tl.store({name}_ptr + far(head, n_keys) + t0 + places, {code}, mask=places < n_keys - t0)")
    lines = store_keys(kernel)
    place_among(kernel, before, body)
    kernel.mark("KEYS", (*(f"d_k{tag(number)}" for number in kernel.dots), "d_v"))
    kernel.add(1, *lines)
    return kernel.text()


def key_cotangent(kernel: Kernel, indent: int, dot: ir.Expr) -> str:
    """The cotangent of a dot product, with what it is multiplied with where that differs between heads."""
    cell, factor = kernel.parts.cotangents[dot]
    code = kernel.written(indent, cell)
    if factor is None or not _varies(factor):
        return code
    return f"{code} * {in_brackets(show(kernel.printer.written(factor, NOWHERE)))}"


def place_among(kernel: Kernel, before: int, body: int, indent: int = 1) -> None:
    """Put what the loops over rows need before them, or before the one over heads that share keys."""
    varying = {"b", "h", *kernel.flushed}
    for name, value in kernel.printer.outer:
        varying |= {name} if varying & set(names(value)) else set()
    lines = [(name in varying, f"{name} = {show(value)}") for name, value in kernel.printer.outer]
    lead = "    " * (kernel.indent + indent)
    kernel.lines[body:body] = [f"{lead}    {line}" for varies, line in lines if varies]
    kernel.lines[before:before] = [f"{lead}{line}" for varies, line in lines if not varies]


def store_keys(kernel: Kernel) -> list[str]:
    """The lines that write the gradients of keys and values."""
    lines = []
    for number, expr in enumerate(kernel.parts.terms.dots):
        factor = kernel.parts.cotangents[expr][1]
        name, width = f"d_k{tag(number)}", width_of(number)
        alone = factor is None or _varies(factor)
        code = name if factor is None or alone else multiplied(name, show(kernel.printer.written(factor, NOWHERE)))
        start = f"{name}_ptr + b * {name}_b + shared * {name}_h + far(t0, {name}_key)"
        store = f"store_tile({start}, {code}, places, n_keys - t0, {name}_key, {name}_d, {width})"
        lines += [f"if WANT_K{tag(number)}:", f"    {store}"]
    start = "d_v_ptr + b * d_v_b + shared * d_v_h + far(t0, d_v_key)"
    store = f"store_tile({start}, d_v, places, n_keys - t0, d_v_key, d_v_e, CARRIED, CARRIED_PADDED)"
    return [*lines, "if WANT_V:", f"    {store}"]


def take_keys(kernel: Kernel, *more: str) -> list[Operand]:
    """Say which parameters the kernel of the gradients of keys has: the arrays that have one there."""
    parts = kernel.parts
    queries, keys, pointers, strides = signature_of(parts)
    learned = parts.of_axes(KEY)
    own = [*steps_of(*queries, *keys, "v", "given"), *strides]
    targets = [f"d_k{tag(number)}" for number in kernel.dots]
    own += [stride for name in targets for stride in strides_of(name, "key", "d")]
    own += strides_of("d_v", "key", "e")
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "given", *known_of_rows(parts))]
    named += [*pointers, *(f"{name}_ptr" for name in (*targets, "d_v")), *(f"d_{o.pointer}" for o in learned)]
    flags = ["FEW", *(f"WANT_K{tag(number)}" for number in kernel.dots), "WANT_V", *(f"WANT_{o.name}" for o in learned)]
    kernel.takes(named, own, flags, more)
    return learned


def _varies(cell: Cell) -> bool:
    """Whether a number of the program may differ between heads that share keys."""
    if not cell.parts:
        return bool({"b", "h"} & set(names(cell.make())))
    return any(map(_varies, cell.parts))


def table_kernel(parts: Parts) -> str:
    """The kernel of the gradients of tables of distances: some diagonals of tiles, their own diagonals summed. A tile
    with several times as many queries as keys lies on as many diagonals, and moves on by its keys. The kernel is run
    again for what is not finite, more slowly: then what flows to a pair that is not allowed counts for nothing."""
    queries, keys, pointers, strides = signature_of(parts)
    about = "The gradients of tables, along some diagonals of tiles: sums of pairs that are equally far apart."
    kernel = Kernel(parts, "backward_table", about, PAIR, False, "0, ahead * KEYS")
    kernel.printer.moving = {"t0"}
    if parts.allowed is not None:
        kernel.add(1, "if AGAIN:", "    if tl.load(odd_ptr + tl.program_id(0)) == 0.0:", "        return")
    kernel.add(
        1,
        "at = tl.program_id(0) // diagonals",
        "diagonal = tl.program_id(0) % diagonals",
        "ahead = top - diagonal * (ROWS // KEYS)",
        "b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)",
        "near_rows, near_columns = tl.arange(0, ROWS), tl.arange(0, KEYS)",
        "moved = near_rows[:, None] + near_columns[None, :]",
    )
    for operand, bank in kernel.printer.banks.items():  # The same for all tiles of a diagonal.
        kernel.add(1, f"bank_{operand.name} = {show(bank)}")
        kernel.printer.banks[operand] = Name(f"bank_{operand.name}")
    body = len(kernel.lines)
    for operand in parts.tables:
        kernel.add(1, f"d_{operand.name} = tl.zeros((ROWS, KEYS), tl.float32)")
    wanted = [parts.cotangents[operand.expr] for operand in parts.tables]
    kernel.printer.count(roots(kernel, *(cell for pair in wanted for cell in pair)))
    kernel.add(1, "begin = tl.maximum(1 - ROWS // KEYS, -ahead)")
    kernel.add(1, "end = tl.minimum(tl.cdiv(n_rows, KEYS), tl.cdiv(n_keys, KEYS) - ahead)")
    kernel.add(1, "for turn in tl.range(begin, end):")
    kernel.printer.begin()
    kernel.add(
        2,
        "t0 = turn * KEYS",
        "k0 = (turn + ahead) * KEYS",
        "near = tl.minimum(tl.maximum(near_rows, -t0), n_rows - 1 - t0)",
        "rows = t0 + near",
        "there = near == near_rows",
    )
    write_key_places(kernel, 2, True)
    for number, (q, k) in enumerate(zip(queries, keys, strict=True)):
        kernel.add(2, load_line(q, "t0", "near", "h", f"PADDED{tag(number)}"))
        kernel.add(2, load_line(k, "k0", "near_keys", "(h // GROUP)", f"PADDED{tag(number)}"))
        kernel.add(2, f"{dot_name(number)} = tl.dot({q}, tl.trans({k}), input_precision=PRODUCTS)")
    if parts.scale is not None:
        kernel.add(2, level_line("at"), 'total = tl.where(there, total, float("inf"))')
    kernel.add(
        2,
        load_line("given", "t0", "near", "h", "CARRIED_PADDED"),
        load_line("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED"),
    )
    write_score(kernel, 2, True, "fresh[None, :]" if parts.scale is not None else "fresh[None, :] & there[:, None]")
    write_cotangents(kernel, 2, True)
    for operand, (cell, _) in zip(parts.tables, wanted, strict=True):
        kernel.add(2, f"if WANT_{operand.name}:")
        code = kernel.written(3, cell)
        more = "" if parts.allowed is None or cell.is_open else f" if AGAIN else {code}"
        kernel.add(3, f"d_{operand.name} += tl.where(allowed & there[:, None], {code}, 0.0){more}")
    if parts.allowed is not None:
        odd = " + ".join(f"zero_of(d_{operand.name})" for operand in parts.tables)
        kernel.add(1, "if not AGAIN:", f"    tl.store(odd_ptr + tl.program_id(0), {odd})")
    kernel.add(1, "# In all these tiles the same places have the same distance.")
    for operand, (_, factor) in zip(parts.tables, wanted, strict=True):
        more = "" if factor is None else f" * {show(kernel.printer.written(factor, NOWHERE))}"
        kernel.add(1, f"if WANT_{operand.name}:")
        kernel.add(
            2,
            f"skewed = tl.gather(d_{operand.name}{more}, moved % KEYS, 1)",
            f"start = d_{operand.pointer} + (far(at, diagonals) + diagonal) * (ROWS + KEYS) + near_columns",
            "for strip in tl.static_range(ROWS // KEYS + 1):",
            "    tl.store(start + strip * KEYS, tl.sum(tl.where(moved // KEYS == strip, skewed, 0.0), 0))",
        )
    place_before(kernel, body)
    own = [*steps_of(*queries, *keys, "v", "given"), *strides]
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "given", *known_of_rows(parts))]
    named += [*pointers, *(f"d_{operand.pointer}" for operand in parts.tables)]
    flags = ["FEW", *(f"WANT_{operand.name}" for operand in parts.tables), "AGAIN"]
    kernel.takes(named, own, flags, ["diagonals", "top"])
    return kernel.text()
