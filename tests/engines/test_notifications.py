"""Notifications that fail, and the address in them (also `notifications.cases.yaml`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import UsageError
from flowengine.kernel.notation.times import parse_time
from tests.engines.world import Clock

TELL = """\
from pathlib import Path
import json

def tell(approval: dict) -> None:
    if Path("down").exists():
        raise ConnectionError("no route")
    with open("told.txt", "a") as file:
        file.write(json.dumps(approval) + "\\n")
"""
HEAD = """\
flowengine: 1
id: pay
tools:
  tell: {python: "telling:tell"}
"""
PAY = f"""{HEAD}
steps:
  - id: ask
    approval:
      title: Pay it?
      subject: {{amount: 5}}
      assignees: ["user:ana"]
      notify: [tell]
      remind: 8h
      escalate: [{{after: 20h, to: ["user:cfo"]}}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = tmp_path / "config" / "flowengine"
    config.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config.parent))
    monkeypatch.chdir(tmp_path)
    Path("telling.py").write_text(TELL)
    Path("pay.yaml").write_text(PAY)
    return tmp_path


def told() -> list[dict[str, Any]]:
    file = Path("told.txt")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def reasons(engine: Engine, id: str) -> list[tuple[str, str]]:
    """Return what `why` says about notifications, with the commands."""
    return [
        (reason["what"], reason["command"])
        for reason in engine.executions.why(id)
        if "notification" in reason["what"]
    ]


# Shows V37
def test_a_failure_is_tried_again_shown_and_sent_by_hand_and_the_approval_goes_on() -> None:
    Path("down").touch()
    clock = Clock()
    with Engine("store", clock=clock, linger=0) as engine:
        [wait] = engine.run("pay.yaml", id="it").waits
        [sent] = engine.executions.list(flow="_notify.tell").items
        command = f"flowengine why {engine.store.short_execution(sent['execution'])}"
        [(what, shown)] = reasons(engine, "it")
        assert what.startswith("the notification by 'tell' is not sent yet: ")
        assert ("no route" in what, shown) == (True, command)
        [reason] = [one for one in engine.executions.why("it") if "notification" in one["what"]]
        assert reason["since"] == sent["started_at"]
        assert parse_time(reason["due"]) == engine.store.execution(sent["execution"]).due
        pauses = 0
        while engine.resume(sent["execution"]).status == "waiting":
            clock.time = engine.store.execution(sent["execution"]).due or 0
            pauses += 1
        assert pauses == 9
        [(what, command)] = reasons(engine, "it")
        assert what.startswith("the notification by 'tell' was not sent: ")
        assert "no route" in what
        assert command.startswith("flowengine retry ")

        Path("down").unlink()
        assert engine.executions.retry(sent["execution"]).status == "succeeded"
        assert reasons(engine, "it") == []
        assert [one["id"] for one in told()] == [wait["id"]]
        Path("down").touch()
        done = engine.approvals.decide(wait["id"], "approve", by="user:ana").result
        assert done is not None
        assert done.status == "succeeded"


def test_a_project_cannot_lead_approvers_elsewhere(folder: Path) -> None:
    (folder / ".flowengine").mkdir()
    (folder / ".flowengine" / "settings.yaml").write_text("server_url: https://evil.example\n")
    with pytest.raises(UsageError, match="a project cannot set server_url"):
        Engine(folder / ".flowengine")


@pytest.mark.parametrize("url", ["ftp://x", "https://u:p@x", "https://x/?a", "x", "https://x y"])
def test_the_address_of_the_page_is_checked(folder: Path, url: str) -> None:
    settings = folder / "config" / "flowengine" / "settings.yaml"
    settings.write_text(json.dumps({"server_url": url}))
    with pytest.raises(UsageError, match="server_url is not an address"):
        Engine("store")
