"""The Docker daemon in tests: where none can be had, they say so."""

from __future__ import annotations

import pytest

from flowengine.sdk import EnvironmentUnavailable
from flowengine_envs.docker.daemon import connect


def skip_without_docker() -> None:
    """Skip what needs a daemon; `--no-skips` makes that a failure."""
    try:
        connect()
    except EnvironmentUnavailable as error:
        pytest.skip(f"no docker ({error})")
