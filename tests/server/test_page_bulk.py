# Shows V50
"""Many executions cancelled or retried, and many approvals decided, after a look at the list."""

from __future__ import annotations

import re

import pytest

from flowengine.page import bulk
from tests.replacing import Limits
from tests.server.api import EXPENSE, PARCEL, Api
from tests.server.test_page import HOSTILE, Browser, waiting

BAD = """
flowengine: 1
id: bad
steps: [{id: a, fail: {type: Broke, message: It broke}}]
"""


@pytest.fixture
def flows() -> tuple[str, ...]:
    return (EXPENSE, PARCEL, BAD)


def picks(text: str) -> dict[str, str]:
    """Return the choices that the form of a list sends on."""
    form = text[text.rindex('<form method="post"') :]
    return dict.fromkeys(re.findall(r'name="(pick\.[^"]+)"', form), "on")


def test_chosen_executions_are_cancelled_after_a_list_that_changes_nothing(api: Api) -> None:
    owner = Browser(api)
    mine, other = (api.engine.run(api.flows[1], {"order": name}).execution for name in "ab")
    done = api.engine.run(api.flows[2]).execution
    text = owner("GET", "/executions").text
    assert all(f'name="pick.{id}"' in text for id in (mine, other, done))
    query = "&".join(f"pick.{id}=on" for id in (mine, done, "none"))
    plan = owner("GET", f"/bulk/executions?do=cancel&{query}").text
    assert "1 will be cancelled" in plan
    assert "it has ended" in plan
    assert "there is none that you may see" in plan
    assert picks(plan) == {f"pick.{mine}": "on"}
    assert api.engine.executions.summary(mine)["status"] == "waiting"

    form = {"form_token": owner.form_token("/executions"), "command": "c", "do": "cancel"}
    form |= {f"pick.{id}": "on" for id in (mine, done, "none")} | {"reason": "over"}
    first, again = (owner("POST", "/bulk/executions", form) for _ in range(2))
    assert first.status_code == again.status_code == 200
    assert "1 of 3 done" in first.text
    assert re.sub(r'value="[^"]+"', "", first.text) == re.sub(r'value="[^"]+"', "", again.text)
    assert api.engine.resume(mine).status == "cancelled"
    assert api.engine.executions.summary(other)["status"] == "waiting"
    record = [(one["path"], one["status"]) for one in api.records.audited(None, 5)]
    assert record.count((f"/executions/{mine}/cancel", 202)) == 1
    assert (f"/executions/{done}/cancel", 409) in record


def test_all_that_match_a_filter_are_retried_up_to_a_bound(api: Api, limits: Limits) -> None:
    limits(bulk, MOST=2)
    for _ in range(3):
        api.engine.run(api.flows[2])
    api.engine.run(api.flows[1], {"order": "a"})
    owner = Browser(api)
    plan = owner("GET", "/bulk/executions?do=retry&all=on&flow=bad").text
    assert "2 will be retried" in plan
    assert "first 2 that match" in plan
    form = {"form_token": owner.form_token("/executions"), "do": "retry", **picks(plan)}
    assert "2 of 2 done" in owner("POST", "/bulk/executions", form).text
    retried = [
        any(event["type"] == "retry" for event in api.engine.executions.events(item["execution"]))
        for item in api.engine.executions.list(flow="bad").items
    ]
    assert sorted(retried) == [False, True, True]
    too_many = {**form, "pick.x": "on"}
    assert owner("POST", "/bulk/executions", too_many).status_code == 403
    for action in ("", "prune"):
        assert owner("GET", f"/bulk/executions?do={action}").status_code == 400


def test_approvals_are_decided_together_and_each_has_its_result(api: Api) -> None:
    ben = Browser(api, api.token("user:ben"))
    ids = [api.started(amount)[1] for amount in (10, 20, 30)]
    _, formed = waiting(api, HOSTILE)
    assert all(f'name="pick.{id}"' in ben("GET", "/approvals").text for id in ids)
    query = "&".join(f"pick.{id}=on" for id in (*ids, formed))
    assert "3 can be decided" not in ben("GET", "/bulk/approvals?all=on&flow=hire").text
    plan = ben("GET", f"/bulk/approvals?{query}").text
    assert "4 can be decided" in plan
    assert "amount: 10" in plan
    plan = ben("GET", f"/bulk/approvals?{query}&choice=approve").text
    assert "3 will be decided" in plan
    assert "Its form has to be filled in" in plan
    assert "<script>alert" not in plan
    assert [api.engine.approvals.show(id)["status"] for id in ids] == ["pending"] * 3

    api.engine.approvals.decide(ids[2], "reject", by="user:carla")
    form = {"form_token": ben.form_token("/approvals"), "choice": "approve", **picks(plan)}
    text = ben("POST", "/bulk/approvals", form).text
    assert "2 of 3 done" in text
    assert text.count("approved by ben") == 2
    assert re.findall(r'<a href="/approvals/\w+">([^<]*)</a>', text) == [
        *("Pay 10?", "Pay 20?", "Pay 30?")
    ]
    assert [api.engine.approvals.show(id)["decision"]["choice"] for id in ids] == [
        *("approve", "approve", "reject")
    ]
