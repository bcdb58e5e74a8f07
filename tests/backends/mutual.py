"""Drawn systems of definitions that recur together: each begins where it likes, and they are in order only where some
are computed some steps later than others."""

from __future__ import annotations

import random

import numpy as np
from tests.backends.linear import Drawn


def draw(seed: int) -> Drawn:
    """Two to four definitions. Which steps each is later by is drawn first, and then reads that go no step ahead."""
    drawn = random.Random(seed)
    names = "abcd"[: drawn.randint(2, 4)]
    steps, forward, wide = drawn.randint(4, 7), drawn.random() < 0.7, drawn.random() < 0.3
    later = {name: drawn.randint(-2, 2) for name in names}
    turn = dict(zip(drawn.sample(names, len(names)), range(len(names)), strict=True))
    bounds = {name: (drawn.randint(0, 2), steps - drawn.randint(0, 1)) for name in names}
    statements: list[str] = []
    for number, name in enumerate(names):
        reads: list[tuple[str, int]] = []
        for other in names:
            if other == names[(number + 1) % len(names)] or drawn.random() < 0.5:
                back = drawn.randint(0 if turn[other] < turn[name] else 1, 2)
                reads.append((other, later[name] - later[other] - (back if forward else -back)))
        first, last = bounds[name]
        rule = [t for t in range(first, last) if all(bounds[o][0] <= t + by < bounds[o][1] for o, by in reads)]
        other_slot = ", m in 0..2" if wide else ""
        statements += [f"let {name}[{t}{other_slot}] = 0.5 * {t + 1};" for t in range(first, last) if t not in rule]
        if rule:
            terms = [_term(drawn, other, by, wide) for other, by in reads]
            body = " + ".join(["x[t, m]" if wide else "x[t]", *terms])
            statements.append(f"let {name}[t in {rule[0]}..{rule[-1] + 1}{other_slot}] = {body};")
    drawn.shuffle(statements)
    wanted = ", ".join(drawn.sample(names, drawn.randint(1, len(names))))
    text = "\n".join([f"input x[t{', m' if wide else ''}];", *statements, f"output {wanted};"])
    x = np.random.default_rng(seed).uniform(-0.9, 0.9, (steps, 2) if wide else (steps,))
    return Drawn(text, {"x": x})


def _term(drawn: random.Random, name: str, by: int, wide: bool) -> str:
    place = f"t + {by}" if by > 0 else f"t - {-by}" if by < 0 else "t"
    read = f"{name}[{place}{', m' if wide else ''}]"
    if wide and drawn.random() < 0.4:
        read = f"sum[q in 0..2]({name}[{place}, q] * 0.3)"
    return f"{drawn.choice(['0.5', '-0.3', '0.7'])} * " + (f"tanh({read})" if drawn.random() < 0.4 else read)
