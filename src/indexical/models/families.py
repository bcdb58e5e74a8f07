"""Families of models: for each the program, what its sizes are called, and which weight each input is.

A weight is its name, with `{}` for the layer, and the axes that it has in the file, by the coordinates of the program:
`(h d) m` has two, the first of which runs over heads and within each over features. `0/3` is the first of three parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from ..records import dataclass
from .files import Checkpoint, unreadable

Sizes = dict[str, int]


@dataclass(frozen=True, slots=True)
class Family:
    """A program and how a file of weights fits it."""

    program: str
    sizes: Callable[[Settings], Sizes]
    numbers: Callable[[Settings], dict[str, float]]
    weights: Mapping[str, str]
    # Where the file has none of the first, it is the second: embeddings that are used at both ends.
    tied: Mapping[str, str] = field(default_factory=dict)
    # Inputs whose features stand in pairs in the file, and in halves in the program.
    paired: tuple[str, ...] = ()
    # What may lead every name, and names that hold no weights of this program.
    prefix: str = ""
    ignored: tuple[str, ...] = ()
    # Settings that must have one of these values, where they are said: the program knows no other.
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a model, by name."""

    checkpoint: Checkpoint
    prefix: str = ""

    def get(self, name: str, otherwise: Any = None) -> Any:
        value = self.checkpoint.settings.get(self.prefix + name)
        return otherwise if value is None else value

    def number(self, name: str) -> int:
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            shown = "is not said" if value is None else f"is {value!r:.40}"
            raise unreadable(f"the size `{self.prefix}{name}` of `{self.checkpoint.place}` {shown}")
        return value


def family_of(checkpoint: Checkpoint) -> tuple[Family, Settings]:
    """The family of a file of weights."""
    known = FAMILIES.get((checkpoint.format, checkpoint.architecture))
    if known is None:
        names = ", ".join(f"{name} in {format}" for format, name in FAMILIES)
        message = f"`{checkpoint.place}` is of the family `{checkpoint.architecture}`, and there is no program for it"
        raise unreadable(message, f"there are programs for {names}")
    settings = Settings(checkpoint, f"{checkpoint.architecture}." if checkpoint.format == "gguf" else "")
    for name, values in known.only.items():
        value = settings.get(name, values[0])
        if value not in values:
            shown = " or ".join(map(repr, values))
            raise unreadable(
                f"`{settings.prefix}{name}` is {value!r:.60}, and the program of this family has {shown} alone"
            )
    return known, settings


# ---------------------------------------------------------------------- LLaMA


def _llama_sizes(settings: Settings) -> Sizes:
    heads, model = settings.number("num_attention_heads"), settings.number("hidden_size")
    d = settings.number("head_dim") if settings.get("head_dim") else model // heads
    return {
        "l": settings.number("num_hidden_layers"),
        "v": settings.number("vocab_size"),
        "m": model,
        "h": heads,
        "g": settings.number("num_key_value_heads") if settings.get("num_key_value_heads") else heads,
        "d": d,
        "e": d,
        "f": settings.number("intermediate_size"),
    }


def _llama_numbers(settings: Settings) -> dict[str, float]:
    turning = settings.get("rope_parameters") or {}
    base = settings.get("rope_theta") or turning.get("rope_theta") or 10000.0
    for said in (turning, settings.get("rope_scaling") or {}):
        kind = said.get("rope_type", said.get("type", "default"))
        if kind != "default":
            raise unreadable(f"its positions turn by the rule `{kind}`, and the program has the plain one alone")
    return {"base": float(base), "small": float(settings.get("rms_norm_eps", 1e-6))}


