"""More families: indices that are hard to read backwards, ranges that do not begin at 0, reductions in reductions."""

from __future__ import annotations

import numpy as np
from tests.laws.derivable_texts import Draw, Drawn, family

# -------------------------------------------------------------------------------------------------------- indices


@family
def hankel(draw: Draw) -> Drawn:
    lengths = {"i + j": 5, "2 * i + 3 * j": 11, "i - j + 2": 5, "4 - i - j": 5, "3 * i + j": 9}
    index = draw.pick(list(lengths))
    text = f"""
input XX[m], YY[i, j];
let out[i] = sum[j](XX[{index}] * YY[i, j]);"""
    return text, {"XX": draw.reals(lengths[index]), "YY": draw.reals(3, 3)}, "out"


@family
def turned_board(draw: Draw) -> Drawn:
    text = """
input XX[m, n];
let out[i in 0..2, j in 0..3] = XX[i + j, i - j + 2] ** 2 * (i + 1);"""
    return text, {"XX": draw.reals(4, 4)}, "out"


@family
def many_to_one(draw: Draw) -> Drawn:
    index = draw.pick(
        ("(i + j) / 2", "i * j", "(i * i + j) % 3", "max(i, j)", "min(i + j, 3)", "abs(i - 2 * j)", "2 - 2")
    )
    text = f"""
input XX[m], YY[i, j];
let out[i, j] = XX[{index}] * YY[i, j];"""
    return text, {"XX": draw.reals(5), "YY": draw.reals(3, 3)}, "out"


@family
def cells_by_number(draw: Draw) -> Drawn:
    read = draw.pick(("XX[0, k] * XX[1, 0]", "XX[size(m) - 1, k]", "XX[k % 2, 1] * XX[1, k]", "XX[0, 0] * XX[0, k]"))
    text = f"""
input XX[m, k];
let out[k] = {read} + k;"""
    return text, {"XX": draw.reals(3, 2)}, "out"


@family
def packed_axes(draw: Draw) -> Drawn:
    text = """
input XX[n], WW[h, d, e];
let YY[i in 0..2, m in 0..4] = sum[e](XX[(m / 2 * 2 + m % 2) * 2 + i] * WW[m / 2, m % 2, e]);
let out[h, d] = YY[0, h * 2 + d] * YY[1, d * 2 + h];"""
    return text, {"XX": draw.reals(8), "WW": draw.reals(2, 2, 2)}, draw.pick(("out", "YY"))


@family
def uneven_groups(draw: Draw) -> Drawn:
    text = """
input XX[h, i], KK[g, i];
let out[h] = sum[i](XX[h, i] * KK[h / 2, i] * KK[h % 2, (i + h) % size(i)]);"""
    return text, {"XX": draw.reals(5, 2), "KK": draw.reals(3, 2)}, "out"


@family
def counted(draw: Draw) -> Drawn:
    """A range and an index by whole scalar inputs."""
    text = """
input XX[m], step : i64, count : i64;
let out[i in 0..count] = sum[k in 0..step](XX[i * step + k] ** 2) + XX[i + step - 1];"""
    step, count = draw.pick(((2, 2), (1, 4), (3, 1), (2, 0)))
    return text, {"XX": draw.reals(5), "step": np.array(step), "count": np.array(count)}, "out"


@family
def later_ranges(draw: Draw) -> Drawn:
    op = draw.pick(("sum", "max", "prod", "mean"))
    text = f"""
input XX[i, j];
let out[i] = {op}[k in 1..size(j)](XX[i, k] * XX[i, k - 1]) + sum[k in 2..=3](XX[i, k - 2]);"""
    return text, {"XX": draw.reals(2, 3)}, "out"


@family
def nested_reads(draw: Draw) -> Drawn:
    text = """
input XX[m, k], PP[i, j] : i64, QQ[m] : i64;
let out[i, k] = sum[j](XX[QQ[PP[i, j]], k] where PP[i, j] != i);"""
    return text, {"XX": draw.reals(3, 2), "PP": draw.wholes(3, 2, 3), "QQ": draw.wholes(3, 3)}, "out"


