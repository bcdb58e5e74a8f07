"""The mistakes that people make in attention, each as a model that differs from the declared one in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir.functions import FUNCTIONS
from .access import Access
from .contract import evaluate
from .models import Model, agrees, dot, fit_scale, logarithms, predict
from .observing import Draw, own
from .settings import Component, Setting, Settings

_SOFTMAX = (r"softmax\s*\(.*", r"exp\s*\(.*", r"scaled_dot_product_attention.*")
_MASK = (r"masked_fill.*|tril.*|triu.*|where\s*\(.*", r"mask.*")


def explain(
    settings: Settings, base: Model, draws: list[Draw], tolerance: float, law: str | None = None
) -> Model | None:
    """The model, one mistake away from the declared one, that predicts all that was seen."""
    for model in _candidates(settings, base, draws):
        if law is not None and model.law != law:
            continue
        fitted = model
        if model.scale is None and model.weigh is not None:
            fitted = replace(model, scale=_any_scale(settings, model, draws))
        elif model.scale is None:
            within = _all_of(settings, [model.relation, model.late]) if model.late else model.relation
            scores = model.scores or _scores(settings.access, model)
            scale, left = fit_scale(
                settings.access,
                draws,
                model.bias,
                _axis(model.over),
                scores,
                within,
                model.softcap,
                model.maps.get("v"),
            )
            if np.isnan(scale).all() or left > max(1e-3, 20 * tolerance):
                continue
            fitted = replace(model, scale=np.nan_to_num(scale))
        if agrees(settings.access, fitted, draws, max(tolerance, 1e-7)):
            return fitted
    return None


def _axis(over: str) -> str:
    return "key" if over == "pairs" else over


def _scores(access: Access, model: Model) -> Callable[[Any, Any], Any] | None:
    maps = {**access.maps, **model.maps}
    return (lambda q, k: dot(access, maps, q, k)) if model.maps else None


def _candidates(settings: Settings, base: Model, draws: list[Draw]) -> Iterator[Model]:
    yield from _normalisations(settings, base)
    if settings.components():  # A mask of large numbers, and not of -inf, leaves something where all is masked.
        yield from _normalisations(settings, replace(base, fill=-1e30))
    yield from _relations(settings, base)
    yield from _stages(settings, base, draws)
    yield from _pairings(settings, base)
    yield from _bent(settings, base)
    yield from _weighings(settings, base, draws)
    if settings.components():  # Two mistakes at once.
        for model in _normalisations(settings, replace(base, relation=_all_of(settings, []))):
            yield replace(model, cause=f"{model.cause}; and no mask is applied")


# --------------------------------------------------------------- normalisation


def _normalisations(settings: Settings, base: Model) -> Iterator[Model]:
    access = settings.access
    law: dict[str, Any] = {"law": "normalisation", "hints": _SOFTMAX, "scale": None}
    mend = "normalise over the keys: `softmax(dim=-1)` of scores whose last axis is the key"
    if base.over != "query":
        cause = "the softmax is over the queries, and not over the keys"
        yield replace(
            base,
            over="query",
            message="the weights of a query do not sum to 1; those of a key do",
            cause=cause,
            mend=mend,
            **law,
        )
    for letter, index in access.lanes["out"].items():
        if index.max() > 0:
            name = {"h": "heads", "g": "heads", "b": "batch"}.get(letter, f"axis `{letter}`")
            cause = f"the softmax is over the {name}, and not over the keys"
            yield replace(
                base, over=letter, message=f"the weights sum to 1 over the {name}", cause=cause, mend=mend, **law
            )
    cause = "the softmax is over queries and keys together"
    yield replace(base, over="pairs", message="all weights of a head sum to 1 together", cause=cause, mend=mend, **law)
    if access.I == access.J and access.count["q"] == access.count["k"]:
        cause = "the weights are transposed before they meet the values"
        mend = "multiply `weights @ v` with the keys last"
        yield replace(
            base,
            over="query",
            scores=_swapped(access),
            message="the weights of a key sum to 1, and not those of a query",
            cause=cause,
            mend=mend,
            **law,
        )


def _swapped(access: Access) -> Callable[[Any, Any], Any]:
    return lambda q, k: dot(access, access.maps, q, k).swapaxes(1, 2)


# ------------------------------------------------------------------- relations


def _laws(component: Component) -> str:
    return "mask" if component.name.startswith("mask") else component.name


def _relations(settings: Settings, base: Model) -> Iterator[Model]:
    components = settings.components()
    for number, component in enumerate(components):
        others = [other.relation for at, other in enumerate(components) if at != number]
        for mistake in component.mistakes:
            relation = _all_of(settings, [*others, mistake.relation])
            yield replace(
                base,
                relation=relation,
                scale=None,
                law=mistake.law or _laws(component),
                message=_broken(component, mistake.law),
                cause=mistake.cause,
                mend=mistake.mend,
                hints=_MASK,
            )
    if len(components) > 1:
        either = _any_of(settings, [component.relation for component in components])
        names = " and ".join(component.name for component in components)
        yield replace(
            base,
            relation=either,
            scale=None,
            law="mask",
            message=f"a key is heard where only one of {names} allows it",
            cause=f"{names} are joined with `or`",
            mend="a key is heard where all of them allow it: join them with `and`",
            hints=_MASK,
        )


def mask_mistake(settings: Settings, patterns: list[tuple[Setting, Any]], itself: bool = False) -> Model | None:
    """The mistake in a mask that explains who hears whom, in every setting and every row that hears some key by it.
    `itself` leaves it open whether a query hears its own position."""
    access = settings.access
    free = (np.arange(access.I)[:, None] == np.arange(access.J)[None, :]) & itself
    for model in _relations(settings, Model(settings.declared)):
        some, fits = False, True
        for setting, heard in patterns:
            allowed = model.relation(setting)
            rows = allowed.any(2)
            fits &= bool(np.array_equal((heard | free)[rows], (allowed | free)[rows]))
            some |= bool(rows.any())
        if fits and some:
            return model
    return None


def of_masked_queries(settings: Settings, base: Model, draws: list[Draw], tolerance: float) -> str | None:
    """The mask of keys that is applied to queries too, where that explains all rows of other queries."""
    for component in settings.components():
        others = [other.relation for other in settings.components() if other is not component]
        if settings.access.I != settings.access.J or not component.name.startswith("mask"):
            continue

        def both(setting: Setting, kept: Callable[[Setting], Any] = component.relation) -> Any:
            return kept(setting) & kept(setting).swapaxes(1, 2)

        model = replace(base, relation=_all_of(settings, [*others, both]))
        scale, _ = fit_scale(settings.access, draws, 0.0, within=model.relation, cap=base.softcap)
        if not np.isnan(scale).all() and agrees(
            settings.access, replace(model, scale=np.nan_to_num(scale)), draws, max(tolerance, 1e-7)
        ):
            return component.name
    return None


def _broken(component: Component, law: str | None = None) -> str:
    if law == "window":
        return "who hears whom is not what the window says"
    if component.name == "causal":
        return "who hears whom is not `j <= i`"
    return f"who hears whom is not what {component.name} says"


def _all_of(settings: Settings, relations: list[Callable[[Setting], Any]]) -> Callable[[Setting], Any]:
    return lambda setting: settings.together(relations, setting)


def _any_of(settings: Settings, relations: list[Callable[[Setting], Any]]) -> Callable[[Setting], Any]:
    return lambda setting: np.any([relation(setting) for relation in relations], axis=0)


# ---------------------------------------------------------------------- stages


def _stages(settings: Settings, base: Model, draws: list[Draw]) -> Iterator[Model]:
    """The right mask at the wrong place, or with the wrong number."""
    components = settings.components()
    groups = [components] if components else []
    groups += [[component] for component in components if len(components) > 1]
    for group in groups:
        names = " and ".join(component.name for component in group)
        late = _all_of(settings, [component.relation for component in group])
        early = _all_of(settings, [other.relation for other in components if other not in group])
        law = _laws(group[0])
        plain = replace(base, relation=early, late=late, scale=None, law=law, hints=_MASK)
        yield replace(
            plain,
            stage="after",
            law="rows",
            message=f"the weights that {names} leaves do not sum to 1",
            cause=f"the mask ({names}) is applied after the softmax, and the rest is not normalised again",
            mend="mask the scores with -inf before the softmax, or divide by the sum of what is left",
        )
        for stage, how in (
            ("factor", "multiplied with the scores"),
            ("added", "added to the scores as 0 and 1"),
            ("dropped", "added to the scores as 0 and 1"),
        ):
            yield replace(
                plain,
                stage=stage,
                message=f"keys that {names} drops are heard",
                cause=f"the mask ({names}) is {how}: a masked score is an ordinary number, and not -inf",
                mend="use `masked_fill(~keep, -inf)`, or add -inf where a key is dropped",
            )
        if base.softcap:
            yield replace(
                plain,
                relation=settings.declared,
                late=None,
                stage="capped",
                message=f"keys that {names} drops are heard",
                cause="the soft cap is applied after the mask: -inf becomes minus the cap",
                mend="cap the scores first, then mask them",
            )
        scale, _ = fit_scale(settings.access, draws, base.bias, "key", base.scores, settings.declared, base.softcap)
        known = replace(base, scale=np.nan_to_num(scale))
        for stage, how in (("before", "set to"), ("lowered", "changed by")):
            fill = _fill(settings, known, draws, stage == "lowered")
            if fill is not None:
                yield replace(
                    plain,
                    relation=settings.declared,
                    late=None,
                    stage=stage,
                    fill=fill,
                    message=f"keys that {names} drops are heard",
                    cause=f"masked scores are {how} {fill:.4g}, which other scores outweigh, and not to -inf",
                    mend='fill with -inf (`float("-inf")`, or `torch.finfo(dtype).min`)',
                )


def _fill(settings: Settings, base: Model, draws: list[Draw], added: bool) -> float | None:
    """The number that masked scores seem to be set to, or that seems to be added to them."""
    found = []
    access = settings.access
    for draw in draws:
        values, support = logarithms(access, draw)
        allowed = settings.declared(draw.setting)
        if not (support & ~allowed).any() or not (support & allowed).any():
            continue
        raw = base.scores(draw.q, draw.k) if base.scores else dot(access, access.maps, draw.q, draw.k)
        known = np.asarray(1.0 if base.scale is None else base.scale)[..., None, None] * raw + base.bias
        rows = (support & allowed).any(2) & (support & ~allowed).any(2)
        for lane, query in zip(*np.nonzero(rows), strict=True):
            inside = support[lane, query] & allowed[lane, query]
            outside = support[lane, query] & ~allowed[lane, query]
            level = (values[lane, query] - known[lane, query])[inside].mean()
            own = known[lane, query][outside] if added else 0.0
            found += list(values[lane, query][outside] - level - own)
    if not found or np.ptp(found) > 1e-6:
        return None
    middle = float(np.mean(found))
    return 0.0 if abs(middle) < 1e-7 else middle


# -------------------------------------------------------------------- pairings


def _pairings(settings: Settings, base: Model) -> Iterator[Model]:
    """The wrong thing compared with, or gathered from, the wrong thing."""
    access = settings.access
    plain = replace(base, scale=None)
    if access.I == access.J and access.count["q"] == access.count["k"]:
        yield from _exchanged(access, plain)
    cause = "the values are gathered at the query, and not at the key"
    yield replace(
        plain,
        scale=base.scale if base.scale is not None else 1.0,
        gather="query",
        law="dead input",
        message="queries and keys have no effect: every row is its own value",
        cause=cause,
        mend="sum over the key: `einsum('… i j, … j e -> … i e')`",
        hints=(r"einsum.*|matmul.*| @ .*",),
    )
    yield replace(
        plain,
        scale=1.0,
        gather="all",
        law="dead input",
        message="queries and keys have no effect: every row is the sum of all values",
        cause="weights and values are summed apart: the key of the values is another letter than that of the weights",
        mend="sum over one key: `einsum('… i j, … j e -> … i e')`",
        hints=(r"einsum.*|sum\(.*",),
    )
    for step in access.shifts:
        yield replace(
            plain,
            scores=_shifted(access, step),
            relation=_rolled(base.relation, step),
            law="score",
            message="a key is heard with the value of another position",
            cause=f"the values are {_positions(step)} apart from their keys: they are shifted or rolled",
            mend="gather the value at the key that was compared",
            hints=(r"roll.*|cat.*|pad.*",),
        )
    for roles, maps in groups_in_turn(access):
        yield replace(plain, maps=maps, **regrouped(roles))


def _bent(settings: Settings, base: Model) -> Iterator[Model]:
    """Scores that pass through a function, where a scale says that they are a multiple of `q·k`."""
    access, contract = settings.access, settings.contract
    if contract.scale is None or contract.softcap is not None:
        return
    scale = evaluate(contract.scale, {**access.sizes, "d": access.D})
    for name, function in FUNCTIONS.items():
        if function.arity != 1 or not function.total or function.flat:
            continue

        def scores(q: Any, k: Any, value: Callable[..., Any] = function.value) -> Any:
            return np.vectorize(value, otypes=[float])(scale * dot(access, access.maps, q, k))

        yield replace(
            base,
            scale=None,
            scores=scores,
            law="score",
            message="the scores are not a multiple of q·k",
            cause=f"the scores pass through `{name}` before the softmax",
            mend="exponentiate the scores as they are",
            hints=(rf"{name}.*",),
        )


def _exchanged(access: Access, plain: Model) -> Iterator[Model]:
    """Queries taken for keys, or the other way round, where there are as many of both."""
    cause = "queries and keys are exchanged"
    mend = "the scores are `q @ k.transpose(-2, -1)`: the query is the first axis"
    yield replace(
        plain,
        scores=_swapped(access),
        law="locality",
        message="moving one query moves other rows of the output",
        cause=cause,
        mend=mend,
        hints=(r"matmul.*|einsum.*|bmm.*| @ .*",),
    )
    for role, other in (("q", "k"), ("k", "q")):
        name = {"q": "queries", "k": "keys"}
        yield replace(
            plain,
            scores=_with_itself(access, role),
            law="dead input",
            message=f"the {name[other]} have no effect",
            cause=f"the {name[role]} are compared with themselves",
            mend="compare q with k",
            hints=(r"matmul.*|einsum.*|bmm.*| @ .*",),
        )


def regrouped(roles: tuple[str, ...]) -> dict[str, Any]:
    names = " and ".join({"k": "keys", "v": "values"}[role] for role in roles)
    return {
        "law": "groups",
        "message": f"a query head hears the {names} of another group",
        "cause": "key heads are repeated in the wrong order: `repeat` (0, 1, 0, 1) where `repeat_interleave` "
        "(0, 0, 1, 1) is meant",
        "mend": "query head h belongs to key head h // (H / G): use `repeat_interleave(H // G, dim=heads)`",
        "hints": (r"repeat.*|expand.*|tile.*",),
    }


def _with_itself(access: Access, role: str) -> Callable[[Any, Any], Any]:
    def scores(q: Any, k: Any) -> Any:
        chosen = q if role == "q" else k
        return np.einsum("lid,ljd->lij", chosen[access.maps[role]], chosen[access.maps[role]])

    return scores


def groups_in_turn(access: Access) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Groups in the other order, for keys, values or both."""
    outs = access.lanes["out"]
    packed = [index for letter, index in outs.items() if letter != "b"]  # Heads may be packed as `(g r)`.
    if not packed:
        return
    heads = outs["h"] if "h" in outs else np.ravel_multi_index(packed, [int(x.max()) + 1 for x in packed])
    changed = {}
    for role in ("k", "v"):
        table = access.lanes[role]
        if "g" in table and {"h", "g"} & set(outs) and 1 < access.size("g") < int(heads.max()) + 1:
            wanted = heads % access.size("g")
            matches = np.ones((access.count["out"], access.count[role]), bool)
            for letter, index in table.items():
                matches &= (
                    (wanted if letter == "g" else outs[letter])[:, None] == index[None, :]
                    if letter == "g" or letter in outs
                    else True
                )
            changed[role] = matches.argmax(1)
    for roles in (("k", "v"), ("k",), ("v",)):
        if all(role in changed for role in roles):
            yield roles, {role: changed[role] for role in roles}


