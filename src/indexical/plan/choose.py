"""Program → Plan: which definitions are computed, each by which kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir import nodes as ir
from ..ir.affine import number, of_atom, polynomial
from ..ir.context import agreed
from ..ir.domain import Domain, Slice
from ..ir.types import Coordinate, Dtype
from ..ir.walk import reads_of, walk
from .blocks import cut
from .dtypes import definition_dtypes, weak_definitions
from .fuse import fuse
from .gradients import Derived, derive
from .lowerings import described
from .norms import LAYER_NORM, Norm, find_norm
from .recognize import recognize
from .recurrences import arrange, step_of
from .scores import lay_out, take_apart
from .steps import Attend, Attention, Block, Gradient, Layout, Plan, Recognized, Refusal, Scores, Step
from .wording import words_of

FUSED = "scaled_dot_product_attention"
INTERVALS = "key intervals"
TILES = "key intervals, tile by tile"
STREAM = "stream"
ARRAYS = "arrays"


def choose(
    program: ir.Program,
    wanted: tuple[str, ...],
    dtypes: Mapping[str, Dtype],
    backend: str,
    device: str,
    isolate: bool,
    recompute: bool = True,
) -> Plan:
    """The plan of a call: what is needed, every attention by the best kernel that takes it. What flows back through
    one is computed from weights that are made again, unless `recompute` says to keep them."""
    original = program
    derived = Derived.none(program) if isolate else _derived(program, wanted, backend, recompute)
    program = derived.program
    found = Recognized(program, {}, ()) if isolate else recognize(program, wanted, derived.left)
    refusals = {refusal.definition: refusal for refusal in (*found.refusals, *derived.refusals)}
    fused = dict(found.attentions)
    for name, attention in list(fused.items()):
        reason = _unfit(name, attention, found.program)
        if reason is not None:
            refusals[name] = Refusal(name, "fused attention", reason)
            del fused[name]
            found = _taken_back(found, name, program)
    program = fuse(found.program, {*wanted, *fused, *derived.left}) if not isolate else found.program
    arranged = arrange(program, wanted, isolate)
    reading = _reading(fused, derived)
    program, blocks = _cut(arranged.program, wanted, derived.flowing, reading, refusals)
    norms = {} if isolate or backend != "torch" else _norms(program, {*fused, *reading}, dtypes)
    reading |= {name: norm.parts for name, norm in norms.items()}
    needed = needed_by(program, wanted, reading)
    together = _together(program, derived.gradients, blocks, needed, refusals)
    inside = {name for step in together for name in (*step.beside, *step.covers)}
    steps = []
    for let in program.lets:
        if let.name not in needed - inside:
            continue
        if let.name in fused:
            step = _attend(let, fused[let.name], program, backend)
            steps.append(replace(step, covers=_covered((let.name,), original, needed)))
        elif let.name in norms:
            covers = _covered((let.name,), original, needed)
            steps.append(Step(let.name, LAYER_NORM, covers=covers, norm=norms[let.name]))
        else:
            refused = (refusals[let.name],) if let.name in refusals else ()
            known = next((step for step in together if step.definition == let.name), None)
            steps.append(described(known or step_of(let.name, arranged, refused), program))
    built = needed - {name for step in together for name in step.covers}
    asked = needed_by(original, wanted, {})
    unread = tuple(let.name for let in original.lets if let.name in asked - built and let.axes and not let.hidden)
    given = {tensor.name: dtypes[tensor.name] for tensor in program.inputs if tensor.name in dtypes}
    types = {**given, **definition_dtypes(program, given), **definition_dtypes(original, given)}
    weak = weak_definitions(program, given)
    same = agreed(original)
    return Plan(program, wanted, types, backend, device, isolate, tuple(steps), unread, weak, recompute, same)


def _norms(program: ir.Program, taken: set[str], dtypes: Mapping[str, Dtype]) -> dict[str, Norm]:
    """The layer normalisations of a program, other than those that are computed some other way. PyTorch's kernel wants
    one dtype for all that it is given."""
    if len({dtypes.get(tensor.name) for tensor in program.inputs if tensor.kind == "real" and tensor.axes}) != 1:
        return {}
    lets = {let.name: let for let in program.lets}
    once = {item.name for item in program.order if isinstance(item, ir.Once)} - taken
    found = {name: find_norm(lets[name], lets) for name in lets if name in once}
    return {name: norm for name, norm in found.items() if norm is not None}


def needed_by(program: ir.Program, wanted: tuple[str, ...], reading: Mapping[str, tuple[ir.Expr, ...]]) -> set[str]:
    """The definitions that are computed: those asked for, those asserted, and what they read; of those that a kernel
    computes, only what it is `reading`."""
    lets = {let.name: let for let in program.lets}
    needed: set[str] = set()
    waiting = [name for name in wanted if name in lets]
    waiting += [p.tensor for claim in program.asserts for p in walk(claim.condition) if isinstance(p, ir.Read)]
    while waiting:
        name = waiting.pop()
        if name in needed or name not in lets:
            continue
        needed.add(name)
        if name in reading:
            waiting += [part.tensor for expr in reading[name] for part in walk(expr) if isinstance(part, ir.Read)]
            extents = [axis.extent for axis in lets[name].axes]
            waiting += [part.tensor for expr in extents for part in walk(expr) if isinstance(part, ir.Read)]
        else:
            waiting += [read.tensor for read in reads_of(lets[name])]
    return needed


def _covered(names: tuple[str, ...], program: ir.Program, needed: set[str]) -> tuple[str, ...]:
    """The definitions that a kernel computes on the way, in the order of the text."""
    lets = {other.name: other for other in program.lets}
    found: set[str] = set()
    waiting = [name for name in names if name in lets]
    while waiting:
        for read in reads_of(lets[waiting.pop()]):
            if read.tensor in lets and read.tensor not in needed | found:
                found.add(read.tensor)
                waiting.append(read.tensor)
    return tuple(name for name in lets if name in found)


def _derived(program: ir.Program, wanted: tuple[str, ...], backend: str, recompute: bool) -> Derived:
    """What flows back through attentions: by a kernel that has a way back, where weights may be made again."""

    def describe(program: ir.Program, name: str) -> tuple[Step, ir.Let] | str:
        found = recognize(program, (name,))
        if name not in found.attentions:
            return next((r.reason for r in found.refusals if r.definition == name), "no attention is recognised")
        attention = found.attentions[name]
        reason = _unfit(name, attention, found.program)
        let = next(let for let in found.program.lets if let.name == name)
        step = _attend(let, attention, found.program, backend)
        if step.kernel == STREAM:
            reason = reason or step.refusals[-1].reason
        return reason or (step, let)

    if not recompute:
        return replace(derive(program, wanted, None), flowing=())
    return derive(program, wanted, describe if backend == "torch" else None)


def _reading(fused: Mapping[str, Attention], derived: Derived) -> dict[str, tuple[ir.Expr, ...]]:
    """What is evaluated by definitions that a kernel computes."""
    reading = {name: parts(attention) for name, attention in fused.items()}
    for gradient in derived.gradients:
        read = (*parts(gradient.attend.attention), gradient.arriving)
        reading |= dict.fromkeys(gradient.definitions, read)
    return reading


def _cut(
    program: ir.Program,
    wanted: tuple[str, ...],
    flowing: tuple[str, ...],
    reading: Mapping[str, tuple[ir.Expr, ...]],
    refusals: dict[str, Refusal],
) -> tuple[ir.Program, list[Block]]:
    """The program, and what of it is computed for some rows after the other."""
    read = {
        name: {part.tensor for expr in exprs for part in walk(expr) if isinstance(part, ir.Read)}
        for name, exprs in reading.items()
    }
    blocks: list[Block] = []
    for name in flowing:
        needed = needed_by(program, wanted, reading)
        taken = {member for block in blocks for member, _ in block.inner}
        if name not in needed - taken:
            continue
        found = cut(program, name, wanted, needed, read)
        if isinstance(found, str):
            refusals.pop(name, None)
            refusals |= {name: Refusal(name, "blocks of rows", found)} if found else {}
        elif not taken & {member for member, _ in found[1].inner}:
            program = found[0]
            blocks.append(found[1])
    return program, blocks


def _together(
    program: ir.Program,
    gradients: tuple[Gradient, ...],
    blocks: list[Block],
    needed: set[str],
    refusals: Mapping[str, Refusal],
) -> list[Step]:
    """Definitions that are computed at once, where the first of them stands."""
    order = [item.name for item in program.order if isinstance(item, ir.Once)]
    steps = []
    for gradient in gradients:
        names = [name for name in order if name in gradient.definitions and name in needed]
        if names:
            covers = _covered(tuple(names), program, needed)
            words = ("where this is to be differentiated again: by arrays",)
            step = Step(names[0], f"the backward of {gradient.kernel}", (*words, *gradient.words), gradient.refusals)
            beside = tuple(names[1:])
            steps.append(replace(step, covers=covers, gradient=gradient.only(names), beside=beside))
    for block in blocks:
        names = [name for name in order if name in block.definitions]
        covers = tuple(name for name, _ in block.inner if name not in block.kept)
        refused = (refusals[block.weights],) if block.weights in refusals else ()
        kernel = f"blocks of `{block.row.name}`"
        steps.append(Step(names[0], kernel, (), refused, covers=covers, block=block, beside=tuple(names[1:])))
    return steps


def parts(attention: Attention) -> tuple[ir.Expr, ...]:
    """Everything that a kernel for an attention evaluates."""
    key = attention.key
    return (key.lower, key.upper, attention.score, *attention.guard, attention.value)


def _taken_back(found: Recognized, name: str, original: ir.Program) -> Recognized:
    """A definition as it was written, where it is not computed by a kernel after all."""
    written = {let.name: let for let in original.lets}
    lets = tuple(written.get(let.name, let) if let.name == name else let for let in found.program.lets)
    return replace(found, program=replace(found.program, lets=lets))


def _unfit(name: str, attention: Attention, program: ir.Program) -> str | None:
    """Why no kernel computes an attention; None where one does."""
    let = next(let for let in program.lets if let.name == name)
    if attention.empty == "nan":
        attend = _attend(let, attention, program, "numpy").attend
        if attend is None or not all(one.is_interval for one in attend.keys):
            return "a row that hears nobody would be 0 and not NaN; which those are is known only of intervals"
    layout = lay_out(attention, tuple(axis.coordinate for axis in let.axes))
    dot = None if layout.rows else take_apart(attention, layout).dot
    if dot is not None:
        asks = [c for c in layout.batch if c in dot.query.type.coordinates - dot.key.type.coordinates]
        if asks:
            return f"the values vary with `{asks[-1].name}`, which asks: each query would have keys of its own"
    return None


def _attend(let: ir.Let, attention: Attention, program: ir.Program, backend: str) -> Step:
    lets = {other.name: other for other in program.lets}
    ranges = {range.coordinate: range for range in let.clauses[0].ranges}
    axes = tuple(axis.coordinate for axis in let.axes)
    layout = lay_out(attention, axes)
    scores = take_apart(attention, layout)
    key = attention.key
    domain = Domain.of((*ranges.values(), key), attention.guard, lets)
    keys = domain.bounds(key.coordinate, layout.rows) or (Slice((key.upper,), (key.lower,)),)
    guarded = [c for c in layout.rows if any(c in guard.type.coordinates for guard in attention.guard)]
    shape = _shape(domain, keys, key, guarded)
    way, refusals = _way(let, key.coordinate.name, layout, scores, keys, shape, backend)
    attend = Attend(attention, layout, scores, domain, keys, shape)
    return Step(let.name, way, words_of(attend, way == FUSED), refusals, attend)


def _shape(domain: Domain, keys: tuple[Slice, ...], key: ir.Range, rows: list[Coordinate]) -> str | None:
    """`full` where every query hears every key, `causal` where the query at `i` hears the keys up to `i`."""
    if keys == (Slice(),):
        return "full"
    if len(keys) != 1 or len(rows) != 1 or keys[0].lower or not keys[0].is_interval or len(keys[0].upper) != 1:
        return None
    past = polynomial(keys[0].upper[0], domain.known.constants) - of_atom(rows[0])
    starts = (key.lower, domain.range(rows[0]).lower)
    return "causal" if past == number(1) and all(polynomial(start) == number(0) for start in starts) else None


def _way(
    let: ir.Let,
    key: str,
    layout: Layout,
    scores: Scores,
    keys: tuple[Slice, ...],
    shape: str | None,
    backend: str,
) -> tuple[str, tuple[Refusal, ...]]:
    """The first kernel that takes it, and why the others before it do not."""
    refusals: list[Refusal] = []
    if backend == "numpy":
        return STREAM, ()
    if scores.dot is None:
        refusals.append(Refusal(let.name, FUSED, scores.reason))
        return STREAM, tuple(refusals)
    if scores.bias is None and shape is not None:
        return FUSED, ()
    if scores.bias is not None:
        refusals.append(
            Refusal(let.name, FUSED, "what is added to the scores would be built whole, and lose its gradient")
        )
        return _tiled(let, layout, refusals)
    query = layout.rows[-1].name if layout.rows else "i"
    refusals.append(Refusal(let.name, FUSED, f"it knows no guard but `{key} <= {query}`"))
    if any(one.rest for one in keys) or (len(keys) > 1 and any(one.labels for one in keys)):
        return _tiled(let, layout, refusals)
    return INTERVALS, tuple(refusals)


def _tiled(let: ir.Let, layout: Layout, refusals: list[Refusal]) -> tuple[str, tuple[Refusal, ...]]:
    """Tiles know of two coordinates that keep apart; more are streamed."""
    apart = len(let.axes) - len(layout.carry) - min(1, len(layout.rows))
    if apart <= 2:
        return TILES, tuple(refusals)
    return STREAM, (*refusals, Refusal(let.name, TILES, f"{apart} coordinates keep apart, and it takes two"))
