# Shows V7
"""The unit of `examples/deploy`: under systemd, with a kill and a stop (V7)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.examples.deployed import DEPLOY, LONGEST, docker

UNITS = ("flowengine-worker@1", "flowengine-worker@2")
STORE = "/var/lib/flowengine"
EXPOSURE = 50
"""The most that systemd may find exposed, of 100. It takes ordinary services for 96."""
DOCKERFILE = """
FROM {base}
USER 0
COPY systemd.tar flowengine-worker@.service /
RUN tar --extract --skip-old-files --directory / --file /systemd.tar && rm /systemd.tar && \\
    install -m 0644 "/flowengine-worker@.service" /etc/systemd/system/ && \\
    echo flowengine:x:900: >> /etc/group
"""
BOOT = """
umount --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec /lib/systemd/systemd
"""
"""The first process. It has control groups of version 2, even if the daemon uses version 1."""


def pack_systemd(target: Path) -> None:
    """Write the files of the machine's package and the libraries that they load.

    A container has no network to install it, and a base image with it would take a minute.
    """
    if shutil.which("dpkg") is None or shutil.which("systemctl") is None:
        pytest.skip("no systemd of Debian: apt-get install systemd")
    listed = subprocess.run(["dpkg", "-L", "systemd"], capture_output=True, text=True, check=True)
    files = [Path(line) for line in listed.stdout.splitlines() if not Path(line).is_dir()]
    programs = [file for file in files if file.parent.name in ("bin", "systemd")]
    loaded = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False)
    libraries = {Path(found) for found in re.findall(r"=> (/\S+)", loaded.stdout)}
    wanted = [*files, *libraries, *(library.resolve() for library in libraries)]
    with tarfile.open(target, "w") as archive:
        for place in sorted({file.parent.resolve() / file.name for file in wanted}):
            archive.add(place)


class Machine:
    """A container in which systemd is the first process.

    Args:
        image: Its image.
    """

    def __init__(self, image: str) -> None:
        rights = ["--cap-add", "SYS_ADMIN", "--cgroupns", "private"]
        rights += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
        places = ["--tmpfs", "/run", "--tmpfs", "/tmp", "--env", "container=docker"]
        start = ["--network", "none", "--entrypoint", "sh", image, "-c", BOOT]
        self._name = docker("run", "--detach", *rights, *places, *start).strip()

    def __call__(self, *words: str, fails: bool = False) -> str:
        """Run a command as root."""
        return docker("exec", self._name, *words, fails=fails).strip()

    def flowengine(self, *words: str) -> str:
        """Run a command as the user of the store, with the variables of the unit."""
        variables = [f"FLOWENGINE_STORE={STORE}/store", f"XDG_STATE_HOME={STORE}/state"]
        given = [word for variable in variables for word in ("--env", variable)]
        program = ("/opt/flowengine/bin/flowengine", *words)
        return docker("exec", "--user", "flowengine", *given, self._name, *program)

    def log(self, unit: str) -> list[dict[str, str]]:
        """Return what a worker has logged."""
        lines = self("journalctl", "--unit", unit, "--output", "cat").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def setting(self, unit: str, name: str) -> str:
        return self("systemctl", "show", unit, "--property", name, "--value")

    def until(self, holds: Callable[[], object]) -> None:
        limit = time.monotonic() + LONGEST
        while not holds():
            assert time.monotonic() < limit, self("journalctl", "--no-pager", fails=True)
            time.sleep(0.2)

    def remove(self) -> None:
        docker("rm", "--force", "--volumes", self._name)


@pytest.fixture
def machine(worker_image: str, tmp_path: Path) -> Iterator[Machine]:
    pack_systemd(tmp_path / "systemd.tar")
    shutil.copy(DEPLOY / "flowengine-worker@.service", tmp_path)
    (tmp_path / "Dockerfile").write_text(DOCKERFILE.format(base=worker_image))
    image = f"{worker_image}-systemd"
    docker("build", "--network", "none", "--tag", image, str(tmp_path))
    try:
        machine = Machine(image)
        try:
            yield machine
        finally:
            machine.remove()
    finally:
        docker("rmi", "--force", image)


@pytest.mark.endurance
def test_systemd_restarts_a_killed_worker_and_stops_workers_in_order(machine: Machine) -> None:
    machine.until(lambda: machine("systemctl", "is-active", "multi-user.target", fails=True))
    assert not machine("systemd-analyze", "verify", f"{UNITS[0]}.service")
    machine("systemd-analyze", "security", f"--threshold={EXPOSURE}", f"{UNITS[0]}.service")
    machine("systemctl", "enable", "--now", *UNITS)
    took = begin(machine, "killed")
    killed = machine.setting(took, "MainPID")
    machine("kill", "-9", killed)
    machine("touch", f"{STORE}/killed")
    machine.until(lambda: status(machine, "killed") == "succeeded")
    machine.until(lambda: machine.setting(took, "NRestarts") == "1")
    machine.until(lambda: machine("systemctl", "is-active", took, fails=True) == "active")
    assert machine.setting(took, "MainPID") not in (killed, "0")

    begin(machine, "drained")
    machine("systemctl", "stop", "--no-block", *UNITS)
    machine.until(lambda: all(events(machine, unit)[-1] != "taken" for unit in UNITS))
    machine("touch", f"{STORE}/drained")
    machine.until(lambda: all(machine.setting(unit, "MainPID") == "0" for unit in UNITS))
    for unit in UNITS:
        assert machine.setting(unit, "Result") == "success"
        assert machine.setting(unit, "ExecMainStatus") == "0"
        assert events(machine, unit)[-2:] == ["draining", "stopped"]
    assert status(machine, "drained") == "succeeded"


def begin(machine: Machine, id: str) -> str:
    """Start an execution that lasts until a file exists, and return the unit that has taken it."""
    until = f"until={STORE}/{id}"
    machine.flowengine("run", "stay.yaml", "--id", id, "--no-resume", "-i", until)

    def takers() -> list[str]:
        lines = [(unit, line) for unit in UNITS for line in machine.log(unit)]
        return [unit for unit, line in lines if line.get("execution") == id]

    machine.until(takers)
    return takers()[0]


def events(machine: Machine, unit: str) -> list[str]:
    return [line["event"] for line in machine.log(unit)]


def status(machine: Machine, id: str) -> str:
    return str(json.loads(machine.flowengine("--json", "show", id))["status"])
