"""Text to tree and back: tokens, tree, parse, format."""
