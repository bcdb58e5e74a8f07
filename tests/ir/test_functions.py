"""The table of elementwise functions: every row is true, on every path. A new row is tested by being there."""

from __future__ import annotations

import ast
import dataclasses
import math
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.laws.duals import Dual, Duals

import indexical as ix
from indexical.ir import functions
from indexical.ir.formulas import evaluated, read, variables
from indexical.ir.functions import FUNCTIONS, Function, operation, registered
from indexical.ir.operations import REALS, UNKNOWN
from indexical.numbers.forms import FormNumbers
from indexical.numbers.functions import ExactNumbers
from indexical.numbers.interval import Interval, Unsettled
from indexical.numbers.ranges import Ranges
from indexical.numbers.tower import Special, refined
from indexical.run.floats import Floats

ROWS = list(FUNCTIONS.values())
SINGLE = [row for row in ROWS if row.arity == 1]
SMOOTH = [row for row in SINGLE if not row.flat]
EDGES = (0.0, -0.0, math.inf, -math.inf, math.nan)
SMALL = (-3.75, -2.5, -1.0, -0.7, -0.25, -1e-9, 1e-9, 0.25, 0.6, 1.0, 1.5, 2.5, 3.75)
LARGE = (-1e300, -800.0, -50.0, -30.0, 30.0, 50.0, 800.0, 1e300)

rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
single = pytest.mark.parametrize("row", SINGLE, ids=lambda row: row.name)
smooth = pytest.mark.parametrize("row", SMOOTH, ids=lambda row: row.name)


def is_inside(row: Function, x: float) -> bool:
    assert row.domain != UNKNOWN
    return row.domain[0] < x < row.domain[1]


def inside(row: Function, *several: tuple[float, ...]) -> list[float]:
    return [x for part in several for x in part if is_inside(row, x)]


def program(row: Function) -> ix.Program:
    names = "xyz"[: row.arity or 3]
    inputs = ", ".join(f"{name}[i]" for name in names)
    return ix.compile(f"input {inputs}; let out[i] = {row.name}({', '.join(f'{name}[i]' for name in names)});")


def arguments(row: Function) -> list[Any]:
    points = np.array([*EDGES, *SMALL, *LARGE])
    return [np.roll(points, 3 * n) for n in range(row.arity or 3)]


# ------------------------------------------------------------------------------------- the table itself


def test_a_column_that_is_left_out_is_an_error() -> None:
    cells = {field.name: getattr(ROWS[0], field.name) for field in dataclasses.fields(ROWS[0])}
    for name in cells:
        with pytest.raises(TypeError):
            Function(**{other: cell for other, cell in cells.items() if other != name})


def test_an_operation_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        operation("cbrt")


def test_a_number_type_without_a_function_is_an_error_and_so_is_a_name_too_many() -> None:
    own = dict(ExactNumbers.functions)
    assert registered("numbers", own, lambda formula: abs) == own
    with pytest.raises(LookupError, match="numbers: tanh must stand"):
        registered("numbers", {name: own[name] for name in own if name != "tanh"}, lambda formula: abs)
    with pytest.raises(LookupError, match="cbrt"):
        registered("numbers", {**own, "cbrt": abs}, lambda formula: abs)


@pytest.mark.parametrize("numbers", [Floats, ExactNumbers, Ranges, FormNumbers])
def test_every_number_type_has_every_function(numbers: Any) -> None:
    assert numbers.functions.keys() == FUNCTIONS.keys()


@rows
def test_formulas_are_made_of_functions_of_the_table(row: Function) -> None:
    slopes = ((row.slope, ""),) if isinstance(row.slope, str) else row.slope or ()
    for formula in (row.definition, *(text for case in slopes for text in case)):
        if formula:
            read(formula, {"x": None, "y": None}, lambda number: None, lambda op, values: operation(op) and None)
            assert variables(formula) <= {"x", "y"}
    assert row.definition is None or variables(row.definition) == {"x"}


# ----------------------------------------------------------------------------------------------- values


