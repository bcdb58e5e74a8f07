"""Weights that nothing is gathered with: what can be said of them is said, in every spelling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.laws.attended import BASES, NAMES, RAW, text
from tests.plan.families import FAMILIES

import indexical as ix
from indexical.facts.roles import Roles

pytestmark = pytest.mark.sampled(4)

CAUSAL, PLAIN = BASES["causal"], BASES["plain"]
(PROJECTED,) = (family for family in FAMILIES if family.name == "projected")


def alone(written: str) -> str:
    """A program up to its weights."""
    return written[: written.index("let out[")] + "output weights;\n"


def codes(written: str) -> set[str]:
    return {finding.code for finding in ix.check(written)}


def the_roles(written: str) -> Roles:
    (roles,) = ix.compile(written).roles
    return roles


@pytest.mark.parametrize("name", NAMES)
def test_weights_have_roles(name: str) -> None:
    written = alone(text(CAUSAL, name, True))
    roles = the_roles(written)
    assert (roles.definition, roles.kind) == ("weights", "weights"), written
    found = (roles.query, roles.key, roles.compare, roles.carry, roles.hears, roles.direction)
    assert found == (("i",), ("j",), ("d",), (), "j <= i", "causal"), written


@pytest.mark.parametrize("name", NAMES)
def test_a_contract_of_weights_is_checked(name: str) -> None:
    # A value that is multiplied with 0 is heard, and so is a score that only cancels: these are not causal.
    causal = "" if name in RAW or name == "twice normalised" else ", causal"
    written = alone(text(CAUSAL, name, True))
    ix.compile(f"{written}attention weights(query i, key j, compare d, head h, batch b{causal});")
    for wrong, code in (("query j", "IX421"), ("carry e", "IX421"), ("compare i", "IX421")):
        assert code in codes(f"{written}attention weights({wrong});"), wrong
    assert "IX423" in codes(alone(text(PLAIN, name, True)) + "attention weights(query i, key j, causal);")


@pytest.mark.parametrize("name", NAMES)
def test_a_softmax_over_the_query_contradicts_a_contract_of_weights(name: str) -> None:
    written = alone(text(PLAIN, name, True, over="i"))
    # These sum to nothing over the query, and are no weights at all.
    code = "IX420" if name == "shifted above the line alone" else "IX421"
    assert code in codes(f"{written}attention weights(query i, key j, compare d);"), written


@pytest.mark.parametrize("name", NAMES)
def test_a_guard_behind_weights_is_named(name: str) -> None:
    written = alone(text(PLAIN, name, True)).replace("output weights;", "output late;")
    for late in ("weights[b, h, i, j] where j <= i", "weights[b, h, i, j] * ((j <= i) as f64)"):
        assert "IX405" in codes(f"{written}let late[b, h, i, j] = {late};"), written
    kept = "let kept[b, h, i, j] = weights[b, h, i, j] where j <= i;\n"
    again = "let late[b, h, i, j] = kept[b, h, i, j] / sum[k](kept[b, h, i, k]);\n"
    assert "IX405" not in codes(written + kept + again), written


@pytest.mark.parametrize("name", NAMES)
def test_a_projection_of_the_keys_asks_nobody(name: str) -> None:
    family = replace(PROJECTED, guard=())
    roles = the_roles(alone(text(family, name, True)))
    found = (roles.query, roles.key, roles.compare, roles.head, roles.batch)
    assert found == (("i",), ("j",), ("d",), ("h",), ("b",))


def test_weights_that_are_gathered_with_are_said_once() -> None:
    for name in NAMES:
        assert [roles.kind for roles in ix.compile(text(CAUSAL, name, True)).roles] == ["attention"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("code", "score"),
    [
        ("IX407", "sum[d in 0..2](Q[b, 0, i, h * 2 + d] * K[b, 0, j, d * size(h) + h])"),
        ("IX408", "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(i))"),
        ("IX409", "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) / sqrt(size(d))"),
    ],
)
def test_a_mistake_in_the_scores_is_named(code: str, score: str, name: str) -> None:
    written = alone(text(PLAIN, name, True, score=score))
    assert code in {finding.code for finding in ix.compile(written).diagnostics}, written


def test_probabilities_of_classes_need_no_scale() -> None:
    program = ix.compile("input x[n, m], W[c, m];\nlet p[n, c] = softmax[c](sum[m](x[n, m] * W[c, m]));\noutput p;\n")
    assert not program.diagnostics
    assert [roles.kind for roles in program.roles] == ["weights"]


def test_what_the_facts_print_of_weights() -> None:
    shown = str(ix.compile(alone(text(CAUSAL, "softmax", True))).facts).splitlines()
    for line in (
        "weights in `weights`",
        "  who asks?          i",
        "  who answers?       j",
        "  what is compared?  d",
        "  what is carried?   nothing yet: nothing is gathered with them",
        "  which way does it look?            causal: positions up to its own",
    ):
        assert line in shown, "\n".join(shown)
