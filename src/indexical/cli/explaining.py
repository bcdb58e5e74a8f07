"""The command that prints the page of a code."""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from collections.abc import Iterator
from difflib import get_close_matches

from ..codes import CODES, page_file, page_of
from .words import Usage, in_colour


def explain_command(options: Namespace) -> int:
    codes = [_code(word) for word in options.codes]
    if options.format == "json":
        print(json.dumps([_entry(code) for code in codes or CODES]))
    elif codes:
        bold = in_colour(sys.stdout, options)
        print("\n\n".join("\n".join(_shown(_page(code), bold)) for code in codes))
    else:
        for code, entry in CODES.items():
            print(f"{code}  {entry.severity:<7}  {entry.title}")
    return 0


def _code(word: str) -> str:
    """A code as it is written, in lower case, or without its letters."""
    code = word.upper() if word.upper().startswith("IX") else f"IX{word}"
    if code in CODES:
        return code
    close = get_close_matches(code, CODES, 3)
    known = f"did you mean {', '.join(close)}?" if close and word[-1:].isdigit() else "`ix explain` lists all"
    raise Usage(f"there is no code {word}; {known}")


def _page(code: str) -> str:
    try:
        return page_file(code).read_text(encoding="utf-8")
    except OSError as problem:
        raise Usage(f"the page of {code} cannot be read: {problem.filename}: {problem.strerror}") from None


def _entry(code: str) -> dict[str, str]:
    entry = CODES[code]
    return {"code": code, "severity": entry.severity, "title": entry.title, "url": page_of(code), "page": _page(code)}


def _shown(page: str, bold: bool) -> Iterator[str]:
    """A page for a terminal: headings without their marks, blocks set in, links as their words."""
    inside = False
    for line in page.rstrip().splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside:
            yield f"    {line}".rstrip()
        else:
            # What looks like a link may be code, `sum[d](x[d])`.
            text = re.sub(r"(`[^`]*`)|\[([^\]]*)\]\([^)]*\)", lambda found: found[1] or found[2], line)
            heading = re.sub(r"^#+ ", "", text)
            yield f"\x1b[1m{heading}\x1b[0m" if bold and heading != text else heading
