"""The containers of the page about Kubernetes, as processes with their arguments and variables."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.certificates import own_certificate
from tests.command_line import PROGRAM
from tests.engines.conftest import Temporal
from tests.engines.temporal_server import SECONDS, free_port
from tests.engines.world import until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "kubernetes.md"
FLOW = """\
flowengine: 1
id: report
inputs: {day: {type: string}}
steps: [{id: write, output: "${{ 'report of ' + inputs.day }}"}]
outputs: {text: "${{ steps.write.output }}"}
"""


class Cluster:
    """The manifests of the page, with addresses and directories of this machine."""

    def __init__(self, temporal: Temporal, folder: Path) -> None:
        text = PAGE.read_text(encoding="utf-8")
        blocks = re.findall(r"```yaml\n# (\w+)\.yaml\n(.*?)```", text, re.DOTALL)
        manifests = {name: yaml.safe_load(block) for name, block in blocks}
        self.commands = [line.split() for line in re.findall(r"-- (flowengine .*)", text)]
        self._settings = manifests.pop("settings")["data"]
        self._pods = {name: each["spec"]["template"]["spec"] for name, each in manifests.items()}
        self._folder = folder
        self._store = temporal.store("kubernetes")
        (folder / "tls").mkdir()
        made = own_certificate(folder / "tls", "flows.example.com")
        for name in ("tls.crt", "tls.key"):
            (folder / "tls" / name).write_bytes(made.read_bytes())
        self._ports = {8080: free_port(), 8383: free_port()}

    def container(self, pod: str) -> Any:
        [container] = self._pods[pod]["containers"]
        return container

    def here(self, text: str) -> str:
        """Return an argument or variable as it is on this machine."""
        if text.startswith("temporal://"):
            return self._store
        for port, own in self._ports.items():
            text = re.sub(rf"(^|:){port}$", rf"\g<1>{own}", text)
        return re.sub(r"^/(?=objects|tls|state)", f"{self._folder}/", text)

    def run(self, pod: str, words: list[str]) -> subprocess.Popen[str]:
        """Run the program in the environment of a container, whose volumes are mounted."""
        container = self.container(pod)
        assert container["envFrom"] == [{"configMapRef": {"name": "flows"}}]
        volumes = {volume["name"] for volume in self._pods[pod]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        own = {each["name"]: each["value"] for each in container.get("env", [])}
        variables = {name: self.here(value) for name, value in (self._settings | own).items()}
        return subprocess.Popen(
            [PROGRAM, *map(self.here, words)],
            cwd=self._folder,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            text=True,
        )

    def output(self, pod: str, words: list[str]) -> str:
        """Return what a command prints in the environment of a container."""
        with self.run(pod, words) as process:
            printed, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        return printed

    def is_well(self, pod: str, probe: str) -> bool:
        """Return whether the probe of a container succeeds. Its address is the name of the host."""
        get = self.container(pod)[probe]["httpGet"]
        scheme, port = get.get("scheme", "HTTP").lower(), self._ports[get["port"]]
        headers = {each["name"]: each["value"] for each in get.get("httpHeaders", [])}
        try:
            # Kubernetes does not check the certificate.
            answer = httpx2.get(
                f"{scheme}://127.0.0.1:{port}{get['path']}", headers=headers, verify=False
            )
        except httpx2.TransportError:
            return False
        return answer.status_code == 200

    def api(self, token: str) -> httpx2.Client:
        """Return a client of the server, which checks its certificate."""
        trusted = ssl.create_default_context(cafile=self._folder / "tls" / "tls.crt")
        trusted.check_hostname = False  # the request goes to an address
        headers = {"Host": "flows.example.com", "Authorization": f"Bearer {token}"}
        url = f"https://127.0.0.1:{self._ports[8383]}/v1/"
        return httpx2.Client(base_url=url, headers=headers, verify=trusted)


@pytest.fixture
def cluster(temporal: Temporal, tmp_path: Path) -> Cluster:
    (tmp_path / "report.yaml").write_text(FLOW)
    return Cluster(temporal, tmp_path)


@pytest.mark.endurance(sample=30)
def test_they_are_healthy_run_a_flow_and_stop_in_time(cluster: Cluster) -> None:
    with running(cluster, "worker") as worker, running(cluster, "server") as server:
        for name in ("worker", "server"):
            until(lambda: cluster.is_well(name, "readinessProbe"), pause=0.1)  # noqa: B023
        assert cluster.is_well("worker", "livenessProbe")
        printed = [cluster.output("server", command[1:]) for command in cluster.commands]
        with cluster.api(printed[-1].split()[-1]) as api:
            body = {"flow": "report", "id": "r1", "inputs": {"day": "Monday"}}
            assert api.post("executions", json=body).is_success
            until(lambda: api.get("executions/r1").json()["status"] == "succeeded", pause=0.1)
            assert api.get("executions/r1").json()["outputs"] == {"text": "report of Monday"}
    assert (worker.returncode, server.returncode) == (0, 0)


@contextmanager
def running(cluster: Cluster, pod: str) -> Iterator[subprocess.Popen[str]]:
    """Run the container of a pod, and end it as Kubernetes does."""
    with cluster.run(pod, cluster.container(pod)["args"]) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)
