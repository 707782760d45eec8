# Shows E100b
"""Each limit is enforced in each sandbox, errors name it, and the sandbox stays usable (E100)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowengine import Engine
from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentUnavailable, LimitExceeded
from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.bash import Bash, BashProvider
from flowengine_envs.kinds.docker.provider import DockerProvider
from flowengine_envs.kinds.python import Python
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.sandboxes import cgroups
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import cpus, has
from tests.envs.containers import skip_without_docker
from tests.envs.on_disk import tmp_path_factory  # noqa: F401 - for all tests here
from tests.envs.opening import opened

LIMITS: dict[str, Any] = {
    **{"memory": "256MiB", "processes": 24, "cpus": 0.5, "disk": "8MiB"},
    **{"time": 60, "output": "10kB"},
}
FORKS = """
import os, time
children = []
try:
    for _ in range(100):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os.kill(os.getpid(), 9)
        children.append(child)
except OSError as error:
    print(error)
finally:
    for child in children:
        os.kill(child, 9)
"""
BREACHES = {
    "memory": ("x = bytearray(2**31)", ("out of memory: limits.memory is 256 MiB", "MemoryError")),
    "processes": (FORKS, ("limits.processes is 24",)),
    "disk": ("while True:\n    open('big', 'ab').write(bytes(1 << 20))", ("limits.disk is 8 MiB",)),
}


def skip_without_bubblewrap() -> None:
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")


@pytest.fixture(scope="module")
def limited(sandbox: type[Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bash]:
    folder = tmp_path_factory.mktemp("limited")
    with opened(BashProvider(), sandbox, folder, limits=LIMITS) as bash:
        yield bash


@pytest.mark.endurance
@pytest.mark.parametrize("limit", BREACHES)
# Shows S34b
def test_a_breach_is_named_and_the_sandbox_goes_on(limited: Bash, limit: str) -> None:
    code, messages = BREACHES[limit]
    result = limited.run(["python3", "-c", code])

    assert any(message in result.stderr for message in messages), result
    assert limited.run("rm -f big; echo usable").stdout == "usable\n"


@pytest.mark.endurance
@pytest.mark.parametrize("limit", BREACHES)
def test_a_breach_of_python_is_named_and_it_goes_on(
    sandbox: type[Sandbox], tmp_path: Path, limit: str
) -> None:
    code, messages = BREACHES[limit]
    with opened(Python(), sandbox, tmp_path, limits=LIMITS) as python:
        result = python.run(code)
        said = f"{result.stderr}{result.error}"
        assert any(message in said for message in messages), result
        assert python.run("import os; os.path.exists('big') and os.remove('big'); 1").value == 1


@pytest.mark.endurance
def test_a_bound_of_time_that_the_spec_sets_is_named(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    with opened(Python(), sandbox, tmp_path, limits={"time": 0.5}) as python:
        result = python.run("while True: pass", timeout=9)
    with opened(BashProvider(), sandbox, tmp_path, limits={"time": 0.5}) as bash:
        told = bash.run("sleep 60").stderr

    assert "it took longer than 0.5 s (limits.time)" in str(result.error)
    assert told == "it took longer than 0.5 s (limits.time) and was stopped\n"


@pytest.mark.endurance
@pytest.mark.parametrize("provider", ["host", "namespace"])
def test_memory_that_only_each_process_is_held_to_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    """E101: as for an ordinary user, who cannot create control groups."""
    if provider == "namespace":
        skip_without_bubblewrap()
    monkeypatch.setattr(cgroups, "tree", lambda: None)
    spec = {"kind": "bash", "provider": provider, "scope": "session", "owner_id": "s"}
    with EnvironmentManager(tmp_path / "data") as manager:
        with pytest.raises(EnvironmentUnavailable, match=r"limits\.memory .*best_effort"):
            manager.ensure({**spec, "limits": {"memory": "300MiB"}})
        limits = {"memory": "300MiB", "best_effort": True}
        handle = manager.ensure({**spec, "limits": limits})
        plain = manager.ensure(spec)
        assert handle.unenforced == ["memory"]
        assert "memory" not in handle.capabilities.holds
        assert "memory" not in (manager.inspect(plain.id) or {})["limits"]
        told = handle.resource.run(["python3", "-c", "x = bytearray(2**30)"])
        assert "MemoryError" in told.stderr


def test_the_time_of_all_calls_is_named(sandbox: type[Sandbox], tmp_path: Path) -> None:
    with opened(BashProvider(), sandbox, tmp_path, limits={"total_time": 0.5}) as bash:
        assert bash.run("sleep 60").timed_out
        with pytest.raises(LimitExceeded, match=r"total_time is 0\.5 s"):
            bash.run("true")


def test_processor_time_is_shared_out(limited: Bash) -> None:
    """With half a CPU, a busy loop gets about half of the elapsed time."""
    code = (
        "import time\n"
        "began = time.monotonic()\n"
        "while time.process_time() < 0.5: pass\n"
        "print(time.monotonic() - began)\n"
    )
    assert float(limited.run(["python3", "-c", code]).stdout) > 0.8


def test_a_container_of_a_command_names_its_limits(tmp_path: Path) -> None:
    skip_without_docker()
    with opened(DockerProvider(), Docker, tmp_path, limits=LIMITS) as docker:
        for limit in ("memory", "disk"):
            code, messages = BREACHES[limit]
            result = docker.run(["python3", "-c", code])
            assert any(message in result.stderr for message in messages), result
            assert docker.run(["sh", "-c", "sleep 0.5; rm -f big"]).exit_code == 0
        forks = docker.run(["python3", "-c", FORKS])
        assert "Resource temporarily unavailable" in forks.stdout
        assert "could not be started: limits.processes is 24" in forks.stderr
        assert docker.run(["echo", "usable"]).stdout == "usable\n"


# Shows E7
def test_what_is_in_force_is_told_also_where_the_spec_says_nothing(tmp_path: Path) -> None:
    """E7."""
    with EnvironmentManager(tmp_path / "data") as manager:
        said = manager.ensure({"kind": "python", "limits": {"memory": "1GiB"}})
        database = manager.ensure({"kind": "sqlite", "config": {"path": ":memory:"}})
        limits = {
            handle.kind: (manager.inspect(handle.id) or {})["limits"] for handle in (said, database)
        }
        held = said.capabilities.holds

    assert limits["python"].pop("processes", None) == (512 if "processes" in held else None)
    assert limits["python"].pop("cpus", None) == (cpus() if "cpus" in held else None)
    kept = {"disk": 10 * 2**30, "output": 100_000}
    assert limits["python"] == {"memory": 2**30, **kept, "best_effort": False}
    assert limits["sqlite"] == {"time": 30, "output": 16 * 2**20, "best_effort": False}


# Shows S46
def test_what_this_machine_cannot_hold_is_refused_or_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine where this user cannot create control groups."""
    monkeypatch.setattr(cgroups, "tree", lambda: None)
    spec = {"kind": "bash", "provider": "host", "scope": "session", "owner_id": "s"}
    with EnvironmentManager(tmp_path / "data") as manager:
        with pytest.raises(EnvironmentUnavailable, match=r"limits\.cpus .*'host'.*best_effort"):
            manager.ensure({**spec, "limits": {"cpus": 0.5}})
        handle = manager.ensure({**spec, "limits": {"cpus": 0.5, "best_effort": True}})
        assert handle.unenforced == ["cpus"]
        assert handle.resource.run("echo hi").stdout == "hi\n"


