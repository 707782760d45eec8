"""The location of a store, and whether it is the user's own.

By default it is the nearest `.flowengine`, in the current directory or above it, as Git finds
`.git`. A project from a third party may contain a store that steers executions. A store found by
default is therefore used only if this user created it in this place. The proof is in the user's
state directory, where no project can write:

    PROJECT/.flowengine/id             a random id
    STATE/stores/ID/paths              the places where a store with this id is the user's own
    STATE/stores/ID/environments/      open environments and workspaces: see `execution_environment`
    STATE/stores/ID/logs/              lines of running attempts: see `attempts.lines_at_work`
    STATE/stores/ID/replies/           replies that arrive: see `arriving_replies`
    STATE/flows/                       compiled flows: see `engines.flow_cache`
    STATE/last_cleanup                 time of the last search for unused stores and flows
    STATE/key                          signs records that are trusted later. See `proofs`

STATE is `$XDG_STATE_HOME/flowengine`, or `~/.local/state/flowengine`. A store that the user names
(`--store`, `$FLOWENGINE_STORE`, `Engine(path)`) counts as the user's own.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from flowengine.errors import Hint, StoreError
from flowengine.util.files import make_folder, remove_tree, write_whole

SETTING = "FLOWENGINE_STORE"
DEFAULT = ".flowengine"
REMOTE = "temporal://"
"""How the address of a store in Temporal begins."""
DATABASE = "flowengine.db"
APPLICATION_ID = 0x666C6F77
"""`flow` in ASCII: distinguishes a store's database from other SQLite files."""

in_use: dict[tuple[int, int], str] = {}
"""The databases that this process has open: device and number → path. No other code of the process
may open one of them, or the files beside it, because closing such a file releases the locks of
SQLite."""

FLOWS = "flows"
"""The directory of compiled flows in the user's state directory."""
_ID = "id"
_PATHS = "paths"
STORED = (_ID, DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal", "artifacts")
"""The files of a store."""
_LENGTH = 32
_DAY = 24 * 3600
_UNUSED = 90 * _DAY
"""Seconds after which a store in none of its places is forgotten. Until then, its disk may be
offline."""
IGNORED = "# What belongs to this machine.\nflowengine.db*\nartifacts/\nid\n"
"""Text of a store's `.gitignore`."""


def find_store(given: str | os.PathLike[str] = "") -> tuple[str, bool]:
    """Return the directory of the store, and whether it was named explicitly.

    Args:
        given: The directory from the caller, empty if there is none.

    Returns:
        The directory, and False if it is only the default.
    """
    path = os.fspath(given) or os.environ.get(SETTING)
    return (path, True) if path else (project_folder(), False)


def remote_store(given: str | os.PathLike[str] = "") -> str | None:
    """Return the address of the store if it is in Temporal. None: it is a directory.

    Args:
        given: As for `find_store`.
    """
    path = os.fspath(given) or os.environ.get(SETTING, "")
    return path if path.startswith(REMOTE) else None


def project_folder() -> str:
    """Return the nearest `.flowengine`, or the place for a new one.

    It may belong to any user, which `claim` checks. Directories through which other users could
    reach into this user's projects are not searched. The same holds for the home directory, which
    is not a project: see `folders_above`.
    """
    current = os.getcwd()
    for folder in (current, *folders_above(current)):
        path = os.path.join(folder, DEFAULT)
        if os.path.lexists(path):
            return path
    return os.path.join(current, DEFAULT)


def folders_above(folder: str) -> Iterator[str]:
    """Yield the directories above one that can belong to the same project.

    They end below the home directory, at the boundary of the file system, and at a directory that
    belongs to another user or is world-writable.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    device = os.stat(folder).st_dev
    while folder != home:
        folder, below = os.path.dirname(folder), folder
        if folder in (home, below):
            return
        try:
            status = os.stat(folder)
        except OSError:
            return
        others_write = status.st_mode & stat.S_IWOTH
        if status.st_dev != device or status.st_uid != os.geteuid() or others_write:
            return
        yield folder


def state_folder() -> str:
    """Return the user's directory for persistent program state."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "flowengine")


def claim(path: str | os.PathLike[str], *, by_name: bool) -> str:
    """Make sure that a store's directory is the user's own, creating it if it does not exist.

    Args:
        path: The directory.
        by_name: Whether the user named it, so that it counts as the user's own with any content.

    Returns:
        The directory of this store in the user's state directory.

    Raises:
        StoreError: It is not the user's own.
        OSError: The ownership cannot be recorded.
    """
    folder = os.path.abspath(path)
    if not by_name:
        _check_folder(folder)
    private = known(folder)
    if private is None and not by_name and _has_store(folder):
        private = known(folder)  # another process may have created it at this moment
        if private is None:
            _refuse(folder, _why_unknown(folder))
    if private is None:
        private = _adopt(folder, _read_id(folder) if by_name else None)
        _forget_unused()
    else:
        _note_use(private)
    if not by_name:
        _check_parts(folder)
    return private


def environments_of(path: str | os.PathLike[str]) -> str:
    """Return the directory of the open environments of a store that is the user's own.

    Raises:
        OSError: The ownership cannot be recorded.
    """
    return os.path.join(claim(path, by_name=True), "environments")


def make_private(folder: str) -> None:
    """Create a directory below the user's state directory, and refuse one of another user.

    Raises:
        PermissionError: It belongs to another user.
        OSError: It cannot be created.
    """
    make_folder(folder, synced=True)
    state = state_folder()
    for each in (state, folder):
        if reason := fault_of(each):
            raise PermissionError(f"{each} {reason}")


def fault_of(folder: str | os.PathLike[str]) -> str | None:
    """Return the reason why other users can write to a directory, or None."""
    status = os.lstat(folder)
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & 0o022:
        return "can be written by other users"
    return None


def known(folder: str) -> str | None:
    """Return the state directory of a store that is the user's own in this place, or None."""
    id = _read_id(folder)
    if id is None or os.path.realpath(folder) not in _paths(_private(id)):
        return None
    return _private(id)


def _check_folder(folder: str) -> None:
    try:
        reason = fault_of(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be opened: {error.strerror}") from None
    if reason == "can be written by other users" and not _has_store(folder):
        os.chmod(folder, 0o700)  # it is still empty, so there is nothing to tamper with
    elif reason is not None:
        _refuse(folder, f"it {reason}")


def _check_parts(folder: str) -> None:
    """Refuse links in place of a store's files."""
    for name in STORED:
        if os.path.islink(os.path.join(folder, name)):
            _refuse(folder, f"'{name}' in it is a link")


def _has_store(folder: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, name)) for name in STORED if name != _ID)


