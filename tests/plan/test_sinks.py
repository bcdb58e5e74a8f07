"""Attention beside a sink: what is added to the sum of its exponentials, in every spelling, streamed and learned."""

from __future__ import annotations

import numpy as np
import pytest
from tests.plan.agreement import arrays_for, checked, program_of

import indexical as ix
from indexical.ir.algebra.canonical import text
from indexical.plan.steps import Attention, Softmax

torch = pytest.importorskip("torch")

HEAD = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], t[h], T[h, i];
let s[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
"""
SIZES = {"b": 2, "h": 3, "i": 5, "j": 5, "d": 4, "e": 3}

# Spellings of one relation, in which S is the sink: weights that are divided, weights by a logarithm, and more.
SPELLINGS = {
    "quotient": """let w[b, h, i, j] = exp(s[b, h, i, j]) / (exp(S) + sum[k](exp(s[b, h, i, k]) {where}));
let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e] {where_j});""",
    "total": """let z[b, h, i] = sum[k](exp(s[b, h, i, k]) {where}) + exp(S);
let out[b, h, i, e] = sum[j](exp(s[b, h, i, j]) * V[b, h, j, e] {where_j}) / z[b, h, i];""",
    "shifted": """let m[b, h, i] = max(S, max[k](s[b, h, i, k] {where}));
let p[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i]) {where_j};
let out[b, h, i, e] = sum[j](p[b, h, i, j] * V[b, h, j, e]) / (exp(S - m[b, h, i]) + sum[j](p[b, h, i, j]));""",
    "logarithm": """let w[b, h, i, j] = exp(s[b, h, i, j] - log(sum[k](exp(s[b, h, i, k]) {where}) + exp(S)));
let out[b, h, i, e] = sum[j](V[b, h, j, e] * w[b, h, i, j] {where_j});""",
    "rescaled": """let z[b, h, i] = sum[k](exp(s[b, h, i, k]) {where});
let w[b, h, i, j] = softmax[j](s[b, h, i, j] {where_j}) * z[b, h, i] / (z[b, h, i] + exp(S));
let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);""",
    "gated": """let z[b, h, i] = log(sum[k](exp(s[b, h, i, k]) {where}));
let out[b, h, i, e] = sigmoid(z[b, h, i] - S) * sum[j](softmax[j](s[b, h, i, j] {where_j}) * V[b, h, j, e]);""",
    "permuted": """let r[h, j, i, b] = sum[d](K[b, h, j, d] * Q[b, h, i, d]) / sqrt(size(d));
let z[i, h, b] = sum[l](exp(r[h, l, i, b]) {where_l}) + exp(S);
let out[b, h, i, e] = sum[k](exp(r[h, k, i, b]) / z[i, h, b] * V[b, h, k, e] {where});""",
}
GUARDS = {"all": "", "causal": "{k} <= i", "window": "i - 3 < {k} && {k} <= i", "none": "{k} < i - 1"}
SINKS = {"head": "t[h]", "one": "0", "query": "T[h, i]", "half": "log(0.5)"}


def program(spelling: str, guard: str = "all", sink: str = "head", more: str = "") -> str:
    """A program in a spelling."""
    body = SPELLINGS[spelling].replace("S", SINKS[sink])
    for mark, name in (("{where_j}", "j"), ("{where_l}", "l"), ("{where}", "k")):
        condition = GUARDS[guard].format(k=name)
        body = body.replace(mark, f"where {condition}" if condition else "")
    return f"{HEAD}{body}\noutput out;\n{more}"


def shown(attention: Attention) -> tuple[str, ...]:
    guard = " && ".join(map(text, attention.guard))
    assert isinstance(attention.normaliser, Softmax)
    assert attention.sink is not None
    return text(attention.score), guard, text(attention.value), text(attention.sink), attention.empty


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sink", SINKS)
def test_every_spelling_is_one_attention(sink: str) -> None:
    for guard in ("all", "causal"):
        found = {}
        for spelling in SPELLINGS:
            written = program_of(program(spelling, guard, sink))
            arrays = arrays_for(written, SIZES) if guard == "causal" else None
            recognised = checked(written, arrays, ("out",))
            assert "out" in recognised.attentions, (spelling, recognised.refusals)
            found[spelling] = shown(recognised.attentions["out"])
        assert len(set(found.values())) == 1, found


def plainly(q, k, v, sink, mask):  # type: ignore[no-untyped-def]
    """The same in PyTorch: a softmax over the keys and one more."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask, -torch.inf)
    slot = sink.expand(*scores.shape[:-1]).unsqueeze(-1)
    return torch.softmax(torch.cat([scores, slot], -1), -1)[..., :-1] @ v


