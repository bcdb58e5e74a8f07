"""What CONTRIBUTING.md and `docs/adding-a-lint.md` say of this repository: files, names, codes, commands, numbers."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from tests import profiles

from indexical.codes import CODES
from indexical.engine.rules import Target
from indexical.engine.show.printer import Printer
from indexical.facts.lints import LINTS
from indexical.facts.view import View

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "indexical"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ADDING = (ROOT / "docs" / "adding-a-lint.md").read_text(encoding="utf-8")

# What a page says is looked for in these folders, beside the root; and what it makes, in the telling, is not there yet.
FOLDERS = {"CONTRIBUTING.md": [PACKAGE], "docs/adding-a-lint.md": [PACKAGE, PACKAGE / "facts" / "lints"]}
TEXTS = {"CONTRIBUTING.md": CONTRIBUTING, "docs/adding-a-lint.md": ADDING}
(NEW_CODE,) = re.findall(r'^CODE = "(IX\d+)"$', ADDING, re.MULTILINE)
NEW_LINT = "normalised_twice"
MADE = {f"{NEW_LINT}.py", f"docs/codes/{NEW_CODE}.md", "examples/variants/NAME.ix"}
# Names that fit nothing, and a section of the changelog.
PLAIN = {"utils", "helpers", "manager", "data", "Unreleased"}


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def spans(text: str) -> list[tuple[str, str]]:
    """Each code span of the prose, with the paragraph or the row that it stands in."""
    parts = re.split(r"\n\n|\n(?=\|)", prose(text))
    return [(span, part) for part in parts for span in re.findall(r"`([^`\n]+)`", part)]


def commands(text: str) -> list[str]:
    """The lines of the blocks for a shell, without comments, and what spans call with `python -m`."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line] + [span for span, _ in spans(text) if span.startswith("python ")]


def is_path(span: str) -> bool:
    return bool(re.fullmatch(r"[\w./*-]+", span) and re.search(r"\w/|[\w*]\.(py|md|ix|toml|txt)$", span))


def found(span: str, folders: list[Path]) -> bool:
    return any(list(folder.glob(span.rstrip("/"))) for folder in folders)


@pytest.mark.parametrize("page", TEXTS)
def test_every_path_is_there(page: str) -> None:
    missing = []
    for span, part in spans(TEXTS[page]):
        if not is_path(span) or span in MADE:
            continue
        # A row of the table of rooms, and a paragraph about one, name what is in it by its own name.
        near = [PACKAGE / room.rstrip("/") for room in re.findall(r"`([\w/]+/)`", part)]
        if not found(span, [ROOT, *FOLDERS[page], *near]):
            missing.append(span)
    assert missing == []


@pytest.mark.parametrize("page", TEXTS)
def test_a_name_of_a_file_is_defined_there(page: str) -> None:
    """As in "`LINTS` in `facts/lints/__init__.py`", or with "of" or "from"."""
    pairs = re.findall(r"`([A-Za-z_]\w*)`\s+(?:in|of|from)\s+`([\w/.]+\.py)`", prose(TEXTS[page]))
    assert pairs
    for name, file in pairs:
        (path,) = [folder / file for folder in (ROOT, PACKAGE) if (folder / file).is_file()]
        assert name in defined_in(path), f"{name} in {file}"


@pytest.mark.parametrize("page", TEXTS)
def test_every_name_is_one_of_the_code(page: str) -> None:
    known = known_names() | set(settings_of_the_project()) | PLAIN
    strange = []
    for span, _ in spans(TEXTS[page]):
        if is_path(span) or re.search(r"[ ∘=*]|^--|^IX\d+$|^\.|…$|::", span) or span.startswith(NEW_LINT):
            continue
        names = re.findall(r"[A-Za-z_]\w*", re.sub(r"\(.*\)|\[.*\]|\".*\"", "", span))
        strange += [span for name in names if name not in known]
    assert strange == []


def test_fields_of_classes_are_there() -> None:
    """What a rule asks of its `target`, and a dialect of the printer, which is called `p`."""
    pairs = [pair for span, _ in spans(CONTRIBUTING) for pair in re.findall(r"\b(p|target)\.(\w+)", span)]
    classes = {"p": Printer, "target": Target}
    assert {owner for owner, _ in pairs} == set(classes)
    assert [name for owner, name in pairs if not hasattr(classes[owner], name)] == []


@pytest.mark.parametrize("page", TEXTS)
def test_every_code_is_in_the_table(page: str) -> None:
    assert set(re.findall(r"\bIX\d{3}\b", TEXTS[page])) <= {*CODES, NEW_CODE}


@pytest.mark.parametrize("page", TEXTS)
def test_every_command_can_be_given(page: str) -> None:
    lines = commands(TEXTS[page])
    assert lines
    for line in lines:
        for words in (part.split() for part in line.split("&&")):
            if words[:2] == ["python", "-m"]:
                words = words[2:]
                assert importlib.util.find_spec(words[0]) is not None, line
            check_words(words, line)


