"""Decides which directories of the machine a sandbox may see.

Mounting is the only way by which a sandbox reaches the machine. Directories that would expose the
machine are refused before anything starts: `/`, system directories, a home directory, and any
directory that contains the daemon's socket or the engine's state.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.sdk import EnvironmentUnavailable, Refused, StepError, printable
from flowengine.sdk.environments import Request, Spec
from flowengine.sdk.files.confined_files import (
    Below,
    configuration_near,
    holds_store,
    is_own_path,
    own_folder_above,
    own_names,
)
from flowengine_envs.workspaces.obeyed_files import obeyed, searched
from flowengine_envs.workspaces.own_folder import OWN

DEFAULT_HOST = "unix:///var/run/docker.sock"
"""Address of this machine's Docker daemon, unless `DOCKER_HOST` names another one."""


def is_store(folder: Path) -> bool:
    """Return whether a directory is a store or belongs to one."""
    return is_own_path(str(folder)) or holds_store(os.listdir(folder))


def stores(root: Path) -> list[tuple[str, bool]]:
    """Return the parts of stores below a directory, and whether each is a directory.

    Args:
        root: The directory. Only a part of it is searched, see `obeyed_files.searched`.

    Returns:
        Relative paths, parents before children. For a store with its own name, the directory that
        contains it.
    """
    hidden: dict[str, bool] = {}
    for folder, entries in searched(root):
        if any(folder == each or folder.startswith(f"{each}/") for each in hidden):
            continue
        names = [name for name, _ in entries]
        if folder and holds_store(names):
            hidden[folder] = True
            continue
        try:
            own = own_names(str(root / folder), names)
        except OSError:  # removed concurrently
            continue
        for name, is_folder in entries:
            if name in own:
                hidden[f"{folder}/{name}" if folder else name] = is_folder
    return list(hidden.items())


_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "sys")
"""Directories that are never mounted, together with everything in them."""
_IN_USR = (*_SYSTEM, "games", "include", "libexec", "man", "share")
"""The same in `/usr` and `/usr/local`, next to which applications are installed."""
_SHARED = ("home", "root", "run", "var")
"""Directories that are not mounted as a whole."""
_MEMORY = Path("/dev/shm")
"""Like `/tmp`: a user may mount a directory created in it."""
_MOST_LINKS = 40
"""Maximum links in a path, as for the kernel."""
_DOCKER = Path("/var/lib/docker")


def check(folder: Path, state: Path | None = None, guarded: Iterable[Path] = ()) -> Path:
    """Return the real path of a directory, if a sandbox may see it.

    Args:
        folder: On this machine.
        state: A directory of the engine's state, whose parents are never mounted.
        guarded: Directories of the engine, whose parents and contents are never mounted.

    Returns:
        Its path without links.

    Raises:
        Refused: It must not be mounted. The message contains the path without links.
    """
    real = Path(os.path.realpath(folder))
    shown = str(real) if real == folder else f"{folder} (which is {real})"
    reason = _danger(real, state)
    for each in guarded:
        own = Path(os.path.realpath(each))
        if own.is_relative_to(real) or real.is_relative_to(own):
            reason = reason or f"it contains the state of the engine ({own})"
    if (configuration := configuration_near(real)) is not None:
        reason = reason or f"it contains the configuration of the engine ({configuration})"
    if is_own_path(str(real)):
        reason = reason or "it belongs to the engine"
    if reason is not None:
        raise Refused(f"{shown} is not mounted into a sandbox: {reason}")
    return real


def check_all(request: Request) -> None:
    """Refuse forbidden directories of an environment's sandbox. Arguments are those of `check`.

    Raises:
        Refused: One must not be mounted. The message also names the environment.
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
    """A directory of another environment, or an entry in it."""

    inside: str
    path: Path
    writable: bool


def mounts(request: Request) -> list[Mount]:
    """Return the mounts from other environments, parents before children.

    Empty files and directories are mounted over the engine's stores. In a writable directory, the
    files that its owner's programs obey are mounted over themselves, so that they do not change.
    """
    lines = []
    for inside, folder in request.mounts.items():
        writable = request.may_write(inside)
        lines.append(Mount(inside, folder, writable))
        if writable:
            lines += [
                Mount(f"{inside}/{each.path}", folder / each.path, each.writable)
                for each in obeyed(folder)
            ]
        for name, is_folder in stores(folder):
            lines.append(Mount(f"{inside}/{name}", _empty(request, is_folder), writable=False))
    return lines


def _empty(request: Request, is_folder: bool) -> Path:
    """Return an empty directory or file that programs may read."""
    path = request.home / OWN / ("hidden" if is_folder else "hidden-file")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if is_folder:
        path.mkdir(mode=0o555, exist_ok=True)
    else:
        path.touch(mode=0o444)
    return path


def warn_of_new(request: Request, before: Iterable[Mount]) -> None:
    """Warn of files created by programs that their owner's programs would obey.

    A new `commondir` in a Git directory is removed, because it refers Git to settings elsewhere.
    Git itself creates none in an existing directory.

    Args:
        request: The request that opened the environment.
        before: The mounts at that time.
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
            "programs in it have made files that Git, editors, shells or agents obey. Inspect them "
            "before you work in their directory: %s",
            printable(", ".join(new)),
        )


