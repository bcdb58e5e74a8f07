"""Programs as trees of the laws' own. They share nothing with the compiler's tree, its checker or its Program.

`text_of` writes a program down. What it means is for `grids` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

Kind = Literal["bool", "whole", "real"]

# ----------------------------------------------------------------------- what there is to name


@dataclass(eq=False)
class Dim:
    """A number of points; axes that must agree have the same one. Inside a function the caller decides it.

    `words` are terms that say the size, `parts` the dimensions it is made of. `space` is the dimension whose space this
    one is of. `stated` says that the program fixes the size by a literal.
    """

    size: int | None
    words: tuple[Term, ...] = ()
    space: Dim | None = None
    stated: bool = False
    parts: tuple[Dim, ...] = ()


@dataclass(eq=False)
class Coordinate:
    """A bound coordinate. `dim` is there if it runs over all points of a dimension, from 0."""

    name: str
    dim: Dim | None = None
    dependent: bool = False


@dataclass(frozen=True, eq=False)
class Rest:
    """`..name` in one statement, and the coordinates it stands for. `flat`: those that the inputs lead with."""

    name: str
    coordinates: tuple[Coordinate, ...]
    flat: bool = False


@dataclass(eq=False)
class Tensor:
    """Whatever can be read: an input, a definition, a parameter. `open` counts the axes that `..r` leads with.

    `leaky` is True if some point is absent, or made of absent ones. `guard` is what a reader may repeat. `below` says
    that the values index a dimension, `counts` that a scalar is the size of one, `given` that the caller provides it.
    """

    name: str
    axes: tuple[Dim, ...]
    kind: Kind
    leaky: bool = False
    open: int | None = None
    below: Dim | None = None
    counts: Dim | None = None
    given: bool = False
    guard: tuple[tuple[Coordinate, ...], Term] | None = None


# -------------------------------------------------------------------------------------- terms


@dataclass(frozen=True, eq=False)
class Number:
    """As it is written: with a point it is real. `~` marks a figure that was rounded."""

    text: str
    printed: bool = False

    @property
    def kind(self) -> Kind:
        return "whole" if self.text.isdigit() and not self.printed else "real"


@dataclass(frozen=True, eq=False)
class Truth:
    value: bool
    kind: Kind = "bool"


@dataclass(frozen=True, eq=False)
class Place:
    """The value of a coordinate."""

    coordinate: Coordinate
    kind: Kind = "whole"


@dataclass(frozen=True, eq=False)
class Size:
    """`size(c)`, of a coordinate in scope or, by its name, of the inputs'."""

    of: Coordinate | str
    dim: Dim
    kind: Kind = "whole"


@dataclass(frozen=True, eq=False)
class Read:
    """A tensor at indices; the first ones may be written as `..r`."""

    tensor: Tensor
    indices: tuple[Term, ...] = ()
    rest: Rest | None = None

    @property
    def kind(self) -> Kind:
        return self.tensor.kind


@dataclass(frozen=True, eq=False)
class Cells:
    """An array literal, read at indices where it stands in a term."""

    cells: Any
    kind: Kind
    axes: tuple[Dim, ...]
    indices: tuple[Term, ...] = ()
    printed: bool = False


@dataclass(frozen=True, eq=False)
class Op:
    """An operator: `-` and `!` with one term, a chain of comparisons with more than two."""

    ops: tuple[str, ...]
    terms: tuple[Term, ...]
    kind: Kind


@dataclass(frozen=True, eq=False)
class Function:
    """An elementwise function."""

    name: str
    terms: tuple[Term, ...]
    kind: Kind


@dataclass(frozen=True, eq=False)
class Cast:
    term: Term
    dtype: str
    kind: Kind


@dataclass(frozen=True, eq=False)
class If:
    condition: Term
    then: Term
    otherwise: Term
    kind: Kind


@dataclass(frozen=True, eq=False)
class Binder:
    """A coordinate with its range, if one is stated."""

    coordinate: Coordinate
    lower: Term | None = None
    upper: Term | None = None
    inclusive: bool = False


