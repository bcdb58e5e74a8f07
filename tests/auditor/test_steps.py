"""Steps of decoding with a cache apart from what is new: judged as one attention over both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.auditor.layouts import _draw
from tests.auditor.sign_cases import rotated

import indexical as ix

AXES = "q=b h i d, k=b h i d, v=b h i e, past_k=b h t d, past_v=b h t e, out=b h i e"
CAUSAL = {"causal": True, "scale": "1/sqrt(d)"}
ROTARY = {**CAUSAL, "rotary": "half"}


def example(new: int = 2, cached: int = 4) -> dict[str, Any]:
    shapes = {**dict.fromkeys("qkv", (2, 3, new, 4)), **dict.fromkeys(("past_k", "past_v"), (2, 3, cached, 4))}
    return _draw(shapes)


def attend(q: Any, k: Any, v: Any) -> Any:
    n, m = q.shape[2], k.shape[2]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(n, m, dtype=torch.bool).tril(m - n))


def step(
    query: Callable[[int], int] | None = None, key: Callable[[int], int] | None = None, raw: bool = False
) -> Callable[..., Any]:
    """A step whose queries and new keys are rotated from positions that are functions of the cached length."""

    def of(q: Any, k: Any, v: Any, past_k: Any, past_v: Any) -> Any:
        t = past_k.shape[2]
        q = rotated(q, query(t)) if query else q
        k = rotated(k, key(t)) if key and not raw else k
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        return attend(q, rotated(k) if raw else k, v)

    return of


@pytest.mark.sampled(4)
@pytest.mark.parametrize("new", [1, 2])
@pytest.mark.parametrize(
    ("target", "contract"),
    [
        (step(), CAUSAL),
        (step(lambda t: t, lambda t: t), ROTARY),
        (step(lambda t: t, raw=True), ROTARY),
        (step(lambda t: t, lambda t: t), CAUSAL),
        (step(lambda t: t, raw=True), CAUSAL),
    ],
)
def test_a_right_step_is_clean(target: Any, contract: dict[str, Any], new: int) -> None:
    report = ix.audit(target, example(new), AXES, contract)
    assert report.ok, report
    assert not report.unread
    assert ("prefill" in report.laws) == (new > 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("target", "contract", "law", "cause"),
    [
        (step(lambda t: 0, lambda t: 0), ROTARY, "rotary", "from position zero"),
        (step(lambda t: 0, lambda t: 0), CAUSAL, "prefill", "from position zero"),
        (step(lambda t: 0, lambda t: t), ROTARY, "rotary", "from position zero"),
        (step(lambda t: t, lambda t: 0), ROTARY, "rotary", "position"),
        (step(lambda t: t + 1, lambda t: t + 1), ROTARY, "rotary", "off by one"),
        (step(lambda t: t - 1, lambda t: t - 1), ROTARY, "rotary", "off by one"),
        (step(lambda t: 0, raw=True), ROTARY, "rotary", "do not count"),
        (step(lambda t: t + 1, raw=True), ROTARY, "rotary", "position"),
    ],
)
def test_positions_of_a_step_are_those_of_the_full_pass(target: Any, contract: Any, law: str, cause: str) -> None:
    (finding,) = ix.audit(target, example(), AXES, contract).findings
    assert finding.law == law
    assert cause in finding.cause


def _appended(order: str) -> Callable[..., Any]:
    def of(q: Any, k: Any, v: Any, past_k: Any, past_v: Any) -> Any:
        b, h, t, d = past_k.shape
        keys = {
            "new first": lambda: torch.cat([k, past_k], 2),
            "along heads": lambda: torch.cat([x.reshape(b, -1, h, d) for x in (past_k, k)], 1).view(b, h, -1, d),
            "not the cache": lambda: torch.cat([k, k, k], 2)[:, :, : t + k.shape[2]],
            "not what is new": lambda: torch.cat([past_k, past_k[:, :, : k.shape[2]]], 2),
        }[order]()
        return F.scaled_dot_product_attention(q, keys, torch.cat([past_v, v], 2))

    return of


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("order", "law", "cause"),
    [
        ("new first", "score", "different orders"),
        ("along heads", "heads", "another axis"),
        ("not the cache", "dead input", "cached keys are not used"),
        ("not what is new", "dead input", "new keys are not used"),
    ],
)
def test_a_cache_is_appended_to(order: str, law: str, cause: str) -> None:
    report = ix.audit(_appended(order), example(), AXES, {"causal": False, "scale": "1/sqrt(d)"})
    assert report.findings[0].law == law, report
    assert cause in report.findings[0].cause


def test_a_square_mask_is_at_the_wrong_corner() -> None:
    def square(q: Any, k: Any, v: Any, past_k: Any, past_v: Any) -> Any:
        return F.scaled_dot_product_attention(q, torch.cat([past_k, k], 2), torch.cat([past_v, v], 2), is_causal=True)

    (finding,) = ix.audit(square, example(), AXES, CAUSAL).findings
    assert finding.law == "causal"
    assert "corner" in finding.cause


@pytest.mark.sampled(4)
@pytest.mark.parametrize("off", [0, 1])
@pytest.mark.parametrize("place", [4, torch.arange(4, 6), torch.arange(4, 6).repeat(2, 1)])
def test_positions_may_be_an_argument(place: Any, off: int) -> None:
    def at(q: Any, k: Any, v: Any, past_k: Any, past_v: Any, pos: Any) -> Any:
        start = int(pos if isinstance(pos, int) else pos.flatten()[0]) + off
        return step(lambda t: start, lambda t: start)(q, k, v, past_k, past_v)

    report = ix.audit(at, {**example(), "pos": place}, AXES, ROTARY)
    assert [finding.law for finding in report.findings] == ["rotary"] * off, report


def test_tables_of_one_position_leave_rotary_open() -> None:
    angle = 4 * torch.tensor([1.0, 0.01, 1.0, 0.01])

    def by_tables(q: Any, k: Any, v: Any, past_k: Any, past_v: Any, cos: Any, sin: Any) -> Any:
        q, k = (x * cos + torch.cat([-x[..., 2:], x[..., :2]], -1) * sin for x in (q, k))
        return step()(q, k, v, past_k, past_v)

    given = {**example(1), "cos": angle.cos()[None], "sin": angle.sin()[None]}
    report = ix.audit(by_tables, given, AXES, {"rotary": "half"})
    assert report.ok, report
    assert "rotary: `cos` is that of one new position" in report.unread[0]


def test_letters_and_names_of_a_cache_are_free() -> None:
    def named(query: Any, key: Any, value: Any, k_cache: Any, v_cache: Any) -> Any:
        out = step()(query, key, value, k_cache, v_cache)
        return out, torch.cat([k_cache, key], 2), torch.cat([v_cache, value], 2)

    given = dict(zip(("query", "key", "value", "k_cache", "v_cache"), example().values(), strict=True))
    axes = "query=b h t d, key=b h t d, value=b h t d, k_cache=b h s d, v_cache=b h s d, out=b h t d"
    report = ix.audit(named, given, axes, CAUSAL)
    assert report.ok, report
    assert "`s`: cached positions" in report.found["axes"]
