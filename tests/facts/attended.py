"""Every attention and every layer of the library as a program of its own, and those of the examples: which of them
are causal is said here, so that a test can ask the checker."""

from __future__ import annotations

import re
from pathlib import Path

from indexical.std.library import entries

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# What a scalar parameter is here, and a guard that is a parameter.
SCALARS = {"w": "3", "p": "2", "offset": "1", "cap": "30.0", "eps": "1e-5"}
SPACES = "space batch(b), head(h), group(g), position(i, j), feature(d, e), model(m, l, n), hidden(f);\n"

CAUSAL = (
    "causal_attention window_attention document_attention alibi_attention causal_grouped_query_attention "
    "causal_multi_head_attention causal_sublayer transformer_block"
).split()
# With `allowed` as a causal guard these are causal too.
GUARDED = "guarded_attention biased_attention capped_attention sink_attention guarded_sublayer".split()
# Everybody hears everybody, or the first keys; queries that stand behind their keys hear keys of a later number.
OPEN = (
    "dot_product_attention prefix_attention decoding_attention grouped_query_attention multi_head_attention "
    "cross_attention"
).split()


def library(name: str, allowed: str = "j <= i", spaces: bool = True) -> str:
    """A program around one function of the library; `allowed` stands for its guard where that is a parameter."""
    entry = entries()[name]
    inputs, lets, given = [], [], []
    for parameter in entry.fn.parameters:
        given.append(parameter.name)
        if parameter.slots is None:
            given[-1] = SCALARS[parameter.name]
        elif parameter.name == "allowed":
            key = "j" if "K" in given else "j in 0..size(i)"
            lets.append(f"let allowed[i, {key}] = {allowed};")
        else:
            slots = ", ".join(slot.span.text for slot in parameter.slots).replace("..r", "b")
            dtype = " : i64" if parameter.name == "document" else ""
            inputs.append(f"{parameter.name}[{slots}]{dtype}")
    parts = [
        f"use std::{entry.module}::{{{name}}};",
        SPACES if spaces else "",
        f"input {', '.join(inputs)};",
        *lets,
        f"let out = {name}({', '.join(given)});",
    ]
    return "\n".join(parts)


def causal() -> dict[str, str]:
    """Programs whose output hears nobody after it."""
    found = {f"std/{name}": library(name) for name in (*CAUSAL, *GUARDED)}
    for file in sorted(EXAMPLES.glob("*.ix")):
        text = file.read_text("utf-8")
        if re.search(r"^attention .*\bcausal\b", text, re.MULTILINE | re.DOTALL):
            found[file.stem] = text
    return found


def open_() -> dict[str, str]:
    """Programs whose output hears somebody after it."""
    found = {f"std/{name}": library(name) for name in OPEN}
    for name in GUARDED:
        found[f"std/{name}"] = library(name, "i - j < 3")
    return found
