"""The parts with which a page reads a text by itself: the words of the language, and the standard library."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from ..checker.absence import SCANNING
from ..checker.modules import standard_folder
from ..diagnostics import Sink
from ..ir import nodes as ir
from ..ir.functions import FUNCTIONS
from ..ir.operations import EVERY, OPERATORS, Operation
from ..run.patterns import THRESHOLDS, TOLERANCES, WORDS
from ..source import Source
from ..syntax import vocabulary
from ..syntax.tokens import INSTEAD, tokenize


@cache
def words_script() -> str:
    """The words of the language as a script has them, and the modules of the standard library."""
    paths = sorted(standard_folder().glob("*.ix"))
    texts = {f"std::{path.stem}": bare_text(path.read_text(encoding="utf-8")) for path in paths}
    return f"const WORDS = {_json(_words())};\nconst STANDARD = {_json(texts)};\n"


def _json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _words() -> dict[str, Any]:
    operations: dict[str, Operation] = {**OPERATORS, **FUNCTIONS}
    return {
        "reductions": vocabulary.REDUCTIONS,
        "normalisers": vocabulary.NORMALISERS,
        "scanning": sorted(SCANNING),
        "arity": vocabulary.FUNCTIONS,
        "whole": [name for name, row in operations.items() if row.keeps_whole],
        "present": {
            name: "every" if row.present == EVERY else [*row.present] for name, row in operations.items() if row.present
        },
        "dtypes": vocabulary.DTYPES,
        "stored": vocabulary.STORED_DTYPES,
        "roles": vocabulary.ROLES,
        "flags": vocabulary.FLAGS,
        "groupings": vocabulary.GROUPINGS,
        "rows": vocabulary.ROW_SUMS,
        "pasted": vocabulary.PRINTED_AS,
        "reserved": sorted(vocabulary.RESERVED),
        "library": sorted(vocabulary.LIBRARY),
        "foreign": vocabulary.FOREIGN,
        "instead": INSTEAD,
        "thresholds": {name: threshold.value for name, threshold in THRESHOLDS.items()},
        "tolerance": TOLERANCES["float64"],
        "patterns": list(WORDS),
    }


def bare_text(text: str) -> str:
    """A text without its comments and empty lines."""
    _, comments = tokenize(Source("", text), Sink())
    for comment in reversed(comments):
        text = text[: comment.start] + text[comment.end :]
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def modules_json(program: ir.Program) -> dict[str, str]:
    """The modules that stand in files beside the program, by the names that it uses them by."""
    here = Path(program.source.name).resolve().parent
    beside = [source for source in program.modules if Path(source.name).resolve().parent == here]
    return {Path(source.name).stem: bare_text(source.text) for source in beside}
