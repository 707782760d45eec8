"""Threads, tasks and processes left running by a step cause a warning or an error (E77)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import ExecutionResult, Update
from tests.alive import alive

STEPS = """
import asyncio, socket, subprocess, threading

kept = []
ready, go = threading.Barrier(2, timeout=60), threading.Barrier(2, timeout=60)

def child(note):
    kept.append(subprocess.Popen(["sleep", "7011"]))
    with open(note, "a") as file:
        file.write(f"{kept[-1].pid}\\n")

def orphan(note):
    subprocess.run(f"sleep 7012 >/dev/null & echo $! >> {note}", shell=True, check=True)

def daemon(note):
    orphan_ = f"sleep 7015 >/dev/null & echo $! >> {note}"
    subprocess.run(["setsid", "-w", "sh", "-c", orphan_], check=True)

def listens(note):
    kept.append(socket.create_server(("127.0.0.1", 0)))
    with open(note, "a") as file:
        file.write(f"{kept[-1].getsockname()[1]}\\n")

async def serves(note):
    kept.append(await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0))
    with open(note, "a") as file:
        file.write(f"{kept[-1].sockets[0].getsockname()[1]}\\n")

async def async_child(note):
    kept.append(await asyncio.create_subprocess_exec("sleep", "7013"))
    with open(note, "a") as file:
        file.write(f"{kept[-1].pid}\\n")

def tidy(note):
    subprocess.run(["sleep", "0"], check=True)
    subprocess.Popen(["sleep", "0"]).wait()
    with socket.create_server(("127.0.0.1", 0)):
        pass
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))

def fails(note):
    child(note)
    raise ValueError("no")

def beside(note):
    ready.wait()
    child(note)
    go.wait()

def innocent(note):
    ready.wait()
    subprocess.run(["sleep", "0"], check=True)
    go.wait()
