"""An audit leaves what it audited as it was: tables kept from a call, buffers, attributes, modes, hooks, its output."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest

import indexical as ix

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional


def angles(length: int, width: int, dtype: Any) -> Any:
    turns = torch.arange(length, dtype=dtype)[:, None] / 1e4 ** (torch.arange(0, width, 2) / width)
    return torch.cat([turns, turns], -1)


@functools.lru_cache
def shared_tables(length: int, width: int) -> Any:
    return angles(length, width, torch.float32).cos(), angles(length, width, torch.float32).sin()


TABLES: dict[int, Any] = {}


class Attention(nn.Module):
    """A causal attention with rotary positions, whose tables are kept by a subclass in some way."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
        self.drop = nn.Dropout(0.1)

    def tables(self, x: Any) -> Any:
        turns = angles(8, 4, torch.float32).to(x.dtype)
        return turns.cos(), turns.sin()

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        cos, sin = self.tables(x)
        q, k = (y * cos[:t] + torch.cat([-y[..., 2:], y[..., :2]], -1) * sin[:t] for y in (q, k))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(self.drop(out.transpose(1, 2).reshape(b, t, 8)))


class InAttributes(Attention):
    cos: Any = None
    sin: Any = None

    def tables(self, x: Any) -> Any:
        if self.cos is None:
            self.cos, self.sin = super().tables(x)
        return self.cos, self.sin


class InBuffers(Attention):
    def tables(self, x: Any) -> Any:
        if "cos" not in self._buffers:
            for name, table in zip(("cos", "sin"), super().tables(x), strict=True):
                self.register_buffer(name, table, persistent=False)
        return self.cos, self.sin


class InDict(Attention):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[Any, Any] = {}

    def tables(self, x: Any) -> Any:
        if x.shape[1] not in self.kept:
            self.kept[x.shape[1]] = super().tables(x)
        return self.kept[x.shape[1]]


class InGlobal(Attention):
    def tables(self, x: Any) -> Any:
        if x.shape[1] not in TABLES:
            TABLES[x.shape[1]] = super().tables(x)
        return TABLES[x.shape[1]]


class InFunction(Attention):
    def tables(self, x: Any) -> Any:
        return shared_tables(x.shape[1], 4)


class Written(Attention):
    """Counts its calls, in a buffer and in an attribute, and keeps its last input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.last, self.count = torch.zeros(5), 0

    def tables(self, x: Any) -> Any:
        self.calls += 1
        self.count += 1
        self.last[: x.shape[1]] = x[0, :, 0].to(self.last.dtype)
        return super().tables(x)


def patched() -> Any:
    """A module whose forward is a function that knows it, as where a library puts its own in."""
    module = InAttributes()
    whole = module.forward
    module.forward = lambda x: whole(x)
    return module


def closed() -> Any:
    """A function that closes over a module."""
    module = InAttributes().eval()

    def attend(x: Any) -> Any:
        return module(x)

    attend.module = module  # type: ignore[attr-defined]
    return attend


def hooked() -> Any:
    module = InDict()
    module.out.register_forward_hook(lambda part, given, out: out * 2)
    return module


def frozen() -> Any:
    module = InBuffers().to(torch.bfloat16)
    module.qkv.weight.requires_grad_(False)
    return module.train()


MAKERS: dict[str, Callable[[], Any]] = {
    **{kind.__name__: kind for kind in (Attention, InAttributes, InBuffers, InDict, InGlobal, InFunction, Written)},
    **{make.__name__: make for make in (patched, closed, hooked, frozen)},
}


def state(target: Any) -> dict[str, Any]:
    """All that can be seen of a module without calling it."""
    module = getattr(target, "module", target)
    found: dict[str, Any] = {"tables": sorted(TABLES)}
    for name, part in module.named_modules():
        found[f"{name} training"] = part.training
        found[f"{name} hooks"] = (len(part._forward_hooks), len(part._forward_pre_hooks))
        found[f"{name} attributes"] = sorted(vars(part))
        for key, value in {**vars(part), **part._buffers, **part._parameters}.items():
            if isinstance(value, torch.Tensor):
                found[f"{name}.{key}"] = (value.dtype, value.requires_grad, value.detach().clone())
            elif isinstance(value, int | dict) and not key.startswith("_"):
                found[f"{name}.{key}"] = copy.deepcopy(value)
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("called", [False, True], ids=("new", "called before"))
@pytest.mark.parametrize("name", MAKERS)
def test_an_audit_leaves_what_it_audited_as_it_was(name: str, called: bool) -> None:
    torch.manual_seed(0)
    target = MAKERS[name]()
    kind = next((p.dtype for p in target.parameters()), None) if isinstance(target, nn.Module) else torch.float32
    example = {"x": torch.randn(2, 5, 8, dtype=kind)}
    other = torch.randn(1, 3, 8, dtype=kind)
    TABLES.clear()
    shared_tables.cache_clear()
    expected = copy.deepcopy(getattr(target, "module", target)).eval()(other) if name != "patched" else None
    TABLES.clear()
    shared_tables.cache_clear()
    if called:
        target(other)
    before = state(target)
    report = ix.audit(target, example, "x=b i c, out=b i c", {"causal": True, "heads": 2, "rotary": "half"})
    assert report.ok, report
    report.proved  # noqa: B018
    after = state(target)
    assert {key for key in {*before, *after} if not same(before.get(key), after.get(key))} == set()
    if isinstance(target, nn.Module):
        target.eval()
    out = target(other)
    assert out.dtype == other.dtype
    assert expected is None or torch.equal(out, expected)
