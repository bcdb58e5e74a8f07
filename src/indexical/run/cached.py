"""Emitted texts by all that they depend on: a program that was called before is not planned again in a new process."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from .. import LOADED, __version__
from ..ir import whole
from ..records import replace
from ..source import Span
from .parts import Part
from .store import Store, current_store

if TYPE_CHECKING:
    from .kernel import Call

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_KERNELS = f"{__name__.partition('.')[0]}.backends.kernels."

# The parts of the plan stand in the second line, as JSON.
_PARTS = "# "


def store_in_use() -> Store:
    """The folder of this process, or why there is none."""
    store = current_store()
    if store.problem is None and digest_of_sources() is None:
        return replace(store, problem="the sources of Indexical are no files, or have changed since they were loaded")
    return store


def key_of(
    texts: tuple[str, ...],
    call: Call,
    wanted: tuple[str, ...],
    isolate: bool,
    recompute: bool,
    further: Sequence[object] = (),
) -> str | None:
    """The digest of all that an emitted text depends on; None where it is not to be kept. `further` is what is known of
    the sizes of calls that it is for alone."""
    if store_in_use().problem is not None:
        return None
    versions = [__version__, digest_of_sources(), sys.version, np.__version__]
    if call.backend == "torch":
        versions.append(str(sys.modules["torch"].__version__))
    if call.backend == "jax":
        versions.append(str(sys.modules["jax"].__version__))
    given = call.arguments.items()
    arguments = [[name, one.axes, one.dtype, one.converted, one.loose, one.weak] for name, one in given]
    dtypes = sorted(call.bound.dtypes.items())
    asked = [call.backend, call.device, arguments, dtypes, wanted, isolate, recompute, *further]
    return hashlib.sha256(json.dumps([versions, texts, asked]).encode()).hexdigest()


def find(key: str, span: Span) -> tuple[str, tuple[Part, ...]] | None:
    """The text that was kept, and the parts of its plan, whose extents get a span of this program's."""
    found = current_store().get(key)
    if found is None:
        return None
    parts, _, text = found.removeprefix(_PARTS).partition("\n")
    try:
        return text, tuple(Part.from_json(part, span) for part in json.loads(parts))
    except (ValueError, TypeError, KeyError, whole.Unknown):
        return None


def keep(key: str, text: str, parts: tuple[Part, ...]) -> None:
    """Keep a text for other processes, where the parts of its plan can be written down."""
    try:
        shown = json.dumps([part.to_json() for part in parts])
    except whole.Unknown:
        return
    current_store().put(key, f"{_PARTS}{shown}\n{text}")


def lend_store(loaded: ModuleType, text: str) -> None:
    """Let kernels for a GPU keep their binaries, and the tiles that were found to be fast, where texts are kept. A text
    that stands alone keeps none."""
    launching, operands = (sys.modules.get(_KERNELS + name) for name in ("triton_launch", "triton_operands"))
    if launching is not None:
        store = current_store()
        launching.binaries = store if store.problem is None else None  # type: ignore[attr-defined]
        for name in ("triton_tile", "triton_tables", "triton_decode", "triton_chunks"):
            _tell_digest(sys.modules.get(_KERNELS + name), name)
        _tell_digest(loaded, text)
    if operands is not None:
        from .tuning import choices_in_use

        operands.choices = choices_in_use()  # type: ignore[attr-defined]


def _tell_digest(loaded: ModuleType | None, text: str) -> None:
    """Tell the kernels of a module the digest of its text and of all kernels that it may import, so that Triton does
    not have to read them; not where these are not what the files say."""
    kernels = digest_of_kernels()
    if loaded is not None and kernels is not None:
        vars(loaded)["__digest__"] = hashlib.sha256(f"{kernels} {text}".encode()).hexdigest()


@cache
def digest_of_sources() -> str | None:
    """The digest of Indexical itself: an edit of it changes every key. None where a file has changed since this process
    loaded it, or some of it: what runs then is not what the files say."""
    return _digest_below(_HERE)


@cache
def digest_of_kernels() -> str | None:
    """The digest of the kernels that emitted texts import; None in the same cases."""
    return _digest_below(os.path.join(_HERE, "backends", "kernels"))


def _digest_below(folder: str) -> str | None:
    digest = hashlib.sha256()
    try:
        for path in _sources(folder):
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                if max(status.st_mtime_ns, status.st_ctime_ns) > LOADED:
                    return None
                content = file.read()
            digest.update(f"{path} {len(content)}\n".encode() + content)
    except OSError:  # not a folder of files: a zip archive, or a part of something larger
        return None
    return digest.hexdigest()


def _sources(folder: str) -> list[str]:
    """The programs below a folder, Python's and ours, always in the same order."""
    found: list[str] = []
    for entry in os.scandir(folder):
        if entry.is_dir():
            found += _sources(entry.path)
        elif entry.name.endswith((".py", ".ix")):
            found.append(entry.path)
    return sorted(found)
