"""Steps that come again: what sizes and weights decide is decided once, and no weight is read that is there no more."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
import torch
from tests.decoding.test_weights import LAYOUTS, MODEL, NUMBERS, SIZES, drawn

import indexical as ix
from indexical.run import calling

# All axes that are summed last, as PyTorch has them, and one order that has to be copied.
OUT = {"q": "h, d, m", "k": "h, d, m", "v": "h, e, m", "o": "m, h, e"}
ORDERS = {"as given": OUT, "copied": LAYOUTS[0]}


Given = tuple[Any, ix.Program, torch.Tensor, dict[str, torch.Tensor]]


@cache
def decoder(order: str) -> Given:
    """A decoder whose second step already has a function of its own."""
    program = ix.compile(MODEL.format(**ORDERS[order]))
    weights = drawn(program)
    x = torch.randn(16, SIZES["m"], dtype=torch.float64)
    del weights["x"]
    with patch.object(calling, "_FIRST_SIZED", 1):
        return ix.incremental(program, "i", **weights, **NUMBERS), program, x, weights


def settled(order: str, at: int = 6) -> tuple[Any, ...]:
    """The same, and a state after so many positions, the last of which were computed by that function."""
    decode, program, x, weights = decoder(order)
    decode._caller._next_sized = 1
    state, _ = decode.prefill(x[:3], capacity=3)
    for n in range(3, at):
        state, _ = decode.step(x[n : n + 1], state)
    following = given_to(decode, x[at : at + 1], state)
    assert any(each.sized and each.is_alike(*following) for each in decode._caller._expected)
    return decode, state, program, x, weights


def given_to(decode: Any, x: torch.Tensor, state: Any) -> tuple[Any, ...]:
    """What the function of a step is given."""
    values = {**state._fixed, "x": x, **state._rows(1)}
    return tuple(values[name] for name in decode._takes)


def add(weight: torch.Tensor) -> None:
    with torch.no_grad():
        weight.add_(0.5)


def optimise(weight: torch.Tensor) -> None:
    weight.requires_grad_()
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.1).step()
    weight.requires_grad_(False)


def load(weight: torch.Tensor) -> None:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(weight, requires_grad=False)
    assert module.weight.data_ptr() == weight.data_ptr()
    module.load_state_dict({"weight": weight.flip(0)})


def swap(weight: torch.Tensor) -> None:
    weight.data = weight.data.flip(0).clone()


def swap_for_gaps(weight: torch.Tensor) -> None:
    weight.data = weight.data.mT.contiguous().mT.neg()


def turn_over(weight: torch.Tensor) -> None:
    """The same memory and shape, read in another order."""
    weight.data = weight.data.as_strided(weight.shape, (weight.stride(0), weight.stride(2), weight.stride(1)))


def turn(weight: torch.Tensor) -> None:
    weight.set_(weight.detach().roll(1, 0).contiguous())


@pytest.mark.parametrize("change", [add, optimise, load, swap, swap_for_gaps, turn_over, turn])
@pytest.mark.parametrize("order", ORDERS)
def test_a_weight_that_changes_between_steps_is_read_as_it_is(order: str, change: Callable[[Any], None]) -> None:
    decode, state, program, x, weights = settled(order)
    # What is past has none of `W_O` in it: with another one the next row is that of a full pass.
    for n in range(6, 9):
        change(weights["W_O"])
        state, row = decode.step(x[n : n + 1], state)
        torch.testing.assert_close(row, program(x=x[: n + 1], **weights, **NUMBERS).detach()[n:])


@pytest.mark.parametrize("order", ORDERS)
def test_a_weight_of_another_size_is_refused(order: str) -> None:
    decode, state, _, x, weights = settled(order)
    right = weights["W_O"].detach()
    for wrong in (right[..., :1].clone(), right[0]):
        weights["W_O"].data = wrong
        with pytest.raises(ix.Error, match="W_O"):
            decode.step(x[6:7], state)
    weights["W_O"].data = right
    decode.step(x[6:7], state)


def test_memory_of_a_weight_that_was_replaced_is_given_back() -> None:
    decode, state, _, x, weights = settled("as given")
    decode._caller._expected = ()
    for _ in range(3):
        swap(weights["W_O"])
        decode.step(x[6:7], state)
        settled("as given")
    assert sum(each.sized for each in decode._caller._expected) == 1


@pytest.mark.parametrize("order", ORDERS)
def test_one_function_is_for_all_lengths(order: str) -> None:
    decoder(order)[0]._caller._expected = ()
    decode, state, program, x, weights = settled(order)
    whole, made = program(x=x, **weights, **NUMBERS), []
    for n in range(6, 16):
        if n == 9:
            # There is room no more: all rows come to lie in other arrays, with other gaps between them.
            state._store.arrays = [array[..., :9, :].clone() for array in state._store.arrays]
            state._store._fits = None
        state, row = decode.step(x[n : n + 1], state)
        torch.testing.assert_close(row, whole[n : n + 1])
        made += [each.known.function for each in decode._caller._expected if each.sized]
    assert len(set(made)) == 1


def test_several_positions_and_other_states_have_functions_of_their_own() -> None:
    decode, state, program, x, weights = settled("as given")
    whole = program(x=x, **weights, **NUMBERS)
    states = [state, decode.prefill(x[:5], capacity=100)[0]]
    for place, count in ((1, 1), (0, 2), (1, 2), (0, 2), (1, 2)):
        decode._caller._next_sized = 1
        n = states[place].length
        states[place], rows = decode.step(x[n : n + count], states[place])
        torch.testing.assert_close(rows, whole[n : n + count])
    with pytest.raises(ix.Error):
        decode.step(torch.randn(1, SIZES["m"] + 1, dtype=torch.float64), states[0])
    with pytest.raises(ix.Error, match="state"):
        decode.step(x[3:4], decoder("copied")[0].prefill(x[:3])[0])


def test_nothing_of_weights_and_sizes_is_left_in_a_step() -> None:
    swap(decoder("as given")[3]["W_O"])
    decode = settled("as given")[0]
    text = next(inspect.getsource(each.known.function) for each in decode._caller._expected if each.sized)
    assert "linear" not in text
    assert "attended" not in text
    assert "arange" not in text
    assert not [name for name in ("W_Q", "W_K", "W_V", "W_O") if name in text.partition("\n")[2]]


def test_what_a_step_gives_is_nobody_elses() -> None:
    """Rows that come out may be written over; a step from the same state gives them again."""
    decode, state, _, x, _ = settled("as given")
    _, row = decode.step(x[6:7], state)
    kept = row.clone()
    row.zero_()
    assert torch.equal(decode.step(x[6:7], state)[1], kept)


@pytest.mark.parametrize("order", ORDERS)
def test_inference_mode_and_gradients_are_nothing_to_a_step(order: str) -> None:
    decode, state, program, x, weights = settled(order)
    add(weights["W_O"])
    with torch.inference_mode():
        state, _ = decode.step(x[6:7], state)
    add(weights["W_O"])
    weights["W_O"].requires_grad_()
    state, second = decode.step(x[7:8], state)
    weights["W_O"].requires_grad_(False)
    assert not second.requires_grad
    torch.testing.assert_close(second, program(x=x[:8], **weights, **NUMBERS)[7:])
