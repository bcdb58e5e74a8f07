"""The rules, in the order in which they are tried.

`RULES` see a guard as it is written, in the operation that it stands in; `STORES` those that no operation has taken.
`LEGAL` then leaves no guard but in a `where` or a kernel, which is what a printer can print.
"""

from __future__ import annotations

from ...ir.types import SHORT
from ...records import replace
from ..alike import share_alike
from ..ops import Contract, Library, Map, Normalize, Plan, Read, Reduce, Value, Write
from .cache_writes import is_array, is_at_places, put_at_places, put_behind
from .choices import choose_matrices, products_by_place, sum_groups
from .convolution import convolve
from .cost import elements, normalized, products
from .decays import by_decay, decayed, decayed_by_steps
from .guards import choice_decided, choice_to_guard, indicator_to_guard, padding_for_guard, take_condition_out
from .losses import cross_entropy, is_logarithm, reduce_loss
from .masks import mask_reduction, mask_scores, sum_of_same
from .narrow import contract_short, round_again, round_once
from .norms import is_norm, negated_twice, norm, norm_bias, norm_weight, round_norm
from .pairs import pair_by_pair
from .patterns import Pattern, Rule, Target, always, anything, mapped, read_of, reduced
from .places import add_before_read, contract_before_read, merge_reads, one_hot, some_point, write_before_contract
from .ranks import (
    all_ranks,
    among_the_largest,
    by_sorting,
    few_places,
    gather_first,
    select_first,
)
from .remainders import sum_by_remainder
from .renaming import name_alike
from .rewrite import rewrite
from .running import by_running, running, some_pair
from .stores import store_places, write_places
from .sums import (
    contract,
    is_size,
    join_sums,
    multiply_out,
    scale_factors,
    sign_out,
    split_sum,
    sum_for_mean,
    take_factor_out,
)
from .telling import (
    at_one_point,
    before_the_contraction,
    before_the_read,
    by_chosen_matrices,
    by_convolution,
    by_groups,
    for_each_remainder,
    into_array,
    into_places,
)
from .terms import is_truth
from .tiles import by_tiles
from .turning import count_from_end
from .turns import add_first_what_stays


def _has_guard(one: Value) -> bool:
    return isinstance(one.op, Reduce | Normalize) and one.op.where is not None


SUMMED = frozenset(("+", "-"))
MULTIPLIED = frozenset(("*", "/"))
SUM_OF_CHOICE = reduced("sum", mapped("where", anything("test"), anything("then"), anything("otherwise")))
DECIDED = mapped("where", anything("", is_truth), anything("then"), anything())
REFUSED_OVER_NONE = frozenset(f"some {fn}" for fn in ("max", "min", "mean", "argmax", "argmin"))
CHECKED = mapped(REFUSED_OVER_NONE, anything("then"), anything("", is_truth))
SUM = reduced("sum", anything("x"))
MEAN = reduced("mean", anything("x"))
GUARDED_SUM = reduced("sum", anything("x"), where=anything("guard"))
SUM_OF_PRODUCT = reduced("sum", mapped(MULTIPLIED, name="product"))
GUARDED_PRODUCT = reduced("sum", mapped(MULTIPLIED), where=anything("guard"))
GUARDED_REDUCTION = Pattern(Reduce, when=_has_guard)
GUARDED_NORMALIZER = Pattern(Normalize, when=_has_guard)

RANK = Pattern(Normalize, "rank", (("fn", "rank"),))
SCALE = anything("scale", is_size)
ROUNDED = frozenset(f"as {dtype}" for dtype in SHORT)
SUM_OF_SHORT = reduced("sum", mapped("as wide", Pattern(Contract, "inner")))
WIDENED_AND_ROUNDED = mapped(ROUNDED, mapped(frozenset(("as f32", "as wide")), name="wide"))
ROUNDED_MAP = mapped(ROUNDED, Pattern(Map, "inner"))
ROW_AND_MORE = mapped("+", Pattern(Read, "row"), anything("other"))
NORM = anything("norm", is_norm)
READ_OF_LOGARITHM = read_of(anything("", is_logarithm))
ADDED_UP = frozenset(("sum", "mean"))
LOSS = Pattern(Library, "loss")
LOGARITHM = mapped(frozenset(("+", "-", "log")))

# Of pairs of factors too, which are found last.
CONTRACT_SHORT = Rule(
    "contract 16 bits", Pattern(Contract), contract_short, "Σ f32(a)·f32(b) = f32(Σ a·b), as the library rounds", always
)

