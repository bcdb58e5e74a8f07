"""Other readings of a program: its exact values, how each came about, a verdict on its figures, the error of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .api import Program, compile
from .checker.names import counted, suggest
from .diagnostics import CallError, Diagnostic
from .ir import nodes as ir
from .ir.types import DTYPES_BY_NAME
from .numbers.accuracy import Accuracy, measure
from .numbers.causes.cause import Cause
from .numbers.claims import Claim, check_claims, claimed_names
from .numbers.evaluate import Evaluated, Undecided, evaluate, explained
from .numbers.inputs import read_inputs
from .numbers.notation import write
from .numbers.results import Results, Tensor, Value
from .numbers.steps import Step, figures, steps
from .numbers.tower import Undecidable, Valueless
from .run.jax_arrays import is_jax
from .run.jax_arrays import to_numpy as array_of
from .run.tensors import dtype_of, is_tensor, to_numpy
from .run.trace import Element, Trace, Tracer
from .source import Span
from .views.accuracy import accuracy_json, show_accuracy
from .views.exact import results_json, show_results, show_tensor
from .views.fragment import Sheet
from .views.numbers import percent
from .views.static import results_html, tensor_html
from .views.trace import show_steps, show_trace, steps_json, trace_json
from .views.verdicts import claims_json, show_claims

__all__ = ["Undecided", "Value", "accuracy", "exact", "trace", "verify"]

Tell = Callable[[str], None]
# A text as HTML, under a page that opens at a point.
Framed = Callable[[str | None, str], str]


def _silent(name: str) -> None:
    """Report no progress."""


# ---------------------------------------------------------------------- exact


class ExactResults(Results):
    """The exact values of a program by definition, readable as they stand."""

    def __init__(self, evaluated: Evaluated, asked: bool = False) -> None:
        super().__init__(evaluated)
        self.asked = asked

    def __str__(self) -> str:
        return show_results(self, self.shown)

    def _repr_html_(self) -> str:
        return results_html(self, self.shown)

    def to_json(self, digits: int | None = None) -> dict[str, Any]:
        return results_json(self, self.shown, digits)

    @property
    def shown(self) -> list[str]:
        """The definitions that print: those that were asked for, or all that was computed and is not only given."""
        if self.asked:
            return list(self.evaluated.wanted)
        given = figures(self.evaluated.program)
        return [name for name in self if name not in given]

    def tensor(self, name: str) -> Tensor:
        return ExactTensor(self.evaluated, name)


class ExactTensor(Tensor):
    """The exact values of a definition, readable as they stand."""

    def __str__(self) -> str:
        return show_tensor(self)

    def _repr_html_(self) -> str:
        return tensor_html(self)

    __repr__ = __str__


def exact(
    program: Program | str | os.PathLike[str],
    /,
    *arrays: Any,
    sizes: Mapping[str, int] | None = None,
    outputs: str | Iterable[str] | None = None,
    **named: Any,
) -> ExactResults:
    """The values of a program as exact numbers.

    Inputs are whole numbers, fractions, decimals in quotes (`"0.1"` is one tenth) or arrays, taken bit for bit; one
    that is left out or None is a symbol. `sizes` gives symbols a size that nothing else gives them.
    """
    return ExactResults(_evaluated(_program(program), arrays, named, sizes, outputs), outputs is not None)


def evaluated_exactly(
    program: Program, tell: Tell, given: tuple[dict[str, Any], dict[str, int]], outputs: tuple[str, ...] | None
) -> ExactResults:
    """The same, with progress: `tell` is called with the name of what is computed next."""
    arrays, sizes = given
    return ExactResults(_evaluated(program, (), arrays, sizes, outputs, tell), outputs is not None)


def _program(program: Program | str | os.PathLike[str]) -> Program:
    return program if isinstance(program, Program) else compile(program)


def _evaluated(
    program: Program,
    arrays: tuple[Any, ...],
    named: Mapping[str, Any],
    sizes: Mapping[str, int] | None,
    outputs: str | Iterable[str] | None,
    tell: Tell = _silent,
) -> Evaluated:
    wanted = program.wanted(outputs)
    return evaluate(program.ir, arguments_of(program, arrays, named), sizes or {}, wanted, tell)


def arguments_of(program: Program, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by name; those that are left out have no value."""
    rest = {name: None for name in program.inputs[len(arrays) :] if name not in named}
    return program.arguments(arrays, {**named, **rest})


# ---------------------------------------------------------------------- trace


class ExactTracer(Tracer):
    """A tracer of exact numbers."""

    unknown = (Valueless, Undecidable)

    def __init__(self, evaluated: Evaluated) -> None:
        super().__init__(evaluated.program, evaluated.evaluation)
        self.evaluated = evaluated

    def form(self, element: Element) -> str:
        table = self.evaluated.table(element.tensor)
        return write(self.evaluated.form(element.tensor, table.offset(element.place)))

    def percent(self, weight: Any) -> str:
        return percent(weight)

    def approximate(self, weight: Any) -> float:
        return float(Value(weight))


