# Shows S34b
"""Containers: their rights, their ownership, and their removal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import (
    EnvironmentLost,
    EnvironmentStartFailed,
    EnvironmentUnavailable,
    ImageUnavailable,
    Refused,
)
from flowengine.sdk.environments import ProcessIdentity, background
from flowengine_envs.kinds.bash import Bash, BashProvider
from flowengine_envs.kinds.docker.provider import DockerProvider
from flowengine_envs.kinds.python import Python
from flowengine_envs.sandboxes.docker import image
from flowengine_envs.sandboxes.docker.daemon import connect
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.mounts import check, host
from tests.envs.containers import skip_without_docker
from tests.envs.images import image_of
from tests.envs.on_disk import tmp_path_factory  # noqa: F401 - for all tests here
from tests.envs.opening import open_resource, opened, processes_of, request_for
from tests.envs.users import as_ordinary_user

LIMITS = {"time": 60, "memory": "256MiB", "processes": 64, "cpus": 0.5, "disk": "8MiB"}


@pytest.fixture(scope="module", autouse=True)
def _daemon() -> None:
    skip_without_docker()


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bash]:
    folder = tmp_path_factory.mktemp("bash")
    with opened(BashProvider(), Docker, folder, limits=LIMITS) as resource:
        yield resource


def containers(**labels: str) -> list[Any]:
    wanted = [f"flowengine.{name}={value}" for name, value in labels.items()]
    found: list[Any] = connect().api.containers(all=True, filters={"label": wanted})
    return found


def inspected(resource: Any) -> dict[str, Any]:
    name = resource.sandbox.request.trace.facts["container"]
    found: dict[str, Any] = connect().api.inspect_container(name)
    return found


# Rights


# Shows S8, S39
def test_a_container_has_no_needless_rights(bash: Bash) -> None:
    told = inspected(bash)
    rights = told["HostConfig"]

    assert told["Config"]["User"].split(":")[0] not in {"", "0", "root"}
    assert rights["CapDrop"] == ["ALL"]
    assert not rights["CapAdd"]
    assert not rights["Privileged"]
    assert rights["ReadonlyRootfs"]
    assert rights["SecurityOpt"] == ["no-new-privileges"]
    assert rights["NetworkMode"] == "none"
    assert rights["PidMode"] == ""
    assert rights["IpcMode"] == "private"
    assert rights["AutoRemove"]
    assert not rights["PortBindings"]
    may_write = {mount["Destination"]: mount["RW"] for mount in told["Mounts"]}
    # The lists of users and groups are two generated files.
    own = {"/workspace": True, "/home/flow": True}
    assert may_write == {**own, "/etc/passwd": False, "/etc/group": False}
    assert "docker.sock" not in str(told["Mounts"])
    assert bash.run("touch /etc/x").exit_code != 0
    assert bash.run("touch /usr/x").exit_code != 0
    assert bash.run("touch ~/x /tmp/x /workspace/x").exit_code == 0


# Shows E64
def test_labels_say_whose_it_is(bash: Bash) -> None:
    request = bash.sandbox.request
    labels = inspected(bash)["Config"]["Labels"]

    assert labels["flowengine"] == "1"
    assert labels["flowengine.resource_key"] == "box"
    assert {"flowengine.started", "flowengine.boot", "flowengine.host"} <= labels.keys()
    assert labels["flowengine.environment"] == request.id
    assert labels["flowengine.manager"] == "manager"
    assert labels["flowengine.owner_id"] == "e1"
    assert labels["flowengine.pid"] == str(os.getpid())
    assert bash.image == inspected(bash)["Image"]


# Shows S38
def test_nothing_of_the_network_is_reached(bash: Bash) -> None:
    code = (
        "import socket\n"
        "for place in (('127.0.0.1', 22), ('172.17.0.1', 22), ('1.1.1.1', 53)):\n"
        "    try: socket.create_connection(place, 2); print('reached', place)\n"
        "    except OSError: pass\n"
        "try: socket.getaddrinfo('example.org', 80); print('resolved')\n"
        "except OSError: pass\n"
    )
    assert bash.run(["python3", "-c", code]).stdout == ""


# Shows S41b
def test_variables_and_secrets_of_the_host_stay_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "canary")
    monkeypatch.setenv("HTTP_PROXY", "http://canary")
    with opened(BashProvider(), Docker, tmp_path) as bash:
        assert "canary" not in bash.run("env; cat /proc/1/environ").stdout
        assert "canary" not in str(inspected(bash))


# Shows S39
def test_nobody_inside_can_keep_the_container_from_ending(bash: Bash) -> None:
    """The first process ends when its input closes. No program may open that input."""
    for descriptor in (0, 1, 2):
        assert bash.run(f"exec 9<>/proc/1/fd/{descriptor}").exit_code != 0


# Ownership, mounts


# Shows S40
def test_files_are_the_callers_when_it_has_ended(tmp_path: Path) -> None:
    with opened(BashProvider(), Docker, tmp_path) as bash:
        bash.run("mkdir -p a && echo x > a/b && ln -s /etc/passwd a/link")

    for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "link"):
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
    assert os.stat("/etc/passwd").st_uid == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root's containers run as another user")
def test_what_was_not_roots_in_a_workspace_is_not_roots_afterwards(tmp_path: Path) -> None:
    """`DockerEnv` works in a folder of the user's."""
    (tmp_path / "users").mkdir()
    for path in ("users/a", "users/b", "b", "roots"):
        (tmp_path / path).write_text("a")
    for path in ("users", "users/a", "users/b", "b"):
        os.chown(tmp_path / path, 1000, 1000)
    with opened(BashProvider(), Docker, tmp_path) as bash:
        done = bash.run("cd users; mkdir c; touch c/d ../new; echo b > e; mv e a; echo b >> ../b")

    assert done.exit_code == 0, done
    owners = {str(each.relative_to(tmp_path)): each.stat().st_uid for each in tmp_path.rglob("*")}
    assert {path: uid for path, uid in owners.items() if path in {"roots", "new"}} == {
        **{"roots": 0, "new": 0}
    }
    users = {"users", "users/a", "users/b", "users/c", "users/c/d", "b"}
    assert {path for path, uid in owners.items() if uid == 1000} == users


