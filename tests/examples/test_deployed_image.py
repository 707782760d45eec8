"""The image of `examples/deploy`: built without a network, killed, started and stopped (V7)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from uuid import uuid4

import pytest
from packaging.requirements import Requirement

from flowengine_envs.sandboxes.docker import image
from tests.envs.containers import skip_without_docker

ROOT = Path(__file__).parents[2]
FLOW = """
flowengine: 1
id: desk
steps:
  - {id: ask, approval: {title: Good?}}
  - {id: book, run: "echo booked > /store/booked"}
"""
LONGEST = 120.0
"""Seconds after which a worker hangs."""


def docker(*words: str, fails: bool = False) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert fails or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def logs(worker: str) -> str:
    command = ["docker", "logs", worker]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout.decode()


def needed(name: str, extras: frozenset[str], found: dict[str, Distribution]) -> None:
    """Collect the installed distributions that one requires."""
    given = distribution(name)
    for line in given.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": one}) for one in ("", *extras)):
            key = requirement.name.lower()
            if key not in found:
                found[key] = distribution(requirement.name)
                needed(requirement.name, frozenset(requirement.extras), found)


def repack(given: Distribution, folder: Path) -> None:
    """Write the wheel of an installed distribution."""
    texts = (given.read_text("WHEEL") or "").splitlines()
    tag = next(line[5:] for line in texts if line.startswith("Tag: ") and "py2-" not in line)
    name = given.metadata["Name"].replace("-", "_").replace(".", "_")
    with zipfile.ZipFile(folder / f"{name}-{given.version}-{tag}.whl", "w") as archive:
        for file in given.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                archive.write(str(given.locate_file(file)), str(file))


@pytest.fixture
def built(tmp_path: Path) -> Iterator[str]:
    """The image, from packages that are installed here and a base that has Python."""
    skip_without_docker()
    base = image.description().tag
    version = docker(
        "run", "--rm", base, "python3", "-c", "import sys; print(sys.version_info[:2])"
    )
    if version.strip() != str(sys.version_info[:2]):
        pytest.skip(f"packages for this Python cannot be installed for {version.strip()}")
    wheels, flows = tmp_path / "wheels", tmp_path / "flows"
    wheels.mkdir()
    flows.mkdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    found: dict[str, Distribution] = {}
    needed("flowengine", frozenset({"serve"}), found)
    for one in found.values():
        repack(one, wheels)
    (flows / "desk.yaml").write_text(FLOW)
    name = f"flowengine-test-{uuid4().hex[:12]}"
    options = ["--network", "none", "--build-arg", f"BASE={base}", "--build-arg", "PIP_NO_INDEX=1"]
    file = ROOT / "examples" / "deploy" / "Dockerfile"
    docker("build", *options, "--file", str(file), "--tag", name, str(tmp_path))
    yield name
    docker("rmi", "--force", name)


def status(worker: str, execution: str) -> str:
    shown = docker("exec", worker, "flowengine", "--json", "show", execution)
    return str(json.loads(shown)["status"])


def wait_until_healthy(worker: str) -> None:
    check = "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz', timeout=3)"
    asking = ("exec", worker, "sh", "-c", f'python3 -c "{check}" && echo ready')
    limit = time.monotonic() + LONGEST
    while docker(*asking, fails=True) != "ready\n":
        assert time.monotonic() < limit, logs(worker)


@pytest.mark.endurance
def test_a_worker_in_a_container_outlives_a_kill_and_ends_in_order(built: str) -> None:
    worker = docker("run", "--detach", "--network", "none", built).strip()
    try:
        wait_until_healthy(worker)
        desk = ("flowengine", "run", "desk.yaml", "--id", "d1", "--no-resume")
        docker("exec", worker, *desk)
        limit = time.monotonic() + LONGEST
        while status(worker, "d1") != "waiting":
            assert time.monotonic() < limit, logs(worker)
        docker("kill", worker)
        docker("start", worker)
        wait_until_healthy(worker)
        listed = docker("exec", worker, "flowengine", "--json", "approvals", "list")
        [wait] = json.loads(listed)
        docker("exec", worker, "flowengine", "approve", wait["id"], "--no-resume")
        while status(worker, "d1") != "succeeded":
            assert time.monotonic() < limit, logs(worker)
        assert docker("exec", worker, "cat", "/store/booked") == "booked\n"
        assert docker("exec", worker, "id", "--user") == "900\n"
        docker("stop", "--timeout", "330", worker)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", worker) == "0\n"
        events = [json.loads(line)["event"] for line in logs(worker).splitlines()]
        assert events.count("started") == 2
        assert events[-2:] == ["draining", "stopped"]
    finally:
        docker("rm", "--force", "--volumes", worker)
