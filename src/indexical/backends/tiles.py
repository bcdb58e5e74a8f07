"""Functions of a tile: the scores of some rows against some keys, the guard there, the way back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import renamed_apart, walk
from ..plan.steps import Attend
from .base import Text, Value, quoted
from .definitions import Definer
from .proofs import Prover
from .scope import Place, Scope
from .state import Stored

if TYPE_CHECKING:
    from .frames import Framed


@dataclass
class Meeting(Definer):
    """Definitions that are weak take the dtype of what they meet."""

    weak: frozenset[str] = frozenset()

    def read(self, expr: ir.Read, scope: Scope) -> Value:
        return self.met(expr, super().read(expr, scope))

    def any(self, mask: Value) -> str:
        """Whether a mask holds somewhere: said of an array, also of one without axes."""
        return f"{mask.atom}.any()"

    def heard_value(self, expr: ir.Expr, heard: Scope) -> Value:
        """A query, key or value: it is evaluated where some pair that it takes part in is kept."""
        return self.value(expr, self.prover.projected(heard, expr.type.coordinates))

    def met(self, expr: ir.Read, value: Value) -> Value:
        if expr.tensor not in self.weak or value.python or value.dtype == self.compute or self.compute == "f64":
            return value
        return self.text.dialect.cast(value, self.compute)


class Checked(Text):
    """Source in which a test of an array becomes part of the graph where `torch.compile` reads it."""

    def refuse(self, condition: str, code: str, message: str) -> None:
        plain, _, mask = condition.rpartition(" and ")
        if self.dialect.name != "torch" or not mask.endswith(".any()"):
            super().refuse(condition, code, message)
            return
        self.helper("check")
        shown = mask.removesuffix(".any()")
        call = f"check({bare(shown)}, {quoted(code)}, {quoted(message)})"
        if not plain:
            self.line(call)
            return
        self.line(f"if {plain}:")
        with self.indented():
            self.line(call)


def bare(text: str) -> str:
    """A text without the brackets around it, where they belong together."""
    if not text.startswith("("):
        return text
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


# What the first and the one beyond the last point of a window are called.
WINDOWS = frozenset(f"{side}{end}{more}'" for side in "bhrk" for end in "01" for more in ("", "_"))


# What else the functions of a tile take.
PARAMETERS = frozenset(("arrays", "rows", "keys", "batch", "head", "gradients", "d_score"))


class WindowProver(Prover):
    """What holds of all points of a coordinate holds of those in its window."""

    def __init__(self, lets: Mapping[str, ir.Let], unbounded: Mapping[Coordinate, Place]) -> None:
        super().__init__(lets)
        self.unbounded = unbounded

    def is_inside(self, index: ir.Expr, extent: ir.Expr, scope: Scope, guarded: bool) -> bool:
        places = {c: self.unbounded.get(c, place) for c, place in scope.places.items()}
        return super().is_inside(index, extent, Scope(places, scope.trail), guarded)


@dataclass
class Windowed(Meeting):
    """Some coordinates run over a window of their points only. What holds of all of them holds there.

    Arrays that are `pretended` have just the points of their windows. One that `widens` computes in f32 what is
    stored in 16 bits.
    """

    unbounded: dict[Coordinate, Place] | None = None
    pretended: dict[str, tuple[Coordinate, ...]] = field(default_factory=dict)
    widens: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prover = WindowProver(self.lets, self.unbounded or {})

    def largest_in(self, tensor: str) -> int:
        """Where a window begins and ends is a place of an axis."""
        return 2**31 if tensor.endswith("'") else super().largest_in(tensor)

    def reals(self, op: str, values: list[Value]) -> list[Value]:
        """Whole numbers of a tile become real while they are few: not where they meet all of it."""
        return [self.real(value) for value in values]

    def is_fixed(self, expr: ir.Expr) -> bool:
        """What is pretended is there for the points of its windows, whatever it is read at."""
        return any(isinstance(part, ir.Read) and part.tensor in self.pretended for part in walk(expr))

    def read(self, expr: ir.Read, scope: Scope) -> Value:
        if expr.tensor not in self.pretended:
            value = self.met(expr, super().read(expr, scope))
            if self.widens and value.dtype in ("f16", "bf16"):
                value = self.text.dialect.cast(value, "f32")
            return value
        stored = self.stored[expr.tensor]
        value = Value(stored.variable, self.pretended[expr.tensor], "real", stored.dtype)
        return self.turned(value, scope.sort(value.axes))


class Tile:
    """Emits the functions of one attention's tiles, over arrays that they are handed."""

    def __init__(
        self,
        owner: Framed,
        let: ir.Let,
        attend: Attend,
        batch: tuple[Coordinate, ...],
        row: Coordinate | None,
        bias: ir.Expr | None,
        rest: tuple[ir.Expr, ...],
        value: ir.Expr | None = None,
    ) -> None:
        self.owner, self.let, self.attend = owner, let, attend
        self.batch, self.row, self.bias, self.rest = batch, row, bias, rest
        parts = [part for part in (bias, value, *rest) if part is not None]
        self.names = list(dict.fromkeys(r.tensor for part in parts for r in walk(part) if isinstance(r, ir.Read)))
        self.read = frozenset(self.names)
        self.arguments: list[str] = []

    # ------------------------------------------------------------------- parts

    def emitter(self, windows: dict[Coordinate, tuple[str, str]], inside: Text | None = None) -> tuple[Windowed, Scope]:
        """An emitter for a function of its own, or for one inside the emitted one; and the scope in it."""
        owner = self.owner
        text = inside or Checked(owner.text.dialect, helpers=owner.text.helpers)
        text.taken |= owner.text.taken
        scope = owner.scope_of(self.let.clauses[0], {})
        key = self.attend.attention.key
        whole = {**scope.places, key.coordinate: owner.key_place(self.let, key)}
        emitter = Windowed(text, owner.program, dtypes=owner.dtypes, unbounded=whole, weak=owner.weak)
        emitter.prover.agreed = owner.prover.agreed
        emitter.sizes, emitter.compute, emitter.label = dict(owner.sizes), owner.compute, self.let.name
        emitter.stored = dict(owner.stored)
        if inside is None:
            emitter.widens = True
            emitter.compute = "f32" if emitter.compute in ("f16", "bf16") else emitter.compute
            emitter.stored = {name: self.arrives(name, stored) for name, stored in owner.stored.items()}
        places = {}
        for coordinate, place in whole.items():
            if coordinate in windows:
                start, stop = (self.scalar(emitter, name) for name in windows[coordinate])
                place = Place(start, stop, False)
            places[coordinate] = place
        return emitter, Scope(places, (*scope.trail, key))

    def heard(self, scope: Scope) -> Scope:
        """The scope of a score and of its way back: both are evaluated only at pairs that the guards keep."""
        return self.owner.heard_scope(self.let, self.attend, scope)

    def arrives(self, name: str, stored: Stored) -> Stored:
        """A tensor as a function of its own has it: a whole number stays one, any other comes as an array. It has
        another name where the function has a use for its own."""
        variable = stored.variable + "_" * (stored.variable in PARAMETERS or f"{stored.variable}'" in WINDOWS)
        return replace(stored, variable=variable, python=stored.python and self.is_whole(name))

    def is_whole(self, name: str) -> bool:
        """Whether a plain number is whole: all that have no definition count something."""
        return name not in self.owner.tensors or self.owner.tensors[name].kind == "whole"

    def scalar(self, emitter: Windowed, name: str) -> ir.Expr:
        # By a name that no input or definition can have.
        own = f"{name}'"
        emitter.stored[own] = Stored(name, None, True)
        emitter.prover.counted.add(own)
        return build.read(own, (), "whole", self.let.span)

    def shaped(self, value: Value, emitter: Windowed, scope: Scope) -> str:
        """A value of a tile as four axes: batch, head, rows, keys, of which any may be 1."""
        rows = () if self.row is None else (self.row,)
        axes = (*self.batch, *rows, self.attend.attention.coordinate)
        value = emitter.turned(emitter.strong(value), axes)
        slots = ["None"] * (2 - len(self.batch)) if len(self.batch) < 2 else []
        slots += [":" if axis in value.axes else "None" for axis in self.batch]
        slots += [":" if self.row in value.axes else "None"]
        slots += [":" if axes[-1] in value.axes else "None"]
        return value.text if set(slots) == {":"} else f"{value.atom}[{', '.join(slots)}]"

    def preamble(self, emitter: Windowed, lines: list[str], taken: str) -> list[str]:
        """The arrays by name, and the sizes and plain numbers that the lines mention, from them."""
        used = set(re.findall(r"\w+", "\n".join(lines)))
        self.take_over(used)
        tensors = self.owner.tensors
        wanted = {c: variable for c, variable in emitter.sizes.items() if variable in used}
        sources: dict[str, str] = {}
        for name in [*self.names, *tensors]:
            if name not in self.owner.stored or self.owner.stored[name].rows:
                continue
            for n, axis in enumerate(tensors[name].axes):
                extent = axis.extent
                if isinstance(extent, ir.Size) and extent.coordinate in wanted and extent.coordinate not in sources:
                    if name not in self.names:
                        self.names.append(name)
                    sources[extent.coordinate] = (
                        f"{wanted[extent.coordinate]} = {emitter.stored[name].variable}.shape[{n}]"
                    )
        variables = [emitter.stored[name].variable for name in self.names]
        head = [f"    {', '.join(variables)}{',' if len(variables) == 1 else ''} = {taken}"] if variables else []
        if re.search(r"\bdevice\b", "\n".join(lines)):
            head.append(f"    device = {variables[0]}.device" if variables else '    device = "cpu"')
        numbers = [emitter.stored[name].variable for name in self.names if emitter.stored[name].python]
        counts = [f"    {name} = int({name})" for name in numbers if name in used]
        return head + counts + [f"    {line}" for line in sources.values()]

    def take_over(self, used: set[str]) -> None:
        """Hand over what the lines mention though neither bias nor mask reads it: what counts a range, and what a guard
        is made of that keeps an index in bounds."""
        for name, stored in self.owner.stored.items():
            if self.arrives(name, stored).variable in used and name not in self.names and not stored.rows:
                self.names.append(name)

    def handed(self) -> list[str]:
        """What the emitted function hands over: every array, plain numbers as tensors of one."""
        result = []
        for name in self.names:
            stored = self.owner.stored[name]
            if stored.python:
                dtype = "int64" if self.is_whole(name) else "float64"
                result.append(f"torch.tensor({stored.variable}, dtype=torch.{dtype})")
            else:
                result.append(stored.variable if name in self.read else f"{stored.variable}.detach()")
        return result

    def learned(self) -> list[str]:
        """The arrays of reals among those that are read: gradients may flow to them, unless figures made them."""
        names = [name for name in self.names if name in self.read and name not in self.owner.weak]
        kinds = {name: self.owner.tensors[name].kind for name in names}
        stored = {name: self.owner.stored[name] for name in kinds}
        return [stored[name].variable for name, kind in kinds.items() if kind == "real" and not stored[name].python]

    # ------------------------------------------------------------ bias and mask

    def write(self) -> str:
        """A function of a tile's bias and mask for the kernel of intervals; the name of the attention it makes."""
        windows = {}
        if self.row is not None:
            windows[self.row] = ("r0", "r1")
        windows[self.attend.attention.coordinate] = ("k0", "k1")
        names = [("b0", "b1"), ("h0", "h1")][2 - len(self.batch) :] if len(self.batch) <= 2 else []
        windows.update(dict(zip(self.batch, names, strict=False)))
        emitter, scope = self.emitter(windows)
        results = []
        if self.bias is None:
            results.append("None")
        else:
            renamed = renamed_apart(self.bias, {c.name for c in scope.places})
            value = emitter.real(emitter.value(renamed, self.heard(scope)))
            results.append(self.shaped(value, emitter, scope))
        if not self.rest:
            results.append("None")
        else:
            masks = emitter.masks((), build.conjunction(self.rest), scope)
            mask = emitter.conjunction(masks, scope)
            assert mask is not None
            results.append(self.shaped(mask, emitter, scope))
        emitter.text.line(f"return {', '.join(results)}")
        lines = emitter.text.lines
        counts = [("b0", "b1", "batch"), ("h0", "h1", "head")][2 - len(self.batch) :]
        used = set(re.findall(r"\w+", "\n".join(lines)))
        opening = []
        for (start, stop, given), coordinate in zip(counts, self.batch, strict=True):
            place = self.owner.scope_of(self.let.clauses[0], {}).places[coordinate]
            if start in used:
                opening.append(f"    {start}, {stop}, _ = {given}.indices({self.owner.written(place.stop)})")
        if "r0" in used:
            opening.append("    r0, r1 = rows.start, rows.stop")
        first = self.owner.written(self.attend.attention.key.lower)
        shift = "" if first == "0" else f"{first} + "
        if "k0" in used:
            opening.append(f"    k0, k1 = {shift}keys.start, {shift}keys.stop")
        head = [*self.preamble(emitter, [*opening, *lines], "arrays"), *opening]
        name = self.owner.text.fresh(f"{self.let.name}_tile")
        words = "What is added to the scores of a tile, and which keys are heard in it."
        body = [f"def {name}(arrays, batch, head, rows, keys):", f'    """{words}"""', *head, *lines]
        attend = self.owner.text.fresh(f"attend_{self.let.name}")
        self.owner.functions.append("\n".join([*body, "", "", f'{attend} = with_tiles("{attend}", {name})']))
        self.arguments = self.handed()
        return attend
