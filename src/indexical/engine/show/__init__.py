"""The printer: a plan as Python source in the spelling of a dialect."""

from .module import Module, emit, emit_sized, show, statements

__all__ = ["Module", "emit", "emit_sized", "show", "statements"]
