# Shows S26
"""The supervisor over plain pipes: the requests it answers, and those it ignores."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flowengine_envs.inside import killing
from flowengine_envs.link import bootstrap, channel, frames
from tests.alive import alive, state
from tests.envs.raw import PYTHON, Raw
from tests.replacing import Limits


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Raw]:
    with Raw(tmp_path) as raw:
        yield raw


@pytest.fixture
def supervisor(raw: Raw) -> Raw:
    raw.begin()
    raw.worker()
    return raw


# Shows S23
def test_nothing_listens(supervisor: Raw) -> None:
    folder = f"/proc/{supervisor.process.pid}/fd"
    links = [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)]

    assert not [link for link in links if link.startswith("socket:")]


@pytest.mark.parametrize("what", ["plain line", "http", "wrong key", "replayed greeting"])
# Shows S23
def test_nothing_runs_for_who_does_not_have_the_key(raw: Raw, tmp_path: Path, what: str) -> None:
    marker = tmp_path / "marker"
    code = f"open({str(marker)!r}, 'w')"
    stranger = frames.Sealer(os.urandom(32), frames.TO_SUPERVISOR)
    greeting = raw.sealer.seal({"id": 1, "request": "hello", **raw.hello()})
    begun = bootstrap.supervisor() + raw.key
    attacks = {
        "plain line": begun + b'{"code": "%s"}\n' % code.encode(),
        "http": begun + b"POST /execute HTTP/1.1\r\nHost: x\r\n\r\n",
        "wrong key": begun + stranger.seal({"id": 1, "request": "hello", **raw.hello()}),
        "replayed greeting": begun + greeting + greeting,
    }

    raw.write(attacks[what])

    assert raw.process.wait(60) == 0
    assert not marker.exists()


def test_the_first_request_greets_in_the_same_version(raw: Raw) -> None:
    raw.write(bootstrap.supervisor() + raw.key)

    early = raw.ask("ping").header["fault"]
    wrong = raw.ask("hello", **{**raw.hello(), "version": 99}).header["fault"]
    right = raw.ask("hello", **raw.hello()).header

    assert "must be 'hello'" in early["message"]
    assert wrong["kind"] == "version"
    assert "99" in wrong["message"]
    assert "fault" not in right


def test_a_bad_frame_costs_one_request_and_no_name(supervisor: Raw) -> None:
    supervisor.last(supervisor.python("x = 41"))

    supervisor.write(supervisor.sealer.seal_body(b"\0\0\0\x02\xff\xff"))
    assert "not JSON" in supervisor.last(None).header["fault"]["message"]
    unknown = supervisor.ask("fly").header["fault"]
    assert "no request 'fly'" in unknown["message"]
    incomplete = supervisor.ask("put").header["fault"]
    assert "path" in incomplete["message"]

    assert supervisor.last(supervisor.python("x + 1")).header["value"] == 42


def test_requests_written_byte_by_byte_are_done(supervisor: Raw) -> None:
    frame = supervisor.sealer.seal({"id": 1000, "request": "ping"})

    for byte in frame:
        supervisor.write(bytes([byte]))

    assert supervisor.last(1000).header == {"id": 1000, "done": True}


def test_when_the_engine_is_gone_everything_ends(supervisor: Raw, tmp_path: Path) -> None:
    supervisor.run(["bash", "-c", "setsid sleep 1000 & echo $! > pid; sleep 1000"])
    supervisor.python("while True: pass")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "")
    assert supervisor.process.stdin is not None

    supervisor.write(b"\0\0")  # a frame that is never finished
    supervisor.process.stdin.close()

    assert supervisor.process.wait(60) == 0
    wait_for(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_a_killed_supervisor_takes_its_programs_along(supervisor: Raw, tmp_path: Path) -> None:
    supervisor.run(["bash", "-c", "(setsid sleep 1000 & echo $! > pid); sleep 1000"])
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "")

    supervisor.process.kill()

    wait_for(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_a_program_that_stopped_its_keeper_ends_with_the_supervisor_too(
    supervisor: Raw, tmp_path: Path
) -> None:
    script = "kill -STOP $PPID; setsid sleep 1000 & echo $$ $! $PPID > new; mv new pids; sleep 1000"
    supervisor.run(["bash", "-c", script])
    wait_for((tmp_path / "pids").exists)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    wait_for(lambda: state(pids[-1]) == "T")  # the signal may take a moment to stop it

    supervisor.process.kill()

    def left() -> dict[int, str]:
        return {pid: state(pid) for pid in pids if alive(pid)}

    with suppress(AssertionError):
        wait_for(lambda: not left())
    assert not left()  # on failure, the states show which step did not happen


def test_a_tree_is_killed_also_where_the_time_for_it_is_short(limits: Limits) -> None:
    """On a busy machine, the patience may be over before the first look at the tree."""
    limits(killing, _PATIENCE=0.0)
    script = "sleep 1000 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as root:
        assert root.stdout is not None
        below = int(root.stdout.readline())
        killing.kill_below(root.pid)
        wait_for(lambda: not alive(below))
        assert root.wait(60) == 0  # the root itself survives: `wait` without arguments returns 0


def test_a_ping_is_answered_whatever_runs_and_a_call_can_be_cancelled(supervisor: Raw) -> None:
    supervisor.last(supervisor.python("x = 1"))
    endless = supervisor.python("print('begun')\nwhile True: pass")
    supervisor.until(lambda header: header.get("id") == endless and "stream" in header)

    supervisor.ask("ping")
    assert supervisor.ask("cancel", to=endless).header["found"] is True
    ended = supervisor.last(endless).header

    assert ended["stopped"] == "cancelled"
    assert supervisor.last(supervisor.python("x")).header["value"] == 1


def test_cancelling_what_is_unknown_or_done_is_harmless(supervisor: Raw) -> None:
    done = supervisor.python("1")
    supervisor.last(done)

    assert supervisor.ask("cancel", to=done).header["found"] is False
    assert supervisor.ask("cancel", to=12345).header["found"] is False
    assert supervisor.last(supervisor.python("2")).header["value"] == 2


def test_calls_wait_their_turn_or_are_refused(supervisor: Raw) -> None:
    first = supervisor.python("input_ = 1\nimport time\nwhile not go: time.sleep(0.01)\n'first'")
    busy = supervisor.last(supervisor.python("2", busy="refuse")).header["fault"]
    waiting = supervisor.python("'second'")
    withdrawn = supervisor.python("'third'")
    supervisor.ask("cancel", to=withdrawn)

    assert busy["kind"] == "busy"
    assert supervisor.last(withdrawn).header["stopped"] == "cancelled"
    supervisor.ask("cancel", to=first)
    assert supervisor.last(waiting).header["value"] == "second"


def test_what_a_killed_keeper_leaves_is_ended(supervisor: Raw, tmp_path: Path) -> None:
    """A program may kill its keeper, but does not escape by it."""
    script = "setsid sleep 1000 & echo $! > pid; kill -9 $PPID; sleep 1000"
    id = supervisor.run(["bash", "-c", script])

    assert supervisor.last(id).header["signal"] == 9
    wait_for(lambda: not alive(int((tmp_path / "pid").read_text())))
    assert supervisor.last(supervisor.run(["true"])).header["exit_code"] == 0


def test_a_sandbox_waits_for_no_module_that_is_not_needed() -> None:
    script = bootstrap.SCRIPT.replace("\nmain(number)\n", "\nprint(*sys.modules)\n")
    command = [PYTHON, *channel.COMMAND[1:4], script, "0"]
    told = subprocess.run(command, input=bootstrap.supervisor(), capture_output=True, check=True)
    loaded = {*told.stdout.decode().split()}
    assert "flowengine_envs.inside.server" in loaded
    assert not loaded & {"linecache", "platform", "tokenize", "traceback"}


def test_what_is_sent_names_no_folder_of_this_machine() -> None:
    assert str(Path(bootstrap.__file__).parent).encode() not in bootstrap.supervisor()


def test_modules_of_the_supervisor_parse_on_python_3_9() -> None:
    import ast

    folder = Path(bootstrap.__file__).parent
    for path in folder.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))


def wait_for(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.01)
