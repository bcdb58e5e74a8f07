"""Programs in files of other kinds: in Python the functions whose annotations are the inputs and whose docstring is the
program, and texts that are compiled where they stand; in Markdown the blocks that are called `ix`. A file is read, and
never run; findings are shown at places in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from textwrap import dedent

from ..diagnostics import Label, Sink
from ..records import dataclass, field
from ..source import Origin, Source, Span
from .vocabulary import DTYPES, OPTIONS, STORED_DTYPES

Function = ast.FunctionDef | ast.AsyncFunctionDef
# The axes that a name in the annotation of a parameter stands for, as in `Query = Annotated[Tensor, "i d"]`.
Look = Callable[[ast.arg], str | None]

# Python's types of scalars, and how such an input is declared.
SCALARS = {"int": ": i64", "float": "", "bool": ": bool"}

_LITERAL = re.compile(r"""(\w*)(\"{3}|'{3}|"|')((?:\\.|[^\\])*?)\2""", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|[\\'\"abfnrtv\n])")
# A block of a page that is not closed yet goes on to its end.
_BLOCK = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<words>[^\n`]*)\n(?P<text>(?:.*\n)*?)(?: {0,3}(?P=fence)[`~]*[ \t]*$|.*\Z)",
    re.MULTILINE,
)
_EXAMPLE = 'axes stand in the annotation, `Q: "i d"`, and scalars are `int`, `float` or `bool`'


@dataclass(slots=True)
class _Assembly:
    """A text that is put together from pieces of a file: each character with its offset there."""

    file: Source
    text: str = ""
    places: list[int] = field(default_factory=list)

    def add(self, text: str, places: list[int] | int) -> None:
        """Add a text as it stands in the file, or one that is not there and belongs to a single place."""
        self.text += text
        self.places += [places] * len(text) if isinstance(places, int) else places

    def source(self) -> Source:
        return Source(self.file.name, self.text, Origin(self.file, tuple(self.places)))


@lru_cache(2)
def _parsed(text: str) -> ast.Module:
    """The tree of a Python file; of one with many programs it is asked for each."""
    return ast.parse(text)


@dataclass(frozen=True, slots=True)
class Embedded:
    """A program in a Python file: its name, where a function has one, its text, and of a function what it has beside
    that: the inputs that are given by name, and the defaults that are plain numbers."""

    name: str
    source: Source
    by_name: tuple[str, ...] = ()
    defaults: Mapping[str, float] = field(default_factory=dict)


def programs_in(file: Source, sink: Sink) -> list[Embedded]:
    """The programs of a Python file, in the order of the file; what cannot be read as one is reported."""
    if "indexical" not in file.text:
        return []
    try:
        tree = _parsed(file.text)
    except SyntaxError as problem:
        at = file.offset(min(problem.lineno or 1, file.line_count), 0) + max(0, (problem.offset or 1) - 1)
        sink.report("IX108", f"this is no Python: {problem.msg}", Span(file, at, at + 1))
        return []
    modules, names = _imported(tree)
    found: list[tuple[int, Embedded]] = []
    for node in ast.walk(tree):
        if isinstance(node, Function) and any(_is_ours(each, "program", modules, names) for each in _bare(node)):
            source = function_source(file, node, sink, _assigned(tree))
            if source is not None:
                by_name = tuple(each.arg for each in node.args.kwonlyargs)
                found.append((node.lineno, Embedded(node.name, source, by_name, dict(_numbers(node)))))
        elif isinstance(node, ast.Call) and _is_ours(node.func, "compile", modules, names) and node.args:
            text = node.args[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str) and ";" in text.value:
                found.append((text.lineno, Embedded("", _literal_source(file, text))))
    return [program for _, program in sorted(found, key=lambda pair: pair[0])]


def _numbers(node: Function) -> Iterator[tuple[str, float]]:
    """The defaults of a function's parameters that are written as numbers."""
    by_place = [*node.args.posonlyargs, *node.args.args]
    given = zip(by_place[len(by_place) - len(node.args.defaults) :], node.args.defaults, strict=True)
    for parameter, default in (*given, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)):
        value = default.operand if isinstance(default, ast.UnaryOp) else default
        if default is not None and isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            yield parameter.arg, ast.literal_eval(default)


def blocks_in(page: Source) -> list[Source]:
    """The programs of a Markdown page: the blocks that are called `ix` and have a line in them."""
    found = []
    for block in _BLOCK.finditer(page.text):
        places = tuple(range(block.start("text"), block.end("text")))
        if block["words"].split()[:1] == ["ix"] and block["text"].strip():
            found.append(Source(page.name, block["text"], Origin(page, places)))
    return found


def function_at(file: Source, name: str, line: int) -> Function | None:
    """The function of that name that begins, with its decorators, on this line."""
    try:
        tree = _parsed(file.text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, Function) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= line <= node.lineno:
                return node
    return None


