"""A program that is split over devices of JAX gives what the whole program gives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("jax")

# Devices are counted when JAX is first loaded: so a process of its own.
CHECK = """
import sys
import jax, numpy as np, torch
from jax import numpy as jnp
from jax.sharding import Mesh, PartitionSpec
jax.config.update("jax_enable_x64", True)
import indexical as ix
from tests.sharding import cases
from tests.variants import roster

devices = np.array(jax.devices())
assert len(devices) == 4
for name in sys.argv[1:]:
    case = cases.case_of(name, 4, ["heads"])
    letters = {letter: 8 for letter, along in case.options.items() if along == "context"}
    arrays = roster.arrays(name, {**letters, "h": 2, "g": 2})
    mesh = Mesh(devices.reshape(tuple(case.mesh.values())), tuple(case.mesh))
    spread = ix.shard(case.program, mesh, **case.options)
    given = {key: spread.local(jnp.asarray(x.detach().numpy()), key) for key, x in arrays.items()}
    expected, found = case.program(**arrays), spread(**given)
    np.testing.assert_allclose(np.asarray(found), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert found.sharding.spec == spread.sharding(case.program.outputs[0]).spec
    first = next(key for key, x in arrays.items() if x.requires_grad)
    slope = jax.grad(lambda x: jnp.sum(spread(**{**given, first: x}) ** 2))(given[first])
    (wanted,) = torch.autograd.grad((expected ** 2).sum(), [arrays[first]])
    np.testing.assert_allclose(np.asarray(slope), wanted.numpy(), rtol=1e-4, atol=1e-5)
try:
    spread(**{key: x[:, :7] if x.ndim == 3 else x for key, x in given.items()})
except ix.CallError as problem:
    assert "unevenly" in str(problem)
"""


def _run(*names: str) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-c", CHECK, *names]
    found = subprocess.run(words, capture_output=True, text=True, timeout=300, env={**os.environ, **flags})
    assert found.returncode == 0, found.stderr


@pytest.mark.sampled(0)
@pytest.mark.parametrize(
    "names", [("causal", "multi_head"), ("class_attention",), ("lambda_layer", "delta_rule", "slots")]
)
def test_several_devices_of_jax(names: tuple[str, ...]) -> None:
    _run(*names)
