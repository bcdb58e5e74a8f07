"""Weights that nothing normalises: sigmoids, powers, decays; found where something says who hears whom, streamed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.pairs import ALL, called_few
from tests.plan.agreement import arrays_for, checked, program_of

import indexical as ix
from indexical.ir.algebra.canonical import text
from indexical.plan.steps import Attention, Free

torch = pytest.importorskip("torch")

HEAD = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], g[h];
let s[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
"""
SIZES = {"b": 2, "h": 3, "i": 5, "j": 5, "d": 4, "e": 3}

# One relation in several spellings: weights in place, by name, guarded by name, inlined, in another order.
SIGMOIDS = (
    "let out[b, h, i, e] = sum[j](sigmoid(s[b, h, i, j] + g[h]) * V[b, h, j, e] where j <= i);",
    """let w[b, h, i, j] = sigmoid(g[h] + s[b, h, i, j]) where j <= i;
let out[b, h, i, e] = sum[j](V[b, h, j, e] * w[b, h, i, j]);""",
    """let w[h, j, i, b] = 1 / (1 + exp(-s[b, h, i, j] - g[h]));
let out[b, h, i, e] = sum[k](w[h, k, i, b] * V[b, h, k, e] where k <= i);""",
    """let x[b, h, i, j] = exp(s[b, h, i, j] + g[h]);
let p[b, h, i, j, e] = x[b, h, i, j] / (1 + x[b, h, i, j]) * V[b, h, j, e] where j < i + 1;
let out[b, h, i, e] = sum[j](p[b, h, i, j, e]);""",
    """let out[b, h, i, e] = sum[j in 0..=i](
    sigmoid(sum[c](K[b, h, j, c] * Q[b, h, i, c]) / sqrt(size(d)) + g[h]) * V[b, h, j, e]);""",
)
OTHERS = {
    "relu": "relu(s[b, h, i, j]) ** 2",
    "retention": "s[b, h, i, j] * exp(g[h] * (j - i))",
    "linear": "s[b, h, i, j]",
    "taylor": "(1 + s[b, h, i, j] + s[b, h, i, j] ** 2 / 2)",
    "exponential": "exp(s[b, h, i, j] - 1)",
    "softplus": "softplus(s[b, h, i, j]) * (i - j + 1)",
}


def attention_of(source: str) -> Attention:
    program = program_of(source)
    found = checked(program, arrays_for(program, SIZES), ("out",))
    assert "out" in found.attentions, found.refusals
    return found.attentions["out"]


def test_every_spelling_is_one_attention() -> None:
    found = [attention_of(f"{HEAD}{body}\noutput out;") for body in SIGMOIDS]
    assert all(isinstance(one.normaliser, Free) for one in found)
    shown = {(text(one.score), tuple(map(text, one.guard)), text(one.value)) for one in found}
    assert len(shown) == 1, shown


QUOTIENTS = {
    "squares": "s[b, h, i, j] ** 2",
    "sigmoids": "sigmoid(s[b, h, i, j] + g[h])",
    "the first terms of an exponential": "1 + s[b, h, i, j] + s[b, h, i, j] ** 2 / 2",
}


@pytest.mark.parametrize("guard", ["", " where j <= i"])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_weights_over_their_sum_are_streamed(name: str, guard: str) -> None:
    """They were built, with a refusal that nobody reads."""
    text_ = f"""{HEAD}let x[b, h, i, j] = {QUOTIENTS[name]}{guard};
let w[b, h, i, j] = x[b, h, i, j] / sum[k](x[b, h, i, k]);
let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);"""
    program = program_of(text_)
    arrays = arrays_for(program, SIZES)
    found = checked(program, arrays, ("out",))
    assert all(isinstance(one.normaliser, Free) for one in found.attentions.values())
    assert {"x", "w"}.isdisjoint(step.definition for step in ix.compile(text_).plan(**arrays).steps)


