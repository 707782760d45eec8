"""Programs that are killed while they start others: none of these survives.

A half-made sandbox is such a program: `bwrap` sets it up in steps, each in a new process that does
not yet die with its predecessor.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import processes as processes_module
from flowengine.sdk.environments import VARIABLE, background
from flowengine.sdk.processes import marked, processes
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.mcp.provider import Mcp
from flowengine_envs.sandboxes import namespace
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import start
from tests.envs.opening import request_for
from tests.execution_environment.toy import until

BOUND = 60.0
STARTS = "sleep 1000 & echo begun"
"""Starts a program that would otherwise outlive it and hold its streams open."""
STREAMS: dict[str, Any] = {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE}


def of_session(leader: int) -> list[int]:
    """Return the processes in a session."""
    return [each.pid for each in processes() if each.session == leader]


def check_gone(leader: int) -> None:
    """Wait until a session has no live processes: killed ones may take a moment to die."""
    until(lambda: not of_session(leader))


@pytest.mark.parametrize("code", [f"{STARTS}; wait", STARTS], ids=["running", "ended"])
def test_what_a_killed_program_had_started_is_killed(code: str) -> None:
    async def killed() -> int:
        program = await start("sh", "-c", code, **STREAMS)
        assert program.stdout is not None
        assert await program.stdout.readline() == b"begun\n"
        assert of_session(program.pid)
        program.kill()
        async with asyncio.timeout(BOUND):
            assert await program.stdout.read() == b""  # no process holds the pipe open any more
            await program.wait()
        return program.pid

    check_gone(asyncio.run(killed()))


CHAIN = """\
n=$1
[ "$n" = 0 ] && exec sleep 1000
env -i setsid sh "$0" $((n-1)) &
[ "$n" = 300 ] && echo begun
exec sleep 1000
"""
"""A program that starts another one in a new session, which does the same, and all stay."""


def test_a_program_that_is_killed_while_its_children_start_others_holds_no_pipe(
    tmp_path: Path,
) -> None:
    """Killing a parent first would leave the child that it has just started without any mark."""
    script = tmp_path / "chain.sh"
    script.write_text(CHAIN)

    async def killed(pause: float) -> None:
        program = await start("sh", str(script), "300", **STREAMS)
        assert program.stdout is not None
        assert await program.stdout.readline() == b"begun\n"
        await asyncio.sleep(pause)
        program.kill()
        async with asyncio.timeout(BOUND):
            assert await program.stdout.read() == b""
            await program.wait()

    for pause in (0, 0.01, 0.03):
        asyncio.run(killed(pause))


def test_a_child_that_was_being_started_when_its_parent_was_stopped_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is in the middle of `fork` stops, or dies, only after it."""
    os.mkfifo(tmp_path / "gate")
    send = processes_module._send  # signals between which the child comes about
    stops: list[signal.Signals] = []

    async def killed() -> None:
        program = await start("sh", "-c", "read x < gate; env -i setsid sleep 1000 & wait", **there)
        assert program.stdout is not None

        def late(pids: Iterable[int], number: signal.Signals) -> None:
            if pids and len(stops) < 2:
                stops.append(number)
                if len(stops) == 1:
                    return
                (tmp_path / "gate").write_text("\n")
                until(lambda: [each for each in processes() if each.parent == program.pid])
            send(pids, number)

        monkeypatch.setattr(processes_module, "_send", late)
        program.kill()
        async with asyncio.timeout(BOUND):
            assert await program.stdout.read() == b""
            await program.wait()

    there = {**STREAMS, "cwd": tmp_path}
    asyncio.run(killed())
    assert stops == [signal.SIGSTOP, signal.SIGSTOP]


def test_a_killed_program_has_ended_though_nobody_reads_what_it_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It wrote more than its reader accepts, so the pipe is full and no longer read."""

    async def killed() -> None:
        full = asyncio.Event()

        def feed(reader: asyncio.StreamReader, data: bytes) -> None:
            plain(reader, data)
            # A reader does not tell that it has paused its pipe.
            if not reader._transport.is_reading():  # type: ignore[attr-defined]
                full.set()

        plain = asyncio.StreamReader.feed_data
        monkeypatch.setattr(asyncio.StreamReader, "feed_data", feed)
        program = await start("sh", "-c", "yes & yes >&2; wait", **STREAMS)
        async with asyncio.timeout(BOUND):
            await full.wait()
            program.kill()
            assert await program.wait() < 0

    asyncio.run(killed())


def test_a_start_that_is_cancelled_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    async def cancelled() -> None:
        loop = asyncio.get_running_loop()
        create = loop.subprocess_exec

        async def begun(*argv: Any, **options: Any) -> Any:
            transport, streams = await create(*argv, **options)
            assert await streams.stdout.readline() == b"begun\n"
            started.append(transport.get_pid())
            starting.cancel()
            return transport, streams

        monkeypatch.setattr(loop, "subprocess_exec", begun)
        starting = asyncio.ensure_future(start("sh", "-c", f"{STARTS}; wait", **STREAMS))
        async with asyncio.timeout(BOUND):
            with pytest.raises(asyncio.CancelledError):
                await starting

    asyncio.run(cancelled())
    [leader] = started
    check_gone(leader)


def test_a_probe_that_is_cancelled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    stand_in = tmp_path / "bwrap"
    stand_in.write_text(f"#!/bin/sh\nsleep 1000 &\necho $$ > {told}\nwait\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(namespace, "_bwrap", lambda: str(stand_in))
    monkeypatch.setattr(namespace, "_forbids_namespaces", lambda: True)
    monkeypatch.setattr(namespace, "_works", {})
    spec = request_for(BashProvider(), Namespace, tmp_path).spec

    async def cancelled() -> int:
        probing = asyncio.ensure_future(Namespace.probe(spec))
        leader = int(await asyncio.to_thread(told.read_text))
        assert len(of_session(leader)) == 2
        probing.cancel()
        async with asyncio.timeout(BOUND):
            with pytest.raises(asyncio.CancelledError):
                await probing
        return leader

    check_gone(asyncio.run(cancelled()))


FORKING = """\
n=$1; echo $n >> "$2"
[ "$n" -gt 0 ] && setsid sh "$0" $((n-1)) "$2" &
[ "$n" = 60 ] || exit
exec sleep 1000
"""
"""A program that starts another one in a new session, which does the same and exits."""


@pytest.mark.endurance
@pytest.mark.parametrize("begun", range(0, 40, 4))
# Shows E54
def test_a_server_whose_start_is_cancelled_leaves_nothing_in_any_session(
    tmp_path: Path, begun: int
) -> None:
    """At any point of cancellation, and although the server's processes are all short-lived."""
    script = tmp_path / "forking.sh"
    script.write_text(FORKING)
    mark = f"cancelled-{os.getpid()}-{begun}@here"

    def alive() -> list[int]:
        return [pid for pid, found in marked(VARIABLE).items() if found == mark]

    async def cancelled() -> None:
        workspace = tmp_path / mark
        workspace.mkdir()
        told = workspace / "begun"
        told.touch()
        config = {"command": ["sh", str(script), "60", str(told)]}
        deadline = asyncio.get_running_loop().time() + BOUND
        request = request_for(
            Mcp(), HostSandbox, workspace, config=config, mark=mark, deadline=deadline
        )
        starting = asyncio.ensure_future(Mcp().ensure(request))
        async with asyncio.timeout(BOUND):
            while len(told.read_text().splitlines()) < begun:
                assert not starting.done()
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting

    background().run(cancelled())  # a loop that outlives the processes
    until(lambda: not alive())
