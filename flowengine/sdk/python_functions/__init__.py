"""Properties of Python functions, read from their sources without importing them."""