@dataclass(frozen=True, eq=False)
class Reduce:
    """`after` says that the guard is written at the end of the statement; `shorts` are abbreviated inside."""

    op: str
    binders: tuple[Binder | Rest, ...]
    body: Term
    guard: Term | None
    kind: Kind
    after: bool = False
    shorts: tuple[Short, ...] = ()


@dataclass(frozen=True, eq=False)
class Scan:
    """A normaliser: `softmax`, `log_softmax` or `cumsum` along a coordinate that survives."""

    op: str
    coordinate: Coordinate
    body: Term
    guard: Term | None
    kind: Kind
    after: bool = False


@dataclass(frozen=True, eq=False)
class Short:
    """A name that `where name = term` abbreviates, where it is used."""

    name: str
    term: Term

    @property
    def kind(self) -> Kind:
        return self.term.kind


@dataclass(frozen=True, eq=False)
class Paren:
    term: Term

    @property
    def kind(self) -> Kind:
        return self.term.kind


@dataclass(frozen=True, eq=False)
class Block:
    lets: tuple[Let, ...]
    body: Term

    @property
    def kind(self) -> Kind:
        return self.body.kind


@dataclass(frozen=True, eq=False)
class Apply:
    """A call. `indices` read a result that is a tensor; `axes` are its dimensions at this call."""

    fn: Fn
    arguments: tuple[Tensor | Apply | Cells | Term, ...]
    indices: tuple[Term, ...] = ()
    axes: tuple[Dim, ...] = ()

    @property
    def kind(self) -> Kind:
        return self.fn.body.kind


Term: TypeAlias = (
    Number | Truth | Place | Size | Read | Cells | Op | Function | Cast | If | Reduce | Scan | Short | Paren
    | Block | Apply
)

# --------------------------------------------------------------------------------- statements


@dataclass(frozen=True, eq=False)
class Clause:
    """One `let`. `inside` says that the guard is written at the end of the block that is its body."""

    slots: tuple[Binder | Rest | Term, ...]
    body: Term
    guard: Term | None = None
    inside: bool = False
    shorts: tuple[Short, ...] = ()


@dataclass(frozen=True, eq=False)
class Let:
    """A definition: clauses, or a whole tensor under a name of its own. `scalar` has no bracket."""

    tensor: Tensor
    clauses: tuple[Clause, ...] = ()
    whole: Tensor | Apply | Cells | None = None


@dataclass(frozen=True, eq=False)
class Fn:
    """`homes` are the coordinates of each parameter, None for a scalar. `result` is None for a scalar result."""

    name: str
    parameters: tuple[Tensor, ...]
    homes: tuple[tuple[str, ...] | None, ...]
    lets: tuple[Let, ...]
    result: tuple[Binder, ...] | None
    body: Term
    guard: Term | None = None


@dataclass(frozen=True, eq=False)
class Input:
    """`home` names the axes behind those that `..r` leads with; `stated` are the ranges among them."""

    tensor: Tensor
    home: tuple[str, ...]
    dtype: str | None
    stated: Mapping[str, Term] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Program:
    """`groups` are definitions, each after all that it reads; those that read each other stand together.

    `order` is how the statements are written down: inputs first, then functions, then the clauses of all groups.
    """

    inputs: tuple[Input, ...]
    functions: tuple[Fn, ...]
    groups: tuple[tuple[Let, ...], ...]
    spaces: Mapping[str, tuple[str, ...]]
    outputs: tuple[str, ...] = ()
    order: tuple[int, ...] = ()
    lead: str = "r"

    @property
    def lets(self) -> tuple[Let, ...]:
        return tuple(let for group in self.groups for let in group)


# ---------------------------------------------------------------------------------- traversal

_NODES = (Number, Truth, Place, Size, Read, Cells, Op, Function, Cast, If, Reduce, Scan, Short, Paren, Block, Apply)
_PARTS = (*_NODES, Binder, Rest, Clause, Let, Fn)


