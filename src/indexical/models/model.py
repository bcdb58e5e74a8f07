"""A model: its program, its weights, its tokenizer, and what can be asked of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ..api import Program
from ..calculus import unroll
from ..diagnostics import CallError, Diagnostic
from ..records import dataclass, field
from .decoding import Decoding
from .sampling import Sampling, draw
from .settings import Sizes
from .tokenizing import Words

if TYPE_CHECKING:
    from ..weights import PatternSheet

Texts = str | Sequence[str] | Any


@dataclass(eq=False)
class Model:
    """A model that was read from its files. `program` is the relation, with all layers along `l`; `weights` are its
    inputs but for the tokens, by name."""

    name: str
    family: str
    program: Program
    sizes: Sizes
    weights: Mapping[str, Any]
    words: Words
    context: int | None = None
    # The tokens that the last text of `generate` was made of, its prompt included.
    written: list[int] = field(default_factory=list)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"<{self.family} model {self.name} ({sizes})>"

    @cached_property
    def layered(self) -> Program:
        """The program with its layers written out: this is what runs."""
        return _layered(self.program, self.sizes["l"])

    # ------------------------------------------------------------------- values

    def tokens(self, texts: Texts) -> Any:
        """Texts, or tokens as they are, as one tensor of PyTorch; shorter ones are filled up at the end."""
        return self._padded(texts)[0]

    def logits(self, texts: Texts) -> Any:
        """How likely each token is to come next, after every position of each text: `[b, i, v]`. What stands behind
        the end of a shorter text means nothing."""
        return self._run(texts, "logits")

    def embed(self, texts: Texts) -> Any:
        """A point for each text, at length 1: `[b, m]`."""
        return self._run(texts, "embedding")

    def perplexity(self, texts: Texts) -> float:
        """The exponential of how many nats the model needs for a token, the first of each text aside."""
        import torch

        tokens, present = self._padded(texts)
        if not bool(present[:, 1:].any()):
            raise _error("perplexity needs a text of at least two tokens")
        logits, asked = self.logits(tokens)[:, :-1], present[:, 1:]
        return math.exp(torch.nn.functional.cross_entropy(logits[asked], tokens[:, 1:][asked]).item())

    def heads(self, texts: Texts) -> PatternSheet:
        """The weights of all heads of all layers over one text, as `ix.patterns` has them; `.page()` shows them."""
        from ..weights import patterns

        tokens = self.tokens(texts)
        if len(tokens) != 1:
            raise _error("heads are shown over one text at a time")
        weights = self._run(tokens, "weights")[:, 0]
        return patterns(weights.numpy(), tokens=self.words.shown(tokens[0].tolist()))

    def _run(self, texts: Texts, asked: str) -> Any:
        import torch

        if asked not in self.program.definitions:
            if asked == "embedding":
                raise _error(f"`{self.name}` is no encoder: it has no embeddings of texts", "embeddings are BERT's")
            raise _error(f"`{self.name}` is an encoder: it has embeddings, and no logits")
        tokens, present = self._padded(texts)
        given = {"tokens": tokens, "present": present} if "present" in self.program.inputs else {"tokens": tokens}
        with torch.no_grad():
            return self.layered(**given, **self.weights, outputs=asked)

    def _padded(self, texts: Texts) -> tuple[Any, Any]:
        """Tokens as one tensor, and which of them are there."""
        import torch

        if isinstance(texts, torch.Tensor):
            if texts.ndim not in (1, 2) or texts.is_floating_point():
                raise _error(f"tokens are whole numbers, `[i]` or `[b, i]`, and not {texts.dtype} {list(texts.shape)}")
            found = texts.long().reshape(-1, texts.shape[-1])
            present = torch.ones(found.shape, dtype=torch.bool)
        else:
            rows = self._rows(texts)
            longest = max(map(len, rows), default=0)
            found = torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=torch.long)
            present = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
        self._check(found, present)
        return found, present

    def _rows(self, texts: Texts) -> list[list[int]]:
        """The tokens of each text."""
        listed = [texts] if isinstance(texts, str) or not isinstance(texts, Iterable) else list(texts)
        if listed and isinstance(listed[0], int):
            listed = [listed]
        rows = [self.words.tokens(each) if isinstance(each, str) else each for each in listed]
        if not all(isinstance(row, Sequence) and all(type(token) is int for token in row) for row in rows):
            raise _error("a text is a string, or a list of tokens, which are whole numbers")
        return [list(row) for row in rows]

    def _check(self, tokens: Any, present: Any) -> None:
        if not tokens.numel() or not bool(present.any(1).all()):
            raise _error("there is no token to read", "give a text that is not empty")
        if self.context is not None and tokens.shape[1] > self.context:
            message = f"{tokens.shape[1]} tokens are more than the {self.context} that `{self.name}` can read"
            raise _error(message, "give a shorter text, or parts of it")
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.sizes["v"]:
            raise _error(f"the tokens of `{self.name}` are the numbers below {self.sizes['v']}")

    # --------------------------------------------------------------- generation

    @cached_property
    def decoding(self) -> Decoding:
        """The program one position after the other."""
        if "logits" not in self.program.definitions:
            raise _error(f"`{self.name}` is an encoder: it continues no text", "ask it for embeddings")
        return Decoding(self.layered, self.weights)

    def generate(
        self,
        prompt: Texts,
        max_tokens: int = 64,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: str | Sequence[str] = (),
    ) -> Iterator[str]:
        """The text that follows a prompt, piece by piece. It ends after `max_tokens`, at a token that ends texts, where
        the model can read no more, or before one of the texts in `stop`."""
        sampling = Sampling(temperature, top_k, top_p, seed).check()
        decoding = self.decoding
        if max_tokens < 0:
            raise _error(f"{max_tokens} tokens cannot be written")
        tokens = self.tokens(prompt)
        if len(tokens) != 1:
            raise _error("one prompt is continued at a time")
        stops = tuple(filter(None, (stop,) if isinstance(stop, str) else stop))
        before = tokens[0].tolist()
        pieces = self.words.streamed(before, self._following(decoding, tokens, max_tokens, sampling))
        return _until(pieces, stops)

    def _following(self, decoding: Decoding, tokens: Any, count: int, sampling: Sampling) -> Iterator[int]:
        """The tokens that follow others, at most so many."""
        import torch

        chance = torch.Generator().manual_seed(sampling.seed)
        self.written = tokens[0].tolist()
        room = count if self.context is None else min(count, self.context - len(self.written))
        if room < 1:
            return
        logits, state = decoding.begin(tokens, len(self.written) + room)
        while True:
            token = draw(logits[0], sampling, chance)
            if token in self.words.ends:
                return
            self.written.append(token)
            room -= 1
            yield token
            if room < 1:
                return
            logits, state = decoding.go_on(torch.tensor([[token]]), state)


@lru_cache(maxsize=8)
def _layered(program: Program, layers: int) -> Program:
    """The program with its layers written out. Models of one family and depth share it, with all that is planned."""
    return unroll(program, l=layers)


def _until(pieces: Iterator[str], stops: tuple[str, ...]) -> Iterator[str]:
    """The text before the first of some texts. What may be the beginning of one waits for what follows it."""
    held = ""
    for piece in pieces:
        held += piece
        places = [place for stop in stops if (place := held.find(stop)) >= 0]
        if places:
            if held[: min(places)]:
                yield held[: min(places)]
            return
        kept = max((n for stop in stops for n in range(1, len(stop)) if held.endswith(stop[:n])), default=0)
        if len(held) > kept:
            yield held[: len(held) - kept]
            held = held[len(held) - kept :]
    if held:
        yield held


def _error(message: str, help: str | None = None) -> CallError:
    return CallError([Diagnostic("IX515", message, help=help)])
