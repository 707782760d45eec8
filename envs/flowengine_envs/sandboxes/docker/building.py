"""Builds images from a Dockerfile of the user: `config: {image: {build: .}}`.

The tag is a digest of all inputs of the build, so an existing image is the right one, and a changed
file results in another image. The daemon builds, and its messages are kept for the error. The build
ends with the connection: a caller that stops waiting cancels it, and its containers are removed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any, Literal
from urllib.parse import urlencode

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from flowengine.sdk import (
    EnvironmentStartFailed,
    EnvironmentUnavailable,
    ImageUnavailable,
    Refused,
    StepError,
)
from flowengine.sdk.environments import Spec
from flowengine.sdk.environments.models import Config
from flowengine.sdk.files.confined_files import Below
from flowengine.sdk.files.path_walk import LeadsOut, NotRegular, open_file, walked
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.sandboxes.docker import image, library
from flowengine_envs.sandboxes.docker.accounts import HOME
from flowengine_envs.sandboxes.docker.daemon import connect, connection
from flowengine_envs.sandboxes.docker.image import PAUSE, BuildLock
from flowengine_envs.sandboxes.mounts import check, named_folder

REPOSITORY = "flowengine-built"
LARGEST = 1 << 30
"""Maximum bytes of a build context."""
_LARGEST_IGNORED = 1 << 20
"""Maximum bytes of a `.dockerignore`."""
_PIECE = 1 << 20
_KEPT = 4000
"""Characters from the end of a build's output that its error shows."""


def wanted(spec: Spec) -> Build | None:
    """Return a spec's settings for an image to build, or None."""
    name: Any = getattr(spec.config, "image", None)
    return None if name is None or isinstance(name, str) else name


async def built(spec: Spec) -> str | None:
    """Build the image of a spec if it is missing, and return its tag.

    Args:
        spec: The environment's spec.

    Returns:
        The tag. None: the spec has no image to build.

    Raises:
        ImageUnavailable: The image is missing, and `pull_policy` is `never`.
        EnvironmentUnavailable: The directory or Dockerfile is missing or too large.
        Refused: The directory must not be shown to a container.
        EnvironmentStartFailed: The build failed. The message contains the end of its output.
    """
    build = wanted(spec)
    if build is None:
        return None
    client = await asyncio.to_thread(connect)
    policy = getattr(spec.config, "pull_policy", "missing")

    def is_there(tag: str) -> bool:
        return policy != "always" and image.is_there(client, tag)

    with tempfile.TemporaryFile() as tar:  # It has no name, so it leaves nothing behind.
        tag = await asyncio.to_thread(_context, spec, build, tar)
        if await asyncio.to_thread(is_there, tag):
            return tag
        if policy == "never":
            raise ImageUnavailable(
                f"{spec}: no image is built from the current {build.build}, and pull_policy is "
                "never"
            )
        lock = BuildLock(tag)
        while not lock.acquire():  # noqa: ASYNC110 - unlocking a file triggers no event
            await asyncio.sleep(PAUSE)
        try:
            if not await asyncio.to_thread(is_there, tag):
                await _build(spec, build, tag, tar, fresh=policy == "always")
        finally:
            lock.release()
    return tag


def _context(spec: Spec, build: Build, tar: IO[bytes]) -> str:
    """Pack a directory reproducibly, and return the tag of its image."""
    folder = named_folder(spec, os.path.expanduser(build.build))
    try:
        root = check(folder)
    except Refused as refused:
        raise Refused(f"{spec}: no image is built from {folder}: {refused.message}") from None
    try:
        os.close(Below(root).open(build.dockerfile))
    except StepError:
        raise EnvironmentUnavailable(
            f"{spec}: there is no {build.dockerfile} in {folder}"
        ) from None
    digest = _pack(spec, root, build.dockerfile, tar)
    digest.update(json.dumps(_options(build), sort_keys=True).encode())
    return f"{REPOSITORY}:{digest.hexdigest()[:24]}"


