"""Functions of the program that runs agents, which no other process finds by a name."""

LIVE = "_agent_functions"
"""The runtime resource that has them, by key."""
