"""A flow in the forms that other programs read: YAML written out, JSON Schema, networkx."""
