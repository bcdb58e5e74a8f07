"""Definitions as text, each part with the place in the caller's file that it was read from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, cast

from ..ir.affine import Polynomial
from ..ir.functions import FUNCTIONS
from ..syntax.vocabulary import NORMALISERS
from .definitions import Definition
from .expressions import Expr, Num, Op, Over, Read, Whole, axes_in, parts
from .indices import Axis, Extent, Looked, Quotient, Remainder, atom, atoms_in, parts_of, product
from .naming import Names
from .recording import Site
from .values import Leaf, Scale

_LEVEL = {
    "||": 1,
    "&&": 2,
    "==": 3,
    "!=": 3,
    "<": 3,
    "<=": 3,
    ">": 3,
    ">=": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "//": 5,
    "%": 5,
    "neg": 7,
    "!": 7,
    "**": 8,
}
_FLIPPED = {">": "<", ">=": "<="}


@dataclass(slots=True)
class Printer:
    """Text as it grows, and the stretches of it that come from a place."""

    names: Names
    derived: dict[Extent, Polynomial]
    scope: set[str] = field(default_factory=set)
    merged: dict[Axis, str] = field(default_factory=dict)
    lengths: dict[Polynomial, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    sites: list[tuple[int, int, Site]] = field(default_factory=list)

    def put(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    # ------------------------------------------------------------------------------- statements

    def inputs(self, leaves: list[Leaf]) -> None:
        for given in (True, False):
            shown = []
            for leaf in leaves:
                if leaf.given == given:
                    home = ", ".join(str(letter) for letter in self.names.homes[leaf])
                    dtype = {"bool": " : bool", "whole": " : i64", "real": ""}[leaf.kind]
                    shown.append(f"{leaf.name}{f'[{home}]' if home else ''}{dtype}")
            if shown:
                self.put(f"input {', '.join(shown)};\n")
        self.put("\n")

    def definition(self, definition: Definition) -> None:
        start = self.length
        body = definition.body
        sized = _sized_axes(body)
        self.scope = {self.names.letters[axis] for axis in definition.axes}
        self.merged, self.lengths = self.merges(body)
        slots = ", ".join(self.slot(axis, sized) for axis in definition.axes)
        self.put(f"let {definition.name}{f'[{slots}]' if slots else ''} = ")
        trailing = None
        guards = _clauses(body.guard) if isinstance(body, Over) and body.op in NORMALISERS and body.guard else []
        if guards and isinstance(body, Over) and all(set(body.axes) & set(axes_in(guard)) for guard in guards):
            trailing = body.guard
        if trailing is not None and isinstance(body, Over):
            self.over(body, None, sized)
            self.put(" where ")
            for place, guard in enumerate(_clauses(trailing)):
                self.put(", " if place else "")
                self.expr(guard, 0, sized)
        else:
            self.expr(body, 0, sized)
        if definition.site is not None:
            self.sites.append((start, self.length, definition.site))
        self.put(";\n")

    def slot(self, axis: Axis, sized: dict[Axis, set[Polynomial]]) -> str:
        """A coordinate, with its range where no axis that it indexes says its size."""
        letter = self.names.letters[axis]
        if sized.get(axis) == {axis.extent}:
            return letter
        own = f"size({letter})" if self.names.extents.get(letter) == axis.extent else None
        return f"{letter} in 0..{own or self.merged.get(axis) or self.size(axis.extent)}"

    def merges(self, body: Expr) -> tuple[dict[Axis, str], dict[Polynomial, str]]:
        """Coordinates that run over two axes of a definition, `c / size(e)` and `c % size(e)`, with how long they are,
        and the sizes that they are taken apart by, said of those axes."""
        merged: dict[Axis, str] = {}
        lengths: dict[Polynomial, str] = {}
        for part in parts(body):
            if isinstance(part, Read) and isinstance(part.tensor, Definition):
                found = {
                    (kind, index): self.names.letters[axis]
                    for index, axis in zip(part.indices, part.tensor.axes, strict=True)
                    for kind in (Quotient, Remainder)
                    if any(isinstance(a, kind) and index == atom(a) for a in parts_of(index))
                }
                for (kind, index), inner in found.items():
                    [whole] = parts_of(index)
                    outer = found.get((Quotient, atom(Quotient(whole.of, whole.by))))
                    axes = parts_of(whole.of)
                    if kind is Remainder and outer is not None and len(axes) == 1 and inner not in self.scope:
                        [axis] = axes
                        if whole.of == atom(axis) and outer not in self.scope:
                            merged[axis] = f"size({outer}) * size({inner})"
                            lengths[whole.by] = f"size({inner})"
        return merged, lengths

    # ------------------------------------------------------------------------------- expressions

    def expr(self, expr: Expr, level: int, sized: dict[Axis, set[Polynomial]]) -> None:
        start = self.length
        match expr:
            case Num(value, kind):
                self.number(value, kind, level)
            case Whole(index):
                self.put(self.index(index, level))
            case Read(tensor, indices):
                self.read(tensor, indices)
            case Over():
                self.over(expr, expr.guard, sized)
            case Op():
                self.operation(expr, level, sized)
        if expr.site is not None:
            self.sites.append((start, self.length, expr.site))

    def read(self, tensor: Any, indices: tuple[Polynomial, ...]) -> None:
        self.put(tensor.name)
        if indices:
            self.put(f"[{', '.join(self.index(index) for index in indices)}]")

    def over(self, expr: Over, guard: Expr | None, sized: dict[Axis, set[Polynomial]]) -> None:
        if expr.op in NORMALISERS:
            bound = ", ".join(self.names.letters[axis] for axis in expr.axes)
        else:
            bound = ", ".join(self.slot(axis, sized) for axis in expr.axes)
        self.put(f"{expr.op}[{bound}](")
        self.expr(expr.body, 0, sized)
        if guard is not None:
            self.put(" where ")
            self.expr(guard, 0, sized)
        self.put(")")

    def operation(self, expr: Op, level: int, sized: dict[Axis, set[Polynomial]]) -> None:
        op, arguments = expr.op, expr.arguments
        if op == "if":
            self.choice(expr, level, sized)
        elif op == "real":
            self.prefixed(level > 5, "1.0 * ", arguments[0], 6, sized)
        elif op == "truncated":
            self.bracketed(level > 6, lambda: self.truncated(arguments[0], sized))
        elif op in ("*", "/") and isinstance(arguments[1], Num) and arguments[1].kind == "real":
            self.bracketed(level > 5, lambda: self.scaled(expr, sized))
        elif op == "*" and isinstance(arguments[0], Num) and arguments[0].value.powers:
            self.operation(Op("*", (arguments[1], arguments[0]), expr.kind, site=expr.site), level, sized)
        elif op in FUNCTIONS or op in ("max", "min"):
            self.put(f"{op}(")
            for place, argument in enumerate(arguments):
                self.put(", " if place else "")
                self.expr(argument, 0, sized)
            self.put(")")
        elif op in ("neg", "!"):
            self.prefixed(level > 7, "-" if op == "neg" else "!", arguments[0], 7, sized)
        else:
            self.infix(expr, level, sized)

    def infix(self, expr: Op, level: int, sized: dict[Axis, set[Polynomial]]) -> None:
        op, (left, right) = expr.op, expr.arguments
        if op in _FLIPPED and isinstance(right, Whole) and isinstance(left, Whole) and len(right.index.terms) == 1:
            op, left, right = _FLIPPED[op], right, left
        own = _LEVEL[op]
        sides = (own + 1, own) if op == "**" else (own, own + 1)
        if own == 3:
            sides = (own + 1, own + 1)

        def write() -> None:
            self.expr(left, sides[0], sized)
            self.put(f" {'/' if op == '//' else op} ")
            self.expr(right, sides[1], sized)

        self.bracketed(level > own, write)

    def truncated(self, operand: Expr, sized: dict[Axis, set[Polynomial]]) -> None:
        self.expr(operand, 7, sized)
        self.put(" as i64")

    def choice(self, expr: Op, level: int, sized: dict[Axis, set[Polynomial]]) -> None:
        condition, then, otherwise = expr.arguments

        def write() -> None:
            self.put("if ")
            self.expr(condition, 0, sized)
            self.put(" { ")
            self.expr(then, 0, sized)
            self.put(" } else { ")
            self.expr(otherwise, 0, sized)
            self.put(" }")

        self.bracketed(level > 0, write)

    def prefixed(
        self, needed: bool, prefix: str, operand: Expr, level: int, sized: dict[Axis, set[Polynomial]]
    ) -> None:
        def write() -> None:
            self.put(prefix)
            self.expr(operand, level, sized)

        self.bracketed(needed, write)

    def bracketed(self, needed: bool, write: Any) -> None:
        if needed:
            self.put("(")
        write()
        if needed:
            self.put(")")

    # ------------------------------------------------------------------------------- numbers

    def scaled(self, expr: Op, sized: dict[Axis, set[Polynomial]]) -> None:
        """A product with a number, said as it is meant: `/ sqrt(size(d))`."""
        left, right = expr.arguments
        assert isinstance(right, Num)
        value = right.value
        if expr.op == "/":
            if not value.factor:
                self.expr(left, 5, sized)
                self.put(" / 0.0")
                return
            value = Scale(1.0 / value.factor, tuple((e, -p) for e, p in value.powers))
        if value.factor == -1.0 and not value.powers:
            self.put("-")
            self.expr(left, 7, sized)
            return
        self.expr(left, 5, sized)
        start = self.length
        self.put(self.factor(value, left))
        if right.site is not None:
            self.sites.append((start, self.length, right.site))

    def factor(self, value: Scale, beside: Expr) -> str:
        """A number behind what it multiplies."""
        roots, size = _root_of(value.factor), None
        if roots is not None and not value.powers:
            for part in parts(beside):
                if isinstance(part, Over) and part.op == "sum":
                    product = 1
                    for axis in part.axes:
                        product *= axis.extent.constant or 0
                    if product == roots and all(self.names.letters[a] in self.names.spoken for a in part.axes):
                        size = " * ".join(f"size({self.names.letters[axis]})" for axis in part.axes)
        if size is not None:
            return f" / sqrt({size})"
        text = ""
        factor = value.factor
        summed = [part.axes for part in parts(beside) if isinstance(part, Over) and part.op == "sum"]
        sizes = []
        for extent, power in value.powers:
            words, factor = self.powered(extent, power, factor, summed)
            sizes.append(f" {'*' if power > 0 else '/'} {words}")
        roots = _root_of(factor)
        if factor != 1:
            inverse = 1 / factor
            if abs(inverse) >= 1 and inverse == round(inverse, 6):
                text = f" / {_real(inverse)}"
            elif roots is not None and abs(inverse - round(inverse)) > 1e-6:
                text = f" / sqrt({_real(float(roots))})"
            else:
                text = f" * {_real(factor)}"
        return text + "".join(sizes)

    def powered(self, extent: Extent, power: float, factor: float, summed: list[tuple[Axis, ...]]) -> tuple[str, float]:
        """A power of an extent, said of the coordinates that leave the plainest factor, and that factor."""
        said = [
            (" * ".join(f"size({self.names.letters[a]})" for a in axes), product(a.extent for a in axes))
            for axes in summed
            if all(self.names.letters[a] in self.names.spoken for a in axes)
        ]
        said += [(f"size({letter})", known) for letter, known in self.known()]
        best: tuple[str, float, int] | None = None
        for text, known in said:
            if len(known.terms) == 1:
                [(monomial, unit)] = known.terms.items()
                if set(cast(Any, monomial)) == {(extent, 1)}:
                    left = factor * unit**-power
                    if abs(left - 1) < 1e-6:
                        return _powered(text, abs(power)), 1.0
                    if best is None or unit < best[2]:
                        best = (text, left, unit)
        if best is None:
            return _powered(self.size(atom(extent)), abs(power)), factor
        return _powered(best[0], abs(power)), best[1]

    def number(self, value: Scale, kind: str, level: int) -> None:
        if kind == "bool":
            self.put("true" if value.factor else "false")
        elif kind == "whole" and not value.powers:
            text = str(value.factor)
            self.put(f"({text})" if value.factor < 0 and level > 4 else text)
        elif value.powers:
            text = "1.0" + self.factor(value, Num(Scale(1.0)))
            self.put(f"({text})" if level > 4 else text)
        else:
            text = _real(float(value.factor))
            self.put(f"({text})" if level > 4 and (value.factor < 0 or math.isinf(value.factor)) else text)

    def size(self, extent: Polynomial, level: int = 0) -> str:
        """A number of points, in sizes of coordinates."""
        if extent in self.lengths:
            return self.lengths[extent]
        for letter, known in self.known():
            if extent.constant is None and known == extent:
                return f"size({letter})"
        return self.polynomial(extent, level)

    def known(self) -> list[tuple[str, Polynomial]]:
        """Letters of inputs with their extents, those first that the definition has itself."""
        return sorted(self.names.extents.items(), key=lambda item: item[0] not in self.scope)

    def index(self, index: Polynomial, level: int = 0) -> str:
        return self.polynomial(index, level)

    def polynomial(self, index: Polynomial, level: int = 0) -> str:
        if not index.terms:
            return "0"
        terms = sorted(index.terms.items(), key=lambda item: (_order(item[0]), item[1] < 0))
        text = ""
        for monomial, factor in terms:
            sign = "-" if factor < 0 else "+"
            term = self.monomial(cast(Any, monomial), abs(factor))
            text += f" {sign} {term}" if text else f"-{term}" if factor < 0 else term
        several = len(terms) > 1 or terms[0][1] < 0
        lone = len(terms) == 1 and " " in text
        return f"({text})" if (several and level > 4) or (lone and level > 5) else text

    def monomial(self, monomial: Any, factor: int) -> str:
        moving = [self.atom(part) for part, power in monomial if not isinstance(part, Extent) for _ in range(power)]
        still: list[str] = []
        for part, power in monomial:
            if isinstance(part, Extent):
                for _ in range(power):
                    text, factor = self.extent(part, factor)
                    still.append(text)
        words = [*moving, *([str(factor)] if factor != 1 or not (moving or still) else []), *sorted(still)]
        return words[0] if len(words) == 1 else " * ".join(f"({word})" if " " in word else word for word in words)

    def extent(self, part: Extent, factor: int) -> tuple[str, int]:
        """The text of so many times an extent, and the factor that is left."""
        if part in self.derived:
            return self.polynomial(self.derived[part]), factor
        best = ("", 0)
        for letter, known in self.known():
            if len(known.terms) == 1:
                [(monomial, unit)] = known.terms.items()
                if set(cast(Any, monomial)) == {(part, 1)} and (not best[1] or unit < best[1]):
                    best = (letter, unit)
        letter, unit = best
        if factor % unit == 0:
            return f"size({letter})", factor // unit
        shared = math.gcd(factor, unit)
        return f"size({letter}) / {unit // shared}", factor // shared

    def atom(self, part: Any) -> str:
        match part:
            case Axis():
                return self.names.letters[part]
            case Quotient(of, by):
                return f"{self.polynomial(of, 5)} / {self.size(by, 6)}"
            case Remainder(of, by):
                return f"{self.polynomial(of, 5)} % {self.size(by, 6)}"
            case Looked(value):
                inner = Printer(self.names, self.derived, self.scope)
                inner.expr(value, 9, {})
                return inner.text
        raise TypeError(part)


def _order(monomial: Any) -> int:
    return 1 if any(not isinstance(part, Extent) for part, _ in monomial) else 2


def _clauses(guard: Expr) -> list[Expr]:
    if isinstance(guard, Op) and guard.op == "&&":
        return [clause for argument in guard.arguments for clause in _clauses(argument)]
    return [guard]


def _sized_axes(body: Expr) -> dict[Axis, set[Polynomial]]:
    """The extents of the axes that each coordinate indexes on its own."""
    found: dict[Axis, set[Polynomial]] = {}
    for part in parts(body):
        if isinstance(part, Read):
            shape = part.tensor.shape if isinstance(part.tensor, Leaf) else [axis.extent for axis in part.tensor.axes]
            for index, extent in zip(part.indices, shape, strict=True):
                for axis in atoms_in(index):
                    if isinstance(axis, Axis) and index == atom(axis):
                        found.setdefault(axis, set()).add(extent)
    return found


def _real(value: float) -> str:
    if math.isinf(value):
        return "1.0 / 0.0" if value > 0 else "-1.0 / 0.0"
    text = repr(float(value))
    mantissa, mark, exponent = text.partition("e")
    if mark and "." not in mantissa:
        mantissa += ".0"
    return mantissa + mark + exponent


def _root_of(factor: float) -> int | None:
    """The whole number whose root a factor divides by."""
    if not 0 < abs(factor) < 1 or factor < 0:
        return None
    square = 1 / factor**2
    return round(square) if abs(square - round(square)) < 1e-5 * square else None


def _powered(text: str, power: float) -> str:
    if power == 1:
        return text
    if abs(power - 0.5) < 1e-9:
        return f"sqrt({text})"
    return f"({text}) ** {power!r}" if " " in text else f"{text} ** {power!r}"
