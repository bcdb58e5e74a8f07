"""Whole numbers at the edge of their bits: the same number, or the same refusal, as the reference has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import indexical as ix

torch = pytest.importorskip("torch")

LEAST, MOST = -(2**63), 2**63 - 1


def outcome(program: ix.Program, backend: str, arrays: dict[str, Any]) -> Any:
    """The numbers of a call, or the codes that it is refused with."""
    if backend == "torch":
        arrays = {name: torch.as_tensor(a) if isinstance(a, np.ndarray) else a for name, a in arrays.items()}
    try:
        return np.asarray(program(**arrays, backend=backend)).tolist()
    except ix.CallError as refusal:
        return [found.code for found in refusal.diagnostics]


def agree(text: str, **arrays: Any) -> Any:
    """What every backend says of a call."""
    program = ix.compile(text)
    expected = outcome(program, "reference", arrays)
    for backend in ("numpy", "torch"):
        assert outcome(program, backend, arrays) == expected, backend
    return expected


COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@pytest.mark.parametrize("number", ["2147483647", "2147483648", "-2147483649", "9223372036854775807"])
def test_a_narrow_array_is_compared_with_a_wide_number(number: str) -> None:
    lets = "".join(
        f"let a{n}[i] = x[i] {op} {number}; let b{n}[i] = {number} {op} x[i]; let c{n} = sum[i](1 where x[i] {op} m);"
        for n, op in enumerate(COMPARISONS)
    )
    program = ix.compile(f"input x[i] : i32, m : i64; {lets}")
    x = np.array([-(2**31), -1, 0, 2**31 - 1], np.int32)
    expected = program(x, int(number), backend="reference")
    found = program(torch.tensor(x), int(number))
    for name in program.outputs:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
        np.testing.assert_array_equal(getattr(program(x, int(number)), name), getattr(expected, name), err_msg=name)


def test_a_narrow_definition_meets_a_wide_number() -> None:
    x = np.array([-7, 2**31 - 1], np.int64)
    assert agree("input x[i] : i64; let y[i] = (x[i] as i32) % 4294967296;", x=x) == [-7, 2**31 - 1]
    assert agree("input x[i] : i64; let y[i] = max(x[i] as i32, 2147483648);", x=x) == ["IX505"]


def test_a_whole_number_that_meets_a_real_is_rounded_as_a_real_is() -> None:
    x = np.array([2**53 + 1, 2**53], np.int64)
    assert agree("input x[i] : i64; let y[i] = x[i] == 9007199254740992.0;", x=x) == [True, True]


@pytest.mark.parametrize("form", ["abs({})", "-{}", "{} / -1", "{} / m", "{} * m", "0 - {}", "abs({} / 1)"])
def test_what_has_no_64_bits_is_refused(form: str) -> None:
    x = np.array([5, LEAST])
    for at, array in (("x[i]", x), ("z[i]", x), ("x", LEAST)):
        home = "[i]" if at == "x[i]" or at == "z[i]" else ""
        text = f"input x{home} : i64, m : i64; let z{home} = x{home}; let y{home} = {form.format(at)}; output y;"
        assert agree(text, x=array, m=-1) == ["IX505"]
        near = array + 1
        assert agree(text, x=near, m=-1) == ([-6, MOST] if home and "abs" not in form else [6, MOST] if home else MOST)


@pytest.mark.parametrize("form", ["x[i] / m", "abs(x[i]) / m", "x[i] % m", "-x[i]"])
def test_what_a_guard_removes_is_not_refused(form: str) -> None:
    x = np.array([LEAST, 7])
    assert agree(f"input x[i] : i64, m : i64; let y[i] = {form} where x[i] > 0;", x=x, m=-1)[0] == 0


def test_the_remainder_by_minus_one_is_nothing() -> None:
    x = np.array([LEAST, 7])
    assert agree("input x[i] : i64; let y[i] = x[i] % -1;", x=x) == [0, 0]
    assert agree("input x[i] : i64, m[i] : i64; let y[i] = x[i] % m[i];", x=x, m=np.array([-1, -1])) == [0, 0]


@pytest.mark.parametrize(("number", "fits"), [(LEAST, False), (-(2**31) - 1, False), (-(2**31), True), (2**31, False)])
def test_what_is_made_narrow_fits(number: int, fits: bool) -> None:
    expected = [number] if fits else ["IX505"]
    assert agree("input x[i] : i64; let y[i] = x[i] as i32;", x=np.array([number])) == expected
    assert agree("input x[i] : f64; let y[i] = x[i] as i32;", x=np.array([float(number)])) == expected


def test_the_least_real_that_is_whole() -> None:
    """Many of them: they are not left to the reference."""
    x = np.full(4_000_000, float(LEAST))
    program = ix.compile("input x[i] : f64; let y[i] = x[i] as i64;")
    assert int(program(x)[-1]) == int(program(torch.tensor(x))[-1]) == LEAST


@pytest.mark.parametrize("op", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("numbers", [[LEAST, LEAST, 0], [-(2**40), -(2**41), 0], [MOST, MOST, 0], [2**40, 2**41, 0]])
def test_the_largest_of_large_numbers(op: str, numbers: list[int]) -> None:
    x = np.array(numbers)
    assert agree(f"input x[i] : i64; let y = {op}[i](x[i]);", x=x[:2]) == getattr(x[:2], op)()
    assert agree(f"input x[i] : i64; let y = {op}[i](x[i] where x[i] != 0);", x=x) == getattr(x[:2], op)()


def test_one_side_of_a_choice_needs_more_bits() -> None:
    x = np.array([-1, 1], np.int32)
    for number in (2**31, 2**32):
        text = f"input x[i] : i32; let y[i] = (if x[i] > 0 {{ {number} }} else {{ x[i] }}) < 0;"
        assert agree(text, x=x) == [True, False]


def test_a_number_by_itself_is_divided_by_zero() -> None:
    assert agree("input n : i64; let y = n / n;", n=0) == ["IX505"]
    assert agree("input n; let z[j in 0..n] = 1; let y = n / n; output y;", n=0) == ["IX505"]


@pytest.mark.parametrize("form", ["x[i] + 1", "x[i] * x[i]", "abs(x[i])", "x[i] ** 2", "cumsum[i](x[i])"])
def test_checked_arithmetic_goes_into_a_graph(form: str) -> None:
    program = ix.compile(f"input x[i] : i64; let y[i] = {form};")
    x = torch.arange(4)
    found = torch.compile(lambda x: program(x), fullgraph=True, backend="eager")(x)
    assert torch.equal(found, program(x))
