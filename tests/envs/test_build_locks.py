"""Only one process at a time builds an image, and no lock file is left behind."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine_envs.sandboxes.docker.image import BuildLock

pytestmark = pytest.mark.usefixtures("temporary")


def at_next_lock(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act between the opening of a file and its lock, once."""
    lock, once = fcntl.flock, iter([act])

    def slow(file: int, how: int) -> None:
        for each in once:
            each()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)


def test_one_that_opened_the_file_before_it_was_removed_does_not_have_the_lock(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock would be on a deleted file that no other process opens."""
    first, second, third = (BuildLock("built:1") for _ in range(3))
    assert first.acquire()

    def pass_on() -> None:
        first.release()
        assert third.acquire()

    at_next_lock(monkeypatch, pass_on)

    assert not second.acquire()
    third.release()
    assert second.acquire()
    second.release()
    assert list(temporary.iterdir()) == []
