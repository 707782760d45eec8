"""What `config:` may say of a container, whatever kind of environment runs in it.

Loads pydantic: import it inside `config_model`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from flowengine.sdk.models import Config
from flowengine_envs.sandboxes.docker.rights import HOME

_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "usr")
"""Folders of an image that a workspace must not hide."""


def _folder(value: str) -> str:
    """Refuse what the workspace would hide, or cannot be."""
    parts = PurePosixPath(value).parts
    if len(parts) < 2 or parts[0] != "/" or parts[1] in _SYSTEM or {"..", "."} & {*parts}:
        raise PydanticCustomError(
            "folder", "must be an absolute path outside the system's folders, such as /workspace"
        )
    if PurePosixPath(HOME).is_relative_to(value):
        raise PydanticCustomError(
            "folder",
            "must not hold the home folder of programs, {home}; as /workspace",
            {"home": HOME},
        )
    return value


def _inside(value: str) -> str:
    """Refuse a Dockerfile that is not in the context."""
    if value.startswith("/") or ".." in PurePosixPath(value).parts:
        raise PydanticCustomError("inside", "must be a path in the folder of 'build'")
    return value


class Build(Config):
    """An image that is built from a Dockerfile."""

    build: Annotated[str, Field(min_length=1)]
    """The folder with the Dockerfile, relative to the working folder; without what its
    `.dockerignore` names it is sent to the daemon."""
    dockerfile: Annotated[str, Field(min_length=1), AfterValidator(_inside)] = "Dockerfile"
    """The file, relative to the folder."""
    target: Annotated[str, Field(min_length=1)] | None = None
    """The stage of the Dockerfile; default: the last one."""
    args: dict[str, str] = Field(default_factory=dict)
    """Values of `ARG`. They can be read from the image: no secrets."""
    network: Literal["none", "any"] = "none"
    """What the commands of the Dockerfile reach while it is built."""


class Container(Config):
    """What all kinds can be told with `provider: docker`."""

    image: Annotated[str, Field(min_length=1)] | Build | None = None
    """The image, also by digest, or where it is built from; default: the project's own, which is
    built on this machine."""
    pull_policy: Literal["missing", "never", "always"] = "missing"
    """When the image is fetched."""
    platform: Annotated[str, Field(min_length=1)] | None = None
    """Such as `linux/amd64`; default: the daemon's."""
    container_name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]+$")] | None = None
    """Its name; default: one that nobody else has."""
    gpus: Annotated[str, Field(min_length=1)] | None = None
    """`all`, or ids with commas."""
    network: Literal["none", "bridge", "host"] | None = None
    """Docker's network; default: what `policy.network` asks for, none if it asks for nothing."""
    workdir: Annotated[str, AfterValidator(_folder)] = "/workspace"
    """Where the workspace is inside."""
