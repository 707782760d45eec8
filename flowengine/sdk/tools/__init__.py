"""Calls of tools: as data, their rules, and the answers that a model receives."""
