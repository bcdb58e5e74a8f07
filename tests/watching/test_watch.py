"""Watching PyTorch models: what is captured, that the relation gives what the model computed, and what is said."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import indexical as ix
from indexical.pages import WebPage
from indexical.watching.capture import Call
from indexical.watching.loading import ListedTokens, numbers_of
from indexical.watching.relation import HeadInputs, Kind
from indexical.watching.remade import factors_of, pack, remade

TOKENS = "a b c a b c".split()


def block_of(page: WebPage) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.html, re.DOTALL)
    assert found is not None
    (block,) = json.loads(found[1])["blocks"]
    assert isinstance(block, dict)
    return block


def sequence(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


MASKS = {
    "none": {},
    "causal": {"attn_mask": torch.ones(6, 6, dtype=torch.bool).triu(1)},
    "added": {"attn_mask": sequence(6, 6)},
    "infinite": {"attn_mask": torch.zeros(6, 6).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf)},
    "padding": {"key_padding_mask": torch.tensor([[False] * 4 + [True] * 2] * 2)},
    "by head": {"attn_mask": torch.ones(8, 6, 6, dtype=torch.bool).triu(1)},
    "both": {
        "attn_mask": sequence(6, 6).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf),
        "key_padding_mask": torch.zeros(2, 6).index_fill(1, torch.tensor([5]), -torch.inf),
    },
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", [{"batch_first": True}, {}, {"kdim": 5, "vdim": 7}, {"bias": False}], ids=str)
def test_multihead_attention(mask: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 4, **options)
    first = (2, 6) if "batch_first" in options else (6, 2)
    query, key, value = (
        sequence(*first, 8),
        sequence(*first, options.get("kdim", 8)),
        sequence(*first, options.get("vdim", 8)),
    )
    with ix.watch(module, batch=1) as seen:
        _, weights = module(query, key, value, average_attn_weights=False, **MASKS[mask])
    assert seen.weights[0] == pytest.approx(weights[1].detach().numpy(), abs=1e-5)
    assert seen.differences.max() < 1e-5
    assert "the same within" in seen.notes()[0]
    assert "This is batch entry 1 of 2." in seen.notes()


class Attention(nn.Module):
    """Attention as people write it: two query heads to a key head, rotary or not is all the same here."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.matrices = nn.Linear(8, 8 + 2 * 4)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.matrices(x).split([8, 4, 4], -1)
        query = query.unflatten(-1, (4, 2)).transpose(1, 2)
        key, value = (part.unflatten(-1, (2, 2)).transpose(1, 2) for part in (key, value))
        found = functional.scaled_dot_product_attention(query, key, value, enable_gqa=True, **self.options)
        return found.transpose(1, 2).flatten(-2)


LOWER = torch.ones(6, 6, dtype=torch.bool).tril()
LEAST = torch.finfo(torch.float32).min


@pytest.mark.parametrize(
    ("options", "guard"),
    [
        ({"is_causal": True}, "where j <= i"),
        ({"scale": 0.25}, "* 0.25;"),
        ({"attn_mask": LOWER}, "where j <= i"),
        ({"attn_mask": LOWER.roll(1, 1) | LOWER}, "where allowed[i, j]"),
        ({"attn_mask": torch.zeros(1, 1, 6, 6).masked_fill(~LOWER, LEAST)}, "where j <= i"),
        ({"attn_mask": sequence(1, 4, 6, 6)}, "+ bias[i, j]"),
    ],
)
def test_attention_that_a_module_calls(options: dict[str, Any], guard: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Attention(**options), Attention(**options))
    with ix.watch(model, tokens=TOKENS) as seen:
        model(sequence(1, 6, 8))
    assert seen.layers == ["0", "1"]
    assert seen.weights.shape == (2, 4, 6, 6)
    assert seen.differences.max() < 1e-5
    lines = block_of(seen.stage(1, 3))["pages"][0]["lines"]
    text = "\n".join("".join(word for word, _ in line) for line in lines)
    assert guard in text


def test_a_page_has_every_head_and_its_stage() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Attention(is_causal=True), Attention(is_causal=True))
    with ix.watch(model, tokens=TOKENS) as seen:
        model(sequence(1, 6, 8))
    page = seen.page("Two layers")
    block = block_of(page)
    assert (block["tokens"], block["shape"], block["staged"]) == (TOKENS, [2, 4], list(range(8)))
    assert page.html.count('id="stage-') == page.html.count('id="head-') == 8
    assert seen._repr_html_().startswith("<iframe")
    assert "2 × 4 × 6 × 6" in repr(seen)


