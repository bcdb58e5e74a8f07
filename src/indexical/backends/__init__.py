"""Plan → source: plain text over arrays."""
