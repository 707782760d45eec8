"""A separate daemon that stops and restarts, and one that an ordinary user may use."""

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
from flowengine_envs.sandboxes.docker.daemon import connect
from tests.envs.containers import skip_without_docker
from tests.envs.images import make_image
from tests.envs.users import as_ordinary_user

IMAGE = "flowengine-test:sleep"


class Daemon:
    """A Docker daemon beside the machine's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.host = f"unix://{folder}/d.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder = self._folder
        # In a separate network: a daemon without a bridge deletes the bridge of the machine's
        # daemon.
        argv = ["unshare", "--net", "dockerd", "--host", self.host]
        argv += ["--data-root", f"{folder}/data"]
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
    """Run a function of this file in another process, because the library leaves sockets open."""
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
    """Stop and restart a daemon while programs run."""
    daemon = Daemon(folder)
    daemon.start()
    place = {"scope": "session", "owner_id": "s"}
    image = {"config": {"image": IMAGE, "pull_policy": "never"}}
    specs = [
        {**place, **image, "kind": "bash", "provider": "docker"},
        {**place, **image, "kind": "docker"},
    ]
    outcome: list[str] = []

    def work(resource: Any, begun: threading.Event) -> None:
        argv = ["bash", "-c", "echo go; sleep 1000"]
        try:
            resource.run(argv, timeout=60, on_output=lambda *_: begun.set())
        except Exception as error:
            outcome.append(type(error).__name__)

    try:
        make_image(IMAGE, ["sh", "bash", "sleep", "python3"], folders=[standard_library()])
        with EnvironmentManager(folder / "state") as manager:
            threads = []
            for spec in specs:
                resource = manager.ensure(spec).resource
                resource.put("kept.txt", b"here")
                begun = threading.Event()
                threads.append(threading.Thread(target=work, args=(resource, begun)))
                threads[-1].start()
                assert begun.wait(60)
            daemon.stop()
            for thread in threads:
                thread.join(60)
            for spec in specs:
                try:
                    manager.ensure(spec)
                except EnvironmentUnavailable as error:
                    outcome.append(type(error).__name__)
            daemon.start()
            for spec in specs:
                again = manager.ensure(spec)
                assert again.generation > 1
                told = again.resource.run(["bash", "-c", "echo $(<kept.txt)"]).stdout
                outcome.append(told.strip())
        outcome.append(str(len(connect().api.containers(all=True))))
        sys.stdout.write(" ".join(outcome))
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
    """A folder that every user can read, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="flowengine-daemon-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.endurance  # a daemon of its own is started and killed
# Shows E65
def test_a_daemon_that_goes_away_is_a_loss_and_then_all_is_well(folder: Path) -> None:
    lost, unavailable = "EnvironmentLost EnvironmentLost", "EnvironmentUnavailable " * 2
    assert played("restart", folder) == f"{lost} {unavailable}here here 0"


@pytest.mark.endurance
# Shows E63
def test_who_may_not_use_the_daemon_is_told_so(folder: Path) -> None:
    assert "cannot be used by this user: sudo usermod -aG docker" in played("forbidden", folder)
