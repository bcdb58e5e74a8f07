"""Calling foreign code: with arrays in, an array out, and every way in which that can fail put into words."""

from __future__ import annotations

import copy
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..lift.arguments import is_of_jax
from ..lift.flex import flex_by_definition
from .keeping import keep
from .layout import refusal
from .reports import RUNS, Finding, Report, name_of, place_of


class Unusable(Exception):
    """The callable cannot be asked: the law that it breaks, what was seen, and what to do."""

    def __init__(self, law: str, message: str, cause: str = "", mend: str = "") -> None:
        super().__init__(message)
        self.law, self.message, self.cause, self.mend = law, message, cause, mend


def stopped(target: Any, problem: Unusable, **rest: Any) -> Report:
    """The report of a callable that could not be asked."""
    finding = Finding(problem.law, problem.message, "", problem.cause, problem.mend, place_of(target))
    if problem.law == RUNS:
        return Report(name_of(target), failure=finding, **rest)
    return Report(name_of(target), (finding,), **rest)


class Foreign:
    """A callable of arrays. It is called in double precision where it allows that, and always in evaluation mode."""

    def __init__(self, target: Callable[..., Any], example: Mapping[str, Any]) -> None:
        if not callable(target):
            raise refusal(f"{target!r} cannot be called", "pass a function, or a module")
        self.original = target
        self.traced = is_of_jax(target, tuple(example.values()))
        self.example = {name: _array(value) if self.traced else value for name, value in example.items()}
        self.kind = _kind(self.example)
        self.keywords = _takes(target, tuple(self.example))
        self.precise = not self.traced  # JAX computes in single precision.
        self.real: str | None = None  # The kind of real numbers, where it is neither double nor single.
        self.calls = 0
        self.restore: Callable[[], None] = lambda: None
        self.target = self._evaluating(target)
        self.out_shape: tuple[int, ...] | None = None

    @property
    def tolerance(self) -> float:
        """The relative change that counts as none."""
        return 1e-7 if self.precise else 2e-4

    @property
    def coarseness(self) -> float:
        """How far numbers that the callable holds, or was given, may be from what they were rounded from."""
        module = _module(self.original)
        held = [] if module is None else [*module.parameters(), *module.buffers(), *_tensors(module)]
        kinds = {str(value.dtype).rpartition(".")[2] for value in (*held, *self.example.values()) if _is_torch(value)}
        return max((_ROUNDED[kind] for kind in kinds if kind in _ROUNDED), default=2.0**-53)

    def _evaluating(self, target: Any) -> Any:
        """A module: a copy in double precision, in evaluation mode; or itself, borrowed, where it was patched."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(target, torch.nn.Module):
            return target
        if _is_patched(target):
            self.restore = borrow(target, double=True)
            return target
        try:
            return _copied(target).to("cpu").double()
        except (RuntimeError, TypeError, NotImplementedError, AttributeError):
            self.precise = False
            self.restore = borrow(target, double=False)
            return target

    def hurry(self) -> None:
        """Compile a callable of JAX where it can be traced: after its randomness and its writes were looked for."""
        if not self.traced:
            return
        import jax

        plain, self.target = self.target, jax.jit(self.target)
        try:
            self({name: _plain(value) for name, value in self.example.items()})
        except Unusable:
            self.target = plain

    def prepare(self) -> Any:
        """The output for the example itself; with it, the precision that the callable takes is known."""
        given = {name: _plain(value) for name, value in self.example.items()}
        try:
            return self(given)
        except Unusable as problem:
            if not self.precise or self.kind == "plain":
                raise
            self.precise = False
            module = _module(self.original)
            if module is not None and _is_patched(module):
                self.restore()
                self.restore = borrow(module, double=False)
            elif module is not None:
                self.target = _copied(self.original)
            try:
                return self(given)
            except Unusable:
                raise problem from None

    def convert(self, name: str, value: Any) -> Any:
        """An array of ours as the callable expects it: its library and its kind of number."""
        like = self.example[name]
        if not hasattr(like, "dtype"):
            return self._cast(like if value is None else value)
        array = np.array(value)
        real = array.dtype.kind == "f"
        if _is_torch(like):
            import torch

            tensor = torch.from_numpy(array if array.ndim else array.reshape(()))
            return tensor.to(self._real_dtype if like.dtype.is_floating_point else like.dtype)
        if self.traced:
            import jax.numpy as jnp

            return jnp.asarray(array.astype(np.float32) if real else array)
        if like.dtype.kind == "f":
            return array.astype(self.real or (np.float64 if self.precise else like.dtype))
        return array.astype(like.dtype)

    @property
    def _real_dtype(self) -> Any:
        import torch

        return getattr(torch, self.real or ("float64" if self.precise else "float32"))

    def _cast(self, value: Any) -> Any:
        """Tables that come in a tuple, as cosines and sines do, in the precision of everything else."""
        if type(value) in (tuple, list):
            return type(value)(map(self._cast, value))
        if _is_torch(value) and value.is_floating_point():
            return value.detach().to(self._real_dtype)
        return value

    def __call__(self, arrays: Mapping[str, Any]) -> Any:
        """The output as an array of doubles."""
        return self.run({name: self.convert(name, value) for name, value in arrays.items()})

    def run(self, values: Mapping[str, Any]) -> Any:
        out = _plain(self.first(self.raw(values)))
        if out.dtype.kind not in "fiub":
            raise Unusable("shape", f"the callable returns an array of {out.dtype}")
        return out.astype(np.float64)

    def raw(self, values: Mapping[str, Any]) -> Any:
        """Whatever the callable returns."""
        self.calls += 1
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return self._call(values)
        except (KeyboardInterrupt, SystemExit):
            raise
        except Exception as problem:  # Foreign code may raise anything: it is reported, never hidden.
            raise _reported(problem, self.original) from None

    def _call(self, values: Mapping[str, Any]) -> Any:
        def go() -> Any:
            return self.target(**values) if self.keywords else self.target(*values.values())

        torch = sys.modules.get("torch")
        if torch is None:
            return go()
        with torch.no_grad(), flex_by_definition():
            return go()

    def first(self, returned: Any) -> Any:
        """The output among what was returned: an array, or the first of a tuple or mapping that fits."""
        if hasattr(returned, "dtype"):
            return returned
        for name in ("last_hidden_state", "logits"):
            if hasattr(getattr(returned, name, None), "dtype"):
                return getattr(returned, name)
        if isinstance(returned, Mapping):
            returned = list(returned.values())
        if isinstance(returned, Sequence) and not isinstance(returned, str):
            arrays = [value for value in returned if hasattr(value, "dtype")]
            fitting = [value for value in arrays if self.out_shape in (None, tuple(value.shape))]
            if fitting or arrays:
                return (fitting or arrays)[0]
        raise Unusable(
            "shape",
            f"the callable returns {type(returned).__name__}, and no array",
            "nothing is returned, or not the output",
            "return the output, or a tuple that begins with it",
        )


# Half of the distance between a number near 1 and the next, for each kind of number.
_ROUNDED = {"bfloat16": 2.0**-9, "float16": 2.0**-12, "float32": 2.0**-25}


def _tensors(module: Any) -> list[Any]:
    """The tensors that modules have as plain attributes."""
    return [value for part in module.modules() for value in vars(part).values() if _is_torch(value)]


def _array(value: Any) -> Any:
    """An array of JAX's, where it was one of NumPy's; anything else as it is."""
    import jax.numpy as jnp

    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def _copied(module: Any) -> Any:
    """A copy of a module in evaluation mode, without gates that are shut: weights that are 0 throughout, as some are at
    first, are drawn. Laws hold for all weights, and behind a shut gate none is seen."""
    import torch

    made = copy.deepcopy(module)
    made.eval()  # Some modules return nothing from it.
    generator = torch.Generator().manual_seed(0)
    for name, parameter in made.named_parameters():
        last = name.rpartition(".")[2]
        if parameter.is_floating_point() and not last.startswith("b") and "bias" not in last and not parameter.any():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.data = drawn.to(parameter.dtype).to(parameter.device)
    return made


def _is_patched(module: Any) -> bool:
    """Whether a function was put into a module: it may know the module, and would not know a copy."""
    kinds = (types.FunctionType, types.MethodType, partial)
    return any(isinstance(value, kinds) for part in module.modules() for value in vars(part).values())


def borrow(module: Any, double: bool) -> Callable[[], None]:
    """Put a module into evaluation mode, and into double precision if wanted; return what makes it again what it
    was."""
    restore = keep(module)
    module.eval()
    for each in (*module.parameters(), *module.buffers()):
        if double and each.is_floating_point():
            each.data = each.data.double()
    return restore


def _kind(example: Mapping[str, Any]) -> str:
    return "torch" if any(map(_is_torch, example.values())) else "plain"


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _module(target: Any) -> Any:
    torch = sys.modules.get("torch")
    return target if torch is not None and isinstance(target, torch.nn.Module) else None


def _plain(value: Any) -> Any:
    """An array of NumPy's, whatever it was; anything else as it is."""
    if _is_torch(value):
        value = value.detach()
        if value.is_floating_point():
            value = value.double()
        return value.cpu().numpy()
    return np.asarray(value) if hasattr(value, "dtype") else value


