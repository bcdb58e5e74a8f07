"""Spellings of the weights of an attention, and a reading of them by the facts and by the plan."""

from __future__ import annotations

from dataclasses import dataclass

from tests.plan.families import FAMILIES, Family

from indexical.backends.old.plan.recognize import recognize
from indexical.diagnostics import Sink
from indexical.facts.lints import lint
from indexical.facts.roles import Roles, all_roles
from indexical.facts.view import View
from indexical.ir import nodes as ir

# Weights over `j`: `{s}` is the score at `j`, `{t}` at another key `k`; `{w}` and `{v}` are the guards there.
SPELLINGS = {
    "softmax": "softmax[j]({s}{w})",
    "exp of log_softmax": "exp(log_softmax[j]({s}{w}))",
    "exp less logsumexp": "exp({s} - log(sum[k](exp({t}){v})))",
    "exp over exp of logsumexp": "exp({s}) / exp(log(sum[k](exp({t}){v})))",
    "times exp of minus logsumexp": "exp({s}) * exp(-log(sum[k](exp({t}){v})))",
    "by hand": "exp({s}) / sum[k](exp({t}){v})",
    "shifted": "exp({s} - max[k]({t}{v})) / sum[k](exp({t} - max[l]({u}{x})){v})",
    "powers of two": "2.0 ** {s} / sum[k](2.0 ** {t}{v})",
    "powers of ten": "10 ** {s} / sum[k](10 ** {t}{v})",
    "shifted powers": "2.0 ** ({s} - max[k]({t}{v})) / sum[k](2.0 ** ({t} - max[l]({u}{x})){v})",
    "powers by exp2": "exp2({s}) / sum[k](exp2({t}){v})",
    "shifted powers by exp2": "exp2({s} - max[k]({t}{v})) / sum[k](exp2({t} - max[l]({u}{x})){v})",
    "half of it": "0.5 * softmax[j]({s}{w})",
    "twice and halved": "2 * softmax[j]({s}{w}) / 2",
    "times a scalar": "gain * softmax[j]({s}{w})",
    "square of a root": "sqrt(softmax[j](2 * {s}{w})) ** 2 / sum[k](sqrt(softmax[k](2 * {t}{v})) ** 2)",
    "shifted above the line alone": "exp({s} - shift[i]) / sum[k](exp({t}){v})",
    "twice normalised": "softmax[j]({s}) / sum[k](softmax[k]({t}){v})",
}

# A function that normalises what it is given.
FUNCTION = "fn normalize(x[..r, i, j]) -> [..r, i, j] {{ x[..r, i, j] / sum[{over}](x[..r, i, j]) }}\n"
RAW = {
    "function of exponentials": "exp({s})",
    "function of powers": "2.0 ** {s}",
    "function of weights": "softmax[j]({s})",
    "function of exp of log_softmax": "exp(log_softmax[j]({s}))",
}

NAMES = (*SPELLINGS, *RAW)

# Weights beside a sink, which sum to less than 1.
SUNK = {
    "one more in the sum": "exp({s}) / (1 + sum[k](exp({t}){v}))",
    "a sink": "exp({s}) / (exp(gain) + sum[k](exp({t}){v}))",
    "a shifted sink": "exp({s} - max(gain, max[k]({t}{v}))) / (exp(gain - max(gain, max[k]({t}{v})))"
    " + sum[k](exp({t} - max(gain, max[l]({u}{x}))){v}))",
    "exp less logarithm": "exp({s} - log(exp(gain) + sum[k](exp({t}){v})))",
    "softmax times a gate": "sigmoid(log(sum[k](exp({t}){v})) - gain) * softmax[j]({s}{w})",
    "powers beside a sink": "2 ** {s} / (sum[k](2 ** {t}{v}) + 2 ** gain)",
    "a sink for each query": "exp({s}) / (exp(shift[i]) + sum[k](exp({t}){v}))",
}
# Weights that nothing normalises.
FREE = {
    "sigmoid": "sigmoid({s} - gain)",
    "sigmoid by hand": "1 / (1 + exp(gain - {s}))",
    "squared relu": "relu({s}) ** 2",
    "exponential": "exp({s} - 1)",
    "decay": "{s} * exp((j - i) * 0.5)",
    "cosine": "(1 + sin({s}))",
}

