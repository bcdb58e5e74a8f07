"""A program that is split over a mesh gives what the whole program gives, sends what its plan says, and says what it
cannot do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.programs import random_case
from tests.sharding import cases
from tests.variants import roster

import indexical as ix
from indexical.run import store
from indexical.sharding.moving import _waiting

ATTENTION = """
space head(h), position(i, j), feature(d, e);
input Q[h, i, d], K[h, j, d], V[h, j, e];
let weights[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d])) where j <= i;
let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);
"""

# ------------------------------------------------------------------------------- the same as the whole


def _checked(case: cases.Case) -> None:
    cases.check(case, ix.shard(case.program, dict(case.mesh), **case.options))


@pytest.fixture(scope="module", autouse=True)
def _kept_texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The parts of a program are the same on many meshes: each is planned and emitted once, also where processes run
    these tests side by side, whose folders lie in one."""
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IX_CACHE", str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kept parts"))
        patch.setattr(store, "MOST_ENTRIES", cases.MOST_TEXTS)
        yield


def splits() -> Iterator[tuple[str, int, str]]:
    """Every variant on two ranks and on four, and with each option on one of these: by turns, so that the catalogue has
    every option on both."""
    for turn, name in enumerate(roster.NAMES):
        yield from ((name, ranks, "") for ranks in (2, 4))
        for at, option in enumerate(("heads", "balanced", "parameters")):
            yield name, (2, 4)[(turn + at) % 2], option


@pytest.mark.sampled(160)
@pytest.mark.parametrize(("name", "ranks", "option"), [*splits()])
def test_every_variant_is_the_same_on_several_ranks(name: str, ranks: int, option: str) -> None:
    case = cases.case_of(name, ranks, [option])
    if option == "heads" and "tensor" not in case.mesh:
        return  # It has none, and is split as without the option.
    _checked(case)


def test_one_rank_sends_nothing() -> None:
    case = cases.case_of("causal", 1, [])
    spread = ix.shard(case.program, {"context": 1}, **case.options)
    cases.check(case, spread)
    assert not any(spread.carrier.sent.values())


WAYS = {
    # A sum over a split coordinate, whose result is split by another: each rank keeps its part of the total.
    "reduce and scatter": (
        "space wide(n, m); input x[b, n], W[n, m]; let out[b, m] = sum[n](x[b, n] * W[n, m]);",
        {"n": "tensor"},
    ),
    # A window reads some rows of the neighbours, and no more.
    "rows of others": (
        "input x[t, c], w[k in 0..3, c]; let y[t in 0..size(t) - 2, c] = sum[k in 0..3](x[t + k, c] * w[k, c]);",
        {"t": "context"},
    ),
    "total": ("input x[i, d]; let out[d] = max[i](x[i, d]) + mean[i](x[i, d]);", {"i": "context"}),
    "state": (
        "input x[t]; let y[0] = x[0]; let y[1] = x[1]; let y[t in 2..size(t)] = 0.5 * y[t - 1] * y[t - 2] + x[t];",
        {"t": "context"},
    ),
    "gather": ("input x[i], place[i] : i64; let out[i] = x[place[i]] * i;", {"i": "context"}),
}


@pytest.mark.parametrize("how", WAYS)
def test_ways_to_send(how: str) -> None:
    text, options = WAYS[how]
    program = ix.compile(text)
    torch.manual_seed(1)
    sizes = {"b": 3, "n": 6, "m": 6, "k": 4, "t": 9, "c": 2, "i": 7, "d": 3}
    arrays = {}
    for tensor in program._program.inputs:
        shape = [
            3 if how == "rows of others" and a.coordinate == "k" else sizes[a.coordinate.name] for a in tensor.axes
        ]
        whole = tensor.kind == "whole"
        arrays[tensor.name] = torch.randint(7, shape) if whole else torch.randn(shape, requires_grad=True)
    case = cases.Case(program, arrays, dict.fromkeys(options.values(), 3), options)
    spread = ix.shard(program, case.mesh, **options)
    cases.check(case, spread)
    assert how in {one.how for one in case.planned(spread).sent}


UNEVEN = {
    # Some blocks of queries have no values to hear: their ring goes on without them.
    "ring without values": ("attention_free", {"e": 5}, {"a": 2, "c": 2}, {"e": "a", "i": "c", "balanced": "a"}),
    # It sums over `size(x) / 2` points.
    "part of an axis": ("reduced_keys", {}, {"a": 2}, {"x": "a", "y": "a", "balanced": "a"}),
    # The first block is sent the keys that its queries hear, and computes with no more of them.
    "fewer keys than there are": ("linear", {}, {"a": 2}, {"i": "a", "balanced": "a"}),
    "one point for two ranks": ("retention", {"j": 1}, {"c": 2}, {"j": "c", "balanced": "c"}),
}


