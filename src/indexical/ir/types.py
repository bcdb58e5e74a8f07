"""Types: the kind of an expression, and the coordinates that it varies with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ..records import dataclass

Kind = Literal["bool", "whole", "real"]
Dtype = Literal["bool", "i8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"]

KIND_OF: dict[str, Kind] = {
    "bool": "bool",
    "i8": "whole",
    "u8": "whole",
    "i32": "whole",
    "i64": "whole",
    "f16": "real",
    "bf16": "real",
    "f32": "real",
    "f64": "real",
}

# The names of dtypes in array libraries, and back. NumPy has no bfloat16: its numbers are stored wider.
LIBRARY_NAMES: dict[Dtype, str] = {
    "bool": "bool",
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}
NUMPY_NAMES: dict[Dtype, str] = {**LIBRARY_NAMES, "bf16": "float32"}
DTYPES_BY_NAME: dict[str, Dtype] = {name: dtype for dtype, name in LIBRARY_NAMES.items()}

# The dtype of what only weak things are made of.
DEFAULT_DTYPE: dict[Kind, Dtype] = {"bool": "bool", "whole": "i64", "real": "f64"}

# Reals of 16 bits: they are computed with 32.
SHORT: frozenset[Dtype | None] = frozenset(("f16", "bf16"))

# Dtypes that only inputs are stored in: whatever reads one has `i32`.
STORED_ONLY: frozenset[Dtype | None] = frozenset(("i8", "u8"))

# The whole numbers that each dtype holds, from the least to the largest.
BOUNDS: dict[str, tuple[int, int]] = {
    "i8": (-(2**7), 2**7 - 1),
    "u8": (0, 2**8 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
}

_WIDTH: dict[Dtype, int] = {"bool": 0, "i32": 1, "i64": 2, "f16": 1, "bf16": 1, "f32": 2, "f64": 3}


def widest(dtypes: Iterable[Dtype | None]) -> Dtype | None:
    """The dtype that holds all of these, of one kind; None where all are weak."""
    known = [dtype for dtype in dtypes if dtype is not None]
    if set(known) >= SHORT:
        known.append("f32")
    return max(known, key=_WIDTH.__getitem__, default=None)


def computed_in(dtype: Dtype) -> Dtype:
    """The dtype of an element that is read from a tensor of some dtype."""
    return "i32" if dtype in STORED_ONLY else dtype


class Coordinate(str):
    """A named integer index, living in one statement. It is its name, and compares as its name.

    `rest` stands for `..r` at the head of an input's bracket: all leading axes as one, however many
    arrive. `space` is the declared kind of the coordinate, and takes no part in its identity.
    """

    __slots__ = ("name", "rest", "space")

    name: str
    rest: bool
    space: str | None

    def __new__(cls, name: str, rest: bool = False, space: str | None = None) -> Coordinate:
        self = str.__new__(cls, f"..{name}" if rest else name)
        self.name, self.rest, self.space = name, rest, space
        return self

    def __repr__(self) -> str:
        return f"Coordinate({str(self)!r})"

    def __reduce__(self) -> tuple[type, tuple[str, bool, str | None]]:
        return Coordinate, (self.name, self.rest, self.space)


@dataclass(frozen=True, slots=True)
class Type:
    """The kind of an element, and the set of coordinates it varies over."""

    kind: Kind
    coordinates: frozenset[Coordinate]

    def __repr__(self) -> str:
        """In order, so that it is the same in every process: texts are kept by what is written here."""
        return f"Type(kind={self.kind!r}, coordinates={sorted(self.coordinates)})"


NOWHERE: frozenset[Coordinate] = frozenset()


def join(kinds: Iterable[Kind]) -> Kind:
    """The kind that holds values of all these: a whole number meeting a real becomes real."""
    found = set(kinds)
    if len(found) == 1:
        return found.pop()
    return "real" if "real" in found else "whole"
