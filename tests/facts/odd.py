"""Right programs that look odd: nothing may be said of them but what their `allow` answers."""

from __future__ import annotations

HEADS = """space batch(b), head(h), position(i, j), feature(d, e);
input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
"""
SCORES = "let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));\n"
WEIGHTS = "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i);\n"
OUT = "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);\n"

PLAIN = {
    "scale_split_on_both_sides": HEADS
    + """let asked[b, h, i, d] = Q[b, h, i, d] * size(d) ** -0.25;
let known[b, h, j, d] = K[b, h, j, d] * size(d) ** -0.25;
let scores[b, h, i, j] = sum[d](asked[b, h, i, d] * known[b, h, j, d]);
"""
    + WEIGHTS
    + OUT,
    "scale_on_query_alone": HEADS
    + """let asked[b, h, i, d] = Q[b, h, i, d] / sqrt(size(d));
let scores[b, h, i, j] = sum[d](asked[b, h, i, d] * K[b, h, j, d]);
"""
    + WEIGHTS
    + OUT,
    "scale_by_number": HEADS
    + "let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) * 0.125;\n"
    + WEIGHTS
    + OUT,
    "scale_is_an_input": HEADS
    + """input temperature;
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / temperature;
"""
    + WEIGHTS
    + OUT,
    "scale_per_head": HEADS
    + """input rate[h];
let scores[b, h, i, j] = rate[h] * sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
"""
    + WEIGHTS
    + OUT,
    "scale_with_temperature": HEADS
    + """input temperature;
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / (sqrt(size(d)) * temperature);
"""
    + WEIGHTS
    + OUT,
    "scores_by_size_alone": HEADS
    + "let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / size(d);\n"
    + WEIGHTS
    + OUT,
    "scores_are_means": HEADS + "let scores[b, h, i, j] = mean[d](Q[b, h, i, d] * K[b, h, j, d]);\n" + WEIGHTS + OUT,
    "scores_the_other_way_round": HEADS
    + """let scores[b, h, j, i] = sum[d](K[b, h, j, d] * Q[b, h, i, d]) / sqrt(size(d));
let weights[b, h, j, i] = softmax[j](scores[b, h, j, i] where j <= i);
let out[b, h, i, e] = sum[j](weights[b, h, j, i] * V[b, h, j, e]);
""",
    "letters_exchanged": """space position(i, j), feature(d, e);
input Q[j, d], K[i, d], V[i, e];
let scores[j, i] = sum[d](Q[j, d] * K[i, d]) / sqrt(size(d));
let weights[j, i] = softmax[i](scores[j, i] where i <= j);
let out[j, e] = sum[i](weights[j, i] * V[i, e]);
attention out(query j, key i, compare d, carry e, causal);
""",
    "renormalised_after_guard": HEADS
    + SCORES
    + """let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]);
let kept[b, h, i, j] = weights[b, h, i, j] where j <= i;
let left[b, h, i] = sum[j](kept[b, h, i, j]);
let mended[b, h, i, j] = kept[b, h, i, j] / left[b, h, i] where j <= i;
let out[b, h, i, e] = sum[j](mended[b, h, i, j] * V[b, h, j, e]);
""",
    "renormalised_at_the_end": HEADS
    + SCORES
    + """let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]);
let gathered[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e] where j <= i);
let left[b, h, i] = sum[j](weights[b, h, i, j] where j <= i);
let out[b, h, i, e] = gathered[b, h, i, e] / left[b, h, i];
""",
    "renormalised_by_top": HEADS
    + SCORES
    + """input chosen[b, h, i, j] : bool;
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]);
let kept[b, h, i, j] = weights[b, h, i, j] where chosen[b, h, i, j];
let out[b, h, i, e] = sum[j](kept[b, h, i, j] * V[b, h, j, e]) / sum[j](kept[b, h, i, j]);
""",
    "guarded_twice_the_same": HEADS
    + SCORES
    + WEIGHTS
    + "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e] where j <= i);\n",
    "summed_only_up_to_here": HEADS
    + SCORES
    + WEIGHTS
    + "let out[b, h, i, e] = sum[j in 0..=i](weights[b, h, i, j] * V[b, h, j, e]);\n",
    "sink_by_function": """use std::softmax::{sink_softmax};
"""
    + HEADS
    + SCORES
    + """input sink[b, h, i];
let weights = sink_softmax(scores, sink);
"""
    + OUT,
    "sink_by_hand": HEADS
    + SCORES
    + """input sink[h];
let top[b, h, i] = max(sink[h], max[j](scores[b, h, i, j]));
let total[b, h, i] = exp(sink[h] - top[b, h, i]) + sum[j](exp(scores[b, h, i, j] - top[b, h, i]));
let weights[b, h, i, j] = exp(scores[b, h, i, j] - top[b, h, i]) / total[b, h, i];
"""
    + OUT,
    "attention_rollout": """input first[i, j], second[i, j];
let one[i, k] = softmax[k](first[i, k]);
let two[k, j] = softmax[j](second[k, j]);
let both[i, j] = sum[k](one[i, k] * two[k, j]);
""",
    "rollout_of_one_softmax": HEADS
    + SCORES
    + WEIGHTS
    + "let twice[b, h, i, j] = sum[k](weights[b, h, i, k] * weights[b, h, k, j]);\n"
    + OUT
    + "output out, twice;\n",
    "column_sums": HEADS
    + SCORES
    + WEIGHTS
    + OUT
    + "let heard[b, h, j] = sum[i](weights[b, h, i, j]);\noutput out, heard;\n",
    "weights_averaged_over_heads": HEADS
    + SCORES
    + WEIGHTS
    + OUT
    + "let shown[b, i, j] = mean[h](weights[b, h, i, j]);\noutput out, shown;\n",
    "weights_summed_over_heads": HEADS
    + SCORES
    + WEIGHTS
    + OUT
    + "let shown[b, i, j] = sum[h](weights[b, h, i, j]) / size(h);\noutput out, shown;\n",
    "entropy_of_the_weights": HEADS
    + SCORES
    + WEIGHTS
    + OUT
    + """let surprise[b, h, i, j] = log_softmax[j](scores[b, h, i, j] where j <= i);
let entropy[b, h, i] = -sum[j](weights[b, h, i, j] * surprise[b, h, i, j] where j <= i);
output out, entropy;
""",
    "relative_positions": """space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e], R[r, d];
let content[i, j] = sum[d](Q[i, d] * K[j, d]);
let place[i, j] = sum[d](Q[i, d] * R[i - j, d]) where 0 <= i - j < size(r);
let scores[i, j] = (content[i, j] + place[i, j]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j] where 0 <= i - j < size(r));
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "relative_positions_alone": """space position(i, j), feature(d, e);
input Q[i, d], V[j, e], R[r, d];
let scores[i, j] = sum[d](Q[i, d] * R[i - j, d]) / sqrt(size(d)) where j <= i, i - j < size(r);
let weights[i, j] = softmax[j](scores[i, j] where j <= i, i - j < size(r));
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "four_terms_of_transformer_xl": """space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e], R[r, d], u[d], v[d];
let content[i, j] = sum[d]((Q[i, d] + u[d]) * K[j, d]);
let place[i, j] = sum[d]((Q[i, d] + v[d]) * R[i - j, d] where 0 <= i - j < size(r));
let weights[i, j] = softmax[j]((content[i, j] + place[i, j]) / sqrt(size(d)) where j <= i);
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "disentangled": """space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e], Q_r[i, d], K_r[j, d];
let scores[i, j] = sum[d](Q[i, d] * K[j, d]) + sum[d](Q[i, d] * K_r[j, d]) + sum[d](Q_r[i, d] * K[j, d]);
let weights[i, j] = softmax[j](scores[i, j] / sqrt(3 * size(d)));
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "additive_attention": """space decoder(t), encoder(s), model(m, n), feature(d);
input query[t, m], memory[s, n], W_q[m, d], W_k[n, d], v[d];
let asked[t, d] = sum[m](query[t, m] * W_q[m, d]);
let known[s, d] = sum[n](memory[s, n] * W_k[n, d]);
let scores[t, s] = sum[d](v[d] * tanh(asked[t, d] + known[s, d]));
let weights[t, s] = softmax[s](scores[t, s]);
let context[t, n] = sum[s](weights[t, s] * memory[s, n]);
""",
    "bilinear_attention": """space decoder(t), encoder(s), model(m, n);
input query[t, m], memory[s, n], W[m, n];
let scores[t, s] = sum[m, n](query[t, m] * W[m, n] * memory[s, n]);
let weights[t, s] = softmax[s](scores[t, s]);
let context[t, n] = sum[s](weights[t, s] * memory[s, n]);
""",
    "distances": """space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e];
let scores[i, j] = -sum[d]((Q[i, d] - K[j, d]) ** 2) / 2;
let weights[i, j] = softmax[j](scores[i, j]);
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "cosine": """space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e], rate;
let q[i] = sqrt(sum[d](Q[i, d] ** 2));
let k[j] = sqrt(sum[d](K[j, d] ** 2));
let scores[i, j] = rate * sum[d](Q[i, d] * K[j, d]) / (q[i] * k[j]);
let weights[i, j] = softmax[j](scores[i, j]);
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "linear_attention": HEADS
    + """let memory[b, h, d, e] = sum[j](K[b, h, j, d] * V[b, h, j, e]);
let out[b, h, i, e] = sum[d](Q[b, h, i, d] * memory[b, h, d, e]);
""",
    "linear_attention_with_features": HEADS
    + """let memory[b, h, d, e] = sum[j](exp(K[b, h, j, d]) * V[b, h, j, e]);
let total[b, h, d] = sum[j](exp(K[b, h, j, d]));
let out[b, h, i, e] =
    sum[d](exp(Q[b, h, i, d]) * memory[b, h, d, e]) / sum[d](exp(Q[b, h, i, d]) * total[b, h, d]);
""",
    "efficient_attention": HEADS
    + """let asked[b, h, i, d] = softmax[d](Q[b, h, i, d]);
let known[b, h, j, d] = softmax[j](K[b, h, j, d]);
let memory[b, h, d, e] = sum[j](known[b, h, j, d] * V[b, h, j, e]);
let out[b, h, i, e] = sum[d](asked[b, h, i, d] * memory[b, h, d, e]);
""",
    "two_layers": """space batch(b), position(i, j), model(m, n), feature(d);
input X[b, i, m], W_Q[m, d], W_K[m, d], W_V[m, n], U_Q[n, d], U_K[n, d], U_V[n, m];
let w_1[b, i, j] =
    softmax[j](
        sum[d](sum[m](X[b, i, m] * W_Q[m, d]) * sum[m](X[b, j, m] * W_K[m, d])) / sqrt(size(d))
        where j <= i
    );
let Y[b, i, n] = X[b, i, n] + sum[j](w_1[b, i, j] * sum[m](X[b, j, m] * W_V[m, n]));
let w_2[b, i, j] =
    softmax[j](
        sum[d](sum[n](Y[b, i, n] * U_Q[n, d]) * sum[n](Y[b, j, n] * U_K[n, d])) / sqrt(size(d))
        where j <= i
    );
let out[b, i, m] = Y[b, i, m] + sum[j](w_2[b, i, j] * sum[n](Y[b, j, n] * U_V[n, m]));
attention out(query i, key j, compare d, batch b, causal);
attention Y(query i, key j, compare d, batch b, causal);
""",
    "two_layers_without_projections": """space position(i, j), feature(d);
input X[i, d];
let first[i, j] = softmax[j](sum[d](X[i, d] * X[j, d]) / sqrt(size(d)) where j <= i);
let Y[i, d] = sum[j](first[i, j] * X[j, d]);
let second[i, j] = softmax[j](sum[d](Y[i, d] * Y[j, d]) / sqrt(size(d)) where j <= i);
let out[i, d] = sum[j](second[i, j] * Y[j, d]);
attention out(query i, key j, compare d, carry d, causal);
""",
    "multi_query": """space batch(b), head(h), position(i, j), feature(d, e);
input Q[b, h, i, d], K[b, j, d], V[b, j, e];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, j, d]) / sqrt(size(d));
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i);
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, j, e]);
attention out(query i, key j, compare d, carry e, head h, batch b, causal);
""",
    "values_shared_by_all_heads": """space batch(b), head(h), position(i, j), feature(d, e);
input Q[b, h, i, d], K[b, h, j, d], V[b, j, e];
"""
    + SCORES
    + WEIGHTS
    + "let out[b, i, e] = sum[h, j](weights[b, h, i, j] * V[b, j, e]) / size(h);\n",
    "keys_shared_by_all_heads": """space batch(b), head(h), position(i, j), feature(d, e);
input Q[b, h, i, d], K[b, j, d], V[b, h, j, e];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, j, d]) / sqrt(size(d));
"""
    + WEIGHTS
    + OUT,
    "values_are_the_keys": """space position(i, j), feature(d);
input Q[i, d], K[j, d];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let out[i, d] = sum[j](weights[i, j] * K[j, d]);
""",
    "latent_keys_and_values": """space batch(b), head(h), position(i, j), feature(d, e), model(m), latent(l);
input X[b, i, m], W_Q[h, m, d], W_down[m, l], W_K[h, l, d], W_V[h, l, e];
let Q[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]);
let C[b, j, l] = sum[m](X[b, j, m] * W_down[m, l]);
let K[b, h, j, d] = sum[l](C[b, j, l] * W_K[h, l, d]);
let V[b, h, j, e] = sum[l](C[b, j, l] * W_V[h, l, e]);
"""
    + SCORES
    + WEIGHTS
    + OUT,
    "latent_absorbed": """space batch(b), head(h), position(i, j), feature(d, e), model(m), latent(l);
input X[b, i, m], W_Q[h, m, d], W_down[m, l], W_K[h, l, d], W_V[h, l, e];
let Q[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]);
let C[b, j, l] = sum[m](X[b, j, m] * W_down[m, l]);
let asked[b, h, i, l] = sum[d](Q[b, h, i, d] * W_K[h, l, d]);
// allow(IX408): `d` was compared before `W_K` was taken to the other side
let scores[b, h, i, j] = sum[l](asked[b, h, i, l] * C[b, j, l]) / sqrt(size(d));
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i);
let carried[b, h, i, l] = sum[j](weights[b, h, i, j] * C[b, j, l]);
let out[b, h, i, e] = sum[l](carried[b, h, i, l] * W_V[h, l, e]);
""",
    "talking_heads": """space batch(b), head(h, g, k), position(i, j), feature(d, e);
input Q[b, h, i, d], K[b, h, j, d], V[b, k, j, e], P_before[h, g], P_after[g, k];
"""
    + SCORES
    + """let mixed[b, g, i, j] = sum[h](scores[b, h, i, j] * P_before[h, g]);
let weights[b, g, i, j] = softmax[j](mixed[b, g, i, j] where j <= i);
let spread[b, k, i, j] = sum[g](weights[b, g, i, j] * P_after[g, k]);
let out[b, k, i, e] = sum[j](spread[b, k, i, j] * V[b, k, j, e]);
""",
    "alibi": """use std::positions::{alibi, alibi_slope};
"""
    + HEADS
    + """let slope[h] = alibi_slope(h, size(h));
let match[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
let scores[b, h, i, j] = match[b, h, i, j] + alibi(i, j, slope[h]);
"""
    + WEIGHTS
    + OUT
    + "attention out(query i, key j, compare d, carry e, head h, batch b, causal);\n",
    "soft_cap": HEADS
    + "let scores[b, h, i, j] = 50.0 * tanh(sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) / 50.0);\n"
    + WEIGHTS
    + OUT
    + "attention out(query i, key j, compare d, carry e, head h, batch b, causal);\n",
    "bias_is_an_input": HEADS
    + """input bias[h, i, j];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) + bias[h, i, j];
"""
    + WEIGHTS
    + OUT,
    "bias_is_all_there_is": """input bias[i, j], V[j, e];
let weights[i, j] = softmax[j](bias[i, j]);
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "bucketed_bias": HEADS
    + """input table[h, r], bucket[i, j] : i64;
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) + table[h, bucket[i, j]];
"""
    + WEIGHTS
    + OUT,
    "edge_features": """space node(i, j), feature(d, e), edge(r);