def _pack(spec: Spec, root: Path, dockerfile: str, target: IO[bytes]) -> Any:
    """Pack everything that `.dockerignore` does not exclude, and return its digest."""
    ignored: list[str] = []
    with suppress(StepError):
        text = Below(root).read(".dockerignore", _LARGEST_IGNORED).decode(errors="replace")
        lines = (line.strip() for line in text.splitlines())
        ignored = [line for line in lines if line and not line.startswith("#")]
    size = 0
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(library.exclude_paths(str(root), ignored, dockerfile)):
            try:
                size += _add(tar, root, path)
            except LeadsOut:
                raise EnvironmentUnavailable(
                    f"{spec}: {root / path} became a link while it was read: try again"
                ) from None
            if size > LARGEST:
                raise EnvironmentUnavailable(
                    f"{spec}: {root} has more than {size_text(LARGEST)} to build an image from: "
                    "exclude unneeded files by a .dockerignore"
                )
        end = tar.offset + 2 * tarfile.BLOCKSIZE
    # The daemon does not read the padding at the end, and notices a disconnected client only after
    # it has read everything that was sent.
    target.truncate(end)
    digest = hashlib.sha256()
    target.seek(0)
    while data := target.read(_PIECE):
        digest.update(data)
    return digest


def _add(tar: tarfile.TarFile, root: Path, path: str) -> int:
    """Add a file, a directory or a link unchanged, and return its size."""
    above, name = os.path.split(path)
    with walked(root, above, enter=True) as place:
        info = tar.gettarinfo(f"/proc/self/fd/{place.folder}/{name}", arcname=path)
        if info is None or not (info.isreg() or info.isdir() or info.issym()):  # type: ignore[redundant-expr] # None: a socket
            return 0
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = 0
        if not info.isreg():
            tar.addfile(info)
            return 0
        try:
            file = open_file(name, place.folder)
        except NotRegular:  # replaced meanwhile
            return 0
    with open(file, "rb") as source:
        info.size = os.fstat(file).st_size
        if info.size <= LARGEST:
            tar.addfile(info, source)
    return info.size


def _options(build: Build) -> dict[str, str]:
    """Return the daemon's build options, apart from the context."""
    options = {
        "dockerfile": build.dockerfile,
        "buildargs": json.dumps(build.args, sort_keys=True),
        "networkmode": "none" if build.network == "none" else "default",
        "labels": json.dumps({"flowengine": "built"}),
        "rm": "1",
        "forcerm": "1",
    }
    return options if build.target is None else {**options, "target": build.target}


async def _build(spec: Spec, build: Build, tag: str, tar: IO[bytes], *, fresh: bool) -> None:
    """Let the daemon build the image."""
    options = {**_options(build), "t": tag}
    options |= {"pull": "1", "nocache": "1"} if fresh else {}
    log, error = "", ""
    async for progress in _ask(f"/build?{urlencode(options)}", tar):
        log = (log + str(progress.get("stream", "")))[-_KEPT:]
        error = str(progress.get("error") or progress.get("message") or error)
    if error:
        hint = ""
        if build.network == "none":
            hint = "\nA build has no network, unless 'network: any' is set next to 'build'."
        raise EnvironmentStartFailed(
            f"{spec}: the image of {build.build} could not be built: {error}\n{log.strip()}{hint}"
        )
    client = await asyncio.to_thread(connect)
    if not await asyncio.to_thread(image.is_there, client, tag):
        raise EnvironmentStartFailed(
            f"{spec}: the daemon ended the build of {build.build} without an image\n{log.strip()}"
        )


async def _ask(path: str, body: IO[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Send a file to the daemon, and yield each object of its response."""
    reader, writer = await connection()
    try:
        size = body.seek(0, os.SEEK_END)
        body.seek(0)
        # A response in version 1.0 ends with the connection.
        head = f"POST {path} HTTP/1.0\r\nContent-Type: application/x-tar\r\n"
        writer.write(f"{head}Content-Length: {size}\r\n\r\n".encode())
        with suppress(ConnectionError):  # It may refuse early, and then sends the reason.
            while data := await asyncio.to_thread(body.read, _PIECE):
                writer.write(data)
                await writer.drain()
        # It also closes the connection if it has not read the padding of the archive.
        with suppress(ConnectionError):
            while (await reader.readline()).strip():
                pass
            while line := await reader.readline():
                with suppress(ValueError):
                    progress = json.loads(line)
                    if isinstance(progress, dict):
                        yield progress
    finally:
        writer.transport.abort()


# The container settings in `config:`, for every kind that runs in a container.
#
# Importing this module loads pydantic, so import it inside `config_model`.

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
            "must not hold the home directory of programs, {home}: use one such as /workspace",
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
