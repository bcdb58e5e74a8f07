"""Right programs beside wrong ones that differ in little, each in several spellings: what a lint must not say, and what
it must say."""

from __future__ import annotations

# ------------------------------------------------------- IX402: weights that are normalised again over the key

_SLOTS = "input slot[s, d], K[j, d], V[j, e], tiny;\nlet eps = 1e-8;\n"
_CLAIMS = "let a[s, j] = softmax[s](sum[d](slot[s, d] * K[j, d]) / sqrt(size(d)));\n"
_GATHER = "let out[s, e] = sum[j](w[s, j] * V[j, e]);\n"
_TOTAL = "sum[k](a[s, k])"
_DIVISORS = {
    "nothing added": _TOTAL,
    "added": f"({_TOTAL} + 1e-8)",
    "added before": f"(1e-8 + {_TOTAL})",
    "named": f"({_TOTAL} + eps)",
    "an input": f"({_TOTAL} + tiny)",
    "a sum of its own": "sum[k](a[s, k] + 1e-8)",
    "no less than": f"max({_TOTAL}, 1e-8)",
    "no less than, the other way round": f"max(eps, {_TOTAL})",
    "clamped": f"clamp({_TOTAL}, 1e-8, 1e8)",
    "a mean": "(mean[k](a[s, k]) * size(j) + 1e-8)",
    "its magnitude": "(sum[k](abs(a[s, k])) + 1e-8)",
    "its norm": "sqrt(sum[k](a[s, k] ** 2) + 1e-12)",
    "its largest": "max[k](a[s, k])",
    "a choice": f"(if {_TOTAL} > 1e-8 {{ {_TOTAL} }} else {{ 1.0 }})",
}
RENORMALISED = {
    **{
        f"{name}, {how}": _SLOTS + _CLAIMS + text
        for name, total in _DIVISORS.items()
        for how, text in {
            "weights by name": f"let w[s, j] = a[s, j] / {total};\n{_GATHER}",
            "total by name": f"let n[s] = {total};\nlet w[s, j] = a[s, j] / n[s];\n{_GATHER}",
            "in one line": f"let out[s, e] = sum[j](a[s, j] / {total} * V[j, e]);\n",
            "by the inverse": f"let w[s, j] = a[s, j] * (1 / {total});\n{_GATHER}",
            "after the sum": f"let out[s, e] = sum[j](a[s, j] * V[j, e]) / {total};\n",
            "after the sum, by name": (
                f"let all[s, e] = sum[j](a[s, j] * V[j, e]);\nlet out[s, e] = all[s, e] / {total};\n".replace(
                    "all[", "mixed["
                )
            ),
            "after the sum, in other letters": (
                f"let mixed[s, e] = sum[j](a[s, j] * V[j, e]);\n"
                f"let out[u, e] = mixed[u, e] / {total.replace('[s, ', '[u, ')};\n"
            ),
            "by hand": (
                "let x[s, j] = exp(sum[d](slot[s, d] * K[j, d]) / sqrt(size(d)));\n"
                "let b[s, j] = x[s, j] / sum[t](x[t, j]);\n"
                f"let w[s, j] = b[s, j] / {total.replace('a[', 'b[')};\n{_GATHER}"
                "let more[s, j] = a[s, j];\n"
            ),
            "by a function": (
                f"fn share(a[s, j]) -> [s, j] {{ a[s, j] / {total.replace('eps', '1e-8').replace('tiny', '1e-6')} }}\n"
                f"let w = share(a);\n{_GATHER}"
            ),
        }.items()
    },
}
NOT_RENORMALISED = {
    "as they are": _SLOTS + _CLAIMS + _GATHER.replace("w[", "a["),
    "divided by a number": _SLOTS + _CLAIMS + "let w[s, j] = a[s, j] / (size(j) + 1e-8);\n" + _GATHER,
    "divided by another total": (
        "input b[s, j];\n" + _SLOTS + _CLAIMS + "let w[s, j] = a[s, j] / (sum[k](b[s, k]) + 1e-8);\n" + _GATHER
    ),
    "normalised by length afterwards": (
        _SLOTS + _CLAIMS + "let mixed[s, e] = sum[j](a[s, j] * V[j, e]);\n"
        "let out[s, e] = mixed[s, e] / sqrt(mean[e](mixed[s, e] ** 2) + 1e-6);\n"
    ),
    "normalised by length afterwards, keys for values": (
        _SLOTS + _CLAIMS + "let mixed[s, d] = sum[j](a[s, j] * K[j, d]);\n"
        "let out[s, d] = mixed[s, d] / sqrt(mean[d](mixed[s, d] ** 2) + 1e-6);\nlet more[j, e] = V[j, e];\n"
    ),
    "normalised by length afterwards, twice": (
        _SLOTS + _CLAIMS + "let mixed[s, e] = sum[j](a[s, j] * V[j, e]);\n"
        "let norm[s] = sqrt(sum[e](mixed[s, e] ** 2));\nlet out[s, e] = mixed[s, e] / (norm[s] + 1e-6);\n"
    ),
    "divided over the same again": (
        _SLOTS + _CLAIMS + "let w[s, j] = a[s, j] / (sum[t](a[t, j]) + 1e-8);\n" + _GATHER
    ),
}

