"""Commands that look at code written elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
import tomllib
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..auditor import Contract, Report, audit
from ..auditor.contract import read_contract
from ..auditor.formats import FORMATS
from .inputs import load
from .words import Usage, write

_NUMBERS = ("window", "heads", "groups", "softcap", "logit_range")
_WORDS = ("documents", "rotary", "rows", "kernel", "empty", "attends", "packing", "scale")


def audit_command(options: Namespace) -> int:
    """0 where no law is broken, 1 where one is, 2 where the command is at fault."""
    target = load_target(options.target)
    if options.model:
        report = _audit_model(target, options)
    else:
        target = _built(target)
        report = audit(target, _example(options, target), _axes(options), contract_of(options), tell=_tell(options))
    text = FORMATS[options.format]([report])
    write(text if text.endswith("\n") else text + "\n", options.output)
    return 0 if report.ok else 1


def _audit_model(target: Any, options: Namespace) -> Report:
    from ..auditor.whole import audit_model

    causal = False if options.bidirectional else True if options.causal else None
    return audit_model(_called(target), causal=causal, tell=_tell(options), length=options.length)


# ---------------------------------------------------------------------- targets


def load_target(text: str) -> Any:
    """`package.module:name` or `file.py:name` as what it names."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise Usage(f"{text}: say what to audit as package.module:name, or file.py:name")
    module = _module(place)
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = ", ".join(sorted(key for key in vars(module) if not key.startswith("_"))[:12])
            raise Usage(f"{place} has no `{name}`; it has {known}")
        found = getattr(found, part)
    return found


def _module(place: str) -> Any:
    try:
        if place.endswith(".py"):
            path = Path(place)
            if not path.is_file():
                raise Usage(f"{place} cannot be read: there is no such file")
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


def _built(target: Any) -> Any:
    """A class of modules, made without arguments."""
    return _called(target) if isinstance(target, type) else target


def _called(target: Any) -> Any:
    if not isinstance(target, type) and (hasattr(target, "eval") or not callable(target)):
        return target
    try:
        return target()
    except Exception as problem:  # Foreign code may raise anything while it is built.
        words = f"{type(problem).__name__}: {problem}".splitlines()[0]
        name = getattr(target, "__qualname__", "it")
        raise Usage(f"`{name}()` raises {words}; name a function that builds it without arguments") from None


# --------------------------------------------------------------------- examples


def _example(options: Namespace, target: Any) -> dict[str, Any]:
    if options.example is None:
        raise Usage("--example inputs.npz: an array for every argument is needed")
    if ":" in options.example and not Path(options.example).exists():
        made = load_target(options.example)
        example = made(0) if callable(made) else made
        if not isinstance(example, Mapping):
            raise Usage(f"--example {options.example}: it gives {type(example).__name__}, and no arrays by name")
        return dict(example)
    loaded = load(options.example)
    if not isinstance(loaded, dict):
        raise Usage(f"--example {options.example}: a .npz file has an array for every argument, by name")
    if options.library == "numpy":
        return loaded
    return {name: _tensor(array) for name, array in loaded.items()}


def _tensor(array: Any) -> Any:
    try:
        import torch
    except ImportError:
        raise Usage("PyTorch is not installed; --library numpy passes NumPy's arrays") from None
    return torch.from_numpy(array.copy())


def _axes(options: Namespace) -> str:
    if not options.axes:
        raise Usage("--axes 'x=b i c, out=b i c': say what the axes of each array are")
    return str(options.axes)


def contract_of(options: Namespace) -> Contract:
    """The contract of a TOML file, with what the command line adds."""
    values: dict[str, Any] = {}
    if options.contract is not None:
        try:
            values = tomllib.loads(Path(options.contract).read_text(encoding="utf-8"))
        except OSError as problem:
            raise Usage(f"--contract {options.contract}: {problem.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise Usage(f"--contract {options.contract}: {problem}") from None
        values = values.get("contract", values)
    if options.causal is not None:
        values["causal"] = {"square": True, "none": False}.get(options.causal, options.causal)
    for name in (*_NUMBERS, *_WORDS):
        if getattr(options, name) is not None:
            values[name] = getattr(options, name)
    if options.residual:
        values["residual"] = True
    if options.prefill:
        values["prefill"] = True
    for name, option in (("alibi", options.alibi), ("regions", options.regions)):
        if option is not None:
            values[name] = _figures(name, option)
    if options.mask:
        values["masks"] = {**values.get("masks", {}), **dict(_masks(options.mask))}
    return read_contract(values)


def _figures(name: str, text: str) -> list[float]:
    try:
        figures = json.loads(f"[{text}]")
    except ValueError:
        raise Usage(f"--{name} {text}: numbers look like 0.5,0.25") from None
    return [float(figure) if name == "alibi" else int(figure) for figure in figures]


def _masks(texts: list[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    if any(not equals for _, equals, _ in pairs):
        raise Usage("--mask NAME=keep, NAME=drop or NAME=additive")
    return [(name.strip(), kind.strip()) for name, _, kind in pairs]


def _tell(options: Namespace) -> Callable[[str], None]:
    """What is tested now, on the standard error: on a terminal, or where a whole model takes its time."""
    started = time.monotonic()
    patience = 1.0 if sys.stderr.isatty() else 5.0 if options.model else float("inf")

    def tell(name: str) -> None:
        if time.monotonic() - started > patience:
            print(f"ix: testing {name}", file=sys.stderr, flush=True)

    return tell
