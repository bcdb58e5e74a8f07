"""Each lint and each contract: what it says, where it points, and what it must not say."""

from __future__ import annotations

import pytest
from tests.facts import slips

import indexical as ix
from indexical.diagnostics import Diagnostic

ROWS = "input S[i, j], V[j, e];\nlet w[i, j] = softmax[j](S[i, j]);\n"
PAIR = "input Q[i, d], K[j, d], V[j, e];\n"
HEADS = "input Q[h, i, d], K[h, j, d], V[h, j, e];\n"
SCORE = "sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))"
WEIGHTS = f"let w[i, j] = softmax[j]({SCORE});\n"
OUT = "let out[i, e] = sum[j](w[i, j] * V[j, e]);\n"
SPLIT = """input Q[i, m], K[j, m], V[j, m];
let H = 2;
let D = size(m) / H;
"""


def findings(text: str, code: str) -> list[Diagnostic]:
    return [found for found in ix.check(text) if found.code == code]


def only(text: str, code: str) -> Diagnostic:
    """The one finding beside notes."""
    (found,) = [found for found in ix.check(text) if found.severity != "note" or found.code == code]
    assert found.code == code, str(found)
    return found


def labels(found: Diagnostic) -> list[tuple[str, str]]:
    """The text under each caret, and what is said there."""
    return [(label.span.text, label.text) for label in found.labels]


# ----------------------------------------------------------------------------- lints


def test_normalised_over_query() -> None:
    found = only(PAIR + WEIGHTS.replace("softmax[j]", "softmax[i]") + OUT, "IX402")
    assert found.message == "the weights are normalised over `i`, and gathered over `j`"
    assert labels(found) == [
        (f"softmax[i]({SCORE})", "sums to 1 over `i`"),
        ("sum[j](w[i, j] * V[j, e])", "gathers over `j`"),
    ]
    assert found.help == "`j` is the key: normalise over it, `softmax[j](…)`"


def test_value_at_query() -> None:
    found = only("input S[i, j], V[i, e];\n" + WEIGHTS.replace(SCORE, "S[i, j]") + OUT.replace("V[j", "V[i"), "IX403")
    assert found.message == "`V[i, e]` is read at `i`, who asks, and not at the key `j`"
    assert found.labels[0].span.text == "V[i, e]"
    assert found.notes == ("the weights sum to 1 over `j`: `out` is `V[i, e]`; the weights do nothing",)


def test_value_of_another_head() -> None:
    weights = "let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d)));\n"
    found = only(HEADS + weights + "let out[h, i, e] = sum[j](w[h, i, j] * V[0, j, e]);", "IX404")
    assert found.message == "`V[0, j, e]` is not read at the `h` whose weights gather it"
    assert labels(found)[0] == ("V[0, j, e]", "the keys are read at `h`")


def test_guarded_late() -> None:
    found = only(ROWS + "let out[i, e] = sum[j](w[i, j] * V[j, e] where j <= i);", "IX405")
    assert labels(found) == [("j <= i", "removed here"), ("softmax[j](S[i, j])", "normalised here, over more")]
    assert found.notes == ("what is left no longer sums to 1 over `j`",)


def test_compared_apart() -> None:
    found = only(PAIR + WEIGHTS.replace("sum[d]", "sum[d, f]").replace("K[j, d]", "K[j, f]") + OUT, "IX406")
    assert found.message == "`Q[i, d]` and `K[j, f]` share no feature that is compared"
    assert labels(found) == [("Q[i, d]", "summed over `d`"), ("K[j, f]", "summed over `f`")]


def test_nothing_compared() -> None:
    found = only(PAIR + WEIGHTS.replace(SCORE, "sum[d](Q[i, d]) + sum[d](K[j, d])") + OUT, "IX406")
    assert found.message == "nothing is compared: no term of this score varies with the query and the key at once"
    assert found.notes == ("what varies with `i` alone cancels in the softmax: everybody listens to the same",)


def test_split_apart() -> None:
    text = SPLIT + (
        "let w[h in 0..H, i, j] = softmax[j](sum[d in 0..D](Q[i, d * H + h] * K[j, h * D + d]) / sqrt(D));\n"
        "let out[h, i, e in 0..D] = sum[j](w[h, i, j] * V[j, h * D + e]);\n"
    )
    found = only(text, "IX407")
    assert found.message == "the features are split as `d * H + h` on one side and as `h * D + d` on the other"
    assert [text for text, _ in labels(found)] == ["d * H + h", "h * D + d"]


