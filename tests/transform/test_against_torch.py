"""Derivatives of attention, with every guard and bias of the library, against PyTorch's of the same written by hand:
in fp64, first and second order, backward, forward and as whole Jacobians."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.backends.drawing import distance  # noqa: E402
from tests.transform.attentions import SIZES, WRITTEN, Written  # noqa: E402
from tests.transform.layouts import LAYOUTS  # noqa: E402

import indexical as ix  # noqa: E402

pytestmark = pytest.mark.sampled(8)

ALL = {**WRITTEN, **LAYOUTS}
CLOSE = 1e-10


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Drawn:
    """A program with arrays, and the same by hand as a function of those that move."""

    def __init__(self, name: str) -> None:
        self.written: Written = ALL[name]
        self.program = ix.compile(self.written.text)
        generator = torch.Generator().manual_seed(7)

        def draw(*shape: int) -> Any:
            return torch.randn(shape, dtype=torch.float64, generator=generator)

        self.moving = {
            key: draw(*(SIZES[letter] for letter in letters)) for key, letters in self.written.shapes.items()
        }
        self.arrays = {**self.moving, **self.written.given}
        self.by = tuple(self.moving)
        self.cotangent = draw(*self.by_hand(*self.moving.values()).shape)
        self.tangents = [draw(*array.shape) for array in self.moving.values()]

    @cached_property
    def backward(self) -> ix.Program:
        return ix.grad(self.program, of="out", by=self.by)

    @cached_property
    def in_turn(self) -> str:
        """One of what moves: another for each program, so that all of them have their turn."""
        return self.by[list(ALL.values()).index(self.written) % len(self.by)]

    def by_hand(self, *moving: Any) -> Any:
        return self.written.function({**self.written.given, **dict(zip(self.by, moving, strict=True))})

    def call(self, program: ix.Program, **more: Any) -> tuple[Any, ...]:
        """The outputs of a derivative, of the arrays that it takes."""
        given = {**self.arrays, **more}
        found = program(**{name: given[name] for name in program.inputs})
        return found if isinstance(found, tuple) else (found,)

    def gradient(self, function: Callable[..., Any], weight: Any) -> tuple[Any, ...]:
        """What autograd says of a function of what moves."""
        leaves = [array.clone().requires_grad_() for array in self.moving.values()]
        result = function(*leaves)
        if not result.requires_grad:
            return tuple(torch.zeros_like(leaf) for leaf in leaves)
        found = torch.autograd.grad(result, leaves, weight, allow_unused=True)
        return tuple(torch.zeros_like(a) if g is None else g for g, a in zip(found, leaves, strict=True))


@cache
def drawn_once(name: str) -> Drawn:
    return Drawn(name)


@pytest.mark.parametrize("name", ALL)
def test_both_say_the_same(name: str) -> None:
    drawn = drawn_once(name)
    assert distance(drawn.program(**drawn.arrays), drawn.by_hand(*drawn.moving.values())) <= CLOSE


@pytest.mark.parametrize("name", ALL)
def test_gradient_is_that_of_autograd(name: str) -> None:
    drawn = drawn_once(name)
    backward = drawn.backward
    assert backward.outputs == tuple(f"d_{key}" for key in drawn.by)
    expected = drawn.gradient(drawn.by_hand, drawn.cotangent)
    for found, right in zip(drawn.call(backward, d_out=drawn.cotangent), expected, strict=True):
        assert distance(found, right) <= CLOSE


@pytest.mark.parametrize("name", list(ALL)[::2])
def test_gradient_in_numpy(name: str) -> None:
    drawn = drawn_once(name)
    backward = drawn.backward
    expected = drawn.gradient(drawn.by_hand, drawn.cotangent)
    given = {key: array.numpy() for key, array in {**drawn.arrays, "d_out": drawn.cotangent}.items()}
    found = backward(**{key: given[key] for key in backward.inputs})
    for ours, right in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert distance(ours, right) <= CLOSE


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("name", list(ALL)[1::2])
def test_tangent_is_that_of_forward_mode(name: str) -> None:
    drawn = drawn_once(name)
    tangent = ix.jvp(drawn.program, of="out", by=drawn.by)
    given = {f"dot_{key}": array for key, array in zip(drawn.by, drawn.tangents, strict=True)}
    _, expected = torch.func.jvp(drawn.by_hand, tuple(drawn.moving.values()), tuple(drawn.tangents))
    (found,) = drawn.call(tangent, **given)
    assert distance(found, expected) <= CLOSE


@pytest.mark.parametrize("name", ALL)
def test_second_derivatives_are_those_of_autograd(name: str) -> None:
    """The gradient of a part of the gradient, by everything that moves."""
    drawn = drawn_once(name)
    key = drawn.in_turn
    place = drawn.by.index(key)
    # The cotangent of a scalar is 1.
    weight = drawn.tangents[place] if drawn.moving[key].shape else torch.ones((), dtype=torch.float64)
    again = ix.grad(drawn.backward, of=f"d_{key}", by=drawn.by)

    def first(*moving: Any) -> Any:
        result = drawn.by_hand(*moving)
        found = torch.autograd.grad(result, moving, drawn.cotangent, create_graph=True, allow_unused=True)
        return torch.zeros_like(moving[place]) if found[place] is None else found[place]

    has_slope = drawn.by_hand(*[a.clone().requires_grad_() for a in drawn.moving.values()]).requires_grad
    zeros = tuple(torch.zeros_like(array) for array in drawn.moving.values())
    expected = drawn.gradient(first, weight) if has_slope else zeros
    given = {name: drawn.cotangent if name == "d_out" else weight for name in again.inputs}
    for found, right in zip(drawn.call(again, **{**given, **drawn.arrays}), expected, strict=True):
        assert distance(found, right) <= CLOSE


@pytest.mark.parametrize("name", ALL)
def test_jacobian_is_that_of_jacrev(name: str) -> None:
    drawn = drawn_once(name)
    key = drawn.in_turn
    expected = torch.func.jacrev(drawn.by_hand, argnums=drawn.by.index(key))(*drawn.moving.values())
    program = ix.compile(f"{drawn.written.text}let slope_of_it = @out / @{key};\n")
    assert distance(program(**drawn.arrays, outputs="slope_of_it"), expected) <= CLOSE