@pytest.mark.parametrize("what", UNEVEN)
def test_uneven_and_empty_blocks(what: str) -> None:
    name, sizes, mesh, options = UNEVEN[what]
    _checked(cases.Case(roster.compiled(name), roster.arrays(name, sizes), mesh, options))


@pytest.mark.parametrize("rows", [1, 5])
def test_a_state_whose_clauses_measure_an_axis_apart(rows: int) -> None:
    """`d` is as long as in `x` in the first clause, and as in `M` in the second: the larger of two numbers."""
    text = (
        "input x[b, i, d], M[d, e]; let y[b, 0, d] = x[b, 0, d];"
        "let y[b, i in 1..size(i), d] = tanh(sum[e](M[e, d] * y[b, i - 1, e])) + x[b, i, d];"
    )
    arrays = {"x": torch.randn(2, rows, 3, requires_grad=True), "M": torch.randn(3, 3, requires_grad=True)}
    _checked(cases.Case(ix.compile(text), arrays, {"context": 2}, {"i": "context"}))


@pytest.mark.parametrize("scan", ["cumsum", "cumprod", "cummax"])
def test_a_scan_is_that_of_no_points_where_its_guard_fails(scan: str) -> None:
    text = f"input x[i, d], keep[i] : bool; let y[i, d] = tanh({scan}[i](x[i, d] where keep[i]));"
    keep = torch.tensor([True, False, True, True, False])
    arrays = {"x": torch.randn(5, 2, requires_grad=True), "keep": keep}
    _checked(cases.Case(ix.compile(text), arrays, {"context": 2}, {"i": "context"}))


def test_what_is_computed_whole_is_given_in_parts() -> None:
    """So that the part of a rank is the same whatever can be cut."""
    program = ix.compile("input x[t]; let y[size(t) - 1] = x[0]; let y[t in 0..size(t) - 1] = y[t + 1] + x[t];")
    said = str(ix.shard(program, {"context": 2}, t="context").plan(t=8))
    assert "y[t]                     `t` by context: t 0..4 | 4..8" in said
    assert "`y_whole` is computed whole on every rank along `context`: it steps backward" in said
    arrays = {"x": torch.arange(7.0, requires_grad=True)}
    _checked(cases.Case(program, arrays, {"context": 2}, {"t": "context"}))


def test_a_window_sends_what_it_reaches_and_no_more() -> None:
    program = ix.compile(WAYS["rows of others"][0])
    (sent,) = ix.shard(program, {"context": 3}, t="context").plan(t=12, c=1, train=False).sent
    # Blocks of `y` begin at 0, 4 and 8 and those of `x` too: each needs two rows of the next.
    assert sent.forward == {(1,): 2 * 4, (2,): 2 * 4}


def test_empty_blocks_of_keys_are_neither_sent_nor_computed() -> None:
    (unit,) = _planned(ATTENTION, {"context": 4}, i="context").layout.units
    assert unit.ring is not None
    assert (unit.ring.counts > 0).tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_balanced_ranks_hear_as_many_keys() -> None:
    said = str(_planned(ATTENTION, {"context": 4}, i="context"))
    assert 'ranks have from 4 to 16 keys to hear: `balanced="context"` evens that out' in said
    assert "evens" not in str(_planned(ATTENTION, {"context": 4}, i="context", balanced="context"))


def _planned(text: str, mesh: dict[str, int], **options: str):  # type: ignore[no-untyped-def]
    return ix.shard(ix.compile(text), mesh, **options).plan(h=2, i=16, j=16, d=3, e=3)


def test_a_plan_says_who_holds_what_and_what_is_cheaper() -> None:
    plan = _planned(ATTENTION, {"context": 2}, i="context")
    said = str(plan)
    assert "Q[h, i, d]               `i` by context: i 0..8 | 8..16" in said
    assert "ring of K along context: a rank sends at most" in said
    assert f"`h` along context in place of `i` sends 0 B in all, and this {plan.bytes} B" in said
    assert "where j <= i" in plan.relation(1)