def as_member(folder: Path) -> dict[str, Any]:
    """Create files in containers as an ordinary user, and return their owners."""
    told: dict[str, Any] = {"user": (os.getuid(), os.getgid())}
    folder /= "workspace"
    folder.mkdir()
    with opened(BashProvider(), Docker, folder) as bash:
        told["inside"] = bash.run("mkdir a; echo x > a/b; ln -s /etc/passwd a/link; id -u; id -g")
        found = [folder, folder / "a", folder / "a" / "b", folder / "a" / "link"]
        told["open"] = {(each.lstat().st_uid, each.lstat().st_gid) for each in found}
    with opened(DockerProvider(), Docker, folder) as docker:
        docker.run(["sh", "-c", "echo y > c"])
    told["closed"] = {(each.lstat().st_uid, each.lstat().st_gid) for each in folder.rglob("*")}
    (folder / "a" / "b").write_text("mine")
    return told


# Shows S40
def test_files_are_an_ordinary_users_at_once(bash: Bash, tmp_path: Path) -> None:
    """For a user who may use the daemon as a member of its group."""
    group = Path(host().removeprefix("unix://")).stat().st_gid
    with opened(DockerProvider(), Docker, tmp_path) as docker:
        docker.run(["true"])  # loads modules that the other user may be unable to read

    told = as_ordinary_user(as_member, [group])

    user = told["user"]
    assert user[0] != 0
    assert told["inside"].stdout.split() == [str(user[0]), str(user[1])]
    assert told["open"] == told["closed"] == {user}