# -------------------------------------------------------------------- IX408: the scale of a mean

_PAIRS = "input Q[h, z, i, d], K[h, z, j, d], V[h, j, e];\n"
_REST = "let w[h, i, j] = softmax[j](s[h, i, j]) where j <= i;\nlet out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);\n"
_PRODUCT = "Q[h, z, i, d] * K[h, z, j, d]"


def _scored(score: str, before: str = "") -> str:
    return f"{_PAIRS}{before}let s[h, i, j] = {score};\n{_REST}"


MEANS = {
    "scaled inside": _scored(f"mean[z](sum[d]({_PRODUCT}) / sqrt(size(d)))"),
    "scaled outside": _scored(f"mean[z](sum[d]({_PRODUCT})) / sqrt(size(d))"),
    "scaled before": _scored(f"mean[z](sum[d]({_PRODUCT} / sqrt(size(d))))"),
    "by an inverse root": _scored(f"mean[z](sum[d]({_PRODUCT}) * rsqrt(size(d)))"),
    "by a power": _scored(f"mean[z](sum[d]({_PRODUCT})) * size(d) ** -0.5"),
    "by hand": _scored(f"sum[z](sum[d]({_PRODUCT}) / sqrt(size(d))) / size(z)"),
    "by hand, in one sum": _scored(f"sum[z, d]({_PRODUCT}) / (sqrt(size(d)) * size(z))"),
    "each by name": _scored(
        "mean[z](each[h, z, i, j])", f"let each[h, z, i, j] = sum[d]({_PRODUCT}) / sqrt(size(d));\n"
    ),
    "scale by name": _scored(f"mean[z](sum[d]({_PRODUCT}) * scale)", "let scale = 1 / sqrt(size(d));\n"),
    "of the spread of a sum": _scored(f"sum[z, d]({_PRODUCT}) / sqrt(size(d) * size(z))"),
    "of the spread of a sum, root by root": _scored(f"sum[z, d]({_PRODUCT}) / (sqrt(size(d)) * sqrt(size(z)))"),
    "of the spread of a sum, one inside": _scored(f"sum[z](sum[d]({_PRODUCT}) / sqrt(size(d))) / sqrt(size(z))"),
}
WRONG_SCALES = {
    "of the keys": _scored(f"mean[z](sum[d]({_PRODUCT}) / sqrt(size(j)))"),
    "of the keys, by hand": _scored(f"sum[z](sum[d]({_PRODUCT}) / sqrt(size(j))) / size(z)"),
    "of one of two": _scored(f"sum[z, d]({_PRODUCT}) / sqrt(size(d))"),
    "of the other of two": _scored(f"sum[z, d]({_PRODUCT}) / sqrt(size(z))"),
}

# -------------------------------------------------------------- IX404: heads in groups on one side

