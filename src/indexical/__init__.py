"""Indexical: a language and compiler for attention, in named coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api import Program, check, compile
from .diagnostics import CallError, CompileError, Diagnostic, Error

if TYPE_CHECKING:
    from . import std

__version__ = "0.1.0"
__all__ = ["CallError", "CompileError", "Diagnostic", "Error", "Program", "check", "compile", "std"]

# Tracebacks and help show these under the name they are imported by.
for _public in (CallError, CompileError, Diagnostic, Error, Program):
    _public.__module__ = __name__


def __getattr__(name: str) -> Any:
    """`ix.std` is imported when it is first asked for."""
    if name == "std":
        from importlib import import_module

        return import_module(".std", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
