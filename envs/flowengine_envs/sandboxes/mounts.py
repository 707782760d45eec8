"""Which folders of the machine a sandbox may see.

Mounting is the one way by which a sandbox reaches the machine, so what would hand it the machine
is refused before anything starts: `/`, the system's folders, a home folder, whatever holds
the daemon's socket or the state of the engine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.sdk import EnvironmentUnavailable, Refused, StepError, printable
from flowengine.sdk.confined_files import Below
from flowengine.sdk.engine_files import configuration_near
from flowengine.sdk.environments import Request, Spec
from flowengine_envs.sandboxes.docker_host import DEFAULT_HOST, host
from flowengine_envs.sandboxes.hidden_stores import is_store, stores
from flowengine_envs.workspaces.obeyed_files import obeyed
from flowengine_envs.workspaces.own_folder import OWN

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
    for inside, folder in request.mounts.items():
        if folder.is_dir() and is_store(folder):
            raise Refused(
                f"{request.spec}: {folder} is not mounted into a sandbox as {inside}: it belongs "
                "to a store of the engine"
            )
    _identities(request, request.mounts)


class Mount(NamedTuple):
    """A folder of another environment, or something in it."""

    inside: str
    path: Path
    writable: bool


def mounts(request: Request) -> list[Mount]:
    """Return what is mounted of other environments, what is above before what is below.

    Over what belongs to a store of the engine, something empty is mounted. In a folder that
    programs may write, what their owner's programs obey is mounted over itself, so that it stays as
    it is.
    """
    found = []
    for inside, folder in request.mounts.items():
        writable = request.may_write(inside)
        found.append(Mount(inside, folder, writable))
        if writable:
            found += [
                Mount(f"{inside}/{each.path}", folder / each.path, each.writable)
                for each in obeyed(folder)
            ]
        for name, is_folder in stores(folder):
            found.append(Mount(f"{inside}/{name}", _empty(request, is_folder), writable=False))
    return found


def _empty(request: Request, is_folder: bool) -> Path:
    """Return a folder or file with nothing in it, which programs may read."""
    path = request.home / OWN / ("hidden" if is_folder else "hidden-file")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if is_folder:
        path.mkdir(mode=0o555, exist_ok=True)
    else:
        path.touch(mode=0o444)
    return path


def warn_of_new(request: Request, before: Iterable[Mount]) -> None:
    """Warn of what programs have made, which programs of their owner would obey.

    A new `commondir` in a Git folder is removed: it leads Git to settings elsewhere, and Git itself
    makes none in a folder that is there already.

    Args:
        request: What was opened.
        before: What was mounted.
    """
    known = {each.inside for each in before}
    new = []
    for each in mounts(request):
        if each.inside in known or each.path.is_relative_to(request.home):
            continue
        new.append(str(each.path))
        inside, _, name = each.inside.rpartition("/")
        if name == "commondir" and inside in known:
            with suppress(StepError):
                Below(each.path.parent).remove(name)
            new[-1] += " (removed)"
    if new:
        request.log.warning(
            "programs in it have made files that Git, editors, shells or agents obey; look at them "
            "before you work in their folder: %s",
            printable(", ".join(new)),
        )


def identities(request: Request) -> dict[str, list[int]]:
    """Return what is to be mounted: path inside → device and number.

    Raises:
        Refused: There is a link in the path of one. Paths were resolved when the folders were
            opened, so something has put it there since, such as a sandbox that may write above.
    """
    return _identities(request, {each.inside: each.path for each in mounts(request)})


def _identities(request: Request, paths: Mapping[str, Path]) -> dict[str, list[int]]:
    found = {}
    for inside, path in paths.items():
        with suppress(OSError):  # what is missing is reported when it is mounted
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                real, info = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd)
            finally:
                os.close(fd)
            if real != str(path):
                raise _swapped(request, inside)
            found[inside] = [info.st_dev, info.st_ino]
    return found


def check_mounted(request: Request, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compare the folders that are mounted with those that were to be.

    Args:
        request: What was opened.
        before: What `identities` returned before.
        now: The same, as it is inside before any program has run.

    Raises:
        Refused: One is another folder.
    """
    for inside, identity in before.items():
        if now.get(inside) != identity:
            raise _swapped(request, inside)


def _swapped(request: Request, inside: str) -> Refused:
    return Refused(
        f"{request.spec}: {inside} is not what was opened for it: it or a folder above it was "
        "replaced since, perhaps by a program in a sandbox"
    )


def named_folder(spec: Spec, path: str) -> Path:
    """Return the folder that a configuration names, without links.

    Sandboxes that may write in the working folder can put links there. So below it, links are
    followed only to what is below it, too, and nowhere into a hidden folder of the home folder.

    Args:
        spec: What names it.
        path: As it is named; a relative one begins at the working folder.

    Raises:
        EnvironmentUnavailable: There is no such folder, or a link on the way leads elsewhere.
    """
    words = os.path.normpath(path)
    named = os.path.normpath(os.path.join(spec.folder, words))
    if not os.path.isdir(named):
        raise EnvironmentUnavailable(f"{spec}: there is no folder {path}")
    if os.path.isabs(words):
        real = Path(os.path.realpath(words))
    else:
        base, parts = spec.folder, words.split("/")
        while parts and parts[0] == "..":
            base, parts = os.path.join(base, ".."), parts[1:]
        try:
            real = Path(Below(base, "name the path that it leads to").folder("/".join(parts)))
        except StepError as error:
            raise EnvironmentUnavailable(f"{spec}: {error.message}") from None
    home = Path(os.path.realpath(Path.home()))
    hidden = real.relative_to(home).parts[:1] if real.is_relative_to(home) else ()
    if hidden and hidden[0].startswith("."):
        working = Path(os.path.realpath(spec.folder))
        is_named = hidden[0] in Path(os.path.abspath(named)).parts
        if not is_named and not working.is_relative_to(home / hidden[0]):
            raise EnvironmentUnavailable(
                f"{spec}: {path} leads to {real}, in a hidden folder of the home folder; name its "
                "path if it is meant"
            )
    return real


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
