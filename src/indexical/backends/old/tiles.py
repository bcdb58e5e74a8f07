"""Functions of a tile: the scores of some rows against some keys, the guard there, the backward pass."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.needs import read_in
from ...ir.types import Coordinate
from ...ir.walk import renamed_apart
from ...plan.steps import Attend
from ...records import dataclass, replace
from . import arrays, binding, clauses, operands, sizes
from .base import Text, Value
from .code import ALL, NONE, ZERO, Attribute, Call, Infix, Name, Node, String, call, fill, infix, method
from .layout import Block, Statement, arranged, modules_of, written
from .lowering import Lowering, Stored
from .scope import Place, Scope
from .values import spaced


class Checked(Text):
    """Source in which a test of an array becomes part of the graph where a library makes one of it."""

    def refuse(self, condition: Node, code: str, message: str) -> None:
        match condition:
            case Call(Attribute(mask, "any"), (), ()) if self.dialect.checks_in_graphs:
                self.check(mask, code, message)
            case Infix("and", plain, Call(Attribute(mask, "any"), (), ())) if self.dialect.checks_in_graphs:
                self.add("if", plain)
                with self.indented():
                    self.check(mask, code, message)
            case _:
                super().refuse(condition, code, message)

    def check(self, mask: Node, code: str, message: str) -> None:
        """Refuse where a mask holds somewhere."""
        self.do(call(self.helper("check"), mask, String(code), String(message)))


# The names of the first and of the one beyond the last point of a window, and the parameters of the functions of a
# tile, in which arrays have the names that they have in the emitted function.
WINDOWS = frozenset(f"{side}{end}" for side in "bhrk" for end in "01")
TILED = frozenset(("arrays", "rows", "keys", "batch", "head", "gradients", "d_score", *WINDOWS))


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a tile: its `opening` says which windows it is for, and its `body` goes on from there."""

    name: str
    parameters: tuple[str, ...]
    about: str
    opening: Text
    body: Text

    @property
    def used(self) -> set[str]:
        """The names that it mentions."""
        return self.opening.used | self.body.used

    def statements(self, head: Block) -> list[Statement]:
        """The body of the function, with some statements ahead."""
        return arranged([*head, *self.opening.statements, *self.body.statements], self.body.taken)

    def shown(self, statements: list[Statement]) -> str:
        """The text of the function, with this body."""
        first = f"def {self.name}({', '.join(self.parameters)}):"
        return "\n".join([first, f'    """{self.about}"""', *written(statements)])


