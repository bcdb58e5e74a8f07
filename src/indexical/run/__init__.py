"""Calling: arrays bound to inputs, and the reference evaluator, which is the meaning."""
