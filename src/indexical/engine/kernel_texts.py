"""The texts of kernels that emitted modules call: files of a package, which run without the rest of it."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import resources

KERNELS = f"{__name__.partition('.')[0]}.backends.kernels"
# The names that a module gives in its own lines: of functions and classes, of variables, and of what it imports. They
# are found so in a tenth of the time that parsing all texts takes, in the first call of a process.
_NAMES = re.compile(
    r"^(?:def|class) (\w+)|^(\w+(?:, \w+)*)(?:: .+)?(?: = |$)|^(?:from \S+ )?import (\w[^(\n]*|\((?:[^)]*)\))", re.M
)
_CALLED = re.compile(r"(?<!def )(?<![.\w])\w+(?=\()")
_WORD = re.compile(r"(?:\w[\w.]* as )?(?<![.\w])(\w+)")


@cache
def reserved(library: str) -> frozenset[str]:
    """Names that an emitted module has uses for: none of its variables may be called so."""
    files = (path for path in resources.files(KERNELS).iterdir() if path.name.startswith(f"{library}_"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    words = {word for text in texts for found in _NAMES.findall(text) for word in _WORD.findall("".join(found))}
    return frozenset({*words, "attend", "joint", "check"})


@lru_cache(maxsize=1024)
def called_in(text: str) -> tuple[str, ...]:
    """What a text calls by name, each once: small functions are printed for many programs."""
    return tuple(dict.fromkeys(_CALLED.findall(text)))
