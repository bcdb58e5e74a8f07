"""The cause of a figure that fails, as it is told."""

from __future__ import annotations

from ...records import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """A thing that an author did, by which figures that fail would hold.

    `kind` is one word for programs, `text` a sentence for readers. `figures` says how many figures that fail it
    explains, in this claim and in others; `chance` how likely it is that figures as far off as these, but drawn at
    random, would fit it or another cause that was tried as readily.
    """

    kind: str
    text: str
    figures: int
    chance: float

    def __str__(self) -> str:
        return self.text
