"""Small functions that stand above what PyTorch code calls them."""

from __future__ import annotations

from ...ir.functions import FUNCTIONS
from .numpy_helpers import SHARED

HELPERS = {
    **{name: SHARED[name] for name in ("add", "subtract", "magnitude")},
    **{name: row.torch.helper for name, row in FUNCTIONS.items() if row.torch.helper},
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
    "traced": '''
def traced():
    """Whether a call becomes part of a graph, or is mapped over: then no number may be looked at."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
''',
    "check_places": '''
def check_places(places, count, message):
    """Refuse a place that is not one of so many; where a number may be looked at, by the least and the largest."""
    if traced() or not places.is_cpu:
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
    "raised": '''
def raised(a, b):
    """Whole powers; 1 for a negative exponent, which a guard removes."""
    return torch.pow(a, b.clamp(0) if isinstance(b, torch.Tensor) else max(b, 0))
''',
    "checked_power": '''
def checked_power(a, b):
    """Whole powers, where they fit in 64 bits; 1 for a negative exponent, which a guard removes."""
    a, b = torch.as_tensor(a), torch.as_tensor(b).clamp(0)
    check(torch.pow(a.double(), b).abs() >= 2.0**63 * (1 - 2.0**-48), "IX505", "a whole number does not fit in 64 bits")
    return torch.pow(a, b)
''',
    "checked_sum": '''
def checked_sum(x, axes):
    """The sum of whole numbers, where it fits in 64 bits: its upper halves are added up apart."""
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
    """The running sum of whole numbers, where it fits in 64 bits: its upper halves are added up apart."""
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
    "cummax": '''
def cummax(x, axis):
    """The largest number up to each along an axis."""
    return x.cummax(axis).values if x.shape[axis] else x
''',
    "cummin": '''
def cummin(x, axis):
    """The smallest number up to each along an axis."""
    return x.cummin(axis).values if x.shape[axis] else x
''',
    "padded": '''
def padded(x, places):
    """x from one place up to another along some axes, with zeros where it has no such place."""
    for axis, (first, beyond) in places.items():
        n, beyond = x.shape[axis], max(first, beyond)
        start, stop = min(max(first, 0), n), min(max(beyond, 0), n)
        before, after = min(max(-first, 0), beyond - first), min(max(beyond - n, 0), beyond - first)
        x = x.narrow(axis, start, max(0, stop - start))
        if before or after:
            x = torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [before, after])
    return x
''',
    "row": '''
def row(x, axis, place):
    """x at one place along an axis; zeros where it has no such place."""
    if 0 <= place < x.shape[axis]:
        return x.select(axis, place)
    return x.new_zeros((*x.shape[:axis], *x.shape[axis + 1 :]))
''',
    "windows": '''
def windows(x, axis, count, length, step, dilation=1):
    """So many windows of some length along one axis, each a step on; the places within go last, some way apart."""
    if count == 0 or length == 0:
        return x.flatten()[:0].reshape(*x.shape[:axis], count, *x.shape[axis + 1 :], length)
    return x.unfold(axis, (length - 1) * dilation + 1, step)[..., ::dilation]
''',
    "leaning": '''
def leaning(x, axis, length, first, lean, dilation=1):
    """For each point of an axis a window of the next one, some way on from that of the point before; its places go
    last, some way apart."""
    count, step, reach = x.shape[axis], x.shape[axis + 1] + lean, (length - 1) * dilation + 1
    x = x.flatten(axis, axis + 1)
    if count == 0 or length == 0:
        return x.flatten()[:0].reshape(*x.shape[:axis], count, *x.shape[axis + 1 :], length)
    x = x.narrow(axis, first, (count - 1) * step + reach)
    return x.unfold(axis, reach, max(step, 1))[..., ::dilation]
''',
    "take": '''
def take(x, axis, places):
    """x at places along one axis, all of them there: both ways, this is faster than an index."""
    if places.dtype not in (torch.int32, torch.int64):
        places = places.long()
    if places.ndim == 1:
        return x.index_select(axis, places)
    found = x.index_select(axis, places.flatten())
    return found.reshape((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))
''',
    "take_checked": '''
def take_checked(x, axis, places, message):
    """The same, of places that may not be there. On a CPU, and in a CUDA graph, the library looks at each anyway."""
    if not torch.compiler.is_compiling() and captured(places):
        return take(x, axis, places)
    if not places.is_cpu or traced():
        check_places(places, x.shape[axis], message)
        return take(x, axis, places)
    try:
        return take(x, axis, places)
    except (IndexError, RuntimeError):
        check_places(places, x.shape[axis], message)
        raise
''',
    "take_or_zero": '''
def take_or_zero(x, axis, places):
    """x at places along one axis; 0 where it has no such place, for which the library looks anyway on a CPU."""
    if not traced() and x.is_cpu:
        try:
            return take(x, axis, places)
        except (IndexError, RuntimeError):
            pass
    kept = (places >= 0) & (places < x.shape[axis])
    if x.shape[axis] == 0:
        x = torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [0, 1])
    found = take(x, axis, torch.where(kept, places, 0))
    return found.masked_fill(~kept.reshape((*kept.shape, *[1] * (x.ndim - 1 - axis))), 0)
''',
    "along": '''
def along(x, axis, places):
    """x at a place along one axis for each point of its others, all of them there."""
    return x.gather(axis, places.long().unsqueeze(axis)).squeeze(axis)
''',
    "along_or_zero": '''
def along_or_zero(x, axis, places):
    """x at a place along one axis for each point of its others; 0 where it has no such place."""
    if not traced() and x.is_cpu:
        try:
            return along(x, axis, places)
        except (IndexError, RuntimeError):
            pass
    kept = (places >= 0) & (places < x.shape[axis])
    if x.shape[axis] == 0:
        x = torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [0, 1])
    return along(x, axis, torch.where(kept, places, 0)).masked_fill(~kept, 0)
''',
    "pick": '''
def pick(x, *places):
    """x at places along several axes, None for all, all of them there. Axes side by side are made one: both ways, that
    is several times as fast as an index for each."""
    axes = [axis for axis, place in enumerate(places) if place is not None]
    if axes != list(range(axes[0], axes[-1] + 1)) or 0 in x.shape:
        return x[tuple(slice(None) if place is None else place for place in places)]
    at = 0
    for axis in axes:
        at = at * x.shape[axis] + places[axis]
    return take(x.flatten(axes[0], axes[-1]), axes[0], at)
''',
    "are_there": '''
def are_there(places, count):
    """Whether all of these are places of an axis of so many points."""
    if not places.numel():
        return True
    least, most = places.aminmax()
    return 0 <= int(least) and int(most) < count
''',
    "pick_or_zero": '''
def pick_or_zero(x, *places):
    """x at places along several axes, None for all; 0 where it has no such place, for which a CPU is asked first."""
    if not traced() and x.is_cpu and all(p is None or are_there(p, n) for p, n in zip(places, x.shape)):
        return pick(x, *places)
    kept = True
    for axis, place in enumerate(places):
        if place is not None:
            kept = kept & (place >= 0) & (place < x.shape[axis])
            if x.shape[axis] == 0:
                x = torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [0, 1])
    found = pick(x, *(place if place is None else torch.where(kept, place, 0) for place in places))
    axes = [axis for axis, place in enumerate(places) if place is not None]
    behind = x.ndim - len(axes) - (axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0)
    return found.masked_fill(~kept.reshape((*kept.shape, *[1] * behind)), 0)
''',
    "scattered": '''
def scattered(x, places, counts):
    """x added up at places along its first axes, in zeros. What has a place that is not there is left out; where that
    may not be asked, it is added to a row that is then cut off."""
    rows = math.prod(counts)
    whole = not traced() and x.is_cpu and rows > 0
    if whole and x.numel() and len(places) == places[0].ndim == 1:
        try:
            return x.new_zeros((*counts, *x.shape[1:])).index_add_(0, places[0], x)
        except (IndexError, RuntimeError):  # The library looks at each place anyway: some are not there.
            whole = False
    for place, count in zip(places, counts):
        if whole and place.numel():
            least, most = place.aminmax()
            whole = 0 <= int(least) and int(most) < count
    at, kept = 0, True
    for place, count in zip(places, counts):
        kept = kept if whole else kept & (place >= 0) & (place < count)
        at = at * count + place
    at = at if whole else torch.where(kept, at, rows)
    rest = x.shape[at.ndim :]
    flat = x.reshape(at.numel(), math.prod(rest))
    total = flat.new_zeros((rows if whole else rows + 1, flat.shape[1])).index_add(0, at.flatten(), flat)
    return total[:rows].reshape(*counts, *rest)
''',
    "stored": '''
def stored(x, places, counts):
    """x stored at places along its first axes, in zeros; what has a place that is not there is stored in a row that is
    then cut off."""
    at, kept, rows = 0, True, math.prod(counts)
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
        at = at * count + place
    at = torch.where(kept, at, rows).flatten()
    rest = x.shape[places[-1].ndim :]
    total = x.new_zeros((rows + 1, *rest)).index_copy(0, at, x.reshape(at.numel(), *rest))
    return total[:rows].reshape(*counts, *rest)
''',
    "argmax": '''
def argmax(x, axis):
    """The first place of the largest number along an axis; -1 where it has no points."""
    return x.argmax(axis) if x.shape[axis] else x.any(axis).long() - 1
''',
    "argmin": '''
def argmin(x, axis):
    """The first place of the smallest number along an axis; -1 where it has no points."""
    return x.argmin(axis) if x.shape[axis] else x.any(axis).long() - 1
''',
    "with_part": '''
def with_part(row, slots, part):
    """A row with a part of it stored."""
    row = row.clone()
    row[slots] = part
    return row
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
}
