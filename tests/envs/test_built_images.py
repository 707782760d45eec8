# Shows S4b
"""Images that the docker sandbox builds from the user's Dockerfile."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flowengine.execution_environment import EnvironmentManager, TimeBounds
from flowengine.sdk import EnvironmentStartFailed, EnvironmentUnavailable, ImageUnavailable, Refused
from flowengine.sdk.environments import Spec, background
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.kinds.python import Python
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.sandboxes.docker import accounts, building, image
from flowengine_envs.sandboxes.docker.accounts import user
from flowengine_envs.sandboxes.docker.building import Container
from flowengine_envs.sandboxes.docker.daemon import connect
from flowengine_envs.sandboxes.docker.sandbox import Docker
from tests.envs.containers import skip_without_docker
from tests.envs.enough import enough
from tests.envs.opening import open_resource, opened, request_for
from tests.replacing import Limits


@pytest.fixture(scope="module", autouse=True)
def _daemon() -> None:
    skip_without_docker()


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a Dockerfile that has never been built. Images built from it are removed."""
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "data.txt").write_text(uuid.uuid4().hex)
    write(folder, "COPY data.txt /opt/data.txt")
    built: set[str] = set()  # other tests build at the same time, so the daemon cannot tell
    real = building._build

    async def noted(spec: Spec, build: Any, tag: str, *rest: Any, **more: Any) -> None:
        await real(spec, build, tag, *rest, **more)
        built.add(tag)

    monkeypatch.setattr(building, "_build", noted)
    yield folder
    for tag in built & tags():
        connect().images.remove(tag, force=True)


def write(folder: Path, *lines: str) -> None:
    base = image.description().tag
    (folder / "Dockerfile").write_text("\n".join([f"FROM {base}", *lines, ""]))


def tags() -> set[str]:
    # `images.list` would query each image again, and other tests remove theirs.
    found = connect().api.images(building.REPOSITORY)
    return {tag for each in found for tag in each["RepoTags"] or ()}


def build(folder: Path, **more: Any) -> str:
    config = {"image": {"build": str(folder), **more.pop("image", {})}, **more}
    request = request_for(Python(), Docker, folder, config=config)
    tag = background().run(building.built(request.spec), "built()")
    assert tag is not None
    return tag


def test_a_python_sandbox_runs_in_it(context: Path, tmp_path: Path) -> None:
    write(context, "COPY data.txt /opt/data.txt", "RUN echo made > /opt/made.txt")
    workspace = tmp_path / "work"
    workspace.mkdir()
    with opened(Python(), Docker, workspace, config={"image": {"build": str(context)}}) as python:
        told = python.run("[open(f'/opt/{n}.txt').read() for n in ('data', 'made')]")

    assert told.value == [(context / "data.txt").read_text(), "made\n"]


OLDER = """#!/usr/bin/python3.11
import sys
at = sys.argv.index("-c")
code, sys.argv = sys.argv[at + 1], sys.argv[at:]
del sys.argv[1]
sys.version_info = (3, 8, 10, "final", 0)
exec(code, {"__name__": "__main__"})
"""
"""Reports that it is an older Python."""


@pytest.mark.endurance
def test_one_with_an_old_python_is_refused_with_what_mends_it(
    context: Path, tmp_path: Path
) -> None:
    (context / "older").write_text(OLDER)
    write(context, "COPY older /opt/", "RUN install -m 755 /opt/older /usr/bin/python3")
    config = {"image": {"build": str(context)}}
    with pytest.raises(
        EnvironmentStartFailed, match=r"3\.8 here.* needs 3\.9 or later: use an image with a newer"
    ):
        open_resource(BashProvider(), Docker, tmp_path, config=config)


@pytest.mark.parametrize("program", ["tmux", "bash"])
def test_one_without_what_a_shell_needs_is_refused_with_what_mends_it(
    context: Path, tmp_path: Path, program: str
) -> None:
    write(context, f"RUN rm $(readlink -f /usr/bin/{program}) && rm -f /bin/{program}")
    config = {"image": {"build": str(context)}}
    began = time.monotonic()
    with pytest.raises(
        EnvironmentStartFailed, match=f"there is no {program} in PATH.*in the image, or"
    ):
        open_resource(ShellProvider(), Docker, tmp_path, config=config)
    assert time.monotonic() - began < 45  # at once, without waiting for a shell


