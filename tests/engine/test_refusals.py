"""Each reason for which a rule refuses, with a program that draws it out."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.engine import door
from tests.engine import test_cache_writes as cache_writes
from tests.engine.test_rules import DTYPES, rewritten

import indexical as ix
from indexical.engine import rules
from indexical.engine.dialects.torch_ import Torch
from indexical.engine.dialects.torch_kernels import KERNELS
from indexical.engine.lower import lower
from indexical.engine.rules import Target

# Why a rule refuses, or how that ends, and a program; of one that ends with `!` the inputs may be infinite.
REFUSED = {
    "is in the table and in what it is multiplied with": """
        input w[e, n, o, m], x[t, n, m], p[t]: i64;
        let y[t, n, o] = sum[m](w[p[t], n, o, m] * x[t, n, m]);""",
    "its place may be out of bounds where a guard removes it": """
        input w[e, n, m], x[t, m], p[t]: i64;
        let y[t, n] = sum[m](w[p[t], n, m] * x[t, m]) where p[t] >= 0 && p[t] < size(e);""",
    "its windows do not overlap: a product of matrices reads each place once": """
        input x[b, c, t], w[o, c, k in 0..3];
        let y[b, o, i in 0..size(t) / 3] = sum[c, k](x[b, c, 3 * i + k] * w[o, c, k]);""",
    "a convolution lets an infinite number reach its neighbours!": """
        input x[b, c, t], w[o, c, k in 0..3];
        let y[b, o, i in 0..size(t) - 2] = sum[c, k](x[b, c, i + k] * w[o, c, k]);""",
    "a convolution of numbers that are not of 32 or 64 bits rounds in between": """
        input x[b, c, t], w[o, c, k in 0..3];
        let h[b, c, t] = x[b, c, t] as f16;
        let v[o, c, k in 0..3] = w[o, c, k] as f16;
        let y[b, o, i in 0..size(t) - 2] = sum[c, k](h[b, c, i + k] * v[o, c, k]);""",
    "an infinite number would be handed on from step to step!": """
        input x[t, n], g[n];
        let y[t, n] = sum[s in 0..size(t)](exp(-(t - s) * g[n]) * x[s, n] where s <= t);""",
    "a factor may be infinite where another is read outside its source!": """
        input x[b, t, c], w[k in 0..3, o, c];
        let y[b, t, o] = sum[k, c](x[b, t - k, c] * w[k, o, c] where k <= t);""",
    "is a factor, and 0 times an infinity is NaN: a guard leaves it out": """
        input x[n, e], v[i]: i64;
        let y[i, e] = sum[n](x[n, e] * (if n == v[i] { 1.0 } else { 0.0 }));""",
    "a place that a guard removes may be no class": """
        input x[i, c], t[i]: i64;
        let p[i, c] = log_softmax[c](x[i, c]);
        let y = sum[i](-p[i, t[i]] where t[i] >= 0 && t[i] < size(c));""",
    "a factor is not stored in 16 bits, and would be rounded before it is multiplied": """
        input a[i, k], b[j, k];
        let c[i, k] = a[i, k] as f16;
        let d[j, k] = b[j, k] as f16;
        let y[i, j] = sum[k](tanh(c[i, k]) * d[j, k]);""",
    "the place varies with what is summed": """
        input a[i, d], r[p in 0..7, d], g[d]: i64;
        let y[i] = sum[d](a[i, d] * r[g[d], d]);""",
    "the table may have far more places than are given": """
        input a[i, d], r[p, d], g[i, j]: i64;
        let y[i, j] = sum[d](a[i, d] * r[g[i, j], d]);""",
    "a sum has to fit only where it is asked for": """
        input a[i]: i64, m[i]: bool;
        let y[i] = sum[j in 0..3](a[i] where j <= i) where m[i];""",
    "other places of the table have to be there, too": """
        input A[k, i], Z[c, m];
        let y[t in 0..3, c] = sum[m](A[t + 1, m + c] * Z[c, m]);""",
    "what is outside of a part of an array may be inside of the array": """
        input A[k, i], Z[c, k];
        let y[c in 0..size(c), u in 0..3, t in 0..size(i)] = sum[b in 0..size(k) - 1](
            A[t + u, b + c] * Z[c, b] where t + u < size(k), b + c < size(i));""",
    "the weights do not have all axes of the place": """
        input w[j], r[p in 0..7, e];
        let y[i in 0..6, e] = sum[j](w[j] * r[clamp(i - j, -3, 3) + 3, e]);""",
    "a row of the table that is not read at a pair may be infinite, and 0 times it is not 0!": """
        input w[i, j], r[p in 0..7, e];
        let y[i, e] = sum[j](w[i, j] * r[clamp(i - j, -3, 3) + 3, e]);""",
    "is no sum of multiples of two coordinates: it is gathered": """
        input w[j], r[p in 0..7, e];
        let y[i in 0..6, e] = sum[j](w[j] * r[clamp(i - j, -3, 3) + 3, e]);""",
    "whole sums are checked for overflow": """
        input c[i]: i64, p[i]: i64;
        let d[n in 0..4] = sum[i](c[i] where p[i] == n);""",
    "a square is not multiplied out: what cancels in it would be lost": """
        input x[i, e], y[j, e];
        let z[i, j] = sum[e]((x[i, e] - y[j, e]) * (x[i, e] - y[j, e]));""",
    "an infinite factor would meet each term for itself!": """
        input w[i, j], v[j, e], r[p in 0..7, e];
        let y[i, e] = sum[j](w[i, j] * (v[j, e] + r[clamp(i - j, -3, 3) + 3, e]));""",
    "a factor that may be infinite is not taken out of a sum that may be empty": """
        input x[i, k], s[i];
        let y[i] = sum[k](log(s[i]) * x[i, k]);""",
    "a factor may be infinite where the guard fails, and 0 times that is not 0": """
        input a[i, k], b[k, j];
        let y[i, j] = sum[k](a[i, k] * log(b[k, j]) where k <= i && k < 3);""",
    "the divisor is 0 where the sum has no points, and 0 / 0 is not 0": """
        input a[i, k], b[j, k];
        let y[i, j] = sum[k](a[i, k] * b[j, k]) / size(k);""",
    "a divisor may be 0 where a factor is read outside its source, and 0 / 0 is not 0": """
        input x[b, t, c], w[k in 0..3, o, c];
        let y[b, t, o] = sum[k, c](x[b, t - k, c] / w[k, o, c] where k <= t);""",
    "a total that nobody asks for may not fit its whole numbers": """
        input c[i]: i64;
        let y[i] = prod[s in 0..size(i)](c[s] where s <= i);""",
    "its axes are not those of a convolution": """
        input x[t], w[k in 0..3];
        let y[i in 0..size(t) - 2] = sum[k](x[i + k] * w[k]);""",
    "one row is divided by the other, and not multiplied": """
        input a[t, n], b[t, m], p[t]: i64;
        let y[k in 0..3, n, m] = sum[t](a[t, n] / b[t, m] where p[t] == k);""",
    "what is summed varies with the group itself": """
        input x[h, g];
        let y[g] = sum[h](x[h, g] where h / 3 == g);""",
    "both may leave what they read, and one read has one guard": """
        input x[i, j];
        let z[i] = x[i, 2];
        let y = z[3] * 2.0;""",
    "there is not one class for each row": """
        input x[i, c];
        let p[i, c] = log_softmax[c](x[i, c]);
        let y[i] = -p[i, 0];""",
    "a guard leaves out some rows, and the kernel adds up all": """
        input x[i, c], t[i]: i64;
        let p[i, c] = log_softmax[c](x[i, c]);
        let l[i] = -p[i, t[i]];
        let y = sum[i](l[i] where i < 3);""",
    "the kernel adds up along all axes of its rows, and not along some": """
        input x[b, i, c], t[b, i]: i64;
        let p[b, i, c] = log_softmax[c](x[b, i, c]);
        let y[b] = sum[i](-p[b, i, t[b, i]]);""",
    " of a norm varies with its axis, and with no other": """
        input x[i, m], g[i, m];
        let y[i, m] = x[i, m] * rsqrt(mean[m](x[i, m] ** 2) + 0.001) * g[i, m];""",
    "not all that the norm takes is stored in 16 bits": """
        input x[i, m];
        let y[i, m] = (x[i, m] * rsqrt(mean[m](x[i, m] ** 2) + 0.001)) as f16;""",
    "the gradient of a factor that is repeated is a sum, which would be one of 16 bits": """
        input a[i, k], b[k];
        let c[i, k] = a[i, k] as f16;
        let d[k] = b[k] as f16;
        let y[i, k] = ((c[i, k] as f32) * (d[k] as f32)) as f16;""",
    "how many come first is no single number": """
        input x[i, e], n[i]: i64;
        let y[i, e] = if rank[e](x[i, e]) < n[i] { x[i, e] } else { 0.0 };""",
    "the ranking leaves out numbers that the sum does not": """
        input x[i, j], v[j];
        let y[i] = sum[j](v[j] where rank[j](x[i, j] where j != i) < 2);""",
    "the sum of the contraction has a guard, and its factors do not": """
        input a[i, c, k], b[j, c, k];
        let y[i, j] = sum[c](sum[k](a[i, c, k] * b[j, c, k]) where c <= i);""",
    "the caller keeps the array": """
        input past[j, d], new[i, d];
        let out[j, d] = if j >= size(j) - size(i) { new[j - size(j) + size(i), d] } else { past[j, d] };""",
    **{reason: text for text, reason in cache_writes.REFUSED.values() if reason is not None},
}
# Said of every rule with a cost; and of a guard that comes to stand in a read alone, which no program draws out.
EVERYWHERE = ("it would cost more", "the guard has an axis that the weights do not have")


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refusal_is_told_with_its_reason(reason: str) -> None:
    isolate = reason.endswith("!")
    program = door.giving_away(ix.compile(REFUSED[reason]).ir)
    dtypes = {one.name: one.dtype or DTYPES[one.kind] for one in program.inputs}
    lowered = lower(program, dtypes, program.outputs, isolate)
    plan = rewritten(lowered, Target(frozenset(KERNELS), isolate, Torch.rounds_once))
    assert any(one.reason.endswith(reason.rstrip("!")) for one in plan.refused)


def test_every_refusal_has_a_program() -> None:
    """What a rule may say is each text of a `No`, or one that a function returns for it."""
    files = sorted(Path(rules.__file__).parent.glob("*.py"))
    texts = [text for file in files for text in said(file.read_text("utf-8"))]
    told = [reason.rstrip("!") for reason in REFUSED]
    assert len(texts) > len(REFUSED) / 2
    assert not [text for text in texts if not any(text.endswith(reason) for reason in told)]


def said(text: str) -> list[str]:
    """The end of each text of a `No` in a file."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    given = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "No"]
    parts = [one.values[-1] if isinstance(one, ast.JoinedStr) else one for one in given]
    return [str(one.value) for one in parts if isinstance(one, ast.Constant) and one.value not in EVERYWHERE]
