"""How many examples a law draws. No law names a number: it names a factor of the number that all laws share."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

# For each part of the suite, and for a search that draws other examples each time.
NUMBERS = {"quick": 10, "rest": 50, "search": 5000}


def register() -> None:
    """Make the profiles known. The parts of the suite draw the same examples every time."""
    for name, number in NUMBERS.items():
        new = name == "search"
        settings.register_profile(name, deadline=None, derandomize=not new, print_blob=new, max_examples=number)


def examples(factor: float, **others: Any) -> settings:
    """Settings of a law that draws `factor` times as many examples as others: more where they are cheap or many kinds,
    fewer where they are dear."""
    return settings(max_examples=max(1, round(factor * settings().max_examples)), **others)
