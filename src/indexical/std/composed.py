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
    _check_positions(causal, window, prefix, offset, documents)
    leading = _leading(max(len(array.shape) for array in arrays.values()) - 2)
    scores = (arrays["q"].shape[-2], arrays["k"].shape[-2], len(leading))
    if mask is not None:
        arrays["mask"] = _mask(shaped("mask", mask), *scores)
    if bias is not None:
        arrays["bias"] = _bias(shaped("bias", bias), *scores)
    if documents is not None:
        arrays["documents"] = _documents(shaped("documents", documents), *scores, offset)
    homes = {name: (*leading, *own) for name, own in _OWN.items()}
    arguments = {
        name: Argument(name, axes, "i64" if name == "documents" else "", array)
        for name, (axes, array) in spread(arrays, homes).items()
    }
    # A row of documents has a point for each key: a query that counts its own points must be looked up by position.
    placed = offset or (documents is not None and scores[0] != scores[1])
    numbers: dict[str, Any] = {"offset": offset if placed else None, "window": window, "prefix": prefix}
    numbers |= {"scale": _real("scale", scale), "softcap": _real("softcap", softcap)}
    arguments |= {name: scalar(name, value) for name, value in numbers.items() if value is not None}
    compiled = program(_text(arguments, leading, causal))
    values = [argument.value for argument in arguments.values()]
    if return_weights:
        return tuple(compiled(*values, outputs=("out", "weights")))
    return compiled(*values, outputs="out")


# The coordinates of each array, behind the leading ones.
_OWN = {"q": "id", "k": "jd", "v": "je", "mask": "ij", "bias": "ij", "documents": "j"}


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
        hint = "for groups of heads, see `ix.std.grouped_query_attention`"
        refuse(f"`q` has {q[-3]} heads and `k` has {k[-3]}", hint)


def _check_positions(causal: Any, window: Any, prefix: Any, offset: Any, documents: Any) -> None:
    """The options that say where queries and keys stand; one that would do nothing is refused."""
    if not isinstance(causal, bool | np.bool_):
        refuse(f"`causal` must be True or False, and is {causal!r}")
    for name, value, least in (("window", window, 1), ("prefix", prefix, 0), ("offset", offset, 0)):
        if value is None and name != "offset":
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            refuse(f"`{name}` must be a whole number, and is {value!r}")
        if value < least:
            refuse(f"`{name}` must be at least {least}, and is {value}")
    if prefix is not None and not causal and window is None:
        refuse("`prefix` does nothing without `causal` or `window`: every key is heard already")
    if offset and not causal and window is None and documents is None:
        refuse("`offset` does nothing without `causal`, `window` or `documents`: nothing asks where a query stands")


def _real(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        refuse(f"`{name}` must be a number, and is {value!r}")
    if name == "softcap" and not value > 0:
        refuse(f"`softcap` must be above 0, and is {value}")
    return float(value)


def _mask(array: Any, queries: int, keys: int, rank: int) -> Any:
    if dtype_name(array) != "bool":
        hint = "True where a query may hear a key; to add to the scores, pass `bias`"
        refuse(f"`mask` must be Boolean, and is an array of {dtype_name(array)}", hint)
    return _fitting("mask", array, queries, keys, rank)


def _bias(array: Any, queries: int, keys: int, rank: int) -> Any:
    if dtype_name(array) == "bool":
        refuse("`bias` must be real, and is an array of bool", "to say who may hear whom, pass `mask`")
    return _fitting("bias", array, queries, keys, rank)


def _fitting(name: str, array: Any, queries: int, keys: int, rank: int) -> Any:
    """An array that broadcasts to the scores; queries and keys are counted by `q` and `k` alone."""
    shape = tuple(array.shape)
    fits = all(size in (1, wanted) for size, wanted in zip(shape[::-1], (keys, queries), strict=False))
    if len(shape) > rank + 2 or not fits:
        wanted = ", ".join((*_leading(rank), str(queries), str(keys)))
        refuse(f"`{name}` has the shape {shape}, which does not fit the scores' ({wanted})", "1 fits any size")
    return array


def _documents(array: Any, queries: int, keys: int, rank: int, offset: int) -> Any:
    shape = tuple(array.shape)
    if not dtype_name(array).startswith(("int", "uint")):
        refuse(f"`documents` must be whole numbers, and is an array of {dtype_name(array)}")
    if len(shape) not in (1, rank + 1) or shape[-1] != keys:
        example = f"({', '.join((*('1',) * rank, str(keys)))})"
        hint = f"give one number a key, ({keys},)" + (f", or leading axes too, like {example}" if rank else "")
        refuse(f"`documents` has the shape {shape}, and there are {keys} keys and {rank} leading axes", hint)
    if queries + offset > keys:
        message = f"the last query stands at position {queries + offset - 1}, and `documents` ends at {keys - 1}"
        refuse(message, "queries are looked up among the keys, at `i + offset`")
    return array


# ------------------------------------------------------------------------ text


def _leading(rank: int) -> tuple[str, ...]:
    """Names for leading axes: `h`, then `b, h`, then more batches before them."""
    batches = [f"b{number}" for number in range(rank - 2)]
    return (*batches, *("b", "h")[max(0, 2 - rank) :])


def _text(arguments: Mapping[str, Argument], leading: tuple[str, ...], causal: bool) -> str:
    """The program: scores, weights, output."""
    scores, weights, out = (f"{name}[{', '.join((*leading, *own))}]" for name, own in _DEFINITIONS)
    score = f"sum[d]({arguments['q'].read} * {arguments['k'].read})"
    score += " * scale" if "scale" in arguments else " / sqrt(size(d))"
    if "softcap" in arguments:
        score = f"softcap * tanh({score} / softcap)"
    if "bias" in arguments:
        score += f" + {arguments['bias'].read}"
    guards = _guards(arguments, causal)
    where = f" where {', '.join(guards)}" if guards else ""
    return (
        f"{declare(arguments.values())}\n"
        f"let {scores} = {score};\n"
        f"let {weights} = softmax[j]({scores}{where});\n"
        f"let {out} = sum[j]({weights} * {arguments['v'].read});\n"
    )


_DEFINITIONS = (("scores", "ij"), ("weights", "ij"), ("out", "ie"))


def _guards(arguments: Mapping[str, Argument], causal: bool) -> list[str]:
    """The mask of which keys a query may attend to: relations that must all hold."""
    here = "i + offset" if "offset" in arguments else "i"
    last = f"j <= {here}" if causal else f"j < {here} + window"
    near = f"{here} - window < {last}" if "window" in arguments else last if causal else ""
    guards = [f"j < prefix || {near}" if "prefix" in arguments else near] if near else []
    if "documents" in arguments:
        *batch, _ = arguments["documents"].axes
        mine, theirs = (f"documents[{', '.join((*batch, place))}]" for place in (here, "j"))
        guards.append(f"{mine} == {theirs}")
    if "mask" in arguments:
        guards.append(arguments["mask"].read)
    return guards
