"""The text of Triton kernels: forward, backward to queries, to keys and to tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..ir import build
from ..ir import nodes as ir
from ..ir.pairs import Block
from ..plan.steps import Dot
from .code import names, show
from .triton_score import KEY, NOWHERE, PAIR, ROW, Axis, Cell, Operand, Printer, Terms, dot_name

WORDS = frozenset(
    (
        *("tl", "triton", "torch", "math", "b", "h", "at", "near", "rows", "keys", "tiles", "t0", "t1", "k0", "r0"),
        *("turn", "tile", "score", "allowed", "p", "dp", "d_score", "delta", "total", "peak", "weight", "acc", "scale"),
        *("n_heads", "n_rows", "n_keys", "group", "count", "level", "given", "out", "v", "positions"),
        *("ROWS", "KEYS", "GROUP", "STEP", "met", "table", "member", "shared", "head", "places", "start", "dp"),
        *(
            "gained",
            "mean",
            "d_sink",
            "odd",
            "first",
            "beyond",
            "stop",
            "found",
            "page",
            "slot",
            "page_size",
            "CARRIED",
        ),
    )
)


@dataclass(frozen=True)
class Parts:
    """All that the kernels of one attention are printed from. A score is an exponent of 2 once it is multiplied with
    `scale`; without one it is the weight itself. `sinking` is what is beside the keys in the sum of the weights, as an
    exponent of 2, and the cotangents of the arrays in it."""

    name: str
    about: str
    terms: Terms
    dots: tuple[Dot, ...]
    score: Cell
    scale: Cell | None
    allowed: Cell | None
    forward: tuple[Block, ...]
    transposed: tuple[Block, ...]
    cotangents: dict[ir.Expr, tuple[Cell, Cell | None]]
    halves: list[dict[ir.Expr, tuple[Cell, Cell | None]]]
    sinking: tuple[Cell, dict[ir.Expr, tuple[Cell, Cell | None]]] | None
    labels: tuple[int, int] | None

    def has_full(self, block: Block) -> bool:
        """Whether there are tiles in which all pairs are kept, as far as bounds and tables of labels tell."""
        return not block.rest and len(block.labels) <= (self.labels is not None)

    @property
    def learned(self) -> tuple[bool, ...]:
        return tuple(self.is_learned(operand) for operand in self.terms.operands)

    def is_learned(self, operand: Operand) -> bool:
        """Whether an array has a gradient here: of tables those that are read at a distance of query and key."""
        of_sink = {} if self.sinking is None else self.sinking[1]
        if not operand.is_learned or not (operand.expr in self.cotangents or operand.expr in of_sink):
            return False
        return operand.table is None or operand.table.is_relative

    @property
    def tables(self) -> list[Operand]:
        """The tables that have a gradient."""
        return [operand for operand in self.of_axes(PAIR) if operand.table is not None]

    def of_axes(self, *axes: frozenset[Axis]) -> list[Operand]:
        return [operand for operand in self.terms.operands if self.is_learned(operand) and operand.axes in axes]


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
        kernel.add(1, _load(q, "t0", "near", "h", f"PADDED{tag(number)}"))
    kernel.ranges(parts.forward, "KEYS")
    body = len(kernel.lines)
    if parts.scale is not None:
        kernel.add(1, 'peak = tl.full((ROWS,), float("-inf"), tl.float32)', "weight = tl.zeros((ROWS,), tl.float32)")
    kernel.add(1, "acc = tl.zeros((ROWS, CARRIED_PADDED), tl.float32)")
    printer.count(roots(parts))
    for is_partial, indent in kernel.loops(parts.forward, 1, "KEYS"):
        _key_places(kernel, indent, is_partial)
        for number, k in enumerate(keys):
            kernel.add(indent, _load(k, "k0", "near_keys", "(h // GROUP)", f"PADDED{tag(number)}", axis="key"))
            dot = f'tl.dot(q{tag(number)}, tl.trans({k}), input_precision="ieee")'
            kernel.add(indent, f"{dot_name(number)} = {dot}")
        _score(kernel, indent, is_partial, "positions[None, :] < n_keys")
        scale = None if parts.scale is None else kernel.written(indent, parts.scale)
        kernel.add(indent, _load("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED", "key"))
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


def width_of(number: int) -> str:
    return f"WIDTH{tag(number)}, PADDED{tag(number)}"


def place_before(kernel: Kernel, place: int) -> None:
    """Put what the loops need before them."""
    lines = [f"    {name} = {show(code)}" for name, code in kernel.printer.outer]
    kernel.lines[place:place] = lines
    kernel.printer.outer = []


def again_kernel(parts: Parts) -> str:
    """The kernel of a result that is not finite, key by key: a value that is NaN or infinite reaches only those queries
    that attend to it, and in a product of matrices 0 times NaN would reach all."""
    queries, keys, pointers, strides = _signature(parts)
    about = "Attention of one tile of queries whose sums are not finite, once more and key by key."
    kernel = Kernel(parts, "forward_again", about, KEY, False)
    kernel.add(1, "if tl.load(odd_ptr + tl.program_id(0)) == 0:", "    return")
    kernel.place("n_heads", "n_rows", "ROWS")
    kernel.add(1, "near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)", "rows = t0 + near")
    for number, q in enumerate(queries):
        kernel.add(1, _load(q, "t0", "near", "h", f"PADDED{tag(number)}"))
    if parts.scale is not None:
        kernel.add(1, "total = tl.load(total_ptr + far(at, n_rows) + rows)")
    kernel.ranges(parts.forward, "KEYS")
    body = len(kernel.lines)
    ends = [edges(number if len(parts.forward) > 1 else None) for number in range(len(parts.forward))]
    kernel.printer.count(roots(parts))
    kernel.add(
        1,
        "acc = tl.zeros((ROWS, CARRIED_PADDED), tl.float32)",
        f"for k0 in tl.range({ends[0][0]} * KEYS, tl.minimum({ends[-1][3]} * KEYS, n_keys), num_stages=1):",
        "    near_keys = tl.arange(0, 1)",
        "    keys = k0 + near_keys",
    )
    kernel.printer.begin()
    for number, k in enumerate(keys):
        kernel.add(2, _load(k, "k0", "near_keys", "(h // GROUP)", f"PADDED{tag(number)}", axis="key"))
        kernel.add(2, f"{dot_name(number)} = one_dot(q{tag(number)}, {k})")
    _score(kernel, 2, True, None)
    scale = None if parts.scale is None else kernel.written(2, parts.scale)
    kernel.add(2, "p = score" if scale is None else f"p = tl.exp2(score * {scale} - total[:, None])")
    kernel.add(
        2,
        _load("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED", "key"),
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
    own = [*_dot_strides(queries, keys), *strides_of("v", "", "key"), *strides_of("out", "e", "row"), *strides]
    odd = [] if kernel.parts.allowed is None else ["odd"]
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "out", "total", *odd)]
    return kernel.text([*named, *pointers], own, [])


def roots(parts: Parts, *further: Cell | None) -> list[Cell]:
    """All that a kernel writes, so that what is used several times has a name."""
    sink = None if parts.sinking is None else parts.sinking[0]
    return [cell for cell in (parts.score, parts.scale, parts.allowed, sink, *further) if cell is not None]


def _cotangents(kernel: Kernel, indent: int, is_partial: bool) -> None:
    """The weights of a tile and the cotangents of its scores, from those of the result."""
    lead = "[None, :]" if kernel.printer.flipped else "[:, None]"
    scale = None if kernel.parts.scale is None else kernel.written(indent, kernel.parts.scale)
    kernel.add(indent, "p = score" if scale is None else f"p = tl.exp2(score * {scale} - total{lead})")
    if kernel.printer.flipped:
        kernel.add(indent, "if WANT_V:")
        kernel.add(indent + 1, 'd_v = tl.dot(p.to(given.dtype), given, d_v, input_precision="ieee")')
    pair = "v, tl.trans(given)" if kernel.printer.flipped else "given, tl.trans(v)"
    kernel.add(indent, f'dp = tl.dot({pair}, input_precision="ieee")')
    if scale is not None:
        kernel.add(indent, f"d_score = p * (dp - delta{lead})")
    else:
        kernel.add(indent, "d_score = tl.where(allowed, dp, 0.0)" if is_partial else "d_score = dp")


def _score(kernel: Kernel, indent: int, is_partial: bool, test: str | None) -> None:
    """The scores of a tile; of one that is partial, -inf where a pair is not allowed, or 0 for what is a weight."""
    parts = kernel.parts
    kernel.printer.masked = is_partial
    if is_partial:
        tests = [] if parts.allowed is None else [kernel.written(indent, parts.allowed, PAIR)]
        tests += [] if test is None else [test]
        kernel.add(indent, f"allowed = {tests[0] if len(tests) == 1 else ' & '.join(f'({test})' for test in tests)}")
    kernel.add(indent, f"score = {kernel.written(indent, parts.score)}")
    if is_partial:
        absent = "0.0" if parts.scale is None else 'float("-inf")'
        kernel.add(indent, f"score = tl.where(allowed, score, {absent})")


def _key_places(kernel: Kernel, indent: int, is_partial: bool) -> None:
    """The keys of a tile; beyond the last one they repeat it."""
    if is_partial:
        kernel.add(indent, "positions = k0 + tl.arange(0, KEYS)")
        kernel.add(indent, "near_keys = tl.minimum(tl.arange(0, KEYS), n_keys - 1 - k0)")
    else:
        kernel.add(indent, "near_keys = tl.arange(0, KEYS)")
    kernel.add(indent, "keys = k0 + near_keys")


def query_kernel(parts: Parts) -> str:
    """The kernel of the gradients of queries, of arrays that vary with no key, and of those that have all pairs. Of the
    second, which add many terms of both signs, the mean is taken off at the end and not as the result rounds it."""
    queries, keys, pointers, strides = _signature(parts)
    kernel = Kernel(parts, "backward_query", "The gradients of one tile of queries.", KEY, False)
    printer, dots = kernel.printer, tuple(parts.terms.dots)
    learned = parts.of_axes(NOWHERE, ROW)
    paired = [operand for operand in parts.of_axes(PAIR) if operand.table is None]
    kernel.place("n_heads", "n_rows", "ROWS")
    kernel.add(1, "near = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - t0)", "rows = t0 + near")
    for number, q in enumerate(queries):
        kernel.add(1, _load(q, "t0", "near", "h", f"PADDED{tag(number)}"))
    kernel.add(
        1,
        _load("given", "t0", "near", "h", "CARRIED_PADDED", "row"),
    )
    if parts.scale is not None:
        kernel.add(1, *(f"{name} = tl.load({name}_ptr + far(at, n_rows) + rows)" for name in ("total", "delta")))
    kernel.ranges(parts.forward, "KEYS")
    body = len(kernel.lines)
    for number in kernel.dots:
        kernel.add(1, f"d_q{tag(number)} = tl.zeros((ROWS, PADDED{tag(number)}), tl.float32)")
    halved = bool(learned) and parts.scale is not None
    summed = [operand for operand in learned if operand.expr in parts.cotangents]
    of_sink = {} if parts.sinking is None else parts.sinking[1]
    if halved:
        kernel.add(1, "mean = tl.zeros((ROWS,), tl.float32)")
    for operand in summed:
        kernel.add(1, f"d_{operand.name} = tl.zeros((ROWS,), tl.float32)")
        if halved:
            kernel.add(1, f"share_{operand.name} = tl.zeros((ROWS,), tl.float32)")
    kernel.add(1, "places = tl.arange(0, ROWS)")
    for operand in paired:
        start = f"d_{operand.pointer} + (far(at, n_rows) + t0 + places)[:, None] * n_keys"
        kernel.add(1, f"d_{operand.name}_at = {start}")
    flows = parts.halves if halved else [parts.cotangents]
    wanted = [parts.cotangents[expr][0] for expr in (*dots, *(o.expr for o in paired))]
    wanted += [flow[operand.expr][0] for operand in summed for flow in flows]
    outer = [parts.cotangents[expr][1] for expr in (*dots, *(o.expr for o in (*summed, *paired)))]
    printer.count(roots(parts, *wanted, *outer, *(cell for pair in of_sink.values() for cell in pair)))
    for is_partial, indent in kernel.loops(parts.forward, 1, "KEYS"):
        _key_places(kernel, indent, is_partial)
        for number, k in enumerate(keys):
            kernel.add(indent, _load(k, "k0", "near_keys", "(h // GROUP)", f"PADDED{tag(number)}", axis="key"))
            dot = f'tl.dot(q{tag(number)}, tl.trans({k}), input_precision="ieee")'
            kernel.add(indent, f"{dot_name(number)} = {dot}")
        kernel.add(indent, _load("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED", "key"))
        _score(kernel, indent, is_partial, "positions[None, :] < n_keys")
        _cotangents(kernel, indent, is_partial)
        if halved:
            kernel.add(indent, "gained = p * dp", "mean += tl.sum(gained, 1)")
        for number, expr in enumerate(dots):
            code = kernel.written(indent, parts.cotangents[expr][0])
            k, name = keys[number], f"d_q{tag(number)}"
            kernel.add(indent, f"if WANT_Q{tag(number)}:")
            dot = f'tl.dot(({code}).to({k}.dtype), {k}, {name}, input_precision="ieee")'
            kernel.add(indent + 1, f"{name} = {dot}")
        for operand in summed:
            codes = [kernel.written(indent, flow[operand.expr][0]) for flow in flows]
            kernel.add(indent, f"if WANT_{operand.name}:")
            for name, code in zip(("d", "share"), codes, strict=False):
                kernel.add(indent + 1, f"{name}_{operand.name} += tl.sum({code}, 1)")
        for operand in paired:
            cell, factor = parts.cotangents[operand.expr]
            code = kernel.written(indent, cell)
            code = code if factor is None else f"({code}) * {show(printer.written(factor, NOWHERE))}"
            there = "(places[:, None] < n_rows - t0)" + (" & (positions[None, :] < n_keys)" if is_partial else "")
            kernel.add(indent, f"if WANT_{operand.name}:")
            kernel.add(indent + 1, f"tl.store(d_{operand.name}_at + keys[None, :], {code}, mask={there})")
    for number, expr in enumerate(dots):
        factor = parts.cotangents[expr][1]
        name, width = f"d_q{tag(number)}", width_of(number)
        code = name if factor is None else f"{name} * {show(printer.written(factor, NOWHERE))}"
        start = f"{name}_ptr + b * {name}_b + h * {name}_h + far(t0, {name}_row)"
        kernel.add(1, f"if WANT_Q{tag(number)}:")
        kernel.add(2, f"store_tile({start}, {code}, places, n_rows - t0, {name}_row, {name}_d, {width})")
    if of_sink and parts.sinking is not None:
        kernel.add(1, f"d_sink = -tl.exp2({kernel.written(1, parts.sinking[0])} - total) * mean")
    for operand in learned:
        name, terms = f"d_{operand.name}", []
        if operand in summed:
            factor = parts.cotangents[operand.expr][1]
            code = f"({name} - mean * share_{operand.name})" if halved else name
            terms.append(code if factor is None else f"{code} * {show(printer.written(factor, NOWHERE))}")
        if operand.expr in of_sink:
            cells = [cell for cell in of_sink[operand.expr] if cell is not None]
            terms.append(" * ".join(f"({show(printer.written(cell))})" for cell in cells))
        code = " + ".join(terms)
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
    further = [operand for operand in parts.terms.operands if operand in (*learned, *paired)]
    named += [*pointers, *(f"{name}_ptr" for name in targets), *(f"d_{o.pointer}" for o in further)]
    flags = [*(f"WANT_Q{tag(number)}" for number in kernel.dots), *(f"WANT_{o.name}" for o in further)]
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
        kernel.add(1, _load(k, "t0", "near", "h", f"PADDED{tag(number)}", axis="key"))
    kernel.add(1, _load("v", "t0", "near", "h", "CARRIED_PADDED", "key"))
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
    printer.count(roots(parts, *wanted, *outer))
    factors = [cell is not None and _varies(cell) for cell in outer]
    for is_partial, indent in kernel.loops(parts.transposed, 2, "ROWS"):
        kernel.add(indent, "positions = r0 + tl.arange(0, ROWS)")
        if is_partial:
            kernel.add(indent, "near_rows = tl.minimum(tl.arange(0, ROWS), n_rows - 1 - r0)")
        else:
            kernel.add(indent, "near_rows = tl.arange(0, ROWS)")
        kernel.add(indent, "rows = r0 + near_rows")
        for number, q in enumerate(queries):
            kernel.add(indent, _load(q, "r0", "near_rows", "h", f"PADDED{tag(number)}"))
            dot = f'tl.dot(k{tag(number)}, tl.trans({q}), input_precision="ieee")'
            kernel.add(indent, f"{dot_name(number)} = {dot}")
        for name, other in () if parts.scale is None else (("total", 'float("inf")'), ("delta", "0.0")):
            more = f", mask=positions < n_rows, other={other}" if is_partial else ""
            kernel.add(indent, f"{name} = tl.load({name}_ptr + far(head, n_rows) + positions{more})")
        kernel.add(indent, _load("given", "r0", "near_rows", "h", "CARRIED_PADDED", "row"))
        if parts.scale is None:
            _score(kernel, indent, is_partial, "positions[None, :] < n_rows")
        else:
            _score(kernel, indent, is_partial and parts.allowed is not None, None)
        _cotangents(kernel, indent, is_partial)
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
        kernel.add(1, f"d_{operand.name} = tl.zeros((ROWS, KEYS), tl.float32)")
    wanted = [parts.cotangents[operand.expr] for operand in parts.tables]
    kernel.printer.count(roots(parts, *(cell for pair in wanted for cell in pair)))
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
    _key_places(kernel, 2, True)
    for number, (q, k) in enumerate(zip(queries, keys, strict=True)):
        kernel.add(2, _load(q, "t0", "near", "h", f"PADDED{tag(number)}"))
        kernel.add(2, _load(k, "k0", "near_keys", "(h // GROUP)", f"PADDED{tag(number)}", axis="key"))
        kernel.add(2, f'{dot_name(number)} = tl.dot({q}, tl.trans({k}), input_precision="ieee")')
    there = "mask=t0 + near_rows < n_rows"
    for name, other in () if parts.scale is None else (("total", 'float("inf")'), ("delta", "0.0")):
        kernel.add(2, f"{name} = tl.load({name}_ptr + far(at, n_rows) + t0 + near_rows, {there}, other={other})")
    kernel.add(
        2,
        _load("given", "t0", "near", "h", "CARRIED_PADDED", "row"),
        _load("v", "k0", "near_keys", "(h // GROUP)", "CARRIED_PADDED", "key"),
    )
    inside = "positions[None, :] < n_keys"
    if parts.scale is None:
        inside = f"({inside}) & (t0 + near_rows[:, None] < n_rows)"
    _score(kernel, 2, True, inside)
    _cotangents(kernel, 2, True)
    for operand, (cell, _) in zip(parts.tables, wanted, strict=True):
        kernel.add(2, f"if WANT_{operand.name}:")
        code = kernel.written(3, cell)
        kernel.add(3, f"d_{operand.name} += {code}")
    kernel.add(1, "# In all these tiles the same places have the same distance.")
    for operand, (_, factor) in zip(parts.tables, wanted, strict=True):
        more = "" if factor is None else f" * {show(kernel.printer.written(factor, NOWHERE))}"
        kernel.add(1, f"if WANT_{operand.name}:")
        kernel.add(
            2,
            f"skewed = tl.gather(d_{operand.name}{more}, moved % KEYS, 1)",
            f"start = d_{operand.pointer} + (far(at, diagonals) + diagonal) * (2 * KEYS) + near_columns",
            "tl.store(start, tl.sum(tl.where(moved < KEYS, skewed, 0.0), 0))",
            "tl.store(start + KEYS, tl.sum(tl.where(moved < KEYS, 0.0, skewed), 0))",
        )
    place_before(kernel, body)
    own = [*_dot_strides(queries, keys), *strides_of("v", "", "key"), *strides_of("given", "", "row"), *strides]
    named = [f"{name}_ptr" for name in (*queries, *keys, "v", "given", "total", "delta")]
    named += [*pointers, *(f"d_{operand.pointer}" for operand in parts.tables)]
    flags = [f"WANT_{operand.name}" for operand in parts.tables]
    return kernel.text(named, own, flags, ["diagonals", "first"])
