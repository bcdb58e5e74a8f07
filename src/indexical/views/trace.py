"""Traces and steps as text for a terminal, and as JSON."""

from __future__ import annotations

import re
from typing import Any

from ..numbers.notation import canonical, write
from ..numbers.results import Results
from ..numbers.steps import Step, figures
from ..run.trace import Element, Factor, Scan, Term, Trace, Tracer
from .exact import show_tensor
from .numbers import percent, readable, short, table

# A running sum that is longer is not shown.
WIDEST = 40

# A trace goes down through at most this many elements.
MOST_ELEMENTS = 60


def show_trace(tracer: Tracer, trace: Trace, depth: int) -> str:
    """One number: what it scanned, term by term; then where each factor came from, as deep as was asked for."""
    parts = [_block(tracer, trace)]
    seen = {trace.element}
    level = [trace]
    given = figures(tracer.program)
    for _ in range(depth):
        waiting = [e for found in level if found.element.tensor not in given for e in found.sources() if e not in seen]
        waiting = list(dict.fromkeys(waiting))
        if not waiting:
            break
        seen.update(waiting)
        level = [tracer.at(element) for element in waiting]
        parts += _level(tracer, level)
        if len(seen) > MOST_ELEMENTS:
            parts.append("…  (deeper: ask for one of these with `--at`)")
            break
    return "\n\n".join(parts)


def _level(tracer: Tracer, level: list[Trace]) -> list[str]:
    """Elements of one depth, definition by definition. A normaliser's row is shown once for all its elements."""
    parts = []
    given = figures(tracer.program)
    for name in dict.fromkeys(trace.element.tensor for trace in level):
        group = [trace for trace in level if trace.element.tensor == name]
        if name in tracer.inputs or name in given:
            word = "input" if name in tracer.inputs else "given"
            shown = ", ".join(f"{label(t.element)} = {readable(t.value)}" for t in group[:MOST_ELEMENTS])
            symbols = all(readable(t.value) == label(t.element) for t in group)
            listed = ", ".join(label(t.element) for t in group)
            parts.append(f"{name}  {word}, without values\n  {listed}" if symbols else f"{name}  {word}\n  {shown}")
            continue
        rows: dict[Any, list[Trace]] = {}
        for trace in group:
            rows.setdefault(_row_key(trace), []).append(trace)
        if all(trace.scans and trace.scans[0].normalises for trace in group):
            parts += [_block(tracer, row[0], [t.element for t in row]) for row in rows.values()]
        else:
            lines = [f"  {_line(tracer, trace)}" for trace in group[:MOST_ELEMENTS]]
            parts.append("\n".join([f"{name}  by {group[0].statement}", *lines]))
    return parts


def _row_key(trace: Trace) -> Any:
    """The same for all elements of a normaliser's row."""
    if not trace.scans or not trace.scans[0].normalises:
        return trace.element
    name = trace.scans[0].ranges[0][0]
    return tuple(at for coordinate, at in trace.survives if coordinate != name)


def _line(tracer: Tracer, trace: Trace) -> str:
    """One element and its arithmetic, on a line."""
    if trace.masked:
        return f"{label(trace.element)} is masked{_by(trace.guard)}"
    worked = tracer.arithmetic(trace.element, short)
    value = readable(trace.value)
    return (
        f"{label(trace.element)} = {value}"
        if worked in (value, short(trace.value))
        else (f"{label(trace.element)} = {worked} = {value}")
    )


def _by(guard: str | None) -> str:
    return "" if guard is None else f": `{guard}` does not hold"


def _block(tracer: Tracer, trace: Trace, elements: list[Element] | None = None) -> str:
    """An element with all that is said of it; or several of one row."""
    names = ", ".join(label(element) for element in elements or [trace.element])
    alone = elements is None or len(elements) == 1
    head = f"{names} = {readable(trace.value)}" if alone and not trace.masked else names
    if not trace.statement:
        return f"{head}  (input)"
    if trace.masked:
        return f"{head} is masked{_by(trace.guard)}\n  {trace.statement}"
    survives = [f"{name} = {at}" for name, at in trace.survives if alone or not _is_normalised(trace, name)]
    lines = [head, f"  {trace.statement}"]
    if survives:
        lines.append(f"  survives   {', '.join(survives)}")
    for scan in trace.scans:
        lines += _scan(scan, dict(trace.survives), _forms(tracer, trace, scan))
    if not trace.whole:
        worked = tracer.arithmetic(trace.element, short)
        if alone and worked != readable(trace.value) and len(worked) <= 200:
            lines += ["", f"  {names} = {worked} = {readable(trace.value)}"]
    return "\n".join(lines)


