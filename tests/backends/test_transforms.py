"""`torch.func` reaches every kernel: values and derivatives are those of a loop over whole arrays, or the call says
what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.autograd.forward_ad as forward_ad  # noqa: E402
from tests.run.test_engine import codes  # noqa: E402
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap  # noqa: E402

import indexical as ix  # noqa: E402
from indexical import nn  # noqa: E402

# PyTorch warns of its own operators: those without a rule for a batch, and those that it still compiles itself.
pytestmark = [
    pytest.mark.sampled(6),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
]

ATTEND = "input Q[i, d], K[j, d], V[j, e]{more}; let out[i, e] = sum[j](softmax[j]({score}{guard}) * V[j, e]);"
DOT = "sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))"


def attention(score: str = DOT, guard: str = " where j <= i", more: str = "") -> str:
    return ATTEND.format(score=score, guard=guard, more=more)


STEPS = "input a[t], x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = {}; output h;"
TEXTS = {
    "fused": attention(),
    "intervals": attention(guard=" where j <= i && i - j < 3"),
    "groups": attention(guard=" where g[i] == g[j]", more=", g[j]: i64"),
    "tiles": attention(f"{DOT} - 0.1 * abs(i - j)"),
    "learned tiles": attention(f"{DOT} + b[i, j]", more=", b[i, j]"),
    "stream": attention(f"tanh({DOT})"),
    "scan": STEPS.format("a[t] * h[t - 1] + x[t]"),
    "recurrence": STEPS.format("tanh(a[t] * h[t - 1]) + x[t]"),
    "gather": "input E[v, d], p[i]: i64; let y[i, d] = E[p[i], d] * E[p[i], d];",
    "convolution": "input x[i], k[m]; let y[i in 0..size(i) - size(m) + 1] = sum[m](x[i + m] * k[m]);",
}
SHAPES = {
    "scan": ((40,), (40,)),
    "recurrence": ((5,), (5,)),
    "gather": ((4, 3), [0, 3, 1]),
    "convolution": ((7,), (3,)),
    "groups": ((5, 3), (5, 3), (5, 2), [0, 1, 0, 1, 1]),
    "learned tiles": ((5, 3), (5, 3), (5, 2), (5, 5)),
}


class Drawn:
    """A program, arrays for it, and the same over whole arrays."""

    def __init__(self, name: str) -> None:
        generator = torch.Generator().manual_seed(7)
        self.program = ix.compile(TEXTS[name])
        given = SHAPES.get(name, ((5, 3), (5, 3), (5, 2)))
        self.arrays = [
            torch.tensor(shape)
            if isinstance(shape, list)
            else torch.randn(shape, dtype=torch.float64, generator=generator)
            for shape in given
        ]
        self.real = tuple(n for n, array in enumerate(self.arrays) if array.is_floating_point())
        self.tangents = tuple(
            torch.randn(self.arrays[n].shape, dtype=torch.float64, generator=generator) for n in self.real
        )

    @property
    def moving(self) -> tuple[Any, ...]:
        return tuple(self.arrays[n] for n in self.real)

    @property
    def stacked(self) -> tuple[Any, ...]:
        return tuple(torch.stack([array + 0.1 * n for n in range(3)]) for array in self.moving)

    def run(self, *moving: Any, isolate: bool = False) -> Any:
        given = dict(zip(self.real, moving, strict=True))
        return self.program(*(given.get(n, array) for n, array in enumerate(self.arrays)), isolate=isolate)

    def plain(self, *moving: Any) -> Any:
        return self.run(*moving, isolate=True)

    def total(self, *moving: Any) -> Any:
        return self.run(*moving).square().sum()

    def plain_total(self, *moving: Any) -> Any:
        return self.plain(*moving).square().sum()

    def gradients(self, *moving: Any) -> tuple[Any, ...]:
        """By PyTorch's own means, over whole arrays."""
        leaves = [array.detach().clone().requires_grad_() for array in moving]
        return tuple(torch.autograd.grad(self.plain_total(*leaves), leaves))

    def looped(self, function: Callable[..., Any]) -> Any:
        found = [function(*parts) for parts in zip(*self.stacked, strict=True)]
        if torch.is_tensor(found[0]):
            return torch.stack(found)
        return tuple(map(torch.stack, zip(*found, strict=True)))

    @property
    def every(self) -> tuple[int, ...]:
        return tuple(range(len(self.real)))


def same(found: Any, expected: Any) -> None:
    if torch.is_tensor(expected):
        torch.testing.assert_close(found, expected)
        return
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        same(one, other)


def refused(function: Callable[..., Any], *arrays: Any) -> ix.CallError:
    with pytest.raises(ix.CallError) as caught:
        function(*arrays)
    return caught.value


