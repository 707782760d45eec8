# Shows P8
"""Approvals of calls on the page: their arguments are shown as they are, and stay as they are."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from flowengine import ExecutionResult
from tests.cli.test_approved_calls import FLOW, HOSTILE, TOOLS
from tests.server.api import Api
from tests.server.test_page import Browser


def asked(api: Api, text: str) -> tuple[ExecutionResult, str]:
    """Return an execution that asks about a call with a text, and the address of the approval."""
    Path("tools.py").write_text(TOOLS)
    Path("pay.yaml").write_text(FLOW.replace("TEXT", json.dumps(text)))
    result = api.engine.run("pay.yaml")
    return result, f"/approvals/{result.waits[0]['id']}"


@pytest.mark.endurance
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
# Shows T49
def test_hostile_arguments_are_shown_harmless_and_unchanged_by_an_approval(
    api: Api, text: str
) -> None:
    result, address = asked(api, text)
    owner = Browser(api)

    for path in ("/approvals", address, f"/executions/{result.execution}"):
        page = owner("GET", path).text
        assert all(char == "\n" or char.isprintable() for char in page)
        assert len(page) < 50_000
    page = owner("GET", address).text
    patterns = (r'<dt>text</dt><dd class="body">(.*?)</dd>', r'name="edit.text" value="(.*?)"',
                r'name="edit.text" rows="3">\n(.*?)</textarea>')  # fmt: skip
    shown = next(found[0] for one in patterns if (found := re.findall(one, page, re.DOTALL)))
    if len(text) > 1000:
        assert re.search(r"yyy … 1000000 characters, sha256 [0-9a-f]{16} … yyy", shown)
    else:
        given = unescape(shown)
        assert (json.loads(given) if given.startswith('"') else given) == text

    approve(owner, address)
    assert api.engine.resume(result.execution).outputs == {"said": text.upper()}


def approve(browser: Browser, address: str, old: str = "", new: str = "") -> None:
    """Send the form of an approval as it is, or with one change."""
    fields = as_sent(browser("GET", address).text)
    fields = {name: value.replace(old, new) if old else value for name, value in fields.items()}
    token = browser.form_token(address)
    answer = browser("POST", address, {"form_token": token, **fields, "choice": "approve"})
    assert answer.status_code == 303, answer.text


def as_sent(page: str) -> dict[str, str]:
    """Return the edited field as a browser sends it back (HTML, 4.10.5.1.2 and 4.10.11)."""
    sent = {}
    for name, value in re.findall(r'<input id="([^"]*)" name="edit[^>]* value="([^"]*)"', page):
        sent[name] = re.sub(r"[\r\n]", "", unescape(value))
    for name, value in re.findall(r'<textarea id="(edit[^"]*)"[^>]*>\n?([^<]*)</textarea>', page):
        sent[name] = re.sub(r"\r\n|\r|\n", "\r\n", unescape(value))
    return sent


def test_a_result_in_place_of_a_call_is_beside_its_choice_and_the_result_is_shown_afterwards(
    api: Api,
) -> None:
    result, address = asked(api, "short")
    owner = Browser(api)
    page = owner("GET", address).text
    assert "<h1>Call send: text short?</h1>" in page
    dock = page[page.index('id="dock"') :]
    assert re.findall(r'name="choice" value="(\w+)"', dock) == ["approve", "reject"]
    fold = page[page.index("<summary>Respond<") : page.index("<summary>Attach files<")]
    assert re.findall(r' name="(\w+)"', fold) == ["value", "choice"]
    assert 'name="images' not in page  # no model made the call
    form = {"form_token": owner.form_token(address), "choice": "respond"}
    refused = owner("POST", address, {**form, "value": ""})
    assert refused.status_code == 422
    assert '<details data-fold="respond" open>' in refused.text

    approve(owner, address)
    assert 'data-execution="' in owner("GET", address).text  # until the call has ended
    assert api.engine.resume(result.execution).status == "succeeded"
    page = owner("GET", address).text
    assert "SHORT" in page[page.index("The call:") :]
    assert '<dt>text</dt><dd class="body">short</dd>' in page
    assert "data-execution" not in page
    viewer = Browser(api, api.token("user:vera"))("GET", address).text
    assert "The call:" not in viewer
    assert "SHORT" not in viewer
