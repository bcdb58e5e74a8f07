"""Attention of few queries → a Triton kernel in the emitted source: keys are split over the card, and merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import TypeAlias

from ...ir import build
from ...ir import nodes as ir
from ...ir.needs import read_in
from ...ir.types import SHORT, Coordinate
from ...plan.steps import Attend, Scores
from ...plan.target import WIDEST
from ...records import replace
from . import arrays, contraction, library_attention, operands, sizes
from .base import Value
from .code import NONE, List, Name, Node, Part, String, call, chain, fill, infix, show
from .layout import Statement
from .lowering import Lowering
from .operands import Frame
from .plan.decode import Pages, compared, pages_of
from .scope import Place, Scope
from .triton_ import (
    array_of,
    comparing,
    host_number,
    in_slices,
    inside_tests,
    operands_of,
    products_of,
    promoted,
    relation_of,
    scalars,
    where_shared,
)
from .triton_kernels import Kernel, Parts, place_before, roots, tag, width_of, write_allowed
from .triton_score import KEY, NOWHERE, ROW, Cell, Operand, Terms, dot_name
from .triton_words import FEW_HELPERS, helpers_in, number_name

# The ends of the keys of each row, for each slice of a domain; None for the first or the last key of all.
Bounds: TypeAlias = "list[tuple[Cell | None, Cell | None]]"


class Packed(Terms):
    """Values of a tile whose rows are the queries of several heads: what varies with the head varies with the row."""

    def _made(self, expr: ir.Expr) -> Cell:
        match expr:
            case ir.Coord(coordinate) if self.batch and coordinate == self.batch[-1] and len(self.batch) <= 2:
                return Cell(ROW, "whole", lambda: Name("h"), plain=True)
        return super()._made(expr)

    def _lead(self, operand: Operand) -> list[Cell]:
        """The place of an array at the heads of the rows."""
        name, (b, h, *_) = operand.name, operand.strides
        lead: Node = fill("{p} + b * {s}", p=operand.pointer, s=b)
        own: Node = fill("h * {s}", s=h)
        heads = Cell(ROW, "whole", lambda: own, (), f"{name}_heads")
        return [Cell(NOWHERE, "whole", lambda: lead, (), f"{name}_at"), heads]


def decoded(
    low: Lowering, let: ir.Let, attend: Attend, frame: Frame, least: int, otherwise: Callable[[], Value]
) -> Value:
    """Few queries by a kernel of their own, where there are so many of them at least; all other calls `otherwise`."""
    frame = comparing(let, attend, frame, compared(attend).values())
    pages = _pages(attend, frame)
    parts, bounds = _parts(low, let, attend, frame, pages)
    maker = low.text.fresh(f"attend_few_{let.name}")
    text = decode_kernel(parts, bounds, pages is not None)
    low.functions.append(text)
    low.modules.update(triton=None, tl=None)
    low.kernels.setdefault("triton_launch", set()).add("launch")
    if shared := helpers_in(text):
        low.kernels.setdefault("triton_tile", set()).update(shared)
    used = {"decoding", "learns_nothing", *helpers_in(text, FEW_HELPERS)}
    if pages is not None and not _is_ours(low, pages):
        used.add("pages_inside")
    low.kernels.setdefault("triton_decode", set()).update(used)
    more: dict[str, Part] = {} if frame.total is None else {"totals": Name("True")}
    more |= where_shared(parts, frame) | promoted(low, let, parts)
    made = call("decoding", String(maker), "launch", parts.name, len(parts.dots), **more)
    low.functions.append(Statement(0, 0, "assign", maker, made).shown)
    variable = low.text.fresh(f"{let.name}_rows")
    test = _test(low, attend, frame, parts, least)
    if pages is not None:
        return _paged_or(low, let, attend, frame, parts, pages, maker, variable, test, otherwise)
    low.text.add("if", test)
    with low.block():
        code = operands_of(low, let, attend, replace(frame, total=None), parts, maker)  # It always gives totals.
        code = operands.with_total(low, code, let, frame)
        result = operands.restored(low, code, let, attend, frame)
        low.text.assign(variable, result.code)
    low.text.add("else")
    with low.block():
        low.text.assign(variable, arrays.in_order(low, otherwise(), result.axes).code)
    return result.but(Name(variable))


def _test(low: Lowering, attend: Attend, frame: Frame, parts: Parts, least: int) -> Node:
    """A test that there are few queries of widths that are small enough, and that nobody wants a gradient."""
    widths = [
        contraction.product_of_lengths(low, tuple(r.coordinate for r in dot.compared), frame.scope)
        for dot in parts.dots
    ]
    widths.append(contraction.product_of_lengths(low, attend.layout.carry, frame.scope))
    rows: Node = fill("1") if frame.row is None else sizes.length(low, frame.row, frame.scope)
    tests: list[Node] = [] if frame.row is None else [infix("<=", rows, FEW_QUERIES)]
    if least > 1:
        tests.append(infix(">=", rows, least))
        tests.append(infix(">=", sizes.length(low, attend.attention.coordinate, frame.scope), LEAST_KEYS))
    tests += [infix("<=", width, WIDEST) for width in dict.fromkeys(widths)]
    for operand in parts.terms.operands:
        tests += inside_tests(low, attend, operand)
    return chain("and", [*tests, call("learns_nothing", *_learned(low, attend))])


# So many queries are few.
FEW_QUERIES = 16
# Of plain attention, which the library's kernel computes: from so many keys on.
LEAST_KEYS = 1024


def _learned(low: Lowering, attend: Attend) -> Iterable[Name]:
    """The arrays of reals that are read: they may need gradients."""
    attention = attend.attention
    names = dict.fromkeys(read_in(*attention.parts, attention.value))
    return [
        Name(low.stored[name].variable)
        for name in names
        if low.tensors[name].kind == "real" and not low.stored[name].python
    ]


def _parts(low: Lowering, let: ir.Let, attend: Attend, frame: Frame, pages: Pages | None) -> tuple[Parts, Bounds]:
    """The score and the guard of an attention as values of a tile, and the ends of the keys of each row: one pair for
    each slice of its domain."""
    attention = attend.attention
    dots = compared(attend)
    products = products_of(low, let, attend, dots.values())
    row = frame.row if frame.row is not None else NO_ROW
    terms = Packed(frame.batch, row, attention.coordinate, dots, partial(host_number, low), SHORT.issuperset(products))
    score, scale = terms.in_base_two(attention.score)
    allowed = in_slices(terms, attend.keys, attention.key)
    bounds = [(_extreme(terms, "max", one.lower), _extreme(terms, "min", one.upper)) for one in attend.keys]
    about = relation_of(attention)
    if pages is not None:
        terms.numbers["page_size"] = "whole"
    name = low.text.fresh(f"{let.name}_decode")
    sink = None if attention.sink is None else terms.scaled(attention.sink)
    values = terms, tuple(dots.values()), score, scale, allowed
    return Parts(name, about, products, *values, (), (), {}, [], None if sink is None else (sink, {}), ()), bounds


# Stands for the coordinate of the queries where there is none: no expression varies with it.
NO_ROW = Coordinate("")


def _extreme(terms: Terms, op: str, bounds: tuple[ir.Expr, ...]) -> Cell | None:
    """The largest or smallest of some bounds; None of none."""
    result: ir.Expr | None = None
    for bound in bounds:
        result = bound if result is None else build.apply(op, (result, bound), "whole", bound.span)
    return None if result is None else terms.bound(result)


# --------------------------------------------------------------------------------------------- kernel


def decode_kernel(parts: Parts, bounds: Bounds, paged: bool) -> str:
    """The kernel of one split: some queries of the heads that share keys, and part of the keys that they attend to."""
    operands = parts.terms.operands
    queries, keys = ([f"{side}{tag(n)}" for n in range(len(parts.dots))] for side in "qk")
    kernel = Kernel(parts, "decode", f"Few queries over part of their keys: {parts.about}.", KEY, False)
    kernel.name = parts.name
    kernel.add(
        1,
        "tiles = tl.cdiv(n_rows * GROUP, ROWS)",
        "at = tl.program_id(0) // tiles",
        "b, shared = (at // (n_heads // GROUP)).to(tl.int64), (at % (n_heads // GROUP)).to(tl.int64)",
        "# The queries of all heads that share these keys; beyond the last one they repeat it.",
        "places = tl.minimum(tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS), n_rows * GROUP - 1)",
        "h, rows = shared * GROUP + places // n_rows, places % n_rows",
    )
    for number, q in enumerate(queries):
        start = f"{q}_ptr + b * {q}_b"
        kernel.add(1, f"{q} = few_rows({start}, h, rows, {q}_h, {q}_row, {width_of(number)})")
    _range(kernel, bounds)
    body = len(kernel.lines)
    kernel.add(
        1,
        "start, stop = split_of(first, beyond, KEYS)",
        'peak = tl.full((ROWS,), float("-inf"), tl.float32)',
        "weight = tl.zeros((ROWS, 8), tl.float32)",
        "acc = tl.zeros((ROWS, CARRIED_PADDED), tl.float32)",
    )
    kernel.printer.count(roots(kernel))
    kernel.add(1, "for k0 in tl.range(start, stop, KEYS):")
    scale = _scores(kernel, 2, keys, "KEYS", paged)
    kernel.add(2, f"peak, weight, acc = absorb(score, {scale}, v, peak, weight, acc, PRODUCTS)")
    kernel.add(1, "weight = tl.sum(weight, 1)")
    kernel.add(1, "if unusual(acc, weight) != 0.0:")
    _look_again(kernel, keys, paged)
    if parts.sinking is not None:
        kernel.add(1, "if tl.program_id(1) == 0:")
        kernel.add(2, f"peak, weight, acc = beside({kernel.written(2, parts.sinking[0])}, peak, weight, acc)")
    kernel.add(1, "store_split(found_ptr, acc, peak, weight, CARRIED, CARRIED_PADDED, ROWS)")
    place_before(kernel, body)
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "found")] + [operand.pointer for operand in operands]
    named += ["table_ptr"] if paged else []
    strides = [f"{q}_{axis}" for q in queries for axis in ("b", "h", "row")]
    strides += [f"{k}_{axis}" for k in (*keys, "v") for axis in ("b", "h", "key")]
    strides += [stride for operand in operands for stride in operand.strides]
    strides += ["table_b", "table_at"] if paged else []
    kernel.takes(named, strides, [])
    return kernel.text()


def _look_again(kernel: Kernel, keys: list[str], paged: bool) -> None:
    """The statements for where sums are not finite, or where a row has no weight: then none of its scores is above
    -inf, or it attends to nothing here."""
    kernel.add(
        2,
        "if zero_of(acc) != 0.0:",
        "    # Once more key by key, so that a value that is NaN or infinite reaches only those who attend to it.",
        "    acc = tl.zeros((ROWS, CARRIED_PADDED), tl.float32)",
        "    for k0 in tl.range(start, stop, num_stages=1):",
    )
    scale = _scores(kernel, 4, keys, "1", paged)
    kernel.add(4, f"acc = absorb_one(score, {scale}, v, peak, acc)")
    kernel.add(2, "heard = tl.zeros((ROWS,), tl.int32)", "for k0 in tl.range(start, stop, KEYS, num_stages=1):")
    _places(kernel, 3, "KEYS")
    kernel.add(3, "heard += tl.max(allowed.to(tl.int32) + tl.zeros((ROWS, KEYS), tl.int32), 1)")
    kernel.add(2, "peak = peak_of_silence(peak, weight, heard)")


def _range(kernel: Kernel, bounds: Bounds) -> None:
    """The first key that some row attends to, and the one beyond the last."""
    ends: list[list[str] | None] = [[], []]
    kernel.printer.count(cell for pair in bounds for cell in pair if cell is not None)
    for pair in bounds:
        for side, (cell, least) in enumerate(zip(pair, ("min", "max"), strict=True)):
            own = ends[side]
            if cell is None or own is None:
                ends[side] = None
                continue
            code = show(kernel.printer.written(cell))
            own.append(f"tl.{least}({code}, 0)" if ROW & cell.axes else code)
    kernel.flush(1)
    low, high = ends
    first, beyond = "0", "n_keys"
    if low is not None:
        first = f"tl.maximum({_nested('tl.minimum', low)}, 0).to(tl.int32)"
    if high is not None:
        beyond = f"tl.minimum({_nested('tl.maximum', high)}, n_keys).to(tl.int32)"
    kernel.add(1, f"first = {first}", f"beyond = {beyond}")


def _nested(function: str, codes: list[str]) -> str:
    result = codes[0]
    for code in codes[1:]:
        result = f"{function}({result}, {code})"
    return result


def _scores(kernel: Kernel, indent: int, keys: list[str], step: str, paged: bool) -> str:
    """The scores of so many keys and their values; the number that scores are yet to be multiplied with."""
    parts = kernel.parts
    _places(kernel, indent, step)
    if paged:
        kernel.add(indent, "page = tl.load(table_ptr + b * table_b + keys // page_size * table_at).to(tl.int64)")
        kernel.add(indent, "slot = keys % page_size")
    for number, k in enumerate(keys):
        kernel.add(indent, _keys(k, width_of(number), paged))
        dot = f"tl.dot(q{tag(number)}, tl.trans({k}), input_precision=PRODUCTS)"
        dot = f"one_dot(q{tag(number)}, {k})" if step == "1" else dot
        kernel.add(indent, f"{dot_name(number)} = {dot}")
    kernel.printer.masked = True
    kernel.add(indent, f'score = tl.where(allowed, {kernel.written(indent, parts.score)}, float("-inf"))')
    kernel.add(indent, _keys("v", "CARRIED, CARRIED_PADDED", paged))
    assert parts.scale is not None
    return kernel.written(indent, parts.scale)


def _places(kernel: Kernel, indent: int, step: str) -> None:
    """Print the places of the next keys of this split, and which of them each row attends to."""
    kernel.printer.begin()
    kernel.add(
        indent,
        f"positions = k0 + tl.arange(0, {step})",
        f"near = tl.minimum(tl.arange(0, {step}), stop - 1 - k0)",
        "keys = k0 + near",
    )
    write_allowed(kernel, indent, "(positions < stop)[None, :]")


def _keys(name: str, width: str, paged: bool) -> str:
    """The line that loads a tile of keys or values."""
    if paged:
        return f"{name} = paged_keys({name}_ptr + shared * {name}_h, page, slot, {name}_b, {name}_key, {width})"
    return f"{name} = some_keys({name}_ptr + b * {name}_b + shared * {name}_h, k0, near, {name}_key, {width})"


# ---------------------------------------------------------------------------------------------- pages


def _pages(attend: Attend, frame: Frame) -> Pages | None:
    """The pages in which keys and values lie, where the kernel reads them itself: each batch has one row of pages."""
    pages = pages_of(attend)
    if pages is None or len(frame.batch) != 2:
        return None
    return pages if pages.table.type.coordinates <= {frame.batch[0], attend.attention.coordinate} else None


def _paged_or(
    low: Lowering,
    let: ir.Let,
    attend: Attend,
    frame: Frame,
    parts: Parts,
    pages: Pages,
    maker: str,
    variable: str,
    test: Node,
    otherwise: Callable[[], Value],
) -> Value:
    """Keys and values read from their pages, where the table names only pages that there are; all else `otherwise`."""
    low.text.assign(variable, NONE)
    counts = [fill("{x}.shape[{n}]", x=low.stored[read.tensor].variable, n=axis) for read, axis, _ in pages.reads]
    inside = call("pages_inside", low.stored[pages.table.tensor].variable, *dict.fromkeys(counts))
    low.text.add("if", test if _is_ours(low, pages) else chain("and", [test, inside]))
    with low.block():
        single = replace(attend, scores=Scores(parts.dots[0], None))
        groups = library_attention.grouped(low, single, frame)
        reads = [read for read, *_ in pages.reads]
        heads = frame
        if groups is not None:
            heads, shares, *_ = groups
            reads = [read for read in groups[2:] if isinstance(read, ir.Read)]
            low.text.add("if", shares)
        with low.block() if groups is not None else nullcontext():
            code = _paged_call(low, let, attend, frame, heads, parts, pages, reads, maker)
            result = operands.restored(low, operands.with_total(low, code, let, frame), let, attend, frame)
            low.text.assign(variable, result.code)
    low.text.add("if", fill("{x} is None", x=variable))
    with low.block():
        low.text.assign(variable, arrays.in_order(low, otherwise(), result.axes).code)
    return result.but(Name(variable))


def _is_ours(low: Lowering, pages: Pages) -> bool:
    """Whether a table is one that only names pages that there are."""
    table = low.tensors[pages.table.tensor]
    return isinstance(table, ir.Input) and table.owned


def _paged_call(
    low: Lowering,
    let: ir.Let,
    attend: Attend,
    frame: Frame,
    heads: Frame,
    parts: Parts,
    pages: Pages,
    reads: list[ir.Read],
    maker: str,
) -> Node:
    """The call: keys and values as pools of pages (page, head, place, width), the table after all other given."""
    key, dot = attend.attention.coordinate, parts.dots[0]
    compares = tuple(range.coordinate for range in dot.compared)
    page, slot = Coordinate("page_of_key"), Coordinate("place_in_page")
    sides = []
    of_sides = reads, pages.reads, (compares, attend.layout.carry), parts.products
    for read, (_, *axes), columns, dtype in zip(*of_sides, strict=True):
        extents = [low.tensors[read.tensor].axes[axis].extent for axis in axes]
        scope, indices = heads.scope, list(read.indices)
        for coordinate, axis, extent in zip((page, slot), axes, extents, strict=True):
            scope = _bound(scope, coordinate, extent)
            indices[axis] = build.coord(coordinate, read.span)
        pool = Frame((page, heads.batch[-1]), slot, scope, scope)
        expr = build.read(read.tensor, tuple(indices), read.type.kind, read.span)
        sides.append(operands.operand(low, expr, slot, columns, pool, let, dtype))
    table, place = pages.table, Coordinate("page_of_table")
    scope = _bound(frame.scope, place, low.tensors[table.tensor].axes[pages.axis].extent)
    at = (build.coord(place, table.span) if n == pages.axis else index for n, index in enumerate(table.indices))
    rows = arrays.as_array(low, low.value(build.read(table.tensor, tuple(at), "whole", table.span), scope))
    rows = arrays.broadcast(
        low, arrays.in_order(low, rows, (*frame.batch[:1], place)), (*frame.batch[:1], place), scope
    )
    given = [array_of(low, operand, key, frame) for operand in parts.terms.operands]
    known: dict[str, Node] = {number_name(v): Name(v) for v in (*low.sizes.values(), *scalars(low))}
    known["page_size"] = sizes.number(low, pages.slots)
    numbers = {kind: [known[n] for n, k in parts.terms.numbers.items() if k == kind] for kind in ("whole", "real")}
    query = operands.operand(low, dot.query, frame.row, compares, frame, let, parts.products[0])
    tensors = List((query, *sides, *given, rows.code))
    lists = (List(tuple(numbers[kind])) for kind in ("whole", "real"))
    return call(maker, tensors, *lists, sizes.length(low, key, frame.scope))


def _bound(scope: Scope, coordinate: Coordinate, extent: ir.Expr) -> Scope:
    zero = build.whole(0, extent.span)
    return scope.binding(ir.Range(coordinate, zero, extent, True, extent.span), Place(zero, extent, True))