def parts(node: Any) -> Iterator[Any]:
    """What a node is made of; neither tensors, nor coordinates, nor the function that is called."""
    for place in fields(node):
        value = getattr(node, place.name)
        if isinstance(node, Apply) and place.name == "fn":
            continue
        if isinstance(value, _PARTS):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, _PARTS))


def walk(node: Any) -> Iterator[Any]:
    """The node and everything inside it."""
    yield node
    for part in parts(node):
        yield from walk(part)


def change(node: Any, step: Any) -> Any:
    """The node with `step` done to each of its parts."""
    changed: dict[str, Any] = {}
    for place in fields(node):
        value = getattr(node, place.name)
        if isinstance(node, Apply) and place.name == "fn":
            continue
        if isinstance(value, _PARTS):
            changed[place.name] = step(value)
        elif isinstance(value, tuple):
            changed[place.name] = tuple(step(item) if isinstance(item, _PARTS) else item for item in value)
    different = {name: value for name, value in changed.items() if not _same(getattr(node, name), value)}
    return replace(node, **different) if different else node


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
    return old is new


def tensors_in(node: Any) -> set[Tensor]:
    """The tensors that a node reads, or hands over whole."""
    found: set[Tensor] = set()
    for part in walk(node):
        match part:
            case Read(tensor):
                found.add(tensor)
            case Apply(arguments=arguments):
                found.update(argument for argument in arguments if isinstance(argument, Tensor))
            case Let(whole=Tensor() as tensor):
                found.add(tensor)
    return found


def bound_in(node: Any) -> set[Coordinate]:
    """The coordinates that something inside binds."""
    found: set[Coordinate] = set()
    for part in walk(node):
        if isinstance(part, Binder):
            found.add(part.coordinate)
        elif isinstance(part, Rest):
            found.update(part.coordinates)
    return found


def mentioned(node: Any) -> dict[Coordinate, None]:
    """The coordinates that a node mentions, sizes and normalisers included, in the order of the text."""
    found: dict[Coordinate, None] = {}
    for part in walk(node):
        match part:
            case Place(coordinate) | Scan(coordinate=coordinate):
                found.setdefault(coordinate)
            case Size(Coordinate() as coordinate):
                found.setdefault(coordinate)
            case Read(rest=Rest(coordinates=coordinates)):
                found.update(dict.fromkeys(coordinates))
    return found


def free_in(node: Any) -> dict[Coordinate, None]:
    """The coordinates of the surroundings that a node mentions."""
    bound = bound_in(node)
    return {coordinate: None for coordinate in mentioned(node) if coordinate not in bound}


def bare_axes(node: Any, coordinate: Coordinate) -> list[Dim]:
    """The dimensions of the axes that a coordinate indexes by itself."""
    found: list[Dim] = []
    for part in walk(node):
        if isinstance(part, Read | Cells | Apply) and part.indices:
            axes = part.tensor.axes if isinstance(part, Read) else part.axes
            for index, dim in zip(part.indices, axes, strict=True):
                if isinstance(index, Place) and index.coordinate is coordinate:
                    found.append(dim)
    return found


# --------------------------------------------------------------------------------------- text

_LEVELS = {
    **dict.fromkeys(("||",), 1),
    **dict.fromkeys(("&&",), 2),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
    "**": 8,
}
_CAST, _UNARY, _POWER, _CLOSED = 6, 7, 8, 9


