# Shows E65
"""The kind `docker`: commands, each in a separate container."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import (
    EnvironmentLost,
    EnvironmentUnavailable,
    NotAFile,
    PathEscape,
    ValidationError,
)
from flowengine.sdk.environments import background
from flowengine_envs.kinds.docker.containers import Containers
from flowengine_envs.kinds.docker.provider import DockerProvider
from flowengine_envs.sandboxes.docker.daemon import connect
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.host import HostSandbox
from tests.envs.containers import skip_without_docker
from tests.envs.enough import enough
from tests.envs.on_disk import tmp_path_factory  # noqa: F401 - for all tests here
from tests.envs.opening import open_resource, opened, release

SECRET = bytes(range(256))


@pytest.fixture(scope="module", autouse=True)
def _daemon() -> None:
    skip_without_docker()


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    asked: dict[str, Any] = {
        "config": {"env": {"DECLARED": "yes"}},
        "limits": {"time": 60, "memory": "128MiB", "disk": "64MiB", "output": "100kB"},
    }
    folder = tmp_path_factory.mktemp("docker")
    with opened(DockerProvider(), Docker, folder, **asked) as resource:
        yield resource


def of(resource: Containers) -> list[Any]:
    label = f"flowengine.environment={resource.request.id}"
    found: list[Any] = connect().api.containers(all=True, filters={"label": [label]})
    return found


# Shows E62
def test_a_command_runs_and_nothing_of_it_is_left(docker: Containers) -> None:
    result = docker.run(["echo", "hi"])

    assert (result.stdout, result.stderr, result.exit_code) == ("hi\n", "", 0)
    assert result.image == docker.image
    assert docker.image.startswith("sha256:")
    assert of(docker) == []


# Shows E62
def test_files_go_in_and_out_byte_for_byte(docker: Containers, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(SECRET)
    given: dict[str, bytes | Path] = {"in/a b": SECRET, "in/copy": source}
    result = docker.run(["sh", "-c", "cat 'in/a b' in/copy > out.bin; touch in/copy"], files=given)

    assert result.outputs == ["in/copy", "out.bin"]
    assert docker.get("out.bin") == SECRET * 2
    docker.fetch("/workspace/out.bin", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == SECRET * 2
    assert {"in/a b", "out.bin"} <= {entry.path for entry in docker.list(deep=True)}
    docker.put("in/tool", b"#!/bin/sh", 0o750)
    docker.fetch("in/tool", tmp_path / "tool")
    assert (tmp_path / "tool").stat().st_mode & 0o777 == 0o750
    docker.remove("in/tool")
    with pytest.raises(NotAFile):
        docker.get("in/tool")


def test_exit_codes_errors_input_and_variables(docker: Containers) -> None:
    failed = docker.run(["sh", "-c", "echo bad >&2; exit 3"])
    told = docker.run(["sh", "-c", "cat; env"], stdin=b"read\n", env={"GIVEN": "1"})

    assert (failed.exit_code, failed.stderr) == (3, "bad\n")
    assert told.stdout.startswith("read\n")
    names = {line.partition("=")[0] for line in told.stdout.splitlines()[1:]}
    marks = {"PATH", "HOME", "LANG", "HOSTNAME", "PWD", "FLOWENGINE_ENVIRONMENT"}
    assert {"DECLARED", "GIVEN"} <= names
    # The remaining names come from the image.
    assert names - marks - {"DECLARED", "GIVEN"} <= {"PIP_BREAK_SYSTEM_PACKAGES", "_", "SHLVL"}


def test_a_program_that_the_image_has_not(docker: Containers) -> None:
    for name in ("no-such-program", "/bin/no-such-program"):
        result = docker.run([name])
        assert result.exit_code == 127
        assert f"{name}: the image has no such program" in result.stderr


def test_a_timeout_ends_the_container(docker: Containers) -> None:
    seconds = enough(lambda: docker.run(["true"]), least=3)
    result = docker.run(["sh", "-c", "echo begun; sleep 1000"], timeout=seconds)

    assert result.timed_out
    assert (result.stdout, result.exit_code, result.stopped) == ("begun\n", 137, "timeout")
    assert of(docker) == []


def test_cancelling_ends_the_container(docker: Containers) -> None:
    heard = threading.Event()

    async def cancelled() -> None:
        import asyncio

        task = asyncio.ensure_future(
            docker.async_run(["sh", "-c", "echo; sleep 1000"], on_output=lambda *_: heard.set())
        )
        await asyncio.to_thread(heard.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    background().run(cancelled())
    assert of(docker) == []


def test_release_ends_the_container(tmp_path: Path) -> None:
    resource = open_resource(DockerProvider(), Docker, tmp_path)
    heard = threading.Event()
    lost: list[BaseException] = []

    def work() -> None:
        try:
            resource.run(["sh", "-c", "echo; sleep 1000"], on_output=lambda *_: heard.set())
        except EnvironmentLost as error:
            lost.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert heard.wait(60)
    background().run(resource.finish(0.1))
    release(DockerProvider(), resource)
    thread.join(60)

    assert lost
    assert of(resource) == []


def test_much_output_is_cut_and_kept_in_a_file(docker: Containers) -> None:
    size = 5_000_000
    result = docker.run(["sh", "-c", f"echo begin; head -c {size} /dev/zero; echo end"])

    assert result.truncated
    assert len(result.stdout) < 110_000
    assert result.stdout.startswith("begin\n")
    assert result.stdout.endswith("end\n")
    assert result.stdout_file is not None
    assert docker.get(result.stdout_file) == b"begin\n" + bytes(size) + b"end\n"


def test_a_killed_container_is_told(docker: Containers) -> None:
    def heard(*_: str) -> None:
        [box] = of(docker)
        os.kill(connect().api.inspect_container(box["Id"])["State"]["Pid"], signal.SIGKILL)

    result = docker.run(["sh", "-c", "echo; sleep 100"], on_output=heard)
    assert result.exit_code == 137


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "link/passwd"])
def test_paths_stay_in_the_workspace(docker: Containers, path: str) -> None:
    docker.run(["ln", "-sfn", "/etc", "link"])
    with pytest.raises(PathEscape):
        docker.put(path, b"x")
    with pytest.raises((PathEscape, NotAFile)):
        docker.get(path)


def test_what_is_no_command_is_refused(docker: Containers) -> None:
    for wrong in ("echo hi", [], ["a\0b"]):
        with pytest.raises(ValidationError):
            docker.run(wrong)
    with pytest.raises(ValidationError, match="timeout"):
        docker.run(["true"], timeout=-1)


def test_it_runs_in_containers_only(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"containers only\. kind: bash"):
        open_resource(DockerProvider(), HostSandbox, tmp_path, policy={"network": "any"})
