"""Attention → Triton kernels in the emitted source: forward, and backward to queries and to keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from ..ir import build
from ..ir import nodes as ir
from ..ir.pairs import Block
from ..ir.text import shown
from ..ir.types import Coordinate, Dtype
from ..ir.walk import rebuild, substitute
from ..plan.gpu import dots_of, index_ends
from ..plan.reach import reach
from ..plan.steps import Attend, Dot, Scores
from . import arrays, contraction, library_attention, operands, sizes
from .code import List, Name, Node, Part, String, Tuple, call, chain, infix, names, show
from .layout import Statement
from .lowering import Lowering
from .operands import Frame
from .scope import Place, Scope
from .triton_score import KEY, NOWHERE, PAIR, ROW, TILE, Axis, Cell, Operand, Printer, Terms, dot_name

# The widest head that a kernel takes.
WIDEST = 256

WORDS = frozenset(
    (
        *("tl", "triton", "torch", "math", "b", "h", "at", "near", "rows", "keys", "tiles", "t0", "t1", "k0", "r0"),
        *("turn", "tile", "score", "allowed", "p", "dp", "d_score", "delta", "total", "peak", "weight", "acc", "scale"),
        *("n_heads", "n_rows", "n_keys", "group", "count", "level", "given", "out", "v", "positions"),
        *("ROWS", "KEYS", "GROUP", "STEP", "met", "table", "member", "shared", "head", "places", "start", "dp"),
        *("first", "beyond", "stop", "found", "page", "slot", "page_size", "CARRIED"),
    )
)


@dataclass(frozen=True)
class Parts:
    """All that the kernels of one attention are printed from."""

    name: str
    about: str
    terms: Terms
    dots: tuple[Dot, ...]
    score: Cell
    scale: Cell
    allowed: Cell | None
    forward: tuple[Block, ...]
    transposed: tuple[Block, ...]
    cotangents: dict[ir.Expr, tuple[Cell, Cell | None]]
    labels: tuple[int, int] | None

    def has_full(self, block: Block) -> bool:
        """Whether there are tiles in which all pairs are kept, as far as bounds and tables of labels tell."""
        return not block.rest and len(block.labels) <= (self.labels is not None)

    @property
    def learned(self) -> tuple[bool, ...]:
        return tuple(self.is_learned(operand) for operand in self.terms.operands)

    def is_learned(self, operand: Operand) -> bool:
        """Whether an array has a gradient here: of those that vary with query and key at once, tables of distances."""
        if not operand.is_learned or operand.expr not in self.cotangents:
            return False
        return operand.axes != PAIR or (operand.table is not None and operand.table.is_relative)

    @property
    def tables(self) -> list[Operand]:
        """The tables that have a gradient."""
        return [operand for operand in self.of_axes(PAIR) if operand.table is not None]

    def of_axes(self, *axes: frozenset[Axis]) -> list[Operand]:
        return [operand for operand in self.terms.operands if self.is_learned(operand) and operand.axes in axes]


def attend_by_triton(
    owner: Lowering, let: ir.Let, attend: Attend, frame: Frame
) -> tuple[Callable[[], Node], list[str], Node]:
    """The call of the kernels of an attention, which has four axes, to be written in its place; arrays that must not
    want a gradient of it; and a test that its widths are small enough."""
    row, key = frame.row, attend.attention.coordinate
    assert row is not None
    dots = {expr: dot for expr, dot in dots_of(attend.attention.score, frozenset((row,)), key) if isinstance(dot, Dot)}
    frame = comparing(owner, let, attend, frame, dots.values())
    parts = parts_of(owner, let, attend, frame, row, dots)
    functions = [forward_kernel(parts), query_kernel(parts), key_kernel(parts)]
    kernels: list[Part] = [f"{parts.name}_{part}" for part in ("forward", "backward_query", "backward_key")]
    if parts.tables:
        functions.append(table_kernel(parts))
    kernels.append(f"{parts.name}_backward_table" if parts.tables else None)
    owner.functions += functions
    used = {word for text in functions for word in HELPERS if f"{word}(" in text}
    owner.kernels.setdefault("triton_attend", set()).update({"attending", *used})
    owner.text.helpers.setdefault("triton", "")
    maker = owner.text.fresh(f"attend_{let.name}")
    levels = [String(operand.level) for operand in parts.terms.operands]
    described = (len(parts.dots), Tuple(tuple(levels)), parts.learned, parts.labels)
    made = call("attending", String(maker), *kernels, *described)
    owner.functions.append(Statement(0, 0, "assign", maker, made).shown)
    code = partial(operands_of, owner, let, attend, frame, parts, maker)
    unlearned = [
        owner.stored[operand.expr.tensor].variable
        for operand in parts.terms.operands
        if operand.is_learned and not parts.is_learned(operand) and isinstance(operand.expr, ir.Read)
        if operand.expr.tensor not in owner.weak
    ]
    widths = [
        contraction.product_of_lengths(owner, tuple(r.coordinate for r in dot.compared), frame.scope)
        for dot in parts.dots
    ]
    widths.append(contraction.product_of_lengths(owner, attend.layout.carry, frame.scope))
    tests = [_taken(width, owner.dtypes[let.name]) for width in dict.fromkeys(widths)]
    for operand in parts.terms.operands:
        tests += inside_tests(owner, attend, operand)
    return code, unlearned, chain("and", tests)


HELPERS = (
    *("tanh", "fast_tanh", "far", "load_tile", "store_tile", "tiles_of"),
    *("within", "in_order", "behind", "partial_tile", "absorb"),
)


def _taken(width: Node, dtype: Dtype) -> Node:
    """A test that a head has a width that the kernels take: in 16 bits those of which all is known on a device."""
    return infix("in", width, (64, 128)) if dtype in ("f16", "bf16") else infix("<=", width, WIDEST)


def inside_tests(owner: Lowering, attend: Attend, operand: Operand) -> list[Node]:
    """Tests that a table is read within its bounds, on sizes."""
    table = operand.table
    if table is None:
        return []
    lowest, highest = index_ends(attend, table)
    extent = owner.tensors[table.read.tensor].axes[table.axis].extent
    assert lowest is not None
    assert highest is not None
    tests: list[Node] = []
    if not isinstance(lowest, ir.Const) or lowest.value < 0:
        tests.append(infix(">=", sizes.number(owner, lowest), 0))
    if not isinstance(highest, ir.Const) or not isinstance(extent, ir.Const) or highest.value >= extent.value:
        tests.append(infix("<", sizes.number(owner, highest), sizes.number(owner, extent)))
    return tests


def comparing(owner: Lowering, let: ir.Let, attend: Attend, frame: Frame, dots: Iterable[Dot]) -> Frame:
    """The frame with the coordinates that any dot product compares."""
    scope = frame.scope
    for dot in dots:
        for range in dot.compared:
            if range.coordinate not in scope.places:
                scope = scope.binding(range, Place(range.lower, range.upper, not range.stated))
    return replace(frame, scope=scope, heard=operands.kept_scope(owner, let, attend, scope))


def parts_of(
    owner: Lowering, let: ir.Let, attend: Attend, frame: Frame, row: Coordinate, dots: dict[ir.Expr, Dot]
) -> Parts:
    """The score, the guard and the tiles of an attention, as values of a kernel."""
    attention = attend.attention
    fast = owner.dtypes[let.name] in ("f16", "bf16")

    def number(expr: ir.Expr) -> str | None:
        """The parameter for a number that the host knows."""
        match expr:
            case ir.Size(coordinate):
                return told(owner.sizes[coordinate])
            case ir.Read(tensor, ()) if owner.stored[tensor].python:
                return told(owner.stored[tensor].variable)
        return None

    terms = Terms(frame.batch, row, attention.coordinate, dots, number, fast, set(WORDS))
    pairs = attend.pairs
    assert pairs is not None
    ends = [build.read(end, (), "whole", attention.key.span) for end in TILE]
    forward, transposed = pairs.blocks(ends[0], ends[1]), pairs.transpose().blocks(ends[0], ends[1])
    relation = _where_kept(attention.score, attend)
    score, scale = terms.in_base_two(relation)
    tests = [_test(terms, block, attention.key) for block in forward]
    allowed: Cell | None = None
    if all(test is not None for test in tests):
        known = [test for test in tests if test is not None]
        allowed = known[0] if len(known) == 1 else terms.joined("|", tuple(known), "bool")
    for block in (*forward, *transposed):
        for end in (block.first, block.beyond, block.full_first, block.full_beyond):
            terms.value(end)
    about = f"{shown(attention.score)}{' where ' if attention.guard else ''}{', '.join(map(shown, attention.guard))}"
    name = owner.text.fresh(let.name + "_tile").removesuffix("_tile")
    cotangents = terms.backward(relation)
    labels = _labels(terms, forward)
    compared = tuple(dots.values())
    return Parts(name, about, terms, compared, score, scale, allowed, forward, transposed, cotangents, labels)


def _where_kept(expr: ir.Expr, attend: Attend) -> ir.Expr:
    """A score at pairs that the guards keep: a magnitude that is never negative there is the number itself."""
    if expr.type.kind == "bool" or attend.attention.coordinate not in expr.type.coordinates:
        return expr
    match expr:
        case ir.Map("abs", (inner,)) if inner.type.kind == "whole":
            zero = build.whole(0, expr.span)
            if attend.domain.proves(build.apply("<=", (zero, inner), "bool", expr.span)):
                return _where_kept(inner, attend)
        case ir.Reduce() | ir.Read():
            return expr
    return rebuild(expr, lambda child: _where_kept(child, attend))


def _labels(terms: Terms, blocks: tuple[Block, ...]) -> tuple[int, int] | None:
    """The arrays of labels that queries and keys must agree in, by their places; None where there are none. From them
    the host makes a table of the tiles that may meet."""
    if len(blocks) != 1:
        return None
    for asks, answers in blocks[0].labels:
        operands = terms.value(asks).operand, terms.value(answers).operand
        if operands[0] is not None and operands[1] is not None and (operands[0].axes, operands[1].axes) == (ROW, KEY):
            return terms.operands.index(operands[0]), terms.operands.index(operands[1])
    return None


def told(variable: str) -> str:
    """The parameter of a kernel for a variable of the host."""
    return f"{variable}_" if variable in WORDS else variable


def _test(terms: Terms, block: Block, key: ir.Range) -> Cell | None:
    """A test that a pair is in the slice of a block; None where all pairs are."""
    point = build.coord(key.coordinate, key.span)
    facts: list[ir.Expr] = [build.apply("<=", (bound, point), "bool", bound.span) for bound in block.slice.lower]
    facts += [build.apply("<", (point, bound), "bool", bound.span) for bound in block.slice.upper]
    facts += [build.apply("==", pair, "bool", key.span) for pair in block.slice.labels]
    facts += block.slice.rest
    return terms.all_of([terms.value(fact) for fact in facts])


# ------------------------------------------------------------------------------------------- operands


def operands_of(owner: Lowering, let: ir.Let, attend: Attend, frame: Frame, parts: Parts, maker: str) -> Node:
    """The call: queries, keys and values as they come, further arrays at every head, and numbers."""
    key, carry = attend.attention.coordinate, attend.layout.carry
    columns = [tuple(range.coordinate for range in dot.compared) for dot in parts.dots]
    queries = [
        operands.operand(owner, d.query, frame.row, c, frame, let) for d, c in zip(parts.dots, columns, strict=True)
    ]
    single = replace(attend, scores=Scores(parts.dots[0], None))
    groups = library_attention.grouped(owner, single, frame) if len(parts.dots) == 1 else None
    if groups is None:
        keys = [operands.operand(owner, d.key, key, c, frame, let) for d, c in zip(parts.dots, columns, strict=True)]
        value = operands.operand(owner, attend.attention.value, key, carry, frame, let)
    else:
        shared, test, answer, carried = groups
        names = owner.text.fresh("key"), owner.text.fresh("value")
        owner.text.add("if", test)
        with owner.block():
            owner.text.assign(names[0], operands.operand(owner, answer, key, columns[0], shared, let))
            owner.text.assign(names[1], operands.operand(owner, carried, key, carry, shared, let))
        owner.text.add("else")
        with owner.block():
            owner.text.assign(names[0], operands.operand(owner, parts.dots[0].key, key, columns[0], frame, let))
            owner.text.assign(names[1], operands.operand(owner, attend.attention.value, key, carry, frame, let))
        keys, value = [Name(names[0])], Name(names[1])
    arrays = [array_of(owner, operand, key, frame) for operand in parts.terms.operands]
    known = {told(v): v for v in (*owner.sizes.values(), *scalars(owner))}
    numbers: dict[str, list[Node]] = {
        kind: [Name(known[n]) for n, k in parts.terms.numbers.items() if k == kind] for kind in ("whole", "real")
    }
    if parts.tables:
        arrays += [_places(owner, operand, attend, frame) for operand in parts.tables]
        numbers["whole"] += _distances(owner, attend, frame)
    tensors = List((*queries, *keys, value, *arrays))
    return call(maker, tensors, *(List(tuple(numbers[kind])) for kind in ("whole", "real")))


def scalars(owner: Lowering) -> Iterable[str]:
    return (stored.variable for stored in owner.stored.values() if stored.python)


def array_of(owner: Lowering, operand: Operand, key: Coordinate, frame: Frame) -> Node:
    """An array at every head: two batch axes, then those of the tile that it varies with, or its own one."""
    scope, heard, expr = frame.scope, frame.heard, operand.expr
    rows = () if frame.row is None or not operand.axes & ROW else (frame.row,)
    inner = (*rows, *((key,) if operand.axes & KEY else ()))
    if operand.table is not None:
        read, axis = operand.table.read, operand.table.axis
        place = Coordinate(f"{read.tensor}_place")
        extent = owner.tensors[read.tensor].axes[axis].extent
        zero = build.whole(0, read.span)
        scope = scope.binding(ir.Range(place, zero, extent, True, read.span), Place(zero, extent, True))
        heard, inner = scope, (place,)
        indices = (build.coord(place, read.span) if n == axis else index for n, index in enumerate(read.indices))
        expr = build.read(read.tensor, tuple(indices), read.type.kind, read.span)
    value = arrays.as_array(owner, operands.operand_value(owner, expr, heard))
    present = tuple(axis for axis in frame.batch if axis in value.axes)
    value = arrays.in_order(owner, value, (*present, *(axis for axis in inner if axis in value.axes)))
    value = arrays.broadcast(owner, value, (*frame.batch, *inner), scope)
    return operands.folded_batch(owner, value.code, len(frame.batch))


def _places(owner: Lowering, operand: Operand, attend: Attend, frame: Frame) -> Node:
    """The place in a table of every distance of query and key, from the one of the first query and the last key on."""
    table, row = operand.table, frame.row
    assert table is not None
    assert row is not None
    span = table.read.span
    sizes = [attend.domain.range(c).upper for c in (row, attend.attention.coordinate)]
    one = build.whole(1, span)
    count = build.apply("-", (build.apply("+", (sizes[0], sizes[1]), "whole", span), one), "whole", span)
    place = Coordinate("distance")
    before = build.apply("-", (sizes[1], one), "whole", span)
    distance = build.apply("-", (build.coord(place, span), before), "whole", span)
    index = substitute(table.index, {row: distance, attend.attention.coordinate: build.whole(0, span)})
    zero = build.whole(0, span)
    scope = Scope({}).binding(ir.Range(place, zero, count, True, span), Place(zero, count, True))
    value = arrays.as_array(owner, owner.value(index, scope))
    return arrays.broadcast(owner, value, (place,), scope).code


def _distances(owner: Lowering, attend: Attend, frame: Frame) -> list[Node]:
    """The least and the largest place of a key less that of its query."""
    assert frame.row is not None
    key = attend.attention.key
    ahead = build.apply(
        "-", (build.coord(key.coordinate, key.span), build.coord(frame.row, key.span)), "whole", key.span
    )
    ranges = {range.coordinate: range for range in attend.domain.box}
    found = reach(ahead, ranges, attend.domain.lets, attend.attention.guard)
    widest = reach(ahead, ranges, attend.domain.lets)
    ends = [
        one if one is not None and not one.type.coordinates else other
        for one, other in ((found.lowest, widest.lowest), (found.highest, widest.highest))
    ]
    return [sizes.number(owner, end) for end in ends if end is not None]


# -------------------------------------------------------------------------------------------- kernels


class Kernel:
    """One kernel as it grows."""

    def __init__(self, parts: Parts, name: str, about: str, inside: frozenset[Axis], flipped: bool) -> None:
        self.parts, self.name, self.about = parts, f"{parts.name}_{name}", about
        terms = parts.terms
        taken = set(WORDS) | {n for o in terms.operands for n in (o.pointer, *o.strides)} | set(terms.numbers)
        self.printer = Printer(inside, flipped, taken)
        self.lines: list[str] = []
        self.flushed: set[str] = set()

    @property
    def dots(self) -> range:
        return range(len(self.parts.dots))

    def add(self, indent: int, *lines: str) -> None:
        self.lines += ["    " * indent + text for text in lines]

    def text(self, pointers: list[str], strides: list[str], flags: list[str], more: list[str] | None = None) -> str:
        """The kernel with its parameters."""
        terms = self.parts.terms
        numbers = [n for kind in ("whole", "real") for n, k in terms.numbers.items() if k == kind]
        varying = ["n_rows", "n_keys", *numbers, *(more or [])]
        widths = [f"{side}{n}" for number in self.dots for side, n in (("WIDTH", tag(number)), ("PADDED", tag(number)))]
        constants = [*widths, "CARRIED", "CARRIED_PADDED", "GROUP", "ROWS", "KEYS", *flags]
        rows = [
            ", ".join(pointers),
            ", ".join(strides),
            ", ".join(["n_heads", *varying]),
            ", ".join(f"{name}: tl.constexpr" for name in constants),
        ]
        shown_varying = ", ".join(f'"{name}"' for name in varying)
        head = [f"@triton.jit(do_not_specialize=[{shown_varying}])", f"def {self.name}("]
        head += [f"    {text}," for row in rows for text in _broken(row)]
        return "\n".join([*head, "):", f'    """{self.about}"""', *self.lines])

    # -------------------------------------------------------------------- places

    def place(self, heads: str, length: str, step: str, latest_first: bool = True) -> None:
        """The tile of this program, and its batch and head."""
        place = "tl.program_id(0) % tiles"
        tile = f"(tiles - 1 - {place}) * {step}" if latest_first else f"({place}) * {step}"
        self.add(
            1,
            f"tiles = tl.cdiv({length}, {step})",
            "at = tl.program_id(0) // tiles",
            f"t0 = {tile}",
            f"t1 = tl.minimum(t0 + {step}, {length})",
            f"b, h = (at // {heads}).to(tl.int64), (at % {heads}).to(tl.int64)",
        )

    def ranges(self, blocks: tuple[Block, ...], step: str, indent: int = 1) -> None:
        """The tiles that this program meets: partial ones and full ones."""
        printer, terms = self.printer, self.parts.terms
        several = len(blocks) > 1
        for number, block in enumerate(blocks):
            zero = build.whole(0, block.first.span)
            full = (block.full_first, block.full_beyond) if self.parts.has_full(block) else (zero, zero)
            cells = [terms.value(end) for end in (block.first, block.beyond, *full)]
            printer.count(cells)
            codes = [show(printer.written(cell)) for cell in cells]
            self.flush(indent)
            names = edges(number if several else None)
            self.add(indent, f"{', '.join(names)} = tiles_of({', '.join(codes)}, {step})")
            if self.parts.labels is not None:
                own = "KEYS" if step == "ROWS" else "ROWS"
                self.add(indent, f"met = table_ptr + b * table_b + h * table_h + (t0 // {own}) * 4")
                found = ", ".join(f"tl.load(met + {n})" for n in range(4))
                self.add(indent, f"{', '.join(names)} = within({', '.join(names)}, {found})")
        count = len(blocks)
        for last in range(count - 1, 0, -1):
            for number in range(last):
                pair = ", ".join((*edges(number), *edges(number + 1)))
                self.add(indent, f"{pair} = in_order({pair})")
        for number in range(1, count):
            own = ", ".join(edges(number))
            self.add(indent, f"{own} = behind({edges(number - 1)[3]}, {own})")

    def flush(self, indent: int) -> None:
        """Write what was computed before the loops so far."""
        for name, code in self.printer.outer:
            self.add(indent, f"{name} = {show(code)}")
            self.printer.taken.add(name)
            self.flushed.add(name)
        self.printer.outer = []

    def loops(self, blocks: tuple[Block, ...], indent: int, step: str) -> Iterable[tuple[bool, int]]:
        """The loop over partial tiles, then the one over full tiles: whether it is partial, and its indent."""
        several = len(blocks) > 1
        all_edges = [edges(number if several else None) for number in range(len(blocks))]
        counts = [f"{f0} - {e0} + {e1} - {f1}" for e0, f0, f1, e1 in all_edges]
        tiles = [f"partial_tile({{turn}}, {e0}, {f0}, {f1})" for e0, f0, f1, _ in all_edges]
        self.add(indent, "# Tiles in which the guard holds for some pairs.")
        yield from self.one_loop(True, indent, step, counts, tiles)
        if not any(map(self.parts.has_full, blocks)):
            return
        self.add(indent, "# Tiles in which it holds for all.")
        counts = [f"{f1} - {f0}" for _, f0, f1, _ in all_edges]
        tiles = [f"{f0} + {{turn}}" for _, f0, _, _ in all_edges]
        yield from self.one_loop(False, indent, step, counts, tiles)

    def one_loop(
        self, is_partial: bool, indent: int, step: str, counts: list[str], tiles: list[str]
    ) -> Iterable[tuple[bool, int]]:
        names = ["count"]
        self.add(indent, f"count = {counts[0]}")
        for number, more in enumerate(counts[1:], 2):
            names.append(f"count_{number}")
            self.add(indent, f"count_{number} = {names[-2]} + {more}")
        self.add(indent, f"for turn in tl.range(0, {names[-1]}):")
        tile = tiles[-1].format(turn="turn" if len(tiles) == 1 else f"turn - {names[-2]}")
        for number in range(len(tiles) - 2, -1, -1):
            before = "turn" if number == 0 else f"turn - {names[number - 1]}"
            tile = f"tl.where(turn < {names[number]}, {tiles[number].format(turn=before)}, {tile})"
        start = "k0" if step == "KEYS" else "r0"
        self.add(indent + 1, f"{start} = ({tile}) * {step}")
        self.printer.begin()
        yield is_partial, indent + 1

    # --------------------------------------------------------------------- tiles

    def written(self, indent: int, cell: Cell, axes: frozenset[Axis] | None = None) -> str:
        """The code of a cell, after the lines that it needs."""
        code = show(self.printer.written(cell, axes))
        self.pour(indent)
        return code

    def pour(self, indent: int) -> None:
        for name, code in self.printer.inner:
            self.add(indent, f"{name} = {show(code)}")
        self.printer.inner = []


def tag(number: int) -> str:
    return "" if number == 0 else f"_{number + 1}"


def edges(number: int | None) -> tuple[str, str, str, str]:
    """The names of the ends of a set of tiles."""
    more = "" if number is None else f"_{number + 1}"
    return f"begin{more}", f"full_begin{more}", f"full_end{more}", f"end{more}"


def strides_of(name: str, last: str, place: str) -> list[str]:
    """The names of strides; of a matrix that is loaded, whose last axis has no gaps, without that axis."""
    return [f"{name}_b", f"{name}_h", f"{name}_{place}", *([f"{name}_{last}"] if last else [])]


def _broken(text: str) -> list[str]:
    """Parameters in lines of a bearable length."""
    lines, line = [], ""
    for word in text.split(", "):
        if line and len(line) + len(word) > 100:
            lines.append(line)
            line = word
        else:
            line = f"{line}, {word}" if line else word
    return [*lines, line]


def _signature(parts: Parts) -> tuple[list[str], list[str], list[str], list[str]]:
    """The names of queries and keys, then the pointers and strides of further arrays."""
    queries = [f"q{tag(n)}" for n in range(len(parts.dots))]
    keys = [f"k{tag(n)}" for n in range(len(parts.dots))]
    pointers = [operand.pointer for operand in parts.terms.operands]
    strides = [stride for operand in parts.terms.operands for stride in operand.strides]
    if parts.labels is not None:
        pointers, strides = [*pointers, "table_ptr"], [*strides, "table_b", "table_h"]
    return queries, keys, pointers, strides


def _dot_strides(queries: list[str], keys: list[str]) -> list[str]:
    rows = [s for q in queries for s in strides_of(q, "", "row")]
    return [*rows, *(s for k in keys for s in strides_of(k, "", "key"))]


def _load(name: str, place: str, near: str, head: str, width: str, axis: str = "row") -> str:
    start = f"{name}_ptr + (b * {name}_b + {head} * {name}_h + far({place}, {name}_{axis})) * 8"
    return f"{name} = load_tile({start}, {near}, {name}_{axis}, {width})"


def forward_kernel(parts: Parts) -> str:
    """The kernel of the result: one tile of queries, its keys in turn."""
    queries, keys, pointers, strides = _signature(parts)
    kernel = Kernel(parts, "forward", f"Attention of one tile of queries: {parts.about}.", KEY, False)
    printer = kernel.printer
    kernel.place("n_heads", "n_rows", "ROWS")
    kernel.add(1, "near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)", "rows = t0 + near")
    for number, q in enumerate(queries):
        kernel.add(1, _load(q, "t0", "near", "h", f"WIDTH{tag(number)}, PADDED{tag(number)}"))
    kernel.ranges(parts.forward, "KEYS")
    body = len(kernel.lines)
    kernel.add(
        1,
        'peak = tl.full((ROWS,), float("-inf"), tl.float32)',
        "weight = tl.zeros((ROWS,), tl.float32)",
        "acc = tl.zeros((ROWS, CARRIED_PADDED), tl.float32)",
    )
    roots = [parts.score, parts.scale, *([] if parts.allowed is None else [parts.allowed])]
    printer.count(roots)
    for is_partial, indent in kernel.loops(parts.forward, 1, "KEYS"):
        _key_places(kernel, indent, is_partial, "n_keys")
        for number, k in enumerate(keys):
            kernel.add(indent, _load(k, "k0", "near_keys", "(h // GROUP)", width_of(number), axis="key"))
            dot = f'tl.dot(q{tag(number)}, tl.trans({k}), input_precision="ieee")'
            kernel.add(indent, f"{dot_name(number)} = {dot}")
        _score(kernel, indent, is_partial, "positions[None, :] < n_keys")
        scale = kernel.written(indent, parts.scale)
        kernel.add(indent, _load("v", "k0", "near_keys", "(h // GROUP)", "CARRIED, CARRIED_PADDED", "key"))
        kernel.add(indent, f"peak, weight, acc = absorb(score, {scale}, v, peak, weight, acc)")
    kernel.add(
        1,
        "# A query that attends to nothing is 0, and its total is infinite: so are all its weights 0 on the way back.",
        "acc = acc / tl.where(weight == 0.0, 1.0, weight)[:, None]",
        "start = out_ptr + b * out_b + h * out_h + far(t0, out_row)",
        "places = tl.arange(0, ROWS)",
        "store_tile(start, acc, places, n_rows - t0, out_row, out_e, CARRIED, CARRIED_PADDED)",
        'total = tl.where(weight == 0.0, float("inf"), peak + tl.log2(weight))',
        "tl.store(total_ptr + far(at, n_rows) + t0 + places, total, mask=places < n_rows - t0)",
    )
    place_before(kernel, body)
    own = [*_dot_strides(queries, keys), *strides_of("v", "", "key"), *strides_of("out", "e", "row"), *strides]
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "out", "total")]
    return kernel.text([*named, *pointers], own, [])


def width_of(number: int) -> str:
    return f"WIDTH{tag(number)}, PADDED{tag(number)}"


def place_before(kernel: Kernel, place: int) -> None:
    """Put what the loops need before them."""
    lines = [f"    {name} = {show(code)}" for name, code in kernel.printer.outer]
    kernel.lines[place:place] = lines
    kernel.printer.outer = []


def _score(kernel: Kernel, indent: int, is_partial: bool, test: str | None) -> None:
    """The scores of a tile; of one that is partial, -inf where a pair is not allowed."""
    parts = kernel.parts
    kernel.printer.masked = is_partial
    if is_partial:
        tests = [] if parts.allowed is None else [kernel.written(indent, parts.allowed, PAIR)]
        tests += [] if test is None else [test]
        kernel.add(indent, f"allowed = {tests[0] if len(tests) == 1 else ' & '.join(f'({test})' for test in tests)}")
    kernel.add(indent, f"score = {kernel.written(indent, parts.score)}")
    if is_partial:
        kernel.add(indent, 'score = tl.where(allowed, score, float("-inf"))')


def _key_places(kernel: Kernel, indent: int, is_partial: bool, length: str) -> None:
    """The keys of a tile; beyond the last one they repeat it."""
    if is_partial:
        kernel.add(indent, "positions = k0 + tl.arange(0, KEYS)")
        kernel.add(indent, f"near_keys = tl.minimum(tl.arange(0, KEYS), {length} - 1 - k0)")
    else:
        kernel.add(indent, "near_keys = tl.arange(0, KEYS)")
    kernel.add(indent, "keys = k0 + near_keys")


def query_kernel(parts: Parts) -> str:
    """The kernel of the gradients of queries, and of arrays that vary with no key."""
    queries, keys, pointers, strides = _signature(parts)
    kernel = Kernel(parts, "backward_query", "The gradients of one tile of queries.", KEY, False)
    printer, dots = kernel.printer, tuple(parts.terms.dots)
    learned = parts.of_axes(NOWHERE, ROW)
    kernel.place("n_heads", "n_rows", "ROWS")
    kernel.add(1, "near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)", "rows = t0 + near")
    for number, q in enumerate(queries):
        kernel.add(1, _load(q, "t0", "near", "h", width_of(number)))
    kernel.add(
        1,
        _load("given", "t0", "near", "h", "CARRIED, CARRIED_PADDED", "row"),
        "total = tl.load(total_ptr + far(at, n_rows) + rows)",
        "delta = tl.load(delta_ptr + far(at, n_rows) + rows)",
    )
    kernel.ranges(parts.forward, "KEYS")
    body = len(kernel.lines)
    for number in kernel.dots:
        kernel.add(1, f"d_q{tag(number)} = tl.zeros((ROWS, PADDED{tag(number)}), tl.float32)")
    for operand in learned:
        kernel.add(1, f"d_{operand.name} = tl.zeros((ROWS,), tl.float32)")
    wanted = [parts.cotangents[expr][0] for expr in (*dots, *(o.expr for o in learned))]
    outer = [parts.cotangents[expr][1] for expr in (*dots, *(o.expr for o in learned))]
    roots = [parts.score, parts.scale, *wanted, *(cell for cell in outer if cell is not None)]
    printer.count([*roots, *([] if parts.allowed is None else [parts.allowed])])
    for is_partial, indent in kernel.loops(parts.forward, 1, "KEYS"):
        _key_places(kernel, indent, is_partial, "n_keys")
        for number, k in enumerate(keys):
            kernel.add(indent, _load(k, "k0", "near_keys", "(h // GROUP)", width_of(number), axis="key"))
            dot = f'tl.dot(q{tag(number)}, tl.trans({k}), input_precision="ieee")'
            kernel.add(indent, f"{dot_name(number)} = {dot}")
        kernel.add(indent, _load("v", "k0", "near_keys", "(h // GROUP)", "CARRIED, CARRIED_PADDED", "key"))
        _score(kernel, indent, is_partial, "positions[None, :] < n_keys")
        scale = kernel.written(indent, parts.scale)
        kernel.add(
            indent,
            f"p = tl.exp2(score * {scale} - total[:, None])",
            'dp = tl.dot(given, tl.trans(v), input_precision="ieee")',
            "d_score = p * (dp - delta[:, None])",
        )
        for number, expr in enumerate(dots):
            code = kernel.written(indent, parts.cotangents[expr][0])
            k, name = keys[number], f"d_q{tag(number)}"
            kernel.add(indent, f"if WANT_Q{tag(number)}:")
            dot = f'tl.dot(({code}).to({k}.dtype), {k}, {name}, input_precision="ieee")'
            kernel.add(indent + 1, f"{name} = {dot}")
        for operand in learned:
            code = kernel.written(indent, parts.cotangents[operand.expr][0])
            kernel.add(indent, f"if WANT_{operand.name}:")
            kernel.add(indent + 1, f"d_{operand.name} += tl.sum({code}, 1)")
    kernel.add(1, "places = tl.arange(0, ROWS)")
    for number, expr in enumerate(dots):
        factor = parts.cotangents[expr][1]
        name, width = f"d_q{tag(number)}", width_of(number)
        code = name if factor is None else f"{name} * {show(printer.written(factor, NOWHERE))}"
        start = f"{name}_ptr + b * {name}_b + h * {name}_h + far(t0, {name}_row)"
        kernel.add(1, f"if WANT_Q{tag(number)}:")
        kernel.add(2, f"store_tile({start}, {code}, places, n_rows - t0, {name}_row, {name}_d, {width})")
    for operand in learned:
        factor = parts.cotangents[operand.expr][1]
        name = f"d_{operand.name}"
        code = name if factor is None else f"{name} * {show(printer.written(factor, NOWHERE))}"
        kernel.add(1, f"if WANT_{operand.name}:")
        if operand.axes:
            kernel.add(2, f"tl.store({name}_ptr + far(at, n_rows) + t0 + places, {code}, mask=places < n_rows - t0)")
        else:
            kernel.add(2, f"{name} = tl.where(places < n_rows - t0, {code}, 0.0)")
            kernel.add(2, f"tl.store({name}_ptr + far(at, tiles) + t0 // ROWS, tl.sum({name}, 0))")
    place_before(kernel, body)
    own = [*_dot_strides(queries, keys), *strides_of("v", "", "key"), *strides_of("given", "", "row"), *strides]
    targets = [f"d_q{tag(number)}" for number in kernel.dots]
    own += [stride for name in targets for stride in strides_of(name, "d", "row")]
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "given", "total", "delta")]
    named += [*pointers, *(f"{name}_ptr" for name in targets), *(f"d_{o.pointer}" for o in learned)]
    flags = [*(f"WANT_Q{tag(number)}" for number in kernel.dots), *(f"WANT_{o.name}" for o in learned)]
    return kernel.text(named, own, flags)


def key_kernel(parts: Parts) -> str:
    """The kernel of the gradients of keys and values, and of arrays that vary with the key alone."""
    queries, keys, pointers, strides = _signature(parts)
    kernel = Kernel(parts, "backward_key", "The gradients of one tile of keys and values.", ROW, True)
    printer, dots = kernel.printer, tuple(parts.terms.dots)
    learned = parts.of_axes(KEY)
    kernel.place("(n_heads // GROUP)", "n_keys", "KEYS", latest_first=False)
    kernel.add(1, "near = tl.minimum(tl.arange(0, KEYS), n_keys - 1 - t0)", "keys = t0 + near")
    for number, k in enumerate(keys):
        kernel.add(1, _load(k, "t0", "near", "h", width_of(number), axis="key"))
    kernel.add(1, _load("v", "t0", "near", "h", "CARRIED, CARRIED_PADDED", "key"))
    for number in kernel.dots:
        kernel.add(1, f"d_k{tag(number)} = tl.zeros((KEYS, PADDED{tag(number)}), tl.float32)")
    kernel.add(1, "d_v = tl.zeros((KEYS, CARRIED_PADDED), tl.float32)", "places = tl.arange(0, KEYS)", "shared = h")
    before = len(kernel.lines)
    kernel.add(1, "for member in range(0, GROUP):")
    kernel.add(2, "h = shared * GROUP + member", "head = b * n_heads + h")
    for operand in learned:
        kernel.add(2, f"d_{operand.name} = tl.zeros((KEYS,), tl.float32)")
    kernel.ranges(parts.transposed, "ROWS", 2)
    body = len(kernel.lines)
    wanted = [parts.cotangents[expr][0] for expr in (*dots, *(o.expr for o in learned))]
    outer = [parts.cotangents[expr][1] for expr in (*dots, *(o.expr for o in learned))]
    roots = [parts.score, parts.scale, *wanted, *(cell for cell in outer if cell is not None)]
    printer.count([*roots, *([] if parts.allowed is None else [parts.allowed])])
    factors = [cell is not None and _varies(cell) for cell in outer]
    for is_partial, indent in kernel.loops(parts.transposed, 2, "ROWS"):
        kernel.add(indent, "positions = r0 + tl.arange(0, ROWS)")
        if is_partial:
            kernel.add(indent, "near_rows = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - r0)")
        else:
            kernel.add(indent, "near_rows = tl.arange(0, ROWS)")
        kernel.add(indent, "rows = r0 + near_rows")
        for number, q in enumerate(queries):
            kernel.add(indent, _load(q, "r0", "near_rows", "h", width_of(number)))
            dot = f'tl.dot(k{tag(number)}, tl.trans({q}), input_precision="ieee")'
            kernel.add(indent, f"{dot_name(number)} = {dot}")
        for name, other in (("total", 'float("inf")'), ("delta", "0.0")):
            more = f", mask=positions < n_rows, other={other}" if is_partial else ""
            kernel.add(indent, f"{name} = tl.load({name}_ptr + far(head, n_rows) + positions{more})")
        kernel.add(indent, _load("given", "r0", "near_rows", "h", "CARRIED, CARRIED_PADDED", "row"))
        _score(kernel, indent, is_partial and parts.allowed is not None, None)
        scale = kernel.written(indent, parts.scale)
        kernel.add(
            indent,
            f"p = tl.exp2(score * {scale} - total[None, :])",
            "if WANT_V:",
            '    d_v = tl.dot(p.to(given.dtype), given, d_v, input_precision="ieee")',
            'dp = tl.dot(v, tl.trans(given), input_precision="ieee")',
            "d_score = p * (dp - delta[None, :])",
        )
        for number, expr in enumerate(dots):
            cell, factor = parts.cotangents[expr]
            code = kernel.written(indent, cell)
            if factors[number] and factor is not None:
                code = f"{code} * {show(printer.written(factor, NOWHERE))}"
            q, name = queries[number], f"d_k{tag(number)}"
            kernel.add(indent, f"if WANT_K{tag(number)}:")
            kernel.add(indent + 1, f'{name} = tl.dot(({code}).to({q}.dtype), {q}, {name}, input_precision="ieee")')
        for operand in learned:
            code = kernel.written(indent, parts.cotangents[operand.expr][0])
            kernel.add(indent, f"if WANT_{operand.name}:")
            kernel.add(indent + 1, f"d_{operand.name} += tl.sum({code}, 1)")
    for operand in learned:
        factor = parts.cotangents[operand.expr][1]
        name = f"d_{operand.name}"
        code = name if factor is None else f"{name} * {show(printer.written(factor, NOWHERE))}"
        kernel.add(2, f"if WANT_{operand.name}:")
        kernel.add(3, f"tl.store({name}_ptr + far(head, n_keys) + t0 + places, {code}, mask=places < n_keys - t0)")
    after = [None if varies or cell is None else cell for cell, varies in zip(outer, factors, strict=True)]
    codes = [None if cell is None else show(printer.written(cell, NOWHERE)) for cell in after[: len(dots)]]
    varying = {"b", "h", *kernel.flushed}
    for name, value in printer.outer:
        varying |= {name} if varying & set(names(value)) else set()
    kernel.lines[body:body] = [f"        {name} = {show(value)}" for name, value in printer.outer if name in varying]
    ahead = [f"    {name} = {show(value)}" for name, value in printer.outer if name not in varying]
    kernel.lines[before:before] = ahead
    for number in kernel.dots:
        name, factored = f"d_k{tag(number)}", codes[number]
        code = name if factored is None else f"{name} * {factored}"
        start = f"{name}_ptr + b * {name}_b + shared * {name}_h + far(t0, {name}_key)"
        kernel.add(1, f"if WANT_K{tag(number)}:")
        kernel.add(2, f"store_tile({start}, {code}, places, n_keys - t0, {name}_key, {name}_d, {width_of(number)})")
    start = "d_v_ptr + b * d_v_b + shared * d_v_h + far(t0, d_v_key)"
    kernel.add(1, "if WANT_V:")
    kernel.add(2, f"store_tile({start}, d_v, places, n_keys - t0, d_v_key, d_v_e, CARRIED, CARRIED_PADDED)")
    own = [*_dot_strides(queries, keys), *strides_of("v", "", "key"), *strides_of("given", "", "row"), *strides]
    targets = [f"d_k{tag(number)}" for number in kernel.dots]
    own += [stride for name in targets for stride in strides_of(name, "d", "key")]
    own += strides_of("d_v", "e", "key")
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "given", "total", "delta")]
    named += [*pointers, *(f"{name}_ptr" for name in (*targets, "d_v")), *(f"d_{o.pointer}" for o in learned)]
    flags = [*(f"WANT_K{tag(number)}" for number in kernel.dots), "WANT_V", *(f"WANT_{o.name}" for o in learned)]
    return kernel.text(named, own, flags)


def _varies(cell: Cell) -> bool:
    """Whether a number of the program may differ between heads that share keys."""
    if not cell.parts:
        return bool({"b", "h"} & set(names(cell.make())))
    return any(map(_varies, cell.parts))


def table_kernel(parts: Parts) -> str:
    """The kernel of the gradients of tables of distances: one diagonal of tiles, its own diagonals summed."""
    queries, keys, pointers, strides = _signature(parts)
    about = "The gradients of tables, along one diagonal of tiles: those of its upper and of its lower triangles."
    kernel = Kernel(parts, "backward_table", about, PAIR, False)
    kernel.add(
        1,
        "at = tl.program_id(0) // diagonals",
        "diagonal = tl.program_id(0) % diagonals",
        "ahead = first + diagonal",
        "b, h = (at // n_heads).to(tl.int64), (at % n_heads).to(tl.int64)",
        "near_rows, near_columns = tl.arange(0, ROWS), tl.arange(0, KEYS)",
        "moved = near_rows[:, None] + near_columns[None, :]",
    )
    body = len(kernel.lines)
    for operand in parts.tables:
        kernel.add(1, f"upper_{operand.name} = tl.zeros((KEYS,), tl.float32)")
        kernel.add(1, f"lower_{operand.name} = tl.zeros((KEYS,), tl.float32)")
    wanted = [parts.cotangents[operand.expr] for operand in parts.tables]
    roots = [parts.score, parts.scale, *(cell for pair in wanted for cell in pair if cell is not None)]
    kernel.printer.count([*roots, *([] if parts.allowed is None else [parts.allowed])])
    kernel.add(1, "begin = tl.maximum(0, -ahead)")
    kernel.add(1, "end = tl.minimum(tl.cdiv(n_rows, ROWS), tl.cdiv(n_keys, KEYS) - ahead)")
    kernel.add(1, "for turn in tl.range(begin, end):")
    kernel.printer.begin()
    kernel.add(
        2,
        "t0 = turn * ROWS",
        "k0 = (turn + ahead) * KEYS",
        "near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)",
        "rows = t0 + near",
    )
    _key_places(kernel, 2, True, "n_keys")
    for number, (q, k) in enumerate(zip(queries, keys, strict=True)):
        kernel.add(2, _load(q, "t0", "near", "h", width_of(number)))
        kernel.add(2, _load(k, "k0", "near_keys", "(h // GROUP)", width_of(number), axis="key"))
        kernel.add(2, f'{dot_name(number)} = tl.dot({q}, tl.trans({k}), input_precision="ieee")')
    there = "mask=t0 + near_rows < n_rows"
    kernel.add(
        2,
        f'total = tl.load(total_ptr + far(at, n_rows) + t0 + near_rows, {there}, other=float("inf"))',
        f"delta = tl.load(delta_ptr + far(at, n_rows) + t0 + near_rows, {there}, other=0.0)",
        _load("given", "t0", "near", "h", "CARRIED, CARRIED_PADDED", "row"),
        _load("v", "k0", "near_keys", "(h // GROUP)", "CARRIED, CARRIED_PADDED", "key"),
    )
    _score(kernel, 2, True, "positions[None, :] < n_keys")
    kernel.add(
        2,
        f"p = tl.exp2(score * {kernel.written(2, parts.scale)} - total[:, None])",
        'dp = tl.dot(given, tl.trans(v), input_precision="ieee")',
        "d_score = p * (dp - delta[:, None])",
    )
    for operand, (cell, _) in zip(parts.tables, wanted, strict=True):
        kernel.add(2, f"if WANT_{operand.name}:")
        code = kernel.written(3, cell)
        kernel.add(
            3,
            f"skewed = tl.gather({code}, moved % KEYS, 1)",
            f"upper_{operand.name} += tl.sum(tl.where(moved < KEYS, skewed, 0.0), 0)",
            f"lower_{operand.name} += tl.sum(tl.where(moved < KEYS, 0.0, skewed), 0)",
        )
    for operand, (_, factor) in zip(parts.tables, wanted, strict=True):
        more = "" if factor is None else f" * {show(kernel.printer.written(factor, NOWHERE))}"
        kernel.add(1, f"if WANT_{operand.name}:")
        kernel.add(
            2,
            f"start = d_{operand.pointer} + (far(at, diagonals) + diagonal) * (2 * KEYS) + near_columns",
            f"tl.store(start, upper_{operand.name}{more})",
            f"tl.store(start + KEYS, lower_{operand.name}{more})",
        )
    place_before(kernel, body)
    own = [*_dot_strides(queries, keys), *strides_of("v", "", "key"), *strides_of("given", "", "row"), *strides]
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "given", "total", "delta")]
    named += [*pointers, *(f"d_{operand.pointer}" for operand in parts.tables)]
    flags = [f"WANT_{operand.name}" for operand in parts.tables]
    return kernel.text(named, own, flags, ["diagonals", "first"])
