"""A scalar input in every form: a Python number, a number or an array of NumPy, a tensor, one that learns.

Emitted source gives what the call gives, values and all gradients, whichever form it was emitted for; so do
`torch.compile` and `torch.func`. The paths for many pairs run on few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.scalars import Case, cases
from tests.pairs import ALL, called_few
from tests.profiles import examples

import indexical as ix
from indexical.ir import nodes as ir
from indexical.run.samples import stand_ins

torch = pytest.importorskip("torch")

# What is traced takes a hundred times as long as a call: laws that trace draw a fifth or a tenth of the examples.

FORMS = ("number", "scalar", "array", "tensor", "learned")
PAIRS = st.sampled_from((0, ALL))


def as_form(form: str, number: float, tensor: ir.Input) -> Any:
    """A scalar in a form."""
    dtype = np.dtype("float64" if tensor.kind == "real" else "int32" if tensor.dtype == "i32" else "int64")
    exact = dtype.type(number)
    if form == "number":
        return exact.item()
    if form in ("scalar", "array"):
        return exact if form == "scalar" else np.array(exact)
    learns = form == "learned" and tensor.kind == "real"
    return torch.tensor(exact.item(), dtype=getattr(torch, dtype.name), requires_grad=learns)


def arguments(case: Case, program: ix.Program, forms: dict[str, str], learns: bool = True) -> list[Any]:
    """The arguments of a call of PyTorch's, scalars in these forms."""
    arrays = [torch.from_numpy(array.copy()) for array in case.arrays.values()]
    arrays = [array.requires_grad_(learns and array.is_floating_point()) for array in arrays]
    tensors = program.ir.tensors
    return [*arrays, *(as_form(forms[name], number, tensors[name]) for name, number in case.scalars.items())]


