"""Families of programs that are hard to differentiate, each drawn with other offsets, functions and guards.

Coordinates are single small letters, tensors and functions are not: the names of the first are changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
Drawn = tuple[str, Mapping[str, Array], str]
T = TypeVar("T")

# Differentiable everywhere, and exact of rationals.
SMOOTH = ("exp", "tanh", "sigmoid", "silu")
BENT = ("relu", "abs", *SMOOTH)
GUARDS = ("j <= i", "j < i", "j >= i", "i - j < 2, j <= i", "j != i", "j < 0", "j <= i || j < 1", "(i - j) % 2 == 0")


class Draw:
    """Choices and small arrays."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def pick(self, several: Sequence[T]) -> T:
        return self.random.choice(several)

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def reals(self, *shape: int, low: int = -4, high: int = 4, over: int = 2) -> Array:
        count = int(np.prod(shape))
        return np.array([self.random.randrange(low, high + 1) / over for _ in range(count)], float).reshape(shape)

    def positive(self, *shape: int) -> Array:
        return self.reals(*shape, low=1, high=6)

    def wholes(self, below: int, *shape: int) -> Array:
        count = int(np.prod(shape))
        return np.array([self.random.randrange(below) for _ in range(count)], np.int64).reshape(shape)

    def bools(self, *shape: int) -> Array:
        count = int(np.prod(shape))
        return np.array([self.chance(60) for _ in range(count)], bool).reshape(shape)


Family = Callable[[Draw], Drawn]
FAMILIES: dict[str, Family] = {}


def family(make: Family) -> Family:
    FAMILIES[make.__name__] = make
    return make


# -------------------------------------------------------------------------------------- contractions, reads


@family
def contraction(draw: Draw) -> Drawn:
    left, right = draw.pick(("A[i, k]", "A[k, i]")), draw.pick(("B[k, j]", "B[j, k]"))
    op, f = draw.pick(("*", "+", "-")), draw.pick(("", "tanh", "relu"))
    text = f"""
input A[{left[2:-1]}], B[{right[2:-1]}], scale;
let out[i, j] = scale * sum[k]({f}({left}) {op} {right}) / sqrt(size(k));"""
    sizes = {"i": 2, "k": 3, "j": 2}
    shape = [[sizes[c] for c in (r[2], r[5])] for r in (left, right)]
    return text, {"A": draw.reals(*shape[0]), "B": draw.reals(*shape[1]), "scale": draw.reals()}, "out"


@family
def chain(draw: Draw) -> Drawn:
    text = """
input A[i, k], B[k, j], C[j, m];
let AB[i, j] = sum[k](A[i, k] * B[k, j]);
let ABC[i, m] = sum[j](AB[i, j] * C[j, m]);
let loss = sum[i, m](ABC[i, m] ** 2) + mean[i, j](AB[i, j] * AB[i, j]);"""
    return text, {"A": draw.reals(2, 2), "B": draw.reals(2, 3), "C": draw.reals(3, 2)}, draw.pick(("loss", "ABC"))


@family
def transposed(draw: Draw) -> Drawn:
    text = f"""
input XX[i, j], YY[i, j];
let SS[i, j] = XX[i, j] * XX[j, i] + {draw.pick(("YY[j, i]", "YY[i, j] * XX[j, j]", "YY[j, j]"))};
let out[j, i] = SS[i, j] - {draw.pick(("SS[j, i]", "2 * XX[i, j]"))};"""
    return text, {"XX": draw.reals(3, 3), "YY": draw.reals(3, 3)}, "out"


@family
def diagonal(draw: Draw) -> Drawn:
    guard, shift = draw.pick((("", ""), (" where i + 1 < size(i)", " + 1"), (" where i > 0", " - 1")))
    text = f"""
input AA[i, j], vv[i];
let DD[i] = sum[k in 0..1](AA[i, i{shift}] * vv[i]{guard});
let trace = sum[i](AA[i, i]);
let out[i] = DD[i] * trace + AA[0, i];"""
    return text, {"AA": draw.reals(3, 3), "vv": draw.reals(3)}, draw.pick(("out", "trace"))


@family
def repacked(draw: Draw) -> Drawn:
    text = """
input XX[b, m];
let HH[b, h in 0..2, d in 0..3] = XX[b, h * 3 + d] ** 2;
let out[b, n in 0..6] = HH[b, n / 3, n % 3] * XX[b, n];"""
    return text, {"XX": draw.reals(2, 6)}, draw.pick(("out", "HH"))


