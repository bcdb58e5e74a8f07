"""A text for a terminal as a fragment of HTML, and the style that all fragments share."""

from __future__ import annotations

from html import escape

STYLE = (
    "<style>.indexical{font-size:13px;line-height:1.5}.indexical table{border-collapse:collapse;margin:.3em 0 1em}"
    ".indexical td,.indexical th{border:1px solid #8886;padding:.15em .5em;text-align:center;"
    "font-family:monospace;font-weight:400}.indexical .masked{background:repeating-linear-gradient("
    "45deg,transparent 0 5px,#8886 5px 6px)}.indexical pre{white-space:pre-wrap}</style>"
)


def text_html(text: str) -> str:
    """A text for a terminal, as it is."""
    return f'{STYLE}<div class="indexical"><pre>{escape(text)}</pre></div>'


class Sheet:
    """A text for a terminal; in a notebook it is that text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return text_html(str(self))
