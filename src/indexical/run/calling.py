"""Calls of one program: a known one runs its emitted function, a new one is bound, planned and then known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..diagnostics import CallError
from . import BACKENDS
from .asked import arguments_of, check_backend, packed, wanted_of
from .kernel import Engine
from .known import Calls, Known, Values, alike, in_order, is_excused, signature_of, unlike
from .tracing import differentiates_again, transform_test

# So many calls are of another kind than the latest before their kind is looked for first.
_MOST_MISSES = 4


class Caller:
    """The calls of one program, and the signatures it was called with."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.names = tuple(tensor.name for tensor in engine.program.inputs)
        self.calls = Calls()
        self.known = self.calls.known
        self._signature = signature_of(len(self.names))
        self._asked: tuple[Any, ...] = ()
        self._latest: Known | None = None
        self._is_alike = unlike
        self._misses = 0
        self._is_transformed = transform_test()

    def call(
        self,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        outputs: str | Iterable[str] | None,
        backend: str | None,
        isolate: bool,
        recompute: bool,
    ) -> Any:
        """Arrays in, arrays out."""
        again = self._is_transformed() and differentiates_again()
        values = arrays if not named else in_order(self.names, arrays, named)
        asked = (outputs, backend, isolate, recompute, again)
        try:
            if asked == self._asked and self._is_alike(*values):
                like = self._latest
            else:
                like = self.known[asked].get(self._signature(*values))
                self._expect(asked, values, like)
        except (AttributeError, KeyError, TypeError):
            like = self.calls.like(values, outputs, backend, isolate, recompute, again)
        if like is not None:
            try:
                if like.fits is None or like.fits(values):
                    result = like.function(*values)
                    return result if like.pack is None else like.pack(result)
            except like.refused:
                pass
            except RuntimeError as problem:
                if not is_excused(problem, values):
                    raise
        return self.bind(arrays, named, outputs, backend, isolate, recompute)

    def _expect(self, asked: tuple[Any, ...], values: Values, like: Known | None) -> None:
        """Look for calls like this one first, where some others in a row were not like the one that was expected."""
        self._misses += 1
        if self._misses > _MOST_MISSES and like is not None:
            self._asked, self._latest, self._is_alike, self._misses = asked, like, alike(values), 0

    def bind(
        self,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        outputs: str | Iterable[str] | None,
        backend: str | None,
        isolate: bool,
        recompute: bool,
    ) -> Any:
        """A call that is new: all checks, then the kernel; one like it is found by its signature from then on.

        Of a program that has no text yet, a refusal is told in the words of its text."""
        try:
            return self._bound(arrays, named, outputs, backend, isolate, recompute)
        except CallError:
            if self.engine.told is None:
                raise
            Caller(Engine(self.engine.told())).bind(arrays, named, outputs, backend, isolate, recompute)
            raise

    def _bound(
        self,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        outputs: str | Iterable[str] | None,
        backend: str | None,
        isolate: bool,
        recompute: bool,
    ) -> Any:
        self._is_transformed = transform_test()
        check_backend(backend, BACKENDS)
        program = self.engine.program
        wanted = wanted_of(program, outputs)
        call = self.engine.prepare(arguments_of(program, arrays, named), backend)
        again = differentiates_again()
        apart = isolate or (again and self.engine.lacks_derivatives(call, wanted, recompute))
        found = self.engine.run(call, wanted, apart, recompute)
        alone = isinstance(outputs, str) or (outputs is None and len(wanted) == 1)
        if call.backend != "reference":
            kernel = self.engine.kernel(call, wanted, apart, recompute)
            values = in_order(self.names, arrays, named)
            self.calls.learn(call, kernel, values, alone, outputs, backend, isolate, recompute, again)
        return found[wanted[0]] if alone else packed(wanted)(*(found[name] for name in wanted))
