"""Files of weights that are damaged, or that lead elsewhere: a sentence each."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import indexical as ix
from indexical.models.files import open_checkpoint


def folder(place: Path, config: str = '{"model_type": "llama"}', index: str | None = None) -> Path:
    made = place / "model"
    made.mkdir()
    (made / "config.json").write_text(config)
    if index is not None:
        (made / "model.safetensors.index.json").write_text(index)
    return made


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/x.safetensors", "a/../../x.safetensors", "", ".", "out/x", "a\0b"]
)
def test_an_index_does_not_leave_its_folder(tmp_path: Path, name: str) -> None:
    made = folder(tmp_path, index=json.dumps({"weight_map": {"w": name}}))
    (made / "out").symlink_to(tmp_path)
    with pytest.raises(ix.CallError, match=r"IX540.*which is no file in its folder"):
        open_checkpoint(made)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_json_that_is_nested_deeply(tmp_path: Path, text: str) -> None:
    with pytest.raises(ix.CallError, match=r"IX540.*nests values too deeply"):
        open_checkpoint(folder(tmp_path, index=text))


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(*fields: bytes, declared: int | None = None, tensors: int = 0) -> bytes:
    count = len(fields) if declared is None else declared
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, count) + b"".join(fields) + bytes(64)


DAMAGED = {
    "nested": gguf(string("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000 + struct.pack("<IQ", 0, 0)),
    "a long array": gguf(string("a") + struct.pack("<IIQ", 9, 0, 2**60)),
    "a long text": gguf(string("a") + struct.pack("<IQ", 8, 2**62)),
    "many fields": gguf(declared=2**60),
    "many tensors": gguf(tensors=2**60),
    "cut off": b"GGUF",
    "empty": b"",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_gguf_that_is_damaged(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("gguf")
    file = tmp_path / "model.gguf"
    file.write_bytes(DAMAGED[kind])
    with pytest.raises(ix.CallError, match="IX540"):
        open_checkpoint(file)
