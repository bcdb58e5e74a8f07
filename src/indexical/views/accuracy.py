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
    """Each output: the mean and the worst error, and the point of the worst."""
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
    lines = [f"errors of {backend}, in units in the last place of each output", "", *table(rows, "")]
    for output in outputs:
        if output.first_wrong is not None:
            first = output.first_wrong
            lines.append(
                f"{output.name}: {output.wrong:,} of {output.points:,} values are infinite or NaN where the true ones "
                f"are not, or the reverse; the first is {_place(output, first.place)} = {first.computed!r}, and "
                f"{first.true} is true"
            )
    return "\n".join(lines)


def _place(output: Accuracy, place: tuple[int, ...]) -> str:
    return f"{output.name}[{', '.join(map(str, place))}]" if place else output.name


def _units(error: Fraction | None) -> str:
    if error is None:
        return ""
    return f"{float(error):.3g}" if error < MOST_FLOAT else decimal(error, 3)


def accuracy_json(outputs: tuple[Accuracy, ...], backend: str) -> dict[str, Any]:
    return {
        "backend": backend,
        "outputs": [
            {
                "name": output.name,
                "dtype": output.dtype,
                "points": output.points,
                "mean_ulp": _number(output.mean),
                "not_finite": output.wrong,
                "worst": _worst_json(output.worst),
                "first_not_finite": _worst_json(output.first_wrong),
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
