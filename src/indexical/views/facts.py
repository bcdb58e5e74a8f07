"""Facts as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from ..facts.coordinates import Story
from ..facts.directions import Direction
from ..facts.roles import Roles
from ..facts.summary import Cost, Facts
from .fragment import Sheet


def show_facts(facts: Facts, cost: Cost) -> str:
    """The answers to the reader's questions, the story of every definition, and the cost."""
    parts = [show_roles(roles, facts) for roles in facts.roles]
    parts += [show_story(story) for story in facts.definitions if not story.hidden or not facts.roles]
    parts.append(show_cost(cost))
    return "\n\n".join(parts)


_HEADS = {
    "attention": "attention in",
    "weights": "weights in",
    "mean": "mean under the weights of an attention in",
    "change": "change of an attention in",
    "transpose": "transpose of an attention in",
    "transposed change": "transpose of the change of an attention in",
}


def show_roles(roles: Roles, facts: Facts) -> str:
    """Show the query, the key, what is compared and carried, the heads and the batch; of a transpose: the key that
    gave, the query that read it, and what came back."""
    story = facts[roles.definition]
    back = roles.kind.startswith("transpose")
    values = ", ".join(roles.values)
    lines = [f"{_HEADS[roles.kind]} `{roles.definition}`"]
    if back:
        lines.append(f"  who gave?          {_list(roles.key)}")
        lines.append(f"  who heard it?      {_list(roles.query)}")
    else:
        lines.append(f"  who asks?          {_list(roles.query)}")
        lines.append(f"  who answers?       {_list(roles.key)}")
    lines.append(f"  what is compared?  {_list(roles.compare)}")
    if back:
        lines.append(f"  what came back?    {_list(roles.carry)}{f', of {values}' if values else ''}")
    elif roles.kind == "mean":
        lines.append(f"  what is averaged?  {values or 'nothing'}")
    elif roles.kind == "weights":
        lines.append("  what is carried?   nothing yet: nothing is gathered with them")
    else:
        lines.append(f"  what is carried?   {_list(roles.carry)}")
    lines.append(f"  which heads?       {_list(roles.head)}")
    lines.append(f"  which batch?       {_list(roles.batch)}")
    if roles.shared:
        lines.append(f"  kept apart:        {_list(roles.shared)} (heads or batch: nothing tells which)")
    lines += [f"  {question:<34} {answer}" for question, answer in _answers(roles, story)]
    if not back and roles.kind != "weights":
        lines += [f"  the heads in `{name}`:  it {verdict}" for name, verdict in facts.mixing]
    for reading in story.scans:
        home = ", ".join(story.survives)
        lines.append(f"  {roles.definition}[{home}] scans {reading}")
    return "\n".join(lines)


def _answers(roles: Roles, story: Story) -> Iterator[tuple[str, str]]:
    """Yield the other questions about a gather, with their answers."""
    apart = [*roles.batch, *roles.head, *roles.shared, *roles.query]
    if roles.rows == "free":
        yield "over what are weights normalised?", "over nothing: they sum to anything"
    else:
        yield "over what does softmax normalise?", f"{_list(roles.key)}, separately for each {_list(apart)}"
    if roles.rows in _ROWS:
        yield "what do the weights sum to?", _ROWS[roles.rows]
    if roles.kind.endswith("change"):
        yield "what do the changes sum to?", f"0 over {_list(roles.key)}"
    back = roles.kind.startswith("transpose")
    keeps = all(name in story.survives for name in (roles.key if back else roles.query))
    yield f"does the output keep the {'key' if back else 'query'}?", "yes" if keeps else "no"
    if back:
        heard = f"no, from the queries that may hear it: {roles.hears}"
        yield "does it gather from all queries?", "yes" if roles.hears is None else heard
    else:
        heard = f"no, a part of it: {roles.hears}"
        yield "does it hear the whole sequence?", "yes" if roles.hears is None else heard
    if roles.direction is not None:
        yield (
            f"which way does it {'look' if roles.kind == 'weights' else 'gather'}?",
            f"{roles.direction}: {_reach(roles.direction, roles.within)}",
        )


_ROWS = {
    "at most 1": "at most 1: a part is kept back for nobody (`rows at most 1`)",
    "signed": "several are added or subtracted (`rows signed`)",
}


