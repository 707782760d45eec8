"""The built-in environment providers."""
