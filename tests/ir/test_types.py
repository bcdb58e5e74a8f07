"""Types: what they say of themselves, which keys are made of."""

from __future__ import annotations

from indexical.ir.types import Coordinate, Type


def test_a_type_is_written_alike_in_every_process() -> None:
    """A set is not: it goes by hashes, and those of texts are others in every process."""
    found = repr(Type("real", frozenset(map(Coordinate, "fbdhaecg"))))
    assert found == f"Type(kind='real', coordinates={[Coordinate(name) for name in 'abcdefgh']})"
