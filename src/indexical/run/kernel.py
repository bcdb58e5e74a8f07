"""A program, called: arrays in, arrays out. One emitted function per signature, found by a look-up."""

from __future__ import annotations

import linecache
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checker.numerals import beyond_floats
from ..diagnostics import CallError, Diagnostic, Label, SlowPath
from ..engine.arguments import ELSEWHERE, Argument, Case
from ..engine.dialects import dialect
from ..faults import deep
from ..ir import nodes as ir
from ..ir.types import NUMPY_NAMES, Dtype
from ..records import dataclass, field, replace
from ..source import Span
from . import cached, jax_arrays, tensors, tracing
from .bind import Bound, bind
from .parts import Part

if TYPE_CHECKING:
    from ..engine.show import Module
    from ..plan.steps import Plan
    from .budget import Asked, Study

# A refusal is explained by the reference evaluator where that takes at most this many steps.
_PATIENCE = 3_000_000

_PACKAGE = f"{__name__.partition('.')[0]}."

# From so many bytes on, arrays that a kernel would not build are several times slower.
_LARGE = 32 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """What a kernel was made for, and its plan, where it was planned in this process. `text` is where its function
    stands, among these `names`."""

    isolate: bool
    recompute: bool
    plan: Plan | None
    text: str
    names: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kernel:
    """An emitted function, loaded, and the parts of the plan that it follows. `origin` says how one for known sizes is
    made; None where there is none. It may be for calls of one `case` alone."""

    function: Callable[..., Any]
    refused: type[Exception]
    wanted: tuple[str, ...]
    parts: tuple[Part, ...]
    origin: Origin | None = None
    case: Case | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call, checked: its arrays as its backend takes them."""

    program: ir.Program
    backend: str
    values: dict[str, Any]
    bound: Bound
    arguments: dict[str, Argument]
    device: str

    @property
    def key(self) -> tuple[object, ...]:
        return (self.backend, self.device, *self.arguments.items())

    def in_a_file(self) -> Call:
        """The call as a text takes it that nobody binds arrays for: scalars come as numbers, as arrays and as tensors.
        A real one without a dtype of its own is an array that is weak where a gradient of it may be wanted."""
        tensors = self.program.tensors
        met = {dtype for name, dtype in self.bound.dtypes.items() if tensors[name].kind == "real"}
        wide: Dtype = "f64" if "f64" in met else "f32"
        found, learns = {}, dialect(self.backend).differentiates
        for name, argument in self.arguments.items():
            weak = argument.dtype is None and tensors[name].kind == "real" and learns
            dtype = wide if weak else argument.dtype
            found[name] = argument if tensors[name].axes else Argument(0, dtype, loose=True, weak=weak)
        return replace(self, arguments=found)


@dataclass
class Engine:
    """The kernels of one program. `texts` are all that it is made of, itself and the modules it uses: with them its
    emitted functions are kept on disk, without them they are not. `told` is given where the program has no text of its
    own: the same program, as its text says it. Kernels for one case were `widened` so often: who has one asks again."""

    program: ir.Program
    texts: tuple[str, ...] | None = None
    told: Callable[[], ir.Program] | None = None
    kernels: dict[object, Kernel] = field(default_factory=dict)
    studies: dict[object, Study] = field(default_factory=dict)
    beyond: list[Diagnostic] | None = None
    widened: int = 0

    def prepare(self, arguments: Mapping[str, Any], backend: str | None, device: str | None = None) -> Call:
        """Check the arrays of a call, and put them where they will be used."""
        self.check_numbers()
        if backend is None:
            held = [*arguments.values()]
            backend = "jax" if any(map(jax_arrays.is_jax, held)) else "numpy"
            backend = "torch" if device is not None or any(map(tensors.is_tensor, held)) else backend
        tensors.check_dense(self.program, arguments, backend)
        if backend == "torch":
            return self._prepare_tensors(tensors.on_one_device(self.program, arguments, device), device)
        arguments = {name: tensors.to_numpy(value) for name, value in arguments.items()}
        if backend == "jax":
            return self._prepare_jax(arguments)
        arguments = {name: jax_arrays.to_numpy(value) for name, value in arguments.items()}
        bound = bind(self.program, arguments)
        values = {}
        for name, array in bound.arrays.items():
            dtype = bound.dtypes.get(name)
            values[name] = as_numpy(array, dtype)
        shown = {name: Argument(np.ndim(value), bound.dtypes.get(name)) for name, value in values.items()}
        return Call(self.program, backend, values, bound, shown, "cpu")

    def check_numbers(self) -> None:
        """Refuse a program with a number that floats do not hold."""
        if self.beyond is None:
            self.beyond = beyond_floats(self.program)
        if self.beyond:
            raise CallError(self.beyond)

    def _prepare_tensors(self, values: dict[str, Any], device: str | None) -> Call:
        given_as = dict(values)
        given = {name: dtype for name, value in values.items() if (dtype := _own_dtype(value)) is not None}
        stand_ins = {name: tensors.stand_in(value) for name, value in values.items()}
        try:
            bound = bind(self.program, stand_ins, {name: d for name, d in given.items() if d == "bf16"})
        except CallError as refusal:
            raise CallError(map(tensors.in_its_words, refusal.diagnostics)) from None
        tensors.check_halves(self.program, given)
        arguments = {}
        for tensor in self.program.inputs:
            value = values[tensor.name]
            dtype = bound.dtypes.get(tensor.name)
            if not tensors.is_tensor(value) and dtype is not None:
                place = device or tensors.device_of(values)
                value = values[tensor.name] = tensors.finished(value, dtype, place)
            converted = tensors.is_tensor(value) and dtype is not None and tensors.dtype_of(value) != dtype
            axes = np.ndim(stand_ins[tensor.name])
            loose = not tensor.axes and dtype is not None and not tensors.is_tensor(given_as[tensor.name])
            arguments[tensor.name] = Argument(axes, dtype, converted, loose)
        kind = str(device or tensors.device_of(values)).split(":")[0]
        return Call(self.program, "torch", values, bound, arguments, kind)

    def _prepare_jax(self, arguments: Mapping[str, Any]) -> Call:
        jax_arrays.load_jax()
        values = jax_arrays.strengthened(arguments)
        jax_arrays.check_read(self.program, values)
        stand_ins = {name: jax_arrays.stand_in(value) for name, value in values.items()}
        given = {name: jax_arrays.dtype_of(value) for name, value in values.items() if jax_arrays.is_jax(value)}
        halves: dict[str, Dtype] = {name: "bf16" for name, dtype in given.items() if dtype == "bf16"}
        bound = bind(self.program, stand_ins, halves)
        arguments = {}
        for name, value in values.items():
            dtype = bound.dtypes.get(name)
            arguments[name] = Argument(np.ndim(stand_ins[name]), dtype)
            if dtype is None or given.get(name) != dtype:
                values[name] = jax_arrays.finished(value, dtype)
        return Call(self.program, "jax", values, bound, arguments, "cpu")

    def imagine(self, arrays: Mapping[str, Any], dtype: Dtype, backend: str, device: str) -> Call:
        """A call without its values: arrays that only give shapes, reals of some dtype."""
        self.check_numbers()
        tensors.check_device_name(device)
        reals = {t.name: dtype for t in self.program.inputs if t.kind == "real" and t.axes}
        bound = bind(self.program, arrays, reals)
        shown = {name: Argument(np.ndim(value), bound.dtypes.get(name)) for name, value in arrays.items()}
        return Call(self.program, backend, {}, bound, shown, device).in_a_file()

    def kernel(
        self,
        call: Call,
        wanted: tuple[str, ...],
        isolate: bool,
        recompute: bool = True,
        memory: Asked | None = None,
        case: Case | None = None,
    ) -> Kernel:
        """The emitted function for calls like this one; where there is none yet, perhaps for those of a `case` alone.
        """
        key = (call.key, wanted, isolate, recompute, memory)
        if key not in self.kernels or (case is None and self.kernels[key].case is not None):
            self.widened += key in self.kernels
            text, parts, plan = self._linked(call, wanted, isolate, recompute, memory, case)
            warn_of_slow_paths(parts, call.bound)
            kernel = load(text, wanted, parts)
            if _is_for_some(parts):
                kernel = replace(kernel, case=case)
            if call.backend == "torch" and memory is None:
                kernel = replace(kernel, origin=Origin(isolate, recompute, plan, text, kernel.function.__globals__))
            if call.backend == "jax":
                wide = any(part.wide for part in parts)
                kernel = replace(kernel, function=jax_arrays.explained(kernel.function, wide))
            self.kernels[key] = kernel
        return self.kernels[key]

    @deep
    def _linked(
        self,
        call: Call,
        wanted: tuple[str, ...],
        isolate: bool,
        recompute: bool,
        memory: Asked | None,
        case: Case | None,
    ) -> tuple[str, tuple[Part, ...], Plan | None]:
        """The text for calls like this one, which imports its kernels, the parts of its plan, and the plan, where the
        text is new."""
        if memory is not None:
            from .emitting import parts_of

            plan, module = self._within(call, wanted, isolate, recompute, memory)
            return module.linked(), parts_of(plan, module), plan
        key = None if self.texts is None or is_dumped() else cached.key_of(self.texts, call, wanted, isolate, recompute)
        found = None if key is None else cached.find(key, Span(self.program.source, 0, 0))
        if found is not None and not (case is None and _is_for_some(found[1])):
            return (*found, None)
        from .emitting import emitted, parts_of

        plan, module = emitted(call, wanted, isolate, recompute, case)
        text, parts = module.linked(), parts_of(plan, module)
        if key is not None:
            cached.keep(key, text, parts)
        return text, parts, plan

    def _within(
        self, call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool, memory: Asked
    ) -> tuple[Plan, Module]:
        """The plan and the text under a budget of memory. What was found for another one is known."""
        from .budget import Study

        key = (call.key, wanted, isolate, recompute, memory.shapes, memory.learned)
        if key not in self.studies:
            self.studies[key] = Study(call, wanted, isolate, recompute, memory)
        return self.studies[key].within(memory.limit)

    def lacks_derivatives(self, call: Call, wanted: tuple[str, ...], recompute: bool) -> bool:
        """Whether forward mode, or a second derivative, has to go another way than by kernels."""
        if call.backend != "torch":
            return False
        parts = [part for part in self.kernel(call, wanted, False, recompute).parts if part.attends or part.derives]
        warn_of_transforms(parts, call.bound)
        return bool(parts)

    def emitted(
        self,
        call: Call,
        wanted: tuple[str, ...],
        isolate: bool,
        recompute: bool = True,
        memory: str | int | None = None,
    ) -> tuple[Plan, Module]:
        """The plan and the text for calls like this one, not loaded."""
        from .emitting import described, noted

        if memory is None:
            return described(call, wanted, isolate, recompute)
        from .budget import imagined

        return noted(*self._within(call, wanted, isolate, recompute, imagined(call, memory)))

    def run(
        self, call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool = True, memory: Asked | None = None
    ) -> dict[str, Any]:
        """The wanted definitions."""
        if call.backend == "reference":
            from . import pointwise

            return dict(pointwise.evaluate_bound(call.bound, wanted))
        kernel = self.kernel(call, wanted, isolate, recompute, memory, case_of(call))
        _refuse_absurd(kernel.parts, call)
        warn_of_second_derivatives(kernel.parts, call)
        try:
            found = kernel.function(*(call.values[tensor.name] for tensor in self.program.inputs))
        except kernel.refused as problem:
            if problem.args[0] == ELSEWHERE:
                self.kernel(call, wanted, isolate, recompute, memory)
                return self.run(call, wanted, isolate, recompute, memory)
            shapes = self._shapes(call, wanted)
            if not isolate and any(math.prod(shape) for shape in shapes.values()) and not _is_of_nothing(call):
                return self._run_plainly(call, wanted, problem, memory)
            return self._without_points(call, shapes, problem, memory)
        except (MemoryError, RuntimeError) as problem:
            if tensors.is_about_values(problem):
                raise tensors.unmapped() from None
            if not is_out_of_memory(problem):
                raise
            raise too_large(problem) from None
        return dict(zip(wanted, (found,) if len(wanted) == 1 else found, strict=True))

    def _run_plainly(
        self, call: Call, wanted: tuple[str, ...], problem: Exception, memory: Asked | None
    ) -> dict[str, Any]:
        """The wanted definitions by the plain lowering, where a kernel refused a call that has a value."""
        found = self.run(call, wanted, isolate=True, memory=memory)
        message = f"a kernel refused this call ({problem.args[1]}), and nothing is wrong with it"
        _warn(f"{message}; it is computed as with `isolate=True`, all scores in memory")
        return found

    def _shapes(self, call: Call, wanted: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        return {name: call.bound.shape_of(self.program.tensors[name]) for name in wanted}

    def _without_points(
        self, call: Call, shapes: Mapping[str, tuple[int, ...]], problem: Exception, memory: Asked | None
    ) -> dict[str, Any]:
        """Definitions that emitted code refused, where they have no points: then nothing is evaluated, and nothing can
        be out of bounds. Where the slow evaluator finds nothing wrong, its values; where a gradient is wanted, each
        definition for itself, since one without points may be all that was refused. Else the error."""
        found = self._judged(call, tuple(shapes), problem)
        if isinstance(found, CallError):
            raise found from None
        if not any(math.prod(shape) for shape in shapes.values()):
            return {name: self._empty(call, name, shape) for name, shape in shapes.items()}
        code, message = problem.args
        if not _is_recorded(call):
            if not _is_of_nothing(call):
                _warn(f"emitted code refused this call ({message}) though nothing is wrong: the slow evaluator ran")
            return {name: self._placed(call, name, np.asarray(value)) for name, value in found.items()}
        if len(shapes) > 1:
            return {name: self.run(call, (name,), isolate=True, memory=memory)[name] for name in shapes}
        help = 'the slow evaluator finds nothing wrong (`backend="reference"`): please report this program'
        raise CallError([Diagnostic(code, message, help=help)]) from None

    def _placed(self, call: Call, name: str, found: Any) -> Any:
        """An array of NumPy as one of the library that is called."""
        dtype = call.bound.dtypes[name]
        if call.backend == "jax":
            return jax_arrays.finished(found, dtype)
        return tensors.from_numpy(found, dtype, tensors.device_of(call.values)) if call.backend == "torch" else found

    def _empty(self, call: Call, name: str, shape: tuple[int, ...]) -> Any:
        """A definition without points; reals are reached by the gradient all the same."""
        new = self._placed(call, name, np.zeros(shape, NUMPY_NAMES[call.bound.dtypes[name]]))
        if call.backend != "torch":
            return new
        for value in call.values.values():
            if new.is_floating_point() and getattr(value, "requires_grad", False):
                new = new + value.flatten()[:0].sum().to(new.dtype)
        return new

    def _judged(self, call: Call, wanted: tuple[str, ...], problem: Exception) -> CallError | dict[str, Any]:
        """The error of a call that emitted code refused: the reference evaluator's, which says at which point it fails,
        where that takes no longer than its patience. What it finds, where nothing is wrong."""
        from . import pointwise

        code, message = problem.args
        try:
            numbers = {name: jax_arrays.to_numpy(tensors.to_numpy(value)) for name, value in call.values.items()}
            bound = bind(self.program, numbers, {n: d for n, d in call.bound.dtypes.items() if d == "bf16"})
            return dict(pointwise.evaluate_bound(bound, wanted, _PATIENCE))
        except CallError as refusal:
            if all(diagnostic.code != "IX507" for diagnostic in refusal.diagnostics):
                return refusal
            return CallError([Diagnostic(code, message, help="call it with smaller arrays to see at which point")])


def _is_of_nothing(call: Call) -> bool:
    """Whether an input has no points, and PyTorch does not record the call for its way back."""
    return any(0 in np.shape(value) for value in call.values.values()) and not _is_recorded(call)


def _is_for_some(parts: tuple[Part, ...]) -> bool:
    """Whether a text with these parts refuses calls that another one takes."""
    return any(part.for_some for part in parts)


def is_dumped() -> bool:
    """Whether the passes of what is planned are printed: then no text comes from the disk."""
    return os.environ.get("IX_DUMP") == "1"


def case_of(call: Call) -> Case | None:
    """What calls like this one may have in common, of which less is printed; None for a call of any other kind."""
    if call.backend != "torch" or call.device != "cpu" or tracing.is_replaced():
        return None
    return Case(call.bound.sizes, _is_recorded(call))


def _is_recorded(call: Call) -> bool:
    """Whether PyTorch records the call for its way back."""
    learns = any(getattr(value, "requires_grad", False) for value in call.values.values())
    return learns and bool(tensors.load_torch().is_grad_enabled())


def _refuse_absurd(parts: tuple[Part, ...], call: Call) -> None:
    """A definition that is larger than all memory. A system that promises more than it has would end the process."""
    if call.device != "cpu":
        return
    for array in [part.array for part in parts]:
        points = array.points(call.bound)
        if points > MEMORY:
            message = f"`{array.name}` would have {points:,} points, more than this machine has bytes of memory"
            labels = tuple(Label(let.span) for let in call.program.lets if let.name == array.name)
            raise CallError([Diagnostic("IX507", message, labels, help="choose smaller sizes")])


def _memory() -> int:
    """The bytes of memory of this machine; 2**48 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 48