@family
def guarded_gather(draw: Draw) -> Drawn:
    text = """
input XX[m], PP[i] : i64;
let out[i] = (if PP[i] < size(m) { XX[PP[i]] } else { XX[0] * 2 }) * sum[k in 0..4](XX[k] where k < PP[i], k < 3);"""
    return text, {"XX": draw.reals(3), "PP": draw.wholes(5, 4)}, "out"


@family
def scattered(draw: Draw) -> Drawn:
    text = """
input VV[i], PP[i] : i64;
let out[m in 0..4] = sum[i](VV[i] ** 2 where PP[i] == m) * (m + 1);"""
    return text, {"VV": draw.reals(4), "PP": draw.wholes(4, 4)}, "out"


# ----------------------------------------------------------------------------------------------------- reductions


@family
def reductions_in_reductions(draw: Draw) -> Drawn:
    outer, inner = draw.pick(("sum", "max", "prod", "mean")), draw.pick(("sum", "min", "prod", "mean", "max"))
    text = f"""
input XX[i, j], YY[j, k];
let out[i] = {outer}[j](XX[i, j] * {inner}[k](YY[j, k] + XX[i, k]));"""
    return text, {"XX": draw.reals(2, 2), "YY": draw.reals(2, 2)}, "out"


@family
def product_over_two(draw: Draw) -> Drawn:
    guard = draw.pick(("", " where i <= j", " where i + j != 1"))
    text = f"""
input XX[i, j], YY;
let out = prod[{draw.pick(("i, j", "j, i"))}](XX[i, j] - YY{guard});"""
    return text, {"XX": draw.reals(2, 2), "YY": draw.reals()}, "out"


@family
def inner_letters(draw: Draw) -> Drawn:
    """A reduction binds a letter that is bound outside."""
    text = """
input XX[i, j], YY[j];
let out[i] = sum[j](XX[i, j] * sum[k in 0..size(j)](YY[k] * XX[i, k])) * max[j](YY[j] * sum[j](XX[i, j]));"""
    return text, {"XX": draw.reals(2, 2), "YY": draw.reals(2)}, "out"


@family
def both_sides(draw: Draw) -> Drawn:
    """A tensor that is read in the body, in the guard and in the condition: only the first moves it."""
    text = """
input XX[i], cut;
let out[i] = sum[j in 0..size(i)](XX[j] * XX[i] where XX[j] > cut) + (if XX[i] > cut { XX[i] * cut } else { cut });"""
    return text, {"XX": draw.reals(3), "cut": draw.reals()}, "out"


@family
def log_softmax_rows(draw: Draw) -> Drawn:
    guard = draw.pick(("j <= i", "j != 1", "j >= i"))
    text = f"""
input XX[i, j], TT[i, j];
let log_p[i, j] = log_softmax[j](XX[i, j] where {guard});
let out[i] = -sum[j](TT[i, j] * log_p[i, j] where {guard});"""
    return text, {"XX": draw.reals(3, 3), "TT": draw.reals(3, 3)}, "out"


@family
def softmax_over_queries(draw: Draw) -> Drawn:
    text = """
input SS[i, j], VV[j, e];
let compete[i, j] = softmax[i](SS[i, j] * 2 where i != j);
let share[i, j] = compete[i, j] / (sum[k in 0..size(j)](compete[i, k]) + 1);
let out[i, e] = sum[j](share[i, j] * VV[j, e]);"""
    return text, {"SS": draw.reals(2, 2), "VV": draw.reals(2, 1)}, "out"


@family
def squared_guards(draw: Draw) -> Drawn:
    text = """
input XX[i, j];
let near[i, j] = abs(i - j) <= 1;
let part[i, j] = XX[i, j] ** 2 where near[i, j];
let rows[i] = sum[j](part[i, j]) where i != 1;
let out[j] = sum[i](part[i, j] * rows[i]) - rows[0] * part[0, 0];"""
    return text, {"XX": draw.reals(3, 3)}, draw.pick(("out", "rows", "part"))


# ---------------------------------------------------------------------------------------------------- recurrences


