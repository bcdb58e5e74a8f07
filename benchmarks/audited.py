"""Audits models of `transformers`, small ones built from their configs, and writes the table of what was found.

    pip install transformers
    python benchmarks/audited.py                    # all models, in every attention setting that they have
    python benchmarks/audited.py llama bart         # some
    python benchmarks/audited.py --write docs/audited.md

Weights are random: a law holds for all of them, or it does not hold.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexical.auditor.reports import Report
from indexical.auditor.whole import audit_model
from indexical.saving import rewrite

# Sizes, by the names that configs have for them.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embed_dim", "dim", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "d_ff", "hidden_dim", "ffn_hidden_size"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    **dict.fromkeys(("max_source_positions", "max_target_positions"), 32),
    **dict.fromkeys(("head_dim", "d_kv", "v_head_dim", "qk_nope_head_dim", "num_mel_bins"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "rotary_dim", "sliding_window"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 24),
    "vocab_size": 99,
    "qk_rope_head_dim": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "num_experts_per_tok": 2,
    "embedding_size": 16,
    "n_shared_experts": 1,
    "type_vocab_size": 2,
    "image_size": 16,
    "patch_size": 8,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 2,
}
_SLIDING = {"layer_types": ["sliding_attention", "full_attention"]}
# What some models need beside that.
BESIDE: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2},
    "gemma2": {"num_key_value_heads": 2, **_SLIDING},
    "gemma3_text": {"num_key_value_heads": 2, **_SLIDING},
    "gpt_oss": {"num_key_value_heads": 2, **_SLIDING},
    "cohere2": {"num_key_value_heads": 2, **_SLIDING},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "deepseek_v2": {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    "deepseek_v3": {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "head_dim": 4},
    "esm": {"mask_token_id": 4, "position_embedding_type": "rotary"},
    "longformer": {"attention_window": [4, 4]},
}
CAUSAL = (
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3_text phi phi3 gpt2 gpt_neo gpt_neox "
    "gptj opt bloom mpt falcon codegen stablelm starcoder2 olmo olmo2 cohere cohere2 granite persimmon glm "
    "gpt_bigcode gpt_oss deepseek_v2 deepseek_v3 smollm3 biogpt xglm"
)
ENCODERS = "bert roberta distilbert albert electra mpnet deberta deberta-v2 xlm-roberta longformer esm modernbert"
BOTH = "bart t5 mbart pegasus marian whisper"
IMAGES = "vit beit dinov2 clip_vision_model siglip_vision_model"
OTHERS = "mamba rwkv jamba"
NAMES = f"{CAUSAL} {ENCODERS} {BOTH} {IMAGES} {OTHERS}".split()
SETTINGS = ("eager", "sdpa")


@dataclass
class Row:
    """A model in one setting: its report, or why it was not built."""

    name: str
    setting: str
    report: Report | None
    seconds: float
    problem: str = ""


def build(name: str, setting: str) -> Any:
    """A small model with random weights; `ValueError` where it does not have the setting."""
    import torch
    import transformers

    kind = transformers.CONFIG_MAPPING[name]
    default = kind()
    sizes = {key: value for key, value in SIZES.items() if key in vars(default)}
    if isinstance(getattr(default, "num_key_value_heads", None), int):
        sizes["num_key_value_heads"] = 4
    config = kind(**{**sizes, **BESIDE.get(name, {})})
    kinds = [transformers.AutoModelForMaskedLM, transformers.AutoModelForSeq2SeqLM]
    kinds += [transformers.AutoModelForSpeechSeq2Seq, transformers.AutoModelForImageClassification]
    if name in f"{CAUSAL} {OTHERS}".split():
        kinds.insert(0, transformers.AutoModelForCausalLM)
    torch.manual_seed(0)
    made = next((each for each in kinds if type(config) in each._model_mapping), transformers.AutoModel)
    return made.from_config(config, attn_implementation=setting)


def audited(names: list[str]) -> Iterator[Row]:
    for name in names:
        for setting in SETTINGS:
            try:
                model = build(name, setting)
            except ValueError as problem:
                if "does not support" not in str(problem):
                    raise
                continue
            started = time.monotonic()
            yield Row(name, setting, audit_model(model), time.monotonic() - started)


def told(row: Row) -> str:
    """One line of the terminal."""
    assert row.report is not None
    report = row.report
    broken = [finding.law for part in (report, *report.parts) for finding in part.findings]
    verdict = f"broken: {', '.join(broken)}" if broken else report.verdict
    inside = "; ".join(f"{part.subject}: {len(part.laws)} laws" for part in report.parts) or "none found"
    return f"{row.name:20} {row.setting:6} {row.seconds:5.1f} s  {verdict}  inside: {inside}"


# ------------------------------------------------------------------------------------------------- the page

_BEGIN, _END = "<!-- audited: begin -->", "<!-- audited: end -->"


def table(rows: list[Row]) -> str:
    """The table of the page: a row for each audit."""
    lines = ["| model | attention | laws of the model | inside: laws of each | verdict | not judged |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        report = row.report
        assert report is not None
        parts = "<br>".join(f"`{_short(part.subject)}` {len(part.laws)}" for part in report.parts) or "none"
        missing = [reason for part in (report, *report.parts) for reason in part.unread]
        broken = [finding.law for part in (report, *report.parts) for finding in part.findings]
        verdict = f"broken: {', '.join(broken)}" if broken else report.verdict
        unread = "<br>".join(dict.fromkeys(missing))
        lines.append(f"| {row.name} | {row.setting} | {', '.join(report.laws)} | {parts} | {verdict} | {unread} |")
    return "\n".join(lines)


def _short(subject: str) -> str:
    return re.sub(r" and (\d+) like it", r" × \1 more", subject)


def write_page(path: Path, rows: list[Row]) -> None:
    """The page with its table replaced."""
    import torch
    import transformers

    import indexical

    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        sys.exit(f"{path} has no place for the table: {_BEGIN} … {_END}")
    versions = f"transformers {transformers.__version__}, PyTorch {torch.__version__.partition('+')[0]}"
    middle = [row.seconds for row in rows]
    count = f"{len({row.name for row in rows})} models, {len(rows)} audits"
    times = f"{sorted(middle)[len(middle) // 2]:.1f} s the median, {max(middle):.1f} s the longest"
    head = f"{count}: {versions}, indexical {indexical.__version__}; {times}."
    rewrite(path, f"{before}{_BEGIN}\n{head}\n\n{table(rows)}\n{_END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--write", type=Path, help="the page whose table is replaced")
    options = parser.parse_args()
    strange = [name for name in options.names if name not in NAMES]
    if strange:
        parser.error(f"{strange[0]} is not among them")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = []
    for row in audited(options.names or NAMES):
        print(told(row), flush=True)
        rows.append(row)
    if options.write is not None:
        write_page(options.write, rows)


if __name__ == "__main__":
    main()