# Shows E111b
def test_folders_of_other_environments_are_mounted(tmp_path: Path) -> None:
    workspace, shared, kept = tmp_path / "w", tmp_path / "shared", tmp_path / "kept"
    for folder in (workspace, shared, kept):
        folder.mkdir()
    (kept / "a.txt").write_text("a")
    mounts = {"/data": shared, "/kept": kept}
    policy = {"writable": ["/data"]}
    with opened(BashProvider(), Docker, workspace, mounts=mounts, policy=policy) as bash:
        assert bash.run("cat /kept/a.txt; echo b > /data/b.txt").stdout == "a"
        assert bash.run("touch /kept/x").exit_code != 0

    assert (shared / "b.txt").read_text() == "b\n"
    assert (shared / "b.txt").stat().st_uid == os.getuid()


DANGEROUS = [
    *("/", "/etc", "/etc/ssl", "/var", "/var/lib/docker", "/run", "/proc/1", "~"),
    *("/dev", "/dev/shm", "/dev/mapper", "/dev/shm/../pts"),
    *("/usr", "/usr/lib/python3", "/usr/local", "/usr/local/bin", "/usr/src"),
]


@pytest.mark.parametrize("path", DANGEROUS)
# Shows E66, S45
def test_dangerous_mounts_are_refused(path: str, tmp_path: Path) -> None:
    folder = Path(path).expanduser()
    link = tmp_path / "link"
    link.symlink_to(folder)

    with pytest.raises(Refused, match="is not mounted"):
        check(folder)
    with pytest.raises(Refused, match=rf"which is {folder.resolve()}\)"):
        check(link)


# Shows S45
def test_the_state_of_the_engine_and_files_are_not_mounted(tmp_path: Path) -> None:
    state = tmp_path / "state" / "environments"
    state.mkdir(parents=True)
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(Refused, match="state of the engine"):
        check(tmp_path, state)
    with pytest.raises(Refused, match="not a directory"):
        check(file)
    assert check(tmp_path / "absent") == tmp_path / "absent"
    for own in ("/usr/src/app", "/usr/local/app", "/srv/app", "/opt/app", "/dev/shm/app"):
        assert check(Path(own)) == Path(own)


# Shows E66
def test_a_dangerous_mount_is_refused_before_the_daemon_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(BashProvider(), Docker, tmp_path, mounts={"/host": Path("/")})
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")

    with pytest.raises(Refused, match="whole machine"):
        background().run(BashProvider().ensure(request))


# Distinct errors for distinct causes


# Shows E63
def test_what_keeps_us_from_the_daemon_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{tmp_path}/dead.sock")
    for where, message in {
        f"unix://{tmp_path}/absent.sock": "no Docker daemon at .*install it.*start it",
        f"unix://{tmp_path}/dead.sock": "nothing answers at .*start the Docker daemon",
        "ssh://host": "only unix:// and tcp://",
    }.items():
        monkeypatch.setenv("DOCKER_HOST", where)
        with pytest.raises(EnvironmentUnavailable, match=message) as told:
            open_resource(BashProvider(), Docker, tmp_path)
        said = told.value.message
        assert said.startswith("environment 'box' (bash by docker, execution e1): ")
        assert said.endswith("Or use provider: namespace, or provider: host for no isolation")
    with pytest.raises(EnvironmentUnavailable, match="use kind: bash"):
        open_resource(DockerProvider(), Docker, tmp_path)


# Shows S4
def test_an_absent_image_that_must_not_be_fetched(tmp_path: Path) -> None:
    config = {"image": "example.invalid/absent:1", "pull_policy": "never"}
    with pytest.raises(
        ImageUnavailable, match=r"example\.invalid/absent:1 .* pull_policy is never"
    ):
        open_resource(Python(), Docker, tmp_path, config=config)
    assert config["image"] not in {each["Image"] for each in containers()}


# Shows E63, S5
def test_a_platform_that_the_image_has_not_is_told(tmp_path: Path) -> None:
    config = {"platform": "linux/arm64"}
    with pytest.raises(EnvironmentStartFailed, match="platform"):
        open_resource(Python(), Docker, tmp_path, config=config)


NO_START = {
    "without python": ({}, 30, "the image has no python3"),
    "ends at once": (
        {"/bin/python3": "#!/bin/sh\necho this image is broken >&2\nexit 7\n"},
        *(30, "it said: this image is broken"),
    ),
    "never answers": ({"/bin/python3": "#!/bin/sh\nexec sleep 1000\n"}, 2, "not answer in time"),
}


