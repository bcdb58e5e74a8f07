"""The engine as the tests call it: a program lowered, rewritten, printed for a library and loaded as a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from indexical.engine import lower as lowering
from indexical.engine import rules, show
from indexical.engine.dialects import jax_, numpy_, torch_
from indexical.engine.ops import Plan
from indexical.ir import nodes as ir
from indexical.ir.types import Dtype

DIALECTS: dict[str, Any] = {"numpy": numpy_.NumPy, "torch": torch_.Torch, "jax": jax_.Jax}
LIBRARIES = tuple(name for name in DIALECTS if find_spec(name))
# What neither compiling nor a call may raise.
BUGS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, SyntaxError, TypeError)
BUGS += (ValueError,)
# The input that a program of a test gives away: no text says so.
GIVEN_AWAY = "given_away"


@dataclass(frozen=True)
class Built:
    """A program for one library: its plan as it is lowered and as it is printed, the source, and the function."""

    lowered: Plan
    plan: Plan
    source: str
    scope: dict[str, Any]

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        found = self.scope["program"](*arrays)
        return found if len(self.plan.wanted) > 1 else (found,)

    def traced(self, *arrays: Any) -> tuple[Any, ...]:
        """The same, traced and compiled at once by JAX; as it stands, where a size hangs on a value of an array."""
        import jax

        with jax.enable_x64(True):
            moving = {n: array for n, array in enumerate(arrays) if hasattr(array, "shape")}
            called = jax.jit(lambda given: self(*(given.get(n, array) for n, array in enumerate(arrays))))
            try:
                found: tuple[Any, ...] = called(moving)
            except jax.errors.ConcretizationTypeError:
                found = self(*arrays)
        return found

    @property
    def refused(self) -> type[Exception]:
        """What the source raises where it refuses a call."""
        found: type[Exception] = self.scope.get("Refused", ValueError)
        return found


def build(
    program: ir.Program,
    dtypes: Mapping[str, Dtype],
    library: str,
    wanted: Sequence[str],
    isolate: bool = False,
    plainly: bool = False,
    frees: bool = False,
) -> Built:
    """A program for one library and arrays of these dtypes; `plainly`, only by the rules that make it printable; one
    that `frees` lets go of each array after its last reader, however few there are."""
    program = giving_away(program)
    lowered = lowering.lower(program, dict(dtypes), tuple(wanted), isolate)
    dialect = DIALECTS[library]()
    target = rules.Target(frozenset(dialect.kernels), isolate, dialect.rounds_once)
    plan = rules.legalise(lowered, target) if plainly else rules.optimise(lowered, target)
    source = show.show(plan, dialect, frees)
    return Built(lowered, plan, source, load(source))


def giving_away(program: ir.Program) -> ir.Program:
    """A program whose input of that name may be written to."""
    inputs = (replace(one, owned=one.owned or one.name == GIVEN_AWAY) for one in program.inputs)
    return replace(program, inputs=tuple(inputs))


def load(source: str, **given: Any) -> dict[str, Any]:
    """What a source defines, which finds some arrays."""
    scope: dict[str, Any] = {"__name__": "emitted", **given}
    exec(compile(source, "<emitted>", "exec"), scope)
    return scope


def as_numpy(value: Any) -> np.ndarray[Any, Any]:
    """An array's numbers as NumPy has them; those that NumPy lacks in 32 bits."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        value = value.resolve_conj().resolve_neg()
        return (value.float() if value.dtype is torch.bfloat16 else value).numpy()
    return np.asarray(value.astype("float32") if getattr(value, "dtype", None) == "bfloat16" else value)


def dtype_name(value: Any) -> str:
    """The dtype of an array, as all libraries call it."""
    return str(value.dtype).removeprefix("torch.")