@family
def gathered(draw: Draw) -> Drawn:
    index = draw.pick(("PP[i]", "PP[size(i) - 1 - i]", "PP[PP[i] % size(i)]"))
    text = f"""
input EE[c, m], PP[i] : i64, WW[i, m];
let out[i, m] = EE[{index}, m] * WW[i, m] + EE[PP[0], m];"""
    return text, {"EE": draw.reals(3, 2), "PP": draw.wholes(3, 4), "WW": draw.reals(4, 2)}, "out"


@family
def gathered_twice(draw: Draw) -> Drawn:
    text = """
input EE[c, k], PP[i] : i64, QQ[j] : i64;
let out[i, j] = EE[PP[i], QQ[j]] * EE[PP[i], PP[i] % 2] where PP[i] <= QQ[j] + 1;"""
    return text, {"EE": draw.reals(3, 3), "PP": draw.wholes(3, 2), "QQ": draw.wholes(3, 3)}, "out"


@family
def reindexed(draw: Draw) -> Drawn:
    index = draw.pick(("i / 2", "i % 2", "(i + 1) % size(i)", "size(i) - 1 - i", "(3 * i) % 4", "i / 2 * 2", "3 - i"))
    text = f"""
input XX[i], YY[i];
let out[i] = XX[{index}] * YY[i] + XX[i];"""
    return text, {"XX": draw.reals(4), "YY": draw.reals(4)}, "out"


@family
def whole_definition(draw: Draw) -> Drawn:
    body = draw.pick(("size(i) - 1 - i", "(i * i) % size(i)", "i / 2"))
    text = f"""
input XX[i, m];
let pp[i] = {body};
let out[i, m] = XX[pp[i], m] * XX[i, m];"""
    return text, {"XX": draw.reals(3, 2)}, "out"


@family
def spread(draw: Draw) -> Drawn:
    text = """
input uu[i], vv[j], ss;
let outer[i, j] = uu[i] * vv[j] + ss;
let out[b in 0..2, i] = sum[j](outer[i, j] * (b + 1)) + b * uu[i];"""
    return text, {"uu": draw.reals(2), "vv": draw.reals(3), "ss": draw.reals()}, "out"


# ---------------------------------------------------------------------------------------------- convolutions


@family
def convolution(draw: Draw) -> Drawn:
    stride, dilation, pad = (
        draw.pick(("i", "2 * i", "i * 3")),
        draw.pick(("k", "2 * k")),
        draw.pick(("", " - 1", " - 2")),
    )
    at = f"{stride} + {dilation}{pad}" if draw.chance(50) else f"{dilation}{pad} + {stride}"
    text = f"""
input XX[n, c], WW[k, c];
let out[i in 0..3] = sum[k, c](XX[{at}, c] * WW[k, c] where 0 <= {at} < size(n));"""
    return text, {"XX": draw.reals(5, 2), "WW": draw.reals(2, 2)}, "out"


@family
def convolution_in_two(draw: Draw) -> Drawn:
    guard = "0 <= h + p - 1 < size(h), 0 <= d + q - 1 < size(d)"
    text = f"""
input XX[h, d], WW[p, q];
let out[h, d] = sum[p, q](XX[h + p - 1, d + q - 1] * WW[p, q] where {guard});"""
    return text, {"XX": draw.reals(3, 3), "WW": draw.reals(2, 2)}, "out"


@family
def strided(draw: Draw) -> Drawn:
    op = draw.pick(("max", "mean", "sum", "min", "prod"))
    text = f"""
input XX[m];
let out[i in 0..2] = {op}[k in 0..{draw.pick((2, 3))}](XX[2 * i + k]);"""
    return text, {"XX": draw.reals(5)}, "out"


@family
def transposed_convolution(draw: Draw) -> Drawn:
    text = """
input YY[i], WW[k];
let out[m in 0..7] = sum[i](YY[i] * WW[m - 2 * i] where 0 <= m - 2 * i < size(k));"""
    return text, {"YY": draw.reals(3), "WW": draw.reals(3)}, "out"


@family
def toeplitz(draw: Draw) -> Drawn:
    index = draw.pick(("i - j + size(j) - 1", "clamp(i - j, -1, 1) + 1", "abs(i - j)"))
    text = f"""
input RR[r], XX[i, d];
let SS[i, j] = sum[d](XX[i, d] * XX[j, d]) + RR[{index}];
let out[i, d] = sum[j](softmax[j](SS[i, j]) * XX[j, d]) where {draw.pick(("j <= i", "abs(i - j) < 2"))};"""
    return text, {"RR": draw.reals(5), "XX": draw.reals(3, 2)}, "out"


