# Shows S25, S86
"""Malicious code, in every sandbox: at most its own environment is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowengine.sdk import EnvironmentLost
from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.bash import Bash, BashProvider
from flowengine_envs.kinds.python import PythonSandbox
from flowengine_envs.link import channel
from tests.envs.opening import opened
from tests.execution_environment.toy import until
from tests.replacing import Limits

CALLS = """
import ctypes, errno, json, platform
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"

def told(numbers, *arguments):
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(numbers[arm]), *map(ctypes.c_long, arguments))
    return "done" if done >= 0 else errno.errorcode[ctypes.get_errno()]

kind, name = ctypes.create_string_buffer(b"user"), ctypes.create_string_buffer(b"left")
at = [ctypes.addressof(each) for each in (kind, name)]
_result = {
    "add_key": told((248, 217), *at, at[1], 4, -4),
    "keyctl": told((250, 219), 0, -4, 0),
    "request_key": told((249, 218), *at, 0, -4),
    "unshare a user": told((272, 97), 0x10000000),
    "clone a user": told((56, 220), 0x10000011, 0, 0, 0, 0),
    "mount": told((165, 40), at[1], at[1], at[0], 0, 0),
    "fsopen": told((430, 430), at[0], 0),
    "bpf": told((321, 280), 0, 0, 0),
    "userfaultfd": told((323, 282), 0),
    "perf_event_open": told((298, 241), 0, 0, -1, -1, 0),
    "init_module": told((175, 105), 0, 0, 0),
    "kexec_load": told((246, 104), 0, 0, 0, 0),
}
"""


@pytest.mark.endurance
def test_calls_that_lead_past_a_sandbox_are_denied(python: PythonSandbox) -> None:
    result = python.run(CALLS)

    assert result.error is None, result.error
    assert set(result.value.values()) <= {"EPERM", "ENOSYS"}, result.value


def test_no_socket_leads_out_of_a_virtual_machine(python: PythonSandbox) -> None:
    """Namespaces do not separate such sockets, which could reach the host of the machine."""
    assert python.run("import socket; socket.socket(socket.AF_INET).fileno() > 0").value is True
    error = python.run("socket.socket(socket.AF_VSOCK)").error
    assert error is not None
    assert error.type == "PermissionError"


def test_nothing_tells_of_keys_of_the_machine(python: PythonSandbox) -> None:
    told = python.run("try: text = open('/proc/keys').read()\nexcept OSError: text = ''\ntext")

    assert told.value == ""


def test_a_supervisor_that_was_stopped_is_lost_and_nothing_hangs(
    sandbox: type[Sandbox], tmp_path: Path, limits: Limits
) -> None:
    limits(channel, QUIET=0.5, _ENDING=0.5)
    with opened(BashProvider(), sandbox, tmp_path) as bash:
        try:
            result = bash.run("kill -STOP $(ps -o ppid= -p $PPID); sleep 30", timeout=2)
        except EnvironmentLost:
            assert not bash.healthy
        else:  # the first process of a namespace cannot be stopped from inside
            assert result.timed_out
            assert bash.run("echo here").stdout == "here\n"


@pytest.mark.parametrize(
    "attack",
    [
        "kill -STOP $PPID; echo here",
        "(setsid sh -c 'while :; do kill -STOP $0; done' $PPID &); sleep 977",
        "kill -9 $PPID; sleep 977",
        "kill -TERM $PPID; sleep 977",
        "trap '' TERM INT HUP QUIT; while :; do sleep 977; done",
        "for i in 1 2 3; do setsid setsid sleep 977 </dev/null >/dev/null 2>&1 & done; sleep 977",
        "(trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 977 & sleep 977' &) &); sleep 977",
        "exec 0<&- 1>&- 2>&- 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; setsid sleep 977 & sleep 977",
    ],
)
@pytest.mark.usefixtures("little_grace")
# Shows S31
def test_a_command_that_defends_itself_is_ended_and_leaves_nothing(bash: Bash, attack: str) -> None:
    seconds = 10_000 + os.getpid()  # no other process sleeps for so long
    result = bash.run(attack.replace("977", str(seconds)), timeout=1)

    assert result.timed_out or result.signal == 9, result
    # Orphans of a lost keeper are killed when it is cleaned up, shortly after the result.
    until(lambda: bash.run(f"ps -eo args= | grep -c '[s]leep {seconds}'").stdout == "0\n")


def test_limits_that_code_puts_on_what_starts_commands_hit_no_other(bash: Bash) -> None:
    for limit in ("nofile", "nproc", "data"):
        bash.run(f"prlimit --pid $PPID --{limit}=0:0")
        result = bash.run("echo here")
        assert (result.stdout, result.exit_code) == ("here\n", 0), limit


# Shows S34b
def test_scratch_space_that_is_full_leaves_memory_for_the_sandbox(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    with opened(BashProvider(), sandbox, tmp_path, limits={"memory": "96MiB"}) as bash:
        for place in ("/tmp", "/dev/shm"):
            fill = f"[ -d {place} ] || exit 1; head -c 300M /dev/zero > {place}/big"
            assert bash.run(fill).exit_code != 0, place

        assert bash.run("echo here").stdout == "here\n"


TRACE = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
room = ctypes.create_string_buffer(16)
done = []

def call(numbers, *arguments):
    return libc.syscall(ctypes.c_long(numbers[arm]), *map(ctypes.c_long, arguments))

for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
    if pid == os.getpid():
        continue
    for name, numbers, arguments in (
        ("attach", (101, 117), (16, pid, 0, 0)),
        ("seize", (101, 117), (0x4206, pid, 0, 0)),
    ):
        if call(numbers, *arguments) == 0:
            done.append((name, pid))
    here = (ctypes.c_size_t * 2)(ctypes.addressof(room), 16)
    there = (ctypes.c_size_t * 2)(id(done), 16)
    at = [ctypes.addressof(each) for each in (here, there)]
    if call((310, 270), pid, at[0], 1, at[1], 1, 0) > 0:
        done.append(("read", pid))
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        continue
    for fd in (0, 1, 100, 101, 102):
        if call((438, 438), handle, fd, 0) >= 0:
            done.append(("take", pid, fd))
    os.close(handle)
done
"""


def test_nothing_of_the_supervisor_can_be_traced_read_or_taken(python: PythonSandbox) -> None:
    result = python.run(TRACE)

    assert result.error is None, result.error
    assert result.value == []
    assert python.run("1").value == 1


@pytest.mark.parametrize("number", ["TERM", "INT", "HUP", "QUIT", "USR1", "PIPE", "KILL", "STOP"])
def test_no_signal_from_inside_ends_the_first_process(number: str, bash: Bash) -> None:
    bash.run(f"kill -{number} 1")

    assert bash.run("echo there").stdout == "there\n"


LIMITED = """
import ctypes, resource
libc = ctypes.CDLL(None, use_errno=True)
limit = (ctypes.c_uint64 * 2)(1, 1)
_result = [libc.prlimit(pid, which, limit, None) for pid in (1, 2, 3, 4) for which in (0, 2, 7)]
"""


def test_no_limit_can_be_set_to_the_supervisor(python: PythonSandbox) -> None:
    """The kernel would kill the supervisor for such limits, although it is the first process."""
    assert set(python.run(LIMITED).value) == {-1}
    resource = "import resource; n = resource.RLIMIT_NOFILE"
    own = "resource.setrlimit(n, (64, resource.getrlimit(n)[1])); resource.getrlimit(n)[0]"

    assert python.run(f"{resource}; {own}").value == 64