def test_packed_apart() -> None:
    text = SPLIT + (
        "let w[h in 0..H, i, j] = softmax[j](sum[d in 0..D](Q[i, h * D + d] * K[j, h * D + d]) / sqrt(D));\n"
        "let y[h, i, e in 0..D] = sum[j](w[h, i, j] * V[j, h * D + e]);\n"
        "let out[i, m in 0..H * D] = y[m % H, i, m / H];\n"
    )
    found = only(text, "IX407")
    assert found.message == "`y[m % H, i, m / H]` packs the heads in another order than they were split"
    assert labels(found) == [("y[m % H, i, m / H]", "packed here"), ("h * D + e", "split here")]


def test_scale_of_another_size() -> None:
    found = only(PAIR + WEIGHTS.replace("size(d)", "size(j)") + OUT, "IX408")
    assert found.message == "this scale is not taken from the compared `d`"
    assert labels(found)[0] == ("sqrt(size(j))", "of another size")


def test_scale_twice() -> None:
    found = only(
        PAIR + "let q[i, d] = Q[i, d] / sqrt(size(d));\n" + WEIGHTS.replace("Q[i, d]", "q[i, d]") + OUT, "IX409"
    )
    assert found.message == "the scale is applied twice"
    assert found.labels[0].span.text == "sqrt(size(d))"


def test_scale_of_two_compared_features() -> None:
    text = "input Q[i, c, d], K[j, c, d], V[j, e];\n"
    text += WEIGHTS.replace(SCORE, "sum[c, d](Q[i, c, d] * K[j, c, d]) / sqrt(size(d))") + OUT
    assert str(only(text, "IX408").help).startswith("divide by `sqrt(size(c) * size(d))`, the root")
    assert ix.check(text.replace("sqrt(size(d))", "sqrt(size(c) * size(d))")) == []


@pytest.mark.parametrize("score", ["g[i] * s[i, j]", "s[i, j] / g[i]", "exp(g[i]) * (s[i, j] + 1)"])
def test_learned_scale_is_one(score: str) -> None:
    text = f"input g[i];\n{PAIR}let s[i, j] = sum[d](Q[i, d] * K[j, d]);\n" + WEIGHTS.replace(SCORE, score) + OUT
    assert ix.check(text) == []


def test_no_scale_is_a_note() -> None:
    found = only(PAIR + WEIGHTS.replace(" / sqrt(size(d))", "") + OUT, "IX410")
    assert found.severity == "note"
    assert found.message == "these scores are not scaled"


def test_scale_without_its_root_is_a_note() -> None:
    found = only(PAIR + WEIGHTS.replace("sqrt(size(d))", "size(d)") + OUT, "IX430")
    assert found.severity == "note"
    assert found.message == "these scores are divided by the number of `d`"
    assert found.labels[0].span.text == "size(d)"
    mean = WEIGHTS.replace("sum[d]", "mean[d]").replace(" / sqrt(size(d))", "")
    assert findings(PAIR + mean + OUT, "IX430") == []


def test_mask_by_number() -> None:
    found = only("input S[i, j];\nlet w[i, j] = softmax[j](if j <= i { S[i, j] } else { -1e9 });", "IX411")
    assert found.message == "`-1e9` stands in for a mask"
    assert found.help == "write the relation as a guard: `softmax[…](… where j <= i)`"


TURNED = """use std::positions::{rotary_halves, rotary_halves_from, rotary_pairs};
input Q[i, d], K[j, d], V[j, e];
let n = size(j) - size(i);
let q = QUERY;
let k = KEY;
let w[i, j] = softmax[j](sum[d](q[i, d] * k[j, d]) / sqrt(size(d))) where GUARD;
let out[i, e] = sum[j](w[i, j] * V[j, e]);
"""


def turned(query: str, key: str, code: str, guard: str = "j <= i") -> Diagnostic:
    return only(TURNED.replace("QUERY", query).replace("KEY", key).replace("GUARD", guard), code)


def test_turned_on_one_side() -> None:
    found = turned("rotary_halves(Q, 100.0)", "K", "IX416", "n >= 0 && j <= i")
    assert found.message == "`q[i, d]` is turned by its position, and `k[j, d]` is not"
    assert labels(found) == [("q[i, d]", "turns with `i`"), ("k[j, d]", "does not turn")]


