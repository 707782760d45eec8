"""Kinds of environments (the values of `kind` in a spec) and their shared code."""
