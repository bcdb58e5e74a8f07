"""Values as Python source: one match over the operations. A dialect says how each is spelled."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...ir import nodes as ir
from ...ir.affine import Polynomial
from ...ir.types import Coordinate, Dtype, Kind
from ..arguments import Argument
from ..layouts import layouts
from ..ops import (
    Axis,
    Carried,
    Contract,
    Definition,
    Either,
    Input,
    Iota,
    Join,
    Library,
    Map,
    Normalize,
    Number,
    Opaque,
    Plan,
    Put,
    Read,
    Reduce,
    Result,
    Table,
    Tiles,
    Value,
    Write,
)
from ..order import reachable, read_by_rows, roots_of, uses
from .code import ATOM, UNARY, Code, call, closed, indexed, method, quoted, tupled
from .contract import contract
from .elementwise import mapped
from .joins import join
from .library import library
from .loops import result
from .number_helpers import HELPERS, REFUSED
from .numbers import expr_of, extent, fitting, number, settled
from .once import Before, Once
from .opaque import Kernels, opaque
from .reads import read
from .reductions import normalize, reduce
from .rows import Rows, so_far
from .tiles import either, tiles
from .words import places_of, word_for
from .writes import put, write

if TYPE_CHECKING:
    from ..dialects.base import Dialect

WIDEST = 64  # An expression that is used once and is longer than this gets a name of its own.

_DTYPES: dict[Kind, Dtype] = {"real": "f64", "whole": "i64", "bool": "bool"}

# What a template names of what stands above, and an argument in it: between parentheses or commas it stands as it is.
_NAMED = re.compile(r"(?<![\w.])[a-zA-Z_]\w*(?=[(.]|$)")
_SLOT = re.compile(r"(?<=[(])\{(\d)\}(?=[,)])|(?<=, )\{(\d)\}(?=[,)])|\{(\d)\}")

RESERVED = frozenset((*keyword.kwlist, *dir(builtins), "_", "math", "itertools", "device", REFUSED, "program"))


def dtype_of(one: Value) -> Dtype:
    """The dtype that an array has: one that is weak and meets nothing has the widest."""
    return one.dtype or _DTYPES[one.kind]


class Printer:
    """A plan as the lines of a function.

    `names` has the variables of values that are computed, `order` the axes of each value in order, `steps` the
    variables of the loops around, `turns` how many turns each has, `sizes` and `variables` those of sizes and inputs.
    Of what is computed `ahead` of a loop, places that are not there read 0. Where it is `sized`, its caller compared
    the sizes that are numbers, and says which device it is for. One that stands inside of an `outer` one has its sizes
    and its names, and takes inputs by the names that are `given`.
    """

    def __init__(
        self,
        plan: Plan,
        dialect: Dialect,
        frees: bool = False,
        kernels: Kernels | None = None,
        arguments: Mapping[str, Argument] | None = None,
        sized: bool = False,
        outer: Printer | None = None,
        given: Mapping[str, str] | None = None,
    ) -> None:
        self.plan, self.d, self.frees, self.kernels, self.arguments = plan, dialect, frees, kernels, arguments
        self.sized = sized
        self.order = layouts(plan)
        self.uses, self.by_rows = uses(plan), read_by_rows(plan)
        # The helpers and modules that are named so far, each with the number that has a name for it, "" for all else.
        self.needs: dict[tuple[str, str], None] = {} if outer is None else outer.needs
        self.needed_by = ""
        self.texts = {**HELPERS, **dialect.helpers}
        self.taken: set[str] = {*RESERVED, *dialect.reserved, *self.texts} if outer is None else outer.taken
        if kernels is not None:
            kernels.begin(self.taken)
        self.lines, self.depth = list[str](), 1
        self.names, self.emitted = dict[Value, str](), set[Value]()
        self.unlooked: list[Value] = []  # Of these, those whose operands have not been looked at since.
        # The values that statements compute in order, each with those that are let go after it.
        self.statements: list[tuple[Value, list[Value]]] = []
        self.ends: dict[str, int] = {}  # How many there are after each definition.
        self.absorbed: set[Value] = set()  # Products that are part of a sum.
        self.refused: set[str] = set()
        # The variables of numbers that have a name in the relation, and where each is written that nothing reads yet.
        self.numbers: dict[ir.Expr, str] = {}
        self.unread: dict[str, int] = {}
        self.told: set[str] = set()  # The definitions whose lines stand where they are computed.
        self.notes: dict[str, list[str]] = {}
        # What is computed for some rows after the other, by what it is a part of; all plans that are printed inside.
        self.inside: dict[Value, Plan] = {}
        self.nested: list[Plan] = []
        self.steps, self.turns, self.ahead = dict[Coordinate, str](), dict[Coordinate, Polynomial](), False
        self.before: Before | None = None
        self.rows, self.apart = dict[str, Rows](), dict[tuple[Value, Coordinate], str]()
        self.measured: set[Coordinate] = set() if outer is None else outer.measured
        self.uses_device = False
        self.partial: tuple[str, str] | None = None
        # The values that are read by name; those that functions inside must not let go; and these functions.
        self.read: set[Value] = set()
        self.held: frozenset[Value] = frozenset()
        self.parts: list[str] = []
        # The functions that stand above, and what they call of kernel files; the masks of tiles of which not all pairs
        # are allowed, each with the test that tells them. One that `overwrites` computes in arrays that nobody needs
        # any more, of which some are `dying`.
        self.functions: list[str] = [] if outer is None else outer.functions
        self.files: dict[str, set[str]] = {} if outer is None else outer.files
        self.masks: dict[Value, str] = {} if outer is None else outer.masks
        self.overwrites, self.dying = False, frozenset[Value]()
        # Whether the lines of what is printed stand above; the names that arrays of loops are to have.
        self.is_told, self.wanted_names = False, dict[Value, str]()
        self.reserved = frozenset(self.taken)
        self.turned: dict[str, tuple[Code, tuple[Coordinate, ...]]] = {}
        self.leads: dict[Coordinate, str] = {}
        own, given = (_input(one).name for one in plan.inputs), given or {}
        self.variables = {name: given.get(name) or self.fresh(name) for name in own}
        self.sizes: dict[Coordinate, str] = {} if outer is None else outer.sizes
        for axis in (axis for one in plan.inputs for axis in _input(one).home):
            size = axis.extent
            if isinstance(size, ir.Size) and size.coordinate not in self.sizes:
                self.sizes[size.coordinate] = self.fresh(f"n_{axis.name.name}")
        self.names |= {one: self.variables[_input(one).name] for one in plan.inputs if one.axes}
        self.definition_of: dict[Value, Definition] = {}
        for definition in plan.definitions.values():
            self.definition_of.setdefault(definition.value, definition)
        conditions = [check.condition.op for check in plan.checks]
        self.nonzero = {_compared(op.expr, "!=") for op in conditions if isinstance(op, Number)}
        self.filled = {_compared(op.expr, ">") for op in conditions if isinstance(op, Number)}
        self.own_names = {one.name: self.fresh(one.name) for one in self.definition_of.values()}
        self.once = Once()
        self._readers: dict[Value, set[Value]] | None = None
        self._places: set[Value] | None = None

    # -------------------------------------------------------------------- text

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line if line else "")

    def insert(self, place: int, lines: Sequence[str]) -> None:
        """Put lines where others stand, which then follow."""
        self.lines[place:place] = lines
        self.unread = {name: at + len(lines) * (at >= place) for name, at in self.unread.items()}

    def tell(self, texts: Iterable[str]) -> None:
        """Lines of the relation as comments, each text once."""
        whole = dict.fromkeys(texts)
        for text in whole:  # A part of another text, or another name of what was told, says nothing new.
            if text.isidentifier() or any(text != other and text in other for other in whole):
                continue
            for line in text.splitlines():
                self.add(f"# {line}".rstrip())

    def fresh(self, name: str) -> str:
        """A variable that nothing else is called."""
        name = re.sub(r"\W|__+", "_", name)
        if name in RESERVED or not name.isidentifier():
            name = f"{name.rstrip('_') or 'part'}_"
        found, count = name, 1
        while found in self.taken:
            count += 1
            found = f"{name}_{count}"
        self.taken.add(found)
        return found

    def helper(self, name: str) -> str:
        """The name of a small function, or of a part of a module: it stands above, or is imported."""
        self.needs[name.partition(".")[0], self.needed_by] = None
        return name

    def call(self, function: str, *arguments: object, **named: object) -> Code:
        """A call of a small function that stands above, or of a part of a module."""
        return call(self.helper(function), *arguments, **named)

    @property
    def needed(self) -> dict[str, None]:
        """The helpers and modules that are named in the lines that stay."""
        return dict.fromkeys(name for name, by in self.needs if by not in self.unread)

    def template(self, text: str, codes: Iterable[str]) -> Code:
        """A call by its name, or a template around `{0}`; helpers and modules that it names come along."""
        for word in _NAMED.findall(text):
            self.helper(word)
        given = list(codes)
        if "{" not in text:
            return call(text, *given) if given else Code(text)

        def put(found: re.Match[str]) -> str:
            argument = found[1] or found[2]
            return given[int(argument)] if argument else closed(given[int(found[3])])

        return Code(_SLOT.sub(put, text), UNARY if text.startswith("-") else ATOM)

    def device(self) -> str:
        """The variable of the device on which arrays are made."""
        self.uses_device = True
        return "device"

    def size(self, coordinate: Coordinate) -> str:
        """The variable of a size, which is then read from a shape."""
        self.measured.add(coordinate)
        return self.sizes[coordinate]

    def lead(self, coordinate: Coordinate) -> str:
        """The variable of the lengths of all axes that a leading one stands for."""
        if coordinate not in self.leads:
            self.leads[coordinate] = self.fresh(f"lead_{coordinate.name}")
        return self.leads[coordinate]

    def refuse(self, test: str, code: str, message: str) -> None:
        """Raise where a test of numbers holds, once."""
        line = f"if {test}:"
        if line not in self.refused:
            self.refused.add(line)
            self.add(line)
            self.add(f'    raise {self.helper(REFUSED)}("{code}", {quoted(message)})')

    def check(self, mask: str, code: str, message: str, test: str = "") -> None:
        """Refuse where a mask holds somewhere, once; where a test of numbers is given, only if that holds."""
        line = f'{self.helper("check")}({mask}, "{code}", {quoted(message)})'
        if f"{test}: {line}" in self.refused or line in self.refused:
            return
        self.refused.add(f"{test}: {line}" if test else line)
        if test:
            self.add(f"if {test}:")
        self.add(f"    {line}" if test else line)

    # ------------------------------------------------------------------- values

    def order_of(self, one: Value) -> tuple[Coordinate, ...]:
        return self.order.setdefault(one, tuple(axis.name for axis in one.axes))

    def shape(self, axes: Iterable[Axis]) -> Code:
        return tupled(extent(self, axis) for axis in axes)

    def is_number(self, one: Value) -> bool:
        """Whether a value is a number of the host, and no array."""
        return not one.axes and expr_of(one) is not None

    def code(self, one: Value, widest: int = WIDEST) -> Code:
        """The code of a value, its axes in its own order: a name, or what stands for it where it is used once and not
        too long."""
        self.read.add(one)
        if one in self.names:
            self.unread.pop(self.names[one], None)
            return Code(self.names[one])
        if not one.axes and (expr := expr_of(one)) is not None:
            return fitting(self, expr)
        code = self.made(one)
        if one in self.names:
            self.statements.append((one, []))
            return Code(self.names[one])
        if one not in self.definition_of:
            if code.isidentifier():
                self.names[one] = str(code)
                return code
            is_short = len(code) <= widest or isinstance(one.op, Table)
            if self.uses[one] <= 1 and is_short and not isinstance(one.op, Iota):
                return code
        return self.assign(one, code)

    def assign(self, one: Value, code: Code) -> Code:
        """Give a value a name: its own, or one that says what it is."""
        definition = self.definition_of.get(one)
        name = self.fresh(self._word(one)) if definition is None else self.own_names[definition.name]
        self.names[one] = name
        self.statements.append((one, []))
        if definition is not None and isinstance(one.op, Number):
            self.numbers |= dict.fromkeys((one.op.expr, settled(one.op.expr)), name)
            self.unread[name] = len(self.lines)
        if name != code:
            self.add(f"{name} = {code}")
        return Code(name)

    def named(self, one: Value) -> Code:
        """The name of a value, given to it here where it has none."""
        code = self.code(one)
        return code if code.isidentifier() or self.is_number(one) else self.assign(one, code)

    def permuted(self, code: Code, now: tuple[Coordinate, ...], want: tuple[Coordinate, ...]) -> Code:
        """The code with its axes in another order. One that has been put in order before is not turned twice."""
        if code in self.turned and set(self.turned[code][1]) == set(now):  # Axes may have other names since.
            code, now = self.turned[code]
        if now == want:
            return code
        found = self.d.permute(code, tuple(now.index(name) for name in want))
        self.turned[found] = code, now
        return found

    def aligned(self, one: Value, want: tuple[Coordinate, ...], widest: int = WIDEST) -> Code:
        """The code of a value, its axes in this order, with an axis of length 1 for each that it does not have and that
        stands behind one that it has."""
        code, own = self.code(one, widest), () if self.is_number(one) else self.order_of(one)
        target = tuple(name for name in want if name in own)
        assert len(target) == len(own), (one, own, want)
        code = self.permuted(code, own, target)
        if not target:
            return code
        behind = want[want.index(target[0]) :]
        known = self.sized and self.d.view and all(isinstance(axis.extent, ir.Const) for axis in one.axes)
        if known and len(behind) > len(target):
            lengths = (extent(self, one.axis(name)) if name in target else "1" for name in behind)
            return method(code, self.d.view, *lengths)
        return indexed(code, [":" if name in target else "None" for name in behind])

    def whole(self, one: Value, axes: tuple[Axis, ...], dtype: Dtype | None = None, widest: int = WIDEST) -> Code:
        """The code of a value with all of these axes in this order, each as long as it is, not to be written to."""
        want = tuple(axis.name for axis in axes)
        if self.is_number(one):
            expr, shape, own = expr_of(one), self.shape(axes), dtype or dtype_of(one)
            is_zero = isinstance(expr, ir.Const) and not expr.value
            return self.d.zeros(self, shape, own) if is_zero else self.d.full(self, shape, self.code(one), own)
        code = self.aligned(one, want, widest)
        if not one.names >= set(want):
            code = self.d.expand(self, code, self.shape(axes))
        return code if dtype is None or dtype == dtype_of(one) else self.d.cast(self, code, dtype, True)

    def made(self, one: Value) -> Code:
        """The code that computes a value."""
        self.computed(one)
        match one.op:
            case Input(name):
                return Code(self.variables[name])
            case Iota(axis):
                return self.once.coordinates(self, one, axis)
            case Table():
                return self._table(one.op)
            case Map():
                return mapped(self, one)
            case Read():
                return read(self, one)
            case Write():
                return write(self, one)
            case Put():
                return put(self, one)
            case Reduce():
                return reduce(self, one)
            case Contract():
                return contract(self, one)
            case Normalize():
                return normalize(self, one)
            case Library():
                return library(self, one)
            case Opaque():
                return opaque(self, one)
            case Tiles():
                return tiles(self, one)
            case Either():
                return either(self, one)
            case Join():
                return join(self, one)
            case Carried():
                return so_far(self, one.op)
            case Result():
                return result(self, one)
        raise TypeError(one.op)

    def _table(self, op: Table) -> Code:
        """An array literal, in rows."""
        cells = [str(number(self, cell)) for cell in op.cells]
        for axis in reversed(op.home[1:]):
            length = int(str(number(self, axis.extent)))
            cells = [f"[{', '.join(cells[n : n + length])}]" for n in range(0, len(cells), max(1, length))]
        return self.d.array(self, f"[{', '.join(cells)}]", _DTYPES[op.kind])

    def _word(self, one: Value) -> str:
        """What a value is called that has no name in the relation."""
        word = word_for(one)
        if word == "number" and self._places is None:
            self._places = places_of(self.plan)
        return "place" if word == "number" and one in (self._places or ()) else word

    # ---------------------------------------------------------------- lifetimes

    def readers(self, one: Value) -> set[Value]:
        """The values that read a value."""
        if self._readers is None:
            self._readers = {}
            for reader in reachable(roots_of(self.plan)):
                for part in reader.parts:
                    self._readers.setdefault(part, set()).add(reader)
        return self._readers.get(one, set())

    def computed(self, *values: Value) -> None:
        """Note that values are computed: their operands are read."""
        self.emitted.update(values)
        self.unlooked += values


def _input(one: Value) -> Input:
    assert isinstance(one.op, Input)
    return one.op


def _compared(expr: ir.Expr, sign: str) -> ir.Expr | None:
    """The number that a condition says is not 0, or more than that."""
    match expr:
        case ir.Map(op, (number_, ir.Const(0))) if op == sign:
            return number_
    return None