def test_turned_by_other_angles() -> None:
    bases = turned("rotary_halves(Q, 100.0)", "rotary_halves(K, 200.0)", "IX416", "n >= 0 && j <= i")
    assert bases.message == "the features of `d` turn faster on one side than on the other"
    pairs = turned("rotary_halves(Q, 100.0)", "rotary_pairs(K, 100.0)", "IX416", "n >= 0 && j <= i")
    assert pairs.message == "the features of `d` turn in other pairs on one side than on the other"


def test_offset_on_one_side() -> None:
    found = turned("rotary_halves_from(Q, n, 100.0)", "rotary_halves(K, 100.0)", "IX417")
    assert found.message == "`i` is turned as if it stood size(j) - size(i) further on, and masked as if it did not"
    assert labels(found)[0] == ("j <= i", "`i` stands at `i`")
    found = turned("rotary_halves(Q, 100.0)", "rotary_halves(K, 100.0)", "IX417", "j <= i + n")
    assert labels(found)[1] == ("j <= i + n", "masked here")


def test_bias_that_grows() -> None:
    found = only(PAIR + WEIGHTS.replace(SCORE, SCORE + " - 0.5 * (j - i) where j <= i") + OUT, "IX418")
    assert found.message == "this bias grows with the distance from `i` back to `j`"
    assert found.labels[0].span.text == "0.5 * (j - i)"


def warned(text: str) -> list[str]:
    return [found.code for found in ix.check(text) if found.severity != "note"]


@pytest.mark.parametrize(("guard", "given"), slips.TURNED_BY_NAME)
def test_mask_that_says_what_it_is(guard: str, given: str) -> None:
    assert warned(slips.masked(guard, given)) == ["IX431"]


@pytest.mark.parametrize(("guard", "given"), [*slips.RIGHT_BY_NAME, *slips.RIGHT_ON_QUERIES])
def test_mask_that_may_be_right(guard: str, given: str) -> None:
    assert warned(slips.masked(guard, given)) == []


@pytest.mark.parametrize(("guard", "given"), slips.ON_QUERIES_BY_NAME)
def test_mask_on_queries(guard: str, given: str) -> None:
    assert warned(slips.masked(guard, given)) == ["IX432"]


def test_mask_on_queries_of_another_sequence() -> None:
    mask = "space asks(i), answers(j);\ninput valid[i] : bool;\n"
    assert warned(mask + PAIR + WEIGHTS.replace(SCORE, f"{SCORE} where valid[i]") + OUT) == []


def test_mask_that_is_used_both_ways() -> None:
    (found,) = [one for one in ix.check(slips.BROKEN["heard_and_left_out"][1]) if one.code == "IX431"]
    assert labels(found) == [("!chosen[j]", "the `j` that are heard"), ("chosen[i]", "keeps the others")]


def test_table_from_both_ends() -> None:
    (found,) = [one for one in ix.check(slips.BROKEN["table_from_both_ends"][1]) if one.code == "IX433"]
    assert "j - i" in found.labels[0].span.text
    assert "i - j" in found.labels[1].span.text


def test_bias_on_weights() -> None:
    text = "input S[i, j], B[i, j], V[j, e];\nlet w[i, j] = softmax[j](S[i, j]) + B[i, j];\n" + OUT
    found = only(text, "IX434")
    assert labels(found) == [("B[i, j]", "added here"), ("softmax[j](S[i, j])", "normalised before")]


def test_sinks_that_are_none() -> None:
    messages = {
        "sink_masked": "this guard may take the sink away with the keys",
        "sink_scaled": "this sink is scaled like a score, and compares nothing",
        "sink_carried": "the sink carries a value home that belongs to a key",
    }
    for name, message in messages.items():
        assert [found.message for found in findings(slips.BROKEN[name][1], "IX435")] == [message]


def test_idle_reduction() -> None:
    found = only("input x[i], y[j];\nlet out = sum[i, j](x[i]) * sum[j](y[j]);", "IX412")
    assert found.message == "nothing here varies with `j`"
    assert labels(found) == [("sum[i, j](x[i])", "over `j` this only multiplies by its size")]


