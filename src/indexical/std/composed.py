"""Attention with options: a program composed from what is asked for, guards as relations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .arguments import Argument, declare, dtype_name, program, refuse, scalar, shaped, spread


def attention(
    q: Any,
    k: Any,
    v: Any,
    causal: bool = False,
    window: int | None = None,
    mask: Any = None,
    bias: Any = None,
    documents: Any = None,
    prefix: int | None = None,
    offset: int = 0,
    scale: float | None = None,
    softcap: float | None = None,
    return_weights: bool = False,
) -> Any:
    """Scaled dot-product attention over any leading axes: `q[…, i, d]`, `k[…, j, d]`, `v[…, j, e]` give `[…, i, e]`.

    A query that may hear nobody gathers 0. Leading axes broadcast against each other.

    causal: a query hears keys that are not after it.
    window: it hears keys fewer than `window` steps away; with `causal`, the last `window` up to itself.
    prefix: with `causal` or `window`, the first `prefix` keys are heard by everyone.
    offset: the query `i` stands at position `i + offset` among the keys.
    documents: whole numbers, one a key; a query hears keys of the document that its own position is in.
    mask: Boolean, True where a query may hear; it broadcasts to `[…, i, j]`.
    bias: added to the scores, after `softcap`; it broadcasts to `[…, i, j]`.
    scale: what the scores are multiplied by; `1 / sqrt(d)` where it is not given.
    softcap: scores become `softcap * tanh(scores / softcap)`.
    return_weights: return `(output, weights)`.
    """
    arrays = {"q": shaped("q", q), "k": shaped("k", k), "v": shaped("v", v)}
    _check_operands(arrays)
    rank = max(len(array.shape) for array in arrays.values()) - 2
    _check_whole("window", window, 1)
    _check_whole("prefix", prefix, 0)
    _check_whole("offset", offset, 0)
    if mask is not None:
        arrays["mask"] = _mask(mask, rank)
    if bias is not None:
        arrays["bias"] = _bias(bias, rank)
    if documents is not None:
        arrays["documents"] = _documents(documents, rank, len_of(arrays["q"]), len_of(arrays["k"]), offset)
    if prefix is not None and not causal and window is None:
        refuse("`prefix` has no effect without `causal` or `window`: every key is heard already")
    if offset and not causal and window is None and documents is None:
        refuse("`offset` has no effect without `causal`, `window` or `documents`: nothing asks where a query stands")
    numbers: dict[str, Any] = {"offset": offset or None, "window": window, "prefix": prefix}
    numbers |= {"scale": _real("scale", scale), "softcap": _real("softcap", softcap)}
    if softcap is not None and not softcap > 0:
        refuse(f"`softcap` must be above 0, and is {softcap}")
    arguments = _inputs(arrays, rank)
    operands = [arrays["q"], arrays["k"], arrays["v"]]
    arguments |= {name: scalar(name, value, operands) for name, value in numbers.items() if value is not None}
    text = _text(arguments, _leading(rank), bool(causal))
    values = (argument.value for argument in arguments.values())
    if not return_weights:
        return program(text)(*values, outputs="out")
    return tuple(program(text)(*values, outputs=("out", "weights")))


def len_of(array: Any) -> int:
    """How many positions a row has."""
    return int(array.shape[-2])


# ------------------------------------------------------------------ validation


def _check_operands(arrays: Mapping[str, Any]) -> None:
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    for name, shape in shapes.items():
        if len(shape) < 2:
            refuse(f"`{name}` needs at least 2 axes, positions and features, and its shape is {shape}")
    q, k, v = shapes["q"], shapes["k"], shapes["v"]
    if q[-1] != k[-1]:
        refuse(f"`q` has {q[-1]} features to compare and `k` has {k[-1]}", f"the shapes are {q} and {k}")
    if k[-2] != v[-2]:
        refuse(f"`k` has {k[-2]} positions and `v` has {v[-2]}", f"the shapes are {k} and {v}")
    if len(q) > 2 and len(k) > 2 and 1 < k[-3] < q[-3] and q[-3] % k[-3] == 0:
        refuse(f"`q` has {q[-3]} heads and `k` has {k[-3]}", "for groups of heads, see `ix.std.grouped_query_attention`")


def _check_whole(name: str, value: Any, least: int) -> None:
    if value is None and name != "offset":
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        refuse(f"`{name}` must be a whole number, and is {value!r}")
    if value < least:
        refuse(f"`{name}` must be at least {least}, and is {value}")


def _real(name: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        refuse(f"`{name}` must be a number, and is {value!r}")
    return float(value)


def _mask(value: Any, rank: int) -> Any:
    array = shaped("mask", value)
    if dtype_name(array) != "bool":
        hint = "True where a query may hear a key; to add to the scores, pass `bias`"
        refuse(f"`mask` must be Boolean, and is an array of {dtype_name(array)}", hint)
    return _fit("mask", array, rank)


def _bias(value: Any, rank: int) -> Any:
    array = shaped("bias", value)
    if dtype_name(array) == "bool":
        refuse("`bias` must be real, and is an array of bool", "to say who may hear whom, pass `mask`")
    return _fit("bias", array, rank)


def _fit(name: str, array: Any, rank: int) -> Any:
    if len(array.shape) > rank + 2:
        refuse(f"`{name}` has {len(array.shape)} axes, and the scores have {rank + 2}")
    return array


def _documents(value: Any, rank: int, queries: int, keys: int, offset: int) -> Any:
    array = shaped("documents", value)
    shape = tuple(array.shape)
    if not dtype_name(array).startswith(("int", "uint")):
        refuse(f"`documents` must be whole numbers, and is an array of {dtype_name(array)}")
    if len(shape) not in (1, rank + 1) or shape[-1] != keys:
        example = (*(1,) * rank, keys)
        refuse(
            f"`documents` has the shape {shape}, and there are {keys} keys and {rank} leading axes",
            f"give one number a key, {(keys,)}, or leading axes too, like {example}",
        )
    if queries + offset > keys:
        refuse(
            f"the last query stands at position {queries + offset - 1}, and `documents` ends at {keys - 1}",
            "queries are looked up among the keys, at `i + offset`",
        )
    return array


# ------------------------------------------------------------------------ text


def _leading(rank: int) -> list[str]:
    """Names for leading axes: `b`, then `b, h`, then more batches before them."""
    return [["b"], ["h"]][rank == 0 : 0] if rank == 0 else [*(f"b{n}" for n in range(rank - 2)), "b", "h"][-rank:]


def _inputs(arrays: Mapping[str, Any], rank: int) -> dict[str, Argument]:
    """Every array with its coordinates. What has one point of an axis where others have more does not mention it."""
    leading = _leading(rank)
    places = {"q": "id", "k": "jd", "v": "je", "mask": "ij", "bias": "ij", "documents": "j"}
    whole: dict[str, Any] = {}
    for name, array in arrays.items():
        own = len(places[name])
        shape = tuple(array.shape)
        whole[name] = np.empty(shape[: max(0, len(shape) - own)], dtype=np.bool_)
    return {} if not leading and not whole else {}


def _text(arguments: Mapping[str, Argument], leading: list[str], causal: bool) -> str:
    return ""
