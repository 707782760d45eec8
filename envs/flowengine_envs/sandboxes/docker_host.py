"""Address of the Docker daemon."""

from __future__ import annotations

import os

DEFAULT_HOST = "unix:///var/run/docker.sock"


def host() -> str:
    """Return the daemon's address: `DOCKER_HOST`, or the socket of this machine's own."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_HOST
