"""Laws of attentions whose arrays have several dtypes, in Triton's interpreter.

Run in a process of its own, since Triton reads the environment when it is imported:
`TRITON_INTERPRET=1 python -m pytest tests/backends/triton/mixing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.backends.triton.interpreter import patch_once
from tests.backends.triton.mixed import Case, Choose, check, draw

import indexical as ix
from indexical.plan.target import TRITON
from indexical.run.kernel import load

# The interpreter's product of bfloat16 is wrong: queries, keys and values have other dtypes.
PRODUCTS = ("f16", "f32")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def _quick() -> None:
    patch_once()


def chosen(data: st.DataObject) -> Choose:
    return lambda word, options: data.draw(st.sampled_from(options), word)


def for_a_gpu(case: Case) -> tuple[Any, Any]:
    """The plan of a program for a GPU, and its module as a function of arrays by their names."""
    program = ix.compile(case.text)
    call = replace(program._engine.prepare(dict(case.given), "torch"), device="cuda")
    wanted = program.wanted(None)
    plan, module = program._engine.emitted(call, wanted, False)
    function = load(module.linked(), wanted, ()).function

    def run(**given: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = function(*(given[tensor.name] for tensor in program.ir.inputs))
        return found

    return plan, run


def sized(keys: int, queries: int) -> Mapping[str, int]:
    return {"b": 1, "h": 2, "g": 1, "i": queries, "j": keys}


@given(st.data())
def test_attention_and_its_gradients(data: st.DataObject) -> None:
    """Products of 16 bits are those of kernels of our own where the result has 32: the library's would widen them."""
    case = draw(chosen(data), PRODUCTS, sized(21, 21))
    plan, run = for_a_gpu(case)
    check(case, run)
    if case.promoted == torch.float32 and all(case.given[name].dtype == torch.float16 for name in "QKV"):
        assert all(step.kernel == TRITON for step in plan.steps if step.attend is not None)


@given(st.data())
def test_few_queries(data: st.DataObject) -> None:
    queries = data.draw(st.sampled_from([1, 3]), "queries")
    case = draw(chosen(data), PRODUCTS, sized(70, queries), learns=False)
    check(case, for_a_gpu(case)[1], learns=False)