def _forms(tracer: Tracer, trace: Trace, scan: Scan) -> list[str]:
    """The elements of a normaliser's row as their definition builds them, where that says more than their value."""
    if not (trace.whole and scan.normalises):
        return []
    name = scan.ranges[0][0]
    axis = [coordinate for coordinate, _ in trace.survives].index(name)
    rows = []
    for term in scan.terms:
        place = (*trace.element.place[:axis], term.point[0][1], *trace.element.place[axis + 1 :])
        rows.append(tracer.form(Element(trace.element.tensor, place)))
    return rows if all(0 < len(row) <= 48 for row in rows) else []


def _is_normalised(trace: Trace, name: str) -> bool:
    return any(scan.normalises and scan.ranges[0][0] == name for scan in trace.scans)


def _scan(scan: Scan, survives: dict[str, int], forms: list[str]) -> list[str]:
    verb = "normalises" if scan.normalises else "scanned"
    names = [name for name, _, _ in scan.ranges]
    kept = _steps(names, [tuple(at for _, at in term.point) for term in scan.terms])
    lines = [f"  {verb:<10} {kept}, by {scan.op}"]
    if scan.excluded:
        lines.append(f"  excluded   {_steps(names, list(scan.excluded))}, where `{scan.guard}` does not hold")
    lines.append("")
    if not scan.terms:
        return [*lines, "  nothing is left to scan"]
    rows = _term_rows(scan, names, survives)
    if any(form != row[-1] for form, row in zip(forms, rows[1:], strict=False)):
        rows = [[*row[:-1], form, row[-1]] for row, form in zip(rows, ["as built", *forms], strict=True)]
    lines += table(rows, "    ")
    for sentence in scan.sentences:
        lines += ["", f"  {sentence[0].upper()}{sentence[1:]}."]
    return lines


def _steps(names: list[str], places: list[tuple[int, ...]]) -> str:
    """`j = 0, 1, 2`, or how many points where they are many."""
    if not places:
        return f"no `{', '.join(names)}`"
    if len(names) == 1:
        steps = [place[0] for place in places]
        if len(steps) > 12 and steps == list(range(steps[0], steps[-1] + 1)):
            return f"{names[0]} = {steps[0]} to {steps[-1]}"
        return f"{names[0]} = {', '.join(map(str, steps))}"
    if len(places) > 12:
        return f"{len(places)} points of {', '.join(names)}"
    return f"{', '.join(names)} = " + ", ".join(f"({', '.join(map(str, place))})" for place in places)


def _term_rows(scan: Scan, names: list[str], survives: dict[str, int]) -> list[list[str]]:
    """A row for each term: where, its factors, what they make, the sum so far, its share."""
    first = scan.terms[0]
    kept = {name: at for name, at in survives.items() if name not in names}
    patterns = [_placed(factor.pattern, kept) for factor in first.factors]
    softmax = scan.normalises and scan.op != "cumsum"
    several = len(first.factors) > 1
    running = scan.op in ("sum", "prod", "mean", "cumsum", "max", "min") and len(scan.terms) > 1
    running = running and all(len(short(term.running)) <= WIDEST for term in scan.terms)
    shares = all(term.share is not None for term in scan.terms)
    head = [*names, *patterns]
    head += ["term"] if several else []
    head += ["so far"] if running else []
    head += [("weight" if scan.op == "softmax" else scan.op) if softmax else "share"] if shares else []
    rows = [head]
    for term in scan.terms:
        row = [str(at) for _, at in term.point]
        row += [short(factor.value) for factor in term.factors]
        row += [short(term.value)] if several else []
        row += [short(term.running)] if running else []
        row += [_share(term, softmax)] if shares else []
        rows.append(row)
    return rows


def _share(term: Term, softmax: bool) -> str:
    return readable(term.share) if softmax else percent(term.share)