def test_idle_normaliser() -> None:
    found = only("input x[i], y[j];\nlet out[i, j] = softmax[j](x[i]) * y[j];", "IX412")
    assert labels(found) == [("softmax[j](x[i])", "over `j` this gives every point the same")]


def test_unused() -> None:
    text = "input x[i], y[i];\nlet a[i] = x[i] + 1;\nlet b[i] = x[i] * 2;\noutput a;"
    assert [found.message for found in findings(text, "IX413")] == [
        "no output needs the input `y`",
        "no output needs `b`",
    ]


def test_exponentials_without_a_shift_are_a_note() -> None:
    found = only("input S[i, j];\nlet w[i, j] = exp(S[i, j]) / sum[k](exp(S[i, k]));", "IX414")
    assert found.severity == "note"
    assert labels(found) == [("S[i, j]", "overflows where it is large"), ("sum[k](exp(S[i, k]))", "summed here")]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("let c[t] = cumsum[t](x[t]); let y[i, j] = c[i] - c[j];", "c[i] - c[j]"),
        ("let c[i] = sum[k](x[k] where k <= i); let y[i, j] = exp(c[i] - c[j]);", "c[i] - c[j]"),
        ("let c[i] = sum[k in 0..=i](x[k]); let y[i] = c[i] - c[0];", "c[i] - c[0]"),
        ("let y[i] = x[i] / sqrt(sum[i](x[i] ** 2));", "x[i] / sqrt(sum[i](x[i] ** 2))"),
        ("let n = sqrt(sum[i](x[i] * x[i])); let y[i] = 2 * x[i] / n;", "2 * x[i] / n"),
        ("let y[i] = x[i] * rsqrt(sum[i](x[i] ** 2));", "x[i] * rsqrt(sum[i](x[i] ** 2))"),
    ],
)
def test_digits_that_are_lost_are_a_note(text: str, place: str) -> None:
    found = only(f"input x[i]; {text}", "IX419")
    assert found.severity == "note"
    assert labels(found)[0][0] == place


@pytest.mark.parametrize(
    "text",
    [
        "let c[t] = cumsum[t](x[t]); let y[i] = c[i] - x[i];",
        "let c[t] = x[t] ** 2; let y[i, j] = c[i] - c[j];",
        "let y[i] = x[i] / sqrt(sum[k](x[k] ** 2) + 1e-6);",
        "let y[i] = x[i] / sqrt(sum[k](x[k]));",
    ],
)
def test_no_digits_are_lost(text: str) -> None:
    assert "IX419" not in [found.code for found in ix.check(f"input x[t]; {text}")]


def test_shifted_exponentials_are_fine() -> None:
    text = """input S[i, j];
let top[i] = max[j](S[i, j]);
let w[i, j] = exp(S[i, j] - top[i]) / sum[k](exp(S[i, k] - top[i]));
"""
    assert ix.check(text) == []


def test_empty_row_is_a_note() -> None:
    found = only("input S[i, j];\nlet w[i, j] = softmax[j](S[i, j] where j < i);", "IX415")
    assert found.message == "this guard may leave nobody over `j` to listen to"


def test_guard_on_several_coordinates_says_nothing_of_their_places() -> None:
    text = "input S[i, j, k];\nlet w[i, j, k] = softmax[j, k](S[i, j, k]) where j <= i, k <= i;"
    assert findings(text, "IX415") == []


@pytest.mark.parametrize(
    "guard", ["j <= i", "i >= j", "!(j > i)", "i - 3 < j <= i", "i / 4 == j / 4", "j == i || j < 2"]
)
def test_row_that_hears_itself_is_never_empty(guard: str) -> None:
    assert (
        ix.check(f"input S[i, k in 0..size(i)];\nlet w[i, j in 0..size(i)] = softmax[j](S[i, j] where {guard});") == []
    )


# -------------------------------------------------------------------------- contracts


def test_no_attention() -> None:
    found = only("input x[i, j];\nlet y[i] = sum[j](x[i, j]);\nattention y(query i, key j);", "IX420")
    assert found.message == "`y` is not an attention"


def test_roles_exchanged() -> None:
    one, other = findings(PAIR + WEIGHTS + OUT + "attention out(query j, key i);", "IX421")
    assert one.message == "the contract calls `j` the query, who asks, and it is the key, who answers"
    assert other.message == "the contract calls `i` the key, who answers, and it is the query, who asks"
    assert labels(one)[1] == ("sum[j](w[i, j] * V[j, e])", "here, `i` is the query, who asks")