@pytest.mark.parametrize("options", [{"is_causal": True}, {}, {"attn_mask": LOWER.roll(1, 1) | LOWER}], ids=str)
def test_some_rows_of_a_head_have_a_stage_of_their_own(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = Attention(**options)
    with ix.watch(model, tokens=TOKENS) as seen:
        model(sequence(1, 6, 8))
    (page,) = block_of(seen.stage(0, 3, rows=[4, 1]))["pages"]
    (weights,) = [tensor for tensor in page["tensors"] if tensor["name"] == "weights"]
    assert weights["values"] == pytest.approx(seen.weights[0, 3, [4, 1]].reshape(-1).tolist(), abs=1e-6)
    assert page["labels"]["i"] == ["b", "b"]
    assert page["labels"]["j"] == TOKENS


@pytest.mark.parametrize("mask", ["all", "causal", "given"])
def test_queries_and_keys_travel_in_steps(mask: str) -> None:
    draw = np.random.default_rng(0)
    arrays = {"Q": draw.normal(size=(30, 6)), "K": draw.normal(size=(30, 6)) + 5}
    if mask == "given":
        arrays["allowed"] = draw.random((30, 30)) < 0.5
    factors = factors_of(HeadInputs(Kind(mask, 0.5, 6), arrays))
    assert factors is not None
    sizes = []
    for fineness in (2**-9, 2**-5):
        found = pack(factors, fineness)
        assert fineness / 4 < found.errors[0] < 4 * fineness
        assert found.errors[0] < found.errors[1] < 16 * fineness
        sizes.append(len(found.data))
    assert sizes[0] > sizes[1]
    large = factors_of(HeadInputs(Kind(mask, 1e6, 6), arrays))
    assert large is not None
    assert pack(large, 2**-13).steps > pack(factors, 2**-13).steps


def test_queries_and_keys_take_less_room_in_larger_steps_and_the_last_heads_have_none() -> None:
    draw = np.random.default_rng(0)
    kind = Kind("causal", 0.5, 6)
    inputs = [HeadInputs(kind, dict(zip("QK", draw.normal(size=(2, 40, 6)), strict=True))) for _ in range(4)]
    heads = [factors_of(one) for one in inputs]
    errors = []
    for room in (10_000, 2_000, 700):
        again, attached, used = remade(heads, room)
        assert again is not None
        assert used <= room
        errors.append([entry and entry["errors"][0] for entry in again["heads"]])
        assert len(attached) == sum(error is not None for error in errors[-1])
    assert errors[0][0] < errors[1][0] < errors[2][0]
    assert errors[1][3] is not None
    assert errors[2][3] is None
    added = HeadInputs(Kind("added", 0.5, 6), inputs[0].arrays)
    assert remade([factors_of(added)], 10_000) == (None, {}, 0)


def test_a_layer_that_is_shared_is_shown_each_time_and_of_several_runs_the_longest() -> None:
    shared = Attention(is_causal=True)
    model = nn.Sequential(shared, shared, shared)
    with ix.watch(model, tokens=TOKENS) as seen:
        model(sequence(1, 6, 8))
        model(sequence(1, 1, 8))
    assert seen.weights.shape == (3, 4, 6, 6)
    assert seen.differences.max() < 1e-5


def test_some_layers_are_asked_for() -> None:
    model = nn.Sequential(Attention(), Attention(), Attention())
    with ix.watch(model, layers=[2, 0]) as seen:
        model(sequence(1, 6, 8))
    assert seen.layers == ["2", "0"]
    assert not any("of other sizes" in note for note in seen.notes())
    with ix.watch(model, layers=[3]) as seen:
        model(sequence(1, 6, 8))
    with pytest.raises(ix.CallError, match="there are 3 layers, from 0 on"):
        seen.page()


def test_weights_that_are_too_many_are_refused() -> None:
    many = torch.zeros(1, 1, 1, 1).expand(1, 256, 4096, 4)
    with ix.watch(nn.Identity()) as seen:
        pass
    seen._capture.calls.append(Call("attention", many, many, many, None, False, 1.0, many))
    with pytest.raises(ix.CallError, match="4,294,967,296 weights, and at most 2,147,483,648"):
        seen.page()


def test_a_difference_is_said() -> None:
    torch.manual_seed(0)
    model = Attention(dropout_p=0.5)
    with ix.watch(model) as seen:
        model(sequence(1, 6, 8))
    assert seen.notes()[0].startswith("The model computed something else")


def test_after_watching_nothing_is_left() -> None:
    model = Attention()
    with ix.watch(model) as seen:
        model(sequence(1, 6, 8))
    model(sequence(1, 6, 8))
    assert len(seen.layers) == 1
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(RuntimeError), ix.watch(model):
        model(sequence(1, 6, 9))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_what_cannot_be_watched_is_refused() -> None:
    with pytest.raises(ix.CallError, match=r"a `torch.nn.Module`, and this is int"):
        ix.watch(3)  # type: ignore[arg-type]
    with ix.watch(nn.Linear(2, 2)) as seen:
        pass
    assert "has not run" in repr(seen)
    with pytest.raises(ix.CallError, match="no attention was seen"):
        seen.page()
    with ix.watch(nn.MultiheadAttention(4, 2, add_zero_attn=True)) as seen:
        seen._capture.model(*[sequence(2, 3, 4)] * 3)
    with pytest.raises(ix.CallError, match="learned or empty keys"):
        _ = seen.weights
    model = Attention()
    with ix.watch(model) as seen:
        model(sequence(1, 6, 8))
    with pytest.raises(ix.CallError, match="no layer 0 with a head 9"):
        seen.stage(0, 9)
    with pytest.raises(ix.CallError, match="there are 6 rows, from 0 on"):
        seen.stage(0, 0, rows=[6])


def test_of_calls_of_other_sizes_the_largest_group_is_shown() -> None:
    class Cross(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x, x[:, :, :2], x[:, :, :2])

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.cross = Attention(), Attention(), Cross()

        def forward(self, x: Tensor) -> Tensor:
            return self.cross(self.two(self.one(x)).unflatten(-1, (4, 2)).transpose(1, 2))

    model = Both()
    with ix.watch(model) as seen:
        model(sequence(1, 6, 8))
    assert seen.layers == ["one", "two"]
    assert "Calls of attention of other sizes, which are not shown: 1." in seen.notes()


# ---------------------------------------------------------------- Hugging Face

FAMILIES = ["bert", "gpt2", "llama"]


def tiny(family: str) -> Any:
    """A model of random weights, with grouped heads and rotary positions where its family has them."""
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install 'indexical[models]'"
    )
    torch.manual_seed(0)
    if family == "bert":
        config = transformers.BertConfig(
            vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=16
        )
        return transformers.BertModel(config).eval()
    if family == "gpt2":
        return transformers.GPT2Model(
            transformers.GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=4, n_positions=16)
        ).eval()
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=16,
    )
    return transformers.LlamaModel(config).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_hugging_face(family: str) -> None:
    model = tiny(family)
    ids = torch.tensor([[1, 2, 3, 1, 2, 3]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0]])
    for given in ({"input_ids": ids}, {"input_ids": ids, "attention_mask": mask}):
        with torch.no_grad(), ix.watch(model, tokens=TOKENS) as seen:
            model(**given)
        assert seen.weights.shape == (2, 4, 6, 6)
        assert seen.differences.max() < 1e-5
        model.set_attn_implementation("eager")
        with torch.no_grad():
            expected = model(**given, output_attentions=True).attentions
        kept = slice(0, 5)  # A row of padding is whatever the implementation leaves there.
        assert seen.weights[:, :, kept] == pytest.approx(
            np.stack([part[0].numpy() for part in expected])[:, :, kept], abs=1e-5
        )
        with torch.no_grad(), ix.watch(model, tokens=TOKENS) as again:
            model(**given)
        assert again.weights == pytest.approx(seen.weights)
        assert "in place of its own" in again.notes()[0]
        assert model.config._attn_implementation == "eager"
        model.set_attn_implementation("sdpa")