TRANSFORMS: dict[str, tuple[Callable[[Drawn], Any], Callable[[Drawn], Any]]] = {
    "grad": (lambda d: grad(d.total, argnums=d.every)(*d.moving), lambda d: d.gradients(*d.moving)),
    "vmap": (lambda d: vmap(d.run)(*d.stacked), lambda d: d.looped(d.plain)),
    "vmap over one": (
        lambda d: vmap(d.run, in_dims=(0, *[None] * (len(d.real) - 1)), out_dims=1)(d.stacked[0], *d.moving[1:]),
        lambda d: torch.stack([d.plain(part, *d.moving[1:]) for part in d.stacked[0]], 1),
    ),
    "vmap of grad": (
        lambda d: vmap(grad(d.total, argnums=d.every))(*d.stacked), lambda d: d.looped(d.gradients)
    ),
    "grad of vmap": (
        lambda d: grad(lambda *arrays: vmap(d.total)(*arrays).sum(), argnums=d.every)(*d.stacked),
        lambda d: d.looped(d.gradients),
    ),
    "jvp": (
        lambda d: jvp(d.run, d.moving, d.tangents), lambda d: jvp(d.plain, d.moving, d.tangents)
    ),
    "jacrev": (lambda d: jacrev(d.run)(*d.moving), lambda d: jacrev(d.plain)(*d.moving)),
    "jacfwd": (lambda d: jacfwd(d.run)(*d.moving), lambda d: jacrev(d.plain)(*d.moving)),
    "hessian": (lambda d: hessian(d.total)(*d.moving), lambda d: hessian(d.plain_total)(*d.moving)),
    "grad of grad": (
        lambda d: grad(lambda *arrays: grad(d.total)(*arrays).sum())(*d.moving),
        lambda d: grad(lambda *arrays: grad(d.plain_total)(*arrays).sum())(*d.moving),
    ),
}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_transform_reaches_a_kernel(name: str, transform: str) -> None:
    found, expected = TRANSFORMS[transform]
    drawn = Drawn(name)
    truth = expected(drawn)
    same(found(Drawn(name)), truth)
    called = Drawn(name)
    called.run(*called.moving)
    same(found(called), truth)
    same(found(called), truth)
    same(called.run(*called.moving), drawn.plain(*drawn.moving))


@pytest.mark.parametrize("name", ["fused", "intervals", "tiles", "stream", "scan"])
def test_forward_mode_without_functions(name: str) -> None:
    drawn = Drawn(name)
    drawn.run(*drawn.moving)
    with forward_ad.dual_level():
        duals = map(forward_ad.make_dual, drawn.moving, drawn.tangents)
        found = forward_ad.unpack_dual(drawn.run(*duals)).tangent
    same(found, jvp(drawn.plain, drawn.moving, drawn.tangents)[1])


@pytest.mark.parametrize("name", ["fused", "intervals", "stream", "scan", "gather"])
def test_tangents_are_those_of_the_derived_program(name: str) -> None:
    drawn = Drawn(name)
    _, found = jvp(drawn.run, drawn.moving, drawn.tangents)
    derived = ix.jvp(drawn.program, by=[drawn.program.inputs[n] for n in drawn.real])
    same(found, derived(*drawn.arrays, *drawn.tangents))


def test_what_forward_mode_builds_is_said() -> None:
    weights = "let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) where j <= i);"
    gather = "let out[i, e] = sum[j](w[i, j] * V[j, e]);"
    program = ix.compile(f"input Q[i, d], K[j, d], V[j, e]; {weights} {gather}")
    array = torch.zeros(3000, 1)
    with pytest.warns(ix.SlowPath, match="no forward mode"):
        jvp(lambda x: program(x, array, array), (array,), (array,))


@pytest.mark.parametrize("name", ["intervals", "groups", "tiles", "stream"])
def test_kernels_have_no_second_derivative_by_autograd(name: str) -> None:
    drawn = Drawn(name)
    leaf = drawn.moving[0].clone().requires_grad_()
    slope = grad(drawn.total)(leaf, *drawn.moving[1:])
    with pytest.raises(RuntimeError, match="no second derivative: call the program with `isolate=True`"):
        slope.sum().backward()


# ----------------------------------------------------------------------------------------- bounds of their own

BOUNDED = (
    "input Q[b, i, d], K[b, j, d], V[b, j, e], n[b]: i64;"
    "let out[b, i, e] = sum[j](softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) where j <= i && j >= n[b]) * V[b, j, e]);"
)


