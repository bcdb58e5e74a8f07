"""Models from the files they are kept in, as programs in named coordinates with their weights bound by name."""

from .loading import load
from .model import Model

__all__ = ["Model", "load"]
