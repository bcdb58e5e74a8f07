"""Tables of a page: which row and which column a figure stands in."""

from __future__ import annotations

from collections.abc import Sequence

from ..views.plain import CODE, END, MATH, Plain


def label_of(plain: Plain) -> str:
    """The text of a heading."""
    return plain.without(CODE + MATH + END).text.strip("`*_ \n\t")


def numbered(labels: list[Plain], count: int, size: int, first: int) -> list[int] | None:
    """The places that labels give, or all in order; None where there are not as many."""
    return places_of(labels, size, first) or (list(range(size)) if count == size else None)


def places_of(labels: Sequence[Plain], size: int, first: int) -> list[int] | None:
    """The places that labels give, `2` or `i = 2`; None where they give none."""
    plain = [label_of(label).rpartition("=")[2].strip() for label in labels]
    if plain and all(label.isdecimal() and first <= int(label) < first + size for label in plain):
        return [int(label) - first for label in plain]
    return None


def columns_of(names: Sequence[str], headings: Sequence[Plain], wide: int) -> list[int] | None:
    """The column of each name: that of its heading, and for names that are no heading the last of the others, in their
    order; None where there are too few."""
    labels = list(map(label_of, headings))
    if not set(names) & set(labels):
        labels, names = [label.lower() for label in labels], [name.lower() for name in names]
    found = [labels.index(name) if labels.count(name) == names.count(name) == 1 else None for name in names]
    free = [column for column in range(wide) if column not in found]
    missing = found.count(None)
    if len(free) < missing:
        return None
    others = iter(free[len(free) - missing :])
    return [next(others) if column is None else column for column in found]


def is_labelled(
    rows: tuple[tuple[Plain, ...], ...], headings: tuple[Plain, ...], wide: int, shape: tuple[int, ...]
) -> bool:
    """Whether the first column of a table has labels and no figures."""
    if len(shape) == 1:
        across = len(rows) == 1 and wide == shape[0]
        return (wide == 2 and not across) or (len(rows) == 1 and wide - 1 == shape[0])
    if len(shape) == 2:
        labels = list(map(label_of, headings))
        return wide == shape[1] + 1 or (wide <= shape[1] and any(labels) and not labels[0])
    return wide == 2