LAYER = """
space batch(b), head(h), group(g), position(i, j), model(m), feature(d), hidden(f), vocabulary(v);
input X[b, i, m], target[b, i] : i64, W_Q[h, m, d], W_K[g, m, d], W_O[h, d, m], U[m, f], D[f, m], E[m, v];
let share = size(h) / size(g);
let Q[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]);
let K[b, g, j, d] = sum[m](X[b, j, m] * W_K[g, m, d]);
let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h / share, j, d])) where j <= i;
let heads[b, h, i, d] = sum[j](weights[b, h, i, j] * K[b, h / share, j, d]);
let mid[b, i, m] = X[b, i, m] + sum[h, d](heads[b, h, i, d] * W_O[h, d, m]);
let out[b, i, m] = mid[b, i, m] + sum[f](silu(sum[m](mid[b, i, m] * U[m, f])) * D[f, m]);
let logits[b, i, v] = log_softmax[v](sum[m](out[b, i, m] * E[m, v]));
let loss = -mean[b, i](logits[b, i, target[b, i]]);
"""


def test_a_layer_with_its_loss_along_three_dimensions() -> None:
    program = ix.compile(LAYER)
    sizes = {"b": 2, "i": 5, "m": 4, "h": 4, "g": 2, "d": 2, "f": 6, "v": 7}
    torch.manual_seed(0)
    arrays = {}
    for tensor in program._program.inputs:
        shape = [sizes[axis.coordinate.name] for axis in tensor.axes]
        arrays[tensor.name] = torch.randint(7, shape) if tensor.kind == "whole" else torch.randn(shape)
        arrays[tensor.name].requires_grad_(tensor.kind == "real")
    options = {"b": "data", "i": "context", "h": "tensor", "g": "tensor", "f": "tensor", "v": "tensor"}
    mesh = {"data": 2, "context": 2, "tensor": 2}
    cases.check(cases.Case(program, arrays, mesh, options), ix.shard(program, mesh, **options))


def test_a_way_back_can_be_taken_twice_if_it_is_kept() -> None:
    case = cases.case_of("causal", 2, [])
    out = ix.shard(case.program, dict(case.mesh), **case.options)(**case.arrays)
    once, twice = (torch.autograd.grad(out.sum(), case.arrays["Q"], retain_graph=True)[0] for _ in range(2))
    assert torch.equal(once, twice)


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("mesh", "options", "words"),
    [
        ({"context": 2}, {"i": "data"}, "the mesh has no dimension `data`"),
        ({"context": 2}, {"k": "context"}, "`k` is no coordinate of this program"),
        (7, {"i": "context"}, "7 is no mesh with named dimensions"),
        ({"a": 2, "b": 2}, {"i": "a", "j": "b"}, "`i` and `j` are of one space"),
        ({"context": 0}, {"i": "context"}, "the dimension `context` has 0 ranks"),
        ({"context": 2}, {"i": "context", "timeout": "5"}, "a timeout of '5' is no number of seconds"),
        ({}, {"i": "context"}, "it has none"),
        ({"context": 2}, {"i": "context", "balanced": 3}, "the mesh has no dimension `3`"),
        ({"context": 2}, {"i": "context", "balenced": "context"}, "did you mean `balanced`?"),
    ],
)
def test_what_cannot_be_split_is_refused(mesh: object, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ix.CallError, match="IX515") as found:
        ix.shard(ix.compile(ATTENTION), mesh, **options)
    assert words in str(found.value)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda spread: spread.plan(i="3"), "`i='3'` is no size"),
        (lambda spread: spread.plan(i=2.5), "`i=2.5` is no size"),
        (lambda spread: spread.plan(i=-1), "`i=-1` is no size"),
        (lambda spread: spread.plan(i=10**30), "too many for this machine"),
        (lambda spread: spread.plan(i=4, dtype="f8"), "reals have no dtype `f8`"),
        (lambda spread: spread.plan(i=4).relation(9), "this plan has no unit 9"),
        (lambda spread: spread.plan(i=4).relation(1, (5,)), r"the mesh has no block (5,)"),
    ],
)
def test_plans_of_what_is_not_there_are_refused(ask: Any, words: str) -> None:
    with pytest.raises(ix.CallError) as found:
        ask(ix.shard(ix.compile(ATTENTION), {"context": 2}, i="context"))
    assert words in str(found.value)


def test_assertions_are_refused() -> None:
    program = ix.compile('input x[i]; let y[i] = x[i]; assert sum[i](x[i]) > 0, "positive";')
    with pytest.raises(ix.CallError, match="assertions"):
        ix.shard(program, {"data": 2}, i="data")


# ---------------------------------------------------------------------------------- processes


