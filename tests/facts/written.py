"""Broken attention as somebody might write it, with the codes that name it. What is right stands in `odd.py`."""

from __future__ import annotations

WRITTEN: dict[str, tuple[set[str], str]] = {
    "one_statement_query_norm": (
        {"IX402"},
        """input Q[t, f], K[s, f], V[s, g];
let y[t, g] = sum[s](softmax[t](sum[f](Q[t, f] * K[s, f]) / sqrt(size(f))) * V[s, g]);
""",
    ),
    "one_statement_value_at_query": (
        {"IX403"},
        """input Q[t, f], K[s, f], V[t, g];
let y[t, g] = sum[s](softmax[s](sum[f](Q[t, f] * K[s, f]) / sqrt(size(f))) * V[t, g]);
""",
    ),
    "std_softmax_last_transposed": (
        {"IX402"},
        """use std::softmax::{softmax_last};
input Q[t, f], K[s, f], V[s, g];
let scores[s, t] = sum[f](Q[t, f] * K[s, f]) / sqrt(size(f));
let w = softmax_last(scores);
let y[t, g] = sum[s](w[s, t] * V[s, g]);
""",
    ),
    "std_causal_args_swapped": (
        {"IX423"},
        """use std::masks::{causal};
input Q[t, f], K[s, f], V[s, g];
let w[t, s] = softmax[s](sum[f](Q[t, f] * K[s, f]) / sqrt(size(f))) where causal(s, t);
let y[t, g] = sum[s](w[t, s] * V[s, g]);
attention y(query t, key s, compare f, carry g, causal);
""",
    ),
    "std_attention_swapped": (
        {"IX422"},
        """use std::attention::{causal_attention};
input Q[b, i, d], K[b, j, d], V[b, j, e];
let y = causal_attention(K, Q, V);
attention y(query i, key j, compare d, carry e, batch b, causal);
""",
    ),
    "std_not_causal": (
        {"IX423"},
        """use std::attention::{dot_product_attention};
input Q[i, d], K[j, d], V[j, e];
let y = dot_product_attention(Q, K, V);
attention y(query i, key j, causal);
""",
    ),
    "std_window_fn_future": (
        {"IX423"},
        """use std::masks::{window};
input Q[i, d], K[j, d], V[j, e];
let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where window(i, j, 3);
let y[i, e] = sum[j](w[i, j] * V[j, e]);
attention y(query i, key j, causal);
""",
    ),
    "prefix_not_causal": (
        {"IX423"},
        """input Q[i, d], K[j, d], V[j, e], p : i64;
let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)) where j < p || j <= i);
let y[i, e] = sum[j](w[i, j] * V[j, e]);
attention y(query i, key j, causal);
""",
    ),
    "block_with_locals": (
        {"IX403"},
        """input Q[i, d], K[j, d], V[i, e];
let y[i, e] = {
    let s[p, j] = sum[d](Q[p, d] * K[j, d]) / sqrt(size(d));
    let w[p, j] = softmax[j](s[p, j]);
    sum[j](w[i, j] * V[i, e])
};
""",
    ),
    "residual_named": (
        {"IX424"},
        """space batch(b), position(i, j), model(m), feature(d);
input X[b, i, m], Q[b, i, d], K[b, j, d], V[b, j, m];
let w[b, i, j] = softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(size(d)));
let z[b, i, j, m] = w[b, i, j] * V[b, j, m] + X[b, j, m];
let y[b, i, m] = sum[j](z[b, i, j, m]);
attention y(query i, key j, compare d, carry m, batch b);
""",
    ),
    "residual_shifted": (
        {"IX424"},
        """space batch(b), position(i, j), model(m), feature(d);
input X[b, i, m], Q[b, i, d], K[b, j, d], V[b, j, m];
let w[b, i, j] = softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(size(d)));
let y[b, i, m] = X[b, size(i) - 1 - i, m] + sum[j](w[b, i, j] * V[b, j, m]);
attention y(query i, key j, compare d, carry m, batch b);
""",
    ),
    "residual_mean": (
        {"IX424"},
        """space batch(b), position(i, j), model(m), feature(d);
input X[b, i, m], Q[b, i, d], K[b, j, d], V[b, j, m];
let w[b, i, j] = softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(size(d)));
let y[b, i, m] = mean[j](X[b, j, m]) + sum[j](w[b, i, j] * V[b, j, m]);
attention y(query i, key j, compare d, carry m, batch b);
""",
    ),
    "residual_in_sublayer": (
        {"IX424"},
        """space batch(b), head(h), position(i, j), model(m), feature(d, e);
input X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e], W_O[h, e, m];
let Q[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]);
let K[b, h, j, d] = sum[m](X[b, j, m] * W_K[h, m, d]);
let V[b, h, j, e] = sum[m](X[b, j, m] * W_V[h, m, e]);
let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) where j <= i);
let out[b, i, m] = sum[j](X[b, j, m] + sum[h, e](w[b, h, i, j] * V[b, h, j, e] * W_O[h, e, m]));
attention out(query i, key j, compare d, head h, batch b);
""",
    ),
    "reshape_style_split_apart": (
        {"IX407"},
        """input q[b, t, m], k[b, t, m], v[b, t, m];
let H = 8;
let D = size(m) / H;
let Q[b, h in 0..H, t, d in 0..D] = q[b, t, d * H + h];
let K[b, h in 0..H, t, d in 0..D] = k[b, t, h * D + d];
let V[b, h in 0..H, t, d in 0..D] = v[b, t, h * D + d];
let s[b, h, t, u] = sum[d](Q[b, h, t, d] * K[b, h, u, d]) / sqrt(D);
let a[b, h, t, u] = softmax[u](s[b, h, t, u]) where u <= t;
let o[b, h, t, d] = sum[u](a[b, h, t, u] * V[b, h, u, d]);
let y[b, t, m in 0..H * D] = o[b, m / D, t, m % D];
""",
    ),
    "reshape_style_packed_apart": (
        {"IX407"},
        """input q[b, t, m], k[b, t, m], v[b, t, m];
let H = 8;
let D = size(m) / H;
let Q[b, h in 0..H, t, d in 0..D] = q[b, t, h * D + d];
let K[b, h in 0..H, t, d in 0..D] = k[b, t, h * D + d];
let V[b, h in 0..H, t, d in 0..D] = v[b, t, h * D + d];
let s[b, h, t, u] = sum[d](Q[b, h, t, d] * K[b, h, u, d]) / sqrt(D);
let a[b, h, t, u] = softmax[u](s[b, h, t, u]) where u <= t;
let o[b, h, t, d] = sum[u](a[b, h, t, u] * V[b, h, u, d]);
let y[b, t, m in 0..H * D] = o[b, m % H, t, m / H];
""",
    ),
    "reshape_value_split_apart": (
        {"IX407"},
        """input q[b, t, m], k[b, t, m], v[b, t, m];
let H = 8;
let D = size(m) / H;
let Q[b, h in 0..H, t, d in 0..D] = q[b, t, h * D + d];
let K[b, h in 0..H, t, d in 0..D] = k[b, t, h * D + d];
let V[b, h in 0..H, t, d in 0..D] = v[b, t, d * H + h];
let s[b, h, t, u] = sum[d](Q[b, h, t, d] * K[b, h, u, d]) / sqrt(D);
let a[b, h, t, u] = softmax[u](s[b, h, t, u]) where u <= t;
let o[b, h, t, d] = sum[u](a[b, h, t, u] * V[b, h, u, d]);
let y[b, t, m in 0..H * D] = o[b, m / D, t, m % D];
""",
    ),
    "reshape_scaled_by_model": (
        {"IX408"},
        """input q[b, t, m], k[b, t, m], v[b, t, m];
let H = 8;
let D = size(m) / H;
let Q[b, h in 0..H, t, d in 0..D] = q[b, t, h * D + d];
let K[b, h in 0..H, t, d in 0..D] = k[b, t, h * D + d];
let V[b, h in 0..H, t, d in 0..D] = v[b, t, h * D + d];
let s[b, h, t, u] = sum[d](Q[b, h, t, d] * K[b, h, u, d]) / sqrt(size(m));
let a[b, h, t, u] = softmax[u](s[b, h, t, u]) where u <= t;
let o[b, h, t, d] = sum[u](a[b, h, t, u] * V[b, h, u, d]);
let y[b, t, m in 0..H * D] = o[b, m / D, t, m % D];
""",
    ),
    "scaled_by_heads_times_d": (
        {"IX408"},
        """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(h) * size(d)));
let y[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);
""",
    ),
    "scaled_by_named_dimension": (
        {"IX408"},
        """input X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, d];
let d_model = size(m);
let scale = d_model ** -0.5;
let q[b, h, i, d] = scale * sum[m](X[b, i, m] * W_Q[h, m, d]);
let k[b, h, i, d] = sum[m](X[b, i, m] * W_K[h, m, d]);
let v[b, h, i, d] = sum[m](X[b, i, m] * W_V[h, m, d]);
let a[b, h, i, j] = softmax[j](sum[d](q[b, h, i, d] * k[b, h, j, d]));
let y[b, h, i, d] = sum[j](a[b, h, i, j] * v[b, h, j, d]);
""",
    ),
    "scaled_twice_half_each": (
        {"IX409"},
        """input Q[i, d], K[j, d], V[j, e];
let q[i, d] = Q[i, d] * size(d) ** -0.5;
let k[j, d] = K[j, d] * size(d) ** -0.5;
let w[i, j] = softmax[j](sum[d](q[i, d] * k[j, d]));
let y[i, e] = sum[j](w[i, j] * V[j, e]);
""",
    ),
    "mask_max": (
        {"IX411"},
        """input Q[i, d], K[j, d], V[j, e];
let bias[i, j] = if j > i { -1e30 } else { 0.0 };
let w[i, j] = softmax[j](bias[i, j] + sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let y[i, e] = sum[j](w[i, j] * V[j, e]);
""",
    ),
    "mask_one_minus": (
        {"IX411"},
        """input Q[i, d], K[j, d], V[j, e], keep[i, j];
let s[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let w[i, j] = softmax[j](s[i, j] * keep[i, j] + -1e9 * (1 - keep[i, j]));
let y[i, e] = sum[j](w[i, j] * V[j, e]);
""",
    ),
    "mask_log_softmax": (
        {"IX411"},
        """input S[i, j];
let w[i, j] = log_softmax[j](if j <= i { S[i, j] } else { -65504.0 });
""",
    ),
    "mask_by_hand": (
        {"IX411"},
        """input S[i, j], V[j, e];
let m[i, j] = if j <= i { S[i, j] } else { -1e9 };
let t[i] = max[j](m[i, j]);
let p[i, j] = exp(m[i, j] - t[i]);
let y[i, e] = sum[j](p[i, j] * V[j, e]) / sum[j](p[i, j]);
""",
    ),
    "gather_then_divide_value_at_query": (
        {"IX403"},
        """input S[i, j], V[i, e];
let t[i] = max[j](S[i, j]);
let p[i, j] = exp(S[i, j] - t[i]);
let y[i, e] = sum[j](p[i, j] * V[i, e]) / sum[j](p[i, j]);
""",
    ),
    "gather_then_divide_late_guard": (
        {"IX405"},
        """input S[i, j], V[j, e];
let t[i] = max[j](S[i, j]);
let p[i, j] = exp(S[i, j] - t[i]);
let y[i, e] = sum[j](p[i, j] * V[j, e] where j <= i) / sum[j](p[i, j]);
""",
    ),
    "gather_then_divide_over_query": (
        {"IX402"},
        """input S[i, j], V[j, e];
let t[j] = max[i](S[i, j]);
let p[i, j] = exp(S[i, j] - t[j]);
let y[i, e] = sum[j](p[i, j] / z[j] * V[j, e]);
let z[j] = sum[i](p[i, j]);
""",
    ),
    "divided_by_column_total": (
        {"IX402"},
        """input Q[i, d], K[j, d], V[j, e];
let p[i, j] = exp(sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let w[i, j] = p[i, j] / sum[k](p[k, j]);
let y[i, e] = sum[j](w[i, j] * V[j, e]);
""",
    ),
    "late_top_k": (
        {"IX405"},
        """input S[i, j], V[j, e], top[i];
let w[i, j] = softmax[j](S[i, j]);
let y[i, e] = sum[j](w[i, j] * V[j, e] where S[i, j] >= top[i]);
""",
    ),
    "batch_swapped_value": (
        {"IX303"},
        """space batch(b), position(i, j), feature(d, e);
input Q[b, i, d], K[b, j, d], V[b, j, e];
let w[b, i, j] = softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(size(d)));
let y[b, i, e] = sum[j](w[b, i, j] * V[j, b, e]);
""",
    ),
    "batch_swapped_weights": (
        {"IX303"},
        """space batch(b), position(i, j), feature(d, e);
input Q[b, i, d], K[b, j, d], V[b, j, e];
let w[b, i, j] = softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(size(d)));
let y[b, i, e] = sum[j](w[i, b, j] * V[b, j, e]);
""",
    ),
    "batch_swapped_in_fn": (
        {"IX303"},
        """space batch(b), position(i, j), feature(d, e);
input Q[b, i, d], K[b, j, d], V[b, j, e];
fn scores(q[x, y, f], k[x, z, f]) -> [x, y, z] {
    sum[f](q[x, y, f] * k[z, x, f]) / sqrt(size(f))
}
let w[b, i, j] = softmax[j](scores(Q, K)[b, i, j]);
let y[b, i, e] = sum[j](w[b, i, j] * V[b, j, e]);
""",
    ),
    "gqa_interleaved_numbers": (
        {"IX425"},
        """input Q[b, h in 0..8, i, d], K[b, g in 0..2, j, d], V[b, g, j, e];
let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h % 2, j, d]) / sqrt(size(d)) where j <= i);
let y[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h % 2, j, e]);
attention y(query i, key j, head h, batch b, causal, groups contiguous 4);
""",
    ),
    "gqa_wrong_group_size": (
        {"IX425"},
        """input Q[b, h in 0..8, i, d], K[b, g in 0..4, j, d], V[b, g, j, e];
let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h / 4, j, d]) / sqrt(size(d)) where j <= i);
let y[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h / 4, j, e]);
attention y(query i, key j, head h, batch b, causal, groups contiguous 2);
""",
    ),
    "gqa_repeat_by_definition": (
        {"IX425"},
        """input Q[b, h in 0..8, i, d], K[b, g in 0..2, j, d], V[b, g, j, e];
let K_all[b, h in 0..8, j, d] = K[b, h % 2, j, d];
let V_all[b, h in 0..8, j, e] = V[b, h % 2, j, e];
let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K_all[b, h, j, d]) / sqrt(size(d)) where j <= i);
let y[b, h, i, e] = sum[j](w[b, h, i, j] * V_all[b, h, j, e]);
attention y(query i, key j, head h, batch b, causal, groups contiguous 4);
""",
    ),
    "gqa_values_only": (
        {"IX404", "IX425"},
        """input Q[b, h in 0..8, i, d], K[b, g in 0..2, j, d], V[b, g, j, e];
let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h / 4, j, d]) / sqrt(size(d)) where j <= i);
let y[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h % 2, j, e]);
attention y(query i, key j, head h, batch b, causal, groups contiguous 4);
""",
    ),
    "wrong_pair_two_layers": (
        {"IX423"},
        """space position(i, j, k), feature(d);
input X[i, d];
let a[i, j] = softmax[j](sum[d](X[i, d] * X[j, d]) / sqrt(size(d)) where j <= i);
let y[i, d] = sum[j](a[i, j] * X[j, d]);
let c[i, k] = softmax[k](sum[d](y[i, d] * y[k, d]) / sqrt(size(d)));
let out[i, d] = sum[k](c[i, k] * y[k, d]) where i >= 0;
attention out(query i, key k, causal);
""",
    ),
    "guard_on_score_not_weights": (
        {"IX423"},
        """input Q[i, d], K[j, d], V[j, e];
let s[i, j] = sum[d](Q[i, d] * K[j, d] where d <= i) / sqrt(size(d));
let w[i, j] = softmax[j](s[i, j]);
let out[i, e] = sum[j](w[i, j] * V[j, e]);
attention out(query i, key j, causal);
""",
    ),
    "future_by_shift": (
        {"IX423"},
        """space position(i, j), feature(d, e);
input Q[i, d], K[i, d], V[i, e];
let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)) where j <= i);
let out[i, e] = sum[j](w[i, j] * V[min(j + 1, size(i) - 1), e]);
attention out(query i, key j, causal);
""",
    ),
    "future_by_reversal": (
        {"IX423"},
        """space position(i, j), feature(d, e);
input Q[i, d], K[i, d], V[i, e];
let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)) where j <= i);
let out[i, e] = sum[j](w[i, j] * V[size(i) - 1 - j, e]);
attention out(query i, key j, causal);
""",
    ),
    "causal_norm_over_time": (
        {"IX423"},
        """space position(i, j, k), feature(d, e);
input X[i, d], V[i, e];
let n[i, d] = X[i, d] / sqrt(sum[k](X[k, d] ** 2));
let w[i, j] = softmax[j](sum[d](n[i, d] * n[j, d]) / sqrt(size(d)) where j <= i);
let out[i, e] = sum[j](w[i, j] * V[j, e]);
attention out(query i, key j, causal);
""",
    ),
}
