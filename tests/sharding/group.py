"""Processes of one machine that are a mesh: `python -m tests.sharding.group RANKS CASE …` forks them, and each runs the
cases. What they print is what they found; a rank that fails says so, and the others end by their timeouts."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from tests.sharding import cases
from tests.variants import roster
from torch.distributed.device_mesh import init_device_mesh

import indexical as ix
from indexical.run import store


def serve(rank: int, world: int, port: int, names: list[str]) -> None:
    """Run cases as one rank."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=30))
    for name in names:
        said = _tried(lambda name=name: FAULTS[name](rank) if name in FAULTS else _variant(name, world))
        print(json.dumps({"case": name, "rank": rank, **said}), flush=True)
    os._exit(0)  # Nobody waits for a rank that is gone.


def _tried(case: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"found": case()}
    except ix.Error as problem:
        return {"error": problem.diagnostics[0].code, "says": str(problem)}
    except AssertionError:
        return {"failed": traceback.format_exc()}


def _variant(words: str, world: int) -> int:
    """Compare a variant on this rank with the whole program, values and gradients; the bytes that it sent."""
    name, *options = words.split(":")
    case = cases.case_of(name, world, options)
    mesh = _mesh_of(tuple(case.mesh.values()), tuple(case.mesh))
    spread = ix.shard(case.program, mesh, timeout=20, **case.options)
    cases.check(case, spread)
    return sum(spread.carrier.sent.values())


@cache
def _mesh_of(ranks: tuple[int, ...], names: tuple[str, ...]) -> Any:
    """One for all variants that are split alike: a mesh has groups, and a group has threads and connections."""
    return init_device_mesh("cpu", ranks, mesh_dim_names=names)


# ------------------------------------------------------------------------------------------------ faults


def _attention(mesh: Any, timeout: float) -> Any:
    program = cases.case_of("causal", 4, []).program
    return ix.shard(program, mesh, i="context", timeout=timeout)


def _arrays(points: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.ones(2, points, 3, dtype=dtype) for _ in range(3)]


def _mesh() -> Any:
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("context",))


def other_dtype(rank: int) -> str:
    """One rank has another dtype than the others."""
    _attention(_mesh(), 10)(*_arrays(2, torch.float64 if rank == 1 else torch.float32))
    return "nothing was said"


def other_length(rank: int) -> str:
    """One rank has more points than its part."""
    _attention(_mesh(), 10)(*_arrays(3 if rank == 2 else 2))
    return "nothing was said"


def other_program(rank: int) -> str:
    """One rank runs another program."""
    mesh = _mesh()
    spread = _attention(mesh, 10)
    if rank == 3:
        spread = ix.shard(cases.case_of("dot_product", 4, []).program, mesh, i="context", timeout=10)
    spread(*_arrays(2))
    return "nothing was said"


def dies(rank: int) -> str:
    """One rank ends before it sends its keys."""
    spread = _attention(_mesh(), 5)
    spread(*_arrays(2))
    if rank == 1:
        os._exit(7)
    begun = time.monotonic()
    try:
        spread(*_arrays(2))
    finally:
        assert time.monotonic() - begun < 15
    return "nothing was said"


def lags(rank: int) -> str:
    """One rank comes later than the others wait."""
    mesh = _mesh()
    _attention(mesh, 60)(*_arrays(2))  # All ranks meet, however slow the machine is.
    impatient = _attention(mesh, 1)
    if rank == 1:
        time.sleep(4)
        os._exit(7)
    impatient(*_arrays(2))
    return "nothing was said"


FAULTS = {case.__name__: case for case in (other_dtype, other_length, other_program, dies, lags)}


if __name__ == "__main__":
    count, at, *rest = sys.argv[1:]
    store.MOST_ENTRIES = cases.MOST_TEXTS
    for words in rest:  # Once for all ranks, which differ only in what they do with them.
        if words not in FAULTS:
            roster.compiled(words.partition(":")[0])
    children = []
    for number in range(int(count)):
        child = os.fork()
        if child == 0:
            serve(number, int(count), int(at), rest)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
