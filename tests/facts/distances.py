"""Attention that counts distances, by turns and by biases: with a mistake and the code that names it, and right."""

from __future__ import annotations

_USES = (
    "use std::positions::{alibi, alibi_slope};\n"
    "use std::positions::{rotary_halves, rotary_halves_from, rotary_pairs, rotary_pairs_from};\n"
)
_SPACES = "space head(h), position(i, j, k), feature(d, e), model(m);\n"
_GIVEN = "input Q[h, i, d], K[h, j, d], V[h, j, e];\n"
_MADE = """input X[i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e];
let Q[h, i, d] = sum[m](X[i, m] * W_Q[h, m, d]);
let K[h, j, d] = sum[m](X[j, m] * W_K[h, m, d]);
let V[h, j, e] = sum[m](X[j, m] * W_V[h, m, e]);
"""
_BEHIND = _GIVEN + "let n = size(j) - size(i);\n"


def _turned(given: str, query: str, key: str, guard: str = "j <= i") -> str:
    names = "".join(f"let turned_{name} = {value};\n" for name, value in (("Q", query), ("K", key)) if "(" in value)
    asked, answered = (f"turned_{name}" if "(" in value else name for name, value in (("Q", query), ("K", key)))
    return (
        f"{_USES}{_SPACES}{given}{names}"
        f"let scores[h, i, j] = sum[d]({asked}[h, i, d] * {answered}[h, j, d]) / sqrt(size(d));\n"
        f"let weights[h, i, j] = softmax[j](scores[h, i, j] where {guard});\n"
        "let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);\n"
    )


def _biased(bias: str, given: str = "", guard: str = "j <= i") -> str:
    return (
        f"{_USES}{_SPACES}{_GIVEN}{given}"
        "let match[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));\n"
        f"let weights[h, i, j] = softmax[j](match[h, i, j] {bias} where {guard});\n"
        "let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);\n"
    )


_GATES = "input gate[h, k];\nlet kept[h, k] = cumsum[k](log_sigmoid(gate[h, k]));\n"
_BETWEEN = "sum[k](log_sigmoid(gate[h, k]) where j < k && k <= i)"
# A turn in halves, the two halves apart, without a function.
_BY_HAND = """let half = size(d) / 2;
let angle[i, d] = i * {base} ** (-2.0 * d / size(d));
let turned_{name}[h, i, d] = if d < half {{
    {name}[h, i, d] * cos(angle[i, d]) - {name}[h, i, d + half] * sin(angle[i, d])
}} else {{
    {name}[h, i, d] * cos(angle[i, d - half]) + {name}[h, i, d - half] * sin(angle[i, d - half])
}};
"""

BROKEN: dict[str, tuple[set[str], str]] = {
    "turned_query": ({"IX416"}, _turned(_GIVEN, "rotary_pairs(Q, 10000.0)", "K")),
    "turned_key": ({"IX416"}, _turned(_GIVEN, "Q", "rotary_halves(K, 10000.0)")),
    "turned_projected_query": ({"IX416"}, _turned(_MADE, "rotary_halves(Q, 10000.0)", "K")),
    "turned_query_meets_a_projection": (
        {"IX416"},
        _turned(_MADE, "rotary_halves(Q, 10000.0)", "K")
        .replace("let K[h, j, d] = sum[m](X[j, m] * W_K[h, m, d]);\n", "")
        .replace("* K[h, j, d])", "* sum[m](X[j, m] * W_K[h, m, d]))"),
    ),
    "turned_query_behind_nothing": (
        {"IX416"},
        _turned(_MADE + "let n = 3;\n", "rotary_pairs_from(Q, n, 10000.0)", "K"),
    ),
    "turned_by_two_bases": (
        {"IX416"},
        _turned(_GIVEN, "rotary_pairs(Q, 10000.0)", "rotary_pairs(K, 500000.0)"),
    ),
    "turned_by_two_bases_in_halves": (
        {"IX416"},
        _turned(_MADE, "rotary_halves(Q, 100.0)", "rotary_halves(K, 10000.0)"),
    ),
    "turned_in_pairs_and_halves": (
        {"IX416"},
        _turned(_GIVEN, "rotary_pairs(Q, 10000.0)", "rotary_halves(K, 10000.0)"),
    ),
    "turned_by_hand": (
        {"IX416"},
        _turned(_MADE + _BY_HAND.format(name="Q", base="10000.0"), "Q", "rotary_pairs(K, 10000.0)").replace(
            "(Q[h, i, d] * turned", "(turned_Q[h, i, d] * turned"
        ),
    ),
    "offset_in_turn_alone": (
        {"IX417"},
        _turned(_BEHIND, "rotary_pairs_from(Q, n, 10000.0)", "rotary_pairs(K, 10000.0)"),
    ),
    "offset_of_key_alone": (
        {"IX417"},
        _turned("input n : i64;\n" + _GIVEN, "rotary_halves(Q, 10000.0)", "rotary_halves_from(K, n, 10000.0)"),
    ),
    "offset_in_mask_alone": (
        {"IX417"},
        _turned(_BEHIND, "rotary_halves(Q, 10000.0)", "rotary_halves(K, 10000.0)", "j <= i + n"),
    ),
    "offset_in_mask_and_not_in_distance": (
        {"IX417"},
        _biased("+ alibi(i, j, alibi_slope(h, size(h)))", "let n = size(j) - size(i);\n", "j <= i + n"),
    ),
    "offset_in_mask_and_not_in_table": (
        {"IX417"},
        _biased("+ table[h, clamp(i - j, 0, 7)]", "input table[h, r in 0..8];\n", "j <= i + size(j) - size(i)"),
    ),
    "distance_pays": ({"IX418"}, _biased("+ 0.5 * (i - j)")),
    "distance_pays_backwards": ({"IX418"}, _biased("- (j - i) * 2.0 ** (-1.0 - h)")),
    "alibi_taken_away": ({"IX418"}, _biased("- alibi(i, j, alibi_slope(h, size(h)))")),
    "distance_pays_by_logarithm": (
        {"IX418"},
        _biased("+ softplus(rate[h]) * log1p(softplus(width[h]) * abs(i - j))", "input rate[h], width[h];\n"),
    ),
    "gates_turned_round": ({"IX418"}, _biased("+ kept[h, j] - kept[h, i]", _GATES)),
    "gates_between_turned_round": ({"IX418"}, _biased(f"- {_BETWEEN}", "input gate[h, k];\n")),
}

