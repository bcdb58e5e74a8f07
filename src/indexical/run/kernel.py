"""A program, called: arrays in, arrays out. One emitted function per signature, found by a look-up."""

from __future__ import annotations

import linecache
import math
import os
import sys
import warnings
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np

from ..backends.source import Argument, Module, emit
from ..diagnostics import CallError, Diagnostic, Label, SlowPath
from ..ir import nodes as ir
from ..ir.types import Dtype
from ..plan.choose import ARRAYS, choose
from ..plan.lowerings import LOWERINGS
from ..plan.steps import Plan, size_of
from . import pointwise, tensors
from .bind import NUMPY, Bound, bind

# A refusal is explained by the reference evaluator where that takes at most this many steps.
_PATIENCE = 3_000_000

# From so many bytes on, arrays that a kernel would not build are several times slower.
_LARGE = 32 << 20

BACKENDS = ("numpy", "torch", "reference")


@dataclass(frozen=True, slots=True)
class Kernel:
    """An emitted function, loaded."""

    function: Callable[..., Any]
    refused: type[Exception]
    module: Module
    plan: Plan


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


@dataclass
class Engine:
    """The kernels of one program."""

    program: ir.Program
    kernels: dict[object, Kernel] = field(default_factory=dict)

    def prepare(self, arguments: Mapping[str, Any], backend: str | None, device: str | None = None) -> Call:
        """Check the arrays of a call, and put them where they will be used."""
        if backend is None:
            held = [*arguments.values()]
            backend = "torch" if device is not None or any(map(tensors.is_tensor, held)) else "numpy"
        tensors.check_dense(self.program, arguments, backend)
        if backend == "torch":
            return self._prepare_tensors(tensors.on_one_device(self.program, arguments, device), device)
        arguments = {name: tensors.to_numpy(value) for name, value in arguments.items()}
        bound = bind(self.program, arguments)
        values = {}
        for name, array in bound.arrays.items():
            dtype = bound.dtypes.get(name)
            values[name] = as_numpy(array, dtype)
        shown = {name: Argument(np.ndim(value), bound.dtypes.get(name)) for name, value in values.items()}
        return Call(self.program, backend, values, bound, shown, "cpu")

    def _prepare_tensors(self, values: dict[str, Any], device: str | None) -> Call:
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
            arguments[tensor.name] = Argument(np.ndim(stand_ins[tensor.name]), dtype, converted)
        kind = str(device or tensors.device_of(values)).split(":")[0]
        return Call(self.program, "torch", values, bound, arguments, kind)

    def imagine(self, arrays: Mapping[str, Any], dtype: Dtype, backend: str, device: str) -> Call:
        """A call that is only thought of: arrays that stand for others, reals of some dtype."""
        tensors.check_device_name(device)
        reals = {t.name: dtype for t in self.program.inputs if t.kind == "real" and t.axes}
        bound = bind(self.program, arrays, reals)
        shown = {name: Argument(np.ndim(value), bound.dtypes.get(name)) for name, value in arrays.items()}
        return Call(self.program, backend, {}, bound, shown, device)

    def kernel(self, call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool = True) -> Kernel:
        """The emitted function for calls like this one."""
        key = (call.key, wanted, isolate, recompute)
        if key not in self.kernels:
            plan = choose(self.program, wanted, call.bound.dtypes, call.backend, call.device, isolate, recompute)
            warn_of_slow_paths(plan, call.bound)
            self.kernels[key] = load(emit(plan, call.arguments), plan)
        return self.kernels[key]

    def lacks_derivatives(self, call: Call, wanted: tuple[str, ...], recompute: bool) -> bool:
        """Whether forward mode, or a second derivative, has to go another way than by kernels."""
        if call.backend != "torch":
            return False
        plan = self.kernel(call, wanted, False, recompute).plan
        steps = [step for step in plan.steps if step.attend is not None or step.gradient is not None]
        if steps:
            warn_of_transforms(plan, call.bound, {name for step in steps for name in step.covers})
        return bool(steps)

    def emitted(
        self, call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool = True
    ) -> tuple[Plan, Module]:
        """The plan and the text for calls like this one, not loaded."""
        plan = choose(self.program, wanted, call.bound.dtypes, call.backend, call.device, isolate, recompute)
        return plan, emit(plan, call.arguments)

    def run(self, call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool = True) -> dict[str, Any]:
        """The wanted definitions."""
        if call.backend == "reference":
            return dict(pointwise.evaluate_bound(call.bound, wanted))
        kernel = self.kernel(call, wanted, isolate, recompute)
        _refuse_absurd(kernel.plan, call.bound)
        warn_of_second_derivatives(kernel.plan, call)
        try:
            found = kernel.function(*(call.values[tensor.name] for tensor in self.program.inputs))
        except kernel.refused as problem:
            shapes = self._shapes(call, wanted)
            if not isolate and any(math.prod(shape) for shape in shapes.values()):
                return self._run_plainly(call, wanted, problem)
            return self._without_points(call, shapes, problem)
        except (MemoryError, RuntimeError) as problem:
            if tensors.is_about_values(problem):
                raise tensors.unmapped() from None
            if not is_out_of_memory(problem):
                raise
            raise too_large(problem) from None
        return dict(zip(wanted, (found,) if len(wanted) == 1 else found, strict=True))

    def _run_plainly(self, call: Call, wanted: tuple[str, ...], problem: Exception) -> dict[str, Any]:
        """The wanted definitions by the plain lowering, where a kernel refused a call that has a value."""
        found = self.run(call, wanted, isolate=True)
        message = f"a kernel refused this call ({problem.args[1]}), and nothing is wrong with it"
        warnings.warn(f"{message}; it is computed as with `isolate=True`, all scores in memory", SlowPath, stacklevel=5)
        return found

    def _shapes(self, call: Call, wanted: tuple[str, ...]) -> dict[str, list[int]]:
        lets = {let.name: let for let in self.program.lets}
        return {name: [call.bound.extent(axis.extent) for axis in lets[name].axes] for name in wanted}

    def _without_points(self, call: Call, shapes: Mapping[str, list[int]], problem: Exception) -> dict[str, Any]:
        """Definitions that emitted code refused, where they have no points: then nothing is evaluated, and nothing can
        be out of bounds. The error, where they have some."""
        refusal = self._refusal(call, tuple(shapes), problem)
        if refusal is None and not any(math.prod(shape) for shape in shapes.values()):
            return {name: self._empty(call, name, shape) for name, shape in shapes.items()}
        code, message = problem.args
        help = 'the slow evaluator finds nothing wrong (`backend="reference"`): please report this program'
        raise refusal or CallError([Diagnostic(code, message, help=help)]) from None

    def _empty(self, call: Call, name: str, shape: list[int]) -> Any:
        """A definition without points; reals are reached by the gradient all the same."""
        found = np.zeros(shape, NUMPY[call.bound.dtypes[name]])
        if call.backend != "torch":
            return found
        new = tensors.from_numpy(found, call.bound.dtypes[name], tensors.device_of(call.values))
        for value in call.values.values():
            if new.is_floating_point() and getattr(value, "requires_grad", False):
                new = new + value.flatten()[:0].sum().to(new.dtype)
        return new

    def _refusal(self, call: Call, wanted: tuple[str, ...], problem: Exception) -> CallError | None:
        """The error of a call that emitted code refused: the reference evaluator's, which says at which point it fails,
        where that takes no longer than its patience. None where it finds nothing wrong."""
        code, message = problem.args
        try:
            numbers = {name: tensors.to_numpy(value) for name, value in call.values.items()}
            bound = bind(self.program, numbers, {n: d for n, d in call.bound.dtypes.items() if d == "bf16"})
            pointwise.evaluate_bound(bound, wanted, _PATIENCE)
        except CallError as refusal:
            if all(diagnostic.code != "IX507" for diagnostic in refusal.diagnostics):
                return refusal
            return CallError([Diagnostic(code, message, help="call it with smaller arrays to see at which point")])
        return None


