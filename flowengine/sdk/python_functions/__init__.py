"""What a flow needs to know of Python functions, read from their sources without importing them."""
