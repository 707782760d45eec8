# Shows F50, F5
"""`flowengine serve` as a process, and `flowengine tokens`."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.command_line import PROGRAM, flowengine
from tests.engines.world import until
from tests.server.api import EXPENSE

SETTINGS = "access: [{who: [ben], role: approver}]\n"


class Served(NamedTuple):
    process: subprocess.Popen[str]
    url: str
    token: Path

    def __call__(self, method: str, path: str, data: Any = None, token: str = "") -> Any:
        text = token or self.token.read_text().strip()
        headers = {"authorization": f"Bearer {text}"}
        answer = httpx2.request(method, self.url + path, json=data, headers=headers, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = tmp_path / "config" / "flowengine"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text(SETTINGS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expense.yaml").write_text(EXPENSE)
    assert flowengine("deploy", "expense.yaml").code == 0
    return tmp_path


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Served]:
    process = subprocess.Popen(
        [PROGRAM, "serve", "--port", "0", *options],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines = ""
    while not (file := re.search(r"token is in (.+)$", lines, re.MULTILINE)):
        lines += process.stderr.readline()
        assert process.poll() is None, lines
    url = re.search(r"(http://\S+)", lines)
    assert url
    yield Served(process, url[1], Path(file[1]))
    process.kill()
    process.communicate()


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    with serving(folder) as served:
        yield served


# Shows P17
def test_a_server_with_a_worker_drives_executions_and_ends_with_it(folder: Path) -> None:
    with serving(folder, "--worker") as served:
        start = {"flow": "expense", "inputs": {"amount": 80}}
        id = served("POST", "/v1/executions", start)["execution"]
        until(lambda: served("GET", f"/v1/executions/{id}")["status"] == "waiting")
        [wait] = served("GET", "/v1/approvals")["items"]
        assert flowengine("approve", wait["id"], "--as", "ben", "--no-resume").code == 0
        until(lambda: served("GET", f"/v1/executions/{id}")["status"] == "succeeded")

        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(60) == 0


@pytest.mark.endurance
def test_a_server_records_what_a_command_line_drives_and_ends_when_it_is_told_to(
    served: Served,
) -> None:
    assert stat.S_IMODE(served.token.stat().st_mode) == 0o600
    ben = flowengine("tokens", "create", "ben", "--user", "ben").out.splitlines()[-1]
    id = served("POST", "/v1/executions", {"flow": "expense", "inputs": {"amount": 80}})[
        "execution"
    ]
    assert flowengine("resume", "--due").code == 0
    [wait] = served("GET", "/v1/approvals?assignee=me", token=ben)["items"]
    served("POST", f"/v1/approvals/{wait['id']}/decision", {"choice": "approve"}, token=ben)
    assert flowengine("resume", "--due").code == 0
    assert served("GET", f"/v1/executions/{id}")["status"] == "succeeded"

    with httpx2.Client(timeout=60) as client:
        headers = {
            "authorization": f"Bearer {served.token.read_text().strip()}",
            "accept": "text/event-stream",
        }
        path = f"{served.url}/v1/executions/{id}/events"
        with client.stream("GET", path, headers=headers) as stream:
            text = "".join(stream.iter_text())
    assert text.count("event: entry") == len(flowengine("--json", "events", id).out.splitlines())
    assert "event: end" in text

    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(60) == 0


# Shows V23
def test_other_machines_need_tls_or_a_proxy(folder: Path) -> None:
    done = flowengine("serve", "--host", "0.0.0.0")
    assert done.code == 2
    assert "other machines would send their tokens in plain text" in done.err
    assert "--tls-certificate" in done.err
    assert flowengine("serve", "--tls-key", "k.pem").code == 2
    assert flowengine("serve", "--proxy", "proxy.example", "--host", "0.0.0.0").code == 2
