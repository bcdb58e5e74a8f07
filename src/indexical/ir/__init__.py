"""The Program: relations among named coordinates, typed and checked."""
