"""Durable graph flows: compile, run, wait, resume."""
