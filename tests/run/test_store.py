"""The folder of emitted texts: what was stored is found, and nothing that others could have written is."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from indexical.run import store
from indexical.run.store import Store, current_store

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system does not say who owns a file")


def key(word: object) -> str:
    return hashlib.sha256(str(word).encode()).hexdigest()


KEY = key("a program")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("IX_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_a_text_is_found_again(folder: Path) -> None:
    assert current_store() == Store(os.path.realpath(folder))
    assert current_store().get(KEY) is None
    assert not folder.exists()
    current_store().put(KEY, "let = 'ü'\n")
    assert current_store().get(KEY) == "let = 'ü'\n"
    assert current_store().get(key("another")) is None
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_text_is_written_over(folder: Path) -> None:
    for text in ("first", "second"):
        current_store().put(KEY, text)
        assert current_store().get(KEY) == text
    assert len(list(folder.iterdir())) == 1


TAMPERED = {
    "edited": lambda content: content.replace(b"text", b"evil"),
    "longer": lambda content: content + b"\n",
    "truncated": lambda content: content[:-3],
    "empty": lambda content: b"",
    "the title alone": lambda content: content.partition(b"\n")[0],
    "no text": lambda content: b"\xff\xfe" + content,
    "without a title": lambda content: content.partition(b"\n")[2],
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_text_that_was_changed_is_not_there(folder: Path, how: str) -> None:
    current_store().put(KEY, "a text\n")
    (file,) = folder.iterdir()
    file.write_bytes(TAMPERED[how](file.read_bytes()))
    assert current_store().get(KEY) is None
    current_store().put(KEY, "a text\n")
    assert current_store().get(KEY) == "a text\n"


def test_a_text_under_another_name_is_not_there(folder: Path) -> None:
    current_store().put(KEY, "a text\n")
    (folder / f"{KEY}.py").rename(folder / f"{key('other')}.py")
    assert current_store().get(key("other")) is None


def test_a_file_that_others_may_write_is_not_read(folder: Path) -> None:
    current_store().put(KEY, "a text\n")
    (folder / f"{KEY}.py").chmod(0o620)
    assert current_store().get(KEY) is None


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    current_store().put(KEY, "a text\n")
    (folder / f"{KEY}.py").rename(tmp_path / "elsewhere")
    (folder / f"{KEY}.py").symlink_to(tmp_path / "elsewhere")
    assert current_store().get(KEY) is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_may_write_is_left_alone(folder: Path, mode: int) -> None:
    current_store().put(KEY, "a text\n")
    folder.chmod(mode)
    assert "others may write" in (current_store().problem or "")
    assert current_store().get(KEY) is None
    current_store().put(key("new"), "a text\n")
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.py"]
    assert Store(str(folder)).get(KEY) is None
    Store(str(folder)).put(key("new"), "a text\n")
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.py"]


def test_a_folder_in_one_that_others_may_write_is_left_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("IX_CACHE", str(tmp_path / "open" / "kept"))
    # Below a folder that nobody else may enter, it does not matter.
    assert current_store().problem is None
    monkeypatch.setattr(store, "_SEARCHABLE", 0o777)  # from here on, everybody may enter everything
    assert "others may write" in (current_store().problem or "")
    current_store().put(KEY, "a text\n")
    assert not (tmp_path / "open" / "kept").exists()
    # Where everybody removes only what is their own, as in /tmp, nobody takes its place.
    (tmp_path / "open").chmod(0o1777)
    assert current_store().problem is None


def test_a_link_to_the_folder_where_others_may_write(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current_store().put(KEY, "a text\n")
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "link").symlink_to(folder)
    monkeypatch.setenv("IX_CACHE", str(tmp_path / "open" / "link"))
    assert current_store().get(KEY) == "a text\n"
    monkeypatch.setattr(store, "_SEARCHABLE", 0o777)
    (tmp_path / "open").chmod(0o777)
    assert "others may write" in (current_store().problem or "")
    assert current_store().get(KEY) is None


def test_a_folder_of_another_user_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current_store().put(KEY, "a text\n")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert "another user" in (current_store().problem or "")
    assert current_store().get(KEY) is None


def test_no_folder_where_owners_are_not_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "geteuid")
    assert current_store().problem == "this system does not say who may write to a folder"


def test_a_file_in_the_place_of_the_folder(folder: Path) -> None:
    folder.write_text("not a folder")
    assert "is no folder" in (current_store().problem or "")
    current_store().put(KEY, "a text\n")
    assert current_store().entries() == []


def test_a_home_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "mkdir", refuse)
    current_store().put(KEY, "a text\n")
    assert current_store().get(KEY) is None


def test_a_disk_that_is_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    current_store().put(KEY, "a text\n")
    assert list(folder.iterdir()) == []


def test_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("IX_CACHE", "0")
    current_store().put(KEY, "a text\n")
    assert current_store().problem == "IX_CACHE=0 turns it off"
    assert list(tmp_path.iterdir()) == []


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IX_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "stated"))
    assert current_store().folder == os.path.realpath(tmp_path / "stated" / "indexical")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert current_store().folder.startswith(os.path.realpath(tmp_path / "home"))
    monkeypatch.setenv("IX_CACHE", "relative")
    assert current_store().problem == "IX_CACHE is 0 or the whole path of a folder"


def test_texts_not_used_for_longest_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_ENTRIES", 3)
    for n in range(3):
        current_store().put(key(n), f"{n}\n")
        os.utime(folder / f"{key(n)}.py", (1000 + n, 1000 + n))
    assert current_store().get(key(0)) == "0\n"
    current_store().put(key(3), "3\n")
    assert [current_store().get(key(n)) for n in range(4)] == ["0\n", None, "2\n", "3\n"]
    monkeypatch.setattr(store, "MOST_BYTES", 300)
    current_store().put(key(4), "4" * 100)
    assert sum(entry.size for entry in current_store().entries()) <= 300
    assert current_store().get(key(4)) == "4" * 100


def test_a_text_that_is_too_large_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LARGEST", 200)
    current_store().put(KEY, "x" * 200)
    assert not folder.exists()


def test_only_our_files_are_removed(folder: Path) -> None:
    current_store().put(KEY, "a text\n")
    left = folder / f".{key('ended')}.0123456789ab"
    for path in (folder / "notes.py", left, folder / f".{key('writing')}.0123456789ab"):
        path.write_text("")
    os.utime(left, (time.time() - 7200,) * 2)
    current_store().put(key("other"), "a text\n")
    assert not left.exists()
    assert len(list(folder.iterdir())) == 4
    assert current_store().clear() == 2
    assert [path.name for path in folder.iterdir()] == ["notes.py"]


WRITING = """
import sys
sys.path.insert(0, sys.argv[1])
from indexical.run.store import current_store
from tests.run.test_store import key, long
odd = [n for _ in range(60) for n in range(4) if current_store().put(key(n), long(n)) or
       current_store().get(key(n)) not in (None, long(n))]
print(odd)
"""


def long(n: int) -> str:
    return f"{n}\n" * 20_000


def test_processes_that_write_at_once(folder: Path) -> None:
    root = str(Path(__file__).resolve().parents[2])
    package = str(Path(store.__file__).parents[2])
    command = [sys.executable, "-c", WRITING, package]
    writing = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, encoding="utf-8") for _ in range(3)]
    assert [process.communicate()[0].strip() for process in writing] == ["[]"] * 3
    assert [current_store().get(key(n)) for n in range(4)] == [long(n) for n in range(4)]
    assert len(list(folder.iterdir())) == 4
