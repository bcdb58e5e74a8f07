"""What inputs are called does not matter to Triton kernels, though these have names of their own."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Any

import pytest

import indexical as ix

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from indexical.backends.old.triton_printer import Printer  # noqa: E402
from indexical.backends.old.triton_words import HELPERS, array_name, is_word, number_name  # noqa: E402

TEXT = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], end : i64, k[h], doc[b, i] : i64, bias[h, r];
let weights[b, h, i, j] = softmax[j](
    sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) * k[h] - k[h] * (i - j) + bias[h, i - j]
) where i - j < end, j <= i || j < 2, doc[b, i] == doc[b, j];
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""


@pytest.mark.parametrize("word", ["begin", "k", "far", "q_b", "d_doc", "count_2", "few_rows", "range", "bank_doc"])
def test_inputs_that_are_called_as_kernels_call_their_own_are_renamed(word: str) -> None:
    for name in (array_name(word), number_name(word)):
        assert name != word
        assert not is_word(name)


def test_sizes_and_other_names_are_kept() -> None:
    assert [number_name(name) for name in ("n_d", "n_h", "window", "ends")] == ["n_d", "n_h", "window", "ends"]
    assert [array_name(name) for name in ("bias", "key_bias", "é", "n")] == ["bias", "key_bias", "x_", "array_n"]
    assert number_name("bias_h") == "number_bias_h"  # as a step of an array of biases is


def test_all_names_of_kernels_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that the text of a kernel has is a word, or it was given to a value, and then no other value has it."""
    given: set[str] = set()
    usual = Printer.name
    monkeypatch.setattr(Printer, "name", lambda *about: given.add(name := usual(*about)) or name)
    arrays: dict[str, Any] = {name: torch.zeros(1, 2, 5, 4, dtype=torch.bfloat16) for name in "QKV"}
    arrays |= {"k": torch.zeros(2).bfloat16(), "bias": torch.zeros(2, 5).bfloat16(), "end": 3}
    arrays["doc"] = torch.zeros(1, 5, dtype=torch.int64)
    program = ix.compile(TEXT)
    call = replace(program._engine.prepare(arrays, "torch"), device="cuda")
    module = ast.parse(program._engine.emitted(call, program.wanted(None), False)[1].linked())
    functions = [one for one in module.body if isinstance(one, ast.FunctionDef)]
    kernels = [one for one in functions if one.name.startswith("out_") and one.decorator_list]
    assert {"out_decode", "out_forward", "out_backward_query", "out_backward_key_again"} < {one.name for one in kernels}
    own = re.compile(r"(array_end|array_k|doc|key_doc|bias)_(ptr|b|h|row|key|at)|n_\w")
    for kernel in kernels:
        taken = [one.arg for one in kernel.args.args]
        stored = {one.id for one in ast.walk(kernel) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        assert len(taken) == len(set(taken))
        assert not stored & set(taken)
        assert {one for one in (*taken, *stored) if not is_word(one) and not own.fullmatch(one)} <= given
        assert not {one for one in given if is_word(one)}


def test_helpers_are_those_that_there_are() -> None:
    from indexical.backends.kernels import triton_tile

    assert set(vars(triton_tile)) >= HELPERS
