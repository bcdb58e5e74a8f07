"""Proofs of mistakes in a callable: the checker's findings on what was read, at places in the caller's own file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..api import check_source
from ..diagnostics import Diagnostic, Label
from ..source import Source
from .reading import Reading, reader
from .recording import Site

# What is bad style in this language, and not in PyTorch.
STYLE = frozenset(("IX411",))
# What is meant where a contract says over what the weights are normalised.
OVER_ANOTHER = frozenset(("IX402",))

# A letter of an axis, and the role that it claims. What a relation does not have is not claimed.
ROLES = {"i": "query", "j": "key"}

# What the weights of a query sum to, and the flag that claims it; a claim that says nothing is that of 1.
ROWS = {"1": [], "<=1": ["rows at most 1"], "free": ["rows free"]}


def findings(
    function: Callable[..., Any],
    example: Mapping[str, Any],
    axes: Mapping[str, str] | None = None,
    contract: Any = None,
) -> list[Diagnostic]:
    """Every finding of the checker on a callable, each at its place in the caller's file.

    `example` has the arguments by name, `axes` the letters of their axes (`"b h i d"`), `contract` what is claimed:
    an object or a mapping with `causal`. Raises `ix.Error` where the callable cannot be read.
    """
    reading = reader(function, (), example, axes).program()
    return proved(reading, axes or {}, contract)


def proved(reading: Reading, axes: Mapping[str, str], contract: Any = None) -> list[Diagnostic]:
    """The findings on a program that was read, with what is claimed of it."""
    text = str(reading).rstrip() + "\n"
    claim = _claim(reading, axes, contract)
    found = check_source(Source(reading.ir.source.name, f"{text}\n{claim}\n" if claim else text))
    silent = STYLE | (OVER_ANOTHER if _claims(contract).get("attends") else frozenset())
    told = [
        _placed(reading, finding, len(text))
        for finding in found
        if finding.code not in silent and "is not proved" not in finding.message
    ]
    return [*told, *(_crossed(site) for site in reading.crossings)]


def _crossed(site: Site | None) -> Diagnostic:
    span = None if site is None else site.span
    return Diagnostic(
        "IX604",
        "this view cuts across positions and heads",
        () if span is None else (Label(span, "its axes are not those that were put together"),),
        ("one position of the result has features of several positions, and heads are mixed",),
        "cut the last axis into heads first, and `transpose` then; the other way round on the way out",
    )


def _claim(reading: Reading, axes: Mapping[str, str], contract: Any) -> str | None:
    """The statement of a contract: the letters that were given, by their roles, and what is declared."""
    claims = _claims(contract)
    given = {letter for spec in axes.values() for letter in spec.replace("(", " ").replace(")", " ").split()}
    roles = [f"{role} {letter}" for letter, role in ROLES.items() if letter in given]
    flags = _flags(claims, _letters(reading))
    if not flags or not reading.roles:
        return None
    words = [role for role in roles if role.split()[1] in _letters(reading)]
    return f"attention {reading.outputs[0]}({', '.join((*words, *flags))});"


def _flags(claims: Mapping[str, Any], letters: set[str]) -> list[str]:
    """The flags of a contract: what positions hear, what the weights sum to, how heads share keys."""
    flags = ["causal"] if claims.get("causal") in (True, "square") else []
    if claims.get("causal") == "bottom-right" and {"i", "j"} <= letters:
        flags.append("causal offset size(j) - size(i)")
    if str(claims.get("rows", 1)) in ROWS and not claims.get("attends") and not claims.get("kernel"):
        flags += ROWS[str(claims.get("rows", 1))] if flags or "rows" in claims else []
    if isinstance(claims.get("groups"), int):
        flags.append(f"groups contiguous {claims['groups']}")
    return flags


def _claims(contract: Any) -> Mapping[str, Any]:
    if isinstance(contract, Mapping):
        return contract
    return vars(contract) if hasattr(contract, "__dict__") else {}


def _letters(reading: Reading) -> set[str]:
    return {
        str(axis.coordinate) for tensor in (*reading.ir.inputs, *reading.ir.tensors.values()) for axis in tensor.axes
    }


def _placed(reading: Reading, finding: Diagnostic, length: int) -> Diagnostic:
    """A finding with its places in the caller's file; one that was read from no place has none."""
    labels: dict[Any, Label] = {}
    for label in finding.labels:
        site = reading.place_of(label.span) if label.span.end <= length else None
        span = None if site is None else site.span
        if span is not None:
            labels.setdefault((span.start, span.end), Label(span, label.text))
    return replace(finding, labels=tuple(labels.values()), fix=None)
