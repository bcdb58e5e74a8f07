"""Models of each family: as they are in plain PyTorch, bound by name, and continued."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
import torch
from tests.models.by_hand import (
    BERT,
    DECODERS,
    ENCODER,
    GPT2,
    LLAMA,
    LLAMA_GGUF,
    as_gguf,
    bert,
    bert_embeddings,
    checkpoint,
    gpt2,
    llama,
)

import indexical as ix
from indexical.models import Checkpoint, Model, Words
from indexical.models.loading import program_file
from indexical.models.model import _until
from indexical.models.sampling import Sampling, draw

LETTERS = "abcdefghijklmnopqrstuvwxyz .,?!"


class Letters:
    """A tokenizer of 31 letters."""

    def encode(self, text: str) -> Any:
        return type("Encoding", (), {"ids": [LETTERS.index(letter) for letter in text]})

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(LETTERS[token] for token in tokens)

    def id_to_token(self, token: int) -> str:
        return LETTERS[token]


def model_of(kept: Checkpoint, ends: frozenset[int] = frozenset()) -> Model:
    return ix.models.assemble(kept, Words(Letters(), ends))


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {name: model_of(kept) for name, (kept, _, _) in DECODERS.items()}


# ------------------------------------------------------------------------ the relation


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_contracts_are_proved_on_the_whole_model(family: str) -> None:
    text = program_file(family).read_text()
    assert "attention heard(" in text
    assert [found for found in ix.check(text) if found.severity != "note"] == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("family", "right", "wrong", "code"),
    [
        ("llama", "where j <= i", "where j <= i + 1", "IX423"),
        ("gpt2", "where j <= i", "where j >= i", "IX423"),
        ("llama", "h / (size(h) / size(g)), j, d", "h % size(g), j, d", "IX425"),
        ("llama", "/ sqrt(size(d))", "/ sqrt(size(m))", "IX408"),
        ("gpt2", "/ sqrt(size(d))", "/ size(d)", "IX430"),
        ("bert", "* V[l, b, h, j, e]", "* V[l, b, h, i, e]", "IX403"),
    ],
)
def test_a_slip_in_a_model_is_found(family: str, right: str, wrong: str, code: str) -> None:
    text = program_file(family).read_text()
    assert right in text
    assert code in {found.code for found in ix.check(text.replace(right, wrong))}


# -------------------------------------------------------------------------- its values


def test_positions_that_are_stretched_turn_by_other_frequencies() -> None:
    def frequency(format: str, settings: dict[str, Any], **more: torch.Tensor) -> torch.Tensor:
        weights = as_gguf(llama()) if format == "gguf" else llama()
        return model_of(checkpoint("llama", format, settings, weights | more)).weights["frequency"]

    plain = frequency("safetensors", LLAMA)
    torch.testing.assert_close(plain, torch.tensor([1.0, 0.1]))
    linear = {"rope_type": "linear", "factor": 2.0}
    assert torch.equal(frequency("safetensors", {**LLAMA, "rope_scaling": linear}), plain / 2)
    assert torch.equal(
        frequency("gguf", {**LLAMA_GGUF, "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}),
        plain / 2,
    )
    # 6.28 * 24 positions turn the first wave 24 times, and the second 2.4 times: between the slow and the fast.
    length = 24 * 2 * math.pi
    rule = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rule |= {"original_max_position_embeddings": length, "rope_theta": 100.0}
    share = (2.4 - 1) / (4 - 1)
    expected = torch.tensor([1.0, 0.1 * ((1 - share) / 8 + share)])
    found = frequency("safetensors", {**LLAMA, "rope_theta": None, "rope_parameters": rule})
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(frequency("gguf", LLAMA_GGUF, **{"rope_freqs.weight": plain / expected}), expected)


@pytest.mark.parametrize("name", DECODERS)
def test_logits_are_those_of_plain_torch(name: str, models: dict[str, Model]) -> None:
    _, weights, by_hand = DECODERS[name]
    for count, length in ((1, 1), (2, 7)):
        tokens = torch.randint(0, 31, (count, length), generator=torch.Generator().manual_seed(length))
        torch.testing.assert_close(models[name].logits(tokens), by_hand(weights, tokens), atol=1e-5, rtol=1e-5)


def test_the_program_itself_means_the_same(models: dict[str, Model]) -> None:
    model = models["llama"]
    tokens = torch.tensor([[3, 1, 4]])
    found = model.program(tokens=tokens, **model.weights)
    torch.testing.assert_close(found, model.logits(tokens), atol=1e-5, rtol=1e-5)
    exact = model.program(tokens=tokens, **model.weights, backend="reference")
    torch.testing.assert_close(torch.as_tensor(exact).float(), found, atol=1e-4, rtol=1e-4)


def test_embeddings_are_those_of_plain_torch_whatever_is_padded() -> None:
    model = model_of(ENCODER)
    texts = ["a", "longer text", "another."]
    alone = torch.cat([model.embed(text) for text in texts])
    together = model.embed(texts)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    tokens, present = model._padded(texts)
    torch.testing.assert_close(together, bert_embeddings(bert(), tokens, present), atol=1e-5, rtol=1e-5)


def test_padding_does_not_change_a_decoder(models: dict[str, Model]) -> None:
    model = models["gpt2"]
    torch.testing.assert_close(model.logits(["abc", "abcdef"])[:1, :3], model.logits("abc"), atol=1e-5, rtol=1e-5)


def test_perplexity_and_heads(models: dict[str, Model]) -> None:
    model = models["llama"]
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    logits = DECODERS["llama"][2](DECODERS["llama"][1], tokens)
    expected = torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:]).exp().item()
    assert model.perplexity(tokens) == pytest.approx(expected, rel=1e-4)
    apart = [math.log(model.perplexity(text)) for text in ("abcdef", "ab")]
    together = math.exp((5 * apart[0] + apart[1]) / 6)
    assert model.perplexity(["abcdef", "ab"]) == pytest.approx(together, rel=1e-4)
    assert len(model.heads("abcab").heads) == 2 * 4
    assert "abcab"[2] in model.heads("abcab").page("heads").html


# ------------------------------------------------------------------------ what is bound


def test_tied_embeddings_are_one_tensor(models: dict[str, Model]) -> None:
    assert models["gpt2"].weights["unembedding"] is models["gpt2"].weights["embedding"]
    assert models["llama"].weights["unembedding"] is not models["llama"].weights["embedding"]


def test_a_head_of_its_own_that_is_not_there_is_missing() -> None:
    weights = {name: weight for name, weight in llama().items() if name != "lm_head.weight"}
    with pytest.raises(ix.CallError, match=r"missing: `lm_head\.weight`"):
        model_of(checkpoint("llama", "safetensors", {**LLAMA, "tie_word_embeddings": False}, weights))
    tied = model_of(checkpoint("llama", "safetensors", {**LLAMA, "tie_word_embeddings": True}, weights))
    assert tied.weights["unembedding"] is tied.weights["embedding"]


def test_an_encoder_is_read_from_below_its_heads_by_old_names_too() -> None:
    old = {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): w for name, w in bert().items()}
    above = {"cls.predictions.transform.dense.weight": torch.zeros(16, 16), "cls.predictions.bias": torch.zeros(31)}
    weights = {f"bert.{name}": weight for name, weight in old.items()} | above
    model = model_of(checkpoint("bert", "safetensors", BERT, weights))
    torch.testing.assert_close(model.embed("abc"), model_of(ENCODER).embed("abc"))


def test_families_have_programs() -> None:
    assert ix.models.program("llama").outputs == ("logits",)
    with pytest.raises(ix.CallError, match="bert, gpt2, llama"):
        ix.models.program("mamba")


def test_every_mismatch_is_listed_at_once() -> None:
    weights = llama()
    for layer in (0, 1):
        weights[f"layers.{layer}.self_attn.q_proj.bias"] = torch.zeros(16)
        del weights[f"layers.{layer}.mlp.up_proj.weight"]
    weights["norm.weight"] = torch.zeros(15)
    weights["layers.1.mlp.down_proj.weight"] = torch.zeros(24, 16)
    weights["extra"] = torch.zeros(1)
    with pytest.raises(ix.CallError) as caught:
        model_of(checkpoint("llama", "safetensors", LLAMA, weights))
    [found] = caught.value.diagnostics
    assert found.code == "IX541"
    assert sorted(found.notes) == [
        "another shape: `layers.1.mlp.down_proj.weight` is 24 × 16, and `W_down` takes m × f, 16 × 24",
        "another shape: `norm.weight` is 15, and `norm` takes m, 16",
        "missing: `layers.N.mlp.up_proj.weight` for N = 0 to 1",
        "not used by the program: `extra`",
        "not used by the program: `layers.N.self_attn.q_proj.bias` for N = 0 to 1",
    ]


def test_names_may_lead_with_the_module_and_masks_are_no_weights() -> None:
    weights = {f"transformer.{name}": weight for name, weight in gpt2().items()}
    weights["transformer.h.0.attn.bias"] = torch.ones(1, 1, 24, 24)
    model = model_of(checkpoint("gpt2", "safetensors", GPT2, weights))
    tokens = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(model.logits(tokens), DECODERS["gpt2"][2](gpt2(), tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "settings", "message"),
    [
        ("mamba", LLAMA, "of the family `mamba`"),
        ("llama", {**LLAMA, "hidden_act": "gelu"}, "`hidden_act` is 'gelu'"),
        ("llama", {**LLAMA, "hidden_size": None}, "`hidden_size` of `drawn` is not said"),
        ("llama", {**LLAMA, "hidden_size": "many"}, "is 'many'"),
        ("llama", {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, "rope_type` is 'yarn'"),
        (
            "llama",
            {**LLAMA, "rope_scaling": {"type": "linear", "factor": "2"}},
            "`rope_scaling.factor` of `drawn` is '2'",
        ),
        ("llama", {**LLAMA, "rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor` is 0.5"),
        ("llama", {**LLAMA, "num_key_value_heads": 3}, "`h` of `drawn` is 4, no multiple of `g`, 3"),
        ("llama", {**LLAMA, "head_dim": 3}, "`d` of `drawn` is 3, no multiple of 2"),
        ("llama", {**LLAMA, "rope_theta": "large"}, "the number `rope_theta` of `drawn` is 'large'"),
        ("llama", {**LLAMA, "max_position_embeddings": -1}, "`max_position_embeddings` of `drawn` is -1"),
        ("bert", {**BERT, "position_embedding_type": "relative_key"}, "'relative_key'"),
        ("bert", {**BERT, "is_decoder": True}, "`is_decoder` is True"),
    ],
)
def test_a_model_without_a_program_is_refused(architecture: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ix.CallError, match=message) as caught:
        model_of(checkpoint(architecture, "safetensors", settings, llama() if architecture != "bert" else bert()))
    assert caught.value.diagnostics[0].code == "IX540"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda model: model.logits(""), "no token to read"),
        (lambda model: model.logits(["abc", ""]), "no token to read"),
        (lambda model: model.logits(torch.zeros(2)), "tokens are whole numbers"),
        (lambda model: model.logits(5.5), "a text is a string"),
        (lambda model: model.logits([[1.5]]), "a text is a string"),
        (lambda model: model.logits("a\udcff"), "no Unicode at 1"),
        (lambda model: model.logits(torch.zeros(1, 25, dtype=torch.long)), "25 tokens are more than the 24"),
        (lambda model: model.logits([[31]]), "the numbers below 31"),
        (lambda model: model.embed("abc"), "no encoder"),
        (lambda model: model.perplexity("a"), "at least two"),
        (lambda model: model.heads(["a", "b"]), "one text"),
        (lambda model: model.generate(["a", "b"]), "one prompt"),
        (lambda model: model.generate("a", -1), "cannot be written"),
        (lambda model: model.generate("a", temperature=-1), "temperature"),
        (lambda model: model.generate("a", top_k=0), "likeliest"),
        (lambda model: model.generate("a", top_p=1.5), "probability"),
        (lambda model: model.generate("a", seed=2**64), "the seed"),
    ],
)
def test_questions_that_have_no_answer(asked: Any, message: str, models: dict[str, Model]) -> None:
    with pytest.raises(ix.CallError, match=message):
        asked(models["llama"])


def test_an_encoder_continues_nothing() -> None:
    with pytest.raises(ix.CallError, match="an encoder"):
        model_of(ENCODER).generate("abc")
    with pytest.raises(ix.CallError, match="an encoder"):
        model_of(ENCODER).logits("abc")


# ------------------------------------------------------------------------- what follows


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("prompt", ["a", "some text"])
def test_each_token_is_the_likeliest_after_all_before_it(name: str, prompt: str, models: dict[str, Model]) -> None:
    model = models[name]
    _, weights, by_hand = DECODERS[name]
    text = "".join(model.generate(prompt, 9))
    expected = model.words.tokens(prompt)
    for _ in range(9):
        expected.append(int(by_hand(weights, torch.tensor([expected]))[0, -1].argmax()))
    assert model.written == expected
    assert prompt + text == model.words.text(expected)


def test_it_ends_where_it_must(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    model = models["llama"]
    whole = "".join(model.generate("ab", 12))
    first = model.words.tokens(whole)[3]
    assert "".join(model.generate("ab", 12, stop=whole[3:5])) == whole[: whole.index(whole[3:5])]
    assert "".join(model.generate("ab", 0)) == ""
    assert len("".join(model.generate("ab" * 11, 50))) == 2
    monkeypatch.setattr(model, "words", Words(Letters(), frozenset([first])))
    assert "".join(model.generate("ab", 12)) == whole[: whole.index(LETTERS[first])]


@pytest.mark.parametrize(
    ("pieces", "stops", "expected"),
    [
        (["ab", "c", "d"], ("cd",), "ab"),
        (["ab", "c", "e"], ("cd",), "abce"),
        (["a", "b", "c"], (), "abc"),
        (["xabc"], ("abc", "b"), "x"),
        (["a", "a", "b"], ("aab",), ""),
    ],
)
def test_text_ends_before_a_stop(pieces: list[str], stops: tuple[str, ...], expected: str) -> None:
    assert "".join(_until(iter(pieces), stops)) == expected


def test_a_piece_that_ends_within_a_letter_waits() -> None:
    class Bytes(Letters):
        def decode(self, tokens: Sequence[int]) -> str:
            return bytes(tokens).decode(errors="replace")

    def told() -> Iterator[int]:
        yield from "aé🙂z".encode()

    assert list(Words(Bytes(), frozenset()).streamed([], told())) == ["a", "é", "🙂", "z"]
    assert list(Words(Bytes(), frozenset()).streamed([], iter(b"a\xc3"))) == ["a", "\ufffd"]


def test_a_draw_is_the_likeliest_or_by_chance() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, -1.0])
    chance = torch.Generator().manual_seed(1)
    likeliest = (Sampling(), Sampling(1.0, top_k=1), Sampling(1.0, top_p=0.3), Sampling(1e-3))
    assert {draw(logits, each, chance) for each in likeliest for _ in range(20)} == {1}
    counts = Counter(draw(logits, Sampling(1.0), chance) for _ in range(1000))
    for token, share in enumerate(torch.softmax(logits, -1).tolist()):
        assert counts[token] / 1000 == pytest.approx(share, abs=0.06)
    assert {draw(logits, Sampling(1.0, top_k=2), chance) for _ in range(40)} == {1, 2}
    assert {draw(logits, Sampling(1.0, top_p=0.7), chance) for _ in range(40)} == {1, 2}
    assert {draw(1000 * logits, Sampling(temperature), chance) for temperature in (1e-320, 1e-9)} == {1}
    with pytest.raises(ix.CallError, match="NaN"):
        draw(logits * torch.nan, Sampling(), chance)


def test_a_seed_gives_the_same_text(models: dict[str, Model]) -> None:
    def text(seed: int) -> str:
        return "".join(models["gpt2"].generate("ab", 8, temperature=2.0, seed=seed))

    assert text(3) == text(3)
    assert len({text(seed) for seed in range(4)}) > 1


# --------------------------------------------------------------------- files and commands


def test_files_that_are_no_models(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from indexical.cli import main

    pytest.importorskip("torch")
    (tmp_path / "notes.txt").write_text("no model")
    for place in (tmp_path / "nothing", tmp_path / "notes.txt", tmp_path):
        assert main(["generate", str(place), "once"]) == 1
        assert "IX540" in capsys.readouterr().err


def test_commands_write_the_text_and_tell_the_rest(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, models: dict[str, Model]
) -> None:
    from indexical.cli import main

    model = models["llama"]
    monkeypatch.setattr("indexical.models.load", lambda place, progress: model)
    expected = "".join(model.generate("ab", 5))
    page = tmp_path / "heads.html"
    assert main(["generate", "x.gguf", "ab", "--max-tokens", "5", "--page", str(page)]) == 0
    told = capsys.readouterr()
    assert told.out == f"ab{expected}\n"
    assert "2 tokens read" in told.err
    assert "tokens a second" in told.err
    assert "<html" in page.read_text(encoding="utf-8")[:200]
    (tmp_path / "prompt.txt").write_text("ab")
    asked = ["generate", "x.gguf", f"@{tmp_path}/prompt.txt", "--max-tokens", "5", "--only-new", "--quiet"]
    assert main([*asked, "--stop", expected[2:4]]) == 0
    assert capsys.readouterr() == (expected[: expected.index(expected[2:4])] + "\n", "")
    assert main([*asked, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == expected
    assert main(["perplexity", "x.gguf", "abc", "--quiet"]) == 0
    assert float(capsys.readouterr().out) == pytest.approx(model.perplexity("abc"), abs=1e-3)


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (["generate", "x.gguf", "@nothing.txt"], 2, "No such file"),
        (["generate", "x.gguf", "ab", "--top-p", "2"], 1, "IX515"),
        (["generate", "x.gguf", "ab", "--top-p", "0.5"], 2, "--temperature above 0"),
        (["generate", "x.gguf", "ab", "--seed", f"{2**70}"], 1, "64 bits"),
        (["generate", "x.gguf", "ab", "--max-tokens", "-1"], 2, "0 or more"),
        (["generate", "x.gguf", "ab", "--page", "no/where.html"], 2, "no folder `no`"),
        (["embed", "x.gguf", "ab", "--save", "."], 2, "it is a folder"),
    ],
)
def test_a_slip_in_the_command_is_told_before_the_model_is_read(
    options: list[str], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from indexical.cli import main

    assert main(options) == status
    printed = capsys.readouterr().err
    assert told in printed
    assert "IX540" not in printed


def test_an_interrupt_leaves_what_was_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, models: dict[str, Model]
) -> None:
    from indexical.cli import main

    model = models["llama"]
    monkeypatch.setattr("indexical.models.load", lambda place, progress: model)
    whole = "".join(model.generate("ab", 9))
    streamed = Words.streamed

    def interrupted(words: Words, before: Sequence[int], tokens: Iterator[int]) -> Iterator[str]:
        yield from islice(streamed(words, before, tokens), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(Words, "streamed", interrupted)
    assert main(["generate", "x.gguf", "ab", "--max-tokens", "9"]) == 130
    told = capsys.readouterr()
    assert told.out == f"ab{whole[:3]}\n"
    assert told.err.endswith("ix: interrupted\n")


def test_a_letter_that_a_terminal_lacks_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from indexical.cli import main

    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", narrow)
    encoder = model_of(ENCODER)
    monkeypatch.setattr("indexical.models.load", lambda place, progress: encoder)
    monkeypatch.setattr(Letters, "encode", lambda self, text: type("Encoding", (), {"ids": [1]}))
    assert main(["embed", "folder", "naïve", "--quiet"]) == 0
    narrow.flush()
    assert narrow.buffer.getvalue() == b" 1.000  na\\xefve\n"  # type: ignore[attr-defined]


def test_texts_that_are_alike_are_printed_with_their_cosines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from indexical.cli import main

    encoder = model_of(ENCODER)
    monkeypatch.setattr("indexical.models.load", lambda place, progress: encoder)
    assert main(["embed", "folder", "abc", "abc", "xyz", "--quiet"]) == 0
    rows = [[float(cell) for cell in line.split()[:3]] for line in capsys.readouterr().out.splitlines()]
    assert rows[0][:2] == [1.0, 1.0]
    assert rows[0][2] == rows[2][0] < 1
    assert main(["embed", "folder", "abc\n\nxyz", "abc", "--lines", "--quiet"]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["abc", "xyz", "abc"]
