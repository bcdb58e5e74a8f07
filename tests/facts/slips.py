"""Attention with masks, tables, biases, sinks and caches: with a slip and the code that names it, and right."""

from __future__ import annotations

_SPACES = "space head(h), position(i, j, k, c), feature(d, e), model(m), offset(r);\n"
_MADE = """input X[i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e];
let Q[h, i, d] = sum[m](X[i, m] * W_Q[h, m, d]);
let K[h, j, d] = sum[m](X[j, m] * W_K[h, m, d]);
let V[h, j, e] = sum[m](X[j, m] * W_V[h, m, e]);
let match[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));
"""
_OUT = "let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);\n"


def _masked(guard: str, given: str, after: str = "") -> str:
    weights = f"let weights[h, i, j] = softmax[j](match[h, i, j] where {guard});\n"
    return f"{_SPACES}{_MADE}{given}{weights}{_OUT}{after}"


_MASK = "input chosen[i] : bool;\n"
_POOL = "let pooled[h, e] = mean[i](out[h, i, e] where chosen[i]);\n"
_TOTAL = """let kept[h, i, e] = out[h, i, e] where chosen[i];
let pooled[h, e] = sum[i](kept[h, i, e] where chosen[i]) / sum[i](1.0 where chosen[i]);
"""
_LOSS = "input Y[i, e];\nlet loss[h] = mean[i, e]((out[h, i, e] - Y[i, e]) ** 2 where chosen[i]);\n"
_SECOND = """let more[h, i, j] = softmax[j](2 * match[h, i, j] where {guard});
let again[h, i, e] = sum[j](more[h, i, j] * V[h, j, e]);
"""

# By the names of masks alone: (a guard, the inputs that it reads).
TURNED_BY_NAME = [
    ("padding[j]", "input padding[i] : bool;\n"),
    ("is_pad[j] && j <= i", "input is_pad[i] : bool;\n"),
    ("!valid[j]", "input valid[i] : bool;\n"),
    ("padded[j] == 1", "input padded[i] : i64;\n"),
    ("keep[j] == 0", "input keep[i] : i64;\n"),
    ("heard[i, j]", "input padding[i] : bool;\nlet heard[i, j] = padding[j] && j <= i;\n"),
    ("token[j] == pad", "input token[i] : i64;\nlet pad = 3;\n"),
    ("!(token[j] != pad_id)", "input token[i] : i64, pad_id : i64;\n"),
    ("j >= length", "input length : i64;\n"),
    ("!(seq_len > j)", "input seq_len : i64;\n"),
]
RIGHT_BY_NAME = [
    ("!padding[j]", "input padding[i] : bool;\n"),
    ("valid[j]", "input valid[i] : bool;\n"),
    ("padding_mask[j]", "input padding_mask[i] : bool;\n"),
    ("!mask[j]", "input mask[i] : bool;\n"),
    ("not_padding[j]", "input not_padding[i] : bool;\n"),
    ("padding[j] || j == i", "input padding[i] : bool;\n"),
    ("keep[j] > 0", "input keep[i] : i64;\n"),
    ("token[j] != pad", "input token[i] : i64;\nlet pad = 3;\n"),
    ("kind[j] == image", "input kind[i] : i64, image : i64;\n"),
    ("j < length", "input length : i64;\n"),
    ("j >= prefix_length", "input prefix_length : i64;\n"),
    ("valid[i] == valid[j]", "input valid[i] : i64;\n"),
]
ON_QUERIES_BY_NAME = [
    ("valid[i]", "input valid[i] : bool;\n"),
    ("!padding_mask[i]", "input padding_mask[i] : bool;\n"),
    ("mask[i] == 1", "input mask[i] : i64;\n"),
]
RIGHT_ON_QUERIES = [
    ("valid[i] && valid[j]", "input valid[i] : bool;\n"),
    ("valid[i] && j <= i", "input valid[i] : bool;\n"),
    ("chosen[i]", _MASK),
    ("mask[i, j]", "input mask[i, j] : bool;\n"),
    ("valid[i] && heard[i, j]", "input valid[i] : bool;\nlet heard[i, j] = valid[j] || j == i;\n"),
]


def masked(guard: str, given: str) -> str:
    return _masked(guard, given)


_TABLE = "input table[h, r];\nlet far = size(r) / 2;\n"
_FORWARDS, _BACKWARDS = (f"table[h, clamp({by}, -far, far - 1) + far]" for by in ("i - j", "j - i"))


def _two(first: str, second: str, guards: tuple[str, str] = ("", ""), given: str = _TABLE) -> str:
    one, other = (f" where {guard}" if guard else "" for guard in guards)
    return (
        f"{_SPACES}{_MADE}{given}"
        f"let weights[h, i, j] = softmax[j](match[h, i, j] + {first}{one});\n{_OUT}"
        f"let more[h, i, j] = softmax[j](2 * match[h, i, j] + {second}{other});\n"
        "let again[h, i, e] = sum[j](more[h, i, j] * V[h, j, e]);\n"
    )


