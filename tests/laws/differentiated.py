"""A program with its derivatives by `ix.grad`, `ix.jvp` and `@`, compared exactly with what dual numbers say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from tests.laws.derivable import Derivable
from tests.laws.duals import Jacobian, hessian, jacobian

import indexical as ix
from indexical.numbers.evaluate import evaluate
from indexical.numbers.results import Value
from indexical.numbers.tower import TooManyTerms, Undecidable, budget

# Terms that may be multiplied and added: for the oracle, and for the derivative that is compared with it.
TERMS = 30_000
MORE_TERMS = 3_000_000
# Their derivatives have figures in them that no exact number is: 2 / √π.
ROUNDED = re.compile(r"\b(erf|gelu)\b")

# What nobody writes: a factor 1, a term 0, two signs.
UGLY = (
    r"\* 1(\.0)?(?![\w.])",
    r"(?<![\w.])1(\.0)? \*(?!\*)",
    r"[+-] 0(\.0)?(?![\w.])",
    r"\* 0(\.0)?(?![\w.])",
    r"/ 1(\.0)?(?![\w.])",
    r"- -",
    r"-\(-",
    r"\+ -",
    r"--",
    r"(\+ 1 - 1|- 1 \+ 1)\b",
    r"\*\* 1(?![\w.])",
    r"where true",
    r"!!",
    r"if true|if false",
)


class OutOfReach(Exception):
    """What exact numbers or the oracle cannot say: too many terms, or something on the way that is no number."""


class Differentiated:
    """One case with its oracle."""

    def __init__(self, case: Derivable, program: ix.Program | None = None) -> None:
        self.case = case
        self.program = program or ix.compile(case.text)
        self.draw = Random(len(case.text))

    @cached_property
    def oracle(self) -> Jacobian:
        try:
            found = jacobian(self.program, self.case.arrays, self.case.of, self.case.by, terms=TERMS)
        except (TooManyTerms, Undecidable) as reason:
            raise OutOfReach(type(reason).__name__) from None
        if not found.bounded:
            raise OutOfReach("unbounded")
        return found

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of the result, as a caller sees it."""
        return self.extent(self.case.of)

    def extent(self, name: str) -> tuple[int, ...]:
        """The shape of an input or of a definition."""
        if name in self.case.arrays:
            return self.case.arrays[name].shape
        return np.shape(self.program(**self.case.arrays, outputs=name, backend="reference"))

    @cached_property
    def cotangent(self) -> list[Any]:
        """That of a scalar is 1, and not asked for."""
        return self.direction(len(self.oracle.cells)) if self.shape else [1]

    @cached_property
    def tangents(self) -> dict[str, list[Fraction]]:
        return {name: self.direction(self.oracle.by[name]) for name in self.case.by}

    def direction(self, count: int) -> list[Fraction]:
        """Rationals that are not 0, no two of them alike: nothing cancels."""
        return [Fraction(self.draw.choice((-1, 1)) * (n + 2), n % 3 + 3) for n in range(count)]

    # --------------------------------------------------------------------------------------- the derivatives

    def moving(self) -> Differentiated | None:
        """The same by those inputs alone that flow into the result: of the others the compiler says that nothing
        flows, and the oracle has to agree. None where that is all."""
        case = self.case
        while case.by:
            found = self if case is self.case else Differentiated(case, self.program)
            try:
                found.backward  # noqa: B018
            except ix.CallError as refusal:
                still = re.match(r"nothing flows from `(\w+)`", refusal.diagnostics[0].message)
                if still is None:
                    raise
                if any(seed[0] == still[1] for cell in self.oracle.cells for seed in cell.parts):  # type: ignore[index]
                    raise AssertionError(f"{refusal}\n{case!r}") from refusal
                case = replace(case, by=tuple(name for name in case.by if name != still[1]))
            else:
                return found
        return None

    @cached_property
    def backward(self) -> ix.Program:
        return ix.grad(self.program, of=self.case.of, by=self.case.by)

    @cached_property
    def forward(self) -> ix.Program:
        return ix.jvp(self.program, of=self.case.of, by=self.case.by)

    @cached_property
    def gradients(self) -> dict[str, list[Any]]:
        given = {name: nested(self.cotangent, self.shape) for name in self.new_inputs(self.backward)}
        return self.cells(self.backward, given)

    @cached_property
    def pushed(self) -> list[Any]:
        new = self.new_inputs(self.forward)
        given = {}
        for name in self.case.by:
            found = [other for other in new if re.fullmatch(rf"dot_{name}(_\d+)?", other)]
            if found:
                given[found[0]] = nested(self.tangents[name], self.extent(name))
        (result,) = self.cells(self.forward, given).values()
        return result

    def new_inputs(self, program: ix.Program) -> list[str]:
        return [name for name in program.inputs if name not in self.program.inputs]

    def cells(self, program: ix.Program, given: Mapping[str, Any]) -> dict[str, list[Any]]:
        """The outputs of a derivative by name, exactly; what is absent is 0."""
        return exactly(program, {**self.case.arrays, **given})

    # ---------------------------------------------------------------------------------------- what is compared

    def differences(self) -> Iterator[str]:
        """Where reverse and forward mode differ from the oracle."""
        for name, output in zip(self.case.by, self.backward.outputs, strict=True):
            expected = self.oracle.pull(self.cotangent, name)
            yield from self.apart(f"{output} by `ix.grad`", self.gradients[output], expected)
        yield from self.apart("by `ix.jvp`", self.pushed, self.oracle.push(self.tangents))

    def apart(self, words: str, found: Sequence[Any], expected: Sequence[Any]) -> Iterator[str]:
        if len(found) != len(expected):
            yield f"{words}: {len(found)} cells, and should be {len(expected)}"
            return
        for offset, (one, other) in enumerate(zip(found, expected, strict=True)):
            if not same(one, other, bool(ROUNDED.search(self.case.text))):
                yield f"{words} at {offset} is {one}, and should be {other}"

    def jacobians(self) -> Iterator[str]:
        """Where `@y / @x` differs, with `x` each of the inputs."""
        for name in self.case.by:
            program = ix.compile(f"{self.case.text}\nlet jacobian_of_it = @{self.case.of} / @{name};\n")
            (found,) = exactly(program, self.case.arrays, ("jacobian_of_it",)).values()
            count = self.oracle.by[name]
            cells = range(len(self.oracle.cells))
            expected = [self.oracle.entry(n, (name, at)) for n in cells for at in range(count)]
            yield from self.apart(f"@{self.case.of} / @{name}", found, expected)

    @cached_property
    def curvature(self) -> list[dict[Any, Any]]:
        """Of each cell, by pairs of cells."""
        try:
            entries, bounded = hessian(self.program, self.case.arrays, self.case.of, terms=20 * TERMS)
        except (TooManyTerms, Undecidable) as reason:
            raise OutOfReach(type(reason).__name__) from None
        if not bounded:
            raise OutOfReach("unbounded")
        return entries

    def jacobians_of_jacobians(self) -> Iterator[str]:
        """Where `@` of `@` differs, by the first and then by the last of the inputs."""
        first, last = self.case.by[0], self.case.by[-1]
        both = f"let slope_of_it = @{self.case.of} / @{first};\nlet bend_of_it = @slope_of_it / @{last};\n"
        places = [((first, m), (last, n)) for m in range(self.oracle.by[first]) for n in range(self.oracle.by[last])]
        expected = [entry.get(place, 0) for entry in self.curvature for place in places]
        try:
            program = ix.compile(f"{self.case.text}\n{both}")
        except ix.CompileError as refusal:
            if not is_flat(refusal) or any(cell != 0 for cell in expected):
                raise
            return
        (found,) = exactly(program, self.case.arrays, ("bend_of_it",)).values()
        yield from self.apart(f"@(@{self.case.of} / @{first}) / @{last}", found, expected)

    def second(self) -> Iterator[str]:
        """Where the gradient of the gradient differs from duals of duals: by every input, of the first."""
        entries = self.curvature
        inner = self.case.by[0]
        shape = self.case.arrays[inner].shape
        weights = self.direction(self.oracle.by[inner]) if shape else [Fraction(1)]
        expected = {name: self.pulled_twice(entries, weights, name) for name in self.case.by}
        given = {name: nested(self.cotangent, self.shape) for name in self.new_inputs(self.backward)}
        try:
            again = ix.grad(self.backward, of=self.backward.outputs[0], by=self.case.by)
        except ix.CallError as refusal:
            if not is_flat(refusal) or any(cell != 0 for cells in expected.values() for cell in cells):
                raise
            return
        outer = [name for name in again.inputs if name not in self.program.inputs and name not in given]
        found = self.cells(again, {**given, **{name: nested(weights, shape) for name in outer}})
        for name, output in zip(self.case.by, again.outputs, strict=True):
            yield from self.apart(f"{output} by `ix.grad` twice", found[output], expected[name])

    def pulled_twice(self, entries: Sequence[Mapping[Any, Any]], weights: Sequence[Fraction], name: str) -> list[Any]:
        """`Σ cotangent · weight · ∂²cell / ∂x ∂y` for each cell `y` of a tensor, with `x` those of the first."""
        return [
            sum(
                self.cotangent[n] * weights[m] * entry.get(((self.case.by[0], m), (name, at)), 0)
                for n, entry in enumerate(entries)
                for m in range(len(weights))
            )
            for at in range(self.oracle.by[name])
        ]

    def transposes(self) -> bool:
        """`cotangent · (J tangent)` is `(cotangent J) · tangent`."""
        left = sum((c * v for c, v in zip(self.cotangent, self.pushed, strict=True)), 0)
        right: Any = 0
        for name, output in zip(self.case.by, self.backward.outputs, strict=True):
            right += sum((g * t for g, t in zip(self.gradients[output], self.tangents[name], strict=True)), 0)
        return same(left, right, bool(ROUNDED.search(self.case.text)))