@rows
def test_emitted_code_has_the_values_of_the_reference(row: Function) -> None:
    """At 0 of either sign, infinities, NaN and far out too."""
    torch = pytest.importorskip("torch")
    given = arguments(row)
    expected = program(row)(*given, backend="reference")
    skipped = np.isneginf(given[0]) & (row.name in ("gelu", "silu"))  # A product with x: there it is not said.
    for found in (program(row)(*given), program(row)(*map(torch.tensor, given)).numpy()):
        np.testing.assert_allclose(found[~skipped], expected[~skipped], rtol=1e-13, atol=1e-15)


# The functions that formulas are made of, to any number of digits.
PRECISE: dict[str, Any] = {
    **{name: getattr(mpmath, name, None) for name in FUNCTIONS},
    "abs": abs,
    "max": max,
    "min": min,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log(1 + mpmath.exp(x)),
    "log_sigmoid": lambda x: -mpmath.log(1 + mpmath.exp(-x)),
}


@pytest.mark.parametrize("row", [row for row in SINGLE if row.definition], ids=lambda row: row.name)
def test_a_function_with_a_formula_has_its_value(row: Function) -> None:
    assert row.definition is not None
    with mpmath.workdps(800):
        for x in inside(row, SMALL, LARGE[1:-1]):
            right = evaluated(row.definition, mpmath.mpf(x), PRECISE, lambda number: mpmath.mpf(int(number)))
            assert math.isclose(row.value(x), float(right), rel_tol=1e-14), x


def as_interval(number: Any) -> Interval:
    return next(iter(refined(number)))


@single
def test_what_is_computed_in_place_of_a_formula_is_equal_to_it(row: Function) -> None:
    with mpmath.workdps(400):
        for formula, form in row.unstable:
            for x in (*SMALL, -50.0, -30.0, 30.0, 50.0, 300.0):
                one, other = (
                    evaluated(text, mpmath.mpf(x), PRECISE, lambda number: mpmath.mpf(str(float(number))))
                    for text in (formula, form)
                )
                assert mpmath.almosteq(one, other, rel_eps=mpmath.mpf(10) ** -200), (formula, x)


@single
def test_exact_numbers_and_intervals_enclose_the_float(row: Function) -> None:
    exact, ranges, forms = (numbers.functions[row.name] for numbers in (ExactNumbers, Ranges, FormNumbers))
    for x in inside(row, SMALL, (30.0, -30.0, 0.0)):
        number = Fraction(x)
        found = row.value(x)
        slack = Fraction(abs(found) * 1e-13 + 1e-15)
        for interval in (as_interval(exact(number)), ranges(Interval.of(number, 128))):
            assert interval.lower - slack <= Fraction(found) <= interval.upper + slack, x
            assert interval.upper - interval.lower <= slack, x
        formed = as_interval(forms(FormNumbers().number(number)).value)
        assert formed.lower - slack <= Fraction(found) <= formed.upper + slack, x


@single
def test_an_interval_holds_the_values_of_its_points(row: Function) -> None:
    for low, high in ((0.25, 0.75), (-2.0, -0.5), (-1.5, 2.5), (3.0, 4.0)):
        points = np.linspace(low, high, 9)
        if not all(is_inside(row, float(x)) for x in points):
            continue
        wide = Interval.of(Fraction(low), 64) + Fraction(high - low) * unit()
        try:
            found = Ranges.functions[row.name](wide)
        except Unsettled:
            continue
        for x in points:
            assert float(found.lower) - 1e-12 <= row.value(float(x)) <= float(found.upper) + 1e-12


def unit() -> Interval:
    """From 0 to 1."""
    return Interval(0, 1, 0, 64)


@single
def test_exact_infinities_are_those_of_floats(row: Function) -> None:
    infinity, undefined = ExactNumbers.infinity, ExactNumbers.nan
    for x, number in ((math.inf, infinity), (-math.inf, -infinity), (math.nan, undefined)):
        found, expected = ExactNumbers.functions[row.name](number), row.value(x)
        assert isinstance(found, Special) == (not math.isfinite(expected))
        if isinstance(found, Special):
            assert (found.side == 0) == math.isnan(expected)
            assert found.side == 0 or found.side == math.copysign(1, expected)
        else:
            assert found == expected
        assert repr(Ranges.functions[row.name](number)) == repr(found)


# ------------------------------------------------------------------------------------------- what is said


