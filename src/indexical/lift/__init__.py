"""Foreign code as programs: PyTorch functions and modules, read by running them on a few arrays."""

from __future__ import annotations

from .proving import findings
from .reading import Reading, read

__all__ = ["Reading", "findings", "read"]
