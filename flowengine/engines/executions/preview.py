"""What is left to be done about a question whose process died."""

from __future__ import annotations

from typing import NamedTuple


class Preview(NamedTuple):
    """A preview is still to be computed: the process that asked died before it was."""

    wait: int
    unit: int
    step: int
