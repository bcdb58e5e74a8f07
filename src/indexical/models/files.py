"""Files of weights, as names and shapes, with what is said about them; a weight is read when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..diagnostics import CallError, Diagnostic
from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The weights of a model by name, read on demand as float32 tensors of PyTorch; its settings, by name; and where
    its tokenizer is: in the folder, or in the settings."""

    place: Path
    architecture: str
    format: str
    settings: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], Any]


def open_checkpoint(place: Path) -> Checkpoint:
    """The weights at a place: a GGUF file, a safetensors file beside its `config.json`, or a folder with these."""
    if not place.exists():
        raise unreadable(f"there is no file or folder `{place}`", "give a .gguf file, or a folder with config.json")
    if place.is_dir():
        if (place / "config.json").is_file():
            return _safetensors(place, _shards(place))
        files = sorted(place.glob("*.gguf"))
        if len(files) == 1:
            return _gguf(files[0])
        found = f"{len(files)} GGUF files" if files else "neither config.json nor a .gguf file"
        raise unreadable(f"`{place}` has {found}", "give the file itself, or a folder with one model")
    if place.suffix == ".safetensors":
        return _safetensors(place.parent, [place])
    if place.suffix == ".gguf":
        return _gguf(place)
    raise unreadable(f"`{place}` is neither GGUF nor safetensors", "give a .gguf file, or a folder with config.json")


def unreadable(message: str, help: str | None = None) -> CallError:
    return CallError([Diagnostic("IX540", message, help=help)])


def missing_library(name: str) -> CallError:
    return CallError(
        [Diagnostic("IX509", f"this needs `{name}`, which is not here", help="pip install 'indexical[models]'")]
    )


# ----------------------------------------------------------------------- GGUF


def _gguf(file: Path) -> Checkpoint:
    try:
        import gguf
        import torch
    except ImportError as problem:
        raise missing_library(problem.name or "gguf") from None

    class Reader(gguf.GGUFReader):  # type: ignore[misc] # it has no types
        """A reader that counts no further than the file goes, whatever lengths it declares."""

        def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **named: Any) -> Any:
            found = super()._get(offset, dtype, count, *order, **named)
            if len(found) < count:
                raise ValueError("it declares more than it has")
            return found

    try:
        with file.open("rb") as opened:
            begins = opened.read(4)
        if begins == b"GGUF":
            reader = Reader(file)
            settings = {name: field.contents() for name, field in reader.fields.items()}
    except OSError as problem:
        raise unreadable(f"`{file}` cannot be read: {problem.strerror or problem}") from None
    except RecursionError:
        raise unreadable(f"`{file}` nests arrays too deeply to be read") from None
    except (ValueError, IndexError, KeyError, OverflowError) as problem:
        raise unreadable(f"`{file}` is cut off or damaged: {problem}") from None
    if begins != b"GGUF":
        raise unreadable(f"`{file}` does not begin as a GGUF file does")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    parts = settings.get("split.count", 1)
    if parts not in (0, 1):
        raise unreadable(
            f"`{file}` is one of {parts} parts of a model", "llama-gguf-split --merge makes one file of them"
        )

    def read(name: str) -> Any:
        tensor = tensors[name]
        try:
            array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            kind = tensor.tensor_type.name
            raise unreadable(f"`{name}` is kept as {kind}, which `gguf` does not turn into numbers") from None
        return torch.from_numpy(array.astype("float32", copy=True))

    shapes = {name: tuple(int(n) for n in reversed(tensor.shape)) for name, tensor in tensors.items()}
    return Checkpoint(file, str(settings.get("general.architecture")), "gguf", settings, shapes, read)


# ---------------------------------------------------------------- safetensors


def _safetensors(folder: Path, files: list[Path]) -> Checkpoint:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise missing_library("safetensors") from None
    settings = settings_in(folder / "config.json")
    if not files:
        raise unreadable(f"`{folder}` has no .safetensors file", "weights in other formats can be saved as safetensors")
    holders: dict[str, Any] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        try:
            opened = safe_open(file, "pt")
        except OSError as problem:
            raise unreadable(f"`{file}` cannot be read: {problem.strerror or problem}") from None
        except SafetensorError as problem:
            raise unreadable(f"`{file}` is cut off or damaged: {problem}") from None
        for name in opened.keys():  # noqa: SIM118 (it is no mapping)
            holders[name] = opened
            shapes[name] = tuple(opened.get_slice(name).get_shape())

    def read(name: str) -> Any:
        return holders[name].get_tensor(name).float()

    return Checkpoint(folder, str(settings.get("model_type")), "safetensors", settings, shapes, read)


def _shards(folder: Path) -> list[Path]:
    """The files with the weights of a folder: those that its index names, else the one called `model`, else all."""
    index, whole = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        places = settings_in(index).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise unreadable(f"`{index}` does not say which file has which weight")
        return [_inside(folder, name, index) for name in sorted(set(places.values()))]
    return [whole] if whole.is_file() else sorted(folder.glob("*.safetensors"))


def _inside(folder: Path, name: str, index: Path) -> Path:
    """A file that an index names. It is in the folder, where it may be a link: caches of models keep the files
    elsewhere."""
    parts = Path(name).parts
    file = folder / name
    if not parts or ".." in parts or "\0" in name or not file.parent.resolve().is_relative_to(folder.resolve()):
        raise unreadable(f"`{index}` names {name!r:.100}, which is no file in its folder")
    return file


def settings_in(file: Path) -> dict[str, Any]:
    """The settings that a file in JSON has."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise unreadable(f"`{file}` cannot be read: {problem.strerror}", "it stands beside the weights") from None
    except RecursionError:
        raise unreadable(f"`{file}` nests values too deeply to be read") from None
    except ValueError as problem:
        raise unreadable(f"`{file}` is no JSON: {problem}") from None
    if not isinstance(settings, dict):
        raise unreadable(f"`{file}` has no settings in it")
    return settings