def test_role_of_nobody() -> None:
    (found,) = findings(PAIR + WEIGHTS + OUT + "attention out(query i, key j, compare m);", "IX421")
    assert found.message == "the contract calls `m` the compared feature, and no coordinate of that name takes part"


ADDED = """input q[i, m], k[j, m], v[m], V[j, e];
let w[i, j] = softmax[j](SCORE);
let out[i, e] = sum[j](w[i, j] * V[j, e]);
attention out(query i, key j, compare FEATURE, carry e);
"""
MEETING = [
    "sum[m](v[m] * tanh(q[i, m] + k[j, m]))",
    "sum[a](tanh(k[j, a] + v[a] + q[i, a]) * v[a])",
    "-sum[m]((q[i, m] - k[j, m]) ** 2)",
    "-sum[m](v[m] * abs(k[j, m] - q[i, m]))",
    "{ let apart[i, j, m] = q[i, m] - k[j, m]; -sum[m](apart[i, j, m] * apart[i, j, m]) }",
]


@pytest.mark.parametrize("score", MEETING)
def test_features_that_meet_in_a_sum(score: str) -> None:
    """Additive scores and distances compare features too, and these have a role."""
    text = ADDED.replace("SCORE", score if "v[" in score else f"{score} + v[0]")
    assert findings(text.replace("FEATURE", "m"), "IX421") == []
    assert len(findings(text.replace("FEATURE", "e"), "IX421")) == 1


def test_role_of_a_position_in_blocks() -> None:
    text = (
        "input Q[i, d], K[j, d], V[j, e];\nlet B = 4;\n"
        "let w[b in 0..size(i) / B, p in 0..B, r in 0..B] =\n"
        "    softmax[r](sum[d](Q[b * B + p, d] * K[b * B + r, d]) / sqrt(size(d)) where b * B + r < size(j));\n"
        "let y[b, p, e] = sum[r](w[b, p, r] * V[b * B + r, e] where b * B + r < size(j));\n"
        "attention y(query i, key r, compare d, carry e);\n"
    )
    (found,) = findings(text, "IX421")
    assert found.message == "the contract calls `i` the query, who asks, and it is taken apart into `b` and `p`"
    assert found.help == "say which part it is: `query p`"


def test_sides_exchanged() -> None:
    swapped = WEIGHTS.replace("Q[i, d] * K[j, d]", "Q[j, d] * K[i, d]")
    found = only(PAIR + swapped + OUT + "attention out(query i, key j);", "IX422")
    assert sorted(labels(found)) == [
        ("K[i, d]", "declared at the key, read at the query"),
        ("Q[j, d]", "declared at the query, read at the key"),
    ]


def test_future_heard() -> None:
    text = (
        PAIR + WEIGHTS.replace("size(d)))", "size(d)) where j >= i)") + OUT + "attention out(query i, key j, causal);"
    )
    found = only(text, "IX423")
    assert found.message == "not causal: query 0 listens to key 1"
    assert labels(found)[0] == ("j >= i", "this guard keeps it")
    assert found.help == "`where j <= i` removes the future"


def test_future_heard_through_a_projection() -> None:
    """The guard is right, and the values already know the future."""
    text = f"""{PAIR}{WEIGHTS.replace("size(d)))", "size(d)) where j <= i)")}
let mixed[j, e] = V[j, e] + sum[k](V[k, e]);
let out[i, e] = sum[j](w[i, j] * mixed[j, e]);
attention out(query i, key j, causal);
"""
    assert "IX423" in [found.code for found in ix.check(text)]


def test_residual_at_key() -> None:
    text = "input X[i, e], Q[i, d], K[j, d], V[j, e];\n" + WEIGHTS + OUT.replace("V[j, e])", "V[j, e] + X[j, e])")
    found = only(text + "attention out(query i, key j);", "IX424")
    assert found.message == "`X[j, e]` is added at `j`, not where the query is"
    assert found.labels[0].span.text == "X[j, e]"


def test_residual_at_query_is_fine() -> None:
    text = "input X[i, e], Q[i, d], K[j, d], V[j, e];\n" + WEIGHTS + OUT.replace("= sum", "= X[i, e] + sum")
    assert ix.check(text + "attention out(query i, key j);") == []


