"""More families: recurrences, elementwise functions with their kinks, branches, absence, functions and blocks."""

from __future__ import annotations

import numpy as np
from tests.laws.derivable_texts import BENT, GUARDS, SMOOTH, Draw, Drawn, family

# ------------------------------------------------------------------------------------------------- recurrences


@family
def steps(draw: Draw) -> Drawn:
    f = draw.pick(("", "relu", "tanh"))
    text = f"""
input AA[m, n], XX[t, m], start[m];
let state[0, m] = start[m];
let state[t in 1..=size(t), m] = {f}(sum[n](AA[m, n] * state[t - 1, n]) + XX[t - 1, m]);
let out[m] = state[size(t), m] * start[m];"""
    late = draw.pick(("out", "state"))
    length = 2 if f == "tanh" else 3
    return text, {"AA": draw.reals(2, 2), "XX": draw.reals(length, 2), "start": draw.reals(2)}, late


@family
def diagonal_steps(draw: Draw) -> Drawn:
    text = """
input aa[t, m], bb[t, m];
let yy[0, m] = bb[0, m];
let yy[t in 1..size(t), m] = aa[t, m] * yy[t - 1, m] + bb[t, m];"""
    return text, {"aa": draw.reals(4, 2), "bb": draw.reals(4, 2)}, "yy"


@family
def backward_steps(draw: Draw) -> Drawn:
    text = f"""
input aa[t], bb[t];
let yy[size(t) - 1] = bb[size(t) - 1] ** 2;
let yy[t in 0..size(t) - 1] = {draw.pick(("relu", "", "abs"))}(aa[t] * yy[t + 1] - bb[t]);
let out = sum[t](yy[t] * aa[t]);"""
    return text, {"aa": draw.reals(4), "bb": draw.reals(4)}, draw.pick(("out", "yy"))


@family
def two_back(draw: Draw) -> Drawn:
    text = """
input cc, dd, ff[n];
let gg[0] = cc;
let gg[1] = dd * cc;
let gg[n in 2..size(n)] = gg[n - 1] * cc + gg[n - 2] * dd + ff[n];"""
    return text, {"cc": draw.reals(), "dd": draw.reals(), "ff": draw.reals(5)}, "gg"


@family
def grid_of_steps(draw: Draw) -> Drawn:
    best = draw.pick(
        (
            "max(tt[i - 1, j] - 1, tt[i, j - 1] - 1, tt[i - 1, j - 1] + SS[i - 1, j - 1])",
            "tt[i - 1, j] * SS[i - 1, j - 1] + tt[i, j - 1]",
            "max(0.0, tt[i - 1, j - 1] + SS[i - 1, j - 1], tt[i, j - 1] * 0.5)",
        )
    )
    text = f"""
input SS[i, j];
let tt[0, 0] = 0.0;
let tt[i in 1..=size(i), 0] = {draw.pick(("-1.0 * i", "SS[i - 1, 0]"))};
let tt[0, j in 1..=size(j)] = SS[0, j - 1];
let tt[i in 1..=size(i), j in 1..=size(j)] = {best};
let out = tt[size(i), size(j)] ** 2;"""
    return text, {"SS": draw.reals(2, 3)}, draw.pick(("out", "tt"))


@family
def two_states(draw: Draw) -> Drawn:
    text = """
input XX[t, m], UU[m, n], keep;
let cell[0, m] = XX[0, m];
let cell[t in 1..=size(t), m] = keep * cell[t - 1, m] + relu(XX[t - 1, m] + sum[n](UU[m, n] * shown[t - 1, n]));
let shown[0, m] = 0.0;
let shown[t in 1..=size(t), m] = cell[t, m] * cell[t - 1, m] - XX[t - 1, m];
let out[m] = shown[size(t), m] + cell[1, m];"""
    return text, {"XX": draw.reals(2, 2), "UU": draw.reals(2, 2), "keep": draw.reals()}, draw.pick(("out", "shown"))