def is_flat(refusal: ix.Error) -> bool:
    """Whether the compiler says that nothing flows, since all that moves moves in steps."""
    return refusal.diagnostics[0].message.startswith("nothing flows from")


def exactly(program: ix.Program, given: Mapping[str, Any], outputs: tuple[str, ...] = ()) -> dict[str, list[Any]]:
    """The outputs of a program by name, their cells in row-major order; an absent one is 0."""
    wanted = outputs or program.outputs
    arguments = {name: given[name] for name in program.inputs}
    try:
        found = evaluate(program.ir, arguments, {}, wanted, terms=MORE_TERMS)
    except ix.Error as refusal:
        if refusal.diagnostics[0].code in ("IX513", "IX514"):
            raise OutOfReach(refusal.diagnostics[0].code) from None
        raise
    return {name: [0 if cell is None else cell for cell in found.table(name).cells] for name in wanted}


def nested(cells: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Cells in row-major order as an array of objects; of what has no points, as an empty one."""
    if not shape:
        return cells[0]
    if not math.prod(shape):
        return np.zeros(shape)
    array = np.empty(len(cells), object)
    array[:] = cells
    return array.reshape(shape)


def same(found: Any, expected: Any, nearly: bool) -> bool:
    """Whether two exact numbers are equal. Where named terms leave it open, after thousands of digits, they are."""
    if nearly:
        one, other = float(Value(found)), float(Value(expected))
        return abs(one - other) <= 1e-12 * max(1.0, abs(other))
    try:
        with budget(MORE_TERMS):
            return bool(found == expected)
    except (Undecidable, TooManyTerms):
        one, other = float(Value(found)), float(Value(expected))
        return abs(one - other) <= 1e-12 * max(1.0, abs(other))


def flaws(program: ix.Program) -> list[str]:
    """What is wrong with a printed derivative: warnings, or what nobody would write."""
    text = str(program)
    found = [f"{note.code}: {note.message}" for note in ix.check(text) if note.severity != "note"]
    lines = [line for line in text.splitlines() if line.startswith(("let d", "    ", "let dot"))]
    for line in lines:
        plain = line.split("//")[0]
        found += [f"{pattern!r} in {line}" for pattern in UGLY if re.search(pattern, plain)]
    return found