@pytest.mark.parametrize("case", NO_START)
# Shows S9
def test_an_image_that_does_not_start_is_told_within_the_deadline(
    case: str, tmp_path: Path
) -> None:
    scripts, seconds, message = NO_START[case]
    name = f"flowengine-test-{os.getpid()}:broken"
    began = time.monotonic()
    with image_of(name, ["sh", "sleep"], scripts):
        config = {"image": name}
        with pytest.raises(EnvironmentStartFailed, match=message):
            open_resource(Python(), Docker, tmp_path, config=config, seconds=seconds)
        assert time.monotonic() - began < seconds + 60
        assert not [each for each in containers() if each["Image"] == name]
    assert tmp_path.stat().st_uid == os.getuid()


# Shows S11
def test_a_name_that_somebody_else_has_is_not_taken_over(tmp_path: Path) -> None:
    name = f"somebody-elses-{os.getpid()}"
    api = connect().api
    foreign = api.create_container(image.description().tag, ["sleep", "60"], name=name)
    try:
        api.start(foreign["Id"])
        with pytest.raises(EnvironmentStartFailed, match=f"{name} already.* left alone"):
            open_resource(Python(), Docker, tmp_path, config={"container_name": name})
        found = api.inspect_container(name)
        assert (found["Id"], found["State"]["Running"]) == (foreign["Id"], True)
        assert not found["ExecIDs"]
    finally:
        api.remove_container(foreign["Id"], force=True)


# Shows S12
def test_gpus_without_their_runtime_are_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentStartFailed, match="no GPU runtime"):
        open_resource(Python(), Docker, tmp_path, config={"gpus": "all"})


# Ends


# Shows S10
def test_a_container_killed_during_a_call_is_lost(tmp_path: Path) -> None:
    with opened(BashProvider(), Docker, tmp_path) as bash:
        [pid] = processes_of(bash)
        began = time.monotonic()
        with pytest.raises(EnvironmentLost, match="box"):
            bash.run("echo go; sleep 100", on_output=lambda *_: os.kill(pid, signal.SIGKILL))
        assert time.monotonic() - began < 60
        assert not bash.healthy


OWNER = """
import os, sys, time
from pathlib import Path
from tests.envs.opening import open_resource
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.sandboxes.docker.sandbox import Docker
bash = open_resource(BashProvider(), Docker, Path(sys.argv[1]))
print(bash.sandbox.request.id, flush=True)
bash.run("sleep 1000", timeout=1000)
"""


@pytest.mark.endurance
@pytest.mark.wherever("end")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
# Shows S6
def test_nothing_is_left_however_the_engine_ends(end: signal.Signals, tmp_path: Path) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with engine:
        assert engine.stdout is not None
        id = engine.stdout.readline().strip()
        assert containers(environment=id)
        engine.send_signal(end)
        engine.wait()
        until(lambda: not containers(environment=id), 60)


# Shows E87, S7
def test_only_containers_of_dead_owners_are_swept(tmp_path: Path) -> None:
    api = connect().api
    labels = request_for(BashProvider(), Docker, tmp_path).labels
    living = ProcessIdentity(os.getpid(), 0, "boot", "host")
    dead = {**labels, "flowengine.pid": "1", "flowengine.host": "gone"}
    foreign = {"flowengine.pid": "1"}
    made = {}
    for name, each in {"living": labels, "dead": dead, "foreign": foreign}.items():
        created = api.create_container(image.description().tag, ["sleep", "60"], labels=each)
        made[name] = str(created["Id"])
    try:
        background().run(Docker.sweep(lambda owner: owner.host == "gone" and owner != living))
        background().run(Docker.sweep(lambda owner: owner.host == "gone"))
        there = {each["Id"] for each in api.containers(all=True)}
        assert {name for name, id in made.items() if id in there} == {"living", "foreign"}
    finally:
        for id in made.values():
            if id in {each["Id"] for each in api.containers(all=True)}:
                api.remove_container(id, force=True)


def until(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.05)
