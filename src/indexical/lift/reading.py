"""`ix.read`: a callable of PyTorch or JAX as a program."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..api import Program, compile_source
from ..diagnostics import CallError, CompileError, Error, Sink, SlowPath
from ..run.tensors import load_torch
from ..source import Source, Span
from ..syntax.format import format_source
from ..syntax.parse import parse
from ..syntax.tokens import tokenize
from . import jaxprs, recording
from .arguments import argument_names, free_name, identifier, is_of_jax, parameters_of, refusal, resized, tensor_of
from .definitions import Definition, drop_unused_axes, settle_scales
from .expressions import ABSENT, Read, parts
from .graph import HELP, Graph
from .indices import Axis, Quotient, Remainder, atoms_in
from .naming import Names, name_definitions, order_axes
from .printing import Printer
from .recording import Recording, Site, Unrunnable, flat
from .rules import Unfit, Unreadable
from .sizes import LEVELS, Group, find_groups
from .values import Leaf, Node
from .views import Bound, with_views
from .writing import Writer


class Reading(Program):
    """A program that was read from a callable. Parameters and constants that the callable holds are bound: a call
    gives the callable's own arrays. `sites` says which stretch of the text comes from which place."""

    def __init__(self, program: Program, bound: Sequence[Bound], sites: Sequence[tuple[int, int, Site]]) -> None:
        super().__init__(program.ir.source, program.ir, program._findings)
        self._bound = tuple(bound)
        self.sites = tuple(sites)
        # Where a view cuts across positions and heads.
        self.crossings: tuple[Site | None, ...] = ()

    def _held(self) -> dict[str, Any]:
        return {bound.name: bound.value() for bound in self._bound}

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        if len(arrays) == len(self.inputs) - len(self._bound):
            arrays = (*arrays, *(bound.value() for bound in self._bound))
        else:
            named = {**self._held(), **named}
        return super().__call__(*arrays, **named)

    def held_tensors(self) -> dict[str, Any]:
        """The tensors that the callable holds, by the names that the program has for them."""
        return {bound.name: bound.tensor() for bound in self._bound}

    def evaluated(self, tensors: Sequence[Any]) -> Any:
        """The results on tensors of PyTorch, whatever library the callable is written with."""
        return super().__call__(*tensors, *(bound.tensor() for bound in self._bound))

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
    """The relation that a function of PyTorch or JAX, or a module, computes, as a program.

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
    """A reader of a callable. `axes` are letters for the axes of arguments, as in `"b h i d"`. Arguments by names that
    the callable does not know are passed in their order."""
    known = parameters_of(function)
    if not arrays and known is not None and not set(named) <= set(known):
        found = _Reader(function, tuple(named.values()), {}, axes or {})
        shown = [name for name, value in named.items() if hasattr(value, "shape")]
        found.names = [free_name(identifier(name), set(shown[:place])) for place, name in enumerate(shown)]
        return found
    return _Reader(function, arrays, named, axes or {})


class _Reader:
    def __init__(
        self, function: Callable[..., Any], arrays: tuple[Any, ...], named: Mapping[str, Any], axes: Mapping[str, str]
    ) -> None:
        self.torch = load_torch()
        if not callable(function):
            raise refusal("IX601", f"{function!r:.60} cannot be called", help="pass a function or a module")
        self.function = function
        self.axes = axes
        # The library that the callable is written with: how it is run, and what its arrays are.
        self.library: Any = jaxprs if is_of_jax(function, (*arrays, *named.values())) else recording
        self.arguments = [tensor_of(jaxprs.tensor_of(value)) for value in arrays]
        self.keywords = {name: tensor_of(jaxprs.tensor_of(value)) for name, value in named.items()}
        self.names = argument_names(function, self.arguments, self.keywords)
        if not self.names:
            raise refusal(
                "IX601", "no array is given", help="pass arrays that the callable takes: their sizes may differ later"
            )

    # ------------------------------------------------------------------------------- runs

    def tensors(self) -> list[Any]:
        return [v for v in (*self.arguments, *self.keywords.values()) if isinstance(v, self.torch.Tensor)]

    def run(self, tensors: Sequence[Any], placed: bool = False) -> Recording:
        found: Recording = self.library.record(self.function, *self.called_with(tensors), placed)
        return found

    def called_with(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        rest = iter(tensors)
        arguments = [next(rest) if isinstance(v, self.torch.Tensor) else v for v in self.arguments]
        return arguments, {n: next(rest) if isinstance(v, self.torch.Tensor) else v for n, v in self.keywords.items()}

    def fresh(self, shapes: Sequence[tuple[int, ...]], seed: int) -> list[Any]:
        """Arrays like those of the example, of these shapes."""
        generator = self.torch.Generator().manual_seed(seed)
        return [resized(self.torch, t, shape, generator) for t, shape in zip(self.tensors(), shapes, strict=True)]

    # ------------------------------------------------------------------------------- the program

    def program(self) -> Reading:
        example = self.tensors()
        try:
            base = self.run([tensor.clone() for tensor in example])
        except Unrunnable as problem:
            raise refusal("IX601", f"the callable raised on the example: {problem}") from None
        if not base.tensors:
            raise refusal("IX601", "the callable returns no array", None, "return the output, or a tuple of outputs")
        returned = [value for value in flat(base.result) if isinstance(value, bool | int | float | complex | str)]
        self.numbers = [repr(value)[:40] for value in returned]
        self.tolerance = max(_TOLERANCE.get(str(tensor.dtype), 0.0) for tensor in base.tensors)
        given: dict[int, list[Any]] = {}

        def run(shapes: list[tuple[int, ...]], number_of_run: int) -> Recording:
            drawn = self.fresh(shapes, number_of_run)
            found = self.run(drawn, placed=number_of_run == 0)
            given[id(found)] = drawn
            return found

        shapes = [tuple(tensor.shape) for tensor in example]
        for level in LEVELS:
            groups, recordings = find_groups(shapes, base, run, level)
            if not groups:
                recordings = [run(shapes, seed) for seed in range(2)]
            try:
                drawn = [given[id(found)] for found in recordings]
                graph = Graph(self.function, self.names, groups, recordings, drawn)
                results = graph.results()
            except Unfit as problem:
                unfit = problem
                continue
            reading = self.written(graph, results, ABSENT)
            try:
                self.check(reading, groups, shapes)
            except CallError:
                # A large negative number is a mask, unless it fills a whole row: then it is a number.
                exact = self.written(graph, results, -math.inf)
                if str(exact) == str(reading):
                    raise
                self.check(exact, groups, shapes)
                return exact
            return reading
        raise refusal("IX602", str(unfit), unfit.site, HELP)

    def written(self, graph: Graph, results: list[Node], limit: float) -> Reading:
        writer = Writer(results, limit)
        try:
            returned = [writer.result(node) for node in results]
        except Unreadable as problem:
            raise refusal("IX602", f"this cannot be read: {problem}", results[0].site) from None
        settle_scales(writer.definitions)
        drop_unused_axes(writer.definitions)
        definitions, bound = with_views(_needed(writer.definitions))
        leaves = _leaves(graph, definitions)
        names = Names(definitions, leaves, self.axes)
        letters = {*names.letters.values(), *(c for home in names.homes.values() for c in home if c)}
        name_definitions(definitions, leaves, letters)
        order_axes(definitions, names.letters)
        for view in bound:
            view.rename(definitions, {leaf.name for leaf in leaves})
        printer = Printer(names, graph.fit.derived)
        if self.numbers:
            printer.put(f"// Also returned, and not read: {', '.join(self.numbers)}.\n")
        printer.inputs(leaves)
        for definition in definitions:
            printer.definition(definition)
        shown = [definition.name for definition in returned]
        read = {part for d in definitions for part in _read_names(d)}
        if any(name in read for name in shown) or len(shown) > 1:
            printer.put(f"\noutput {', '.join(shown)};\n")
        held = [Bound(leaf, self.library.array_of) for leaf in leaves if not leaf.given]
        reading = _compiled(printer, held, self.title)
        reading.crossings = tuple(_crossings(definitions, names))
        return reading

    @property
    def title(self) -> str:
        target = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        return f"{getattr(target, '__qualname__', 'callable')} as read"

    # ------------------------------------------------------------------------------- checking

    def check(self, reading: Reading, groups: list[Group], shapes: list[tuple[int, ...]]) -> None:
        """Compare the program with the callable: on the example, on fresh arrays of its sizes and of others, and on
        small ones that are all the same, which the callable need not take."""
        self.compare(reading, [tensor.clone() for tensor in self.tensors()], needed=True)
        self.compare(reading, self.fresh(shapes, 100), needed=True)
        for seed, size in enumerate((0, 1, None, None) if groups else ()):
            moved = [list(shape) for shape in shapes]
            for group in groups:
                for (argument, axis), times in group.times.items():
                    moved[argument][axis] = times * (seed - 1 if size is None else group.extent.sizes[size])
            self.compare(reading, self.fresh([tuple(shape) for shape in moved], 101 + seed), size is not None)

    def compare(self, reading: Reading, tensors: list[Any], needed: bool) -> None:
        expected = self.expected(tensors)
        if expected is None:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SlowPath)  # The call is ours, and for the value alone.
                found = reading.evaluated(tensors)
        except Error as problem:
            if not needed:
                return
            raise refusal("IX603", f"what was read does not run: {problem.diagnostics[0].message}") from None
        found = (found,) if isinstance(found, self.torch.Tensor) else tuple(found)
        differs = "what was read is not what the callable computes"
        for name, one, two in zip(reading.outputs, expected, found, strict=True):
            if one.shape != two.shape:
                shown = f"{tuple(two.shape)}, and not {tuple(one.shape)}"
                raise refusal("IX603", f"{differs}: `{name}` is of shape {shown}")
            if not _agree(self.torch, one, two, self.tolerance):
                worst = _worst(self.torch, one, two)
                sizes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
                raise refusal("IX603", f"{differs}: `{name}` differs by {worst:.3g} on arrays of {sizes}")

    def expected(self, tensors: list[Any]) -> tuple[Any, ...] | None:
        """The results of the callable; None where it raises."""
        try:
            given = self.called_with([tensor.clone() for tensor in tensors])
            found: tuple[Any, ...] = self.library.computed(self.function, *given)
        except Unrunnable:
            return None
        return found


def _needed(definitions: list[Definition]) -> list[Definition]:
    """The definitions that a result needs; others were written for what turned out to change nothing."""
    kept: set[Definition] = set()
    todo = [definition for definition in definitions if definition.result]
    while todo:
        definition = todo.pop()
        if definition not in kept:
            kept.add(definition)
            found = (part.tensor for part in parts(definition.body) if isinstance(part, Read))
            todo += (tensor for tensor in found if isinstance(tensor, Definition))
    return [definition for definition in definitions if definition in kept]


def _crossings(definitions: list[Definition], names: Names) -> dict[Site | None, None]:
    """The places of reads at a quotient of several coordinates, unless it goes from one key to another: `view` where
    `transpose` was meant."""
    found: dict[Site | None, None] = {}
    for definition in definitions:
        for part in parts(definition.body):
            for index in part.indices if isinstance(part, Read) else ():
                for whole in atoms_in(index):
                    if isinstance(whole, Quotient | Remainder):
                        letters = {names.letters[axis] for axis in atoms_in(whole.of) if isinstance(axis, Axis)}
                        if len(letters) > 1 and not {"i", "j"} <= letters:
                            found[part.site] = None
    return found


def _read_names(definition: Definition) -> set[str]:
    return {part.tensor.name for part in parts(definition.body) if isinstance(part, Read)}


def _leaves(graph: Graph, definitions: list[Definition]) -> list[Leaf]:
    """The inputs: all arrays that are given, then of what is held what is read."""
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


def _agree(torch: Any, one: Any, two: Any, tolerance: float) -> bool:
    if not one.is_floating_point():
        return bool((one == two).all())
    return _worst(torch, one, two) <= tolerance


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