def outputs(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def weighted(found: Any) -> Any:
    """A sum of all reals of the outputs, no two by the same weight."""
    reals = [out for out in outputs(found) if out.is_floating_point()]
    return sum((out * torch.linspace(1, 2, out.numel(), dtype=out.dtype).reshape(out.shape)).sum() for out in reals)


def with_gradients(function: Callable[..., Any], given: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """The outputs of a call, and the gradients of their sum by all that learns; 0 for one that nothing flows to."""
    learned = [value for value in given if getattr(value, "requires_grad", False)]
    found = outputs(function(*given))
    total = weighted(found)
    if not learned or not total.requires_grad:
        return found, [torch.zeros_like(value) for value in learned]
    flows = torch.autograd.grad(total, learned, allow_unused=True)
    return found, [torch.zeros_like(v) if flow is None else flow for v, flow in zip(learned, flows, strict=True)]


def assert_same(found: Any, expected: Any, words: str) -> None:
    shown = [np.asarray(value.detach() if isinstance(value, torch.Tensor) else value) for value in (found, expected)]
    assert shown[0].dtype == shown[1].dtype, words
    np.testing.assert_allclose(*shown, rtol=1e-9, atol=1e-10, err_msg=words)


def loaded(text: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {"__name__": "emitted"}
    exec(compile(text, "emitted", "exec"), scope)
    function: Callable[..., Any] = scope["program"]
    return function


def file_of(program: ix.Program, given: Sequence[Any] | None, backend: str) -> Callable[..., Any]:
    """The function of a file that was emitted for a call, or for sizes alone, as `ix emit` does."""
    if given is not None:
        return loaded(program.source(*given, backend=backend))
    arrays = stand_ins(program.ir, {}, "f64")[0].arrays
    return loaded(program.imagine(arrays, "f64", backend, "cpu")[1])


@given(cases(), st.data())
def test_emitted_source_equals_the_call_and_its_gradients(case: Case, data: st.DataObject) -> None:
    forms, others = ({name: data.draw(st.sampled_from(FORMS)) for name in case.scalars} for _ in range(2))
    with called_few(data.draw(PAIRS)):
        program = ix.compile(case.text)
        plain = [*case.arrays.values(), *case.scalars.values()]
        right = outputs(program(*plain, backend="reference"))
        made_for = arguments(case, program, others) if data.draw(st.booleans()) else None
        emitted = file_of(program, made_for, "torch")
        given = arguments(case, program, forms)
        words = f"{case.text}\n{forms}, emitted for {others if made_for else 'any'}"
        values, flows = with_gradients(lambda *each: program(*each, backend="torch"), given)
        found, found_flows = with_gradients(emitted, given)
    for ours, theirs, truth in zip(found, values, right, strict=True):
        assert_same(ours, theirs, words)
        assert_same(theirs, truth, words)
    for ours, theirs in zip(found_flows, flows, strict=True):
        assert_same(ours, theirs, words)


@given(cases(), st.data())
def test_emitted_source_equals_the_call_without_gradients(case: Case, data: st.DataObject) -> None:
    forms, others = ({name: data.draw(st.sampled_from(FORMS[:3])) for name in case.scalars} for _ in range(2))
    program = ix.compile(case.text)
    tensors = program.ir.tensors

    def of(chosen: dict[str, str]) -> list[Any]:
        return [*case.arrays.values(), *(as_form(chosen[name], n, tensors[name]) for name, n in case.scalars.items())]

    emitted = file_of(program, of(others) if data.draw(st.booleans()) else None, "numpy")
    for ours, theirs in zip(outputs(emitted(*of(forms))), outputs(program(*of(forms), backend="numpy")), strict=True):
        assert_same(ours, theirs, f"{case.text}\n{forms}")


@examples(0.1)
@given(cases(), st.data())
def test_emitted_source_equals_the_call_in_jax(case: Case, data: st.DataObject) -> None:
    jax = pytest.importorskip("jax")
    program = ix.compile(case.text)
    tensors = program.ir.tensors
    forms = {name: data.draw(st.sampled_from(FORMS[:3])) for name in case.scalars}
    arrays = [*case.arrays.values()]
    given = [*arrays, *(as_form(forms[name], n, tensors[name]) for name, n in case.scalars.items())]
    reals = [n for n, name in enumerate((*case.arrays, *case.scalars)) if tensors[name].kind == "real"]

    def total(function: Callable[..., Any], *each: Any) -> Any:
        found = outputs(function(*each))
        return sum(out.astype(float).sum() for out in found), found

    with jax.enable_x64(True):
        emitted = file_of(program, given if data.draw(st.booleans()) else None, "jax")
        ways = emitted, lambda *each: program(*each, backend="jax")
        if reals:
            both = [jax.value_and_grad(partial(total, way), reals, has_aux=True)(*given) for way in ways]
        else:
            both = [(total(way, *given), ()) for way in ways]
    results = [(*values, *flows) for (_, values), flows in both]
    for ours, theirs in zip(*results, strict=True):
        assert_same(ours, theirs, f"{case.text}\n{forms}")


@examples(0.2)
@given(cases(), st.data())
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own.
def test_functional_derivatives_by_a_scalar(case: Case, data: st.DataObject) -> None:
    program = ix.compile(case.text)
    reals = [name for name in case.scalars if program.ir.tensors[name].kind == "real"]
    # Of these the values decide what is there: `torch.func.vmap` is refused, in so many words.
    reals = [name for name in reals if name not in ("length", "window")]
    if not reals:
        return
    by = data.draw(st.sampled_from(reals))
    forms = {name: data.draw(st.sampled_from(FORMS[:4])) for name in case.scalars} | {by: "tensor"}
    place = [*case.arrays, *case.scalars].index(by)
    words = f"{case.text}\nby {by}, {forms}"

    def call(scalar: Any, isolate: bool = False) -> Any:
        return outputs(program(*given[:place], scalar, *given[place + 1 :], backend="torch", isolate=isolate))[0]

    def total(scalar: Any, isolate: bool = False) -> Any:
        return weighted(call(scalar, isolate))

    with called_few(data.draw(PAIRS)):
        given = arguments(case, program, forms, learns=False)
        point = given[place]
        right = torch.autograd.functional.jacobian(call, point)
        assert_same(torch.func.jacrev(call)(point), right, words)
        assert_same(torch.func.jacfwd(call)(point), right, words)
        assert_same(torch.func.grad(total)(point), weighted(right), words)
        points = torch.stack([point, 1.1 * point])
        assert_same(torch.func.vmap(call)(points), torch.stack([call(each) for each in points]), words)
        twice = torch.autograd.functional.hessian(lambda scalar: total(scalar, isolate=True), point)
        assert_same(torch.func.hessian(total)(point), twice, words)


@examples(0.2)
@given(cases(), st.data())
def test_a_whole_graph(case: Case, data: st.DataObject) -> None:
    forms = {name: data.draw(st.sampled_from(("number", "tensor", "learned"))) for name in case.scalars}
    with called_few(data.draw(PAIRS)):
        program = ix.compile(case.text)
        given = arguments(case, program, forms)
        if not any(isinstance(value, torch.Tensor) for value in given):
            return
        torch._dynamo.reset()
        compiled = torch.compile(lambda *each: program(*each), fullgraph=True, backend="eager")
        values, flows = with_gradients(program, given)
        found, found_flows = with_gradients(compiled, given)
    for ours, theirs in zip((*found, *found_flows), (*values, *flows), strict=True):
        assert_same(ours, theirs, f"{case.text}\n{forms}")
