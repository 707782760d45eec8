"""The command line: one file per command in `commands`, and their shared parts.

Only modules that the called command needs are imported. No module here imports asyncio, YAML or
Rich at module level. An `int` that a function returns here is the exit code.
"""

from flowengine.cli.entry_point import script
from flowengine.cli.program import main

__all__ = ["main", "script"]
