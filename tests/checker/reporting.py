"""What the checker says of a text, in a form that is easy to compare."""

from __future__ import annotations

import indexical as ix
from indexical.codes import CODES

# What the lints and contracts say is tested beside them; here a text may leave an input unused.
MEANING = frozenset(code for code in CODES if code.startswith("IX4"))


def findings(text: str) -> list[tuple[str, str]]:
    """Each finding as its code and the text that its caret stands under."""
    return [
        (found.code, found.labels[0].span.text if found.labels else "")
        for found in ix.check(text)
        if found.severity != "note" and found.code not in MEANING
    ]


def codes(text: str) -> list[str]:
    return [code for code, _ in findings(text)]
