"""Foreign code as programs: functions of PyTorch and JAX, and modules, read by running them on a few arrays."""

from __future__ import annotations

from .proving import findings, proved
from .reading import Reading, read, reader

__all__ = ["Reading", "findings", "proved", "read", "reader"]
