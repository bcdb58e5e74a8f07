"""Numerics: how far fewer digits are from the exact value, and where they overflow or lose a mask."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from .access import Direct
from .calling import Foreign, Unusable, _is_patched, _module
from .inquiry import Inquiry, number
from .models import fit_scale
from .observing import observe

# Significant bits, the exponent of the smallest number that has them all, and the largest number.
_KINDS = {
    "float32": (24, -126, float(np.finfo(np.float32).max)),
    "float16": (11, -14, 65504.0),
    "bfloat16": (8, -126, (2 - 2.0**-7) * 2.0**127),
}
_LEVELS = (10.0, 100.0, 1e3, 1e4, 6e4, 1e6)
_MIXED = "in mixed precision (autocast): "


def at_precision(foreign: Foreign, kind: str, mixed: bool = False) -> Foreign | None:
    """The same callable in fewer digits; None where its arrays have none such. What a module keeps in another precision
    than most of its numbers stays so. `mixed` is as PyTorch's autocast runs it, with numbers of single precision."""
    module = _module(foreign.original)
    if foreign.kind != "torch" and (kind == "bfloat16" or mixed):
        return None
    if module is not None and _is_patched(module):
        return None  # What was put into it computes with the module itself, and not with a copy.
    other = copy.copy(foreign)
    other.real = "float32" if mixed else kind
    if module is not None:
        other.target = _narrowed(foreign.target, module, other.real)
    if mixed:
        other.target = _under_autocast(other.target, kind)
    return other


def _narrowed(target: Any, original: Any, kind: str) -> Any:
    import torch

    kinds = {
        name: value.dtype
        for name, value in (*original.named_parameters(), *original.named_buffers())
        if value.is_floating_point()
    }
    usual = Counter(kinds.values()).most_common(1)[0][0] if kinds else None
    other = copy.deepcopy(target).to(getattr(torch, kind))
    for name, value in (*other.named_parameters(), *other.named_buffers()):
        kept = kinds.get(name, usual)
        if kept not in (usual, None, torch.float64):
            value.data = value.data.to(kept)
    return other


def _under_autocast(target: Any, kind: str) -> Any:
    import torch

    def call(*arguments: Any, **named: Any) -> Any:
        with torch.autocast("cpu", getattr(torch, kind)):
            return target(*arguments, **named)

    return call


def rounded(array: Any, kind: str) -> Any:
    """An array of doubles, each the nearest finite number of the kind: a mask whose numbers are the least of another
    kind has the least of this one."""
    if array.dtype.kind != "f":
        return array
    most = _KINDS[kind][2]
    array = np.where(np.isfinite(array), np.clip(array, -most, most), array)
    if kind != "bfloat16":
        return array.astype(kind).astype(np.float64)
    bits = array.astype(np.float32).view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return kept.view(np.float32).astype(np.float64)


def tell_accuracy(foreign: Foreign, arrays: Mapping[str, Any], found: dict[str, str]) -> None:
    """The error of each kind of number in units in its last place. The truth is the same callable in doubles."""
    for kind, (bits, least, _) in _KINDS.items():
        if not foreign.precise:
            continue
        given = {
            name: rounded(np.asarray(value), kind) if hasattr(value, "dtype") else value
            for name, value in arrays.items()
        }
        try:
            seen, words = _seen(foreign, kind, given)
            true = foreign(given)
        except Unusable as problem:
            found[kind] = f"does not run: {problem.message}"
            continue
        if seen is None:
            continue
        finite = np.isfinite(true)
        if not np.isfinite(seen[finite]).all():
            found[kind] = f"{words}overflows on ordinary inputs"
            continue
        size = np.maximum(np.abs(true[finite]), 2.0**least)
        unit = 2.0 ** (np.floor(np.log2(size)) - bits + 1)
        error = np.abs(seen[finite] - true[finite]) / unit
        if error.size:
            usual, most = (number(float(f"{value:.2g}")) for value in (np.median(error), error.max()))
            found[kind] = f"{words}{usual} units in the last place from the exact value, {most} at most"


def _seen(foreign: Foreign, kind: str, given: Mapping[str, Any]) -> tuple[Any, str]:
    """The output in fewer digits, of a module in mixed precision where it does not run otherwise; and which it is."""
    other = at_precision(foreign, kind)
    if other is None:
        return None, ""
    try:
        return other(given), ""
    except Unusable:
        mixed = at_precision(foreign, kind, mixed=True) if kind != "float32" else None
        if mixed is None or _module(foreign.original) is None:
            raise
        try:
            return mixed(given), _MIXED
        except Unusable:
            pass
        raise


def tell_limits(inquiry: Inquiry) -> None:
    """From which scores on fewer digits give NaN or infinity, or hear what is masked."""
    access = inquiry.access
    if type(access) is not Direct or access.count["out"] * access.I * access.J > 4096:
        return
    draws = [observe(access, *inquiry.inputs()[:2], inquiry.settings.plain(), False)]
    scale, left = fit_scale(access, draws, 0.0, within=inquiry.settings.declared)
    if left > 0.3 or not np.isfinite(scale).any() or not np.nanmedian(np.abs(scale)) > 0:
        return
    for kind in ("float16", "bfloat16"):
        other = at_precision(access.foreign, kind, inquiry.found.get(kind, "").startswith(_MIXED))
        if other is None or not inquiry.found.get(kind, "does").endswith("at most"):
            continue
        twin = copy.copy(access)
        twin.foreign = other
        words = _first(twin, inquiry, float(np.nanmedian(np.abs(scale))))
        inquiry.found[kind] += f"; {words}"


def _first(access: Direct, inquiry: Inquiry, scale: float) -> str:
    direction = np.random.default_rng(2).normal(size=access.D)
    direction /= np.linalg.norm(direction)
    setting = inquiry.settings.plain()
    allowed = inquiry.settings.declared(setting)
    row = next((query for query in range(access.I) if allowed[0, query].any() and not allowed[0, query].all()), 0)
    signs = np.where(allowed[0, row], -1.0, 1.0)
    masked = bool((~allowed[0, row]).any())
    if not masked:
        signs = np.where(np.arange(access.J) % 2, 1.0, -1.0)
    for level in _LEVELS:
        size = math.sqrt(level / scale)
        q = np.broadcast_to(direction * size, access.shape("q"))
        k = np.broadcast_to(signs[None, :, None] * direction * size, access.shape("k"))
        v = np.zeros(access.shape("v"))
        v[:, ~allowed[0, row] if masked else slice(None)] = 1.0
        try:
            out = access.forward(q, k, v, setting.arrays)
        except Unusable:
            return "not tested at large scores"
        if not np.isfinite(out[0, row]).all():
            return f"NaN or infinite when scores reach {level:g}"
        if masked and np.abs(out[0, row]).max() > 1e-3:
            return f"the mask is lost when scores reach {level:g}"
    return f"holds up to scores of {_LEVELS[-1]:g}"
