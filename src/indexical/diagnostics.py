"""Findings: values that say what was found, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .codes import CODES, Severity, page_of
from .records import dataclass
from .source import Span


@dataclass(frozen=True, slots=True)
class Label:
    """A place, and a few words about its part in the matter."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """A mechanical mend: put `replacement` where `span` is."""

    span: Span
    replacement: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. The first label is the primary one; a finding about a call may have none."""

    code: str
    message: str
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    fix: Fix | None = None

    @property
    def severity(self) -> Severity:
        return CODES[self.code].severity

    def __str__(self) -> str:
        return render(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The finding as a notebook shows it, alone and in a list."""
        printer.text(render(self))

    def to_json(self) -> dict[str, object]:
        """The finding as plain lists, strings and numbers, for editors and CI."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "labels": [{**place_of(label.span), "text": label.text} for label in self.labels],
            "notes": list(self.notes),
            "help": self.help,
            "fix": self.fix and {**place_of(self.fix.span), "replacement": self.fix.replacement},
            "url": page_of(self.code),
        }


class Sink:
    """The findings of a stage. The same finding is kept once."""

    def __init__(self) -> None:
        self._found: dict[Diagnostic, None] = {}

    def report(
        self,
        code: str,
        message: str,
        *labels: Label | Span,
        notes: Iterable[str] = (),
        help: str | None = None,
        fix: Fix | None = None,
    ) -> None:
        places = tuple(Label(label) if isinstance(label, Span) else label for label in labels)
        self.add(Diagnostic(code, message, places, tuple(notes), help, fix))

    def add(self, diagnostic: Diagnostic) -> None:
        self._found.setdefault(diagnostic)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def failed(self) -> bool:
        return any(found.severity == "error" for found in self._found)


class Error(ValueError):
    """A mistake of the user's. `diagnostics` has every finding; `str()` renders them all."""

    __module__ = "indexical"

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n\n".join(render(diagnostic) for diagnostic in self.diagnostics))

    def _render_traceback_(self) -> list[str]:
        """The lines that a notebook shows: the findings, and the lines that led there, without those of packages."""
        import traceback

        frames = traceback.extract_tb(self.__traceback__)
        packages = (__file__.removesuffix("diagnostics.py"), "site-packages", "IPython")
        own = [frame for frame in frames if not any(part in frame.filename for part in packages)]
        lines = [f"{frame.filename}, line {frame.lineno}: {frame.line}" for frame in own]
        return [f"{type(self).__name__}: {self}", *lines]


class CompileError(Error):
    """The text is at fault."""

    __module__ = "indexical"


class CallError(Error):
    """The arrays do not fit the text, or a check in the run failed."""

    __module__ = "indexical"


Paint = Callable[[str, str], str]

_COLOURS: dict[Severity, str] = {"error": "31", "warning": "33", "note": "36"}


def render(diagnostic: Diagnostic, colour: bool = False) -> str:
    """The finding as text: a headline, each place with a caret under it, notes, help."""
    paint = _coloured if colour else _plain
    tone = _COLOURS[diagnostic.severity]
    head = paint(f"{diagnostic.severity}[{diagnostic.code}]", f"1;{tone}")
    lines = [f"{head}: {paint(diagnostic.message, '1')}"]
    labels = [Label(label.span.shown, label.text) for label in diagnostic.labels]
    width = max((len(str(label.span.line)) for label in labels), default=1) + 2
    shown = None
    for index, label in enumerate(labels):
        if label.span.source is not shown:
            shown = label.span.source
            lines.append(paint(f"{' ' * (width - 1)}--> {label.span}", "2"))
        lines += _excerpt(label, width, "^" if index == 0 else "-", tone if index == 0 else "34", paint)
    for note in diagnostic.notes:
        lines.append(f"{' ' * width} = note: {note}")
    if diagnostic.help is not None:
        lines.append(f"{' ' * width} = {paint('help', '1;32')}: {diagnostic.help}")
    return "\n".join(lines)


def _excerpt(label: Label, width: int, mark: str, tone: str, paint: Paint) -> list[str]:
    """The line of a label with marks under its part; a longer span is marked to its line's end."""
    line, column = label.span.source.position(label.span.start)
    text = label.span.source.line(line)
    marks = max(1, min(label.span.end - label.span.start, len(text) - column + 1))
    start, text, cut = _window(text, column - 1)
    before = "".join("\t" if character == "\t" else " " for character in text[:start])
    under = before + paint(mark * max(1, min(marks, len(text) - start or 1)), tone)
    gutter = f"{line:>{width}} | "
    words = f" {paint(label.text, tone)}" if label.text else ""
    return [paint(gutter, "2") + text + cut, paint(f"{'':>{width}} | ", "2") + under + words]


def _window(text: str, start: int) -> tuple[int, str, str]:
    """A very long line is cut to the part around its mark; control characters become spaces."""
    limit = 160
    first = max(0, start - limit // 2) if len(text) > limit else 0
    piece = "".join(c if c == "\t" or c.isprintable() else " " for c in text[first : first + limit])
    lead = "…" if first else ""
    return start - first + len(lead), lead + piece, "…" if first + limit < len(text) else ""


def _plain(text: str, tone: str) -> str:
    return text


def _coloured(text: str, tone: str) -> str:
    return f"\x1b[{tone}m{text}\x1b[0m"


def place_of(span: Span) -> dict[str, Any]:
    """A place in the file that a person wrote: lines and columns count from 1, and the end is the first one after."""
    span = span.shown
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {
        "file": span.source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    }


class SlowPath(UserWarning):
    """A call is computed in a way that takes several times the best; the warning says why, once."""
