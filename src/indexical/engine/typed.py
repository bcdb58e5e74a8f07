"""The type of an operation's value: its axes, kind and dtype, the steps it varies with, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.affine import Polynomial, evenly, of_atom, polynomial
from ..ir.functions import operation
from ..ir.types import BOUNDS, DEFAULT_DTYPE, KIND_OF, NOWHERE, Coordinate, Dtype, Kind, widest
from .known import ANYTHING, LONGEST, Known, bounds_of, either, mapped, repeated, within
from .ops import (
    Axis,
    Carried,
    Contract,
    Either,
    Fold,
    Input,
    Iota,
    Join,
    Library,
    Loop,
    Map,
    Normalize,
    Number,
    Op,
    Opaque,
    Put,
    Read,
    Reduce,
    Result,
    Table,
    Tiles,
    Value,
    Write,
    axes_of,
    merged,
    operands,
)

COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
CONNECTIVES = frozenset(("&&", "||", "!"))


def typed(op: Op) -> Value:
    """The value of an operation, its type worked out."""
    axes, kind, dtype = _type(op)
    if dtype is None and kind != "real" and not isinstance(op, Number):
        dtype = DEFAULT_DTYPE[kind]  # Reals alone are weak as arrays.
    # An axis that is gone counts as well: a sum of what does not vary along it is that many times as much.
    bound = op.over if isinstance(op, Reduce | Contract) else op.gone if isinstance(op, Write | Put) else ()
    bound = (op.key,) if isinstance(op, Fold) else bound
    steps = [axis.extent.type.coordinates for axis in (*axes, *bound) if axis.extent.type.coordinates]
    parts = operands(op)
    symbols, known = _symbols(op, parts), _known(op, parts, kind, dtype)
    return Value(op, axes, kind, dtype, symbols.union(*steps) if steps else symbols, known, parts)


def _type(op: Op) -> tuple[tuple[Axis, ...], Kind, Dtype | None]:
    match op:
        case Map("where", (condition, then, other)):
            kinds = (then.kind, other.kind)
            same = [one.dtype for one in (then, other) if one.kind == ("real" if "real" in kinds else then.kind)]
            return axes_of(condition, then, other), "real" if "real" in kinds else then.kind, widest(same)
        case Map(fn, args) if fn.startswith("some "):
            return axes_of(*args), args[0].kind, args[0].dtype
        case Map(fn, args):
            kind = _kind(fn, args)
            return axes_of(*args), kind, _dtype(fn, kind, args)
        case Input(_, home, kind, dtype) | Join(home, _, kind, dtype) | Carried(home=home, kind=kind, dtype=dtype):
            return _sorted(home), kind, dtype
        case Opaque(home=home, kind=kind, dtype=dtype):
            return _sorted(home), kind, dtype
        case Result(_, of):
            return _sorted(of.home), of.kind, of.dtype
        case Table(home, _, kind):
            return _sorted(home), kind, None
        case Number(expr):
            return (), expr.type.kind, None
        case Iota(axis):
            return (axis,), "whole", None
        case Read(source, index):
            given = dict(index)
            kept = [axis for axis in source.axes if axis.name not in given]
            return merged(kept, *(at.axes for _, at in index)), source.kind, source.dtype
        case Write(values=values, index=index, gone=gone):
            written, places = (axis for axis, _ in index), (at for _, at in index)
            return merged(written, axes_of(values, *places, without=gone)), values.kind, values.dtype
        case Put(into=into):
            return into.axes, into.kind, into.dtype
        case Reduce(fn, source, over, where):
            kind = _reduced_kind(fn, source.kind)
            parts = (source,) if where is None else (source, where)
            keeps = kind == source.kind and not (kind == "whole" and fn in ("sum", "prod"))
            return axes_of(*parts, without=over), kind, source.dtype if keeps else None
        case Contract(factors, over):
            return axes_of(*factors, without=over), factors[0].kind, widest(one.dtype for one in factors)
        case Normalize(fn, source, along, where):
            kind = "whole" if fn == "rank" else "real" if fn in ("softmax", "log_softmax") else source.kind
            parts = (source,) if where is None else (source, where)
            dtype = source.dtype if kind == source.kind == "real" else None
            return merged((along,), axes_of(*parts)), kind, dtype
        case Library(axes=axes, kind=kind, dtype=dtype):
            return _sorted(axes), kind, dtype
        case Fold(score=score, value=carried, key=key, where=where, more=more):
            parts = (score, *more, *(() if where is None else (where,)), *((carried,) if op.part == "result" else ()))
            return axes_of(*parts, without=(key,)), "real", widest((score.dtype, carried.dtype))
        case Tiles():
            return _sorted(op.home), "real", op.dtype
        case Either(many=many):
            return many.axes, many.kind, many.dtype
    raise TypeError(op)


def _sorted(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    return tuple(sorted(axes, key=lambda axis: axis.name))


def _kind(fn: str, args: tuple[Value, ...]) -> Kind:
    if fn in COMPARISONS or fn in CONNECTIVES:
        return "bool"
    if fn.startswith("as "):
        return KIND_OF.get(fn[3:], "real")
    keeps = operation(fn).keeps_whole and fn != "/"
    return "whole" if keeps and args and all(one.kind == "whole" for one in args) else "real"


def _dtype(fn: str, kind: Kind, args: tuple[Value, ...]) -> Dtype | None:
    if fn.startswith("as "):
        return "f32" if fn == "as wide" else fn[3:] if fn[3:] in KIND_OF else None  # type: ignore[return-value]
    return None if kind == "bool" else widest(one.dtype for one in args if one.kind == kind)


def _reduced_kind(fn: str, kind: Kind) -> Kind:
    match fn:
        case "argmax" | "argmin":
            return "whole"
        case "any" | "all":
            return "bool"
        case "mean":
            return "real"
    return kind


# ---------------------------------------------------------------------------- steps


def _symbols(op: Op, parts: tuple[Value, ...]) -> frozenset[Coordinate]:
    match op:
        case Number(expr):
            return expr.type.coordinates
        case Carried(symbols=symbols):
            return symbols
    found = NOWHERE.union(*[part.symbols for part in parts])
    return found - stepped(op.loop) if isinstance(op, Result) else found


def stepped(loop: Loop) -> frozenset[Coordinate]:
    """The coordinates that a loop steps, and those inside it."""
    inner = (stepped(item) for item in loop.body if isinstance(item, Loop))
    return frozenset((loop.symbol,)).union(*inner)


# ---------------------------------------------------------------- what is known of it


def _known(op: Op, parts: tuple[Value, ...], kind: Kind, dtype: Dtype | None) -> Known:
    match op:
        case Map(fn, (source, _)) if fn.startswith("some "):
            return source.known
        case Map("where", (_, then, other)):
            return Known(then.known.finite and other.known.finite, None, *either(then.known.bounds, other.known.bounds))
        case Map(fn, args):
            finite = all(one.known.finite for one in args) and (kind != "real" or _stays_finite(fn))
            return _whole(finite, fn, args, dtype) if kind == "whole" else Known(finite)
        case Input(counts=True):
            return Known(True, None, 0, LONGEST)
        case Input():
            return _stored(True, dtype)
        case Carried(finite=finite):
            return _stored(finite or kind != "real", dtype)
        case Table(_, cells):
            numbers = [int(cell.value) for cell in cells] if kind == "whole" else []
            return Known(True, None, min(numbers, default=0), max(numbers, default=0))
        case Number(expr):
            return Known(True, polynomial(expr), *bounds_of(expr)) if kind == "whole" else Known(True)
        case Iota(axis):
            return Known(True, of_atom(axis.name), 0, max(0, bounds_of(axis.extent)[1] - 1))
        case Read(source, _, outside):
            bounds = source.known.bounds if outside == "never" else either(source.known.bounds, (0, 0))
            return Known(source.known.finite, None, *bounds)
        case Reduce(fn, source) if kind == "whole":
            return _whole_reduced(fn, source)
        case Reduce(fn):
            return Known(fn not in ("max", "min", "mean") and all(one.known.finite for one in parts))
        case Normalize("rank"):
            return Known(True, None, 0, LONGEST)
        case Normalize(fn):
            finite = fn != "log_softmax" and all(one.known.finite for one in parts)
            return _stored(finite, dtype)
        case Result() | Opaque() | Library() | Fold() | Tiles() | Either():
            return _stored(False, dtype)
    return _stored(all(one.known.finite for one in parts), dtype)


def _stored(finite: bool, dtype: Dtype | None) -> Known:
    """What is known of numbers of a dtype."""
    return Known(finite, None, *BOUNDS[dtype]) if dtype in BOUNDS else Known(finite)


def _stays_finite(fn: str) -> bool:
    return fn.startswith("as ") or operation(fn).finite


def _whole(finite: bool, fn: str, args: tuple[Value, ...], dtype: Dtype | None) -> Known:
    """A whole number is one of its dtype: what may leave it is checked."""
    if fn.startswith("as "):
        (source,) = args
        bounds = {"bool": (0, 1), "whole": source.known.bounds, "real": ANYTHING}[source.kind]
        same = source.known.whole if source.kind == "whole" else None
        return Known(finite, same, *within(bounds, dtype or "i64"))
    bounds = mapped(fn, [one.known.bounds for one in args])
    return Known(finite, _polynomial(fn, [one.known.whole for one in args]), *within(bounds, dtype or "i64"))


def _whole_reduced(fn: str, source: Value) -> Known:
    if fn in ("argmax", "argmin"):
        return Known(True, None, -1, LONGEST)
    bounds = source.known.bounds if fn in ("max", "min") else within(repeated(fn, source.known.bounds), "i64")
    return Known(True, None, *bounds)


def _polynomial(fn: str, parts: list[Polynomial | None]) -> Polynomial | None:
    """A sum, a difference, a product or an even quotient of polynomials."""
    match fn, parts:
        case "+", [Polynomial() as a, Polynomial() as b]:
            return a + b
        case "-", [Polynomial() as a, Polynomial() as b]:
            return a - b
        case "neg", [Polynomial() as a]:
            return -a
        case "*", [Polynomial() as a, Polynomial() as b]:
            return a * b
        case "//" | "%", [Polynomial() as a, Polynomial(constant=int() as b)]:
            return evenly(fn, a, b)
    return None
