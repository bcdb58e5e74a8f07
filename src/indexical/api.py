"""The pipeline, top to bottom: text, tree, Program, value."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from .checker.allow import apply_allows
from .checker.names import suggest
from .checker.program import check as check_tree
from .codes import CODES
from .diagnostics import CallError, CompileError, Diagnostic, Label, Sink
from .facts.contracts import check as check_contracts
from .facts.lints import lint
from .facts.roles import Roles
from .facts.summary import Cost, Facts
from .facts.view import View
from .ir import nodes as ir
from .ir.types import Coordinate, Dtype
from .plan.steps import Plan
from .run.kernel import BACKENDS, Call, Engine, finder, packed
from .run.known import Calls, in_order, is_excused, signature_of
from .run.tensors import differentiates_again, tracing_test, transform_test
from .source import Source, Span
from .syntax.parse import parse
from .transform.derive import jacobian
from .views.facts import facts_json, show_cost, show_facts
from .views.fragment import text_html
from .views.plan import plan_json, show_plan


def compile(text_or_path: str | os.PathLike[str]) -> Program:
    """A program from its text, or from a file. A path is a file. So is a string of one line with no `;` in it that is
    one word, ends in `.ix`, or is the name of a file that is there: no program is written so.

    Raises `ix.Error` with every mistake in it; warnings and notes are `program.diagnostics`.
    """
    return _compiled(text_or_path, frozenset())


def compile_anyway(text_or_path: str | os.PathLike[str]) -> Program:
    """A program that may break its contracts: it means something all the same, and can be looked at."""
    return _compiled(text_or_path, frozenset(code for code in CODES if code.startswith("IX42")))


def _compiled(text_or_path: str | os.PathLike[str], despite: frozenset[str]) -> Program:
    sink = Sink()
    source = read_source(text_or_path, sink)
    if source is None:
        raise CompileError(sink)
    return compile_source(source, despite)


def compile_source(source: Source, despite: frozenset[str] = frozenset()) -> Program:
    """A program from its text and the name of the file that it stands in; `despite` errors of these codes."""
    sink = Sink()
    program = _compile(source, sink)
    errors = [found for found in _sorted(sink) if found.severity == "error" and found.code not in despite]
    if program is None or errors:
        raise CompileError(errors)
    return Program(source, program, tuple(_sorted(sink)))


def check(text_or_path: str | os.PathLike[str]) -> list[Diagnostic]:
    """Everything that can be said of a program without running it, in the order of the text."""
    sink = Sink()
    source = read_source(text_or_path, sink)
    if source is not None:
        _compile(source, sink)
    return _sorted(sink)


def _compile(source: Source, sink: Sink) -> ir.Program | None:
    found = Sink()
    file = parse(source, found)
    program = check_tree(file, found, jacobian)
    if program is not None:
        view = View(program)
        lint(view, found)
        check_contracts(view, found)
    for diagnostic in apply_allows(file, list(found)):
        sink.add(diagnostic)
    return program


def read_source(text_or_path: str | os.PathLike[str], sink: Sink) -> Source | None:
    """The text itself, or what is in the file; None, and reported, where it cannot be read."""
    if isinstance(text_or_path, str) and not _is_file_name(text_or_path):
        return Source("<text>", text_or_path)
    # Whatever was passed, not only what may be.
    given: Any = text_or_path
    name: Any = os.fspath(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(name, str):
        message = f"a value of type `{type(given).__name__}` cannot be read as a program"
        sink.report("IX108", message, help="a program is its text, or the path of a file")
        return None
    path = Path(name)
    try:
        return Source(str(path), path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as problem:
        reason = f"it is not UTF-8 text (byte {problem.start})"
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
    help = None
    if isinstance(text_or_path, str) and not name.endswith(".ix"):
        help = "a string without a `;` is the name of a file; each statement of a program ends with one"
    sink.report("IX108", f"`{path}` cannot be read: {reason}", help=help)
    return None


def _is_file_name(text: str) -> bool:
    """Whether a string names a file. A program has a `;`, or a function with spaces in it."""
    if not text.strip() or "\n" in text or ";" in text or text.lstrip().startswith("//"):
        return False
    return len(text.split()) == 1 or text.endswith(".ix") or os.path.isfile(text)


def _sorted(sink: Sink) -> list[Diagnostic]:
    def place(diagnostic: Diagnostic) -> tuple[str, int]:
        span = diagnostic.labels[0].span if diagnostic.labels else None
        return ("", 0) if span is None else (span.source.name, span.start)

    return sorted(sink, key=place)


class FactSheet(Facts):
    """The facts of a program, readable as they stand."""

    def __str__(self) -> str:
        return show_facts(self, self.cost({}))

    def _repr_html_(self) -> str:
        return text_html(str(self))

    def to_json(self) -> dict[str, object]:
        return facts_json(self, self.cost({}))


class CostSheet(Cost):
    """A cost, readable as it stands."""

    def __str__(self) -> str:
        return show_cost(self)

    def _repr_html_(self) -> str:
        return text_html(str(self))


class PlanSheet(Plan):
    """A plan, readable as it stands."""

    sizes: Mapping[Coordinate, int]

    @classmethod
    def of(cls, plan: Plan, sizes: Mapping[Coordinate, int]) -> PlanSheet:
        """A plan with the sizes of a call."""
        sheet = cls(**{field.name: getattr(plan, field.name) for field in fields(plan)})
        object.__setattr__(sheet, "sizes", sizes)
        return sheet

    def __str__(self) -> str:
        return show_plan(self, self.sizes)

    def _repr_html_(self) -> str:
        return text_html(str(self))

    def to_json(self) -> dict[str, object]:
        return plan_json(self, self.sizes)


class Program:
    """A compiled program. Call it with arrays: in the order of `inputs`, or by name."""

    def __init__(self, source: Source, program: ir.Program, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.source_text = source.text
        self.ir = program
        self.diagnostics = diagnostics
        self._engine = Engine(program)
        self._is_traced, self._is_transformed = tracing_test(), transform_test()
        self._functions: dict[int, Callable[..., Any]] = {}
        self._find = finder(self._engine, self._functions)
        self._names = self.inputs
        self._signature, self._calls = signature_of(len(self._names)), Calls()
        self._known = self._calls.known

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in the order of the text."""
        return tuple(tensor.name for tensor in self.ir.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what a call returns."""
        return self.ir.outputs

    @property
    def definitions(self) -> tuple[str, ...]:
        """The names that `outputs=` may ask for."""
        return tuple(let.name for let in self.ir.lets if not let.hidden)

    @cached_property
    def facts(self) -> FactSheet:
        """Everything that is known of the program without running it; `print` it, or ask by definition."""
        return FactSheet(self.ir)

    @property
    def roles(self) -> tuple[Roles, ...]:
        """Who asks, who answers, what is compared and carried, which heads and batch: for every gather."""
        return self.facts.roles

    def cost(self, **sizes: int) -> CostSheet:
        """Multiply-adds and elements moved per definition, with figures where the sizes are given."""
        return CostSheet(self.facts.cost(sizes).figures)

    def plan(
        self,
        /,
        *arrays: Any,
        outputs: str | Iterable[str] | None = None,
        backend: str | None = None,
        isolate: bool = False,
        recompute: bool = True,
        **named: Any,
    ) -> PlanSheet:
        """How a call with these arrays is computed: per definition the kernel, what is never built, and which
        better way was refused and why. Nothing is run."""
        call, wanted = self._prepared(arrays, named, outputs, backend)
        return PlanSheet.of(self._engine.emitted(call, wanted, isolate, recompute)[0], call.bound.sizes)

    def source(
        self,
        /,
        *arrays: Any,
        outputs: str | Iterable[str] | None = None,
        backend: str | None = None,
        isolate: bool = False,
        recompute: bool = True,
        **named: Any,
    ) -> str:
        """The emitted module for a call with these arrays: plain Python that runs without Indexical."""
        call, wanted = self._prepared(arrays, named, outputs, backend)
        return self._engine.emitted(call, wanted, isolate, recompute)[1].standing_alone()

    def imagine(
        self,
        arrays: Mapping[str, Any],
        dtype: Dtype,
        backend: str,
        device: str,
        outputs: str | Iterable[str] | None = None,
        isolate: bool = False,
        recompute: bool = True,
    ) -> tuple[PlanSheet, str]:
        """The plan and the emitted module for arrays that only stand for others, as `ix plan` and `ix emit` do."""
        call = self._engine.imagine(arrays, dtype, backend, device)
        plan, module = self._engine.emitted(call, self.wanted(outputs), isolate, recompute)
        return PlanSheet.of(plan, call.bound.sizes), module.standing_alone()

    def _prepared(
        self, arrays: tuple[Any, ...], named: dict[str, Any], outputs: str | Iterable[str] | None, backend: str | None
    ) -> tuple[Call, tuple[str, ...]]:
        _check_backend(backend, ("numpy", "torch"))
        return self._engine.prepare(self.arguments(arrays, named), backend), self.wanted(outputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return compile_source, (self.ir.source,)

    def __str__(self) -> str:
        return self.source_text

    def _repr_html_(self) -> str:
        # With the exact numbers behind it: a program that is only run does not wait for them.
        from .views.static import program_html

        return program_html(self.ir.source, self.ir)

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
        **named: Any,
    ) -> Any:
        """Arrays in, arrays out: NumPy's give NumPy's, PyTorch's give PyTorch's, on their device, with gradients.

        One output returns the array, several return a named tuple. `outputs` asks for definitions by name;
        `isolate=True` keeps a NaN or infinity from everyone who may not hear it; `recompute=False` keeps the weights
        of an attention for its way back, which else makes them again in less room; `backend="reference"` is the
        slow evaluator that says what is right.
        """
        if not self._is_traced():
            again = self._is_transformed() and differentiates_again()
            values = arrays if not named else in_order(self._names, arrays, named)
            try:
                like = self._known[outputs, backend, isolate, recompute, again].get(self._signature(*values))
            except (AttributeError, KeyError, TypeError):
                like = self._calls.like(values, outputs, backend, isolate, recompute, again)
            if like is not None:
                try:
                    if like.fits is None or like.fits(values):
                        result = like.function(*values)
                        return result if like.pack is None else like.pack(result)
                except like.refused:
                    pass
                except RuntimeError as problem:
                    if not is_excused(problem, values):
                        raise
        return self._call(arrays, named, outputs, backend, isolate, recompute)

    def _call(
        self,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        outputs: str | Iterable[str] | None,
        backend: str | None,
        isolate: bool,
        recompute: bool,
    ) -> Any:
        """A call that is new: all checks, then the kernel; one like it is found by its signature from then on."""
        self._is_traced, self._is_transformed = tracing_test(), transform_test()
        if self._is_traced() and backend is None:
            return self._traced(arrays, named, outputs, isolate, recompute)
        _check_backend(backend, BACKENDS)
        wanted = self.wanted(outputs)
        call = self._engine.prepare(self.arguments(arrays, named), backend)
        again = differentiates_again()
        apart = isolate or (again and self._engine.lacks_derivatives(call, wanted, recompute))
        found = self._engine.run(call, wanted, apart, recompute)
        alone = isinstance(outputs, str) or (outputs is None and len(wanted) == 1)
        if call.backend != "reference":
            kernel = self._engine.kernel(call, wanted, apart, recompute)
            values = in_order(self._names, arrays, named)
            self._calls.learn(call, kernel, values, alone, outputs, backend, isolate, recompute, again)
        return found[wanted[0]] if alone else packed(wanted)(*(found[name] for name in wanted))

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
        kinds = tuple(
            [
                (None, 0, isinstance(v, float)) if isinstance(v, int | float) else (v.dtype, v.ndim, v.device)
                for v in values
            ]
        )
        result = self._functions[self._find(kinds, wanted, isolate, recompute)](*values)
        return result if len(wanted) == 1 else packed(wanted)(*result)

    def wanted(self, outputs: str | Iterable[str] | None) -> tuple[str, ...]:
        """The definitions that `outputs` asks for, by name; all outputs for None."""
        asked: Any = self.outputs if outputs is None else (outputs,) if isinstance(outputs, str) else outputs
        names = tuple(asked) if isinstance(asked, Iterable) else (asked,)
        odd = [name for name in names if not isinstance(name, str)]
        if odd:
            examples = 'pass `outputs="out"` or `outputs=("weights", "out")`'
            raise _call_error("IX508", f"outputs are asked for by name, and `{str(odd[0])[:40]}` is none", examples)
        if not names:
            raise _call_error("IX508", "this program has no output", "define something with `let`")
        known = {let.name for let in self.ir.lets}
        for name in names:
            if name not in known:
                help, _ = suggest(str(name), self.definitions, self._start())
                shown = ", ".join(self.definitions) or "nothing"
                raise _call_error("IX508", f"no definition is called `{name}`", help or f"it defines {shown}")
        return tuple(dict.fromkeys(names))

    def arguments(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Each input with its array; one error says all that is missing or too many."""
        signature = ", ".join(self.inputs) or "no inputs"
        if len(arrays) > len(self.inputs):
            message = f"{len(arrays)} arrays for {len(self.inputs)} inputs"
            raise _call_error("IX501", message, f"this program takes {signature}")
        found = dict(zip(self.inputs, arrays, strict=False))
        sink = Sink()
        for name, value in named.items():
            if name not in self.inputs:
                help, _ = suggest(name, self.inputs, self._start())
                sink.report("IX501", f"no input is called `{name}`", help=help or f"this program takes {signature}")
            elif name in found:
                sink.report("IX501", f"`{name}` is given twice, by place and by name")
            else:
                found[name] = value
        for tensor in self.ir.inputs:
            if tensor.name not in found:
                sink.report("IX501", f"the input `{tensor.name}` is missing", Label(tensor.span))
        if sink.failed:
            raise CallError(sink)
        return found

    def _start(self) -> Span:
        return Span(self.ir.source, 0, 0)


def _check_backend(backend: str | None, known: tuple[str, ...]) -> None:
    if backend is not None and backend not in known:
        raise _call_error("IX509", f"there is no backend `{backend}` here", f"choose from {', '.join(known)}")


def _call_error(code: str, message: str, help: str) -> CallError:
    return CallError([Diagnostic(code, message, help=help)])
