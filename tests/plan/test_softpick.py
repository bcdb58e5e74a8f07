"""Weights that are picked: what e to a score is above 1, in every spelling, streamed and learned."""

from __future__ import annotations

import numpy as np
import pytest
from tests.plan.agreement import arrays_for, checked, program_of

import indexical as ix
from indexical.ir.algebra.canonical import text
from indexical.plan.steps import Attention, Softpick

torch = pytest.importorskip("torch")

HEAD = """space head(h), position(i, j, k, l), feature(d, e);
input Q[h, i, d], K[h, j, d], V[h, j, e], t[h];
let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));
"""
SIZES = {"h": 2, "i": 5, "j": 5, "d": 4, "e": 3}

# Spellings of one relation, by what the number in the denominator counts from.
SPELLINGS = {
    "zero": {
        "quotient": """let out[h, i, e] = sum[j](relu(exp(s[h, i, j]) - 1) * V[h, j, e] {where_j})
    / (sum[k](abs(exp(s[h, i, k]) - 1) {where_k}) + 0.1);""",
        "weights": """let p[h, i, j] = exp(s[h, i, j]) - 1;
let w[h, i, j] = max(p[h, i, j], 0.0) / (0.1 + sum[k](abs(p[h, i, k]) {where_k}));
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e] {where_j});""",
        "permuted": """let r[j, i, h] = exp(sum[d](K[h, j, d] * Q[h, i, d]) / sqrt(size(d))) - 1;
let z[i, h] = 0.2 + 2 * sum[l](abs(1 * r[l, i, h]) {where_l});
let out[h, i, e] = 2 * sum[l](V[h, l, e] * relu(r[l, i, h]) {where_l}) / z[i, h];""",
        "shifted": """let m[h, i] = t[h] ** 2;
let p[h, i, j] = exp(s[h, i, j] - m[h, i]) - exp(-m[h, i]) {where_j};
let z[h, i] = sum[j](abs(p[h, i, j])) + 0.1 * exp(-m[h, i]);
let out[h, i, e] = sum[j](relu(p[h, i, j]) * V[h, j, e]) / z[h, i];""",
    },
    "floor": {
        "named": """let m[h, i] = max(0.0, max[j](s[h, i, j] {where_j}));
let p[h, i, j] = exp(s[h, i, j] - m[h, i]) - exp(-m[h, i]) {where_j};
let z[h, i] = sum[j](abs(p[h, i, j])) + 0.1;
let out[h, i, e] = sum[j](relu(p[h, i, j]) * V[h, j, e]) / z[h, i];""",
        "product": """let m[i, h] = max(max[k](s[h, i, k] {where_k}), 0.0);
let p[h, i, j] = exp(-m[i, h]) * (exp(s[h, i, j]) - 1) {where_j};
let out[h, i, e] = sum[j](V[h, j, e] * relu(p[h, i, j])) / (0.1 + sum[k](abs(p[h, i, k])));""",
    },
    "peak": {
        "named": """let m[h, i] = max[j](s[h, i, j] {where_j});
let p[h, i, j] = exp(s[h, i, j] - m[h, i]) - exp(-m[h, i]) {where_j};
let w[h, i, j] = relu(p[h, i, j]) / (sum[k](abs(p[h, i, k])) + 0.1);
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);""",
        "written out": """let p[h, i, j] =
    exp(s[h, i, j] - max[k](s[h, i, k] {where_k})) - exp(-max[l](s[h, i, l] {where_l}));
let out[h, i, e] = sum[j](relu(p[h, i, j]) * V[h, j, e] {where_j}) / (sum[k](abs(p[h, i, k]) {where_k}) + 0.1);""",
    },
}
GUARDS = {"all": "", "causal": "{k} <= i", "window": "i - 3 < {k} && {k} <= i", "none": "{k} < i - 1"}
EACH = [(origin, name) for origin, spellings in SPELLINGS.items() for name in spellings]
CASES = [(*one, list(GUARDS)[(n + 1) % len(GUARDS)]) for n, one in enumerate(EACH)]


def program(origin: str, spelling: str, guard: str) -> str:
    """A program in a spelling."""
    body = SPELLINGS[origin][spelling]
    for mark in ("j", "k", "l"):
        condition = GUARDS[guard].format(k=mark)
        body = body.replace(f"{{where_{mark}}}", f"where {condition}" if condition else "")
    return f"{HEAD}{body}\noutput out;"


def shown(attention: Attention) -> tuple[str, ...]:
    assert isinstance(attention.normaliser, Softpick)
    guard = " && ".join(map(text, attention.guard))
    normaliser = attention.normaliser
    return text(attention.score), guard, text(attention.value), text(normaliser.sink), normaliser.origin


@pytest.mark.parametrize("origin", SPELLINGS)
@pytest.mark.parametrize("guard", ["all", "causal"])
def test_every_spelling_is_one_attention(origin: str, guard: str) -> None:
    found = {}
    for spelling in SPELLINGS[origin]:
        written = program_of(program(origin, spelling, guard))
        recognised = checked(written, arrays_for(written, SIZES), ("out",))
        assert "out" in recognised.attentions, (spelling, recognised.refusals)
        found[spelling] = shown(recognised.attentions["out"])
    assert len(set(found.values())) == 1, found


def tensors(dtype: object = torch.float64, **sizes: int) -> dict[str, object]:
    torch.manual_seed(0)
    here = {**SIZES, **sizes}
    shapes = {"Q": "hid", "K": "hjd", "V": "hje", "t": "h"}
    return {n: torch.randn([here[c] for c in axes], dtype=dtype, requires_grad=True) for n, axes in shapes.items()}


