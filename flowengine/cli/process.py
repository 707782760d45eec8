"""How the process of a command line ends."""

from __future__ import annotations


class ProcessEnd:
    """Whether this process ends as soon as its command has.

    Attributes:
        ends_at_once: Set by `script`. Nothing has to be closed then: the system does it.
    """

    ends_at_once = False
