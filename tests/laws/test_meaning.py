"""What a call computes is what the program says: every definition, against a second evaluation that shares no code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from tests.laws.agreement import agree, call, difference, is_within
from tests.laws.grids import evaluate
from tests.laws.numerics import COMPARE, NUMPY, nudged, rounded
from tests.laws.programs import Case, cases, random_case, unread
from tests.laws.terms import (
    Apply,
    Binder,
    Block,
    Cast,
    Cells,
    Function,
    If,
    Let,
    Number,
    Op,
    Place,
    Program,
    Read,
    Reduce,
    Rest,
    Scan,
    Short,
    Size,
    tensors_in,
    walk,
)

import indexical as ix
from indexical.ir.functions import FUNCTIONS
from indexical.syntax import vocabulary


def check_meaning(case: Case, words: str = "") -> None:
    found = call(case.text, case.arrays)
    for name, expected in evaluate(case.program, case.arrays).items():
        problem = difference(case, name, found[name], expected)
        assert problem is None, f"{words}{problem}"


@given(cases())
def test_a_call_computes_what_the_program_says(case: Case) -> None:
    """Hypothesis draws small programs, and makes them smaller where the law fails."""
    assume(is_within(case))
    check_meaning(case)


@pytest.mark.xfail(strict=True, reason="the size of a range that a typed scalar states has that scalar's dtype")
def test_a_size_is_weak_whatever_states_it() -> None:
    assert ix.compile("input s : i32; let y[d in 0..s] = size(d);")(np.int32(2)).dtype == np.int64


@pytest.mark.sampled(4)
@pytest.mark.parametrize("hundred", range(4))
def test_a_call_computes_what_a_larger_program_says(hundred: int) -> None:
    """The same law for programs that use more of the language at once. `random_case(seed)` gives one again."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        case = random_case(seed)
        if is_within(case):
            check_meaning(case, f"random_case({seed}):\n{case!r}\n")


@given(cases())
def test_outputs_are_those_that_are_named_or_that_no_other_definition_reads(case: Case) -> None:
    program = ix.compile(case.text)
    if case.program.outputs:
        assert program.outputs == case.program.outputs
    else:
        assert set(program.outputs) == set(unread(case.program))


def test_few_cells_hang_on_last_digits() -> None:
    """Otherwise the laws would say less than they seem to."""
    hanging, cells = 0, 0
    for seed in range(60):
        case = random_case(seed)
        if is_within(case):
            base, moved = (evaluate(case.program, case.arrays, *nudge) for nudge in ((), (nudged(0.3),)))
            hanging += sum(int((~agree(moved[name], base[name])).sum()) for name in base)
            cells += sum(value.size for value in base.values())
    assert cells > 1000
    assert hanging < cells * 0.02


# ---------------------------------------------------------------------- what the programs have in them


def forms(program: Program) -> Iterator[str]:
    """The forms of the language that a program uses."""
    for input in program.inputs:
        yield f"input {input.tensor.kind}"
        yield from (["scalar input"] if not input.tensor.axes else [])
        yield from (["input with a range"] if input.stated else [])
        yield from (["input ..r"] if input.tensor.open is not None else [])
    for fn in program.functions:
        yield f"fn {fn.body.kind}" + (" tensor" if fn.result else "") + (" guarded" if fn.guard else "")
        yield from (f"fn {kind}" for kind in {tensor.kind for tensor in fn.parameters if not tensor.axes})
    for group in program.groups:
        yield from forms_of_group(group)
    for statement in (*program.lets, *program.functions):
        for part in walk(statement):
            yield from forms_of_term(part)
    yield from (["space"] if program.spaces else [])
    yield from (["output"] if program.outputs else [])
    yield from (["another order"] if program.order else [])


def forms_of_group(group: tuple[Let, ...]) -> Iterator[str]:
    own = {let.tensor for let in group}
    if own & {tensor for let in group for tensor in tensors_in(let)}:
        ranged = [[slot for slot in c.slots if isinstance(slot, Binder) and slot.lower] for c in group[0].clauses]
        axes = max(map(len, ranged))
        ways = {"forward" if "- 1" in text_of_index(p) else "backward" for p in walk(group[0]) if is_step(p, own)}
        yield from (f"recurrence {way}" for way in ways)
        yield f"recurrence of {len(group)} with {len(group[0].clauses)} clauses"
        yield from (["recurrence over two"] if axes > 1 and len(group[0].clauses) == 4 else [])
    for let in group:
        yield from ([f"whole {type(let.whole).__name__}"] if let.whole is not None else [])
        for clause in let.clauses:
            yield f"let {let.tensor.kind}" + (" guarded" if clause.guard is not None else "")
            yield from (["guard in a block"] if clause.inside else [])
            yield from (["guard and abbreviation"] if clause.shorts and clause.guard is not None else [])
            yield from (["slot ..r"] if any(isinstance(slot, Rest) for slot in clause.slots) else [])
            if clause.guard is not None and any(isinstance(p, Read) and p.kind == "bool" for p in walk(clause.guard)):
                yield "guard by name"


def is_step(part: Any, own: set[Any]) -> bool:
    return isinstance(part, Read) and part.tensor in own and isinstance(part.indices[0], Op)


def text_of_index(part: Read) -> str:
    index = part.indices[0]
    assert isinstance(index, Op)
    return f"{index.ops[0]} {getattr(index.terms[-1], 'text', '')}"


