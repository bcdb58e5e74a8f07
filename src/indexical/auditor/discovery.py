"""Every attention inside a model, found by its calls: the module that makes it, what it was called with, what it does.

An attention is a call of PyTorch's own (`scaled_dot_product_attention`, FlexAttention), or a softmax whose result meets
values in a product. Its owner is the innermost module around it that has weights.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..lift.flex import flex_by_definition
from .hooks import told_of_calls
from .intercept import _PRODUCTS, _taken_apart

# Products of two activations: a projection is no meeting of weights and values.
_MEETINGS = _PRODUCTS - {"linear", "addmm", "conv1d", "conv2d"}
_SOFTMAX = frozenset(("softmax", "_safe_softmax", "_softmax"))
_WHOLE = "scaled_dot_product_attention"
_LIBRARY = "multi_head_attention_forward"


@dataclass
class Event:
    """One attention: the shapes of its weights and values, and how many scores a row had."""

    weights: tuple[int, ...]
    values: tuple[int, ...]
    scored: int  # Scores of a row: more than keys where a sink is among them.


@dataclass
class Site:
    """A module that attends: its name, what it was given, by the names of its arguments, and what it returned."""

    name: str
    module: Any
    given: dict[str, Any]
    returned: Any = None
    events: list[Event] = field(default_factory=list)
    unnamed: bool = False  # Arguments have no names.


@dataclass
class _Frame:
    name: str
    module: Any
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    site: Site | None = None


def find_sites(model: Any, run: Callable[[], Any]) -> list[Site]:
    """The modules of a model that attend in a run, in the order of their first calls."""
    import torch

    sites: dict[str, Site] = {}
    running: list[_Frame] = []

    def begin(name: str, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        running.append(_Frame(name, module, arguments, named))

    def end(name: str, returned: Any) -> None:
        site = running.pop().site
        if site is not None:
            site.returned = _copied(returned)

    with torch.no_grad(), warnings.catch_warnings(), told_of_calls(model, begin, end), flex_by_definition():
        warnings.simplefilter("ignore")
        with _following(running, sites):
            run()
    return list(sites.values())


def _following(running: list[_Frame], sites: dict[str, Site]) -> Any:
    """A context in which softmaxes are followed to the values that they meet."""
    import torch
    from torch.overrides import TorchFunctionMode

    weights: dict[int, tuple[Any, int]] = {}  # What came of a softmax, and its scores a row.

    def of(value: Any) -> tuple[Any, int] | None:
        kept = weights.get(id(value))
        return kept if kept is not None and kept[0] is value else None

    def found(event: Event) -> None:
        owner = next((frame for frame in reversed(running) if _has_weights(frame.module)), None)
        if owner is None:
            return
        if owner.site is None and owner.name not in sites:
            owner.site = sites[owner.name] = _site(owner)
        if owner.site is not None:
            owner.site.events.append(event)

    class Following(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", "")
            if name == _LIBRARY:
                with _taken_apart(), self:
                    return func(*args, **kwargs)
            result = func(*args, **kwargs)
            given = [x for x in _flat((*args, *kwargs.values())) if hasattr(x, "dtype")]
            if name == _WHOLE:
                q, k, v = (*args, *(kwargs[x] for x in ("query", "key", "value") if x in kwargs))[:3]
                found(Event((*q.shape[:-1], k.shape[-2]), tuple(v.shape), k.shape[-2]))
                return result
            if not hasattr(result, "dtype"):
                return result
            tagged = [known for x in given if (known := of(x)) is not None]
            if name in _SOFTMAX and result.ndim > 2:
                weights[id(result)] = (result, result.shape[-1])
            elif tagged and name in _PRODUCTS:
                met = [x for x in given if of(x) is None and x.ndim > 1 and not isinstance(x, torch.nn.Parameter)]
                if met and name in _MEETINGS:
                    found(Event(tuple(tagged[0][0].shape), tuple(met[0].shape), tagged[0][1]))
            elif tagged and result.is_floating_point() and result.ndim > 2:
                weights[id(result)] = (result, tagged[0][1])
            return result

    return Following()


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flat(value)
        else:
            yield value


def _has_weights(module: Any) -> bool:
    return any(parameter.ndim >= 2 for parameter in module.parameters())


def _site(frame: _Frame) -> Site:
    try:
        bound = inspect.signature(frame.module.forward).bind(*frame.arguments, **frame.named)
    except (TypeError, ValueError):
        return Site(frame.name, frame.module, {}, unnamed=True)
    given: dict[str, Any] = {}
    unnamed = False
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            given.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            unnamed |= bool(value)
        else:
            given[name] = value
            unnamed |= kind is inspect.Parameter.POSITIONAL_ONLY
    return Site(frame.name, frame.module, {name: _copied(value) for name, value in given.items()}, unnamed=unnamed)


def _copied(value: Any) -> Any:
    """Tensors as they are now; anything else as it is."""
    if type(value) in (tuple, list):
        return type(value)(map(_copied, value))
    return value.detach().clone() if hasattr(value, "detach") else value
