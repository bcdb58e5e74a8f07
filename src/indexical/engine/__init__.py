"""The plan as an array program: operations on interned values, rules that rewrite them, one printer."""
