"""Plain data: from values of Python, in its declared form, and valid by a JSON Schema."""
