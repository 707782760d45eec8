"""The default image of containers, and one with numpy and pandas.

`image.toml` next to this module describes it. It is built on this machine: `mmdebstrap` creates a
root file system from Debian packages, and the daemon imports it as an image. No registry is
involved. The tag is a digest of the description, so an existing image is the right one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import tomllib
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from flowengine.sdk import EnvironmentStartFailed, EnvironmentUnavailable, ImageUnavailable
from flowengine.sdk.environments import Spec
from flowengine.sdk.files.confined_files import take_lock
from flowengine_envs.sandboxes.docker import library

PAUSE = 0.1
"""Seconds between two checks whether another process has built it."""


class BuildLock:
    """The lock for one image. Its file exists only while a process holds it.

    Args:
        tag: Tag of the image.
    """

    def __init__(self, tag: str) -> None:
        name = f"{tag.replace(':', '-')}-{os.getuid()}.lock"
        self._path = Path(tempfile.gettempdir()) / name
        self._file: int | None = None

    def acquire(self) -> bool:
        """Acquire the lock unless another process holds it.

        Returns:
            Whether it was acquired.
        """
        file = take_lock(self._path)
        if file is None:
            return False
        if not self._is_there(file):
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        self._path.unlink(missing_ok=True)  # before another process can take it
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _is_there(self, file: int) -> bool:
        """Return whether the file still exists: the previous holder may have removed it."""
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self._path))
        except FileNotFoundError:
            return False


REPOSITORY = "flowengine-sandbox"
DATA = f"{REPOSITORY}:data"
"""The name in a spec for the image with numpy and pandas. The image's own tag is a digest."""
_BUILD_TIMEOUT = 900
"""Seconds. A slow mirror takes minutes."""

_CONFIGURATION = [
    "ENV LANG=C.UTF-8",
    "ENV PATH=/usr/local/bin:/usr/bin:/bin",
    # The root file system is read-only, so packages that a step installs go to its home.
    "ENV PIP_BREAK_SYSTEM_PACKAGES=1",
    "WORKDIR /workspace",
]


class Description(NamedTuple):
    """The description of an image."""

    suite: str
    """Debian's name for the release."""
    packages: tuple[str, ...]
    """`name=version`, in which `*` matches any text."""
    leave_out: tuple[str, ...]
    """Patterns of files in the packages that the image omits."""
    tag: str
    """`flowengine-sandbox:DIGEST`."""


def description(*, data: bool = False) -> Description:
    """Return the description of the default image.

    Args:
        data: Whether to include numpy and pandas.
    """
    names = ["image.toml", *(["image_data.toml"] if data else [])]
    texts = [(resources.files(__package__) / name).read_bytes() for name in names]
    first, *more = (tomllib.loads(text.decode()) for text in texts)
    whole = b"".join(texts) + "\n".join(_CONFIGURATION).encode()
    digest = hashlib.sha256(whole).hexdigest()[:12]
    return Description(
        first["suite"],
        (*first["packages"], *(name for each in more for name in each["packages"])),
        tuple(first["leave_out"]),
        f"{REPOSITORY}:{digest}",
    )


def is_there(client: library.DockerClient, tag: str) -> bool:
    """Return whether the daemon has an image."""
    try:
        client.images.get(tag)
    except library.ImageNotFound:
        return False
    return True


def build(client: library.DockerClient, *, data: bool = False) -> str:
    """Build the default image unless it exists, and return its tag.

    The build takes half a minute. Of two concurrent processes, only one builds.

    Args:
        client: A client of the daemon that receives it.
        data: Whether to include numpy and pandas.

    Returns:
        The tag.

    Raises:
        EnvironmentUnavailable: This machine cannot build it: `mmdebstrap` is missing.
        EnvironmentStartFailed: The build failed. The message contains its last lines.
    """
    wanted = description(data=data)
    if is_there(client, wanted.tag):
        return wanted.tag
    if shutil.which("mmdebstrap") is None:
        raise EnvironmentUnavailable(
            f"the sandbox image {wanted.tag} is not built yet, and building it needs mmdebstrap, "
            "which is not installed: sudo apt-get install mmdebstrap, or name another image "
            "in the environment's config"
        )
    lock = BuildLock(wanted.tag)
    while not lock.acquire():
        time.sleep(PAUSE)
    try:
        if not is_there(client, wanted.tag):
            _build(client, wanted)
    finally:
        lock.release()
    return wanted.tag


def _build(client: library.DockerClient, wanted: Description) -> None:
    with tempfile.TemporaryDirectory(prefix="flowengine-image-") as folder:
        root = Path(folder) / "root.tar"
        _make_root(wanted, root)
        repository, _, tag = wanted.tag.partition(":")
        client.api.import_image(
            src=str(root), repository=repository, tag=tag, changes=_CONFIGURATION
        )


def _make_root(wanted: Description, target: Path) -> None:
    """Create the root file system as a tar file."""
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        f"--include={','.join(wanted.packages)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in wanted.leave_out),
        '--aptopt=Acquire::Languages "none"',
        wanted.suite,
        str(target),
    ]
    try:
        made = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_BUILD_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentStartFailed(
            f"building the sandbox image took longer than {_BUILD_TIMEOUT} s and was stopped"
        ) from error
    if made.returncode != 0:
        errors = "\n".join(made.stderr.strip().splitlines()[-10:])
        raise EnvironmentStartFailed(f"the sandbox image could not be built. mmdebstrap:\n{errors}")


if __name__ == "__main__":
    import sys

    from flowengine_envs.sandboxes.docker.daemon import connect

    build(connect(), data="data" in sys.argv[1:])


# Selects the image of a container, and pulls it.


def find_image(client: library.DockerClient, spec: Spec, named: str | None = None) -> str:
    """Return the image of a container, pulling or building it if that is allowed.

    Args:
        client: A client of the daemon.
        spec: The environment's spec.
        named: The image. Default: the one in the spec's config, or else the project's own.

    Returns:
        Its reference.

    Raises:
        ImageUnavailable: It is missing, and must not or cannot be pulled.
    """
    reference = named or getattr(spec.config, "image", None)
    if reference is None:
        return build(client)
    policy = getattr(spec.config, "pull_policy", None) or "missing"
    if reference == DATA:
        tag = description(data=True).tag
        if policy == "never" and not is_there(client, tag):
            raise ImageUnavailable(
                f"{spec}: the image {reference} is not built on this machine yet, and pull_policy "
                "is never: python -m flowengine_envs.sandboxes.docker.image data"
            )
        return build(client, data=True)
    try:
        there = is_there(client, reference)
    except library.APIError as error:
        raise ImageUnavailable(
            f"{spec}: {reference!r} is not the name of an image: {error.explanation}"
        ) from error
    if there and policy != "always":
        return str(reference)
    if policy == "never":
        raise ImageUnavailable(
            f"{spec}: the image {reference} is not on this machine, and pull_policy is never: "
            f"docker pull {reference}"
        )
    try:
        client.images.pull(reference, platform=getattr(spec.config, "platform", None))
    except (library.APIError, OSError) as error:
        reason = getattr(error, "explanation", None) or error
        raise ImageUnavailable(
            f"{spec}: the image {reference} could not be fetched (pull_policy {policy}): {reason}"
        ) from error
    return str(reference)
