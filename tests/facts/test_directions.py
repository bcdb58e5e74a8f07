"""Which way a definition hears is proved or not said: a causal forward has an anti-causal backward, in every spelling;
what is claimed is so in the reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.facts.affine import RECURRENCES, draw_attention, draw_program
from tests.facts.attended import CAUSAL, GUARDED, causal, library, open_
from tests.facts.rewrites import rewrite
from tests.facts.spelling import Spelling, spell
from tests.facts.test_dependence import SIZES, Points, Recording, arrays_for, cells, poisoned, same

import indexical as ix
from indexical.facts.directions import Direction
from indexical.facts.positions import Positions
from indexical.facts.view import View

pytestmark = pytest.mark.sampled(10)

FORWARD = causal()
OPEN = open_()
SWAPS = {
    "i - w < j <= i": "i <= j < i + w",
    "j <= i": "j >= i",
    "causal(i, j)": "causal(j, i)",
}


compiled = cache(ix.compile)


@cache
def backward(program: ix.Program) -> ix.Program:
    return ix.grad(program, of=program.outputs[-1])


def found(program: ix.Program, name: str) -> dict[str, Direction]:
    """The directions of a definition, by what they say."""
    return {direction.verdict: direction for direction in program.facts[name].directions}


def expect_backward(program: ix.Program, queries: set[str], keys: set[str], values: set[str], gone: str) -> None:
    """`d_Q` hears keys and values up to its own position, the others only what comes back from their own on."""
    for name in queries:
        heard = found(program, f"d_{name}")
        assert set(heard) == {"causal"}, (name, heard, str(program))
        assert set(heard["causal"].inputs) >= keys | values, (name, heard, str(program))
    for name in keys | values:
        heard = found(program, f"d_{name}")
        assert set(heard) == {"anti-causal"}, (name, heard, str(program))
        assert gone in heard["anti-causal"].inputs, (name, heard, str(program))


def expect_ways(program: ix.Program, forward: str | None, back: str | None) -> None:
    """Every gather of a derivative goes one way, every transpose the other. Of weights that nothing normalises nothing
    tells which of the two it is: whoever sums hears."""
    for roles in program.roles:
        if roles.rows == "free":
            continue
        expected = back if roles.kind.startswith("transpose") else forward
        assert roles.direction == expected, (roles, str(program))


# ------------------------------------------------------------------- causal, and its opposite


@pytest.mark.parametrize("name", FORWARD)
def test_causal_forward_has_an_anti_causal_backward(name: str) -> None:
    program = compiled(FORWARD[name])
    out = program.outputs[-1]
    assert set(found(program, out)) == {"causal"}
    assert not found(program, out)["causal"].otherwise
    derived = backward(program)
    expect_ways(derived, "causal", "anti-causal")
    if "Q" in program.inputs:
        expect_backward(derived, {"Q"}, {"K"}, {"V"}, f"d_{out}")
    else:
        heard = found(derived, "d_X")
        assert set(heard) == {"anti-causal"}
        assert heard["anti-causal"].inputs == (f"d_{out}",)


@pytest.mark.parametrize("name", [*CAUSAL, *GUARDED][::2])
def test_no_space_needs_to_be_declared(name: str) -> None:
    program = ix.compile(library(name, spaces=False))
    assert set(found(program, "out")) == {"causal"}
    derived = backward(program)
    expect_ways(derived, "causal", "anti-causal")
    assert set(found(derived, "d_V" if "V" in program.inputs else "d_X")) == {"anti-causal"}


@pytest.mark.parametrize("name", list(OPEN)[::2])
def test_of_what_is_not_causal_nothing_is_claimed(name: str) -> None:
    program = ix.compile(OPEN[name])
    for shown in (program, backward(program)):
        assert not any(story.directions for story in shown.facts.definitions), str(shown)
        expect_ways(shown, None, None)


@pytest.mark.parametrize("name", list(FORWARD)[::2])
def test_a_swapped_guard_turns_everything_round(name: str) -> None:
    text = "\n".join(line for line in FORWARD[name].split("\nattention ")[0].splitlines() if "std/" not in line)
    if name.startswith("std/"):
        text = library(name.removeprefix("std/"), "i <= j") if name.removeprefix("std/") in GUARDED else ""
    old = next((guard for guard in SWAPS if guard in text), None)
    if not text or (old is None and "i <= j" not in text):
        pytest.skip("its guard is inside a function of the library")
    program = ix.compile(text if old is None else text.replace(old, SWAPS[old]))
    out = program.outputs[-1]
    assert set(found(program, out)) == {"anti-causal"}
    derived = backward(program)
    expect_ways(derived, "anti-causal", "causal")
    assert set(found(derived, "d_V" if "V" in program.inputs else "d_X")) == {"causal"}


def test_a_window_stays_a_window() -> None:
    program = ix.compile(library("window_attention"))
    derived = backward(program)
    assert found(program, "out")["causal"].within == "3"
    assert {roles.within for roles in derived.roles} == {"3"}
    for name in ("d_K", "d_V"):
        assert found(derived, name)["anti-causal"].within == "3"
    given = (
        "input w : i64; input Q[i, d], K[j, d], V[j, e];\n"
        + """
        let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where 0 <= i - j < w;
        let out[i, e]     = sum[j](weights[i, j] * V[j, e]);
    """
    )
    assert found(backward(ix.compile(given)), "d_V")["anti-causal"].within == "w"


# ------------------------------------------------------------------------ other spellings

RESPELLED = [name for name in FORWARD if "block" not in name]


def respell(text: str, seed: str) -> tuple[Spelling, ix.Program]:
    for attempt in range(12):
        chance = Random(f"{seed}/{attempt}")
        spelling = rewrite(spell(text), chance, chance.randint(2, 5))
        try:
            return spelling, ix.compile(spelling.text)
        except ix.Error:
            continue
    pytest.fail(f"no spelling could be said:\n{text}")


@pytest.mark.parametrize(("seed", "name"), list(enumerate(list(RESPELLED)[::4])))
def test_backward_of_another_spelling_is_anti_causal(name: str, seed: int) -> None:
    spelling, program = respell(FORWARD[name], f"directions/{name}/{seed}")
    derived = backward(program)
    now = {word: now for word, (now, _) in spelling.inputs.items()}
    gone = f"d_{program.outputs[-1]}"
    if "Q" in now:
        expect_backward(derived, {now["Q"]}, {now["K"]}, {now["V"]}, gone)
    else:
        heard = found(derived, f"d_{now['X']}")
        assert {verdict: each.inputs for verdict, each in heard.items()} == {"anti-causal": (gone,)}, spelling.text


@pytest.mark.parametrize(("seed", "name"), list(enumerate(list(RESPELLED)[1::4])))
def test_another_spelling_of_a_backward_is_anti_causal(name: str, seed: int) -> None:
    first = compiled(FORWARD[name])
    spelling, derived = respell(str(backward(first)), f"derived/{name}/{seed}")
    now = {word: now for word, (now, _) in spelling.inputs.items()}
    gone = now[f"d_{first.outputs[-1]}"]
    (last,) = [word for word in ("V", "X") if word in first.inputs]
    heard = [found(derived, name) for name in spelling.tensors[f"d_{last}"] if name in derived.outputs]
    assert heard, (spelling.tensors, spelling.text)
    for each in heard:
        assert set(each) == {"anti-causal"}, (each, spelling.text)
        assert gone in each["anti-causal"].inputs, (each, spelling.text)


# ----------------------------------------------------------------------------- what is claimed


def kept_by(program: ix.Program, let: Any, direction: Direction, place: tuple[int, ...], arrays: Any) -> Points:
    """Every point of the inputs that may move a cell, if what is claimed is so."""
    view = View(program.ir)
    positions = Positions(view)
    (number,) = [n for n, axis in enumerate(let.axes) if axis.coordinate.name == direction.along]
    group = positions.group(view.space_of(let.name, number))
    result = set()
    for name, array in arrays.items():
        along = [n for n in range(np.ndim(array)) if positions.group(view.space_of(name, n)) == group]
        for point in np.ndindex(*np.shape(array)):
            ways = {"causal": all(point[n] <= place[number] for n in along)}
            ways["anti-causal"] = all(point[n] >= place[number] for n in along)
            if name not in direction.inputs or ways[direction.verdict]:
                result.add((name, point))
    return frozenset(result)


def check_claims(program: ix.Program, sizes: Mapping[str, int], seed: int) -> None:
    """Nothing that a direction leaves out moves a cell."""
    chance = Random(seed)
    arrays = arrays_for(program, seed, sizes)
    recording = Recording(program.ir, arrays).compute()
    for let in program.ir.lets:
        for direction in program.facts[let.name].directions:
            places = list(cells(recording.tensors[let.name]))
            for place in chance.sample(places, min(3, len(places))):
                kept = kept_by(program, let, direction, place, arrays)
                again = Recording(program.ir, poisoned(arrays, kept, chance)).compute()
                table, other = recording.tensors[let.name], again.tensors[let.name]
                offset = table.offset(place)
                assert same(table.cells[offset], other.cells[offset]), f"{program}\n{let.name}{list(place)}"


def attention(seed: int) -> str:
    return draw_attention(seed).replace("..r, ", "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_what_is_claimed_is_so(seed: int) -> None:
    check_claims(ix.compile(draw_program(4000 + seed)), {"i": 4, "j": 4}, seed)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_claimed_of_an_attention_and_its_backward_is_so(seed: int) -> None:
    program = compiled(attention(seed))
    check_claims(program, SIZES, seed)
    real = [name for name in program.inputs if name in ("Q", "K", "V")]
    check_claims(ix.grad(program, of=program.outputs[-1], by=real), SIZES, seed)


@pytest.mark.parametrize("number", range(len(RECURRENCES)))
def test_what_is_claimed_of_a_recurrence_is_so(number: int) -> None:
    check_claims(ix.compile(RECURRENCES[number]), SIZES, number)


def test_something_is_claimed_at_all() -> None:
    programs = [compiled(attention(seed)) for seed in range(8)]
    assert any(program.facts[let.name].directions for program in programs for let in program.ir.lets)
    steps = ix.compile("input x[t], a; let h[0] = x[0]; let h[t in 1..size(t)] = a * h[t - 1] + x[t];")
    assert found(steps, "h")["causal"].inputs == ("x",)
    late = ix.compile(library("convolve_1d_causal"))
    assert found(late, "out")["causal"].inputs == ("signal",)


# --------------------------------------------------------------------- what is easily mistaken

HEADER = "space position(i, j), feature(d, e);\ninput Q[i, d], K[j, d], V[j, e], X[i];\n"
WEIGHTS = "let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where j <= i;\n"


def test_a_total_over_the_same_letter_is_heard_from_everywhere() -> None:
    """What is summed is called `i` as well, and is not the position that it is read at."""
    text = HEADER + WEIGHTS + "let total = sum[i](X[i]);\n"
    text += "let out[i, e] = sum[j](weights[i, j] * V[j, e]) + total;\n"
    assert found(ix.compile(text), "out")["causal"].otherwise == ("X",)
    assert {one.code for one in ix.check(text + "attention out(query i, key j, causal);\n")} == {"IX423"}


def test_what_is_removed_late_was_heard() -> None:
    """The weights are normalised over everybody: the future is in every row, though nothing is gathered from it."""
    text = HEADER.replace(", X[i]", "") + WEIGHTS.replace(" where j <= i", "")
    program = ix.compile(text + "let out[i, e] = sum[j](weights[i, j] * V[j, e] where j <= i);\n")
    heard = found(program, "out")["causal"]
    assert (heard.inputs, heard.otherwise) == (("V",), ("K",))
    assert [roles.direction for roles in program.roles] == [None]


def test_both_ways_are_neither() -> None:
    text = "space position(i, j);\ninput V[i];\n"
    text += "let out[i] = sum[j](V[j] where j <= i) + sum[j](V[j] where j >= i);\n"
    assert found(ix.compile(text), "out") == {}


def test_spaces_that_were_declared_apart_have_no_order() -> None:
    text = "space target(i), source(j);\ninput V[j], Q[i];\nlet out[i] = Q[i] * sum[j](V[j] where j <= i);\n"
    assert found(ix.compile(text), "out") == {}


def test_two_inputs_may_be_heard_two_ways() -> None:
    text = "space position(i, j);\ninput x[i], y[i];\n"
    text += "let out[i] = sum[j](x[j] where j <= i) * sum[j](y[j] where j >= i);\n"
    heard = found(ix.compile(text), "out")
    assert (heard["causal"].inputs, heard["anti-causal"].inputs) == (("x",), ("y",))
    assert heard["causal"].over == heard["anti-causal"].over == ()


def test_a_projection_in_place_makes_no_query_of_a_head() -> None:
    found = ix.compile("""space place(i, j), width(m), part(d, e);
input X[i, m], A[h, m, d], B[h, m, d], C[h, m, e];
let Q[h, i, d] = sum[m](X[i, m] * A[h, m, d]);
let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * sum[m](X[j, m] * B[h, m, d])) / sqrt(size(d))) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * sum[m](X[j, m] * C[h, m, e]));""").roles
    assert [(role.query, role.key, role.head, role.direction) for role in found] == [(("i",), ("j",), ("h",), "causal")]
