"""A flow file as text: the positions of its parts, and its errors."""
