"""Code written elsewhere, as commands name it: `package.module:name` or `file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
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
            return _file(path.resolve())
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(place)
    except Usage:
        raise
    except (Exception, SystemExit) as problem:  # Foreign code may raise anything while it is imported.
        raise Usage(f"{place} cannot be imported: {_first_line(problem)}") from None


_ROOTS: list[Path] = []  # The folders that files were imported from, the last one last.


def _file(path: Path) -> Any:
    """The module of a file: of its package, where it lies in one, so that it may import what lies beside it. Files of
    the same name in two folders are two modules, and each imports what lies in its own."""
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    name = ".".join((*path.parent.relative_to(root).parts, path.stem)).removesuffix(".__init__")
    _set_apart(root)
    if root != path.parent:
        _forget(name.partition(".")[0], root)
        return importlib.import_module(name)
    for key in (name, f"{name}_of_{root.name}_{len(_ROOTS)}"):
        taken = sys.modules.get(key)
        if taken is None or getattr(taken, "__file__", None) == str(path):
            name = key
            break
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _set_apart(root: Path) -> None:
    """Let modules be imported from a folder, and forget those of the folders before it that are imported by the same
    names."""
    for before in _ROOTS:
        if before != root and str(before) in sys.path:
            sys.path.remove(str(before))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        found = Path(file) if isinstance(file, str) else None
        if found is not None and any(before != root and _is_beside(found, before) for before in _ROOTS):
            first = name.partition(".")[0]
            if (root / f"{first}.py").is_file() or (root / first / "__init__.py").is_file():
                del sys.modules[name]
    if root not in _ROOTS:
        _ROOTS.append(root)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    importlib.invalidate_caches()


def _forget(package: str, root: Path) -> None:
    """Forget a package that was imported from elsewhere, such as another version of it that is installed."""
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is None or not Path(file).is_relative_to(root / package):
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            del sys.modules[name]


def _is_beside(file: Path, folder: Path) -> bool:
    """Whether a module was imported from a folder, and not from an environment of Python below it."""
    return file.is_relative_to(folder) and not {"site-packages", "dist-packages"} & set(file.parts)


def _first_line(problem: BaseException) -> str:
    lines = f"{type(problem).__name__}: {problem}".splitlines()
    return lines[0]


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


def called(target: Any, *arguments: Any) -> Any:
    """The object that a class or a function makes of these arguments; anything else as it is."""
    if not isinstance(target, type) and (hasattr(target, "eval") or not callable(target)):
        return target
    name = getattr(target, "__qualname__", "it")
    missing = missing_arguments(target, len(arguments))
    if missing:
        raise Usage(
            f"`{name}` takes {', '.join(missing)}: for a model, name a function that builds it without arguments; for "
            "one attention, give --example inputs.npz"
        )
    try:
        return target(*arguments)
    except (Exception, SystemExit) as problem:  # Foreign code may raise anything while it is built.
        call = f"`{name}({', '.join(map(repr, arguments))})`"
        raise Usage(f"{call} raises {_first_line(problem)}; only what is built can be audited") from None


def missing_arguments(target: Any, given: int) -> list[str]:
    """The arguments that a callable needs, beyond so many."""
    try:
        parameters = list(inspect.signature(target).parameters.values())[given:]
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [item.name for item in parameters if item.kind in kinds and item.default is inspect.Parameter.empty]
