"""One run of a callable of JAX as its equations: traced, calls inside it written out, each with its place."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from ..run.jax_arrays import is_jax
from .arguments import KEEP_NUMBERS, ON_VALUES, parameters_of, refusal
from .equations import operation
from .recording import RAISED, Call, Recording, Ref, Site, Unrunnable, passed_over

# Equations that stand for the equations of a function, and where that is kept.
_CALLS = {
    **dict.fromkeys(("jit", "pjit", "remat", "remat2", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
# Functions of JAX that are one operation here, where their equations are many.
_KNOWN = {"floor_divide": "floor_divide", "remainder": "remainder", "nan_to_num": "nan_to_num", "silu": "silu"}
_CAST = "convert_element_type"


def tensor_of(value: Any) -> Any:
    """An array of JAX's as a tensor; anything else, keys of random numbers too, as it is."""
    import numpy as np
    import torch

    if not is_jax(value) or not (value.dtype.kind in "biuf" or value.dtype.name == "bfloat16"):
        return value
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(value, dtype=np.float32)).bfloat16()
    return torch.from_numpy(np.array(value))


def array_of(value: Any) -> Any:
    """A tensor as an array of JAX's; anything else as it is."""
    import jax.numpy as jnp
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    if value.dtype == torch.bfloat16:
        return jnp.asarray(value.float().numpy(), dtype=jnp.bfloat16)
    return jnp.asarray(value.numpy())


def _shaped(tensor: Any) -> Any:
    """A stand-in for an array where only its shape and its dtype count."""
    import jax

    dtype = jax.dtypes.canonicalize_dtype(str(tensor.dtype).removeprefix("torch."))
    return jax.ShapeDtypeStruct(tuple(tensor.shape), dtype)


