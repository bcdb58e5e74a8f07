"""What is true of a Program, found without running it."""
