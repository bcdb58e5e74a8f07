"""A function of tensors and its gradient, written by hand, as PyTorch takes them: operators with shapes, derivative and
batching, so that `torch.compile`, `torch.func` and autograd read them. This text needs PyTorch and nothing else.
"""

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

OPERATORS: Any = torch.library.Library(__name__.replace(".", "_"), "FRAGMENT")  # type: ignore[no-untyped-call]
_SPACE = getattr(torch.ops, OPERATORS.ns)
_operator_numbers = itertools.count(2)
_registering = threading.RLock()
_taken: set[str] = set()
# The functions that operators run, by their full names.
bodies: dict[str, Callable[..., Any]] = {}
_NUMBERS = "SymInt[] wholes, float[] reals"
_PLAIN = (Tensor, torch.nn.Parameter)


def _free(name: str) -> str:
    """A name for an operator that no other has or will have."""
    free = name = name if name.isascii() else "attend"  # PyTorch names its operators in ASCII.
    with _registering:
        while free in _taken or hasattr(_SPACE, free):
            free = f"{name}_{next(_operator_numbers)}"
        _taken.add(free)
    return free


def _define_free(free: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> str:
    """A new operator by a name that is free; its full name."""
    OPERATORS.define(free + schema)
    OPERATORS.impl(free, run, "CompositeExplicitAutograd")
    full = f"{OPERATORS.ns}::{free}"
    torch.library.register_fake(full, fake, lib=OPERATORS)
    bodies[full] = run
    return full


def define_operator(
    name: str,
    schema: str,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    derive: Callable[..., Any] | None = None,
    save: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """A new operator, with a number where the name is taken. It is registered by its first call: that takes tens of
    milliseconds, and much of what a program brings along is never called. `torch.compile` does not look inside."""
    free = _free(name)

    def register() -> bool:
        with _registering:
            if not hasattr(_SPACE, free):
                full = _define_free(free, schema, run, fake)
                if derive is not None:
                    torch.library.register_autograd(full, derive, setup_context=save, lib=OPERATORS)
            return True

    register._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def operator(*given: Any) -> Any:
        register()
        return getattr(_SPACE, free).default(*given)

    return operator


def _is_recorded(tensors: Sequence[Tensor]) -> bool:
    """Whether a graph is made of what is called, or the tensors are of a kind that only operators know: subclasses, and
    those that have no numbers."""
    if torch.compiler.is_compiling():
        return True
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return True
    return any(type(tensor) not in _PLAIN or tensor.is_meta for tensor in tensors)


def is_transformed() -> bool:
    """Whether `torch.func` or forward mode reads what is computed. Operators know neither, and would lose a tangent."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def is_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors are computed with as they are, by PyTorch and nobody else: autograd alone may want to know."""
    return not _is_recorded(tensors) and not is_transformed()


def is_captured(tensor: Tensor) -> bool:
    """Whether a tensor goes into a CUDA graph, or whoever calls does not want to wait: nobody looks at its numbers."""
    return tensor.is_cuda and (torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode() > 0)


def row_totals(total: Tensor) -> Tensor:
    """The logarithm of the total weight of rows as it is handed out: -inf for a row that hears nothing."""
    return total.masked_fill(total == math.inf, -math.inf)


def sink_gradient(gradient: Tensor, out: Tensor, total: Tensor, sink: Tensor, gain: Tensor | None = None) -> Tensor:
    """The gradient to the sink of an attention: it takes its share of the total weight, of which this is the logarithm,
    from the output. `gain` is the gradient of that logarithm. Nothing is done in place, for `torch.func.vmap`."""
    lost = (gradient.to(total.dtype) * out.to(total.dtype)).sum(-1)
    lost = lost if gain is None else lost - gain
    return -((sink - total).exp() * lost).sum_to_size(sink.shape).to(sink.dtype)


def map_one_by_one(function: Any, count: int, dims: Sequence[Any], given: Sequence[Any]) -> tuple[Any, Any]:
    """`torch.func.vmap` over tensors whose axes only the function knows: one after the other."""
    found = [
        function.apply(*(x.select(dim, n) if isinstance(dim, int) else x for x, dim in zip(given, dims, strict=True)))
        for n in range(count)
    ]
    return tuple(map(torch.stack, zip(*found, strict=True))), (0,) * len(found[0])


def _returning_function(name: str, outputs: int, run_backward: Callable[..., Any]) -> Any:
    """The gradient, as a function of tensors that `torch.func` reads and that refuses to be differentiated."""

    class Returning(torch.autograd.Function):
        @staticmethod
        def forward(numbers: Any, needs: tuple[bool, ...], *tensors: Any) -> tuple[Tensor, ...]:
            gradients, given, found = tensors[:outputs], tensors[outputs:-outputs], tensors[-outputs:]
            return tuple(run_backward(list(gradients), list(given), list(found), *map(list, numbers), list(needs)))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, *_: Any) -> None:
            raise RuntimeError(f"{name} has no second derivative: call the program with `isolate=True`, which has")

        jvp = backward

        @staticmethod
        def vmap(info: Any, dims: tuple[Any, ...], *given: Any) -> tuple[Any, Any]:
            return map_one_by_one(Returning, info.batch_size, dims, given)

    return Returning


def _calling_functions(
    name: str, run: Callable[..., Any], derive: Callable[..., Any], derive_first: Callable[..., Any]
) -> tuple[Any, Any, Any]:
    """The function of tensors as autograd reads it, alike with one output alone, and as `torch.func` reads it, which
    takes several times longer."""

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, numbers: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
            output = tuple(run(list(tensors), *map(list, numbers)))
            Mapped.setup_context(ctx, (numbers, *tensors), output)
            return output

        backward = staticmethod(derive)

    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, again: Any, numbers: Any, *tensors: Tensor) -> Tensor:
            output = (again and again(*tensors)) or tuple(run(list(tensors), *map(list, numbers)))
            ctx.numbers = numbers
            ctx.save_for_backward(*tensors, *output)
            return output[0]  # type: ignore[no-any-return]

        backward = staticmethod(derive_first)

    class Mapped(torch.autograd.Function):
        @staticmethod
        def forward(numbers: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
            return tuple(run(list(tensors), *map(list, numbers)))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            ctx.numbers, *tensors = inputs
            ctx.save_for_backward(*tensors, *output)
            ctx.set_materialize_grads(False)

        backward = staticmethod(derive)

        @staticmethod
        def jvp(ctx: Any, *_: Any) -> None:
            raise NotImplementedError(f"{name} has no forward mode: call the program with `isolate=True`, which has")

        @staticmethod
        def vmap(info: Any, dims: tuple[Any, ...], *given: Any) -> tuple[Any, Any]:
            return map_one_by_one(Mapped, info.batch_size, dims, given)

    return Plain, First, Mapped


def differentiable(
    name: str,
    run: Callable[..., Sequence[Tensor]],
    run_backward: Callable[..., Sequence[Tensor]],
    fake: Callable[..., Sequence[Tensor]],
    fake_backward: Callable[..., Sequence[Tensor]],
    outputs: int = 2,
) -> Callable[..., Sequence[Tensor]]:
    """A function of tensors, whole numbers and reals with a gradient: `call(tensors, wholes, reals)`.

    `run(tensors, wholes, reals)` gives so many new tensors, the outputs. `run_backward(gradients, tensors, found,
    wholes, reals, needs)` gives a gradient to each tensor whose `needs` is true; `gradients` are those of the outputs
    `found`, None where nobody asks; `call.backward` takes the same, for a call that was made. The fakes take the same
    and give empty tensors of the same shapes, strides and dtypes: they see no values. All arguments but numbers are
    lists. `call.first(again, (wholes, reals), *tensors)` gives the first output of plain tensors to autograd, found by
    `again(*tensors)`, or by `run` where that is None or gives None. A second derivative is refused. Operators are
    registered when something records a call: `torch.compile`, a graph, a mode.
    """

    forward, backward = _free(name), _free(f"{name}_backward")
    returning = _returning_function(name, outputs, run_backward)

    def flows(numbers: Any, needs: Sequence[bool], gradients: Sequence[Any], saved: Sequence[Tensor]) -> list[Any]:
        """The gradient to each of the tensors, None where it is not needed."""
        if not any(needs) or all(gradient is None for gradient in gradients):
            return [None] * len(needs)
        given = (list(gradients), list(saved[:-outputs]), list(saved[-outputs:]), *map(list, numbers), list(needs))
        if _is_recorded([*saved, *(gradient for gradient in gradients if gradient is not None)]):
            register()
            found = getattr(_SPACE, backward).default(*given)
        elif is_transformed() or torch.is_grad_enabled():
            found = returning.apply(numbers, tuple(needs), *gradients, *saved)
        else:
            found = run_backward(*given)
        parts = iter(found)
        return [next(parts) if need else None for need in needs]

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors, *ctx.numbers = inputs
        ctx.save_for_backward(*tensors, *(output if outputs > 1 else (output,)))
        ctx.set_materialize_grads(False)

    def derive(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        without: list[Any] = [None if numbers else [] for numbers in ctx.numbers]  # An empty list counts as tensors.
        return flows(ctx.numbers, ctx.needs_input_grad[0], gradients, ctx.saved_tensors), *without

    def derive_plainly(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        return None, *flows(ctx.numbers, ctx.needs_input_grad[1:], gradients, ctx.saved_tensors)

    def derive_first(ctx: Any, gradient: Tensor | None) -> tuple[Any, ...]:
        gradients = (gradient, *[None] * (outputs - 1))
        return None, None, *flows(ctx.numbers, ctx.needs_input_grad[2:], gradients, ctx.saved_tensors)

    def register() -> bool:
        """Register the operators, which takes milliseconds, unless they are. `torch.compile` calls it while it reads a
        call, and does not look inside: the names of the operators, for which graphs are kept, stand outside."""
        with _registering:
            if hasattr(_SPACE, forward):
                return True
            results = ", ".join(["Tensor"] * outputs)
            schema = f"(Tensor[] tensors, {_NUMBERS}) -> ({results})"
            full = _define_free(forward, schema, _grouped(run, outputs), _grouped(fake, outputs))
            schema = f"(Tensor?[] gradients, Tensor[] tensors, Tensor[] found, {_NUMBERS}, bool[] needs) -> Tensor[]"
            full_backward = _define_free(backward, schema, _listed(run_backward), _listed(fake_backward))
            torch.library.register_autograd(full, derive, setup_context=save, lib=OPERATORS)
            torch.library.register_autograd(full_backward, returning.backward, lib=OPERATORS)
            return True

    # `torch.compiler.assume_constant_result` does the same, and loads the compiler, which takes seconds.
    register._dynamo_marked_constant = True  # type: ignore[attr-defined]
    plain, first, mapped = _calling_functions(name, run, derive_plainly, derive_first)
    # Its own `apply` asks about transforms, of which there are none where it is called.
    apply = super(torch.autograd.Function, plain).apply

    def call(tensors: Sequence[Tensor], wholes: Sequence[int] = (), reals: Sequence[float] = ()) -> Sequence[Tensor]:
        given: Any
        if _is_recorded(tensors):
            register()
            given = getattr(_SPACE, forward).default(list(tensors), list(wholes), list(reals))
            return given if outputs > 1 else (given,)
        if is_transformed():
            given = mapped.apply((wholes, reals), *tensors)
        elif torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            given = apply((wholes, reals), *tensors)
        else:
            given = run(list(tensors), list(wholes), list(reals))
        return given  # type: ignore[no-any-return]

    def back(
        gradients: Sequence[Any],
        tensors: Sequence[Tensor],
        found: Sequence[Tensor],
        wholes: Sequence[int],
        reals: Sequence[float],
        needs: Sequence[bool],
    ) -> list[Any]:
        return flows((wholes, reals), needs, gradients, (*tensors, *found))

    call.backward, call.first = back, super(torch.autograd.Function, first).apply  # type: ignore[attr-defined]
    return call


def _grouped(function: Callable[..., Sequence[Tensor]], outputs: int) -> Callable[..., Any]:
    """The function with its results as an operator gives them: a tuple, or one tensor alone."""
    return lambda *given: tuple(function(*given)) if outputs > 1 else function(*given)[0]


def _listed(function: Callable[..., Sequence[Tensor]]) -> Callable[..., list[Tensor]]:
    return lambda *given: list(function(*given))
