"""The texts of kernels that emitted modules call: files of a package, which run without the rest of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

KERNELS = f"{__name__.partition('.')[0]}.backends.kernels"
# What decorates kernels: in a text that is linked, our own stands in for it.
TRITON_IMPORT = "import triton\n"
# The names that a module gives in its own lines: of functions and classes, of variables, and of what it imports. They
# are found so in a tenth of the time that parsing all texts takes, in the first call of a process.
_NAMES = re.compile(
    r"^(?:def|class) (\w+)|^(\w+(?:, \w+)*)(?:: .+)?(?: = |$)|^(?:from \S+ )?import (\w[^(\n]*|\((?:[^)]*)\))", re.M
)
_WORD = re.compile(r"(?:\w[\w.]* as )?(?<![.\w])(\w+)")


@cache
def reserved(library: str) -> frozenset[str]:
    """Names that an emitted module has uses for: none of its variables may be called so."""
    texts = [path.read_text(encoding="utf-8") for path in resources.files(KERNELS).iterdir() if library in path.name]
    words = {word for text in texts for found in _NAMES.findall(text) for word in _WORD.findall("".join(found))}
    return frozenset({*words, "attend", "joint", "check"})


def kernel_texts(files: Iterable[str]) -> list[str]:
    """Kernel files, each after those that it imports, and without these imports: they stand in one module."""
    found: dict[str, str] = {}
    for file in files:
        _include(file, found)
    return [text.strip("\n") for text in found.values()]


def _include(file: str, found: dict[str, str]) -> None:
    """Put a kernel file behind those that it imports, once."""
    if file in found:
        return
    text = (resources.files(KERNELS) / f"{file}.py").read_text(encoding="utf-8")
    lines = text.splitlines()
    ours = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom) and node.level]
    for statement in reversed(ours):
        end = statement.end_lineno or statement.lineno
        if statement.module is None:
            lines[statement.lineno - 1] = TRITON_IMPORT.strip()
            continue
        _include(statement.module, found)
        del lines[statement.lineno - 1 : end + (lines[end] == "")]  # and a blank line below it
    found[file] = "\n".join(lines)
