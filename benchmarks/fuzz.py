"""Texts that nobody meant, by the ten thousand: what breaks, and what takes longest.

    python benchmarks/fuzz.py --count 10000 --seed 0

Five kinds: bytes, words in no order, damaged programs, damaged random programs, and random programs whose values are
compared with those of a second evaluation. Each is drawn anew from the seed and its number, so that `--only damage
--first 1234 --count 1` shows one again. The exit status is 1 where something failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.laws.agreement import call, difference, is_within
from tests.laws.damage import KINDS, PATIENCE, TOKENS, Edit, as_text, corpus, damaged, examine
from tests.laws.grids import evaluate
from tests.laws.programs import random_case

# Where nothing has come back after so many seconds, nothing will.
FOREVER = 20


def edits(random: Random) -> list[Edit]:
    def number() -> int:
        return random.randrange(1 << 16)

    return [Edit(random.choice(KINDS), number(), number(), number()) for _ in range(random.randint(1, 5))]


def noise(random: Random) -> str:
    return as_text(random.randbytes(random.randrange(200)))


def words(random: Random) -> str:
    return random.choice((" ", "", "\n")).join(random.choices(TOKENS, k=random.randrange(80)))


def damage(random: Random) -> str:
    return damaged(random.choice(corpus()), edits(random))


def random_damage(random: Random) -> str:
    return damaged(random_case(random.randrange(1 << 30)).text, edits(random))


def meaning(random: Random) -> str:
    return f"random_case({random.randrange(1 << 30)})"


TEXTS: dict[str, Callable[[Random], str]] = {
    "bytes": noise,
    "words": words,
    "damage": damage,
    "random-damage": random_damage,
    "meaning": meaning,
}


def examine_meaning(name: str) -> float:
    """Compare the values of a random program; its name says which."""
    case = random_case(int(name[len("random_case(") : -1]))
    if not is_within(case):
        return 0.0
    start = perf_counter()
    found = call(case.text, case.arrays)
    seconds = perf_counter() - start
    for tensor, expected in evaluate(case.program, case.arrays).items():
        problem = difference(case, tensor, found[tensor], expected)
        assert problem is None, f"{problem}\n{case!r}"
    return seconds


def examine_one(kind: str, text: str) -> float:
    """How long the longest step took; anything unexpected comes out."""
    signal.alarm(FOREVER)
    try:
        seconds = examine_meaning(text) if kind == "meaning" else examine(text).seconds
    finally:
        signal.alarm(0)
    assert seconds < PATIENCE or kind == "meaning", f"it took {seconds:.2f} s"
    return seconds


def give_up(*_: object) -> None:
    raise TimeoutError(f"nothing came back for {FOREVER} s")


def run(kind: str, seed: int, first: int, count: int, shown: int) -> int:
    """Examine some texts of a kind; the number of failures."""
    slowest = (0.0, -1)
    failures: dict[str, list[int]] = {}
    start = perf_counter()
    for number in range(first, first + count):
        text = TEXTS[kind](Random(f"{kind} {seed} {number}"))
        try:
            slowest = max(slowest, (examine_one(kind, text), number))
        except Exception:
            lines = traceback.format_exc().splitlines()
            places = [line.strip() for line in lines if line.startswith("  File") and "indexical" in line]
            place = f"{lines[-1][:100]} {places[-1] if places else ''}"
            known = failures.setdefault(place, [])
            known.append(number)
            if len(known) <= shown:
                print(f"--- {kind} {number}\n{text}\n" + "\n".join(lines[-12:]), file=sys.stderr)
    seconds = perf_counter() - start
    total = sum(map(len, failures.values()))
    longest = f"slowest {slowest[0]:.3f} s (number {slowest[1]})"
    print(f"{kind:<14} {count:>7} texts {seconds:>7.1f} s   {longest}   {total} failed")
    for place, numbers in failures.items():
        print(f"    {len(numbers):>5} × {place}  e.g. number {numbers[0]}")
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="how many of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--only", choices=TEXTS, help="one kind alone")
    parser.add_argument("--show", type=int, default=1, help="how many of each failure to print in full")
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, give_up)
    kinds = [given.only] if given.only else list(TEXTS)
    failed = sum(run(kind, given.seed, given.first, given.count, given.show) for kind in kinds)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
