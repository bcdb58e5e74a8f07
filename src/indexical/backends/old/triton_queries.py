"""The text of the Triton kernel of the gradients of an attention to queries, and to arrays that vary with no key, or
with each pair."""

from __future__ import annotations

from collections.abc import Sequence

from ...records import dataclass
from .code import show
from .triton_backward import kept_pairs, known_of_rows, write_cotangents
from .triton_kernels import (
    Kernel,
    Parts,
    edges,
    in_brackets,
    load_line,
    multiplied,
    place_before,
    roots,
    signature_of,
    steps_of,
    strides_of,
    tag,
    width_of,
    write_dots,
    write_score,
)
from .triton_score import GAINED, KEY, NOWHERE, PAIR, ROW, WEIGHT, Cell, Flow, Operand


@dataclass(frozen=True)
class Summed:
    """The arrays whose gradients are sums over the keys of each query. Weights share what flows back to a query, so
    that a gradient is what they gained less their share of its mean: where it is `halved`, both are summed, one in each
    of the `flows`. `shifted` are those that a distance is multiplied with."""

    operands: list[Operand]
    halved: bool
    flows: list[Flow]
    shifted: dict[Operand, tuple[list[Cell], str, Cell]]

    @classmethod
    def of(cls, parts: Parts, learned: Sequence[Operand]) -> Summed:
        operands = [operand for operand in learned if operand.expr in parts.cotangents]
        halved = bool(operands) and parts.scale is not None
        found = {operand: _shifted(parts, operand) for operand in operands if halved}
        shifted = {operand: shift for operand, shift in found.items() if shift is not None}
        flows = [
            {**flow, **{operand.expr: (cells[n], None) for operand, (cells, _, _) in shifted.items()}}
            for n, flow in enumerate(parts.halves if halved else [parts.cotangents])
        ]
        return cls(operands, halved, flows, shifted)

    @property
    def names(self) -> list[str]:
        """The names of all sums."""
        words = ("d", "share")[: 1 + self.halved]
        names = [f"{word}_{operand.name}" for operand in self.operands for word in words]
        return [*names, "mean"] if self.halved else names

    def add(self, kernel: Kernel, indent: int, is_partial: bool) -> None:
        """Add the pairs of a tile to the sums."""
        for operand in self.operands:
            cells = [flow[operand.expr][0] for flow in self.flows]
            unsure = operand.expr in kernel.parts.terms.partly or not self.halved or not all(map(_is_finite, cells))
            codes = [kept_pairs(kernel, kernel.written(indent, cell), is_partial and unsure) for cell in cells]
            kernel.add(indent, f"if WANT_{operand.name}:")
            for name, code in zip(("d", "share"), codes, strict=False):
                kernel.add(indent + 1, f"{name}_{operand.name} += partial_sums({code})")

    def add_mean(self, kernel: Kernel, indent: int, is_partial: bool) -> None:
        """Add what the pairs of a tile gained to the mean."""
        wanted = " or ".join(f"WANT_{operand.name}" for operand in self.operands)
        kernel.add(indent, f"if {wanted}:", f"    gained = {kept_pairs(kernel, 'p * dp', is_partial)}")
        kernel.add(indent + 1, "mean += partial_sums(gained)")

    def take_mean_off(self, kernel: Kernel) -> None:
        """Take the share of the mean off each gradient."""
        kernel.add(1, "if gain_ptr is not None:", "    mean -= gain")
        for operand in self.operands:
            name, share = f"d_{operand.name}", f"mean * share_{operand.name}"
            if operand.expr in kernel.parts.terms.partly:  # A row without a share may have a mean that is not finite.
                share = f"tl.where(share_{operand.name} == 0.0, 0.0, {share})"
            _, sign, row_part = self.shifted.get(operand, (None, "+", None))
            kernel.add(1, f"{name} -= {share}" if sign == "+" else f"{name} = {share} - {name}")
            if row_part is not None:
                rest = f'tl.where(total == float("inf"), 0.0, gain * {kernel.written(1, row_part)})'
                kernel.add(1, "if gain_ptr is not None:", f"    {name} += {rest}")


