"""Other readings of a program: its exact values, how each came about, a verdict on its figures, the error of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .api import Program, compile
from .checker.names import by_name, counted, suggest
from .diagnostics import CallError, Diagnostic, Label
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
from .numbers.suppositions import FORMATS, rounded
from .numbers.tower import Undecidable, Valueless
from .run.bind import bind
from .run.jax_arrays import is_jax
from .run.jax_arrays import to_numpy as array_of
from .run.tensors import dtype_of, is_tensor, load_torch, to_numpy
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
    given = program.filled(arrays, dict(named))
    rest = {name: None for name in program.inputs[len(arrays) :] if name not in given}
    return program.arguments(arrays, {**given, **rest})


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
        return by_name(self.outputs, name)

    def __str__(self) -> str:
        return show_accuracy(self.outputs, self.backend)

    def to_json(self) -> dict[str, Any]:
        return accuracy_json(self.outputs, self.backend)

    def within(self, ulps: float) -> bool:
        """Whether no error is larger than so many units, and all that should be finite is."""
        errors = (output.worst.error for output in self.outputs if output.worst is not None)
        return not any(output.wrong for output in self.outputs) and all((error or 0) <= ulps for error in errors)


def accuracy(
    program: Program | str | os.PathLike[str],
    /,
    *arrays: Any,
    computed: Any = None,
    dtype: str | None = None,
    backend: str | None = None,
    outputs: str | Iterable[str] | None = None,
    isolate: bool = False,
    **named: Any,
) -> AccuracySheet:
    """Say of computed outputs how far each is from the truth, in units in the last place, with the worst point and the
    reasons, each of them tested. The truth is enclosed, for inputs taken bit for bit.

    `computed` is what anybody computed from the same inputs: an array, a tensor on any device or a list for the only
    output (or the one that `outputs` names), a dict by name for several. Its dtype counts, unless `dtype` says that its
    numbers are of another one ("bf16", which NumPy does not have). Without `computed`, the program is run as usual.
    """
    found = _program(program)
    arguments = found.arguments(arrays, named)
    if computed is None:
        if dtype is not None:
            raise _refusal("`dtype` says what numbers `computed` has, and there is no `computed`", "leave it out")
        wanted = found.wanted(outputs)
        values = found(outputs=wanted, backend=backend, isolate=isolate, **_placed(arguments, backend))
        given_values = dict(zip(wanted, values, strict=True))
        used = backend or ("torch" if any(map(is_tensor, values)) else "jax" if any(map(is_jax, values)) else "numpy")
    else:
        if backend is not None or isolate:
            raise _refusal("nothing is run where `computed` is given", "leave out `backend` and `isolate`")
        given_values, used = _computed(found, computed, outputs), ""
    given = {name: array_of(to_numpy(value)) for name, value in arguments.items()}
    kinds = {name: tensor.kind for name, tensor in found.ir.tensors.items()}
    shown = {name: _numbers(name, value, dtype, kinds[name]) for name, value in given_values.items()}
    with explained():
        _check_shapes(found.ir, given, shown)
        return AccuracySheet(measure(found.ir, given, shown), used)


def _computed(program: Program, computed: Any, outputs: str | Iterable[str] | None) -> dict[str, Any]:
    """The arrays that were computed, by the names of definitions."""
    if not isinstance(computed, Mapping):
        wanted = program.wanted(outputs)
        if len(wanted) != 1:
            several = ", ".join(f'"{name}": …' for name in wanted)
            raise _refusal(f"the program has {len(wanted)} outputs, and `computed` is one array", f"pass {{{several}}}")
        return {wanted[0]: computed}
    if outputs is not None:
        raise _refusal("`computed` says by its names which outputs there are", "leave out `outputs`")
    for name in computed:
        if name not in program.definitions:
            help, _ = suggest(str(name), program.definitions, Span(program.ir.source, 0, 0))
            message = f"`computed` has a `{name}`, and no definition is called that"
            raise CallError([Diagnostic("IX508", message, help=help or f"it has {', '.join(program.definitions)}")])
    return dict(computed)


def _numbers(name: str, value: Any, dtype: str | None, kind: str) -> tuple[Any, Any]:
    """An array that was computed, and the dtype of its numbers; a list for real numbers may have whole ones in it."""
    own = dtype_of(value) if is_tensor(value) else DTYPES_BY_NAME.get(str(getattr(value, "dtype", "")))
    try:
        array = np.asarray(array_of(to_numpy(value)))
    except (TypeError, ValueError):
        array = np.asarray(None)
    if kind == "real" and not hasattr(value, "dtype") and array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if str(array.dtype) == "bfloat16":
        array, own = array.astype(np.float32), "bf16"
    own = own or DTYPES_BY_NAME.get(array.dtype.name)
    if array.dtype.kind not in "biuf" or own is None:
        kind = type(value).__name__ if array.dtype.kind == "O" else array.dtype.name
        message = f"`computed` for `{name}` is no array of numbers that are known: {kind}"
        raise CallError([Diagnostic("IX504", message, help="pass an array of f64, f32, f16 or bf16, or a list")])
    if dtype is None or dtype == own:
        return array, own
    if dtype not in FORMATS or own not in ("f64", "f32", "f16", "bf16"):
        raise _refusal(f"the numbers of `{name}` cannot be {dtype!r}", 'a `dtype` is "f64", "f32", "f16" or "bf16"')
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        odd = np.isfinite(wide) & (rounded(wide, dtype) != wide)
    if odd.any():
        first = array[odd][0].item()
        message = f"`{name}` has {int(odd.sum()):,} numbers that are not {dtype}, {first!r} for one"
        raise CallError([Diagnostic("IX503", message, help=f"leave out `dtype`, or round it to {dtype} first")])
    return wide, dtype


def _check_shapes(program: ir.Program, given: Mapping[str, Any], shown: Mapping[str, tuple[Any, Any]]) -> None:
    """Refuse an array that does not have the points of its definition."""
    bound = bind(program, given)
    for name, (array, dtype) in shown.items():
        tensor, shape = program.tensors[name], bound.shape_of(program.tensors[name])
        if array.shape != shape:
            points = ", ".join(f"{axis.coordinate} = {size}" for axis, size in zip(tensor.axes, shape, strict=False))
            has = f"is {' × '.join(map(str, shape)) or 'a number'}" + (f" ({points})" if points else "")
            message = f"`{name}` {has}, and `computed` is {' × '.join(map(str, array.shape)) or 'a number'}"
            raise CallError([Diagnostic("IX304", message, (Label(tensor.span),), help=_reshaped(array.shape, shape))])
        if (tensor.kind == "real") != (dtype in FORMATS):
            kind = {"real": "real numbers", "whole": "whole numbers", "bool": "true or false"}[tensor.kind]
            message = f"`{name}` has {kind}, and `computed` is of dtype {dtype}"
            raise CallError([Diagnostic("IX503", message, (Label(tensor.span),))])


def _reshaped(found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """The mend of a shape: axes in another order, or some of length 1."""
    if tuple(n for n in found if n != 1) == tuple(n for n in wanted if n != 1):
        return f"axes of length 1 differ: reshape it to {wanted}"
    if sorted(found) == sorted(wanted):
        return "its axes are in another order: transpose them to that of the definition"
    return "pass what was computed from these inputs, with the axes in the order of the definition"


def _placed(arguments: dict[str, Any], backend: str | None) -> dict[str, Any]:
    """NumPy's arrays as tensors, where the torch backend was asked for."""
    if backend != "torch" or any(is_tensor(value) for value in arguments.values()):
        return arguments
    torch = load_torch()
    return {name: torch.as_tensor(value) for name, value in arguments.items()}
