"""Calls over few pairs of a query and a key have a mask, others tiles: which of the two a test goes through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from indexical.backends.old.plan import few

# Above what any test has.
ALL = 1 << 40


@contextmanager
def called_few(pairs: int) -> Iterator[None]:
    """Plan as if so many pairs were few; 0 has tiles always."""
    usual = few.SCORES, few.TILED, few.PARTS
    few.SCORES = few.TILED = few.PARTS = pairs
    try:
        yield
    finally:
        few.SCORES, few.TILED, few.PARTS = usual
