"""The cause of a figure that fails, as it is told."""

from __future__ import annotations

from ...records import dataclass

# A cause is named where no more than this share of figures as far off would fit one that was tried by accident.
MOST_CHANCE = 1 / 20
# Rarer accidents are not told apart.
RAREST = 1_000_000


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

    @property
    def evidence(self) -> str:
        """The chance in words."""
        such = "such fits" if self.figures == 1 else f"such fits of {self.figures} figures"
        if self.chance * RAREST < 1:
            return f"less than one in a million {such} would be an accident"
        return f"one in {round(1 / self.chance):,} {such} would be an accident"