def plainly(given: dict[str, object], guard: str, origin: str) -> object:
    """The same in PyTorch."""
    scores = given["Q"] @ given["K"].mT / given["Q"].shape[-1] ** 0.5
    i, k = torch.arange(scores.shape[-2])[:, None], torch.arange(scores.shape[-1])
    every = torch.ones(scores.shape[-2:], dtype=torch.bool)
    mask = {"all": every, "causal": k <= i, "window": (i - 3 < k) & (k <= i), "none": k < i - 1}[guard]
    shares = torch.where(mask, torch.exp(scores) - 1, 0)
    level = torch.zeros(())
    if origin != "zero":
        level = torch.where(mask, scores, -torch.inf).amax(-1, keepdim=True)
        level = torch.where(mask.any(-1, keepdim=True), level, 0)
        level = level.clamp(min=0) if origin == "floor" else level
    return torch.relu(shares) @ given["V"] / (shares.abs().sum(-1, keepdim=True) + 0.1 * level.exp())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("origin", "spelling", "guard"), CASES)
def test_values_and_gradients_are_those_of_the_relation(origin: str, spelling: str, guard: str) -> None:
    given = tensors()
    wanted = plainly(given, guard, origin)
    flow = torch.randn_like(wanted)
    names = ["Q", "K", "V"]
    expected = torch.autograd.grad((wanted * flow).sum(), [given[n] for n in names])
    compiled = ix.compile(program(origin, spelling, guard))
    assert "by arrays" not in str(compiled.plan(**given)).split("never built")[0]
    found = compiled(**given)
    assert torch.allclose(found, wanted)
    back = torch.autograd.grad((found * flow).sum(), [given[n] for n in names])
    for name, one, other in zip(names, back, expected, strict=True):
        assert torch.allclose(one, other), name
    numpy = compiled(**{name: value.detach().numpy() for name, value in given.items()})
    assert np.allclose(numpy, wanted.detach().numpy())


@pytest.mark.parametrize("origin", ["floor"])
def test_a_derivative_and_differences_agree_with_it(origin: str) -> None:
    source = program(origin, next(iter(SPELLINGS[origin])), "causal")
    given = {name: value.detach().requires_grad_() for name, value in tensors(h=1, i=3, j=3).items()}
    compiled = ix.compile(source)
    assert torch.autograd.gradcheck(lambda q, k, v: compiled(q, k, v, given["t"]), list(given.values())[:3])
    total = ix.compile(f"{source.replace('output out;', '')}\nlet loss = sum[h, i, e](out[h, i, e]);")
    loss = total(**given, outputs="loss")
    derived = ix.grad(total, "loss", "Q")(**{n: v.detach().numpy() for n, v in given.items()})
    assert np.allclose(np.asarray(derived), torch.autograd.grad(loss, given["Q"])[0].numpy())


@pytest.fixture(scope="module")
def compiled() -> ix.Program:
    return ix.compile(program("floor", "named", "causal"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sizes", [{"i": 0}, {"j": 0}, {"i": 1, "j": 1}, {"h": 0}, {"e": 0}])
def test_no_points_and_one(sizes: dict[str, int], compiled: ix.Program) -> None:
    given = tensors(**sizes)
    found, plain = compiled(**given), compiled(**given, isolate=True)
    assert found.shape == plain.shape
    assert torch.allclose(found, plain)
    numpy = compiled(**{name: value.detach().numpy() for name, value in given.items()})
    assert np.allclose(numpy, plain.detach().numpy())


def test_keys_that_nobody_hears_may_be_anything(compiled: ix.Program) -> None:
    given = {name: value.detach() for name, value in tensors(i=3, j=6).items()}
    clean = {name: value.clone() for name, value in given.items()}
    given["K"][:, 4:] = torch.nan
    given["V"][:, 3:] = torch.inf
    assert torch.equal(compiled(**given), compiled(**clean))
    found = compiled(**{name: value.numpy() for name, value in given.items()})
    assert np.allclose(found, compiled(**clean).numpy())


@pytest.mark.parametrize("scale", [30.0, -30.0, 0.0])
def test_scores_of_any_size_do_not_overflow(scale: float) -> None:
    given = {name: value.detach() for name, value in tensors(torch.float32).items()}
    given["Q"], given["K"] = given["Q"].abs() * scale, given["K"].abs()
    exact = {name: value.double() for name, value in given.items()}
    for origin in ("zero", "floor"):
        compiled = ix.compile(program(origin, next(iter(SPELLINGS[origin])), "causal"))
        found = compiled(**given)
        numpy = compiled(**{name: value.numpy() for name, value in given.items()})
        wanted = compiled(**exact).float()
        assert torch.isfinite(found).all()
        assert torch.allclose(found, wanted, atol=1e-5)
        assert np.allclose(numpy, wanted.numpy(), atol=1e-5)


def test_what_is_no_such_quotient_is_left() -> None:
    given = tensors()
    for below, above in (("s[h, i, j] + 1", "s[h, i, j]"), ("s[h, i, j]", "s[h, i, j] * 2")):
        body = f"""let z[h, i] = sum[j](abs(exp({below}) - 1) where j <= i) + 0.1;
let out[h, i, e] = sum[j](relu(exp({above}) - 1) * V[h, j, e] where j <= i) / z[h, i];"""
        compiled = ix.compile(f"{HEAD}{body}\noutput out;")
        assert "picked" not in str(compiled.plan(**given))
        assert torch.allclose(compiled(**given), compiled(**given, isolate=True))


def test_a_program_that_wants_the_total_too_has_it() -> None:
    given = tensors()
    compiled = ix.compile(program("floor", "named", "causal") + "\noutput z;")
    out, z = compiled(**given)
    other = compiled(**given, isolate=True)
    assert torch.allclose(out, other[0])
    assert torch.allclose(z, other[1])
