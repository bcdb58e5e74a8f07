"""The command that shows, and empties, the folder of emitted texts."""

from __future__ import annotations

import json
from argparse import Namespace

from ..run.cached import store_in_use


def cache_command(options: Namespace) -> int:
    store = store_in_use()
    removed = store.clear() if options.clear else None
    entries = store.entries()
    size = sum(entry.size for entry in entries)
    if options.format == "json":
        found = {"folder": store.folder or None, "problem": store.problem, "entries": len(entries), "bytes": size}
        print(json.dumps(found if removed is None else {**found, "removed": removed}))
        return 0
    if store.folder:
        print(store.folder)
    if store.problem is not None:
        print(f"not used: {store.problem}")
    elif removed is not None:
        print(f"{_counted(removed)} removed")
    else:
        print(f"{_counted(len(entries))}, {size / 1024:.1f} KiB")
    return 0


def _counted(number: int) -> str:
    return "1 text" if number == 1 else f"{number} texts"
