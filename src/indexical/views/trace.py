"""Traces and steps as text for a terminal, and as JSON."""

from __future__ import annotations

import textwrap
from typing import Any

from ..checker.names import counted
from ..numbers.digits import decimal
from ..numbers.notation import canonical, write
from ..numbers.results import Results
from ..numbers.steps import Step, figures
from ..run.trace import Element, Factor, Scan, Term, Trace, Tracer
from .exact import show_tensor
from .numbers import length, percent, readable, short, table

# Arithmetic that is longer is not shown on a line.
LONGEST_LINE = 200

# A running sum that is longer is not shown.
WIDEST = 40

# A trace goes down through at most this many elements, and shows this many terms of a scan.
MOST_ELEMENTS = 60
MOST_TERMS = 40

# A number of which the form is longer is written by its digits.
LONGEST_NUMBER = 400

# Sentences are broken at this column.
WIDTH = 100


def show_trace(tracer: Tracer, trace: Trace, depth: int) -> str:
    """One number: what it scanned, term by term; then where each factor came from, as deep as was asked for."""
    said: set[str] = set()
    parts = [_block(tracer, trace, said)]
    seen = {trace.element}
    level = [trace]
    given = figures(tracer.program)
    for _ in range(depth):
        waiting = [e for found in level if found.element.tensor not in given for e in found.sources() if e not in seen]
        waiting = list(dict.fromkeys(waiting))
        if not waiting:
            break
        left = max(0, MOST_ELEMENTS - len(seen))
        level = [tracer.at(element) for element in waiting[:left]]
        seen.update(waiting[:left])
        parts += _level(tracer, level, said)
        if left < len(waiting):
            more = counted(len(waiting) - left, "more element")
            parts.append(f"…  and {more}, like {waiting[left]}: ask for it with `--at`")
            break
    return "\n\n".join(parts)


def _level(tracer: Tracer, level: list[Trace], said: set[str]) -> list[str]:
    """Elements of one depth, definition by definition. A normaliser's row is shown once for all its elements."""
    parts = []
    given = figures(tracer.program)
    for name in dict.fromkeys(trace.element.tensor for trace in level):
        group = [trace for trace in level if trace.element.tensor == name]
        if name in tracer.inputs or name in given:
            parts.append(_given(group, "input" if name in tracer.inputs else "given"))
            continue
        rows: dict[Any, list[Trace]] = {}
        for trace in group:
            if not trace.masked:
                rows.setdefault(_row_key(trace), []).append(trace)
        masked = _masked_lines([trace for trace in group if trace.masked])
        if rows and all(row[0].whole and row[0].scans[0].normalises for row in rows.values()):
            parts += [_block(tracer, row[0], said, [t.element for t in row]) for row in rows.values()]
            parts += ["\n".join(masked)] if masked else []
            continue
        lines = [f"  {_line(tracer, row[0])}" for row in rows.values()]
        clauses = dict.fromkeys(trace.statement for trace in group)
        heads = [f"{name}  by {text}" for text in clauses]
        parts.append("\n".join([*heads, *lines, *(f"  {line}" for line in masked)]))
    return parts


def _given(group: list[Trace], word: str) -> str:
    """Elements that came from outside, or stand as figures in the text."""
    name = group[0].element.tensor
    if all(readable(trace.value) == str(trace.element) for trace in group):
        return f"{name}  {word}, without values\n  {', '.join(str(trace.element) for trace in group)}"
    return f"{name}  {word}\n  {', '.join(_equation(str(t.element), t.value) for t in group)}"


def _masked_lines(group: list[Trace]) -> list[str]:
    """Elements that are masked, together where they are for the same reason."""
    reasons: dict[str, list[str]] = {}
    for trace in group:
        reasons.setdefault(trace.why or "", []).append(str(trace.element))
    return [f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} masked: {why}" for why, names in reasons.items()]


def _row_key(trace: Trace) -> Any:
    """The same for all elements of a normaliser's row."""
    if not trace.whole or not trace.scans[0].normalises or trace.scans[0].op == "cumsum" or trace.scans[0].outside:
        return trace.element
    name = trace.scans[0].ranges[0][0]
    return tuple(at for coordinate, at in trace.survives if coordinate != name)


def _line(tracer: Tracer, trace: Trace) -> str:
    """One element and its arithmetic, on a line."""
    worked = tracer.arithmetic(trace.element, short)
    name = str(trace.element)
    if worked in (name, readable(trace.value), short(trace.value)) or len(worked) > LONGEST_LINE:
        return _equation(name, trace.value)
    return _equation(f"{name} = {worked}", trace.value)


