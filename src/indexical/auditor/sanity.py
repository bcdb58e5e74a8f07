"""Laws of any callable: it returns what was declared, twice the same, and leaves its inputs alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from .calling import Foreign, Unusable
from .reports import Finding, place_of


def sanity(foreign: Foreign, shape: tuple[int, ...] | None) -> list[Finding]:
    """Findings on a callable before any law of attention is asked. Raises where nothing can be asked."""
    out = foreign.prepare()
    if shape is not None and out.shape != shape:
        raise Unusable(
            "shape",
            f"the output has the shape {out.shape}, and the axes make it {shape}",
            "the axes of the output are not those that were declared",
            'correct `axes["out"]`, or the last transpose of the callable',
        )
    found = []
    changed = _mutated(foreign)
    if changed:
        found.append(
            Finding(
                "pure",
                f"the callable changes its input `{changed}`",
                f"`{changed}` is not the same after the call",
                "an operation in place (`x += …`, `masked_fill_`, `x[…] = …`) on an argument",
                "work on a copy, or use the operation that is not in place",
                place_of(foreign.original, (r"\w+_\(.*", r"[-+*/]=.*", r"\]\s*=[^=].*")),
            )
        )
    again = foreign({name: plain(value) for name, value in foreign.example.items()})
    if not np.allclose(out, again, rtol=1e-9, atol=1e-12, equal_nan=True):
        worst = float(np.nanmax(np.abs(out - again)))
        found.append(
            Finding(
                "deterministic",
                "two calls with the same inputs give different outputs",
                f"they differ by {worst:.3g}",
                "dropout, or other randomness, is on in evaluation mode",
                "`F.dropout(x, p, training=self.training)`, or `nn.Dropout` and `model.eval()`",
                place_of(foreign.original, (r"dropout.*", r"rand.*")),
            )
        )
    return found


def _mutated(foreign: Foreign) -> str | None:
    values = {name: foreign.convert(name, plain(value)) for name, value in foreign.example.items()}
    kept = {name: plain(value).copy() for name, value in values.items() if hasattr(value, "dtype")}
    foreign.run(values)
    for name, before in kept.items():
        if not np.array_equal(before, plain(values[name]), equal_nan=before.dtype.kind == "f"):
            return name
    return None


def plain(value: Any) -> Any:
    """A copy of an array as one of NumPy's; anything else as it is."""
    if hasattr(value, "detach"):
        value = value.detach()
        if value.is_floating_point():
            value = value.double()
        return value.cpu().numpy().copy()
    return np.array(value) if hasattr(value, "dtype") else value