input Q[i, d], K[j, d], V[j, e], E[i, j, r], W_E[r];
let scores[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)) + sum[r](E[i, j, r] * W_E[r]);
let weights[i, j] = softmax[j](scores[i, j]);
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "graph_attention": """space node(i, j), feature(f, e);
input H[i, f], W[f, e], a[e], c[e], linked[i, j] : bool;
let Z[i, e] = sum[f](H[i, f] * W[f, e]);
let left[i] = sum[e](Z[i, e] * a[e]);
let right[j] = sum[e](Z[j, e] * c[e]);
let scores[i, j] = max(left[i] + right[j], 0.2 * (left[i] + right[j]));
let weights[i, j] = softmax[j](scores[i, j] where linked[i, j]);
let out[i, e] = sum[j](weights[i, j] * Z[j, e]);
""",
    "prefix_guard": HEADS
    + "input p : i64;\n"
    + SCORES
    + "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j < p || j <= i);\n"
    + OUT,
    "window_guard": HEADS
    + SCORES
    + "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where i - 4 < j <= i);\n"
    + OUT
    + "attention out(query i, key j, compare d, carry e, head h, batch b, causal);\n",
    "window_guard_as_two": HEADS
    + SCORES
    + "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i, i - j < 4);\n"
    + OUT
    + "attention out(query i, key j, compare d, carry e, head h, batch b, causal);\n",
    "dilated_guard": HEADS
    + SCORES
    + "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i, (i - j) % 2 == 0);\n"
    + OUT
    + "attention out(query i, key j, compare d, carry e, head h, batch b, causal);\n",
    "document_guard": """space batch(b), head(h), position(i, j), feature(d, e);
input Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e], document[b, i] : i64;
"""
    + SCORES
    + "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i, document[b, i] == document[b, j]);\n"
    + OUT
    + "attention out(query i, key j, compare d, carry e, head h, batch b, causal);\n",
    "padding_guard": """space batch(b), head(h), position(i, j), feature(d, e);
input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], length[b] : i64;
"""
    + SCORES
    + "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j < length[b]);\n"
    + OUT,
    "guard_is_an_input": HEADS
    + "input allowed[i, j] : bool;\n"
    + SCORES
    + "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where allowed[i, j]);\n"
    + OUT,
    "dropout_is_an_input": HEADS
    + "input keep[b, h, i, j];\n"
    + SCORES
    + WEIGHTS
    + "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * keep[b, h, i, j] * V[b, h, j, e]);\n",
    "cross_attention": """space question(i), answer(j), feature(d, e);
input Q[i, d], K[j, d], V[j, e];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
attention out(query i, key j, compare d, carry e);
""",
    "pooling_by_learned_query": """space position(j), feature(d, e);
input q[d], K[j, d], V[j, e];
let scores[j] = sum[d](q[d] * K[j, d]) / sqrt(size(d));
let weights[j] = softmax[j](scores[j]);
let out[e] = sum[j](weights[j] * V[j, e]);
""",
    "pooling_per_example": """space batch(b), position(j), feature(d, e);
input q[d], K[b, j, d], V[b, j, e];
let scores[b, j] = sum[d](q[d] * K[b, j, d]) / sqrt(size(d));
let weights[b, j] = softmax[j](scores[b, j]);
let out[b, e] = sum[j](weights[b, j] * V[b, j, e]);
attention out(key j, compare d, carry e, batch b);
""",
    "pooling_by_several_queries": """space batch(b), seed(s), position(j), feature(d, e);
input q[s, d], K[b, j, d], V[b, j, e];
let scores[b, s, j] = sum[d](q[s, d] * K[b, j, d]) / sqrt(size(d));
let weights[b, s, j] = softmax[j](scores[b, s, j]);
let out[b, s, e] = sum[j](weights[b, s, j] * V[b, j, e]);
attention out(query s, key j, compare d, carry e, batch b);
""",
    "pooling_without_a_query": """space position(j), feature(d);
input X[j, d], w[d];
let weights[j] = softmax[j](sum[d](X[j, d] * w[d]));
let out[d] = sum[j](weights[j] * X[j, d]);
""",
    "gate_between_two": """space position(i, j, k), feature(d, e);
input Q[i, d], K[j, d], V[j, e], K_2[k, d], V_2[k, e], gate[i];
let near[i, e] = sum[j](softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)) where j <= i) * V[j, e]);
let far[i, e] = sum[k](softmax[k](sum[d](Q[i, d] * K_2[k, d]) / sqrt(size(d))) * V_2[k, e]);
let open[i] = sigmoid(gate[i]);
let out[i, e] = open[i] * near[i, e] + (1 - open[i]) * far[i, e];
""",
    "mixture_of_weights": """space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e], bias[i, j], gate[i];
let content[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let place[i, j] = softmax[j](bias[i, j]);
let weights[i, j] = sigmoid(gate[i]) * content[i, j] + (1 - sigmoid(gate[i])) * place[i, j];
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "difference_of_two": """space position(i, j), feature(d, e);
input Q[i, d], K[j, d], Q_2[i, d], K_2[j, d], V[j, e], rate;
let one[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)) where j <= i);
let two[i, j] = softmax[j](sum[d](Q_2[i, d] * K_2[j, d]) / sqrt(size(d)) where j <= i);
let out[i, e] = sum[j]((one[i, j] - rate * two[i, j]) * V[j, e]);
""",
    "mean_of_an_attention": HEADS + SCORES + WEIGHTS + OUT + "let pooled[b, h, e] = mean[i](out[b, h, i, e]);\n",
    "sum_of_an_attention": HEADS
    + SCORES
    + WEIGHTS
    + OUT
    + "let pooled[b, h, e] = sum[i](out[b, h, i, e]) / size(i);\n",
    "norm_of_an_attention": HEADS
    + SCORES
    + WEIGHTS
    + OUT
    + "let length[b, h, i] = sqrt(sum[e](out[b, h, i, e] ** 2));\noutput out, length;\n",
    "loss_on_top": HEADS
    + SCORES
    + WEIGHTS
    + OUT
    + """input W[h, e, v], target[b, i] : i64;