_DIFFERENT = """input Q[h, i, d], K[h, j, d], Qn[g, i, d], Kn[g, j, d], V[h, j, e], lam;
let G = size(h) / size(g);
let signal[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d))) where j <= i;
"""
_NOISE = "softmax[j](sum[d](Qn[{g}, i, d] * Kn[{g}, j, d]) / sqrt(size(d))) where j <= i"
_GROUPS = "input Q[h, i, d], K[{k}, j, d], V[{v}, j, e];\n"
_GROUPED = """let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[{ka}, j, d]) / sqrt(size(d))) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[{va}, j, e]);
"""
_MIXED = "let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);\n"


def _in_groups(k: str, v: str, ka: str, va: str, before: str = "") -> str:
    return _GROUPS.format(k=k, v=v) + before + _GROUPED.format(ka=ka, va=va)


OWN_HEADS = {
    "noise by name": _DIFFERENT
    + f"let noise[g, i, j] = {_NOISE.format(g='g')};\n"
    + f"let w[h, i, j] = signal[h, i, j] - lam * noise[h / G, i, j];\n{_MIXED}",
    "noise in groups of a number": _DIFFERENT.replace("let G = size(h) / size(g);\n", "")
    + f"let noise[g, i, j] = {_NOISE.format(g='g')};\n"
    + f"let w[h, i, j] = signal[h, i, j] - lam * noise[h / 2, i, j];\n{_MIXED}",
    "noise interleaved": _DIFFERENT.replace("let G = size(h) / size(g);\n", "")
    + f"let noise[g, i, j] = {_NOISE.format(g='g')};\n"
    + f"let w[h, i, j] = signal[h, i, j] - lam * noise[h % size(g), i, j];\n{_MIXED}",
    "noise of every head": _DIFFERENT
    + f"let noise[h, i, j] = {_NOISE.format(g='h / G')};\n"
    + f"let w[h, i, j] = signal[h, i, j] - lam * noise[h, i, j];\n{_MIXED}",
    "two sums": _DIFFERENT
    + f"let noise[g, i, j] = {_NOISE.format(g='g')};\n"
    + "let out[h, i, e] = sum[j](signal[h, i, j] * V[h, j, e]) - lam * sum[j](noise[h / G, i, j] * V[h, j, e]);\n",
    "added, not subtracted": _DIFFERENT
    + f"let noise[g, i, j] = {_NOISE.format(g='g')};\n"
    + f"let w[h, i, j] = 0.5 * signal[h, i, j] + 0.5 * noise[h / G, i, j];\n{_MIXED}".replace(", lam", ""),
    "grouped keys alone": _in_groups("g", "h", "h / G", "h", "let G = size(h) / size(g);\n"),
    "grouped values alone": _in_groups("h", "g", "h", "h / G", "let G = size(h) / size(g);\n"),
    "groups of two sizes": _in_groups("g", "v", "h / (size(h) / size(g))", "h / (size(h) / size(v))"),
    "groups on both sides": _in_groups("g", "g", "h / 2", "h / 2"),
}
OTHER_HEADS = {
    "the first": _in_groups("h", "h", "h", "0"),
    "mirrored": _in_groups("h", "h", "h", "size(h) - 1 - h"),
    "mixed groups": _in_groups("g", "g", "h / 2", "h % 2"),
    "mixed groups of sizes": _in_groups("g", "g", "h / (size(h) / size(g))", "h % size(g)"),
    "mirrored keys": _in_groups("h", "h", "size(h) - 1 - h", "h"),
}
OWN_HEADS["added, not subtracted"] = OWN_HEADS["added, not subtracted"].replace(", lam;", ";")

# ------------------------------------------- IX421: features that are compared beside what both positions say

_TURNED = "input Q[h, i, d], K[h, j, d], V[h, j, e], f[d], delta[h, d], gain[h, d], U[h, i, d], L[h, j, d];\n"
_CONTRACT = "attention out(query i, key j, compare d, carry e, head h, causal);\n"
_BETWEEN = {
    "a cosine": "cos((i - j) * f[d])",
    "a sine": "sin((j - i) * f[d])",
    "a shifted cosine": "cos((j - i) * f[d] + delta[h, d])",
    "a decay": "exp((j - i) * f[d] ** 2)",
    "a power": "f[d] ** (i - j)",
    "with a gain": "gain[h, d] * cos((i - j) * f[d])",
    "two of them": "cos((i - j) * f[d]) * exp((j - i) * delta[h, d] ** 2)",
    "a sum of both": "(cos((i - j) * f[d]) + gain[h, d] * sin((i - j) * f[d]))",
    "one plus": "(1 + cos((i - j) * f[d]))",
    "half": "cos((i - j) * f[d]) / 2",
}
_USED = "let rest[h, d] = f[d] + delta[h, d] + gain[h, d] + sum[i](U[h, i, d]) + sum[j](L[h, j, d]);\n"


