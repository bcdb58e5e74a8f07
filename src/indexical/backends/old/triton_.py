"""Attention → Triton kernels in the emitted source: forward, and backward to queries and to keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress

from ...ir import build
from ...ir import nodes as ir
from ...ir.pairs import Block
from ...ir.slices import Slice
from ...ir.text import shown
from ...ir.types import SHORT, Coordinate, Dtype
from ...ir.walk import rebuild, substitute, walk
from ...plan.steps import Attend, Attention, Dot, Free, Scores
from ...plan.target import WIDEST
from ...records import replace
from . import arrays, contraction, library_attention, operands, sizes
from .code import Attribute, Call, List, Name, Node, Part, String, Tuple, call, chain, infix, method, node
from .layout import Statement
from .lowering import Lowering
from .operands import Frame
from .plan.gpu import dots_of, ends_of, product_dtypes
from .plan.reach import is_counted
from .scope import Place, Scope
from .triton_again import forward_again, key_again, query_again
from .triton_backward import key_kernel, table_kernel
from .triton_forward import forward_kernel
from .triton_kernels import Parts
from .triton_places import TILE, saturated
from .triton_queries import query_kernel
from .triton_score import D_SINK, KEY, ROW, SEEDS, UNSCALED, Cell, Operand, Terms
from .triton_slant import slant_of
from .triton_words import helpers_in, number_name


def attend_by_triton(
    low: Lowering, let: ir.Let, attend: Attend, frame: Frame
) -> tuple[Callable[..., Node], list[str], Node]:
    """The call of the kernels of an attention, which has four axes, to be written in its place, or of their way back
    for what arrives; arrays that must not want a gradient of it; and a test that its widths are small enough."""
    row, key = frame.row, attend.attention.coordinate
    assert row is not None
    dots = {expr: dot for expr, dot in dots_of(attend.attention.score, frozenset((row,)), key) if isinstance(dot, Dot)}
    frame = comparing(let, attend, frame, dots.values())
    parts = parts_of(low, let, attend, frame, row, dots)
    functions = [forward_kernel(parts), query_kernel(parts), key_kernel(parts)]
    if parts.allowed is not None:
        functions += [forward_again(parts), query_again(parts), key_again(parts)]
    kernels: list[Part] = [f"{parts.name}_{part}" for part in ("forward", "backward_query", "backward_key")]
    if parts.tables:
        functions.append(table_kernel(parts))
    kernels.append(f"{parts.name}_backward_table" if parts.tables else None)
    low.functions += functions
    low.kernels.setdefault("triton_tile", set()).update(*map(helpers_in, functions))
    low.kernels.setdefault("triton_attend", set()).add("attending")
    low.modules.update(triton=None, tl=None)
    maker = low.text.fresh(f"attend_{let.name}")
    levels = [String(operand.level) for operand in parts.terms.operands]
    how: dict[str, Part] = {"tiled": parts.tiled, "normalised": parts.scale is not None, "work": String(parts.work)}
    if parts.allowed is not None:
        how["again"] = Tuple(tuple(Name(f"{kernel}_again") for kernel in kernels[:3]))
    if parts.striped:
        how["striped"] = True
    how |= where_shared(parts, frame) | promoted(low, let, parts)
    made = call("attending", String(maker), *kernels, len(parts.dots), Tuple(tuple(levels)), parts.learned, **how)
    low.functions.append(Statement(0, 0, "assign", maker, made).shown)
    code = partial(operands_of, low, let, attend, frame, parts, maker)
    unlearned = [
        low.stored[operand.expr.tensor].variable
        for operand in parts.terms.operands
        if parts.is_reached(operand) and not parts.is_learned(operand) and isinstance(operand.expr, ir.Read)
    ]
    widths = [
        contraction.product_of_lengths(low, tuple(r.coordinate for r in dot.compared), frame.scope)
        for dot in parts.dots
    ]
    widths.append(contraction.product_of_lengths(low, attend.layout.carry, frame.scope))
    tests: list[Node] = [infix("<=", width, WIDEST) for width in dict.fromkeys(widths)]
    for operand in parts.terms.operands:
        tests += inside_tests(low, attend, operand)
    return code, unlearned, chain("and", tests)


def inside_tests(low: Lowering, attend: Attend, operand: Operand) -> list[Node]:
    """Tests that a table is read within its bounds, on sizes."""
    table = operand.table
    if table is None:
        return []
    lowest, highest = ends_of(attend, table.index)
    extent = low.tensors[table.read.tensor].axes[table.axis].extent
    assert lowest is not None
    assert highest is not None
    tests: list[Node] = []
    if not is_counted(lowest):
        tests.append(infix(">=", sizes.number(low, lowest), 0))
    if not isinstance(highest, ir.Const) or not isinstance(extent, ir.Const) or highest.value >= extent.value:
        tests.append(infix("<", sizes.number(low, highest), sizes.number(low, extent)))
    return tests


def comparing(let: ir.Let, attend: Attend, frame: Frame, dots: Iterable[Dot]) -> Frame:
    """The frame with the coordinates that any dot product compares."""
    scope = frame.scope
    for dot in dots:
        for range in dot.compared:
            if range.coordinate not in scope.places:
                scope = scope.binding(range, Place(range.lower, range.upper, not range.stated))
    return replace(frame, scope=scope, kept=operands.kept_scope(let, attend, scope))


def parts_of(
    low: Lowering, let: ir.Let, attend: Attend, frame: Frame, row: Coordinate, dots: dict[ir.Expr, Dot]
) -> Parts:
    """The score, the guard and the tiles of an attention, as values of a kernel."""
    attention = attend.attention
    products = products_of(low, let, attend, dots.values())
    fast = SHORT.issuperset(products)
    terms = Terms(frame.batch, row, attention.coordinate, dots, partial(host_number, low), fast, tiled=True)
    pairs = attend.pairs
    assert pairs is not None
    ends = [build.read(end, (), "whole", attention.key.span) for end in TILE]
    forward, transposed = pairs.blocks(ends[0], ends[1]), pairs.transpose().blocks(ends[0], ends[1])
    relation = _where_kept(attention.score, attend)
    free, sink = isinstance(attention.normaliser, Free), attention.sink
    score, scale = (terms.real(relation), None) if free else terms.in_base_two(relation)
    # In full precision a large slope would lose digits: its parts are rounded one by one, at each tile anew.
    slant = slant_of(terms, relation) if fast and not free else None
    if slant is not None:  # Its parts are scaled each for itself.
        score, scale = terms.scaled(relation), UNSCALED
    allowed = in_slices(terms, [block.slice for block in forward], attention.key)
    for block in (*forward, *transposed):
        for end in (block.first, block.beyond, block.full_first, block.full_beyond):
            terms.bound(end)
    name = low.text.fresh(let.name + "_tile").removesuffix("_tile")
    cotangents, *halves = (terms.backward(relation, seed) for seed in SEEDS)
    sinking = None if sink is None else (terms.scaled(sink), terms.backward(sink, D_SINK))
    tiled = _tiled(terms, forward)
    values = terms, tuple(dots.values()), score, scale, allowed
    flows = cotangents, halves, sinking
    chosen = terms.chosen(relation)
    return Parts(name, relation_of(attention), products, *values, forward, transposed, *flows, tiled, slant, chosen)


def products_of(low: Lowering, let: ir.Let, attend: Attend, dots: Iterable[Dot]) -> tuple[Dtype, ...]:
    """The dtype of each dot product, and behind these the one of weights times values."""
    return product_dtypes(dots, attend.attention.value, low.dtypes, low.weak, low.dtypes[let.name])


def promoted(low: Lowering, let: ir.Let, parts: Parts) -> dict[str, Part]:
    """The dtype of the result for the maker of a kernel, where products are taken in others."""
    dtype = low.dtypes[let.name]
    return {} if set(parts.products) == {dtype} else {"dtype": low.text.dialect.dtype(dtype)}


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


def _tiled(terms: Terms, blocks: tuple[Block, ...]) -> tuple[int, ...]:
    """The arrays from which a kernel makes a table of the tiles that may meet, by their places: the labels that queries
    and keys must agree in, or a mask of pairs, of keys or of queries; none where there are none, or several sets of
    keys."""
    if len(blocks) != 1:
        return ()
    for asks, answers in blocks[0].labels:
        operands = terms.value(asks).operand, terms.value(answers).operand
        if operands[0] is not None and operands[1] is not None and (operands[0].axes, operands[1].axes) == (ROW, KEY):
            return terms.operands.index(operands[0]), terms.operands.index(operands[1])
    for fact in blocks[0].rest:
        mask = terms.value(fact).operand
        if mask is not None and mask.table is None and mask.axes:
            return (terms.operands.index(mask),)
    return ()


def host_number(low: Lowering, expr: ir.Expr) -> str | None:
    """The parameter of a kernel for a number that the host knows; None for anything else."""
    match expr:
        case ir.Size(coordinate):
            return number_name(low.sizes[coordinate])
        case ir.Read(tensor, ()) if low.stored[tensor].python:
            return number_name(low.stored[tensor].variable)
    return None


def relation_of(attention: Attention) -> str:
    """The score of an attention and its guards, as they are written."""
    return f"{shown(attention.score)}{' where ' if attention.guard else ''}{', '.join(map(shown, attention.guard))}"


def in_slices(terms: Terms, slices: Sequence[Slice], key: ir.Range) -> Cell | None:
    """A test that a pair is in one of some slices; None where all pairs are."""
    tests = [_in_slice(terms, one, key) for one in slices]
    known = tuple(test for test in tests if test is not None)
    if len(known) < len(tests):
        return None
    return known[0] if len(known) == 1 else terms.joined("|", known, "bool")


def _in_slice(terms: Terms, one: Slice, key: ir.Range) -> Cell | None:
    """A test that a pair is in a slice; None where all pairs are."""
    point = build.coord(key.coordinate, key.span)
    lower, upper = [saturated(bound) for bound in one.lower], [saturated(bound) for bound in one.upper]
    for label, bounds in (("key_start", lower), ("key_end", upper)):
        for bound in bounds:
            terms.label(bound, label)
    facts: list[ir.Expr] = [build.apply("<=", (bound, point), "bool", bound.span) for bound in lower]
    facts += [build.apply("<", (point, bound), "bool", bound.span) for bound in upper]
    facts += [build.apply("==", pair, "bool", key.span) for pair in one.labels]
    facts += one.rest
    return terms.all_of([terms.value(fact) for fact in facts])


# ------------------------------------------------------------------------------------------- operands


def operands_of(
    low: Lowering, let: ir.Let, attend: Attend, frame: Frame, parts: Parts, maker: str, arriving: Node | None = None
) -> Node:
    """The call: queries, keys and values as they come, further arrays at every head, and numbers; ahead of them what
    arrives, on the way back."""
    key, carry = attend.attention.coordinate, attend.layout.carry
    columns = [tuple(range.coordinate for range in dot.compared) for dot in parts.dots]
    *compared, carried = parts.products
    dots = list(zip(parts.dots, columns, compared, strict=True))
    queries = [operands.operand(low, dot.query, frame.row, c, frame, let, dtype) for dot, c, dtype in dots]
    single = replace(attend, scores=Scores(parts.dots[0], None))
    alone = len(parts.dots) == 1 and arriving is None  # What flows back to a head of its own is not a group's.
    groups = library_attention.grouped(low, single, frame) if alone else None
    if groups is None:
        keys = [operands.operand(low, dot.key, key, c, frame, let, dtype) for dot, c, dtype in dots]
        value = operands.operand(low, attend.attention.value, key, carry, frame, let, carried)
    else:
        shared, test, *sides = groups
        names = low.text.fresh("key"), low.text.fresh("value")
        low.text.add("if", test)
        with low.block():
            low.text.assign(names[0], operands.operand(low, sides[0], key, columns[0], shared, let, compared[0]))
            low.text.assign(names[1], operands.operand(low, sides[1], key, carry, shared, let, carried))
        low.text.add("else")
        with low.block():
            own = parts.dots[0].key, attend.attention.value
            low.text.assign(names[0], operands.operand(low, own[0], key, columns[0], frame, let, compared[0]))
            low.text.assign(names[1], operands.operand(low, own[1], key, carry, frame, let, carried))
        keys, value = [Name(names[0])], Name(names[1])
    arrays = [array_of(low, operand, key, frame) for operand in parts.terms.operands]
    for place, operand in enumerate(parts.terms.operands):
        if parts.cotangents and operand.is_learned and not parts.is_reached(operand):  # It is only compared.
            arrays[place] = method(arrays[place], "detach")
    known = {number_name(v): v for v in (*low.sizes.values(), *scalars(low))}
    numbers: dict[str, list[Node]] = {
        kind: [Name(known[n]) for n, k in parts.terms.numbers.items() if k == kind] for kind in ("whole", "real")
    }
    if parts.tables:
        rules = [_rule(low, operand) for operand in parts.tables]
        if all(rules):
            numbers["whole"] += [number for rule in rules for number in rule]
        else:
            arrays += [_places(low, operand, attend, frame) for operand in parts.tables]
        numbers["whole"] += _distances(low, attend, frame)
    tensors = List((*queries, *keys, value, *arrays))
    more = {} if frame.total is None else {"totals": Name("True")}
    given = (tensors, *(List(tuple(numbers[kind])) for kind in ("whole", "real")))
    if arriving is not None:
        return Call(Attribute(Name(maker), "backward"), (arriving, *given), ())
    return call(maker, *given, **more)


def scalars(low: Lowering) -> Iterable[str]:
    return (stored.variable for stored in low.stored.values() if stored.python)


def where_shared(parts: Parts, frame: Frame) -> dict[str, Part]:
    """The axes of each array for the maker of a kernel, where one is the same for all batches or heads."""
    found = [
        "".join(axis for axis, own in zip("bh", _batch_of(operand, frame), strict=True) if own)
        for operand in parts.terms.operands
    ]
    return {} if all(each == "bh" for each in found) else {"along": Tuple(tuple(map(String, found)))}


def _batch_of(operand: Operand, frame: Frame) -> tuple[bool, bool]:
    """Whether an array varies with the batch, and whether it does with the head. More batch axes are folded into two,
    and an array has all of them then."""
    if len(frame.batch) > 2:
        return True, True
    table = operand.table
    read = (operand.expr,) if table is None else (i for n, i in enumerate(table.read.indices) if n != table.axis)
    coordinates = {coordinate for expr in read for coordinate in expr.type.coordinates}
    batch, head = (None, None, *frame.batch)[-2:]
    return batch in coordinates, head in coordinates


def array_of(low: Lowering, operand: Operand, key: Coordinate, frame: Frame) -> Node:
    """An array: those of the two batch axes that it varies with, then those of the tile, or its own one."""
    scope, kept, expr = frame.scope, frame.kept, operand.expr
    rows = () if frame.row is None or not operand.axes & ROW else (frame.row,)
    inner = (*rows, *((key,) if operand.axes & KEY else ()))
    if operand.table is not None:
        read, axis = operand.table.read, operand.table.axis
        place = Coordinate(f"{read.tensor}_place")
        extent = low.tensors[read.tensor].axes[axis].extent
        zero = build.whole(0, read.span)
        scope = scope.binding(ir.Range(place, zero, extent, True, read.span), Place(zero, extent, True))
        kept, inner = scope, (place,)
        indices = (build.coord(place, read.span) if n == axis else index for n, index in enumerate(read.indices))
        expr = build.read(read.tensor, tuple(indices), read.type.kind, read.span)
    value = arrays.as_array(low, operands.operand_value(low, expr, kept))
    own = frame.batch
    if len(own) <= 2:
        own = tuple(compress(own, _batch_of(operand, frame)[2 - len(own) :]))
    value = arrays.in_order(low, value, (*own, *inner))
    value = arrays.broadcast(low, value, (*own, *inner), scope)
    return value.code if len(own) <= 2 else operands.folded_batch(low, value.code, len(own))


def _rule(low: Lowering, operand: Operand) -> list[Node]:
    """The place in a table of every distance of query and key as four numbers: steps, an offset, and the ends; none
    where that takes more."""
    table = operand.table
    assert table is not None
    rule = table.rule
    reads = (part for part in walk(table.index) if isinstance(part, ir.Read))
    if rule is None or rule.offset.type.coordinates or any(host_number(low, read) is None for read in reads):
        return []
    ends = ((rule.least, -(2**31)), (rule.most, 2**31 - 1))
    found = [node(beyond) if end is None else sizes.number(low, end) for end, beyond in ends]
    return [node(rule.slope), sizes.number(low, rule.offset), *found]


def _places(low: Lowering, operand: Operand, attend: Attend, frame: Frame) -> Node:
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
    value = arrays.as_array(low, low.value(index, scope))
    return arrays.broadcast(low, value, (place,), scope).code


def _distances(low: Lowering, attend: Attend, frame: Frame) -> list[Node]:
    """The least and the largest place of a key less that of its query."""
    assert frame.row is not None
    key = attend.attention.key
    ahead = build.apply(
        "-", (build.coord(key.coordinate, key.span), build.coord(frame.row, key.span)), "whole", key.span
    )
    ends = ends_of(attend, ahead)
    return [sizes.number(low, end) for end in ends if end is not None]
