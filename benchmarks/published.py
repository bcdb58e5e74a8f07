"""Verifies public worked examples, written as programs in `examples/published`, and writes the table of what was found.

    python benchmarks/published.py                      # all programs
    python benchmarks/published.py mazur_backprop       # some
    python benchmarks/published.py --write docs/exact.md

A program has the figures as its source prints them, in their order, right or wrong. Its first lines say what it
computes, where the figures come from, and the address.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import indexical as ix
from indexical.numbers.claims import Cell
from indexical.saving import rewrite

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples" / "published"
NAMES = sorted(file.stem for file in FOLDER.glob("*.ix"))

# Causes that are no more than their name: of all others the table gives the words too.
NAMED = {"printed", "cut", "up", "twice", "fewer", "float32", "float64", "percent", "sign", "point", "digits"}


@dataclass(frozen=True)
class Row:
    """A program, where its figures come from, and the verdict on each of them."""

    name: str
    source: str
    address: str
    cells: tuple[Cell, ...]

    def count(self, verdict: str) -> int:
        return sum(cell.verdict == verdict for cell in self.cells)


def verified(name: str) -> Row:
    file = FOLDER / f"{name}.ix"
    head = re.match(r"// .+\.\n// Source: (.+)\.\n// (https?://\S+)\n", file.read_text("utf-8"))
    assert head is not None, f"{file} does not say where its figures come from"
    claims = ix.verify(file).claims
    return Row(name, head[1], head[2], tuple(cell for claim in claims for cell in claim.cells))


def causes(row: Row) -> list[str]:
    """The causes that are named, with how many figures each explains, the one that explains most first."""
    found: Counter[tuple[str, str]] = Counter()
    for cell in row.cells:
        if cell.cause is not None:
            found[cell.cause.kind, "" if cell.cause.kind in NAMED else _short(cell.cause.text)] += 1
    told = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [f"`{kind}` {count}{f' ({words})' if words else ''}" for (kind, words), count in told]


def unknown(row: Row) -> int:
    return sum(cell.verdict == "fails" and cell.cause is None for cell in row.cells)


def _short(text: str) -> str:
    """What was done, without "holds if" and without what is told of other figures."""
    text = re.sub(r"^(holds|could hold) if,? ", "", text.partition(" (it explains")[0])
    return text.replace("|", "\\|")


def told(row: Row) -> str:
    """One line of the terminal."""
    counts = f"{row.count('holds')} hold, {row.count('fails')} fail, {unknown(row)} unknown"
    return f"{row.name:26} {len(row.cells):3} figures: {'; '.join([counts, *causes(row)])}"


# ------------------------------------------------------------------------------------------------- the page

BEGIN, END = "<!-- published: begin -->", "<!-- published: end -->"


def line(row: Row) -> str:
    """A row of the table of the page."""
    undecided = row.count("undecided")
    named = [*causes(row), *([f"{undecided} undecided"] if undecided else [])]
    program = f"[`{row.name}`](../examples/published/{row.name}.ix)"
    counts = f"{len(row.cells)} | {row.count('holds')} | {row.count('fails')}"
    return f"| [{row.source}]({row.address}) | {program} | {counts} | {'<br>'.join(named)} | {unknown(row) or ''} |"


def head(rows: list[Row]) -> str:
    """How many there are in all."""
    figures, failing = sum(len(row.cells) for row in rows), sum(row.count("fails") for row in rows)
    wrong = sum(row.count("fails") > 0 for row in rows)
    named = failing - sum(unknown(row) for row in rows)
    return f"{len(rows)} sources, {figures} figures: {failing} fail, in {wrong} sources; a cause is named for {named}."


def table(rows: list[Row]) -> str:
    title = "| source | program | figures | hold | fail | causes, with the figures of each | unknown |"
    return "\n".join([title, "| --- | --- | --- | --- | --- | --- | --- |", *map(line, rows)])


def write_page(path: Path, rows: list[Row]) -> None:
    """The page with its table replaced."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{path} has no place for the table: {BEGIN} … {END}")
    rewrite(path, f"{before}{BEGIN}\n{head(rows)}\n\n{table(rows)}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PROGRAM", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--write", type=Path, help="the page whose table is replaced; for all programs only")
    options = parser.parse_args()
    strange = [name for name in options.names if name not in NAMES]
    if strange:
        parser.error(f"{strange[0]} is not among them")
    if options.names and options.write is not None:
        parser.error("--write is for all programs: name none")
    rows = []
    for name in options.names or NAMES:
        rows.append(verified(name))
        print(told(rows[-1]), flush=True)
    if options.write is not None:
        write_page(options.write, rows)


if __name__ == "__main__":
    main()