@pytest.mark.endurance
def test_the_user_inside_has_a_name(context: Path, tmp_path: Path) -> None:
    write(
        context,
        "RUN printf 'first:x:7:7:::\\nnode:x:4711:4711::/:/bin/sh' > /etc/passwd",
        "RUN rm /etc/group",
    )
    asks = "whoami; id -un; id -gn; cd ~; pwd"
    python = "import getpass, os; print(getpass.getuser(), os.path.expanduser('~'))"
    for config in ({"image": {"build": str(context)}}, {}):
        with opened(BashProvider(), Docker, tmp_path, config=config) as bash:
            assert bash.run(asks).stdout == "flow\nflow\nflow\n/home/flow\n"
            assert bash.run(["python3", "-c", python]).exit_code == 0
            assert bash.run("echo x >> /etc/passwd || echo kept").stdout == "kept\n"


@pytest.mark.endurance
def test_a_daemon_that_sees_other_temporary_files_gives_no_name_but_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = accounts.Lists.mounts

    def unseen(lists: accounts.Lists) -> list[Any]:
        return [{**mount, "Source": f"{mount['Source']}-unseen"} for mount in mounts(lists)]

    monkeypatch.setattr(accounts.Lists, "mounts", unseen)
    with opened(BashProvider(), Docker, tmp_path) as bash:
        assert bash.run("id -u; whoami").stdout == f"{user()}\n"


@pytest.mark.endurance
def test_it_is_built_once_and_again_when_something_changes(context: Path) -> None:
    first = build(context)
    made = connect().images.get(first).id
    os.utime(context / "data.txt", (1, 1))
    assert build(context) == first
    assert connect().images.get(first).id == made
    (context / "data.txt").write_text("other")
    second = build(context)
    third = build(context, image={"args": {"A": "1"}})
    (context / "data.txt").chmod(0o755)
    fourth = build(context)

    assert len({first, second, third, fourth}) == 4
    assert {first, second, third, fourth} <= tags()


