"""Which tensors of a layout a cotangent can reach."""

from __future__ import annotations

from ..ir.walk import reads_of
from .units import Layout


def learned_by(layout: Layout, inputs: set[str]) -> set[str]:
    """The tensors that a cotangent can reach: real ones that are made of inputs that ask for one."""
    found = set(inputs)
    if not found:
        return found
    lets = layout.program.definitions
    names = [name for unit in layout.units for name in unit.names]
    changed = True
    while changed:
        changed = False
        for name in names:
            if name not in found and lets[name].kind == "real" and any(r.tensor in found for r in reads_of(lets[name])):
                found.add(name)
                changed = True
    return found
