# Shows S4
"""Images from a registry: when it is queried, and the errors for missing images."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import ImageUnavailable
from flowengine_envs.kinds.docker.provider import DockerProvider
from flowengine_envs.sandboxes.docker.daemon import connect
from flowengine_envs.sandboxes.docker.sandbox import Docker
from tests.envs.containers import skip_without_docker
from tests.envs.images import make_image
from tests.envs.opening import open_resource, opened

FETCHED = Path(__file__).parents[1] / "docker_registry" / "docker-registry"
"""Where `scripts/sandboxes.sh` installs the program."""


class Registry:
    """A local registry. The daemon trusts it because it is on the loopback interface."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = folder / "config.yml"
        self._process: subprocess.Popen[str] | None = None
        self.asked = folder / "log"
        self.images: set[str] = set()
        """IDs of pushed images. A pulled image has the same ID."""
        self.address = self._start("127.0.0.1:0")

    def _start(self, address: str) -> str:
        self._config.write_text(
            f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {self._folder}/data}}}}\n"
            f"http: {{addr: '{address}'}}\n"
        )
        program = shutil.which("docker-registry") or str(FETCHED)
        with self.asked.open("a") as log:
            self._process = subprocess.Popen(
                [program, "serve", str(self._config)], stdout=log, stderr=log, text=True
            )
        while True:
            found = re.findall(r"listening on (\S+:\d+)", self.asked.read_text())
            if found:
                return str(found[-1])
            assert self._process.poll() is None, self.asked.read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def push(self, name: str, word: str) -> str:
        """Push an image whose program `say` prints a word. Return its digest in the registry."""
        reference = f"{self.address}/{name}"
        made = make_image(reference, ["sh"], {"/bin/say": f"#!/bin/sh\necho {word}\n"})
        self.images.add(made)
        client = connect()
        for line in client.api.push(reference, stream=True, decode=True):
            assert "error" not in line, line
        [digest] = client.images.get(reference).attrs["RepoDigests"]
        client.images.remove(reference, force=True)
        return str(digest)

    @property
    def pulls(self) -> int:
        """Return how often an image was requested."""
        return len(re.findall(r'"GET /v2/\S+/manifests/', self.asked.read_text()))


@pytest.fixture(scope="module", autouse=True)
def _daemon() -> None:
    skip_without_docker()
    if shutil.which("docker-registry") is None and not FETCHED.exists():
        pytest.skip("no docker-registry: scripts/sandboxes.sh")


@pytest.fixture
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    started = Registry(tmp_path_factory.mktemp("registry"))
    try:
        yield started
    finally:
        started.stop()
        client = connect()
        there = {str(each["Id"]) for each in client.api.images(all=True)}
        for id in started.images & there:
            client.images.remove(id, force=True)


def says(workspace: Path, image: str, policy: str = "missing") -> tuple[str, str]:
    """Open an environment and run the image's program. Return its output and the image ID."""
    config = {"image": image, "pull_policy": policy}
    with opened(DockerProvider(), Docker, workspace, config=config) as box:
        result = box.run(["/bin/say"])
        assert result.image == box.image == connect().images.get(image).id
        return result.stdout.strip(), box.image


def containers() -> list[Any]:
    label = f"flowengine.pid={os.getpid()}"
    found: list[Any] = connect().api.containers(all=True, filters={"label": [label]})
    return found


# Shows S3
def test_an_image_is_fetched_when_it_is_missing_and_only_then(
    registry: Registry, tmp_path: Path
) -> None:
    registry.push("said:1", "first")
    image = f"{registry.address}/said:1"

    assert says(tmp_path, image)[0] == "first"
    asked = registry.pulls
    assert asked > 0
    assert says(tmp_path, image)[0] == "first"
    assert says(tmp_path, image, "never")[0] == "first"
    assert registry.pulls == asked
    registry.stop()
    assert says(tmp_path, image)[0] == "first"


@pytest.mark.endurance
def test_always_takes_what_the_tag_means_now(registry: Registry, tmp_path: Path) -> None:
    registry.push("said:1", "first")
    image = f"{registry.address}/said:1"
    word, first = says(tmp_path, image)
    assert word == "first"
    registry.push("said:1", "second")
    connect().images.pull(image)  # pulled by another process: the name now refers to a stale image
    connect().api.tag(first, f"{registry.address}/said", "1", force=True)

    assert says(tmp_path, image, "missing")[0] == "first"
    word, second = says(tmp_path, image, "always")
    assert (word, second == first) == ("second", False)
    registry.stop()
    with pytest.raises(ImageUnavailable, match=rf"{image} .*pull_policy always"):
        says(tmp_path, image, "always")


def test_what_cannot_be_fetched_names_image_and_policy(registry: Registry, tmp_path: Path) -> None:
    absent = f"{registry.address}/absent:1"
    with pytest.raises(ImageUnavailable, match=rf"{absent} .*pull_policy missing.*unknown"):
        open_resource(DockerProvider(), Docker, tmp_path, config={"image": absent})
    asked = registry.pulls
    with pytest.raises(ImageUnavailable, match=rf"{absent} .*pull_policy is never"):
        says(tmp_path, absent, "never")
    assert registry.pulls == asked
    registry.stop()
    with pytest.raises(ImageUnavailable, match=rf"{absent} .*pull_policy missing.*refused"):
        says(tmp_path, absent)
    assert containers() == []
