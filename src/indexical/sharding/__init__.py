"""Programs on many machines, split by coordinate."""