RIGHT = {
    "turned_pairs": _turned(_MADE, "rotary_pairs(Q, 10000.0)", "rotary_pairs(K, 10000.0)"),
    "turned_halves": _turned(_GIVEN, "rotary_halves(Q, 10000.0)", "rotary_halves(K, 10000.0)"),
    "turned_by_hand_and_by_name": _turned(
        _MADE + _BY_HAND.format(name="Q", base="100.0"), "Q", "rotary_halves(K, 100.0)"
    ).replace("(Q[h, i, d] * turned", "(turned_Q[h, i, d] * turned"),
    "turned_keys_in_the_cache": _turned(_BEHIND, "rotary_pairs_from(Q, n, 10000.0)", "K", "j <= i + n"),
    "turned_behind_a_cache": _turned(
        _BEHIND, "rotary_halves_from(Q, n, 10000.0)", "rotary_halves(K, 10000.0)", "j <= i + n"
    ),
    "turned_by_given_bases": _turned(
        "input base, other;\n" + _GIVEN, "rotary_pairs(Q, base)", "rotary_pairs(K, other)"
    ),
    "turned_and_all_heard": _turned(
        _BEHIND, "rotary_pairs_from(Q, n, 10000.0)", "rotary_pairs(K, 10000.0)", "j <= i + n && i + n - j < 9"
    ),
    "turned_with_a_view_ahead": _turned(
        "input ahead : i64;\n" + _GIVEN, "rotary_pairs(Q, 10000.0)", "rotary_pairs(K, 10000.0)", "j <= i + ahead"
    ),
    "turned_and_strictly_before": _turned(
        _GIVEN, "rotary_pairs(Q, 10000.0)", "rotary_pairs(K, 10000.0)", "j < i"
    ),
    "turned_by_a_table": _turned(
        "input cosine[j, d], sine[j, d];\n"
        + _GIVEN
        + "let half = size(d) / 2;\n"
        + "let other[h, j, d] = if d < half { -K[h, j, d + half] } else { K[h, j, d - half] };\n"
        + "let known[h, j, d] = K[h, j, d] * cosine[j, d] + other[h, j, d] * sine[j, d];\n",
        "rotary_halves(Q, 10000.0)",
        "K",
    ).replace("* K[h, j, d]) / sqrt", "* known[h, j, d]) / sqrt"),
    "offset_in_mask_and_in_distance": _biased(
        "+ alibi(i + n, j, 0.5)", "let n = size(j) - size(i);\n", "j <= i + n"
    ),
    "distance_with_a_view_ahead": _biased("- abs(i - j)", "input table[r];\n", "j <= i + size(r) && table[0] > 0"),
    "offset_that_cancels": _biased("- 0.5 * (i - j)", "let n = size(j) - size(i);\n", "j <= i + n"),
    "distance_costs": _biased("- 0.5 * (i - j)"),
    "distance_costs_backwards": _biased("+ (j - i) * 2.0 ** (-1.0 - h)"),
    "distance_has_a_learned_price": _biased("+ rate[h] * (i - j)", "input rate[h];\n"),
    "distance_pays_in_both_directions": _biased("+ 0.5 * (i - j)", guard="j <= i + 4"),
    "distance_pays_and_costs_more": _biased("+ 0.5 * (i - j) - 0.7 * (i - j)"),
    "future_pays_nothing": _biased("- relu((j - i) as f64)"),
    "gates": _biased("+ kept[h, i] - kept[h, j]", _GATES),
    "gates_between": _biased(f"+ {_BETWEEN}", "input gate[h, k];\n"),
}