def test_refusals_are_counted_in_both_versions(tmp_path: Path) -> None:
    for version in (1, 2):
        folder = tmp_path / str(version)
        folder.mkdir()
        group = cgroups.Group(cgroups.CgroupTree(version, {"pids": folder}), "box")
        group.make(None, 5)
        assert cgroups.refused_processes(group.by_controller) == 0
        (folder / "box" / "pids.events").write_text("max 3\n")
        assert cgroups.refused_processes(group.by_controller) == 3


FILL = "open('big', 'wb').write(bytes(8 << 20))"
STEPS = {
    "bash": ("sleep 60", "python3 -c 'bytearray(400 << 20)'", f'python3 -c "{FILL}"'),
    "shell": ("sleep 60", "python3 -c 'bytearray(400 << 20)'", f'python3 -c "{FILL}"'),
    "python": ("import time; time.sleep(60)", "bytearray(400 << 20)", FILL),
    "node": (
        "while (true) {}",
        "const a = []; while (true) a.push(new Array(1e6).fill(1.5))",
        "require('fs').writeFileSync('big', Buffer.alloc(8 << 20))",
    ),
}
TYPES = {"time": "Timeout", "memory": "OutOfMemory", "disk": "LimitExceeded"}
BOUNDS: dict[str, dict[str, Any]] = {
    "time": {"time": 1},
    "memory": {"time": 60, "memory": "200MiB"},
    "disk": {"time": 60, "disk": "4MiB"},
}


