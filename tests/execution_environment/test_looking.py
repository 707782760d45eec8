# Shows V56
"""Looking into open environments from this and from other processes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from flowengine.errors import Conflict, NotFound
from flowengine.execution_environment import (
    EnvironmentManager,
    register_provider,
    unregister_provider,
)
from flowengine.execution_environment.registry import screens
from flowengine.sdk import EnvironmentLost
from flowengine.sdk.environments import Screen, background
from flowengine.sdk.files.private_sockets import listening
from tests.execution_environment.painted import PNG, SPEC, Painted, holding
from tests.replacing import Limits

Make = Callable[..., EnvironmentManager]


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Painted]:
    monkeypatch.setenv("PAINTED_TOKEN", "SEKRET-4711")
    provider = Painted()
    register_provider(provider)
    yield provider
    unregister_provider("painted")


def sockets(folder: Path) -> list[str]:
    return [each.name for each in (folder / "environments" / "screens").iterdir()]


def refusal(manager: EnvironmentManager, name: str = "canvas") -> str:
    with pytest.raises(Conflict) as refused:
        manager.look(name)
    return refused.value.message


def test_an_open_environment_shows_its_screen_without_secrets(
    manager: EnvironmentManager, painted: Painted, tmp_path: Path
) -> None:
    handle = manager.ensure(SPEC)

    id, seen = manager.look("canvas")

    assert id == handle.id
    assert seen.screen == (f"in process {os.getpid()}", PNG, "key ***", "http://host/?***")
    [written] = manager.written()
    assert written["screen"] is True
    [listed] = manager.list()
    assert listed["holds"] == 1  # a look is no hold
    assert sockets(tmp_path) == [id]
    manager.release(handle)
    assert sockets(tmp_path) == []
    with pytest.raises(NotFound):
        manager.look("canvas")


def test_another_process_answers_until_it_dies(make: Make, tmp_path: Path) -> None:
    manager = make()
    with holding(tmp_path / "environments") as holder:
        _, seen = manager.look("canvas")
        assert seen.screen == (f"in process {holder.pid}", PNG, "key ***", "http://host/?***")

        holder.kill()
        holder.wait()
        assert f"left open by process {holder.pid}, which has ended" in refusal(manager)
        [left] = manager.written()
        assert left["screen"] is False
        assert len(sockets(tmp_path)) == 1
        manager.reap()
        assert sockets(tmp_path) == []


def test_a_process_that_hangs_is_not_waited_for(make: Make, tmp_path: Path, limits: Limits) -> None:
    limits(screens, _PATIENCE=0.2)
    with holding(tmp_path / "environments") as holder:
        os.kill(holder.pid, signal.SIGSTOP)
        os.waitpid(holder.pid, os.WUNTRACED)  # all of its threads are stopped
        assert f"process {holder.pid}" in (told := refusal(make()))
        assert told.endswith("does not answer")
        os.kill(holder.pid, signal.SIGCONT)


async def large() -> Screen:
    return Screen("", PNG + bytes(screens.LARGEST_PICTURE))


async def broken() -> Screen:
    raise OSError("the key is SEKRET-4711")


async def lost() -> Screen:
    raise EnvironmentLost("it has no open page")


async def endless() -> Screen:
    return await asyncio.Event().wait()  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("show", "told"),
    [
        (large, "its picture has 8,388"),
        (broken, "OSError: the key is ***"),
        (lost, "cannot be looked into: it has no open page"),
        (endless, "does not show its screen within 0.1 s"),
    ],
)
def test_why_nothing_is_shown_is_told(
    manager: EnvironmentManager,
    painted: Painted,
    limits: Limits,
    show: Callable[[], object],
    told: str,
) -> None:
    limits(screens, SECONDS=60 if show is not endless else 0.1)
    manager.ensure(SPEC)
    painted.show = show  # type: ignore[assignment]
    assert told in refusal(manager)
    painted.show = None
    assert manager.look("canvas")[1].screen.picture == PNG


def test_texts_are_bounded_and_clean(manager: EnvironmentManager, painted: Painted) -> None:
    async def show() -> Screen:
        return Screen("x" * 10_000_000, b"", "\ud800" * 5000, "\x1b[2J<b>")

    painted.show = show
    manager.ensure(SPEC)
    screen = manager.look("canvas")[1].screen
    assert len(screen.text) == screens.LONGEST_TEXT
    assert screen.title == "?" * 1000
    assert screen.address == "\x1b[2J<b>"  # who displays it escapes it


def test_closing_does_not_wait_for_those_who_look(
    manager: EnvironmentManager, painted: Painted
) -> None:
    begun = threading.Event()

    async def show() -> Screen:
        begun.set()
        return await endless()

    painted.show = show
    handle = manager.ensure(SPEC)
    with ThreadPoolExecutor() as pool:
        looking = pool.submit(refusal, manager)
        assert begun.wait(60)
        assert manager.release(handle).released
        assert "does not answer" in looking.result(60)


def test_only_some_look_at_the_same_time(manager: EnvironmentManager, painted: Painted) -> None:
    gate, begun = asyncio.Event(), threading.Semaphore(0)

    async def show() -> Screen:
        begun.release()
        await gate.wait()
        return Screen("one")

    painted.show = show
    manager.ensure(SPEC)
    with ThreadPoolExecutor() as pool:
        looking = [pool.submit(manager.look, "canvas") for _ in range(4)]
        assert all(begun.acquire(timeout=60) for _ in looking)
        assert "does not answer" in refusal(manager)
        background().loop.call_soon_threadsafe(gate.set)
        assert {each.result(60)[1].screen.text for each in looking} == {"one"}
    assert manager.look("canvas")[1].screen.text == "one"


@contextmanager
def answering(path: Path, data: bytes) -> Iterator[None]:
    """Answer at a socket as a process would that is not what it seems to be."""
    path.unlink()
    with listening(path, 1) as server:
        server.setblocking(True)

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(data)

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join(60)


HEAD = b'{"at": 1, "text": "", "title": "", "address": "", "size": %d}\n'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b"[" * 200_000,
        HEAD % 4 + PNG,
        HEAD % len(PNG) + PNG[:-1],
        HEAD % 5 + b"<svg>",
        b"x" * (screens.LARGEST_PICTURE + 17 * screens.LONGEST_TEXT),
    ],
    ids=["nothing", "bytes", "list", "empty", "deep", "long", "short", "svg", "endless"],
)
def test_a_false_answer_is_none(
    manager: EnvironmentManager, painted: Painted, tmp_path: Path, data: bytes
) -> None:
    id = manager.ensure(SPEC).id
    with answering(tmp_path / "environments" / "screens" / id, data):
        assert "does not answer" in refusal(manager)


def test_what_is_in_place_of_the_socket_is_not_read(
    manager: EnvironmentManager, painted: Painted, tmp_path: Path
) -> None:
    id = manager.ensure(SPEC).id
    path = tmp_path / "environments" / "screens" / id
    path.unlink()
    path.write_bytes(HEAD % 0)
    assert "does not answer" in refusal(manager)


def test_it_opens_where_there_can_be_no_socket(
    manager: EnvironmentManager, painted: Painted, tmp_path: Path
) -> None:
    """A file in place of the folder is unusable for all users, including root."""
    (tmp_path / "environments").mkdir(mode=0o700)
    (tmp_path / "environments" / "screens").write_text("")
    manager.ensure(SPEC)
    assert "has nothing to look at" in refusal(manager)
