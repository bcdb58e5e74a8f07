"""PyTorch's kernels that rules put in the place of several operations: what each is called, and those that we write."""

from __future__ import annotations

# A kernel's name in the plan, and the function that is called for it.
KERNELS = {
    "among_first": "among_first",
    "attention": "attended",
    "by_place": "by_place",
    "convolution": "convolved",
    "cross_entropy": "torch.nn.functional.cross_entropy",
    "decayed": "decayed",
    "layer_norm": "torch.nn.functional.layer_norm",
    "only_heard": "only_heard",
    "products_by_place": "products_by_place",
    "rank": "rank",
    "rms_norm": "torch.nn.functional.rms_norm",
    "top": "top",
}

TEXTS = {
    "attended": '''
def attended(query, key, value, scale=1.0, mask=None):
    """Softmax attention with a mask that is added to the scores, over (batch, head, place, width): by the library's
    kernel, which has one width and no gradient to the mask. A query whose mask is all -inf gets 0."""
    def by_products():
        scores = query @ key.mT * scale
        if mask is None:
            return torch.softmax(scores, -1) @ value
        gone = mask == -math.inf
        return torch.softmax((scores + mask).masked_fill(gone, -math.inf), -1).masked_fill(gone, 0.0) @ value

    learned = mask is not None and mask.requires_grad and torch.is_grad_enabled()
    if learned or recorded(query) or 0 in (query.numel(), key.numel()):
        return by_products()
    width, most = value.shape[-1], max(query.shape[-1], value.shape[-1])
    taken = query, key, value
    if query.shape[-1] != width:
        taken = [torch.nn.functional.pad(x, (0, most - x.shape[-1])) for x in taken]
    taken = [x if x.stride(-1) == 1 else x.contiguous() for x in taken]
    out = torch.nn.functional.scaled_dot_product_attention(*taken, mask, scale=scale)
    if mask is not None and not math.isfinite(out.detach().sum()):
        return by_products()  # A score that does not count may not be finite: -inf and it are no number.
    return out if most == width else out[..., :width]
'''.strip(),
    "among_first": '''
def among_first(x, kept=None, count=1):
    """Whether each number is among so many largest ones along the last axis, the first of equal ones first and NaN
    last; of those that are kept. For all others, whether fewer are kept."""
    n = x.shape[-1]
    place = top(x, kept, count)
    found = torch.zeros((*x.shape[:-1], n + 1), dtype=torch.bool, device=x.device)
    found = found.scatter(-1, torch.where(place < 0, n, place), True)[..., :n]
    return found if kept is None else torch.where(kept, found, kept.sum(-1, keepdim=True) < count)
'''.strip(),
    "only_heard": '''
def only_heard(x, allowed, gone):
    """x, 0 where nothing is allowed along so many last axes: there it may be anything. What is finite may stay."""
    if not recorded(x) and math.isfinite(x.detach().sum()):
        return x
    return torch.where(allowed.any(tuple(range(-gone, 0))), x, 0.0)
'''.strip(),
    "rank": '''
def rank(x, kept=None):
    """The place of each number that is kept among those that are along the last axis, in decreasing order, the first of
    equal ones first and NaN last, by a stable sort; how many are kept for all others."""
    x = x.detach()
    order = torch.argsort(-x if x.is_floating_point() else ~x, dim=-1, stable=True)
    places = torch.arange(x.shape[-1], device=x.device).expand_as(order)
    if kept is not None:
        kept = kept.gather(-1, order)
        places = torch.where(kept, kept.cumsum(-1) - 1, kept.sum(-1, keepdim=True))
    return torch.zeros_like(order).scatter(-1, order, places)
'''.strip(),
    "recorded": '''
def recorded(x):
    """Whether somebody reads what is computed: a graph, a transform, a mode. Then no number may be looked at."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return True
    return torch.autograd.forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack() > 0 or x.is_meta
'''.strip(),
    "top": '''
def top(x, kept=None, count=1):
    """The places of so many numbers that are kept along the last axis, the largest first, the first of equal ones first
    and NaN last; -1 where there are no more."""
    x, n = x.detach(), x.shape[-1]

    def by_sorting(x, kept):
        order = torch.argsort(-x if x.is_floating_point() else ~x, dim=-1, stable=True)
        if kept is not None:
            order = order.gather(-1, torch.argsort((~kept).gather(-1, order), dim=-1, stable=True))
            order = torch.where(torch.arange(n, device=x.device) < kept.sum(-1, keepdim=True), order, -1)
        return torch.nn.functional.pad(order[..., :count], (0, max(0, count - n)), value=-1)

    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if n <= count or count < 1 or not x.is_floating_point() or traced:
        return by_sorting(x, kept)
    low = x if kept is None else torch.where(kept, x, -math.inf)
    values, place = low.topk(count + 1, -1)
    # Which of equal numbers come first is not said there, and NaN comes before all: such rows are sorted.
    odd = (values[..., 1:] == values[..., :-1]).any(-1) | values[..., 0].isnan() | (values[..., -1] == -math.inf)
    place = place[..., :count]
    if bool(odd.any()):
        place[odd] = by_sorting(x[odd], None if kept is None else kept[odd])
    return place
'''.strip(),
    "decayed": '''
def decayed(x, step):
    """The sum of all numbers so far along the last axis, times the factor of each step since: one for
    all steps, or one for each. In every turn it has twice as many of them."""
    reach, same = 1, step.shape[-1] == 1
    while reach < x.shape[-1]:
        later = step if same else step[..., reach:]
        x = x + torch.nn.functional.pad(later * x[..., :-reach], (reach, 0))
        step = step * step if same else torch.cat((step[..., :reach], later * step[..., :-reach]), -1)
        reach = 2 * reach
    return x
'''.strip(),
    "by_place": '''
def by_place(x, table, places):
    """x[t, m] times table[places[t], n, m], summed over m. Rows with one place are multiplied at once: no row has a
    matrix of its own, as it has to where the number of rows with each place may not be asked for."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if traced or not x.is_cpu or 0 in (*x.shape, *table.shape):
        return (table[places] @ x[..., None])[..., 0]
    order = torch.argsort(places, stable=True)
    found, counts = torch.unique_consecutive(places[order], return_counts=True)
    few = 2 * len(found) < len(table)
    chosen = table.index_select(0, found).unbind() if few else table.unbind()
    numbers = range(len(found)) if few else found.tolist()
    rows = x.index_select(0, order).split(counts.tolist())
    parts = [part @ chosen[number].mT for number, part in zip(numbers, rows)]
    return torch.cat(parts).index_select(0, torch.argsort(order))
'''.strip(),
    "products_by_place": '''
def products_by_place(a, b, places, count):
    """a[t, n] * b[t, m] added up at places[t], as so many matrices. Rows with one place are multiplied at once: no row
    has a matrix of its own, as it has to where few share one, or where their number may not be asked for."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if not traced and a.is_cpu and 0 not in (*a.shape, *b.shape):
        order = torch.argsort(places, stable=True)
        found, counts = torch.unique_consecutive(places[order], return_counts=True)
        if 2 * len(found) <= len(places):
            rows = zip(a.index_select(0, order).split(counts.tolist()), b.index_select(0, order).split(counts.tolist()))
            parts = torch.stack([left.mT @ right for left, right in rows])
            return scattered(parts, (found,), (count,))
    return scattered(a[:, :, None] * b[:, None], (places,), (count,))
'''.strip(),
    "convolved": '''
def convolved(x, w, counts, steps, dilations):
    """sum[c, k](x[g, n, c, step * i + dilation * k] * w[g, o, c, k]) as [g, n, o, i], in up to three axes i and k.

    It is a convolution, or the gradient of one by its kernel where there are fewer i than k. On a GPU these round to
    10 bits: there it is a product of matrices.
    """
    (g, n, c), (_, o), sizes = x.shape[:3], w.shape[:2], w.shape[3:]
    if 0 in (*x.shape, *w.shape, *counts):
        return x.new_zeros((g, n, o, *counts)) + x.flatten()[:0].sum() + w.flatten()[:0].sum()
    if not x.is_cpu:
        for axis, (count, size, step, dilation) in enumerate(zip(counts, sizes, steps, dilations), 3):
            x = x.unfold(axis, dilation * (size - 1) + 1, step).narrow(axis, 0, count)[..., ::dilation]
        rows = x.movedim(2, 2 + len(counts)).reshape(g, n * math.prod(counts), c * math.prod(sizes))
        out = rows @ w.reshape(g, o, c * math.prod(sizes)).mT
        return out.reshape(g, n, *counts, o).movedim(-1, 2)
    name = f"conv{len(sizes)}d"
    if math.prod(sizes) <= math.prod(counts):
        x, w = x.transpose(0, 1).flatten(1, 2), w.flatten(0, 1)
        out = getattr(torch.nn.functional, name)(x, w, stride=steps, dilation=dilations, groups=g)
        return out.unflatten(1, (g, o)).transpose(0, 1)
    x, w = x.movedim(2, 0).flatten(1, 2), w.movedim(2, 0).flatten(1, 2)
    weight = getattr(torch.nn.grad, f"{name}_weight")
    out = weight(x, (g * o, n, *counts), w, stride=dilations, dilation=steps, groups=g)
    return out.unflatten(0, (g, o)).transpose(1, 2)
'''.strip(),
}
