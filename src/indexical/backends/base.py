"""What emitted source is made of: values with named axes, and lines of text."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..ir.types import Coordinate, Dtype, Kind

# How tightly a text binds, so that parentheses stand only where they are needed.
ATOM, POWER, UNARY, PRODUCT, SUM, COMPARISON = 6, 5, 4, 3, 2, 1

WIDEST = 96


@dataclass(frozen=True, slots=True)
class Value:
    """An array as text: `axes` name its axes in order. `python` marks a plain Python number, which is weak:
    it has no dtype, and takes that of the array it meets. `turned` is the text and the axes from before they
    were put in order, where nothing else was done to it."""

    text: str
    axes: tuple[Coordinate, ...]
    kind: Kind
    dtype: Dtype | None
    binds: int = ATOM
    python: bool = False
    turned: tuple[str, tuple[Coordinate, ...]] | None = None

    @property
    def atom(self) -> str:
        """The text, fit for an attribute or an index behind it."""
        return self.text if self.binds == ATOM and not _is_number(self.text) else f"({self.text})"

    def but(self, **changes: Any) -> Value:
        """The value with another text, and whatever else changes with it."""
        return replace(self, **{"turned": None, **changes})

    def within(self, binds: int) -> str:
        """The text as an operand of something that binds this tightly."""
        return self.text if self.binds >= binds else f"({self.text})"


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9.e+-]+", text))


class Dialect(Protocol):
    """How an array library spells things."""

    name: str
    module: str
    header: tuple[str, ...]

    def arange(self, start: str, stop: str) -> str: ...
    def where(self, condition: Value, then: str, otherwise: str) -> str: ...
    def cast(self, value: Value, dtype: Dtype) -> Value: ...
    def constant(self, text: str, dtype: Dtype) -> str: ...
    def full(self, shape: str, text: str, dtype: Dtype) -> str: ...
    def permute(self, text: str, order: tuple[int, ...]) -> str: ...
    def function(self, op: str, arguments: list[Value], text: Text) -> str: ...
    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text) -> str: ...
    def softmax(self, op: str, text: str, axis: int, source: Text) -> str: ...
    def quotient(self, a: Value, b: Value, text: Text) -> str: ...
    def helper(self, name: str) -> str: ...
    def dtype(self, dtype: Dtype) -> str: ...
    def stack(self, text: str, axis: int) -> str: ...
    def copy(self, text: str) -> str: ...


@dataclass
class Text:
    """The emitted function as it grows: its lines, the names in use, the small functions it needs above it."""

    dialect: Dialect
    lines: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    helpers: dict[str, str] = field(default_factory=dict)
    indent: int = 1
    checks: bool = True

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text if text else "")

    def comment(self, text: str) -> None:
        for line in text.splitlines():
            self.line(f"# {line}".rstrip())

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.indent += 1
        yield
        self.indent -= 1

    def fresh(self, name: str) -> str:
        """A variable that nothing else is called."""
        name = re.sub(r"\W", "_", name)
        if keyword.iskeyword(name) or name in RESERVED or not name.isidentifier():
            name += "_"
        number = 1
        result = name
        while result in self.taken:
            number += 1
            result = f"{name}_{number}"
        self.taken.add(result)
        return result

    def keep(self, value: Value, name: str) -> Value:
        """The value under a name of its own, where its text is more than a name."""
        if value.text.isidentifier() or (value.python and len(value.text) < 20):
            return value
        variable = self.fresh(name)
        self.line(f"{variable} = {value.text}")
        return value.but(text=variable, binds=ATOM, python=value.python)

    def short(self, value: Value, name: str) -> Value:
        """The value, under a name of its own where its text grew too long to read."""
        return self.keep(value, name) if len(value.text) > WIDEST - 24 else value

    def helper(self, name: str) -> str:
        """A small function that stands above the emitted one."""
        self.helpers.setdefault(name, self.dialect.helper(name))
        return name

    def refuse(self, condition: str, code: str, message: str) -> None:
        """Raise where a check fails. Whoever calls from Indexical gets the place in the text besides."""
        self.line(f"if {condition}:")
        with self.indented():
            self.line(f"raise Refused({code!r}, {message!r})")


RESERVED = frozenset(
    ("np", "torch", "math", "device", "Refused", "F", "print", "int", "max", "min", "range", "abs", "sum", "any", "all")
)
