"""The names of Docker's library. `daemon.load` imports it."""

from typing import TYPE_CHECKING

from flowengine_envs.libraries import names_of

if TYPE_CHECKING:
    from docker import *
    from docker.errors import *
    from docker.types import *
    from docker.utils.build import *
else:
    __getattr__ = names_of("docker", "docker.errors", "docker.types", "docker.utils.build")
