"""The arrays that the attention of a PyTorch model takes and gives, call by call, while the model runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ..records import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of attention in one module: queries, keys and values of shape (batch, heads, positions, features).

    `mask` is what may be heard, Booleans, or what is added to the scores; `given` is what came out, of the shape of the
    queries with the features of the values. Of a module that projects it, `given` is projected, and `project` does the
    same to what the relation gives. `run` counts how often the whole model was run before.
    """

    name: str
    queries: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor | None
    causal: bool
    scale: float
    given: Tensor
    project: Callable[[Tensor], Tensor] | None = None
    run: int = 0


class Capture:
    """Watches a model: `calls` grows while it runs, and `ids` are the token numbers that it was given last."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.calls: list[Call] = []
        self.ids: Tensor | None = None
        self.skipped: list[str] = []
        self.notes: list[str] = []
        self.run = 0
        self._names: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> Capture:
        for name, module in self.model.named_modules():
            self._keep(module.register_forward_pre_hook(self._enter(name)))
            if isinstance(module, nn.MultiheadAttention):
                self._keep(module.register_forward_hook(self._leave_multihead(name), with_kwargs=True))
            self._keep(module.register_forward_hook(self._leave, always_call=True))
        self._keep(self.model.register_forward_pre_hook(self._begin, with_kwargs=True))
        self._without_eager()
        self._stack.enter_context(_Mode(self))
        return self

    def __exit__(self, *problem: Any) -> None:
        self._stack.close()
        self._names.clear()

    def _keep(self, handle: Any) -> None:
        self._stack.callback(handle.remove)

    def _enter(self, name: str) -> Callable[..., None]:
        def push(module: nn.Module, arguments: Any) -> None:
            self._names.append(name)

        return push

    def _leave(self, module: nn.Module, arguments: Any, result: Any) -> None:
        self._names.pop()

    def _without_eager(self) -> None:
        """Have models of Hugging Face call PyTorch's attention, which can be seen, while they are watched."""
        configs: list[Any] = [module.config for module in self.model.modules() if hasattr(module, "config")]
        found = {id(config): config for config in configs}
        for config in found.values():
            if getattr(config, "_attn_implementation", None) == "eager":
                self.notes.append("The model was run with PyTorch's attention in place of its own (`eager`).")
                config._attn_implementation = "sdpa"
                self._stack.callback(setattr, config, "_attn_implementation", "eager")

    def _begin(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.run += 1
        for value in (named.get("input_ids"), *arguments[:1]):
            if isinstance(value, Tensor) and not value.is_floating_point() and value.ndim in (1, 2):
                self.ids = value.detach().cpu()
                return

    # ------------------------------------------------------------- attention

    def seen(self, arguments: tuple[Any, ...], named: dict[str, Any], result: Tensor) -> None:
        """Take down a call of `scaled_dot_product_attention`."""
        order = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
        given = {**dict(zip(order, arguments, strict=False)), **named}
        query, key, value = (given[name].detach() for name in order[:3])
        name = self._names[-1] if self._names else ""
        if query.ndim != 4 or key.ndim != 4 or result.ndim != 4:
            self.skipped.append(f"{name}: arrays of {query.ndim} axes")
            return
        scale = given.get("scale")
        self.calls.append(
            Call(
                name,
                query,
                key,
                value,
                given.get("attn_mask"),
                bool(given.get("is_causal", False)),
                1 / math.sqrt(query.shape[-1]) if scale is None else float(scale),
                result.detach(),
                run=self.run,
            )
        )

    def _leave_multihead(self, name: str) -> Callable[..., None]:
        def read(module: nn.MultiheadAttention, arguments: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
            order = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
            given = {**dict(zip(order, arguments, strict=False)), **named}
            if module.bias_k is not None or module.add_zero_attn or given["query"].ndim != 3:
                self.skipped.append(f"{name}: learned or empty keys, or no batch")
                return
            self.calls.append(replace(_multihead(name, module, given, result[0].detach()), run=self.run))

        return read


class _Mode(TorchFunctionMode):
    """Sees every call of PyTorch's attention, in whatever module it is written."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self.capture = capture

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is functional.scaled_dot_product_attention:
            self.capture.seen(args, kwargs or {}, result)
        return result


@torch.no_grad()
def _multihead(name: str, module: nn.MultiheadAttention, given: dict[str, Any], result: Tensor) -> Call:
    """The attention inside of `nn.MultiheadAttention`, from what it was given and its parameters."""
    order = ("query", "key", "value")
    bias: Tensor | None = getattr(module, "in_proj_bias", None)
    matrices: tuple[Tensor, ...]
    if getattr(module, "in_proj_weight", None) is not None:
        matrices = module.in_proj_weight.chunk(3)
    else:
        matrices = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    parts = bias.chunk(3) if bias is not None else (None, None, None)
    arrays: list[Tensor] = []
    for part, matrix, shift in zip(order, matrices, parts, strict=True):
        array = functional.linear(given[part].detach(), matrix, shift)
        array = array if module.batch_first else array.transpose(0, 1)
        arrays.append(array.reshape(*array.shape[:-1], module.num_heads, -1).transpose(1, 2))
    # In their masks, True is what may not be heard.
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    if mask is not None:
        mask = _heard(mask.reshape(-1, module.num_heads, *mask.shape[1:]) if mask.ndim == 3 else mask)
    if padding is not None:
        kept = _heard(padding).reshape(-1, 1, 1, padding.shape[-1])
        mask = kept if mask is None else _both(mask, kept)
    output = result if module.batch_first else result.transpose(0, 1)
    out = module.out_proj

    def project(heads: Tensor) -> Tensor:
        return functional.linear(heads.transpose(1, 2).flatten(-2), out.weight.detach(), out.bias)

    query, key, value = arrays
    return Call(name, query, key, value, mask, False, 1 / math.sqrt(query.shape[-1]), output, project)


def _heard(mask: Tensor) -> Tensor:
    return ~mask if mask.dtype == torch.bool else mask


def _both(one: Tensor, other: Tensor) -> Tensor:
    """Two masks at once: Booleans together, numbers added, `-inf` for what may not be heard."""
    if one.dtype == other.dtype == torch.bool:
        return one & other
    numbers = [
        torch.zeros(part.shape).masked_fill(~part, -torch.inf) if part.dtype == torch.bool else part
        for part in (one, other)
    ]
    return numbers[0] + numbers[1]
