"""Errors of a run as text for a terminal, and as JSON."""

from __future__ import annotations

from typing import Any

from ..numbers.accuracy import Accuracy
from .numbers import table


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
        if output.wrong:
            lines.append(
                f"{output.name}: {output.wrong:,} of {output.points:,} values are not finite where the true ones are"
            )
    return "\n".join(lines)


def _place(output: Accuracy, place: tuple[int, ...]) -> str:
    return f"{output.name}[{', '.join(map(str, place))}]" if place else output.name


def _units(error: Any) -> str:
    return f"{float(error):.3g}"


def accuracy_json(outputs: tuple[Accuracy, ...], backend: str) -> dict[str, Any]:
    return {
        "backend": backend,
        "outputs": [
            {
                "name": output.name,
                "dtype": output.dtype,
                "points": output.points,
                "mean_ulp": float(output.mean),
                "not_finite": output.wrong,
                "worst": output.worst
                and {
                    "place": list(output.worst.place),
                    "computed": output.worst.computed,
                    "true": output.worst.true,
                    "ulp": float(output.worst.error),
                },
            }
            for output in outputs
        ],
    }
