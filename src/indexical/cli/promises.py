"""What a repository promises, where the command finds it: in `pyproject.toml`, or in a file beside it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ..auditor.promises import Promises, read_promises
from ..diagnostics import Error
from .words import Usage

FILE = "ix-audit.toml"


def found_promises() -> Promises:
    """The promises that the current directory has; none where it has none."""
    tables = {}
    for name in ("pyproject.toml", FILE, "audit.toml"):
        if Path(name).is_file():
            table = _table(name, toml_of(name, name))
            if table is not None:
                tables[name] = table
    if len(tables) > 1:
        raise Usage(f"{' and '.join(tables)} both declare what is audited: keep one of them")
    for name, table in tables.items():
        try:
            return read_promises(table)
        except Error as error:
            told = error.diagnostics[0]
            raise Usage(f"{name}: {told.message}; {told.help}") from None
    return Promises()


def _table(name: str, values: dict[str, Any]) -> Any:
    """The table of an audit in a file. A file of another tool that is also called `audit.toml` has none."""
    if name == "pyproject.toml":
        tool = values.get("tool", {})
        tool = tool.get("indexical", {}) if isinstance(tool, dict) else {}
        found = tool.get("audit") if isinstance(tool, dict) else None
        if found is not None and not isinstance(found, dict):
            raise Usage(f"{name}: `audit` of [tool.indexical] is no table")
        return found
    return values if name == FILE or isinstance(values.get("target"), list) else None


def toml_of(path: str, words: str) -> dict[str, Any]:
    """A file of TOML; what is wrong with it is told behind `words`."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise Usage(f"{words}: {problem.strerror}") from None
    except RecursionError:
        raise Usage(f"{words}: it nests values too deeply to be read") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise Usage(f"{words}: {problem}") from None
