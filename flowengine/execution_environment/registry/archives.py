"""Workspaces as single files, in which they move to another host.

An archive is an uncompressed tar file with two directories: `workspace` and `home`. It contains
only files, directories, and links that lead to a place in the same directory.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from flowengine.errors import StoreError, UsageError
from flowengine.execution_environment.registry.workspaces import home_of
from flowengine.sdk.files.path_walk import LeadsOut, NotRegular, open_file, walked
from flowengine.sdk.files.trees import TreeEntry, tree
from flowengine.sdk.texts.sizes import size_text

MOST_BYTES = 16 * 1024**3
"""Maximum bytes of the files of one workspace."""
MOST_ARCHIVED = MOST_BYTES + 2 * 1024**3
"""Maximum bytes of an archive, which also contains names."""
MOST_ENTRIES = 500_000
"""Maximum number of files, directories and links of one workspace."""
_DEEPEST = 256
"""Maximum depth of directories. Each level needs an open descriptor."""
_LONGEST_PATH = 2048
"""Maximum bytes of a path. The path on the other host begins with another directory."""
_HINT = "remove it in a step of the flow, or let the execution end in its store"
_SHOWN = 200


class _Member(NamedTuple):
    path: str
    info: os.stat_result
    target: str
    """Of a link."""


def pack(workspace: Path, archive: Path) -> None:
    """Write a workspace and its home directory to a new file. Nothing may change them meanwhile.

    Args:
        workspace: Path of the workspace.
        archive: The file.

    Raises:
        UsageError: It is too large, or contains something that cannot be moved.
        StoreError: It cannot be read, or the file cannot be written.
    """
    roots = {"workspace": workspace, "home": home_of(workspace)}
    roots = {name: root for name, root in roots.items() if root.is_dir()}
    with _explained(f"the files in {workspace} cannot be packed"):
        _check_size(roots)
        with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as file:
            for name, root in roots.items():
                _add(file, _described(name, os.stat(root)), None)
                for entry in tree(root, _DEEPEST):
                    _pack_entry(file, f"{name}/{entry.path}", root, entry)


def _check_size(roots: dict[str, Path]) -> None:
    """Check the sizes of directories before any file is read."""
    count = size = 0
    for root in roots.values():
        for entry in tree(root, _DEEPEST):
            count += 1
            size += entry.info.st_size if stat.S_ISREG(entry.info.st_mode) else 0
            if size > MOST_BYTES or count > MOST_ENTRIES:
                raise UsageError(
                    f"the files in {root} cannot be moved: they have more than "
                    f"{size_text(MOST_BYTES)}, or there are more than {MOST_ENTRIES:,}",
                    hint=_HINT,
                )


def _pack_entry(file: tarfile.TarFile, name: str, root: Path, entry: TreeEntry) -> None:
    if len(os.fsencode(name)) > _LONGEST_PATH:
        shown = name[:_SHOWN]
        raise UsageError(f"'{shown}…' cannot be moved: its path is too long", hint=_HINT)
    described = _described(name, entry.info)
    if stat.S_ISDIR(entry.info.st_mode):
        _add(file, described, None)
    elif stat.S_ISLNK(entry.info.st_mode):
        described.type = tarfile.SYMTYPE
        described.linkname = os.readlink(entry.name, dir_fd=entry.folder)
        _check_link(name, root, entry, described.linkname)
        _add(file, described, None)
    elif stat.S_ISREG(entry.info.st_mode):
        try:
            opened = open_file(entry.name, entry.folder)
        except NotRegular:
            raise UsageError(f"'{name}' changes while it is moved", hint="try it again") from None
        with open(opened, "rb") as content:
            described.type, described.size = tarfile.REGTYPE, os.fstat(opened).st_size
            _add(file, described, content)
    elif not stat.S_ISSOCK(entry.info.st_mode):  # of a process that has ended
        raise UsageError(f"'{name}' cannot be moved: it is a device or a pipe", hint=_HINT)


def _described(name: str, info: os.stat_result) -> tarfile.TarInfo:
    """Return the description of a directory. Owners are not kept."""
    described = tarfile.TarInfo(name)
    described.type = tarfile.DIRTYPE
    described.mode = info.st_mode & 0o777
    described.mtime = info.st_mtime
    return described


def _add(file: tarfile.TarFile, described: tarfile.TarInfo, content: IO[bytes] | None) -> None:
    file.addfile(described, content)
    file.members = []  # type: ignore[attr-defined] # it would remember each


def _check_link(name: str, root: Path, entry: TreeEntry, target: str) -> None:
    """Refuse a link that leads out of its directory, also by way of other links."""
    lexical = os.path.normpath(os.path.join(os.path.dirname(entry.path), target))
    leads_out = target.startswith("/") or lexical == ".." or lexical.startswith("../")
    if not leads_out:
        try:
            with suppress(OSError), walked(root, entry.path):  # its target may be missing
                pass
        except LeadsOut:
            leads_out = True
    if leads_out:
        raise UsageError(
            f"'{name}' cannot be moved: it is a link to '{target[:_SHOWN]}', which is outside of "
            "its environment's files",
            hint=_HINT,
        )


def unpack(archive: Path, workspace: Path) -> None:
    """Restore a workspace and its home directory, and have them written to disk.

    Args:
        archive: A file of `pack`, which is checked like a foreign one.
        workspace: The workspace, which must not exist. No other process may change it.

    Raises:
        StoreError: The file is damaged or was not written by `pack`, or the directory cannot be
            written.
    """
    roots = {"workspace": workspace, "home": home_of(workspace)}
    folders: list[_Member] = []
    links: list[_Member] = []
    with _explained(f"the files in {archive.name} cannot be restored"), ExitStack() as opened:
        try:
            file = opened.enter_context(tarfile.open(archive, "r:"))
            while (member := file.next()) is not None:
                file.members = []  # type: ignore[attr-defined] # it would remember each
                name, path = _checked(member)
                target = os.path.join(roots[name], path) if path else str(roots[name])
                if member.type == tarfile.DIRTYPE:
                    os.mkdir(target, 0o700)
                    folders.append(_Member(target, _times(member), ""))
                elif member.type == tarfile.SYMTYPE:
                    links.append(_Member(target, _times(member), member.linkname))
                else:
                    _restore_file(file, member, target)
        except (tarfile.TarError, EOFError) as error:
            raise StoreError(f"the archive {archive.name} is damaged: {error}") from error
        for link in links:  # last, so that no path leads through one
            os.symlink(link.target, link.path)
        for folder in reversed(folders):
            os.chmod(folder.path, folder.info.st_mode)
            os.utime(folder.path, (folder.info.st_mtime, folder.info.st_mtime))
        os.sync()  # the other copy is removed next


def _checked(member: tarfile.TarInfo) -> tuple[str, str]:
    """Return the directory of a member, and its path below it.

    Raises:
        StoreError: It is not one that `pack` writes.
    """
    name, _, path = member.name.partition("/")
    parts = path.split("/") if path else []
    is_known = member.type in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)
    is_plain = name in ("workspace", "home") and not {"", ".", ".."} & {*parts}
    is_root = not parts and member.type != tarfile.DIRTYPE
    if not is_known or not is_plain or is_root or member.issparse() or "\0" in member.name:
        shown = ascii(member.name[:_SHOWN])
        raise StoreError(f"the archive has an entry {shown} that no workspace has")
    return name, path


def _times(member: tarfile.TarInfo) -> os.stat_result:
    """Return the mode and the time of a member."""
    mode, time = member.mode & 0o777, member.mtime
    return os.stat_result((mode, 0, 0, 0, 0, 0, 0, time, time, time))


def _restore_file(file: tarfile.TarFile, member: tarfile.TarInfo, target: str) -> None:
    content = file.extractfile(member)
    assert content is not None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(target, flags, 0o600), "wb") as copy:
        shutil.copyfileobj(content, copy, 1 << 20)
        os.fchmod(copy.fileno(), member.mode & 0o777)
    os.utime(target, (member.mtime, member.mtime))


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise errors of the file system in this project's types."""
    try:
        yield
    except (OSError, RecursionError) as error:
        raise StoreError(f"{what}: {getattr(error, 'strerror', None) or error}") from error
