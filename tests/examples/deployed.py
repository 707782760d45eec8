"""The image of `examples/deploy`, built without a network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path
from uuid import uuid4

import pytest
from packaging.requirements import Requirement

from flowengine_envs.sandboxes.docker import image
from tests.envs.containers import skip_without_docker

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
FLOWS = {
    "desk.yaml": """
flowengine: 1
id: desk
steps:
  - {id: ask, approval: {title: Good?}}
  - {id: book, run: "echo booked > /store/booked"}
""",
    "stay.yaml": """
flowengine: 1
id: stay
inputs: {until: {type: string}}
steps:
  - id: wait
    run: {script: 'until test -e "$UNTIL"; do sleep 0.1; done', env: {UNTIL: "${{ inputs.until }}"}}
    effect: idempotent
""",
}
LONGEST = 120.0
"""Seconds after which a worker hangs."""


def docker(*words: str, fails: bool = False) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert fails or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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


def build(folder: Path) -> str:
    """Build the image from packages that are installed here and a base that has Python.

    Args:
        folder: An empty folder.

    Returns:
        Its name.
    """
    skip_without_docker()
    base = image.description().tag
    version = docker(
        "run", "--rm", base, "python3", "-c", "import sys; print(sys.version_info[:2])"
    )
    if version.strip() != str(sys.version_info[:2]):
        pytest.skip(f"packages for this Python cannot be installed for {version.strip()}")
    wheels, flows = folder / "wheels", folder / "flows"
    wheels.mkdir()
    flows.mkdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    found: dict[str, Distribution] = {}
    needed("flowengine", frozenset({"serve"}), found)
    for one in found.values():
        repack(one, wheels)
    for name, text in FLOWS.items():
        (flows / name).write_text(text)
    tag = f"flowengine-test-{uuid4().hex[:12]}"
    options = ["--network", "none", "--build-arg", f"BASE={base}", "--build-arg", "PIP_NO_INDEX=1"]
    docker("build", *options, "--file", str(DEPLOY / "Dockerfile"), "--tag", tag, str(folder))
    return tag
