"""The Docker daemon in tests: where none can be had, they say so."""

from __future__ import annotations

import pytest

from flowengine.sdk import EnvironmentUnavailable
from flowengine_envs.sandboxes.docker import image
from flowengine_envs.sandboxes.docker.daemon import connect


def skip_without_docker() -> None:
    """Skip what needs a daemon with the image; `--no-skips` makes that a failure.

    Where the image is being built, or is not yet, this waits for it.
    """
    try:
        image.build(connect())
    except EnvironmentUnavailable as error:
        pytest.skip(f"no docker ({error})")