def masks(guard: str) -> object:
    i, k = torch.arange(SIZES["i"])[:, None], torch.arange(SIZES["j"])
    every = torch.ones(SIZES["i"], SIZES["j"], dtype=torch.bool)
    return {"all": every, "causal": k <= i, "window": (i - 3 < k) & (k <= i), "none": k < i - 1}[guard]


def tensors(dtype: object = torch.float64) -> dict[str, object]:
    torch.manual_seed(0)
    shapes = {"Q": "bhid", "K": "bhjd", "V": "bhje", "t": "h", "T": "hi"}
    return {
        name: torch.randn([SIZES[c] for c in axes], dtype=dtype, requires_grad=True) for name, axes in shapes.items()
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("sink", ["head", "query"])
def test_values_and_gradients_are_those_of_one_more_key(guard: str, sink: str) -> None:
    given = tensors()
    asked = given["t"][:, None] if sink == "head" else given["T"]
    wanted = plainly(given["Q"], given["K"], given["V"], asked, masks(guard))
    flow = torch.randn_like(wanted)
    names = ["Q", "K", "V", "t" if sink == "head" else "T"]
    expected = torch.autograd.grad((wanted * flow).sum(), [given[n] for n in names])
    for spelling in ("quotient", "shifted", "gated" if guard != "none" else "total"):
        compiled = ix.compile(program(spelling, guard, sink))
        assert "by arrays" not in str(compiled.plan(**given)).split("never built")[0]
        found = compiled(**given)
        assert torch.allclose(found, wanted)
        back = torch.autograd.grad((found * flow).sum(), [given[n] for n in names])
        for name, one, other in zip(names, back, expected, strict=True):
            assert torch.allclose(one, other), name
        numpy = compiled(**{name: value.detach().numpy() for name, value in given.items()})
        assert np.allclose(numpy, wanted.detach().numpy())


# Scores that go to a kernel of tiles, and to a stream.
SCORES = {
    "key intervals, tile by tile": "s[b, h, i, j] - t[h] * abs(i - j)",
    "stream": "4 * tanh(s[b, h, i, j] * t[h])",
}


@pytest.mark.parametrize("kernel", SCORES)
def test_tiles_and_streams_have_sinks(kernel: str) -> None:
    text = f"""{HEAD}let c[b, h, i, j] = {SCORES[kernel]};
let out[b, h, i, e] = sum[j](exp(c[b, h, i, j]) * V[b, h, j, e] where j <= i)
    / (exp(T[h, i]) + sum[j](exp(c[b, h, i, j]) where j <= i));"""
    compiled = ix.compile(text)
    given = tensors()
    assert f"by {kernel}" in str(compiled.plan(**given))
    found, plain = compiled(**given), compiled(**given, isolate=True)
    assert torch.allclose(found, plain)
    flow = torch.randn_like(found)
    back = [torch.autograd.grad((x * flow).sum(), list(given.values())) for x in (found, plain)]
    for name, one, other in zip(given, *back, strict=True):
        assert torch.allclose(one, other), name


@pytest.mark.parametrize("level", [-torch.inf, torch.inf, 200.0, -200.0])
@pytest.mark.parametrize("guard", ["causal", "none"])
def test_extreme_sinks_are_as_in_the_reference(level: float, guard: str) -> None:
    given = {name: value.detach() for name, value in tensors(torch.float32).items()}
    given["t"] = torch.tensor([level, 0.0, level])
    wanted = plainly(given["Q"], given["K"], given["V"], given["t"][:, None].nan_to_num(), masks(guard))
    found = ix.compile(program("quotient", guard))(**given)
    numpy = ix.compile(program("quotient", guard))(**{name: value.numpy() for name, value in given.items()})
    heard = masks(guard).any(-1) | (level > -torch.inf)
    assert torch.allclose(found[..., heard, :], wanted[..., heard, :], atol=1e-6)
    assert np.allclose(numpy[..., heard.numpy(), :], wanted[..., heard, :].numpy(), atol=1e-6)


def test_large_scores_do_not_overflow() -> None:
    given = {name: value.detach() for name, value in tensors(torch.float32).items()}
    given["Q"] = given["Q"] * 200
    q, k, v, t = (given[name].double() for name in "QKVt")
    wanted = plainly(q, k, v, t[:, None], masks("causal"))
    assert torch.allclose(ix.compile(program("quotient", "causal"))(**given).double(), wanted, atol=1e-5)


@pytest.mark.parametrize("sizes", [{"i": 1, "j": 1}, {"i": 3, "j": 0}, {"i": 0, "j": 3}, {"b": 0}])
def test_few_and_no_points(sizes: dict[str, int]) -> None:
    here = {**SIZES, **sizes}
    shapes = {"Q": "bhid", "K": "bhjd", "V": "bhje", "t": "h", "T": "hi"}
    given = {n: torch.randn([here[c] for c in axes], requires_grad=True) for n, axes in shapes.items()}
    compiled = ix.compile(program("quotient"))
    found, plain = compiled(**given), compiled(**given, isolate=True)
    assert torch.allclose(found, plain, atol=1e-6)
    back = [torch.autograd.grad(x.sum(), [given["t"], given["Q"]], allow_unused=True) for x in (found, plain)]
    for one, other in zip(*back, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_transforms_read_sinks() -> None:
    compiled = ix.compile(program("quotient", "causal"))
    given = {name: value.detach() for name, value in tensors().items()}

    def total(t: object, q: object) -> object:
        return (compiled(**{**given, "t": t, "Q": q}) ** 2).sum()

    both = torch.func.grad(total, (0, 1))(given["t"], given["Q"])
    t, q = given["t"].clone().requires_grad_(), given["Q"].clone().requires_grad_()
    wanted = torch.autograd.grad(total(t, q), (t, q))
    for one, other in zip(both, wanted, strict=True):
        assert torch.allclose(one, other)
    several = torch.stack([given["t"], given["t"] + 1])
    mapped = torch.func.vmap(lambda t: compiled(**{**given, "t": t}))(several)
    assert torch.allclose(mapped[1], compiled(**{**given, "t": several[1]}))


def test_the_derived_program_has_the_same_gradients() -> None:
    compiled = ix.compile(program("shifted", "causal"))
    given = tensors()
    found = compiled(**given)
    flow = torch.randn_like(found)
    wanted = torch.autograd.grad((found * flow).sum(), [given[n] for n in "QKVt"])
    derived = ix.grad(compiled, "out", list("QKVt"))(**{n: x.detach() for n, x in given.items()}, d_out=flow)
    for name, one, other in zip("QKVt", derived, wanted, strict=True):
        assert torch.allclose(one, other), name


def test_what_may_be_negative_is_refused_with_a_reason() -> None:
    text = (
        f"{HEAD}let out[b, h, i, e] = sum[j](exp(s[b, h, i, j]) * V[b, h, j, e]) / (t[h] + sum[j](exp(s[b, h, i, j])));"
    )
    assert "may be negative" in str(ix.compile(text).plan(**tensors()))