@single
def test_where_it_is_defined(row: Function) -> None:
    for x in {*SMALL, *LARGE} - {*row.domain}:
        assert math.isnan(row.value(x)) != is_inside(row, x)
    assert row.total == (row.domain == REALS)


@single
def test_its_values_are_in_its_range(row: Function) -> None:
    found = [row.value(x) for x in inside(row, np.linspace(-4, 4, 801), LARGE)]
    low, high = row.values
    assert all(low <= y <= high for y in found)
    assert row.never_negative == (min(found) >= 0)


@single
def test_poles_and_infinities(row: Function) -> None:
    """Finite: no infinity or NaN comes of a finite number. Endless: one comes of an infinity."""
    finite = all(math.isfinite(row.value(x)) for x in (0.0, -1.0, *SMALL, *LARGE))
    assert row.finite == finite
    assert set(row.nonfinite_at) == {side for side in (math.inf, -math.inf) if not math.isfinite(row.value(side))}


@single
def test_its_value_at_0(row: Function) -> None:
    at_zero = row.value(0.0)
    assert (0 in row.present) == (at_zero != 0)
    assert (0 in row.undefined) == (not math.isfinite(at_zero))


@single
def test_trend_and_parity(row: Function) -> None:
    points = inside(row, tuple(np.linspace(-4, 4, 401)))
    steps = np.diff([row.value(x) for x in points])
    trend = "rising" if (steps >= 0).all() else "falling" if (steps <= 0).all() else "unknown"
    assert row.trend == trend
    if row.total:
        pairs = [(row.value(x), row.value(-x)) for x in points]
        even, odd = (all(math.isclose(b, sign * a, abs_tol=1e-15) for a, b in pairs) for sign in (1, -1))
        assert row.parity == ("even" if even else "odd" if odd else "neither")


@rows
def test_wholes_and_digits_are_kept(row: Function) -> None:
    given = (-3, 2, 5)[: row.arity or 3]
    found = row.value(*given)
    assert row.keeps_whole == isinstance(found, int)
    assert not row.keeps_whole or row.exact
    if row.exact:
        values = np.array([0.1, -2.7, 3.3], np.float16)[: row.arity or 3]
        assert np.float16(row.value(*map(float, values))) == row.value(*map(float, values))


# ----------------------------------------------------------------------------------------------- slopes


def slope(row: Function, x: float) -> float:
    """What the table says, of floats."""
    cases = ((row.slope, ""),) if isinstance(row.slope, str) else row.slope
    assert cases is not None
    names, total = {"x": x, "y": row.value(x)}, 0.0

    def apply(op: str, values: tuple[float, ...]) -> float:
        if op in "<>":
            return float(values[0] < values[1] if op == "<" else values[0] > values[1])
        signs = {"+": sum, "neg": lambda v: -v[0], "-": lambda v: v[0] - v[1], "*": math.prod}
        if op == "/":
            return Floats().divide(*values)
        return signs[op](values) if op in signs else FUNCTIONS[op].value(*values)  # type: ignore[no-any-return]

    for text, condition in cases:
        if not condition or read(condition, names, float, apply):
            total += read(text, names, float, apply)
    return total


@single
def test_its_slope_is_that_of_its_values(row: Function) -> None:
    for x in inside(row, (-3.4, -1.3, -0.6, 0.3, 1.2, 2.7)):
        step = 1e-5
        near = (row.value(x + step) - row.value(x - step)) / (2 * step)
        assert math.isclose(slope(row, x), near, rel_tol=1e-6, abs_tol=1e-9), x


@smooth
def test_its_slope_is_that_of_dual_numbers(row: Function) -> None:
    duals = Duals(Floats())
    for x in inside(row, SMALL):
        number = Dual(x, {"x": 1.0})
        if row.name in duals.functions:
            found = duals.functions[row.name](number)
        else:
            assert row.definition is not None
            found = evaluated(row.definition, number, duals.functions, duals.number, duals.divide)
        assert math.isclose(slope(row, x), found.parts["x"], rel_tol=1e-6, abs_tol=1e-9), x


