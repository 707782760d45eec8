"""The Docker daemon in tests. Tests are skipped where there is none."""

from __future__ import annotations

import pytest

from flowengine.sdk import EnvironmentUnavailable
from flowengine_envs.sandboxes.docker import image
from flowengine_envs.sandboxes.docker.daemon import connect


def skip_without_docker() -> None:
    """Skip tests that need a daemon with the image, or fail with `--no-skips`.

    Build the image if necessary, or wait for a build that is under way.
    """
    try:
        image.build(connect())
    except EnvironmentUnavailable as error:
        pytest.skip(f"no docker ({error})")