@dataclass(frozen=True)
class Writer:
    """Writes terms and statements; `names` gives coordinates other names, throughout."""

    names: Mapping[str, str] = field(default_factory=dict)

    def name(self, coordinate: Coordinate | str) -> str:
        plain = coordinate if isinstance(coordinate, str) else coordinate.name
        return self.names.get(plain, plain)

    def at(self, term: Any, level: int) -> str:
        """The term where only what holds at least as tightly as `level` may stand bare."""
        text, own = self.term(term)
        return text if own >= level else f"({text})"

    def bare(self, term: Any) -> str:
        return self.term(term)[0]

    def listed(self, terms: Any) -> str:
        return ", ".join(self.bare(term) for term in terms)

    def term(self, term: Any) -> tuple[str, int]:
        """The text of a term, and how tightly it holds together."""
        match term:
            case Number(text, printed):
                return ("~" if printed else "") + text, _CLOSED
            case Truth(value):
                return ("true" if value else "false"), _CLOSED
            case Place(coordinate):
                return self.name(coordinate), _CLOSED
            case Size(of):
                return f"size({self.name(of)})", _CLOSED
            case Read(tensor, indices, rest):
                return tensor.name + self.bracket(indices, rest), _CLOSED
            case Cells(cells, _, _, indices, printed):
                return ("~" if printed else "") + _cells(cells) + self.bracket(indices, None), _CLOSED
            case Op(ops, terms):
                return self.operation(ops, terms)
            case Function(name, terms):
                return f"{name}({self.listed(terms)})", _CLOSED
            case Cast(inner, dtype):
                return f"{self.at(inner, _CAST)} as {dtype}", _CAST
            case If(condition, then, otherwise):
                return (
                    f"if {self.bare(condition)} {{ {self.bare(then)} }} else {{ {self.bare(otherwise)} }}",
                    _CLOSED,
                )
            case Reduce(op, binders, body, guard, _, after, shorts):
                bound = ", ".join(self.slot(binder) for binder in binders)
                return f"{op}[{bound}]({self.guarded(body, [] if after else [guard], shorts)})", _CLOSED
            case Scan(op, coordinate, body, guard, _, after):
                return f"{op}[{self.name(coordinate)}]({self.guarded(body, [] if after else [guard])})", _CLOSED
            case Short(name):
                return name, _CLOSED
            case Paren(inner):
                return f"({self.bare(inner)})", _CLOSED
            case Block(lets, body):
                return self.block(lets, body, None), _CLOSED
            case Apply(fn, arguments, indices):
                given = ", ".join(a.name if isinstance(a, Tensor) else self.bare(a) for a in arguments)
                return f"{fn.name}({given})" + self.bracket(indices, None), _CLOSED
        raise TypeError(term)

    def operation(self, ops: tuple[str, ...], terms: tuple[Any, ...]) -> tuple[str, int]:
        if len(terms) == 1:
            return ops[0] + self.at(terms[0], _UNARY), _UNARY
        level = _LEVELS[ops[0]]
        first = {3: level + 1, _POWER: _CLOSED}.get(level, level)
        rest = level if level == _POWER else level + 1
        text = self.at(terms[0], first)
        for op, term in zip(ops, terms[1:], strict=True):
            text += f" {op} {self.at(term, rest)}"
        return text, level

    def bracket(self, indices: tuple[Any, ...], rest: Rest | None) -> str:
        shown = [self.bare(index) for index in (indices[len(rest.coordinates) :] if rest else indices)]
        if rest:
            shown.insert(0, f"..{rest.name}")
        return f"[{', '.join(shown)}]" if shown else ""

    def slot(self, slot: Any) -> str:
        match slot:
            case Rest(name):
                return f"..{name}"
            case Binder(coordinate, None, _):
                return self.name(coordinate)
            case Binder(coordinate, lower, upper, inclusive):
                ends = f"{self.at(lower, 4)}{'..=' if inclusive else '..'}{self.at(upper, 4)}"
                return f"{self.name(coordinate)} in {ends}"
            case _:
                return self.bare(slot)

    def guarded(self, body: Any, guards: Sequence[Any], shorts: tuple[Short, ...] = ()) -> str:
        """A body with its `where`: guards, then what its names abbreviate."""
        clauses = [self.bare(guard) for guard in guards if guard is not None]
        clauses += [f"{short.name} = {self.bare(short.term)}" for short in shorts]
        return f"{self.bare(body)} where {', '.join(clauses)}" if clauses else self.bare(body)

    def block(self, lets: tuple[Let, ...], body: Any, guard: Any) -> str:
        inner = [self.let(let, clause) for let in lets for clause in let.clauses or (None,)]
        return "{ " + " ".join([*inner, self.guarded(body, [guard])]) + " }"

    def let(self, let: Let, clause: Clause | None) -> str:
        name = let.tensor.name
        if clause is None:
            whole = let.whole.name if isinstance(let.whole, Tensor) else self.bare(let.whole)
            return f"let {name} = {whole};"
        slots = f"[{', '.join(self.slot(slot) for slot in clause.slots)}]" if clause.slots else ""
        after = [node.guard for node in _along_the_spine(clause.body) if node.after]
        if clause.inside and isinstance(clause.body, Block):
            right = self.block(clause.body.lets, clause.body.body, clause.guard)
        else:
            right = self.guarded(clause.body, [clause.guard, *after], clause.shorts)
        return f"let {name}{slots} = {right};"

    def fn(self, fn: Fn) -> str:
        parameters = ", ".join(
            tensor.name + ("" if home is None else f"[{', '.join(self.name(c) for c in home)}]")
            for tensor, home in zip(fn.parameters, fn.homes, strict=True)
        )
        arrow = "" if fn.result is None else f" -> [{', '.join(self.slot(slot) for slot in fn.result)}]"
        return f"fn {fn.name}({parameters}){arrow} {self.block(fn.lets, fn.body, fn.guard)}"

    def input(self, input: Input, lead: str) -> str:
        slots = [
            self.name(name) + (f" in 0..{self.at(input.stated[name], 4)}" if name in input.stated else "")
            for name in input.home
        ]
        if input.tensor.open is not None:
            slots.insert(0, f"..{lead}")
        bracket = f"[{', '.join(slots)}]" if slots else ""
        return f"input {input.tensor.name}{bracket}{f' : {input.dtype}' if input.dtype else ''};"

    def statements(self, program: Program) -> list[str]:
        """Every statement, in no particular order."""
        found = [self.input(input, program.lead) for input in program.inputs]
        found += [self.fn(fn) for fn in program.functions]
        found += [self.let(let, clause) for let in program.lets for clause in let.clauses or (None,)]
        if program.spaces:
            shown = (f"{name}({', '.join(self.name(c) for c in cs)})" for name, cs in program.spaces.items())
            found.append(f"space {', '.join(shown)};")
        if program.outputs:
            found.append(f"output {', '.join(program.outputs)};")
        return found