def _adopt(folder: str, id: str | None) -> str:
    """Record that a store is the user's own, creating the directory if it does not exist."""
    if not os.path.isdir(folder):
        make_folder(folder, synced=True)
        write_whole(os.path.join(folder, ".gitignore"), IGNORED.encode(), replace=False)
    if id is not None:
        _note_path(id, folder)
        return _private(id)
    with _alone(folder):
        if (private := known(folder)) is not None:
            return private  # another process was faster
        new = os.urandom(_LENGTH // 2).hex()
        try:
            _note_path(new, folder)  # recorded before another process can read the id
            # over one that is not this user's
            write_whole(os.path.join(folder, _ID), f"{new}\n".encode())
        finally:
            if _read_id(folder) != new:
                with suppress(OSError):
                    os.unlink(os.path.join(_private(new), _PATHS))
                    os.rmdir(_private(new))
        return _private(new)


def _note_path(id: str, folder: str) -> None:
    """Record that a store is the user's own in this place, in addition to earlier places."""
    private, place = _private(id), os.path.realpath(folder)
    make_private(private)
    with _alone(private):
        places = [*filter(None, _paths(private)), place]
        text = "".join(f"{each}\n" for each in dict.fromkeys(places))
        write_whole(os.path.join(private, _PATHS), text.encode("utf-8", "surrogateescape"))


def _note_use(private: str) -> None:
    """Record once a day that a store is in use. Failures are ignored."""
    path = os.path.join(private, _PATHS)
    with suppress(OSError):
        if os.stat(path).st_mtime < time.time() - _DAY:
            os.utime(path)


def _forget_unused() -> None:
    """Remove the state of stores that are in none of their places, and old compiled flows.

    State of environments that may still be open is kept, so that they can be ended. It runs at most
    once a day because it examines all stores: a machine that runs tests has thousands.
    """
    state, now = state_folder(), time.time()
    if not _begin_cleanup(os.path.join(state, "last_cleanup"), now):
        return
    _remove_old(os.path.join(state, FLOWS), now)
    stores = os.path.join(state, "stores")
    for id in os.listdir(stores):
        private = os.path.join(stores, id)
        with suppress(OSError):
            if os.stat(os.path.join(private, _PATHS)).st_mtime > now - _UNUSED:
                continue
            opened = os.path.join(private, "environments", "entries")
            is_open = os.path.isdir(opened) and bool(os.listdir(opened))
            if not is_open and all(_read_id(place) != id for place in _paths(private) if place):
                remove_tree(private)  # workspaces in it may be nested to any depth


def _remove_old(flows: str, now: float) -> None:
    """Remove compiled flows that were written long ago. Those still in use are compiled again."""
    with suppress(OSError), os.scandir(flows) as entries:
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_mtime < now - _UNUSED:
                os.unlink(entry.path)


def _begin_cleanup(note: str, now: float) -> bool:
    """Return whether the last cleanup was at least a day ago, and record that one begins."""
    try:
        if abs(now - os.stat(note).st_mtime) < _DAY:  # a time in the future is ignored
            return False
    except OSError:
        pass
    with suppress(OSError), open(note, "w", encoding="utf-8"):
        os.utime(note, (now, now))
    return True


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Hold a lock on a directory, so that no other process changes it at the same time."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _private(id: str) -> str:
    return os.path.join(state_folder(), "stores", id)


def _read_id(folder: str) -> str | None:
    """Return the id of a store, if it has a complete one."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.join(folder, _ID), flags)
        with open(descriptor, "rb") as file:
            text = file.read(_LENGTH + 1).decode("ascii", "replace").strip()
    except OSError:
        return None
    return text if len(text) == _LENGTH and not text.strip("0123456789abcdef") else None


def _paths(private: str) -> list[str]:
    """Return the places in which a store with an id is the user's own."""
    try:
        path = os.path.join(private, _PATHS)
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().split("\n")
    except OSError:
        return []


def _why_unknown(folder: str) -> str:
    """Return the reason why a store is not known as the user's own."""
    if _read_id(folder) is None and os.path.lexists(os.path.join(folder, _ID)):
        return f"'{_ID}' in it is damaged, which would show that it was created here by you"
    return "it was not created here by you. It may have come with other files"


def _refuse(folder: str, why: str) -> NoReturn:
    raise StoreError(
        f"the store {folder} was not used: {why}",
        hint=Hint(
            "if you moved, copied or restored it yourself, confirm it once by naming "
            f"it: flowengine --store {folder} list. Otherwise delete it, or name another "
            "with --store"
        ),
    )