def _refuse_absurd(plan: Plan, bound: Bound) -> None:
    """A definition that is larger than all memory. A system that promises more than it has would end the process."""
    lets = {let.name: let for let in plan.program.lets}
    for step in plan.steps:
        points = math.prod(bound.extent(axis.extent) for axis in lets[step.definition].axes)
        if plan.device == "cpu" and points > MEMORY:
            message = f"`{step.definition}` would have {points:,} points, more than this machine has bytes of memory"
            span = lets[step.definition].span
            raise CallError([Diagnostic("IX507", message, (Label(span),), help="choose smaller sizes")])


def _memory() -> int:
    """How many bytes of memory there are, where the system says so."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 48


MEMORY = _memory()


def warn_of_slow_paths(plan: Plan, bound: Bound) -> None:
    """Say once where scores are kept in memory that a kernel would stream, and they are many."""
    lets = {let.name: let for let in plan.program.lets}
    most = max((size_of(lets[step.definition], plan, bound.sizes) or 0 for step in plan.steps), default=0)
    for step in plan.steps:
        refused = [refusal for refusal in step.refusals if refusal.way not in LOWERINGS]
        if step.kernel == ARRAYS and refused and most > _LARGE:
            message = f"`{step.definition}` is computed with all its scores in memory: {refused[0].reason}"
            warnings.warn(f"{message}; `program.plan(...)` says more", SlowPath, stacklevel=5)


def warn_of_second_derivatives(plan: Plan, call: Call) -> None:
    """Say where a derivative of attention is computed as it is written only because arrays want a gradient of it."""
    steps = [step for step in plan.steps if step.gradient is not None]
    if not steps or not any(getattr(value, "requires_grad", False) for value in call.values.values()):
        return
    lets = {let.name: let for let in plan.program.lets}
    covered = {name for step in steps for name in step.covers if name in lets}
    most = max((size_of(lets[name], plan, call.bound.sizes) or 0 for name in covered), default=0)
    if most > _LARGE and tensors.load_torch().is_grad_enabled():
        message = (
            f"`{steps[0].definition}` is computed with all its weights in memory, since an array requires a gradient"
        )
        help = "call it under `torch.no_grad()`, or with detached arrays, where it is not differentiated again"
        warnings.warn(f"{message}; {help}", SlowPath, stacklevel=5)


def warn_of_transforms(plan: Plan, bound: Bound, names: set[str]) -> None:
    """Say where forward mode or a second derivative has `names` built that a kernel would not build, and these are
    large."""
    for let in plan.program.lets:
        if let.name in names and (size_of(let, plan, bound.sizes) or 0) > _LARGE:
            message = f"`{let.name}` is built: its kernel has no forward mode and no second derivative"
            warnings.warn(f"{message}; `ix.jvp` and `ix.grad` give programs for them", SlowPath, stacklevel=5)


def finder(engine: Engine, functions: dict[int, Callable[..., Any]]) -> Callable[..., int]:
    """A function that finds the kernel for tensors of some dtypes, ranks and devices, for `torch.compile`: it runs
    while a call is traced, and the number it gives to an emitted function is a constant of the graph."""

    def find(kinds: tuple[Any, ...], wanted: tuple[str, ...], isolate: bool, recompute: bool = True) -> int:
        torch = tensors.load_torch()
        arrays = {}
        for tensor, (dtype, rank, device) in zip(engine.program.inputs, kinds, strict=True):
            number = 1.0 if device else 1
            arrays[tensor.name] = number if dtype is None else torch.empty((1,) * rank, dtype=dtype, device=device)
        function = engine.kernel(engine.prepare(arrays, "torch"), wanted, isolate, recompute).function
        number = next((n for n, known in functions.items() if known is function), len(functions))
        functions[number] = function
        return number

    find._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return find


_numbers = count(1)


def load(module: Module, plan: Plan) -> Kernel:
    """The text, as a function. It is a module like any other, so that tracebacks and `torch.compile` can read it."""
    name = f"indexical_emitted_{next(_numbers)}"
    text = module.linked()
    loaded = ModuleType(name)
    linecache.cache[f"<{name}>"] = (len(text), None, text.splitlines(keepends=True), f"<{name}>")
    sys.modules[name] = loaded
    exec(compile(text, f"<{name}>", "exec"), loaded.__dict__)
    return Kernel(loaded.program, loaded.Refused, module, plan)


def is_out_of_memory(problem: Exception) -> bool:
    """NumPy has an exception for it; PyTorch says so in its words."""
    return isinstance(problem, MemoryError) or "out of memory" in str(problem) or "allocate memory" in str(problem)


def too_large(problem: Exception) -> CallError:
    first = (str(problem).splitlines() or [""])[0] or "there is not enough memory"
    return CallError([Diagnostic("IX507", f"the arrays of this call do not fit: {first}", help="choose smaller sizes")])


def packed(wanted: tuple[str, ...]) -> Any:
    """Several outputs, by name."""
    return namedtuple("Outputs", wanted, rename=True)


def _own_dtype(value: Any) -> Dtype | None:
    return tensors.dtype_of(value) if tensors.is_tensor(value) else None


def as_numpy(array: np.ndarray[Any, Any], dtype: Dtype | None) -> Any:
    """An array as the emitted function takes it: without a dtype of its own, as a Python number."""
    return array.item() if dtype is None else np.asarray(array, NUMPY[dtype])