def _late(bias: str, given: str = "", gather: str = "sum[j](biased[h, i, j] * V[h, j, e])") -> str:
    return (
        f"{_SPACES}{_MADE}{given}"
        "let weights[h, i, j] = softmax[j](match[h, i, j]);\n"
        f"let biased[h, i, j] = {bias};\n"
        f"let out[h, i, e] = {gather};\n"
    )


_GIVEN = "input Q[h, i, d], K[h, j, d], V[h, j, e], sink[h];\nlet n = size(j);\n"


def _sink(scores: str, guard: str = "", gather: str = "sum[j in 0..n](weights[h, i, j] * V[h, j, e])") -> str:
    heard = f" where {guard}" if guard else ""
    return (
        f"{_SPACES}{_GIVEN}"
        f"let scores[h, i, k in 0..n + 1] = {scores};\n"
        f"let weights[h, i, k] = softmax[k](scores[h, i, k]{heard});\n"
        f"let out[h, i, e] = {gather};\n"
    )


_COMPARED = "sum[d](Q[h, i, d] * K[h, k, d])"
_BESIDE = f"if k < n {{ {_COMPARED} / sqrt(size(d)) }} else {{ sink[h] }}"
_OVER_ALL = "sum[k in 0..n + 1](weights[h, i, k] * {value})"
_IN_TOTAL = (
    f"{_SPACES}{_GIVEN}"
    "let match[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));\n"
    "let beside[h] = {sink};\n"
    "let top[h, i] = max(beside[h], max[j](match[h, i, j] where j <= i));\n"
    "let share[h, i, j] = exp(match[h, i, j] - top[h, i]) where j <= i;\n"
    "let total[h, i] = exp(beside[h] - top[h, i]) + sum[j](share[h, i, j] where j <= i);\n"
    "let out[h, i, e] = sum[j](share[h, i, j] * V[h, j, e] where j <= i) / total[h, i];\n"
)

_CACHE = """use std::positions::{{rotary_halves, rotary_halves_from}};
space position(i, j, c), feature(d, e), model(m);
input X[i, m], W_Q[m, d], W_K[m, d], W_V[m, e], K_C[c, d], V_C[c, e];
let n = size(c);
let Q[i, d] = sum[m](X[i, m] * W_Q[m, d]);
let K[i, d] = sum[m](X[i, m] * W_K[m, d]);
let V[i, e] = sum[m](X[i, m] * W_V[m, e]);
let asked = {query};
let first = {cached};
let last = {new};
let keys[j in 0..n + size(i), d] = if j < n {{ first[j, d] }} else {{ last[j - n, d] }};
let known = {known};
let values[j in 0..n + size(i), e] = if j < n {{ V_C[j, e] }} else {{ V[j - n, e] }};
let weights[i, j] = softmax[j](sum[d](asked[i, d] * known[j, d]) / sqrt(size(d)) where j <= i + n);
let out[i, e] = sum[j](weights[i, j] * values[j, e]);
"""


def _cache(query: str, cached: str = "K_C", new: str = "K", known: str = "keys") -> str:
    names = {"Q": query, "K_C": cached, "K": new, "keys": known}
    turned = {
        name: how.replace("FROM", f"rotary_halves_from({name}, n, 100.0)").replace(
            "TURN", f"rotary_halves({name}, 100.0)"
        )
        for name, how in names.items()
    }
    text = _CACHE.format(query=turned["Q"], cached=turned["K_C"], new=turned["K"], known=turned["keys"])
    for name, value in (("first", turned["K_C"]), ("last", turned["K"]), ("known", turned["keys"])):
        if "(" not in value:
            # A definition that only reads on stands as it is.
            text = text.replace(f"let {name} = {value};\n", "").replace(f"{name}[", f"{value}[")
    return text