@family
def steps_through_softmax(draw: Draw) -> Drawn:
    text = """
input SS[j], VV[j], uu;
let ww[0, j] = softmax[j](SS[j]);
let ww[t in 1..2, j] = softmax[j](SS[j]) * sum[k in 0..size(j)](ww[t - 1, k] * VV[k]) + uu * ww[t - 1, j];"""
    return text, {"SS": draw.reals(2), "VV": draw.reals(2), "uu": draw.reals()}, "ww"


@family
def decoder(draw: Draw) -> Drawn:
    text = """
input KK[t], vv;
let hh[0] = vv;
let hh[t in 1..size(t)] = sum[s in 0..t](KK[s] * hh[s]) + max[s in 0..t](hh[s] * KK[t]);"""
    return text.replace("s in", "q in").replace("[s]", "[q]"), {"KK": draw.reals(4), "vv": draw.reals()}, "hh"


@family
def descent(draw: Draw) -> Drawn:
    """Steps that go down a loss of their own, by its derivative."""
    f, guard = draw.pick(("", "", "abs", "relu")), draw.pick(("", " where p <= t", " where KK[t - 1, p] > 0"))
    miss = f"{f}(sum[p](KK[t - 1, p] * here[p]{guard})) - vv[t - 1]"
    more = draw.pick(("0", "sum[p](here[p] ** 2)", "max[p](here[p] * rate)"))
    step = f"let here[n] = xx[t - 1, n]; let loss = ({miss}) ** 2 + {more}; here[m] - rate * (@loss / @here)[m]"
    text = f"""
input KK[t, m], vv[t], start[m], rate;
let xx[0, m] = start[m];
let xx[t in 1..=size(t), m] = {{ {step} }};
let out = sum[m](xx[size(t), m] * start[m]);"""
    given = {"KK": draw.reals(2, 2), "vv": draw.reals(2), "start": draw.reals(2), "rate": draw.reals()}
    return text, given, draw.pick(("out", "xx"))


@family
def slopes_of_blocks(draw: Draw) -> Drawn:
    """A Jacobian inside of a block, and one inside of a function, at each point around it."""
    inner = draw.pick(("here[k] * here[0]", "sum[n](here[n] ** 2 where n <= k)", "relu(here[k]) * WW[i]"))
    text = f"""
input XX[i, j], WW[i];
fn steepest(aa[k]) -> [k] {{ let yy = sum[k](aa[k] ** 2) * aa[0]; (@yy / @aa)[k] }}
let out[i, j] = {{
    let here[k] = {draw.pick(("XX[i, k]", "XX[i, k] * WW[i]"))};
    let part[k in 0..size(j)] = {inner};
    (@part / @here)[{draw.pick(("0", "1", "j"))}, j] + {draw.pick(("steepest(here)[j]", "WW[i]"))}
}};"""
    return text, {"XX": draw.reals(2, 3), "WW": draw.reals(2)}, "out"


# ---------------------------------------------------------------------------------- elementwise, kinks, branches


@family
def elementwise(draw: Draw) -> Drawn:
    f, g = draw.pick(BENT), draw.pick(("relu", "abs", "", "-"))
    inner = draw.pick(("XX[i]", "XX[i] * YY[i]", "XX[i] - YY[i]", "XX[i] / 2", "XX[i] / (YY[i] * YY[i] + 1)"))
    text = f"""
input XX[i], YY[i];
let out[i] = {f}({g}({inner})) * YY[i] - {draw.pick(BENT)}(YY[i]);"""
    return text, {"XX": draw.reals(4), "YY": draw.reals(4)}, "out"


@family
def roots(draw: Draw) -> Drawn:
    f = draw.pick(("sqrt", "rsqrt", "log"))
    text = f"""
input XX[i], YY[i];
let out[i] = {f}(XX[i] * {draw.pick(("XX[i]", "YY[i]", "3"))}) * YY[i] / XX[i];"""
    return text, {"XX": draw.positive(3), "YY": draw.positive(3)}, "out"


