"""Programs that Python functions declare: the annotations are the inputs, the docstring is the program."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from .api import Program, compile_source
from .diagnostics import CompileError, Diagnostic, Label, Sink
from .run.asked import Face
from .source import Source
from .syntax.embedded import Function, function_at, function_source, span_of

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    Asked = str | Iterable[str] | None

    class Declared(Program, Generic[P, R]):
        """A program as type checkers see it: called as the function that declares it, or with the options of a call."""

        @overload  # type: ignore[override]
        def __call__(self, *arrays: P.args, **named: P.kwargs) -> R: ...
        @overload
        def __call__(self, *arrays: Any, outputs: Asked, **named: Any) -> Any: ...
        @overload
        def __call__(self, *arrays: Any, backend: str | None, **named: Any) -> Any: ...
        @overload
        def __call__(self, *arrays: Any, isolate: bool, **named: Any) -> Any: ...
        @overload
        def __call__(self, *arrays: Any, recompute: bool, **named: Any) -> Any: ...
        @overload
        def __call__(self, *arrays: Any, memory: str | int | None, **named: Any) -> Any: ...
        def __call__(self, *arrays: Any, **named: Any) -> Any: ...


@overload
def program(function: Callable[P, R], /) -> Declared[P, R]: ...
@overload
def program() -> Callable[[Callable[P, R]], Declared[P, R]]: ...
def program(function: Any = None, /) -> Any:
    """The program that a function declares: its annotations are the inputs, its docstring is the program.

        @ix.program
        def attention(Q: "i d", K: "j d", V: "j e", *, window: int = 256):
            \"\"\"
            let w[i, j]   = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where i - window < j <= i;
            let out[i, e] = sum[j](w[i, j] * V[j, e]);
            \"\"\"

    An annotation has the axes, and after a colon the dtype: `"i d : f32"`. Type checkers rather read
    `Annotated[Tensor, "i d"]`. Scalars are `int`, `float` or `bool`, and may have defaults. The function is never run.
    Raises `ix.Error` with every mistake in it, at its place in the Python file.
    """
    if function is None:
        return program
    if not isinstance(function, FunctionType):
        message = f"`{getattr(function, '__name__', function)!s:.60}` is no function that is written in Python"
        raise _refused(message, "`@ix.program` stands directly above `def`, below all other decorators")
    sink = Sink()
    file, node = _found(function)
    source = function_source(file, node, sink, partial(_meant, function))
    face = None if source is None else _face(function, file, node, sink)
    if source is None or face is None or sink.failed:
        raise CompileError(sink)
    made = compile_source(source, face=face)
    made.__wrapped__ = function  # `inspect.getsource` asks for it.
    return made


def _refused(message: str, help: str) -> CompileError:
    return CompileError([Diagnostic("IX109", message, help=help)])


def _face(function: FunctionType, file: Source, node: Function, sink: Sink) -> Face:
    """The facts that a function states beside its program. Defaults are plain numbers."""
    by_place = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    values = function.__defaults__ or ()
    defaults = dict(zip(by_place[len(by_place) - len(values) :], values, strict=True))
    numbers: dict[str, Any] = {}
    for name, value in {**defaults, **(function.__kwdefaults__ or {})}.items():
        number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
        if not isinstance(number, int | float):
            message = f"the default of `{name}` is {value!r:.40}, and no number"
            place = next(each for each in ast.walk(node.args) if isinstance(each, ast.arg) and each.arg == name)
            help = "a scalar is left out where it has a default; everything else is given in every call"
            sink.report("IX109", message, Label(span_of(file, place)), help=help)
        numbers[name] = number
    by_name = tuple(each.arg for each in node.args.kwonlyargs)
    return Face(function.__name__, function.__module__, function.__qualname__, by_name, numbers)


# ------------------------------------------------------------------- its place


def _found(function: FunctionType) -> tuple[Source, Function]:
    """The file of a function, and the function in it. Where no file was kept, as at a prompt, or it has changed since
    it was loaded, the function is written down again."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    file = _file(_shown(code.co_filename), "".join(lines))
    node = function_at(file, code.co_name, code.co_firstlineno)
    if node is None or _cleaned(ast.get_docstring(node)) != _cleaned(function.__doc__):
        file = Source(f"<{function.__name__}>", _written(function))
        node = function_at(file, function.__name__, 1)
    if node is None:
        raise _refused(f"`{function.__name__}` has no docstring to be its program", "write it with `def`")
    return file, node


@lru_cache(2)
def _file(name: str, text: str) -> Source:
    """A file; all programs in it share it."""
    return Source(name, text)


def _cleaned(docstring: str | None) -> str:
    return inspect.cleandoc(docstring or "")


def _shown(path: str) -> str:
    """A file as a person names it: from where they are, or as the cell of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda path: None)(path)
    return " ".join(named) if named else path.removeprefix(os.path.join(os.getcwd(), ""))


class _Verbatim(str):
    """A text that stands for itself."""

    def __repr__(self) -> str:
        return str(self)


def _written(function: FunctionType) -> str:
    """The `def` of a function that is nowhere to be read, from what Python knows of it."""
    signature = inspect.signature(function)
    are_texts = bool(function.__code__.co_flags & annotations.compiler_flag)
    parameters = [each.replace(annotation=_annotation(each, are_texts)) for each in signature.parameters.values()]
    word = "async def" if inspect.iscoroutinefunction(function) else "def"
    head = f"{word} {function.__name__}{signature.replace(parameters=parameters, return_annotation=signature.empty)}:"
    if function.__doc__ is None:
        return f"{head}\n    ...\n"
    text = function.__doc__.replace("\\", "\\\\").replace('"', '\\"')
    return f'{head}\n    """{text}"""\n'


def _annotation(parameter: inspect.Parameter, is_text: bool) -> Any:
    """An annotation as it was written, or one that says the same."""
    given = parameter.annotation
    if given is parameter.empty or given in (int, float, bool):
        return given
    if isinstance(given, str):
        return _Verbatim(given if is_text else repr(given))
    axes = _axes_of(given)
    return _Verbatim("object" if axes is None else repr(axes))


def _axes_of(annotation: Any) -> str | None:
    """The axes that an annotation has with it: the last text of `Annotated[…, "i d"]`, or what jaxtyping keeps."""
    texts = [each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, str)]
    found = texts[-1] if texts else getattr(annotation, "dim_str", None)
    return found if isinstance(found, str) else None


def _meant(function: FunctionType, parameter: ast.arg) -> str | None:
    """The axes that a name in an annotation stands for, as in `Query = Annotated[Tensor, "i d"]`."""
    given = function.__annotations__.get(parameter.arg)
    if isinstance(given, str):
        first, *attributes = given.split(".")
        given = function.__globals__.get(first)
        for attribute in attributes:
            given = getattr(given, attribute, None)
    return _axes_of(given)
