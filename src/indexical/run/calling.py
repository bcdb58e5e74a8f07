"""Calls of one program: a known one runs its emitted function, a new one is bound, planned and then known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..diagnostics import CallError
from ..faults import DOUBTFUL, FAULTS, guarded
from ..records import replace
from . import BACKENDS
from .asked import arguments_of, check_backend, packed, wanted_of
from .kernel import Engine, case_of
from .known import Calls, Known, Values, alike, in_order, is_excused, signature_of
from .tensors import is_tensor
from .tracing import differentiates_again, transform_test

if TYPE_CHECKING:
    from .sizes import Repeated

# So many calls are of another kind than the expected ones before their kind is looked for first.
_MOST_MISSES = 4
# After as many calls a function is made for the sizes of the latest, after twice as many the next one: where sizes
# change all the time, few are made. So many are kept.
_FIRST_SIZED, _MOST_SIZED = 16, 4


def _is_plain(value: Any) -> bool:
    return is_tensor(value) or type(value) in (bool, int, float)


class Expected(NamedTuple):
    """Calls that are looked for first: what they ask for, a test of their arrays, and how they run. `sized` are those
    of known sizes, for which the function does only what sizes do not decide."""

    asked: tuple[Any, ...]
    is_alike: Callable[..., bool]
    known: Known
    sized: bool


class Caller:
    """The calls of one program, and the signatures it was called with. `repeated` says of steps of decoding, in which
    sizes never come again, what does."""

    def __init__(self, engine: Engine, repeated: Repeated | None = None) -> None:
        self.engine = engine
        self.names = tuple(tensor.name for tensor in engine.program.inputs)
        self.calls = Calls()
        self.known = self.calls.known
        self._signature = signature_of(len(self.names))
        # Threads may call at once: it is replaced as a whole, those of known sizes first.
        self._expected: tuple[Expected, ...] = ()
        self._misses = 0
        self._widened = engine.widened
        self._unsized = 0
        self._next_sized = _FIRST_SIZED
        self._repeated = repeated
        self._of_one_size: dict[Any, Callable[..., Any] | None] = {}
        self._is_transformed = transform_test()

    def call(
        self,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        outputs: str | Iterable[str] | None,
        backend: str | None,
        isolate: bool,
        recompute: bool,
        memory: str | int | None = None,
    ) -> Any:
        """Arrays in, arrays out."""
        if memory is not None:
            return self._within(arrays, named, outputs, backend, isolate, recompute, memory)
        values = arrays if not named else in_order(self.names, arrays, named)
        asked = (outputs, backend, isolate, recompute)
        like, sized = None, self._repeated is None
        try:
            for form, is_alike, known, of_one_size in self._expected:
                if form == asked and is_alike(*values):
                    like, sized = known, of_one_size
                    break
            else:
                again = self._is_transformed() and differentiates_again()
                like = self.known[*asked, again].get(self._signature(*values))
                self._expect(asked, values, like)
        except (AttributeError, KeyError, TypeError):
            again = self._is_transformed() and differentiates_again()
            like, sized = self.calls.like(values, *asked, again), self._repeated is None
            if like is not None and like.kernel is not None and sized and all(map(_is_plain, values)):
                self._expect(asked, values, like)
                sized = False
        if like is not None:
            if not sized:
                self._expect_sizes(asked, values, like)
            try:
                if like.fits is None or like.fits(values):
                    result = like.function(*values)
                    return result if like.pack is None else like.pack(result)
            except like.refused:
                pass
            except (*FAULTS, *DOUBTFUL):
                pass  # The call is made again with all checks, and a mistake of ours is reported.
            except RuntimeError as problem:
                if not is_excused(problem, values):
                    raise
        return self.bind(arrays, named, outputs, backend, isolate, recompute)

    def _within(
        self,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        outputs: str | Iterable[str] | None,
        backend: str | None,
        isolate: bool,
        recompute: bool,
        memory: str | int,
    ) -> Any:
        """A call under a budget of memory. It is known by its sizes, and by what requires a gradient."""
        from .budget import asked_of

        values = in_order(self.names, arrays, named)
        if values and all(map(is_tensor, values)):
            asked = asked_of(values, memory)
            like = self.calls.like(values, outputs, backend, isolate, recompute, asked)
            if like is not None and (like.fits is None or like.fits(values)):
                try:
                    result = like.function(*values)
                    return result if like.pack is None else like.pack(result)
                except like.refused:
                    pass
        return self.bind(arrays, named, outputs, backend, isolate, recompute, memory)

    def of_one_size(self, values: Values, backend: str | None) -> Callable[..., Any] | None:
        """The function for calls of these sizes alone, which makes of them once and for all what they decide, arrays on
        a GPU too; None where there is none. Calls like this one are known."""
        from .sizes import for_sizes

        like = self.calls.like(values, None, backend, False, True, False)
        if like is None or like.kernel is None or not (like.fits is None or like.fits(values)):
            return None
        if not all(map(_is_plain, values)):
            return None
        key = tuple((v.shape, v.stride(), v.dtype, v.device, v.requires_grad) if is_tensor(v) else v for v in values)
        if key not in self._of_one_size:
            if len(self._of_one_size) == _MOST_SIZED:
                del self._of_one_size[next(iter(self._of_one_size))]
            made = for_sizes(self.engine, like.kernel, values, keeps=("cpu", "cuda"))
            self._of_one_size[key] = None if made is None else like.by(made).function
        return self._of_one_size[key]

    def wait(self, calls: int) -> None:
        """Make no function for the sizes of calls before there were so many."""
        self._next_sized = calls

    def _expect(self, asked: tuple[Any, ...], values: Values, like: Known | None) -> None:
        """Look for calls like this one first, where some others in a row were not like the ones that were expected."""
        self._misses += 1
        if self._misses > _MOST_MISSES and like is not None and not self._is_transformed():
            self._misses = 0
            sized = tuple(each for each in self._expected if each.sized)
            self._expected = (*sized, Expected(asked, alike(values), like, False))

    def _expect_sizes(self, asked: tuple[Any, ...], values: Values, like: Known) -> None:
        """Look for calls of these sizes first, where many were not of an expected one, with a function of their own."""
        self._misses = 0
        self._unsized += 1
        if self._unsized < self._next_sized:
            return
        self._unsized, self._next_sized = 0, 2 * self._next_sized
        if like.fits is not None and not like.fits(values):
            return
        made = self._made(like, values)
        if made is not None:
            new = Expected(asked, *made, True)
            sized = [each for each in self._expected if each.sized and not getattr(each.is_alike, "ended", False)]
            unsized = (each for each in self._expected if not each.sized)
            self._expected = (new, *sized[: _MOST_SIZED - 1], *unsized)

    def _made(self, like: Known, values: Values) -> tuple[Callable[..., bool], Known] | None:
        """A test for calls of these sizes, and how they run."""
        if self._repeated is not None:
            return self._repeated.known(self.engine, like, values)
        from .sizes import for_sizes

        made = None if like.kernel is None else for_sizes(self.engine, like.kernel, values)
        if made is None:
            return None
        # What fits is decided by sizes, and for arrays that require a gradient by whether gradients are on.
        fits = like.fits if any(getattr(value, "requires_grad", False) for value in values) else None
        return alike(values, of_one_size=True), replace(like.by(made), fits=fits)

    @guarded
    def bind(
        self,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        outputs: str | Iterable[str] | None,
        backend: str | None,
        isolate: bool,
        recompute: bool,
        memory: str | int | None = None,
    ) -> Any:
        """A call that is new: all checks, then the kernel; one like it is found by its signature from then on.

        Of a program that has no text yet, a refusal is told in the words of its text."""
        try:
            return self._bound(arrays, named, outputs, backend, isolate, recompute, memory)
        except CallError:
            if self.engine.told is None:
                raise
            Caller(Engine(self.engine.told())).bind(arrays, named, outputs, backend, isolate, recompute, memory)
            raise

    def _bound(
        self,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        outputs: str | Iterable[str] | None,
        backend: str | None,
        isolate: bool,
        recompute: bool,
        memory: str | int | None,
    ) -> Any:
        """The result of a call that is new: bound, run, and learned, so that the next one like it is found by its
        signature."""
        self._is_transformed = transform_test()
        check_backend(backend, BACKENDS)
        program = self.engine.program
        wanted = wanted_of(program, outputs)
        call = self.engine.prepare(arguments_of(program, arrays, named), backend)
        asked: Any = differentiates_again()
        apart, within = isolate, None
        if memory is not None:
            from .budget import asked_of, check_place

            check_place(call.backend)
            asked = within = asked_of([call.values[name] for name in self.names], memory)
        elif asked:
            apart = isolate or self.engine.lacks_derivatives(call, wanted, recompute)
        found = self.engine.run(call, wanted, apart, recompute, within)
        alone = isinstance(outputs, str) or (outputs is None and len(wanted) == 1)
        values = in_order(self.names, arrays, named)
        if call.backend != "reference" and (memory is None or all(map(is_tensor, values))):
            if self.engine.widened != self._widened:  # Some of the functions that are known are for too few calls.
                self.known.clear()
                self._expected, self._widened = (), self.engine.widened
            kernel = self.engine.kernel(call, wanted, apart, recompute, within, case_of(call))
            self.calls.learn(call, kernel, values, alone, outputs, backend, isolate, recompute, asked)
        return found[wanted[0]] if alone else packed(wanted)(*(found[name] for name in wanted))
