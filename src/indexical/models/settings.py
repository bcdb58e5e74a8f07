"""The settings of a model: its sizes and numbers, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..records import dataclass
from .files import Checkpoint, unreadable

Sizes = dict[str, int]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a model, by name. `a.b` is the setting `b` of those called `a`."""

    checkpoint: Checkpoint
    prefix: str = ""

    def get(self, name: str, otherwise: Any = None) -> Any:
        value = self.checkpoint.settings.get(self.prefix + name)
        outer, _, inner = name.partition(".")
        within = self.checkpoint.settings.get(outer)
        if value is None and isinstance(within, Mapping):
            value = within.get(inner)
        return otherwise if value is None else value

    def said(self, *names: str) -> str | None:
        """The first of some names that has a value."""
        return next((name for name in names if self.get(name) is not None), None)

    def whole(self, name: str) -> int:
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._strange("size", name, value)
        return value

    def real(self, name: str) -> float:
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise self._strange("number", name, value)
        return float(value)

    def _strange(self, kind: str, name: str, value: Any) -> Exception:
        shown = "is not said" if value is None else f"is {value!r:.40}"
        return unreadable(f"the {kind} `{self.prefix}{name}` of `{self.checkpoint.place}` {shown}")


@dataclass(frozen=True, slots=True)
class Size:
    """The name of a size, and what it is where that is not said; None: it must be said."""

    name: str
    otherwise: Callable[[Sizes, Checkpoint], int] | None = None

    def of(self, settings: Settings, found: Sizes) -> int:
        if self.otherwise is None or settings.get(self.name) is not None:
            return settings.whole(self.name)
        return self.otherwise(found, settings.checkpoint)