@family
def guarded_steps(draw: Draw) -> Drawn:
    text = """
input XX[t, m], KK[t] : bool;
let hh[0, m] = XX[0, m];
let hh[t in 1..size(t), m] = if KK[t] { hh[t - 1, m] * XX[t, m] } else { hh[t - 1, size(m) - 1 - m] + XX[t, m] };
let out[t] = sum[m](hh[t, m] * XX[t, m] where m <= t);"""
    return text, {"XX": draw.reals(3, 2), "KK": draw.bools(3)}, draw.pick(("out", "hh"))


@family
def steps_of_two(draw: Draw) -> Drawn:
    text = """
input XX[t], aa;
let yy[0] = XX[0] * aa;
let yy[1] = XX[1];
let yy[t in 2..size(t)] = yy[t - 2] * aa + XX[t] * XX[t - 1];
let out = yy[size(t) - 1] * yy[size(t) - 2];"""
    return text, {"XX": draw.reals(5), "aa": draw.reals()}, draw.pick(("out", "yy"))


@family
def steps_in_batches(draw: Draw) -> Drawn:
    text = """
input AA[b, m, n], XX[..r, b, t];
let hh[..r, b, 0, m] = XX[..r, b, 0] * m;
let hh[..r, b, t in 1..size(t), m] = sum[n](AA[b, m, n] * hh[..r, b, t - 1, n]) + XX[..r, b, t];"""
    shape = draw.pick(((), (2,)))
    return text, {"AA": draw.reals(1, 2, 2), "XX": draw.reals(*shape, 1, 3)}, "hh"


@family
def attending_steps(draw: Draw) -> Drawn:
    text = """
input KK[t], vv;
let hh[0] = vv;
let hh[t in 1..size(t)] = sum[q in 0..t](KK[q] * hh[q] * exp(KK[t] - KK[q])) / sum[q in 0..t](exp(KK[t] - KK[q]));"""
    return text, {"KK": draw.reals(3), "vv": draw.reals()}, "hh"


@family
def backward_grid(draw: Draw) -> Drawn:
    text = """
input SS[i, j];
let tt[i in 0..size(i), size(j) - 1] = SS[i, size(j) - 1];
let tt[size(i) - 1, j in 0..size(j) - 1] = SS[size(i) - 1, j] * 2;
let tt[i in 0..size(i) - 1, j in 0..size(j) - 1] = tt[i + 1, j] * SS[i, j] + tt[i, j + 1] - tt[i + 1, j + 1];"""
    return text, {"SS": draw.reals(3, 3)}, "tt"


@family
def running_through_steps(draw: Draw) -> Drawn:
    text = """
input XX[t];
let run[t] = cumsum[t](XX[t] ** 2);
let hh[0] = run[0];
let hh[t in 1..size(t)] = max(hh[t - 1] * XX[t], run[t] - hh[t - 1]);
let out = prod[t](hh[t] + 1);"""
    return text, {"XX": draw.reals(3)}, "out"


# ------------------------------------------------------------------------------ where parts of expressions are named


@family
def later_normalisers(draw: Draw) -> Drawn:
    """Over a coordinate whose range does not begin at 0, or ends early."""
    op, span = draw.pick(("softmax", "cumsum", "log_softmax")), draw.pick(("1..size(i)", "1..3", "0..2", "2..=3"))
    text = f"""
input XX[i], YY[i];
let out = {draw.pick(("sum", "max", "mean"))}[d in {span}]({op}[d](XX[d] * YY[d]) * YY[d]) * XX[0];"""
    return text, {"XX": draw.reals(4), "YY": draw.reals(4)}, "out"


@family
def normalised_from_outside(draw: Draw) -> Drawn:
    """The range of a reduction depends on the coordinate that is normalised in it."""
    op, span = draw.pick(("softmax", "cumsum")), draw.pick(("m..3", "0..=m", "m..m + 1"))
    text = f"""
input XX[m];
let out[m] = sum[j in {span}]({op}[m](XX[m] * j) * j);"""
    return text, {"XX": draw.reals(3)}, "out"


