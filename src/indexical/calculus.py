"""Derivatives and batches of programs: each a program of its own, with a text that one can read, keep and run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

from .api import Program, compile, compile_source
from .checker.names import suggest
from .checker.program import finish
from .checker.scope import Refusal
from .codes import CODES
from .diagnostics import CallError, CompileError, Diagnostic, Label, Sink
from .faults import deep
from .ir import nodes as ir
from .records import replace
from .run.asked import Face
from .source import Source, Span
from .syntax.tokens import KEYWORDS
from .syntax.vocabulary import RESERVED
from .transform.batch import Unbatchable, batched
from .transform.derive import gradient
from .transform.flatness import flat_parts
from .transform.tangents import pushed_forward
from .transform.unroll import NotUnrollable, unrolled
from .views.figures import Unwritable
from .views.source import laid_out, spelled, unwritten, with_texts

if TYPE_CHECKING:
    from .run.kernel import Engine

# A program as it is given: the program itself, its text, or its file.
Told = Program | str | os.PathLike[str]
Names = str | Iterable[str]
Derivation = Callable[[ir.Program, Sequence[str], Sequence[str]], ir.Program]

# Why a printed derivative does what a warning speaks of; a batch does it because the program did.
_REASONS = {
    "IX402": "transpose of the gather",
    "IX412": "how many points there are",
    "IX413": "the derivative takes what the program takes",
}
# Findings that speak of a contract.
_CLAIMED = frozenset(code for code in CODES if code.startswith("IX42"))


@deep
def grad(program: Told, of: Names | None = None, by: Names | None = None) -> Program:
    """The gradient of `of` by each of `by`, as a program.

    It takes the inputs of the program, and for every one of `of` that is no scalar its cotangent `d_…`; it gives
    `d_…` for each of `by`, in their order. `of` is by default the program's only output, `by` all its real inputs.
    A definition in `by` is held independent. The program may be given as its text or its file.
    """
    known = known_program(program)
    targets = _targets(known, of, several=False)
    sources = _sources(known, by)
    return _derived(known, (gradient, partial(gradient, split=False)), targets, sources, "gradient")


@deep
def jvp(program: Told, by: Names | None = None, of: Names | None = None) -> Program:
    """The change of `of` when each of `by` changes along a tangent: forward mode, as a program.

    It takes the inputs of the program and a tangent `dot_…` for each of `by`; it gives `dot_…` for each of `of`,
    by default all outputs.
    """
    known = known_program(program)
    targets = _targets(known, of, several=True)
    sources = _sources(known, by)
    return _derived(known, (pushed_forward,), targets, sources, "tangent")


def _derived(
    program: Program, ways: Sequence[Derivation], of: tuple[str, ...], by: tuple[str, ...], what: str
) -> Program:
    """The derivative, in the first of these ways that the checker has nothing against."""
    against = ""
    try:
        _check_flow(program, of, by)
        for number, derive in enumerate(ways):
            try:
                said = (str(number), *of, "by", *by)
                return derived_program(program, derive(program._program, of, by), what, said)
            except CompileError as problem:
                against = against or problem.diagnostics[0].message
    except Refusal as problem:
        against = str(problem)
    raise _error("IX218", f"this {what} cannot be taken: {against}", None)


@deep
def batch(program: Told, /, **coordinates: Names) -> Program:
    """The program over a batch: `b=("Q", "K")` puts a coordinate `b` in front of these inputs and of all that depends
    on them, after a `..r` that leads. What is not named is shared by the whole batch."""
    if not coordinates:
        raise _error("IX515", "no coordinate to batch over is given", 'pass one with its inputs: `b=("Q", "K", "V")`')
    known = known_program(program)
    derived = known._program
    said: list[str] = []
    for name, inputs in coordinates.items():
        names = _listed(inputs, f"inputs that vary with `{name}`", f'`{name}="Q"` or `{name}=("Q", "K")`')
        _check_batch(known, name, names)
        said += (name, *names, ";")
        try:
            derived = batched(derived, name, names)
        except Unbatchable as problem:
            raise _error("IX515", f"no batch over `{name}`: {problem}", None) from None
    try:
        return derived_program(known, derived, "batch", said)
    except CompileError as problem:
        if not all(found.code in _CLAIMED for found in problem.diagnostics):
            raise
    contracts = [_holding(known, derived, contract, frozenset(coordinates)) for contract in derived.contracts]
    return derived_program(known, replace(derived, contracts=tuple(filter(None, contracts))), "batch", said)


@deep
def unroll(program: Told, /, **coordinates: Any) -> Program:
    """The program with its recurrences along a coordinate written out: `l=12` makes `x_0`, …, `x_11` of `x[l, …]`, each
    planned and computed like any other definition. The inputs stay as they are, and must have that size."""
    if not coordinates:
        raise _error("IX515", "no coordinate to write out is given", "pass one with its size: `l=12`")
    known = known_program(program)
    derived = known._program
    for name, count in coordinates.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise _error("IX515", f"the size of `{name}` is a whole number from 1 on, not {count!r:.40}", None)
        try:
            derived = unrolled(derived if derived.order else _finished(derived, "unrolled"), name, count)
        except NotUnrollable as problem:
            raise _error("IX515", f"`{name}` cannot be written out: {problem}", None) from None
    said = [f"{name}={count}" for name, count in coordinates.items()]
    return derived_program(known, derived, "unrolled", said)


def _holding(program: Program, derived: ir.Program, contract: ir.Contract, new: frozenset[str]) -> ir.Contract | None:
    """A contract of the batch: a new axis is `batch`, or `carry` where only values have it. None: neither is proved."""
    for role in ("batch", "carry"):
        roles = tuple((role if name in new else known, name) for known, name in contract.roles)
        claimed = replace(contract, roles=roles)
        try:
            derived_program(program, replace(derived, contracts=(claimed,)), "batch", ())
        except CompileError:
            continue
        return claimed
    return None


def known_program(program: Any) -> Program:
    match program:
        case Program():
            return program
        case str() | os.PathLike():
            return compile(program)
    raise _error("IX515", f"{program!r:.60} is no program", 'pass `ix.compile("attention.ix")`, or the file itself')


def _listed(given: Any, what: str, examples: str) -> tuple[str, ...]:
    """The names in an argument: one, or several in any order that Python can go through."""
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise _error("IX515", f"{what} are given by name, and {odd[0]!r:.40} is none", f"pass {examples}")
    if not names:
        raise _error("IX515", f"{what} are given by name, and none is", f"pass {examples}")
    return tuple(dict.fromkeys(names))


def _check_batch(program: Program, name: str, inputs: tuple[str, ...]) -> None:
    if not name.isidentifier() or name in RESERVED or name in KEYWORDS:
        raise _error("IX515", f"`{name}` is no name for a coordinate", "a letter will do: `b`")
    if name in program._program.tensors:
        raise _error("IX515", f"`{name}` is a tensor of this program", "choose another name for the coordinate")
    for given in inputs:
        if given not in program.inputs:
            help, _ = suggest(given, program.inputs, Span(program.ir.source, 0, 0))
            shown = ", ".join(program.inputs) or "nothing"
            raise _error("IX501", f"no input is called `{given}`", help or f"this program takes {shown}")


def _targets(program: Program, of: Names | None, several: bool) -> tuple[str, ...]:
    """The definitions to differentiate; where none is said, all outputs, or the only one."""
    asked = None if of is None else _listed(of, "definitions to differentiate", '`of="out"`')
    for name in asked or ():
        if name in program.inputs:
            shown = ", ".join(program.definitions) or "nothing"
            raise _error(
                "IX508", f"`{name}` is an input: what is differentiated is a definition", f"it defines {shown}"
            )
    names = program.wanted(asked)
    if of is None and not several and len(names) > 1:
        shown = ", ".join(f"`{name}`" for name in names)
        help = f'say which: `of="{names[0]}"`, on the command line `--of {names[0]}`'
        raise _error("IX515", f"this program has several outputs: {shown}", help)
    for name in names:
        kind = program._program.tensors[name].kind
        if kind != "real":
            raise _error("IX218", f"`{name}` is {kind}: it has no derivative", None, program.ir.tensors[name].span)
    return names


def _sources(program: Program, by: Names | None) -> tuple[str, ...]:
    tensors = program._program.tensors
    if by is None:
        found = tuple(tensor.name for tensor in program._program.inputs if tensor.kind == "real")
        if not found:
            real = [name for name in program.definitions if tensors[name].kind == "real"]
            help = f'a definition can be held independent: `by="{real[0]}"`' if real else None
            raise _error("IX218", "no input of this program is real: there is nothing to differentiate by", help)
        return found
    names = _listed(by, "inputs to differentiate by", '`by="Q"` or `by=("Q", "K")`')
    for name in names:
        if name not in tensors:
            help, _ = suggest(name, tensors, Span(program.ir.source, 0, 0))
            taken = ", ".join(program.inputs) or "nothing"
            known = f"this program takes {taken}, and defines {', '.join(program.definitions)}"
            raise _error("IX501", f"no input or definition is called `{name}`", help or known)
        if tensors[name].kind != "real":
            message = f"`{name}` is {tensors[name].kind}: nothing can be differentiated by it"
            raise _error("IX218", message, "only reals change by a little", program.ir.tensors[name].span)
    return names


def _check_flow(program: Program, of: Sequence[str], by: Sequence[str]) -> None:
    """Report the inputs from which every path leads through a flat function: a derivative of 0 would hide that."""
    if not any(flat_parts(program._program, of, by)):
        return
    for name, found in flat_parts(program.ir, of, by):
        message = f"nothing flows from `{name}` to `{of[0]}`: `{found.op}` is flat wherever it has a derivative"
        rest = f": leave `{name}` out of `by`" if len(by) > 1 else ""
        raise _error("IX218", message, f"what moves in steps has no slope to follow{rest}", found.span)


def _error(code: str, message: str, help: str | None, span: Span | None = None) -> CallError:
    return CallError([Diagnostic(code, message, () if span is None else (Label(span),), help=help)])


def derived_program(program: Program, derived: ir.Program, what: str, said: Sequence[str]) -> Program:
    """The derived program. Without contracts its text is made when somebody reads it; `said` is then what was asked
    for, beside the program that it is derived from."""
    name = f"{what} of {program._program.source.name}"
    face = _face(program, tuple(tensor.name for tensor in derived.inputs), what)
    if derived.contracts:
        return _answered(Source(name, _laid_out(derived, what)), what, face)
    return _Unread(_finished(derived, name), derived, what, (*program._texts, what, *said), face)


def _finished(derived: ir.Program, name: str) -> ir.Program:
    """The derived program as the checker has it: in order, and without fault."""
    sink = Sink()
    found = finish(unwritten(derived, name), sink)
    if found is None:
        raise CompileError([finding for finding in sink if finding.severity == "error"])
    return found


def _face(program: Program, inputs: tuple[str, ...], what: str) -> Face:
    """The face of a derived program: scalars keep their defaults, and what follows one is given by name."""
    defaults = {name: value for name, value in program.filled((), {}).items() if name in inputs}
    by_name = defaults.keys() | set(program.inputs[len(program.by_place) :])
    first = next((at for at, name in enumerate(inputs) if name in by_name), len(inputs))
    return Face(f"{what}_of_{program.__name__}", by_name=inputs[first:], defaults=defaults)


def _laid_out(derived: ir.Program, what: str) -> str:
    try:
        return laid_out(spelled(derived))
    except Unwritable as problem:
        raise _error("IX218", f"this {what} cannot be written in the language: {problem}", None) from None


class _Unread(Program):
    """A derived program that has no text yet: it is printed, read again and checked by the lints when its text, its
    findings or places in it are first asked for. Calls do not ask, but to say where something is wrong."""

    def __init__(self, program: ir.Program, derived: ir.Program, what: str, texts: tuple[str, ...], face: Face) -> None:
        read = cache(partial(_read, derived, what, program.source.name, face))
        super().__init__(program.source, program, texts=texts, told=lambda: read()._program, face=face)
        self._read = read

    @property
    def as_read(self) -> Program:
        """The program of the text as it is laid out, with every warning answered in it."""
        return self._read()

    @cached_property
    def _shown(self) -> Engine:
        return type(self._engine)(with_texts(self._program), None, self._engine.told)


@deep
def _read(derived: ir.Program, what: str, name: str, face: Face) -> Program:
    return _answered(Source(name, _laid_out(derived, what)), what, face)


def _answered(source: Source, what: str, face: Face) -> Program:
    """The program of a printed text, in which every warning is answered where it arises."""
    compiled = compile_source(source, face=face)
    for _ in range(2):
        remarks = _remarks(compiled, {} if what == "batch" else _REASONS)
        if not remarks:
            break
        compiled = compile_source(Source(source.name, _remarked(compiled.source_text, remarks)), face=face)
    return compiled


def _remarks(program: Program, reasons: Mapping[str, str]) -> dict[int, list[str]]:
    """The comments that allow the warnings, by the line on which each warning ends."""
    found: dict[int, list[str]] = {}
    for diagnostic in program.diagnostics:
        if CODES[diagnostic.code].severity == "warning" and diagnostic.code != "IX214":
            span = diagnostic.labels[-1].span
            line = span.source.position(max(span.start, span.end - 1))[0]
            reason = reasons.get(diagnostic.code, "by the chain rule" if reasons else "as in the program")
            remark = f"// allow({diagnostic.code}): {reason}"
            if remark not in found.setdefault(line, []):
                found[line].append(remark)
    return found


def _remarked(text: str, remarks: dict[int, list[str]]) -> str:
    """The text with remarks behind their lines; of several, all but the last stand above."""
    lines = text.splitlines()
    for line in sorted(remarks, reverse=True):
        *above, behind = remarks[line]
        lines[line - 1] += f"  {behind}"
        lines[line - 1 : line - 1] = above
    return "\n".join(lines) + "\n"
