"""The pipeline, top to bottom: text, tree, Program, value.

What only a call needs, planning, emission and NumPy, is imported when a program is first called: whoever checks
programs does not wait for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from .checker.allow import apply_allows
from .checker.program import check as check_tree
from .codes import CODES
from .diagnostics import CompileError, Diagnostic, Sink
from .faults import deep
from .ir import nodes as ir
from .ir.functions import UNSTABLE
from .ir.types import Dtype
from .ir.walk import functions_of
from .records import dataclass, field
from .run import EMITTED
from .run.asked import PLAIN, Face, arguments_of, check_backend, definitions, filled, name_of, packed, wanted_of
from .run.tracing import finder, tracing_test
from .source import Source
from .syntax import tree
from .syntax.files import is_python, read_source
from .syntax.parse import parse

if TYPE_CHECKING:
    from inspect import Signature

    from .facts.roles import Roles
    from .facts.view import View
    from .run.calling import Caller
    from .run.kernel import Call, Engine
    from .views.facts import CostSheet, FactSheet
    from .views.plan import PlanSheet


def compile(text_or_path: str | os.PathLike[str]) -> Program:
    """A program from its text, or from a file. A path is a file. So is a string of one line with no `;` in it that is
    one word, ends in `.ix`, or is the name of a file that is there: no program is written so. `model.py:attention` is a
    function under `@ix.program` in a Python file, which is read and not run.

    Raises `ix.Error` with every mistake in it; warnings and notes are `program.diagnostics`.
    """
    return _compiled(text_or_path, frozenset())


def compile_anyway(text_or_path: str | os.PathLike[str]) -> Program:
    """A program that may break its contracts: it still has a meaning, and can be inspected."""
    return _compiled(text_or_path, frozenset(code for code in CODES if code.startswith("IX42")))


def _compiled(text_or_path: str | os.PathLike[str], despite: frozenset[str]) -> Program:
    sink = Sink()
    face = PLAIN
    if is_python(text_or_path):
        from .run.embedded import read_program  # Few programs stand in Python files.

        source, face = read_program(os.fspath(text_or_path), sink)
    else:
        source = read_source(text_or_path, sink)
    if source is None:
        raise CompileError(sink)
    return compile_source(source, despite, face)


def compile_source(source: Source, despite: frozenset[str] = frozenset(), face: Face = PLAIN) -> Program:
    """A program from its text and the name of the file that it stands in; `despite` errors of these codes."""
    reading = _read(source)
    errors = [found for found in reading.errors if found.code not in despite]
    if reading.program is None or errors:
        raise CompileError(errors)
    return Program(source, reading.program, reading.findings, face=face)


def check(text_or_path: str | os.PathLike[str]) -> list[Diagnostic]:
    """Everything that can be said of a program without running it, in the order of the text."""
    sink = Sink()
    source = read_source(text_or_path, sink)
    return _sorted(sink) if source is None else check_file(source)


def check_file(file: Source) -> list[Diagnostic]:
    """The same for a text and the name of its file: that of a Python file or a Markdown page may have many programs."""
    if not file.name.endswith((".py", ".md")):
        return check_source(file)
    from .syntax.embedded import blocks_in, programs_in

    sink = Sink()
    is_python = file.name.endswith(".py")
    for source in [program.source for program in programs_in(file, sink)] if is_python else blocks_in(file):
        for diagnostic in _read(source).findings():
            sink.add(diagnostic)
    return _sorted(sink)


def check_source(source: Source) -> list[Diagnostic]:
    """The same for a text and the name of the file that it stands in."""
    return examine(source)[1]


def examine(source: Source) -> tuple[Program | None, list[Diagnostic]]:
    """The program of a text, where it has a meaning, and everything that can be said of it; nothing is raised."""
    reading = _read(source)
    found = reading.findings()
    return None if reading.program is None else Program(source, reading.program, lambda: found), found


@dataclass(eq=False)
class _Reading:
    """A text that was read: the Program that it means, and what its checks found. Lints find no errors: they look when
    somebody asks for warnings, which few callers do."""

    file: tree.File
    program: ir.Program | None
    checked: Sink
    claimed: Sink = field(default_factory=Sink)

    def __post_init__(self) -> None:
        if self.program is not None and self.program.contracts:
            from .facts.contracts import check

            check(self._view, self.claimed)

    @cached_property
    def _view(self) -> View:
        from .facts.view import View

        assert self.program is not None
        return View(self.program)

    @property
    def errors(self) -> list[Diagnostic]:
        """The mistakes, in the order of the text."""
        return [found for found in _sorted((*self.checked, *self.claimed)) if found.severity == "error"]

    @deep
    def findings(self) -> list[Diagnostic]:
        """Everything that can be said of the text, in its order."""
        warned = Sink()
        if self.program is not None:
            from .facts.lints import lint

            lint(self._view, warned)
        told = dict.fromkeys((*self.checked, *warned, *self.claimed))
        return _sorted(dict.fromkeys(apply_allows(self.file, list(told))))


@deep
def _read(source: Source) -> _Reading:
    sink = Sink()
    file = parse(source, sink)
    return _Reading(file, check_tree(file, sink, _derive), sink)


def _engine(program: ir.Program, texts: tuple[str, ...], told: Callable[[], ir.Program] | None) -> Engine:
    from .run.kernel import Engine

    if not all(UNSTABLE.isdisjoint(functions_of(let)) for let in program.lets):
        from .transform.stable import stable_program  # Few programs need it.

        program = stable_program(program)
    return Engine(program, texts, told)


def _derive(*given: Any) -> tuple[ir.Let, ...]:
    """Return the definitions of a derivative that is written in a program; few programs have one."""
    from .transform.derive import jacobian

    return jacobian(*given)


def _sorted(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    def place(diagnostic: Diagnostic) -> tuple[str, int]:
        span = diagnostic.labels[0].span.shown if diagnostic.labels else None
        return ("", 0) if span is None else (span.source.name, span.start)

    return sorted(found, key=place)


def _traced_kind(value: Any) -> tuple[Any, int, Any]:
    """The dtype, rank and device of a tensor; for a plain number, another one of its kind."""
    if isinstance(value, int | float):
        return None, 0, True if isinstance(value, bool) else 1.0 if isinstance(value, float) else 1
    return value.dtype, value.ndim, value.device


class _Words:
    """The words about a class, and about each of its objects others."""

    def __init__(self, of_class: str | None) -> None:
        self.of_class = of_class

    def __get__(self, program: Program | None, owner: type) -> str | None:
        if program is None:
            return self.of_class
        from .run.signatures import described

        return described(program._program, program._face, program.__name__, program.source_text)


class Program:
    """A compiled program. Call it with arrays: in the order of `inputs`, or by name."""

    def __init__(
        self,
        source: Source,
        program: ir.Program,
        findings: Callable[[], Iterable[Diagnostic]] = tuple,
        texts: tuple[str, ...] | None = None,
        told: Callable[[], ir.Program] | None = None,
        face: Face = PLAIN,
    ) -> None:
        # `findings` looks for all that can be said of the program, once somebody asks. `texts` are all that the program
        # is made of, where that is not its own text; `told` is then the same program as its text says it, for findings.
        # `face` is what the Python function had that declared it. (A docstring here would be shown of every program, by
        # `program?`.)
        self._program = program
        self._text = source.text
        self._texts = (source.text, *(file.text for file in program.modules)) if texts is None else texts
        self._findings = cache(lambda: tuple(findings()))
        self._is_traced = tracing_test()
        self._functions: dict[int, Callable[..., Any]] = {}
        # Made on first use, and without a reference to this object, so that a dropped program is freed at once.
        self._make_engine = cache(partial(_engine, program, self._texts, told))
        self._find = finder(self._make_engine, self._functions)
        self._caller: Caller | None = None
        self._call: Callable[..., Any] | None = None
        self._face = face
        self._fills = bool(face.defaults or face.by_name)
        self.__name__ = face.name or name_of(source)
        self.__qualname__ = face.qualname or self.__name__
        if face.module:
            self.__module__ = face.module
        self.__wrapped__: Callable[..., Any]

    @property
    def __signature__(self) -> Signature:
        from .run.signatures import signature_of

        return signature_of(self._program, self._face)

    @property
    def _engine(self) -> Engine:
        return self._make_engine()

    @property
    def _shown(self) -> Engine:
        """The engine that says what a call does, and quotes the program for it."""
        return self._engine

    @property
    def ir(self) -> ir.Program:
        """The Program that the text means."""
        return self.as_read._program

    @property
    def as_read(self) -> Program:
        """The program as its text says it: itself, unless the text was not read yet."""
        return self

    @property
    def source_text(self) -> str:
        """The text of the program."""
        return self.as_read._text

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The warnings and notes about the program."""
        return self.as_read._findings()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in the order of the text."""
        return tuple(tensor.name for tensor in self._program.inputs)

    @property
    def by_place(self) -> tuple[str, ...]:
        """The inputs that need not be given by name."""
        return self.inputs[: len(self.inputs) - len(self._face.by_name)]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what a call returns."""
        return self._program.outputs

    @property
    def definitions(self) -> tuple[str, ...]:
        """The names that `outputs=` may ask for."""
        return definitions(self._program)

    @cached_property
    def facts(self) -> FactSheet:
        """Everything that is known of the program without running it; `print` it, or ask by definition."""
        from .views.facts import FactSheet

        return FactSheet(self.ir)

    @property
    def roles(self) -> tuple[Roles, ...]:
        """The roles in every gather: query, key, what is compared and carried, heads and batch."""
        return self.facts.roles

    @deep
    def cost(self, **sizes: int) -> CostSheet:
        """Multiply-adds and elements moved per definition, with figures where the sizes are given."""
        from .views.facts import CostSheet

        return CostSheet(self.facts.cost(sizes).figures)

    @deep
    def plan(
        self,
        /,
        *arrays: Any,
        outputs: str | Iterable[str] | None = None,
        backend: str | None = None,
        isolate: bool = False,
        recompute: bool = True,
        memory: str | int | None = None,
        **named: Any,
    ) -> PlanSheet:
        """Plan a call with these arrays: per definition the kernel, what is never built, and which better way was
        refused and why. Nothing is run. Under a budget of `memory`, also what is kept for the way back, what is
        computed again, and how much memory that takes."""
        from .views.plan import PlanSheet

        memory = self._budget(memory, named)
        call, wanted = self._prepared(arrays, named, outputs, backend)
        plan, _ = self._shown.emitted(call, wanted, isolate, recompute, memory)
        return PlanSheet.of(plan, call.bound.sizes, call.bound.scalars)

    @deep
    def source(
        self,
        /,
        *arrays: Any,
        outputs: str | Iterable[str] | None = None,
        backend: str | None = None,
        isolate: bool = False,
        recompute: bool = True,
        memory: str | int | None = None,
        **named: Any,
    ) -> str:
        """The emitted module for a call with these arrays: plain Python that runs without Indexical."""
        memory = self._budget(memory, named)
        call, wanted = self._prepared(arrays, named, outputs, backend)
        return self._shown.emitted(call.in_a_file(), wanted, isolate, recompute, memory)[1].standing_alone()

    @deep
    def imagine(
        self,
        arrays: Mapping[str, Any],
        dtype: Dtype,
        backend: str,
        device: str,
        outputs: str | Iterable[str] | None = None,
        isolate: bool = False,
        recompute: bool = True,
        memory: str | int | None = None,
    ) -> tuple[PlanSheet, str]:
        """The plan and the emitted module for arrays that only stand for others, as `ix plan` and `ix emit` do. A
        budget of memory is that of a call in which all reals learn."""
        from .views.plan import PlanSheet

        call = self._shown.imagine(arrays, dtype, backend, device)
        plan, module = self._shown.emitted(call, self.wanted(outputs), isolate, recompute, memory)
        return PlanSheet.of(plan, call.bound.sizes, call.bound.scalars), module.standing_alone()

    def _prepared(
        self, arrays: tuple[Any, ...], named: dict[str, Any], outputs: str | Iterable[str] | None, backend: str | None
    ) -> tuple[Call, tuple[str, ...]]:
        check_backend(backend, EMITTED)
        return self._shown.prepare(self.arguments(arrays, named), backend), self.wanted(outputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return compile_source, (self.ir.source.kept(), frozenset(), self._face)

    def __copy__(self) -> Program:
        return self

    def __deepcopy__(self, memo: Any) -> Program:
        """The program itself: nothing in it changes."""
        return self

    def __str__(self) -> str:
        return self.source_text

    # How a program shows itself in a notebook; without it, its text in colours.
    displayed: ClassVar[Callable[[Program], str] | None] = None

    @deep
    def _repr_html_(self) -> str:
        if Program.displayed is not None:
            return Program.displayed(self)
        # With the exact numbers behind it: a program that is only run does not wait for them.
        from .views.static import program_html

        program = self.ir
        return program_html(program.source, program)

    def __repr__(self) -> str:
        return f"<indexical program ({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})>"

    def __call__(
        self,
        /,
        *arrays: Any,
        outputs: str | Iterable[str] | None = None,
        backend: str | None = None,
        isolate: bool = False,
        recompute: bool = True,
        memory: str | int | None = None,
        **named: Any,
    ) -> Any:
        """Arrays in, arrays out: NumPy's give NumPy's, PyTorch's give PyTorch's, on their device, with gradients,
        and JAX's give JAX's, also under `jax.jit` and `jax.grad`.

        One output returns the array, several return a named tuple. `outputs` asks for definitions by name;
        `isolate=True` keeps a NaN or infinity from everyone who may not hear it; `recompute=False` keeps the weights
        of an attention for its way back, which else makes them again in less room; `memory="2GiB"` is the most that
        the call and its way back take beside the inputs, for which definitions are computed again as far as it takes;
        `backend="reference"` is the slow evaluator that says what is right.
        """
        if memory is not None:
            memory = self._budget(memory, named)
        if self._fills:
            named = filled(self._program, self._face, arrays, named)
        if not self._is_traced():
            call = self._call
            if call is None:
                call = self._first_caller().call
            return call(arrays, named, outputs, backend, isolate, recompute, memory)
        if memory is not None:
            words = "a budget of memory is kept where the program is called, between the graphs of `torch.compile`: "
            raise NotImplementedError(words + "leave out `fullgraph=True`, or `memory=`")
        if backend is None:
            return self._traced(arrays, named, outputs, isolate, recompute)
        return self._first_caller().bind(arrays, named, outputs, backend, isolate, recompute)

    def _budget(self, memory: Any, named: dict[str, Any]) -> str | int | None:
        """The budget of a call. An array is an input that is called so."""
        if memory is None or not hasattr(memory, "shape") or "memory" not in self.inputs:
            budget: str | int | None = memory
            return budget
        named["memory"] = memory
        return None

    def _first_caller(self) -> Caller:
        """The caller of the program, made when it is first called."""
        from .run.calling import Caller

        if self._caller is None:
            self._is_traced = tracing_test()
            self._caller = Caller(self._engine)
            self._call = self._caller.call
        return self._caller

    def _traced(
        self,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        outputs: str | Iterable[str] | None,
        isolate: bool,
        recompute: bool,
    ) -> Any:
        """A call that `torch.compile` reads: its emitted function goes into the graph."""
        wanted = self.wanted(outputs)
        found = self.arguments(arrays, named)
        values = [found[name] for name in self.inputs]
        kinds = tuple([_traced_kind(value) for value in values])
        result = self._functions[self._find(kinds, wanted, isolate, recompute)](*values)
        return result if len(wanted) == 1 else packed(wanted)(*result)

    def wanted(self, outputs: str | Iterable[str] | None) -> tuple[str, ...]:
        """The definitions that `outputs` asks for, by name; all outputs for None."""
        return wanted_of(self._program, outputs)

    def arguments(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Each input with its array; one error says all that is missing or too many."""
        return arguments_of(self._program, arrays, self.filled(arrays, named))

    def filled(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The arrays that are given by name, and the defaults of scalars that are not given."""
        return filled(self._program, self._face, arrays, named) if self._fills else named

    # Of the class its own words; of a program what it takes and gives, and its text.
    __doc__ = _Words(__doc__)
