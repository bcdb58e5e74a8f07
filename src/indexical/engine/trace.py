"""A program on its way through the passes: what `ix plan --passes` and `IX_DUMP=1` print.

The program is shown whole as it is lowered and as it is at the end. In between every rule that was applied has its law,
and the lines that it changed: those with a minus before it, those with a plus after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from functools import partial

from ..records import dataclass
from . import skew
from .alike import share_alike
from .constants import apart
from .describe import Scalars, costed, operation_lines
from .ops import Plan, Refused, Value
from .order import mapped, reachable, roots_of
from .rules import tiles
from .rules.patterns import Target
from .rules.rewrite import Step, rewrite
from .rules.table import FIRST, LEGAL, RULES, STORES
from .specialise import Sizes, specialise


@dataclass(frozen=True, slots=True)
class Passed:
    """The program after a pass: its name, what is true of it, and the lines of the program before and after."""

    name: str
    law: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def changes(self) -> list[str]:
        """The lines that differ, each after its sign."""
        found = []
        for kind, a, b, c, d in SequenceMatcher(None, self.before, self.after, autojunk=False).get_opcodes():
            if kind != "equal":
                found += [f"- {line}" for line in self.before[a:b]] + [f"+ {line}" for line in self.after[c:d]]
        return found


class Trace:
    """The passes that changed a program, one after another. A value keeps its name through all of them."""

    def __init__(self, plan: Plan) -> None:
        self.names: dict[Value, str] = {}
        self.first = self.lines = self._lines(plan)
        self.plan = plan
        self.passed: list[Passed] = []
        self.costs: tuple[str, ...] = ()

    def _lines(self, plan: Plan) -> tuple[str, ...]:
        return tuple(str(line) for line in operation_lines(plan, self.names))

    def after(self, name: str, plan: Plan, law: str = "", became: Mapping[Value, Value] | None = None) -> None:
        """Record a pass, if it changed what is printed. Values that `became` others leave them their names."""
        for one, other in (became or {}).items():
            if other is not one and one in self.names:
                self.names[other] = self.names.pop(one)
        lines = self._lines(plan)
        if lines != self.lines:
            self.passed.append(Passed(name, law, self.lines, lines))
        self.plan, self.lines = plan, lines

    def rewritten(self, steps: list[Step], plan: Plan) -> None:
        """Record the rules that were applied on the way to a plan, each with the program as it was then."""
        for step in steps:
            if step.taken and step.before in set(reachable(roots_of(self.plan))):
                became: dict[Value, Value] = {}
                plan_then = mapped(self.plan, partial(_taken, step), became)
                became.pop(step.before)
                self.after(step.rule.name, plan_then, step.rule.law, became)
        self.after("what follows", plan)

    def __str__(self) -> str:
        """The program as it was lowered, every pass with the lines that it changed, and the program in the end."""
        texts = ["lowered", *_indented(self.first)]
        for number, one in enumerate(self.passed, 1):
            law = f": {one.law}" if one.law else ""
            texts += ["", f"{number}. {one.name}{law}", *_indented(one.changes)]
        texts += [] if self.passed else ["", "no rule changes it"]
        texts += ["", "in the end", *_indented(self.costs or self.lines)] if self.passed or self.costs else []
        if self.plan.refused:
            texts += ["", "refused", *_indented(dict.fromkeys(map(_refused, self.plan.refused)))]
        return "\n".join(texts)


def _taken(step: Step, one: Value) -> Value:
    return step.after if one is step.before else one


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _refused(one: Refused) -> str:
    return f"{one.rule}, at {one.where}: {one.reason}"


def traced(
    plan: Plan,
    target: Target,
    sizes: Sizes | None = None,
    scalars: Scalars | None = None,
    library: str = "numpy",
    unskewed: Plan | None = None,
) -> Trace:
    """A lowered plan through all passes: from what it was before it went along diagonals, the rules, what makes it
    printable, and for known sizes what these decide, what is kept from call to call, and what a call by a library costs
    then."""
    trace = Trace(unskewed or plan)
    trace.after(skew.NAME, plan, skew.LAW)
    for table in (FIRST, RULES, STORES, LEGAL):
        steps: list[Step] = []
        done = rewrite(trace.plan, table, target, steps)
        trace.rewritten(steps, done)
    trace.after(tiles.NAME, tiles.by_tiles(trace.plan, target.learns), tiles.LAW)
    trace.after("share what is alike", share_alike(trace.plan), "of x[i] + 1 and x[j] + 1 one is computed")
    if sizes is not None:
        became: dict[Value, Value] = {}
        small = specialise(trace.plan, sizes, scalars, became)
        trace.after("specialise", small, "extents are numbers, and what they decide is decided", became)
        became = {}
        rest = apart(small, memo=became).plan
        trace.after("keep constants", rest, "what is the same in all calls is made once, and given to each", became)
        trace.costs = tuple(costed(rest, sizes, library, scalars or {}, trace.names))
    return trace