def query_kernel(parts: Parts) -> str:
    """The kernel of the gradients of queries, of arrays that vary with no key, and of those that have all pairs. Of the
    second, which add many terms of both signs, the mean is taken off at the end and not as the result rounds it. For
    tables of distances it sums the diagonals of each tile, where there is room for these sums."""
    _, keys, *_ = signature_of(parts)
    kernel = Kernel(parts, "backward_query", "The gradients of one tile of queries.", KEY, False)
    learned, paired = take_queries(kernel)
    summed = Summed.of(parts, learned)
    _write_tile(kernel)
    kernel.ranges(parts.forward, "KEYS")
    body = len(kernel.lines)
    for number in kernel.dots:
        kernel.add(1, f"d_q{tag(number)} = no_sums(ROWS, PADDED{tag(number)})")
    kernel.add(1, *(f"{name} = tl.zeros((ROWS, 8), tl.float32)" for name in summed.names))
    kernel.add(1, "places = tl.arange(0, ROWS)")
    for operand in paired:
        start = f"d_{operand.pointer} + (far(at, n_rows) + t0 + places)[:, None] * n_keys"
        kernel.add(1, f"d_{operand.name}_at = {start}")
    if parts.striped:
        kernel.add(1, "first = tl.maximum(t0 + low, 0) // KEYS", "place = far(at, tiles) + t0 // ROWS")
        begin, _, _, end = edges(None)
        kernel.add(1, f"tl.store(span_ptr + place * 2, {begin})", f"tl.store(span_ptr + place * 2 + 1, {end})")
    kernel.printer.count(roots(kernel, *_wanted(parts, summed, paired)))
    for is_partial, indent in kernel.loops(parts.forward, 1, "KEYS"):
        write_dots(kernel, indent, is_partial, keys)
        kernel.add(indent, load_line("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED"))
        write_score(kernel, indent, is_partial, "fresh[None, :]")
        write_cotangents(kernel, indent, is_partial)
        if summed.halved:
            summed.add_mean(kernel, indent, is_partial)
        for number, expr in enumerate(parts.terms.dots):
            cell, _ = parts.cotangents[expr]
            code = kept_pairs(kernel, kernel.written(indent, cell), is_partial and cell.is_open)
            k, name = keys[number], f"d_q{tag(number)}"
            kernel.add(indent, f"if WANT_Q{tag(number)}:")
            dot = f"with_product({name}, {in_brackets(code)}.to({k}.dtype), {k}, PRODUCTS)"
            kernel.add(indent + 1, f"{name} = {dot}")
        summed.add(kernel, indent, is_partial)
        _store_pairs(kernel, indent, is_partial, paired)
        _store_diagonals(kernel, indent, is_partial)
    kernel.add(1, *(f"{name} = tl.sum({name}, 1)" for name in summed.names))
    if summed.halved:
        summed.take_mean_off(kernel)
    kernel.mark("ROWS", (f"d_q{tag(number)}" for number in kernel.dots))
    kernel.add(1, *store_queries(kernel))
    _store_sums(kernel, learned, summed)
    place_before(kernel, body)
    return kernel.text()


def _write_tile(kernel: Kernel) -> None:
    """The tile of queries of a program, what flows back to its result, and what is known of its rows."""
    parts = kernel.parts
    kernel.place("n_heads", "n_rows", "ROWS", parts.forward, "skipped // tiles" if parts.striped else "")
    kernel.add(1, "near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)", "rows = t0 + near")
    for number in kernel.dots:
        kernel.add(1, load_line(f"q{tag(number)}", "t0", "near", "h", f"PADDED{tag(number)}"))
    kernel.add(1, load_line("given", "t0", "near", "h", "CARRIED_PADDED"))
    if parts.scale is not None:
        start = "out_ptr + b * out_b + h * out_h + far(t0, out_row)"
        kernel.add(
            1,
            "total = tl.load(total_ptr + far(at, n_rows) + rows)",
            f"delta = sums_of(given, {start}, near, out_row, out_e, CARRIED, CARRIED_PADDED)",
            "if gain_ptr is not None:",
            "    gain = tl.load(gain_ptr + far(at, n_rows) + rows) * LOG2_E",
            "    delta -= gain",
            "store_level(level_ptr, at, rows, n_rows, total, delta)",
        )


