"""Arguments of a callable: their names, arrays like them, and what the callable holds itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..diagnostics import CallError, Diagnostic, Label
from ..run.jax_arrays import is_jax
from ..syntax.tokens import KEYWORDS
from ..syntax.vocabulary import WORDS
from .recording import Site, flat
from .values import Kind

ON_VALUES = "what is done next depends on a value of the arrays"
KEEP_NUMBERS = "a relation is the same for all values: keep the number as a tensor"
FROM_OUTSIDE = "`ix.audit` asks it from outside"


def refusal(code: str, message: str, site: Site | None = None, help: str | None = None) -> CallError:
    span = None if site is None else site.span
    labels = () if span is None else (Label(span),)
    where = f" ({site})" if site is not None and span is None else ""
    return CallError([Diagnostic(code, message + where, labels, help=help)])


def tensor_of(value: Any) -> Any:
    """An array as a tensor; anything else as it is."""
    import numpy as np
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    return value


def is_of_jax(function: Callable[..., Any], values: Sequence[Any]) -> bool:
    """Whether a callable is one of JAX: it is given arrays of JAX's, or plain ones and is written with JAX."""
    found = flat(list(values))
    if any(map(is_jax, found)):
        return True
    if any(type(value).__module__.startswith("torch") for value in found):
        return False
    libraries = _libraries(function, set())
    return "jax" in libraries and "torch" not in libraries


def _libraries(function: Any, seen: set[Any]) -> set[str]:
    """The packages whose modules a callable names, or a function that it names."""
    while isinstance(function, partial):
        function = function.func
    target = inspect.unwrap(getattr(function, "__func__", function))
    target = target if inspect.isfunction(target) else type(function).__dict__.get("__call__")
    if not inspect.isfunction(target):
        return {type(function).__module__.split(".")[0]}
    code = target.__code__
    if code in seen:
        return set()
    seen.add(code)
    names = {name for part in (code, *code.co_consts) for name in getattr(part, "co_names", ())}
    closed = {name: cell.cell_contents for name, cell in zip(code.co_freevars, target.__closure__ or (), strict=True)}
    found: set[str] = set()
    for value in (*(target.__globals__[name] for name in names if name in target.__globals__), *closed.values()):
        if inspect.ismodule(value):
            found.add(value.__name__.split(".")[0])
        elif callable(value):
            found |= _libraries(value, seen)
    return found


def parameters_of(function: Callable[..., Any]) -> list[str] | None:
    """The names of the parameters of a callable; none where it does not tell, None where it takes any."""
    target = getattr(function, "forward", function)
    try:
        known = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    if any(p.kind is p.VAR_KEYWORD for p in known):
        return None
    return [p.name for p in known if p.kind is not p.VAR_POSITIONAL]


def argument_names(function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[str]:
    """A name for every tensor, as the callable calls it."""
    import torch

    known = parameters_of(function) or []
    found: list[str] = []
    for place, value in enumerate(arguments):
        if isinstance(value, torch.Tensor):
            found.append(free_name(identifier(known[place] if place < len(known) else f"x{place}"), set(found)))
    for name, value in keywords.items():
        if isinstance(value, torch.Tensor):
            found.append(free_name(identifier(name), set(found)))
    return found


def identifier(name: str) -> str:
    plain = re.sub(r"\W+", "_", name).strip("_") or "x"
    plain = plain if not plain[0].isdigit() else f"x{plain}"
    return f"{plain}_" if plain in KEYWORDS or plain in WORDS else plain


def free_name(name: str, taken: set[str]) -> str:
    chosen, count = name, 2
    while chosen in taken:
        chosen, count = f"{name}_{count}", count + 1
    return chosen


def held_names(function: Callable[..., Any]) -> dict[int, str]:
    """The names of the parameters and buffers that a callable can reach, by identity."""
    return {id(tensor): name for name, tensor in reversed(_held(function).items())}


def held_weights(function: Callable[..., Any]) -> dict[int, str]:
    """The names of the matrices among the parameters that a callable can reach, by identity."""
    import torch

    held = reversed(_held(function).items())  # Of several names of one tensor, the first.
    return {id(x): name for name, x in held if isinstance(x, torch.nn.Parameter) and x.ndim >= 2}


def _held(function: Callable[..., Any]) -> dict[str, Any]:
    """The tensors that a callable can reach, by name."""
    import torch

    modules: list[tuple[str, Any]] = []
    owner = getattr(function, "__self__", None)
    for found in (function, owner):
        if isinstance(found, torch.nn.Module):
            modules.append(("", found))
    named: dict[str, Any] = {}
    target = inspect.unwrap(function) if inspect.isfunction(function) else None
    if target is not None:
        reached = inspect.getclosurevars(target)
        defaults = {p.name: p.default for p in inspect.signature(target).parameters.values()}
        for name, value in {**reached.globals, **reached.nonlocals, **defaults}.items():
            if isinstance(value, torch.nn.Module):
                modules.append((f"{name}.", value))
            elif isinstance(value, torch.Tensor):
                named[name] = value
    if owner is not None and not isinstance(owner, torch.nn.Module):
        for name, value in vars(owner).items() if hasattr(owner, "__dict__") else ():
            if isinstance(value, torch.Tensor):
                named[name] = value
    for prefix, module in modules:
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            named.setdefault(f"{prefix}{name}", tensor)
    return named


def kind_of(tensor: Any) -> Kind:
    return "bool" if str(tensor.dtype) == "torch.bool" else "real" if tensor.is_floating_point() else "whole"


def resized(torch: Any, tensor: Any, shape: tuple[int, ...], generator: Any) -> Any:
    """A fresh array like a tensor: random numbers for real ones, else its own values at the nearest places."""
    if (
        tensor.is_floating_point()
        and bool(torch.isfinite(tensor).all())
        and tensor.numel()
        and len(tensor.unique()) > 2
    ):
        spread = float(tensor.double().std()) if tensor.numel() > 1 else 1.0
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (drawn * (spread or 1.0)).to(tensor.dtype).to(tensor.device)
    found = tensor
    for axis, (old, new) in enumerate(zip(tensor.shape, shape, strict=True)):
        if old != new:
            places = torch.arange(new) * old // max(new, 1)
            found = found.index_select(axis, places.to(tensor.device))
    return found.clone()