@pytest.mark.parametrize("score", ["s[b, h, i, j]", "tanh(s[b, h, i, j])"])
def test_exponentials_of_values_leave_weights_their_kernel(score: str) -> None:
    spellings = (
        "let out[b, h, i, e] = log(sum[j](w[b, h, i, j] * exp(V[b, h, j, e])));",
        "let x[b, h, j, e] = exp(V[b, h, j, e]); let y[b, h, i, e] = sum[j](x[b, h, j, e] * w[b, h, i, j]);"
        "let out[b, h, i, e] = log(y[b, h, i, e]);",
        "let m[b, h, e] = max[j](V[b, h, j, e]);"
        "let out[b, h, i, e] = m[b, h, e] + log(sum[j](w[b, h, i, j] * exp(V[b, h, j, e] - m[b, h, e])));",
    )
    for spelling in spellings:
        text_ = f"{HEAD}let w[b, h, i, j] = softmax[j]({score}) where j <= i;{spelling}"
        program = program_of(text_)
        arrays = arrays_for(program, SIZES)
        assert len(checked(program, arrays, ("out",)).attentions) == 1
        assert "w" not in [step.definition for step in ix.compile(text_).plan(**arrays).steps]


@pytest.mark.parametrize(
    "body",
    [
        "let m[e] = max[j](V[j, e]); let out[i, e] = m[e] + log(sum[j](w[i, j] * exp(V[j, e] - m[e])));",
        "let y[j, e] = exp(V[j, e] - 800) / 2; let out[i, e] = sum[j](w[i, j] * y[j, e]);",
        "let out[i, e] = sum[j](w[i, j] * 2 ** (V[j, e] - V[0, e]) where j <= i);",
        "let out[i, e] = sum[j](exp(Q[i] * K[j]) * exp(V[j, e] - V[0, e])) / (1 + sum[j](exp(Q[i] * K[j])));",
    ],
)
def test_what_is_taken_off_values_before_they_are_raised_stays_there(body: str) -> None:
    """Each of the two alone overflows."""
    program = ix.compile(f"input Q[i], K[j], V[j, e]; let w[i, j] = softmax[j](Q[i] * K[j]);{body} output out;")
    rng = np.random.default_rng(0)
    Q, K, V = rng.normal(size=5), rng.normal(size=5), rng.normal(size=(5, 2)) + 800
    wanted = np.asarray(program(Q, K, V, backend="reference"))
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(program(Q, K, V), wanted, rtol=1e-9)
    found = program(*map(torch.tensor, (Q, K, V)))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.parametrize("guard", ["", " where j <= i"])
def test_weights_over_a_sum_of_no_keys_are_none(guard: str) -> None:
    program = ix.compile(f"""input Q[i, d], K[j, d], V[j, e]; let x[i, j] = abs(sum[d](Q[i, d] * K[j, d])){guard};
let w[i, j] = x[i, j] / sum[k](x[i, k]); let out[i, e] = sum[j](w[i, j] * V[j, e]);""")
    arrays = [np.ones((3, 2)), np.ones((0, 2)), np.ones((0, 2))]
    np.testing.assert_array_equal(program(*arrays), program(*arrays, backend="reference"))
    np.testing.assert_array_equal(program(*map(torch.tensor, arrays)), np.zeros((3, 2)))


def test_what_is_exponentiated_with_the_score_is_no_value() -> None:
    """`exp(V)` might overflow where `exp(s + V)` does not."""
    text_ = f"""{HEAD}let x[b, h, i, j] = exp(s[b, h, i, j]);
let out[b, h, i, e] = sum[j](exp(s[b, h, i, j] + V[b, h, j, e])) / sum[j](x[b, h, i, j]);"""
    program = program_of(text_)
    assert not checked(program, arrays_for(program, SIZES), ("out",)).attentions


COMPARED = "sum[d](Q[b, h, i, d] * K[b, h, j, d])"


@pytest.mark.parametrize("guard", ["j <= i", "abs(i - j) < 3", "i / 2 == j / 2"])
@pytest.mark.parametrize("weight", ["* exp(-g[h] * abs(i - j))", "* exp(g[h] * (j - i))", "* abs(i - j)"])
def test_a_decay_beside_what_is_compared(weight: str, guard: str) -> None:
    """Weights that are written in one piece are found like those whose scores have a name."""
    body = f"let out[b, h, i, e] = sum[j]({COMPARED} {weight} * V[b, h, j, e] where {guard});"
    assert isinstance(attention_of(f"{HEAD}{body}\noutput out;").normaliser, Free)


def test_a_guard_on_queries_alone_is_one_of_the_attention() -> None:
    """As a factor of the weights it would be 0, and 0 times NaN is NaN."""
    body = "let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);"
    weights = "let w[b, h, i, j] = sigmoid(s[b, h, i, j]) where g[h] > 0, j <= i + 1;"
    found = attention_of(f"{HEAD}{weights}\n{body}\noutput out;")
    assert len(found.guard) == 2
    assert "if" not in text(found.score)


