"""The language server: programs as editors ask about them. It reads programs, and never runs them."""