"""


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file where steps record the processes they start. Remaining ones are killed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("leaving.py").write_text(STEPS)
    path = tmp_path / "note"
    path.touch()
    yield path
    for number in map(int, path.read_text().split()):
        with suppress(ProcessLookupError, ValueError):
            if Path(f"/proc/{number}/comm").exists():
                os.kill(number, signal.SIGKILL)
    for each in getattr(sys.modules.get("leaving"), "kept", ()):
        if isinstance(each, subprocess.Popen):
            each.wait()


def run(
    note: Path, steps: str, *, strict: bool = False
) -> tuple[ExecutionResult, list[dict[str, Any]]]:
    """Run steps, and return the result and the warnings."""
    text = f"flowengine: 1\nid: leaving\ninputs: {{note: {{type: string}}}}\nsteps:\n{steps}"
    Path("leaving.yaml").write_text(text)
    warnings: list[dict[str, Any]] = []

    def hear(update: Update) -> None:
        if update.kind == "warning":
            warnings.append(update.data)

    if strict:
        Path(".flowengine").mkdir(exist_ok=True)
        Path(".flowengine/settings.yaml").write_text("strict: true\n")
    with Engine() as engine:
        engine.subscribe(hear)
        return engine.run("leaving.yaml", {"note": str(note)}), warnings


def step(function: str) -> str:
    call = f'python: "leaving:{function}", with: {{note: "${{{{ inputs.note }}}}"}}'
    return f"  - {{id: {function}, {call}}}\n"


def noted(note: Path) -> int:
    return int(note.read_text().split()[-1])


def goes_on(pid: int) -> bool:
    """Return whether a process survives. A killed one may take a moment to end."""
    until = time.monotonic() + 60
    while alive(pid):
        if time.monotonic() > until:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("function", ["child", "orphan", "daemon", "async_child"])
def test_a_process_that_outlives_its_step_is_told_of(note: Path, function: str) -> None:
    result, warnings = run(note, step(function))

    assert result.status == "succeeded"
    pid = noted(note)
    told = [
        (each["address"], left["what"], left["pid"]) for each in warnings for left in each["left"]
    ]
    assert told == [(function, "process", pid)]
    assert str(pid) in warnings[0]["text"]
    assert alive(pid)


@pytest.mark.parametrize("function", ["orphan", "daemon"])
def test_it_is_found_although_somebody_emptied_the_environment_before(
    note: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(note, step("tidy"))
    monkeypatch.delenv("FLOWENGINE_PROCESS")

    _, [warning] = run(note, step(function))

    assert [left["pid"] for left in warning["left"]] == [noted(note)]


@pytest.mark.parametrize("function", ["child", "orphan", "daemon", "async_child"])
def test_strict_makes_it_an_error_and_ends_it(note: Path, function: str) -> None:
    result, warnings = run(note, step(function), strict=True)

    assert result.status == "failed"
    assert result.error is not None
    assert result.error["type"] == "LeftRunning"
    assert f"process {noted(note)} (" in result.error["message"]
    assert warnings == []
    assert not goes_on(noted(note))


@pytest.mark.parametrize("function", ["listens", "serves"])
def test_a_socket_that_still_listens_is_told_of(note: Path, function: str) -> None:
    result, warnings = run(note, step(function))

    assert result.status == "succeeded"
    port = noted(note)
    left = {"what": "socket", "name": f"127.0.0.1:{port}", "pid": os.getpid()}
    assert [each["left"] for each in warnings] == [[left]]


@pytest.mark.parametrize("function", ["listens", "serves"])
def test_strict_closes_it(note: Path, function: str) -> None:
    result, _ = run(note, step(function), strict=True)

    assert result.error is not None
    assert f"127.0.0.1:{noted(note)}" in result.error["message"]
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", noted(note))) != 0


def test_what_is_ended_in_time_is_nothing_left(note: Path) -> None:
    result, warnings = run(note, step("tidy"), strict=True)

    assert (result.status, warnings) == ("succeeded", [])


def test_of_two_at_once_it_is_known_which_one_left_it(note: Path) -> None:
    both = "".join(f"    {line}" for line in (step("beside"), step("innocent")))

    _, warnings = run(note, f"  - id: all\n    parallel:\n{both}")

    assert [each["address"] for each in warnings] == ["all/beside"]


def test_a_step_that_fails_says_why_and_leaves_nothing_where_that_is_strict(note: Path) -> None:
    result, _ = run(note, step("fails"), strict=True)

    assert result.error is not None
    assert result.error["type"] == "ValueError"
    assert not goes_on(noted(note))


SCRIPT = "  - {id: script, run: \"setsid -f bash -c 'echo $$ >> NOTE; exec sleep 7014'\"}\n"


@pytest.mark.parametrize("strict", [False, True])
def test_of_a_script_even_a_daemon_is_ended_and_told_of(note: Path, strict: bool) -> None:
    script = SCRIPT.replace("NOTE", str(note))
    fifo = note.with_name("fifo")
    os.mkfifo(fifo)
    script = script.replace("exec sleep", f"echo > {fifo}; exec sleep")
    script = script.replace('"}', f'; read < {fifo}"}}')  # keeps it alive until the script ends

    result, warnings = run(note, script, strict=strict)

    pid = noted(note)
    assert not goes_on(pid)
    assert result.status == ("failed" if strict else "succeeded")
    if strict:
        assert result.error is not None
        assert result.error["type"] == "LeftRunning"
    else:
        assert [(each["address"], each["ended"]) for each in warnings] == [("script", True)]
        assert pid in [each["pid"] for each in warnings[0]["left"]]


def test_a_script_that_leaves_nothing_is_not_warned_of(note: Path) -> None:
    script = '  - {id: script, run: "exec > >(cat); echo told; sleep 0"}\n'

    result, warnings = run(note, script, strict=True)

    assert (result.status, warnings) == ("succeeded", [])


def test_a_start_while_the_interpreter_ends_is_no_error() -> None:
    code = """
import sys
from flowengine.engines.attempts.leak_detection import LeakDetector

class Late:
    def __del__(self, audit=sys.audit, write=sys.__stdout__.write):
        audit("subprocess.Popen", "true", ["true"], None, None)
        audit("socket.bind", None, None)
        audit("open", "file", "r", 0)
        write("late")

with LeakDetector():
    sys.late = Late()  # the names of sys are the last to go
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("late", "")