class TraceSheet(Sheet):
    """The origin of one number, readable as it stands. `at` goes on to another element of the same evaluation."""

    # Puts the text under a page that opens at a point, where there is one.
    framed: Framed | None = None

    def __init__(self, evaluated: Evaluated, element: Element, depth: int) -> None:
        self._evaluated = evaluated
        self._tracer = ExactTracer(evaluated)
        self.depth = depth
        with explained():
            self.trace: Trace = self._tracer.at(element)

    @property
    def value(self) -> Value:
        """The number itself."""
        table = self._evaluated.table(self.trace.element.tensor)
        offset = table.offset(self.trace.element.place)
        return Value(table.cells[offset], self._evaluated, self.trace.element.tensor, offset)

    def at(self, point: str) -> TraceSheet:
        """The trace of another element, `weights[2, 0]`."""
        other = TraceSheet(self._evaluated, _element(self._evaluated.program, self._evaluated, point), self.depth)
        other.framed = self.framed
        return other

    def _repr_html_(self) -> str:
        text = super()._repr_html_()
        return text if self.framed is None else self.framed(str(self.trace.element), text)

    def __str__(self) -> str:
        with explained():
            return show_trace(self._tracer, self.trace, self.depth)

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        with explained():
            return trace_json(self._tracer, self.trace, self.depth)


class StepList(Sheet):
    """The whole program, in the order in which a person would compute it; readable as it stands."""

    framed: Framed | None = None

    def __init__(self, evaluated: Evaluated) -> None:
        self.results = ExactResults(evaluated)
        self.steps: list[Step] = steps(evaluated)

    def __len__(self) -> int:
        return len(self.steps)

    def _repr_html_(self) -> str:
        text = super()._repr_html_()
        return text if self.framed is None else self.framed(None, text)

    def __str__(self) -> str:
        return show_steps(self.results, self.steps)

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        return steps_json(self.results, self.steps)


def trace(
    program: Program | str | os.PathLike[str],
    /,
    *arrays: Any,
    at: str | None = None,
    depth: int = 8,
    sizes: Mapping[str, int] | None = None,
    **named: Any,
) -> TraceSheet | StepList:
    """The origin of the number `at` (`"out[2, 0]"`): what it scanned, term by term, and so on down, `depth` times.

    Without `at`: every definition in the order in which a person would compute them.
    """
    return traced(_program(program), _silent, arrays, at, depth, sizes, named)


def traced(
    program: Program,
    tell: Tell,
    arrays: tuple[Any, ...],
    at: str | None,
    depth: int,
    sizes: Mapping[str, int] | None,
    named: Mapping[str, Any],
) -> TraceSheet | StepList:
    if type(depth) is not int or depth < 0:
        raise _refusal(f"a trace goes down 0 or more times, and not {depth!r}", "pass `depth=2`")
    if at is None:
        return StepList(_evaluated(program, arrays, named, sizes, None, tell))
    name, place = _point(program.ir, at)
    arguments = arguments_of(program, arrays, named)
    chosen = {**_row_sizes(program.ir, arguments, sizes or {}, name, place), **(sizes or {})}
    wanted = (name,) if name in program.definitions else ()
    evaluated = evaluate(program.ir, arguments, chosen, wanted, tell)
    return TraceSheet(evaluated, _element(program.ir, evaluated, at), depth)


def _row_sizes(
    program: ir.Program, arguments: Mapping[str, Any], sizes: Mapping[str, int], name: str, place: tuple[int, ...]
) -> dict[str, int]:
    """The sizes of coordinates of unknown size: just large enough for the point that is traced."""
    rows = read_inputs(program, arguments, sizes).rows
    axes = program.tensors[name].axes
    return {
        axis.extent.coordinate.name: at + 1
        for axis, at in zip(axes, place, strict=False)
        if isinstance(axis.extent, ir.Size) and axis.extent.coordinate in rows
    }


def _point(program: ir.Program, text: str) -> tuple[str, tuple[int, ...]]:
    """`out[2, 0]` as a name and a place."""
    if not isinstance(text, str):
        raise _refusal(f"{text!r} is no point", "a point is a text like `out[2, 0]`")
    match = re.fullmatch(r"\s*(\w+)\s*(?:\[\s*([0-9,\s]*)\])?\s*", text)
    if match is None:
        raise _refusal(f"`{text[:60]}` is no point", "a point looks like `out[2, 0]`, a scalar like `total`")
    name = match[1]
    hidden = {let.name for let in program.lets if let.hidden}
    known = [tensor for tensor in program.tensors if tensor not in hidden]
    if name not in known:
        help, _ = suggest(name, known, Span(program.source, 0, 0))
        raise _refusal(f"nothing is called `{name}`", help or f"there are {', '.join(known)}")
    parts = [part.strip() for part in (match[2] or "").split(",")]
    if parts == [""]:
        parts = []
    if not all(part.isdigit() for part in parts):
        raise _refusal(f"`{text[:60]}` is no point", "a point looks like `out[2, 0]`")
    return name, tuple(int(part) for part in parts)