@family
def outside_the_field(draw: Draw) -> Drawn:
    text = f"""
input XX[i], YY;
let out[i] = {draw.pick(("sin", "cos", "erf", "gelu", "log"))}(XX[i] * YY) * {draw.pick(("sin", "cos"))}(XX[i]);"""
    return text, {"XX": draw.positive(3), "YY": draw.positive()}, "out"


@family
def powers(draw: Draw) -> Drawn:
    power = draw.pick(("XX[i] ** 3", "XX[i] ** 2 ** 2", "XX[i] ** 0", "XX[i] ** 1", "XX[i] ** i", "XX[i] ** -2"))
    text = f"""
input XX[i], YY[i];
let out[i] = {power} + YY[i] ** {draw.pick(("0.5", "2", "1.5"))} * XX[i];"""
    zero = 1 if "-2" in power else -4
    return text, {"XX": draw.reals(3, low=zero), "YY": draw.positive(3)}, "out"


@family
def open_power(draw: Draw) -> Drawn:
    text = """
input XX[i], nn[i];
let out[i] = XX[i] ** nn[i];"""
    return text, {"XX": draw.positive(3), "nn": draw.reals(3, over=1)}, "out"


@family
def clamped(draw: Draw) -> Drawn:
    text = f"""
input XX[i], low, high;
let out[i] = clamp(XX[i], low, high) * {draw.pick(("max(XX[i], low)", "min(XX[i], high, 1)", "XX[i] % 2"))};"""
    return text, {"XX": draw.reals(5), "low": draw.reals(low=-2, high=0), "high": draw.reals(low=0, high=2)}, "out"


@family
def remainder(draw: Draw) -> Drawn:
    text = """
input XX[i], YY[i];
let out[i] = XX[i] % YY[i] + floor(XX[i]) * XX[i] + round(YY[i]) * ceil(XX[i]);"""
    return text, {"XX": draw.reals(4, over=3), "YY": draw.positive(4)}, "out"


@family
def branches(draw: Draw) -> Drawn:
    test = draw.pick(("XX[i] > YY[j]", "i <= j", "XX[i] == 0", "XX[i] > 0 && j < 1", "BB[i]"))
    text = f"""
input XX[i], YY[j], BB[i] : bool;
let out[i, j] = if {test} {{ XX[i] ** 2 * YY[j] }} else {{ {draw.pick(("YY[j]", "0.0", "1 / (YY[j] ** 2 + 1)"))} }};
let used = any[i](BB[i]);"""
    return text, {"XX": draw.reals(3), "YY": draw.reals(2), "BB": draw.bools(3)}, "out"


@family
def safe_branches(draw: Draw) -> Drawn:
    text = """
input XX[i];
let out[i] = (if XX[i] != 0 { 1 / XX[i] } else { 0.0 }) + (if i > 0 { XX[i - 1] } else { XX[i] * 2 });"""
    return text, {"XX": draw.reals(4)}, "out"


@family
def casts(draw: Draw) -> Drawn:
    text = """
input XX[i];
let whole[i] = XX[i] as i64;
let out[i] = (XX[i] as f64) * (whole[i] + 1) + (i as f64) * XX[i];"""
    return text, {"XX": draw.reals(4)}, "out"


# ----------------------------------------------------------------------------------------------------- absence


@family
def absent(draw: Draw) -> Drawn:
    guard = draw.pick((*GUARDS, "XX[i, j] > 0"))
    text = f"""
input XX[i, j], YY[j];
let part[i, j] = XX[i, j] * YY[j] + 1 where {guard};
let out[i] = sum[j](part[i, j] * YY[j]) + part[i, 0] * XX[i, i];"""
    return text, {"XX": draw.reals(3, 3), "YY": draw.reals(3)}, draw.pick(("out", "part"))


@family
def absent_twice(draw: Draw) -> Drawn:
    text = """
input XX[i, j];
let low[i, j] = XX[i, j] where j <= i;
let high[i, j] = XX[i, j] ** 2 where j >= i;
let both[i, j] = low[i, j] * high[i, j] - relu(low[i, j]);
let out[i] = max[j](low[i, j] where j <= i) + sum[j](both[i, j]);"""
    return text, {"XX": draw.reals(3, 3)}, draw.pick(("out", "both"))