@pytest.mark.parametrize("body", SIGMOIDS)
def test_facts_and_contracts_say_the_same(body: str) -> None:
    (found,) = ix.compile(f"{HEAD}{body}\noutput out;").roles
    assert (found.query, found.rows, found.kind, found.direction) == (("i",), "free", "attention", "causal")
    key = found.key[0]
    for claim, codes in (("", ["IX426"]), (", rows at most 1", ["IX426"]), (", rows free", [])):
        text = f"{HEAD}{body}\noutput out;\nattention out(query i, key {key}, carry e, head h, batch b, causal{claim});"
        assert [found.code for found in ix.check(text) if found.code.startswith("IX42")] == codes


def tensors(dtype: object = torch.float64, **sizes: int) -> dict[str, object]:
    torch.manual_seed(0)
    here = {**SIZES, **sizes}
    shapes = {"Q": "bhid", "K": "bhjd", "V": "bhje", "g": "h"}
    return {n: torch.randn([here[c] for c in axes], dtype=dtype, requires_grad=True) for n, axes in shapes.items()}


def assert_as_written(source: str, given: dict[str, object]) -> None:
    """Values and gradients are those of the relation as it is written, in PyTorch and in NumPy."""
    compiled = ix.compile(source)
    plan = str(compiled.plan(**given))
    assert "by stream" in plan
    assert "by arrays: contract" not in plan
    found, plain = compiled(**given), compiled(**given, isolate=True)
    assert torch.allclose(found, plain, equal_nan=True)
    flow = torch.randn_like(found)
    back = [torch.autograd.grad((x * flow).sum(), list(given.values()), allow_unused=True) for x in (found, plain)]
    for name, one, other in zip(given, *back, strict=True):
        assert (one is None) == (other is None), name
        assert one is None or torch.allclose(one, other, equal_nan=True), name
    numpy = compiled(**{name: value.detach().numpy() for name, value in given.items()})
    assert np.allclose(numpy, plain.detach().numpy(), equal_nan=True)


@pytest.mark.parametrize("weights", OTHERS)
def test_streamed_as_written(weights: str) -> None:
    body = f"let out[b, h, i, e] = sum[j]({OTHERS[weights]} * V[b, h, j, e] where i - 3 < j && j <= i);"
    assert_as_written(HEAD + body, tensors())


