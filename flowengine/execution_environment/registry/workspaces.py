"""The directories of environments: one per spec, available again when it is reopened.

    FOLDER/workspaces/SCOPE/OWNER/SPEC/           the workspace
    FOLDER/workspaces/SCOPE/OWNER/SPEC.home/      the home directory of its programs
    FOLDER/workspaces/SCOPE/OWNER/SPEC.claim      the process that uses both
    FOLDER/workspaces/lock                        held to claim or remove one

Descriptions and claims are signed (see `signatures.py`), and no directory is used or removed
without a signed claim. Files from other sources are ignored.

An environment that is released for a wait leaves its directory for the process that resumes the
execution. The directory is removed when its scope ends. While a living process uses it, another
process receives a separate directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.errors import Conflict
from flowengine.execution_environment.registry.entries import (
    content,
    is_signed,
    make_own,
    remove_drafts,
    signed,
)
from flowengine.kernel.notation.addresses import execution_of
from flowengine.sdk.environments import ProcessIdentity, Scope
from flowengine.sdk.files.confined_files import take_lock
from flowengine.sdk.processes import is_dead, make_scratch, remove_scratch
from flowengine.store_folder import fault_of
from flowengine.util.files import remove_tree, write_whole

Wanted = Callable[[str, str], bool]
"""Returns whether an owner can continue later: scope, owner id."""

_HOME = ".home"
_KEPT: tuple[Scope, ...] = ("execution", "region")
"""Scopes of environments that move with their execution."""
_PATIENCE = 2.0
"""Maximum seconds to wait for a lock."""


class LeftWorkspace(NamedTuple):
    """A directory that waits for the next process to drive its execution."""

    scope: Scope
    owner_id: str
    path: Path
    generation: int
    """Number of the last opening that used it."""
    was_open: bool
    """Whether its environment was ever ready."""


class Workspaces:
    """All workspaces below one directory.

    Args:
        folder: The directory.
        owner: This process.
        manager: Id of the manager.
    """

    def __init__(self, folder: Path, owner: ProcessIdentity, manager: str) -> None:
        self._folder = folder / "workspaces"
        self._owner = owner
        self._manager = manager

    def path(self, scope: Scope, owner_id: str, spec_id: str) -> Path:
        """Return the workspace of a spec, if no other process uses it."""
        return self._of(scope, owner_id) / spec_id

    def claim(self, scope: Scope, owner_id: str, spec_id: str, generation: int) -> tuple[Path, int]:
        """Create the directory of a spec and its home directory, or take the existing ones.

        Args:
            scope: Scope of the spec.
            owner_id: Owner of the spec.
            spec_id: Its id.
            generation: Number of the opening, as far as this process knows.

        Returns:
            A directory that no other living manager uses, and the actual number of the opening: one
            more than the last that used the directory, in any process.

        Raises:
            OSError: It cannot be created.
        """
        above = self._of(scope, owner_id)
        place = self._folder.parent
        make_own(place, "workspaces")
        with self._alone():
            make_own(place, *above.relative_to(place).parts)
            self._write(above / "owner.json", {"scope": scope, "owner_id": owner_id})
            path = above / spec_id
            taken = self._claim(path, generation)
            if taken is None:
                path = above / f"{spec_id}.{self._manager}"
                taken = self._claim(path, generation) or generation
            for each in (path, home_of(path)):
                each.mkdir(exist_ok=True, mode=0o700)
        return path, taken

    def note_ready(self, path: Path) -> None:
        """Record that the environment was open, for the process that resumes the execution."""
        if self.has(path):
            claim = _claim_of(path)
            with contextlib.suppress(OSError):
                self._write(claim, {**self._read(claim), "was_open": True})

    def was_open(self, scope: Scope, owner_id: str, spec_id: str) -> bool:
        """Return whether a spec was open before, in any process."""
        return "was_open" in self._read(_claim_of(self.path(scope, owner_id, spec_id)))

    def temporary(self) -> Path:
        """Create a directory in the system's temporary directory, which is not reused."""
        path = make_scratch() / "workspace"
        for each in (path, home_of(path)):
            each.mkdir(mode=0o700)
        return path

    def has(self, path: Path) -> bool:
        """Return whether a directory is reused."""
        return path.is_relative_to(self._folder)

    def let_go(self, path: Path, *, remove: bool, generation: int = 0) -> None:
        """Release a directory.

        Args:
            path: Path from `claim` or `temporary`.
            remove: Whether its content is no longer needed.
            generation: Number of the opening that used it.
        """
        if not self.has(path):
            remove_scratch(path.parent)
        elif remove:
            self._remove(path, lambda claim: not self._is_others(claim))
        else:
            claim = _claim_of(path)
            left = {
                "generation": generation,
                "left_by": self._owner,
                **_openness(self._read(claim)),
            }
            with contextlib.suppress(OSError):
                self._write(claim, left)

    def end_scope(self, scope: Scope, owner_id: str) -> None:
        """Remove all directories of an owner except those that another living manager uses."""
        above = self._of(scope, owner_id)
        if any(map(_is_foreign, (self._folder, above.parent, above))):
            return
        for path in _claimed(above):
            self._remove(path, lambda claim: not self._is_others(claim))
        self._remove_if_empty(above)

    def left(self, execution: str) -> list[LeftWorkspace]:
        """Return the directories that the next process to drive an execution would use.

        Args:
            execution: Its id. Directories of its regions are included.

        Raises:
            Conflict: A living process uses one of them.
        """
        workspaces: list[LeftWorkspace] = []
        if _is_foreign(self._folder):
            return workspaces
        for above in (above for scope in _KEPT for above in _folders(self._folder / scope)):
            whose = self._read(above / "owner.json")
            owner_id = str(whose.get("owner_id"))
            if execution_of(owner_id) != execution:
                continue
            for path in _claimed(above):
                claim = self._read(_claim_of(path))
                if "." in path.name or not claim:  # of another manager, or being removed
                    continue
                if "owner" in claim and not is_dead(owner := _owner_of(claim)):
                    raise Conflict(
                        f"an environment of execution {execution} is open in process {owner.pid} "
                        f"on {owner.host}",
                        hint="try it again when it is closed",
                    )
                generation, was_open = claim.get("generation", 1), "was_open" in claim
                workspaces.append(
                    LeftWorkspace(whose["scope"], owner_id, path, generation, was_open)
                )
        return workspaces

    def put(self, given: LeftWorkspace, fill: Callable[[Path], None]) -> None:
        """Create the directory of a spec with files from elsewhere, in place of an earlier one.

        Args:
            given: The result of `left` elsewhere. Of its path, only the name counts.
            fill: Creates a workspace and its home directory at a path.

        Raises:
            OSError: It cannot be created, or another directory is in its place.
        """
        scope, owner_id, path, generation, was_open = given
        above, place = self._of(scope, owner_id), self._folder.parent
        make_own(place, "workspaces")
        make_own(place, *above.relative_to(place).parts)
        path = above / path.name
        draft = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        try:
            self._write(_claim_of(draft), {"left_by": self._owner})
            fill(draft)
            self._remove(path, lambda claim: not self._is_others(claim))
            with self._alone():
                self._write(above / "owner.json", {"scope": scope, "owner_id": owner_id})
                opened = {"was_open": True} if was_open else {}
                claim = {"generation": generation, "left_by": self._owner, **opened}
                self._write(_claim_of(path), claim)  # first, because only claimed ones are removed
                _rename(draft, path)
        finally:
            _discard(draft)

    def sweep(self, wanted: Wanted) -> list[Path]:
        """Remove the directories of dead processes whose owners will not continue.

        Args:
            wanted: Returns whether an owner can continue.

        Returns:
            The removed directories.
        """
        removed: list[Path] = []
        if any(map(_is_foreign, (self._folder.parent.resolve(), self._folder))):
            return removed
        for above in (owner for scope in _folders(self._folder) for owner in _folders(scope)):
            remove_drafts(above)
            whose = self._read(above / "owner.json")
            if not whose or wanted(str(whose.get("scope")), str(whose.get("owner_id"))):
                continue
            removed += [path for path in _claimed(above) if self._remove(path, _is_left)]
            self._remove_if_empty(above)
        return removed

    def _remove(self, path: Path, may_go: Callable[[dict[str, Any]], bool]) -> bool:
        """Remove a directory if its claim permits it, excluding concurrent claims."""
        discarded = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        with self._alone():
            claim = self._read(_claim_of(path))
            if not claim or not may_go(claim):
                return False
            with contextlib.suppress(OSError):  # identifies it as ours until it is removed
                self._write(_claim_of(discarded), {"left_by": self._owner})
                _rename(path, discarded)
            with contextlib.suppress(OSError):
                _claim_of(path).unlink(missing_ok=True)
        _discard(discarded)
        self._remove_if_empty(path.parent)
        return True

    def _remove_if_empty(self, above: Path) -> None:
        """Remove the directory of an owner that contains only its description."""
        with self._alone(), contextlib.suppress(OSError):
            names = [each.name for each in above.iterdir()]
            if names == ["owner.json"] and self._read(above / "owner.json"):
                (above / "owner.json").unlink(missing_ok=True)
                above.rmdir()
            elif not names:
                above.rmdir()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock for claims and removals, if it can be created.

        The lock is held only briefly, unless its holder was stopped in that moment.
        """
        lock = None
        end = time.monotonic() + _PATIENCE
        with contextlib.suppress(OSError):
            if not _is_foreign(self._folder):
                path = self._folder / "lock"
                while (lock := take_lock(path)) is None and time.monotonic() < end:
                    time.sleep(0.002)
        try:
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def _of(self, scope: Scope, owner_id: str) -> Path:
        return self._folder / scope / hashlib.sha256(owner_id.encode()).hexdigest()[:20]

    def _claim(self, path: Path, generation: int) -> int | None:
        """Write a claim and return the generation, or None if another manager has a claim."""
        claim = _claim_of(path)
        claimed = self._read(claim)
        folders = (path, home_of(path))
        foreign = not claimed and any(map(os.path.lexists, folders))
        if self._is_others(claimed) or foreign or any(map(os.path.islink, folders)):
            return None
        last = claimed.get("generation")
        generation = max(generation, last + 1 if isinstance(last, int) else 1)
        text = {"owner": self._owner, "manager": self._manager, "generation": generation}
        self._write(claim, text | _openness(claimed))
        return generation

    def _read(self, path: Path) -> dict[str, Any]:
        """Return a description or claim signed by this user, or an empty dict."""
        try:
            data = json.loads(content(path))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(data, dict) or not is_signed(self._name_of(path), data):
            return {}
        return {key: value for key, value in data.items() if key != "proof"}

    def _write(self, path: Path, data: dict[str, Any]) -> None:
        text = json.dumps(signed(self._name_of(path), data))
        write_whole(path, text.encode(), synced=False)

    def _name_of(self, path: Path) -> str:
        return str(path.relative_to(self._folder))

    def _is_others(self, claim: dict[str, Any]) -> bool:
        if "owner" not in claim:
            return False
        return claim.get("manager") != self._manager and not is_dead(_owner_of(claim))


def home_of(workspace: Path) -> Path:
    """Return the home directory that belongs to a workspace.

    Args:
        workspace: Path from `claim` or `temporary`.
    """
    return workspace.with_name(f"{workspace.name}{_HOME}")


def _rename(path: Path, new: Path) -> None:
    """Rename a workspace and its home directory, as far as they exist."""
    for each, other in ((path, new), (home_of(path), home_of(new))):
        with contextlib.suppress(FileNotFoundError):
            os.rename(each, other)


def _discard(path: Path) -> None:
    """Remove a workspace with its home directory and its claim, which identifies it until then."""
    remove_tree(path)
    remove_tree(home_of(path))
    with contextlib.suppress(OSError):
        _claim_of(path).unlink(missing_ok=True)


def _claim_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.claim")


def _owner_of(claim: dict[str, Any]) -> ProcessIdentity:
    """Return the owner that uses a directory, or that left it for a later process."""
    owner = claim.get("owner", claim.get("left_by"))
    return (
        ProcessIdentity(*owner)
        if isinstance(owner, list) and len(owner) == 4
        else ProcessIdentity(0, 0, "", "")
    )


def _is_left(claim: dict[str, Any]) -> bool:
    """Return whether a directory is unused and stays unused, because its last owner is dead."""
    return not {"owner", "left_by"} & claim.keys() or is_dead(_owner_of(claim))


def _openness(claim: dict[str, Any]) -> dict[str, Any]:
    """Return whether a claim records that its spec was open before."""
    return {"was_open": True} if "was_open" in claim else {}


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(each for each in path.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return []


def _claimed(above: Path) -> list[Path]:
    """Return the workspaces of an owner, even if only their home directory is left."""
    return sorted({each.with_name(each.name.removesuffix(_HOME)) for each in _folders(above)})


def _is_foreign(folder: Path) -> bool:
    """Return whether a directory is missing, or can be written by others."""
    try:
        return fault_of(folder) is not None
    except OSError:
        return True
