"""Attempts of steps: running them, their context, their failures and their results."""
