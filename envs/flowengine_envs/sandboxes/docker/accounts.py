"""Adds a name for a container's user, without which `whoami`, `ssh` and other programs fail.

Containers run as the user of this process (see `ownership`), which images do not list. An image's
user and group lists are read once per process and shown to containers with one line added. The
default image contains only Debian's users, so its lists are not read.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowengine.sdk.scratch import make_scratch, remove_scratch
from flowengine_envs.sandboxes.docker.image import description
from flowengine_envs.sandboxes.docker.ownership import group, user
from flowengine_envs.sandboxes.docker.rights import HOME

if TYPE_CHECKING:
    from docker import DockerClient

PASSWD, GROUP = "/etc/passwd", "/etc/group"
_NAME = "flow"
_LARGEST = 1 << 20
"""Maximum size of a list in bytes. A larger list is not changed."""

_DEFAULT = {
    PASSWD: "root:x:0:0:root:/root:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    GROUP: "root:x:0:\ntty:x:5:\nshadow:x:42:\nutmp:x:43:\nstaff:x:50:\nnogroup:x:65534:\n",
}

_known: dict[str, dict[str, str]] = {}
"""Image digest → the lists that need an added line: path inside → text."""


class Lists:
    """The lists shown to one container, in a directory that is removed with it."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def mounts(
        self, client: DockerClient, reference: str, image: str, labels: Mapping[str, str]
    ) -> list[Any]:
        """Write the lists that do not contain the user and group of containers.

        Args:
            client: The daemon.
            reference: Reference of the image.
            image: Digest of the image, which is present.
            labels: Labels of the container that is created to read them and never started.

        Returns:
            The mounts that show them.
        """
        from docker.types import Mount

        lists = _of_default() if reference == description().tag else _lacking(client, image, labels)
        if not lists:
            return []
        self._folder = make_scratch()
        self._folder.chmod(0o711)  # A daemon with user mapping accesses it as another user.
        files = _write(self._folder, lists)
        return [Mount(inside, str(file), "bind", read_only=True) for inside, file in files.items()]

    def are_unseen(self, message: str) -> bool:
        """Return whether a daemon reports them as missing: it may have its own temporary files."""
        return self._folder is not None and str(self._folder) in message

    def close(self) -> None:
        """Remove the directory."""
        if self._folder is not None:
            remove_scratch(self._folder)
            self._folder = None


def _of_default() -> dict[str, str]:
    return {path: _DEFAULT[path] + line for path, line in _lines().items()}


def _lacking(client: DockerClient, image: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the lists to add to an image: path inside → text. API errors are ignored."""
    from docker.errors import APIError

    if image not in _known:
        try:
            lists = _read_all(client, image, labels)
        except APIError:
            return {}
        _known[image] = {
            path: text + line
            for path, line in _lines().items()
            if (text := lists[path]) is not None and not _names(text, line)
        }
    return _known[image]


def _read_all(client: DockerClient, image: str, labels: Mapping[str, str]) -> dict[str, str | None]:
    made = client.api.create_container(image, ["none"], entrypoint=[], labels=dict(labels))
    try:
        return {path: _read(client, str(made["Id"]), path) for path in (PASSWD, GROUP)}
    finally:
        client.api.remove_container(made["Id"], force=True)


def _write(folder: Path, lists: Mapping[str, str]) -> dict[str, Path]:
    files = {path: folder / Path(path).name for path in lists}
    for path, file in files.items():
        file.write_text(lists[path], encoding="utf-8", errors="surrogateescape")
        file.chmod(0o644)
    return files


def _lines() -> dict[str, str]:
    return {
        PASSWD: f"{_NAME}:x:{user()}:{group()}::{HOME}:/bin/sh\n",
        GROUP: f"{_NAME}:x:{group()}:\n",
    }


def _names(text: str, line: str) -> bool:
    """Return whether a list contains the id that is third in a line."""
    number = line.split(":")[2]
    return any(each.split(":")[2:3] == [number] for each in text.splitlines())


def _read(client: DockerClient, container: str, path: str) -> str | None:
    """Return a list of an image, ending with a line feed. None: it cannot be extended."""
    from docker.errors import APIError, NotFound

    try:
        pieces, _told = client.api.get_archive(container, path)
    except NotFound:
        return ""
    except APIError:
        return None
    data = b""
    for piece in pieces:
        data += piece
        if len(data) > _LARGEST:  # too large, possibly a directory
            pieces.close()
            return None
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        entry = tar.next()
        file = tar.extractfile(entry) if entry is not None and entry.isreg() else None
        if file is None:
            return None
        text = file.read().decode(errors="surrogateescape")
    return text if not text or text.endswith("\n") else text + "\n"
