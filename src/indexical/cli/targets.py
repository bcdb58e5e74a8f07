"""Code written elsewhere, as commands name it: `package.module:name` or `file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from .words import Usage, beside, meant


def load_target(text: str) -> Any:
    """`package.module:name` or `file.py:name` as what it names."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise Usage(f"{text}: name a callable as package.module:name, or file.py:name")
    module = _module(place)
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = ", ".join(sorted(key for key in vars(module) if not key.startswith("_"))[:12])
            raise Usage(f"{place} has no `{name}`{meant(part, dir(found)) or f'; it has {known}'}")
        found = getattr(found, part)
    return found


def _module(place: str) -> Any:
    try:
        if place.endswith(".py"):
            path = Path(place)
            if not path.is_file():
                raise Usage(f"{place} cannot be read: there is no such file{beside(place)}")
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module
            sys.path.insert(0, str(path.resolve().parent))
            spec.loader.exec_module(module)
            return module
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(place)
    except Usage:
        raise
    except Exception as problem:  # Foreign code may raise anything while it is imported.
        words = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise Usage(f"{place} cannot be imported: {words}") from None


def arrays_for(target: Any, arrays: dict[str, Any], library: str | None) -> dict[str, Any]:
    """Arrays of a file as those of a library: of the one that is asked for, else of that which the callable is
    written with."""
    from ..lift.arguments import is_of_jax

    odd = next((name for name, array in arrays.items() if array.dtype.kind not in "biufc"), None)
    if odd is not None:
        raise Usage(f"the array `{odd}` has no numbers: its dtype is {arrays[odd].dtype}")
    library = library or ("jax" if is_of_jax(target, ()) else "torch")
    if library == "numpy":
        return arrays
    try:
        made = importlib.import_module({"jax": "jax.numpy", "torch": "torch"}[library])
    except ImportError:
        name = {"jax": "JAX", "torch": "PyTorch"}[library]
        help = f"pip install 'indexical[{library}]'"
        raise Usage(f"{name} is not installed: {help}; --library numpy passes NumPy's arrays") from None
    return {name: made.asarray(array.copy()) for name, array in arrays.items()}


def built(target: Any) -> Any:
    """A class of modules, made without arguments."""
    return called(target) if isinstance(target, type) else target


def called(target: Any) -> Any:
    """The object that a class or a function without arguments makes; anything else as it is."""
    if not isinstance(target, type) and (hasattr(target, "eval") or not callable(target)):
        return target
    try:
        return target()
    except Exception as problem:  # Foreign code may raise anything while it is built.
        words = f"{type(problem).__name__}: {problem}".splitlines()[0]
        name = getattr(target, "__qualname__", "it")
        raise Usage(f"`{name}()` raises {words}; name a function that builds it without arguments") from None
