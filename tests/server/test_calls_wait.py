# Shows T47
"""Calls that need an approval, in executions that the server starts: none approves itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from tests.engines.test_approvals_of_one_call import FLOW, SEND, sent
from tests.server.api import OWNER, Api


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes a server whose host has rules, with a flow that calls a tool."""
    (tmp_path / "config/flowengine").mkdir(parents=True)
    (tmp_path / "sending.py").write_text(SEND)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    made: list[Api] = []

    def make(approval: str, rules: str) -> Api:
        (tmp_path / "config/flowengine/rules.yaml").write_text(rules)
        made.append(Api(tmp_path, (FLOW.replace("APPROVAL", approval),)))
        return made[-1]

    yield make
    for api in made:
        api.close()


def driven(api: Api, id: str) -> str:
    """Drive an execution as a worker does, and return its status."""
    with Engine(api.folder / "store", durability="none", user=OWNER) as engine:
        return engine.resume(id).status


@pytest.mark.parametrize(
    ("approval", "rules"),
    [("ask", "rules: [{allow: other}]\n"), ("required", "rules: [{allow: send}]\n")],
)
def test_a_call_waits_for_its_decision_whatever_is_allowed(
    served: Any, approval: str, rules: str
) -> None:
    api = served(approval, rules)
    id = api("POST", "/v1/executions", {"flow": "it"}, code=201)["execution"]
    assert driven(api, id) == driven(api, id) == "waiting"
    assert sent() == ""
    [wait] = api("GET", "/v1/approvals")["items"]
    assert wait.get("required", False) is (approval == "required")
    api("POST", f"/v1/approvals/{wait['id']}/decision", {"choice": "approve"}, code=200)
    assert driven(api, id) == "waiting"  # the second round asks again
    assert sent() == "round 1;"


def test_the_rule_of_the_host_that_approves_is_in_the_record(served: Any) -> None:
    api = served("ask", "rules: [{allow: send}]\n")
    id = api("POST", "/v1/executions", {"flow": "it"}, code=201)["execution"]
    assert driven(api, id) == "succeeded"
    assert sent() == "round 1;round 2;"
    events = api("GET", f"/v1/executions/{id}/events")["items"]
    decided = [(one["by"], one["via"]) for one in events if one["type"] == "decided"]
    assert decided == [("rule", "rule")] * 2
