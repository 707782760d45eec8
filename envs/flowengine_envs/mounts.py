"""Which folders of the machine a sandbox may see.

Mounting is the one way by which a sandbox reaches the machine, so what would hand it the machine
is refused before anything starts: `/`, the system's folders, a home folder, whatever holds
the daemon's socket or the state of the engine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from flowengine.sdk import Refused
from flowengine.sdk.engine_files import configuration_near
from flowengine.sdk.environments import Request
from flowengine_envs.docker_host import DEFAULT_HOST, host

_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "sys")
"""Folders that are not handed out, nor anything in them."""
_IN_USR = (*_SYSTEM, "games", "include", "libexec", "man", "share")
"""The same in `/usr` and `/usr/local`; applications are installed beside them."""
_SHARED = ("home", "root", "run", "var")
"""Folders that are not handed out as a whole."""
_MEMORY = Path("/dev/shm")
"""Like `/tmp`: whoever makes a folder in it may hand that out."""
_DOCKER = Path("/var/lib/docker")


def check(folder: Path, state: Path | None = None, guarded: Iterable[Path] = ()) -> Path:
    """Return where a folder really is, if a sandbox may see it.

    Args:
        folder: On this machine.
        state: A folder of the engine's state: nothing above it is handed out.
        guarded: Folders of the engine's own: nothing above or in them is handed out.

    Returns:
        Its path without links.

    Raises:
        Refused: It may not be mounted; the message has the path without links.
    """
    real = Path(os.path.realpath(folder))
    told = str(real) if real == folder else f"{folder} (which is {real})"
    reason = _danger(real, state)
    for each in guarded:
        own = Path(os.path.realpath(each))
        if own.is_relative_to(real) or real.is_relative_to(own):
            reason = reason or f"it contains the state of the engine ({own})"
    if (configuration := configuration_near(real)) is not None:
        reason = reason or f"it contains the configuration of the engine ({configuration})"
    if reason is not None:
        raise Refused(f"{told} is not mounted into a sandbox: {reason}")
    return real


def check_all(request: Request) -> None:
    """Refuse what the sandbox of an environment would see and may not; arguments as of `check`.

    Raises:
        Refused: It may not be mounted; the message names the environment, too.
    """
    for folder in (request.workspace, *request.mounts.values()):
        try:
            check(folder, request.workspace.parent, request.guarded)
        except Refused as refused:
            raise Refused(f"{request.spec}: {refused.message}") from None


def _is_the_systems(real: Path) -> bool:
    first, *rest = real.parts[1:]
    if real.is_relative_to(_MEMORY):
        return real == _MEMORY
    if first != "usr":
        return first in _SYSTEM
    if rest[:1] == ["local"]:
        rest = rest[1:]
    return not rest or rest == ["src"] or rest[0] in _IN_USR


def _danger(real: Path, state: Path | None) -> str | None:
    """Return what is wrong with mounting a folder, or None."""
    if real == Path("/"):
        return "it is the whole machine"
    if _is_the_systems(real) or real.is_relative_to(_DOCKER) or _DOCKER.is_relative_to(real):
        return "it belongs to the system"
    if len(real.parts) == 2 and real.parts[1] in _SHARED:
        return "it contains what belongs to others"
    home = Path(os.path.realpath(Path.home()))
    if home.is_relative_to(real):
        return "it is, or contains, the home folder; mount a folder in it"
    for place in (host(), DEFAULT_HOST):
        path = place.removeprefix("unix://")
        socket = Path(os.path.realpath(path)) if path.startswith("/") else None
        if socket is not None and socket.is_relative_to(real):
            return "it contains the socket of the Docker daemon, which makes its users root"
    if state is not None and Path(os.path.realpath(state)).is_relative_to(real):
        return "it contains the state of the engine"
    try:
        mode = os.lstat(real).st_mode
    except FileNotFoundError:
        return None
    return None if stat.S_ISDIR(mode) else "it is not a folder"