# Weights that are no exponentials: the facts know them, and no kernel does.
OTHERS = {
    "relu": "relu({s}) / sum[k](relu({t}){v})",
    "sigmoid times two": "2 * sigmoid({s}) / sum[k](2 * sigmoid({t}){v})",
    "one more": "(1 + {s}) / sum[k](1 + {t}{v})",
    "relu times a sigmoid": "relu({s}) * sigmoid({s}) / sum[k](sigmoid({t}) * relu({t}){v})",
    "square": "{s} ** 2 / sum[k]({t} * {t}{v})",
}
BASES = {
    family.name: family
    for family in FAMILIES
    if family.name in ("plain", "causal", "alibi", "grouped heads", "padding", "permuted axes")
}


def text(
    family: Family, spelling: str, named: bool, value: str | None = None, score: str | None = None, over: str = "j"
) -> str:
    """A family with its weights in one spelling, in place or as a definition of their own; normalised over the key,
    or by mistake over the query."""
    lead = family.lead
    body = score or f"sum[d]({family.query.format(d='d')} * {family.key.format(j='j', d='d')}) / sqrt(size(d))"
    if score is None and family.bias is not None:
        body += " + " + family.bias.format(j="j")
    words = {name: _held(family, j) for name, j in (("w", "j"), ("v", "k"), ("x", "l"))}
    for name, place in (("s", over), ("t", "k"), ("u", "l")):
        words[name] = f"scores[{', '.join(place if c == over else c for c in (*lead.split(', '), 'j'))}]"
    function, before, where = "", "", words["w"]
    if spelling in RAW:
        function, where = FUNCTION.format(over=over), ""
        before = f"let raw[{lead}, j] = {_chosen(family, RAW[spelling].format(**words))};\n"
        weights = f"normalize(raw)[{lead}, j]"
    else:
        weights = {**SPELLINGS, **SUNK, **OTHERS, **FREE}[spelling].format(**words)
    function, before, weights = (part.replace("max[j]", f"max[{over}]") for part in (function, before, weights))
    gathered, made = weights, ""
    if named:
        gathered, made = f"weights[{lead}, j]", f"let weights[{lead}, j] = {weights}{where};\n"
        if spelling == "twice normalised":
            # A guard behind a definition would guard the softmax too.
            made = f"let weights[{lead}, j] = {_chosen(family, weights)};\n"
    gain = ", gain" if "gain" in weights else ", shift[i]" if "shift[" in weights else ""
    return (
        f"{function}input {family.inputs}{gain};\n{family.before}\nlet scores[{lead}, j] = {body};\n{before}{made}"
        f"let out[{family.home}] = sum[j]({gathered} * {value or family.value.format(j='j')}"
        f"{'' if named else where});\noutput out;\n"
    )


def _held(family: Family, j: str) -> str:
    """A family's guard at a key, as it stands behind what it guards."""
    return " where " + ", ".join(guard.format(j=j) for guard in family.guard) if family.guard else ""


def _chosen(family: Family, body: str) -> str:
    """A value where the guard holds, else 0."""
    held = " && ".join(guard.format(j="j") for guard in family.guard)
    return f"if {held} {{ {body} }} else {{ 0 }}" if held else body


@dataclass(frozen=True)
class Reading:
    """The attentions of a program, and what the lints say of their scores."""

    roles: tuple[Roles, ...]
    codes: frozenset[str]


# What is said of the scale, and of a large number that stands for a mask: to the facts that is no guard.
SCALES = frozenset(("IX408", "IX409", "IX410"))
MASKED = "IX411"


def by_facts(program: ir.Program) -> Reading:
    """The attentions that the facts find."""
    view, sink = View(program), Sink()
    lint(view, sink)
    found = tuple(roles for roles in all_roles(view) if roles.kind == "attention")
    return Reading(found, frozenset(finding.code for finding in sink))


def by_plan(program: ir.Program) -> tuple[Reading, tuple[str, ...]]:
    """The attentions of the plan, each of which is a definition in the plainest words; or its reasons."""
    found = recognize(program, program.outputs)
    if not found.attentions:
        return Reading((), frozenset()), tuple(refusal.reason for refusal in found.refusals)
    return by_facts(found.program), tuple(refusal.reason for refusal in found.refusals)


PARTS = ("query", "key", "compare", "carry", "head", "batch", "shared")


def are_same(one: Roles, other: Roles, guarded: bool = True) -> bool:
    """Whether two attentions have the same roles, whatever names their bound coordinates have; and the same guard."""
    if guarded and (one.direction, one.within, one.hears is None) != (
        other.direction,
        other.within,
        other.hears is None,
    ):
        return False
    for part in PARTS:
        mine, theirs = one.of(part), other.of(part)
        if len(mine) != len(theirs):
            return False
        if mine != theirs and not (set(mine) <= other.names[part] or set(theirs) <= one.names[part]):
            return False
    return True