@family
def guarded_rows(draw: Draw) -> Drawn:
    text = """
input XX[i, j], MM[i, j] : bool, VV[j];
let allowed[i, j] = MM[i, j] && j <= i;
let ww[i, j] = softmax[j](XX[i, j]) where allowed[i, j];
let late[i, j] = ww[i, j] * VV[j] where i > 0;
let out[i] = sum[j](late[i, j]) + sum[j](ww[i, j] ** 2);"""
    return text, {"XX": draw.reals(3, 3), "MM": draw.bools(3, 3), "VV": draw.reals(3)}, "out"


# ------------------------------------------------------------------------------------ functions, blocks, literals


@family
def functions(draw: Draw) -> Drawn:
    text = f"""
fn norm(xx[..r, i], scale) -> [..r, i] {{
    let total[..r] = sum[i](xx[..r, i] ** 2);
    xx[..r, i] * scale / (total[..r] + 1)
}}
fn bend(ss, tt) {{ {draw.pick(BENT)}(ss) * tt - ss }}
input XX[j, i], YY[i], ww;
let NN = norm(XX, ww);
let out[i, j] = bend(NN[j, i], norm(YY, 2.0)[i]) + norm(NN, YY[0])[j, i];"""
    return text, {"XX": draw.reals(2, 2), "YY": draw.reals(2), "ww": draw.reals()}, "out"


@family
def blocks(draw: Draw) -> Drawn:
    last = draw.pick(("tt", "XX[i, 0]"))
    text = f"""
input XX[i, j], YY[j];
let out[i] = {{ let ss[j] = XX[i, j] * YY[j]; let tt = sum[j](ss[j]); tt * tt + max[j](ss[j]) * zz * {last} }}
    where zz = XX[i, 0] * 2;""".replace("\n    where", " where")
    return text, {"XX": draw.reals(2, 3), "YY": draw.reals(3)}, "out"


@family
def literals(draw: Draw) -> Drawn:
    text = """
input XX[i, k];
let MM = [[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]];
let out[j in 0..2, k] = sum[i](MM[j, i] * XX[i, k]) * [2.0, 0.25][k] + [1, 0][j];"""
    return text, {"XX": draw.reals(3, 2)}, "out"


@family
def leading(draw: Draw) -> Drawn:
    first = draw.pick(("softmax[i](WW[i])", "XX[..r, i] ** 2", "cumsum[i](XX[..r, i])"))
    text = f"""
input XX[..r, i], SS[..r], WW[i];
let YY[..r, i] = {first} * SS[..r] + WW[i] * XX[..r, i];
let out = sum[..r, i](YY[..r, i] * XX[..r, i]);"""
    shape = draw.pick(((), (2,), (2, 1)))
    arrays = {"XX": draw.reals(*shape, 2), "SS": draw.reals(*shape), "WW": draw.reals(2)}
    return text, arrays, draw.pick(("out", "YY"))


@family
def same_letters(draw: Draw) -> Drawn:
    text = """
input XX[i, j], YY[j, k];
let pp[i] = sum[j](XX[i, j]) ** 2;
let qq[i in 0..size(j)] = sum[j in 0..2](XX[j, i] * pp[j]);
let out[j in 0..size(k)] = sum[i in 0..3](YY[i, j] * qq[i] * sum[j](YY[j, 0]));"""
    return text, {"XX": draw.reals(2, 3), "YY": draw.reals(3, 2)}, "out"


@family
def scalars(draw: Draw) -> Drawn:
    text = f"""
input aa, bb, XX[i];
let cc = aa * bb + {draw.pick(SMOOTH)}(aa);
let out = cc * cc - sum[i](XX[i] * cc) / (bb * bb + 1);"""
    return text, {"aa": draw.reals(), "bb": draw.reals(), "XX": draw.reals(2)}, "out"


