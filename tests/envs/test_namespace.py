# Shows E114, S34
"""The namespace sandbox: isolation, limits, and support for ordinary users."""

from __future__ import annotations

import errno
import os
import platform
import resource
import shutil
import socket
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import EnvironmentStartFailed, EnvironmentUnavailable
from flowengine_envs.kinds.bash import Bash, BashProvider
from flowengine_envs.kinds.node import NodeProvider
from flowengine_envs.kinds.python import Python
from flowengine_envs.sandboxes import namespace, processes, syscalls
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.namespace import Namespace
from tests.envs.opening import open_resource, opened
from tests.envs.users import as_ordinary_user
from tests.replacing import Limits

if not processes.has("bwrap"):
    pytest.skip("no bubblewrap: apt-get install bubblewrap", allow_module_level=True)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with opened(BashProvider(), Namespace, tmp_path_factory.mktemp("box")) as bash:
        yield bash


def test_it_has_no_rights_and_can_gain_none(box: Bash) -> None:
    status = box.run("id -u; cat /proc/self/status").stdout

    assert status.startswith("1000\n")
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in status
    assert box.run("unshare -r true").exit_code != 0
    assert box.run("su -c true; mount -t tmpfs x /tmp").exit_code != 0


def test_only_workspace_and_scratch_can_be_written(box: Bash) -> None:
    for place in (
        "/etc/x",
        "/usr/x",
        "/x",
        "/dev/x",
        "/proc/sys/kernel/ns_last_pid",
        "/etc/passwd",
    ):
        assert box.run(f"echo x > {place}").exit_code != 0, place
    for place in ("/workspace/x", "/tmp/x", "/dev/shm/x", "~/x"):
        assert box.run(f"echo x > {place}").exit_code == 0, place
    writable = box.run("find / -xdev -type d -writable -not -path '/proc/*' 2>/dev/null").stdout
    assert sorted(writable.split()) == ["/home/flow", "/tmp", "/workspace"]
    outside_of_processes = "/proc -not -path '/proc/[0-9]*' -not -path '/proc/self/*'"
    for test in ("-type f -writable", "-type d -writable"):
        assert box.run(f"find {outside_of_processes} {test} 2>/dev/null").stdout == "", test


def test_nothing_of_the_host_is_there(box: Bash, tmp_path: Path) -> None:
    seen = box.run("ls -A / /etc; ls /proc | grep -c '^[0-9]'; hostname; cat /etc/passwd").stdout

    assert "/root" not in box.run("ls -d /root /home /var /run /sys /boot 2>/dev/null").stdout
    assert socket.gethostname() not in seen
    assert "shadow" not in seen
    assert box.run("cat /proc/1/cmdline | tr '\\0' ' ' | head -c 8").stdout == "python3 "
    assert box.run(["ls", str(tmp_path)]).exit_code != 0
    assert box.run("ls /etc/ssl/private /etc/sudoers /etc/ssh").exit_code != 0


# Shows S25
def test_the_first_process_cannot_be_killed_traced_or_read(box: Bash) -> None:
    assert box.run("kill -9 1; kill -STOP 1; sleep 0.1; echo here").stdout == "here\n"
    for name in ("mem", "environ", "fd/0", "fd/100", "fd/101", "maps"):
        assert box.run(f"head -c 1 /proc/1/{name}").exit_code != 0, name
    trace = "import ctypes; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0))"
    assert box.run(["python3", "-c", trace]).stdout == "-1\n"
    assert box.run("echo still").stdout == "still\n"


def test_killing_all_one_can_loses_one_call(box: Bash) -> None:
    killed = box.run("kill -9 -1; sleep 5")

    assert killed.exit_code == 137
    assert box.run("echo still").stdout == "still\n"


def test_there_is_no_network_unless_declared(tmp_path: Path) -> None:
    connect = (
        "import socket, sys\n"
        "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 2); print('reached')\n"
        "except OSError as error: print(type(error).__name__)"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])

        def accept() -> None:
            server.accept()[0].close()

        threading.Thread(target=accept, daemon=True).start()
        with opened(BashProvider(), Namespace, tmp_path) as bash:
            for host in ("127.0.0.1", "8.8.8.8", "::1", "example.org"):
                assert "reached" not in bash.run(["python3", "-c", connect, host, port]).stdout
            assert bash.run("cat /proc/net/dev | wc -l").stdout == "3\n"  # a heading, and loopback
        with opened(BashProvider(), Namespace, tmp_path, policy={"network": "any"}) as bash:
            assert bash.run(["python3", "-c", connect, "127.0.0.1", port]).stdout == "reached\n"


def abstract_server(named: str) -> socket.socket:
    """Listen on an abstract socket, like system services that identify peers through the kernel."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"\0{named}")
    server.listen()
    return server


CONNECT = """
import socket, sys
for _ in range(2):
    try:
        socket.socket(socket.AF_UNIX).connect(chr(0) + sys.argv[1])
        print("reached")
    except OSError as error:
        print(type(error).__name__)
        own = socket.socket(socket.AF_UNIX)
        own.bind(chr(0) + sys.argv[1] + "own")
        own.listen()
        sys.argv[1] += "own"
