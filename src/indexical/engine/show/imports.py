"""What stands above an emitted function: lines of imports, each module once and in order, and helpers."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TypeAlias

# A module as it is imported, and what is taken of it, "" for the module itself.
Import: TypeAlias = tuple[str, str]

STANDARD: Mapping[str, Import] = {"functools": ("functools", ""), "math": ("math", "")}


def imported(imports: Iterable[Import]) -> str:
    """The lines of imports, in two groups."""
    whole: set[str] = set()
    parts: dict[str, set[str]] = {}
    for module, member in imports:
        if member:
            parts.setdefault(module, set()).add(member)
        else:
            whole.add(module)
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


# ------------------------------------------------------------------------- helpers


def with_needed(names: Iterable[str], texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of helpers by name, each behind those that it calls; a name that no text has is left out."""
    found: dict[str, str] = {}
    met: set[str] = set()

    def visit(name: str) -> None:
        if name in texts and name not in met:
            met.add(name)
            for other in names_in(texts[name]):
                visit(other)
            found[name] = texts[name]

    for name in names:
        visit(name)
    return found


@cache
def names_in(helper: str) -> tuple[str, ...]:
    """The names that the text of a helper reads and does not give itself, in order: of modules, of other helpers."""
    parts = list(ast.walk(ast.parse(helper)))
    own = {part.arg for part in parts if isinstance(part, ast.arg)}
    names = [part for part in parts if isinstance(part, ast.Name)]
    own |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return tuple(dict.fromkeys(name.id for name in sorted(names, key=_place) if name.id not in own))


def _place(name: ast.Name) -> tuple[int, int]:
    return name.lineno, name.col_offset
