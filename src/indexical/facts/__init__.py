"""Facts about a Program, found without running it."""
