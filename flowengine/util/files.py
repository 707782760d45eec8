"""Files and directories: atomic writes, digests, checks of paths, and removal in any state."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from flowengine.errors import NotFound, UsageError

# Atomic writes of files and directories, which survive a crash or a full disk.
#
# A file is written under another name, synced, and then renamed. Files and directories are
# accessible only to this user, for any umask.

DRAFT = ".new"
"""Suffix of the names of files that are being written."""


def make_folder(path: str, *, synced: bool) -> None:
    """Create a directory and its missing parents, accessible for this user only.

    Args:
        synced: Whether its name must be on disk when this returns.
    """
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above, synced=synced)
    with suppress(FileExistsError):  # another process may create it at the same time
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # undo the effect of the umask
    if synced:
        sync_folder(above)


def write_whole(
    path: str | os.PathLike[str], content: bytes, *, replace: bool = True, synced: bool = True
) -> bool:
    """Write a file atomically.

    Args:
        path: Its name.
        content: Its content.
        replace: Whether it replaces an existing file.
        synced: Whether it must be on disk when this returns.

    Returns:
        Whether it was written. False if a file of this name exists and was kept.

    Raises:
        OSError: It cannot be written. Nothing of it remains.
    """
    path = os.fspath(path)
    draft = draft_of(path)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(content)
            file.flush()
            if synced:
                os.fsync(descriptor)
        if replace:
            os.rename(draft, path)
        elif not give_name(draft, path):
            return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    if synced:
        sync_folder(os.path.dirname(path) or os.curdir)
    return True


def draft_of(path: str) -> str:
    """Return a name for a file that is being written, which includes the process id."""
    return f"{path}.{os.getpid()}.{os.urandom(4).hex()}{DRAFT}"


def give_name(draft: str, path: str) -> bool:
    """Give a file its name unless another process was faster, and return whether it has it now."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            return False
        os.rename(draft, path)
    return True


def sync_folder(path: str) -> None:
    """Make sure that the names in a directory are on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: str) -> None:
    """Make sure that the content of a file is on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Checks of paths from a caller.


def check_path(what: str, path: str) -> None:
    """Check that a path can be encoded as UTF-8, as the journal requires.

    Raises:
        UsageError: It cannot.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise UsageError(f"{what} '{shown}' is not valid UTF-8") from None


def check_no_pipe(path: str | os.PathLike[str]) -> None:
    """Check that a file is not a named pipe, which may never end.

    A pipe of a shell, `<(…)`, is allowed.

    Raises:
        NotFound: It is a named pipe.
        OSError: Its type cannot be determined.
    """
    is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
    if is_pipe and os.path.exists(os.path.realpath(path)):  # a shell's pipe has no name
        raise NotFound(f"cannot read {os.fspath(path)}: it is a pipe", hint="give a file")


# Removal of directories in any state that programs may have left them in.

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory with all its content, without following links.

    This works at any depth, because nested directories are moved up first, and with any
    permissions. Entries of other users that cannot be removed stay.

    Args:
        path: The directory, which may be missing.
    """
    try:
        top = _open(path, None)
    except OSError:
        return
    try:
        waiting = os.listdir(top)
        while waiting:
            with suppress(OSError):
                waiting += _clear(waiting.pop(), top)
    finally:
        os.close(top)
    with suppress(OSError):
        os.rmdir(path)


def _clear(name: str, top: int) -> list[str]:
    """Remove an entry of the top directory, and return the new names of its directories."""
    try:
        os.unlink(name, dir_fd=top)
        return []
    except IsADirectoryError:
        folder = _open(name, top)
    moved = []
    try:
        for inner in os.listdir(folder):
            try:
                os.unlink(inner, dir_fd=folder)
            except IsADirectoryError:
                with suppress(OSError):  # most are empty, and to move one costs more
                    os.rmdir(inner, dir_fd=folder)
                    continue
                os.close(_open(inner, folder))
                new = f".{os.urandom(8).hex()}"
                os.rename(inner, new, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(new)
    except OSError:  # another user's: the directories that were moved up are still removed
        return moved
    finally:
        os.close(folder)
    with suppress(OSError):
        os.rmdir(name, dir_fd=top)
    return moved


def _open(name: str | os.PathLike[str], above: int | None) -> int:
    """Open a directory, and make it readable and writable for us."""
    handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=above)
    try:
        # The permissions of such a descriptor can only be changed through this name.
        here = f"/proc/self/fd/{handle}"
        with suppress(OSError):
            os.chmod(here, 0o700)
        return os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


# Digests of files and of bytes, for caches and names.


def source_digest(path: str) -> str | None:
    """Return the SHA-256 of a file, or of the names in a directory. None: it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except IsADirectoryError:
        try:
            data = "\0".join(sorted(os.listdir(path))).encode("utf-8", "surrogateescape")
        except OSError:
            return None
    except OSError:
        return None
    return digest_of(data)


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal digits."""
    try:  # `hashlib` loads OpenSSL, which takes longer than reading all files of a flow
        from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from hashlib import sha256
    digest: str = sha256(data).hexdigest()
    return digest


# How long a file is kept that nothing uses yet.

HELD_SECONDS = 7 * 24 * 3600
"""How long a file is kept to which no execution refers yet."""


# Configuration directories of the machine and of the user, which are outside any project.

MACHINE_FOLDER = "/etc/flowengine"
"""The machine's configuration directory, which may contain rules."""


def user_folder() -> str:
    """Return the user's configuration directory, which contains settings and rules."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "flowengine")