# ------------------------------------------------------------------- weighings


_NO_SOFTMAX: dict[str, Any] = {
    "law": "rows",
    "message": "the weights of a query are no softmax of its scores",
    "mend": "the weights are `softmax(scores)` over the keys, once",
    "hints": _SOFTMAX,
}


def _softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(2, keepdims=True))
    return powers / powers.sum(2, keepdims=True)


def _unmasked(scores: Any) -> Any:
    return np.where(np.isneginf(scores), 0.0, scores)


_WEIGHINGS: list[tuple[Callable[[Any], Any], str]] = [
    (np.exp, "the exponentials are not divided by their sum"),
    (_unmasked, "the softmax is missing: the scores themselves are the weights"),
    (lambda scores: 1 / (1 + np.exp(-scores)), "a sigmoid stands where a softmax is declared"),
    (
        lambda scores: np.where(np.isneginf(scores), 0.0, np.log(_softmax(scores))),
        "the logarithm of the softmax is used as weights",
    ),
    (
        lambda scores: _unmasked(scores) / scores.shape[2],
        "the scores are divided by the number of keys, and not by a softmax",
    ),
    (lambda scores: _softmax(scores) ** 2, "the weights are squared after the softmax"),
]


def _weighings(settings: Settings, base: Model, draws: list[Draw]) -> Iterator[Model]:
    """Something else than one softmax, or scores that are not `q·k`."""
    access = settings.access
    for weigh, cause in _WEIGHINGS:
        yield replace(base, weigh=weigh, scale=None, cause=cause, **_NO_SOFTMAX)
    total = np.array([own(access, draw.full).sum(2).mean() for draw in draws]).mean()
    if abs(total - 1) > 1e-6:
        cause = f"the weights are multiplied by {total:.6g} after the softmax"
        if np.isclose(total, access.D**-0.5, rtol=1e-6):
            cause += ", which is 1/sqrt(d): the scale belongs to the scores, before it"
        yield replace(base, weigh=lambda scores: total * _softmax(scores), scale=None, cause=cause, **_NO_SOFTMAX)
    yield from _additions(settings, base, draws)
    yield from _other_scores(access, base)


