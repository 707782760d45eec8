"""Calls of tools: as data, their schemas, and rules about commands."""
