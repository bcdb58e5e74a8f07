"""Models from the files they are kept in, as programs in named coordinates with their weights bound by name."""

from .files import Checkpoint
from .loading import assemble, load, program
from .model import Model
from .tokenizing import Words

__all__ = ["Checkpoint", "Model", "Words", "assemble", "load", "program"]