UNGUARDED = {
    "sigmoid": "sum[j](sigmoid(s[b, h, i, j]) * V[b, h, j, e])",
    "relu squared": "sum[j](relu(s[b, h, i, j]) ** 2 * V[b, h, j, e])",
    "softpick": """sum[j](relu(exp(s[b, h, i, j]) - 1) * V[b, h, j, e])
    / (sum[j](abs(exp(s[b, h, i, j]) - 1)) + exp(g[h]))""",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("pairs", [0, ALL], ids=["streamed", "at once"])
@pytest.mark.parametrize("weights", UNGUARDED)
def test_all_keys_at_once_and_streamed(weights: str, pairs: int) -> None:
    source = f"space position(i, j);\n{HEAD}let out[b, h, i, e] = {UNGUARDED[weights]};"
    with called_few(pairs):
        for sizes in ({}, {"i": 1, "j": 1}, {"i": 2, "j": 0}, {"i": 0, "j": 3}):
            assert_as_written(source, tensors(**sizes))
        given = tensors()
        given["Q"].data.mul_(1000)
        assert bool(ix.compile(source)(**given).isfinite().all())


def test_rows_that_hear_nobody_and_few_points() -> None:
    body = "let out[b, h, i, e] = sum[j](sigmoid(s[b, h, i, j]) * V[b, h, j, e] where j < i - 1);"
    assert_as_written(HEAD + body, tensors())
    for sizes in ({"i": 1, "j": 1}, {"i": 2, "j": 0}, {"i": 0, "j": 3}):
        assert_as_written(HEAD + body, tensors(**sizes))


def test_a_decay_that_overflows_where_nobody_hears_has_its_gradient() -> None:
    given = tensors(torch.float32, i=150, j=150)
    given["g"] = torch.full((3,), 2.0, requires_grad=True)
    compiled = ix.compile(f"{HEAD}let out[b, h, i, e] = sum[j]({OTHERS['retention']} * V[b, h, j, e] where j <= i);")
    for one in torch.autograd.grad(compiled(**given).sum(), list(given.values())):
        assert torch.isfinite(one).all()


SOFTPICKS = (
    """let x[b, h, i, j] = exp(s[b, h, i, j]) - 1;
let w[b, h, i, j] = relu(x[b, h, i, j]) / sum[j](abs(x[b, h, i, j]) where j <= i);
let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e] where j <= i);""",
    """let x[b, h, i, j] = exp(s[b, h, i, j]) - 1;
let out[b, h, i, e] = sum[j](relu(x[b, h, i, j]) * V[b, h, j, e] where j <= i)
    / sum[j](abs(x[b, h, i, j]) where j <= i);""",
    """let x[b, h, i, j] = exp(s[b, h, i, j]) - 1 where j <= i;
let z[b, h, i] = sum[j](abs(x[b, h, i, j])) + 0.000001;
let out[b, h, i, e] = sum[j](relu(x[b, h, i, j]) * V[b, h, j, e]) / z[b, h, i];""",
)


@pytest.mark.parametrize("body", SOFTPICKS)
def test_weights_over_a_sum_of_others_are_streamed_apart(body: str) -> None:
    assert_as_written(HEAD + body, tensors())
    (found,) = ix.compile(HEAD + body).roles
    assert (found.query, found.key, found.rows) == (("i",), ("j",), "free")


def test_weights_that_are_made_of_other_keys_are_no_stream() -> None:
    body = """let w[b, h, i, j] = sigmoid(s[b, h, i, j]) * prod[k](1 - sigmoid(s[b, h, i, k]) where j < k && k < i)
    where j < i;
let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);"""
    compiled = ix.compile(HEAD + body)
    assert "by blocks of `i`" in str(compiled.plan(**tensors()))
    assert "made of the scores of others" in str(compiled.plan(**tensors(), recompute=False))
    assert compiled.roles[0].rows == "free"


# The same sum, with and without something that says who hears whom.
LAYERS = "let y[i, e] = sum[f](sigmoid(sum[m](x[i, m] * A[m, f])) * B[f, e]);"
SAID = {
    f"input x[i, m], A[m, f], B[f, e];\n{LAYERS}": False,
    f"input x[i, m], A[m, f], B[f, e];\n{LAYERS}\nattention y(query i, key f, rows free);": True,
    f"space place(i, f);\ninput x[i, m], A[m, f], B[f, e];\n{LAYERS}": True,
    f"input x[i, m], A[m, f], B[f, e];\n{LAYERS.replace(');', ' where f <= i);')}": True,
    "input x[i, m], A[m, f], v[i, e];\nlet y[e, f] = sum[i](relu(sum[m](x[i, m] * A[m, f])) * v[i, e]);": False,
}


@pytest.mark.parametrize("source", SAID)
def test_two_layers_of_a_network_are_no_attention(source: str) -> None:
    assert bool(ix.compile(source).roles) == SAID[source]


def test_weights_that_others_need_are_no_stream() -> None:
    body = """let w[b, h, i, j] = sigmoid(s[b, h, i, j]) where j <= i;
let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);
let most[b, h, i] = max[j](w[b, h, i, j] where j <= i);"""
    compiled = ix.compile(HEAD + body)
    assert "by blocks of `i`" in str(compiled.plan(**tensors()))
    assert "its weights are needed by others too" in str(compiled.plan(**tensors(), recompute=False))


def test_the_derived_program_has_the_same_gradients() -> None:
    compiled = ix.compile(f"{HEAD}{SIGMOIDS[1]}\noutput out;")
    given = tensors()
    found = compiled(**given)
    flow = torch.randn_like(found)
    wanted = torch.autograd.grad((found * flow).sum(), list(given.values()))
    derived = ix.grad(compiled, "out", list(given))(**{n: x.detach() for n, x in given.items()}, d_out=flow)
    for name, one, other in zip(given, derived, wanted, strict=True):
        assert torch.allclose(one, other), name


def test_a_guard_that_removes_nothing_needs_no_mask() -> None:
    text = """input Q[i in 0..3, d], K[j in 0..3, d], V[j, e], g;
    let out[i, e] = sum[j](sum[d](Q[i, d] * K[j, d]) * g ** (i - j + 4) * V[j, e] where j <= i + 4);"""
    program = ix.compile(text)
    arrays = [torch.ones(3, 2), torch.ones(3, 2), torch.ones(3, 4), torch.tensor(0.5)]
    torch.testing.assert_close(program(*arrays), torch.as_tensor(program(*arrays, backend="reference")).float())
