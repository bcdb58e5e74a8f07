"""Strongly connected components, in order; what lies behind some nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def components(edges: Mapping[N, Iterable[N]]) -> list[list[N]]:
    """The nodes in groups that reach each other, every group after all it points to (Tarjan, without
    recursion). Nodes of a group keep the order of `edges`."""
    index: dict[N, int] = {}
    low: dict[N, int] = {}
    stack: list[N] = []
    waiting: set[N] = set()
    result: list[list[N]] = []
    position = {node: number for number, node in enumerate(edges)}
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(list(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        waiting.add(root)
        while work:
            node, successors = work[-1]
            advanced = False
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    waiting.add(successor)
                    work.append((successor, iter(list(edges[successor]))))
                    advanced = True
                    break
                if successor in waiting:
                    low[node] = min(low[node], index[successor])
            if advanced:
                continue
            work.pop()
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
            if low[node] == index[node]:
                group: list[N] = []
                while not group or group[-1] != node:
                    group.append(stack.pop())
                    waiting.discard(group[-1])
                result.append(sorted(group, key=position.__getitem__))
    return result


def reached(start: Iterable[str], step: Callable[[str], Iterable[str]]) -> list[str]:
    """Names and all that lies behind them, step by step, the nearest first."""
    found = dict.fromkeys(start)
    waiting = list(found)
    for name in waiting:
        for target in step(name):
            if target not in found:
                found[target] = None
                waiting.append(target)
    return waiting
