"""Exact results as text for a terminal, and as JSON."""

from __future__ import annotations

import itertools
from typing import Any

from ..numbers.results import Results, Tensor, Value
from ..numbers.tower import Number
from .numbers import readable, table

# More cells than this of one definition are not printed.
MOST_CELLS = 400


def show_results(results: Results, names: list[str], digits: int | None = None, form: str = "structural") -> str:
    """Definition by definition; then where exactness ended, if it did."""
    parts = [show_tensor(results.tensor(name), digits, form) for name in names]
    return "\n\n".join([*parts, *_boundary(results)])


def _boundary(results: Results) -> list[str]:
    lines = []
    for let, functions in results.evaluated.ended():
        words = ", ".join(f"`{function}`" for function in sorted(functions))
        lines.append(f"exactness ends at `{let.name}`: {words} is a named term from there on; its digits are proven")
    return ["\n".join(lines)] if lines else []


def show_tensor(tensor: Tensor, digits: int | None = None, form: str = "structural") -> str:
    """The coordinates, the shape and every number of a definition, row by row."""
    sizes = " × ".join(map(str, tensor.shape))
    inside = ", ".join(tensor.coordinates)
    proven = "" if digits is None else f"  to {digits} digits, each proven"
    head = f"{tensor.name}[{inside}]  {sizes}{proven}" if tensor.coordinates else f"{tensor.name}{proven}"
    known = [size for size in tensor.shape if isinstance(size, int)]
    count = 1
    for size in known:
        count *= size
    if count > MOST_CELLS:
        return f"{head}\n  {count:,} numbers; ask for one with `ix trace --at`, or for all with `--format json`"
    if len(known) < len(tensor.shape) or not known:
        lines = [f"  {_label(tensor, value)}{show_value(value, digits, form)}" for value in tensor.values()]
        return "\n".join([head, *lines])
    return "\n".join([head, *_blocks(tensor, known, digits, form)])


def _label(tensor: Tensor, value: Value) -> str:
    return f"{value.name} = " if tensor.coordinates else ""


def _blocks(tensor: Tensor, sizes: list[int], digits: int | None, form: str) -> list[str]:
    """Rows and columns; the leading coordinates one by one."""
    lines: list[str] = []
    for place in itertools.product(*(range(size) for size in sizes[:-2])):
        if place:
            fixed = ", ".join(f"{name} = {at}" for name, at in zip(tensor.coordinates, place, strict=False))
            lines.append(f"  {fixed}")
        part = tensor[place] if place else tensor
        rows = [list(part)] if len(sizes) == 1 else [list(row) for row in part]
        if rows and rows[0]:
            texts = [[show_value(value, digits, form) for value in row] for row in rows]
            lines += table(texts, "    " if place else "  ")
    return lines


def show_value(value: Value, digits: int | None, form: str) -> str:
    """A number in the form that was asked for."""
    if value.masked:
        return "masked"
    if digits is not None and not value.symbols and not isinstance(value.number, bool):
        return value.decimal(digits)
    match form:
        case "canonical":
            return value.canonical()
        case "named":
            return value.named()
        case "spelled":
            return value.spelled()
        case "readable" if not isinstance(value.number, Number):
            return readable(value.number)
        case _:
            return str(value)


def results_json(results: Results, names: list[str], digits: int | None = None) -> dict[str, Any]:
    """Every number in its forms, as plain lists and strings."""
    return {
        "definitions": [
            {
                "name": name,
                "coordinates": list(results.tensor(name).coordinates),
                "shape": list(results.tensor(name).shape),
                "values": results.tensor(name).to_json(digits),
            }
            for name in names
        ],
        "exactness_ends_at": [
            {"name": let.name, "functions": sorted(functions)} for let, functions in results.evaluated.ended()
        ],
    }
