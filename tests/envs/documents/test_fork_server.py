"""Each file is read in a new process forked by a server, so no file affects the next."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import LimitExceeded, StepError
from flowengine_envs.documents.reader import Documents
from flowengine_envs.inside.fork_servers import ForkServer
from flowengine_envs.sandboxes.processes import has
from tests.envs.documents.test_kind import workers
from tests.execution_environment.toy import until

HOSTILE = '''
import builtins, ctypes, os, signal, sys, time
from pathlib import Path

def others():
    """The server: the process with the same program."""
    own = Path("/proc/self/cmdline").read_bytes()
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if each.name != str(os.getpid()) and (each / "cmdline").read_bytes() == own:
                found.append(int(each.name))
        except OSError:
            pass
    return found

def change(server):
    """Whatever a process can do to itself."""
    builtins.left = "x"
    sys.modules["flowengine_documents.text"].decode = lambda *_: ("forged", "")
    os.chdir("/")

def reach(server):
    """Into the memory and the descriptors of the server."""
    for path in ("mem", "environ", "fd/0", "fd/1"):
        try:
            open(f"/proc/{server}/{path}", "rb").close()
            return f"opened {path}"
        except OSError:
            pass
    libc = ctypes.CDLL(None, use_errno=True)
    attached = libc.ptrace(16, server, 0, 0)
    taken = libc.syscall(438, os.pidfd_open(server), 0, 0)
    return f"attached {attached}, taken {taken}"

def leave(server):
    """A process that goes on, in a session of its own."""
    if not os.fork():
        os.setsid()
        if not os.fork():
            for fd in range(10):
                try: os.close(fd)
                except OSError: pass
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()

def end(server):
    os.kill(server, signal.SIGKILL)

def stop(server):
    os.kill(server, signal.SIGSTOP)

def slow(server):
    os.setpriority(os.PRIO_PROCESS, server, 19)

def forge(server):
    os.write(3, b'{"document": 3}')
    os._exit(0)

def endless(server):
    while True: signal.pause()

def convert(data, name):
    if not name.endswith(".evil"):
        return None
    told = globals()[data.decode()](others()[0])
    return f"done {told or ''}".strip()

def look(data, name):
    if not name.endswith(".look"):
        return None
    return f"{os.getpid()} {os.getcwd()} {getattr(builtins, 'left', '')} nice {os.nice(0)}"
'''


@pytest.fixture
def reader(folder: Path) -> Iterator[Documents]:
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    (folder / "files.py").write_text(HOSTILE)
    spec = {
        **{"kind": "documents", "scope": "session", "owner_id": "s"},
        "config": {"converters": ["files:convert", "files:look"]},
    }
    with EnvironmentManager(folder / "store") as manager:
        yield manager.ensure(spec).resource


def looked(reader: Documents) -> str:
    """Return the state that a process reports, without its process ID."""
    return reader.read(b"x", "a.look").markdown.partition(" ")[2]


def test_each_file_has_a_process_of_its_own_and_one_server(reader: Documents) -> None:
    read = [reader.read(b"x", "a.look").markdown for _ in range(3)]

    assert len(set(read)) == 3
    assert len(workers(reader)) == 1


@pytest.mark.parametrize("what", ["change", "reach", "leave", "end", "stop", "slow"])
def test_what_a_file_does_does_not_reach_the_next(reader: Documents, what: str) -> None:
    before = looked(reader)
    done = reader.read(what.encode(), "a.evil").markdown

    assert done == ("done attached -1, taken -1" if what == "reach" else "done")
    assert looked(reader) == before
    assert reader.read(b"plain", "a.txt").markdown == "plain"
    assert len(workers(reader)) == 1


SLOW = """
import os, signal, sys, time
from functools import partial
from flowengine_envs.inside import fork_servers

wait = os.waitpid
os.waitpid = lambda *asked: time.sleep(0.3) or wait(*asked)  # as if it had no CPU meanwhile
os.dup2(int(sys.argv[1]), fork_servers.CONTROL)
fork_servers.serve(partial(os.kill, os.getpid(), signal.SIGSTOP))
"""


def test_a_file_is_not_read_before_the_server_has_answered() -> None:
    """Otherwise the file's process could stop the server, and its keeper would wait forever."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", SLOW, str(theirs.fileno())]
    with (
        open(os.devnull, "rb") as null,
        subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process,
    ):
        theirs.close()
        ours.settimeout(30)
        server = ForkServer(None, process.pid, ours)
        try:
            assert server.fork([], {0: null.fileno()}) not in {0, process.pid}
        finally:
            process.kill()
            server.close()


@pytest.mark.parametrize(("what", "told"), [("forge", "ended with 0"), ("endless", "took longer")])
def test_after_a_fault_there_is_another_server(reader: Documents, what: str, told: str) -> None:
    before = looked(reader)
    first = workers(reader)
    with pytest.raises(StepError, match=told):
        reader.read(what.encode(), "a.evil", timeout=1 if what == "endless" else None)

    assert looked(reader) == before
    assert len(workers(reader)) == 1
    assert first.isdisjoint(workers(reader))


def test_a_file_that_cannot_be_read_is_no_fault_of_the_server(reader: Documents) -> None:
    looked(reader)
    first = workers(reader)
    with pytest.raises(StepError, match="7-Zip archive"):
        reader.read(b"7z\xbc\xaf\x27\x1c" + bytes(20), "a.7z")
    looked(reader)

    assert workers(reader) == first


def test_files_are_read_at_the_same_time(reader: Documents) -> None:
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(reader.read, b"endless", "a.evil", timeout=20)
        until(lambda: len(workers(reader)) > 1)
        assert reader.read(b"plain", "a.txt").markdown == "plain"
        for pid in workers(reader):
            os.kill(pid, 9)
        with pytest.raises((StepError, LimitExceeded)):
            endless.result()
