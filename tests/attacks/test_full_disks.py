"""A full disk or a power cut during the creation of a store never blocks it permanently."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine.store_folder import claim

ROOT = Path(__file__).parents[2]


@pytest.mark.endurance
def test_a_store_that_could_not_be_made_can_be_made_later(tmp_path: Path) -> None:
    """At every number of free pages, the store can be created later."""
    words = ["bwrap", "--dev-bind", "/", "/", "--size", str(4 << 20), "--tmpfs", str(tmp_path)]
    words += ["--chdir", str(ROOT), "--setenv", "PYTHONPATH", str(ROOT), "--die-with-parent", "--"]
    words += [sys.executable, "-m", "tests.attacks.full_disk", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told: list[list[str]] = json.loads(done.stdout)

    refused = [errors for errors in told if errors]
    assert 20 < len(refused) < len(told)
    for errors in refused:
        [error] = errors  # the second try succeeded
        assert any(why in error for why in ("is full", "has no room", "No space left on device"))


def test_what_says_whose_a_store_is_has_its_name_only_when_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []

    def note(name: str) -> None:
        real: Any = getattr(os, name)

        def noted(what: int | str, *rest: str) -> None:
            path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else rest[0]
            done.append((name, path))
            real(what, *rest)

        monkeypatch.setattr(os, name, noted)

    for name in ("fsync", "rename", "link"):
        note(name)

    store = tmp_path / "project" / ".flowengine"
    private = claim(store, by_name=False)

    named = [path for how, path in done if how in {"rename", "link"}]
    assert named == [f"{store}/.gitignore", f"{private}/paths", f"{store}/id"]
    for at, (how, path) in enumerate(done):
        if how in {"rename", "link"}:
            (before, draft), after = done[at - 1], done[at + 1]
            assert before == "fsync"
            assert draft.startswith(f"{path}.")
            assert after == ("fsync", os.path.dirname(path))
    assert ("fsync", str(tmp_path)) in done
    assert ("fsync", os.path.dirname(private)) in done