let logits[b, i, v] = sum[h, e](out[b, h, i, e] * W[h, e, v]);
let likely[b, i, v] = log_softmax[v](logits[b, i, v]);
let loss = -mean[b, i](likely[b, i, target[b, i]]);
""",
    "classes_on_top": HEADS
    + SCORES
    + WEIGHTS
    + OUT
    + """input W[h, e, v], U[v, w];
let classes[b, i, v] = softmax[v](sum[h, e](out[b, h, i, e] * W[h, e, v]));
let mixed[b, i, w] = sum[v](classes[b, i, v] * U[v, w]);
""",
    "expected_position": HEADS
    + SCORES
    + WEIGHTS
    + OUT
    + "let where_to[b, h, i] = sum[j](weights[b, h, i, j] * j);\noutput out, where_to;\n",
    "pointer": """space position(i, j), feature(d);
input Q[i, d], K[j, d];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
""",
    "experts": """space batch(b), expert(x), model(m, n);
input X[b, m], W_gate[m, x], W[x, m, n];
let gate[b, x] = softmax[x](sum[m](X[b, m] * W_gate[m, x]));
let out[b, n] = sum[x](gate[b, x] * sum[m](X[b, m] * W[x, m, n]));
""",
    "experts_top_one": """space batch(b), expert(x), model(m, n);
