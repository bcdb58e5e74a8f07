"""Small functions that stand above what PyTorch code calls them."""

from __future__ import annotations

from ..ir.functions import FUNCTIONS
from .numpy_helpers import HELPERS as _OTHERS

HELPERS = {
    **{name: row.torch.helper for name, row in FUNCTIONS.items() if row.torch.helper},
    **{name: _OTHERS[name] for name in ("truncated", "as_whole", "fitting", "add", "subtract", "magnitude")},
    "as_scalar": '''
def as_scalar(scalar, dtype, device):
    """A number, an array of one or a tensor as a tensor, through which a gradient flows. A number is made where it is
    needed: a copy to a GPU cannot be part of a CUDA graph."""
    if isinstance(scalar, torch.Tensor):
        wide, scalar = scalar.is_floating_point(), scalar.to(device, dtype)
    else:
        scalar = scalar if isinstance(scalar, (bool, int, float)) else scalar.item()
        wide, scalar = isinstance(scalar, float), torch.full((), scalar, dtype=dtype, device=device)
    if wide and not dtype.is_floating_point:
        raise Refused("IX503", "a scalar is not a whole number")
    return scalar
''',
    "fitting_32": '''
def fitting_32(numbers):
    """Whole numbers that fit in 32 bits."""
    check((numbers < -(2**31)) | (numbers >= 2**31), "IX505", "a whole number does not fit in 32 bits")
    return numbers.to(torch.int32)
''',
    "turned": '''
def turned(matrices):
    """The same, with the last axis but one side by side in memory. A product of rows with rows, `x @ y.mT`, is several
    times faster so on some processors, where it is small."""
    return matrices.swapaxes(-1, -2).contiguous().swapaxes(-1, -2)
''',
    "learns": '''
def learns(*arrays):
    """Whether a gradient may be asked for. What `torch.func` maps over does not say so, but what is inside of it."""
    if not torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling():
        return any([array.requires_grad for array in arrays])
    inside = torch._C._functorch
    for array in arrays:
        while not array.requires_grad and inside.is_functorch_wrapped_tensor(array):
            array = inside.get_unwrapped(array)
        if array.requires_grad:
            return True
    return False
''',
    "with_zeros": '''
def with_zeros(result, *arrays):
    """A result in which arrays cancel. It is made of none of their numbers, so that their gradients are zeros."""
    for array in arrays:
        if learns(array):
            result = result + torch.atleast_1d(array)[:0].sum().to(result.dtype)
    return result
''',
    "add_scaled": '''
def add_scaled(x, y, factor, sign=1):
    """x + sign * y * factor in 16 bits, rounded once; so is the gradient of a factor, a sum where it is repeated."""
    if learns(factor):
        return torch.addcmul(x, y, factor.to(torch.float32), value=sign).to(x.dtype)
    return torch.addcmul(x, y, factor, value=sign)
''',
    "rounded": '''
def rounded(sign, x, y, dtype):
    """The sum, difference, product or quotient of arrays in 32 bits, rounded to 16. Where nothing is differentiated,
    one kernel of a GPU does both."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if not x.is_cuda or traced or learns(x, y) or torch.autograd.forward_ad._current_level >= 0:
        return sign(x.to(torch.float32), y).to(dtype)
    return sign(x, y, out=torch.empty(torch.broadcast_shapes(x.shape, y.shape), dtype=dtype, device=x.device))
''',
    "captured": '''
def captured(x):
    """Whether x goes into a CUDA graph, or whoever calls does not want to wait for the device: nobody looks at x."""
    return x.is_cuda and (torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode() > 0)
''',
    "check": '''
def check(failed, code, message):
    """Refuse where a test fails somewhere; in a graph of `torch.compile` or of CUDA, the graph asserts it."""
    if torch.compiler.is_compiling() or captured(failed):
        torch._assert_async(~failed.any(), message)
    elif failed.any():
        raise Refused(code, message)
''',
    "check_places": '''
def check_places(places, count, message):
    """Refuse a place that is not one of so many; where a number may be looked at, by the least and the largest."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or not places.is_cpu:
        check((places < 0) | (places >= count), "IX305", message)
    elif places.numel():
        least, most = places.aminmax()
        if int(least) < 0 or int(most) >= count:
            raise Refused("IX305", message)
''',
    "multiply": '''
def multiply(a, b):
    """The product of whole numbers, where it fits in 64 bits."""
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    total, by = a * b, torch.where((b == 0) | (b == -1), 1, b)
    wrapped = torch.where(b == -1, a == -(2**63), (b != 0) & (total // by != a))
    check(wrapped, "IX505", "a whole number does not fit in 64 bits")
    return total
''',
    "power": '''
def power(a, b):
    """Whole powers; 1 for a negative exponent, which a guard removes."""
    return torch.pow(a, b.clamp(0))
''',
    "checked_power": '''
def checked_power(a, b):
    """Whole powers, where they fit in 64 bits; 1 for a negative exponent, which a guard removes."""
    b = b.clamp(0)
    check(torch.pow(a.double(), b).abs() >= 2.0**63 * (1 - 2.0**-48), "IX505", "a whole number does not fit in 64 bits")
    return torch.pow(a, b)
''',
    "checked_sum": '''
def checked_sum(x, axes):
    """The sum of whole numbers, where it fits in 64 bits."""
    x = x.long()
    high = (x >> 32).sum(axes) + ((x & 0xFFFFFFFF).sum(axes) >> 32)
    check((high < -(2**31)) | (high >= 2**31), "IX505", "a whole number does not fit in 64 bits")
    return x.sum(axes)
''',
    "checked_prod": '''
def checked_prod(x, axes):
    """The product of whole numbers, where it fits in 64 bits from first to last."""
    rest = [n for n in range(x.ndim) if n not in axes]
    row = x.permute(*rest, *axes).reshape(*(x.shape[n] for n in rest), math.prod(x.shape[n] for n in axes))
    check(row.double().cumprod(-1).abs() >= 2.0**63 * (1 - 2.0**-48), "IX505", "a whole number does not fit in 64 bits")
    return row.prod(-1)
''',
    "checked_cumprod": '''
def checked_cumprod(x, axis):
    """The running product of whole numbers, where it fits in 64 bits."""
    large = x.double().cumprod(axis).abs() >= 2.0**63 * (1 - 2.0**-48)
    check(large, "IX505", "a whole number does not fit in 64 bits")
    return x.long().cumprod(axis)
''',
    "checked_cumsum": '''
def checked_cumsum(x, axis):
    """The running sum of whole numbers, where it fits in 64 bits."""
    x = x.long()
    high = (x >> 32).cumsum(axis) + ((x & 0xFFFFFFFF).cumsum(axis) >> 32)
    check((high < -(2**31)) | (high >= 2**31), "IX505", "a whole number does not fit in 64 bits")
    return x.cumsum(axis)
''',
    "largest": '''
def largest(x, axes):
    """The maximum along some axes; over no points, the least number there is."""
    if all(x.shape[axis] for axis in axes):
        return x.amax(axes)
    least = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    return x.sum(axes).to(x.dtype) + least
''',
    "smallest": '''
def smallest(x, axes):
    """The minimum along some axes; over no points, the largest number there is."""
    if all(x.shape[axis] for axis in axes):
        return x.amin(axes)
    most = math.inf if x.is_floating_point() else torch.iinfo(x.dtype).max
    return x.sum(axes).to(x.dtype) + most
''',
    "guarded_softmax": '''
def guarded_softmax(x, kept, axis):
    """Softmax over the points that are kept; all 0 where none is. Of finite rows that keep some, the library makes all
    others 0; one that is not finite is NaN all along."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    learns = torch.is_grad_enabled() and x.requires_grad
    if not (traced or learns) and x.numel() and x.is_cpu and kept.any(axis).all():
        found = torch.softmax(torch.where(kept, x, -math.inf), axis)
        if math.isfinite(found.select(axis, 0).sum()):
            return found
    nothing = torch.where(kept.any(axis, keepdim=True), -math.inf, 0).to(x.dtype)
    return torch.where(kept, torch.softmax(torch.where(kept, x, nothing), axis), 0)
''',
    "guarded_log_softmax": '''
def guarded_log_softmax(x, kept, axis):
    """The logarithm of softmax over the points that are kept; -inf for all others."""
    nothing = torch.where(kept.any(axis, keepdim=True), -math.inf, 0).to(x.dtype)
    return torch.where(kept, torch.log_softmax(torch.where(kept, x, nothing), axis), -math.inf)
''',
    "padded": '''
def padded(x, places):
    """x from one place up to another along some axes, with zeros where it has no such place."""
    for axis, (first, beyond) in places.items():
        n, beyond = x.shape[axis], max(first, beyond)
        start, stop = min(max(first, 0), n), min(max(beyond, 0), n)
        before, after = min(max(-first, 0), beyond - first), min(max(beyond - n, 0), beyond - first)
        x = x.narrow(axis, start, max(0, stop - start))
        x = torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [before, after])
    return x
''',
    "windows": '''
def windows(x, axis, count, length, step, dilation=1):
    """So many windows of some length along one axis, each a step on; the places within go last, some way apart."""
    if count == 0 or length == 0:
        return x.flatten()[:0].reshape(*x.shape[:axis], count, *x.shape[axis + 1 :], length)
    return x.unfold(axis, (length - 1) * dilation + 1, step)[..., ::dilation]
''',
    "scattered": '''
def scattered(x, places, counts, kept=True):
    """x added up at places along its first axes, in zeros. What is not kept, or has a place that is not there, is
    left out; where that may not be asked for, it is added to a row that is then cut off."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    whole = kept is True and not traced and x.is_cpu
    if whole and len(places) == places[0].ndim == 1:
        try:
            return x.new_zeros((*counts, *x.shape[1:])).index_add_(0, places[0], x)
        except (IndexError, RuntimeError):  # The library looks at each place anyway: some are not there.
            whole = False
    for place, count in zip(places, counts):
        if whole and place.numel():
            least, most = place.aminmax()
            whole = 0 <= int(least) and int(most) < count
    at = places[0]
    for place, count in zip(places[1:], counts[1:]):
        at = at * count + place
    rows = math.prod(counts)
    if not whole:
        for place, count in zip(places, counts):
            kept = kept & (place >= 0) & (place < count)
        at = torch.where(kept, at, rows)
    rest = x.shape[at.ndim :]
    flat = x.reshape(at.numel(), math.prod(rest))
    total = flat.new_zeros((rows if whole else rows + 1, flat.shape[1]))
    total = total.index_add(0, at.flatten(), flat) if traced else total.index_add_(0, at.flatten(), flat)
    return (total if whole else total[:rows]).reshape(*counts, *rest)
''',
    "put_rows": '''
def put_rows(x, axis, places, rows):
    """x, with these rows written to it at places along an axis."""
    shape = (*x.shape[:axis], places.shape[axis - x.ndim], *x.shape[axis + 1 :])
    return x.scatter_(axis, places.expand(shape), rows.to(x.dtype).expand(shape))
''',
    "put": '''
def put(x, axis, places, counts):
    """x at places along new axes, which begin at this one, and 0 elsewhere. What has a place that is not there is left
    out: stored in a row that is then cut off. On a CPU the library looks at each place of the first new axis anyway."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    rows, at, inside = math.prod(counts), places[0].long(), not traced and x.is_cpu
    for place, count in zip(places[1:], counts[1:]):
        if inside and place.numel():
            least, most = place.aminmax()
            inside = 0 <= int(least) and int(most) < count
        at = at * count + place
    source = x.unsqueeze(axis)
    if inside:
        try:
            total = x.new_zeros((*x.shape[:axis], rows, *x.shape[axis:]))
            total.scatter_(axis, at.expand(x.shape).unsqueeze(axis), source)
            return total if len(counts) == 1 else total.unflatten(axis, counts)
        except RuntimeError:  # Some places are not there.
            inside = False
    kept = True
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
    at = torch.where(kept, at, rows).expand(x.shape).unsqueeze(axis)
    total = x.new_zeros((*x.shape[:axis], rows + 1, *x.shape[axis:])).scatter(axis, at, source)
    return total.narrow(axis, 0, rows).unflatten(axis, counts)
''',
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
''',
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
''',
    "convolved": '''
def convolved(x, w, counts, steps, dilations):
    """sum[c, k](x[g, n, c, step * i + dilation * k] * w[g, o, c, k]) as [g, n, o, i], in up to three axes i and k.

    PyTorch has it as a convolution, and as the gradient of one by its kernel where there are fewer i than k. On a GPU
    these round to 10 bits: there it is a product of matrices.
    """
    (g, n, c), (_, o), sizes = x.shape[:3], w.shape[:2], w.shape[3:]
    name = f"conv{len(sizes)}d"
    if 0 in (*x.shape, *w.shape, *counts):
        return x.new_zeros((g, n, o, *counts)) + x.flatten()[:0].sum() + w.flatten()[:0].sum()
    if not x.is_cpu or x.dtype not in (torch.float32, torch.float64):
        for axis, (count, size, step, dilation) in enumerate(zip(counts, sizes, steps, dilations), 3):
            x = windows(x, axis, count, size, step, dilation)
        rows = x.movedim(2, 2 + len(counts)).reshape(g, n * math.prod(counts), c * math.prod(sizes))
        out = rows @ w.reshape(g, o, c * math.prod(sizes)).mT
        return out.reshape(g, n, *counts, o).movedim(-1, 2)
    if math.prod(sizes) <= math.prod(counts):
        x, w = x.transpose(0, 1).flatten(1, 2), w.flatten(0, 1)
        out = getattr(torch.nn.functional, name)(x, w, stride=steps, dilation=dilations, groups=g)
        return out.unflatten(1, (g, o)).transpose(0, 1)
    x, w = x.movedim(2, 0).flatten(1, 2), w.movedim(2, 0).flatten(1, 2)
    weight = getattr(torch.nn.grad, f"{name}_weight")
    out = weight(x, (g * o, n, *counts), w, stride=dilations, dilation=steps, groups=g)
    return out.unflatten(0, (g, o)).transpose(1, 2)
''',
    "pick": '''
def pick(x, *places):
    """x at these places, None for all. One that is out of bounds gives some number: a guard removes it."""
    for axis, place in enumerate(places):
        if place is not None and x.shape[axis] == 0:
            x = torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [0, 1])
    places = [p if p is None or torch.is_tensor(p) else torch.full((), p, device=x.device) for p in places]
    axes = [axis for axis, place in enumerate(places) if place is not None]
    if axes != list(range(axes[0], axes[-1] + 1)):
        return x[tuple(slice(None) if p is None else p.clamp(0, n - 1) for p, n in zip(places, x.shape))]
    at = 0
    for axis in axes:
        at = at * x.shape[axis] + places[axis].clamp(0, x.shape[axis] - 1)
    # Axes that lie side by side are one: both ways, this is several times as fast as an index for each.
    found = x.flatten(axes[0], axes[-1]).index_select(axes[0], at.flatten())
    return found.reshape((*x.shape[: axes[0]], *at.shape, *x.shape[axes[-1] + 1 :]))
''',
    "take": '''
def take(x, axis, places):
    """x at places along one axis, all of them there: both ways, this is faster than an index."""
    if places.dtype not in (torch.int32, torch.int64):
        places = places.long()
    if places.ndim == 1:
        return x.index_select(axis, places)
    found = x.index_select(axis, places.flatten())
    return found.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])
''',
    "take_checked": '''
def take_checked(x, axis, places, message):
    """The same, of places that may not be there. On a CPU, and in a CUDA graph, the library looks at each anyway."""
    if not torch.compiler.is_compiling() and captured(places):
        return take(x, axis, places)
    if not places.is_cpu or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        check_places(places, x.shape[axis], message)
        return take(x, axis, places)
    try:
        return x.index_select(axis, places) if places.ndim == 1 else take(x, axis, places)
    except (IndexError, RuntimeError):
        check_places(places, x.shape[axis], message)
        raise
''',
    "take_or_zero": '''
def take_or_zero(x, axis, places):
    """x at places along one axis; 0 where there is no such place, for which the library looks anyway on a CPU."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if not traced and x.is_cpu:
        try:
            return take(x, axis, places)
        except (IndexError, RuntimeError):
            traced = False
    kept = (places >= 0) & (places < x.shape[axis])
    if x.shape[axis] == 0:
        x = torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [0, 1])
    found = take(x, axis, torch.where(kept, places, 0))
    return torch.where(kept.reshape(*kept.shape, *[1] * (x.ndim - 1 - axis)), found, 0)
''',
    "add_at": '''
def add_at(total, places, part):
    """Add a part to what there is, at places of its last axes. One that is out of bounds has nothing to add but 0."""
    if total.numel() == 0:
        return
    lead, at = total.ndim - len(places), 0
    for place, count in zip(places, total.shape[lead:]):
        at = at * count + place.clamp(0, count - 1)
    part = part.to(total.dtype).reshape(*total.shape[:lead], at.numel())
    total.flatten(lead).index_add_(lead, at.flatten(), part)
''',
    "running_max": '''
def running_max(x, axis):
    """The largest number up to each along one axis."""
    return x.cummax(axis).values if x.shape[axis] else x
''',
    "running_argmax": '''
def running_argmax(x, kept, axis):
    """The first place of the largest number that is kept so far, or of the first NaN; -1 where none is."""
    if not x.shape[axis]:
        return x.long()
    kept = torch.as_tensor(kept, device=x.device).broadcast_to(x.shape)
    x = torch.where(kept, x.detach(), -math.inf)
    before = x.cummax(axis).values.roll(1, axis)
    new = kept & ((kept.cumsum(axis) == 1) | (x > before) | (x != x) & (before == before))
    places = torch.arange(x.shape[axis], device=x.device).reshape(-1, *[1] * (x.ndim - 1 - axis))
    return torch.where(new, places, -1).cummax(axis).values
''',
    "running_argmin": '''
def running_argmin(x, kept, axis):
    """The first place of the smallest number that is kept so far, or of the first NaN; -1 where none is."""
    return running_argmax(-x, kept, axis)
''',
    "running_min": '''
def running_min(x, axis):
    """The smallest number up to each along one axis."""
    return x.cummin(axis).values if x.shape[axis] else x
''',
    "top": '''
def top(x, count, axis):
    """The places of so many numbers, the largest first, the first of equal ones first and NaN last; -1 where there are
    no more."""
    return guarded_top(x, None, count, axis)
''',
    "guarded_top": '''
def guarded_top(x, kept, count, axis):
    """The places of so many numbers that are kept, the largest first, the first of equal ones first and NaN last; -1
    where there are no more."""
    x = x.detach().movedim(axis, -1)
    kept = None if kept is None else kept.movedim(axis, -1)
    n = x.shape[-1]

    def by_sorting(x, kept):
        order = torch.argsort(-x if x.is_floating_point() else ~x, dim=-1, stable=True)
        if kept is not None:
            order = order.gather(-1, torch.argsort((~kept).gather(-1, order), dim=-1, stable=True))
            order = torch.where(torch.arange(n, device=x.device) < kept.sum(-1, keepdim=True), order, -1)
        return torch.nn.functional.pad(order[..., :count], (0, max(0, count - n)), value=-1)

    if n <= count or count < 1 or not x.is_floating_point() or torch.compiler.is_compiling():
        return by_sorting(x, kept).movedim(-1, axis)
    low = x if kept is None else torch.where(kept, x, -math.inf)
    values, place = low.topk(count, -1)
    # Which of equal numbers come first is not said there, and NaN comes before all: such rows are sorted.
    rest = low.scatter(-1, place, -math.inf) if kept is None else low.scatter_(-1, place, -math.inf)
    same = torch.cat((values[..., 1:] == values[..., :-1], rest.amax(-1, keepdim=True) == values[..., -1:]), -1)
    last = values == -math.inf
    odd = (same if kept is None else same & ~last).any(-1) | values[..., 0].isnan()
    try:
        few = last[..., -1] if kept is not None and bool(last.any()) else None
        if few is not None:  # Fewer are kept, unless some of them are -inf.
            odd[few] |= kept[few].sum(-1) != (~last[few]).sum(-1)
            place[last] = -1
        some = bool(odd.any())
    except RuntimeError:  # vmap has no answer for all that it maps over
        return by_sorting(x, kept).movedim(-1, axis)
    if some:
        place[odd] = by_sorting(x[odd], None if kept is None else kept[odd])
    return place.movedim(-1, axis)
''',
    "among_first": '''
def among_first(x, count, axis):
    """Whether each number is among so many largest ones, the first of equal ones first and NaN last."""
    if count >= x.shape[axis]:
        return torch.ones_like(x, dtype=torch.bool)
    return torch.zeros_like(x, dtype=torch.bool).scatter(axis, top(x, count, axis), True)
''',
    "guarded_among_first": '''
def guarded_among_first(x, kept, count, axis):
    """Whether each number that is kept is among so many largest ones, the first of equal ones first and NaN last; and
    whether fewer are kept, for all others."""
    n, place = x.shape[axis], guarded_top(x, kept, count, axis)
    shape = [length + (at == axis % x.ndim) for at, length in enumerate(x.shape)]
    found = torch.zeros(shape, dtype=torch.bool, device=x.device)
    found = found.scatter(axis, torch.where(place < 0, n, place), True).narrow(axis, 0, n)
    return torch.where(kept, found, kept.sum(axis, keepdim=True) < count)
''',
    "rank": '''
def rank(x, axis):
    """The place of each number in decreasing order, the first of equal ones first and NaN last, by a stable sort."""
    x = x.detach()
    order = torch.argsort(-x if x.is_floating_point() else ~x, dim=axis, stable=True)
    steps = torch.arange(x.shape[axis], device=x.device).view([-1 if n == axis % x.ndim else 1 for n in range(x.ndim)])
    return torch.zeros_like(order).scatter(axis, order, steps.expand_as(order))
''',
    "guarded_rank": '''
def guarded_rank(x, kept, axis):
    """The place of each number that is kept among those that are, in decreasing order, the first of equal ones first
    and NaN last, by a stable sort; how many are kept for all others."""
    x = x.detach()
    order = torch.argsort(-x if x.is_floating_point() else ~x, dim=axis, stable=True)
    kept = kept.gather(axis, order)
    place = torch.where(kept, kept.cumsum(axis) - 1, kept.sum(axis, keepdim=True))
    return torch.zeros_like(order).scatter(axis, order, place)
''',
    "argmax": '''
def argmax(x, kept, axis):
    """The first place of the largest number that is kept, or of the first NaN; -1 where none is."""
    if x.shape[axis] == 0:
        return kept.any(axis).long() - 1
    least = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    hit = kept & ((x == torch.where(kept, x, least).amax(axis, keepdim=True)) | (x != x))
    return torch.where(hit.any(axis), hit.byte().argmax(axis), -1)
''',
    "argmin": '''
def argmin(x, kept, axis):
    """The first place of the smallest number that is kept, or of the first NaN; -1 where none is."""
    if x.shape[axis] == 0:
        return kept.any(axis).long() - 1
    most = math.inf if x.is_floating_point() else torch.iinfo(x.dtype).max
    hit = kept & ((x == torch.where(kept, x, most).amin(axis, keepdim=True)) | (x != x))
    return torch.where(hit.any(axis), hit.byte().argmax(axis), -1)
''',
    "stacked": '''
def stacked(rows, counts, axes, empty):
    """The rows of a recurrence as one array, their steps as these axes; `empty` stands for what is not there."""
    steps = [()]
    for count in counts:
        steps = [(*step, n) for step in steps for n in range(count)]
    found = [rows.get(step if len(counts) > 1 else step[0], empty) for step in steps]
    whole = torch.stack(found) if found else empty.new_zeros((0, *empty.shape))
    return whole.reshape(*counts, *empty.shape).movedim(tuple(range(len(counts))), axes)
''',
    "attend": '''
def attend(query, key, value, is_causal=False, scale=1.0, enable_gqa=False):
    """PyTorch's fused kernel. On a CPU it is slow for unequal widths and for gaps in the last axis: zeros fill up
    the narrower side, which changes nothing. There it also rounds the weights to 16 bits where the arrays have these:
    they are widened. Keys past the last query are masked under `is_causal`, and not read."""
    if query.is_cpu and query.dtype.itemsize == 2:
        return attend(query.float(), key.float(), value.float(), is_causal, scale, enable_gqa).to(query.dtype)
    width = value.shape[-1]
    if query.shape[-1] != width:
        query, key, value = (
            torch.nn.functional.pad(x, (0, max(query.shape[-1], width) - x.shape[-1])) for x in (query, key, value)
        )
    if is_causal and key.shape[-2] > query.shape[-2]:
        key, value = key[..., : query.shape[-2], :], value[..., : query.shape[-2], :]
    if not query.stride(-1) == key.stride(-1) == value.stride(-1) == 1:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return out if out.shape[-1] == width else out[..., :width]
''',
}
