"""The declarations of a file, and the name that a misspelt one was probably meant to be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sized
from typing import Protocol, TypeVar

from ..diagnostics import CallError, Diagnostic, Fix, Label, Sink
from ..records import dataclass, field, replace
from ..source import Source, Span
from ..syntax import tree
from ..syntax.vocabulary import LIBRARY, NORMALISERS, RESERVED


@dataclass(slots=True)
class Declarations:
    """A file taken apart. Clauses of one definition are grouped under its name, in source order; what
    could not be kept is `broken`."""

    inputs: dict[str, tree.InputItem] = field(default_factory=dict)
    lets: dict[str, list[tree.Let]] = field(default_factory=dict)
    functions: dict[str, tree.Fn] = field(default_factory=dict)
    spaces: dict[str, str] = field(default_factory=dict)
    uses: list[tree.Use] = field(default_factory=list)
    outputs: list[tree.Name] = field(default_factory=list)
    contracts: list[tree.Contract] = field(default_factory=list)
    asserts: list[tree.Assert] = field(default_factory=list)
    expects: list[tree.Expect] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)


def collect(file: tree.File, sink: Sink) -> Declarations:
    """Everything the file declares; what is declared twice is reported, and its first meaning kept."""
    found = Declarations()
    places: dict[str, Span] = {}
    for statement in file.statements:
        match statement:
            case tree.Input(items):
                for item in items:
                    if _claim(item.name, item.name_span, places, sink):
                        found.inputs[item.name] = item
            case tree.Let():
                for let in apart(statement):
                    if let.name in found.lets or _claim(let.name, let.name_span, places, sink):
                        found.lets.setdefault(let.name, []).append(let)
            case tree.Fn(name, span):
                if _claim(name, span, places, sink):
                    if _check_parameters(statement, sink):
                        found.functions[name] = statement
                    else:
                        found.broken.add(name)
            case tree.Space(items):
                _collect_spaces(items, found.spaces, sink)
            case tree.Use(names=names):
                kept = tuple(name for name in names if _claim(name.name, name.span, places, sink))
                found.uses.append(replace(statement, names=kept))
            case tree.Output(names):
                found.outputs.extend(names)
            case tree.Contract():
                found.contracts.append(statement)
            case tree.Assert():
                found.asserts.append(statement)
            case tree.Expect():
                found.expects.append(statement)
    for clauses in found.lets.values():
        _check_clauses(clauses, sink)
    _note_hidden_words(file, sink)
    return found


def _note_hidden_words(file: tree.File, sink: Sink) -> None:
    """Note the names of this file that hide a word of the library which the file also applies."""
    if not _MAY_BE_NAMED.search(file.source.text):
        return
    named: dict[str, tuple[Span, bool]] = {}
    applied: dict[str, Span] = {}
    for node in (node for statement in file.statements for node in tree.walk(statement)):
        match node:
            case tree.Fn(name, span):
                named.setdefault(name, (span, True))
            case tree.Use(names=names):
                for used in names:
                    named.setdefault(used.name, (used.span, True))
            case tree.Let():
                for let in apart(node):
                    named.setdefault(let.name, (let.name_span, False))
            case tree.InputItem(name, span) | tree.Binder(name=name, span=span) | tree.Parameter(name=name, span=span):
                named.setdefault(name, (span, False))
            case tree.Call(name, span):
                applied.setdefault(name, span)
            case tree.Reduction(name, span):
                applied.setdefault(name, span)
    for name in sorted(LIBRARY & named.keys() & applied.keys()):
        span, called = named[name]
        bracket = "[…]" if name in NORMALISERS else ""
        means = "this is what the file calls" if called else f"`{name}{bracket}(…)` is still the library's"
        message = f"`{name}` is also a word of the library; {means}"
        sink.report("IX220", message, Label(span, "defined here"), Label(applied[name], "applied here"))


# A word of the library that is not followed by what it is applied to: it may be a name there.
_MAY_BE_NAMED = re.compile(
    rf"\b(?:{'|'.join(sorted(LIBRARY - set(NORMALISERS)))})\b(?!\s*\()"
    rf"|\b(?:{'|'.join(sorted(LIBRARY & set(NORMALISERS)))})\b|\bfn\s+(?:{'|'.join(sorted(LIBRARY))})\b"
)


def apart(let: tree.Let) -> tuple[tree.Let, ...]:
    """One `let` for each name that it binds."""
    return tuple(replace(let, name=name.name, name_span=name.span) for name in let.names) or (let,)


def _claim(name: str, span: Span, places: dict[str, Span], sink: Sink) -> bool:
    if not check_free(name, span, sink):
        return False
    if name in places:
        sink.report("IX202", f"`{name}` is defined twice", Label(span, "again here"), Label(places[name], "first here"))
        return False
    places[name] = span
    return True


def _check_parameters(fn: tree.Fn, sink: Sink) -> bool:
    """Parameters have names of their own; one that has not leaves the function out."""
    places: dict[str, Span] = {}
    good = [_claim(parameter.name, parameter.span, places, sink) for parameter in fn.parameters]
    return all(good)


def check_free(name: str, span: Span, sink: Sink) -> bool:
    """Whether a program may give this name a meaning; reported where not."""
    if name in RESERVED:
        sink.report("IX203", f"`{name}` is a word of the language", span, help="choose another name")
        return False
    return True


def _check_clauses(clauses: list[tree.Let], sink: Sink) -> None:
    """Several clauses define one name only if each has a bracket, all of one length."""
    first = clauses[0]
    for clause in clauses[1:]:
        everywhere = _is_everywhere(clause) and _is_everywhere(first)
        if not clause.slots or not first.slots or (everywhere and not _is_guarded(clause) and not _is_guarded(first)):
            sink.report(
                "IX202",
                f"`{clause.name}` is defined twice",
                Label(clause.name_span, "again here"),
                Label(first.name_span, "first here"),
            )
        elif len(clause.slots) != len(first.slots):
            sink.report(
                "IX205",
                f"the clauses of `{clause.name}` have {len(first.slots)} and {len(clause.slots)} coordinates",
                Label(clause.name_span, f"{len(clause.slots)} here"),
                Label(first.name_span, f"{len(first.slots)} here"),
            )
        else:
            continue
        clauses.remove(clause)
        return _check_clauses(clauses, sink)


def _is_everywhere(clause: tree.Let) -> bool:
    """Whether a clause has all points, as far as the text shows."""
    return all(isinstance(slot, tree.Binder) and slot.range is None for slot in clause.slots or ())


def _is_guarded(clause: tree.Let) -> bool:
    """Whether a clause may have a guard, which then tells its points from those of the others."""
    own = (*clause.where, *(clause.body.where if isinstance(clause.body, tree.Block) else ()))
    return any(isinstance(condition, tree.Guard) for condition in own)


def _collect_spaces(items: tuple[tree.SpaceItem, ...], spaces: dict[str, str], sink: Sink) -> None:
    for item in items:
        for coordinate in item.coordinates:
            check_free(coordinate.name, coordinate.span, sink)
            known = spaces.setdefault(coordinate.name, item.name)
            if known != item.name:
                sink.report(
                    "IX202",
                    f"`{coordinate.name}` is declared in two spaces, `{known}` and `{item.name}`",
                    coordinate.span,
                )


def counted(number: int, noun: str) -> str:
    """`1 axis`, `2 axes`, `3 arguments`."""
    plural = noun[:-2] + "es" if noun.endswith("is") else noun + "s"
    return f"{number} {noun if number == 1 else plural}"


def given(number: int) -> str:
    return "1 is given" if number == 1 else f"{number} are given"


class Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def by_name(items: Iterable[N], name: str) -> N:
    """The one of that name, of what a program defines."""
    known = {item.name: item for item in items}
    if name in known:
        return known[name]
    help, _ = suggest(str(name), known, Span(Source("", ""), 0, 0))
    shown = help or f"there are {', '.join(known) or 'none'}"
    raise CallError([Diagnostic("IX508", f"no definition is called `{name}`", help=shown)])


# A text with more findings gets no further suggestions: to look at all names for each takes the square of its length.
_MOST_SUGGESTED = 100


def suggest(name: str, known: Iterable[str], span: Span, findings: Sized = ()) -> tuple[str | None, Fix | None]:
    """A help line and a fix, where some known name is close to what was typed, and `findings` are not many yet."""
    if len(findings) > _MOST_SUGGESTED:
        return None, None
    from difflib import get_close_matches  # Few programs need it.

    candidates = [candidate for candidate in known if len(candidate) > 1 or len(name) == 1]
    lowered = [candidate for candidate in candidates if candidate.lower() == name.lower()]
    close = lowered or get_close_matches(name, candidates, 1, 0.6)
    if not close or close[0] == name:
        return None, None
    return f"did you mean `{close[0]}`?", Fix(span, close[0])
