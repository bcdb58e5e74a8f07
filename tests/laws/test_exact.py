"""Exact values are those that floats come near to, at the same points; and every form of them reads as the value."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from tests.laws.agreement import agree, is_within
from tests.laws.grids import evaluate as evaluate_grids
from tests.laws.numerics import nudged
from tests.laws.programs import Case, cases, random_case
from tests.numbers.test_notation import Reader
from tests.profiles import examples

import indexical as ix
from indexical import readings
from indexical.numbers.results import Value
from indexical.numbers.terms import Polynomial
from indexical.numbers.tower import Special
from indexical.run.bind import bind
from indexical.run.floats import Floats
from indexical.run.reference import Table, evaluate

# Exact evaluation may refuse where floats do not: for inputs that are no numbers, or numbers that grow too large.
ABOUT_EXACTNESS = ("IX511", "IX512", "IX513", "IX514")


class Compared:
    """One program by exact numbers and by floats, and how many cells were compared."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.program = ix.compile(case.text)
        self.cells = self.hanging = 0
        self.floats: dict[str, Table] = {}
        self.exact: readings.ExactResults | None = None
        self.refused = self.refused_exactly = ""
        names = self.program.definitions
        try:
            bound = bind(self.program.ir, case.arrays)
            self.floats = evaluate(self.program.ir, bound.tables, bound.sizes, Floats(), names)
        except ix.Error as refusal:
            self.refused = refusal.diagnostics[0].code
        try:
            self.exact = readings.exact(self.program, outputs=list(names), **case.arrays)
        except ix.Error as refusal:
            self.refused_exactly = refusal.diagnostics[0].code

    @property
    def is_outside(self) -> bool:
        return self.refused_exactly in ABOUT_EXACTNESS

    def check(self) -> None:
        if self.is_outside:
            return
        assert self.refused == self.refused_exactly, repr(self.case)
        for name, table in self.floats.items():
            self.check_table(name, table)

    def check_table(self, name: str, table: Table) -> None:
        assert self.exact is not None
        found = self.exact.evaluated.table(name)
        words = f"{self.case!r}\n`{name}`"
        assert found.shape == table.shape, words
        assert found.removed == table.removed, words
        assert [cell is None for cell in found.cells] == [cell is None for cell in table.cells], words
        for offset, (cell, expected) in enumerate(zip(found.cells, table.cells, strict=True)):
            if cell is not None:
                self.cells += 1
                if not is_near(cell, expected):
                    assert self.hangs(name, offset), f"{words} at {offset} is {cell}, and by floats {expected}"
                    self.hanging += 1

    def hangs(self, name: str, offset: int) -> bool:
        """Whether a cell hangs on the last digits of floats: of those it is not known what they should be. Beside a
        step, as of `floor`, the floats on its way may all round to one number."""
        if re.search(r"\b(floor|ceil|round|as i32|as i64)\b", self.case.text):
            return True
        base = evaluate_grids(self.case.program, self.case.arrays)[name]
        moved = [evaluate_grids(self.case.program, self.case.arrays, nudged(seed))[name] for seed in (0.3, 1.7, 4.1)]
        return not all(agree(np.asarray(other), np.asarray(base)).reshape(-1)[offset] for other in moved)


def is_near(cell: Any, expected: Any) -> bool:
    if isinstance(expected, int):
        return bool(cell == expected)
    if isinstance(cell, Special) or not math.isfinite(expected):
        found = float(Value(cell))
        return found == expected or (math.isnan(found) and math.isnan(expected))
    return math.isclose(float(Value(cell)), expected, rel_tol=1e-9, abs_tol=1e-12)


def is_comparable(case: Case) -> bool:
    """Exact numbers are not rounded to a dtype."""
    return is_within(case) and not re.search(r"\bas (f32|f16|bf16)\b", case.text)


@cache
def compared(seed: int) -> Compared | None:
    case = random_case(seed)
    return Compared(case) if is_comparable(case) else None


SEEDS = range(90)


def test_exact_values_are_those_that_floats_come_near_to() -> None:
    cells = hanging = programs = 0
    for seed in SEEDS:
        found = compared(seed)
        if found is not None:
            found.check()
            cells, hanging = cells + found.cells, hanging + found.hanging
            programs += found.exact is not None
    assert programs > 0.7 * len(SEEDS)
    assert cells > 1000
    assert hanging < 0.02 * cells


@examples(1.5)
@given(cases())
def test_programs_that_shrink(case: Case) -> None:
    if is_comparable(case):
        Compared(case).check()


def test_what_the_reference_refuses_is_refused_for_the_same_reason() -> None:
    refused = 0
    for seed in range(120, 200):
        case = random_case(seed)
        whole = [name for name, array in case.arrays.items() if array.dtype.kind == "i" and array.ndim and name in "pq"]
        if is_comparable(case) and whole:
            far = {name: np.where(case.arrays[name] >= 0, 99, case.arrays[name]) for name in whole}
            found = Compared(Case(case.program, {**case.arrays, **far}))
            if not found.is_outside:
                assert found.refused == found.refused_exactly, repr(found.case)
                refused += found.refused != ""
    assert refused >= 5


# ----------------------------------------------------------------------- forms

# A number with more terms than this is as right, and takes long to read.
READABLE = 60


def size(number: Any) -> int:
    """How many terms a number has, with those inside of its terms."""
    if isinstance(number, Polynomial):
        inside = sum(size(argument) for atom in number.atoms for argument in getattr(atom, "arguments", ()))
        return len(number.terms) + inside + sum(map(size, number.terms.values()))
    top = getattr(number, "top", None)
    return 1 if top is None else len(top) + sum(map(len, number.factors))


def named_values(text: str, results: readings.ExactResults) -> dict[str, Any]:
    """The elements that a form mentions, to many digits."""
    found = {}
    for token in Reader(text).tokens:
        name, _, place = token.partition("[")
        table = results.evaluated.evaluation.tensors.get(name)
        if table is not None and re.match(r"[A-Za-z_]", token):
            offset = table.offset(tuple(map(int, place.rstrip("]").split(",")))) if place else 0
            found[token] = mpmath.mpf(Value(table.cells[offset]).decimal(150))
    return found


def check_forms(value: Value, results: readings.ExactResults) -> int:
    """How many forms were read back."""
    written = value.to_json(12)
    texts = [str(value), value.canonical(), value.named(), value.spelled()]
    assert written["structural"] == texts[0]
    if value.masked or isinstance(value.number, bool | Special):
        return 0
    assert written["canonical"] == texts[1]
    assert written["decimal"] == value.decimal(12)
    expected = mpmath.mpf(value.decimal(150))
    # What would be too long to print is a rounded number.
    finite = [text for text in texts if "∞" not in text and not text.startswith("≈")]
    for text in finite:
        found = Reader(text, named_values(text, results)).value()
        assert abs(found - expected) <= mpmath.mpf(10) ** -60 * max(1, abs(expected)), (value.name, text)
    assert abs(mpmath.mpf(value.decimal(12)) - expected) <= mpmath.mpf(10) ** -11 * abs(expected)
    return len(finite)


@pytest.mark.sampled(0)
def test_every_form_reads_as_the_value() -> None:
    read = left = 0
    with mpmath.workdps(200):
        for seed in SEEDS:
            found = compared(seed)
            if found is None or found.exact is None:
                continue
            for name in found.program.definitions:
                values = list(found.exact.tensor(name).values())
                readable = [value for value in values if size(value.number) <= READABLE]
                left += len(values) - len(readable)
                read += sum(check_forms(value, found.exact) for value in readable[:6])
    assert read > 1000
    assert left < read