@pytest.mark.endurance
@pytest.mark.wherever("kind")
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("limit", TYPES)
def test_a_limit_has_an_error_that_handlers_catch_by_its_type(
    kind: str, limit: str, folder: Path
) -> None:
    skip_without_bubblewrap()
    if "memory" not in Namespace.capabilities().holds:
        pytest.skip("no control group can be made")
    if not has({"shell": "tmux", "node": "node"}.get(kind, "python3")):
        pytest.skip(f"no program for {kind}")
    script = STEPS[kind][[*TYPES].index(limit)]
    caught = "${{ error.message.contains('limits.disk') }}" if limit == "disk" else "caught"
    flow = {
        "flowengine": 1,
        "id": "it",
        "environments": {"box": {"kind": kind, "limits": BOUNDS[limit]}},
        "steps": [
            {
                "id": "a",
                "in": "box",
                "run": script,
                "on_error": [{"type": TYPES[limit], "output": caught}],
            },
            {"id": "b", "in": "box", "run": {"script": script, "accept": "any"}},
        ],
        "outputs": {"a": "${{ steps.a.output }}", "b": "${{ steps.b.output.limit }}"},
    }
    Path("it.yaml").write_text(yaml.safe_dump(flow, sort_keys=False))
    with Engine("store") as engine:
        result = engine.run("it.yaml")

    assert result.outputs == {"a": limit == "disk" or "caught", "b": limit}, result


OWN_ERRORS = """
class LimitExceeded(Exception): pass

def wrapped():
    try:
        open("big", "wb").write(bytes(8 << 20))
    except OSError as error:
        raise ValueError("not saved") from error

def handled():
    try:
        open("big", "wb").write(bytes(8 << 20))
    except OSError:
        pass
    raise OSError("no")
"""


def test_only_errors_of_a_full_file_count_as_the_disk_limit(tmp_path: Path) -> None:
    """The kernel signals a refused extension of a file. Code cannot do so by accident."""
    with opened(Python(), HostSandbox, tmp_path, limits={"disk": "4MiB"}) as python:
        python.run(OWN_ERRORS)
        own = [
            python.run(f"raise {error}")
            for error in ("LimitExceeded('full')", "OSError(27, 'File too large')", "OSError('x')")
        ]
        wrapped, handled = python.run("wrapped()"), python.run("handled()")

    assert [result.limit for result in (*own, handled)] == [None] * 4
    assert [result.error.type for result in own] == ["LimitExceeded", "OSError", "OSError"]
    assert (wrapped.limit, wrapped.error.type) == ("disk", "LimitExceeded")
    assert "ValueError: not saved" in wrapped.error.message
    assert "limits.disk" in wrapped.error.message


@pytest.mark.endurance
def test_a_shell_says_which_limit_ended_a_command(tmp_path: Path) -> None:
    skip_without_bubblewrap()
    if "memory" not in Namespace.capabilities().holds or not has("tmux"):
        pytest.skip("no control group can be made, or no tmux")
    hog = "python3 -c 'bytearray(400 << 20)'"
    with opened(ShellProvider(), Namespace, tmp_path, limits={"memory": "200MiB"}) as shell:
        killed = shell.run(f"{hog}; (exit $?)")
        handled = shell.run(f"{hog} || true")
        slow = shell.run("sleep 60", timeout=0.5)
        well = shell.run("true")

    assert (killed.exit_code, killed.limit) == (137, "memory")
    assert killed.notes == ["out of memory: limits.memory is 200 MiB"]
    assert (handled.exit_code, handled.limit, handled.notes) == (0, None, killed.notes)
    assert slow.limit == "time"
    assert slow.notes == ["it took longer than 0.5 s (its timeout) and was stopped"]
    assert (well.limit, well.notes) == (None, [])
