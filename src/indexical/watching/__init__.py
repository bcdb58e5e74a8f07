"""Attention of PyTorch models: `models` watches them, the other modules need no PyTorch."""
