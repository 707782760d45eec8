# Shows E110
"""Without a writable registry, environments that could leave anything behind do not open (E110)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager

ROOT = Path(__file__).parents[2]


def tried(place: Path, within: Sequence[str], *how: str) -> dict[str, Any]:
    """Return the results of a process inside a mount namespace made by bubblewrap."""
    words = ["bwrap", "--dev-bind", "/", "/", *within, "--chdir", str(ROOT), "--die-with-parent"]
    words += ["--", sys.executable, "-m", "tests.attacks.unusable", str(place), *how]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def check(told: dict[str, Any], place: Path) -> None:
    assert told["refused"].startswith("EnvironmentUnavailable: ")
    assert str(place) in told["refused"]
    assert "XDG_STATE_HOME" in told["refused"]
    assert told["begun"] == 0
    assert told["in memory"] == told["without registry"] == "ready"
    assert told["entries"] == 0


@pytest.mark.endurance
def test_read_only(tmp_path: Path) -> None:
    (tmp_path / "environments").mkdir()

    told = tried(tmp_path, ["--ro-bind", str(tmp_path), str(tmp_path)])

    check(told, tmp_path)
    assert str(tmp_path) in told["reaped"]


@pytest.mark.endurance
def test_a_full_disk_and_room_again(tmp_path: Path) -> None:
    told = tried(tmp_path, ["--size", "262144", "--tmpfs", str(tmp_path)], "full")

    check(told, tmp_path)
    assert told["released"] == 1
    assert told["room again"] == "ready"


@pytest.mark.endurance
def test_another_file_system(tmp_path: Path) -> None:
    told = tried(tmp_path, ["--tmpfs", str(tmp_path)])

    assert "refused" not in told
    assert told["begun"] == 1
    assert told["entries"] == 0


def test_another_users(tmp_path: Path) -> None:
    place = tmp_path
    if os.getuid() == 0:
        os.chown(place, 65534, 65534)  # foreign also to root in a user namespace
    else:
        place = Path("/usr/share")

    check(tried(place, ["--unshare-user"]), place)


DAMAGE = {
    "empty": b"",
    "cut": b'{"format":1,"id":"a"',
    "nested": b"[" * 100_000,
    "another kind of text": b"\xff\xfe\x00",
    "wrong types": b'{"format":1,"id":[],"owner":["a",1,2,3],"at":"x","facts":3}',
}


# Shows E87
def test_whatever_lies_in_it_is_put_aside_or_left(tmp_path: Path) -> None:
    entries = tmp_path / "environments" / "entries"
    entries.mkdir(parents=True)
    for name, data in DAMAGE.items():
        (entries / f"{name}.json").write_bytes(data)
    (entries / "folder.json").mkdir()
    (entries / "loop.json").symlink_to("loop.json")
    (entries / "dangling.json").symlink_to("nowhere")
    os.mkfifo(entries / "fifo.json")

    with EnvironmentManager(tmp_path / "environments") as manager:
        found = manager.reap()
        manager.reap()

    aside = {Path(each["path"]).name.rpartition(".")[0] for each in found}
    assert aside >= {f"{name}.json" for name in DAMAGE}
