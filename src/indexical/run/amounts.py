"""Amounts of memory as people write them."""

from __future__ import annotations

import re
from decimal import Decimal
from numbers import Integral
from typing import Any

from ..diagnostics import CallError, Diagnostic

_UNITS = {"": 1, "b": 1, **{f"{sign}b": 1000 ** (n + 1) for n, sign in enumerate("kmgt")}}
_UNITS |= {f"{sign}ib": 1024 ** (n + 1) for n, sign in enumerate("kmgt")}
# More than any machine has.
_ENDLESS = 1 << 60


def limit_of(memory: Any) -> int:
    """A budget in bytes: a number of them, or a text like `512MiB` or `1.5 GB`."""
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*", memory)
        if found is None or found[2].lower() not in _UNITS:
            raise _unread(f"`{memory[:40]}` is no amount of memory")
        amount = Decimal(found[1]) * _UNITS[found[2].lower()]
    elif isinstance(memory, Integral | float) and not isinstance(memory, bool) and memory == memory:
        amount = Decimal(memory if isinstance(memory, float) else int(memory))
    else:
        raise _unread(f"a budget of memory is no {type(memory).__name__}")
    if amount < 1:
        raise _unread(f"a budget of {memory} leaves no memory")
    return int(min(amount, _ENDLESS))


def _unread(message: str) -> CallError:
    help = 'write `memory="2GiB"`, `"512MiB"`, `"1.5GB"`, or a number of bytes; an input of that name is given by place'
    return CallError([Diagnostic("IX535", message, help=help)])