def _equation(left: str, value: Any) -> str:
    """`x = 1/3`, `x = 1/(2+e) ≈ 0.2119`, `x ≈ 0.2119`."""
    text = readable(value)
    return f"{left} {text}" if text.startswith("≈") else f"{left} = {text}"


def _block(tracer: Tracer, trace: Trace, said: set[str], elements: list[Element] | None = None) -> str:
    """An element with its statement and scans; or several of one row. A sentence that was `said` is not repeated."""
    names = ", ".join(str(element) for element in elements or [trace.element])
    alone = elements is None or len(elements) == 1
    if trace.masked:
        return f"{names} is masked: {trace.why}\n  {trace.statement}"
    head = _equation(names, trace.value) if alone else names
    if not trace.statement:
        return f"{head}  (input)"
    survives = [f"{name} = {at}" for name, at in trace.survives if alone or not _is_normalised(trace, name)]
    lines = [head, f"  {trace.statement}"]
    if survives:
        lines.append(f"  survives   {', '.join(survives)}")
    for scan in trace.scans:
        lines += _scan(scan, _forms(tracer, trace, scan))
        lines += _sentences(scan, said)
    if not trace.whole:
        worked = _line(tracer, trace)
        if alone and worked != head:
            lines += ["", f"  {worked}"]
    return "\n".join(lines)


