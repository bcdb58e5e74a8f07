"""Rotary positions that do not meet: on one side alone, or with other angles on the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.needs import read_in
from ..view import View

if TYPE_CHECKING:
    from ..rotations import Side

CODE = "IX416"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    if not view.turns:
        return
    from ..rotations import sides

    for gather in view.scored:
        for _, query, key in sides(view, gather):
            found = None
            twice = [side for side in (query, key) if side.again is not None]
            if twice:
                found = _twice(view, twice[0]) if len(twice) == 1 else None
            elif query.turns and key.turns:
                found = _in_part(view, query, key) or _in_part(view, key, query) or _other_angles(view, query, key)
            elif query.turns or key.turns:
                turned, still = (query, key) if query.turns else (key, query)
                # Keys that come out of a cache may have been turned when they went in: with them, the queries that
                # turn are counted from behind it.
                met = turned.offset(view)
                if still.plain and ((met is not None and met.constant == 0) or turned.inputs & still.inputs):
                    found = _one_side(view, turned, still)
            if found is not None:
                yield gather.site.let, found


def _one_side(view: View, turned: Side, still: Side) -> Diagnostic:
    name, other = turned.factor.expr.span.text, still.factor.expr.span.text
    at = view.shown(turned.at)
    return Diagnostic(
        CODE,
        f"`{name}` is turned by its position, and `{other}` is not",
        (Label(turned.factor.expr.span, f"turns with `{at}`"), Label(still.factor.expr.span, "does not turn")),
        (f"the score depends on where `{at}` is, and not on the distance between the two",),
        "turn both sides, by the same angles",
    )


def _in_part(view: View, side: Side, other: Side) -> Diagnostic | None:
    """Whether a part of a side does not turn, though it is made here: what was kept may have been turned before."""
    for part in side.still:
        names = view.made_of(*read_in(part))
        if {name for name in names if name not in view.lets} & other.inputs:
            at = view.shown(side.at)
            return Diagnostic(
                CODE,
                f"`{side.factor.expr.span.text}` is turned by its position at some `{at}`, and not at others",
                (Label(part.span, "does not turn"), Label(other.factor.expr.span, "meets what turns")),
                ("there the score does not depend on the distance between the two",),
                "turn all of it, before or after it is put together",
            )
    return None


def _twice(view: View, side: Side) -> Diagnostic:
    assert side.again is not None
    return Diagnostic(
        CODE,
        f"`{side.factor.expr.span.text}` is turned by its position twice, in part or as a whole",
        (Label(side.factor.expr.span, "turned again"), Label(side.again.span, "turned before")),
        (f"each `{view.shown(side.at)}` seems to stand twice as far away as it does",),
        "turn it once: before it is put together with what was kept, or after",
    )


def _other_angles(view: View, query: Side, key: Side) -> Diagnostic | None:
    mine, theirs = query.rates(view), key.rates(view)
    if mine is None or theirs is None:
        return None
    both = [(one, other) for one, other in zip(mine, theirs, strict=True) if one is not None and other is not None]
    if all(_is_near(one, other) for one, other in both):
        return None
    over = view.shown(query.over.coordinate)
    ones, others = sorted(one for one, _ in both), sorted(other for _, other in both)
    if all(map(_is_near, ones, others)):
        message = f"the features of `{over}` turn in other pairs on one side than on the other"
        note = "a feature meets one that was turned by another angle: the score does not depend on the distance alone"
        help = "take both in neighbouring pairs, or both in halves"
    else:
        message = f"the features of `{over}` turn faster on one side than on the other"
        note = "the two turns do not cancel at the same position: the score does not depend on the distance alone"
        help = "give both sides the same base and the same scale of positions"
    labels = (Label(query.factor.expr.span, "turned here"), Label(key.factor.expr.span, "turned otherwise"))
    return Diagnostic(CODE, message, labels, (note,), help)


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))
