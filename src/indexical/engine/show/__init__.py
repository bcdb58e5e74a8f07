"""The printer: a plan as Python source in the spelling of a dialect."""

from .module import Module, emit, show, statements

__all__ = ["Module", "emit", "show", "statements"]
