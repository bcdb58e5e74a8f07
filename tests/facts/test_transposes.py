"""The roles in a derivative: who gave, who heard it, what came back; how weights change; in every spelling. And no lint
takes the chain rule for a mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest
from tests.facts.attended import EXAMPLES, causal, library, open_
from tests.facts.rewrites import (
    nest_sums,
    permute_axes,
    rename_bound,
    rename_coordinates,
    rename_tensors,
    respell_guards,
    rewrite,
    shuffle_statements,
    swap_operands,
)
from tests.facts.shapes import right
from tests.facts.spelling import Spelling, spell
from tests.facts.test_directions import backward

import indexical as ix
from indexical.cli import main
from indexical.facts.roles import Roles

pytestmark = pytest.mark.sampled(12)

PLAIN = (EXAMPLES / "causal_attention.ix").read_text("utf-8")
FORWARD = {**causal(), **open_()}


def by_definition(program: ix.Program) -> dict[str, Roles]:
    return {roles.definition: roles for roles in program.roles}


def answers(roles: Roles) -> dict[str, tuple[str, ...]]:
    return {role: roles.of(role) for role in ("query", "key", "compare", "carry", "head", "batch", "shared", "values")}


# ------------------------------------------------------------------------------- as it is printed


def test_roles_of_a_plain_derivative() -> None:
    roles = by_definition(backward(ix.compile(PLAIN)))
    same = {"query": ("i",), "key": ("j",), "compare": ("d",), "head": ("h",), "batch": ("b",), "shared": ()}
    assert answers(roles["d_V"]) == {**same, "carry": ("e",), "values": ("d_out",)}
    assert answers(roles["d_K"]) == {**same, "carry": ("d",), "values": ("Q",)}
    assert answers(roles["d_Q"]) == {**same, "carry": ("d",), "values": ("K",)}
    assert answers(roles["d_scores"]) == {**same, "key": ("j_1",), "carry": (), "values": ("d_weights",)}
    kinds = {"d_V": "transpose", "d_scores": "mean", "d_Q": "change", "d_K": "transposed change"}
    assert {name: found.kind for name, found in roles.items()} == kinds
    assert roles["d_V"].hears == "j <= i"


def test_answers_in_words() -> None:
    shown = str(backward(ix.compile(PLAIN)).facts)
    for line in (
        "transpose of an attention in `d_V`",
        "  who gave?          j",
        "  who heard it?      i",
        "  what came back?    e, of d_out",
        "  does the output keep the key?      yes",
        "  does it gather from all queries?   no, from the queries that may hear it: j <= i",
        "  which way does it gather?          anti-causal: only positions from its own on",
        "mean under the weights of an attention in `d_scores`",
        "change of an attention in `d_Q`",
        "  what do the changes sum to?        0 over j",
        "transpose of the change of an attention in `d_K`",
        "  direction     anti-causal along j, over i: hears Q, d_out only at positions from its own on; "
        "of K this is not proved",
    ):
        assert line in shown.splitlines(), shown
    assert "attention in `d_Q`" not in shown.splitlines()


def test_answers_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "backward.ix"
    file.write_text(str(backward(ix.compile(PLAIN))), "utf-8")
    assert main(["facts", str(file), "--format", "json"]) == 0
    read = json.loads(capsys.readouterr().out)
    (gave,) = [roles for roles in read["roles"] if roles["definition"] == "d_V"]
    assert (gave["kind"], gave["values"], gave["direction"]) == ("transpose", ["d_out"], "anti-causal")
    (story,) = [story for story in read["definitions"] if story["name"] == "d_V"]
    assert [found["verdict"] for found in story["directions"]] == ["anti-causal"]
    assert {entry["definition"]: entry["verdict"] for entry in read["heads"]} == {}
    assert {figure["name"]: figure["stage"] for figure in read["cost"]}["d_V"] == "gather"


def test_a_forward_program_answers_as_before() -> None:
    (roles,) = ix.compile(PLAIN).roles
    assert (roles.kind, roles.values, roles.direction) == ("attention", ("V",), "causal")


def test_what_sums_a_transpose_over_all_keys_is_no_attention() -> None:
    names = {roles.definition for roles in backward(ix.compile(library("transformer_block"))).roles}
    assert not {"d_bias_1", "d_W_V", "d_W_K"} & names
    assert len(names) == 5


# -------------------------------------------------------------------------------- other spellings

# Rewrites after which each definition is still there, and says the same.
NAMES = (rename_coordinates, rename_tensors, rename_bound, permute_axes, shuffle_statements, swap_operands)
REWRITES = (*NAMES, nest_sums, respell_guards)


def respell(text: str, seed: str) -> tuple[Spelling, ix.Program]:
    chance = Random(seed)
    spelling = rewrite(spell(text), chance, chance.randint(3, 7), REWRITES)
    return spelling, ix.compile(spelling.text)


@pytest.mark.parametrize(("seed", "name"), list(enumerate([name for name in FORWARD if "sink" not in name][::4])))
def test_other_spellings_have_the_same_roles(name: str, seed: int) -> None:
    derived = backward(ix.compile(FORWARD[name]))
    spelling, program = respell(str(derived), f"roles/{name}/{seed}")
    assert len(program.roles) == len(derived.roles), spelling.text
    now = by_definition(program)
    for before in derived.roles:
        (word,) = spelling.tensors.get(before.definition, frozenset((before.definition,)))
        after = now[word]
        shown = f"{before}\n{after}\n{spelling.text}"
        assert (before.kind, before.direction, before.within) == (after.kind, after.direction, after.within), shown
        for role in ("query", "key", "carry"):
            assert len(before.of(role)) == len(after.of(role)), shown
        # Which are heads and which is the batch, the names of the spaces said; they have others now.
        apart = [len(each.head) + len(each.batch) + len(each.shared) for each in (before, after)]
        assert apart[0] == apart[1], shown
        values = {w for value in before.values for w in spelling.tensors.get(value, frozenset((value,)))}
        assert values == set(after.values), shown


def test_a_mean_under_other_weights_changes_nothing() -> None:
    """What is subtracted must be the mean under these very weights: else nothing sums to 0."""
    text = str(backward(ix.compile(PLAIN)))
    other = "let others[b, h, i, j] = softmax[j](2 * scores[b, h, i, j]) where j <= i;\nlet d_scores"
    text = text.replace("sum[j_1](weights[b, h, i, j_1]", "sum[j_1](others[b, h, i, j_1]")
    kinds = {roles.kind for roles in ix.compile(text.replace("let d_scores", other)).roles}
    assert "change" not in kinds
    assert "transposed change" not in kinds


def test_the_mean_may_have_a_name() -> None:
    text = str(backward(ix.compile(PLAIN)))
    mean = "sum[j_1](weights[b, h, i, j_1] * d_weights[b, h, i, j_1])"
    text = text.replace(mean, "centre[b, h, i]").replace("let d_scores", f"let centre[b, h, i] = {mean};\nlet d_scores")
    roles = by_definition(ix.compile(text))
    assert (roles["d_Q"].kind, roles["d_K"].kind, roles["centre"].kind) == ("change", "transposed change", "mean")


def test_weights_written_out_by_hand_are_weights() -> None:
    text = """
        space position(i, j), feature(d, e);
        input Q[i, d], K[j, d], back[i, e];
        let s[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
        let top[i] = max[j](s[i, j] where j <= i);
        let share[i, j] = exp(s[i, j] - top[i]) where j <= i;
        let gave[j, e] = sum[i](share[i, j] / sum[k in 0..size(j)](share[i, k]) * back[i, e]);
    """
    (roles,) = ix.compile(text).roles
    assert (roles.kind, roles.query, roles.key, roles.values) == ("transpose", ("i",), ("j",), ("back",))


def test_heads_that_are_mixed_are_not_heard_by_anybody() -> None:
    """Weights that are summed over heads keep who asks: nothing flows back."""
    text = """
        space head(h, g), position(i, j), feature(d, e);
        input Q[h, i, d], K[h, j, d], V[g, j, e], P[h, g];
        let weights[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d)));
        let mixed[g, i, j] = sum[h](P[h, g] * weights[h, i, j]);
        let out[g, i, e] = sum[j](mixed[g, i, j] * V[g, j, e]);
    """
    assert {roles.kind for roles in ix.compile(text).roles} == {"attention"}


# ------------------------------------------------------------------------------------------- lints

SOURCES = {**FORWARD, **{f"shape/{name}": text for name, text in right().items() if "claimed" not in name}}
FILES = sorted((*EXAMPLES.glob("*.ix"), *EXAMPLES.glob("lessons/*.ix")))
SOURCES |= {f"file/{file.stem}": file.read_text("utf-8") for file in FILES}


def derived_of(text: str) -> list[ix.Program]:
    try:
        program = ix.compile(text)
    except ix.Error:
        return []
    real = [name for name in program.outputs if program.ir.tensors[name].kind == "real"]
    given = [tensor for tensor in program.ir.inputs if tensor.kind == "real"]
    return [ix.grad(program, of=output) for output in real] if given else []


@pytest.mark.parametrize("name", SOURCES)
def test_no_lint_misjudges_a_derivative(name: str) -> None:
    """A transpose is what it is; all else that is printed is in order, and no line needs an excuse."""
    for derived in derived_of(SOURCES[name]):
        allowed = re.findall(r"allow\((\w+)\): (.*)", str(derived))
        assert {reason for _, reason in allowed} <= {
            "transpose of the gather",
            "the derivative takes what the program takes",
            "how many points there are",
        }, str(derived)
        assert [str(one) for one in ix.check(str(derived)) if one.severity != "note"] == []
