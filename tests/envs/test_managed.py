"""Code kinds under the manager: reuse, loss, no fallback, and cleanup after a killed engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentUnavailable
from tests.alive import alive
from tests.envs.containers import skip_without_docker
from tests.execution_environment.toy import until

SPEC = {"kind": "python", "scope": "session", "owner_id": "s"}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[EnvironmentManager]:
    manager = EnvironmentManager(tmp_path / "data")
    yield manager
    manager.close()


@pytest.mark.parametrize(
    "opened",
    [
        {"provider": "namespace", "policy": {"network": "any"}},
        {"provider": "docker", "policy": {"network": "any"}},
        {"provider": "docker", "config": {"network": "bridge"}},
        {"provider": "docker", "config": {"network": "host"}},
    ],
    ids=str,
)
# Shows S46
def test_what_the_spec_itself_opens_is_not_said_to_be_held(
    manager: EnvironmentManager, opened: dict[str, Any]
) -> None:
    if opened["provider"] == "docker":
        skip_without_docker()
    spec = {**SPEC, "kind": "bash", **opened}

    with pytest.raises(EnvironmentUnavailable, match="requires that 'network' is enforced"):
        manager.ensure({**spec, "needs": {"network": True}})
    handle = manager.ensure({**spec, "resource_key": "open"})

    assert "network" not in handle.capabilities.holds
    assert "filesystem" in handle.capabilities.holds
    seen = manager.inspect(handle.id)
    assert seen is not None
    assert "network" not in seen["held"]


# Shows E31
def test_what_is_required_must_be_there(manager: EnvironmentManager, tmp_path: Path) -> None:
    strong = {**SPEC, "needs": {"isolation": "container"}}
    weak = {**SPEC, "resource_key": "weak", "provider": "host", "needs": {"network": True}}

    with pytest.raises(EnvironmentUnavailable, match=r"isolation.*container"):
        manager.ensure(strong)
    with pytest.raises(EnvironmentUnavailable, match="network"):
        manager.ensure(weak)
    assert not list((tmp_path / "data").rglob(".flowengine"))  # created first by a sandbox


@pytest.mark.parametrize(
    ("provider", "isolation"),
    [("namespace", "namespace"), ("docker", "container"), ("host", "none")],
)
# Shows E31
def test_the_isolation_in_force_is_on_the_handle_and_can_be_required(
    manager: EnvironmentManager, provider: str, isolation: str
) -> None:
    if provider == "docker":
        skip_without_docker()
    spec = {**SPEC, "kind": "bash", "provider": provider, "needs": {"isolation": isolation}}

    handle = manager.ensure(spec)

    assert handle.capabilities.isolation == isolation
    assert handle.resource.isolation == isolation
    if isolation != "container":
        strong = {**spec, "resource_key": "other", "needs": {"isolation": "container"}}
        with pytest.raises(EnvironmentUnavailable, match=r"isolation.*container"):
            manager.ensure(strong)


# Shows E103
def test_a_secret_is_in_the_variables_and_nowhere_else(
    manager: EnvironmentManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOKEN", "SEKRET-canary")
    spec = {**SPEC, "kind": "bash", "config": {"env": {"TOKEN": "secret:TOKEN"}}}

    handle = manager.ensure(spec)
    shown = f"{manager.inspect(handle.id)}{manager.list()}{caplog.text}"

    assert handle.resource.run("echo $TOKEN").stdout == "SEKRET-canary\n"
    assert "SEKRET" not in shown
    for pid in os.listdir("/proc"):
        if pid.isdecimal() and int(pid) != os.getpid():
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            assert b"SEKRET-canary" not in line


@pytest.mark.endurance
def test_a_program_that_stopped_its_keeper_is_reaped_when_engine_and_supervisor_are_killed(
    tmp_path: Path,
) -> None:
    program = (
        "import os, signal, sys\n"
        "from flowengine.execution_environment import EnvironmentManager\n"
        "manager = EnvironmentManager(sys.argv[1])\n"
        "spec = {'kind': 'bash', 'provider': 'host', 'scope': 'session', 'owner_id': 's'}\n"
        "bash = manager.ensure(spec).resource\n"
        "def heard(stream, text):\n"
        "    program, child, keeper = text.split()\n"
        "    supervisor = open(f'/proc/{keeper}/stat').read().rpartition(')')[2].split()[1]\n"
        "    print(program, child, keeper, flush=True)\n"
        "    os.kill(int(keeper), signal.SIGSTOP)\n"
        "    os.kill(int(supervisor), signal.SIGKILL)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "script = 'setsid sleep 1000 > /dev/null & echo $$ $! $PPID; sleep 1000'\n"
        "bash.run(script, on_output=heard)\n"
    )
    pids = [int(pid) for pid in killed(program, tmp_path).split()]
    assert len(pids) == 3

    with EnvironmentManager(tmp_path) as manager:
        manager.reap()
        until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.endurance
@pytest.mark.wherever("provider")
@pytest.mark.parametrize("provider", ["namespace", "host"])
def test_what_a_killed_engine_left_is_reaped(tmp_path: Path, provider: str) -> None:
    program = (
        "import os, sys\n"
        "from flowengine.execution_environment import EnvironmentManager\n"
        "manager = EnvironmentManager(sys.argv[1])\n"
        f"spec = {{'kind': 'bash', 'provider': {provider!r}, 'scope': 'session'}}\n"
        "bash = manager.ensure({**spec, 'owner_id': 's'}).resource\n"
        "group = bash.sandbox._group\n"
        "print(*(group.folders if group else ()))\n"
        "def heard(stream, text):\n"
        "    mark = f'FLOWENGINE_ENVIRONMENT={bash.sandbox.request.mark}'.encode()\n"
        "    pids = [p for p in os.listdir('/proc') if p.isdecimal() and mark in environ(p)]\n"
        "    print(*pids, flush=True)\n    os.kill(os.getpid(), 9)\n"
        "def environ(pid):\n"
        "    try: return open(f'/proc/{pid}/environ', 'rb').read()\n"
        "    except OSError: return b''\n"
        "bash.run('setsid sleep 1000 & sleep 0.1; echo begun; sleep 1000', on_output=heard)\n"
    )
    groups, pids = (line.split() for line in killed(program, tmp_path).splitlines())
    assert pids

    with EnvironmentManager(tmp_path) as manager:
        manager.reap()
        until(lambda: not any(alive(int(pid)) for pid in pids))
    assert not [group for group in groups if Path(group).exists()]


def killed(program: str, folder: Path) -> str:
    """Run a program that gets killed in the end, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    return done.stdout


@pytest.mark.parametrize("provider", ["namespace", "docker", "host"])
def test_the_folder_of_a_manager_may_be_relative(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the first example in the docs. Later changes of the working folder have no effect."""
    if provider == "docker":
        skip_without_docker()
    monkeypatch.chdir(tmp_path)
    with EnvironmentManager("data") as manager:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        with manager.use({**SPEC, "provider": provider}) as python:
            python.run("x = 41")
            assert python.run("x + 1").value == 42
            python.put("a.txt", b"here")
        assert (tmp_path / "data").is_dir()
    assert not (tmp_path / "elsewhere" / "data").exists()