def _llama_gguf_sizes(settings: Settings) -> Sizes:
    heads, model = settings.number("attention.head_count"), settings.number("embedding_length")
    d = settings.number("attention.key_length") if settings.get("attention.key_length") else model // heads
    groups = settings.get("attention.head_count_kv", heads)
    if not isinstance(groups, int):
        raise unreadable(f"its layers have different numbers of heads: {groups!r:.60}")
    if settings.get("rope.dimension_count", d) != d or settings.get("rope.scaling.type", "none") != "none":
        raise unreadable("its positions turn by another rule than the plain one, which the program has alone")
    return {
        "l": settings.number("block_count"),
        "v": settings.checkpoint.shapes.get("token_embd.weight", (0,))[0],
        "m": model,
        "h": heads,
        "g": groups,
        "d": d,
        "e": settings.get("attention.value_length", d),
        "f": settings.number("feed_forward_length"),
    }


def _llama_gguf_numbers(settings: Settings) -> dict[str, float]:
    base, small = settings.get("rope.freq_base", 10000.0), settings.get("attention.layer_norm_rms_epsilon", 1e-6)
    return {"base": float(base), "small": float(small)}


_LLAMA = Family(
    "llama",
    _llama_sizes,
    _llama_numbers,
    {
        "embedding": "embed_tokens.weight v m",
        "norm": "norm.weight m",
        "unembedding": "lm_head.weight v m",
        "norm_1": "layers.{}.input_layernorm.weight m",
        "W_Q": "layers.{}.self_attn.q_proj.weight (h d) m",
        "W_K": "layers.{}.self_attn.k_proj.weight (g d) m",
        "W_V": "layers.{}.self_attn.v_proj.weight (g e) m",
        "W_O": "layers.{}.self_attn.o_proj.weight m (h e)",
        "norm_2": "layers.{}.post_attention_layernorm.weight m",
        "W_gate": "layers.{}.mlp.gate_proj.weight f m",
        "W_up": "layers.{}.mlp.up_proj.weight f m",
        "W_down": "layers.{}.mlp.down_proj.weight m f",
    },
    tied={"unembedding": "embedding"},
    prefix="model.",
    ignored=("layers.{}.self_attn.rotary_emb.inv_freq",),
    only={"hidden_act": ("silu",)},
)

_LLAMA_GGUF = Family(
    "llama",
    _llama_gguf_sizes,
    _llama_gguf_numbers,
    {
        "embedding": "token_embd.weight v m",
        "norm": "output_norm.weight m",
        "unembedding": "output.weight v m",
        "norm_1": "blk.{}.attn_norm.weight m",
        "W_Q": "blk.{}.attn_q.weight (h d) m",
        "W_K": "blk.{}.attn_k.weight (g d) m",
        "W_V": "blk.{}.attn_v.weight (g e) m",
        "W_O": "blk.{}.attn_output.weight m (h e)",
        "norm_2": "blk.{}.ffn_norm.weight m",
        "W_gate": "blk.{}.ffn_gate.weight f m",
        "W_up": "blk.{}.ffn_up.weight f m",
        "W_down": "blk.{}.ffn_down.weight m f",
    },
    tied={"unembedding": "embedding"},
    paired=("W_Q", "W_K"),
)


# ---------------------------------------------------------------------- GPT-2


def _gpt2_sizes(settings: Settings) -> Sizes:
    heads, model = settings.number("n_head"), settings.number("n_embd")
    return {
        "l": settings.number("n_layer"),
        "v": settings.number("vocab_size"),
        "p": settings.number("n_positions"),
        "m": model,
        "h": heads,
        "d": model // heads,
        "e": model // heads,
        "f": settings.number("n_inner") if settings.get("n_inner") else 4 * model,
    }