@family
def shifted(draw: Draw) -> Drawn:
    text = f"""
input XX[i];
let DD[i in 0..size(i) - 1] = XX[i + 1] - XX[i];
let out[i] = DD[i - 1] * XX[i] where i >= 1{draw.pick(("", ", i < 3"))};"""
    return text, {"XX": draw.reals(4)}, draw.pick(("out", "DD"))


# --------------------------------------------------------------------------------------- attention, normalisers


@family
def attention(draw: Draw) -> Drawn:
    guard = draw.pick(("", *(f" where {guard}" for guard in GUARDS)))
    text = f"""
input QQ[i, d], KK[j, d], VV[j, e];
let scores[i, j] = sum[d](QQ[i, d] * KK[j, d]) / 2;
let weights[i, j] = softmax[j](scores[i, j]){guard};
let out[i, e] = sum[j](weights[i, j] * VV[j, e]);"""
    return text, {"QQ": draw.reals(3, 1), "KK": draw.reals(3, 1), "VV": draw.reals(3, 2)}, "out"


@family
def masked_attention(draw: Draw) -> Drawn:
    text = """
input QQ[h, i, d], KK[g, j, d], VV[g, j], MM[i, j] : bool;
let weights[h, i, j] = softmax[j](sum[d](QQ[h, i, d] * KK[h / 2, j, d])) where MM[i, j];
let out[i, h] = sum[j](weights[h, i, j] * VV[h / 2, j]);"""
    mask = draw.bools(2, 3)
    mask[draw.pick((0, 1))] = False
    arrays = {"QQ": draw.reals(2, 2, 1), "KK": draw.reals(1, 3, 1), "VV": draw.reals(1, 3), "MM": mask}
    return text, arrays, draw.pick(("out", "weights"))


@family
def hand_made_softmax(draw: Draw) -> Drawn:
    text = """
input SS[i, j], VV[j];
let top[i] = max[j](SS[i, j] where j <= i);
let share[i, j] = exp(SS[i, j] - top[i]) where j <= i;
let out[i] = sum[j](share[i, j] * VV[j]) / sum[j](share[i, j]);"""
    return text, {"SS": draw.reals(3, 3), "VV": draw.reals(3)}, "out"


@family
def nested_softmax(draw: Draw) -> Drawn:
    inner = draw.pick(("softmax", "cumsum"))
    text = f"""
input XX[i, j];
let first[i, j] = {inner}[i](XX[i, j]);
let out[i, j] = softmax[j](2 * {draw.pick(("cumsum", "cumsum"))}[j](XX[i, j])) * first[i, j];"""
    return text, {"XX": draw.reals(2, 2)}, "out"


@family
def inside_out(draw: Draw) -> Drawn:
    text = f"""
input XX[i, j], YY[j];
let out[i] = log_softmax[i](sum[j](softmax[j](YY[j]) * cumsum[j](XX[i, j]) where j <= {draw.pick(("i", "1"))}) + 1)
  * XX[i, 0];""".replace("\n  *", " *")
    return text, {"XX": draw.reals(2, 3), "YY": draw.reals(3, low=0, high=0)}, "out"


@family
def cross_entropy(draw: Draw) -> Drawn:
    text = """
input LL[i, c], TT[i] : i64;
let log_p[i, c] = log_softmax[c](LL[i, c]);
let loss = -mean[i](log_p[i, TT[i]]);"""
    return text, {"LL": draw.reals(2, 3), "TT": draw.wholes(3, 2)}, "loss"


@family
def running(draw: Draw) -> Drawn:
    guard = draw.pick(("", " where t != 1", " where t <= m", " where m > 0"))
    text = f"""
input XX[m, t];
let SS[m, t] = cumsum[t](XX[m, t] ** 2){guard};
let out[m, t] = SS[m, t] * XX[m, t] + cumsum[m](XX[m, t] where m != t);"""
    return text, {"XX": draw.reals(2, 3)}, draw.pick(("out", "SS"))


