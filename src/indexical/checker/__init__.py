"""Tree to Program: names, functions, kinds, sizes, spaces, bounds, absence, recurrence."""