def _turned(score: str, before: str = "") -> str:
    weights = "let w[h, i, j] = softmax[j](s[h, i, j]) where j <= i;\n"
    out = "let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);\n"
    return f"{_TURNED}{before}let s[h, i, j] = {score} / sqrt(size(d));\n{weights}{out}{_USED}{_CONTRACT}"


_QK = "Q[h, i, d] * K[h, j, d]"
_SIN = "sin((i - j) * f[d])"
COMPARED = {
    **{
        f"{name}, {how}": text
        for name, factor in _BETWEEN.items()
        for how, text in {
            "last": _turned(f"sum[d]({_QK} * {factor})"),
            "first": _turned(f"sum[d]({factor} * {_QK})"),
            "between": _turned(f"sum[d](Q[h, i, d] * {factor} * K[h, j, d])"),
            "by name": _turned(f"sum[d]({_QK} * turn[h, i, j, d])", f"let turn[h, i, j, d] = {factor};\n"),
            "products by name": _turned(
                f"sum[d](qk[h, i, j, d] * {factor})", f"let qk[h, i, j, d] = {_QK};\n"
            ),
            "terms by name": _turned("sum[d](term[h, i, j, d])", f"let term[h, i, j, d] = {_QK} * {factor};\n"),
            "of functions": _turned(f"sum[d](softplus(Q[h, i, d]) * softplus(K[h, j, d]) * {factor})"),
            "of functions by name": _turned(
                f"sum[d](mq[h, i, d] * mk[h, j, d] * {factor})",
                "let mq[h, i, d] = softplus(Q[h, i, d]);\nlet mk[h, j, d] = softplus(K[h, j, d]);\n",
            ),
        }.items()
    },
    "cosine and sine": _turned(f"sum[d]({_QK} * cos((i - j) * f[d]) + U[h, i, d] * L[h, j, d] * {_SIN})"),
    "cosine and sine in two sums": _turned(
        f"(sum[d]({_QK} * cos((i - j) * f[d])) + sum[d](U[h, i, d] * L[h, j, d] * {_SIN}))"
    ),
    "keys turned by the distance": _turned(
        f"sum[d](Q[h, i, d] * (K[h, j, d] * cos((i - j) * f[d]) + L[h, j, d] * {_SIN}))"
    ),
}
_OTHER = _CONTRACT.replace("compare d", "compare e").replace("carry e", "carry d")
NOT_COMPARED = {name: text.replace(_CONTRACT, _OTHER) for name, text in COMPARED.items() if name.endswith("last")}

# ----------------------------------------------------- IX403: values at the query, under functions and gates

_HEARD = """input Q[h, i, d], K[h, j, d], V[h, j, e], b[e], gate[h, i, e], one[h, i];
let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d))) where j <= i;
"""
_KEPT = "let rest[h, i, e] = b[e] + gate[h, i, e] + one[h, i] + V[h, i, e];\n"
_FUNCTIONS = {
    "itself": "{v}",
    "tanh": "tanh({v})",
    "relu": "relu({v})",
    "exp": "exp({v})",
    "one more": "({v} + 1)",
    "squared": "{v} ** 2",
    "doubled": "(2 * {v})",
    "less a bias": "({v} - b[e])",
    "halved": "{v} / 2",
    "chosen": "(if {v} > 0 {{ {v} }} else {{ 0.5 * {v} }})",
    "between two": "clamp({v}, -1, 1)",
    "negative": "(-{v})",
    "gated": "{v} * sigmoid(gate[h, i, e])",
    "gated before": "sigmoid(gate[h, i, e]) * {v}",
    "gated by an array": "gate[h, i, e] * {v}",
    "gated by one number each": "one[h, i] * {v}",
    "silu of a gate": "silu(gate[h, i, e]) * {v}",
}


