# Shows V56
"""Flows on the page: versions, schedules, outcomes over time, and the environments they use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.server.api import EXPENSE, Api
from tests.server.test_page import HOSTILE, Browser, words

REPORT = f"""
flowengine: 1
id: report
version: "1"
title: {json.dumps(HOSTILE)}
start: [{{schedule: "0 9 * * 1-5", timezone: Europe/Berlin}}]
inputs: {{day: {{type: string, default: today}}}}
steps: [{{id: ask, approval: {{title: First?}}}}]
"""


@pytest.fixture
def flows() -> tuple[str, ...]:
    return (EXPENSE, REPORT)


@pytest.fixture
def owner(api: Api) -> Browser:
    return Browser(api)


def test_a_schedule_is_paused_resumed_and_run_out_of_turn(api: Api, owner: Browser) -> None:
    path, form = "/flows/report", {"form_token": owner.form_token("/flows")}
    text = owner("GET", path).text
    [times] = re.findall(r"Next: (.*?)</p>", text, re.DOTALL)
    moments = re.findall(r'datetime="([^"]+)"', times)
    assert len(moments) == 3
    assert sorted(moments) == moments
    assert moments[0] == api.engine.flows.starts("report")[0]["next"]
    assert "next" in owner("GET", "/flows").text
    [schedule] = re.findall(r'name="schedule" value="([^"]+)"', text)
    run = {**form, "command": "c", "schedule": schedule}
    [place] = {owner("POST", f"{path}/run", run).headers["location"] for _ in range(2)}
    assert api.engine.executions.summary(place.rpartition("/")[2])["started_by"] == "user:owner"

    assert owner("POST", f"{path}/pause", form).headers["location"] == path
    assert "next" not in api.engine.flows.starts("report")[0]
    text = owner("GET", path).text
    assert "paused" in text
    assert "/report/pause" not in text
    assert owner("POST", f"{path}/resume", form).headers["location"] == path
    assert "next" in api.engine.flows.starts("report")[0]
    assert owner("POST", "/flows/expense/pause", form).status_code == 404
    for role, codes in (("viewer", (403, 403)), ("starter", (303, 403)), ("operator", (303, 303))):
        limited = Browser(api, api.token("user:owner", role))
        assert (f"{path}/run" in limited("GET", path).text) is (codes[0] == 303), role
        own = {"form_token": limited.form_token("/flows"), "schedule": schedule, "command": role}
        sent = [limited("POST", f"{path}/{act}", own).status_code for act in ("run", "pause")]
        assert tuple(sent) == codes, role  # as with the API's token


# Shows P12
def test_outcomes_and_durations_are_drawn_from_the_list(
    api: Api, owner: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 'class="chart"' not in owner("GET", "/flows/report").text
    for choice in ("approve", "approve", "cancel"):
        result = api.engine.run(api.flows[1])
        if choice == "approve":
            api.engine.approvals.approve(result.waits[0]["id"])
        else:
            api.engine.executions.cancel(result.execution)
    monkeypatch.setattr(type(api.engine.executions), "show", None)  # no journal is read
    text = owner("GET", "/flows/report").text
    assert "2 succeeded 1 cancelled" in words(text)
    assert text.count('class="chart"') == 2
    table = owner("GET", "/flows").text
    assert "oldest first: succeeded, succeeded, cancelled" in table
    row = words(table[table.index("/flows/report") :])
    assert "66 %" in row
    assert "Europe/Berlin" in row[row.index("Schedules") :]


def test_shared_budgets_are_listed_for_those_who_read_all_flows(
    api: Api, owner: Browser, tmp_path: Path
) -> None:
    spent = tmp_path / "spent.yaml"
    spent.write_text(
        "flowengine: 1\nid: spent\ninputs: {who: {type: string}}\n"
        "budget: {shared: [{key: '${{ inputs.who }}', tool_calls: 1, cost_usd: 2.5}]}\n"
        "steps: [{id: a, call: std.print, with: {text: one}}]\n"
    )
    for who in (HOSTILE, "ana"):
        api.engine.run(spent, {"who": who})

    text = owner("GET", "/budgets").text

    assert "<script>alert" not in text
    rows = [
        words(row)
        for row in re.findall(r"<tr><td>(.*?)</tr>", owner("GET", "/budgets?key=ana").text)
    ]
    assert rows == ["ana all time tool calls 1 0 1 never", "ana all time USD 0 0 2.5 never"]
    assert "No budget was used" in owner("GET", "/budgets?key=bob").text
    otto = Browser(api, api.token("user:otto"))
    assert otto("GET", "/budgets").status_code == 403
    assert "/budgets" in owner("GET", "/flows").text
    assert "/budgets" not in otto("GET", "/flows").text


def test_open_environments_are_listed_and_released_by_operators(api: Api, owner: Browser) -> None:
    execution, _ = api.started()
    spec = {"kind": "files", "scope": "execution", "owner_id": execution, "resource_key": HOSTILE}
    environment = api.engine.environments.ensure(spec).id
    otto = Browser(api, api.token("user:otto"))
    for browser in (owner, otto):
        text = browser("GET", "/environments").text
        assert f'href="/executions/{execution}"' in text
        assert "is running" in text
        assert "<script>alert" not in text
    assert "&lt;script&gt;" not in otto("GET", "/environments").text  # its name is content
    form = {"form_token": owner.form_token("/environments")}
    refused = owner("POST", f"/environments/{environment}/release", form)
    assert refused.status_code == 409
    assert "is in use" in refused.text
    form["force"] = "true"
    assert owner("POST", f"/environments/{environment}/release", form).status_code == 303
    assert "No environments are open" in owner("GET", "/environments").text
    assert "/environments" not in Browser(api, api.token("user:ben"))("GET", "/approvals").text
