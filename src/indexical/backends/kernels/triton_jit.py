"""`triton.jit`, as Indexical's own kernels are decorated: Triton reads the text of a function as soon as it is, which
takes a millisecond. Of all that a program brings along a call launches one or two kernels, whose binaries may be kept.
This text needs Triton and nothing else; a text that stands alone does without it.
"""

import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import triton
from triton.runtime.jit import JITFunction, KernelParam

_reading = threading.RLock()


class Deferred(JITFunction):  # type: ignore[misc]
    """A kernel, or a function that kernels call, that Triton reads when something asks for more than its parameters."""

    def __init__(self, fn: Callable[..., Any], how: dict[str, Any]) -> None:
        self.fn, self.how = fn, how
        for name in ("__name__", "__qualname__", "__module__", "__doc__", "__globals__"):
            setattr(self, name, getattr(fn, name))

    @property
    def digest(self) -> str | None:
        """The digest of its text and of all that it calls, where whoever loaded these has told it: Triton would read
        all of it."""
        told = self.fn.__globals__.get("__digest__")
        return None if told is None else f"{told} {self.fn.__qualname__}"

    def __getattr__(self, name: str) -> Any:
        """An attribute that is not there yet: the parameters, or all that Triton knows once it has read the text."""
        with _reading:
            known = self.__dict__
            if name == "params" and name not in known:
                known[name] = _parameters(self.fn, **self.how)
            elif name not in known and "raw_src" not in known:
                known |= {**vars(JITFunction(self.fn, **self.how)), "params": self.params}
        if name not in known:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return known[name]


def _parameters(fn: Callable[..., Any], do_not_specialize: Sequence[str] = ()) -> list[Any]:
    """The parameters of a kernel, as Triton has them."""
    given = inspect.signature(fn).parameters.values()
    return [KernelParam(n, one, one.name in do_not_specialize, False) for n, one in enumerate(given)]


def _deferred(fn: Callable[..., Any] | None = None, **how: Any) -> Any:
    return Deferred(fn, how) if fn is not None else lambda fn: Deferred(fn, how)


next_power_of_2 = triton.next_power_of_2
jit: Any = triton.jit if triton.knobs.runtime.interpret else _deferred