@pytest.mark.endurance
def test_two_at_once_build_it_once(context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[str] = []
    real = building._build  # what builds: a second build of the same image leaves no trace

    async def counted(*args: Any, **more: Any) -> None:
        builds.append("one")
        await real(*args, **more)

    monkeypatch.setattr(building, "_build", counted)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(build(context))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 1
    assert builds == ["one"]
    locks = Path(tempfile.gettempdir()).glob(f"{found[0].replace(':', '-')}-*.lock")
    assert list(locks) == []


def test_a_build_that_fails_shows_what_it_said(context: Path) -> None:
    write(context, "RUN echo the cause >&2; exit 7")
    before = {one["Id"] for one in connect().api.containers(all=True)}
    with pytest.raises(EnvironmentStartFailed, match="could not be built") as failed:
        build(context)

    assert "the cause" in failed.value.message
    assert "returned a non-zero code: 7" in failed.value.message
    left = [one for one in connect().api.containers(all=True) if one["Id"] not in before]
    # Other tests open containers at the same time. Those of this build run only its commands.
    assert not [one for one in left if "the cause" in one["Command"]]
    write(context, "NONSENSE here")
    with pytest.raises(EnvironmentStartFailed, match="NONSENSE"):
        build(context)


@pytest.mark.parametrize("size", [0, 5_000, 1_000_000])
def test_who_stops_waiting_stops_the_build_even_if_it_is_silent(context: Path, size: int) -> None:
    mark = uuid.uuid4().hex
    (context / "data").write_bytes(os.urandom(size))
    write(context, f"RUN sleep 600; : {mark}")

    def running() -> list[Any]:
        found = connect().api.containers(filters={"status": "running"})
        return [each for each in found if mark in each["Command"]]

    config = {"image": {"build": str(context)}}
    spec = request_for(Python(), Docker, context, config=config).spec
    import asyncio

    waiting = asyncio.run_coroutine_threadsafe(building.built(spec), background().loop)
    _until(lambda: bool(running()))
    waiting.cancel()
    _until(lambda: not running())


def _until(is_so: Any) -> None:
    ends = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends
        threading.Event().wait(0.05)


def test_only_what_is_in_the_folder_is_sent(context: Path, tmp_path: Path) -> None:
    """Links are sent as links, regardless of their targets. Ignored files are left out."""
    (tmp_path / "secret.txt").write_text("SEKRET")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("SEKRET")
    (context / "link.txt").symlink_to(tmp_path / "secret.txt")
    (context / "links").symlink_to(tmp_path / "secrets")
    (context / "ignored.txt").write_text("SEKRET")
    (context / ".dockerignore").write_text("# a comment\n\nignored.txt\n")
    os.mkfifo(context / "pipe")
    write(context, "COPY . /opt/all/", "RUN ! grep -r SEKR[E]T /opt/all")
    first = build(context)
    (context / "ignored.txt").write_text("another")

    assert build(context) == first
    said = connect().containers.run(first, ["ls", "-A", "/opt/all"], remove=True).decode()
    assert sorted(said.split()) == [".dockerignore", "Dockerfile", "data.txt", "link.txt", "links"]


def test_what_cannot_be_is_refused_before_anything_is_built(
    context: Path, tmp_path: Path, limits: Limits
) -> None:
    with pytest.raises(EnvironmentUnavailable, match="there is no directory"):
        build(tmp_path / "nowhere")
    with pytest.raises(EnvironmentUnavailable, match="there is no Dockerfile in"):
        build(tmp_path)
    with pytest.raises(Refused, match="no image is built from /"):
        build(Path("/"))
    with pytest.raises(ImageUnavailable, match="pull_policy is never"):
        build(context, pull_policy="never")
    limits(building, LARGEST=10)
    os.mkfifo(context / ".dockerignore")  # a program in a sandbox may have made it
    with pytest.raises(EnvironmentUnavailable, match=r"\.dockerignore"):
        build(context)
    for dockerfile in ("../Dockerfile", "/etc/passwd"):
        with pytest.raises(ValidationError, match="must be a path in the directory"):
            Container.model_validate({"image": {"build": ".", "dockerfile": dockerfile}})
    (tmp_path / "outside").write_text("FROM scratch\n")
    (context / "Linked").symlink_to(tmp_path / "outside")
    with pytest.raises(EnvironmentUnavailable, match="there is no Linked"):
        build(context, image={"dockerfile": "Linked"})


@pytest.mark.endurance
def test_a_spec_builds_relative_to_its_working_folder(
    context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(context)
    spec = {"kind": "bash", "provider": "docker", "config": {"image": {"build": "."}}}
    with EnvironmentManager(str(tmp_path / "data")) as manager, manager.use(spec) as bash:
        told = bash.run("cat /opt/data.txt")

    assert told.stdout == (context / "data.txt").read_text()


@pytest.mark.endurance
@pytest.mark.wherever("kind")
@pytest.mark.parametrize("kind", ["bash", "docker"])
def test_a_build_may_take_longer_than_a_start(context: Path, tmp_path: Path, kind: str) -> None:
    spec: dict[str, Any] = {"kind": kind, "provider": "docker", "scope": "session"}
    spec["config"] = {"image": {"build": str(context)}}

    def start(build: str, bound: float) -> None:
        write(context, f"RUN {build}")
        with EnvironmentManager(tmp_path / "state", bounds=TimeBounds(start=bound)) as manager:
            assert manager.ensure(spec).resource.run(["true"]).exit_code == 0

    start("true", 60)
    seconds = enough(lambda: start("true", 60), least=3)  # it is built
    start(f"echo {uuid.uuid4().hex}; sleep {seconds + 1}", seconds)


def test_a_build_has_a_bound_of_its_own(context: Path, tmp_path: Path) -> None:
    write(context, f"RUN echo {uuid.uuid4().hex}; sleep 30")  # never in the daemon's cache
    spec: dict[str, Any] = {"kind": "bash", "provider": "docker", "scope": "session"}
    spec["config"] = {"image": {"build": str(context)}}

    with (
        EnvironmentManager(tmp_path / "state", bounds=TimeBounds(prepare=1)) as manager,
        pytest.raises(EnvironmentStartFailed, match=r"image built or fetched\) within 1 s"),
    ):
        manager.ensure(spec)