MEMORY = _memory()


def _warn(message: str) -> None:
    """Warn of a slow path at the line that called the program, however deep in here it was found."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, SlowPath, stacklevel=level)


def warn_of_slow_paths(parts: tuple[Part, ...], bound: Bound) -> None:
    """Say once where scores are kept in memory that a kernel would stream, or go through tiles on a GPU that has no
    kernel for them, and they are many."""
    kept = [part for part in parts if part.kept]
    if kept and max(part.array.size(bound) for part in parts) > _LARGE:
        for part in kept:
            message = f"`{part.array.name}` is computed with all its scores in memory: {part.kept}"
            _warn(f"{message}; `program.plan(...)` says more")
    for part in parts:
        if part.tiled and max((array.size(bound) for array in part.covers), default=0) > _LARGE:
            message = f"`{part.array.name}` is computed tile by tile, and not by a kernel of its own: {part.tiled}"
            _warn(f"{message}; `program.plan(...)` says more")


def warn_of_second_derivatives(parts: tuple[Part, ...], call: Call) -> None:
    """Say where a derivative of attention is computed as it is written only because arrays want a gradient of it."""
    deriving = [part for part in parts if part.derives]
    if not deriving or not any(getattr(value, "requires_grad", False) for value in call.values.values()):
        return
    most = max((array.size(call.bound) for part in deriving for array in part.covers), default=0)
    if most > _LARGE and tensors.load_torch().is_grad_enabled():
        name = deriving[0].array.name
        message = f"`{name}` is computed with all its weights in memory, since an array requires a gradient"
        help = "call it under `torch.no_grad()`, or with detached arrays, where it is not differentiated again"
        _warn(f"{message}; {help}")


def warn_of_transforms(parts: Iterable[Part], bound: Bound) -> None:
    """Say where forward mode or a second derivative builds what a kernel would not build, and that is large."""
    for array in dict.fromkeys(array for part in parts for array in part.covers):
        if array.size(bound) > _LARGE:
            message = f"`{array.name}` is built: its kernel has no forward mode and no second derivative"
            _warn(f"{message}; `ix.jvp` and `ix.grad` give programs for them")


class _Unraised(Exception):
    """What stands for the refusal of a text that refuses nothing."""


_numbers = count(1)


def load(
    text: str, wanted: tuple[str, ...], parts: tuple[Part, ...], space: Mapping[str, Any] | None = None
) -> Kernel:
    """The text, as a function. It is a module like any other, so that tracebacks and `torch.compile` can read it; but
    one that finds arrays in the `space` it is given has them no longer than somebody has the function."""
    name = f"indexical_emitted_{next(_numbers)}"
    loaded = ModuleType(name)
    linecache.cache[f"<{name}>"] = (len(text), None, text.splitlines(keepends=True), f"<{name}>")
    if space is None:
        sys.modules[name] = loaded
    else:
        vars(loaded).update(space)
    exec(compile(text, f"<{name}>", "exec"), loaded.__dict__)
    cached.lend_store(loaded, text)
    refused = getattr(loaded, "Refused", _Unraised)
    return Kernel(loaded.program, refused, wanted, parts)


def is_out_of_memory(problem: Exception) -> bool:
    """Whether memory ran out: NumPy has an exception for it, PyTorch a message."""
    return isinstance(problem, MemoryError) or "out of memory" in str(problem) or "allocate memory" in str(problem)


def too_large(problem: Exception) -> CallError:
    first = (str(problem).splitlines() or [""])[0] or "there is not enough memory"
    return CallError([Diagnostic("IX507", f"the arrays of this call do not fit: {first}", help="choose smaller sizes")])


def _own_dtype(value: Any) -> Dtype | None:
    return tensors.dtype_of(value) if tensors.is_tensor(value) else None


def as_numpy(array: np.ndarray[Any, Any], dtype: Dtype | None) -> Any:
    """An array as the emitted function takes it: without a dtype of its own, as a Python number."""
    return array.item() if dtype is None else np.asarray(array, NUMPY_NAMES[dtype])
