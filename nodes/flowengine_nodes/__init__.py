"""The built-in step kinds."""
