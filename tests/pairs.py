"""Calls over few pairs of a query and a key have a mask, others tiles: which of the two a test goes through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from indexical.backends.old.plan import few

# Above what any test has.
ALL = 1 << 40


@contextmanager
def called_few(pairs: int, *, learned: int | None = None) -> Iterator[None]:
    """Plan as if so many pairs were few, or `learned` where a gradient is wanted; 0 has tiles always."""
    usual = few.MASK, few.DATA, few.SCORES, few.KEPT, few.LEARNED
    few.MASK = few.DATA = few.SCORES = pairs
    few.KEPT = few.LEARNED = pairs if learned is None else learned
    try:
        yield
    finally:
        few.MASK, few.DATA, few.SCORES, few.KEPT, few.LEARNED = usual