def forms_of_term(part: Any) -> Iterator[str]:
    match part:
        case Op(ops, terms):
            yield f"{'unary ' if len(terms) == 1 else ''}{ops[0]}{' chain' if len(ops) > 1 else ''} {terms[0].kind}"
        case Function(name, terms):
            yield f"{name} {terms[0].kind}"
        case Cast(term, dtype):
            yield f"{term.kind} as {dtype}"
        case Reduce(op, binders, body, guard, _, after):
            yield f"{op} {body.kind}" + (" guarded" if guard is not None else "")
            yield from (["guard after"] if after else [])
            yield from (["several coordinates"] if len(binders) > 1 else [])
            yield from (["sum[..r]"] if isinstance(binders[0], Rest) else [])
        case Scan(op, _, body, guard, _, after):
            yield f"{op} {body.kind}" + (" guarded" if guard is not None else "")
            yield from (["normaliser's guard after"] if after else [])
            yield from (["normaliser over a dependent range"] if part.coordinate.dependent else [])
        case Binder(coordinate, lower) if lower is not None:
            yield "range" + (" of other coordinates" if coordinate.dependent else "") + ("=" if part.inclusive else "")
        case Read(tensor, indices, rest):
            yield from (["read ..r"] if rest else [])
            yield from (f"index {type(index).__name__} {getattr(index, 'ops', '')}" for index in indices)
            places = [index.coordinate for index in indices if isinstance(index, Place)]
            yield from (["diagonal"] if len(set(places)) < len(places) else [])
            yield from (["absent points read"] if tensor.leaky else [])
        case Cells():
            yield "figures in place" if part.indices else "figures"
            yield from (["printed figures"] if part.printed else [])
        case Number(_, printed) if printed:
            yield "printed number"
        case Block(lets):
            yield from ("local tensor" if let.tensor.axes else "local scalar" for let in lets)
        case Apply(fn):
            yield f"call {fn.body.kind}" + (" read at once" if part.indices else "")
        case If() | Short() | Size():
            yield type(part).__name__


NUMERIC = ("sum", "prod", "max", "min", "mean", "argmax", "argmin")
ARITHMETIC = ("+", "-", "*", "/", "%", "**")
EXPECTED = {
    *(f"{op} {kind}" for op in ARITHMETIC for kind in ("real", "whole")),
    *("unary - real", "unary ! bool", "&& bool", "|| bool"),
    *(f"{op} {kind}" for op in COMPARE for kind in ("real", "whole")),
    *("== bool", "!= bool", "< chain whole", "< chain real", "<= chain whole"),
    # Those that a formula of others defines are tested by themselves, in `tests/ir/test_functions.py`.
    *(f"{name} real" for name, row in FUNCTIONS.items() if row.definition is None),
    *(f"{name} whole" for name in ("abs", "relu", "max", "min", "clamp", "sqrt", "floor")),
    *(f"{op} {form}" for op in NUMERIC for form in ("real", "real guarded", "whole")),
    *(f"{op} bool{guarded}" for op in ("any", "all") for guarded in ("", " guarded")),
    *(f"{op} real{guarded}" for op in vocabulary.NORMALISERS for guarded in ("", " guarded")),
    *("cumsum whole", "softmax whole", "normaliser's guard after", "normaliser over a dependent range"),
    *(f"real as {dtype}" for dtype in NUMPY if dtype != "bool"),
    *("bool as i64", "bool as f64", "whole as f32", "If", "Short", "Size"),
    *("guard after", "guard in a block", "guard by name", "guard and abbreviation"),
    *("several coordinates", "range", "range=", "range of other coordinates", "range of other coordinates="),
    *("input ..r", "slot ..r", "read ..r", "sum[..r]"),
    *(f"index {form}" for form in ("Place ", "Read ", "Reduce ", "Function ", "Number ")),
    *(f"index Op ('{op}',)" for op in ("+", "-", "/", "%")),
    *("diagonal", "absent points read", "figures", "figures in place", "printed figures", "printed number"),
    *("local tensor", "local scalar", "call real", "call real read at once", "call bool", "call whole"),
    *("fn real", "fn whole", "fn bool", "fn real tensor", "fn real tensor guarded"),
    *("whole Tensor", "whole Apply", "whole Cells"),
    *(f"let {kind}{guarded}" for kind in ("real", "whole", "bool") for guarded in ("", " guarded")),
    *("recurrence forward", "recurrence backward", "recurrence over two", "recurrence of 2 with 2 clauses"),
    *("recurrence of 1 with 1 clauses", "recurrence of 1 with 2 clauses", "recurrence of 1 with 3 clauses"),
    *("input real", "input whole", "input bool", "scalar input", "input with a range"),
    *("space", "output", "another order"),
}


def test_the_programs_use_every_form_of_the_language() -> None:
    """Otherwise the laws would say less than they seem to."""
    missing = set(EXPECTED)
    for seed in range(600):
        missing.difference_update(forms(random_case(seed).program))
        if not missing:
            return
    assert missing == set()


# ------------------------------------------------------------------------ the second evaluation itself


@pytest.mark.parametrize(
    ("dtype", "cells", "expected"),
    [
        ("bf16", [1.0, 1.00390625, 1.01171875, -1.5, np.inf], [1.0, 1.0, 1.015625, -1.5, np.inf]),
        ("f16", [0.1, 65504.0, 1e6], [0.0999755859375, 65504.0, np.inf]),
    ],
)
def test_both_evaluations_round_to_even(dtype: str, cells: list[float], expected: list[float]) -> None:
    text = f"input x[i]; let y[i] = x[i] as {dtype} as f64;"
    assert ix.compile(text)(np.array(cells)).tolist() == expected
    with np.errstate(over="ignore"):
        assert rounded(np.array(cells), dtype).tolist() == expected
