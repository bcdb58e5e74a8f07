"""A line for whoever waits: exact numbers may take long, and nobody should wonder whether anything happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

# The commands that compute exactly.
COMMANDS = frozenset({"exact", "trace", "verify", "accuracy", "lesson", "show"})
# In seconds: when the first line is written. Each later one comes after twice the time.
FIRST = 8.0


@contextmanager
def told(command: str, first: float = FIRST) -> Iterator[None]:
    """Inside, a line on standard error from time to time, for as long as the command takes."""
    if command not in COMMANDS:
        yield
        return
    done = Event()
    started = time.monotonic()

    def tell() -> None:
        wait = first
        while not done.wait(wait):
            passed = time.monotonic() - started
            print(f"ix {command}: still computing, after {passed:.0f} s", file=sys.stderr, flush=True)
            wait = passed

    watch = Thread(target=tell, daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()
