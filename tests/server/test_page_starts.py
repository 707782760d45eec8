# Shows V55
"""Starting executions on the page: a form from the schemas of the inputs."""

from __future__ import annotations

import re

import pytest

from tests.server.api import EXPENSE, Api
from tests.server.test_page import HOSTILE, Browser

TRIP = """
flowengine: 1
id: trip
inputs:
  city: {type: string, default: Bern, maxLength: 20}
  days: {type: integer, minimum: 1, maximum: 5}
  class: {type: string, enum: [first, second], default: second}
  night: {type: boolean, default: true}
  stops: {type: array, items: {type: string}, default: []}
  place: {type: string, format: path, default: "."}
steps: [{id: ask, approval: {title: "To ${{ inputs.city }}?"}}]
"""


@pytest.fixture
def flows() -> tuple[str, ...]:
    return (EXPENSE, TRIP)


@pytest.fixture
def owner(api: Api) -> Browser:
    return Browser(api)


def submitted(browser: Browser, path: str = "/flows/trip") -> dict[str, str]:
    """Return what a browser would send for an unchanged form."""
    text = browser("GET", path).text
    form = dict(
        re.findall(
            r'<input(?: type="hidden")?(?: id="[^"]*")? name="([^"]+)" value="([^"]*)"', text
        )
    )
    form |= {
        name: re.sub("&#34;", '"', value)
        for name, value in re.findall(
            r'<textarea id="[^"]*" name="([^"]+)"[^>]*>(.*?)</textarea>', text, re.DOTALL
        )
    }
    for name, options in re.findall(r'<select [^>]*name="([^"]+)">(.*?)</select>', text, re.DOTALL):
        form[name] = "".join(re.findall(r"<option selected>(.*?)</option>", options))
    form |= dict.fromkeys(
        re.findall(r'type="checkbox" id="[^"]*" name="([^"]+)" value="true" checked', text), "true"
    )
    return form


def test_an_execution_is_started_from_the_schemas_of_its_inputs(api: Api, owner: Browser) -> None:
    assert 'href="/flows/trip"' in owner("GET", "/flows").text
    text = owner("GET", "/flows/trip").text
    assert "At least 1, at most 5" in text
    assert "<code>place</code>, a path on the machine" in text
    form = submitted(owner)
    refused = owner("POST", "/flows/trip", {**form, "input.city": "Rom", "input.days": "9"})
    assert refused.status_code == 422
    assert 'value="Rom"' in refused.text
    assert "must be at most 5" in refused.text
    missing = owner("POST", "/flows/trip", form)
    [message] = re.findall(r'role="alert">(.*?)</p>', missing.text)
    assert message.startswith("One field needs a change: days")
    assert "-i" not in message

    wrong = owner("POST", "/flows/trip", {**form, "input.days": "2", "labels": "x"})
    assert "not NAME=VALUE" in wrong.text
    sent = {**form, "input.days": "2", "input.stops": '["Chur"]', "labels": "team=blue\r\n"}
    del sent["input.night"]
    places = {owner("POST", "/flows/trip", sent).headers["location"] for _ in range(2)}
    [place] = places
    info = api.engine.executions.show(place.removeprefix("/executions/"), until=1)
    api.engine.resume(info["execution"])
    info = api.engine.executions.show(info["execution"])
    assert info["inputs"] == {
        "city": "Bern",
        "days": 2,
        "class": "second",
        "night": False,
        "stops": ["Chur"],
        "place": info["inputs"]["place"],
    }
    assert (info["labels"], info["started_by"]) == ({"team": "blue"}, "user:owner")


def test_who_may_not_start_or_see_a_flow_cannot(api: Api, owner: Browser) -> None:
    first = api.engine.run(api.flows[1], {"days": 3, "city": "Genf"}).execution
    vera, sam = Browser(api, api.token("user:vera")), Browser(api, api.token("user:sam"))
    assert "do not have the right" in vera("GET", "/flows/trip").text
    assert sam("GET", "/flows/trip").status_code == 404
    assert "trip" not in sam("GET", "/flows").text
    with open("other.yaml", "w") as file:
        file.write(TRIP.replace("id: trip", "id: other"))
    hidden = api.engine.run("other.yaml", {"days": 1}).execution
    assert "Start again" not in owner("GET", f"/executions/{hidden}").text
    otto = Browser(api, api.token("user:otto"))
    assert "Start again" not in otto("GET", f"/executions/{first}").text
    assert otto("GET", f"/flows/trip?like={first}").status_code == 403
    path = f"/flows/trip?city={HOSTILE}"
    form = {"form_token": otto.form_token("/approvals"), "input.city": HOSTILE, "input.days": "x"}
    assert otto("GET", path).status_code == 200
    refused = otto("POST", "/flows/trip", form)
    assert refused.status_code == 422
    assert "<script>alert" not in refused.text
    assert "&lt;script&gt;alert" in refused.text
    assert (
        sam("POST", "/flows/trip", {**form, "form_token": sam.form_token("/approvals")}).status_code
        == 404
    )