@family
def more_letters_than_it_varies_with(draw: Draw) -> Drawn:
    f = draw.pick(("tanh", "exp", "sigmoid", "relu"))
    text = f"""
input XX[k], YY[k];
let LL[i, k] = {f}(XX[i]);
let SS[k, i] = softmax[i](YY[i]);
let out[i] = LL[i, 1] * LL[1, i] + SS[i, 0];"""
    return text, {"XX": draw.reals(2), "YY": draw.reals(2)}, "out"


@family
def sizes_by_name(draw: Draw) -> Drawn:
    text = f"""
input XX[i];
let count = size(i){draw.pick(("", " - 1", " / 2 + 1"))};
let YY[k in 0..count] = XX[k] ** 2;
let out[k in 0..count] = YY[count - 1 - k] * XX[k];"""
    return text, {"XX": draw.reals(4)}, draw.pick(("out", "YY"))


@family
def shifted_scores(draw: Draw) -> Drawn:
    f, op = draw.pick(("tanh", "erf", "relu", "")), draw.pick(("softmax", "cumsum"))
    text = f"""
input XX[j], VV[j];
let WW[d in 0..size(j)] = ({op}[d]({f}(XX[d - 1]) where d - 1 >= 0)) where d - 1 >= 0;
let out = sum[j](WW[j] * VV[j]);"""
    return text, {"XX": draw.reals(3), "VV": draw.reals(3)}, draw.pick(("out", "WW"))


@family
def absent_bends(draw: Draw) -> Drawn:
    f = draw.pick(("gelu", "silu", "relu", "abs", "tanh", "erf", "sin"))
    text = f"""
input XX[i, j], UU;
let YY[i, j] = XX[i, j] * UU where {draw.pick(("i > 0", "j <= i", "XX[i, j] > 0"))};
let out[i] = UU * i + sum[j]({f}(YY[i, j]));"""
    return text, {"XX": draw.reals(2, 2), "UU": draw.reals()}, "out"


@family
def parts_in_branches(draw: Draw) -> Drawn:
    op, inner = draw.pick(("prod", "max", "mean", "sum")), draw.pick(("prod", "sum", "max"))
    text = f"""
input ZZ[i], WW[i, j];
let out[i] = if ZZ[i] > 0 {{ 1.0 }} else {{ {op}[k in 0..2](exp({inner}[j](WW[i, j])) / (k + 1)) }};"""
    return text, {"ZZ": draw.reals(4), "WW": draw.reals(4, 2)}, "out"


@family
def diagonal_windows(draw: Draw) -> Drawn:
    op = draw.pick(("min", "max", "sum", "prod"))
    text = f"""
input XX[j, k];
let out[e in 0..3] = {op}[d in 0..e + 1, k](if e + k < size(j) {{ XX[e + k, e + k] }} else {{ XX[e, k] * (d + 1) }});"""
    return text, {"XX": draw.reals(3, 3)}, "out"


@family
def guards_of_others(draw: Draw) -> Drawn:
    """A reduction whose body or guard does not speak of what it binds."""
    op, guard = draw.pick(("sum", "prod")), draw.pick(("i > 0", "XX[i] > 0", "i > 0, XX[i - 1] != 0"))
    text = f"""
input XX[i];
let YY[i] = {op}[k in 0..2](XX[i] ** 2 where {guard});
let out[i] = YY[i] + {op}[k in 0..1](XX[i - 1] * k + YY[i - 1] where i > 0);"""
    return text, {"XX": draw.reals(3)}, draw.pick(("out", "YY"))


@family
def bare_normalisers(draw: Draw) -> Drawn:
    """A normaliser that is all there is to a definition."""
    op, along = draw.pick(("softmax", "cumsum", "log_softmax")), draw.pick(("i", "j"))
    body = draw.pick(("XX[i, j]", "XX[i, j] * YY[j]", "YY[j] + XX[j, i]"))
    guard = "" if op == "log_softmax" else draw.pick(("", " where j <= i", " where j != i"))
    text = f"""
input XX[i, j], YY[j];
let out[i, j] = {op}[{along}]({body}{guard});"""
    return text, {"XX": draw.reals(2, 2), "YY": draw.reals(2)}, "out"