@family
def unused(draw: Draw) -> Drawn:
    text = """
input XX[i], YY[i], ZZ[i, j];
let side[i] = XX[i] * sum[j](ZZ[i, j]);
let out[i] = XX[i] * size(j) + max(YY[i], 3.0);"""
    return text, {"XX": draw.reals(2), "YY": draw.reals(2), "ZZ": draw.reals(2, 2)}, "out"


@family
def library(draw: Draw) -> Drawn:
    call, arrays = draw.pick(
        (
            ("norms::{layer_norm}", "layer_norm(XX, gain, bias, 1.0)[i, m]"),
            ("norms::{rms_norm}", "rms_norm(XX, gain, 1.0)[i, m] + bias[m]"),
            ("softmax::{softmax1}", "softmax1(XX)[i, m] * gain[m] + bias[m]"),
            ("recurrence::{linear_scan}", "linear_scan(XX, XX)[i, m] * gain[m] + bias[m]"),
            ("softmax::{sink_softmax}", "sink_softmax(XX, gain)[i, m] + bias[m]"),
        )
    )
    text = f"""
use std::{call};
input XX[i, m], gain[m], bias[m];
let out[i, m] = {arrays};"""
    return text, {"XX": draw.reals(2, 2), "gain": draw.reals(2), "bias": draw.reals(2)}, "out"


@family
def given_together(draw: Draw) -> Drawn:
    f, guard = draw.pick(SMOOTH), draw.pick(("", " where i > 0"))
    text = f"""
fn both(x[i], s) -> ([i], [i, j]) {{ let kept[i] = {f}(x[i]) * s; (kept[i] - x[i], kept[i] * x[j]){guard} }}
input XX[i], YY;
let (one, other) = both(XX, YY);
let out[i] = one[i] + sum[j](other[i, j] * other[j, i]);"""
    return text, {"XX": draw.reals(3), "YY": draw.reals()}, "out"


@family
def begun_later(draw: Draw) -> Drawn:
    f, first = draw.pick(SMOOTH), draw.pick((1, 2))
    block = "{ let kept = HH[i - 1] * DD[i]; kept + 1 }"
    rule = draw.pick((f"{f}(HH[i - 1]) * DD[i]", "HH[i - 1] * XX[i] + DD[i]", block))
    text = f"""
input XX[i], YY[j];
let DD[i in {first}..size(i)] = XX[i] * YY[1] - XX[i - 1];
let HH[{first}] = DD[{first}];
let HH[i in {first + 1}..size(i)] = {rule};
let out[i, j] = HH[i] * YY[j] + sum[i_1](DD[i_1] where i_1 <= i);"""
    return text, {"XX": draw.reals(4), "YY": draw.reals(2)}, draw.pick(("out", "HH"))


@family
def factored(draw: Draw) -> Drawn:
    f = draw.pick(("", "2 * "))
    text = f"""
input AA[i, j];
let LL[i, j] = sqrt({f}(AA[i, i] + 9) - sum[k](LL[i, k] ** 2 where k < i)) where i == j;
let LL[i, j] = (AA[i, j] - sum[k](LL[i, k] * LL[j, k] where k < j)) / LL[j, j] where i > j;
let out[i] = sum[j](LL[i, j] * (j + 1));"""
    return text, {"AA": np.array([[-5.0, 2.0], [2.0, -4.0]])}, draw.pick(("out", "LL"))


@family
def by_cases(draw: Draw) -> Drawn:
    f, guards = draw.pick(SMOOTH), draw.pick((("i < j", "i >= j"), ("i == j", "i > j"), ("i % 2 == 0", "i % 2 == 1")))
    text = f"""
input XX[i], YY[j];
let CC[i, j] = {f}(XX[i]) * YY[j] where {guards[0]};
let CC[i, j] = XX[i] - YY[j] ** 2 where {guards[1]};
let HH[0] = XX[0];
let HH[i] = HH[i - 1] * XX[i] where i > 0 && i % 2 == 0;
let HH[i] = HH[i - 1] + XX[i] where i % 2 == 1;
let out[j] = sum[i](CC[i, j] * HH[i]);"""
    return text, {"XX": draw.reals(3), "YY": draw.reals(3)}, "out"
