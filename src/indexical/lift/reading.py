"""`ix.read`: a PyTorch callable as a program."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..api import Program, compile_source
from ..diagnostics import CallError, CompileError, Diagnostic, Error, Label, Sink
from ..run.tensors import load_torch
from ..source import Source, Span
from ..syntax.format import format_source
from ..syntax.parse import parse
from ..syntax.tokens import KEYWORDS, tokenize
from ..syntax.vocabulary import RESERVED
from .constants import constant
from .naming import Names, name_definitions, order_axes
from .printing import Printer
from .recording import Call, Recording, Ref, Site, Unrunnable, record
from .rules import RULES, Asked, Unfit, Unreadable
from .sizes import LEVELS, Fit, Group, find_groups
from .values import Kind, Leaf, Node, Shape, sources_of
from .views import Bound, with_views
from .writing import Definition, Writer


class Reading(Program):
    """A program that was read from a callable. Parameters and constants that the callable holds are bound: a call
    gives the callable's own arrays. `sites` says which stretch of the text comes from which place."""

    def __init__(self, program: Program, bound: Sequence[Bound], sites: Sequence[tuple[int, int, Site]]) -> None:
        super().__init__(program.ir.source, program.ir, program.diagnostics)
        self._bound = tuple(bound)
        self.sites = tuple(sites)

    def _held(self) -> dict[str, Any]:
        return {bound.name: bound.value() for bound in self._bound}

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        if len(arrays) == len(self.inputs) - len(self._bound):
            arrays = (*arrays, *(bound.value() for bound in self._bound))
        else:
            named = {**self._held(), **named}
        return super().__call__(*arrays, **named)

    def arguments(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        held = {name: value for name, value in self._held().items() if name not in named}
        return super().arguments(arrays, {**held, **named} if len(arrays) < len(self.inputs) else named)

    def place_of(self, span: Span) -> Site | None:
        """The place in the caller's file that a stretch of the text was read from."""
        around = [(end - start, site) for start, end, site in self.sites if start <= span.start and span.end <= end]
        if around:
            return min(around, key=lambda pair: pair[0])[1]
        inside = [site for start, end, site in self.sites if span.start <= start < span.end]
        return inside[0] if inside else None


def read(function: Callable[..., Any], /, *arrays: Any, **named: Any) -> Reading:
    """The relation that a PyTorch function or module computes, as a program.

    The callable is run on the arrays and on others of their kinds; arguments that are no arrays stay as they are. What
    cannot be read is refused with its place; what was read is compared with the callable on fresh arrays first.
    """
    return reader(function, arrays, named).program()


def reader(
    function: Callable[..., Any],
    arrays: tuple[Any, ...],
    named: Mapping[str, Any],
    axes: Mapping[str, str] | None = None,
) -> _Reader:
    """A reader of a callable. `axes` are letters for the axes of arguments, as in `"b h i d"`."""
    return _Reader(function, arrays, named, axes or {})


def refusal(code: str, message: str, site: Site | None = None, help: str | None = None) -> CallError:
    span = None if site is None else site.span
    labels = () if span is None else (Label(span),)
    where = f" ({site})" if site is not None and span is None else ""
    return CallError([Diagnostic(code, message + where, labels, help=help)])


class _Reader:
    def __init__(
        self, function: Callable[..., Any], arrays: tuple[Any, ...], named: Mapping[str, Any], axes: Mapping[str, str]
    ) -> None:
        self.torch = load_torch()
        if not callable(function):
            raise refusal("IX601", f"{function!r:.60} cannot be called", help="pass a function or a module")
        self.function = function
        self.axes = axes
        self.arguments = [_tensor(value) for value in arrays]
        self.keywords = {name: _tensor(value) for name, value in named.items()}
        self.names = _argument_names(function, self.arguments, self.keywords)
        if not self.names:
            raise refusal(
                "IX601", "no array is given", help="pass arrays that the callable takes: their sizes may differ later"
            )

    # ------------------------------------------------------------------------------- runs

    def tensors(self) -> list[Any]:
        return [v for v in (*self.arguments, *self.keywords.values()) if isinstance(v, self.torch.Tensor)]

    def run(self, tensors: Sequence[Any]) -> Recording:
        rest = iter(tensors)
        arguments = [next(rest) if isinstance(v, self.torch.Tensor) else v for v in self.arguments]
        keywords = {n: next(rest) if isinstance(v, self.torch.Tensor) else v for n, v in self.keywords.items()}
        return record(self.function, arguments, keywords)

    def fresh(self, shapes: Sequence[tuple[int, ...]], seed: int) -> list[Any]:
        """Arrays like those of the example, of these shapes."""
        generator = self.torch.Generator().manual_seed(seed)
        return [_resized(self.torch, t, shape, generator) for t, shape in zip(self.tensors(), shapes, strict=True)]

    # ------------------------------------------------------------------------------- the program

    def program(self) -> Reading:
        example = self.tensors()
        try:
            base = self.run([tensor.clone() for tensor in example])
        except Unrunnable as problem:
            raise refusal("IX601", f"the callable raised on the example: {problem}") from None
        given: dict[int, list[Any]] = {}

        def run(shapes: list[tuple[int, ...]], number_of_run: int) -> Recording:
            drawn = self.fresh(shapes, number_of_run)
            found = self.run(drawn)
            given[id(found)] = drawn
            return found

        shapes = [tuple(tensor.shape) for tensor in example]
        for level in LEVELS:
            groups, recordings = find_groups(shapes, base, run, level)
            if not groups:
                recordings = [run(shapes, seed) for seed in range(2)]
            try:
                graph = Graph(self, groups, recordings, [given[id(found)] for found in recordings])
            except Unfit as problem:
                unfit = problem
                continue
            reading = self.written(graph, graph.results())
            self.check(reading, groups, shapes)
            return reading
        raise refusal("IX602", str(unfit), unfit.site, _HELP)

    def written(self, graph: Graph, results: list[Node]) -> Reading:
        writer = Writer(results)
        try:
            for node in results:
                writer.result(node)
        except Unreadable as problem:
            raise refusal("IX602", f"this cannot be read: {problem}", results[0].site) from None
        definitions, bound = with_views(writer.definitions)
        leaves = _leaves(graph, definitions, bound)
        names = Names(definitions, leaves, self.axes)
        letters = {*names.letters.values(), *(c for home in names.homes.values() for c in home if c)}
        name_definitions(definitions, leaves, letters)
        order_axes(definitions, names.letters)
        for view in bound:
            view.rename(definitions, {leaf.name for leaf in leaves})
        printer = Printer(names, graph.fit.derived)
        printer.inputs(leaves)
        for definition in definitions:
            printer.definition(definition)
        shown = [definition.name for definition in definitions if definition.result]
        read = {part for d in definitions for part in _read_names(d)}
        if any(name in read for name in shown) or len(shown) > 1:
            printer.put(f"\noutput {', '.join(shown)};\n")
        held = [Bound(leaf) for leaf in leaves if not leaf.given]
        return _compiled(printer, held, self.title)

    @property
    def title(self) -> str:
        target = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        return f"{getattr(target, '__qualname__', 'callable')} as read"

    # ------------------------------------------------------------------------------- checking

    def check(self, reading: Reading, groups: list[Group], shapes: list[tuple[int, ...]]) -> None:
        """Compare the program with the callable, on the example, on fresh arrays of its sizes and of others."""
        sizes = [list(shapes)]
        for run in range(2):
            if groups:
                moved = [list(shape) for shape in shapes]
                for group in groups:
                    for (argument, axis), times in group.times.items():
                        moved[argument][axis] = times * group.extent.sizes[run]
                sizes.append([tuple(shape) for shape in moved])
        cases = [[tensor.clone() for tensor in self.tensors()]]
        cases += [self.fresh(chosen, 100 + seed) for seed, chosen in enumerate(sizes)]
        for tensors in cases:
            expected = self.expected(tensors)
            if expected is None:
                continue
            try:
                found = reading(*tensors)
            except Error as problem:
                raise refusal("IX603", f"what was read does not run: {problem.diagnostics[0].message}") from None
            found = (found,) if isinstance(found, self.torch.Tensor) else tuple(found)
            for name, one, two in zip(reading.outputs, expected, found, strict=True):
                if one.shape != two.shape:
                    shown = f"{tuple(two.shape)}, and not {tuple(one.shape)}"
                    raise refusal(
                        "IX603", f"what was read is not what the callable computes: `{name}` is of shape {shown}"
                    )
                if not _agree(self.torch, one, two):
                    worst = _worst(self.torch, one, two)
                    raise refusal(
                        "IX603", f"what was read is not what the callable computes: `{name}` differs by {worst:.3g}"
                    )

    def expected(self, tensors: list[Any]) -> tuple[Any, ...] | None:
        rest = iter([tensor.clone() for tensor in tensors])
        arguments = [next(rest) if isinstance(v, self.torch.Tensor) else v for v in self.arguments]
        keywords = {n: next(rest) if isinstance(v, self.torch.Tensor) else v for n, v in self.keywords.items()}
        with self.torch.no_grad():
            result = self.function(*arguments, **keywords)
        return tuple(v for v in _flat(result) if isinstance(v, self.torch.Tensor))


class Graph:
    """The tensors of several runs at once: what differs between them is a size."""

    def __init__(
        self, reader: _Reader, groups: list[Group], recordings: list[Recording], given: list[list[Any]]
    ) -> None:
        self.reader = reader
        self.groups = groups
        self.recordings = recordings
        self.fit = Fit(tuple(group.extent for group in groups))
        self.nodes: dict[int, Node] = {}
        self.leaves: list[Leaf] = []
        self.given = given
        self._named = _held_names(reader.function)
        self._name_inputs()
        for call_number in range(len(recordings[0].calls)):
            self._step([recording.calls[call_number] for recording in recordings])

    # ------------------------------------------------------------------------------- leaves

    def _name_inputs(self) -> None:
        for place, name in enumerate(self.reader.names):
            tensors = [drawn[place] for drawn in self.given]
            leaf = Leaf(self._shape_of(tensors, None), _kind(tensors[0]), name, tensors[0], True)
            self.leaves.append(leaf)
            for recording, tensor in zip(self.recordings, tensors, strict=True):
                number_of = recording.numbers.get(id(tensor))
                if number_of is not None:
                    self.nodes[number_of] = leaf

    def _leaf(self, number_of: int, site: Site | None) -> Node:
        """A tensor that the callable holds: a parameter, a constant, or a pattern that has a relation."""
        tensors = [recording.tensors[number_of] for recording in self.recordings]
        name = self._named.get(id(tensors[0]))
        shape = self._shape_of(tensors, site)
        learned = isinstance(tensors[0], self.reader.torch.nn.Parameter)
        found = None if learned else constant(tensors, shape, _kind(tensors[0]), site)
        if found is not None:
            return found
        if any(tensor is not tensors[0] for tensor in tensors):
            first = tensors[0]
            if any(t.shape != first.shape or not bool((t == first).all()) for t in tensors):
                raise refusal(
                    "IX602",
                    "a tensor that is made outside of PyTorch's operations differs from run to run",
                    site,
                    "make it of PyTorch's operations, or pass it as an argument",
                )
        taken = {leaf.name for leaf in self.leaves}
        chosen = _free_name(_identifier(name or "constant"), taken)
        leaf = Leaf(shape, _kind(tensors[0]), chosen, tensors[0], False)
        self.leaves.append(leaf)
        return leaf

    def _node(self, number_of: int, site: Site | None) -> Node:
        if number_of not in self.nodes:
            self.nodes[number_of] = self._leaf(number_of, site)
        return self.nodes[number_of]

    def _shape_of(self, tensors: Sequence[Any], site: Site | None) -> Shape:
        extents = []
        for sizes in zip(*(tuple(tensor.shape) for tensor in tensors), strict=True):
            extent = self.fit.extent(sizes)
            if extent is None:
                shown = ", ".join(map(str, sizes))
                raise Unfit(f"an axis of sizes {shown} is no simple function of the sizes of the arguments")
            extents.append(extent)
        return tuple(extents)

    # ------------------------------------------------------------------------------- operations

    def _step(self, calls: list[Call]) -> None:
        call = calls[0]
        name = call.name.removeprefix("aten.").split(".")[0]
        written = name.endswith("_") and not name.endswith("__")
        rule = RULES.get(name.removesuffix("_") if written else name)
        if name in _IGNORED:
            return
        if name == "_local_scalar_dense":
            self._check_constant(call)
            return
        if rule is None:
            raise refusal("IX602", f"`{name}` cannot be read" + _because(name), call.site, _HELP)
        try:
            arguments = self._merged([c.arguments for c in calls], call.site)
            keywords = {key: self._merged([c.keywords[key] for c in calls], call.site) for key in call.keywords}
            refs = [ref for ref in _flat(call.result) if isinstance(ref, Ref)]
            shapes = [self._shape_of([r.tensors[ref.number] for r in self.recordings], call.site) for ref in refs]
            kinds = [_kind(self.recordings[0].tensors[ref.number]) for ref in refs]
            made = rule(
                Asked(shapes, kinds, call.site), *arguments, **{k: v for k, v in keywords.items() if k not in _PLACING}
            )
        except Unfit as problem:
            problem.site = call.site
            raise
        except Unreadable as problem:
            raise refusal("IX602", f"`{name}` cannot be read: {problem}", call.site, _HELP) from None
        for ref, node in zip(refs, made if isinstance(made, tuple) else (made,), strict=False):
            if node.shape != shapes[refs.index(ref)]:
                raise refusal("IX602", f"the shape of `{name}` cannot be followed", call.site, _HELP)
            self.nodes[ref.number] = node
        if written:
            self._check_alone(call)

    def _merged(self, values: list[Any], site: Site | None) -> Any:
        """An argument of several runs as one: tensors as nodes, numbers as sizes."""
        first = values[0]
        match first:
            case Ref(number=number_of):
                return self._node(number_of, site)
            case bool() | str() | None:
                return first
            case int():
                found = self.fit.whole(tuple(values))
                if found is None:
                    raise Unfit(f"the numbers {', '.join(map(str, values))} are no simple function of the sizes")
                return found
            case float():
                scale = self.fit.real(tuple(values))
                if scale is None:
                    raise Unfit(f"the numbers {', '.join(map(str, values))} are no simple function of the sizes")
                return scale
            case tuple():
                if len({len(value) for value in values}) > 1:
                    raise Unreadable("it takes more or fewer arguments on other sizes")
                return tuple(self._merged(list(parts), site) for parts in zip(*values, strict=True))
        return first

    def _check_alone(self, call: Call) -> None:
        """What is written in place must be seen by nobody else: no view of it, and it is no view."""
        target = call.arguments[0]
        tensors = self.recordings[0].tensors
        if not isinstance(target, Ref):
            return
        mine = tensors[target.number]
        for number_of, node in self.nodes.items():
            other = tensors[number_of] if number_of < len(tensors) else None
            if other is None or number_of == target.number or other is mine:
                continue
            if other.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr() and node is not None:
                raise refusal(
                    "IX602",
                    "a tensor is changed in place while another one looks at it",
                    call.site,
                    "make a new tensor instead: `torch.where`, `torch.cat`",
                )

    def _check_constant(self, call: Call) -> None:
        for ref in _flat(call.arguments):
            if isinstance(ref, Ref) and self._depends(self._node(ref.number, call.site)):
                raise refusal(
                    "IX602",
                    "what is done next depends on a value of the arrays",
                    call.site,
                    "a relation is the same for all values: keep the number as a tensor",
                )

    def _depends(self, node: Node) -> bool:
        if isinstance(node, Leaf):
            return node.given
        return any(self._depends(source) for source in sources_of(node))

    def results(self) -> list[Node]:
        refs = [ref for ref in _flat(self.recordings[0].result) if isinstance(ref, Ref)]
        if not refs:
            raise refusal("IX601", "the callable returns no tensor")
        return [self._node(ref.number, None) for ref in refs]


# What only places a tensor, or says nothing about its value.
_PLACING = frozenset(("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "generator", "copy"))
_IGNORED = frozenset(
    ("_assert_async", "_assert_tensor_metadata", "record_stream", "is_same_size", "sym_size", "_has_same_storage_numel")
)
_HELP = "`ix.audit` can still probe the callable from outside"
_RANDOM = ("dropout", "bernoulli", "rand", "normal", "multinomial", "uniform", "exponential")


def _because(name: str) -> str:
    if any(word in name for word in _RANDOM):
        return ": its result is random; a module is read after `.eval()`"
    return ": there is no rule for it"


def _read_names(definition: Definition) -> set[str]:
    from .expressions import Read, parts

    return {part.tensor.name for part in parts(definition.body) if isinstance(part, Read)}


def _leaves(graph: Graph, definitions: list[Definition], bound: Iterable[Any]) -> list[Leaf]:
    """The inputs: all arrays that are given, then of what is held what is read."""
    from .expressions import Read, parts

    read: dict[Leaf, None] = {}
    for definition in definitions:
        for part in parts(definition.body):
            if isinstance(part, Read) and isinstance(part.tensor, Leaf):
                read[part.tensor] = None
    given = [leaf for leaf in graph.leaves if leaf.given]
    return [*given, *(leaf for leaf in read if not leaf.given)]


def _compiled(printer: Printer, held: list[Bound], title: str) -> Reading:
    """The text in its canonical layout, compiled; places go along with the words."""
    raw = Source(title, printer.text)
    sink = Sink()
    file = parse(raw, sink)
    if sink.failed:
        raise refusal("IX603", f"what was read is no program: {next(iter(sink)).message}")
    laid = Source(title, format_source(file))
    before, _ = tokenize(raw, sink)
    after, _ = tokenize(laid, sink)
    sites = printer.sites
    if [token.text for token in before] == [token.text for token in after]:
        starts = {old.start: new.start for old, new in zip(before, after, strict=True)}
        ends = {old.end: new.end for old, new in zip(before, after, strict=True)}
        sites = []
        for start, end, site in printer.sites:
            first = next((t.start for t in before if t.start >= start), None)
            last = next((t.end for t in reversed(before) if t.end <= end), None)
            if first is not None and last is not None and first < last:
                sites.append((starts[first], ends[last], site))
    else:
        laid = raw
    try:
        program = compile_source(laid)
    except CompileError as problem:
        raise refusal("IX603", f"what was read is no program: {problem.diagnostics[0].message}") from None
    return Reading(program, held, sites)


# ------------------------------------------------------------------------------------- arguments


def _tensor(value: Any) -> Any:
    """An array as a tensor; anything else as it is."""
    import numpy as np
    import torch

    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _argument_names(function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[str]:
    """A name for every tensor, as the callable calls it."""
    import torch

    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        known = [
            p.name
            for p in inspect.signature(target).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        known = []
    found: list[str] = []
    for place, value in enumerate(arguments):
        if isinstance(value, torch.Tensor):
            found.append(_free_name(_identifier(known[place] if place < len(known) else f"x{place}"), set(found)))
    for name, value in keywords.items():
        if isinstance(value, torch.Tensor):
            found.append(_free_name(_identifier(name), set(found)))
    return found


def _identifier(name: str) -> str:
    plain = re.sub(r"\W+", "_", name).strip("_") or "x"
    plain = plain if not plain[0].isdigit() else f"x{plain}"
    return f"{plain}_" if plain in KEYWORDS or plain in RESERVED else plain


def _free_name(name: str, taken: set[str]) -> str:
    chosen, count = name, 2
    while chosen in taken:
        chosen, count = f"{name}_{count}", count + 1
    return chosen


def _held_names(function: Callable[..., Any]) -> dict[int, str]:
    """The names of the parameters and buffers that a callable can reach, by identity."""
    import torch

    modules: list[tuple[str, Any]] = []
    owner = getattr(function, "__self__", None)
    for found in (function, owner):
        if isinstance(found, torch.nn.Module):
            modules.append(("", found))
    named: dict[int, str] = {}
    target = inspect.unwrap(function) if inspect.isfunction(function) else None
    if target is not None:
        reached = inspect.getclosurevars(target)
        defaults = {p.name: p.default for p in inspect.signature(target).parameters.values()}
        for name, value in {**reached.globals, **reached.nonlocals, **defaults}.items():
            if isinstance(value, torch.nn.Module):
                modules.append((f"{name}.", value))
            elif isinstance(value, torch.Tensor):
                named[id(value)] = name
    if owner is not None and not isinstance(owner, torch.nn.Module):
        for name, value in vars(owner).items() if hasattr(owner, "__dict__") else ():
            if isinstance(value, torch.Tensor):
                named[id(value)] = name
    for prefix, module in modules:
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            named.setdefault(id(tensor), f"{prefix}{name}")
    return named


def _kind(tensor: Any) -> Kind:
    return "bool" if str(tensor.dtype) == "torch.bool" else "real" if tensor.is_floating_point() else "whole"


def _resized(torch: Any, tensor: Any, shape: tuple[int, ...], generator: Any) -> Any:
    """A fresh array like a tensor: random numbers for real ones, else its own values at the nearest places."""
    if (
        tensor.is_floating_point()
        and bool(torch.isfinite(tensor).all())
        and tensor.numel()
        and len(tensor.unique()) > 2
    ):
        spread = float(tensor.double().std()) if tensor.numel() > 1 else 1.0
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (drawn * (spread or 1.0)).to(tensor.dtype).to(tensor.device)
    found = tensor
    for axis, (old, new) in enumerate(zip(tensor.shape, shape, strict=True)):
        if old != new:
            places = torch.arange(new) * old // max(new, 1)
            found = found.index_select(axis, places.to(tensor.device))
    return found.clone()


def _flat(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [part for inner in value.values() for part in _flat(inner)]
    if isinstance(value, tuple | list):
        return [part for inner in value for part in _flat(inner)]
    return [value]


def _agree(torch: Any, one: Any, two: Any) -> bool:
    if not one.is_floating_point():
        return bool((one == two).all())
    return _worst(torch, one, two) <= _TOLERANCE.get(str(one.dtype), 1e-4)


_TOLERANCE = {"torch.float64": 1e-8, "torch.float32": 1e-4, "torch.bfloat16": 5e-2, "torch.float16": 1e-2}


def _worst(torch: Any, one: Any, two: Any) -> float:
    """The largest difference, against the size of what is compared; a NaN of the callable is not compared."""
    left, right = one.double(), two.double()
    known = torch.isfinite(left)
    if not bool(known.any()):
        return 0.0
    gap = (left - right)[known].abs().max()
    size = left[known].abs().max()
    return float(gap / max(float(size), 1.0)) if math.isfinite(float(gap)) else math.inf
