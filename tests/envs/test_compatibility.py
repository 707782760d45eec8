# Shows S13b, S22, S48
"""`DockerConfig`, `DockerEnv`, `LocalEnv`, `with_env`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from pydantic import ValidationError

from flowengine.sdk import EnvironmentStartFailed, EnvironmentUnavailable
from flowengine_envs import DockerConfig, DockerEnv, LocalEnv, run_python_code, with_env
from flowengine_envs.compat.python_envs import LocalConfig
from flowengine_envs.sandboxes.docker.daemon import connect
from flowengine_envs.sandboxes.docker.image import build
from tests.envs.containers import skip_without_docker
from tests.rows import each_row


def make(kind: str, folder: Path, **asked: Any) -> DockerEnv | LocalEnv:
    if kind == "docker":
        skip_without_docker()
        return DockerEnv(DockerConfig(workspace_mount=str(folder), **asked))
    return LocalEnv(LocalConfig(workspace_mount=str(folder), **asked))


@pytest.fixture(params=["docker", "local"], scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def env(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerEnv | LocalEnv]:
    with make(kind, tmp_path_factory.mktemp("env")) as opened:
        yield opened


# Configuration


# Shows S1
def test_defaults() -> None:
    config = DockerConfig()

    assert (config.tcp_port, config.timeout) == (12346, 30)
    assert (config.workspace_mount, config.platform) == ("./workspace", "linux/amd64")
    assert (config.pull_policy, config.gpus, config.network) == ("missing", None, None)
    assert LocalConfig().timeout == 30


@each_row(
    ("field", "value"),
    [
        ("no_such", 1),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", float("nan")),
        ("tcp_port", 70000),
        ("pull_policy", "sometimes"),
        ("workspace_mount", "/"),
        ("workspace_mount", "~"),
        ("workspace_mount", "/run"),
    ],
)
# Shows S1, S45
def test_a_wrong_value_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        DockerConfig(**{field: value})


# Shows S2, S46b
def test_making_one_contacts_nothing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/absent.sock")
    env = DockerEnv()

    marker = folder / "workspace" / "marker"
    with pytest.raises(EnvironmentUnavailable, match="no Docker daemon"):
        env.init_container()
    with pytest.raises(EnvironmentUnavailable, match="no Docker daemon"):
        env.execute_code(f"open({str(marker)!r}, 'w')")
    assert not marker.exists()
    env.close()


# Shows S5
def test_what_is_asked_for_reaches_the_daemon_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_docker()
    tag = build(connect())
    asked: list[dict[str, Any]] = []

    def recorded(image: str, *_: Any, **settings: Any) -> None:
        asked.append({"image": image, **settings})
        raise APIError("recorded")

    monkeypatch.setattr(connect().api, "create_container", recorded)
    more = {"image": tag, "platform": "linux/arm64", "gpus": "all", "network": "host"}
    for config in (more, {"image": tag}, {}):
        env = make("docker", tmp_path, **config)
        with pytest.raises(EnvironmentStartFailed, match="recorded"):
            env.init_container()
        env.close()

    rich, plain, default = asked
    assert (rich["image"], rich["platform"]) == (tag, "linux/arm64")
    assert rich["host_config"]["NetworkMode"] == "host"
    [devices] = rich["host_config"]["DeviceRequests"]
    assert (devices["Count"], devices["Capabilities"]) == (-1, [["gpu"]])
    assert (plain["image"], plain["platform"]) == (tag, "linux/amd64")
    assert (default["image"], default["platform"]) == (tag, None)
    for each in (plain, default):
        assert each["host_config"]["NetworkMode"] == "none"
        assert not each["host_config"].get("DeviceRequests")


# Code


@pytest.mark.wherever("kind")
def test_a_command_gives_its_exit_code_and_all_that_it_printed(env: DockerEnv | LocalEnv) -> None:
    heard: list[str] = []
    done = env.run_command("echo one; echo two >&2; echo $HOME > home; exit 3", heard.append)

    assert done == {"status": 3, "result": "one\ntwo\n"}
    assert "".join(heard) == done["result"]
    assert env.run_command("test -s home && python3 -c 'print(6 * 7)'")["result"] == "42\n"
    again = asyncio.run(env.async_run_command("sleep 1000", timeout=0.5))
    assert again["status"] != 0
    assert "0.5" in again["result"]
    assert env.execute_code("open('home').read() != ''").result == "True"


# Shows S3
def test_both_sides_see_the_workspace(env: DockerEnv | LocalEnv) -> None:
    folder = env.resource.workspace
    (folder / "from_host").write_text("1")
    assert env.execute_code("open('from_host').read()").result == "1"
    env.execute_code("open('from_inside', 'w').write('2')")
    assert (folder / "from_inside").read_text() == "2"


# Shows S45
def test_a_folder_that_is_not_there_is_made_for_the_caller(kind: str, tmp_path: Path) -> None:
    absent = tmp_path / "not" / "there"
    with make(kind, absent) as env:
        env.execute_code("open('made', 'w').close()")

    for path in (absent.parent, absent, absent / "made"):
        assert (path.stat().st_uid, path.stat().st_gid) == (os.getuid(), os.getgid())


# Shows S10
def test_a_lost_sandbox_is_opened_anew_and_that_is_told(kind: str, tmp_path: Path) -> None:
    env = make(kind, tmp_path)
    env.execute_code("x = 1")
    if kind == "docker":
        connect().api.kill(f"flowengine-{env.resource.sandbox.request.id}")
    else:
        os.kill(env.resource._channel._program.pid, signal.SIGKILL)
    until(lambda: not env.resource.healthy)
    told = env.execute_code("x")
    env.close()

    assert told.result.startswith("Error: NameError")
    assert told.stderr.startswith("the sandbox was lost and reopened: earlier names are gone\n")
    assert env.generation == 2


# Shows S46b
def test_local_warns_at_each_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with make("local", tmp_path):
                pass
    told = [record.getMessage() for record in caplog.records]
    assert len([text for text in told if "LocalEnv" in text and "without a sandbox" in text]) == 2


# Tools


@pytest.mark.wherever("kind")
def test_the_tool_gives_output_and_errors(env: DockerEnv | LocalEnv) -> None:
    def run(code: str) -> Any:
        return run_python_code(code, context_variables={"code_env": env})  # type: ignore[call-arg]

    assert run("print('a')") == "a\n"
    assert run("import sys; print('a'); print('b', file=sys.stderr)") == "a\nSTDERR:\nb\n"
    assert run("print('a', end=''); 42") == "a\n42"
    assert run("_result = {'b': 1}") == "{'b': 1}"
    assert list(inspect.signature(run_python_code).parameters) == ["code", "timeout"]


CAUSES = {
    "import os; print('a'); os._exit(7)": ("a\n", "Error: Crashed", "exit code 7"),
    "import time; print('a'); time.sleep(60)": ("a\n", "Error: Timeout", "longer than 4 s"),
    "x = bytearray(2**32)": ("Error: ", "limits.memory is 256 MiB"),
    "1 / 0": ("Error: ZeroDivisionError: division by zero", "line 1"),
}


@pytest.mark.wherever("kind")
@pytest.mark.parametrize("code", CAUSES)
def test_the_tool_says_why_there_is_no_result(env: Any, tmp_path: Path, code: str) -> None:
    kind = "docker" if isinstance(env, DockerEnv) else "local"
    seconds = 4 if "sleep" in code else 300  # the other causes may take long on a busy machine
    with make(kind, tmp_path, timeout=seconds, limits={"memory": "256MiB"}) as limited:
        run: Any = run_python_code
        told = run(code, context_variables={"code_env": limited})

    for part in CAUSES[code]:
        assert part in told


def test_a_tool_gets_its_environment_and_hides_it() -> None:
    @with_env("code_env")
    def tool(a: int, env: Any, b: int = 2) -> Any:
        """Do something."""
        return a, b, env

    call: Any = tool
    assert call(1, b=3, context_variables={"code_env": "E"}) == (1, 3, "E")
    assert (call.__name__, call.__doc__) == ("tool", "Do something.")
    assert list(inspect.signature(call).parameters) == ["a", "b"]
    assert set(call.__annotations__) == {"a", "b", "return"}


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.01)
