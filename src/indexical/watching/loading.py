"""Models from a folder or a file on this disk. Nothing is fetched unless that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..diagnostics import CallError, Diagnostic


def load(place: str, download: bool) -> tuple[Any, Any]:
    """A model of Hugging Face's and its tokenizer, from a folder, a GGUF file, or a name that is in the cache."""
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError:
        help = "pip install 'indexical[models]'"
        raise CallError(
            [Diagnostic("IX509", "models are read by `transformers`, which is not here", help=help)]
        ) from None
    from transformers.utils import logging

    file = Path(place)
    source, named = (str(file.parent), {"gguf_file": file.name}) if file.suffix == ".gguf" else (place, {})
    was_shown, loudness = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=not download, **named)
        model = AutoModel.from_pretrained(source, local_files_only=not download, **named)
    except (OSError, ValueError, ImportError, KeyError) as problem:
        if not download and not file.exists():
            message = f"`{place}` is no file or folder here, and no model of that name is in the cache"
            help = "give a folder with a model, or allow a download with --download"
            raise CallError([Diagnostic("IX515", message, help=help)]) from None
        first = next(iter(str(problem).splitlines()), type(problem).__name__)
        raise CallError([Diagnostic("IX515", f"`{place}` cannot be loaded: {first}")]) from None
    finally:
        logging.set_verbosity(loudness)
        if was_shown:
            logging.enable_progress_bar()
    listed = file / "vocab.txt"
    if listed.is_file():
        words = listed.read_text(encoding="utf-8").splitlines()
        if len(tokenizer) < len(words):  # A tokenizer of another kind, which has read none of them.
            tokenizer = ListedTokens(words)
    return model.eval(), tokenizer


class ListedTokens:
    """A tokenizer that is only a list of tokens: a text is cut into the longest of them, from left to right."""

    unk_token = "[UNK]"
    bos_token_id = None

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.numbers = {word: number for number, word in enumerate(words)}
        self.unk_token_id = self.numbers.get(self.unk_token)
        self.cls_token_id = self.numbers.get("[CLS]")
        self.longest = max(map(len, words))

    def __call__(self, text: str) -> dict[str, list[int]]:
        """The numbers of a text, between those for its beginning and its end."""
        around = [self.numbers[word] for word in ("[CLS]", "[SEP]") if word in self.numbers]
        return {"input_ids": [*around[:1], *self.convert_tokens_to_ids(self.cut(text)), *around[1:]]}

    def cut(self, text: str) -> list[str]:
        found = []
        while text := text.lstrip():
            lengths = range(min(self.longest, len(text)), 0, -1)
            found.append(next((text[:length] for length in lengths if text[:length] in self.numbers), self.unk_token))
            text = text[len(found[-1]) if found[-1] != self.unk_token else 1 :]
        return found

    def convert_tokens_to_ids(self, tokens: Sequence[str]) -> list[int]:
        return [self.numbers.get(token, self.unk_token_id or 0) for token in tokens]

    def convert_ids_to_tokens(self, numbers: Sequence[int]) -> list[str]:
        return [self.words[number] for number in numbers]


def numbers_of(tokenizer: Any, tokens: Sequence[str]) -> list[int]:
    """The numbers of tokens, with what the tokenizer puts before and after a text."""
    numbers = [int(number) for number in tokenizer.convert_tokens_to_ids(list(tokens))]
    unknown = tokenizer.unk_token_id
    for token, number in zip(tokens, numbers, strict=True):
        if number == unknown and token != tokenizer.unk_token:
            help = "give tokens of its vocabulary, or a text"
            raise CallError([Diagnostic("IX515", f"the model's tokenizer has no token `{token}`", help=help)])
    around = [int(number) for number in tokenizer("")["input_ids"]]
    first = [number for number in around[:1] if number in (tokenizer.bos_token_id, tokenizer.cls_token_id)]
    return [*first, *numbers, *around[len(first) :]]