BROKEN: dict[str, tuple[set[str], str]] = {
    "heard_and_left_out": ({"IX431"}, _masked("!chosen[j]", _MASK, _POOL)),
    "left_out_and_heard": (
        {"IX431"},
        _masked("chosen[j] && j <= i", _MASK, _POOL.replace("where chosen", "where !chosen")),
    ),
    "heard_and_not_totalled": ({"IX431"}, _masked("!chosen[j]", _MASK, _TOTAL)),
    "masks_keys_then_queries": ({"IX432"}, _masked("chosen[j]", _MASK, _SECOND.format(guard="chosen[i]"))),
    "masks_queries_then_keys": ({"IX432"}, _masked("chosen[i]", _MASK, _SECOND.format(guard="chosen[j]"))),
    "table_from_both_ends": ({"IX433"}, _two(_FORWARDS, _BACKWARDS)),
    "table_from_both_ends_causal": ({"IX433"}, _two(_BACKWARDS, _FORWARDS, ("j <= i", "j <= i"))),
    "table_by_name_from_both_ends": (
        {"IX433"},
        _two(
            "bias[h, i, j]",
            "bias[h, j, i]",
            given=f"{_TABLE}let bias[h, i in 0..size(i), j in 0..size(i)] = {_FORWARDS};\n",
        ),
    ),
    "bias_after_softmax": ({"IX434"}, _late("weights[h, i, j] + bias[i, j]", "input bias[i, j];\n")),
    "distance_after_softmax": ({"IX434"}, _late("weights[h, i, j] - 0.1 * abs(i - j)")),
    "table_after_softmax": ({"IX434"}, _late(f"{_FORWARDS} + weights[h, i, j]", _TABLE)),
    "bias_after_guarded_softmax": (
        {"IX434"},
        _late("weights[h, i, j] + bias[i, j]", "input bias[i, j];\n").replace(
            "match[h, i, j])", "match[h, i, j] where j <= i)"
        ),
    ),
    "sink_masked": ({"IX435"}, _sink(_BESIDE, "k <= i")),
    "sink_scaled": ({"IX435"}, _sink(f"(if k < n {{ {_COMPARED} }} else {{ sink[h] }}) / sqrt(size(d))")),
    "sink_scaled_in_total": ({"IX435"}, _IN_TOTAL.format(sink="sink[h] / sqrt(size(d))")),
    "sink_carried": ({"IX435"}, _sink(_BESIDE, "", _OVER_ALL.format(value="V[h, min(k, n - 1), e]"))),
    "sink_carried_by_choice": (
        {"IX435"},
        _sink(_BESIDE, "", _OVER_ALL.format(value="(if k < n { V[h, k, e] } else { V[h, 0, e] })")),
    ),
    "cache_not_turned": ({"IX416"}, _cache("FROM")),
    "cache_turned_alone": ({"IX416"}, _cache("FROM", "TURN")),
    "cache_turned_twice": ({"IX416"}, _cache("FROM", "K_C", "FROM", "TURN")),
    "cache_turned_from_the_start": ({"IX417"}, _cache("FROM", "K_C", "TURN")),
    "cache_turned_before_and_after": ({"IX417"}, _cache("FROM", "TURN", "TURN")),
    "query_turned_from_the_start": ({"IX417"}, _cache("TURN", "K_C", "K", "TURN")),
    "query_turned_from_the_start_of_new": ({"IX417"}, _cache("TURN", "K_C", "FROM")),
}

RIGHT = {
    "mask_heard_and_pooled": _masked("chosen[j]", _MASK, _POOL),
    "mask_hidden_and_asked_for": _masked("!chosen[j]", _MASK, _LOSS),
    "mask_of_two_streams": _masked("chosen[j]", _MASK, _SECOND.format(guard="!chosen[j]")),
    "mask_on_both": _masked("chosen[i] && chosen[j]", _MASK, _SECOND.format(guard="chosen[j]")),
    "mask_on_queries_behind": _masked("chosen[j]", _MASK, _SECOND.format(guard="chosen[i] && j <= i")),
    "table_from_one_end": _two(_FORWARDS, _FORWARDS),
    "table_from_each_side": _two(
        "table[h, clamp(i - j, 0, far)]", "table[h, clamp(j - i, 0, far)]", ("j <= i", "i <= j")
    ),
    "table_of_distances": _two("table[h, clamp(abs(i - j), 0, far)]", "table[h, clamp(abs(j - i), 0, far)]"),
    "two_tables": _two(_FORWARDS, _BACKWARDS.replace("table", "other"), given=_TABLE + "input other[h, r];\n"),
    "bias_normalised_again": _late(
        "weights[h, i, j] + exp(bias[i, j])",
        "input bias[i, j];\n",
        "sum[j](biased[h, i, j] * V[h, j, e]) / sum[j](biased[h, i, j])",
    ),
    "bias_divided_again": _late(
        "weights[h, i, j] + bias[i, j]",
        "input bias[i, j];\n",
        "sum[j](biased[h, i, j] * V[h, j, e]) / sum[j](biased[h, i, j])",
    ),
    "identity_beside_weights": _late("weights[h, i, j] + (if i == j { 1.0 } else { 0.0 })"),
    "weights_mixed_with_given": _late(
        "share * weights[h, i, j] + (1 - share) * given[i, j]", "input given[i, j], share;\n"
    ),
    "sink_heard_by_all": _sink(_BESIDE, "k <= i || k == n"),
    "sink_without_a_guard": _sink(_BESIDE),
    "sink_before_the_keys": _sink(
        "if k > 0 { sum[d](Q[h, i, d] * K[h, k - 1, d]) / sqrt(size(d)) } else { sink[h] }",
        "k <= i + 1",
        "sum[j](weights[h, i, j + 1] * V[h, j, e] where j <= i)",
    ),
    "sink_with_nothing": _sink(_BESIDE, "", _OVER_ALL.format(value="(if k < n { V[h, k, e] } else { 0.0 })")),
    "sink_in_total": _IN_TOTAL.format(sink="sink[h]"),
    "cache_of_turned_keys": _cache("FROM", "K_C", "FROM"),
    "cache_turned_after": _cache("FROM", "K_C", "K", "TURN"),
    "cache_turned_in_two_parts": _cache("FROM", "TURN", "FROM"),
}
