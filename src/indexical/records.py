"""Dataclasses that are quick to declare, and quick to make.

The standard decorator compiles up to six methods for a class, which was most of the time of a first `ix.compile`, and
an instance of a frozen class takes three times as long to make, as its fields are set by `object.__setattr__`. Here one
method is compiled, when a class is first used. That nothing assigns to a field of a frozen class is checked with the
types, and not at run time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["Hashed", "dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, kw_only=False):
        """The standard decorator, with what is used of its options."""

        def declared(cls):
            return _declared(cls, frozen, slots, eq, kw_only)

        return declared if cls is None else declared(cls)


class Hashed:
    """A frozen record that is a key again and again, and keeps its hash. It is another one in another process."""

    __slots__ = ("hashed",)
    hashed: int

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        record: Any = self
        return None, {field.name: getattr(self, field.name) for field in dataclasses.fields(record)}


def _declared(cls: type, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> Any:
    own = set(cls.__dict__)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # or the standard decorator works out a signature for it
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    fields = dataclasses.fields(made)
    if "__init__" not in own:
        made.__init__ = _first_init(made)
    if "__repr__" not in own:
        made.__repr__ = _representation([field.name for field in fields if field.repr])
    if eq and "__eq__" not in own:
        made.__eq__ = _equality(_getter([field.name for field in fields if field.compare]))
    if eq and ("__hash__" not in own or cls.__dict__["__hash__"] is None):
        hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
        made.__hash__ = (_kept_hash if issubclass(cls, Hashed) else _hash)(_getter(hashed)) if frozen else None
    return made


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
    known: dict[str, Any] = {"MISSING": dataclasses.MISSING}
    for field in sorted(dataclasses.fields(cls), key=lambda field: bool(field.kw_only)):
        name, value, default = field.name, field.name, ""
        if field.default is not dataclasses.MISSING:
            known[f"default_{name}"] = field.default
            default = f" = default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            known[f"make_{name}"] = field.default_factory
            default = " = MISSING"
            value = f"make_{name}() if {name} is MISSING else {name}"
        if field.init:
            if field.kw_only and "*" not in parameters:
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
