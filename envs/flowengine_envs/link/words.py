"""Constants shared by the engine and the programs inside a sandbox."""

from __future__ import annotations

ENTRANCES = "FLOWENGINE_ENTRANCES"
"""Variable with the descriptors for joining the control groups of programs."""
RESERVE = "FLOWENGINE_RESERVE"
"""Variable with the bytes that a supervisor needs when its programs have used up its memory."""
REACHED = b"+"
"""First byte from the engine on an outgoing connection, once it has reached the place."""
MOST = 100
"""Maximum number of concurrent outgoing connections. Further ones wait to be accepted."""
