"""Routing of tokens, joins, and the entry of a token into a step."""