@pytest.mark.parametrize(("said", "read", "wrong"), [("contiguous", "%", True), ("interleaved", "%", False)])
def test_groups(said: str, read: str, wrong: bool) -> None:
    text = f"""input Q[h, i, d], K[g, j, d], V[g, j, e];
let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h {read} size(g), j, d]) / sqrt(size(d)));
let out[h, i, e] = sum[j](w[h, i, j] * V[h {read} size(g), j, e]);
attention out(query i, key j, head h, groups {said} size(g));
"""
    assert bool(findings(text, "IX425")) == wrong


# ----------------------------------------------------------- found, whatever the spelling

NAMED = {
    "the product named before the sum": (
        "IX409",
        PAIR
        + """let part[i, j, d] = Q[i, d] * K[j, d];
let w[i, j] = softmax[j](sum[d](part[i, j, d]) / sqrt(size(d)) / sqrt(size(d)));
"""
        + OUT,
    ),
    "by hand under a guard": (
        "IX403",
        """input S[i, j], V[i, e];
let w[i, j] = exp(S[i, j]) / sum[k](exp(S[i, k]) where k <= i) where j <= i;
let out[i, e] = sum[j](w[i, j] * V[i, e]);
""",
    ),
    "by hand, in guards that are spelled differently": (
        "IX403",
        """input S[i, j], V[i, e];
let raised[i, j] = exp(S[i, j]) where !(j > i);
let total[i] = sum[j](raised[i, j] where i - j >= 0);
let w[i, j] = raised[i, j] / total[i] where j < i + 1;
let out[i, e] = sum[j](w[i, j] * V[i, e]);
""",
    ),
    "by hand, guarded late": (
        "IX405",
        """input S[i, j], V[j, e];
let w[i, j] = exp(S[i, j]) / sum[k](exp(S[i, k]));
let out[i, e] = sum[j](w[i, j] * V[j, e] where j <= i);
""",
    ),
    "late by a factor with a name": (
        "IX405",
        ROWS
        + """let part[i, j] = if j <= i { 1.0 } else { 0.0 };
let out[i, e] = sum[j](w[i, j] * part[i, j] * V[j, e]);
""",
    ),
    "late by a choice": (
        "IX405",
        ROWS + "let out[i, e] = sum[j]((if j <= i { w[i, j] } else { 0.0 }) * V[j, e]);\n",
    ),
    "features added, and the sum of them named": (
        "IX406",
        PAIR
        + """let part[i, j, d] = Q[i, d] + K[j, d];
let w[i, j] = softmax[j](sum[d](part[i, j, d]) / sqrt(size(d)));
"""
        + OUT,
    ),
    "another head through a definition": (
        "IX404",
        HEADS
        + """let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d)));
let part[h, j, e] = V[(h + 1) % size(h), j, e];
let out[h, i, e] = sum[j](w[h, i, j] * part[h, j, e]);
""",
    ),
    "another head, mixed at once": (
        "IX404",
        "input W_O[h, e, m];\n"
        + HEADS
        + """let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d)));
let out[i, m] = sum[h, e](sum[j](w[h, i, j] * V[0, j, e]) * W_O[h, e, m]);
""",
    ),
    "a scale with a name": (
        "IX408",
        PAIR + f"let s = sqrt(size(j));\n{WEIGHTS.replace('sqrt(size(d))', 's')}" + OUT,
    ),
    "a number with a name": (
        "IX411",
        "input S[i, j];\nlet low = -1e9;\nlet w[i, j] = softmax[j](if j <= i { S[i, j] } else { low });\n",
    ),
    "sides exchanged through a definition": (
        "IX422",
        PAIR
        + "let part[j, d] = Q[j, d];\n"
        + WEIGHTS.replace("Q[i, d] * K[j, d]", "part[j, d] * K[i, d]")
        + OUT
        + "attention out(query i, key j);\n",
    ),
    "a residual summed apart": (
        "IX424",
        "input X[i, e], Q[i, d], K[j, d], V[j, e];\n"
        + WEIGHTS
        + OUT.replace(";", " + sum[j](X[j, e]);")
        + "attention out(query i, key j);\n",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_other_spelling_is_named(name: str) -> None:
    code, text = NAMED[name]
    assert {found.code for found in ix.check(text) if found.severity != "note"} == {code}


# ------------------------------------------------------------------ never said of these

SILENT = {
    "three scores under one scale": """input Q[i, d], K[j, d], V[j, e], R[i, j, d], S[i, j, d];
let s[i, j] = sum[d](Q[i, d] * K[j, d]) + sum[d](Q[i, d] * R[i, j, d]) + sum[d](K[j, d] * S[i, j, d]);
let w[i, j] = softmax[j](s[i, j] / sqrt(3 * size(d)));
let out[i, e] = sum[j](w[i, j] * V[j, e]);
""",
    "one score taken off another": """input Q[h, i, d], K[h, i, d], V[h, i, e];
let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));
let less[i, j] = sum[k](relu(s[0, k, j]) where j < k < i);
let w[h, i, j] = softmax[j](s[h, i, j] - less[i, j]) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
""",
    "the product named before the sum": PAIR
    + """let part[i, j, d] = Q[i, d] * K[j, d];
let w[i, j] = softmax[j](sum[d](part[i, j, d]) / sqrt(size(d)));
"""
    + OUT
    + "attention out(query i, key j, compare d, carry e);\n",
    "the gathered product named before the sum": PAIR
    + WEIGHTS
    + """let part[i, j, e] = w[i, j] * V[j, e];
let out[i, e] = sum[j](part[i, j, e]);
attention out(query i, key j, compare d, carry e);
""",
    "a size with a name": PAIR + f"let n = size(d);\n{WEIGHTS.replace('size(d)', 'n')}" + OUT,
    "factors of an index exchanged": """input Q[i, m], K[j, m], V[j, m];
let H = 2;
let D = size(m) / H;
let w[h in 0..H, i, j] = softmax[j](sum[d in 0..D](Q[i, d + D * h] * K[j, D * h + d]) / sqrt(D));
let out[h, i, e in 0..D] = sum[j](w[h, i, j] * V[j, e + h * D]);
""",
    "values of a group through a definition": """input Q[h, i, d], K[g, j, d], V[g, j, e];
let G = size(h) / size(g);
let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h / G, j, d]) / sqrt(size(d)));
let part[h, j, e] = V[h / G, j, e];
let out[h, i, e] = sum[j](w[h, i, j] * part[h, j, e]);
""",
    "values projected in the gather": """input X[i, m], W_Q[m, d], W_K[m, d], W_V[m, e];
let Q[i, d] = sum[m](X[i, m] * W_Q[m, d]);
let K[j, d] = sum[m](X[j, m] * W_K[m, d]);
let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let out[i, e] = sum[j](w[i, j] * sum[m](X[j, m] * W_V[m, e]));
attention out(query i, key j, compare d, carry e);
""",
    "one side projected in the score": """input X[i, m], W_Q[m, d], W_K[m, d], W_V[m, e];
let Q[i, d] = sum[m](X[i, m] * W_Q[m, d]);
let w[i, j] = softmax[j](sum[d](Q[i, d] * sum[m](X[j, m] * W_K[m, d])) / sqrt(size(d)));
let out[i, e] = sum[j](w[i, j] * sum[m](X[j, m] * W_V[m, e]));
attention out(query i, key j, compare d, carry e);
""",
    "a rollout by hand": """input S[i, j];
let w[i, j] = exp(S[i, j]) / sum[k](exp(S[i, k]) where k <= i) where j <= i;
let twice[i, j] = sum[k](w[i, k] * w[k, j]);
""",
    "renormalised by hand": """input S[i, j], V[j, e];
let w[i, j] = exp(S[i, j]) / sum[k](exp(S[i, k]));
let kept[i, j] = w[i, j] where j <= i;
let left[i] = sum[j](kept[i, j]);
let out[i, e] = sum[j](kept[i, j] / left[i] * V[j, e] where j <= i);
""",
    "a contract seen through a function": """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
fn far(make[h, e, d, j], two[h, e, i, d]) -> [h, e, i, j] {
    let weights[h, e, i, d] = softmax[d](two[h, e, i, d] where d <= i);
    sum[d](weights[h, e, i, d] * make[h, e, d, j])
}
let out[b, h, i, e] = far(V, scores)[b, h, i, e];
attention out(query i, key j, compare d, carry e, head h, batch b, causal);
""",
    "a causal contract seen through a function": """input Q[b, i, d], K[b, j, d], V[b, j, e];
let w[b, i, j] = softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(size(d)) where j <= i);
fn one(right[e, d, i], near[e, b, d]) -> [e, i, b] {
    sum[d](near[e, b, d] * right[e, d, i])
}
let out[b, i, e] = one(V, w)[b, e, i];
attention out(query i, key j, compare d, carry e, batch b, causal);
""",
    "the key under another name, by hand": PAIR
    + f"""let s[i, j] = {SCORE};
let w[i, j] = exp(s[i, j]) / sum[k](exp(s[i, k]));
let out[i, e] = sum[u](w[i, u] * V[u, e]);
attention out(query i, key j, compare d, carry e);
""",
    "an input that only a size needs": "input x[i], y[j];\nlet out[i] = x[i] * size(j);\n",
    "an input that only a range needs": "input x[i], y[j];\nlet out = sum[k in 0..size(j)](k) * sum[i](x[i]);\n",
    "a reduction that only its guard mentions": "input x[i];\nlet out[i] = sum[j in 0..size(i)](x[i] where j <= i);\n",
    "large numbers in a wave": "input x[i];\nlet out[i] = softmax[i](sin(x[i] / 10000.0 ** 0.5));\n",
}


@pytest.mark.parametrize("name", SILENT)
def test_right_program_is_silent(name: str) -> None:
    assert [str(found) for found in ix.check(SILENT[name]) if found.severity != "note"] == []


def test_names_in_a_message_are_in_the_text() -> None:
    """A coordinate that was renamed when a function was written out is shown as the text has it."""
    text = """input Q[i, d], K[j, d], V[j, e];
fn go(one[i, d], two[j, d], that[j, e]) -> [i, e] {
    let w[i, j] = softmax[i](sum[d](one[i, d] * two[j, d]) / sqrt(size(d)));
    sum[j](w[i, j] * that[j, e])
}
let out[j, i] = go(Q, K, V)[j, i];
"""
    found = only(text, "IX402")
    assert found.message == "the weights are normalised over `i`, and gathered over `j`"


@pytest.mark.parametrize("total", ["", "1 + ", "exp(b) + "])
def test_exponentials_with_a_name_are_seen_through(total: str) -> None:
    """Also beside a sink, and where all of the score stands in the definition that is summed."""
    raised = f"input b;\n{PAIR}let x[i, j] = exp({SCORE});\nlet w[i, j] = x[i, j] / ({total}sum[k](x[i, k]));\n"
    assert len(findings(raised + OUT, "IX414")) == 1


OWN = """space position(i, j);
input X[i, d], keep[j] : bool;
let w[i, j] = softmax[j](sum[d](X[i, d] * X[j, d]) / sqrt(size(d)) where GUARD);
let out[i, d] = sum[j](w[i, j] * X[j, d]);
"""


@pytest.mark.parametrize("guard", ["keep[j] || j == i", "j <= i && (keep[j] || i == j)", "keep[j] || j < 2"])
def test_guard_that_keeps_one_beside_a_mask(guard: str) -> None:
    assert findings(OWN.replace("GUARD", guard), "IX415") == []


@pytest.mark.parametrize("guard", ["keep[j]", "keep[j] && j <= i", "keep[j] || j == i + 1"])
def test_guard_that_may_keep_nobody(guard: str) -> None:
    assert len(findings(OWN.replace("GUARD", guard), "IX415")) == 1


TWO = """input S[i, j], T[i, j], V[j, e], mix;
let a[i, j] = softmax[j](S[i, j]) where j <= i;
let b[i, j] = softmax[j](T[i, j]) where GUARD;
let out[i, e] = sum[j]((SUM) * V[j, e]);
attention out(query i, key j, carry e, causal, rows free);
"""


@pytest.mark.parametrize("total", ["a[i, j] - mix * b[i, j]", "mix * a[i, j] + b[i, j]", "-b[i, j] / mix + a[i, j]"])
def test_a_sum_of_what_guards_remove_has_no_influence(total: str) -> None:
    """Where all terms are removed their sum is 0, and nothing is heard through it; one term that is not is enough."""
    for guard, heard in (("j <= i", 0), ("j < i", 0), ("j <= i + 1", 1)):
        assert len(findings(TWO.replace("GUARD", guard).replace("SUM", total), "IX423")) == heard
