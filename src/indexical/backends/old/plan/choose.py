"""Program → Plan: which definitions are computed, each by which kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial

from ....ir import nodes as ir
from ....ir.affine import number, of_atom, polynomial
from ....ir.algebra.contents import Contents
from ....ir.context import agreed
from ....ir.domain import Domain, Slice
from ....ir.dtypes import definition_dtypes, real_dtype
from ....ir.joins import by_joined
from ....ir.needs import read_in
from ....ir.types import SHORT, Coordinate, Dtype, widest
from ....plan.steps import (
    Attend,
    Attention,
    Block,
    Chunks,
    Free,
    Gathering,
    Gradient,
    Layout,
    Plan,
    Recognized,
    Refusal,
    Scores,
    Softmax,
    Step,
)
from ....plan.target import (
    BACKWARD,
    CHUNKS,
    FUSED,
    INTERVALS,
    STREAM,
    TILES,
    TOTALS,
    TRITON,
    Target,
)
from ....records import replace
from .blocks import cut
from .carried import carry
from .contractions import contract
from .decode import DECODE, decode_refusal, products_in
from .duality import chunks_of
from .few import SHORT_ROWS, few_pairs
from .gpu import compares_plainly, limits, refusal
from .gradients import Derived, Describer, derive
from .queries import is_asked, is_of, take_in
from .reading import Reading, covered, handed, needed_by, read_by_kernels
from .recognize import Recognizer, recognize
from .recurrences import arrange, step_of
from .scores import lay_out, take_apart
from .softmaxes import gathering_by_place, gathering_selected
from .totals import Beside, Totals, beside_attentions, find_totals, has_logarithms
from .wording import chunk_words, words_of


def choose(
    program: ir.Program,
    wanted: tuple[str, ...],
    dtypes: Mapping[str, Dtype],
    target: Target,
    device: str,
    isolate: bool,
    recompute: bool = True,
) -> Plan:
    """The plan of a call: what is needed, every attention by the best kernel that takes it. The gradients of an
    attention are computed from recomputed weights, unless `recompute` is False: then the weights are kept."""
    original = program
    if not isolate:
        program = by_joined(program)
    dtype = widest(_reals(program, dtypes))
    contents = Contents()
    describing = partial(_Describer, contents=contents, target=target, device=device, dtype=dtype)
    derived = Derived.none(program) if isolate else _derived(program, wanted, target, describing, recompute, contents)
    program = derived.program
    tensors = program.tensors
    puts = {let.name for let in program.lets if _writes_at_places(let, tensors)}
    by_arrays = gathering_by_place(program) | gathering_selected(program, contents) | puts
    derived = replace(derived, left=derived.left | by_arrays)
    kept = derived.computed | puts
    found = Recognized(program, {}, ()) if isolate else recognize(program, wanted, derived.left, kept, contents)
    refusals = {refusal.definition: refusal for refusal in (*found.refusals, *derived.refusals)}
    found = _fitting(found, program, refusals, target)
    totals: Totals = {}
    if TOTALS in target.kernels and not isolate and any(has_logarithms(let, contents) for let in found.program.lets):
        found, totals = _with_totals(found, wanted, derived, contents)
        refusals = {**{refusal.definition: refusal for refusal in found.refusals}, **refusals}
    if TRITON in target.kernels and device == "cuda" and not isolate:
        found = _asking(found, wanted, dtypes, target, totals)
    found, uncontracted = _contracted(found, dtypes)
    fused = found.attentions
    program = found.program
    carried: dict[str, Chunks] = {}
    reading = read_by_kernels(fused, derived, totals)
    if not isolate and CHUNKS in target.kernels:
        program, carried, uncarried = carry(program, needed_by(program, wanted, reading), wanted, reading)
        refusals = {**uncarried, **refusals}
    arranged = arrange(program, wanted, isolate)
    reading |= {name: read_in(*chunks.parts) for name, chunks in carried.items()}
    gatherings = found.gatherings if recompute else ()
    program, blocks = _cut(arranged.program, wanted, (*derived.flowing, *gatherings), reading, refusals)
    needed = needed_by(program, wanted, reading)
    together = _together(program, derived.gradients, blocks, needed, refusals)
    inside = {name for step in together for name in (*step.beside, *step.covers)}
    inside |= {name for beside in totals.values() for name, _ in beside}
    lets = program.definitions
    written = original.definitions
    given = {tensor.name: dtypes[tensor.name] for tensor in program.inputs if tensor.name in dtypes}
    found_types, weak = definition_dtypes(program, given)
    types = {**given, **found_types}
    if program is not original:
        types |= definition_dtypes(original, given)[0]
    kernels = {step.definition: step for step in reversed(together)}
    for name, chunks in carried.items():
        covers = covered((name,), lets, needed)
        sides = (real_dtype(side, types, weak) for side in (chunks.query, chunks.answer, chunks.value))
        chunks = by_chunk_kernels(chunks, target, device, {widest(sides)})
        kernels[name] = Step(name, CHUNKS, chunk_words(chunks), covers=covers, chunks=chunks)
    library = [
        _attend(
            *(lets[name], fused[name], lets, target, device, types[name], totals.get(name, ())),
            products=partial(products_in, dtypes=types, weak=weak, result=types[name]),
            confined=device != "cuda" or is_asked(lets[name], fused[name], program),
        )
        for name in fused
        if name in needed
    ]
    if TRITON in target.kernels and device == "cuda" and not isolate:
        library = [_decoding(step, types, weak) for step in library]
    for step in library:
        more = (*step.refusals, *uncontracted.get(step.definition, ()))
        covers = covered((step.definition, *step.beside), written, needed)
        kernels[step.definition] = replace(step, covers=covers, refusals=more)
    arranged = arranged.with_all_steps(handed(library))
    steps = tuple(
        kernels[name] if name in kernels else step_of(name, arranged, (refusals[name],) if name in refusals else ())
        for name in lets
        if name in needed and name not in inside
    )
    built = needed - {name for step in together for name in step.covers}
    if target.builds_scores:
        built |= {name for step in library if step.attend is not None for name in kernels[step.definition].covers}
    unbuilt = needed_by(original, wanted, {}) - built
    unread = tuple(let.name for let in original.lets if let.name in unbuilt and let.axes and not let.hidden)
    same = agreed(original)
    return Plan(program, wanted, types, target.name, device, isolate, steps, unread, weak, recompute, same)


def _writes_at_places(let: ir.Let, tensors: Mapping[str, ir.Input | ir.Let]) -> bool:
    """Whether a definition puts rows at places of an array that was given away: kernels read that array, and nothing
    is written out anew."""
    match let.clauses[0].body:
        case ir.Select(ir.Reduce("any"), _, ir.Read(past)):
            array = tensors[past]
            return isinstance(array, ir.Input) and array.owned
    return False


def _fitting(found: Recognized, program: ir.Program, refusals: dict[str, Refusal], target: Target) -> Recognized:
    """The attentions that a kernel takes; the reasons why none takes the others go to the refusals."""
    lets = found.program.definitions
    reasons = {name: _unfit(lets[name], attention, lets, target) for name, attention in found.attentions.items()}
    for name, reason in reasons.items():
        if reason is not None:
            refusals[name] = Refusal(name, "fused attention", reason)
            found = _taken_back(found, name, program)
    kept = {name: attention for name, attention in found.attentions.items() if reasons[name] is None}
    return replace(found, attentions=kept)


def _asking(
    found: Recognized, wanted: tuple[str, ...], dtypes: Mapping[str, Dtype], target: Target, totals: Totals
) -> Recognized:
    """The attentions with the guards on their queries, where kernels are printed for them with these and without."""
    lets = found.program.definitions

    def takes(let: ir.Let, *forms: Attention) -> bool:
        given = {tensor.name: dtypes[tensor.name] for tensor in found.program.inputs if tensor.name in dtypes}
        types, _ = definition_dtypes(found.program, given)
        steps = (_attend(let, form, lets, target, "cuda", types[let.name]) for form in forms)
        return let.name not in totals and all(step.kernel == TRITON and step.chunks is None for step in steps)

    return take_in(found, wanted, takes)


def _contracted(found: Recognized, dtypes: Mapping[str, Dtype]) -> tuple[Recognized, dict[str, list[Refusal]]]:
    """Attentions whose scores at distances are products of matrices. In 16 bits that would round them once more."""
    return (found, {}) if SHORT & set(dtypes.values()) else contract(found)


def _reals(program: ir.Program, dtypes: Mapping[str, Dtype]) -> set[Dtype | None]:
    """The dtypes of the real arrays that a program is given."""
    return {dtypes.get(tensor.name) for tensor in program.inputs if tensor.kind == "real" and tensor.axes}


def _derived(
    program: ir.Program,
    wanted: tuple[str, ...],
    target: Target,
    describing: Callable[[ir.Program], Describer],
    recompute: bool,
    contents: Contents,
) -> Derived:
    """Find the gradients of attentions: by a kernel that has a backward pass, where weights may be recomputed."""
    if not recompute:
        return replace(derive(program, wanted, None, contents), flowing=())
    return derive(program, wanted, describing if BACKWARD in target.kernels else None, contents)


class _Describer:
    """The attentions of a program that have gradients in it, each with its kernel, for reals of one dtype or None."""

    def __init__(
        self, program: ir.Program, contents: Contents, target: Target, device: str, dtype: Dtype | None
    ) -> None:
        self.recognizer = Recognizer(program, contents)
        self.add = self.recognizer.add
        self.target, self.device, self.dtype = target, device, dtype

    def describe(self, let: ir.Let, asked: tuple[ir.Expr, ...]) -> tuple[Step, ir.Let] | str:
        """The kernel of a further definition that is an attention, and the definition as the kernel sees it; or why
        none takes it. It counts where all that is `asked` holds."""
        found = self.recognizer.find(let)
        if isinstance(found, str):
            return found
        let, attention = found
        reason = _unfit(let, attention, self.recognizer.lets, self.target)
        attend = partial(_attend, let, lets=self.recognizer.lets, target=self.target, device=self.device)
        step = attend(attention, dtype=self.dtype)
        if asked and step.kernel == TRITON and step.attend is not None:
            own = frozenset((*step.attend.layout.batch, *step.attend.layout.rows))
            taken = [one for one in asked if is_of(one, own)]
            guard = (*attention.guard, *taken)
            step = attend(replace(attention, guard=guard), dtype=self.dtype, confined=len(taken) == len(asked))
            if step.kernel != TRITON:
                step = attend(attention, dtype=self.dtype, confined=False)
        if step.kernel == TRITON and not (step.attend is not None and compares_plainly(step.attend)):
            step = attend(attention)
        if step.kernel == STREAM:
            reason = reason or step.refusals[-1].reason
        return reason or (step, let)


def _cut(
    program: ir.Program,
    wanted: tuple[str, ...],
    starts: tuple[str | Gathering, ...],
    reading: Reading,
    refusals: dict[str, Refusal],
) -> tuple[ir.Program, list[Block]]:
    """The program, and what of it is computed for some rows after the other."""
    read = {name: set(tensors) for name, tensors in reading.items()}
    blocks: list[Block] = []
    for start in starts:
        name = start.definition if isinstance(start, Gathering) else start
        needed = needed_by(program, wanted, reading)
        taken = {member for block in blocks for member in (*dict(block.inner), *block.totals)}
        if name not in needed - taken or (isinstance(start, Gathering) and name in reading):
            continue
        found = cut(program, start, wanted, needed, read)
        if isinstance(found, str) and isinstance(start, Gathering):
            continue
        if isinstance(found, str):
            refusals.pop(name, None)
            refusals |= {name: Refusal(name, "blocks of rows", found)} if found else {}
        elif taken & {*dict(found[1].inner), *found[1].totals}:
            refusals[name] = Refusal(name, "blocks of rows", "what it is needed for is computed in blocks already")
        else:
            program = found[0]
            blocks.append(found[1])
            for inner in (name, *dict(found[1].inner)) if isinstance(start, Gathering) else ():
                refusals.pop(inner, None)
    return program, blocks


def _together(
    program: ir.Program,
    gradients: tuple[Gradient, ...],
    blocks: list[Block],
    needed: set[str],
    refusals: Mapping[str, Refusal],
) -> list[Step]:
    """The steps of definitions that are computed at once, in the place of the first of them."""
    order = [item.name for item in program.order if isinstance(item, ir.Once)]
    place = {name: number for number, name in enumerate(order)}
    lets = program.definitions
    steps = []
    for gradient in gradients:
        own = {name for name in gradient.definitions if name in place and name in needed}
        names = sorted(own, key=place.__getitem__)
        if names:
            covers = covered(tuple(names), lets, needed)
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


def _with_totals(
    found: Recognized, wanted: tuple[str, ...], derived: Derived, contents: Contents
) -> tuple[Recognized, Totals]:
    """The attentions and the logarithms of totals, and those that an attention computes beside its result."""

    def needed(program: ir.Program, attentions: Mapping[str, Attention]) -> set[str]:
        return needed_by(program, wanted, read_by_kernels(attentions, derived, {}))

    found = find_totals(found, wanted, derived.left, needed, contents)
    return beside_attentions(found, needed(found.program, found.attentions), contents)


def _taken_back(found: Recognized, name: str, original: ir.Program) -> Recognized:
    """A definition as it was written, where it is not computed by a kernel after all."""
    written = original.definitions
    lets = tuple(written.get(let.name, let) if let.name == name else let for let in found.program.lets)
    return replace(found, program=replace(found.program, lets=lets))


def _unfit(let: ir.Let, attention: Attention, lets: Mapping[str, ir.Let], target: Target) -> str | None:
    """Why no kernel computes an attention; None where one does."""
    if STREAM not in target.kernels:
        step = _attend(let, attention, lets, target, "cpu")
        if step.kernel not in target.kernels:
            return step.refusals[0].reason
    if attention.empty == "nan":
        attend = _attend(let, attention, lets, target, "cpu").attend
        if attend is None or not all(one.is_interval for one in attend.keys):
            return "a row that hears nobody would be 0 and not NaN; which those are is known only of intervals"
    layout = lay_out(attention, tuple(axis.coordinate for axis in let.axes))
    dot = None if layout.rows else take_apart(attention, layout).dot
    if dot is not None:
        asks = [c for c in layout.batch if c in dot.query.type.coordinates - dot.key.type.coordinates]
        if asks:
            return f"the values vary with `{asks[-1].name}`, which asks: each query would have keys of its own"
    return None


def _attend(
    let: ir.Let,
    attention: Attention,
    lets: Mapping[str, ir.Let],
    target: Target,
    device: str,
    dtype: Dtype | None = None,
    totals: Sequence[Beside] = (),
    confined: bool = True,
    products: Callable[[Attend], Set[Dtype | None]] | None = None,
) -> Step:
    """The step that computes an attention, by the best kernel of the target, with the refusals of better ones. What is
    not finite is `confined` to those who hear it where a kernel sees to that, unless queries count for nothing. The
    library's kernel has one dtype for all: it is not taken where it would widen `products`, which have the dtype of the
    result unless theirs are given."""
    ranges = {range.coordinate: range for range in let.clauses[0].ranges}
    axes = tuple(axis.coordinate for axis in let.axes)
    layout = lay_out(attention, axes)
    scores = take_apart(attention, layout)
    key = attention.key
    domain = Domain.of((*ranges.values(), key), attention.guard, lets)
    keys = domain.bounds(key.coordinate, layout.rows) or (Slice((key.upper,), (key.lower,)),)
    guarded = [c for c in layout.rows if any(c in guard.type.coordinates for guard in attention.guard)]
    shape = _shape(domain, keys, key, guarded)
    beside = tuple(name for name, _ in totals)
    if attention.total:
        totals = ((let.name, axes),)
    way, refusals = _way(let, attention, layout, scores, keys, shape, target, bool(totals))
    attend = Attend(attention, layout, scores, domain, keys, shape, totals=tuple(totals))
    taken_in = {dtype} if products is None else products(attend)
    if isinstance(attention.normaliser, Free) and CHUNKS in target.kernels:
        chunks = chunks_of(attention)
        if not isinstance(chunks, str):
            if TRITON in target.kernels and device == "cuda" and dtype is not None:
                return _by_length(let, attend, by_chunk_kernels(chunks, target, device, taken_in), dtype)
            return Step(let.name, CHUNKS, chunk_words(chunks), (), attend, chunks=chunks)
        refusals = (*refusals, Refusal(let.name, CHUNKS, chunks))
    if way in (INTERVALS, TILES, STREAM) and INTERVALS in target.kernels:
        attend = replace(attend, few=few_pairs(attend, device, way))
    by_library = way == FUSED and not _widens(dtype, taken_in)
    if TRITON in target.kernels and device == "cuda" and dtype is not None and not by_library:
        reason = refusal(attend, {let.name: dtype})
        if reason is None:
            attend = replace(attend, otherwise=way)
            words = (*words_of(attend, True, False, False, confined), *limits(attend, way))
            return Step(let.name, TRITON, words, refusals[:1], attend, beside=beside)
        refusals = (*refusals, Refusal(let.name, TRITON, reason))
    words = words_of(attend, way == FUSED, way == STREAM, target.builds_scores)
    return Step(let.name, way, words, refusals, attend, beside=beside)


def _widens(result: Dtype | None, products: Set[Dtype | None]) -> bool:
    """Whether a kernel with one dtype for all would widen products of 16 bits."""
    return result not in SHORT and products <= SHORT


def _by_length(let: ir.Let, attend: Attend, chunks: Chunks, dtype: Dtype) -> Step:
    """A causal product of two sides on a GPU: all pairs by one kernel while rows are short, and by chunks above."""
    reason = refusal(attend, {let.name: dtype})
    if reason is not None:
        refusals = (Refusal(let.name, TRITON, reason),)
        return Step(let.name, CHUNKS, chunk_words(chunks), refusals, attend, chunks=chunks)
    attend = replace(attend, otherwise=CHUNKS)
    how = " in Triton kernels" if chunks.kernels else ""
    longer = f"above {SHORT_ROWS[chunks.kernels]} positions of `{chunks.row.name}`: by {CHUNKS}{how}"
    words = (*words_of(attend, True, False, False), longer, *limits(attend, CHUNKS))
    return Step(let.name, TRITON, words, (), attend, chunks=chunks)


def by_chunk_kernels(chunks: Chunks, target: Target, device: str, products: Set[Dtype | None]) -> Chunks:
    """The chunks, by kernels where these take them: in the range of numbers that states have, which f16 has not."""
    fits = TRITON in target.kernels and device == "cuda" and products == {"bf16"}
    return replace(chunks, kernels=fits and chunks.asks is None and not chunks.fades_by_feature)


def _decoding(step: Step, dtypes: Mapping[str, Dtype], weak: frozenset[str]) -> Step:
    """The step, with a kernel for few queries where one takes them: for one alone the library's own is as fast, unless
    it widens products."""
    attend = step.attend
    if attend is None:
        return step
    result = dtypes[step.definition]
    by_library = step.kernel == FUSED and not _widens(result, products_in(attend, dtypes, weak, result))
    if by_library and (attend.shape != "full" or attend.row is None):
        return step
    if decode_refusal(attend, {step.definition: result}) is not None:
        return step
    least = 2 if by_library else 1
    return replace(step, words=(*step.words, DECODE), attend=replace(attend, decodes=least))


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
    attention: Attention,
    layout: Layout,
    scores: Scores,
    keys: tuple[Slice, ...],
    shape: str | None,
    target: Target,
    totals: bool,
) -> tuple[str, tuple[Refusal, ...]]:
    """The first kernel that takes it, and why the others before it do not."""
    refusals: list[Refusal] = []
    if not isinstance(attention.normaliser, Softmax):
        return STREAM, (Refusal(let.name, FUSED, "its weights are no exponentials over their sum"),)
    if FUSED not in target.kernels:
        return STREAM, ()
    if scores.dot is None:
        refusals.append(Refusal(let.name, FUSED, scores.reason))
        return STREAM, tuple(refusals)
    if scores.bias is None and shape is not None:
        if totals:
            return INTERVALS, (Refusal(let.name, FUSED, "it does not hand out what its weights are divided by"),)
        if attention.sink is None:
            return FUSED, ()
        return INTERVALS, (Refusal(let.name, FUSED, "it adds nothing to what its weights are divided by"),)
    if scores.bias is not None:
        refusals.append(
            Refusal(let.name, FUSED, "what is added to the scores would be built whole, and lose its gradient")
        )
        return _tiled(let, layout, refusals)
    query = layout.rows[-1].name if layout.rows else "i"
    refusals.append(Refusal(let.name, FUSED, f"it knows no guard but `{attention.coordinate.name} <= {query}`"))
    if any(one.rest for one in keys) or (len(keys) > 1 and any(one.labels for one in keys)):
        return _tiled(let, layout, refusals)
    return INTERVALS, tuple(refusals)


def _tiled(let: ir.Let, layout: Layout, refusals: list[Refusal]) -> tuple[str, tuple[Refusal, ...]]:
    """Choose tiles for at most two batch axes; more are streamed."""
    apart = len(let.axes) - len(layout.carry) - min(1, len(layout.rows))
    if apart <= 2:
        return TILES, tuple(refusals)
    return STREAM, (*refusals, Refusal(let.name, TILES, f"{apart} coordinates keep apart, and it takes two"))
