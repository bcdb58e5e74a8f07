"""Exact numbers, and digits that are proven."""