def test_a_folder_is_read_and_nothing_is_fetched(tmp_path: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="transformers is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from indexical.watching.models import watch_text

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"the": 0, "cat": 1, "sat": 2, "?": 3}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(tmp_path)
    tiny("llama").save_pretrained(tmp_path)
    seen = watch_text(str(tmp_path), "the cat sat the cat")
    assert seen.tokens == "the cat sat the cat".split()
    assert watch_text(str(tmp_path), ["sat", "the"]).tokens == ["sat", "the"]
    assert "does not know 1 of the 2 tokens" in " ".join(watch_text(str(tmp_path), "the dog").notes())
    with pytest.raises(ix.CallError, match="has no token `dog`"):
        watch_text(str(tmp_path), ["the", "dog"])
    assert seen.weights.shape == (2, 4, 5, 5)
    with pytest.raises(ix.CallError, match="no file or folder here"):
        watch_text(str(tmp_path / "nothing"), "a")


def test_a_list_of_tokens_cuts_a_text_into_the_longest() -> None:
    tokens = ListedTokens(["[UNK]", "[CLS]", "[SEP]", "C", "Cl", "(", ">>", ">"])
    assert tokens.cut("CCl(>>C ?>") == ["C", "Cl", "(", ">>", "C", "[UNK]", ">"]
    assert tokens.convert_ids_to_tokens(tokens("ClC")["input_ids"]) == ["[CLS]", "Cl", "C", "[SEP]"]
    assert numbers_of(tokens, ["C", ">>"]) == [1, 3, 6, 2]
    with pytest.raises(ix.CallError, match="has no token `Br`"):
        numbers_of(tokens, ["Br"])