def check_words(words: list[str], line: str) -> None:
    """Paths are there; parts, profiles and extras are those that there are."""
    for word in words[1:]:
        if is_path(word) and word not in MADE and ".venv" not in word:
            assert (ROOT / word).exists(), line
        if word.startswith("--part="):
            assert word.removeprefix("--part=") in ("quick", "rest", "all"), line
        if word.startswith("--hypothesis-profile="):
            assert word.removeprefix("--hypothesis-profile=") in profiles.NUMBERS, line


def test_numbers_of_examples_are_those_of_the_profiles() -> None:
    quick, rest, search = profiles.NUMBERS.values()
    said = " ".join(CONTRIBUTING.split())
    assert f"# {search} new examples of most laws" in said
    assert f"{quick} in the quick part, {rest} in the rest" in said
    for name, number in profiles.NUMBERS.items():
        assert settings.get_profile(name).max_examples == number
    assert settings.get_profile("search").derandomize is False


# ------------------------------------------------------------------------------- the rooms


def rooms() -> list[list[str]]:
    """The first column of the table of rooms, from top to bottom."""
    _, _, table = CONTRIBUTING.partition("| room | what it turns into what |\n| --- | --- |\n")
    rows = table.partition("\n\n")[0].splitlines()
    columns = [re.findall(r"`([^`]+)`", row.split("|")[1]) for row in rows]
    return [[span.removesuffix(".py").rstrip("/") for span in column] for column in columns]


def test_the_table_has_every_room_once() -> None:
    there = [path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    entrances = {"__init__", "__main__"}
    assert sorted(room for row in rooms() for room in row) == sorted(set(there) - entrances)


def test_a_room_imports_from_rooms_above_it() -> None:
    """Rooms of one row may import each other, but the doors to the outside not."""
    place = {room: number for number, row in enumerate(rooms()) for room in row}
    doors = place["cli"]
    wrong = []
    for room, other, where in imports():
        if room in place and other in place and room != other:
            below = place[other] > place[room] or place[other] == place[room] == doors
            wrong += [f"{where}: {room} imports {other}"] if below else []
    assert wrong == []


def imports() -> Iterator[tuple[str, str, str]]:
    """Each import of one of our rooms by another, but those that only types need."""
    for path in PACKAGE.rglob("*.py"):
        parts = ("indexical", *path.relative_to(PACKAGE).with_suffix("").parts)
        text = re.sub(r"^if TYPE_CHECKING:\n(?:(?: .*)?\n)+", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for dots, module, names in re.findall(r"^ *from (\.+)([\w.]*) import (\([^)]*|.*$)", text, re.MULTILINE):
            whole = [*parts[: len(parts) - len(dots)], *filter(None, module.split("."))]
            for name in whole[1:2] or re.findall(r"\w+", names):
                yield parts[1], name, str(path.relative_to(ROOT))


# ------------------------------------------------------------------------------- the page about lints


def test_the_new_lint_is_new() -> None:
    """The code that the page adds is the next after those of lints and contracts, and its lint is not there yet."""
    assert int(NEW_CODE[2:]) == 1 + max(int(code[2:]) for code in CODES if code.startswith("IX4"))
    assert not (PACKAGE / "facts" / "lints" / f"{NEW_LINT}.py").exists()


def test_a_view_has_what_the_page_lists() -> None:
    listed = re.findall(r"^\| `view\.(\w+)", ADDING, flags=re.MULTILINE)
    assert len(listed) > 5
    fields = set(View.__dataclass_fields__)
    assert [name for name in listed if name not in fields and not hasattr(View, name)] == []


def test_every_lint_has_the_shape_that_the_page_gives() -> None:
    """A file with a docstring, a code or several, and `find`; its module in `LINTS`."""
    files = sorted(path for path in (PACKAGE / "facts" / "lints").glob("*.py") if path.stem != "__init__")
    assert sorted(find.__module__.rpartition(".")[2] for find in LINTS) == [path.stem for path in files]
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        assert "find" in defined_in(path), path


# ------------------------------------------------------------------------------- names


def python_files() -> list[Path]:
    return [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]


def settings_of_the_project() -> list[str]:
    return re.findall(r"[\w-]+", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))


# A parameter stands in the middle of its line.
DEFINITIONS = re.compile(r"^ *(?:def|class) (\w+)|^ *(\w+) *=[^=]|\b(\w+): |^ *(?:from|import) (.*)", re.MULTILINE)


@cache
def known_names() -> frozenset[str]:
    """What any file of ours defines or imports: functions, classes, variables, fields, parameters, modules."""
    names = {name for path in python_files() for name in (path.stem, path.parent.name)}
    for path in python_files():
        for groups in DEFINITIONS.findall(path.read_text(encoding="utf-8")):
            names.update(re.findall(r"\w+", "".join(groups)))
    return frozenset(names)


def defined_in(path: Path) -> set[str]:
    """The functions, classes and tables of a file."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names
