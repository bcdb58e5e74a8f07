"""Every word of a contract is proved, refuted with the place or the pair that it fails at, or an error for being
undecided. None is taken on trust."""

from __future__ import annotations

from dataclasses import replace

import pytest

import indexical as ix
from indexical.diagnostics import Sink
from indexical.facts import contracts
from indexical.facts.view import View
from indexical.source import Source
from indexical.syntax import tree, vocabulary
from indexical.syntax.parse import parse

INPUTS = "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];\n"
GROUPED = "input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e], n : i64;\n"
SCORE = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"
WEIGHTS = "let w[b, h, i, j] = softmax[j]({score}){guard};\n"
OUT = "let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, {at}, j, e]);\n"
RIGHT = INPUTS + WEIGHTS.format(score=SCORE, guard=" where j <= i") + OUT.format(at="h")


def guarded(guard: str) -> str:
    return INPUTS + WEIGHTS.format(score=SCORE, guard=f" where {guard}") + OUT.format(at="h")


MASKED = "input seen[i, j] : bool;\n" + guarded("seen[i, j]")


def grouped(at: str) -> str:
    score = SCORE.replace("K[b, h", f"K[b, {at}")
    return GROUPED + WEIGHTS.format(score=score, guard="") + OUT.format(at=at)


def divided(total: str) -> str:
    """Weights made by hand of exponentials, over a total."""
    return (
        f"{INPUTS}let x[b, h, i, j] = exp({SCORE});\n"
        f"let w[b, h, i, j] = x[b, h, i, j] / ({total});\n" + OUT.format(at="h")
    )


SUM = "sum[k](x[b, h, i, k])"
DIFFERENCE = (
    "input Q[b, h, i, d], K[b, h, j, d], P[b, h, i, d], L[b, h, j, d], V[b, h, j, e];\n"
    "let one[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)));\n"
    "let two[b, h, i, j] = softmax[j](sum[d](P[b, h, i, d] * L[b, h, j, d]) / sqrt(size(d)));\n"
    "let w[b, h, i, j] = one[b, h, i, j] - 0.5 * two[b, h, i, j];\n" + OUT.format(at="h")
)
# Weights that nothing divides: their sum is no known number.
FREE = f"{INPUTS}let w[b, h, i, j] = {SCORE};\n" + OUT.format(at="h")

# For each word: a claim that holds; one that fails, and what is said of it; one that nothing decides.
CASES: dict[str, tuple[tuple[str, str], tuple[str, str, str], tuple[str, str]]] = {
    "query": ((RIGHT, "query i"), (RIGHT, "query j", "key, who answers"), (RIGHT, "query z")),
    "key": ((RIGHT, "key j"), (RIGHT, "key i", "query, who asks"), (RIGHT, "key z")),
    "compare": ((RIGHT, "compare d"), (RIGHT, "compare e", "carried feature"), (RIGHT, "compare z")),
    "carry": ((RIGHT, "carry e"), (RIGHT, "carry d", "compared feature"), (RIGHT, "carry z")),
    "head": ((RIGHT, "head h"), (RIGHT, "head i", "query, who asks"), (RIGHT, "head z")),
    "batch": ((RIGHT, "batch b"), (RIGHT, "batch j", "key, who answers"), (RIGHT, "batch z")),
    "causal": ((RIGHT, "causal"), (guarded("j >= i"), "causal", "query 0 listens to key 1"), (MASKED, "causal")),
    "causal offset": (
        (guarded("j <= i + 2"), "causal offset 2"),
        (guarded("j <= i + 2"), "causal offset 1", "query 0 listens to key 2"),
        (MASKED, "causal offset 2"),
    ),
    "groups contiguous": (
        (grouped("h / 2"), "groups contiguous 2"),
        (grouped("h % 2"), "groups contiguous 2", "`h % 2` reads interleaved ones"),
        (grouped("h / 2"), "groups contiguous n"),
    ),
    "groups interleaved": (
        (grouped("h % 2"), "groups interleaved 2"),
        (grouped("h / 2"), "groups interleaved 2", "`h / 2` reads contiguous ones"),
        (grouped("h % 2"), "groups interleaved n"),
    ),
    "rows sum to 1": (
        (RIGHT, ""),
        (divided(f"{SUM} + exp(0.5)"), "", "sum to less than 1"),
        (FREE, ""),
    ),
    "rows at most 1": (
        (divided(f"{SUM} + exp(0.5)"), "rows at most 1"),
        (DIFFERENCE, "rows at most 1", "are not all of one sign"),
        (FREE, "rows at most 1"),
    ),
    "rows signed": (
        (DIFFERENCE, "rows signed"),
        (divided(f"{SUM} - exp(0.5)"), "rows signed", "sum to no number"),
        (FREE, "rows signed"),
    ),
    # Anything has free rows: there is nothing to refute.
    "rows free": ((FREE, "rows free"), (RIGHT, "query j, rows free", "key, who answers"), (RIGHT, "key z, rows free")),
}


