"""A program by exact numbers, through the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from ..diagnostics import CallError, Diagnostic, Label
from ..facts.coordinates import is_figures
from ..ir import nodes as ir
from ..ir.needs import members
from ..ir.walk import reads_of
from ..records import dataclass, field
from ..run.pointwise import check_work
from ..run.reference import Evaluation, Table
from ..run.trace import clause_at
from .deferred import Deferred, make
from .forms import Form, FormNumbers, is_algebraic, named, plain
from .functions import ExactNumbers
from .inputs import Given, read_inputs
from .notation import Node
from .printed import AsPrinted, figures_as_printed
from .terms import Polynomial, Symbol, size_of
from .tower import Number, Special, TooManyTerms, Undecidable, Valueless, budget

# Exact numbers are slow: more steps than this would take minutes.
MOST_STEPS = 20_000_000

# Numbers with many terms are slower: this many additions and multiplications of terms take a minute or two.
MOST_TERMS = 50_000_000

# Of these, so many are multiplied out at once, in part of a second; beyond, a number is kept as it is computed.
MOST_EAGER = 60_000

# A longer fraction is not kept.
MOST_BITS = 1_200_000

# A form that is written out in full is at most this long; beyond, the elements that it reads go by their names.
LONGEST = 160

# Through how many definitions a form is spelled out.
DEEPEST = 4


class Undecided(CallError):
    """Whether two numbers are equal, or which is larger, is not known: named terms are neither identical nor apart."""

    __module__ = "indexical"


@dataclass
class Evaluated:
    """A program with its exact values, and the forms of those that were asked for."""

    program: ir.Program
    given: Given
    evaluation: AsPrinted
    wanted: tuple[str, ...]
    _forms: dict[tuple[str, int, int], Form] = field(default_factory=dict)
    _evaluations: dict[int, Evaluation] = field(default_factory=dict)
    # What each cell asks of the symbols, and which cells it reads: found when it is asked for, by `conditions`.
    asked: dict[tuple[str, int], tuple[frozenset[Any], frozenset[tuple[str, int]]]] = field(default_factory=dict)

    def table(self, name: str) -> Table:
        return self.evaluation.tensors[name]

    @property
    def has_symbols(self) -> bool:
        """Whether an input has no values."""
        names = [tensor.name for tensor in self.program.inputs]
        return any(isinstance(cell, Polynomial) for name in names for cell in self.table(name).cells[:1])

    def is_masked(self, name: str, offset: int) -> bool:
        """Whether a guard removed this point, or what it is made of."""
        table = self.table(name)
        cell = table.cells[offset]
        if cell is None or offset in table.removed:
            return True
        let = self.evaluation.lets.get(name)
        if let is None or not isinstance(cell, Special):
            return False
        clause, point = clause_at(self.evaluation, let, table.place(offset))
        match clause.body:
            case ir.Normalize(op="log_softmax", guard=guard) if guard is not None:
                return not self.evaluation.value(guard, point)
        return False

    def ended(self) -> list[tuple[ir.Let, set[str]]]:
        """The definitions where exactness ended, each with the functions that ended it: they have named terms, and
        nothing that they read has. Of definitions that are computed together, it is the first."""
        result = []
        outside: set[str] = set()
        lets = {let.name: let for let in self.computed()}
        for order in self.program.order:
            # The cells of an array literal are those of the definition that it stands in.
            together = [name for name in lets if name in members(order) and not is_figures(lets[name])]
            found = {name: self._named(name) for name in together}
            reads = {read.tensor for name in together for read in reads_of(lets[name])}
            first = next((name for name in together if found[name]), None)
            if first is not None:
                if not reads & outside:
                    result.append((lets[first], found[first]))
                outside |= {name for name in together if found[name]}
        return result

    def _named(self, name: str) -> set[str]:
        """The functions that left the field in a definition."""
        cells = [cell for cell in self.table(name).cells if isinstance(cell, Number)]
        return {function for cell in cells for function in cell.outside}

    def computed(self) -> list[ir.Let]:
        """The definitions that were evaluated, in their order."""
        return [let for let in ordered(self.program) if let.name in self.evaluation.tensors]

    # ------------------------------------------------------------------ forms

    def form(self, name: str, offset: int, spelled: bool | None = None) -> Node:
        """A cell as its definition builds it. Elements that it reads are spelled out, or go by their names; with
        None, they are spelled out where that is short and no symbol is in it."""
        if spelled is not None:
            return self._form(name, offset, DEEPEST if spelled else 0, top=True).node
        cell = self.table(name).cells[offset]
        if _is_long(cell):
            return self.form(name, offset, False)
        found = self._form(name, offset, DEEPEST, top=True)
        short = not (isinstance(cell, Polynomial) and cell.symbols) and found.length <= LONGEST
        return found.node if short else self.form(name, offset, False)

    def _form(self, name: str, offset: int, depth: int, top: bool = False) -> Form:
        """The form of a cell; those that it reads are spelled out through so many definitions."""
        let = next((let for let in self.program.lets if let.name == name), None)
        cell = self.table(name).cells[offset]
        if let is None or let.kind != "real" or cell is None:
            return _leaf(cell or 0)
        if not top and is_algebraic(cell):
            return plain(cell)
        if not top and not let.hidden and _is_long(cell):
            return named(cell, self.symbol(name, offset))
        if not top and depth <= 0 and (depth < -DEEPEST or not let.hidden):
            return named(cell, self.symbol(name, offset))
        key = (name, offset, depth)
        if key not in self._forms:
            self._forms[key] = self._rebuilt(let, offset, depth)
        found = self._forms[key]
        too_long = not top and not let.hidden and found.length > LONGEST
        return named(cell, self.symbol(name, offset)) if too_long else found

    def _rebuilt(self, let: ir.Let, offset: int, depth: int) -> Form:
        """The clause of a cell, evaluated once more with forms."""
        if depth not in self._evaluations:
            tables = {
                name: Table(table.shape, _Forms(self, name, depth - 1), table.removed)  # type: ignore[arg-type]
                for name, table in self.evaluation.tensors.items()
            }
            self._evaluations[depth] = Evaluation(self.program, tables, self.evaluation.sizes, FormNumbers())
        evaluation = self._evaluations[depth]
        clause, point = clause_at(evaluation, let, self.table(let.name).place(offset))
        found = evaluation.value(clause.body, point)
        return found if isinstance(found, Form) else plain(found)

    def symbol(self, name: str, offset: int) -> Symbol:
        """`weights[2, 0]`, as a name."""
        return Symbol(name, self.marked(name, self.table(name).place(offset)))

    def marked(self, name: str, place: tuple[int, ...]) -> tuple[int | str, ...]:
        """A place, with the name of the coordinate where one point stands for a row."""
        axes = self.program.tensors[name].axes
        return tuple(
            axis.coordinate.name
            if isinstance(axis.extent, ir.Size) and axis.extent.coordinate in self.given.rows
            else at
            for axis, at in zip(axes, place, strict=True)
        )


class _Forms:
    """The cells of a table as forms, made when they are read."""

    def __init__(self, evaluated: Evaluated, name: str, depth: int) -> None:
        self.evaluated, self.name, self.depth = evaluated, name, depth
        self.kind = evaluated.program.tensors[name].kind

    def __getitem__(self, offset: int) -> Any:
        cell = self.evaluated.table(self.name).cells[offset]
        if cell is None or self.kind != "real":
            return cell
        return self.evaluated._form(self.name, offset, self.depth)


def _is_long(cell: Any) -> bool:
    """Whether the form of a number is too long to be spelled out, as its terms say."""
    return isinstance(cell, Deferred) or size_of(cell) > LONGEST


def _leaf(cell: Any) -> Form:
    """An element of an input."""
    if isinstance(cell, Polynomial):
        (found,) = cell.symbols
        return named(cell, found)
    return plain(cell)


def ordered(program: ir.Program) -> list[ir.Let]:
    """Every definition after all that it reads."""
    lets = program.definitions
    return [lets[name] for order in program.order for name in sorted(members(order), key=list(lets).index)]


class _Exactly(AsPrinted):
    """An evaluation whose numbers stay of a size that can be written: a recurrence that squares doubles their length
    at every step."""

    def table(self, let: ir.Let) -> Table:
        new = let.name not in self.tensors
        table = super().table(let)
        if new:
            table.cells = _Cells(table.cells)
        return table


class _Cells(list[Any]):
    """Cells that refuse a fraction of absurd length."""

    def __setitem__(self, at: Any, value: Any) -> None:
        if (
            isinstance(value, int | Fraction)
            and value.numerator.bit_length() + value.denominator.bit_length() > MOST_BITS
        ):
            raise TooManyTerms(f"a fraction of more than {MOST_BITS:,} bits")
        super().__setitem__(at, value)


def evaluate(
    program: ir.Program,
    arguments: Mapping[str, Any],
    sizes: Mapping[str, int],
    wanted: tuple[str, ...],
    tell: Callable[[str], None] = lambda name: None,
    terms: int = MOST_TERMS,
    printed: bool = False,
) -> Evaluated:
    """Compute the wanted definitions and all that they need, exactly. `tell` is called with the name of what is
    computed next; `terms` is how many terms may be multiplied and added in all. With `printed`, steps go on from the
    figures that are claimed `as printed`."""
    given = read_inputs(program, arguments, sizes)
    check_work(given.bound, wanted, MOST_STEPS)
    evaluation = _Exactly(program, given.tables, given.bound.sizes, ExactNumbers())
    if printed:
        evaluation.printed = figures_as_printed(evaluation, program)
    with explained(evaluation), budget(terms, MOST_EAGER, make):
        evaluation.compute(program, wanted, tell)
    return Evaluated(program, given, evaluation, wanted)


@contextmanager
def explained(evaluation: Evaluation | None = None) -> Iterator[None]:
    """Turn a failure of exact arithmetic into an error that names the definition and the point."""
    try:
        yield
    except TooManyTerms as problem:
        help = "ask for fewer outputs, smaller sizes or simpler inputs; `ix run` has no such limit"
        raise CallError([_at(evaluation, "IX514", f"the exact value grows too large: {problem}", help)]) from None
    except Undecidable:
        message = "it is not known whether these are equal: their named terms are neither identical nor told apart"
        raise Undecided([_at(evaluation, "IX513", message, None)]) from None
    except Valueless as problem:
        message = f"this depends on `{problem.symbol}`, which has no value"
        help = f"give `{problem.symbol.partition('[')[0]}` values: a symbol can be added and multiplied, not compared"
        raise CallError([_at(evaluation, "IX512", message, help)]) from None
    except RecursionError:
        message = "the exact value is nested too deeply: a term stands in a term, hundreds of times"
        raise CallError([_at(evaluation, "IX514", message, "take fewer steps, or `ix run`")]) from None
    except OverflowError as problem:
        raise CallError([_at(evaluation, "IX514", f"a number is too large to be enclosed: {problem}", None)]) from None


def _at(evaluation: Evaluation | None, code: str, message: str, help: str | None) -> Diagnostic:
    if evaluation is None or evaluation.at is None:
        return Diagnostic(code, message, help=help)
    let, clause, point = evaluation.at
    where = ", ".join(f"`{c} = {v}`" for c, v in point.items() if not c.rest)
    return Diagnostic(code, message, (Label(clause.span, f"in `{let.name}`"),), (f"at {where}",) if where else (), help)
