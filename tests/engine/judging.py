"""A call, judged: what the reference evaluator says of it, and how a library's emitted code differs from that.

Values, shapes, dtypes and refusals are compared, those by their code. Where NaN or infinity takes part only isolated
code keeps it from everyone who may not hear it, so that plain code is asked for shapes and dtypes alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tests.engine import door
from tests.engine.drawing import Drawn

import indexical as ix
from indexical.ir.types import LIBRARY_NAMES, NUMPY_NAMES, Dtype
from indexical.run.kernel import Engine
from indexical.run.pointwise import evaluate_bound

Array = np.ndarray[Any, Any]

# How far a number may be from the reference, relative to the largest that took part. Narrow numbers are rounded at
# every step, and the reference's only once: they are compared loosely, and strictly elsewhere.
CLOSE = {"f64": 1e-12, "f32": 2e-3, "f16": 3e-2, "bf16": 2e-1}

# A whole number that is too large for its dtype, and a place that is not there: where both are wrong, at two points,
# the reference finds the first point, and emitted code the first operation.
_OF_NUMBERS = frozenset(("IX305", "IX505"))


@dataclass(frozen=True)
class Fault:
    """How emitted code differs from the reference: the kind in a few words, and the details."""

    library: str
    isolate: bool
    kind: str
    words: str

    def __str__(self) -> str:
        return f"{self.library}{', isolated' * self.isolate}: {self.kind}: {self.words}"


class Judged:
    """A drawn program, compiled, and what the reference says of its definitions: of all, or of its outputs alone, so
    that what is on the way to these is computed only as far as it is asked for."""

    def __init__(self, case: Drawn, outputs_alone: bool = False) -> None:
        self.case = case
        self.program = ix.compile(case.text)
        self.engine = Engine(self.program.ir)
        self.names = self.program.outputs if outputs_alone else self.program.definitions
        self.bound = self.engine.prepare(case.arrays, "numpy").bound

    @cached_property
    def wanted(self) -> Mapping[str, Array] | None:
        """The definitions by their names; None where one of them is refused."""
        try:
            return evaluate_bound(self.bound, self.names)
        except ix.Error:
            return None

    @cached_property
    def codes(self) -> frozenset[str]:
        """The codes under which definitions are refused, one by one."""
        found = set()
        for name in self.names:
            try:
                evaluate_bound(self.bound, (name,))
            except ix.Error as refusal:
                found.add(refusal.diagnostics[0].code)
        return frozenset(found)

    @cached_property
    def is_loud(self) -> bool:
        """Whether an infinity or NaN takes part."""
        arrays = [*self.case.arrays.values(), *(self.wanted or {}).values()]
        return not all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")

    @cached_property
    def closeness(self) -> float:
        words = {*self.bound.dtypes.values(), *(dtype for dtype in CLOSE if f"as {dtype}" in self.case.text)}
        return max(CLOSE[dtype] for dtype in (*(words & CLOSE.keys()), "f64"))

    @cached_property
    def largest(self) -> float:
        """The largest finite number that took part."""
        arrays = [np.abs(np.asarray(a, float)) for a in (*self.case.arrays.values(), *(self.wanted or {}).values())]
        return max([1.0, *(float(array[np.isfinite(array)].max(initial=0)) for array in arrays)])

    def arrays(self, library: str) -> list[Any]:
        """The arrays of the call as a library takes them, in the dtypes that they are bound with."""
        given: dict[str, Any] = dict(self.case.arrays)
        for name, array in given.items():
            dtype = self.bound.dtypes.get(name)
            given[name] = np.array(array if dtype is None else array.astype(NUMPY_NAMES[dtype]))
            if library == "torch":
                given[name] = door.torch.from_numpy(given[name])
        values = self.engine.prepare(given, library).values
        return [values[name] for name in self.program.inputs]

    def built(self, library: str, isolate: bool, plainly: bool = False) -> door.Built:
        dtypes = {t.name: self.bound.dtypes[t.name] for t in self.program.ir.inputs if t.name in self.bound.dtypes}
        return door.build(self.program.ir, dtypes, library, self.names, isolate, plainly, frees=True)

    def fault(self, library: str, isolate: bool, plainly: bool = False) -> Fault | None:
        """How emitted code differs from the reference; None where it says the same."""
        try:
            built = self.built(library, isolate, plainly)
        except door.BUGS as problem:
            return Fault(library, isolate, f"compiling: {type(problem).__name__}", str(problem)[:200])
        # JAX is several times as fast where a call is compiled at once, but has no values to refuse then.
        run = built.traced if library == "jax" and self.wanted is not None else built
        arrays = self.arrays(library)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = run(*arrays)
        except built.refused as refusal:
            kind = self._refusal_fault(refusal)
            return None if kind is None else Fault(library, isolate, kind, str(refusal)[:200])
        except door.BUGS as problem:
            return Fault(library, isolate, f"running: {type(problem).__name__}", str(problem)[:200])
        if self.wanted is None:
            return Fault(library, isolate, "no refusal", " ".join(sorted(self.codes)))
        for name, one in zip(self.names, found, strict=True):
            kind = self._difference(name, one, isolate)
            if kind is not None:
                return Fault(library, isolate, kind, f"`{name}` is {one!r}, and should be {self.wanted[name]!r}")
        return None

    def _refusal_fault(self, refusal: Exception) -> str | None:
        if self.wanted is not None:
            return "refused, and has a value"
        if len(refusal.args) != 2:
            return "a refusal without a code"
        known = self.codes | (_OF_NUMBERS if self.codes & _OF_NUMBERS else frozenset())
        return None if refusal.args[0] in known else "a refusal under another code"

    def _difference(self, name: str, found: Any, isolate: bool) -> str | None:
        assert self.wanted is not None
        dtype: Dtype = self.bound.dtypes[name]
        if not hasattr(found, "dtype") or door.dtype_name(found) not in (LIBRARY_NAMES[dtype], NUMPY_NAMES[dtype]):
            return "another dtype"
        cells, expected = door.as_numpy(found), self.wanted[name]
        if cells.shape != expected.shape:
            return "another shape"
        if (isolate or not self.is_loud) and not self.agrees(cells, expected):
            return "another value"
        return None

    def agrees(self, found: Array, expected: Array) -> bool:
        """Wholes and truths exactly, reals nearly; NaN and infinities in the same places."""
        if expected.dtype.kind != "f":
            # A comparison or a largest place may hang on the last digit of narrow numbers.
            return self.closeness > CLOSE["f64"] or np.array_equal(found, expected)
        a, b = found.astype(float), expected.astype(float)
        if self.closeness > CLOSE["f64"]:
            return np.allclose(a, b, self.closeness, self.closeness * self.largest, equal_nan=True)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= CLOSE["f64"] * self.largest
        return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())
