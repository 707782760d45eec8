"""A daemon of its own that goes away and comes back, and one that an ordinary user may use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentUnavailable
from flowengine_envs.docker.daemon import connect
from flowengine_envs.docker.provider import DockerProvider
from flowengine_envs.docker.sandbox import Docker
from tests.envs.containers import skip_without_docker
from tests.envs.images import make_image
from tests.envs.opening import opened
from tests.envs.users import as_ordinary_user

IMAGE = "flowengine-test:sleep"


class Daemon:
    """A Docker daemon beside that of the machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.host = f"unix://{folder}/d.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder = self._folder
        argv = ["dockerd", "--host", self.host, "--data-root", f"{folder}/data"]
        argv += ["--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"]
        argv += [
            "--bridge=none",
            "--iptables=false",
            "--storage-driver=overlay2",
            "--shutdown-timeout=1",
        ]
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                connect()
            except EnvironmentUnavailable:
                assert time.monotonic() < deadline, (folder / "log").read_text()
                assert self._process.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None


def played(scenario: str, folder: Path) -> str:
    """Play a function of this file in a process of its own: the library leaves sockets open."""
    skip_without_docker()
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("no docker (a daemon of its own needs root and dockerd)")
    code = f"import sys; from tests.envs.test_docker_daemon import *; {scenario}(Path(sys.argv[1]))"
    env = {**os.environ, "DOCKER_HOST": f"unix://{folder}/d.sock"}
    argv = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def restart(folder: Path) -> None:
    """A daemon goes away while a command runs, and comes back."""
    daemon = Daemon(folder)
    daemon.start()
    try:
        make_image(IMAGE, ["sleep"])
        config = {"image": IMAGE, "pull_policy": "never"}
        (folder / "w").mkdir()
        with opened(DockerProvider(), Docker, folder / "w", config=config) as docker:
            outcome: list[Any] = []

            def work() -> None:
                try:
                    outcome.append(docker.run(["/bin/sleep", "1000"], timeout=60))
                except Exception as error:
                    outcome.append(type(error).__name__)

            thread = threading.Thread(target=work)
            thread.start()
            while not connect().api.containers():
                time.sleep(0.05)
            daemon.stop()
            thread.join(60)
            daemon.start()
            after = docker.run(["/bin/sleep", "0"])
            sys.stdout.write(f"{outcome[0]} {after.exit_code}")
    finally:
        daemon.stop()


def loss(folder: Path) -> None:
    """A daemon goes away under an open sandbox of the manager, and comes back."""
    daemon = Daemon(folder)
    daemon.start()
    spec = {"kind": "bash", "provider": "docker", "scope": "session", "owner_id": "s"}
    try:
        make_image(IMAGE, ["sh", "bash", "sleep", "python3"], folders=[standard_library()])
        config = {"image": IMAGE, "pull_policy": "never"}
        with EnvironmentManager(folder / "data") as manager:
            first = manager.ensure({**spec, "config": config})
            first.resource.put("kept.txt", b"here")
            outcome: list[Any] = []
            begun = threading.Event()

            def work() -> None:
                try:
                    first.resource.run("echo go; sleep 1000", on_output=lambda *_: begun.set())
                except Exception as error:
                    outcome.append(type(error).__name__)

            thread = threading.Thread(target=work)
            thread.start()
            begun.wait(60)
            daemon.stop()
            thread.join(60)
            try:
                manager.ensure({**spec, "config": config})
            except EnvironmentUnavailable:
                outcome.append("unavailable")
            daemon.start()
            again = manager.ensure({**spec, "config": config})
            told = again.resource.run("echo $(<kept.txt)").stdout.strip()
            outcome += [str(again.generation), told, str(len(connect().api.containers(all=True)))]
        sys.stdout.write(" ".join([*outcome, str(len(connect().api.containers(all=True)))]))
    finally:
        daemon.stop()


def standard_library() -> str:
    """Return the folder of the standard library of the system's Python."""
    argv = ["/usr/bin/python3", "-c", "import os; print(os.path.dirname(os.__file__))"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def forbidden(folder: Path) -> None:
    """A daemon that only root may use."""
    daemon = Daemon(folder)
    daemon.start()
    try:
        (folder / "d.sock").chmod(0o600)
        sys.stdout.write(as_ordinary_user(told))
    finally:
        daemon.stop()


def told(_folder: Path) -> str:
    try:
        connect()
    except EnvironmentUnavailable as error:
        return error.message
    return "it may be used"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where everybody may look, and with a short path, as a socket needs it."""
    with tempfile.TemporaryDirectory(prefix="flowengine-daemon-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_daemon_that_goes_away_is_a_loss_and_then_all_is_well(folder: Path) -> None:
    assert played("restart", folder) == "EnvironmentLost 0"


def test_a_sandbox_whose_daemon_went_away_is_lost_and_had_again(folder: Path) -> None:
    assert played("loss", folder) == "EnvironmentLost unavailable 3 here 1 0"


def test_who_may_not_use_the_daemon_is_told_so(folder: Path) -> None:
    assert "may not be used by this user: sudo usermod -aG docker" in played("forbidden", folder)
