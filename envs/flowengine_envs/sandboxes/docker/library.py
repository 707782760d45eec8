"""The names of Docker's library. `daemon.load` imports it."""

from typing import TYPE_CHECKING

from flowengine_envs.libraries import names_of

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.errors import APIError, DockerException, ImageNotFound, NotFound
    from docker.types import DeviceRequest, Mount, Ulimit
    from docker.utils.build import exclude_paths
else:
    __getattr__ = names_of("docker", "docker.errors", "docker.types", "docker.utils.build")