def _reach(verdict: str, within: str | None) -> str:
    """The positions a definition gathers from, in words."""
    if within is not None:
        return f"at most {within} positions, {_WAYS[verdict]}"
    return f"{'only ' if verdict == 'anti-causal' else ''}positions {_WAYS[verdict]}"


_WAYS = {"causal": "up to its own", "anti-causal": "from its own on"}


def show_story(story: Story) -> str:
    """One definition: what happens to each coordinate."""
    lines = [
        f"{story.name}[{', '.join(story.survives)}]  {story.kind}" if story.survives else f"{story.name}  {story.kind}"
    ]
    entries = [
        ("survives", ", ".join(story.survives)),
        ("begins", ", ".join(f"{name} at {first}, counted as 0 here" for name, first in story.begins)),
        ("consumed", ", ".join(f"{name} by {op}" for name, op in story.consumed)),
        (
            "normalised",
            ", ".join(f"{n.coordinate} by {n.by}, separately for {_list(n.separately)}" for n in story.normalised),
        ),
        ("missing", ", ".join(f"{', '.join(names)} in {text}" for text, names in story.missing)),
        ("rebound", ", ".join(f"{tensor} from {home} to {at}" for tensor, home, at in story.rebound)),
        ("independent", ", ".join(story.independent)),
        ("step by step", ", ".join(story.stepped)),
        ("observed", ", ".join(story.observed)),
        ("guard", "; ".join(story.guard)),
        ("distribution", ", ".join(_distribution(d.over, d.always) for d in story.distribution)),
        ("scans", "; ".join(map(str, story.scans))),
        ("direction", "; ".join(map(_direction, story.directions))),
    ]
    lines += [f"  {word:<13} {text}" for word, text in entries if text]
    return "\n".join(lines)


def _direction(found: Direction) -> str:
    within = "" if found.within is None else f" (at most {found.within})"
    over = f", over {', '.join(found.over)}{within}" if found.over else ""
    where = f"{'only ' if found.verdict == 'anti-causal' else ''}at positions {_WAYS[found.verdict]}"
    but = f"; of {', '.join(found.otherwise)} this is not proved" if found.otherwise else ""
    return f"{found.verdict} along {found.along}{over}: hears {', '.join(found.inputs)} {where}{but}"


def _distribution(over: str, always: bool) -> str:
    return f"sums to 1 over {over}" + ("" if always else ", or to 0 where nothing is left")


def show_cost(cost: Cost) -> str:
    """Shapes, multiply-adds and the share of each definition, as figures where the sizes are known."""
    rows = [("definition", "stage", "shape", "multiply-adds", "figure", "share")]
    total = cost.total
    for figure in cost.figures:
        number = "" if figure.count is None else f"{figure.count:,}"
        share = "" if figure.count is None or not total else f"{100 * figure.count / total:.1f} %"
        shape = " × ".join(f"({size})" if " " in size else size for size in figure.shape)
        rows.append((figure.name, figure.stage, shape, figure.multiply_adds, number, share))
    if total is not None:
        rows.append(("all", "", "", "", f"{total:,}", ""))
    widths = [max(len(row[column]) for row in rows) for column, _ in enumerate(rows[0])]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def facts_json(facts: Facts, cost: Cost) -> dict[str, object]:
    """The same as plain lists, strings and numbers."""
    return {
        "definitions": [_story_json(story) for story in facts.definitions],
        "roles": [_roles_json(roles) for roles in facts.roles],
        "heads": [{"definition": name, "verdict": verdict} for name, verdict in facts.mixing],
        "cost": [asdict(figure) for figure in cost.figures],
    }


def _story_json(story: Story) -> dict[str, object]:
    return {**asdict(story), "scans": [str(reading) for reading in story.scans]}


def _roles_json(roles: Roles) -> dict[str, object]:
    entries = asdict(roles)
    entries.pop("names")
    return entries


def _list(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names) if names else "nothing"


class FactSheet(Sheet, Facts):
    """The facts of a program, readable as they stand."""

    def __str__(self) -> str:
        return show_facts(self, self.cost({}))

    def to_json(self) -> dict[str, object]:
        return facts_json(self, self.cost({}))


class CostSheet(Sheet, Cost):
    """A cost, readable as it stands."""

    def __str__(self) -> str:
        return show_cost(self)
