"""What `config:` may say of a container, whatever kind of environment runs in it.

Loads pydantic: import it inside `config_model`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from flowengine.sdk.models import Config

_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "usr")
"""Folders of an image that a workspace must not hide."""


def _folder(value: str) -> str:
    """Refuse what the workspace would hide, or cannot be."""
    parts = PurePosixPath(value).parts
    if len(parts) < 2 or parts[0] != "/" or parts[1] in _SYSTEM or {"..", "."} & {*parts}:
        raise PydanticCustomError(
            "folder", "must be an absolute path outside of the system's folders, as /workspace"
        )
    return value


class Container(Config):
    """What all kinds can be told with `provider: docker`."""

    image: Annotated[str, Field(min_length=1)] | None = None
    """The image, also by digest; default: the project's own, which is built on this machine."""
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
