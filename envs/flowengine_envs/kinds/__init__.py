"""Kinds of environments: what a spec names as `kind`, and what they have in common."""
