"""Dataclasses that are quick to declare, and quick to make.

The standard decorator compiles up to six methods for a class, which was most of the time of a first `ix.compile`, and
an instance of a frozen class takes three times as long to make, as its fields are set by `object.__setattr__`. Its
module loads `inspect` and all that this is made of. Here one method is compiled, when a class is first used. That
nothing assigns to a field of a frozen class is checked with the types, and not at run time.

The standard functions, such as `dataclasses.fields`, take these records too, and these records a standard `field`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["Hashed", "dataclass", "field", "names_of", "replace"]


class _Field:
    """A field of a record: the default of it, or what makes one, and who reads it."""

    __slots__ = ("compare", "default", "default_factory", "hash", "init", "kw_only", "name", "repr", "type")
    name: str
    type: Any
    default: Any
    default_factory: Any
    init: bool
    repr: bool
    hash: bool | None
    compare: bool
    kw_only: Any


_MISSING: Any = object()
_OPTIONS = ("default", "default_factory", "init", "repr", "hash", "compare", "kw_only")

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, kw_only=False):
        """The standard decorator, with what is used of its options."""

        def declared(cls):
            return _declared(cls, frozen, slots, eq, kw_only)

        return declared if cls is None else declared(cls)

    def field(
        *,
        default=_MISSING,
        default_factory=_MISSING,
        init=True,
        repr=True,
        hash=None,
        compare=True,
        kw_only=_MISSING,
    ):
        """The standard function, with what is used of its options."""
        made = _Field()
        made.default, made.default_factory, made.init, made.kw_only = default, default_factory, init, kw_only
        made.repr, made.hash, made.compare = repr, hash, compare
        return made

    def replace(record, /, **changes):
        """The record, ours or a standard one, with these values of its fields, and with its own of all others."""
        cls = record.__class__
        if not hasattr(cls, "__given__"):
            from dataclasses import replace as standard

            return standard(record, **changes)
        for name in cls.__given__:
            if name not in changes:
                changes[name] = getattr(record, name)
        return cls(**changes)


class Hashed:
    """A frozen record that is a key again and again, and keeps its hash. It is another one in another process."""

    __slots__ = ("hashed",)
    hashed: int

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        return None, {name: getattr(self, name) for name in names_of(type(self))}


def names_of(cls: Any, compared: bool = False) -> tuple[str, ...]:
    """The names of the fields of a class; only of those that are `compared`, where that is asked for."""
    return tuple(one.name for one in cls.__record__ if one.compare or not compared)


def _declared(cls: type, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> Any:
    own = set(cls.__dict__)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__
    fields = _fields(cls, kw_only)
    made: Any = _with_slots(cls, fields) if slots else cls
    made.__record__ = fields
    made.__given__ = tuple(one.name for one in fields if one.init)
    made.__dataclass_fields__, made.__dataclass_params__ = _Standard("fields"), _Standard("params")
    made.__match_args__ = tuple(one.name for one in fields if one.init and not one.kw_only)  # type: ignore[misc]
    if "__init__" not in own:
        made.__init__ = _first_init(made)
    if "__repr__" not in own:
        made.__repr__ = _representation([one.name for one in fields if one.repr])
    if eq and "__eq__" not in own:
        made.__eq__ = _equality(_getter([one.name for one in fields if one.compare]))
    if eq and ("__hash__" not in own or cls.__dict__["__hash__"] is None):
        hashed = [one.name for one in fields if (one.compare if one.hash is None else one.hash)]
        made.__hash__ = (_kept_hash if issubclass(cls, Hashed) else _hash)(_getter(hashed)) if frozen else None
    return made


def _fields(cls: Any, kw_only: bool) -> tuple[_Field, ...]:
    """The fields of a class: those of the classes that it is made of, then its own, whose defaults stay in it."""
    found: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        found |= {one.name: one for one in base.__dict__.get("__record__", ())}
    for name, kind in cls.__annotations__.items():
        if str(kind).removeprefix("typing.").startswith("ClassVar"):
            continue
        one = found[name] = _field(cls.__dict__.get(name, _MISSING))
        one.name, one.type = name, kind
        one.kw_only = kw_only if one.kw_only is _MISSING else one.kw_only
        if one.default is not _MISSING:
            if one.default.__class__.__hash__ is None:
                raise ValueError(f"the default of `{name}` can change: give a `default_factory`")
            setattr(cls, name, one.default)
        elif name in cls.__dict__:
            delattr(cls, name)
    return tuple(found.values())


def _field(value: Any) -> Any:
    """The field that a value in a class declares: its default, unless it is a field, ours or a standard one."""
    if isinstance(value, _Field):
        return value
    standard = sys.modules.get("dataclasses")
    if standard is None or not isinstance(value, standard.Field):
        return field(default=value)
    return field(**_given(value, standard.MISSING))


def _given(one: Any, missing: object) -> dict[str, Any]:
    """The options of a field, without those that are missing."""
    options = {name: getattr(one, name) for name in _OPTIONS}
    return {name: option for name, option in options.items() if option is not missing}


def _with_slots(cls: Any, fields: tuple[_Field, ...]) -> Any:
    """The class anew, with a slot for each field that no class has which it is made of."""
    names = [one.name for one in fields]
    taken = {slot for base in cls.__mro__[1:] for slot in base.__dict__.get("__slots__", ())}
    known = {name: value for name, value in cls.__dict__.items() if name not in (*names, "__dict__", "__weakref__")}
    known["__slots__"] = tuple(name for name in names if name not in taken)
    made = type(cls)(cls.__name__, cls.__bases__, known)
    made.__qualname__ = cls.__qualname__
    return made


class _Standard:
    """What the functions of `dataclasses` ask of a class: worked out when one of them does, for most programs never
    load that module."""

    def __init__(self, asked: str) -> None:
        self.asked = asked

    def __get__(self, record: object, owner: Any) -> Any:
        from dataclasses import field, make_dataclass

        fields = [(one.name, one.type, field(**_given(one, _MISSING))) for one in owner.__record__]
        made: Any = make_dataclass(owner.__name__, fields, init=False, repr=False, eq=False)
        owner.__dataclass_fields__, owner.__dataclass_params__ = made.__dataclass_fields__, made.__dataclass_params__
        return getattr(owner, f"__dataclass_{self.asked}__")


def _getter(names: list[str]) -> Callable[[Any], object]:
    return attrgetter(*names) if names else lambda record: ()


def _equality(key: Callable[[Any], object]) -> Callable[[Any, Any], bool]:
    def __eq__(self: Any, other: Any) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(key: Callable[[Any], object]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(key(self))

    return __hash__


def _kept_hash(key: Callable[[Any], object]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        try:
            found: int = self.hashed
        except AttributeError:
            found = self.hashed = hash(key(self))
        return found

    return __hash__


def _representation(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _first_init(cls: Any) -> Callable[..., None]:
    """An `__init__` that compiles the one that takes its place."""

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        cls.__init__ = _init(cls)
        cls.__init__(self, *arguments, **named)

    return __init__


def _init(cls: Any) -> Any:
    """An `__init__` that assigns to one field after the other."""
    parameters: list[str] = []
    lines: list[str] = []
    known: dict[str, Any] = {"MISSING": _MISSING}
    for one in sorted(cls.__record__, key=lambda one: bool(one.kw_only)):
        name, value, default = one.name, one.name, ""
        if one.default is not _MISSING:
            known[f"default_{name}"] = one.default
            default = f" = default_{name}"
        elif one.default_factory is not _MISSING:
            known[f"make_{name}"] = one.default_factory
            default = " = MISSING"
            value = f"make_{name}() if {name} is MISSING else {name}"
        if one.init:
            if one.kw_only and "*" not in parameters:
                parameters.append("*")
            parameters.append(name + default)
        elif default:
            value = f"make_{name}()" if f"make_{name}" in known else f"default_{name}"
        else:
            continue
        lines.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "".join(f"\n        {line}" for line in lines or ["pass"])
    head = f"def made({', '.join(known)}):\n    def __init__({', '.join(['self', *parameters])}):"
    space: dict[str, Any] = {}
    exec(f"{head}{body}\n    return __init__", space)
    made = space["made"](**known)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
