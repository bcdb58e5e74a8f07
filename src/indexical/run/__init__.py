"""Calling: arrays bound to inputs, and the reference evaluator, which is the meaning."""

# The evaluators that a call can ask for.
EMITTED = ("numpy", "torch", "jax")
BACKENDS = (*EMITTED, "reference")
