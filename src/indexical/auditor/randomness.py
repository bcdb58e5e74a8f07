"""Randomness in evaluation mode, and the module that draws it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .reports import Finding, place_of
from .running import Run, Side

_DROPS = ("dropout", "bernoulli", "rand_like", "rrelu")
_DRAWS = ("rand", "randn", "randint", "randperm", "normal", "multinomial", "randn_like", "uniform_", "normal_")


def randomness(side: Side, run: Run, worst: float) -> tuple[Finding | None, str]:
    """The finding of dropout that is on in evaluation mode, or why randomness is not judged."""
    from torch.overrides import TorchFunctionMode

    stack: list[tuple[str, Any]] = []
    drops: list[tuple[str, Any, str]] = []
    draws: list[str] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            name, named = getattr(function, "__name__", ""), named or {}
            if _drops(name, given, named):
                drops.append((*(stack[-1] if stack else ("", side.model)), name))
            elif name in _DRAWS:
                draws.append(name)
            return function(*given, **named)

    def enter(name: str) -> Callable[..., None]:
        return lambda module, given: stack.append((name, module))

    def leave(module: Any, given: Any, returned: Any) -> None:
        stack.pop()

    handles = []
    for name, module in side.model.named_modules():
        handles.append(module.register_forward_pre_hook(enter(name)))
        handles.append(module.register_forward_hook(leave))
    try:
        with Mode():
            side.go(run)
    finally:
        for handle in handles:
            handle.remove()
    if not drops and draws:
        return None, f"all further laws: the model draws random numbers in evaluation mode (`torch.{draws[0]}`)"
    name, module, function = drops[0] if drops else ("", side.model, "")
    where = f"in `{name}` ({type(module).__name__}): " if name else ""
    cause = f"{where}dropout, or other randomness, is on in evaluation mode"
    mend = "`F.dropout(x, p, training=self.training)`, or `nn.Dropout`"
    if function == "scaled_dot_product_attention":
        mend = "`dropout_p=self.p if self.training else 0.0`"
    message = "two calls with the same inputs give different outputs"
    hints = (function,) if function else ()
    place = place_of(module, hints)
    return Finding("deterministic", message, f"they differ by {worst:.3g}", cause, mend, place), ""


def _drops(name: str, given: Any, named: Any) -> bool:
    """Whether a call of PyTorch leaves out numbers at random."""
    if name == "scaled_dot_product_attention":
        return bool(named.get("dropout_p") or (len(given) > 4 and given[4]))
    if not any(word in name for word in _DROPS):
        return False
    training = named.get("training", named.get("train", given[2] if len(given) > 2 else True))
    chance = named.get("p", given[1] if len(given) > 1 else 0.5)
    return "dropout" not in name or bool(training and chance)
