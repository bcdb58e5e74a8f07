"""Texts as tokens and back, by the library `tokenizers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..diagnostics import CallError, Diagnostic
from ..records import dataclass
from .files import Checkpoint, missing_library, settings_in, unreadable

Kind = TypeVar("Kind", str, int)

# The token of a GGUF vocabulary that is no text, and one that is never cut.
_CONTROL, _USER_DEFINED = 3, 4

# How LLaMA 3 cuts a text into words.
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Words:
    """A tokenizer, and the tokens that end a text."""

    tokenizer: Any
    ends: frozenset[int]

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, with those that its model wants before and after it."""
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            message = f"the text is no Unicode at {problem.start}: {text[problem.start]!r} is half a letter"
            raise CallError([Diagnostic("IX515", message, help="it was read in another encoding than UTF-8")]) from None
        return list(self.tokenizer.encode(text).ids)

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens)))

    def shown(self, tokens: Sequence[int]) -> list[str]:
        """Each token as a short text of its own, for labels."""
        return [self.text([token]) or str(self.tokenizer.id_to_token(token)) for token in tokens]

    def streamed(self, before: Sequence[int], tokens: Iterator[int]) -> Iterator[str]:
        """The text of tokens as they come. A piece that ends within a letter waits for the rest of it."""
        window = list(before[-8:])
        told = text = self.text(window)
        waiting = 0
        for token in tokens:
            window.append(token)
            text = self.text(window)
            if text.endswith("\ufffd") and waiting < 4:
                waiting += 1
                continue
            waiting = 0
            if len(text) > len(told):
                yield text[len(told) :]
            # What a piece looks like depends on few before it.
            window = window[-8:]
            told = text = self.text(window)
        if len(text) > len(told):
            yield text[len(told) :]


def words_of(checkpoint: Checkpoint) -> Words:
    """The tokenizer that belongs to a file of weights."""
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise missing_library("tokenizers") from None
    if checkpoint.format == "gguf":
        return _of_gguf(checkpoint.settings)
    return _of_folder(checkpoint.place, checkpoint.settings)


@contextmanager
def _building() -> Iterator[None]:
    """A place to build a tokenizer in. The library has no error of its own: it raises `Exception` itself."""
    try:
        yield
    except Exception as problem:
        if type(problem) is not Exception:
            raise
        raise unreadable(f"its tokenizer cannot be built: {problem}") from None


def _of_folder(folder: Path, settings: Mapping[str, Any]) -> Words:
    from tokenizers import ByteLevelBPETokenizer, Tokenizer
    from tokenizers.implementations import BertWordPieceTokenizer

    ends = _numbers(settings.get("eos_token_id"))
    if (folder / "generation_config.json").is_file():
        ends |= _numbers(settings_in(folder / "generation_config.json").get("eos_token_id"))
    with _building():
        if (folder / "tokenizer.json").is_file():
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            tokenizer.no_padding()
            tokenizer.no_truncation()
            return Words(tokenizer, ends)
        if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            return Words(ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt")), ends)
        if (folder / "vocab.txt").is_file():
            return Words(BertWordPieceTokenizer(str(folder / "vocab.txt")), ends)
    raise unreadable(f"`{folder}` has no tokenizer", "tokenizer.json stands beside the weights")


def _numbers(said: Any) -> frozenset[int]:
    """The tokens that a setting names: one, several or none."""
    return frozenset(each for each in (said if isinstance(said, list) else [said]) if isinstance(each, int))


def _of_gguf(settings: Mapping[str, Any]) -> Words:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    kind, rule = settings.get("tokenizer.ggml.model"), settings.get("tokenizer.ggml.pre", "default")
    if kind is None:
        raise unreadable("there is no tokenizer in it", "give the folder of the model, which has one")
    if kind != "gpt2":
        raise unreadable(f"its tokenizer is of the kind `{kind}`, which is not read from GGUF here", "give its folder")
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    cuts = {
        "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "default": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "llama-bpe": [pre_tokenizers.Split(Regex(_LLAMA_3), "isolated"), bytes_alone],
    }
    if rule not in cuts:
        known = ", ".join(cuts)
        raise unreadable(f"its tokenizer cuts words by the rule `{rule}`, and the rules that are known are {known}")
    names, merges = _listed(settings, "tokens", str), _listed(settings, "merges", str)
    vocabulary = {name: number for number, name in enumerate(names)}
    with _building():
        pairs = [(first, second) for first, _, second in (merge.partition(" ") for merge in merges)]
        tokenizer = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=rule == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts[rule])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = _listed(settings, "token_type", int) if "tokenizer.ggml.token_type" in settings else []
    for name, sort in zip(names, kinds, strict=False):
        if sort in (_CONTROL, _USER_DEFINED):
            added = AddedToken(name, special=sort == _CONTROL, normalized=False)
            (tokenizer.add_special_tokens if sort == _CONTROL else tokenizer.add_tokens)([added])
    first = settings.get("tokenizer.ggml.bos_token_id")
    begins = settings.get("tokenizer.ggml.add_bos_token", rule == "llama-bpe")
    if begins and isinstance(first, int) and first < len(names):
        name = names[first]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{name} $A", special_tokens=[(name, first)])
    return Words(tokenizer, _numbers([settings.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]))


def _listed(settings: Mapping[str, Any], name: str, kind: type[Kind]) -> list[Kind]:
    """A list of the settings of a tokenizer."""
    found = settings.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not all(isinstance(each, kind) for each in found):
        shown = "is not said" if found is None else "is damaged"
        raise unreadable(
            f"the setting `tokenizer.ggml.{name}` of its tokenizer {shown}", "give the folder of the model"
        )
    return found