def _wanted(parts: Parts, summed: Summed, paired: Sequence[Operand]) -> list[Cell | None]:
    """All cotangents that the kernel writes, and the numbers that they are multiplied with."""
    whole = [*parts.terms.dots, *(operand.expr for operand in (*paired, *parts.striped))]
    others = [operand.expr for operand in summed.operands]
    wanted: list[Cell | None] = [parts.cotangents[expr][0] for expr in whole]
    wanted += [flow[expr][0] for expr in others for flow in summed.flows]
    wanted += [parts.cotangents[expr][1] for expr in (*whole, *others)]
    of_sink = {} if parts.sinking is None else parts.sinking[1]
    return [*wanted, *(cell for pair in of_sink.values() for cell in pair)]


def _store_pairs(kernel: Kernel, indent: int, is_partial: bool, paired: Sequence[Operand]) -> None:
    """Write the gradients of arrays that have all pairs."""
    for operand in paired:
        cell, factor = kernel.parts.cotangents[operand.expr]
        code = kernel.written(indent, cell)
        code = code if factor is None else multiplied(in_brackets(code), show(kernel.printer.written(factor, NOWHERE)))
        code = kept_pairs(kernel, code, is_partial)
        there = "(places[:, None] < n_rows - t0)" + (" & fresh[None, :]" if is_partial else "")
        kernel.add(indent, f"if WANT_{operand.name}:")
        kernel.add(indent + 1, f"tl.store(d_{operand.name}_at + keys[None, :], {code}, mask={there})")


def _store_diagonals(kernel: Kernel, indent: int, is_partial: bool) -> None:
    """Write the sums of the diagonals of a tile, for the gradients of tables."""
    for operand in kernel.parts.striped:
        cell, factor = kernel.parts.cotangents[operand.expr]
        code = kernel.written(indent, cell)
        code = f"tl.where(allowed, {code}, 0.0)" if is_partial else code
        more = "1.0" if factor is None else show(kernel.printer.written(factor, NOWHERE))
        kernel.add(indent, f"if WANT_{operand.name}:")
        where = f"d_{operand.pointer}, place - skipped, k0 // KEYS - first, slots"
        kernel.add(indent + 1, f"store_diagonals({where}, {code}, {more}, places < n_rows - t0, ROWS, KEYS, STRIP)")


def _store_sums(kernel: Kernel, learned: Sequence[Operand], summed: Summed) -> None:
    """Write the gradients of arrays that vary with no key: from their sums, and from what flows to a sink."""
    parts, printer = kernel.parts, kernel.printer
    of_sink = {} if parts.sinking is None else parts.sinking[1]
    if of_sink and parts.sinking is not None:
        printer.moving.add("sunk")  # What is made of it comes behind it.
        kernel.add(1, f"sunk = -tl.exp2({kernel.written(1, parts.sinking[0])} - total) * delta")
    for operand in learned:
        name, terms = f"d_{operand.name}", []
        if operand in summed.operands:
            factor = parts.cotangents[operand.expr][1]
            terms.append(name if factor is None else multiplied(name, show(printer.written(factor, NOWHERE))))
        if operand.expr in of_sink:
            cells = [cell for cell in of_sink[operand.expr] if cell is not None]
            terms.append(" * ".join(f"({kernel.written(1, cell)})" for cell in cells))
        code = " + ".join(terms)
        kernel.add(1, f"if WANT_{operand.name}:")
        if operand.axes:
            kernel.add(2, f"tl.store({name}_ptr + far(at, n_rows) + t0 + places, {code}, mask=places < n_rows - t0)")
        else:
            kernel.add(2, f"{name} = tl.where(places < n_rows - t0, {code}, 0.0)")
            kernel.add(2, f"tl.store({name}_ptr + far(at, tiles) + t0 // ROWS, tl.sum({name}, 0))")