def _additions(settings: Settings, base: Model, draws: list[Draw]) -> Iterator[Model]:
    """Weights to which the same numbers are added, whatever the queries and keys are."""
    access = settings.access
    plain = [draw for draw in draws if all(keep.all() for keep in draw.setting.keeps.values())][:2]
    for scale in _usual_scales(access) if len(plain) == 2 else ():
        model = replace(base, scale=scale)
        one, two = (own(access, draw.full) - own(access, predict(access, model, draw)) for draw in plain)
        if np.allclose(one, two, atol=1e-7) and np.abs(one).max() > 1e-6:
            cause = "something is added to the weights, after the softmax: a bias belongs to the scores, before it"
            mend = "`softmax(scores + bias)`, and not after it"
            yield replace(model, added=one, cause=cause, **{**_NO_SOFTMAX, "mend": mend})


def _other_scores(access: Access, base: Model) -> Iterator[Model]:
    """Scores that are another product of queries and keys."""
    message = "the score is not the product of a query and a key"
    law: dict[str, Any] = {"scale": None, "law": "score", "message": message}
    if access.count["q"] == access.count["k"]:
        yield replace(
            base,
            scores=_apart(access),
            cause="features are summed apart, before they are multiplied",
            mend="multiply feature by feature: `einsum('… i d, … j d -> … i j')`",
            hints=(r"einsum.*|sum\(.*",),
            **law,
        )
    yield replace(
        base,
        scores=_reshaped(access),
        cause="the keys are reshaped where they should be transposed: `view(…, d, n)`",
        mend="`k.transpose(-2, -1)`",
        hints=(r"\.(view|reshape)\(.*",),
        **law,
    )
    for step in access.shifts:
        yield replace(
            base,
            scores=_shifted(access, step),
            cause=f"keys and values are {_positions(step)} apart: one of them is shifted or rolled",
            mend="gather the value at the key that was compared",
            hints=(r"roll.*|cat.*|pad.*",),
            **{**law, "message": "a key is heard with the value of another position"},
        )


