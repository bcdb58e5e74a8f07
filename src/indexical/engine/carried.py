"""Kernels that an emitted module carries along: of each file, what is called, with all that it needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from textwrap import wrap

from ..records import dataclass
from .kernel_texts import KERNELS
from .show.imports import Import

# What a reader of the emitted module has no use for: for whom the file was written, and words to type checkers.
_APART = re.compile(r"\s*This text needs [^.;]*[.;][^.]*$")
# The files that stand for others in a text that runs without Indexical, for names of these: nobody asks for operators
# there, and Triton launches kernels.
ALONE = {
    ("torch_fold", "folded"): "torch_function",
    ("triton_launch", "launch"): "triton_direct",
    ("triton_tape", "Tape"): "triton_direct",
    ("triton_tape", "Tapes"): "triton_direct",
}
_IGNORED = re.compile(r"  # type: ignore\[[\w, -]+\]$", re.MULTILINE)
_OPENS = re.compile(r"^(?:@|def |class )", re.MULTILINE)
_RULER = re.compile(r"^# -{3,}.*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """One statement of a kernel file, with the comment above it and the names that it reads."""

    text: str
    reads: frozenset[str]


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A kernel file: its statements by what they define, in order, what it imports by name (of a library; of another
    kernel file, that file), and what it says of itself."""

    about: str
    parts: dict[str, Part]
    imports: dict[str, Import]
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Carried:
    """What stands above an emitted module that runs without Indexical: what these functions import, and they."""

    imports: tuple[Import, ...]
    text: str


def carried(kernels: Iterable[tuple[str, Iterable[str]]]) -> Carried:
    """The functions of kernel files that are called, by file and name, each after what it needs."""
    needed: dict[str, set[str]] = {}
    for file, names in kernels:
        for name in names:
            _need(file, name, needed)
    imports: dict[Import, None] = {}
    texts: dict[str, str] = {}  # A short name for a type stands in several files, and once in the module.
    for file in _in_order(needed):
        found = kernel_file(file)
        parts = {part: None for name, part in found.parts.items() if name in needed[file]}
        above = found.about
        for part in parts:
            if part.text not in texts:
                texts[part.text], above = above, ""
        reads = {name for part in parts for name in part.reads}
        imports |= dict.fromkeys(one for name, one in found.imports.items() if name in reads)
    return Carried(tuple(imports), "".join(_spaced(texts)))


def _spaced(texts: dict[str, str]) -> Iterator[str]:
    """Texts, each below what is said of its file, with blank lines around functions and classes."""
    before = ""
    for text, about in texts.items():
        is_plain = _OPENS.search(text) is None
        if before:
            yield "\n" * (not is_plain or _OPENS.search(before) is not None) + "\n" * (not is_plain or bool(about))
        elif not is_plain and not about:
            yield "\n"
        if about:
            yield about + "\n" * (2 if is_plain else 3)
        yield f"{text}\n"
        before = text


def _need(file: str, name: str, needed: dict[str, set[str]]) -> None:
    """Note a name of a file, and all that it needs."""
    file = ALONE.get((file, name), file)
    found = kernel_file(file)
    if name in found.files:
        _need(found.files[name], name, needed)
    elif name in found.parts and name not in needed.setdefault(file, set()):
        needed[file].add(name)
        for other in sorted(found.parts[name].reads):
            _need(file, other, needed)


def _in_order(files: Iterable[str]) -> list[str]:
    """Files, each after those that it imports."""
    found: dict[str, None] = {}

    def visit(file: str) -> None:
        for other in dict.fromkeys(ALONE.get((of, name), of) for name, of in kernel_file(file).files.items()):
            visit(other)
        found[file] = None

    wanted = tuple(files)
    for file in wanted:
        visit(file)
    return [file for file in found if file in wanted]


@cache
def kernel_file(name: str) -> KernelFile:
    """A kernel file, taken apart."""
    text = (resources.files(KERNELS) / f"{name}.py").read_text(encoding="utf-8")
    lines, tree = text.splitlines(), ast.parse(text)
    parts: dict[str, Part] = {}
    imports: dict[str, Import] = {}
    files: dict[str, str] = {}
    end = 0
    for statement in tree.body:
        start, end = end, statement.end_lineno or statement.lineno
        match statement:
            case ast.ImportFrom(module=None):  # What decorates our own kernels; a text that stands alone has Triton's.
                imports |= {alias.asname or alias.name: ("triton", "") for alias in statement.names}
            case ast.ImportFrom(module=str(module), level=1):
                files |= {alias.name: module for alias in statement.names}
            case ast.ImportFrom(module=str(module)):
                for alias in statement.names:
                    imports[alias.asname or alias.name] = module, ast.unparse(alias)
            case ast.Import():
                for alias in statement.names:
                    imports[alias.asname or alias.name] = ast.unparse(alias), ""
            case _:
                shown = _IGNORED.sub("", _RULER.sub("", "\n".join(lines[start:end]).strip("\n"))).strip("\n")
                parts |= dict.fromkeys(_defined(statement), Part(shown, frozenset(_read(statement))))
    about = _APART.sub("", ast.get_docstring(tree) or "").strip()
    told = [line for paragraph in about.split("\n\n") for line in (*wrap(paragraph, 110), "")]
    return KernelFile("\n".join(f"# {line}".rstrip() for line in told[:-1]), parts, imports, files)


def _defined(statement: ast.stmt) -> Iterator[str]:
    """The functions, classes and variables that a statement defines; of a condition, those inside."""
    match statement:
        case ast.FunctionDef(name) | ast.ClassDef(name):
            yield name
        case ast.Assign() | ast.AnnAssign():
            stored = (part for part in ast.walk(statement) if isinstance(part, ast.Name))
            yield from (part.id for part in stored if isinstance(part.ctx, ast.Store))
        case ast.If(_, body, orelse):
            for inner in (*body, *orelse):
                yield from _defined(inner)


def _read(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement reads, and the modules whose parts it reads; a type may be a name in quotes."""
    for part in ast.walk(statement):
        match part:
            case ast.Name(name) | ast.Constant(str(name)):
                yield name
            case ast.Attribute():
                yield ast.unparse(part)
