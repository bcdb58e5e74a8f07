"""A language model beside `transformers` with its cache, and beside llama.cpp where that is installed.

    python benchmarks/model.py SmolLM2-135M-Instruct.Q4_1.gguf
    python benchmarks/model.py model/ --prompt 64,256 --tokens 32 --json model.json
    python benchmarks/model.py model.gguf --cpu

Both compute in float32 on the CPU, in one process and in turn. `prefill` is a prompt up to the logits of its last
position, `tokens` are single steps behind it; a ratio is ours ÷ theirs, of medians. llama.cpp computes with the weights
as they are in the file (four bits, where these are four), which is the point of it: it is no like for like, and stands
there to say what is possible.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, logging

import indexical as ix

logging.set_verbosity_error()
logging.disable_progress_bar()


# Seconds that pass; with `--cpu`, those that this process computes.
clock = perf_counter


def their_model(file: Path) -> Any:
    where, named = (file.parent, {"gguf_file": file.name}) if file.suffix == ".gguf" else (file, {})
    return AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, **named).eval()


class Ours:
    def __init__(self, model: ix.models.Model, room: int) -> None:
        self.decoding, self.room = model.decoding, room
        self.state: Any = None

    def prefill(self, tokens: torch.Tensor) -> torch.Tensor:
        logits, self.state = self.decoding.begin(tokens, tokens.shape[1] + self.room)
        return logits

    def step(self, token: torch.Tensor) -> torch.Tensor:
        logits, self.state = self.decoding.go_on(token, self.state)
        return logits


class Theirs:
    def __init__(self, model: Any) -> None:
        self.model = model
        self.cache: Any = None

    @torch.no_grad()
    def prefill(self, tokens: torch.Tensor) -> torch.Tensor:
        found = self.model(tokens, use_cache=True, logits_to_keep=1)
        self.cache = found.past_key_values
        return found.logits[:, -1]

    @torch.no_grad()
    def step(self, token: torch.Tensor) -> torch.Tensor:
        found = self.model(token, past_key_values=self.cache, use_cache=True)
        self.cache = found.past_key_values
        return found.logits[:, -1]


def timed(call: Callable[[], Any]) -> float:
    started = clock()
    call()
    return clock() - started


def measure(contestants: dict[str, Any], tokens: torch.Tensor, count: int, rounds: int) -> dict[str, float]:
    """Seconds of a prefill and of a step, for each."""
    prefills: dict[str, list[float]] = {name: [] for name in contestants}
    steps: dict[str, list[float]] = {name: [] for name in contestants}
    logits = {name: each.prefill(tokens) for name, each in contestants.items()}
    torch.testing.assert_close(logits["ours"], logits["theirs"], atol=2e-4, rtol=2e-4)
    for name, each in contestants.items():
        each.step(logits[name].argmax(-1, keepdim=True))
    for turn in range(rounds):
        # Each is first in every other round: whoever follows finds the other's weights in the caches.
        ordered = list(contestants.items())[:: -1 if turn % 2 else 1]
        for name, each in ordered:
            prefills[name].append(timed(lambda each=each: each.prefill(tokens)))
        for _ in range(count):
            for name, each in ordered:
                steps[name].append(timed(lambda each=each: each.step(tokens[:, :1])))
    found = {}
    for name in contestants:
        found[f"{name} prefill ms"] = median(prefills[name]) * 1e3
        found[f"{name} tokens/s"] = 1 / median(steps[name])
    found["prefill ratio"] = median(prefills["ours"]) / median(prefills["theirs"])
    found["step ratio"] = median(steps["ours"]) / median(steps["theirs"])
    return found


def llama_cpp_speed(file: Path, tokens: list[int], count: int) -> dict[str, float]:
    """The same of llama.cpp, on its own."""
    try:
        import llama_cpp
    except ImportError:
        return {}
    model = llama_cpp.Llama(str(file), n_ctx=len(tokens) + count + 8, n_threads=torch.get_num_threads(), verbose=False)
    model.eval(tokens)
    prefills, steps = [], []
    for _ in range(3):
        model.reset()
        prefills.append(timed(lambda: model.eval(tokens)))
        steps += [timed(lambda: model.eval(tokens[:1])) for _ in range(count)]
    return {"llama.cpp prefill ms": median(prefills) * 1e3, "llama.cpp tokens/s": 1 / median(steps)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompt", default="32,256", help="lengths of prompts")
    parser.add_argument("--tokens", type=int, default=32, help="steps behind each prompt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu", action="store_true", help="one thread, in CPU seconds: for a machine that others use")
    options = parser.parse_args()
    if options.cpu:
        global clock
        clock = process_time
        torch.set_num_threads(1)
    started = perf_counter()
    model = ix.models.load(options.model)
    print(f"{model}\nloaded in {perf_counter() - started:.1f} s, {torch.get_num_threads()} threads")
    theirs = their_model(options.model)
    rows = []
    for length in map(int, options.prompt.split(",")):
        tokens = torch.randint(0, model.sizes["v"], (1, length), generator=torch.Generator().manual_seed(0))
        contestants = {"ours": Ours(model, options.tokens + 8), "theirs": Theirs(theirs)}
        row = {"prompt": length, **measure(contestants, tokens, options.tokens, options.rounds)}
        if options.model.suffix == ".gguf":
            row |= llama_cpp_speed(options.model, tokens[0].tolist(), options.tokens)
        rows.append(row)
        print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
