"""A causal layer on several processes: `torchrun --nproc-per-node 2 benchmarks/shard.py [positions]`.

Prints, for positions split along `ranks`, plainly and balanced, and for heads: the median time of
a call with its way back, and the bytes that the first rank sends. One process alone is `--nproc-per-node 1`.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import indexical as ix

LAYER = """
space head(h), position(i, j), feature(d, e);
input Q[h, i, d], K[h, j, d], V[h, j, e];
let weights[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d))) where j <= i;
let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);
"""
REPEATS = 7


def measure(options: dict[str, str], positions: int) -> tuple[float, int]:
    """The median seconds of a call and its way back, and the bytes that this rank sends in one."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("ranks",))
    spread = ix.shard(ix.compile(LAYER), mesh, **options)
    torch.manual_seed(0)
    parts = [spread.local(torch.randn(8, positions, 64), name).requires_grad_() for name in spread.inputs]
    times = []
    for _ in range(REPEATS):
        spread.carrier.sent.clear()
        dist.barrier()
        begun = time.perf_counter()
        spread(*parts).sum().backward()
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:]), sum(bytes for _, _, bytes in spread.carrier.sent)


def main() -> None:
    dist.init_process_group("gloo")
    positions = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    ways = {"positions": {"i": "ranks"}, "balanced": {"i": "ranks", "balanced": "ranks"}, "heads": {"h": "ranks"}}
    for name, options in ways.items():
        seconds, sent = measure(options, positions)
        if dist.get_rank() == 0:
            print(f"{name:10} {dist.get_world_size()} ranks  {seconds * 1e3:8.1f} ms  {sent / 2**20:8.2f} MiB sent")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