input X[b, m], W_gate[m, x], W[x, m, n];
let logits[b, x] = sum[m](X[b, m] * W_gate[m, x]);
let gate[b, x] = softmax[x](logits[b, x]);
let best[b] = argmax[x](logits[b, x]);
let out[b, n] = gate[b, best[b]] * sum[m](X[b, m] * W[best[b], m, n]);
""",
    "memory_of_keys_and_values": """space position(i), slot(s), model(m), feature(d);
input X[i, m], W_in[m, s], W_out[s, m];
let use_of[i, s] = softmax[s](sum[m](X[i, m] * W_in[m, s]));
let out[i, n] = X[i, n] + sum[s](use_of[i, s] * W_out[s, n]);
""",
    "soft_embedding": """space position(i), word(v), feature(d);
input logits[i, v], table[v, d];
let likely[i, v] = softmax[v](logits[i, v]);
let out[i, d] = sum[v](likely[i, v] * table[v, d]);
""",
    "capsules": """space capsule(i), parent(k), feature(d);
input votes[i, k, d], agreement[i, k];
let coupling[i, k] = softmax[k](agreement[i, k]);  // allow(IX402): each capsule shares itself out among its parents
let out[k, d] = sum[i](coupling[i, k] * votes[i, k, d]);
""",
    "slots_compete": """space slot(s), position(j), feature(d, e);
