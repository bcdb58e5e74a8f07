"""The laws of programs whose reads only a guard keeps in range. Each raises `Broken`, with a word for what is broken.

The reference evaluator says what is right. A call that emitted code refuses is explained by it: where it finds nothing
wrong its value stands, and that is a broken law, since such a value has no gradient.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tests.laws.guarded import Guarded
from tests.laws.guarded_arrays import CLOSE, as_numpy, as_tensors, closeness, distance, narrowed
from tests.laws.guarded_grids import Array
from tests.pairs import ALL, called_few

import indexical as ix

# What no call may raise.
BUGS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, SyntaxError, TypeError)
BUGS += (ValueError, Warning)
# To a gradient.
WAYS = ("autograd", "isolated autograd", "ix.grad by numpy", "ix.grad by torch")
# Of finite differences, and how far they may be from a derivative.
STEP = 1e-5
STEEP = 1e-5


class Broken(AssertionError):
    """A law that does not hold: which, and of what."""

    def __init__(self, kind: str, words: str = "") -> None:
        super().__init__(f"{kind}\n{words}")
        self.kind = kind


class Checked:
    """A case, compiled, with what the reference says of it."""

    def __init__(self, case: Guarded) -> None:
        self.case = case
        self.program = ix.compile(case.text)
        self.noise = np.random.default_rng(len(case.text))
        # Of every two programs one goes through the kernels that its sizes are too small for.
        self.few = ALL if len(case.text) % 2 else 0
        # Where the plain lowering stood in for a kernel: right, announced, and still to be mended.
        self.slow: list[str] = []

    def reference(self, arrays: Mapping[str, Any]) -> Array | str:
        """The value of the result, or the code under which it is refused."""
        try:
            return np.asarray(self.program(**arrays, outputs=self.case.of, backend="reference"))
        except ix.Error as refusal:
            return refusal.diagnostics[0].code

    def call(self, way: str, arrays: Mapping[str, Any], program: ix.Program | None = None, **options: Any) -> Any:
        """The result of a call by emitted code, which may refuse only what the reference refuses."""
        program = program or self.program
        with warnings.catch_warnings(record=True) as words:
            warnings.simplefilter("error")
            warnings.simplefilter("always", ix.SlowPath)
            try:
                with called_few(self.few):
                    found = program(**{name: arrays[name] for name in program.inputs}, **options)
            except ix.Error as refusal:
                return refusal.diagnostics[0].code
            except BUGS as bug:
                raise Broken(f"{way}: {spotted(bug)}", f"{self.case!r}") from bug
        self.slow += [f"{way}: {plainly(str(word.message))}" for word in words]
        return found

    def agree(self, way: str, found: Any, expected: Array | str, close: float = 0.0) -> None:
        """Values nearly, in shape and dtype exactly; refusals by their code. `close` is what narrow inputs excuse."""
        shown = f"{self.case!r}\nfound {found!r}\nand should be {expected!r}"
        if isinstance(expected, str) and expected == "IX505" and not isinstance(found, str):
            return  # A guard in normal form may have no sum left that overflows: `p[j] + 1 < n` is `p[j] <= n - 2`.
        if isinstance(expected, str) and expected == "IX305" and not isinstance(found, str) and self.is_attended:
            return  # What a guard of the result removes is not computed, nor checked, in the definitions it is made of.
        if isinstance(found, str) or isinstance(expected, str):
            if not (isinstance(found, str) and isinstance(expected, str) and found == expected):
                one = found if isinstance(found, str) else "a value"
                raise Broken(f"{way}: {one}, not {expected if isinstance(expected, str) else 'a value'}", shown)
            return
        cells, dtype = as_numpy(found)
        if cells.shape != expected.shape:
            raise Broken(f"{way}: another shape", shown)
        if dtype != "bfloat16" and dtype != str(expected.dtype):
            raise Broken(f"{way}: dtype {dtype}, not {expected.dtype}", shown)
        narrow = close >= CLOSE["float16"] and "exp(" in self.case.text
        if narrow and not np.isfinite(cells).all() and np.isfinite(expected).all():
            return  # An exponential that 16 bits do not hold.
        if distance(cells, expected) > max(close, CLOSE.get(dtype, 0)) * self.largest:
            raise Broken(f"{way}: another value", shown)

    @cached_property
    def largest(self) -> float:
        arrays = [np.abs(array) for array in self.case.arrays.values() if array.dtype.kind == "f" and array.size]
        value = self.value
        if not isinstance(value, str) and value.dtype.kind == "f":
            arrays.append(np.abs(value[np.isfinite(value)]))
        return max([1.0, *(float(array.max(initial=0)) for array in arrays)])

    @cached_property
    def value(self) -> Array | str:
        return self.reference(self.case.arrays)

    @property
    def is_attended(self) -> bool:
        """Whether the result is an attention, and a guard removes some of its rows."""
        if self.case.family != "attention":
            return False
        let = next(let for let in self.program.ir.lets if let.name == self.case.of)
        return any(clause.guard is not None for clause in let.clauses)

    @property
    def is_loud(self) -> bool:
        """Whether infinity or NaN takes part: only isolated code keeps it from everyone who may not hear it."""
        return not isinstance(self.value, str) and not np.isfinite(self.value).all()

    # -------------------------------------------------------------------------------------- values

    def values(self, backends: Sequence[str] = ("numpy", "torch")) -> None:
        """NumPy and PyTorch, in f64 and f32, and isolated code, say what the reference says."""
        for dtype in ("float64", "float32"):
            arrays = narrowed(self.case.arrays, dtype)
            expected = self.value if dtype == "float64" else self.reference(arrays)
            for backend in backends:
                given = arrays if backend == "numpy" else as_tensors(arrays)
                options = {"outputs": self.case.of, "isolate": self.is_loud}
                self.agree(f"value, {backend} {dtype}", self.call(f"value, {backend}", given, **options), expected)
        for backend in backends:
            given = self.case.arrays if backend == "numpy" else as_tensors(self.case.arrays)
            found = self.call(f"isolated value, {backend}", given, outputs=self.case.of, isolate=True)
            self.agree(f"isolated value, {backend}", found, self.value)

    def layouts(self) -> None:
        """Where and how arrays lie in memory, and how they are passed, says nothing about what they mean."""
        for round in range(3):
            arrays = {name: self.laid_out(array, round) for name, array in self.case.arrays.items()}
            tensors = {name: self.tensor_laid_out(array) for name, array in self.case.arrays.items()}
            for backend, given in (("numpy", arrays), ("torch", tensors)):
                expected = self.reference(given)
                way = f"layout, {backend}"
                loud = not isinstance(expected, str) and not np.isfinite(expected).all()
                found = self.call(way, given, outputs=self.case.of, isolate=self.is_loud or loud)
                close = closeness(given)
                self.agree(way, found, expected, close)
                if len(self.program.outputs) == 1 and not (self.is_loud or loud):
                    again = self.by_position(way, given)
                    self.agree(f"{way}, by position", again, expected, close)

    def by_position(self, way: str, given: Mapping[str, Any]) -> Any:
        """Twice: the second call of a signature takes a shorter way."""
        values = [given[name] for name in self.program.inputs]
        try:
            self.program(*values)
            return self.program(*values)
        except ix.Error as refusal:
            return refusal.diagnostics[0].code
        except BUGS as bug:
            raise Broken(f"{way}: {spotted(bug)}", f"{self.case!r}") from bug

    def laid_out(self, array: Array, round: int) -> Array:
        """The same numbers, or of another width: backwards, transposed, spread out, big-endian, read-only."""
        if array.dtype.kind == "f" and round:
            array = array.astype(self.noise.choice(np.array(("<f8", ">f8", "<f4", ">f4", "<f2"))))
        elif array.dtype.kind == "i":
            array = array.astype(array.dtype.newbyteorder(self.noise.choice(np.array(("<", ">")))))
        if not array.ndim:
            return array
        way = int(self.noise.integers(6))
        if way == 0:
            array = array[::-1].copy()[::-1]
        elif way == 1:
            array = np.asfortranarray(array)
        elif way == 2:
            array = np.repeat(array, 2, axis=-1)[..., ::2]
        elif way == 3:
            array = np.broadcast_to(array[:1], array.shape) if array.dtype.kind == "f" else array
        elif way == 4:
            array = np.flip(np.flip(array).copy())
        array.flags.writeable = False
        return array

    def tensor_laid_out(self, array: Array) -> Any:
        tensor = torch.from_numpy(np.array(array))
        if tensor.is_floating_point():
            tensor = tensor.to((torch.float64, torch.float32, torch.float16, torch.bfloat16)[self.noise.integers(4)])
        if not tensor.ndim:
            return tensor
        way = int(self.noise.integers(4))
        if way == 0:
            return tensor.transpose(0, -1).contiguous().transpose(0, -1)
        if way == 1:
            return tensor.repeat_interleave(2, -1)[..., ::2]
        if way == 2 and tensor.is_floating_point():
            return tensor[:1].expand(tensor.shape) if tensor.shape[0] else tensor
        return tensor

    # ----------------------------------------------------------------------------------- gradients

    def gradients(self, wanted: Sequence[str] = WAYS) -> None:
        """Autograd through a call, through an isolated call, the derivative as a program, and finite differences."""
        value = self.value
        if isinstance(value, str):
            arrays = self.learning()
            self.agree("value under autograd", self.call("value under autograd", arrays, outputs=self.case.of), value)
            return
        if value.dtype.kind != "f" or not np.isfinite(value).all():
            return
        # That of a scalar is 1, and not asked for.
        cotangent = self.noise.standard_normal(value.shape) if value.ndim else np.ones(())
        ways = {way: self.pulled(way, cotangent) for way in wanted if "autograd" in way}
        backward, moving = self.backward() if len(ways) < len(wanted) else (None, ())
        if backward is not None:
            kinds = [way.removeprefix("ix.grad by ") for way in wanted if way not in ways]
            ways |= {f"ix.grad by {kind}": self.pulled_by(backward, kind, cotangent, moving) for kind in kinds}
        if ways:
            self.compare_gradients(ways, cotangent)

    def learning(self) -> dict[str, Any]:
        return {
            name: tensor.requires_grad_() if tensor.is_floating_point() else tensor
            for name, tensor in as_tensors(self.case.arrays).items()
        }

    @cached_property
    def flows(self) -> bool:
        """Whether the result moves with some input of reals, by its type: not what steps alone reach."""
        for name in self.case.reals:
            try:
                ix.grad(self.program, of=self.case.of, by=(name,))
            except ix.Error as refusal:
                if refusal.diagnostics[0].message.startswith("nothing flows from"):
                    continue
            return True
        return False

    def backward(self) -> tuple[ix.Program | None, tuple[str, ...]]:
        """The derivative by all inputs that flow into the result, and those."""
        by = list(self.case.reals)
        while by:
            try:
                return ix.grad(self.program, of=self.case.of, by=tuple(by)), tuple(by)
            except ix.Error as refusal:
                still = re.match(r"nothing flows from `(\w+)`", refusal.diagnostics[0].message)
                if still is None or still[1] not in by:
                    kind = f"{refusal.diagnostics[0].code} {plainly(refusal.diagnostics[0].message)}"
                    raise Broken(f"ix.grad: {kind}", f"{self.case!r}\n{refusal}") from None
                by.remove(still[1])
            except BUGS as bug:
                raise Broken(f"ix.grad: {spotted(bug)}", f"{self.case!r}") from bug
        return None, ()

    def pulled(self, way: str, cotangent: Array) -> dict[str, Array]:
        """What flows back to each input of reals; 0 where nothing does."""
        arrays = self.learning()
        out = self.call(way, arrays, outputs=self.case.of, isolate="isolated" in way)
        self.agree(f"value under {way}", out.detach() if isinstance(out, torch.Tensor) else out, self.value)
        if not out.requires_grad and self.flows:
            raise Broken(f"{way}: no gradient", f"{self.case!r}")
        reals = [arrays[name] for name in self.case.reals]
        if not out.requires_grad:
            return {name: np.zeros(self.case.arrays[name].shape) for name in self.case.reals}
        return self.pulled_back(way, out, reals, cotangent)

    def pulled_back(self, way: str, out: Any, reals: Sequence[Any], cotangent: Array) -> dict[str, Array]:
        try:
            found = torch.autograd.grad(out, reals, torch.from_numpy(cotangent), allow_unused=True)
        except BUGS as bug:
            raise Broken(f"{way}, back: {spotted(bug)}", f"{self.case!r}") from bug
        return {
            name: np.zeros(tuple(real.shape)) if grad is None else grad.detach().numpy()
            for name, real, grad in zip(self.case.reals, reals, found, strict=True)
        }

    def pulled_by(self, backward: ix.Program, kind: str, cotangent: Array, moving: tuple[str, ...]) -> dict[str, Array]:
        """The same by the derivative as a program, called like any other."""
        new = [name for name in backward.inputs if name not in self.program.inputs]
        arrays = {**self.case.arrays, **dict.fromkeys(new, cotangent)}
        with torch.no_grad():
            given = arrays if kind == "numpy" else as_tensors(arrays)
            found = self.call(f"ix.grad by {kind}", given, backward)
        if isinstance(found, str):
            raise Broken(f"ix.grad by {kind}: {found}", f"{self.case!r}\n{backward}")
        several = (found,) if len(backward.outputs) == 1 else found
        result = {name: np.zeros(self.case.arrays[name].shape) for name in self.case.reals}
        return result | {name: as_numpy(cells)[0] for name, cells in zip(moving, several, strict=True)}

    def compare_gradients(self, ways: Mapping[str, dict[str, Array]], cotangent: Array) -> None:
        direction = {name: self.noise.standard_normal(self.case.arrays[name].shape) for name in self.case.reals}
        slope = self.slope(direction, cotangent)
        for way, found in ways.items():
            for name, cells in found.items():
                if cells.shape != self.case.arrays[name].shape:
                    raise Broken(f"{way}: a gradient of another shape", f"{self.case!r}\n{name}: {cells.shape}")
            if slope is not None:
                along = sum(float((found[name] * direction[name]).sum()) for name in found)
                size = sum(float(np.abs(found[name] * direction[name]).sum()) for name in found)
                if not abs(along - slope) <= STEEP * max(1.0, size, abs(slope)):
                    raise Broken(f"{way}: not what finite differences say", f"{self.case!r}\n{along} and {slope}")
        first, *others = ways.items()
        for way, found in others:
            for name, cells in found.items():
                scale = max(1.0, float(np.abs(cells[np.isfinite(cells)]).max(initial=0)))
                if not distance(first[1][name], cells) <= 1e-9 * scale:
                    words = f"{self.case!r}\nby {name}\n{first[0]} {first[1][name]!r}\n{way} {cells!r}"
                    raise Broken(f"{first[0]} and {way} differ", words)

    def slope(self, direction: Mapping[str, Array], cotangent: Array) -> float | None:
        """The derivative along a direction by central differences; None where two steps disagree, as at a kink."""

        def difference(step: float) -> float:
            arrays = self.case.arrays
            moved = ({name: arrays[name] + sign * step * direction[name] for name in direction} for sign in (1, -1))
            high, low = (np.asarray(self.reference({**arrays, **reals}), float) for reals in moved)
            return float(((high - low) * cotangent).sum() / (2 * step))

        wide, narrow = difference(2 * STEP), difference(STEP)
        return narrow if abs(wide - narrow) <= STEEP / 4 * max(1.0, abs(narrow)) else None

    # ------------------------------------------------------------------------------- larger, compiled

    def tiles(self) -> None:
        """With as many points as kernels take at once, isolated code stands for the reference."""
        tensors = self.learning()
        plain = self.call("tiles, isolated", tensors, outputs=self.case.of, isolate=True)
        found = self.call("tiles", tensors, outputs=self.case.of)
        self.settle("tiles", found, plain)
        if isinstance(plain, str):
            return
        numbers = self.call("tiles, numpy", self.case.arrays, outputs=self.case.of)
        self.settle("tiles, numpy", torch.as_tensor(numbers), plain.detach())
        reals = [tensors[name] for name in self.case.reals]
        if not torch.isfinite(plain).all() or not plain.requires_grad:
            return
        if not found.requires_grad:
            raise Broken("tiles: no gradient", f"{self.case!r}")
        cotangent = self.noise.standard_normal(tuple(plain.shape))
        theirs = self.pulled_back("tiles, isolated", plain, reals, cotangent)
        ours = self.pulled_back("tiles", found, reals, cotangent)
        for name, cells in theirs.items():
            if not distance(ours[name], cells) <= 1e-9 * max(1.0, np.abs(cells).max(initial=0)):
                raise Broken("tiles: another gradient", f"{self.case!r}\nby {name}")

    def settle(self, way: str, found: Any, expected: Any) -> None:
        if isinstance(found, str) or isinstance(expected, str):
            self.agree(way, found, expected if isinstance(expected, str) else as_numpy(expected)[0])
        elif torch.isfinite(expected).all():
            cells = as_numpy(expected)[0]
            if not distance(as_numpy(found)[0], cells) <= 1e-10 * max(1.0, np.abs(cells).max(initial=0)):
                raise Broken(f"{way}: another value", f"{self.case!r}")

    def compiled(self) -> None:
        """`torch.compile(fullgraph=True)` reads through a call."""
        if isinstance(self.value, str) or not np.isfinite(self.value).all():
            return
        tensors = as_tensors(self.case.arrays)
        values = [tensors[name] for name in self.program.inputs]
        torch._dynamo.reset()
        function = torch.compile(lambda *given: self.program(*given), fullgraph=True, backend="eager")
        self.agree("compiled", function(*values), self.value)


# -------------------------------------------------------------------------------------------------- in words


def spotted(bug: BaseException) -> str:
    """An exception by its type, its words without names and figures, and the last function of ours that it left."""
    trace, places = bug.__traceback__, ["?"]
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "indexical" in name:
            places.append(f"{name.rsplit('indexical/', 1)[-1]}:{trace.tb_frame.f_code.co_name}")
        trace = trace.tb_next
    lines = str(bug).splitlines() or [""]
    return f"{type(bug).__name__} in {re.sub(r'[0-9]+', '#', places[-1])}: {plainly(lines[0])}"


def plainly(words: str) -> str:
    return re.sub(r"`[^`]*`|'[^']*'", "`…`", re.sub(r"-?\d+", "#", words))[:110]
