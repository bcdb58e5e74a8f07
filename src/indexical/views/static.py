"""Notebook output: fragments of HTML without scripts, safe wherever they are kept, pasted or stripped."""

from __future__ import annotations

from html import escape
from typing import Any

from ..ir import nodes as ir
from ..numbers.results import Results, Tensor, Value
from ..source import Source
from .document import lines_json
from .exact import MOST_CELLS, show_value
from .fragment import STYLE

# Light and dark: the notebook's own ink and paper; a colour for each coordinate that is readable on both.
_COLOURS = ("#0072b2", "#b06a00", "#009e73", "#d55e00", "#b0578d", "#3a86a8", "#8a7d00", "#7a6bd0")


def program_html(source: Source, program: ir.Program) -> str:
    """The program with every coordinate in its own colour."""
    lines = lines_json(source, program)
    order: dict[str, int] = {}
    for line in lines:
        for text, kind in line:
            if kind == "coordinate":
                order.setdefault(text, len(order))
    rows = ["".join(_piece(text, kind, order) for text, kind in line) for line in lines]
    return f'{STYLE}<div class="indexical"><pre>{chr(10).join(rows)}</pre></div>'


def _piece(text: str, kind: str, order: dict[str, int]) -> str:
    if kind == "coordinate":
        return f'<span style="color:{_COLOURS[order[text] % len(_COLOURS)]}">{escape(text)}</span>'
    if kind == "comment":
        return f'<span style="opacity:.65"><i>{escape(text)}</i></span>'
    return f"<b>{escape(text)}</b>" if kind == "keyword" else escape(text)


def results_html(results: Results, names: list[str]) -> str:
    """Exact values as tables; then where exactness ended."""
    parts = [_tensor(results.tensor(name)) for name in names]
    ended = [
        f"<p>exactness ends at <code>{escape(let.name)}</code>: {escape(', '.join(sorted(functions)))}</p>"
        for let, functions in results.evaluated.ended()
    ]
    return f'{STYLE}<div class="indexical">{"".join(parts)}{"".join(ended)}</div>'


def tensor_html(tensor: Tensor) -> str:
    return f'{STYLE}<div class="indexical">{_tensor(tensor)}</div>'


def _tensor(tensor: Tensor) -> str:
    home = f"{tensor.name}[{', '.join(tensor.coordinates)}]" if tensor.coordinates else tensor.name
    shape = " × ".join(map(str, tensor.shape))
    head = f"<p><code>{escape(home)}</code> {escape(shape)}</p>"
    count = 1
    for size in tensor.shape:
        count *= size if isinstance(size, int) else 1
    if count > MOST_CELLS:
        return f"{head}<p>{count:,} numbers</p>"
    return head + _table(tensor)


def _table(tensor: Any) -> str:
    """The last two axes as a table; the others one under the other."""
    if isinstance(tensor, Value):
        return f"<table><tr>{_cell(tensor)}</tr></table>"
    known = [size for size in tensor.shape if isinstance(size, int)]
    if not known:
        return f"<table><tr>{_cell(tensor.item())}</tr></table>"
    if len(known) > 2:
        return "".join(f"<p>{escape(tensor.coordinates[0])} = {n}</p>{_table(part)}" for n, part in enumerate(tensor))
    rows = [list(tensor)] if len(known) == 1 else [list(row) for row in tensor]
    return f"<table>{''.join('<tr>' + ''.join(map(_cell, row)) + '</tr>' for row in rows)}</table>"


def _cell(value: Value) -> str:
    return '<td class="masked"></td>' if value.masked else f"<td>{escape(show_value(value, None, 'structural'))}</td>"


def page_fragment(html: str, fallback: str, called: str = "as tables") -> str:
    """A page inside a notebook, in a frame of its own; where frames are stripped, its tables or its text are left."""
    frame = (
        f'<iframe srcdoc="{escape(html, quote=True)}" sandbox="allow-scripts allow-downloads" '
        'title="an interactive page" style="width:100%;height:900px;border:1px solid #8886"></iframe>'
    )
    return f"{frame}<details><summary>{called}</summary>{fallback}</details>"
