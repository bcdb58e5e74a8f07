"""Example inputs of a model, drawn for its `forward` from what its parameters, tables and config say."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

from .calling import borrow

Inputs = dict[str, Any]
_TRIES = 60  # Calls of one model, beyond which no inputs are looked for.
_LENGTHS = (8, 16, 64, 4, 3)  # Tried where the model does not run on as many as asked for.
_TOKENS = ("input_ids", "idx", "ids", "tokens", "token_ids", "input_tokens", "src", "source")
_FEATURES = ("input_features", "input_values", "audio_values")
TARGETS = ("decoder_input_ids", "tgt", "target")
_SIDES = (16, 32, 28, 64, 96, 128, 224, 256, 384)  # Images of these sizes are tried where nothing tells a size.


def inputs_of(
    model: Any, *, length: int = 7, rows: int = 2, seed: int = 0, vocabulary: int | None = None
) -> tuple[str, Inputs]:
    """The kind of a model and example inputs for it: tensors by the names of its `forward`, for `model(**inputs)`.

    The kind is "tokens" (ids, of shape rows x length), "encoder-decoder" (inputs of the encoder, then those of the
    decoder), "pixels" (images), "features" (frames of sound) or "arrays" (activations, rows x length x width, and all
    that has other inputs). Only inputs that the model needs are given: no mask and no positions where it does without.
    Tokens are none that have a meaning of their own, such as padding. Inputs are those of the first guess on which the
    model runs, in evaluation mode; the model is left as it was. Where it runs on none, `LookupError` has the last
    error as its cause.
    """
    import torch

    restore = borrow(model, double=False)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _found(model, length, rows, seed, vocabulary)
    finally:
        restore()


def _found(model: Any, length: int, rows: int, seed: int, vocabulary: int | None) -> tuple[str, Inputs]:
    last: Exception | None = None
    for size in dict.fromkeys((length, *_LENGTHS)):
        drawing = Drawing(model, size, rows, seed, vocabulary)
        for kind, inputs in islice(drawing.guesses(), _TRIES):
            try:
                learnt = drawing.run(inputs)
            except Exception as problem:  # Foreign code may raise anything: the next guess is tried.
                last = last or problem
                continue
            return kind, learnt
    raise LookupError("no example inputs are known on which the model runs") from last


class Drawing:
    """Draws inputs for one model."""

    def __init__(self, model: Any, length: int, rows: int, seed: int, vocabulary: int | None) -> None:
        import torch

        self.model, self.length, self.rows, self.given = model, length, rows, vocabulary
        self.generator = torch.Generator().manual_seed(seed)
        self.takes = parameters_of(model)
        self.vocabulary = vocabulary or said(model, "vocab_size") or self._table()
        self.reserved = reserved(model)

    def _table(self) -> int:
        import torch

        tables = [part.num_embeddings for part in self.model.modules() if isinstance(part, torch.nn.Embedding)]
        return max(tables) if tables else 50

    # ------------------------------------------------------------------ what is drawn

    def tokens(self, length: int | None = None) -> Any:
        """Tokens, all of them in the vocabulary and without a meaning of their own."""
        import torch

        free = [token for token in range(self.vocabulary) if token not in self.reserved] or [0]
        chosen = torch.randint(len(free), (self.rows, length or self.length), generator=self.generator)
        return torch.tensor(free)[chosen]

    def array(self, *shape: int) -> Any:
        import torch

        kind = next((each.dtype for each in self.model.parameters() if each.is_floating_point()), torch.float32)
        return torch.randn(self.rows, *shape, generator=self.generator).to(kind)

    def run(self, inputs: Inputs) -> Inputs:
        """Run the model; the inputs with tokens of the whole vocabulary: the size of the table that is asked for
        them."""
        import torch

        whole = {name: value for name, value in inputs.items() if is_whole(value) and value.ndim == 2}
        if self.given is not None or not whole:
            self.model(**inputs)
            return inputs
        small = {name: torch.randint(2, value.shape, generator=self.generator) for name, value in whole.items()}
        with _watched(list(small.values())) as tables:
            self.model(**{**inputs, **small})
        if not tables.sizes:
            self.model(**inputs)
            return inputs
        self.vocabulary = min(tables.sizes)
        self.reserved |= tables.padding
        return {**inputs, **{name: self.tokens(value.shape[1]) for name, value in whole.items()}}

    # ------------------------------------------------------------------ guesses

    def guesses(self) -> Iterator[tuple[str, Inputs]]:
        """Kinds and inputs that the model may run on, the likeliest first."""
        takes, main = self.takes, getattr(self.model, "main_input_name", None)
        images, sounds = "pixel_values" in takes, [name for name in _FEATURES if name in takes]
        target = next((name for name in TARGETS if name in takes), None)
        named = next((name for name in _TOKENS if name in takes), None)
        if main in takes and main not in (named, target, "pixel_values", *sounds):
            named = main
        first = named or next((name for name in takes if name not in ("pixel_values", *sounds, target)), None)
        sources: list[tuple[str, Inputs]] = []
        if images and (main == "pixel_values" or named is None):
            sources += [("pixels", {"pixel_values": image}) for image in self._images()]
        if sounds and (main in sounds or named is None):
            sources += [("features", {name: sound}) for name in sounds for sound in self._sounds(name)]
        if named is not None:
            sources.append(("tokens", {named: self.tokens()}))
        if images and named is not None:
            sources += [("arrays", {named: self.tokens(), "pixel_values": image}) for image in self._images()]
        if first is not None and first not in ("input_ids", "pixel_values"):
            sources += self._unnamed(first)
        for kind, inputs in sources:
            if target is None:
                yield from ((kind, more) for more in self._completed(inputs))
                continue
            like = next(iter(inputs.values()))
            real = kind == "arrays" and not is_whole(like)
            second = {target: like.clone() if real else self.tokens(self.length - 2)}
            yield from (("encoder-decoder", more) for more in self._completed({**inputs, **second}))

    def _unnamed(self, name: str) -> list[tuple[str, Inputs]]:
        """Guesses for an input whose name tells nothing."""
        import torch

        parts = list(self.model.modules())
        images = [("pixels", {name: image}) for image in self._images()]
        widths: list[int] = []
        for part in parts:
            shape = getattr(part, "normalized_shape", None)
            widths += [part.in_features] if isinstance(part, torch.nn.Linear) else [shape[-1]] if shape else []
            widths += [part.embed_dim] if isinstance(part, torch.nn.MultiheadAttention) else []
        arrays = [("arrays", {name: self.array(self.length, width)}) for width in dict.fromkeys(widths)]
        sees = any(isinstance(part, torch.nn.Conv2d) for part in parts)
        hears = next((part for part in parts if isinstance(part, torch.nn.Conv1d)), None)
        sounds = [("features", {name: self.array(hears.in_channels, 64)})] if hears is not None else []
        tokens = [("tokens", {name: self.tokens()})]
        return tokens + (images + arrays if sees else arrays[:6] + images) + sounds

    def _completed(self, inputs: Inputs) -> Iterator[Inputs]:
        """The inputs with what the model demands beside them: guesses by its names."""
        empty = inspect.Parameter.empty
        missing = [name for name, item in self.takes.items() if item.default is empty and name not in inputs]
        for chosen in product(*(self._demanded(name, inputs) for name in missing)):
            yield {**inputs, **dict(zip(missing, chosen, strict=True))}
        if "use_cache" in self.takes and not missing:
            yield {**inputs, "use_cache": False}

    def _demanded(self, name: str, inputs: Inputs) -> list[Any]:
        import torch

        like = next(iter(inputs.values()))
        size = like.shape[1]
        if "mask" in name:
            square = torch.ones(size, size, dtype=torch.bool).tril()
            pairs = square.expand(self.rows, size, size)
            return [torch.ones(self.rows, size, dtype=torch.bool), pairs, square[None, None], square, None]
        if "position" in name and "start" not in name:
            return [torch.arange(size)[None].expand(self.rows, -1), torch.arange(size)]
        if "start" in name or "offset" in name:
            return [0]
        if "time" in name:
            return [torch.full((self.rows,), 3)]
        if "hidden" in name or "context" in name or name in ("memory", "key", "value", "k", "v"):
            width = said(self.model, "cross_attention_dim") or like.shape[-1]
            return [self.array(self.length - 2, width), like.clone()]
        return [like.clone(), self.tokens(), None]

    def _images(self) -> list[Any]:
        import torch

        told = next((getattr(self.model, name, None) for name in ("pretrained_cfg", "default_cfg")), None)
        size = told.get("input_size") if isinstance(told, Mapping) else None
        if size is not None:
            return [self.array(*size)]
        planes = [part.in_channels for part in self.model.modules() if isinstance(part, torch.nn.Conv2d)]
        channels = said(self.model, "num_channels") or said(self.model, "in_channels") or (planes or [3])[0]
        known = said(self.model, "image_size") or said(self.model, "sample_size") or self._attribute("img_size")
        side = tuple(known) if isinstance(known, list | tuple) else (known, known)
        sizes = [side] if known else [(side, side) for side in _SIDES]
        return [self.array(channels, *size[-2:]) for size in sizes]

    def _attribute(self, name: str) -> Any:
        return next((value for part in self.model.modules() if (value := getattr(part, name, None))), None)

    def _sounds(self, name: str) -> list[Any]:
        bins = said(self.model, "num_mel_bins") or said(self.model, "input_feat_per_channel")
        bins = bins or said(self.model, "feature_projection_input_dim") or said(self.model, "feature_size")
        frames = said(self.model, "max_source_positions")
        found = []
        if bins and frames:
            found.append(self.array(bins, 2 * frames))
        if bins:
            found += [self.array(said(self.model, "max_length") or 64, bins), self.array(64, bins)]
        return found + ([] if bins and name == "input_features" else [self.array(size) for size in (800, 4000, 16000)])


@dataclass
class _Tables:
    """The tables that were looked up for tokens: their sizes, and the tokens that are padding there."""

    sizes: list[int] = field(default_factory=list)
    padding: set[int] = field(default_factory=set)


@contextmanager
def _watched(tokens: list[Any]) -> Iterator[_Tables]:
    """The tables that are looked up for exactly these tokens while this lasts."""
    from torch.overrides import TorchFunctionMode

    tables = _Tables()

    def look(index: Any, table: Any, padding: Any = None) -> None:
        if hasattr(index, "shape") and any(index.shape == x.shape and bool((index == x).all()) for x in tokens):
            tables.sizes.append(len(table))
            tables.padding |= {padding} if isinstance(padding, int) else set()

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            if name == "embedding" and len(given) > 1:
                look(given[0], given[1], (named or {}).get("padding_idx"))
            elif name == "__getitem__":
                look(given[1], given[0])
            return function(*given, **(named or {}))

    with Mode():
        yield tables


def is_whole(value: Any) -> bool:
    return hasattr(value, "is_floating_point") and not value.is_floating_point() and value.dtype.itemsize != 1


def parameters_of(model: Any) -> dict[str, inspect.Parameter]:
    """What a model takes by name; nothing where its `forward` does not tell."""
    try:
        found = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return {}
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return {name: item for name, item in found.items() if item.kind not in free}


def said(model: Any, name: str) -> Any:
    """What the config of a model says under a name, or one of the configs inside it; `None` where none does."""
    config = getattr(model, "config", None)
    inside = vars(config).values() if hasattr(config, "__dict__") else ()
    for each in (config, *(value for value in inside if hasattr(value, "to_dict"))):
        value = each.get(name) if isinstance(each, Mapping) else getattr(each, name, None)
        if value is not None:
            return value
    return None


def reserved(model: Any) -> set[int]:
    """Tokens with a meaning of their own: padding, the beginning and the end, masks."""
    config = getattr(model, "config", None)
    names = [name for name in dir(config) if name.endswith("_token_id")] if config is not None else []
    values = [getattr(config, name, None) for name in names]
    flat = [each for value in values for each in (value if isinstance(value, list | tuple) else [value])]
    return {each for each in flat if isinstance(each, int)}
