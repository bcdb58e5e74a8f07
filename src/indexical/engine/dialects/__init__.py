"""The spellings of the array libraries, one table each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Dialect


def dialect(name: str) -> Dialect:
    """The spelling of a library: `DIALECT` of the file here that is called like it."""
    found: Dialect = import_module(f"{__package__}.{name}_").DIALECT
    return found
