"""Attentions whose arrays have several dtypes: their laws, in a process where Triton interprets its kernels."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.mark.sampled(0)
def test_laws_hold() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/backends/triton/mixing.py"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stdout[-8000:]