_GPT2 = Family(
    "gpt2",
    _gpt2_sizes,
    lambda settings: {"small": float(settings.get("layer_norm_epsilon", 1e-5))},
    {
        "embedding": "wte.weight v m",
        "positions": "wpe.weight p m",
        "gain": "ln_f.weight m",
        "bias": "ln_f.bias m",
        "unembedding": "lm_head.weight v m",
        "gain_1": "h.{}.ln_1.weight m",
        "bias_1": "h.{}.ln_1.bias m",
        "gain_2": "h.{}.ln_2.weight m",
        "bias_2": "h.{}.ln_2.bias m",
        "W_Q": "h.{}.attn.c_attn.weight m (0/3 h d)",
        "W_K": "h.{}.attn.c_attn.weight m (1/3 h d)",
        "W_V": "h.{}.attn.c_attn.weight m (2/3 h e)",
        "b_Q": "h.{}.attn.c_attn.bias (0/3 h d)",
        "b_K": "h.{}.attn.c_attn.bias (1/3 h d)",
        "b_V": "h.{}.attn.c_attn.bias (2/3 h e)",
        "W_O": "h.{}.attn.c_proj.weight (h e) m",
        "b_O": "h.{}.attn.c_proj.bias m",
        "W_in": "h.{}.mlp.c_fc.weight m f",
        "b_in": "h.{}.mlp.c_fc.bias f",
        "W_out": "h.{}.mlp.c_proj.weight f m",
        "b_out": "h.{}.mlp.c_proj.bias m",
    },
    tied={"unembedding": "embedding"},
    prefix="transformer.",
    ignored=("h.{}.attn.bias", "h.{}.attn.masked_bias"),
    only={
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
)


# ----------------------------------------------------------------------- BERT


def _bert_sizes(settings: Settings) -> Sizes:
    heads, model = settings.number("num_attention_heads"), settings.number("hidden_size")
    return {
        "l": settings.number("num_hidden_layers"),
        "v": settings.number("vocab_size"),
        "p": settings.number("max_position_embeddings"),
        "k": settings.number("type_vocab_size"),
        "m": model,
        "h": heads,
        "d": model // heads,
        "e": model // heads,
        "f": settings.number("intermediate_size"),
    }


_BERT = Family(
    "bert",
    _bert_sizes,
    lambda settings: {"small": float(settings.get("layer_norm_eps", 1e-12))},
    {
        "words": "embeddings.word_embeddings.weight v m",
        "positions": "embeddings.position_embeddings.weight p m",
        "kinds": "embeddings.token_type_embeddings.weight k m",
        "gain": "embeddings.LayerNorm.weight m",
        "bias": "embeddings.LayerNorm.bias m",
        "W_Q": "encoder.layer.{}.attention.self.query.weight (h d) m",
        "W_K": "encoder.layer.{}.attention.self.key.weight (h d) m",
        "W_V": "encoder.layer.{}.attention.self.value.weight (h e) m",
        "W_O": "encoder.layer.{}.attention.output.dense.weight m (h e)",
        "b_Q": "encoder.layer.{}.attention.self.query.bias (h d)",
        "b_K": "encoder.layer.{}.attention.self.key.bias (h d)",
        "b_V": "encoder.layer.{}.attention.self.value.bias (h e)",
        "b_O": "encoder.layer.{}.attention.output.dense.bias m",
        "gain_1": "encoder.layer.{}.attention.output.LayerNorm.weight m",
        "bias_1": "encoder.layer.{}.attention.output.LayerNorm.bias m",
        "W_in": "encoder.layer.{}.intermediate.dense.weight f m",
        "b_in": "encoder.layer.{}.intermediate.dense.bias f",
        "W_out": "encoder.layer.{}.output.dense.weight m f",
        "b_out": "encoder.layer.{}.output.dense.bias m",
        "gain_2": "encoder.layer.{}.output.LayerNorm.weight m",
        "bias_2": "encoder.layer.{}.output.LayerNorm.bias m",
    },
    prefix="bert.",
    ignored=("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"),
    only={"hidden_act": ("gelu",), "position_embedding_type": ("absolute",)},
)

FAMILIES: Mapping[tuple[str, str], Family] = {
    ("gguf", "llama"): _LLAMA_GGUF,
    ("safetensors", "llama"): _LLAMA,
    ("safetensors", "gpt2"): _GPT2,
    ("safetensors", "bert"): _BERT,
}
