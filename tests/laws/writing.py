"""Terms and programs, written down as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.laws.terms import (
    Apply,
    Binder,
    Block,
    Cast,
    Cells,
    Clause,
    Coordinate,
    Fn,
    Function,
    If,
    Input,
    Let,
    Number,
    Op,
    Paren,
    Place,
    Program,
    Read,
    Reduce,
    Rest,
    Scan,
    Short,
    Size,
    Tensor,
    Truth,
)

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