def identities(request: Request) -> dict[str, list[int]]:
    """Return the identities of the mounts: path inside → device and inode.

    Raises:
        Refused: The path of one contains a link. Paths were resolved when the directories were
            opened, so it is new, for example from a sandbox that can write above.
    """
    return _identities(request, {each.inside: each.path for each in mounts(request)})


def _identities(request: Request, paths: Mapping[str, Path]) -> dict[str, list[int]]:
    options = {}
    for inside, path in paths.items():
        with suppress(OSError):  # Missing entries are reported at mounting.
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                real, info = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd)
            finally:
                os.close(fd)
            if real != str(path):
                raise _swapped(request, inside)
            options[inside] = [info.st_dev, info.st_ino]
    return options


def check_mounted(request: Request, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compare the mounted directories with the intended ones.

    Args:
        request: The request that opened the environment.
        before: The earlier result of `identities`.
        now: The identities seen inside before any program has run.

    Raises:
        Refused: One is a different directory.
    """
    for inside, identity in before.items():
        if now.get(inside) != identity:
            raise _swapped(request, inside)


def _swapped(request: Request, inside: str) -> Refused:
    return Refused(
        f"{request.spec}: {inside} is not the opened directory: it or a directory above it was "
        "replaced since, perhaps by a program in a sandbox"
    )


def named_folder(spec: Spec, path: str) -> Path:
    """Return the directory that a configuration names, without links.

    Sandboxes that can write in the working directory can create links there. Links below it are
    therefore followed only to targets below it, and never into a hidden directory of the home
    directory. In an absolute path, only links in directories that no sandbox may see are followed.

    Args:
        spec: The spec that names it.
        path: The path as named, relative to the working directory or absolute.

    Raises:
        EnvironmentUnavailable: It does not exist, or a link in its path leads elsewhere.
        Refused: It belongs to the engine.
    """
    words = os.path.normpath(path)
    named = os.path.normpath(os.path.join(spec.folder, words))
    if not os.path.isdir(named):
        raise EnvironmentUnavailable(f"{spec}: there is no directory {path}")
    if os.path.isabs(words):
        real = _without_links(spec, Path(words))
    else:
        base, parts = spec.folder, words.split("/")
        while parts and parts[0] == "..":
            base, parts = os.path.join(base, ".."), parts[1:]
        try:
            real = Path(Below(base, "name the path that it leads to").folder("/".join(parts)))
        except StepError as error:
            raise EnvironmentUnavailable(f"{spec}: {error.message}") from None
    if (own := own_folder_above(real)) is not None:
        raise Refused(f"{spec}: {path} is in {own}, which belongs to the engine")
    home = Path(os.path.realpath(Path.home()))
    hidden = real.relative_to(home).parts[:1] if real.is_relative_to(home) else ()
    if hidden and hidden[0].startswith("."):
        working = Path(os.path.realpath(spec.folder))
        is_named = hidden[0] in Path(os.path.abspath(named)).parts
        if not is_named and not working.is_relative_to(home / hidden[0]):
            raise EnvironmentUnavailable(
                f"{spec}: {path} leads to {real}, in a hidden directory of the home directory: "
                "name its path if it is meant"
            )
    return real


def _without_links(spec: Spec, path: Path) -> Path:
    """Return an absolute path without links.

    Raises:
        EnvironmentUnavailable: A program in a sandbox may have made one of the links.
    """
    real, rest, links = Path("/"), [*path.parts[:0:-1]], 0
    while rest:
        part = rest.pop()
        if part == "..":
            real = real.parent
            continue
        entry = real / part
        if not entry.is_symlink():
            real = entry
            continue
        links += 1
        if _danger(real, None) is None or links > _MOST_LINKS:
            raise EnvironmentUnavailable(
                f"{spec}: {path} leads through the link {entry}, which a program in a sandbox may "
                "have made: name the path that it leads to"
            )
        target = Path(os.readlink(entry))
        if target.is_absolute():
            real = Path("/")
        rest += [part for part in target.parts[::-1] if part != "/"]
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
    """Return why a directory must not be mounted, or None."""
    if real == Path("/"):
        return "it is the whole machine"
    if _is_the_systems(real) or real.is_relative_to(_DOCKER) or _DOCKER.is_relative_to(real):
        return "it belongs to the system"
    if len(real.parts) == 2 and real.parts[1] in _SHARED:
        return "it contains files of others"
    home = Path(os.path.realpath(Path.home()))
    if home.is_relative_to(real):
        return "it is, or contains, the home directory: mount a directory in it"
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
    return None if stat.S_ISDIR(mode) else "it is not a directory"


def host() -> str:
    """Return the address of the Docker daemon."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_HOST