input Q[s, d], K[j, d], V[j, e];
let scores[s, j] = sum[d](Q[s, d] * K[j, d]) / sqrt(size(d));
let share[s, j] = softmax[s](scores[s, j]);  // allow(IX402): slots compete for positions
let out[s, e] = sum[j](share[s, j] * V[j, e]);
""",
    "slots_compete_then_average": """space slot(s), position(j), feature(d, e);
input Q[s, d], K[j, d], V[j, e];
let scores[s, j] = sum[d](Q[s, d] * K[j, d]) / sqrt(size(d));
let share[s, j] = softmax[s](scores[s, j]);
let weights[s, j] = share[s, j] / sum[k](share[s, k]);
let out[s, e] = sum[j](weights[s, j] * V[j, e]);
""",
    "decoding_with_a_cache": """space batch(b), head(h), new(i), kept(j), feature(d, e);
input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], offset : i64;
"""
    + SCORES
    + "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i + offset);\n"
    + OUT,
    "chunked_keys": """space position(i), chunk(c), within(w), feature(d, e);
input Q[i, d], K[c, w, d], V[c, w, e];
let scores[i, c, w] = sum[d](Q[i, d] * K[c, w, d]) / sqrt(size(d));
let top[i] = max[c, w](scores[i, c, w]);
let raised[i, c, w] = exp(scores[i, c, w] - top[i]);
let out[i, e] = sum[c, w](raised[i, c, w] * V[c, w, e]) / sum[c, w](raised[i, c, w]);
""",
    "blockwise_within_chunks": """space chunk(c), within(i, j), feature(d, e);
input Q[c, i, d], K[c, j, d], V[c, j, e];
let weights[c, i, j] = softmax[j](sum[d](Q[c, i, d] * K[c, j, d]) / sqrt(size(d)) where j <= i);
let out[c, i, e] = sum[j](weights[c, i, j] * V[c, j, e]);
""",
    "axial": """space row(y, v), column(x), feature(d, e);
input Q[y, x, d], K[y, x, d], V[y, x, e];
let weights[y, x, v] = softmax[v](sum[d](Q[y, x, d] * K[v, x, d]) / sqrt(size(d)));
let out[y, x, e] = sum[v](weights[y, x, v] * V[v, x, e]);
""",
    "local_window_by_offset": """space position(i, j), offset(o), feature(d, e);
input Q[i, d], K[i, d], V[i, e];
let scores[i, o in 0..4] = sum[d](Q[i, d] * K[i - o, d]) / sqrt(size(d)) where i - o >= 0;
let weights[i, o in 0..4] = softmax[o](scores[i, o] where i - o >= 0);
let out[i, e] = sum[o in 0..4](weights[i, o] * V[i - o, e] where i - o >= 0);
""",
    "channel_attention": """space position(n), channel(c, k);
input Q[n, c], K[n, c], V[n, c];
let weights[c, k] = softmax[k](sum[n](Q[n, c] * K[n, k]) / sqrt(size(n)));
let out[n, c] = sum[k](weights[c, k] * V[n, k]);
""",
    "gated_value": HEADS
    + SCORES
    + WEIGHTS
    + """input gate[b, h, i, e];
let out[b, h, i, e] = sigmoid(gate[b, h, i, e]) * sum[j](weights[b, h, i, j] * V[b, h, j, e]);
""",
    "gate_inside_the_sum": HEADS
    + SCORES
    + WEIGHTS
    + """input gate[b, h, i, e];
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * gate[b, h, i, e] * V[b, h, j, e]);
""",
    "output_projection_inside": """space batch(b), head(h), position(i, j), feature(d, e), model(m);
input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], W_O[h, e, m];
"""
    + SCORES
    + WEIGHTS
    + "let out[b, i, m] = sum[h, j, e](weights[b, h, i, j] * V[b, h, j, e] * W_O[h, e, m]);\n"
    + "attention out(query i, key j, compare d, head h, batch b, causal);\n",
    "rotary": """use std::positions::{rotary_halves};
