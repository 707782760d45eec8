"""Walks a path below a directory, never outside it.

Every path is walked one name at a time from an open directory. The operating system never follows
links: a link is read, and its target is walked in the same way. The opened file is therefore the
one that was checked, even if another process replaces a directory by a link in between. `open_file`
opens the last name, if it is a regular file.

Environments also send this module into sandboxes, so it imports only the standard library, and
works with Python 3.9.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, Optional, Union

_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _ROOT | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINKS = 40
_SHOWN = 200
"""Characters of a link's target in a message."""
_DEPTH = 512
"""Maximum directory depth, because each level needs an open descriptor."""

StrPath = Union[str, "os.PathLike[str]"]
Check = Callable[[int, str], None]
"""Refuses a part of a path. It is called with a directory and each name in it, and with an empty
name for the root and each directory that was entered."""


class LeadsOut(Exception):
    """A path leads out of its directory.

    The message names the last link that was followed and its target. It is empty without a link.
    """


class NotRegular(OSError):
    """A name is not a regular file.

    Args:
        kind: As of `kind_of`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(errno.EINVAL, f"it is {kind}")
        self.kind = kind


class DirectoryEntry(NamedTuple):
    """An open directory, and a name in it that is not a link."""

    folder: int
    name: str


def _allow(folder: int, name: str) -> None:
    pass


@contextmanager
def walked(
    root: Union[int, StrPath],  # noqa: UP007 - sent into sandboxes
    path: str,
    *,
    roots: Sequence[str] = (),
    enter: bool = False,
    make: bool = False,
    check: Check = _allow,
) -> Iterator[DirectoryEntry]:
    """Open the directory that contains the last name of a path.

    Args:
        root: The directory that contains all paths, by its path or an open descriptor.
        path: Relative path. Links are followed if they stay below the root.
        roots: Absolute paths of the root, which absolute links may begin with.
        enter: Whether to open the last name, too, which must be a directory.
        make: Whether to create missing directories.
        check: Refuses parts of the path.

    Yields:
        The directory and the last name, or with `enter` that directory and `.`. The descriptor is
        closed afterwards. The name in it may become a link: `open_file` does not follow it.

    Raises:
        LeadsOut: The path or a link in it leads out of the root.
        OSError: A directory does not exist or cannot be opened.
    """
    with ExitStack() as opened:
        if not isinstance(root, int):
            root = os.open(root, _ROOT)
            opened.callback(os.close, root)
        check(root, "")
        folders = [root]
        names = path.split("/")[::-1]
        links = 0
        link = ""
        last = "."
        while names:
            name = names.pop()
            if name in {"", "."}:
                continue
            if name == "..":
                if len(folders) == 1:
                    raise LeadsOut(link)
                folders.pop()
                continue
            check(folders[-1], name)
            target = _link(name, folders[-1])
            if target is not None:
                links += 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                link = f"through the link {name!r} to {target[:_SHOWN]!r}"
                if target.startswith("/"):
                    target = _below(target, roots, link)
                    del folders[1:]
                names += target.split("/")[::-1]
            elif enter or any(part not in {"", "."} for part in names):
                if len(folders) > _DEPTH:
                    raise OSError(errno.ENAMETOOLONG, f"more than {_DEPTH} directories deep")
                folders.append(_enter(name, folders[-1], make=make))
                opened.callback(os.close, folders[-1])
                check(folders[-1], "")
            else:
                last = name
        yield DirectoryEntry(folders[-1], last)


def _below(target: str, roots: Sequence[str], link: str) -> str:
    """Return the absolute target of a link as a path from the root, if it can be one."""
    for root in roots:
        if target == root or target.startswith(f"{root.rstrip('/')}/"):
            return target[len(root) :]
    raise LeadsOut(link)


def _link(name: str, folder: int) -> Optional[str]:  # noqa: UP045 - sent into sandboxes
    """Return the target of a name if it is a link."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:  # not a link, or missing
            return None
        raise


def _enter(name: str, folder: int, *, make: bool) -> int:
    """Open a directory inside a directory, failing if it has become a link since the check."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def open_file(name: StrPath, folder: Optional[int] = None) -> int:  # noqa: UP045 - sent into sandboxes
    """Open a regular file for reading, without following a link.

    Anything else is refused before it is opened, because opening a pipe or a device has effects.

    Args:
        name: Its name in the directory, or its path.
        folder: The descriptor of the directory. Default: the working directory.

    Returns:
        Its descriptor.

    Raises:
        NotRegular: It is a link, directory, pipe, socket or device.
        OSError: It does not exist or cannot be opened.
    """
    _check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
    file = os.open(name, _FILE, dir_fd=folder)
    try:
        _check_regular(os.fstat(file))  # it may have been replaced in between
    except NotRegular:
        os.close(file)
        raise
    return file


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(kind_of(status.st_mode))


def kind_of(mode: int) -> str:
    """Return `file`, `folder`, `link`, `pipe`, `socket` or `device`, by the mode of an entry."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISFIFO(mode):
        return "pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device"