def _element(program: ir.Program, evaluated: Evaluated, text: str) -> Element:
    """A point that exists."""
    name, place = _point(program, text)
    if name not in evaluated.evaluation.tensors:
        raise _refusal(f"`{name}` was not computed here", "trace it by itself")
    axes, shape = program.tensors[name].axes, evaluated.table(name).shape
    home = ", ".join(str(axis.coordinate) for axis in axes)
    if len(place) != len(axes):
        message = f"`{name}` has {counted(len(axes), 'coordinate')}, and `{text.strip()}` gives {len(place)}"
        raise _refusal(message, f"its home is `{name}[{home}]`" if home else "it is a scalar: leave the bracket out")
    for axis, at, size in zip(axes, place, shape, strict=True):
        if at >= size:
            message = f"`{text.strip()}` does not exist: `{axis.coordinate} = {at}` is out of range"
            raise _refusal(message, f"`{axis.coordinate}` has {size} points, from 0 to {size - 1}")
    return Element(name, place)


def _refusal(message: str, help: str) -> CallError:
    return CallError([Diagnostic("IX515", message, help=help)])


# --------------------------------------------------------------------- verify


class Verification(Sheet):
    """The verdict on every published figure of a program, readable as it stands. It is true where none fails."""

    def __init__(self, claims: tuple[Claim, ...], strict: bool = False) -> None:
        self.claims = claims
        self.strict = strict

    @property
    def failing(self) -> tuple[Claim, ...]:
        """The claims of which some figure fails and rounding does not explain it, or of which that is not known. Where
        it is strict, also those that only rounding explains."""
        passing = ("holds",) if self.strict else ("holds", "rounding")
        return tuple(claim for claim in self.claims if claim.verdict not in passing)

    @property
    def cause(self) -> Cause | None:
        """The one cause of all figures that fail; None where there is none, or more than one."""
        causes = {cell.cause for claim in self.claims for cell in claim.cells if cell.verdict == "fails"}
        return causes.pop() if len(causes) == 1 else None

    def __bool__(self) -> bool:
        """Whether nothing fails: what the command exits with says the same."""
        return not self.failing

    def __str__(self) -> str:
        return show_claims(self.claims)

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        return claims_json(self.claims, bool(self))


def verify(
    program: Program | str | os.PathLike[str],
    /,
    *arrays: Any,
    sizes: Mapping[str, int] | None = None,
    strict: bool = False,
    **named: Any,
) -> Verification:
    """Every `expect` of a program, checked exactly and cell by cell; where one fails, its cause, if it has a usual one.

    With `strict`, a figure fails too that only the rounding of printed figures explains.
    """
    found = _program(program)
    wanted = claimed_names(found.ir)
    evaluated = evaluate(found.ir, arguments_of(found, arrays, named), sizes or {}, wanted, printed=True)
    claims = check_claims(evaluated)
    if any(claim.verdict == "fails" for claim in claims):
        from .numbers.causes.search import explain

        claims = explain(evaluated, claims)
    return Verification(claims, strict)


# ------------------------------------------------------------------- accuracy


class AccuracySheet(Sheet):
    """The true error of each output, readable as it stands."""

    def __init__(self, outputs: tuple[Accuracy, ...], backend: str) -> None:
        self.outputs = outputs
        self.backend = backend

    def __getitem__(self, name: str) -> Accuracy:
        return next(output for output in self.outputs if output.name == name)

    def __str__(self) -> str:
        return show_accuracy(self.outputs, self.backend)

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        return accuracy_json(self.outputs, self.backend)


def accuracy(
    program: Program | str | os.PathLike[str],
    /,
    *arrays: Any,
    backend: str | None = None,
    outputs: str | Iterable[str] | None = None,
    isolate: bool = False,
    **named: Any,
) -> AccuracySheet:
    """Run a program as usual, and say for each output how far it is from the truth: in units in the last place, with
    the worst point. The truth is enclosed by intervals, for inputs taken bit for bit."""
    found = _program(program)
    wanted = found.wanted(outputs)
    arguments = found.arguments(arrays, named)
    values = found(outputs=wanted, backend=backend, isolate=isolate, **_placed(arguments, backend))
    computed: dict[str, tuple[Any, Any]] = {}
    for name, value in zip(wanted, values, strict=True):
        dtype = dtype_of(value) if is_tensor(value) else DTYPES_BY_NAME[value.dtype.name]
        computed[name] = (array_of(to_numpy(value)), dtype)
    used = backend or ("torch" if any(map(is_tensor, values)) else "jax" if any(map(is_jax, values)) else "numpy")
    given = {name: array_of(value) for name, value in arguments.items()}
    with explained():
        return AccuracySheet(measure(found.ir, given, computed), used)


def _placed(arguments: dict[str, Any], backend: str | None) -> dict[str, Any]:
    """NumPy's arrays as tensors, where the torch backend was asked for."""
    if backend != "torch" or any(is_tensor(value) for value in arguments.values()):
        return arguments
    import torch

    return {name: torch.as_tensor(value) for name, value in arguments.items()}
