"""Families of models: for each the program, what its sizes are called, and which weight each input is.

A weight is its name, with `{}` for the layer, and the axes that it has in the file, by the coordinates of the program:
`(h d) m` has two, the first of which runs over heads and within each over features. `0/3` is the first of three parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..records import dataclass, field
from .files import Checkpoint, unreadable
from .settings import Settings, Size, Sizes
from .turning import frequencies, frequencies_of_gguf


@dataclass(frozen=True, slots=True)
class Family:
    """A program and how a file of weights fits it."""

    program: str
    # By the coordinates of the program; each may look at those before it.
    sizes: Mapping[str, Size]
    # By inputs of the program: the name of a number, and what it is where that is not said.
    numbers: Mapping[str, tuple[str, float]]
    weights: Mapping[str, str]
    # The number of positions that it can read.
    context: str
    # Inputs that are computed of the settings.
    made: Callable[[Settings, Sizes], dict[str, Any]] = lambda settings, sizes: {}
    # Where the file has none of the first, it is the second: embeddings that are used at both ends.
    tied: Mapping[str, str] = field(default_factory=dict)
    # Inputs whose features stand in pairs in the file, and in halves in the program.
    paired: tuple[str, ...] = ()
    # What may lead every name, other words for parts of names, and names that hold no weights of this program.
    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    # Sizes that are multiples of others; settings that are the same as sizes, where they are said; and those that must
    # have one of these values: the program knows no other.
    multiples: Mapping[str, str | int] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def sizes_of(self, settings: Settings) -> Sizes:
        found: Sizes = {}
        for name, size in self.sizes.items():
            found[name] = size.of(settings, found)
        for name, part in self.multiples.items():
            if found[name] % (found[part] if isinstance(part, str) else part):
                shown = f"`{part}`, {found[part]}" if isinstance(part, str) else part
                raise unreadable(f"`{name}` of `{settings.checkpoint.place}` is {found[name]}, no multiple of {shown}")
        for name, other in self.same.items():
            if settings.get(name, found[other]) != found[other]:
                raise unreadable(
                    f"`{settings.prefix}{name}` is not {found[other]}, as the program of this family has it"
                )
        return found

    def numbers_of(self, settings: Settings) -> dict[str, float]:
        found = {}
        for name, (called, otherwise) in self.numbers.items():
            found[name] = otherwise if settings.get(called) is None else settings.real(called)
        return found


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


def _share(sizes: Sizes, _: Checkpoint) -> int:
    """The features of a head, where heads share those of the model."""
    return sizes["m"] // sizes["h"]


def _as_many_heads(sizes: Sizes, _: Checkpoint) -> int:
    return sizes["h"]


def _embedded(_: Sizes, checkpoint: Checkpoint) -> int:
    """The number of words, where only their embedding says it."""
    return checkpoint.shapes.get("token_embd.weight", (0,))[0]


# ---------------------------------------------------------------------- LLaMA

# The axes of each input, and its name in safetensors and in GGUF.
_LLAMA_WEIGHTS = {
    "embedding": ("v m", "embed_tokens.weight", "token_embd.weight"),
    "norm": ("m", "norm.weight", "output_norm.weight"),
    "unembedding": ("v m", "lm_head.weight", "output.weight"),
    "norm_1": ("m", "layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"),
    "W_Q": ("(h d) m", "layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"),
    "W_K": ("(g d) m", "layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"),
    "W_V": ("(g e) m", "layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"),
    "W_O": ("m (h e)", "layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"),
    "norm_2": ("m", "layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"),
    "W_gate": ("f m", "layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"),
    "W_up": ("f m", "layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"),
    "W_down": ("m f", "layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"),
}

_LLAMA = Family(
    "llama",
    {
        "l": Size("num_hidden_layers"),
        "v": Size("vocab_size"),
        "m": Size("hidden_size"),
        "h": Size("num_attention_heads"),
        "g": Size("num_key_value_heads", _as_many_heads),
        "d": Size("head_dim", _share),
        "e": Size("head_dim", _share),
        "f": Size("intermediate_size"),
    },
    {"small": ("rms_norm_eps", 1e-6)},
    {name: f"{called} {axes}" for name, (axes, called, _) in _LLAMA_WEIGHTS.items()},
    "max_position_embeddings",
    frequencies,
    tied={"unembedding": "embedding"},
    prefix="model.",
    ignored=("layers.{}.self_attn.rotary_emb.inv_freq",),
    multiples={"h": "g", "d": 2},
    only={
        "hidden_act": ("silu",),
        "rope_parameters.partial_rotary_factor": (1,),
    },
)

_LLAMA_GGUF = Family(
    "llama",
    {
        "l": Size("block_count"),
        "v": Size("vocab_size", _embedded),
        "m": Size("embedding_length"),
        "h": Size("attention.head_count"),
        "g": Size("attention.head_count_kv", _as_many_heads),
        "d": Size("attention.key_length", _share),
        "e": Size("attention.value_length", _share),
        "f": Size("feed_forward_length"),
    },
    {"small": ("attention.layer_norm_rms_epsilon", 1e-6)},
    {name: f"{called} {axes}" for name, (axes, _, called) in _LLAMA_WEIGHTS.items()},
    "context_length",
    frequencies_of_gguf,
    tied={"unembedding": "embedding"},
    paired=("W_Q", "W_K"),
    ignored=("rope_freqs.weight",),
    multiples={"h": "g", "d": 2},
    same={"rope.dimension_count": "d"},
    only={"expert_count": (0,)},
)


# ---------------------------------------------------------------------- GPT-2

_GPT2 = Family(
    "gpt2",
    {
        "l": Size("n_layer"),
        "v": Size("vocab_size"),
        "p": Size("n_positions"),
        "m": Size("n_embd"),
        "h": Size("n_head"),
        "d": Size("", _share),
        "e": Size("", _share),
        "f": Size("n_inner", lambda sizes, _: 4 * sizes["m"]),
    },
    {"small": ("layer_norm_epsilon", 1e-5)},
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
    "n_positions",
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

_BERT = Family(
    "bert",
    {
        "l": Size("num_hidden_layers"),
        "v": Size("vocab_size"),
        "p": Size("max_position_embeddings"),
        "k": Size("type_vocab_size"),
        "m": Size("hidden_size"),
        "h": Size("num_attention_heads"),
        "d": Size("", _share),
        "e": Size("", _share),
        "f": Size("intermediate_size"),
    },
    {"small": ("layer_norm_eps", 1e-12)},
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
    "max_position_embeddings",
    prefix="bert.",
    renamed={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    # What reads the encoder changes nothing in it: the heads it was trained with, or for another task.
    ignored=("embeddings.position_ids", "pooler.*", "cls.*", "classifier.*", "qa_outputs.*"),
    only={
        "hidden_act": ("gelu",),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
)

FAMILIES: Mapping[tuple[str, str], Family] = {
    ("gguf", "llama"): _LLAMA_GGUF,
    ("safetensors", "llama"): _LLAMA,
    ("safetensors", "gpt2"): _GPT2,
    ("safetensors", "bert"): _BERT,
}
