"""What was measured, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isnan

from .cells import Cell
from .memory import Growth
from .peers import CONTESTANTS, OURS
from .targets import MIB, Results, Verdict, judge
from .timing import NOISY, Times
from .variants import short


def show(results: Results) -> str:
    """All tables, the targets last."""
    blocks = [*_cell_tables(results.cells), *_notes(results), *_starting(results)]
    if results.growths:
        blocks.append(_memory(results.growths))
    if results.ours:
        blocks.append(_targets(judge(results)))
    return "\n\n".join(blocks)


def _cell_tables(cells: list[Cell]) -> Iterator[str]:
    kinds = dict.fromkeys((cell.backward, short(cell.setting.dtype), cell.setting.size) for cell in cells)
    for backward, dtype, size in kinds:
        chosen = [c for c in cells if (c.backward, short(c.setting.dtype), c.setting.size) == (backward, dtype, size)]
        what = "forward + backward" if backward else "forward"
        yield _times(f"{what}, {dtype}, N = {size}: ms (ours ÷ it)", chosen)
        whose = "gradients to Q, K, V" if backward else "the output"
        yield _gaps(f"{what}, {dtype}, N = {size}: rms and largest error of {whose} against float64", chosen)


def _times(title: str, cells: list[Cell]) -> str:
    names = _present(name for cell in cells for name in cell.times)
    rows = []
    for cell in cells:
        row = [cell.setting.variant.name + (f" * {cell.others:.0%}" if cell.others > NOISY else "")]
        for name in names:
            if name not in cell.times:
                row.append("failed" if name == OURS and OURS in cell.refused else "")
                continue
            ratio = cell.ratio(name)
            shown = milliseconds(cell.times[name])
            row.append(shown if name == OURS or ratio is None else f"{shown} ({ratio:.2f})")
        rows.append(row)
    return table(title, ["", *names], rows)


def _gaps(title: str, cells: list[Cell]) -> str:
    names = _present(name for cell in cells for name in cell.gaps)
    rows = [
        [
            cell.setting.variant.name,
            *(f"{g.rms:.1e} {g.largest:.1e}" if (g := cell.gaps.get(name)) else "" for name in names),
        ]
        for cell in cells
    ]
    return table(title, ["", *names], rows)


def _notes(results: Results) -> Iterator[str]:
    """Who did not take part, and why; and what FlexAttention's compiler took."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in results.cells:
        for name, reason in cell.refused.items():
            reasons.setdefault((name, reason), []).append(cell.setting.variant.name)
    if any(cell.others > NOISY for cell in results.cells):
        yield "* Others used so much of the machine meanwhile: such a figure says little."
    if reasons:
        lines = [
            f"  {name}: {reason} ({', '.join(dict.fromkeys(variants))})" for (name, reason), variants in reasons.items()
        ]
        yield "Left out\n" + "\n".join(sorted(lines))
    firsts = [(cell, cell.times["flex"].first) for cell in results.cells if "flex" in cell.times]
    if firsts:
        shown = ", ".join(f"{cell.setting}: {seconds:.1f} s" for cell, seconds in firsts)
        yield f"FlexAttention's first call, compiling (what an earlier run cached is used)\n  {shown}"


def _starting(results: Results) -> Iterator[str]:
    if results.first:
        rows = [[name, f"{1e3 * f.whole:.1f}", f"{1e3 * f.built:.1f}"] for name, f in results.first.items()]
        yield table("First call in a fresh process, imports not counted: ms", ["", "whole", "before the call"], rows)
    for title, found in (
        ("Calls at N = 16: µs", results.calls),
        ("sum[d](Q * K): µs", results.contractions),
    ):
        if found:
            rows = [
                [
                    name + (f" * {times.others:.0%}" if times.others > NOISY else ""),
                    *(f"{1e6 * value:.2f}" for value in (times.median, times.low, times.high)),
                    str(times.runs),
                ]
                for name, times in found.items()
            ]
            yield table(title, ["", "median", "low", "high", "runs"], rows)


def _memory(growths: list[Growth]) -> str:
    names = _present(growth.contestant for growth in growths)
    found: dict[tuple[str, str, int, bool], dict[str, Growth]] = {}
    for growth in growths:
        setting = growth.setting
        key = (setting.variant.name, short(setting.dtype), setting.size, growth.backward)
        found.setdefault(key, {})[growth.contestant] = growth
    rows = []
    for (variant, dtype, size, backward), by_name in found.items():
        some = next(iter(by_name.values()))
        case = f"{variant}, {dtype}, N = {size}{', backward' if backward else ''}"
        row = [case, f"{some.output / MIB:.1f}"]
        for name in names:
            known = by_name.get(name)
            row.append("" if known is None else "–" if known.bytes is None else f"{known.bytes / MIB:.1f}")
        rows.append(row)
    title = "Peak memory growth of one call, its output included: MiB"
    return table(title, ["", "output", *names], rows)


def _targets(verdicts: list[Verdict]) -> str:
    """Every figure beside its limit. Of memory, what was missed and the nearest miss: there are too many."""
    rows = []
    for target in dict.fromkeys(verdict.target for verdict in verdicts):
        group = [verdict for verdict in verdicts if verdict.target == target]
        met = [verdict for verdict in group if verdict.met]
        if target.startswith("memory") and met:
            nearest = max(met, key=lambda verdict: (verdict.found or 0) / verdict.limit)
            group = [verdict for verdict in group if not verdict.met]
            rows.append(_verdict(nearest, f" (nearest of {len(met)})"))
        rows += [_verdict(verdict) for verdict in group]
    count = sum(verdict.met for verdict in verdicts)
    return f"{table('Targets', ['', 'found', 'target', ''], rows)}\n{count} of {len(verdicts)} met"


def _verdict(verdict: Verdict, more: str = "") -> list[str]:
    found = "–" if verdict.found is None or isnan(verdict.found) else f"{verdict.found:.2f}"
    limit = f"≤ {verdict.limit:g} {verdict.unit}"
    return [f"{verdict.target}: {verdict.case}{more}", found, limit, "met" if verdict.met else "MISSED"]


def _present(names: Iterable[str]) -> list[str]:
    here = set(names)
    return [name for name in CONTESTANTS if name in here]


def milliseconds(times: Times) -> str:
    shown = 1e3 * times.median
    return f"{shown:.4f}" if shown < 1 else f"{shown:.2f}" if shown < 100 else f"{shown:.0f}"


def table(title: str, header: list[str], rows: list[list[str]]) -> str:
    """The first column to the left, the others to the right."""
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) if k == 0 else cell.rjust(width) for k, (cell, width) in enumerate(pairs)).rstrip()
        for row in [header, *rows]
        for pairs in [list(zip(row, widths, strict=True))]
    ]
    return "\n".join([title, *(f"  {line}" for line in lines)])