# What is seen before its parts are rewritten.
FIRST: tuple[Rule, ...] = (
    Rule(
        "decay by steps",
        GUARDED_SUM,
        decayed_by_steps,
        "Σ_s Π_m g[m]·x[s] where s < m ≤ t is y[t] = g[t]·y[t-1] + x[t]",
        always,
        by_decay,
    ),
    Rule(
        "put rows behind",
        mapped("where", anything("test"), anything("rows"), anything("past", is_array)),
        put_behind,
        "x[j - n] if n ≤ j < n + size(x) else past[j] is past, given away, with x stored from n on",
        always,
        into_array,
    ),
    Rule(
        "put rows at places",
        Pattern(Map, when=is_at_places),
        put_at_places,
        "(Σ_i x[i] where p[i] = j) if any p[i] = j else past[j] is past, given away, with x stored at p",
        always,
        into_array,
    ),
)

RULES: tuple[Rule, ...] = (
    Rule("name alike what is reduced", Pattern(Reduce), name_alike, "⊕_k x[k] = ⊕_j x[j]", always),
    Rule("a choice that is decided", DECIDED, choice_decided, "x if true else y = x", always),
    Rule("a check that holds", CHECKED, choice_decided, "x, refused unless true = x", always),
    Rule("a choice of 0 is a guard", SUM_OF_CHOICE, choice_to_guard, "Σ (x if c else 0) = Σ x where c", always),
    Rule("a factor of 1 or 0 is a guard", SUM_OF_PRODUCT, indicator_to_guard, "Σ x·[c] = Σ x where c", always),
    Rule(
        "padding for a guard",
        GUARDED_PRODUCT,
        padding_for_guard,
        "Σ x[i]·w where x has i = Σ x[i]·w, 0 outside",
        always,
    ),
    Rule("take a condition out", GUARDED_SUM, take_condition_out, "Σ x where c = (Σ x) if c else 0", always),
    Rule("read through a one-hot sum", GUARDED_SUM, one_hot, "Σ_n x[n]·[n = v] = x[v]", always, at_one_point),
    Rule("some point", reduced("any", anything()), some_point, "any_n c[n] where n = v is c[v]", elements),
    Rule("some pair", reduced("any", anything()), some_pair, "any_t,s (s ≤ t) = any_t (there is t)", always),
    Rule(
        "sum by remainder",
        SUM,
        sum_by_remainder,
        "Σ_k x[k]·w[n - k] where s divides n - k = Σ_q x[s·q + r]·w[s·(p - q)] at n = s·p + r",
        elements,
        for_each_remainder,
    ),
    Rule("a mean is a sum", MEAN, sum_for_mean, "mean x where c = Σ x where c / Σ 1 where c", elements),
    Rule("run along", Pattern(Reduce), running, "⊕_s x[s] where s ≤ t = ⊕(x up to t)", elements, by_running),
    Rule("decay", GUARDED_SUM, decayed, "Σ_s g^(t-s)·x[s] where s ≤ t is y[t] = g·y[t-1] + x[t]", elements, by_decay),
    Rule("sum groups", GUARDED_SUM, sum_groups, "Σ_h x[h] where h / n = g is Σ_r x[g·n + r]", always, by_groups),
    Rule(
        "gather the first",
        reduced("sum", anything("x")),
        gather_first,
        "Σ_j x[j] where rank(x)[j] < n = Σ_t x[p[t]], p the places of the first n",
        normalized,
        few_places,
    ),
    Rule("write at places", GUARDED_SUM, write_places, "Σ_j x[j]·[f(j) = p] is a sum into places", always, into_places),
    Rule("merge views", read_of(Pattern(Read, "inner"), "outer"), merge_reads, "x[f][g] = x[f∘g]", always),
    Rule("join sums", reduced("sum", Pattern(Contract, "inner")), join_sums, "Σ_c Σ_k a·b = Σ_ck a·b", always),
    Rule("join sums of 16 bits", SUM_OF_SHORT, join_sums, "Σ_c f32(Σ_k a·b) = f32(Σ_ck a·b)", always),
    Rule("take a sign out", reduced("sum", mapped("neg", anything("x"))), sign_out, "Σ -x = -Σ x", always),
    Rule("split a sum", reduced("sum", mapped(SUMMED, name="sum")), split_sum, "Σ (a + b) = Σ a + Σ b", elements),
    Rule("take a factor out", SUM_OF_PRODUCT, take_factor_out, "Σ c·x = c·Σ x", always),
    Rule("scale a factor", mapped("/", anything("scaled"), SCALE), scale_factors, "(Σ a·b)/c = Σ (a/c)·b", products),
    Rule("scale by a factor", mapped("*", anything("scaled"), SCALE), scale_factors, "(Σ a·b)·c = Σ (a·c)·b", products),
    Rule("multiply out", SUM_OF_PRODUCT, multiply_out, "Σ w·(a + b) = Σ w·a + Σ w·b", elements),
    Rule("contract", SUM_OF_PRODUCT, contract, "Σ a·b is a contraction", elements),
    Rule(
        "add what stays first", mapped(SUMMED), add_first_what_stays, "a + x + b = (a + b) + x, of a loop's x", always
    ),
    Rule("add to all rows", ROW_AND_MORE, add_before_read, "x[t] + y = (x + y)[t]", always),
    Rule("less twice", mapped("neg", mapped("neg", anything("x"))), negated_twice, "-(-x) = x", always),
    Rule(
        "normalise by a kernel",
        Pattern(Map, "", (("fn", MULTIPLIED),)),
        norm,
        "x · rsqrt(mean x² + ε) is a norm",
        always,
    ),
    Rule("weigh in the norm", mapped("*", NORM, anything("other")), norm_weight, "norm(x)·w = norm(x, w)", always),
    Rule("add in the norm", mapped("+", NORM, anything("other")), norm_bias, "norm(x) + b = norm(x, b)", always),
    Rule("cross-entropy by a kernel", READ_OF_LOGARITHM, cross_entropy, "log_softmax(x)[t] = -loss(x, t)", elements),
    Rule("cross-entropy of a total", LOGARITHM, cross_entropy, "log Σ exp(x) - x[t] = loss(x, t)", elements),
    Rule("add up in the loss", reduced(ADDED_UP, LOSS), reduce_loss, "mean loss(x, t) = mean_loss(x, t)", elements),
    Rule(
        "add up less the loss",
        reduced(ADDED_UP, mapped("neg", LOSS)),
        reduce_loss,
        "mean -loss(x, t) = -mean_loss(x, t)",
        elements,
    ),
    Rule(
        "select the first",
        mapped("<", RANK, anything("limit")),
        select_first,
        "rank(x) < n of few",
        elements,
        among_the_largest,
    ),
    Rule(
        "choose matrices",
        Pattern(Contract),
        choose_matrices,
        "Σ_m w[p[t],n,m]·x[t,m], grouped by p",
        elements,
        by_chosen_matrices,
    ),
    Rule(
        "multiply by places",
        Pattern(Write),
        products_by_place,
        "Σ_t a[t,n]·b[t,m] at p[t], grouped by p",
        elements,
        by_chosen_matrices,
    ),
    CONTRACT_SHORT,
    Rule("round what was widened", WIDENED_AND_ROUNDED, round_again, "b16(f32(x)) = x", always),
    Rule("round a norm once", mapped(ROUNDED, NORM), round_norm, "b16(norm(f32(x))) = norm(x)", always),
    Rule("round once", ROUNDED_MAP, round_once, "b16(f(f32(x))) = f(x)", always),
    Rule("convolve", Pattern(Contract), convolve, "Σ_k x[i + k]·w[k] is a convolution", elements, by_convolution),
    Rule(
        "contract before the read",
        Pattern(Contract),
        contract_before_read,
        "Σ_d x[i,d]·r[f(i,j),d] = (Σ_d x[i,d]·r[p,d]) at p = f(i,j)",
        elements,
        before_the_read,
    ),
    Rule(
        "write before the contraction",
        Pattern(Contract),
        write_before_contract,
        "Σ_j w[i,j]·r[f(i,j),e] = Σ_p (Σ_j w[i,j]·[f(i,j) = p])·r[p,e]",
        products,
        before_the_contraction,
    ),
    Rule(
        "count from the end", Pattern(Contract), count_from_end, "Σ_k x[i - k]·w[k] = Σ_k x[i + k - n]·w[n - k]", always
    ),
)

