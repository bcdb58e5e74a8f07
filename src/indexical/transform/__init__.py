"""Program → Program, and what such rewrites know of expressions."""