def function_source(file: Source, node: Function, sink: Sink, look: Look) -> Source | None:
    """The program that a function is: an `input` for its parameters, then its docstring without its indentation."""
    before = len(sink)
    docstring = _docstring(file, node, sink)
    made = _Assembly(file)
    arguments = node.args
    defaults = [None] * (len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults))
    given = [*defaults, *arguments.defaults, *arguments.kw_defaults]
    for many in (arguments.vararg, arguments.kwarg):
        if many is not None:
            message = f"`{many.arg}` is no single input"
            sink.report("IX109", message, span_of(file, many), help="a program has a parameter for each of its inputs")
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for number, (parameter, default) in enumerate(zip(parameters, given, strict=True)):
        start = file.offset(parameter.lineno, parameter.col_offset)
        made.add(", " if number else "input ", start)
        _add_input(made, parameter, default, sink, look)
    if parameters:
        made.add(";\n", made.places[-1])
    if docstring is None or len(sink) > before:
        return None
    for text, places in _dedented(*_literal(file, docstring)):
        made.add(text, places)
    return made.source()


def _docstring(file: Source, node: Function, sink: Sink) -> ast.Constant | None:
    """The docstring of a function that has nothing else in it."""
    first = node.body[0].value if isinstance(node.body[0], ast.Expr) else None
    name = Span(file, *_name_of(file, node))
    if isinstance(first, ast.JoinedStr):
        help = "leave the `f` out: what changes from call to call is an input (`window: int = 256`)"
        message = "an f-string is computed when the function runs, and is no docstring"
        sink.report("IX109", message, Label(span_of(file, first)), help=help + "; `ix.compile` takes any text")
    elif not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        help = 'write the program as its docstring: `"""let y[i] = 2 * x[i];"""`'
        sink.report("IX109", f"`{node.name}` has no docstring to be its program", Label(name), help=help)
    else:
        rest = [each for each in node.body[1:] if not _does_nothing(each)]
        if rest or isinstance(node, ast.AsyncFunctionDef):
            help = "a program is its docstring; what else there is to do, a function around it does"
            place = span_of(file, rest[0]) if rest else name
            sink.report("IX109", f"this part of `{node.name}` would never run", Label(place), help=help)
        return first
    return None


def _does_nothing(node: ast.stmt) -> bool:
    """Whether a statement only fills the place of a body. Where a result is declared, type checkers want a `raise`."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Pass | ast.Raise)


def _add_input(made: _Assembly, parameter: ast.arg, default: ast.expr | None, sink: Sink, look: Look) -> None:
    """One parameter as the input that its annotation declares."""
    file, annotation = made.file, parameter.annotation
    start = file.offset(parameter.lineno, parameter.col_offset)
    name = Span(file, start, start + len(parameter.arg))
    made.add(parameter.arg, list(range(name.start, name.end)))
    if parameter.arg in OPTIONS:
        help = f"`{parameter.arg}` is an option of every call; choose another name"
        sink.report("IX109", f"an input cannot be called `{parameter.arg}`", Label(name), help=help)
    scalar = _scalar(annotation, default)
    if scalar is not None:
        made.add(f" {scalar}" if scalar else "", name.end - 1)
        return
    written = _written(file, parameter, look)
    if written is None:
        if parameter.arg in ("self", "cls"):
            help = f"leave `{parameter.arg}` out: in a class, a program is called as a static method is"
        else:
            help = _EXAMPLE
        place = name if annotation is None else span_of(file, annotation)
        sink.report("IX109", f"nothing says which axes `{parameter.arg}` has", Label(place), help=help)
        return
    _add_axes(made, *written)
    if default is not None and _split_axes(written[0])[0]:
        message = f"`{parameter.arg}` has axes, and so no default"
        sink.report("IX109", message, Label(span_of(file, default)), help="only a scalar can be left out of a call")


def _scalar(annotation: ast.expr | None, default: ast.expr | None) -> str | None:
    """How a scalar is declared, by its type or, without one, by its default; None for what is none."""
    match annotation:
        case None:
            value = default.operand if isinstance(default, ast.UnaryOp) else default
            return SCALARS.get(type(value.value).__name__) if isinstance(value, ast.Constant) else None
        case ast.Name(word) | ast.Constant(str(word)):
            return SCALARS.get(word)
    return None


def _written(file: Source, parameter: ast.arg, look: Look) -> tuple[str, list[int]] | None:
    """The text in an annotation: itself, the last part of `Annotated[…, "i d"]`, or what a name stands for."""
    annotation = parameter.annotation
    if annotation is None:
        return None
    text = annotation if _is_text(annotation) else text_in(annotation)
    if text is not None:
        assert isinstance(text, ast.Constant)
        return _literal(file, text)
    meant = look(parameter)
    return None if meant is None else (meant, [span_of(file, annotation).start] * len(meant))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def text_in(annotation: ast.expr) -> ast.Constant | None:
    """The last part of `Annotated[Tensor, "i d"]`, where that is a text."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple) and annotation.slice.elts:
        last = annotation.slice.elts[-1]
        return last if isinstance(last, ast.Constant) and _is_text(last) else None
    return None