@family
def prefix(draw: Draw) -> Drawn:
    op, test = draw.pick(("sum", "mean", "max", "prod", "sum")), draw.pick(("<=", "<", ">=", ">"))
    shift, more = draw.pick(("", " + 1", " - 1")), draw.pick(("", ", t != 1", ", m <= t"))
    test = test.strip("=") + "=" if op in ("mean", "max") else test
    shift, more = ("", "") if op in ("mean", "max") else (shift, more)
    text = f"""
input XX[m, t];
let PP[m, s in 0..size(t)] = {op}[t](XX[m, t] where t {test} s{shift}{more});
let out[m, t] = PP[m, t] * XX[m, t];"""
    return text, {"XX": draw.reals(2, 3)}, draw.pick(("out", "PP"))


@family
def decayed(draw: Draw) -> Drawn:
    test, way = draw.pick((("<=", "s - t"), ("<", "s - t"), (">=", "t - s"), (">", "t - s + 1")))
    decay = draw.pick((f"GG[m] ** ({way})", f"exp(-({way}) * GG[m])", f"0.5 ** ({way})", f"exp2(GG[m] * ({way}) / 4)"))
    text = f"""
input XX[m, t], GG[m];
let PP[m, s in 0..size(t)] = sum[t]({decay} * XX[m, t] * XX[m, s] where t {test} s);
let out[m, t] = PP[m, t] * GG[m];"""
    return text, {"XX": draw.reals(2, 3), "GG": draw.reals(2, low=1, high=2)}, draw.pick(("out", "PP"))


# -------------------------------------------------------------------------------------------------- reductions


@family
def product(draw: Draw) -> Drawn:
    guard = draw.pick(("", " where j != i", " where XX[i, j] < 1"))
    text = f"""
input XX[i, j], YY[i];
let PP[i] = prod[j](XX[i, j]{guard});
let out[i] = PP[i] * YY[i] + prod[k in 0..2](YY[k]);"""
    return text, {"XX": draw.reals(2, 3, low=-2, high=2), "YY": draw.reals(2)}, "out"


@family
def extremes(draw: Draw) -> Drawn:
    op, order = draw.pick(("max", "min")), draw.pick(("i, j", "j, i"))
    guard = draw.pick(("", " where i <= j", " where i + j > 0"))
    text = f"""
input XX[b, i, j], YY[b];
let MM[b] = {op}[{order}](XX[b, i, j]{guard});
let out[b] = {draw.pick(("max", "min"))}(MM[b], YY[b], 0.5) * YY[b];"""
    return text, {"XX": draw.reals(2, 2, 3, low=-1, high=1, over=1), "YY": draw.reals(2)}, "out"


@family
def guarded_mean(draw: Draw) -> Drawn:
    guard = draw.pick(("j <= i", "XX[i, j] > -3", "KK[j] || j == 0"))
    text = f"""
input XX[i, j], KK[j] : bool;
let MM[i] = mean[j](XX[i, j] where {guard});
let out[i, j] = (XX[i, j] - MM[i]) ** 2;
let used = sum[j](1.0 where KK[j]);"""
    return text, {"XX": draw.reals(3, 3), "KK": draw.bools(3)}, "out"


@family
def triangular(draw: Draw) -> Drawn:
    op, upper = draw.pick(("sum", "prod", "max", "mean")), draw.pick(("0..=i", "i..size(i)", "0..i + 1", "i..i + 1"))
    text = f"""
input XX[i], YY[i, j];
let out[i] = {op}[j in {upper}](XX[j] * YY[i, j] + XX[i]);"""
    return text, {"XX": draw.reals(3), "YY": draw.reals(3, 3)}, "out"


@family
def triangular_twice(draw: Draw) -> Drawn:
    text = """
input XX[i, k], YY[j];
let out[i] = sum[j in 0..=i, k in j..=i](XX[i - j, k] * YY[j] * YY[k - j]);"""
    return text, {"XX": draw.reals(3, 3), "YY": draw.reals(3)}, "out"


@family
def nobody(draw: Draw) -> Drawn:
    text = """
input XX[i, j], YY[j];
let out[i] = sum[j](XX[i, j] * YY[j]) + prod[j](YY[j]) + sum[j](softmax[j](XX[i, j]) * YY[j]);"""
    rows, columns = draw.pick(((0, 2), (2, 0), (0, 0)))
    return text, {"XX": draw.reals(rows, columns), "YY": draw.reals(columns)}, "out"


@family
def chosen_place(draw: Draw) -> Drawn:
    text = """
input XX[i, j], VV[j];
let at[i] = argmax[j](XX[i, j]);
let out[i] = VV[at[i]] * XX[i, at[i]];"""
    return text, {"XX": draw.reals(2, 3), "VV": draw.reals(3)}, "out"
