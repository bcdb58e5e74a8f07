"""Small models of several kinds, right, and with one mistake in them where one is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

WIDTH, HEADS, VOCABULARY, PAD = 12, 3, 30, 1


class Attention(nn.Module):
    """Attention of `x` to `memory`, where `keep` has the keys that are real."""

    def __init__(self, bug: str = "", causal: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.bug, self.is_causal = bug, causal

    def forward(self, x: Any, keep: Any = None, memory: Any = None) -> Any:
        memory = x if memory is None else memory
        q, k, v = (f(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f, y in zip(
            (self.q, self.k, self.v), (x, memory, memory), strict=True
        ))
        scores = q @ k.mT / 2
        if self.is_causal and self.bug != "future":
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -1e9)
        if keep is not None and self.bug != "lost":
            drop = keep == 0 if self.bug != "inverted" else keep == 1
            scores = scores.masked_fill(drop[:, None, None], -1e9)
        weights = scores.softmax(-2 if self.bug == "queries" else -1)
        if self.bug == "dropout":
            weights = nn.functional.dropout(weights, 0.3)
        mixed = weights @ v
        if self.bug == "batch":
            mixed = mixed + mixed.mean(0, keepdim=True)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Language(nn.Module):
    """Tokens in, logits out: of every token, or of the last alone."""

    def __init__(self, bug: str = "", causal: bool = True, last: bool = False, first: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH, padding_idx=PAD), nn.Linear(WIDTH, VOCABULARY)
        self.places = nn.Embedding(40, WIDTH)
        self.layers = nn.ModuleList([Attention("", causal), Attention(bug, causal)])
        self.norm = nn.LayerNorm(WIDTH)
        self.last, self.first = last, first

    def forward(self, input_ids: Any, attention_mask: Any = None, position_ids: Any = None) -> Any:
        if position_ids is None:
            real = torch.ones_like(input_ids) if not self.first else (input_ids != PAD).long()
            position_ids = (real.cumsum(1) - 1).clamp(min=0) + self.first
        x = self.embedding(input_ids) + self.places(position_ids)
        for layer in self.layers:
            x = x + layer(x, attention_mask)
        x = self.norm(x)
        return self.head(x[:, -1] if self.last else x)


class Translation(nn.Module):
    """An encoder and a decoder."""

    def __init__(self, bugs: dict[str, str] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        bugs = bugs or {}
        self.config = SimpleNamespace(is_encoder_decoder=True, pad_token_id=PAD, vocab_size=VOCABULARY)
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.encoder = Attention(bugs.get("encoder", ""))
        self.own, self.cross = Attention(bugs.get("own", ""), True), Attention(bugs.get("cross", ""))

    def forward(
        self, input_ids: Any, attention_mask: Any = None, decoder_input_ids: Any = None,
        decoder_attention_mask: Any = None,
    ) -> Any:
        source = self.embedding(input_ids)
        source = source + self.encoder(source, attention_mask)
        x = self.embedding(decoder_input_ids)
        x = x + self.own(x, decoder_attention_mask)
        x = x + self.cross(x, attention_mask, source)
        return {"logits": self.head(x), "encoder_last_hidden_state": source}


class Pictures(nn.Module):
    """Images in, classes out."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.attention, self.head = nn.Conv2d(3, WIDTH, 8, 8), Attention(bug), nn.Linear(WIDTH, 5)

    def forward(self, pixel_values: Any) -> Any:
        x = self.patches(pixel_values).flatten(2).mT
        return self.head((x + self.attention(x)).mean(1))


class Recurrence(nn.Module):
    """A running sum that takes a mask, and does not heed it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, input_ids: Any, attention_mask: Any = None, past_key_values: Any = None) -> Any:
        return self.head(self.embedding(input_ids).cumsum(1))


class PositionsFirst(nn.Module):
    """Tokens are (position, example), as PyTorch's own layers have them unless they are told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, src: Any) -> Any:
        return self.head(self.layer(self.embedding(src)))


class Keeping(nn.Module):
    """It keeps tables by length, in an attribute, a container and a buffer, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.table: Any = None
        self.tables: dict[int, Any] = {}
        self.config = SimpleNamespace(seen=[])
        self.register_buffer("last", torch.zeros(3), persistent=False)
        self.drop = nn.Dropout(0.5)

    def forward(self, input_ids: Any) -> Any:
        length = input_ids.shape[1]
        self.table = torch.arange(length)
        self.tables[length] = self.table
        self.last += 1
        self.config.seen.append(length)
        return self.head(self.drop(self.embedding(input_ids).cumsum(1)))
