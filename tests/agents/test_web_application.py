"""The web application of the documentation: from the start over the stream to a decision."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from flowengine.testing import call, scripted

PAGE = Path(__file__).parents[2] / "docs" / "agents-in-python.md"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    [program] = re.findall(r"```python\n# web\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "web.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with TestClient(import_module("web").app) as client:
        yield client
    del sys.modules["web"]


def say(client: TestClient, user: str, text: str) -> list[tuple[str, Any]]:
    """Send a message, and return the events of its stream."""
    with client.stream("POST", f"/chats/{user}", json={"text": text}) as response:
        assert response.status_code == 200
        body = "".join(response.iter_text())
    events = (event.split("\n") for event in body.strip().split("\n\n"))
    return [(kind.removeprefix("event: "), json.loads(data[6:])) for kind, data in events]


def test_a_run_is_streamed_decided_in_another_request_and_continued(client: TestClient) -> None:
    with scripted("Hello.", call("pay", amount=80), "You get 80 EUR.", "Bye."):
        *pieces, (last, response) = say(client, "ana", "Hi.")
        assert "".join(piece for kind, piece in pieces if kind == "text") == "Hello."
        assert (last, response["output"], response["agent"]) == ("response", "Hello.", "Clerk")

        [(_, question), (_, waiting)] = say(client, "ana", "My chair broke.")
        assert question["call"] == {"amount": 80}
        assert (waiting["output"], waiting["waits"][0]["id"]) == (None, question["id"])

        decided = client.post(f"/decisions/{question['id']}", json={"approve": True}).json()
        assert (decided["output"], decided["termination"]) == ("You get 80 EUR.", "resolved")
        assert say(client, "ana", "Thanks.")[-1][1]["output"] == "Bye."


def test_a_call_is_rejected_in_another_request(client: TestClient) -> None:
    with scripted(call("pay", amount=80), "Sorry."):
        [(_, question), _] = say(client, "ben", "My chair broke.")
        decided = client.post(f"/decisions/{question['id']}", json={"approve": False}).json()
    assert decided["output"] == "Sorry."
    assert "paid" not in decided["messages"][-2]["content"]
