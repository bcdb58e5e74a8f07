"""Definitions that are computed again on the way back, and not kept for it. This text needs PyTorch alone."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# Definitions as a function of what they read: arrays, and numbers among them.
Part = Callable[..., tuple[Any, ...]]


class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Part, *given: Any) -> tuple[Any, ...]:
        ctx.part = part
        ctx.numbers = [None if isinstance(one, Tensor) else one for one in given]
        ctx.save_for_backward(*(one if isinstance(one, Tensor) else None for one in given))
        ctx.set_materialize_grads(False)
        with torch.enable_grad():  # The same kernels run as on the way back, so that the values are the same too.
            results = part(*_leaves(given, ctx.needs_input_grad[1:]))
        fixed = tuple(one.detach() if isinstance(one, Tensor) else one for one in results)
        pairs = zip(fixed, results, strict=True)
        ctx.mark_non_differentiable(*(new for new, one in pairs if isinstance(one, Tensor) and not one.requires_grad))
        return fixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        needs = ctx.needs_input_grad[1:]
        learned = [n for n, need in enumerate(needs) if need]
        asked = [n for n, gradient in enumerate(gradients) if gradient is not None]
        found: list[Tensor | None] = [None] * len(needs)
        if not asked:
            return None, *found
        arrays = zip(ctx.saved_tensors, ctx.numbers, strict=True)
        given = [number if array is None else array for array, number in arrays]
        again = torch.is_grad_enabled()  # To be differentiated once more: then all is kept.
        with torch.enable_grad():
            given = given if again else _leaves(given, needs)
            results = ctx.part(*given)
        # What they lead back to is enough: the arrays go, unless they are kept for the way back.
        edges = [torch.autograd.graph.get_gradient_edge(results[n]) for n in asked]
        del results
        parts = torch.autograd.grad(
            edges,
            [given[n] for n in learned],
            [gradients[n] for n in asked],
            create_graph=again,
            allow_unused=True,
        )
        for n, part in zip(learned, parts, strict=True):
            found[n] = part
        return None, *found


def _leaves(given: Sequence[Any], needs: Sequence[bool]) -> list[Any]:
    """The arrays apart from what made them, and the numbers."""
    pairs = zip(given, needs, strict=True)
    return [one.detach().requires_grad_(need) if isinstance(one, Tensor) else one for one, need in pairs]


def again(part: Part, *given: Any) -> tuple[Any, ...]:
    """The results of `part(*given)`. Of all that it makes on the way nothing is kept; where a gradient arrives, it is
    computed again."""
    learns = torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in given)
    if not learns or torch.compiler.is_compiling():
        return part(*given)
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return part(*given)  # They read what is computed, and know no such function.
    found: tuple[Any, ...] = _Again.apply(part, *given)  # type: ignore[no-untyped-call]
    return found