def _values(v: str) -> dict[str, str]:
    texts = {}
    for name, form in _FUNCTIONS.items():
        value = form.format(v=v)
        texts[f"{name}, in the sum"] = f"let out[h, i, e] = sum[j](w[h, i, j] * {value});\n"
        texts[f"{name}, before the weights"] = f"let out[h, i, e] = sum[j]({value} * w[h, i, j]);\n"
        texts[f"{name}, gated outside"] = f"let out[h, i, e] = one[h, i] * sum[j](w[h, i, j] * {value});\n"
        texts[f"{name}, gated by a function outside"] = (
            f"let out[h, i, e] = sigmoid(one[h, i]) * sum[j](w[h, i, j] * {value});\n"
        )
        texts[f"{name}, weights inline"] = (
            "let out[h, i, e] = sum[j](softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d)) where j <= i)"
            f" * {value});\n"
        )
        place = "j" if "V[h, j" in v else "i"
        if "gate" not in value and "one" not in value:
            made = value.replace("[h, j,", "[h, i,")
            texts[f"{name}, by name"] = (
                f"let X[h, i, e] = {made};\nlet out[h, i, e] = sum[j](w[h, i, j] * X[h, {place}, e]);\n"
            )
    used = "let used[h, i, j] = w[h, i, j];\n"
    return {name: f"{_HEARD}{text}{_KEPT}{used}" for name, text in texts.items()}


HEARD_AT_KEY = _values("V[h, j, e]")
HEARD_AT_QUERY = _values("V[h, i, e]")

# Three branches that are gated and added up, as in sparse attention; `{a}`, `{b}` and `{c}` are where values are read.
_BRANCHES = """input Q[h, i, d], K[h, j, d], V[h, j, e], X[i, m], Wg[h, c, m];
let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));
let g[h, c, i] = sigmoid(sum[m](X[i, m] * Wg[h, c, m]));
let near[h, i, j] = softmax[j](s[h, i, j]) where i - 4 < j <= i;
let far[h, i, j] = softmax[j](s[h, i, j]) where j <= i, j % 4 == 0;
let best[h, i, j] = softmax[j](s[h, i, j]) where j <= i, j % 3 == 0;
"""
_ONE_LINE = """let out[h, i, e] = g[h, 0, i] * sum[j](near[h, i, j] * V[h, {a}, e])
    + g[h, 1, i] * sum[j](far[h, i, j] * V[h, {b}, e]) + g[h, 2, i] * sum[j](best[h, i, j] * V[h, {c}, e]);
let also[h, i, e] = V[h, i, e];
"""
_INSIDE = """let out[h, i, e] = sum[j](g[h, 0, i] * near[h, i, j] * V[h, {a}, e])
    + sum[j](far[h, i, j] * V[h, {b}, e] * g[h, 1, i]) + sum[j](best[h, i, j] * g[h, 2, i] * V[h, {c}, e]);
let also[h, i, e] = V[h, i, e];
"""
_NAMED = """let first[h, i, e] = sum[j](near[h, i, j] * V[h, {a}, e]);
let second[h, i, e] = sum[j](far[h, i, j] * V[h, {b}, e]);
let third[h, i, e] = sum[j](best[h, i, j] * V[h, {c}, e]);
let out[h, i, e] = g[h, 0, i] * first[h, i, e] + g[h, 1, i] * second[h, i, e] + g[h, 2, i] * third[h, i, e];
let also[h, i, e] = V[h, i, e];
"""
_SPELLED = {"in one line": _ONE_LINE, "gates inside": _INSIDE, "by name": _NAMED}
BRANCHES_AT_KEY = {name: _BRANCHES + text.format(a="j", b="j", c="j") for name, text in _SPELLED.items()}
BRANCHES_AT_QUERY = {
    f"{name}, {which}": _BRANCHES + text.format(**{x: "i" if x in which else "j" for x in "abc"})
    for name, text in _SPELLED.items()
    for which in ("a", "b", "c", "ab", "abc")
}
