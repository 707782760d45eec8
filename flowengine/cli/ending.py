"""How the process of a command line ends."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


class Ending:
    """Whether this process ends as soon as its command has.

    Attributes:
        at_once: Set by `script`: the system takes back what is open, nobody has to close it.
    """

    at_once = False


def script() -> NoReturn:
    """Run the command line of this process, and end it without tearing it down."""
    from flowengine.cli.program import main

    Ending.at_once = True
    code = main()
    sys.stderr.flush()
    os._exit(code)
