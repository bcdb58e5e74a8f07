"""Patterns as text for a terminal, as JSON, and as a piece of HTML without scripts."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np

from ..checker.names import counted
from ..diagnostics import CallError, Diagnostic
from ..run.patterns import DECIDED_BY, THRESHOLDS, WORDS, Array, Head, Patterns, Row
from . import SORTS
from .numbers import table

# A table of rows is shown unasked up to this many.
FEW_ROWS = 40

# Heads that have a picture; further heads have only their line in the table.
MOST_PICTURES = 48

# A picture has at most this many cells in each direction, in text and in HTML; of a larger head, they are means.
TEXT_CELLS = 24
HTML_CELLS = 48

# Lines of pictures are broken at this column.
WIDTH = 80

SHADES = " ░▒▓█"

# Steps of the one colour of a picture in HTML.
STEPS = 8

# By each of `SORTS`, what is compared. Figures are sorted from the largest down, those that are not defined last; words
# in the order in which they are tried.
_COMPARED: dict[str, Callable[[Head], float]] = {
    "head": lambda head: 0,
    "word": lambda head: list(WORDS).index(head.words[0]) if head.words else len(WORDS),
    "entropy": lambda head: _downwards(head.entropy),
    "keys": lambda head: _downwards(head.effective_keys),
    "self": lambda head: _downwards(head.on_self),
    "previous": lambda head: _downwards(head.on_previous),
    "first": lambda head: _downwards(head.on_first),
    "distance": lambda head: _downwards(head.distance),
}


def _downwards(value: float) -> float:
    return math.inf if math.isnan(value) else -value


def sort_heads(patterns: Patterns, sort_by: str) -> list[Head]:
    """The heads in an order that is asked for; those that are equal in it stay in the order of the array."""
    if sort_by not in SORTS:
        message = f"heads cannot be sorted by `{sort_by}`"
        raise CallError([Diagnostic("IX515", message, help=f"sort by one of: {', '.join(SORTS)}")])
    return sorted(patterns.heads, key=_COMPARED[sort_by])


# ----------------------------------------------------------------------- text


def show_patterns(patterns: Patterns, rows: bool = False, sort_by: str = "head") -> str:
    """A table of the heads, a picture of each, and, where they are few or asked for, a table of the rows."""
    heads = sort_heads(patterns, sort_by)
    parts = [_headline(patterns)]
    if heads:
        lines = [_HEAD_COLUMNS, *(_head_cells(head) for head in heads)]
        parts.append("\n".join(table(lines)))
    parts += _pictures(patterns, heads)
    count = len(heads) * patterns.queries
    if rows or count <= FEW_ROWS:
        parts += [_rows(patterns, head) for head in heads if patterns.queries]
    else:
        parts.append(f"{count} rows are not shown")
    return "\n\n".join([*parts, *_meanings(patterns)])


def _meanings(patterns: Patterns) -> list[str]:
    """The words that were given, each with its condition and the numbers that decide it."""
    given = [word for word in WORDS if any(head.counts[word] for head in patterns.heads)]
    return ["\n".join(["words", *table([[word, meaning_of(word)] for word in given])])] if given else []


def meaning_of(word: str) -> str:
    """When a word is given, and by which numbers."""
    numbers = ", ".join(f"{name}: {THRESHOLDS[name].value:g}" for name in DECIDED_BY.get(word, ()))
    return f"{WORDS[word]} ({numbers})" if numbers else WORDS[word]


def _headline(patterns: Patterns) -> str:
    """The number of heads and their size; and where the stated and the found causality disagree."""
    sizes = f"{_queries(patterns.queries)} × {counted(patterns.keys, 'key')}"
    line = f"{counted(len(patterns.heads), 'head')} of {sizes}, {patterns.dtype}"
    leaks = _leaks(patterns)
    return f"{line}\n{leaks}" if leaks else line


def _queries(number: int) -> str:
    return "1 query" if number == 1 else f"{number} queries"


def _leaks(patterns: Patterns) -> str:
    """The heads that were said to be causal, and are not."""
    leaks = [_label(head.index) for head in patterns.heads if head.causal is False] if patterns.causal else []
    if not leaks:
        return ""
    shown = "; ".join(leaks[:8]) + ("; …" if len(leaks) > 8 else "")
    return f"said to be causal, but {counted(len(leaks), 'head')} ({shown}) gave weight to keys after the query"


_HEAD_COLUMNS = ["head", "word", "rows", "entropy", "keys", "self", "previous", "first", "distance", "causal"]
_CAUSAL = {True: "yes", False: "no", None: "–"}


def _head_cells(head: Head) -> list[str]:
    figures = (head.entropy, head.effective_keys, head.on_self, head.on_previous, head.on_first, head.distance)
    words = ", ".join(head.words) or "–"
    share = f"{head.counts[head.words[0]]} of {sum(head.counts.values())}" if head.words else "0"
    share += " each" if len(head.words) > 1 else ""
    return [_label(head.index), words, share, *map(_figure, figures), _CAUSAL[head.causal]]


def _label(index: tuple[int, ...]) -> str:
    """`2, 0`, and a dash for the one head of an array that has no axis for heads."""
    return ", ".join(map(str, index)) or "–"


def _figure(value: float) -> str:
    """A figure, or a dash where it is not defined."""
    return "–" if math.isnan(value) else _weight(value)


def _weight(value: float) -> str:
    """A weight as it is: a NaN is shown."""
    return f"{value:.2g}" if abs(value) >= 1e6 else f"{value:.2f}"


def _rows(patterns: Patterns, head: Head) -> str:
    lines = [_ROW_COLUMNS, *(_row_cells(row) for row in patterns.rows(head.index))]
    title = f"rows of head {_label(head.index)}" if head.index else "rows"
    return "\n".join([title, *table(lines)])


_ROW_COLUMNS = [
    "query", "position", "word", "entropy", "keys", "largest", "at", "self", "previous", "first", "distance", "heard",
    "carrying", "sum",
]  # fmt: skip


def _row_cells(row: Row) -> list[str]:
    at = str(row.largest_key) if row.largest_key >= 0 else "–"
    weights = [_weight(value) for value in (row.on_self, row.on_previous, row.on_first)]
    return [
        str(row.query), str(row.position), row.word, _figure(row.entropy), _figure(row.effective_keys),
        _weight(row.largest), at, *weights, _figure(row.distance), str(row.heard), str(row.carrying),
        f"{row.total:.6g}",
    ]  # fmt: skip


def _pictures(patterns: Patterns, heads: list[Head]) -> list[str]:
    """Pictures side by side, as many as there is room for; each line is shaded against its own largest cell."""
    if not patterns.queries or not patterns.keys or not heads:
        return []
    drawn = [_picture(patterns, head) for head in heads[:MOST_PICTURES]]
    width = max(len(line) for picture in drawn for line in picture)
    across = max(1, (WIDTH - 2) // (width + 2))
    lines = []
    for first in range(0, len(drawn), across):
        group = zip(*drawn[first : first + across], strict=True)
        lines += ["", *(f"  {'  '.join(line.ljust(width) for line in cells)}".rstrip() for cells in group)]
    left = len(heads) - len(drawn)
    lines += ["", f"… and {counted(left, 'more head')} without a picture"] if left else []
    return ["\n".join(lines[1:])]


def _picture(patterns: Patterns, head: Head) -> list[str]:
    shades = _shades(patterns.weights[head.index], TEXT_CELLS, len(SHADES) - 1)
    cells = ["".join("?" if shade < 0 else SHADES[shade] for shade in line) for line in shades.tolist()]
    return [f"head {_label(head.index)}", *cells] if head.index else cells


def _shades(weights: Array, most: int, steps: int) -> Array:
    """The cells of a picture as whole numbers: 0 where every weight is exactly 0, up to `steps` for the largest cell of
    a line, and -1 where a weight is negative or not finite."""
    cells = weights.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        cells = np.where(cells >= 0, cells, np.nan)
        for axis, size in enumerate(cells.shape):
            if size > most:
                edges = np.arange(most + 1) * size // most
                counts = np.diff(edges).reshape((-1, 1) if axis == 0 else (1, -1))
                cells = np.add.reduceat(cells, edges[:-1], axis) / counts
    strange = ~np.isfinite(cells)
    cells = np.where(strange, 0, cells)
    largest = cells.max(-1, keepdims=True)
    part = np.divide(cells, largest, out=np.zeros_like(cells), where=largest > 0)
    return np.where(strange, -1, np.ceil(part * steps)).astype(int)


# ----------------------------------------------------------------------- json


def patterns_json(patterns: Patterns) -> dict[str, Any]:
    """Everything that was found, and the thresholds. A figure that is not defined is null; an infinite one is text."""
    return {
        "shape": list(patterns.weights.shape),
        "dtype": patterns.dtype,
        "causal": patterns.causal,
        "tolerance": patterns.tolerance,
        "thresholds": {name: threshold.value for name, threshold in THRESHOLDS.items()},
        "heads": [_head_json(patterns, head) for head in patterns.heads],
    }


def _head_json(patterns: Patterns, head: Head) -> dict[str, Any]:
    return {
        "head": list(head.index),
        "word": head.word,
        "words": list(head.words),
        "counts": dict(head.counts),
        "causal": head.causal,
        **_figures_json(head, ("entropy", "effective_keys", "on_self", "on_previous", "on_first", "distance")),
        "rows": [_row_json(row) for row in patterns.rows(head.index)],
    }


def _row_json(row: Row) -> dict[str, Any]:
    names = ("entropy", "effective_keys", "largest", "on_self", "on_previous", "on_first", "distance", "total")
    return {
        "query": row.query,
        "position": row.position,
        "word": row.word,
        "largest_key": row.largest_key if row.largest_key >= 0 else None,
        "heard": row.heard,
        "carrying": row.carrying,
        **_figures_json(row, names),
    }


def _figures_json(found: Head | Row, names: tuple[str, ...]) -> dict[str, float | str | None]:
    values = {name: getattr(found, name) for name in names}
    return {n: None if math.isnan(v) else str(v) if math.isinf(v) else v for n, v in values.items()}


# ----------------------------------------------------------------------- html

_INK = "".join(f".ix-patterns .s{step}{{fill-opacity:{step / STEPS:g}}}" for step in range(1, STEPS + 1))
_STYLE = (
    ".ix-patterns{--ink:#08519c;--text:#1b1b1b;--ground:#ffffff;--rule:#c8c8c8;color:var(--text);"
    "background:var(--ground);font:14px/1.4 system-ui,sans-serif;overflow-x:auto;padding:.5em}"
    "@media(prefers-color-scheme:dark){.ix-patterns{--ink:#9ecae1;--text:#e8e8e8;--ground:#161616;--rule:#4a4a4a}}"
    ".ix-patterns table{border-collapse:collapse;margin:.5em 0}"
    ".ix-patterns caption{text-align:left;padding:.3em 0}"
    ".ix-patterns th,.ix-patterns td{border-bottom:1px solid var(--rule);padding:.3em .6em;text-align:left;"
    "font-variant-numeric:tabular-nums}"
    ".ix-patterns svg{display:block;width:96px;min-height:12px;border:1px solid var(--rule)}"
    ".ix-patterns rect{fill:var(--ink)}"
    ".ix-patterns .strange{fill:none;stroke:var(--text);stroke-width:.2}" + _INK
)


def patterns_html(patterns: Patterns, sort_by: str = "head") -> str:
    """A piece of HTML to put into a page: a table of the heads with a picture of each, and of the rows where they are
    few. It has no scripts, and its style applies to nothing outside it."""
    heads = sort_heads(patterns, sort_by)
    body = [_html_row([*_HEAD_COLUMNS, "all words", "picture"], "th")]
    for number, head in enumerate(heads):
        words = ", ".join(f"{word} {count}" for word, count in head.counts.items() if count)
        picture = _thumbnail(patterns, head) if number < MOST_PICTURES else "–"
        body.append(_html_row([*_head_cells(head), words], "td", picture))
    parts = [_html_table(_headline(patterns), body)]
    if len(heads) > MOST_PICTURES:
        parts.append(f"<p>The first {MOST_PICTURES} heads have a picture.</p>")
    if len(heads) * patterns.queries <= FEW_ROWS:
        for head in heads:
            lines = [_html_row(_row_cells(row), "td") for row in patterns.rows(head.index)]
            title = f"rows of head {_label(head.index)}" if head.index else "rows"
            parts.append(_html_table(title, [_html_row(_ROW_COLUMNS, "th"), *lines]))
    return f'<div class="ix-patterns"><style>{_STYLE}</style>\n' + "\n".join(parts) + "\n</div>\n"


def _html_table(caption: str, rows: list[str]) -> str:
    return "\n".join([f"<table><caption>{escape(caption)}</caption>", *rows, "</table>"])


def _html_row(cells: list[str], tag: str, picture: str = "") -> str:
    opening = '<th scope="col">' if tag == "th" else "<td>"
    inside = "".join(f"{opening}{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inside}<td>{picture}</td></tr>" if picture else f"<tr>{inside}</tr>"


def _thumbnail(patterns: Patterns, head: Head) -> str:
    """The head as rectangles, one for each run of equal cells in a line; cells without weight are left open."""
    weights = patterns.weights[head.index]
    if not weights.size:
        return "–"
    shades = _shades(weights, HTML_CELLS, STEPS)
    height, width = shades.shape
    rectangles = []
    for y, line in enumerate(shades.tolist()):
        start = 0
        for x in range(1, width + 1):
            if x == width or line[x] != line[start]:
                rectangles += [_rectangle(start, y, x - start, line[start])] if line[start] else []
                start = x
    title = f"<title>{escape(f'head {_label(head.index)}: {head.evidence}')}</title>"
    frame = f'viewBox="0 0 {width} {height}" preserveAspectRatio="none" shape-rendering="crispEdges"'
    return f'<svg role="img" {frame}>{title}{"".join(rectangles)}</svg>'


def _rectangle(x: int, y: int, width: int, shade: int) -> str:
    name = "strange" if shade < 0 else f"s{shade}"
    return f'<rect class="{name}" x="{x}" y="{y}" width="{width}" height="1"/>'
