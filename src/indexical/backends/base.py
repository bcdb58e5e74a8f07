"""What emitted source is made of: values with named axes, and statements of text."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..ir.types import Coordinate, Dtype, Kind
from .layout import (
    AND,
    ATOM,
    BOTH,
    COMPARISON,
    EITHER,
    NOT,
    OR,
    POWER,
    PRODUCT,
    SUM,
    TERNARY,
    UNARY,
    Statement,
    render,
)

__all__ = (
    "AND",
    "ATOM",
    "BOTH",
    "COMPARISON",
    "EITHER",
    "NOT",
    "OR",
    "POWER",
    "PRODUCT",
    "SUM",
    "TERNARY",
    "UNARY",
    "Dialect",
    "Text",
    "Value",
)

WIDEST = 96


@dataclass(frozen=True, slots=True)
class Value:
    """An array as text: `axes` name its axes in order. `python` marks a plain Python number, which is weak:
    it has no dtype, and takes that of the array it meets. `turned` is the value from before its axes were put in
    another order, where nothing else was done to it; `product` are the sign of a product and its two factors."""

    text: str
    axes: tuple[Coordinate, ...]
    kind: Kind
    dtype: Dtype | None
    binds: int = ATOM
    python: bool = False
    turned: Value | None = None
    product: tuple[str, Value, Value] | None = None

    @property
    def atom(self) -> str:
        """The text, fit for an attribute or an index behind it."""
        return self.text if self.binds == ATOM and not is_number(self.text) else f"({self.text})"

    def but(self, **changes: Any) -> Value:
        """The value with another text, and whatever else changes with it."""
        return replace(self, **{"turned": None, "product": None, **changes})

    def within(self, binds: int) -> str:
        """The text as an operand of something that binds this tightly."""
        return self.text if self.binds >= binds else f"({self.text})"


def is_step(text: str) -> bool:
    """Whether a text starts with a step: a value that was computed, and not handed in."""
    found = re.match(r"\w+", text)
    return found is not None and "__" in found[0] and not found[0].startswith("place__")


def is_number(text: str) -> bool:
    """Whether a text is a number as written."""
    return text[:1].isdigit() and bool(re.fullmatch(r"\d[\d.]*(e[+-]?\d+)?", text))


class Dialect(Protocol):
    """How an array library spells things."""

    name: str
    module: str
    header: tuple[str, ...]

    def arange(self, start: str, stop: str) -> str: ...
    def where(self, condition: Value, then: str, otherwise: str) -> str: ...
    def cast(self, value: Value, dtype: Dtype) -> Value: ...
    def constant(self, text: str, dtype: Dtype) -> str: ...
    def array(self, text: str, dtype: Dtype) -> str: ...
    def full(self, shape: str, text: str, dtype: Dtype) -> str: ...
    def permute(self, text: str, order: tuple[int, ...]) -> str: ...
    def flip(self, text: str, axis: int) -> str: ...
    def tensordot(self, left: str, right: str, axes: tuple[tuple[int, ...], tuple[int, ...]]) -> str: ...
    def function(self, op: str, arguments: list[Value], text: Text) -> str: ...
    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text, empty: bool = True) -> str: ...
    def softmax(self, op: str, text: str, axis: int, source: Text) -> str: ...
    def divide(self, op: str, a: Value, b: Value, safe: bool, text: Text) -> str: ...
    def helper(self, name: str) -> str: ...
    def dtype(self, dtype: Dtype) -> str: ...
    def stack(self, text: str, axis: int) -> str: ...
    def copy(self, text: str) -> str: ...


@dataclass
class Text:
    """The emitted function as it grows: its statements, the names in use, the small functions it needs above it."""

    dialect: Dialect
    taken: set[str] = field(default_factory=set)
    reserved: frozenset[str] = frozenset()
    helpers: dict[str, str] = field(default_factory=dict)
    indent: int = 1
    checks: bool = True
    statements: list[Statement | list[Statement]] = field(default_factory=list)
    block: int = 0
    blocks: int = 0
    loops: list[tuple[list[Statement | list[Statement]], int, int]] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """The body of the function: nothing that is not used, small steps where they are used."""
        return render(self.statements, self.taken)

    def add(self, text: str, kind: str = "line", target: str = "", binds: int = ATOM) -> None:
        self.statements.append(Statement(self.indent, self.block, text, kind, target, binds))

    def line(self, text: str) -> None:
        found = re.match(r"([^\W\d]\w*) = (?!\{)", text)
        if found:
            self.add(text[found.end() :], "assign", found[1])
        else:
            self.add(text, "line" if text else "blank")

    def comment(self, text: str) -> None:
        for line in text.splitlines():
            self.add(f"# {line}".rstrip(), "comment")

    @contextmanager
    def indented(self) -> Iterator[None]:
        outer = self.block
        self.blocks += 1
        self.indent, self.block = self.indent + 1, self.blocks
        yield
        self.indent, self.block = self.indent - 1, outer

    @contextmanager
    def loop(self, header: str) -> Iterator[None]:
        """A loop, and before it a place for what stays the same in all its turns."""
        ahead: list[Statement | list[Statement]] = []
        self.statements.append(ahead)  # type: ignore[arg-type]
        self.loops.append((ahead, self.indent, self.block))
        self.line(header)
        with self.indented():
            yield
        self.loops.pop()

    @contextmanager
    def ahead(self) -> Iterator[list[Statement | list[Statement]]]:
        """What is emitted here stands before the outermost loop."""
        outside = self.statements, self.indent, self.block
        self.statements, self.indent, self.block = self.loops[0]
        loops, self.loops = self.loops, []
        yield self.statements
        self.statements, self.indent, self.block = outside
        self.loops = loops

    @contextmanager
    def inside(self, statements: list[Statement | list[Statement]], block: int) -> Iterator[None]:
        """What is emitted here goes into a block that is put in its place later."""
        outside = self.statements, self.indent, self.block
        self.statements, self.indent, self.block = statements, self.indent + 1, block
        yield
        self.statements, self.indent, self.block = outside

    def fresh(self, name: str) -> str:
        """A variable that nothing else is called."""
        name = re.sub(r"\W", "_", name)
        if keyword.iskeyword(name) or name in RESERVED | self.reserved or not name.isidentifier():
            name += "_"
        number = 1
        result = name
        while result in self.taken:
            number += 1
            result = f"{name}_{number}"
        self.taken.add(result)
        return result

    def keep(self, value: Value, name: str) -> Value:
        """The value under a name of its own, where its text is more than a name. Used once, it goes back to where
        it is used."""
        if value.text.isidentifier() or (value.python and len(value.text) < 20):
            return value
        # A step is later called by this name alone where it can be.
        variable = self.fresh("part__1" if keyword.iskeyword(name) or name in RESERVED else f"{name}__1")
        self.add(value.text, "temporary", variable, value.binds)
        return value.but(text=variable, binds=ATOM, product=value.product)

    def named(self, value: Value, name: str) -> Value:
        """The value under a name that it keeps."""
        variable = self.fresh(name)
        self.add(value.text, "assign", variable)
        return value.but(text=variable, binds=ATOM)

    def short(self, value: Value, name: str) -> Value:
        """The value, under a name of its own where its text grew too long to read."""
        return self.keep(value, name) if len(value.text) > WIDEST - 24 else value

    def store(self, variable: str, place: str, text: str) -> None:
        """`variable[place] = text`."""
        self.add(f"{variable}[{place}] = {text}", "store", variable)

    def helper(self, name: str) -> str:
        """A small function that stands above the emitted one."""
        if name not in self.helpers:
            self.helpers[name] = self.dialect.helper(name)
            if "    check(" in self.helpers[name]:
                self.helper("check")
        return name

    def refuse(self, condition: str, code: str, message: str) -> None:
        """Raise where a check fails. Whoever calls from Indexical gets the place in the text besides."""
        self.line(f"if {condition}:")
        with self.indented():
            self.add(f"raise Refused({quoted(code)}, {quoted(message)})", "raise")


def quoted(text: str) -> str:
    """A text as Python writes it, between double quotes where that needs no escape."""
    return f'"{text}"' if '"' not in text and "\\" not in text and text.isprintable() else repr(text)


RESERVED = frozenset(
    (
        *("np", "torch", "math", "device", "Refused", "F", "__debug__"),
        *("print", "int", "max", "min", "range", "reversed", "abs", "sum", "any", "all"),
    )
)