"""


@pytest.mark.skipif(not syscalls.keeps_sockets_apart(), reason="Linux is older than 6.12")
def test_no_server_outside_sees_a_peer_on_an_abstract_socket(tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    with abstract_server(name):
        for network in ("none", "any"):
            policy = {"network": network}
            with opened(BashProvider(), Namespace, tmp_path, policy=policy) as bash:
                told = bash.run(["python3", "-c", CONNECT, name]).stdout.split()
                # Abstract sockets inside the sandbox work as usual.
                assert told[-1] == "reached", told
                assert told[0] in {"PermissionError", "ConnectionRefusedError"}


def test_where_abstract_sockets_are_not_kept_apart_root_is_refused_and_others_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(syscalls, "keeps_sockets_apart", lambda: False)
    asked = {"policy": {"network": "any"}}
    if os.getuid() == 0:
        with pytest.raises(EnvironmentUnavailable, match=r"root to servers .*provider: docker"):
            open_resource(BashProvider(), Namespace, tmp_path, **asked)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with opened(BashProvider(), Namespace, tmp_path, **asked) as bash:
        assert bash.run("echo on").stdout == "on\n"
    assert "abstract sockets of this machine, as its user" in caplog.text


def test_groups_and_processes_are_gone_afterwards(tmp_path: Path) -> None:
    with opened(BashProvider(), Namespace, tmp_path) as bash:
        facts = bash.sandbox.request.trace.facts
        bash.run("setsid sleep 1000 & true")

    assert facts["pids"]
    assert not [pid for pid in facts["pids"] if Path(f"/proc/{pid}").exists()]
    assert not [folder for folder in facts.get("groups", ()) if Path(folder).exists()]


# Where it is unavailable


def test_without_bubblewrap_it_is_refused_with_the_alternatives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PATH", "/nowhere")
    monkeypatch.setattr(namespace, "PATH", "/nowhere")
    monkeypatch.setattr(namespace, "has", lambda program: True)

    with pytest.raises(EnvironmentUnavailable) as error:
        open_resource(Python(), Namespace, tmp_path)

    for words in ("apt-get install bubblewrap", "provider: docker", "provider: host"):
        assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_forbids_namespaces_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "bwrap"
    stand_in.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(namespace, "_bwrap", lambda: str(stand_in))

    with pytest.raises(EnvironmentUnavailable) as error:
        open_resource(Python(), Namespace, tmp_path)

    assert "No permissions to create a new namespace" in str(error.value)
    assert "provider: docker" in str(error.value)


# Users for whom it works


def fails_at_first(tmp_path: Path, times: int, message: str) -> str:
    """Return a bubblewrap whose first runs fail with a message."""
    stand_in = tmp_path / "bwrap"
    stand_in.write_text(
        f"""#!/bin/sh
failed=$(wc -l < {tmp_path}/failed)
[ $failed -ge {times} -o "$1" = --help ] && exec {shutil.which("bwrap")} "$@"
echo >> {tmp_path}/failed
echo 'bwrap: {message}' >&2
exit 1
"""
    )
    stand_in.chmod(0o755)
    (tmp_path / "failed").touch()
    (tmp_path / "work").mkdir()
    return str(stand_in)


def test_it_starts_where_it_takes_longer_than_is_waited_for_the_namespace_around_it(
    tmp_path: Path, limits: Limits
) -> None:
    (tmp_path / "work").mkdir()
    with opened(BashProvider(), Namespace, tmp_path / "work"):
        pass  # the check has run, and its result is stored
    limits(namespace, _TRIAL=0)

    with opened(BashProvider(), Namespace, tmp_path / "work") as bash:
        result = bash.run("echo here")
    assert result.stdout == "here\n", result


@pytest.mark.parametrize("message", ["Unable to apply mount flags: x", "No such file: y"])
def test_one_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    bwrap = fails_at_first(tmp_path, 99, message)
    monkeypatch.setattr(namespace, "_bwrap", lambda: bwrap)
    monkeypatch.setitem(namespace._works, (bwrap, os.getuid(), False), True)  # checked before

    with (
        pytest.raises(EnvironmentStartFailed, match=f"bubblewrap did not start: bwrap: {message}"),
        opened(BashProvider(), Namespace, tmp_path / "work"),
    ):
        pass
    tries = (tmp_path / "failed").read_text().count("\n")
    assert tries == (5 if "flags" in message else 1)


def everything(folder: Path) -> dict[str, Any]:
    """Return results of an ordinary user's sandboxes: three kinds, limits, and isolation."""
    told: dict[str, Any] = {}
    (folder / "work").mkdir()
    limits = {"memory": "256MiB", "processes": 40}
    with opened(Python(), Namespace, folder / "work", limits=limits) as python:
        told["value"] = python.run("1 + 1").value
        told["uid"] = python.run("import os; open('made', 'w'); os.getuid()").value
        told["memory"] = str(python.run("x = b'x' * (1 << 30)").error)
        told["after"] = python.run("2").value
    with opened(BashProvider(), Namespace, folder / "work", limits=limits) as bash:
        told["bash"] = bash.run("echo hi").stdout
        bomb = bash.run("bomb() { bomb | bomb & }; bomb; sleep 1", timeout=2)
        told["bomb"] = bomb.duration < 60
        told["still"] = bash.run("echo still").stdout
        told["etc"] = bash.run("echo x > /etc/x").exit_code
    with opened(NodeProvider(), Namespace, folder / "work") as node:
        told["node"] = node.run("return 3").value
    with opened(Python(), HostSandbox, folder / "work") as python:
        key = (
            "import os\nfound = []\nfor pid in os.listdir('/proc'):\n"
            "    if pid.isdecimal() and int(pid) in (os.getppid(), supervisor):\n"
            "        for name in ('mem', 'environ', 'fd/0', 'fd/100'):\n"
            "            try: open(f'/proc/{pid}/{name}', 'rb').read(1); found.append(name)\n"
            "            except OSError: pass\nfound"
        )
        pid = python.sandbox.request.trace.facts["pids"][0]
        told["key"] = python.run(f"supervisor = {pid}\n{key}").value
    told["owner"] = os.stat(folder / "work" / "made").st_uid
    return told


