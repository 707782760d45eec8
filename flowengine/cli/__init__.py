"""The command line: one file per command in `commands`, and what they share.

Only what the called command needs is imported; nothing here imports asyncio, YAML or Rich at its
top.
"""

from flowengine.cli.entry_point import script
from flowengine.cli.program import main

__all__ = ["main", "script"]