def _group(ranks: int, *names: str) -> list[dict[str, Any]]:
    """What ranks in processes of their own say about each case."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "tests.sharding.group", str(ranks), str(port), *names]
    path = os.pathsep.join(filter(None, (*sys.path[:1], os.environ.get("PYTHONPATH"), os.getcwd())))
    found = subprocess.run(words, capture_output=True, text=True, timeout=1800, env={**os.environ, "PYTHONPATH": path})
    lines = [part for line in found.stdout.splitlines() for part in line.replace("}{", "}\n{").splitlines()]
    said = [json.loads(line) for line in lines if line.strip()]
    assert said, found.stderr
    assert not [one for one in said if "failed" in one], found.stdout
    return said


@pytest.mark.sampled(0)
def test_four_processes_and_a_rank_that_dies() -> None:
    # Of `cross`, the last rank has no queries; weights of `multi_head` are cut; `pointer` is computed whole along `j`.
    variants = ("causal:heads", "cross", "linear_recurrent", "multi_head:parameters", "pointer:j")
    faults = ("other_dtype", "other_length", "other_program")
    said = _group(4, *variants, *faults, "dies")
    assert len([one for one in said if "found" in one]) == 4 * len(variants)
    for fault in faults:
        assert [one["error"] for one in said if one["case"] == fault] == ["IX522"] * 4
    assert [one["error"] for one in said if one["case"] == "dies"] == ["IX521"] * 3


WAYS_TO_SPLIT = ("", ":heads", ":balanced", ":parameters")


@pytest.mark.sampled(0)
@pytest.mark.parametrize("fault", ["lags"])
def test_a_rank_that_lags(fault: str) -> None:
    assert [one["error"] for one in _group(4, fault)] == ["IX521"] * 3


@pytest.mark.sampled(0)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_variant_in_processes(ranks: int) -> None:
    """With all options in the same processes, which compile a variant and plan the whole of it once. Over one rank,
    `heads` is no option."""
    ways = [way for way in WAYS_TO_SPLIT if ranks > 1 or way != ":heads"]
    asked = [f"{name}{way}" for way in ways for name in roster.NAMES]
    found = [(one["case"], one["rank"]) for one in _group(ranks, *asked) if "found" in one]
    assert sorted(found) == sorted((name, rank) for name in asked for rank in range(ranks))


@pytest.fixture
def alone() -> Iterator[Any]:
    """A mesh of this process alone."""
    dist = pytest.importorskip("torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.device_mesh.init_device_mesh("cpu", (1, 1), mesh_dim_names=("context", "tensor"))
    dist.destroy_process_group()


def test_one_process_alone(alone: Any) -> None:
    case = cases.case_of("causal", 1, [])
    spread = ix.shard(case.program, alone, timeout=7, **case.options)
    cases.check(case, spread)
    assert not any(spread.carrier.sent.values())


def test_a_mesh_is_asked_for_its_processes_once(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works its table out anew for everyone who asks, and who sends asks for every array."""
    case, asked = cases.case_of("causal", 1, []), []
    spread = ix.shard(case.program, alone, timeout=7, **case.options)
    table = type(alone).mesh
    monkeypatch.setattr(type(alone), "mesh", property(lambda mesh: asked.append(mesh) or table.__get__(mesh)))
    assert [spread.carrier.process(block) for block in spread.carrier.owned * 3] == [0, 0, 0]
    assert len(asked) == 1


def test_a_group_waits_no_longer_than_a_call_does(alone: Any) -> None:
    """Else a process that has its error would wait for the group, for half an hour, before it ends."""
    options = alone.get_group("context")._get_backend(torch.device("cpu")).options
    before = options._timeout
    with _waiting(alone.get_group("context"), timedelta(seconds=7)):
        assert options._timeout == timedelta(seconds=7) != before
    assert options._timeout == before


# ------------------------------------------------------------------------------- drawn programs


@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", range(200))
def test_drawn_programs_are_the_same_on_several_ranks(seed: int) -> None:
    case = random_case(seed)
    program = ix.compile(case.text)
    arrays = {name: torch.from_numpy(np.array(x)) for name, x in case.arrays.items()}
    letters = [a.coordinate.name for t in program._program.inputs for a in t.axes if not a.coordinate.rest]
    finite = all(bool(torch.isfinite(x).all()) for x in arrays.values())
    wide = all(x.dtype not in (torch.float16, torch.bfloat16) for x in arrays.values())
    if not letters or not finite or not wide or program._program.asserts:
        pytest.skip("nothing to split, or numbers that are compared elsewhere")
    chosen = Random(seed).choice(letters)
    balanced = "ranks" if seed % 4 == 0 else ()
    spread = ix.shard(program, {"ranks": 2 + seed % 2}, balanced=balanced, **{chosen: "ranks"})
    found, expected = spread(**arrays), program(**arrays)
    for one, other in zip(cases.several(found), cases.several(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
