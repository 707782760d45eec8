"""The research crew: parallel questions, handoffs, a report that an approver sends back."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.conftest import EXAMPLES, Shell

HERE = EXAMPLES / "research_crew"


PORT = "18766"
"""The port of the example's site."""


@pytest.fixture
def port() -> str:
    """Return a free port, because another test run may use the example's own."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return str(line.getsockname()[1])


@pytest.fixture(autouse=True)
def folder(flowengine: Shell, port: str) -> Path:
    shutil.copytree(HERE, flowengine.folder, dirs_exist_ok=True)
    for name in ("light_list.py", "replies.json", "research.yaml"):
        file = flowengine.folder / name
        file.write_text(file.read_text().replace(PORT, port))
    return flowengine.folder


def test_its_readme_shows_what_happens_with_a_site(
    flowengine: Shell, folder: Path, port: str
) -> None:
    readme = (HERE / "README.md").read_text().replace(PORT, port)
    [transcript] = re.findall(r"^```console\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    shown = re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]
    site = subprocess.Popen(
        [sys.executable, "light_list.py"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert site.stdout is not None
    try:
        assert site.stdout.readline()
        for one, code in zip(shown, (4, 4, 0), strict=True):
            command, _, told = one.partition("\n")
            [wait] = flowengine("--json", "approvals", "list").json() or [{"id": ""}]
            program, *words = shlex.split(command)
            assert program == "flowengine"
            words = [wait["id"] if re.fullmatch("[0-9a-f]{4}", word) else word for word in words]
            done = flowengine(*words, code=code)
            assert outline(done.out + done.err) == outline(told)
    finally:
        site.terminate()
        site.wait()
        site.stdout.close()


def outline(text: str) -> list[str]:
    """Return the lines without varying parts: times, IDs, users, the order of parallel events."""
    text = re.sub(r"user:\w+", "USER", text)
    text = re.sub(r"\d+\.\ds", "TIME", re.sub(r"\d{4}-\d\d-\d\dT\S+", "TIME", text))
    text = re.sub(r"\b01[0-9a-z]{10}\b", "EXECUTION", text)
    text = re.sub(r"(?<![\w.])[0-9a-f]{4}(?!\w)", "ID", text)
    return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())
