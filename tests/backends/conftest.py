"""The kernels for many pairs are tested on few: unless a test says otherwise, no call is small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.pairs import called_few


@pytest.fixture(autouse=True)
def many_pairs() -> Iterator[None]:
    with called_few(0):
        yield
