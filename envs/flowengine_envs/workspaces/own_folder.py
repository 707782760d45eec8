"""The folder in the home folder of an environment that the engine itself uses."""

from __future__ import annotations

from flowengine.sdk.environments import Request

OWN = ".flowengine"
"""Folder of the home folder for output files, terminals and what steps hand in."""


def make_own(request: Request) -> None:
    """Make the folder `OWN` in the home folder that an environment has on the host.

    Args:
        request: What was asked for.
    """
    (request.home / OWN).mkdir(mode=0o700, exist_ok=True)
