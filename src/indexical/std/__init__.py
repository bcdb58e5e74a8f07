"""The standard library, callable from Python: every function of the `.ix` files beside this one, by its name.

    import indexical as ix
    ix.std.layer_norm(x, gain, bias)
    ix.std.attention(q, k, v, causal=True)

`dir(ix.std)` lists them; `help(ix.std.layer_norm)` says what is true of one.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from .composed import attention
from .library import entries, face

__all__ = ["attention"]


def __getattr__(name: str) -> Callable[..., Any]:
    """A function of the library. It is read, and its face made, when it is first asked for."""
    if name in entries():
        return face(name)
    close = get_close_matches(name, __dir__(), n=1)
    hint = f". Did you mean {close[0]!r}?" if close else ""
    raise AttributeError(f"the standard library has no function {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*entries(), *__all__})