def _along_the_spine(term: Any) -> Iterator[Reduce | Scan]:
    """The reductions and normalisers that stand in no bracket of a right-hand side, parentheses included."""
    match term:
        case Reduce() | Scan():
            yield term
        case Cast(inner, _):
            if not _needs_parentheses(inner, _CAST):
                yield from _along_the_spine(inner)
        case Op(ops, terms):
            level = _UNARY if len(terms) == 1 else _LEVELS[ops[0]]
            for number, inner in enumerate(terms):
                least = level if len(terms) == 1 or (number == 0 and level not in (3, _POWER)) else level + 1
                least = _CLOSED if level == _POWER and number == 0 else least
                least = _POWER if level == _POWER and number else least
                if not _needs_parentheses(inner, least):
                    yield from _along_the_spine(inner)


def _needs_parentheses(term: Any, level: int) -> bool:
    return Writer().term(term)[1] < level


def spine(term: Any) -> list[Reduce | Scan]:
    return list(_along_the_spine(term))


def _cells(cells: Any) -> str:
    return cells if isinstance(cells, str) else f"[{', '.join(map(_cells, cells))}]"


def text_of(program: Program, names: Mapping[str, str] | None = None, order: tuple[int, ...] | None = None) -> str:
    """The program as a text, its statements in the order that it or the caller gives."""
    statements = Writer(names or {}).statements(program)
    wanted = program.order if order is None else order
    chosen = [number for number in wanted if number < len(statements)]
    chosen += [number for number in range(len(statements)) if number not in set(chosen)]
    return "\n".join(statements[number] for number in chosen) + "\n"