"""
    + HEADS
    + """let turned_Q = rotary_halves(Q, 10000.0);
let turned_K = rotary_halves(K, 10000.0);
let scores[b, h, i, j] = sum[d](turned_Q[b, h, i, d] * turned_K[b, h, j, d]) / sqrt(size(d));
"""
    + WEIGHTS
    + OUT
    + "attention out(query i, key j, compare d, carry e, head h, batch b, causal);\n",
    "normed_queries_and_keys": """use std::norms::{rms_norm};
"""
    + HEADS
    + """input gain[d];
let q = rms_norm(Q, gain, 1e-6);
let k = rms_norm(K, gain, 1e-6);
let scores[b, h, i, j] = sum[d](q[b, h, i, d] * k[b, h, j, d]) / sqrt(size(d));
"""
    + WEIGHTS
    + OUT
    + "attention out(query i, key j, compare d, carry e, head h, batch b, causal);\n",
    "biased_projections": """space batch(b), head(h), position(i, j), model(m), feature(d, e);
input X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e], b_Q[h, d], b_K[h, d], b_V[h, e];
let Q[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]) + b_Q[h, d];
let K[b, h, j, d] = sum[m](X[b, j, m] * W_K[h, m, d]) + b_K[h, d];
let V[b, h, j, e] = sum[m](X[b, j, m] * W_V[h, m, e]) + b_V[h, e];
"""
    + SCORES
    + WEIGHTS
    + OUT
    + "attention out(query i, key j, compare d, carry e, head h, batch b, causal);\n",
    "one_projection_for_all_three": """space batch(b), head(h), position(i, j), model(m), feature(d), part(p);
input X[b, i, m], W[p in 0..3, h, m, d];
let P[b, p, h, i, d] = sum[m](X[b, i, m] * W[p, h, m, d]);
let scores[b, h, i, j] = sum[d](P[b, 0, h, i, d] * P[b, 1, h, j, d]) / sqrt(size(d));
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i);
let out[b, h, i, d] = sum[j](weights[b, h, i, j] * P[b, 2, h, j, d]);
attention out(query i, key j, compare d, carry d, head h, batch b, causal);
""",
    "one_axis_for_all_three": """space batch(b), head(h), position(i, j), model(m, n), feature(d, e);
input P[b, i, n];
let H = 4;
let D = size(n) / (3 * H);
let scores[b, h in 0..H, i, j] =
    sum[d in 0..D](P[b, i, h * D + d] * P[b, j, H * D + h * D + d]) / sqrt(D);
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i);
let heads[b, h, i, e in 0..D] = sum[j](weights[b, h, i, j] * P[b, j, 2 * H * D + h * D + e]);
let out[b, i, m in 0..H * D] = heads[b, m / D, i, m % D];
""",
    "one_axis_head_by_head": """space batch(b), head(h), position(i, j), model(m, n), feature(d, e);
input P[b, i, n];
let H = 4;
let D = size(n) / (3 * H);
let scores[b, h in 0..H, i, j] =
    sum[d in 0..D](P[b, i, 3 * h * D + d] * P[b, j, (3 * h + 1) * D + d]) / sqrt(D);
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i);
let heads[b, h, i, e in 0..D] = sum[j](weights[b, h, i, j] * P[b, j, (3 * h + 2) * D + e]);
let out[b, i, m in 0..H * D] = heads[b, m / D, i, m % D];
""",
    "split_the_other_way_throughout": """space batch(b), head(h), position(i, j), model(m), feature(d, e);
input Q[b, i, m], K[b, j, m], V[b, j, m];
let H = 4;
let D = size(m) / H;
let scores[b, h in 0..H, i, j] = sum[d in 0..D](Q[b, i, d * H + h] * K[b, j, d * H + h]) / sqrt(D);
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i);
let heads[b, h, i, e in 0..D] = sum[j](weights[b, h, i, j] * V[b, j, e * H + h]);
let out[b, i, m in 0..H * D] = heads[b, m % H, i, m / H];
""",
    "packed_the_other_way_on_purpose": """space batch(b), head(h), position(i, j), model(m), feature(d, e);
input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
"""
    + SCORES
    + WEIGHTS
    + OUT
    + "let packed[b, i, m in 0..size(h) * size(e)] = out[b, m % size(h), i, m / size(h)];\n",
    "grouped_by_two_coordinates": """space batch(b), group(g), member(r), position(i, j), feature(d, e);
input Q[b, g, r, i, d], K[b, g, j, d], V[b, g, j, e];
let scores[b, g, r, i, j] = sum[d](Q[b, g, r, i, d] * K[b, g, j, d]) / sqrt(size(d));
let weights[b, g, r, i, j] = softmax[j](scores[b, g, r, i, j] where j <= i);
let out[b, g, r, i, e] = sum[j](weights[b, g, r, i, j] * V[b, g, j, e]);
attention out(query i, key j, compare d, carry e, head g, head r, batch b, causal);
""",
    "interleaved_groups": """space batch(b), head(h), group(g), position(i, j), feature(d, e);
input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h % size(g), j, d]) / sqrt(size(d));
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j] where j <= i);
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h % size(g), j, e]);
""",
    "score_in_two_features": """space position(i, j), feature(d, f, e);