def _calling(function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """The callable as one of its tensors alone, and these."""
    import torch

    values = [*arguments, *keywords.values()]
    places = [place for place, value in enumerate(values) if isinstance(value, torch.Tensor)]

    def call(*arrays: Any) -> Any:
        given = list(values)
        for place, array in zip(places, arrays, strict=True):
            given[place] = array
        return function(*given[: len(arguments)], **dict(zip(keywords, given[len(arguments) :], strict=True)))

    return call, [values[place] for place in places]


def computed(function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arrays that a callable returns, as tensors."""
    import jax

    call, tensors = _calling(function, arguments, keywords)
    try:
        # Compiled for one call, so with little care.
        result = jax.jit(call, compiler_options={"xla_backend_optimization_level": 0})(*map(array_of, tensors))
    except RAISED as problem:
        raise Unrunnable(_words(problem)) from problem
    return tuple(tensor_of(value) for value in jax.tree_util.tree_leaves(result) if is_jax(value))


def _words(problem: Exception) -> str:
    return f"{type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem).strip() else ''}"


def record(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any], placed: bool = True
) -> Recording:
    """The equations of a callable, on arrays of these shapes."""
    import jax

    call, tensors = _calling(function, arguments, keywords)
    try:
        closed = jax.make_jaxpr(call)(*map(_shaped, tensors))
    except jax.errors.ConcretizationTypeError as problem:
        raise refusal("IX602", ON_VALUES, _raised_at(problem), KEEP_NUMBERS) from None
    except RAISED as problem:
        raise Unrunnable(_words(problem)) from problem
    walk = _Walk(Recording(), placed, _held(function, arguments, keywords))
    jaxpr = closed.jaxpr
    environment = {
        **{var: walk.given(tensor) for var, tensor in zip(jaxpr.invars, tensors, strict=True)},
        **{var: walk.held(value) for var, value in zip(jaxpr.constvars, closed.consts, strict=True)},
    }
    walk.equations(jaxpr, environment, None)
    walk.recording.result = tuple(walk.value(var, environment) for var in jaxpr.outvars)
    return walk.recording


def _held(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[int, tuple[str, bool]]:
    """The arrays that a callable holds, by identity: their names, and whether they are parameters. Those in trees of
    arrays are; a single array may be a mask."""
    import jax

    known = parameters_of(function) or []
    found: dict[str, Any] = {}
    while isinstance(function, partial):
        found |= {**dict(zip(known, function.args, strict=False)), **function.keywords}
        function = function.func
    target = inspect.unwrap(getattr(function, "__func__", function))
    if inspect.isfunction(target):
        reached = inspect.getclosurevars(target)
        found |= {**reached.globals, **reached.nonlocals}
    owner = getattr(function, "__self__", function)
    found |= vars(owner) if hasattr(owner, "__dict__") and not inspect.isfunction(owner) else {}
    found |= {known[n] if n < len(known) else f"x{n}": value for n, value in enumerate(arguments)}
    named: dict[int, tuple[str, bool]] = {}
    for name, tree in {**found, **keywords}.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            if hasattr(leaf, "shape"):
                inside = jax.tree_util.keystr(path)
                named.setdefault(id(leaf), (f"{name}{inside}", bool(inside)))
    return named


@dataclass(slots=True)
class _Walk:
    recording: Recording
    placed: bool
    names: dict[int, tuple[str, bool]]
    # What an operation gave: the same operation once more gives the same.
    made_by: dict[Any, tuple[Ref, ...]] = field(default_factory=dict)

    def given(self, tensor: Any) -> Ref:
        number = len(self.recording.tensors)
        self.recording.numbers[id(tensor)] = number
        self.recording.tensors.append(tensor)
        self.recording.leaves.append(number)
        return Ref(number)

    def held(self, value: Any) -> Ref:
        import jax.numpy as jnp
        import torch

        tensor = tensor_of(value if is_jax(value) else jnp.asarray(value))
        name, learned = self.names.get(id(value), ("", False))
        if learned and tensor.is_floating_point():
            tensor = torch.nn.Parameter(tensor, requires_grad=False)
        ref = self.given(tensor)
        self.recording.held[ref.number] = name
        return ref

    def made(self, var: Any) -> Ref:
        import torch

        name = var.aval.dtype.name
        kind = getattr(torch, name if name != "bool" else "bool", torch.int64)
        self.recording.tensors.append(torch.empty(var.aval.shape, dtype=kind, device="meta"))
        return Ref(len(self.recording.tensors) - 1)

    def value(self, var: Any, environment: Mapping[Any, Any]) -> Any:
        """A variable, or the number that stands in its place."""
        if not hasattr(var, "val"):
            return environment[var]
        if getattr(var.val, "shape", ()):
            return self.held(var.val)
        found = var.val.item() if hasattr(var.val, "item") else var.val
        # A number of single precision as it was written.
        return float(str(var.val)) if isinstance(found, float) and var.aval.dtype.name == "float32" else found

    def equations(self, jaxpr: Any, environment: dict[Any, Any], outer: Site | None) -> None:
        for equation in jaxpr.eqns:
            site = outer or (_site(equation) if self.placed else None)
            given = tuple(self.value(var, environment) for var in equation.invars)
            name = equation.primitive.name
            known = self._known(equation)
            if known is None and name in _CALLS:
                self._called(equation, given, environment, site)
                continue
            rule, arguments, keywords = (known, given, {}) if known else operation(name, given, equation.params)
            if rule == "alias" or (name == _CAST and _same_dtype(equation)):
                environment.update(zip(equation.outvars, arguments, strict=True))
                continue
            made = self._made(equation, rule, arguments, keywords, site)
            environment.update(zip(equation.outvars, made, strict=True))

    def _made(self, equation: Any, rule: str, arguments: Any, keywords: Any, site: Site | None) -> tuple[Ref, ...]:
        """The results of an operation, which is recorded where it is new."""
        arguments, keywords = _plain(arguments), _plain(keywords)
        shapes = tuple((var.aval.shape, var.aval.dtype.name) for var in equation.outvars)
        key = (rule, repr(arguments), repr(keywords), shapes)
        if key not in self.made_by:
            self.made_by[key] = tuple(self.made(var) for var in equation.outvars)
            self.recording.calls.append(Call(rule, arguments, keywords, self.made_by[key], site))
        return self.made_by[key]

    def _known(self, equation: Any) -> str | None:
        """The operation here that a function of JAX is, where one is known."""
        inside = equation.params.get(_CALLS.get(equation.primitive.name, ""))
        known = None if inside is None else _KNOWN.get(equation.params.get("name", ""))
        return known if known is not None and self._is_library(inside) else None

    def _is_library(self, jaxpr: Any) -> bool:
        told = str(getattr(getattr(jaxpr, "jaxpr", jaxpr).debug_info, "func_src_info", ""))
        return told.partition(" at ")[2].startswith(_folders())

    def _called(self, equation: Any, given: tuple[Any, ...], environment: dict[Any, Any], site: Site | None) -> None:
        """The equations of a function that is called. JAX traces one of its own once for all who call it: the place
        is that of the call."""
        closed = equation.params[_CALLS[equation.primitive.name]]
        jaxpr = getattr(closed, "jaxpr", closed)
        inner = dict(zip(jaxpr.invars, given, strict=True))
        inner |= {v: self.held(c) for v, c in zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True)}
        self.equations(jaxpr, inner, site if self._is_library(closed) else None)
        for var, result in zip(equation.outvars, jaxpr.outvars, strict=True):
            environment[var] = self.value(result, inner)


def _same_dtype(equation: Any) -> bool:
    return bool(equation.invars[0].aval.dtype == equation.outvars[0].aval.dtype)


def _plain(value: Any) -> Any:
    """Numbers of NumPy's as Python's."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return value.item() if hasattr(value, "item") else value


@cache
def _folders() -> tuple[str, ...]:
    """Folders of code that only hands calls on: JAX too."""
    import jax

    return (*passed_over(), str(Path(jax.__file__).parent) + os.sep)


def _site(equation: Any) -> Site | None:
    traceback = equation.source_info.traceback
    return None if traceback is None else _first_own(zip(*traceback.raw_frames(), strict=True))


def _raised_at(problem: BaseException) -> Site | None:
    """The innermost place of an exception that is the caller's own."""
    codes = []
    trace = problem.__traceback__
    while trace is not None:
        codes.append((trace.tb_frame.f_code, trace.tb_lasti))
        trace = trace.tb_next
    return _first_own(reversed(codes))


def _first_own(frames: Iterable[tuple[Any, int]]) -> Site | None:
    for code, last in frames:
        if not code.co_filename.startswith(_folders()):
            line, end_line, column, end_column = next(islice(code.co_positions(), last // 2, None))
            line = line or code.co_firstlineno
            return Site(code.co_filename, line, end_line or line, column or 0, end_column or 0)
    return None
