"""The module in which two runs of a model first differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Run = Callable[[Callable[[], None]], Any]  # A run; it calls what it is given when its last forward pass begins.
Part = Callable[[Any], Any]


@dataclass
class Call:
    """One call of a module: what went in and came out, as far as it lies along examples and positions."""

    name: str
    module: Any
    given: list[Any]
    returned: list[Any] = field(default_factory=list)


def bisect(
    model: Any,
    runs: tuple[Run, Run],
    parts: tuple[Part, Part],
    tolerance: float,
    without: Callable[[Any], bool] | None = None,
) -> tuple[str, Any]:
    """The module whose inputs are the same in the parts that count, and whose output is not: the first, innermost.
    Modules that it is to do `without` may differ, and so may what they return wherever it is handed on."""
    found = []
    for run in runs:
        calls: list[Call] = []
        with _recorded(model, calls) as start:
            run(start)
        found.append(calls if without is None else _without(calls, without))
    first, second = found
    if [call.name for call in first] != [call.name for call in second]:
        return "", None
    for one, two in zip(first, second, strict=True):
        if not one.name or not _agree(one.given, two.given, parts, tolerance):
            continue
        if not _agree(one.returned, two.returned, parts, tolerance):
            return one.name, one.module
    return "", None


def _without(calls: list[Call], left_out: Callable[[Any], bool]) -> list[Call]:
    free = [array for call in calls if left_out(call.module) for array in call.returned]
    kept = [call for call in calls if not left_out(call.module)]
    for call in kept:
        call.given = [x for x in call.given if not any(x.shape == y.shape and bool((x == y).all()) for y in free)]
    return kept


def same(first: Any, second: Any, tolerance: float) -> bool:
    if first.shape != second.shape:
        return False
    scale = max(1.0, float(first.abs().max()))
    return float((first.double() - second.double()).abs().max()) <= tolerance * scale


def _agree(first: list[Any], second: list[Any], parts: tuple[Part, Part], tolerance: float) -> bool:
    for one, two in zip(first, second, strict=False):
        left, right = parts[0](one), parts[1](two)
        if left.shape == right.shape and left.numel() and not same(left, right, tolerance):
            return False
    return True


@contextmanager
def _recorded(model: Any, calls: list[Call]) -> Iterator[Callable[[], None]]:
    """The calls of all modules, in the order in which they end; what it gives forgets those made so far."""
    handles = []
    running: list[Call] = []

    def before(name: str) -> Callable[..., None]:
        def hook(module: Any, arguments: Any, named: Any) -> None:
            running.append(Call(name, module, _arrays([*arguments, *named.values()])))

        return hook

    def after(module: Any, arguments: Any, named: Any, returned: Any) -> None:
        call = running.pop()
        call.returned = _arrays(returned if isinstance(returned, tuple | list) else [returned])
        calls.append(call)

    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(before(name), with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    try:
        yield calls.clear
    finally:
        for handle in handles:
            handle.remove()


def _arrays(values: Any) -> list[Any]:
    """Copies of activations: (example, position, feature)."""
    found = []
    for value in values:
        if hasattr(value, "is_floating_point") and value.is_floating_point() and value.ndim == 3:
            found.append(value.detach().clone())
    return found
