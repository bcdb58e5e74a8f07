"""Generated programs with states: through functions, read by normalisers, in blocks, within one another.

What is computed is what the reference gives, and derivatives are what small changes of the inputs make of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

import indexical as ix
from indexical.run.samples import random_arrays

SIZES = {"t": 4, "l": 3, "m": 2, "d": 3, "e": 2, "n": 2}


@st.composite
def through_functions(draw: st.DrawFn) -> str:
    """A state that goes through a function with definitions of its own, some of them copies."""
    inner = draw(st.sampled_from(["z[..r, m] * z[..r, m]", "softmax[m](z[..r, m])", "z[..r, m]", "tanh(z[..r, m])"]))
    outer = draw(st.sampled_from(["p[..r, m] + z[..r, m]", "p[..r, m] * z[..r, m]", "p[..r, m]", "z[..r, m] / 2"]))
    step = draw(st.sampled_from(["W[l, m] * x[l, m]", "x[l, m]", "W[l, m] * f(x)[l, m]", "sum[n](W[l, n] * x[l, m])"]))
    parts = ["let k[l, m] = STEP;", "let t[l, m] = f(k)[l, m];", "let y[l, m] = x[l, m] + 0.3 * t[l, m];"]
    parts = draw(st.permutations(["let x[0, m] = s[m];", "let x[l in 1..size(l), m] = y[l - 1, m];", *parts]))
    out = draw(
        st.sampled_from(
            [
                "let out[m] = y[size(l) - 1, m];",
                "let out[l, m] = y[l, m];",
                "let out[l] = sum[m](softmax[m](W[l, m]) * y[l, m]);",
                "let out[m] = softmax[m](y[size(l) - 1, m]);",
            ]
        )
    )
    return (
        f"input s[m], W[l, m];\nfn f(z[..r, m]) -> [..r, m] {{ let p[..r, m] = {inner}; {outer} }}\n"
        + "\n".join(parts).replace("STEP", step)
        + f"\n{out}\noutput out;"
    )


@st.composite
def read_states(draw: st.DrawFn) -> str:
    """A state that a normaliser, an attention or a sum reads."""
    base = draw(st.sampled_from(["v[0]", "0.0", "v[0] * a[0, m]"]))
    rule = draw(
        st.sampled_from(
            [
                "a[t, m] * C[t - 1, m] + v[t]",
                "a[t, m] * C[t - 1, m] + v[t] * b[t, m]",
                "0.5 * C[t - 1, m] + v[t]",
                "tanh(C[t - 1, m]) + v[t]",
                "exp(-abs(a[t, m])) * C[t - 1, m] + b[t, m] * v[t]",
            ]
        )
    )
    read = draw(
        st.sampled_from(
            [
                "sum[m](softmax[m](p[t, m]) * C[t, m])",
                "sum[m](softmax[m](C[t, m]) * b[t, m])",
                "sum[m](softmax[m](p[t, m]) * C[t, m] * b[t, m])",
                "log(sum[m](exp(C[t, m])))",
                "sum[m](cumsum[m](C[t, m]) * p[t, m])",
                "sum[m](softmax[m](p[t, m] where m < 1) * C[t, m])",
                "sum[m](softmax[m](p[t, m]) * C[t, m]) + sum[m](p[t, m] * C[t, m])",
                "sum[s in 0..size(t)](softmax[s](p[t, 0] * p[s, 1] where s <= t) * C[s, 1])",
                "sum[s in 0..size(t)](softmax[s](sum[m](C[t, m] * C[s, m]) where s <= t) * v[s])",
            ]
        )
    )
    out = draw(st.sampled_from(["let out[t] = {};", "let out = sum[t]({});", "let out[t] = {} where t > 0;"]))
    rows = f"let C[0, m] = {base};\nlet C[t in 1..size(t), m] = {rule};"
    return f"input v[t], p[t, m], a[t, m], b[t, m];\n{rows}\n{out.format(read)}\noutput out;"


@st.composite
def blocks(draw: st.DrawFn) -> str:
    """A state that is changed once a block of positions, which asks it."""
    change = draw(
        st.sampled_from(["k[2 * n - 2 + x, c] * u[n - 1, x, d]", "k[2 * n - 2 + x, c] * g[n] * u[n - 1, x, d]"])
    )
    keeps = draw(st.sampled_from(["M[n - 1, c, d]", "0.9 * M[n - 1, c, d]", "g[n] * M[n - 1, c, d]"]))
    error = draw(
        st.sampled_from(["sum[c](k[2 * n + x, c] * M[n, c, d])", "tanh(sum[c](k[2 * n + x, c] * M[n, c, d]))"])
    )
    own = "sum[x](sum[c](q[t, c] * k[t / 2 * 2 + x, c]) * u[t / 2, x, d] where x <= t % 2)"
    weighed = "sum[x](softmax[x](sum[c](q[t, c] * k[t / 2 * 2 + x, c])) * u[t / 2, x, d])"
    out = draw(st.sampled_from([f"-{own}", f"sum[c](q[t, c] * M[t / 2, c, d]) - {own}", weighed]))
    return f"""input q[t, d], k[t, d], v[t, d], g[t];