def _positions(step: int) -> str:
    return "one position" if abs(step) == 1 else f"{abs(step)} positions"


def _rolled(relation: Callable[[Setting], Any], step: int) -> Callable[[Setting], Any]:
    return lambda setting: np.roll(relation(setting), step, 2)


def _shifted(access: Access, step: int) -> Callable[[Any, Any], Any]:
    return lambda q, k: dot(access, access.maps, q, np.roll(k, step, 1))


def _apart(access: Access) -> Callable[[Any, Any], Any]:
    return lambda q, k: q[access.maps["q"]].sum(2)[:, :, None] * k[access.maps["k"]].sum(2)[:, None, :]


def _reshaped(access: Access) -> Callable[[Any, Any], Any]:
    return lambda q, k: q[access.maps["q"]] @ k[access.maps["k"]].reshape(-1, access.D, access.J)


def _usual_scales(access: Access) -> list[float]:
    sizes = [access.D, access.J, access.I, access.D * access.count["out"]]
    return [1.0, *(size**power for size in sizes for power in (-0.5, -1.0, -0.25, 0.5))]


def _any_scale(settings: Settings, model: Model, draws: list[Draw]) -> float:
    """The scale that comes nearest: what is declared, one of those that people use, or any other."""
    access, declared = settings.access, settings.contract.scale

    def misses(scale: Any) -> float:
        seen, expected = draws[0].full, predict(access, replace(model, scale=scale), draws[0])
        return float(np.nanmax(np.abs(seen - expected)))

    known = [] if declared is None else [evaluate(declared, {**access.sizes, "d": access.D})]
    best = float(min([*known, *_usual_scales(access)], key=misses))
    if misses(best) < 1e-7:
        return best
    step = 1.25
    near = float(min(step ** np.arange(-30.0, 12.0), key=misses))
    if misses(near) > 0.1:
        return best
    low, high = near / step, near * step
    for _ in range(60):  # Golden sections: the miss falls towards the scale from both sides.
        inner = high - (high - low) * 0.618, low + (high - low) * 0.618
        low, high = (low, inner[1]) if misses(inner[0]) < misses(inner[1]) else (inner[0], high)
    return min(best, (low + high) / 2, key=misses)
