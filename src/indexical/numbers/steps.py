"""The steps of a program, in the order in which a person would compute it."""

from __future__ import annotations

from ..facts.coordinates import is_figures
from ..ir import nodes as ir
from ..ir.text import shown
from ..ir.walk import children, reads_of
from ..records import dataclass
from ..run.trace import statement
from .evaluate import Evaluated, ordered

_VERBS = {
    "sum": "sum over {}",
    "mean": "mean over {}",
    "prod": "product over {}",
    "max": "largest over {}",
    "min": "smallest over {}",
    "any": "whether any over {}",
    "all": "whether all over {}",
    "argmax": "place of the largest over {}",
    "argmin": "place of the smallest over {}",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One definition: what is computed now, from what, and what happens to the coordinates."""

    number: int
    name: str
    statements: tuple[str, ...]
    words: str
    reads: tuple[str, ...]


def steps(evaluated: Evaluated) -> list[Step]:
    """A step for each definition that was computed; what is only given, and what a function brought along, is none."""
    given = figures(evaluated.program)
    lets = [let for let in evaluated.computed() if not let.hidden and let.name not in given]
    return describe(evaluated.program, lets)


def describe(program: ir.Program, lets: list[ir.Let]) -> list[Step]:
    """Definitions as steps, in their order."""
    return [
        Step(number, let.name, _statements(let), _words(let), _reads(let, program))
        for number, let in enumerate(lets, 1)
    ]


def _statements(let: ir.Let) -> tuple[str, ...]:
    return tuple(statement(let, clause) for clause in let.clauses)


def figures(program: ir.Program) -> set[str]:
    """The definitions that are nothing but figures."""
    found: set[str] = set()
    for let in ordered(program):
        bodies = [clause.body for clause in let.clauses]
        if any(clause.guard is not None for clause in let.clauses):
            continue
        plain = [isinstance(b, ir.Array | ir.Const) or (isinstance(b, ir.Read) and b.tensor in found) for b in bodies]
        if all(plain) or is_figures(let):
            found.add(let.name)
    return found


def _words(let: ir.Let) -> str:
    """Describe a definition coordinate by coordinate: which are kept, summed over and normalised over."""
    clause = let.clauses[-1]
    home = [str(r.coordinate) for r in clause.ranges]
    acts = list(dict.fromkeys(act for act in _acts(clause.body)))
    normalised = {str(part.coordinate) for part in _normalisers(clause.body)}
    apart = [f"`{name}`" for name in home if name not in normalised]
    lead = f"for each {', '.join(apart)}: " if apart else ""
    what = "; ".join(acts) if acts else "point by point; nothing is summed"
    guard = "" if clause.guard is None else f"; only where `{shown(clause.guard)}`"
    several = f" ({len(let.clauses)} clauses)" if len(let.clauses) > 1 else ""
    return f"{lead}{what}{guard}{several}"


def _acts(expr: ir.Expr) -> list[str]:
    """The reductions and normalisers of an expression in words, outermost last."""
    inner = [act for child in children(expr) for act in _acts(child)]
    match expr:
        case ir.Reduce(op, ranges, _, guard):
            names = ", ".join(f"`{str(r.coordinate).rstrip(chr(39))}`" for r in ranges)
            where = "" if guard is None else f" where `{shown(guard)}`"
            return [*inner, _VERBS[op].format(names) + where]
        case ir.Normalize(op, coordinate, _, guard):
            where = "" if guard is None else f", among those where `{shown(guard)}`"
            return [*inner, f"{op} over `{coordinate}`{where}"]
        case _:
            return inner


def _normalisers(expr: ir.Expr) -> list[ir.Normalize]:
    found = [part for child in children(expr) for part in _normalisers(child)]
    return [*found, expr] if isinstance(expr, ir.Normalize) else found


def _reads(let: ir.Let, program: ir.Program) -> tuple[str, ...]:
    """Return the tensors that a definition reads, directly or through hidden definitions of functions."""
    lets = {other.name: other for other in program.lets}
    found: dict[str, None] = {}
    waiting = [read.tensor for read in sorted(reads_of(let), key=lambda read: read.span.start)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if name in lets and lets[name].hidden:
            waiting += [read.tensor for read in reads_of(lets[name])]
        else:
            found[name] = None
    return tuple(found)
