"""The printer: a plan as Python source in the spelling of a dialect."""

from .module import Again, Module, Statements, emit, emit_sized, show, statements

__all__ = ["Again", "Module", "Statements", "emit", "emit_sized", "show", "statements"]
