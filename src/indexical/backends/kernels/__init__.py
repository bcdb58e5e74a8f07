"""Kernels that emitted source carries along: each file stands alone, and runs without Indexical."""
