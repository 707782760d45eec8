"""Files of a project that its owner's programs obey: Git, shells, editors, agents.

Write access to them allows running programs as the owner, outside any sandbox. They are therefore
protected in directories that a sandbox may otherwise write, and are not written back.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

NAMES = frozenset(
    {
        *(".envrc", ".vscode", ".idea", ".zed", ".fleet", ".devcontainer", ".husky"),
        *(".mcp.json", ".claude", ".cursor", ".codex", ".gemini", ".gitmodules", ".gitconfig"),
        *(".exrc", ".nvimrc", ".nvim.lua", ".ripgreprc"),
        *(".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".zprofile"),
    }
)
"""Files and directories that are obeyed anywhere in a project."""
GIT = ".git"
_SETTINGS = ("config", "config.worktree", "commondir", "hooks", "info", "modules", "worktrees")
"""Parts of a Git directory that name programs, or other directories with settings."""
_HISTORY = frozenset(
    {
        *("objects", "refs", "logs", "HEAD", "index", "packed-refs", "shallow"),
        *("ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG"),
    }
)
"""Parts of a Git directory that name no program."""
_DEPTH = 4
"""Depth of directories that are searched."""
_MOST_FOLDERS = 2_000
_LONGEST_PATH = 4_000
"""Bytes of a path below which the kernel finds every name of Git."""
_MOST = 200
"""Maximum number of files and directories found."""


class Obeyed(NamedTuple):
    """A file or directory to mount over itself."""

    path: str
    """Relative to the searched directory."""
    writable: bool
    """Whether it may be written, like Git's history. It can never be replaced."""


def obeyed(root: Path) -> list[Obeyed]:
    """Return the obeyed entries of a directory, parents before children, without links.

    Args:
        root: The directory. Only a part of it is searched, see `searched`.
    """
    files: list[Obeyed] = []
    if is_git_folder(root):
        files += [Obeyed(name, writable=False) for name in _settings_in(root)]
    for folder, entries in searched(root):
        for name, is_folder in entries:
            path = f"{folder}/{name}" if folder else name
            if is_folder and (name.casefold() == GIT or is_git_folder(root / path)):
                files.append(Obeyed(path, writable=True))
                files += [Obeyed(f"{path}/{each}", False) for each in _settings_in(root / path)]
            elif name.casefold() in NAMES or name.casefold() == GIT:
                files.append(Obeyed(path, writable=False))
        if len(files) >= _MOST:
            break
    return files[:_MOST]


def searched(root: Path) -> Iterator[tuple[str, list[tuple[str, bool]]]]:
    """Yield directories with their entries, and whether each entry is a directory, parents first.

    At most 2,000 directories are searched, four levels deep, except those of Git, programs and
    packages.

    Args:
        root: The directory. The others are relative to it.
    """
    pending = deque([("", 0)])
    searched = 0
    while pending and searched < _MOST_FOLDERS:
        folder, depth = pending.popleft()
        searched += 1
        yield folder, (entries := _entries(root / folder))
        for name, is_folder in entries:
            path = f"{folder}/{name}" if folder else name
            is_known = name.casefold() in {GIT, "node_modules", *NAMES}
            if is_folder and depth < _DEPTH and not is_known and not is_git_folder(root / path):
                pending.append((path, depth + 1))


def is_git_folder(*folders: Path) -> bool:
    """Return whether Git treats a directory as a repository, with any name.

    Args:
        folders: The directory, or several that will be merged into one.
    """

    def has(name: str) -> bool:
        return any(os.path.lexists(folder / name) for folder in folders)

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


def kept_back_from(original: Path, copy: Path) -> Callable[[str], bool]:
    """Return a function that says whether a changed file is not written back to its owner.

    Of a Git directory, only the history is written back, if the original also has it or it is
    called `.git`. Settings and hooks are not. Neither are files whose paths are too long for the
    kernel, below which a Git directory is not recognized.

    Args:
        original: The owner's directory.
        copy: The directory in which the files were changed.
    """
    longest = _LONGEST_PATH - max(len(os.fsencode(root)) for root in (original, copy))

    @cache
    def are_git(folder: str) -> tuple[bool, bool]:
        return is_git_folder(original / folder), is_git_folder(original / folder, copy / folder)

    def is_kept_back(path: str) -> bool:
        parts = path.split("/")
        for at, part in enumerate(parts):
            if part.casefold() in NAMES:
                return True
            if part.casefold() == GIT:  # A file with this name states where the settings are.
                return at + 1 == len(parts) or parts[at + 1] not in _HISTORY
            was_git, is_git = are_git("/".join(parts[:at]))
            if is_git:
                return not was_git or part not in _HISTORY
        return False

    return lambda path: len(os.fsencode(path)) > longest or is_kept_back(path)


def _settings_in(folder: Path) -> Iterator[str]:
    for name in _SETTINGS:
        with suppress(OSError):
            if not stat.S_ISLNK((folder / name).lstat().st_mode):
                yield name


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """Return the names in a directory, and whether each is a directory, without links."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(
            (entry.name, entry.is_dir(follow_symlinks=False))
            for entry in entries
            if not entry.is_symlink()
        )
    return []
