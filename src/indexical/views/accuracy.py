"""Errors of a run as text for a terminal, and as JSON."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..numbers.accuracy import Accuracy, Worst
from ..numbers.digits import decimal
from .numbers import table

# An error that is larger is written by its digits: it may be larger than any float.
MOST_FLOAT = 10**300


def show_accuracy(outputs: tuple[Accuracy, ...], backend: str) -> str:
    """Each output: the mean and the worst error, and the point of the worst; then why."""
    rows = [["output", "dtype", "points", "mean", "worst", "at", "computed", "true"]]
    for output in outputs:
        worst = output.worst
        rows.append(
            [
                output.name,
                output.dtype,
                f"{output.points:,}",
                _units(output.mean),
                "" if worst is None else _units(worst.error),
                "" if worst is None else _place(output, worst.place),
                "" if worst is None else f"{worst.computed!r}",
                "" if worst is None else worst.true,
            ]
        )
    whose = f"errors of {backend}" if backend else "errors of what was computed"
    lines = [f"{whose}, in units in the last place of each output", "", *table(rows, "")]
    for output in outputs:
        lines += [f"{output.name}: {words}" for words in _remarks(output)]
    return "\n".join(lines)


def _remarks(output: Accuracy) -> list[str]:
    """Further lines about an output: how much of it was measured, what is not finite, why it is off."""
    said = []
    if output.measured < output.points:
        said.append(f"{output.measured:,} of {output.points:,} points were measured, spread over all of it")
    if output.first_wrong is not None:
        first = output.first_wrong
        said.append(
            f"{output.wrong:,} of {output.points:,} values are infinite or NaN where the true ones are not, or the "
            f"reverse; the first is {_place(output, first.place)} = {first.computed!r}, and {first.true} is true"
        )
    for reason in output.reasons:
        share = "" if reason.share is None else f" (computed so, {_percent(reason.share)} of what is off is explained)"
        said.append(f"{reason.words}{share}")
    return said


def _percent(share: float) -> str:
    """A share that is not all is never written as 100 %."""
    return "all" if share > 0.9999 else f"{min(share, 0.999):.1%}".replace("%", " %")


def _place(output: Accuracy, place: tuple[int, ...]) -> str:
    """The point of an output, by the names of its coordinates; a `..r` may be several axes, which have none."""
    if not place:
        return output.name
    names = [""] * (len(place) - len(output.coordinates)) + [f"{name}=" for name in output.coordinates]
    named = not output.coordinates[0].startswith("..") and len(names) == len(place)
    return f"{output.name}[{', '.join(f'{n}{at}' if named else str(at) for n, at in zip(names, place, strict=True))}]"


def _units(error: Fraction | None) -> str:
    if error is None:
        return ""
    return f"{float(error):.3g}" if error < MOST_FLOAT else decimal(error, 3)


def accuracy_json(outputs: tuple[Accuracy, ...], backend: str) -> dict[str, Any]:
    return {
        "backend": backend or None,
        "outputs": [
            {
                "name": output.name,
                "dtype": output.dtype,
                "points": output.points,
                "measured": output.measured,
                "coordinates": list(output.coordinates),
                "mean_ulp": _number(output.mean),
                "not_finite": output.wrong,
                "worst": _worst_json(output.worst),
                "first_not_finite": _worst_json(output.first_wrong),
                "reasons": [
                    {"kind": reason.kind, "words": reason.words, "share": reason.share, "worst_left_ulp": reason.left}
                    for reason in output.reasons
                ],
            }
            for output in outputs
        ],
    }


def _worst_json(worst: Worst | None) -> dict[str, Any] | None:
    """A point; what is computed there as text, which has a word for infinities."""
    if worst is None:
        return None
    error = None if worst.error is None else _number(worst.error)
    return {"place": list(worst.place), "computed": repr(worst.computed), "true": worst.true, "ulp": error}


def _number(error: Fraction) -> float | str:
    """A float, or the digits of what no float can hold."""
    return float(error) if error < MOST_FLOAT else decimal(error, 3)