def _sentences(scan: Scan, said: set[str]) -> list[str]:
    lines: list[str] = []
    for sentence in scan.sentences:
        if sentence not in said:
            said.add(sentence)
            text = f"{sentence[0].upper()}{sentence[1:]}."
            lines += ["", *textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")]
    return lines


def _forms(tracer: Tracer, trace: Trace, scan: Scan) -> list[str]:
    """The elements of a normaliser's row as their definition builds them, where that says more than their value."""
    if not (trace.whole and scan.normalises):
        return []
    name = scan.ranges[0][0]
    found = [n for n, (coordinate, _) in enumerate(trace.survives) if coordinate == name]
    if len(found) != 1 or len(trace.survives) != len(trace.element.place):
        return []
    axis = found[0]
    rows = []
    for term in scan.terms:
        place = (*trace.element.place[:axis], term.point[0][1], *trace.element.place[axis + 1 :])
        rows.append(tracer.form(Element(trace.element.tensor, place)))
    return rows if all(0 < len(row) <= 48 for row in rows) else []


def _is_normalised(trace: Trace, name: str) -> bool:
    return any(scan.normalises and scan.ranges[0][0] == name for scan in trace.scans)


def _scan(scan: Scan, forms: list[str]) -> list[str]:
    verb = "normalises" if scan.normalises else "scanned"
    names = [name for name, _, _ in scan.ranges]
    if scan.outside:
        last = ", so that it comes after all that are left" if scan.op == "rank" else ""
        why = f"this point: `{scan.guard}` does not hold{last}"
        return [f"  {verb:<10} {names[0]}, by {scan.op}", f"  excluded   {why}"]
    kept = _steps(names, [tuple(at for _, at in term.point) for term in scan.terms])
    lines = [f"  {verb:<10} {kept}, by {scan.op}"]
    if scan.excluded:
        lines.append(f"  excluded   {_steps(names, list(scan.excluded))}, where `{scan.guard}` does not hold")
    for why in dict.fromkeys(silent.why for silent in scan.silent):
        places = [silent.place for silent in scan.silent if silent.why == why]
        word = "excluded" if any(s.element is not None or scan.op == "sum" for s in scan.silent) else "not needed"
        lines.append(f"  {word:<10} {_steps(names, places)}: {why}")
    if not scan.terms:
        return [*lines, "", f"  nothing is left to scan: {scan.op} over no points is {readable(scan.value)}"]
    rows = _term_rows(scan, names)
    if any(form != row[-1] for form, row in zip(forms, rows[1:], strict=False)):
        rows = [[*row[:-1], form, row[-1]] for row, form in zip(rows, ["as built", *forms], strict=True)]
    if len(rows) > MOST_TERMS + 1:
        rows = [*rows[:MOST_TERMS], ["…"] * len(rows[0]), rows[-1]]
    return [*lines, "", *table(rows, "    ")]


def _steps(names: list[str], places: list[tuple[int, ...]]) -> str:
    """`j = 0, 1, 2`, or how many points where they are many."""
    if not places:
        return f"no `{', '.join(names)}`"
    if len(names) == 1:
        steps = [place[0] for place in places]
        if len(steps) > 12 and steps == list(range(steps[0], steps[-1] + 1)):
            return f"{names[0]} = {steps[0]} to {steps[-1]}"
        if len(steps) > 12:
            return f"{names[0]} = {', '.join(map(str, steps[:11]))}, …, {steps[-1]} ({len(steps)} points)"
        return f"{names[0]} = {', '.join(map(str, steps))}"
    if len(places) > 12:
        return f"{len(places)} points of {', '.join(names)}"
    return f"{', '.join(names)} = " + ", ".join(f"({', '.join(map(str, place))})" for place in places)


def _term_rows(scan: Scan, names: list[str]) -> list[list[str]]:
    """A row for each term: where, its factors, what they make, the sum so far, its share."""
    first = scan.terms[0]
    alike = all(len(term.factors) == len(first.factors) for term in scan.terms)
    several = len(first.factors) > 1
    softmax = scan.normalises and scan.op != "cumsum"
    running = all(term.running is not None and len(short(term.running)) <= WIDEST for term in scan.terms)
    running = running and len(scan.terms) > 1
    shares = all(term.share is not None for term in scan.terms)
    head = [*names, *(_heading(scan, n) for n in range(len(first.factors)))] if alike else [*names]
    head += ["term"] if several or not alike else []
    head += ["so far"] if running else []
    head += [("weight" if scan.op == "softmax" else scan.op) if softmax else "share"] if shares else []
    rows = [head]
    for term in scan.terms:
        row = [str(at) for _, at in term.point]
        row += [short(factor.value) for factor in term.factors] if alike else []
        row += [short(term.value)] if several or not alike else []
        row += [short(term.running)] if running else []
        row += [_share(term, softmax)] if shares else []
        rows.append(row)
    return rows


def _heading(scan: Scan, number: int) -> str:
    """The pattern of a column; only of the first row, if they differ."""
    return scan.terms[0].factors[number].pattern


def _share(term: Term, softmax: bool) -> str:
    return readable(term.share) if softmax else percent(term.share).replace("about ", "≈ ")


# ---------------------------------------------------------------------- steps


def show_steps(results: Results, steps: list[Step]) -> str:
    """The whole program in the order in which a person would compute it, a step for each definition."""
    if not steps:
        return "nothing is computed: every definition is figures"
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
    """The trace and, by name, everything below it, down to `depth` or to a number of elements; `left_out` names what is
    linked to and not there."""
    found: dict[str, Any] = {}
    given = figures(tracer.program)
    level = [trace]
    seen = {trace.element}
    for below in range(depth + 1):
        found.update({str(here.element): _trace_json(tracer, here) for here in level})
        sources = [e for here in level if here.element.tensor not in given for e in here.sources() if e not in seen]
        waiting = list(dict.fromkeys(sources))
        room = 0 if below == depth else max(0, MOST_ELEMENTS - len(seen))
        if room < len(waiting) or not waiting:
            left_out = [str(element) for element in waiting[room:]]
            found.update({str(e): _trace_json(tracer, tracer.at(e)) for e in waiting[:room]})
            return {"at": str(trace.element), "elements": found, "left_out": left_out}
        level = [tracer.at(element) for element in waiting]
        seen.update(waiting)
    raise AssertionError("the last level has no room")


def _trace_json(tracer: Tracer, trace: Trace) -> dict[str, Any]:
    given = trace.element.tensor in figures(tracer.program)
    defined = trace.element.tensor in tracer.lets and not trace.masked
    return {
        "definition": trace.element.tensor,
        "place": list(trace.element.place),
        "statement": trace.statement,
        "survives": dict(trace.survives),
        "value": _number(trace.value),
        "masked": trace.masked,
        "why": trace.why,
        "arithmetic": tracer.arithmetic(trace.element, short) if defined else None,
        "scans": [_scan_json(scan) for scan in trace.scans],
        "reads": [] if given else [str(element) for element in trace.reads],
    }


def _scan_json(scan: Scan) -> dict[str, Any]:
    return {
        "by": scan.op,
        "text": scan.text,
        "ranges": [{"coordinate": name, "from": low, "to": high} for name, low, high in scan.ranges],
        "guard": scan.guard,
        "excluded": [list(place) for place in scan.excluded],
        "silent": [
            {"place": list(s.place), "why": s.why, "element": s.element and str(s.element)} for s in scan.silent
        ],
        "normalises": scan.normalises,
        "outside": scan.outside,
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
        "element": None if factor.element is None else str(factor.element),
        "value": _number(factor.value),
        "reads": [str(element) for element in factor.reads],
        "scans": [_scan_json(scan) for scan in factor.scans],
    }


def _number(value: Any) -> str:
    """A number as `ix.exact` writes it, without digits beside it; digits alone where the form is too long."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"≈ {decimal(value, 16)}" if length(value, LONGEST_NUMBER) > LONGEST_NUMBER else write(canonical(value))