def _takes(target: Any, names: tuple[str, ...]) -> bool:
    """Whether the callable takes these names as keywords."""
    module = _module(target)
    try:
        parameters = inspect.signature(module.forward if module is not None else target).parameters
    except (TypeError, ValueError):
        return False
    if any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values()):
        return True
    named = {
        name
        for name, item in parameters.items()
        if item.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    }
    return set(names) <= named


_DEVICE_WORDS = ("cuda", "triton", "gpu", "flash_attn", "nvidia")


def _reported(problem: Exception, target: Any) -> Unusable:
    """The exception that the callable raised, with its line."""
    if isinstance(problem, Unusable):
        return problem
    frame = problem.__traceback__
    place = ""
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if "indexical" not in name and "site-packages" not in name and not name.startswith("<"):
            place = f" ({name}:{frame.tb_lineno})"
        frame = frame.tb_next
    words = f"{type(problem).__name__}: {str(problem).strip() or 'no message'}".splitlines()[0]
    if any(word in words.lower() for word in _DEVICE_WORDS):
        mend = "run the audit on a machine with that device, or pass a copy that runs on the CPU"
        return Unusable(RUNS, f"the callable needs a device that is not here: {words}{place}", "it needs a GPU", mend)
    mend = "call it with the example by hand: it has to run before it can be audited"
    return Unusable(RUNS, f"the callable raises {words}{place}", "it does not run on the example", mend)
