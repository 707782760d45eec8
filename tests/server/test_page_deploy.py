# Shows V10
"""Deploying a flow on the page: checked first, then deployed, within the limits of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.api import EXPENSE, Api
from tests.server.conftest import SETTINGS
from tests.server.test_page import Browser
from tests.server.test_page_files import sent

TEA = """\
flowengine: 1
id: tea
inputs: {cups: {type: integer, default: 1}}
steps: [{id: ask, approval: {title: "Tea?"}}]
"""


@pytest.fixture
def server(api: Api, tmp_path: Path) -> Iterator[Api]:
    """A server whose host allows deployments."""
    settings = tmp_path / "config" / "flowengine" / "settings.yaml"
    settings.write_text(f"{SETTINGS}\ndeploys: {{}}\n")
    server = Api(tmp_path / "allowed", (EXPENSE,))
    yield server
    server.close()


def shown_form(text: str) -> dict[str, str]:
    """Return what the browser would send for the form of a shown page."""
    form = dict(re.findall(r'name="(form_token|command|checked)" value="([^"]*)"', text))
    [entered] = re.findall(r"<textarea[^>]*>(.*?)</textarea>", text, re.DOTALL)
    return {**form, "text": entered.replace("&#34;", '"').replace("\n", "\r\n")}


def test_a_flow_file_is_checked_then_deployed(server: Api) -> None:
    ada = Browser(server, server.token("user:ada"))
    assert 'href="/deploy"' in ada("GET", "/flows").text
    form = {"form_token": ada.form_token("/deploy"), "do": "deploy"}
    wrong = sent(
        ada, "/deploy", form, [("text.file", ("tea.yaml", TEA.replace("ask", "?").encode()))]
    )
    assert "1 error" in wrong.text
    assert re.search(r"line 4, column \d+:", wrong.text)
    assert 'value="deploy"' not in wrong.text
    checked = sent(ada, "/deploy", form, [("text.file", ("tea.yaml", TEA.encode()))])
    assert "The flow <strong>tea</strong> is new" in checked.text
    assert [one["flow"] for one in server.engine.flows.versions()] == [
        "expense"
    ]  # nothing is skipped
    form = {**shown_form(checked.text), "do": "deploy"}
    changed = ada("POST", "/deploy", {**form, "text": TEA.replace("Tea?", "Coffee?")})
    assert changed.status_code == 200  # another text than was checked is checked first
    assert "No errors" in changed.text
    deployed = ada("POST", "/deploy", form)
    assert (deployed.status_code, deployed.headers["location"]) == (303, "/flows/tea")
    started = server("POST", "/v1/executions", {"flow": "tea", "inputs": {}}, code=201)
    assert server.engine.resume(started["execution"]).waits[0]["title"] == "Tea?"
    again = sent(ada, "/deploy", form, [("text.file", ("tea.yaml", TEA.encode()))])
    assert "becomes the current version" in again.text
    assert server("GET", "/v1/audit")["items"][0]["path"] == "/deploy"


def test_the_host_decides_whether_the_page_deploys(api: Api) -> None:
    ada, otto = Browser(api, api.token("user:ada")), Browser(api, api.token("user:otto"))
    assert "does not allow deployments" in ada("GET", "/deploy").text
    assert "/deploy" not in otto("GET", "/flows").text
    form = {"form_token": ada.form_token("/deploy"), "text": TEA}
    checked = ada("POST", "/deploy", form).text
    assert "No errors" in checked
    assert 'value="deploy"' not in checked
    forced = ada("POST", "/deploy", {**shown_form(checked), "do": "deploy"})
    assert forced.status_code == 403
    for content in (b"\xff\xfd", b"#" * 1024 * 1024 + b"#"):
        refused = sent(ada, "/deploy", form, [("text.file", ("tea.yaml", content))])
        assert refused.status_code == 422
    form = {"form_token": otto.form_token("/flows"), "text": TEA}
    assert otto("POST", "/deploy", form).status_code == 403
    assert len(api.engine.flows.versions()) == 2
