"""The folders of environments: one a spec, and there again when it is opened anew.

    FOLDER/workspaces/SCOPE/OWNER/SPEC/           the workspace
    FOLDER/workspaces/SCOPE/OWNER/SPEC.claim      the process that uses it

An environment that is given back for a wait leaves its folder for whoever goes on, in this process
or another. It goes when its scope ends. While a living process uses it, another one gets a folder
of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from flowengine.sdk.environments import Owner, Scope
from flowengine.sdk.process_identity import is_dead
from flowengine.sdk.scratch import make_scratch, remove_scratch

Wanted = Callable[[str, str], bool]
"""Says whether an owner may still go on: scope, owner id."""


class Workspaces:
    """All folders below one place.

    Args:
        folder: The place.
        owner: This process.
        manager: Id of the manager.
    """

    def __init__(self, folder: Path, owner: Owner, manager: str) -> None:
        self._folder = folder / "workspaces"
        self._owner = owner
        self._manager = manager

    def path(self, scope: Scope, owner_id: str, spec_id: str) -> Path:
        """Return where the workspace of a spec is, if nobody else uses it."""
        return self._of(scope, owner_id) / spec_id

    def claim(self, scope: Scope, owner_id: str, spec_id: str, generation: int) -> tuple[Path, int]:
        """Make the folder of a spec, or take the one that is there.

        Args:
            scope: Of the spec.
            owner_id: Of the spec.
            spec_id: Its id.
            generation: Which opening it is, as far as this process knows.

        Returns:
            A folder that no other living manager uses, and which opening it really is: one more
            than the last that used the folder, in whatever process.

        Raises:
            OSError: It cannot be made.
        """
        above = self._of(scope, owner_id)
        above.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(above / "owner.json", {"scope": scope, "owner_id": owner_id})
        path = above / spec_id
        taken = self._take(path, generation)
        if taken is None:
            path = above / f"{spec_id}.{self._manager}"
            taken = self._take(path, generation) or generation
        path.mkdir(exist_ok=True, mode=0o700)
        return path, taken

    def note_ready(self, path: Path) -> None:
        """Note that what the folder belongs to was open, so that who goes on knows it."""
        if self.has(path):
            claim = _claim_of(path)
            with contextlib.suppress(OSError):
                _write(claim, {**_read(claim), "was_open": True})

    def was_open(self, scope: Scope, owner_id: str, spec_id: str) -> bool:
        """Return whether a spec was open before, in whatever process."""
        return "was_open" in _read(_claim_of(self.path(scope, owner_id, spec_id)))

    def temporary(self) -> Path:
        """Make a folder in the system's place for temporary ones, which nobody finds again."""
        return make_scratch()

    def has(self, path: Path) -> bool:
        """Return whether a folder is one that is found again."""
        return path.is_relative_to(self._folder)

    def let_go(self, path: Path, *, remove: bool, generation: int = 0) -> None:
        """Give a folder back.

        Args:
            path: From `claim` or `temporary`.
            remove: Whether nobody will want what is in it.
            generation: Which opening used it.
        """
        if not remove:
            claim = _claim_of(path)
            left = {"generation": generation, "left_by": self._owner, **_openness(_read(claim))}
            with contextlib.suppress(OSError):
                _write(claim, left)
            return
        remove_scratch(path)
        with contextlib.suppress(OSError):
            _claim_of(path).unlink(missing_ok=True)
        _remove_empty(path.parent)

    def end_scope(self, scope: Scope, owner_id: str) -> None:
        """Remove all folders of an owner but those that another living manager uses."""
        above = self._of(scope, owner_id)
        for path in _folders(above):
            if not self._is_others(_read(_claim_of(path))):
                self.let_go(path, remove=True)
        _remove_empty(above)

    def sweep(self, wanted: Wanted) -> list[Path]:
        """Remove the folders of dead processes whose owners will not go on.

        Args:
            wanted: Says who may go on.

        Returns:
            What was removed.
        """
        removed = []
        for above in (owner for scope in _folders(self._folder) for owner in _folders(scope)):
            whose = _read(above / "owner.json")
            if wanted(str(whose.get("scope")), str(whose.get("owner_id"))):
                continue
            for path in _folders(above):
                claim = _read(_claim_of(path))
                if not {"owner", "left_by"} & claim.keys() or is_dead(_owner_of(claim)):
                    self.let_go(path, remove=True)
                    removed.append(path)
            _remove_empty(above)
        return removed

    def _of(self, scope: Scope, owner_id: str) -> Path:
        return self._folder / scope / hashlib.sha256(owner_id.encode()).hexdigest()[:20]

    def _take(self, path: Path, generation: int) -> int | None:
        """Write a claim, unless another living manager has one; return the generation."""
        claim = _claim_of(path)
        found = _read(claim)
        if self._is_others(found):
            return None
        last = found.get("generation")
        generation = max(generation, last + 1 if isinstance(last, int) else 1)
        text = {"owner": self._owner, "manager": self._manager, "generation": generation}
        text |= _openness(found)
        new = claim.with_name(f"{claim.name}.{self._manager}.new")
        new.write_text(json.dumps(text), encoding="utf-8")
        try:
            os.link(new, claim)  # fails if there is one; never shows half of one
        except FileExistsError:
            if self._is_others(_read(claim)):
                return None
            os.replace(new, claim)
        finally:
            new.unlink(missing_ok=True)
        return generation

    def _is_others(self, claim: dict[str, object]) -> bool:
        if "owner" not in claim:
            return False
        return claim.get("manager") != self._manager and not is_dead(_owner_of(claim))


def _claim_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.claim")


def _owner_of(claim: dict[str, object]) -> Owner:
    """Return who uses a folder, or left it for whoever goes on."""
    owner = claim.get("owner", claim.get("left_by"))
    return Owner(*owner) if isinstance(owner, list) and len(owner) == 4 else Owner(0, 0, "", "")


def _openness(claim: dict[str, object]) -> dict[str, object]:
    """Return what a claim says of whether its spec was open before."""
    return {"was_open": True} if "was_open" in claim else {}


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(each for each in path.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return []


def _read(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _write(path: Path, data: object) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps(data), encoding="utf-8")
    os.replace(new, path)


def _remove_empty(path: Path) -> None:
    """Remove the folder of an owner when only its description is left."""
    with contextlib.suppress(OSError):
        if [each.name for each in path.iterdir()] in ([], ["owner.json"]):
            (path / "owner.json").unlink(missing_ok=True)
            path.rmdir()