# What no sum has taken as its guard.
STORES: tuple[Rule, ...] = (
    Rule("store at places", mapped("where"), store_places, "x if p = n else 0 is x stored at p, in zeros", always),
)

LEGAL: tuple[Rule, ...] = (
    Rule("sort", RANK, by_sorting, "rank(x) is a place in a stable sort", always, all_ranks),
    Rule("add up what is the same", SUM, sum_of_same, "Σ_k x = n·x if n > 0 else 0", always),
    CONTRACT_SHORT,
    Rule("contract pair by pair", Pattern(Contract), pair_by_pair, "Σ a·b·c = Σ a·(Σ b·c)", always),
    Rule("mask a reduction", GUARDED_REDUCTION, mask_reduction, "⊕ x where c = ⊕ (x if c else its identity)", always),
    Rule("mask scores", GUARDED_NORMALIZER, mask_scores, "softmax x where c = softmax (x if c else -∞)", always),
)


def optimise(plan: Plan, target: Target) -> Plan:
    """The plan by all rules, then as a printer can print it. What is stored at places is seen last: a sum of it is one
    into places."""
    for rules in (FIRST, RULES, STORES):
        plan = rewrite(plan, rules, target)
    return share_alike(legalise(plan, target))


def legalise(plan: Plan, target: Target) -> Plan:
    """What a printer can print: no guard but in a `where`, and no fold. That is no choice: the plan tells only of what
    has words."""
    legal = rewrite(replace(plan, refused=(), applied=()), LEGAL, target)
    told = (one for one in legal.applied if one.words)
    return by_tiles(replace(legal, refused=plan.refused, applied=(*plan.applied, *told)), target.learns)
