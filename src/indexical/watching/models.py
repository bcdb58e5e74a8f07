"""Attention of PyTorch models: watched while they run, compared with the relation, and shown."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn

from ..diagnostics import CallError, Diagnostic
from ..pages import WebPage, gather
from ..records import replace
from ..run.patterns import find_patterns
from ..run.tensors import to_numpy
from ..views.document import document_json
from ..views.extent import MOST_BYTES, check_extent
from ..views.fragment import text_html
from ..views.heads import MOST_DATA, heads_data
from ..views.static import page_fragment
from ..weights import PatternSheet, patterns
from .capture import Call, Capture
from .loading import load, numbers_of
from .relation import Array, HeadInputs, head_inputs, some_rows, weights_of
from .remade import factors_of, remade
from .stages import packed_stages

__all__ = ["Watched", "watch", "watch_text"]

# More weights than this are not computed for a page, which takes some minutes for so many.
MOST_WEIGHTS = 1 << 31
# Weights of a layer are kept up to this many, and computed again when they are asked for beyond.
MOST_KEPT = 1 << 24

# What a relation gives may differ from what a model computed by this part of the largest number in it: a few roundings
# of its dtype. A larger difference is said.
CLOSE = {torch.float32: 1e-4, torch.float64: 1e-9, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def watch(
    model: nn.Module,
    tokenizer: Any = None,
    *,
    tokens: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    batch: int = 0,
) -> Watched:
    """Watch the attention of a model while it runs: `with ix.watch(model, tokenizer) as seen: model(**inputs)`.

    What is seen are the calls of `scaled_dot_product_attention`, wherever they stand, and `nn.MultiheadAttention`. From
    the captured queries, keys and values the weights are computed by a program, and its output is compared with the
    model's. `tokenizer` turns the model's `input_ids` into tokens; `tokens` gives them. `layers` are those to show, by
    their number in the order in which they run.
    """
    if not isinstance(model, nn.Module):
        message = f"a model to watch is a `torch.nn.Module`, and this is {type(model).__name__}"
        raise CallError([Diagnostic("IX515", message)])
    return Watched(model, tokenizer, tokens, layers, batch)


class Watched:
    """The attention that was seen in a model. In a notebook it is a page of all heads."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        tokens: Sequence[str] | None,
        layers: Sequence[int] | None,
        batch: int,
    ) -> None:
        self._capture = Capture(model)
        self._tokenizer = tokenizer
        self._tokens = tokens
        self._wanted = layers
        self._batch = batch
        self._found: list[_Layer] | None = None

    def __enter__(self) -> Watched:
        self._capture.__enter__()
        self._found = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._capture.__exit__(kind, problem, trace)

    @property
    def layers(self) -> list[str]:
        """The names of the modules whose heads are shown, in the order in which they ran."""
        return [layer.call.name for layer in self._layers()]

    @property
    def weights(self) -> Array:
        """The weights of all layers and heads, by the relation: (layers, heads, queries, keys)."""
        return np.stack([layer.weights for layer in self._layers()])

    @property
    def differences(self) -> Array:
        """By layer, how far the model's output is from the relation's, as part of the largest number in it."""
        return np.array([layer.difference for layer in self._layers()])

    @property
    def tokens(self) -> list[str] | None:
        """The tokens at the keys, or None."""
        keys = self._shape[-1]
        found = self._tokens
        if found is None and self._tokenizer is not None and self._capture.ids is not None:
            ids = self._capture.ids
            found = self._tokenizer.convert_ids_to_tokens((ids if ids.ndim == 1 else ids[self._batch]).tolist())
        return [str(token) for token in found] if found is not None and len(found) == keys else None

    def patterns(self) -> PatternSheet:
        """Words for every row and head."""
        return patterns(self.weights, tokens=self.tokens)

    def stage(self, layer: int, head: int, title: str | None = None, rows: Sequence[int] | None = None) -> WebPage:
        """The page of one head: its program on the captured queries, keys and values. With `rows`, of some queries."""
        try:
            inputs = self._layers()[layer].inputs[head]
        except IndexError:
            message = f"there is no layer {layer} with a head {head}; the weights have the shape {self._shape}"
            raise CallError([Diagnostic("IX515", message)]) from None
        labels = {} if self.tokens is None else {"position": self.tokens}
        if rows is not None:
            _check_rows(rows, len(inputs.arrays["Q"]))
            offset = max(0, self._shape[-1] - self._shape[-2])
            tokens = self.tokens or [str(position) for position in range(self._shape[-1])]
            inputs = some_rows(inputs, np.asarray(rows))
            labels = {"i": [tokens[offset + row] for row in rows], "j": tokens}
        found = gather(inputs.kind.program, (), inputs.arrays, None)
        check_extent([found])
        document = document_json(replace(found, labels=labels))
        return WebPage(title or f"layer {layer}, head {head}", [{"kind": "program", "pages": [document]}])

    def page(self, title: str | None = None) -> WebPage:
        """All heads as a wall, the chosen one as a matrix, and under it as its program, down to what was captured."""
        layers, tokens = self._layers(), self.tokens
        inputs = [layer.inputs for layer in layers]
        factors = [factors_of(head) for layer in inputs for head in layer]
        _, _, used = remade(factors, 3 * MOST_DATA // 5)
        parts = (find_patterns(layer.weights, tokens=tokens) for layer in layers)
        data = heads_data(parts, self._shape, tokens, ["layer", "head"], MOST_DATA - used)
        # What pictures leave over makes queries and keys finer.
        taken = sum(map(len, data.attached.values())) * 3 // 4
        again, kept, _ = remade(factors, MOST_DATA - taken)
        attached = {**data.attached, **kept}
        stages = packed_stages(inputs, tokens, MOST_BYTES - 2**20 - sum(map(len, attached.values())))
        staged = sorted(int(id.removeprefix("stage-")) for id in stages)
        block = {**data.block, "said": self.notes(), "staged": staged, "again": again}
        name = title or type(self._capture.model).__name__
        return WebPage(name, [block], attached={**attached, **stages})

    @property
    def _shape(self) -> tuple[int, ...]:
        return (len(self._layers()), *self._layers()[0].shape)

    def notes(self) -> list[str]:
        """Remarks about the numbers: whether they are the model's, and what is not shown."""
        layers, capture = self._layers(), self._capture
        said = list(dict.fromkeys(capture.notes))
        far = [layer for layer in layers if layer.difference > CLOSE.get(layer.call.given.dtype, 1e-4)]
        most = max(layer.difference for layer in layers)
        if far:
            names = ", ".join(layer.call.name for layer in far[:4])
            said.append(
                f"The model computed something else in {names}: it differs by up to {most:.2g} of the largest number."
            )
        else:
            said.append(f"Compared with what the model computed: the same within {most:.1g} of the largest number.")
        others = sum(call.run == layers[0].call.run for call in capture.calls) - len(_shown_calls(capture))
        if others:
            said.append(f"Calls of attention of other sizes, which are not shown: {others}.")
        if capture.skipped:
            said.append(f"Not shown: {capture.skipped[0]}.")
        strange = (self.tokens or []).count(str(getattr(self._tokenizer, "unk_token", None)))
        if strange:
            said.append(f"The tokenizer does not know {strange} of the {len(self.tokens or [])} tokens.")
        count = layers[0].call.queries.shape[0]
        if count > 1:
            said.append(f"This is batch entry {self._batch} of {count}.")
        return said

    def _repr_html_(self) -> str:
        is_small = np.prod(self._shape) <= MOST_KEPT
        return page_fragment(self.page().html, self.patterns().table() if is_small else text_html(repr(self)))

    def __repr__(self) -> str:
        if not self._capture.calls:
            return "<a watched model that has not run>"
        shape = " × ".join(map(str, self._shape))
        return (
            f"<a watched model: weights of {shape} (layers × heads × queries × keys); .page().save(PATH) writes a page>"
        )

    def _layers(self) -> list[_Layer]:
        if self._found is None:
            calls = _some(_shown_calls(self._capture), self._wanted)
            _check_size(calls)
            self._found = [_Layer(call, self._batch) for call in calls]
        return self._found


class _Layer:
    """One call, by the relation: its inputs head by head, its weights, and how far the model's output is from it."""

    def __init__(self, call: Call, batch: int) -> None:
        self.call = call
        arrays = [to_numpy(part[batch].float()) for part in (call.queries, call.keys, call.values)]
        heads = len(arrays[0])
        mask = None if call.mask is None else _of_batch(call.mask, batch, heads)
        group = heads // len(arrays[1])
        self.inputs: list[HeadInputs] = [
            head_inputs(
                arrays[0][head],
                arrays[1][head // group],
                arrays[2][head // group],
                None if mask is None else mask[head],
                call.causal,
                call.scale,
            )
            for head in range(heads)
        ]
        self.shape = (heads, arrays[0].shape[1], arrays[1].shape[1])
        self._batch = batch
        self._kept: Array | None = None
        self._difference: float | None = None

    @property
    def weights(self) -> Array:
        """The weights of all heads, computed again each time where they are many."""
        if self._kept is not None:
            return self._kept
        found = np.empty(self.shape, np.float32)
        outs = []
        for head, inputs in enumerate(self.inputs):
            found[head], out = weights_of(inputs)
            outs.append(out)
        self._difference = self._compared(np.stack(outs))
        if found.size <= MOST_KEPT:
            self._kept = found
        return found

    @property
    def difference(self) -> float:
        """How far the model's output is from the relation's, as part of the largest number in it."""
        if self._difference is None:
            _ = self.weights
        assert self._difference is not None
        return self._difference

    def _compared(self, out: Array) -> float:
        given = to_numpy(self.call.given[self._batch].float())
        if self.call.project is not None:
            projected = self.call.project(torch.from_numpy(out)[None].to(self.call.queries.device))
            out = to_numpy(projected[0].detach())
        return float(np.abs(out - given).max() / max(np.abs(given).max(), 1e-30))


def _check_rows(rows: Sequence[int], count: int) -> None:
    if not len(rows) or not all(0 <= row < count for row in rows):
        message = f"there are {count} rows, from 0 on, and the rows asked for are {list(rows)}"
        raise CallError([Diagnostic("IX515", message)])


def _of_batch(mask: torch.Tensor, batch: int, heads: int) -> Array:
    """The mask of one batch entry, for every head: (heads, queries, keys)."""
    wide = mask[(None,) * (4 - mask.ndim)]
    one = wide[batch if wide.shape[0] > 1 else 0]
    kept = one.expand(heads, *one.shape[1:])
    return np.asarray(to_numpy(kept if kept.dtype == torch.bool else kept.float()))


def _shown_calls(capture: Capture) -> list[Call]:
    """The calls of the run with the most queries, the last of several; of these, the largest group of one size."""
    if not capture.calls:
        help = "run it inside `with ix.watch(model) as seen:`; models that are compiled or scripted cannot be seen"
        reason = f" ({capture.skipped[0]})" if capture.skipped else ""
        raise CallError([Diagnostic("IX515", f"no attention was seen in this model{reason}", help=help)])
    run = max(capture.calls, key=lambda call: (call.queries.shape[2], call.run)).run
    groups: dict[tuple[int, ...], list[Call]] = {}
    for call in capture.calls:
        if call.run != run:
            continue
        groups.setdefault((*call.queries.shape[:3], call.keys.shape[2]), []).append(call)
    return max(groups.values(), key=len)


def _some(calls: list[Call], wanted: Sequence[int] | None) -> list[Call]:
    if wanted is None:
        return calls
    if not wanted or not all(0 <= layer < len(calls) for layer in wanted):
        message = f"there are {len(calls)} layers, from 0 on, and the layers asked for are {list(wanted)}"
        raise CallError([Diagnostic("IX515", message)])
    return [calls[layer] for layer in wanted]


def _check_size(calls: list[Call]) -> None:
    """Refuse weights that would not fit into memory."""
    count = sum(call.queries.shape[1] * call.queries.shape[2] * call.keys.shape[2] for call in calls)
    if count > MOST_WEIGHTS:
        message = f"these are {count:,} weights, and at most {MOST_WEIGHTS:,} are computed at once"
        raise CallError([Diagnostic("IX515", message, help="watch fewer layers, `layers=[0, 1]`, or a shorter text")])


def watch_text(
    place: str, text: str | Sequence[str], download: bool = False, layers: Sequence[int] | None = None
) -> Watched:
    """A model of Hugging Face's, from a folder, a GGUF file or the cache on this disk, while it reads a text, or
    tokens that its tokenizer knows."""
    model, tokenizer = load(place, download)
    with torch.no_grad(), watch(model, tokenizer, layers=layers) as seen:
        numbers = tokenizer(text)["input_ids"] if isinstance(text, str) else numbers_of(tokenizer, text)
        model(input_ids=torch.tensor([numbers]))
    return seen
