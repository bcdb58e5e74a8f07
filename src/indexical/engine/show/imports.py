"""Lines of imports as a module has them: those of the standard library first, each module once, in order."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

_FROM = re.compile(r"from (\S+) import (.+)")


def imported(lines: Iterable[str]) -> str:
    """The imports of these lines, in two groups."""
    whole: set[str] = set()
    parts: dict[str, set[str]] = {}
    for line in lines:
        if found := _FROM.fullmatch(line):
            parts.setdefault(found[1], set()).update(found[2].split(", "))
        else:
            whole.add(line.removeprefix("import "))
    groups = []
    for own in (True, False):
        plain = [f"import {name}\n" for name in sorted(whole, key=_module) if _is_standard(name) == own]
        taken = [
            f"from {module} import {', '.join(sorted(names, key=_member))}\n"
            for module, names in sorted(parts.items())
            if _is_standard(module) == own
        ]
        groups += ["".join(plain + taken)] if plain or taken else []
    return "\n".join(groups)


def _is_standard(name: str) -> bool:
    return _module(name).partition(".")[0] in sys.stdlib_module_names


def _module(name: str) -> str:
    return name.split(" as ")[0]


def _member(name: str) -> tuple[int, str]:
    """Where a name stands among those of its module: constants, then classes, then functions."""
    if name.isupper() and len(name) > 1:
        return 0, name
    return (1, name) if name[0].isupper() else (2, name)