class Tile:
    """Emits the functions of one attention's tiles, over arrays that they are handed. The guard may be the same for all
    keys of a `block` of that size."""

    def __init__(
        self,
        outer: Lowering,
        let: ir.Let,
        attend: Attend,
        batch: tuple[Coordinate, ...],
        row: Coordinate | None,
        bias: ir.Expr | None,
        rest: tuple[ir.Expr, ...],
        value: ir.Expr | None = None,
        block: ir.Expr | None = None,
    ) -> None:
        self.outer, self.let, self.attend, self.block = outer, let, attend, block
        self.batch, self.row, self.bias, self.rest = batch, row, bias, rest
        parts = [part for part in (bias, value, *rest) if part is not None]
        self.names = list(dict.fromkeys(read_in(*parts)))
        self.read = frozenset(self.names)
        self.arguments: list[Node] = []

    # ------------------------------------------------------------------- parts

    def lowering(
        self, windows: dict[Coordinate, tuple[str, str]], inside: Text | None = None
    ) -> tuple[Lowering, Scope]:
        """A lowering for a function of its own, or for one inside the emitted one; and the scope in it."""
        outer = self.outer
        text = inside or Checked(outer.text.dialect, helpers=outer.text.helpers)
        text.taken |= outer.text.taken
        text.reserved = outer.text.reserved
        scope = clauses.scope_of(self.let.clauses[0])
        key = self.attend.attention.key
        whole = {**scope.places, key.coordinate: operands.key_place(self.let, key)}
        low = Lowering(text, outer.program, outer.rules, dtypes=outer.dtypes, unbounded=whole, weak=outer.weak)
        low.prover.join(outer.prover)
        low.notes, text.subject = outer.notes, self.let.name
        low.sizes, low.compute, low.label = dict(outer.sizes), outer.compute, self.let.name
        low.stored = dict(outer.stored)
        if inside is None:
            low.widens = True
            low.compute = "f32" if low.compute in ("f16", "bf16") else low.compute
            low.stored = {name: self.arrives(name, stored) for name, stored in outer.stored.items()}
        places = {}
        for coordinate, place in whole.items():
            if coordinate in windows:
                start, stop = (self.scalar(low, name) for name in windows[coordinate])
                place = Place(start, stop, False)
            places[coordinate] = place
        return low, Scope(places, (*scope.trail, key), asked=tuple(outer.asked.get(self.let.name, ())))

    def kept(self, scope: Scope) -> Scope:
        """The scope of a score and of its backward pass: both are evaluated only at pairs that the guards keep."""
        return operands.kept_scope(self.let, self.attend, scope)

    def arrives(self, name: str, stored: Stored) -> Stored:
        """A tensor as a function of its own has it: a whole number stays one, any other comes as an array."""
        return replace(stored, python=stored.python and self.is_whole(name))

    def is_whole(self, name: str) -> bool:
        """Whether a plain number is whole: all that have no definition count something."""
        return name not in self.outer.tensors or self.outer.tensors[name].kind == "whole"

    def scalar(self, low: Lowering, name: str) -> ir.Expr:
        # By a name that no input or definition can have.
        own = f"{name}'"
        low.stored[own] = Stored(name, None, True)
        low.prover.counted.add(own)
        return build.read(own, (), "whole", self.let.span)

    def shaped(self, value: Value, low: Lowering) -> Node:
        """A value of a tile as four axes: batch, head, rows, keys, of which any may be 1."""
        rows = () if self.row is None else (self.row,)
        axes = (*self.batch, *rows, self.attend.attention.coordinate)
        value = arrays.in_order(low, arrays.as_array(low, value), axes)
        new = [NONE] * (2 - len(self.batch))
        every = (*self.batch, self.row, self.attend.attention.coordinate)
        return spaced(value.code, [*new, *(ALL if axis in value.axes else NONE for axis in every)])

    def emit(self, functions: list[Function]) -> None:
        """Emit functions that all take the same arrays: their names are collected before the first is written."""
        used = [function.used for function in functions]
        for names in used:
            self.take_over(names)
            self.measured(names)
        for function, names in zip(functions, used, strict=True):
            statements = function.statements(self.preamble(names))
            self.outer.modules |= modules_of(statements)
            self.outer.functions.append(function.shown(statements))
        self.arguments = self.handed()

    def preamble(self, used: set[str]) -> Block:
        """The arrays by name, and the device, sizes and plain numbers that a function mentions, from them."""
        arriving = [self.arrives(name, self.outer.stored[name]) for name in self.names]
        text = Text(self.outer.text.dialect)
        if arriving:
            text.unpack([stored.variable for stored in arriving], "arrays")
        text.assign("device", Attribute(Name(arriving[0].variable), "device") if arriving else String("cpu"))
        for stored in arriving:
            if stored.python:
                text.assign(stored.variable, call("int", stored.variable))
        for variable, size in self.measured(used).items():
            text.assign(variable, size)
        return text.statements

    def measured(self, used: set[str]) -> dict[str, Node]:
        """The sizes that a function mentions, from the shapes of arrays that are handed over from now on."""
        tensors = self.outer.tensors
        wanted = {c: variable for c, variable in self.outer.sizes.items() if variable in used}
        found: dict[str, Node] = {}
        for name in [*self.names, *tensors]:
            if name not in self.outer.stored:
                continue
            array = self.arrives(name, self.outer.stored[name]).variable
            for n, axis in enumerate(tensors[name].axes):
                variable = wanted.get(axis.extent.coordinate) if isinstance(axis.extent, ir.Size) else None
                if variable is not None and variable not in found:
                    if name not in self.names:
                        self.names.append(name)
                    found[variable] = fill("{x}.shape[{n}]", x=array, n=n)
        return found

    def take_over(self, used: set[str]) -> None:
        """Hand over what a function mentions though neither bias nor mask reads it: what counts a range, and what a
        guard is made of that keeps an index in bounds."""
        for name, stored in self.outer.stored.items():
            if self.arrives(name, stored).variable in used and name not in self.names:
                self.names.append(name)

    def handed(self) -> list[Node]:
        """The arguments that the emitted function passes on: every array, plain numbers as tensors of one."""
        result: list[Node] = []
        for name in self.names:
            stored = self.outer.stored[name]
            if stored.python:
                dtype = self.outer.text.dialect.dtype("i64" if self.is_whole(name) else "f64")
                result.append(call("torch.tensor", stored.variable, dtype=dtype))
            else:
                result.append(Name(stored.variable) if name in self.read else method(stored.variable, "detach"))
        return result

    def learned(self) -> list[str]:
        """The arrays of reals among those that are read: they may need gradients."""
        names = [name for name in self.names if name in self.read]
        kinds = {name: self.outer.tensors[name].kind for name in names}
        stored = {name: self.outer.stored[name] for name in kinds}
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
        low, scope = self.lowering(windows)
        bias: Node = NONE
        if self.bias is not None:
            renamed = renamed_apart(self.bias, {c.name for c in scope.places})
            value = arrays.as_real(low, low.value(renamed, self.kept(scope)))
            bias = self.shaped(value, low)
        allowed: Node = NONE
        if self.rest:
            masks = binding.masks(low, (), build.conjunction(self.rest), scope)
            mask = arrays.conjunction(low, masks, scope)
            assert mask is not None
            allowed = self.shaped(mask, low)
        low.text.give(bias, allowed)
        opening = self.opening(low.text.used)
        name = self.outer.text.fresh(f"{self.let.name}_tile")
        about = "The bias of a tile's scores, and the mask of its pairs."
        function = Function(name, ("arrays", "batch", "head", "rows", "keys"), about, opening, low.text)
        attend = self.outer.text.fresh(f"attend_{self.let.name}")
        self.emit([function])
        if self.block is None:
            self.outer.functions.append(attention_of(attend, "with_tiles", name))
        else:
            self.outer.functions.append(attention_of(attend, "with_tiles", name, blocked=Name("True")))
            self.arguments.append(call("torch.tensor", sizes.number(self.outer, self.block)))
        return attend

    def opening(self, used: set[str]) -> Text:
        """Emit the ends of the windows that a function uses."""
        opening = Text(self.outer.text.dialect)
        counts = [("b0", "b1", "batch"), ("h0", "h1", "head")][2 - len(self.batch) :]
        for (start, stop, given), coordinate in zip(counts, self.batch, strict=True):
            place = clauses.scope_of(self.let.clauses[0]).places[coordinate]
            if used & {start, stop}:
                opening.unpack(
                    [start, stop, "_"], method(given, "indices", sizes.unnamed_number(self.outer, place.stop))
                )
        if used & {"r0", "r1"}:
            opening.unpack(["r0", "r1"], fill("(rows.start, rows.stop)"))
        if used & {"k0", "k1"}:
            opening.unpack(["k0", "k1"], (self.key_at(fill("keys.start")), self.key_at(fill("keys.stop"))))
        return opening

    @property
    def first(self) -> Node:
        """The first key."""
        return sizes.unnamed_number(self.outer, self.attend.attention.key.lower)

    def key_at(self, place: Node) -> Node:
        """The key at a place that is counted from the first one."""
        return place if self.first == ZERO else infix("+", self.first, place)


def attention_of(attend: str, maker: str, *functions: str, **more: Node) -> str:
    """The line that makes an attention of the functions of its tiles."""
    return Statement(0, 0, "assign", attend, call(maker, String(attend), *functions, **more)).shown
