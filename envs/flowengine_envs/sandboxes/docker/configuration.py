"""The container settings in `config:`, for every kind that runs in a container.

Importing this module loads pydantic, so import it inside `config_model`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from flowengine.sdk.models import Config
from flowengine_envs.sandboxes.docker.rights import HOME

_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "usr")
"""Directories of an image that a workspace must not hide."""


def _folder(value: str) -> str:
    """Refuse a path that the workspace would hide or cannot use."""
    parts = PurePosixPath(value).parts
    if len(parts) < 2 or parts[0] != "/" or parts[1] in _SYSTEM or {"..", "."} & {*parts}:
        raise PydanticCustomError(
            "folder",
            "must be an absolute path outside the system's directories, such as /workspace",
        )
    if PurePosixPath(HOME).is_relative_to(value):
        raise PydanticCustomError(
            "folder",
            "must not hold the home directory of programs, {home}; as /workspace",
            {"home": HOME},
        )
    return value


def _inside(value: str) -> str:
    """Refuse a Dockerfile outside the context."""
    if value.startswith("/") or ".." in PurePosixPath(value).parts:
        raise PydanticCustomError("inside", "must be a path in the directory of 'build'")
    return value


class Build(Config):
    """An image built from a Dockerfile."""

    build: Annotated[str, Field(min_length=1)]
    """The directory with the Dockerfile, relative to the working directory.

    It is sent to the daemon, except for the entries that its `.dockerignore` names.
    """
    dockerfile: Annotated[str, Field(min_length=1), AfterValidator(_inside)] = "Dockerfile"
    """The file, relative to the directory."""
    target: Annotated[str, Field(min_length=1)] | None = None
    """The stage of the Dockerfile. Default: the last one."""
    args: dict[str, str] = Field(default_factory=dict)
    """Values of `ARG`. They can be read from the image, so they must not be secrets."""
    network: Literal["none", "any"] = "none"
    """Network access of the Dockerfile's commands during the build."""


class Container(Config):
    """Settings of all kinds with `provider: docker`."""

    image: Annotated[str, Field(min_length=1)] | Build | None = None
    """The image, optionally by digest, or the build that creates it.

    Default: the project's own, which is built on this machine.
    """
    pull_policy: Literal["missing", "never", "always"] = "missing"
    """When the image is pulled."""
    platform: Annotated[str, Field(min_length=1)] | None = None
    """For example `linux/amd64`. Default: the daemon's."""
    container_name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]+$")] | None = None
    """Its name. Default: a unique name."""
    gpus: Annotated[str, Field(min_length=1)] | None = None
    """`all`, or ids separated by commas."""
    network: Literal["none", "bridge", "host"] | None = None
    """Docker's network. Default: the one that `policy.network` implies, or none."""
    workdir: Annotated[str, AfterValidator(_folder)] = "/workspace"
    """Path of the workspace in the container."""
