"""Only one process at a time builds an image, and no lock file is left behind."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from flowengine_envs.sandboxes.docker.image import BuildLock


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_one_has_it_at_a_time_and_nothing_is_left_of_it(folder: Path) -> None:
    first, second = BuildLock("built:1"), BuildLock("built:1")

    assert first.take()
    assert not second.take()
    assert BuildLock("built:2").take()
    first.release()
    assert second.take()
    assert not first.take()
    second.release()

    assert [one.name.split("-")[1] for one in folder.iterdir()] == ["2"]


def test_one_that_opened_the_file_before_it_was_removed_does_not_have_the_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock would be on a deleted file that no other process opens."""
    first, second, third = (BuildLock("built:1") for _ in range(3))
    assert first.take()
    lock = fcntl.flock

    def slow(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        first.release()
        assert third.take()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)

    assert not second.take()
    third.release()
    assert second.take()
    second.release()
    assert list(folder.iterdir()) == []


def test_one_that_opened_the_file_before_it_was_removed_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = BuildLock("built:1"), BuildLock("built:1")
    assert first.take()
    lock = fcntl.flock

    def slow(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        first.release()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)

    assert not second.take()
    assert second.take()
