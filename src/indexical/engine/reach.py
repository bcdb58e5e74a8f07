"""The ends of a place that is affine in its axes."""

from __future__ import annotations

from ..ir.affine import Polynomial, affine_parts, is_counted, polynomial
from .ops import Value


def ends_of(place: Value) -> tuple[Polynomial, Polynomial] | None:
    """The least place and the one beyond the largest, of an index that is affine in its axes with steps of known
    signs; None of any other. Of an axis without points they say nothing."""
    if place.known.whole is None:
        return None
    found = affine_parts(place.known.whole, place.names)
    if found is None:
        return None
    steps, start = found
    least, most = start, start
    for name, step in steps.items():
        last = step * (polynomial(place.extent(name)) - 1)
        if is_counted(step):
            most = most + last
        elif is_counted(-step):
            least = least + last
        else:
            return None
    return least, most + 1
