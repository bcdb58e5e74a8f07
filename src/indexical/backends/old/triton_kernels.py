"""The text of Triton kernels: the parts of an attention that they are made of, and the lines that they share."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import build
from ...ir import nodes as ir
from ...ir.pairs import Block
from ...ir.types import Dtype
from ...plan.steps import Dot
from ...records import dataclass, field
from .code import Node, chain, fill, show
from .triton_printer import Printer
from .triton_score import KEY, PAIR, Axis, Cell, Flow, Operand, Terms, dot_name
from .triton_slant import Slant
from .triton_words import WORDS

ALONE = "one query or key"

# Heads run together up to so many tiles: several for each program that runs at a time, and few enough that their keys
# stay in the cache of a card; more where labels or a mask leave out most keys.
TOGETHER, MANY_TOGETHER = 512, 2048


@dataclass(frozen=True)
class Parts:
    """All that the kernels of one attention are printed from. `products` are the dtypes of its dot products, and the
    one of weights times values. A score is an exponent of 2 once it is multiplied with `scale`; without one it is the
    weight itself. `sinking` is what is beside the keys in the sum of the weights, as an exponent of 2, and the
    cotangents of the arrays in it. `tiled` are the arrays from which a table of the tiles that meet is made, by their
    places: one mask, or the labels of queries and of keys, or none. A `slant` is the score once more, for kernels
    that add what is the same for all keys later. `chosen` says at which pairs a dot product counts that stands in
    branches of the score alone."""

    name: str
    about: str
    products: tuple[Dtype, ...]
    terms: Terms
    dots: tuple[Dot, ...]
    score: Cell
    scale: Cell | None
    allowed: Cell | None
    forward: tuple[Block, ...]
    transposed: tuple[Block, ...]
    cotangents: Flow
    halves: list[Flow]
    sinking: tuple[Cell, Flow] | None
    tiled: tuple[int, ...]
    slant: Slant | None = None
    chosen: dict[ir.Expr, Cell] = field(default_factory=dict)

    @property
    def marked(self) -> bool:
        """Whether a table leaves out keys, not only queries."""
        return any("key" in self.terms.operands[place].axes for place in self.tiled)

    @property
    def work(self) -> str:
        """The kind of work that the sizes of tiles depend on: scores `paired` with numbers of an array; queries that
        attend to `marked` keys or to keys `near` them, `heavy` or not; over all keys from the first on, weights `free`
        of a sum, or `linear` in dot products, which are not needed for the gradients of queries then; scores that are
        `heavy` or `slanted`; a `plain` dot product; or none of these."""
        if any(operand.axes == PAIR for operand in self.terms.operands):
            return "paired"
        if self.marked:
            return "marked"
        if not all(isinstance(block.first, ir.Const) and block.first.value == 0 for block in self.forward):
            return "near, heavy" if self.scale is not None and self._is_heavy else "near"
        if self.scale is None:
            flows = [flow for dot in self.terms.dots for flow in self.cotangents[dot]]
            names = {dot_name(number) for number in range(len(self.dots))}
            return "free" if any(flow is not None and _reads(flow, names) for flow in flows) else "linear"
        if self._is_heavy or self.slant is not None:
            return "heavy" if self._is_heavy else "slanted"
        return "plain" if self.score.plain and len(self.dots) == 1 else ""

    @property
    def _is_heavy(self) -> bool:
        """Whether keys take many registers on the way back: there are several dot products, or what flows to them or to
        arrays of keys is more than what flows to the score, times a number."""
        if len(self.dots) > 1:
            return True
        keyed = (operand.expr for operand in self.of_axes(KEY))
        return not all(self.cotangents[expr][0].plain for expr in (*self.terms.dots, *keyed) if expr in self.cotangents)

    def has_full(self, block: Block) -> bool:
        """Whether there are tiles in which all pairs are kept, as far as bounds and a table tell."""
        return len(block.rest) + len(block.labels) <= bool(self.tiled)

    @property
    def learned(self) -> tuple[bool, ...]:
        return tuple(self.is_learned(operand) for operand in self.terms.operands)

    def is_learned(self, operand: Operand) -> bool:
        """Whether an array has a gradient here: of tables those that are read at a distance of query and key."""
        return self.is_reached(operand) and (operand.table is None or operand.table.is_relative)

    def is_reached(self, operand: Operand) -> bool:
        """Whether something flows back to an array."""
        of_sink = {} if self.sinking is None else self.sinking[1]
        return operand.is_learned and (operand.expr in self.cotangents or operand.expr in of_sink)

    @property
    def tables(self) -> list[Operand]:
        """The tables that have a gradient."""
        return [operand for operand in self.of_axes(PAIR) if operand.table is not None]

    @property
    def striped(self) -> list[Operand]:
        """The tables for which the kernel of queries sums diagonals: of one block of keys the tiles that it meets are
        those from a first to a last one."""
        return self.tables if len(self.forward) == 1 else []

    def of_axes(self, *axes: frozenset[Axis]) -> list[Operand]:
        return [operand for operand in self.terms.operands if self.is_learned(operand) and operand.axes in axes]


def _reads(cell: Cell, names: set[str]) -> bool:
    """Whether a value is made of one of these names."""
    return any(_reads(part, names) for part in cell.parts) if cell.parts else show(cell.make()) in names


class Kernel:
    """One kernel as it grows."""

    def __init__(
        self, parts: Parts, name: str, about: str, inside: frozenset[Axis], flipped: bool, apart: str | None = None
    ) -> None:
        self.parts, self.name, self.about = parts, f"{parts.name}_{name}", about
        terms = parts.terms
        taken = set(WORDS) | {n for o in terms.operands for n in (o.pointer, *o.strides)} | set(terms.numbers)
        self.printer = Printer(inside, flipped, taken)
        self.printer.banks = {
            operand: _bank(operand, apart or ("r0, t0" if flipped else "t0, k0"), flipped) for operand in parts.tables
        }
        self.lines: list[str] = []
        self.indent = 0
        self.flushed: set[str] = set()
        self.slant = None if apart is not None else parts.slant
        self.score = parts.score
        if self.slant is not None:
            rest, near = self.slant.rest, self.slant.by_near_key
            self.score = rest if flipped else terms.joined(self.slant.key_sign, (rest, near), "real")

    @property
    def dots(self) -> range:
        return range(len(self.parts.dots))

    def add(self, indent: int, *lines: str) -> None:
        self.lines += ["    " * (self.indent + indent) + text for text in lines]

    def takes(self, pointers: list[str], strides: list[str], flags: list[str], more: Iterable[str] = ()) -> None:
        """Say which parameters it has, besides numbers of the program and sizes of tiles."""
        terms = self.parts.terms
        numbers = [n for kind in ("whole", "real") for n, k in terms.numbers.items() if k == kind]
        self.varying = ["n_rows", "n_keys", *numbers, *more]
        widths = [f"{side}{n}" for number in self.dots for side, n in (("WIDTH", tag(number)), ("PADDED", tag(number)))]
        self.constants = [*widths, "CARRIED", "CARRIED_PADDED", "GROUP", "ROWS", "KEYS", "PRODUCTS", *flags]
        self.arguments = [pointers, strides, ["n_heads", *self.varying]]

    def text(self) -> str:
        """The kernel."""
        varying = ", ".join(f'"{name}"' for name in self.varying)
        rows = [*self.arguments, [f"{name}: tl.constexpr" for name in self.constants]]
        head = [f"@triton.jit(do_not_specialize=[{varying}])", f"def {self.name}("]
        head += [f"    {text}," for row in rows for text in _broken(row)]
        return "\n".join([*head, "):", f'    """{self.about}"""', *self.lines])

    def mark(self, step: str, sums: Iterable[str]) -> None:
        """Mark the rows of this tile whose sums are not finite, so that it is computed once more. Each row has a mark
        of its own: to find one for all, threads would wait for each other."""
        if self.parts.allowed is not None:
            odd = " + ".join(f"zeros_of({name})" for name in sums)
            self.add(1, f"tl.store(odd_ptr + far(at, tiles) * {step} + t0 + places, {odd})")

    # -------------------------------------------------------------------- places

    def place(self, heads: str, length: str, step: str, blocks: tuple[Block, ...], first_head: str = "") -> None:
        """The tile of this program, and its batch and head. Later tiles of causal queries meet more keys, and earlier
        tiles of keys more queries: what takes longest comes first."""
        latest_first = all(isinstance(block.first, ir.Const) for block in blocks)
        together = MANY_TOGETHER if self.parts.marked else TOGETHER
        self.add(
            1,
            f"tiles = tl.cdiv({length}, {step})",
            f"at, which = several_heads(tl.program_id(0), tl.num_programs(0), tiles, {together})",
            *([f"at += {first_head}"] if first_head else []),
            f"t0 = {'(tiles - 1 - which)' if latest_first else 'which'} * {step}",
        )
        self.place_rest(heads, length, step)

    def place_rest(self, heads: str, length: str, step: str) -> None:
        """The end of the tile at `t0`, and the batch and head of those that are counted by `at`."""
        self.add(
            1,
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
            cells = [terms.bound(end) for end in (block.first, block.beyond, *full)]
            printer.count(cells)
            codes = [show(printer.written(cell)) for cell in cells]
            self.flush(indent)
            names = edges(number if several else None)
            self.add(indent, f"{', '.join(names)} = tiles_of({', '.join(codes)}, {step})")
            if self.parts.tiled:
                own = "KEYS" if step == "ROWS" else "ROWS"
                self.add(indent, f"met = table_ptr + b * table_b + h * table_h + (t0 // {own}) * 4")
                self.add(indent, f"{', '.join(names)} = within({', '.join(names)}, met)")
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
        if not several:
            _, first, last, _ = all_edges[0]
            self.add(indent, f"for tile in tl.range({first}, {last}):")
            self.add(indent + 1, f"{'k0' if step == 'KEYS' else 'r0'} = tile * {step}")
            self.printer.begin()
            yield False, indent + 1
            return
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
        self.add(indent + 1, f"{start} = {tile} * {step}")
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


def _bank(operand: Operand, apart: str, flipped: bool) -> Node:
    """The load of a table's tile from its bank, where `apart` names the first query and the first key of the tile;
    `ALONE` is a tile that has one key, or one query where it lies flipped, and some of the other side."""
    start = f"{operand.pointer} + b * {operand.strides[0]} + h * {operand.strides[1]}"
    if apart == ALONE:
        one, step, places = ("r0", "ROWS", "r0 - r0 % ROWS, t0") if flipped else ("k0", "KEYS", "t0, k0 - k0 % KEYS")
        number = f"bank_number({places}, n_keys, ROWS, KEYS)"
        return fill(f"load_bank_column({start}, {number}, near, {one} % {step}, ROWS * KEYS, {step})")
    lying = "KEYS, ROWS" if flipped else "ROWS, KEYS"
    return fill(f"load_bank({start}, bank_number({apart}, n_keys, ROWS, KEYS), {lying})")


def opposite(sign: str) -> str:
    return "-" if sign == "+" else "+"


def tag(number: int) -> str:
    return "" if number == 0 else f"_{number + 1}"


def edges(number: int | None) -> tuple[str, str, str, str]:
    """The names of the ends of a set of tiles."""
    more = "" if number is None else f"_{number + 1}"
    return f"begin{more}", f"full_begin{more}", f"full_end{more}", f"end{more}"


def strides_of(name: str, place: str, last: str) -> list[str]:
    """The names of the strides of a matrix that is written."""
    return [f"{name}_b", f"{name}_h", f"{name}_{place}", f"{name}_{last}"]


def steps_of(*names: str) -> list[str]:
    """The names of the strides of matrices that are loaded, whose last axis has no gaps. The step from row to row is a
    constant of a compiled kernel, so that the places of a tile are, too."""
    return [f"{name}_{axis}" for name in names for axis in ("b", "h", "step")]


def _broken(words: Iterable[str]) -> list[str]:
    """Parameters in lines of a bearable length."""
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) > 100:
            lines.append(line)
            line = word
        else:
            line = f"{line}, {word}" if line else word
    return [*lines, line] if line else lines


def signature_of(parts: Parts) -> tuple[list[str], list[str], list[str], list[str]]:
    """The names of queries and keys, then the pointers and strides of further arrays."""
    queries = [f"q{tag(n)}" for n in range(len(parts.dots))]
    keys = [f"k{tag(n)}" for n in range(len(parts.dots))]
    pointers = [operand.pointer for operand in parts.terms.operands]
    strides = [stride for operand in parts.terms.operands for stride in operand.strides]
    if parts.tiled:
        pointers, strides = [*pointers, "table_ptr"], [*strides, "table_b", "table_h"]
    return queries, keys, pointers, strides


def load_line(name: str, place: str, near: str, head: str, width: str) -> str:
    start = f"{name}_ptr + (b * {name}_b + {head} * {name}_h + far({place}, {name}_step)) * 8"
    return f"{name} = load_tile({start}, {near}, {name}_step, {width})"


def in_brackets(code: str) -> str:
    """An expression as part of another one."""
    return code if code.isidentifier() else f"({code})"


def multiplied(name: str, factor: str) -> str:
    """A value times a number, which may be 1 divided by others."""
    return f"{name} / {factor.removeprefix('1.0 / ')}" if factor.startswith("1.0 / ") else f"{name} * {factor}"


def width_of(number: int) -> str:
    return f"WIDTH{tag(number)}, PADDED{tag(number)}"


def place_before(kernel: Kernel, place: int, indent: int = 1) -> None:
    """Put what the loops need before them."""
    lead = "    " * (kernel.indent + indent)
    kernel.lines[place:place] = [f"{lead}{name} = {show(code)}" for name, code in kernel.printer.outer]
    kernel.printer.outer = []


def roots(kernel: Kernel, *further: Cell | None) -> list[Cell]:
    """All that a kernel writes, so that what is used several times has a name."""
    parts = kernel.parts
    sink = None if parts.sinking is None else parts.sinking[0]
    cells = kernel.score, parts.scale, parts.allowed, sink, *further
    if kernel.slant is not None:  # Both have lines of their own.
        cells += (kernel.slant.by_row, kernel.slant.by_tile) * 2
    return [cell for cell in cells if cell is not None]


def write_score(kernel: Kernel, indent: int, is_partial: bool, test: str | None) -> None:
    """The scores of a tile; of one that is partial, -inf where a pair is not allowed, or 0 for what is a weight."""
    parts = kernel.parts
    kernel.printer.masked = is_partial
    if is_partial:
        write_allowed(kernel, indent, test)
    score = kernel.written(indent, kernel.score)
    if is_partial:
        absent = "0.0" if parts.scale is None else 'float("-inf")'
        score = f"tl.where(allowed, {score}, {absent})"
    kernel.add(indent, f"score = {score}")


def write_allowed(kernel: Kernel, indent: int, test: str | None) -> None:
    """The pairs of a tile that the guard keeps, and a further test."""
    tests = [] if kernel.parts.allowed is None else [kernel.printer.written(kernel.parts.allowed, PAIR, 100)]
    tests += [] if test is None else [fill(test)]
    kernel.pour(indent)
    kernel.add(indent, f"allowed = {show(chain('&', tests))}")


def write_exponent(kernel: Kernel, indent: int) -> str:
    """The scores of a tile as exponents of 2. Their scale is one number, named before the loops: written out beside
    each score, its division would be done for every pair."""
    assert kernel.parts.scale is not None
    scale = kernel.written(indent, kernel.parts.scale, PAIR)
    return "score" if scale == "1.0" else f"score * {scale}"


def write_key_places(kernel: Kernel, indent: int, is_partial: bool) -> None:
    """The keys of a tile; of a partial one also which of them are its own."""
    if is_partial:
        kernel.add(indent, "k0, near_keys, fresh = places_of(k0, n_keys, KEYS, FEW)")
    else:
        kernel.add(indent, "near_keys = tl.arange(0, KEYS)")
    kernel.add(indent, "keys = k0 + near_keys")


def write_dots(kernel: Kernel, indent: int, is_partial: bool, keys: list[str]) -> None:
    """The keys of a tile, and their dot products with the queries."""
    write_key_places(kernel, indent, is_partial)
    for number, k in enumerate(keys):
        kernel.add(indent, load_line(k, "k0", "near_keys", "(h // GROUP)", f"PADDED{tag(number)}"))
        dot = f"tl.dot(q{tag(number)}, tl.trans({k}), input_precision=PRODUCTS)"
        kernel.add(indent, f"{dot_name(number)} = {dot}")
