"""A flow in the formats of other programs: expanded YAML, JSON Schema, networkx."""
