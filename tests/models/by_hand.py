"""Small models of each family, drawn at random, and the same in plain PyTorch, written apart from the programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from indexical.models.files import Checkpoint

LLAMA = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 31,
    "max_position_embeddings": 24,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
}
LLAMA_GGUF = {
    "general.architecture": "llama",
    "llama.embedding_length": 16,
    "llama.block_count": 2,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.feed_forward_length": 24,
    "llama.context_length": 24,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 100.0,
}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 31, "n_positions": 24}
BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "vocab_size": 31,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
}
_LLAMA_SHAPES = {
    "layers.{}.input_layernorm.weight": (16,),
    "layers.{}.self_attn.q_proj.weight": (16, 16),
    "layers.{}.self_attn.k_proj.weight": (8, 16),
    "layers.{}.self_attn.v_proj.weight": (8, 16),
    "layers.{}.self_attn.o_proj.weight": (16, 16),
    "layers.{}.post_attention_layernorm.weight": (16,),
    "layers.{}.mlp.gate_proj.weight": (24, 16),
    "layers.{}.mlp.up_proj.weight": (24, 16),
    "layers.{}.mlp.down_proj.weight": (16, 24),
}
_GGUF_NAMES = {
    "layers.{}.input_layernorm": "blk.{}.attn_norm",
    "layers.{}.self_attn.q_proj": "blk.{}.attn_q",
    "layers.{}.self_attn.k_proj": "blk.{}.attn_k",
    "layers.{}.self_attn.v_proj": "blk.{}.attn_v",
    "layers.{}.self_attn.o_proj": "blk.{}.attn_output",
    "layers.{}.post_attention_layernorm": "blk.{}.ffn_norm",
    "layers.{}.mlp.gate_proj": "blk.{}.ffn_gate",
    "layers.{}.mlp.up_proj": "blk.{}.ffn_up",
    "layers.{}.mlp.down_proj": "blk.{}.ffn_down",
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
}
_GPT2_SHAPES = {
    "h.{}.ln_1.weight": (16,),
    "h.{}.ln_1.bias": (16,),
    "h.{}.ln_2.weight": (16,),
    "h.{}.ln_2.bias": (16,),
    "h.{}.attn.c_attn.weight": (16, 48),
    "h.{}.attn.c_attn.bias": (48,),
    "h.{}.attn.c_proj.weight": (16, 16),
    "h.{}.attn.c_proj.bias": (16,),
    "h.{}.mlp.c_fc.weight": (16, 64),
    "h.{}.mlp.c_fc.bias": (64,),
    "h.{}.mlp.c_proj.weight": (64, 16),
    "h.{}.mlp.c_proj.bias": (16,),
}
_BERT_PARTS = {
    "attention.self.query": (16, 16),
    "attention.self.key": (16, 16),
    "attention.self.value": (16, 16),
    "attention.output.dense": (16, 16),
    "attention.output.LayerNorm": (16,),
    "intermediate.dense": (24, 16),
    "output.dense": (16, 24),
    "output.LayerNorm": (16,),
}

Weights = dict[str, Tensor]


def drawn(shapes: dict[str, tuple[int, ...]], layers: int = 2) -> Weights:
    draw = torch.Generator().manual_seed(0)
    found: Weights = {}
    for name, shape in shapes.items():
        for layer in range(layers) if "{}" in name else (0,):
            found[name.replace("{}", str(layer))] = torch.randn(shape, generator=draw) * 0.3 + (len(shape) == 1)
    return found


def checkpoint(architecture: str, format: str, settings: dict[str, Any], weights: Weights) -> Checkpoint:
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    return Checkpoint(Path("drawn"), architecture, format, settings, shapes, weights.__getitem__)


def llama() -> Weights:
    ends = {"embed_tokens.weight": (31, 16), "norm.weight": (16,), "lm_head.weight": (31, 16)}
    return drawn({**_LLAMA_SHAPES, **ends})


def as_gguf(weights: Weights) -> Weights:
    """The same weights by the names of GGUF, the features of queries and keys in pairs."""
    found: Weights = {}
    for name, weight in weights.items():
        layer = name.split(".")[1] if name.startswith("layers.") else ""
        plain = name.replace(f"layers.{layer}.", "layers.{}.").removesuffix(".weight")
        if plain.endswith(("q_proj", "k_proj")):
            weight = weight.reshape(-1, 2, 2, 16).transpose(1, 2).reshape(weight.shape)
        found[_GGUF_NAMES[plain].replace("{}", layer) + ".weight"] = weight
    return found


def gpt2() -> Weights:
    ends = {"wte.weight": (31, 16), "wpe.weight": (24, 16), "ln_f.weight": (16,), "ln_f.bias": (16,)}
    return drawn({**_GPT2_SHAPES, **ends})


def bert() -> Weights:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (31, 16),
        "embeddings.position_embeddings.weight": (24, 16),
        "embeddings.token_type_embeddings.weight": (2, 16),
        "embeddings.LayerNorm.weight": (16,),
        "embeddings.LayerNorm.bias": (16,),
        "pooler.dense.weight": (16, 16),
    }
    for part, shape in _BERT_PARTS.items():
        shapes[f"encoder.layer.{{}}.{part}.weight"] = shape
        shapes[f"encoder.layer.{{}}.{part}.bias"] = shape[:1]
    return drawn(shapes)


def _heads(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def _together(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def _turned(x: Tensor, base: float) -> Tensor:
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * base ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()), -1)


def llama_logits(w: Weights, tokens: Tensor) -> Tensor:
    def norm(x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (16,), w[f"{name}.weight"], 1e-5)

    x = w["embed_tokens.weight"][tokens]
    for n in range(2):
        at = f"layers.{n}."
        a = norm(x, at + "input_layernorm")
        q, k, v = (_heads(a @ w[f"{at}self_attn.{s}_proj.weight"].T, c) for s, c in (("q", 4), ("k", 2), ("v", 2)))
        q, k = _turned(q, 100.0), _turned(k, 100.0)
        heard = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + _together(heard) @ w[at + "self_attn.o_proj.weight"].T
        c = norm(x, at + "post_attention_layernorm")
        gate = F.silu(c @ w[at + "mlp.gate_proj.weight"].T)
        x = x + (gate * (c @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T
    return norm(x, "norm") @ w.get("lm_head.weight", w["embed_tokens.weight"]).T


def gpt2_logits(w: Weights, tokens: Tensor) -> Tensor:
    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (16,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    for n in range(2):
        q, k, v = (_heads(p, 4) for p in linear(norm(x, f"h.{n}.ln_1"), f"h.{n}.attn.c_attn").chunk(3, -1))
        x = x + linear(_together(F.scaled_dot_product_attention(q, k, v, is_causal=True)), f"h.{n}.attn.c_proj")
        inner = F.gelu(linear(norm(x, f"h.{n}.ln_2"), f"h.{n}.mlp.c_fc"), approximate="tanh")
        x = x + linear(inner, f"h.{n}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def bert_embeddings(w: Weights, tokens: Tensor, present: Tensor) -> Tensor:
    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (16,), w[f"{name}.LayerNorm.weight"], w[f"{name}.LayerNorm.bias"], 1e-12)

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    places = w["embeddings.position_embeddings.weight"][: tokens.shape[1]]
    x = w["embeddings.word_embeddings.weight"][tokens] + places + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings")
    for n in range(2):
        at = f"encoder.layer.{n}."
        q, k, v = (_heads(linear(x, f"{at}attention.self.{s}"), 4) for s in ("query", "key", "value"))
        heard = F.scaled_dot_product_attention(q, k, v, attn_mask=present[:, None, None])
        x = norm(x + linear(_together(heard), at + "attention.output.dense"), at + "attention.output")
        inner = F.gelu(linear(x, at + "intermediate.dense"))
        x = norm(x + linear(inner, at + "output.dense"), at + "output")
    kept = present[..., None].float()
    return F.normalize((x * kept).sum(1) / kept.sum(1), dim=-1)


ByHand = Callable[[Weights, Tensor], Tensor]
DECODERS: dict[str, tuple[Checkpoint, Weights, ByHand]] = {
    "llama": (checkpoint("llama", "safetensors", LLAMA, llama()), llama(), llama_logits),
    "llama of gguf": (checkpoint("llama", "gguf", LLAMA_GGUF, as_gguf(llama())), llama(), llama_logits),
    "gpt2": (checkpoint("gpt2", "safetensors", GPT2, gpt2()), gpt2(), gpt2_logits),
}
ENCODER = checkpoint("bert", "safetensors", BERT, bert())
