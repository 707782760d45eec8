"""Words that the engine and the programs inside a sandbox have to agree on."""

from __future__ import annotations

ENTRANCES = "FLOWENGINE_ENTRANCES"
"""Variable with the descriptors that lead into the control groups of programs."""
REACHED = b"+"
"""What the engine says first on a connection out, when it has reached the place."""
MOST = 100
"""Connections out at once; further ones wait to be accepted."""
