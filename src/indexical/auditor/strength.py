"""Laws of masks beyond who hears whom: how strong they are, what they add, what a row without keys gives, sinks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .inquiry import Inquiry, number
from .layout import Layout
from .models import centred, fit_scale, logarithms
from .observing import observe, own
from .settings import Setting

_HIGH = 30.0  # A score beside which all others are nothing.
_MASK = (r"masked_fill.*|where\s*\(.*|-\s*1e\d+.*|-\s*\d{3,}.*", r"mask.*")


def strength_law(inquiry: Inquiry) -> None:
    """Masks hold at the largest scores that the contract promises."""
    access, settings = inquiry.access, inquiry.settings
    if not settings.components() or inquiry.contract.softcap:
        return
    small = [observe(access, *inquiry.inputs()[:2], settings.plain(), each=False) for _ in range(2)]
    scale, left = fit_scale(access, small, 0.0)
    if left > 0.3 or not np.isfinite(scale).any():
        return
    inquiry.tested("mask strength")
    size = float(np.nanmedian(np.abs(scale))) or 1.0
    direction = np.random.default_rng(2).normal(size=access.D)
    direction /= np.linalg.norm(direction)
    most = inquiry.contract.logit_range / size
    setting = settings.draw(inquiry.rng) if settings.plain().keeps or inquiry.contract.documents else settings.plain()
    allowed = settings.declared(setting)
    for query in sorted({0, access.I // 2, access.I - 1}):
        dropped = ~allowed[:, query]
        if not dropped.any() or dropped.all():
            continue
        lane = int(np.argwhere(dropped.any(1))[0][0])
        signs = np.where(dropped[lane], 1.0, -1.0)
        q = np.broadcast_to(direction * most**0.5, access.shape("q"))
        k = np.broadcast_to(signs[None, :, None] * direction * most**0.5, access.shape("k"))
        weights = inquiry.weights(q.copy(), k.copy(), setting)
        heard = np.where(dropped[lane], np.nan_to_num(weights[lane, query]), 0.0)
        if heard.max() > 1e-6:
            key = int(heard.argmax())
            inquiry.report(
                "mask strength",
                f"a masked key is heard when scores reach {inquiry.contract.logit_range:g}",
                f"the masked key {key} has the weight {number(heard.max())} in {inquiry.out_at(lane, query)}, its "
                f"score being {inquiry.contract.logit_range:g} and those of others {-inquiry.contract.logit_range:g}",
                "masked scores are a finite number that large scores come near to, and not -inf",
                "fill with -inf, or with `torch.finfo(scores.dtype).min`",
                _MASK,
            )
            return


def additive_law(inquiry: Inquiry) -> None:
    """Test that the numbers of an additive mask are added to the scores as they are."""
    access, settings = inquiry.access, inquiry.settings
    for name, kind in inquiry.contract.masks.items():
        if kind != "additive" or name not in settings.others or name not in settings.layouts or inquiry.findings:
            continue
        inquiry.tested(f"mask {name}")
        layout = settings.layouts[name]
        q, k, _ = inquiry.inputs()
        plain = settings.plain()
        added = np.random.default_rng(6).normal(size=[access.size(f) for f in layout.factors])
        setting = Setting(plain.keeps, {**plain.arrays, name: added.reshape(layout.shape(access.sizes))})
        draws = [observe(access, q, k, each, each=False) for each in (plain, setting)]
        (before, support), (after, _) = (logarithms(access, draw) for draw in draws)
        late = own(access, draws[1].full) - own(access, draws[0].full)
        change = centred(access, after - before, support, "key")
        wanted = centred(access, access.spread(added, layout.factors), support, "key")
        if np.allclose(change, wanted, atol=1e-5):
            continue
        ratio = float((change * wanted).sum() / max((wanted * wanted).sum(), 1e-30))
        lane, query, key = (int(x) for x in np.unravel_index(np.abs(change - wanted).argmax(), change.shape))
        seen, right = number(change[lane, query, key]), number(wanted[lane, query, key])
        place = f"the log-weight of {inquiry.out_at(lane, query)} for key {key}"
        witness = f"{place} changes by {seen} from its row's mean, and the mask by {right}"
        if np.allclose(late, access.spread(added, layout.factors), atol=1e-6):
            cause = "the mask is added to the weights, after the softmax"
        elif np.allclose(change, ratio * wanted, atol=1e-5) and abs(ratio) > 1e-6:
            cause = (
                "the mask is subtracted"
                if abs(ratio + 1) < 1e-3
                else f"the mask is multiplied by {number(ratio)}: it is added before the scores are scaled"
            )
        elif np.abs(change).max() < 1e-6:
            cause = "the mask is ignored, or only its -inf is looked at"
            if _is_boolean_inside(inquiry, name):
                continue
        else:
            cause = "the mask is not added to the scores of its own queries and keys"
        inquiry.report(
            "mask", f"`{name}` is not added to the scores", witness, cause, "scale the scores, then add the mask", _MASK
        )


def _is_boolean_inside(inquiry: Inquiry, name: str) -> bool:
    """Whether an additive mask drops well: finite biases were not promised."""
    return not inquiry.findings


def empty_law(inquiry: Inquiry) -> None:
    """A query without keys gives 0 where the contract says so; elsewhere what it gives is told."""
    settings = inquiry.settings
    plain = settings.plain()
    if not plain.keeps or inquiry.findings:
        return
    dropped = {name: np.zeros_like(keep) for name, keep in plain.keeps.items()}
    setting = Setting(
        dropped, {**plain.arrays, **{name: settings.written(name, keep) for name, keep in dropped.items()}}
    )
    if settings.declared(setting).any():
        return
    q, k, v = inquiry.inputs()
    out = inquiry.forward(q, k, v, setting)
    words = (
        "NaN" if np.isnan(out).any() else "0" if np.abs(out).max() < 1e-9 else "an average of values that are masked"
    )
    if inquiry.contract.empty is None:
        inquiry.found["empty rows"] = words
        return
    inquiry.tested("empty rows")
    if words != "0":
        cause = (
            "softmax of a row that is -inf throughout is 0/0"
            if words == "NaN"
            else "masked scores are finite, so that a row of them is averaged"
        )
        inquiry.report(
            "empty",
            f"a query with no allowed key gives {words}, and not 0",
            "every key is masked",
            cause,
            "put 0 where a query has no key: `weights.masked_fill(~keep.any(-1, keepdim=True), 0)`",
            (r"softmax.*",),
        )


def _sinks(inquiry: Inquiry) -> Iterator[tuple[str, Layout]]:
    """The arguments that may be sinks: a number for each head, where rows sum to less than 1."""
    settings = inquiry.settings
    for name, value in settings.others.items() if str(inquiry.contract.rows) == "<=1" else ():
        layout = settings.layouts.get(name)
        if layout is None or name in inquiry.contract.masks or set(layout.factors) - {"h", "g", "1"}:
            continue
        if "float" in str(getattr(value, "dtype", "")):
            yield name, layout


def sink_share(inquiry: Inquiry) -> bool:
    """Whether the share of a sink goes to nobody: where the sink is by far the largest score, no key is heard."""
    for name, layout in _sinks(inquiry):
        q, k, _ = inquiry.inputs()
        plain = inquiry.settings.plain()
        high = np.full(layout.shape(inquiry.access.sizes), _HIGH)
        heard = inquiry.weights(q, k, Setting(plain.keeps, {**plain.arrays, name: high})).mean((0, 1))
        key = int(np.nanargmax(heard))
        if not heard[key] > 0.9:
            continue
        end, other = ("last", "first") if key == 0 else ("first", "last")
        inquiry.tested("sink")
        inquiry.report(
            "sink",
            f"the share of `{name}` goes to key {key}",
            f"with `{name}` = {number(_HIGH)}, key {key} has the weight {number(float(heard[key]))}",
            f"the sink stands {other} among the scores and the {end} weight is cut off, so that values are one "
            "position apart; or a value is gathered for it",
            f"cut off the weight of the sink itself, which stands {other}, before the values are gathered",
            (r"\[\.\.\., ?:-1\].*|\[\.\.\., ?1:\].*", r"sink.*"),
        )
        return False
    return True


def sink_law(inquiry: Inquiry) -> None:
    """A sink is one more score, neither scaled nor masked."""
    access, settings = inquiry.access, inquiry.settings
    for name, layout in _sinks(inquiry):
        inquiry.tested("sink")
        q, k, _ = inquiry.inputs()
        plain = settings.plain()
        base = np.zeros(layout.shape(access.sizes))
        levels = []
        for step in (0.0, 1.0):
            setting = Setting(plain.keeps, {**plain.arrays, name: base + step})
            weights = inquiry.weights(q, k, setting)
            total = weights.sum(2)
            with np.errstate(all="ignore"):
                levels.append(np.log((1 - total) / total))
        with np.errstate(all="ignore"):
            change = levels[1] - levels[0]
        if not np.isfinite(change).all():
            inquiry.report(
                "sink",
                f"`{name}` takes no share of the weights",
                f"the weights sum to {number(float(weights.sum(2).max()))}",
                "the sink is left out of the denominator",
                "divide by exp(sink) + the sum of exp(scores)",
                (r"sink.*",),
            )
        elif np.abs(change - 1).max() > 1e-5:
            ratio = float(np.median(change))
            cause = (
                f"the sink is multiplied by {number(ratio)}: it is scaled with the scores"
                if np.ptp(change) < 1e-5
                else "the sink is not one more score of the softmax"
            )
            inquiry.report(
                "sink",
                f"`{name}` does not act as a score",
                f"raising it by 1 raises log(lost / kept) by {number(ratio)}",
                cause,
                "append the sink after the scores are scaled",
                (r"sink.*",),
            )
