"""Indexical: a language and compiler for attention, in named coordinates."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import models, nn, std
    from .api import Program, check, compile
    from .auditor import AuditFailed, Contract, audit
    from .calculus import batch, grad, jvp, unroll
    from .declared import program
    from .decoding import incremental
    from .diagnostics import CallError, CompileError, Diagnostic, Error, SlowPath
    from .lessons import lesson
    from .lift import read
    from .pages import show, trace
    from .printed import verify_page
    from .readings import Undecided, accuracy, exact, verify
    from .sharding.spread import shard
    from .tuning import tune
    from .watching.models import watch
    from .weights import patterns

__version__ = "0.1.0"
__all__ = [
    "AuditFailed",
    "CallError",
    "CompileError",
    "Contract",
    "Diagnostic",
    "Error",
    "Program",
    "SlowPath",
    "Undecided",
    "accuracy",
    "audit",
    "batch",
    "check",
    "compile",
    "exact",
    "grad",
    "incremental",
    "jvp",
    "lesson",
    "models",
    "nn",
    "patterns",
    "program",
    "read",
    "shard",
    "show",
    "std",
    "trace",
    "tune",
    "unroll",
    "verify",
    "verify_page",
    "watch",
]

# When this process began to load the package: a source that has changed since is not what runs.
LOADED = time.time_ns()

# Where each public name lives. It is fetched when it is first asked for, so that importing costs next to nothing.
_HOMES = {
    **dict.fromkeys(("Program", "check", "compile"), "api"),
    **dict.fromkeys(("CallError", "CompileError", "Diagnostic", "Error", "SlowPath"), "diagnostics"),
    **dict.fromkeys(("Undecided", "accuracy", "exact", "verify"), "readings"),
    **dict.fromkeys(("batch", "grad", "jvp", "unroll"), "calculus"),
    **dict.fromkeys(("AuditFailed", "Contract", "audit"), "auditor"),
    "patterns": "weights",
    **dict.fromkeys(("show", "trace"), "pages"),
    "program": "declared",
    "incremental": "decoding",
    "read": "lift",
    "lesson": "lessons",
    "verify_page": "printed",
    "shard": "sharding.spread",
    "tune": "tuning",
    "watch": "watching.models",
    # What IPython asks for.
    **dict.fromkeys(("load_ipython_extension", "unload_ipython_extension"), "notebook"),
    "models": "models",
    "nn": "nn",
    "std": "std",
}

# Rooms whose functions change nothing outside: they may be called again.
_SYMBOLIC = frozenset(("api", "calculus", "decoding", "pages", "readings"))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        # With the name and the module, Python says which name was meant.
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    try:
        home = import_module(f".{_HOMES[name]}", __name__)
    except ModuleNotFoundError as problem:
        raise _missing(name, problem) or problem from None
    if _HOMES[name] == "api":
        home.Program.displayed = _displayed
    value = home if name == _HOMES[name] else getattr(home, name)
    if isinstance(value, FunctionType):
        faults = import_module(".faults", __name__)
        value = (faults.deep if _HOMES[name] in _SYMBOLIC else faults.guarded)(value)
    globals()[name] = value
    return value


def _missing(name: str, problem: ModuleNotFoundError) -> Exception | None:
    """What is said where a public name needs a library that is not installed; None where the library is no extra."""
    from .diagnostics import CallError, Diagnostic

    library = (problem.name or "").partition(".")[0]
    extra = {"torch": "torch", "jax": "jax", "triton": "gpu", "transformers": "models"}.get(library)
    if extra is None:
        return None
    help = f"pip install 'indexical[{extra}]'"
    return CallError([Diagnostic("IX509", f"`ix.{name}` needs `{library}`, which is not installed", help=help)])


def _displayed(program: Program) -> str:
    """A program in a notebook: its page, which is made by a room below that of programs."""
    html: str = import_module(".pages", __name__).drawn_page(program)
    return html


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
