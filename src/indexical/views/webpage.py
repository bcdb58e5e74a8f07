"""One self-contained page: its data, its script and its style in one file. It needs no network and no server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from ..ir.functions import FUNCTIONS
from .editing import words_script

_SCRIPTS = (
    "dom.js",
    "colours.js",
    "evaluate.js",
    "again.js",
    "written.js",
    "tokens.js",
    "parse.js",
    "expressions.js",
    "claims.js",
    "lower.js",
    "elaborate.js",
    "given.js",
    "reads.js",
    "define.js",
    "inline.js",
    "lift.js",
    "spelled.js",
    "patterns.js",
    "page.js",
    "words.js",
    "pointing.js",
    "program.js",
    "listening.js",
    "picture.js",
    "grid.js",
    "stage.js",
    "motion.js",
    "working.js",
    "captions.js",
    "panel.js",
    "live.js",
    "remake.js",
    "edit.js",
    "saved.js",
    "beside.js",
    "export.js",
    "print.js",
)
# What a page of heads, and one with a text, have beside these.
_OF_HEADS = ("remade.js", "matrix.js", "heads.js")
_OF_LESSONS = ("lesson.js", "question.js")

_FRAME = """<!doctype html>
<html lang="en" data-theme="auto">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header class="top">
<span class="mark" aria-hidden="true">indexical<b>[i]</b></span>
<h1>{title}</h1>
<fieldset id="voices" class="segments"><legend>words</legend>
<label><input type="radio" name="voice" value="plain" checked><span>plain words</span></label>
<label><input type="radio" name="voice" value="notation"><span>notation</span></label>
</fieldset>
<fieldset id="forms" class="segments"><legend>numbers</legend>
<label><input type="radio" name="form" value="decimal" checked><span>decimal</span></label>
<label><input type="radio" name="form" value="exact"><span>exact</span></label>
<label><input type="radio" name="form" value="structural"><span>structural</span></label>
</fieldset>
<button type="button" id="reset" class="plain" disabled>Reset</button>
<button type="button" id="export" class="plain wide" title="save the stage as an SVG picture">SVG</button>
<button type="button" id="points" class="plain wide" title="save the stage as a PNG picture">PNG</button>
<select id="theme" aria-label="colours"><option>auto</option><option>light</option><option>dark</option></select>
</header>
<main id="page"></main>
<noscript><p>This page needs scripts. Its program stands in the data at its end.</p></noscript>
<script type="application/json" id="data">{data}</script>
{attached}<script>
{script}</script>
</body>
</html>
"""

_ATTACHED = '<script type="text/plain" id="{id}">{text}</script>\n'


def page_html(title: str, blocks: list[dict[str, Any]], attached: Mapping[str, str] | None = None) -> str:
    """A page of blocks: prose, programs, questions, heads; and what is read when it is asked for, in base 64."""
    room = files("indexical.views") / "page"
    heads = any(block["kind"] == "heads" for block in blocks)
    exact = any("exact" in tensor for b in blocks for page in b.get("pages", ()) for tensor in page["tensors"])
    has_text = any(block["kind"] not in ("program", "heads") or block.get("opening") for block in blocks)
    styles = ("page.css", "edit.css", *["heads.css"] * heads)
    return _FRAME.format(
        title=escape(title),
        style="".join(_tight((room / name).read_text(encoding="utf-8")) for name in styles),
        attached="".join(_ATTACHED.format(id=id, text=text) for id, text in (attached or {}).items()),
        data=embedded({"title": title, "blocks": blocks, "exact": exact}),
        script="\n".join(map(script, (*_SCRIPTS, *_OF_LESSONS * has_text, *_OF_HEADS * heads, "app.js"))),
    )


def script(name: str) -> str:
    """One of the page's scripts; `evaluate.js` with the elementwise functions that it calls by name, `tokens.js` with
    the words of the language."""
    text = _tight((files("indexical.views") / "page" / name).read_text(encoding="utf-8"))
    if name == "tokens.js":
        return f"{text}\n{words_script()}"
    if name != "evaluate.js":
        return text
    functions = ", ".join(f"{function}: {row.javascript}" for function, row in FUNCTIONS.items())
    return f"{text}\nconst FUNCTIONS = {{ {functions} }};\n"


def _tight(text: str) -> str:
    """A script or a style without what only its readers need: indentation, empty lines, lines of comment."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//")) + "\n"


def embedded(data: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or start markup."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(
        {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}
    )