def test_bounds_and_batches_are_mapped_together() -> None:
    program = ix.compile(BOUNDED)
    x = torch.randn(4, 2, 5, 3, dtype=torch.float64)
    n = torch.tensor([[0, 2], [1, 1], [3, 0], [2, 2]])
    plain = [program(one, one, one, bound, isolate=True) for one, bound in zip(x, n, strict=True)]
    same(vmap(lambda one, bound: program(one, one, one, bound))(x, n), torch.stack(plain))
    for mapped in (lambda one: program(one, one, one, n[1]), lambda one: program(x[0], one, x[0], n[1])):
        same(vmap(mapped)(x), torch.stack([mapped(one) for one in x]))
    alone = [program(x[0], x[0], x[0], bound, isolate=True) for bound in n]
    same(vmap(lambda bound: program(x[0], x[0], x[0], bound))(n), torch.stack(alone))


@pytest.mark.parametrize("name", ["intervals", "stream"])
def test_a_vmap_within_a_vmap(name: str) -> None:
    program = Drawn(name).program
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    found = vmap(vmap(lambda a, b: program(a, b, b), in_dims=(0, None)), in_dims=(None, 0))(x, x)
    same(found, torch.stack([torch.stack([program(a, b, b) for a in x]) for b in x]))


@pytest.mark.parametrize("name", ["fused", "intervals"])
def test_derivatives_as_programs(name: str) -> None:
    """What `ix.grad` gives goes through the same transforms."""
    back = ix.grad(TEXTS[name], of="out", by=("Q", "K", "V"))
    x = torch.randn(5, 3, dtype=torch.float64)
    several = torch.randn(3, 5, 3, dtype=torch.float64)
    found = vmap(lambda d: tuple(back(x, x, x, d)))(several)
    same(found, tuple(map(torch.stack, zip(*(back(x, x, x, d) for d in several), strict=True))))

    def summed(isolate: bool) -> Any:
        return lambda q: vmap(lambda one: back(one, x, x, x, isolate=isolate).d_K)(q).square().sum()

    same(grad(summed(False))(several), grad(summed(True))(several))


# ------------------------------------------------------------------------------------------------ modules


@pytest.mark.parametrize("name", ["fused", "intervals", "stream"])
def test_functional_call(name: str) -> None:
    module = nn.Module(TEXTS[name], {"K": (5, 3), "V": (5, 2)}).double()
    parameters = dict(module.named_parameters())
    x = torch.randn(2, 5, 3, dtype=torch.float64)

    def loss(given: Any, one: Any) -> Any:
        return functional_call(module, given, (one,)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for n in range(2):
        expected = torch.autograd.grad(module(x[n], isolate=True).square().sum(), list(parameters.values()))
        same([part[n] for part in found.values()], expected)


# ------------------------------------------------------------------------------------- what is looked at


def test_scalars_are_mapped_over() -> None:
    program = ix.compile("input x[i], s; let y[i] = s * x[i];")
    x, s = torch.ones(3), torch.tensor([1.0, 2.0])
    assert vmap(program, in_dims=(None, 0))(x, s).tolist() == [[1.0] * 3, [2.0] * 3]
    assert grad(lambda scale: program(x, scale).sum())(s[0]) == 3.0


LOOKED_AT: dict[str, tuple[str, tuple[Any, ...], tuple[int | None, ...]]] = {
    "places": (TEXTS["gather"], (torch.ones(4, 3), torch.zeros(2, 3, dtype=torch.int64)), (None, 0)),
    "a size": ("input x[i], n: i64; let y[k in 0..n] = x[k];", (torch.ones(3), torch.tensor([1, 2])), (None, 0)),
    "an assertion": ('input x[i]; let y[i] = x[i]; assert all[i](x[i] > 0), "no";', (torch.ones(2, 3),), (0,)),
}


@pytest.mark.parametrize("name", LOOKED_AT)
def test_values_that_are_looked_at_are_not_mapped_over(name: str) -> None:
    text, arrays, dims = LOOKED_AT[name]
    program = ix.compile(text)
    for _ in range(2):
        error = refused(vmap(program, in_dims=dims), *arrays)
        assert codes(error) == ["IX515"]
        assert "ix.batch(program" in str(error)
        program(*(array if dim is None else array[0] for array, dim in zip(arrays, dims, strict=True)))
    elsewhere = vmap(partial(program, backend="reference"), in_dims=dims)
    assert codes(refused(elsewhere, *arrays)) == ["IX515"]


def test_a_refusal_under_a_transform_says_where() -> None:
    program = ix.compile(TEXTS["gather"])
    table, places = torch.ones(4, 3), torch.tensor([0, 9])
    expected = str(refused(program, table, places))
    assert str(refused(grad(lambda e: program(e, places).sum()), table)) == expected
    same(grad(lambda e: program(e, places[:1]).sum())(table)[0], torch.full((3,), 2.0))
