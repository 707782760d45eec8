"""Notifications about approvals: sent at least once, and never in the way of the approval (V37)."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, load
from flowengine.errors import FlowFileError, UsageError
from tests.engines.world import Clock
from tests.testing.faulty_store import FaultyStore, ProcessDied

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
        for reason in engine.why(id)
        if "notification" in reason["what"]
    ]


def test_each_wait_reminder_and_escalation_calls_the_tool(folder: Path) -> None:
    settings = folder / "config" / "flowengine" / "settings.yaml"
    settings.write_text("server_url: https://flows.example.com/\n")
    clock = Clock()
    with Engine("store", clock=clock, linger=0) as engine:
        [wait] = engine.run("pay.yaml", id="it").waits
        for _ in range(3):
            clock.time += 8 * 3_600_000
            engine.resume("it")
        assert reasons(engine, "it") == []
        engine.decide(wait["id"], "approve", by="user:cfo")
        clock.time += 8 * 3_600_000
        assert engine.resume("it").status == "succeeded"

    calls = sorted(told(), key=lambda one: one["number"])
    seen = [(one["why"], one["number"], one["to"]) for one in calls]
    assert seen == [
        ("opened", 1, ["user:ana"]),
        ("reminded", 2, ["user:ana"]),
        ("reminded", 3, ["user:ana"]),
        ("escalated", 4, ["user:ana", "user:cfo"]),
        ("reminded", 5, ["user:ana", "user:cfo"]),
    ]
    first = calls[0]
    assert first["link"] == f"https://flows.example.com/approvals/{wait['id']}"
    assert (first["title"], first["subject"]) == ("Pay it?", {"amount": 5})


def test_a_failure_is_tried_again_shown_and_sent_by_hand_and_the_approval_goes_on() -> None:
    Path("down").touch()
    clock = Clock()
    with Engine("store", clock=clock, linger=0) as engine:
        [wait] = engine.run("pay.yaml", id="it").waits
        [sent] = engine.executions(flow="_notify.tell").items
        command = f"flowengine why {engine.store.short_execution(sent['execution'])}"
        [(what, shown)] = reasons(engine, "it")
        assert what.startswith("the notification by 'tell' is not sent yet: ")
        assert ("no route" in what, shown) == (True, command)
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
        assert engine.retry(sent["execution"]).status == "succeeded"
        assert reasons(engine, "it") == []
        assert [one["id"] for one in told()] == [wait["id"]]
        Path("down").touch()
        done = engine.decide(wait["id"], "approve", by="user:ana").result
        assert done is not None
        assert done.status == "succeeded"


def test_the_caller_does_not_wait_until_a_notification_is_sent_again() -> None:
    Path("down").touch()
    with Engine("store", linger=60) as engine:
        engine.run("pay.yaml", id="it")
        [sent] = engine.executions(flow="_notify.tell").items
        steps = [step["address"] for step in engine.show(sent["execution"])["steps"]]
    assert (sent["status"], steps) == ("waiting", ["send", "pause"])


def test_whatever_crashes_each_wait_is_notified_about() -> None:
    for crash in range(60):
        store = FaultyStore(faults={crash: "die after" if crash % 2 else "die before"})
        with suppress(ProcessDied), Engine(store, linger=0) as engine:
            engine.run("pay.yaml", id="it")
        writes, store.faults = store.writes, {}
        store.restart()
        with Engine(store, linger=0) as engine:
            [wait] = engine.run("pay.yaml", id="it").waits
            for due in engine.due():
                engine.resume(due.execution)
            assert wait["id"] in {one["id"] for one in told()}, crash
            assert len(engine.executions(flow="_notify.tell").items) == 1
        Path("told.txt").unlink()
        if writes <= crash:
            return
    raise AssertionError("it never came through")


def test_calls_and_environments_notify_too_unless_a_rule_answers_first() -> None:
    Path("call.yaml").write_text(f"""{HEAD}
  act: {{std: write_file, approval: {{notify: [tell]}}}}
environments:
  box: {{kind: files, approval: {{notify: [tell]}}}}
steps:
  - {{id: call, call: act, with: {{path: a, text: b}}, environments: {{files: box}}}}
""")
    with Engine("store", linger=0) as engine:
        for name in ("act", "box"):
            waits = engine.run("call.yaml", id="it").waits
            assert len(waits) == 1, name
            given: Any = {"grant": {"scope": "flow"}} if name == "act" else {}
            engine.approve(waits[0]["id"], **given)
        assert [(one["tool"], one["environment"]) for one in told()] == [
            ("act", None), (None, "box"),
        ]  # fmt: skip
        engine.run("call.yaml", id="again")  # a grant has answered the question about the call
        assert [one["environment"] for one in told()] == [None, "box", "box"]


@pytest.mark.parametrize(
    ("tools", "code", "message"),
    [
        ("other: {std: print}", "E401", "there is no tool 'tell'"),
        ("tell: {python: 'telling:tell', approval: ask}", "E103", "needs an approval itself"),
        ("tell: {shell: [x], args: {properties: {n: {}}, additionalProperties: false}}", "E402",
         "approval"),
    ],
)  # fmt: skip
def test_tools_that_cannot_notify_are_refused(tools: str, code: str, message: str) -> None:
    text = PAY.replace('tell: {python: "telling:tell"}', tools)
    Path("pay.yaml").write_text(text)
    with pytest.raises(FlowFileError) as refused:
        load("pay.yaml")
    assert any(one.code == code and message in one.message for one in refused.value.diagnostics), (
        refused.value.diagnostics
    )


def test_an_imported_file_notifies_with_its_own_tools_also_detached() -> None:
    Path("lib.yaml").write_text(PAY.replace("id: pay", "id: lib"))
    Path("main.yaml").write_text("""\
flowengine: 1
id: main
imports: {lib: lib.yaml}
steps:
  - {id: one, flow: lib.lib, detach: true}
  - {id: two, flow: lib.lib}
""")
    with Engine("store", linger=0) as engine:
        engine.run("main.yaml", id="it")
        assert sorted(one["flow"] for one in told()) == ["lib", "main"]
        assert len(engine.executions(flow="_notify.lib.tell").items) == 2


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