def codes(text: str, claims: str) -> list[tuple[str, str]]:
    roles = [] if claims.startswith(("query", "key")) else ["query i", "key j"]
    found = ix.check(f"{text}attention out({', '.join([*roles, *filter(None, [claims])])});")
    return [(finding.code, finding.message) for finding in found if finding.severity == "error"]


def accepted_words() -> set[str]:
    """Every word of a contract, as the parser hands it on."""
    said = [*(f"{role} i" for role in vocabulary.ROLES), *vocabulary.FLAGS, "causal offset 1"]
    said += [f"groups {grouping} 2" for grouping in vocabulary.GROUPINGS]
    said += [f"rows {sums}" for sums in vocabulary.ROW_SUMS]
    sink = Sink()
    (statement,) = parse(Source("test", f"attention out({', '.join(said)});"), sink).statements
    assert not len(sink)
    assert isinstance(statement, tree.Contract)
    return {item.role if isinstance(item, tree.RoleItem) else item.flag for item in statement.items}


def test_every_word_has_exactly_one_check_and_is_tried_here() -> None:
    assert accepted_words() | {contracts.SUM_TO_ONE} == set(contracts.CHECKS) == set(CASES)


@pytest.mark.parametrize("word", CASES)
def test_what_holds_is_proved(word: str) -> None:
    assert codes(*CASES[word][0]) == []


@pytest.mark.parametrize("word", CASES)
def test_what_fails_is_refuted(word: str) -> None:
    text, claims, words = CASES[word][1]
    found = codes(text, claims)
    assert any(words in message for _, message in found), found


@pytest.mark.parametrize("word", CASES)
def test_what_is_undecided_is_an_error(word: str) -> None:
    assert codes(*CASES[word][2])


@pytest.mark.parametrize("word", CASES)
@pytest.mark.parametrize("answer", [None, False, 1])
def test_a_check_that_proves_nothing_is_an_error(
    word: str, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a check returns but True, and though it reports nothing."""
    row = replace(contracts.CHECKS[word], proves=lambda claim: answer)  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(contracts, "CHECKS", {**contracts.CHECKS, word: row})
    text, claims = CASES[word][0]
    found = codes(text, claims)
    assert (row.code, f"`{word}` is not proved") in found


@pytest.mark.parametrize("first", vocabulary.ROW_SUMS)
def test_each_of_several_claims_about_rows_is_checked(first: str) -> None:
    for text in (divided(f"{SUM} + exp(0.5)"), DIFFERENCE, FREE):
        alone = codes(text, f"rows {first}")
        assert codes(text, f"rows {first}, rows free") == alone
        assert codes(text, f"rows free, rows {first}") == alone


def test_contracts_of_all_words_at_once() -> None:
    claims = "compare d, carry e, head h, batch b, causal, causal offset 3, rows at most 1, rows signed, rows free"
    assert codes(RIGHT, claims) == []
    assert View(ix.compile(RIGHT).ir).gathers