@pytest.mark.endurance
def test_as_an_ordinary_user() -> None:
    with_all_loaded = NodeProvider()
    with_all_loaded.config_model()

    told = as_ordinary_user(everything)

    user = 65534 if os.getuid() == 0 else os.getuid()
    assert told == {
        **{"value": 2, "uid": 1000, "after": 2, "bash": "hi\n", "bomb": True, "still": "still\n"},
        **{"etc": 1, "node": 3, "key": [], "owner": user, "memory": told["memory"]},
    }
    assert "out of memory: limits.memory is 256 MiB" in told["memory"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="32-bit calls are of x86_64")
def test_no_other_way_of_calling_passes_the_filter(tmp_path: Path) -> None:
    code = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
short = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(ctypes.c_long(0x40000000 + 39))
_result = [short, ctypes.get_errno()]
"""
    with opened(Python(), Namespace, tmp_path) as python:
        result = python.run(code)

    assert result.value == [-errno.ENOSYS, errno.ENOSYS], result


NEW_CALLS = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)

def told(number):
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6)
    return "done" if done >= 0 else errno.errorcode[ctypes.get_errno()]

def opened(family, kind, protocol=0, make=socket.socket):
    try:
        made = make(family, kind, protocol)
    except OSError as error:
        return errno.errorcode[error.errno]
    for each in made if isinstance(made, tuple) else [made]:
        each.close()
    return "open"

families = {"unix": 1, "inet": 2, "inet6": 10}
_result = {
    "denied": {told(number) for number in (447, 457, 458, 467)},
    "unknown": {told(number) for number in (470, 600, 10_000)},
    "open": {opened(family, socket.SOCK_STREAM) for family in families.values()}
    | {opened(1, socket.SOCK_STREAM, make=socket.socketpair), opened(16, socket.SOCK_RAW)},
    "netlink": {opened(16, socket.SOCK_RAW, number) for number in (4, 6, 9, 12, 15, 16)},
    "others": {opened(family, 5) for family in (9, 21, 30, 38, 40, 44)},
    "pairs": opened(30, 5, make=socket.socketpair),
}
_result = {name: sorted(told) if isinstance(told, set) else told for name, told in _result.items()}
"""


def test_calls_and_sockets_that_are_on_no_list_are_denied(tmp_path: Path) -> None:
    """`memfd_secret`, `statmount`, `listmount`, `open_tree_attr`, and future system calls."""
    with opened(Python(), Namespace, tmp_path) as python:
        result = python.run(NEW_CALLS)

    assert result.value == {
        "denied": ["EPERM"],
        "unknown": ["ENOSYS"],
        "open": ["open"],
        "netlink": ["EPERM"],
        "others": ["EPERM"],
        "pairs": "EPERM",
    }, result


INOTIFY = """
import ctypes
libc, made = ctypes.CDLL(None), 0
while made < 100_000 and libc.inotify_init1(0) >= 0:
    made += 1
made
"""


def test_what_the_kernel_counts_by_user_is_shared_out(tmp_path: Path) -> None:
    """A sandbox that takes all it can must leave most to others and to the machine."""
    for name in ("greedy", "other"):
        (tmp_path / name).mkdir()
    there = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    with (
        opened(Python(), Namespace, tmp_path / "greedy") as greedy,
        opened(Python(), Namespace, tmp_path / "other") as other,
    ):
        taken = greedy.run(INOTIFY).value
        left = other.run(INOTIFY.replace("100_000", "1")).value
        signals = "import resource; resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]"
        held = greedy.run(signals).value

    assert 0 < taken <= there // 8
    assert left == 1
    assert 0 < held <= resource.getrlimit(resource.RLIMIT_SIGPENDING)[0] // 8