@smooth
def test_all_derivatives_agree(row: Function) -> None:
    """The derived program's and PyTorch's, far out too."""
    torch = pytest.importorskip("torch")
    x = np.array(inside(row, SMALL, (-700.0, -50.0, -30.0, 30.0, 50.0, 700.0)))
    right = [slope(row, float(value)) for value in x]
    leaf = torch.tensor(x, requires_grad=True)
    program(row)(leaf).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), right, rtol=1e-9, atol=1e-12)
    for backend in ("reference", "numpy"):
        (found,) = [ix.grad(program(row))(x, np.ones_like(x), backend=backend)]
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-12)


@smooth
def test_where_it_is_steep_and_whether_it_settles(row: Function) -> None:
    torch = pytest.importorskip("torch")
    assert row.domain != UNKNOWN
    edge = [row.domain[0]] if row.domain[0] > -math.inf else [0.0]
    leaf = torch.tensor([*edge, math.inf, -math.inf], dtype=torch.float64, requires_grad=True)
    program(row)(leaf).sum().backward()
    at_edge, *beyond = leaf.grad.tolist()
    assert (0 in row.steep) == (not math.isfinite(at_edge))
    sides = {math.inf: beyond[0], -math.inf: beyond[1]}
    assert set(row.unsettled_at) == {s for s in sides if s in row.domain and not math.isfinite(sides[s])}


# -------------------------------------------------------------------------------- what the compiler does


@single
def test_an_absent_argument_is_refused_unless_0_would_do(row: Function) -> None:
    text = f"input x[i]; let a[i] = x[i] where i > 1; let out[i] = {row.name}(a[i]);"
    refused = [found.code for found in ix.check(text) if found.code == "IX309"]
    assert bool(refused) == (0 in row.present)


def names_in(node: ast.AST) -> set[str]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)} & NAMES  # type: ignore[misc]


# Of whole numbers `abs`, `max` and `min` are the arithmetic of indices.
NAMES = FUNCTIONS.keys() - {"abs", "max", "min", "clamp", "relu"}
# Number types have a function a row, and the table asks for it; a size under a root is still a size; a rotation is made
# of sines and cosines.
EXCEPTED = (
    *("ir/algebra/quotients.py", "facts/rotations.py", "lift/expressions.py"),
    *(f"numbers/{name}.py" for name in ("functions", "ranges", "forms", "terms", "balls", "deferred", "identities")),
    *("numbers/patience.py", "numbers/causes/decimals.py"),
    # The functions of plain Python's numbers, and the memory that a library's take, which the table has no columns for.
    *("engine/show/numbers.py", "engine/show/number_helpers.py", "engine/workspace.py"),
    # How people write numbers on pages.
    *("views/plain.py", "views/forms.py"),
)


def test_no_other_module_lists_functions() -> None:
    """A set of names elsewhere is a column that the table lacks."""
    room = Path(ix.__file__).parent
    found = [
        f"{path.relative_to(room)}:{node.lineno}"
        for path in room.rglob("*.py")
        if path != Path(functions.__file__) and path.relative_to(room).as_posix() not in EXCEPTED
        if sum(f'"{name}"' in (text := path.read_text(encoding="utf-8")) for name in NAMES) > 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.MatchOr) and len(names_in(node)) > 1
    ]
    assert found == []


FAST = [row for row in SINGLE if row.triton != UNKNOWN and row.triton.binary]


@pytest.mark.parametrize("row", FAST, ids=lambda row: row.name)
def test_fast_forms_of_a_gpu_take_an_exponent_of_2(row: Function) -> None:
    assert row.triton != UNKNOWN
    library = SimpleNamespace(exp2=np.exp2, log2=np.log2, abs=np.abs, maximum=np.maximum, minimum=np.minimum)
    names = {"tl": library, "LN_2": math.log(2), "fast_sigmoid": lambda x: 1 / (1 + np.exp2(-x))}
    template = row.triton.fast if "{0}" in row.triton.fast else row.triton.fast + "({0})"
    for x in inside(row, SMALL, (-30.0, 30.0)):
        found = eval(template.replace("{0}", "x"), {**names, "x": np.float64(x) * math.log2(math.e)})
        assert found == pytest.approx(float(row.value(x)), rel=1e-3, abs=1e-12)
