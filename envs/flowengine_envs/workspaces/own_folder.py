"""The engine's own directory in the home directory of an environment."""

from __future__ import annotations

from flowengine.sdk.environments import Request

OWN = ".flowengine"
"""Directory of the home directory for output files, terminals and inputs of steps."""


def make_own(request: Request) -> None:
    """Create the directory `OWN` in the home directory of an environment on the host.

    Args:
        request: The request to open the environment.
    """
    (request.home / OWN).mkdir(mode=0o700, exist_ok=True)
