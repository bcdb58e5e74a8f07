"""A plan as the text of one Python module: its function with its inputs and outputs, and what stands above it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...records import dataclass, field
from ..arguments import ELSEWHERE, Argument
from ..carried import carried
from ..constants import Apart, handed_out
from ..kernel_texts import KERNELS
from ..ops import Either, Input, Map, Number, Opaque, Plan, Result, Tiles, Value
from ..order import reachable, roots_of, stored
from .again import Part
from .elementwise import is_made
from .imports import STANDARD, Import, imported, names_in, with_needed
from .inputs import input_of, take
from .lifetimes import free
from .lines import WIDEST, wrapped
from .number_helpers import REFUSED
from .numbers import negated
from .once import Groups, Once
from .opaque import Kernels, Unwritten
from .outputs import give, output
from .printer import Printer, dtype_of

if TYPE_CHECKING:
    from ..dialects.base import Dialect

# Groups of definitions, one behind the other in the text.
Again: TypeAlias = tuple[tuple[str, ...], ...]

FEW = 24  # A function with fewer arrays than this returns soon enough: they are not let go before.

_WIDE = frozenset(("i64", "f64"))

_TRITON = ("triton", "")


@dataclass(frozen=True, slots=True)
class Module:
    """An emitted module: what it imports, its text, and the kernels that this calls, by file and name. One that is
    `wide` computes with 64 bits; one `for_some` refuses calls that another one takes. `notes` are what was decided of
    definitions while it was written, and `inside` are the plans that it follows inside of kernels."""

    imports: tuple[Import, ...]
    text: str
    kernels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    wide: bool = False
    for_some: bool = False
    notes: Mapping[str, Iterable[Any]] = field(default_factory=dict, compare=False, repr=False)
    inside: Mapping[Value, Plan] = field(default_factory=dict, compare=False, repr=False)

    def linked(self) -> str:
        """The module with its kernels imported from here."""
        ours = [(f"{KERNELS}.{file}", name) for file, names in self.kernels for name in names]
        # What decorates kernels for a GPU keeps their binaries where emitted texts are kept.
        others = [(KERNELS, "triton_jit as triton") if one == _TRITON else one for one in self.imports]
        return imported([*others, *ours]) + self.text

    def standing_alone(self) -> str:
        """The module with its kernels in it: it runs without Indexical."""
        if not self.kernels:
            return imported(self.imports) + self.text
        above = carried(self.kernels)
        return imported([*self.imports, *above.imports]) + "\n" + above.text + self.text


def show(plan: Plan, dialect: Dialect, frees: bool = False) -> str:
    """The text of a plan, for arrays of the dtypes that it was made for."""
    return emit(plan, dialect, frees=frees).standing_alone()


def emit(
    plan: Plan,
    dialect: Dialect,
    arguments: Mapping[str, Argument] | None = None,
    kernels: Kernels | None = None,
    frees: bool = False,
    again: Again = (),
) -> Module:
    """The module that follows a plan, for arguments like these; kernels of the former emitter are printed by it. Groups
    of definitions are computed `again` on the way back."""
    p = Printer(plan, dialect, frees, kernels, arguments)
    return _module(p, _function(p, p.variables.values(), again))


def emit_sized(
    two: Apart,
    dialect: Dialect,
    arguments: Mapping[str, Argument] | None = None,
    kernels: Kernels | None = None,
    is_held: Callable[[str, Groups], bool] | None = None,
    keeps: bool = True,
    above: str = "",
) -> Module:
    """The module of a plan for known sizes: it makes what is kept when it is loaded, on the `device` and of the arrays
    that are held, which it finds by these names; its function compares no sizes that are known, and reads what is
    kept. `is_held` says whether a view of an input may be made once for all calls; where it `keeps` arrays,
    coordinates are. It is loaded among the names of the text `above` and leaves out what stands there, kernels for a
    GPU above all: compiled again they would take a second."""
    p = Printer(two.plan, dialect, False, kernels, arguments, sized=True)
    p.once = Once(is_held, handed_out(two.plan) if keeps else None)
    own = {tensor.name for tensor in two.plan.program.inputs}
    function = _function(p, [variable for name, variable in p.variables.items() if name in own])
    texts: list[str] = []
    if two.kept.wanted:
        first = Printer(two.kept, dialect, sized=True)
        define(first)
        found = [output(first, two.kept.definitions[name]) for name in two.kept.wanted]
        body, first.lines = first.lines, []
        take(first)
        own_names = [p.variables[name] for name in two.kept.wanted]
        texts += _made_once(p, "keep", first.variables.values(), [*first.lines, *body], found, own_names)
        p.needs |= dict.fromkeys((name, "") for name in first.needed)
    lines, kept = ([], ()) if kernels is None else kernels.kept()
    if kept:
        texts += _made_once(p, "keep_for_kernels", [], lines, kept, kept)
    if p.once.codes:
        names, given = zip(*p.once.codes.values(), strict=True)
        texts += _made_once(p, "keep_views", dict.fromkeys(filter(None, given)), [], p.once.codes, names)
    return _module(p, function, texts, above)


def _made_once(
    p: Printer, name: str, given: Iterable[str], lines: Iterable[str], found: Iterable[str], kept: Iterable[str]
) -> Iterator[str]:
    """A function that makes what is kept, and its call."""
    arguments = ", ".join(["device", *given])
    whole = [f"def {name}({arguments}):", *lines, f"    return ({', '.join(found)},)"]
    yield "\n".join([*p.d.decorators, *(part for line in whole for part in wrapped(line))])
    yield "\n".join(wrapped(f"({', '.join(kept)},) = {name}({arguments})"))


def _function(p: Printer, inputs: Iterable[str], again: Again = ()) -> str:
    """The function of a plan."""
    _lend(p)
    define(p, again)
    _assert(p)
    give(p)
    for place in sorted(p.unread.values(), reverse=True):
        del p.lines[place : place + 1 + (p.lines[place + 1] == "")]  # Its lines go along with what follows.
    body, p.lines, p.numbers = p.lines, [], {}
    take(p)
    lines = [part for line in (*p.lines, *body) for part in wrapped(line)]
    return "\n".join([*p.d.decorators, *wrapped(f"def program({', '.join(inputs)}):"), *lines])


def _lend(p: Printer) -> None:
    """Tell kernels of the former emitter the variables of sizes and inputs."""
    if p.kernels is None:
        return
    told: set[Coordinate] = set()
    for tensor, one in zip(p.plan.program.inputs, p.plan.inputs, strict=False):  # What is kept comes behind.
        for written, axis in zip(tensor.axes, input_of(one).home, strict=True):
            if isinstance(written.extent, ir.Size):
                match axis.extent:
                    case ir.Size(coordinate):
                        p.kernels.size(written.extent.coordinate, p.sizes[coordinate])
                    case ir.Const(int(length)) if written.extent.coordinate not in told:
                        p.kernels.size(written.extent.coordinate, p.fresh(f"n_{written.coordinate.name}"), length)
                told.add(written.extent.coordinate)
        if tensor.axes:  # A tile may measure a size off an array that its kernel does not read.
            p.kernels.take(tensor.name, p.variables[tensor.name], one.dtype, False)


def _module(p: Printer, function: str, first: Iterable[str] = (), above: str = "") -> Module:
    """A function with what stands above it, but for what another text `above` has. Functions of kernels call each
    other: they are left out together."""
    needed = p.needed | dict.fromkeys(p.d.decorators.values())
    helpers = with_needed(needed, p.texts)
    functions: list[str] = []
    if p.kernels is not None:
        helpers |= p.kernels.helpers()
        needed |= p.kernels.modules()
        functions = ["\n".join(_short(text)) for text in p.kernels.functions()]
    if _apart(functions) in above:
        functions = []
    helpers = {name: text for name, text in helpers.items() if _apart([text.strip("\n")]) not in above}
    needed |= dict.fromkeys(name for text in helpers.values() for name in names_in(text))
    refused = [helpers.pop(REFUSED)] if REFUSED in helpers else []
    functions += p.functions
    texts = [text.strip("\n") for text in (*refused, *helpers.values(), *functions, *first)]
    imports = tuple(one for name, one in {**STANDARD, **p.d.imports}.items() if name in needed)
    whole = _apart([*texts, function])
    files = (*((p.d.again,) if p.parts else ()), *((file, tuple(sorted(names))) for file, names in p.files.items()))
    if p.kernels is None:
        return Module(imports, whole, files, _is_wide(p))
    notes = p.kernels.notes()
    told = {name: [*notes.get(name, ()), *p.notes.get(name, ())] for name in {**notes, **p.notes}}
    for_some = p.kernels.is_for_some() or any(check.code == ELSEWHERE for check in p.plan.checks)
    files = (*p.kernels.files(), *files)
    return Module(imports, whole, files, _is_wide(p), for_some, told, p.inside)


def _apart(texts: Iterable[str]) -> str:
    """Texts with two empty lines above each."""
    return "".join(f"\n\n{text}\n" for text in texts)


def _is_wide(p: Printer) -> bool:
    """Whether some array that is printed has numbers of 64 bits."""
    read = [one for one in p.plan.inputs if one in p.uses]
    wanted = [p.plan.definitions[name].dtype for name in p.plan.wanted]
    return not _WIDE.isdisjoint((*wanted, *map(dtype_of, (*read, *p.emitted))))


@dataclass(frozen=True, slots=True)
class Statements:
    """The values that have a statement of their own in the text of a plan, each with those that are let go after it;
    how many of them there are after each definition; and the products that are `absorbed` by what is added to them."""

    values: tuple[tuple[Value, list[Value]], ...]
    ends: Mapping[str, int]
    absorbed: frozenset[Value]


def statements(plan: Plan, dialect: Dialect, frees: bool = True) -> Statements:
    """The statements of the text of a plan."""
    p = Printer(plan, dialect, frees, Unwritten())
    define(p)
    _assert(p)
    return Statements(tuple(p.statements), p.ends, frozenset(p.absorbed))


def _short(text: str) -> Iterator[str]:
    """The lines of a text, broken where they are too long for any reader."""
    for line in text.splitlines():
        yield from wrapped(line) if len(line) > WIDEST else (line,)


# ---------------------------------------------------------------------- definitions


def define(p: Printer, again: Again = ()) -> None:
    """The definitions in the order of the text, each under its lines; one that is not computed by itself goes along
    with the next."""
    needed = set(reachable(roots_of(p.plan)))
    *_, last = p.plan.definitions
    for loop in {one.op.loop for one in needed if isinstance(one.op, Result)}:
        p.told |= stored(loop).keys()
    waiting: dict[str, None] = {}
    begin = {part[0]: part for part in again}
    part: Part | None = None
    for name, definition in p.plan.definitions.items():
        if name in begin:
            part = Part(p, begin[name])
        if name not in p.told:
            waiting |= dict.fromkeys(clause.span.text for clause in definition.let.clauses)
        if definition.value in needed and _is_computed(p, definition.value):
            _compute(p, definition.value, waiting)
            waiting = {}
            if name != last and (p.frees or len(p.names) >= FEW):
                free(p)
        p.ends[name] = len(p.statements)
        if part is not None and name == part.last:
            part.close(p)
            part = None
            if p.frees:
                free(p)


def _is_computed(p: Printer, one: Value) -> bool:
    """Whether a definition has lines of its own: it is no input, no plain number, and has no name yet."""
    is_plain = isinstance(one.op, Number) and not isinstance(one.op.expr, ir.Map)
    return not is_plain and not isinstance(one.op, Input) and one not in p.names


def _compute(p: Printer, one: Value, lines: Iterable[str]) -> None:
    """One definition under the lines of the relation."""
    p.add("")
    is_kernel = isinstance(one.op, Opaque | Tiles | Either)
    p.tell(() if is_kernel else lines)  # Those of a kernel are told by what writes it.
    p.needed_by = p.own_names[p.definition_of[one].name] if isinstance(one.op, Number) else ""
    p.dying = _dying(p, one) if p.overwrites else frozenset()
    code = p.code(one)
    if one not in p.names:
        p.assign(one, code)
    p.needed_by = ""


def _dying(p: Printer, one: Value) -> frozenset[Value]:
    """The arrays that have a name, and that this definition alone still needs, in one place."""
    inner: set[Value] = set()
    waiting = [one]
    while waiting:
        part = waiting.pop()
        if part not in inner and (part not in p.names or part is one):
            inner.add(part)
            waiting += part.parts
    wanted = set(roots_of(p.plan))
    named = {part for each in inner for part in each.parts if part in p.names and part not in wanted}
    found = set()
    for part in named:
        readers = p.readers(part)
        here = readers & inner
        if len(here) == 1 and readers - here <= p.emitted and is_made(p, part):
            found.add(part)
    return frozenset(found)


def _assert(p: Printer) -> None:
    """The conditions of the whole call that arrays decide."""
    for check in p.plan.checks:
        if isinstance(check.condition.op, Number):
            continue
        if check.code == "IX506":
            p.add("")
            for line in check.span.text.splitlines():
                p.add(f"# {line}")
        match check.condition.op:
            case Map("||", (enough, rest)) if enough.is_host:
                p.check(negated(p, rest), check.code, check.message, negated(p, enough))
            case _:
                p.check(negated(p, check.condition), check.code, check.message)
