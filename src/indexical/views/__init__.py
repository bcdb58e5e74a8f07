"""What a person sees: results as text."""