let M[0, c in 0..size(d), d] = 0.0;
let u[n in 0..size(t) / 2, x in 0..2, d] = {error} - v[2 * n + x, d];
let M[n in 1..=size(t) / 2, c in 0..size(d), d] = {keeps} - 0.1 * sum[x]({change});
let out[t, d] = {out};
output out;"""


@st.composite
def nested(draw: st.DrawFn) -> str:
    """A recurrence that asks the state of another one, along the same coordinate or within a row."""
    keeps = draw(st.sampled_from(["R[t - 1, d, e] / 2", "R[t - 1, d, e] * g[t - 1]", "tanh(R[t - 1, d, e])"]))
    asked = "sum[e](x[t, e] * R[t + 1, d, e])"
    rule = draw(
        st.sampled_from(
            [
                f"{asked} - sum[m in 0..size(d)](y[t, m] where m < d)",
                f"{asked} * k[t, d] - 0.5 * sum[m in 0..size(d)](y[t, m] * k[t, m] where m < d)",
                f"if d == 0 {{ {asked} }} else {{ y[t, d - 1] * 0.5 + {asked} }}",
                f"if t == 0 {{ 0.1 }} else {{ y[t - 1, d] * 0.5 + {asked} }}",
                f"if t == 0 {{ 0.1 }} else {{ sum[m in 0..size(d)](y[t - 1, m] * k[t, m]) * 0.3 + {asked} }}",
            ]
        )
    )
    out = draw(st.sampled_from(["output y;", "let out[t] = sum[d](y[t, d]);\noutput out;"]))
    return f"""input x[t, e], k[t, d], v[t, e], g[t];
let R[0, d, e] = 0.0;
let R[t in 1..=size(t), d, e] = {keeps} + k[t - 1, d] * v[t - 1, e];
let y[t, d] = {rule};
{out}"""


def arrays_for(program: ix.Program, seed: int) -> dict[str, Any]:
    names = {axis.coordinate.name for tensor in program.ir.inputs for axis in tensor.axes}
    chosen = {name: size for name, size in SIZES.items() if name in names}
    return random_arrays(program.ir, {}, chosen, seed)[0].arrays


@given(st.one_of(through_functions(), read_states(), blocks(), nested()), st.integers(0, 99))
def test_states_are_computed_and_differentiated(text: str, seed: int) -> None:
    note(text)
    program = ix.compile(text)
    arrays = arrays_for(program, seed)
    value = program(**arrays, backend="reference")
    for options in ({}, {"isolate": True}, {"backend": "torch"}):
        np.testing.assert_allclose(program(**arrays, **options), value, rtol=1e-9, atol=1e-11)

    # Along one direction of all inputs: forward, backward, and by a small change of them.
    noise = np.random.default_rng(seed)
    along = {name: noise.standard_normal(np.shape(array)) for name, array in arrays.items()}
    weights = noise.standard_normal(np.shape(value)) if np.ndim(value) else np.ones(())
    ends = [program(**{name: a + h * along[name] for name, a in arrays.items()}) for h in (1e-5, -1e-5)]
    slope = float(np.sum((ends[0] - ends[1]) * weights) / 2e-5)
    pulled = ix.grad(program)
    given = {**arrays, f"d_{program.outputs[0]}": weights}
    found = pulled(**{name: given[name] for name in pulled.inputs}, outputs=pulled.outputs)
    back = sum(
        float(np.sum(each * along[name.removeprefix("d_")])) for name, each in zip(found._fields, found, strict=True)
    )
    np.testing.assert_allclose(back, slope, rtol=1e-4, atol=1e-6)
    pushed = ix.jvp(program)
    given = {**arrays, **{f"dot_{name}": direction for name, direction in along.items()}}
    np.testing.assert_allclose(
        float(np.sum(pushed(**{name: given[name] for name in pushed.inputs}) * weights)), slope, rtol=1e-4, atol=1e-6
    )