def _placed(pattern: str, survives: dict[str, int]) -> str:
    """A read with the values of the coordinates that survive: `weights[2, j]`."""

    def place(match: re.Match[str]) -> str:
        return re.sub(r"[A-Za-z_]\w*", lambda word: str(survives.get(word[0], word[0])), match[0])

    return re.sub(r"\[[^\[\]]*\]", place, pattern)


def label(element: Element) -> str:
    return f"{element.tensor}[{', '.join(map(str, element.place))}]" if element.place else element.tensor


# ---------------------------------------------------------------------- steps


def show_steps(results: Results, steps: list[Step]) -> str:
    """The whole program in the order in which a person would compute it, a step for each definition."""
    return "\n\n".join(_step(results, step, len(steps)) for step in steps)


def _step(results: Results, step: Step, count: int) -> str:
    lines = [f"step {step.number} of {count}: {step.name}", *(f"  {text}" for text in step.statements)]
    lines.append(f"  {step.words}")
    if step.reads:
        lines.append(f"  it reads {', '.join(step.reads)}")
    body = show_tensor(results.tensor(step.name), form="readable").splitlines()
    return "\n".join([*lines, "", *(f"  ▸ {line}" if not n else f"    {line}" for n, line in enumerate(body))])


def steps_json(results: Results, steps: list[Step]) -> dict[str, Any]:
    """The steps, each with its values."""
    return {
        "steps": [
            {
                "number": step.number,
                "name": step.name,
                "statements": list(step.statements),
                "what": step.words,
                "reads": list(step.reads),
                "values": results.tensor(step.name).to_json(),
            }
            for step in steps
        ]
    }


# ----------------------------------------------------------------------- json


def trace_json(tracer: Tracer, trace: Trace, depth: int) -> dict[str, Any]:
    """The trace and, by name, everything below it."""
    found: dict[str, Any] = {}
    given = figures(tracer.program)
    waiting = [(trace, 0)]
    while waiting:
        here, level = waiting.pop(0)
        found[label(here.element)] = _trace_json(tracer, here)
        if level < depth and len(found) < MOST_ELEMENTS and here.element.tensor not in given:
            known = {*found, *(label(other.element) for other, _ in waiting)}
            waiting += [(tracer.at(e), level + 1) for e in here.sources() if label(e) not in known]
    return {"at": label(trace.element), "elements": found}


def _trace_json(tracer: Tracer, trace: Trace) -> dict[str, Any]:
    defined = trace.element.tensor in tracer.lets and not trace.masked
    return {
        "definition": trace.element.tensor,
        "place": list(trace.element.place),
        "statement": trace.statement,
        "survives": dict(trace.survives),
        "value": _number(trace.value),
        "masked": trace.masked,
        "arithmetic": tracer.arithmetic(trace.element, short) if defined else None,
        "scans": [_scan_json(scan) for scan in trace.scans],
        "reads": [label(element) for element in trace.reads],
    }


def _scan_json(scan: Scan) -> dict[str, Any]:
    return {
        "by": scan.op,
        "text": scan.text,
        "ranges": [{"coordinate": name, "from": low, "to": high} for name, low, high in scan.ranges],
        "guard": scan.guard,
        "excluded": [list(place) for place in scan.excluded],
        "normalises": scan.normalises,
        "terms": [_term_json(term) for term in scan.terms],
        "value": _number(scan.value),
        "sentences": list(scan.sentences),
    }


def _term_json(term: Term) -> dict[str, Any]:
    return {
        "point": dict(term.point),
        "factors": [_factor_json(factor) for factor in term.factors],
        "value": _number(term.value),
        "so_far": None if term.running is None else _number(term.running),
        "share": None if term.share is None else _number(term.share),
    }


def _factor_json(factor: Factor) -> dict[str, Any]:
    return {
        "text": factor.pattern,
        "element": None if factor.element is None else label(factor.element),
        "value": _number(factor.value),
        "reads": [label(element) for element in factor.reads],
        "scans": [_scan_json(scan) for scan in factor.scans],
    }


def _number(value: Any) -> str:
    """As `ix.exact` writes it: no digits beside it."""
    return str(value).lower() if isinstance(value, bool) else write(canonical(value))
