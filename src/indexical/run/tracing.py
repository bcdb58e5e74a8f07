"""Whether PyTorch reads a call rather than running it. Nothing is imported for it: a call that is read has PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kernel import Engine


def tracing_test() -> Callable[[], bool]:
    """Return the test for whether `torch.compile` is tracing a call rather than running it."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return _is_compiling if compiler is None else compiler.is_compiling


def _is_compiling() -> bool:
    """The same while PyTorch is not loaded, which it may be at any time."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and compiler.is_compiling()


def transform_test() -> Callable[[], bool]:
    """Return the test for whether a transform of `torch.func` traces a call."""
    torch = sys.modules.get("torch")
    return getattr(getattr(torch, "_C", None), "_are_functorch_transforms_active", _never)


def _never() -> bool:
    return False


def is_replaced() -> bool:
    """Whether something traces, maps or replaces what PyTorch does: arrays that are made now would be no plain ones."""
    core = sys.modules["torch"]._C
    stacks = core._len_torch_dispatch_stack() + core._len_torch_function_stack()
    return bool(stacks) or core._are_functorch_transforms_active() or core._get_tracing_state() is not None


def differentiates_again() -> bool:
    """Whether an active transform needs a derivative that kernels lack: a tangent, or a derivative of a derivative."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    if not transform_test()():
        return False
    active = torch._C._functorch
    kinds = [transform.key() for transform in active.get_interpreter_stack()]
    return active.TransformType.Jvp in kinds or kinds.count(active.TransformType.Grad) > 1


def finder(engine: Callable[[], Engine], functions: dict[int, Callable[..., Any]]) -> Callable[..., int]:
    """A function that finds the kernel for tensors of some dtypes, ranks and devices, for `torch.compile`: it runs
    while a call is traced, and the number it gives to an emitted function is a constant of the graph."""

    def find(kinds: tuple[Any, ...], wanted: tuple[str, ...], isolate: bool, recompute: bool = True) -> int:
        empty = sys.modules["torch"].empty
        kernels, arrays = engine(), {}
        for tensor, (dtype, rank, device) in zip(kernels.program.inputs, kinds, strict=True):
            # Of a plain number there is another of its kind instead of a device.
            arrays[tensor.name] = device if dtype is None else empty((1,) * rank, dtype=dtype, device=device)
        function = kernels.kernel(kernels.prepare(arrays, "torch"), wanted, isolate, recompute).function
        number = next((n for n, known in functions.items() if known is function), len(functions))
        functions[number] = function
        return number

    find._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return find