def _split_axes(text: str) -> tuple[str, str]:
    """The axes and the dtype in an annotation: `i d : f32`, or without the colon."""
    axes, colon, dtype = text.rpartition(":")
    if colon:
        return axes.strip(" []"), dtype.strip()
    *axes_before, last = text.split() or [""]
    if last in (*DTYPES, *STORED_DTYPES):
        return " ".join(axes_before).strip(" []"), last
    return text.strip(" []"), ""


def _add_axes(made: _Assembly, text: str, places: list[int]) -> None:
    """Axes as they are written between brackets: with commas, or as words apart."""
    axes, dtype = _split_axes(text)
    at = places[0] if places else made.places[-1]
    end = places[-1] if places else at
    spelled = [axes] if "," in axes or " in " in axes else axes.split()
    if axes:
        made.add("[", at)
        for number, word in enumerate(spelled):
            found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) if word else None
            made.add(", " if number else "", made.places[-1])
            made.add(word, places[found.start() : found.end()] if found else at)
        made.add("]", end)
    if dtype:
        start = text.rindex(dtype)
        made.add(" : ", end)
        made.add(dtype, places[start : start + len(dtype)])


# -------------------------------------------------------------------- literals


def _literal(file: Source, node: ast.Constant) -> tuple[str, list[int]]:
    """The text of a literal, with the offset of each character. One that is spelled oddly is all at its beginning."""
    span = span_of(file, node)
    text, places = "", list[int]()
    for match in _LITERAL.finditer(file.text, span.start, span.end):
        prefix, _, body = match.groups()
        at = match.start(3)
        for piece, start in _pieces(body, "r" in prefix.lower()):
            text += piece
            exact = body[start : start + len(piece)] == piece
            places += [at + start + (number if exact else 0) for number in range(len(piece))]
    return (text, places) if text == node.value else (str(node.value), [span.start] * len(str(node.value)))


def _pieces(body: str, raw: bool) -> Iterator[tuple[str, int]]:
    """The text of a literal's body, piece by piece: as it stands, or an escape."""
    at = 0
    for escape in () if raw else _ESCAPE.finditer(body):
        yield body[at : escape.start()], at
        yield ast.literal_eval(f'"""{escape[0]}"""'), escape.start()
        at = escape.end()
    yield body[at:], at


def _dedented(text: str, places: list[int]) -> Iterator[tuple[str, list[int]]]:
    """A text without the indentation that its lines have in common, from its first line that says something."""
    first, newline, rest = text.partition("\n")
    kept = (first.lstrip() + newline if first.strip() else "") + dedent(rest)
    at = len(first) + 1 if not first.strip() else 0
    for line in kept.rstrip().splitlines(keepends=True) or [""]:
        found = text.index(line.strip("\n"), at) if line.strip() else text.find("\n", at)
        yield line, places[found : found + len(line)]
        at = text.find("\n", found) + 1 or len(text)
    yield "\n", [places[-1]] if places else []


def _literal_source(file: Source, node: ast.Constant) -> Source:
    made = _Assembly(file)
    made.add(*_literal(file, node))
    return made.source()


# ----------------------------------------------------------------------- names


def _imported(tree: ast.Module) -> tuple[set[str], dict[str, str]]:
    """The names that a file has for this package, and for single names of it."""
    modules, names = set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.asname or each.name for each in node.names if each.name == "indexical"}
        elif isinstance(node, ast.ImportFrom) and node.module == "indexical" and not node.level:
            names.update({each.asname or each.name: each.name for each in node.names})
    return modules, names


def _is_ours(node: ast.expr, name: str, modules: set[str], names: dict[str, str]) -> bool:
    match node:
        case ast.Attribute(ast.Name(module), attribute):
            return module in modules and attribute == name
        case ast.Name(word):
            return names.get(word) == name
    return False


def _bare(node: Function) -> list[ast.expr]:
    """The decorators of a function, without the arguments of those that have some."""
    return [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]


def _assigned(tree: ast.Module) -> Look:
    """The meaning of names that the file itself assigns, `Query = Annotated[Tensor, "i d"]`."""
    known: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            text = text_in(node.value)
            if text is not None:
                known[node.targets[0].id] = str(text.value)
    return lambda parameter: known.get(getattr(parameter.annotation, "id", ""))


def span_of(file: Source, node: ast.expr | ast.stmt | ast.arg) -> Span:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return Span(file, file.offset(node.lineno, node.col_offset), file.offset(end_line, end_column))


def _name_of(file: Source, node: Function) -> tuple[int, int]:
    start = file.text.index(node.name, file.offset(node.lineno, node.col_offset) + len("def"))
    return start, start + len(node.name)