def _shifted(parts: Parts, operand: Operand) -> tuple[list[Cell], str, Cell] | None:
    """The cotangents of an array that is multiplied with a distance of query and key, less what is the same for all
    keys of a query, the sign before them, and what that is: weights sum up to 1, so that it adds nothing unless the
    total has a cotangent, too. None where it is not so, or where weights are shared with a sink."""
    cells = []
    for flow in parts.halves if parts.sinking is None else ():
        product = flow[operand.expr][0]
        seed, *others = product.parts if product.sign == "*" else (None,)
        if seed is None or not seed.plain or len(others) != 1 or others[0] not in parts.terms.distances:
            return None
        row, key = others[0].parts
        cells.append(parts.terms.joined("*", (seed, key), "real"))
    return (cells, parts.terms.distances[others[0]], row) if cells else None


def _is_finite(cell: Cell) -> bool:
    """Whether a value is finite at every pair of a tile where it is at one that is allowed: it is made of places, of
    numbers of the program, and of weights, with or without what they gained, which are 0 at all other pairs unless the
    whole row is not finite."""
    if cell.operand is not None or cell.is_open:
        return not cell.axes
    if cell.parts:
        return all(map(_is_finite, cell.parts))
    return not cell.axes or show(cell.make()) in ("rows", "keys", GAINED[:-1], WEIGHT[:-1])


def store_queries(kernel: Kernel) -> list[str]:
    """The lines that write the gradients of queries."""
    lines = []
    for number, expr in enumerate(kernel.parts.terms.dots):
        factor = kernel.parts.cotangents[expr][1]
        name, width = f"d_q{tag(number)}", width_of(number)
        code = name if factor is None else multiplied(name, show(kernel.printer.written(factor, NOWHERE)))
        start = f"{name}_ptr + b * {name}_b + h * {name}_h + far(t0, {name}_row)"
        store = f"store_tile({start}, {code}, places, n_rows - t0, {name}_row, {name}_d, {width})"
        lines += [f"if WANT_Q{tag(number)}:", f"    {store}"]
    return lines


def take_queries(kernel: Kernel, *more: str) -> tuple[list[Operand], list[Operand]]:
    """Say which parameters the kernel of the gradients of queries has: the arrays that have one there, those that vary
    with no key and those that have all pairs."""
    parts = kernel.parts
    queries, keys, pointers, strides = signature_of(parts)
    learned = parts.of_axes(NOWHERE, ROW)
    paired = [operand for operand in parts.of_axes(PAIR) if operand.table is None]
    outs = [] if parts.scale is None else strides_of("out", "row", "e")
    own = [*steps_of(*queries, *keys, "v", "given"), *outs, *strides]
    targets = [f"d_q{tag(number)}" for number in kernel.dots]
    own += [stride for name in targets for stride in strides_of(name, "row", "d")]
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "given", *known_of_rows(parts, "total", "out", "gain"))]
    further = [operand for operand in parts.terms.operands if operand in (*learned, *paired)]
    named += [*pointers, *(f"{name}_ptr" for name in targets), *(f"d_{o.pointer}" for o in further)]
    if parts.striped:
        named += ["span_ptr", *(f"d_{o.pointer}" for o in parts.striped)]
        more = ("low", "slots", "skipped", *more)
    further += parts.striped
    flags = ["FEW", *(f"WANT_Q{tag(number)}" for number in kernel.dots), *(f"WANT_{o.name}" for o in further)]
    kernel.takes(named, own, [*flags, *(["STRIP"] if parts.striped else [])], more)
    return learned, paired