input Q[i, d, f], K[j, d, f], V[j, e];
let scores[i, j] = sum[d, f](Q[i, d, f] * K[j, d, f]) / sqrt(size(d) * size(f));
let weights[i, j] = softmax[j](scores[i, j]);
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
    "value_plus_key": """space position(i, j), feature(d);
input Q[i, d], K[j, d], V[j, d];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let out[i, d] = sum[j](weights[i, j] * (V[j, d] + K[j, d]));
""",
    "value_relative_to_query": """space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e], R[i, j, e];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let out[i, e] = sum[j](weights[i, j] * (V[j, e] + R[i, j, e]));
""",
    "difference_from_the_query": """space point(i, j), feature(d);
input X[i, d], Q[i, d], K[j, d];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let out[i, d] = sum[j](weights[i, j] * (X[j, d] - X[i, d]));
""",
    "vector_attention": """space point(i, j), feature(d);
input Q[i, d], K[j, d], V[j, d];
let weights[i, j, d] = softmax[j](tanh(Q[i, d] - K[j, d]));
let out[i, d] = sum[j](weights[i, j, d] * V[j, d]);
""",
    "attention_free": """space position(i, j), feature(d);
input Q[i, d], K[j, d], V[j, d], w[i, j];
let weights[i, j, d] = softmax[j](K[j, d] + w[i, j]);
let out[i, d] = sigmoid(Q[i, d]) * sum[j](weights[i, j, d] * V[j, d]);
""",
    "sharpened": HEADS
    + SCORES
    + """let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]);
let sharp[b, h, i, j] = weights[b, h, i, j] ** 2 / sum[k](weights[b, h, i, k] ** 2);
let out[b, h, i, e] = sum[j](sharp[b, h, i, j] * V[b, h, j, e]);
""",
    "squared_relu": HEADS
    + SCORES
    + """let raised[b, h, i, j] = relu(scores[b, h, i, j]) ** 2 where j <= i;
let out[b, h, i, e] = sum[j](raised[b, h, i, j] * V[b, h, j, e]) / size(j);
""",
    "sigmoid_attention": HEADS
    + SCORES
    + "let out[b, h, i, e] = sum[j](sigmoid(scores[b, h, i, j]) * V[b, h, j, e] where j <= i);\n",
    "large_numbers_elsewhere": """input x[i], t[k];
let wave[i, k] = sin(x[i] * 10000.0 ** (-1.0 * k / size(k)));
let gap[i] = x[i] - 100000.0;
let out[i, k] = softmax[k](wave[i, k] + t[k]);
output out, gap;
""",
    "a_mean_written_out": """input x[i, d];
let n = size(i);
let centre[d] = sum[i](x[i, d]) / n;
let out[i, d] = x[i, d] - centre[d];
""",
    "doubly_normalised": """space position(i, j), feature(d);
input scores[i, j], V[j, d];
let rows[i, j] = softmax[j](scores[i, j]);
let columns[i, j] = rows[i, j] / sum[k](rows[k, j]);
let again[i, j] = columns[i, j] / sum[k](columns[i, k]);
let out[i, d] = sum[j](again[i, j] * V[j, d]);
""",
    "inverted_then_transposed": """space slot(s), position(j), feature(d, e);
input Q[s, d], K[j, d], V[s, e];
let share[j, s] = softmax[s](sum[d](Q[s, d] * K[j, d]) / sqrt(size(d)));
let out[j, e] = sum[s](share[j, s] * V[s, e]);
""",
    "both_directions": """space text(i), image(j), feature(d, e);
input T[i, d], M[j, d], T_V[i, e], M_V[j, e];
let scores[i, j] = sum[d](T[i, d] * M[j, d]) / sqrt(size(d));
let seen[i, e] = sum[j](softmax[j](scores[i, j]) * M_V[j, e]);
let read_[j, e] = sum[i](softmax[i](scores[i, j]) * T_V[i, e]);
output seen, read_;
""",
    "contrastive": """space example(i, j), feature(d);
input T[i, d], M[j, d], rate;
let scores[i, j] = rate * sum[d](T[i, d] * M[j, d]);
let there[i, j] = log_softmax[j](scores[i, j]);
let back[i, j] = log_softmax[i](scores[i, j]);
let loss = -mean[i](there[i, i] + back[i, i]) / 2;
""",
    "matching": """space text(i), image(j), feature(d);
input T[i, d], M[j, d];
let scores[i, j] = sum[d](T[i, d] * M[j, d]) / sqrt(size(d));
let match[i, j] = softmax[i](scores[i, j]) * softmax[j](scores[i, j]);
""",
    "std_softmax_last_right": """use std::softmax::{softmax_last};
input Q[t, f], K[s, f], V[s, g];
let scores[t, s] = sum[f](Q[t, f] * K[s, f]) / sqrt(size(f));
let w = softmax_last(scores);
let y[t, g] = sum[s](w[t, s] * V[s, g]);
""",
    "std_attention_right": """use std::attention::{causal_attention};
input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let y = causal_attention(Q, K, V);
attention y(query i, key j, compare d, carry e, causal);
""",
    "std_attention_right_named": """use std::attention::{causal_attention};
space batch(b), head(h), position(i, j), feature(d, e);
input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let y[b, h, i, e] = causal_attention(Q, K, V)[b, h, i, e];
attention y(query i, key j, compare d, carry e, head h, batch b, causal);
""",
    "block_with_locals_right": """input Q[i, d], K[j, d], V[j, e];
let y[i, e] = {
    let s[p, j] = sum[d](Q[p, d] * K[j, d]) / sqrt(size(d));
    let w[p, j] = softmax[j](s[p, j]);
    sum[j](w[i, j] * V[j, e])
};
attention y(query i, key j, compare d, carry e);
""",
    "residual_in_sublayer_right": """space batch(b), head(h), position(i, j), model(m), feature(d, e);
input X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e], W_O[h, e, m];
let Q[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]);
let K[b, h, j, d] = sum[m](X[b, j, m] * W_K[h, m, d]);
let V[b, h, j, e] = sum[m](X[b, j, m] * W_V[h, m, e]);
let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) where j <= i);
let o[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);
let out[b, i, m] = X[b, i, m] + sum[h, e](o[b, h, i, e] * W_O[h, e, m]);
attention out(query i, key j, compare d, head h, batch b, causal);
""",
    "reshape_style_right": """input q[b, t, m], k[b, t, m], v[b, t, m];
let H = 8;
let D = size(m) / H;
let Q[b, h in 0..H, t, d in 0..D] = q[b, t, h * D + d];
let K[b, h in 0..H, t, d in 0..D] = k[b, t, h * D + d];
let V[b, h in 0..H, t, d in 0..D] = v[b, t, h * D + d];
let s[b, h, t, u] = sum[d](Q[b, h, t, d] * K[b, h, u, d]) / sqrt(D);
let a[b, h, t, u] = softmax[u](s[b, h, t, u]) where u <= t;
let o[b, h, t, d] = sum[u](a[b, h, t, u] * V[b, h, u, d]);
let y[b, t, m in 0..H * D] = o[b, m / D, t, m % D];
attention o(query t, key u, compare d, carry d, head h, batch b, causal);
""",
    "scaled_quarter_twice": """input Q[i, d], K[j, d], V[j, e];
let scale = size(d) ** -0.25;
let w[i, j] = softmax[j](sum[d](scale * Q[i, d] * K[j, d] * scale));
let y[i, e] = sum[j](w[i, j] * V[j, e]);
""",
    "sqrt_sqrt": """input Q[i, d], K[j, d], V[j, e];
let w[i, j] = softmax[j](sum[d](Q[i, d] / sqrt(sqrt(size(d))) * K[j, d] / sqrt(sqrt(size(d)))));
let y[i, e] = sum[j](w[i, j] * V[j, e]);
""",
    "gather_then_divide_right": """input Q[i, d], K[j, d], V[j, e];
let S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let t[i] = max[j](S[i, j]);
let p[i, j] = exp(S[i, j] - t[i]);
let y[i, e] = sum[j](p[i, j] * V[j, e]) / sum[j](p[i, j]);
attention y(query i, key j, compare d, carry e);
""",
    "gqa_right_numbers": """input Q[b, h in 0..8, i, d], K[b, g in 0..2, j, d], V[b, g, j, e];
let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h / 4, j, d]) / sqrt(size(d)) where j <= i);
let y[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h / 4, j, e]);
attention y(query i, key j, head h, batch b, causal, groups contiguous 4);
""",
    "causal_by_range": """space position(i, j), feature(d, e);
input Q[i, d], K[i, d], V[i, e];
let p[i, j] = exp(sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let out[i, e] = sum[j in 0..=i](p[i, j] * V[j, e]) / sum[j in 0..=i](p[i, j]);
attention out(query i, key j, compare d, carry e, causal);
""",
    "causal_shifted_targets": """space position(i, j), feature(d, e);
input Q[i, d], K[i, d], V[i, e];
let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)) where j < i);
let out[i, e] = sum[j](w[i, j] * V[j, e]);
attention out(query i, key j, compare d, carry e, causal);
""",
    "mla_style": """space batch(b), head(h), position(i, j), feature(d, r, e), latent(l);
input Qc[b, h, i, d], Qr[b, h, i, r], C[b, j, l], Kr[b, j, r], W_K[h, l, d], W_V[h, l, e];
let Kc[b, h, j, d] = sum[l](C[b, j, l] * W_K[h, l, d]);
let V[b, h, j, e] = sum[l](C[b, j, l] * W_V[h, l, e]);
let c[b, h, i, j] = sum[d](Qc[b, h, i, d] * Kc[b, h, j, d]) + sum[r](Qr[b, h, i, r] * Kr[b, j, r]);
let s[b, h, i, j] = c[b, h, i, j] / sqrt(size(d) + size(r));
let w[b, h, i, j] = softmax[j](s[b, h, i, j] where j <= i);
let y[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);
attention y(query i, key j, carry e, head h, batch b, causal);
""",
    "vision_pooling_cls": """space batch(b), head(h), patch(p), feature(d, e), model(m);
input X[b, p, m], cls[m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e], W_O[h, e, m];
let q[h, d] = sum[m](cls[m] * W_Q[h, m, d]);
let k[b, h, p, d] = sum[m](X[b, p, m] * W_K[h, m, d]);
let v[b, h, p, e] = sum[m](X[b, p, m] * W_V[h, m, e]);
let w[b, h, p] = softmax[p](sum[d](q[h, d] * k[b, h, p, d]) / sqrt(size(d)));
let o[b, h, e] = sum[p](w[b, h, p] * v[b, h, p, e]);
let out[b, m] = cls[m] + sum[h, e](o[b, h, e] * W_O[h, e, m]);
""",
    "perceiver": """space batch(b), latent(l), source(n), feature(d, e), model(m);
input Z[l, m], X[b, n, m], W_Q[m, d], W_K[m, d], W_V[m, e];
let q[l, d] = sum[m](Z[l, m] * W_Q[m, d]);
let k[b, n, d] = sum[m](X[b, n, m] * W_K[m, d]);
let v[b, n, e] = sum[m](X[b, n, m] * W_V[m, e]);
let w[b, l, n] = softmax[n](sum[d](q[l, d] * k[b, n, d]) / sqrt(size(d)));
let y[b, l, e] = sum[n](w[b, l, n] * v[b, n, e]);
attention y(query l, key n, compare d, carry e, batch b);
""",
    "retention": """space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e], rate;
let y[i, e] = sum[j](rate ** (i - j) * sum[d](Q[i, d] * K[j, d]) * V[j, e] where j <= i);
""",
    "hopfield": """space state(i), pattern(j), feature(d);
input X[i, d], P[j, d], beta;
let y[i, d] = sum[j](softmax[j](beta * sum[f](X[i, f] * P[j, f])) * P[j, d]);
""",
    "nadaraya": """space point(i, j);
input x[i], y[j], z[j], width;
let w[i, j] = softmax[j](-(x[i] - z[j]) ** 2 / (2 * width ** 2));
let out[i] = sum[j](w[i, j] * y[j]);
""",
}
