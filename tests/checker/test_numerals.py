"""Numbers that 64 bits do not hold: an error where they are whole, a real where they meet one."""

from __future__ import annotations

import numpy as np
import pytest

import indexical as ix

torch = pytest.importorskip("torch")

BEYOND = "9223372036854775808"


@pytest.mark.parametrize(
    "text",
    [
        f"let y = {BEYOND};",
        f"let y = -{BEYOND}0;",
        f"let y = 2 - {BEYOND};",
        f"let y = {BEYOND} as i64;",
        f"let y[i] = [1, {BEYOND}];",
        f"let y = sum[j in 0..3]({BEYOND});",
        f"let y[i in 0..{BEYOND}] = 1.0;",
        f"input x[i]; let y = x[{BEYOND}];",
        f"input x[i]; let y[i] = x[i] where i < {BEYOND};",
        f"input x[i] : i64; let y[i] = x[i] == {BEYOND};",
        f"input x[i]; let y[i] = if x[i] > 0 {{ {BEYOND} }} else {{ 5 }};",
        f"fn twice(a) {{ a * 2 }} let y = twice({BEYOND});",
    ],
)
def test_a_whole_number_of_more_bits_is_an_error(text: str) -> None:
    found = ix.check(text)
    assert "IX104" in {diagnostic.code for diagnostic in found}
    assert any("64 bits" in diagnostic.message and diagnostic.help is not None for diagnostic in found)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (f"x[i] * {BEYOND}", 2.0**64),
        (f"x[i] - -{BEYOND}", 2.0**63 + 2),
        (f"max(x[i], {BEYOND})", 2.0**63),
        (f"clamp(x[i] * 1e30, 0, {BEYOND})", 2.0**63),
        (f"if x[i] > {BEYOND} {{ 0.5 }} else {{ {BEYOND} }}", 2.0**63),
        (f"x[i] + ({BEYOND} as f64)", 2.0**63),
        (f"x[i] + mean[j in 0..2]({BEYOND})", 2.0**63),
        (f"x[i] * [1.5, {BEYOND}][1]", 2.0**64),
        (f"x[i] ** {BEYOND}", np.inf),
    ],
)
def test_among_reals_it_is_real(form: str, value: float) -> None:
    program = ix.compile(f"input x[i] : f64; let y[i] = {form};")
    x = np.array([2.0])
    for found in (program(x, backend="reference"), program(x), program(torch.tensor(x))):
        assert float(found[0]) == value


def test_the_least_whole_number_can_be_written() -> None:
    program = ix.compile(f"let y = -{BEYOND}; let z[i] = [1, -{BEYOND}];")
    for backend in ("reference", "numpy", "torch"):
        found = program(backend=backend)
        assert int(found.y) == int(found.z[1]) == -(2**63)


@pytest.mark.parametrize("number", ["1e400", "1.8e308", "-2.5e9999", "1e-400", "3e-9999"])
@pytest.mark.parametrize("form", ["let y = {} * 1.0;", "let y = [1.0, {}][1];", "input x; let y = x + {};"])
def test_a_real_number_that_floats_do_not_hold_is_exact_and_refused_in_a_run(number: str, form: str) -> None:
    text = form.format(number)
    assert not [found for found in ix.check(text) if found.severity == "error"]
    program = ix.compile(text)
    given = [0.0] if program.inputs else []
    exact = ix.exact(program, *given)["y"]
    assert exact == ix.exact(f"let y = {number};")["y"]
    assert exact != 0
    for backend in ("reference", "numpy", "torch", "jax"):
        with pytest.raises(ix.CallError, match="IX104") as refused:
            program(*given, backend=backend)
        assert number.endswith(refused.value.diagnostics[0].labels[0].span.text)
    with pytest.raises(ix.CallError, match="IX104"):
        program.source(*given, backend="numpy")


def test_claims_of_numbers_that_floats_do_not_hold() -> None:
    claims = "expect x / 1e399 == 10; expect x == 1.0e400; expect 1 / x == 1e-400; expect x + 1e350 == 1.0e400;"
    found = ix.verify(f"let x = 1e400; {claims} expect log(x) == 921.034;")
    assert [claim.verdict for claim in found.claims] == ["holds"] * 5
    assert ix.verify("let x = 1e-400; expect x == 0;").claims[0].verdict == "fails"
