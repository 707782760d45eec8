# Shows W5, W20
"""Actions on a page."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from flowengine_envs.browser import elements
from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.browser.resource import Browser
from flowengine_envs.sandboxes.namespace import Namespace
from tests.envs.browser.web import Web, network, send
from tests.envs.opening import opened
from tests.replacing import Limits

pytestmark = pytest.mark.endurance


@pytest.fixture(scope="module")
def patient(
    web: Web, chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """A browser whose actions may take a minute."""
    asked = {"config": {"action_timeout": 60, "settle": 0.2}, "policy": {"network": network(web)}}
    folder = tmp_path_factory.mktemp("patient")
    with opened(BrowserProvider(), Namespace, folder, **asked) as browser:
        yield browser


def reference(tree: str, line: str) -> str:
    """Return the reference in the first line that contains a text."""
    found = re.search(rf"{re.escape(line)}.*\[ref=(\w+)\]", tree)
    assert found is not None, tree
    return found[1]


FORM = """<form onsubmit="document.getElementById('sent').textContent = 'sent'; return false">
<input aria-label=Name><input aria-label=Keys onkeydown="this.title += event.key">
<select aria-label=Port><option value=a>Antwerp<option value=b>Bergen</select>
<input type=checkbox aria-label=Agree><button>Send</button></form><p id=sent></p>
<div id=over onmouseover="this.textContent='hovered'">hover me</div>
<div id=down style="margin-top:3000px">bottom</div>"""


def test_a_form_is_filled_and_sent(browser: Browser, web: Web) -> None:
    tree = browser.navigate(web.page("/form", FORM)).ax_tree
    seen = browser.fill(ref=reference(tree, 'textbox "Name"'), text="Ida")
    assert 'textbox "Name"' in seen.ax_tree
    assert ": Ida" in seen.ax_tree
    seen = browser.type(ref=reference(tree, 'textbox "Keys"'), text="xy")
    assert ": xy" in seen.ax_tree
    seen = browser.select("select", ["Bergen"])
    assert 'option "Bergen" [selected]' in seen.ax_tree
    assert '"Agree" [checked]' in browser.check("input[type=checkbox]").ax_tree
    assert '"Agree" [checked]' not in browser.check("input[type=checkbox]", False).ax_tree
    assert "sent" not in seen.content
    assert "sent" in browser.press("Enter", ref=reference(tree, 'textbox "Name"')).content
    assert "hovered" in browser.hover("#over").content
    before = browser.observe().screenshot
    assert browser.scroll("down", 2000).screenshot != before
    assert browser.scroll(selector="#down").error == ""
    assert all(action.error == "" for action in (browser.scroll("up"), browser.observe()))


def test_pages_are_gone_through(browser: Browser, web: Web) -> None:
    one, two = web.page("/one", "<a href=/two>on</a>"), web.page("/two", "<p>second</p>")
    browser.navigate(one)
    assert browser.click("a").url == two
    assert browser.back().url == one
    assert browser.forward().url == two
    asked = web.asked.count("GET /two")
    assert browser.reload().content == "second"
    assert web.asked.count("GET /two") == asked + 1
    assert browser.get_markdown() == "second"


def test_fields_that_a_form_is_not_sent_with_are_named(browser: Browser, web: Web) -> None:
    body = """<form method=post action=/sent>
    <label>Mail <input type=email name=mail required></label>
    <input type=date aria-label=Day min=2026-01-01><input id=code style="display:none" required>
    <button>Send</button></form>"""
    web.page("/sent", "<p>sent</p>")
    browser.navigate(web.page("/form", body))
    assert browser.click("[name=mail]").invalid == []  # the form was not submitted yet
    seen = browser.click("button")
    assert seen.invalid[0] == "Mail: Please fill out this field."
    assert any(each.startswith("text (cannot be seen): ") for each in seen.invalid)
    [mail] = [each for each in browser.fill("[name=mail]", "ida").invalid if "Mail" in each]
    assert "Please include an '@'" in mail
    assert any(
        each.startswith("Day: ") for each in browser.fill("[type=date]", "2025-01-01").invalid
    )
    outside, _, block = Browser.observation_text(browser.observe(), 4000, 4000).partition(
        "<content "
    )
    assert "Invalid: " in outside
    assert "Please" not in outside
    assert "Invalid: Mail: Please include an '@'" in block


def test_a_text_that_a_field_does_not_take_is_an_error(browser: Browser, web: Web) -> None:
    fields = [
        ("date", "31.12.2026", "a field for a date takes YYYY-MM-DD", "2026-12-31"),
        ("time", "noon", "a field for a time takes hh:mm", "12:00"),
        ("datetime-local", "2026-12-31", "takes YYYY-MM-DDThh:mm", "2026-12-31T12:00"),
        ("month", "December", "takes YYYY-MM", "2026-12"),
        ("color", "red", "a field for a color takes #rrggbb", "#ff0000"),
    ]
    inputs = "".join(f"<input type={type} id={type}>" for type, *_ in fields)
    browser.navigate(web.page("/typed", inputs))
    for type, wrong, error, right in fields:
        seen = browser.fill(f"#{type}", wrong)
        assert error in seen.error
        assert wrong in seen.error
        assert browser.fill(f"#{type}", right).error == ""


def test_what_scrolls_inside_of_a_page_is_scrolled_to_its_end(browser: Browser, web: Web) -> None:
    rows = "".join(f"<p>row {at}</p>" for at in range(20))
    body = f"""<div id=list style="height:200px;overflow:auto">{rows}</div><p>{"far " * 9000}</p>
    <script>let come = 0; list.onscroll = () => {{
      if (come++ === 0) fetch('/more').then(r => r.text()).then(t => list.append(t));
    }}</script>"""
    web.page("/more", "<p>more rows</p>")
    browser.navigate(web.page("/scrolling", body))
    row = 'p >> text="row 3"'
    seen = browser.scroll("down", selector=row)
    assert re.fullmatch(r"Scrolled down by 160 pixels; \d+ more pixels are there\.", seen.notes[0])
    assert "more rows" in seen.content
    assert browser.scroll("down", 9999, selector=row).notes[0].endswith("this is the end.")
    assert browser.scroll("down", selector=row).notes == ["Nothing scrolled; this is the end."]
    assert browser.scroll().notes[0].startswith("Scrolled down by 384 pixels; ")
    assert browser.scroll("up").notes == ["Scrolled up by 384 pixels; this is the end."]


def test_things_are_dragged(browser: Browser, web: Web) -> None:
    body = """<div id=a draggable=true>piece</div>
    <div id=b style="height:50px" ondragover="event.preventDefault()"
      ondrop="this.textContent='dropped'">here</div>"""
    browser.navigate(web.page("/drag", body))
    assert "dropped" in browser.drag("#a", "#b").content


def test_something_is_waited_for(browser: Browser, web: Web) -> None:
    body = "<p id=p>soon</p><script>setTimeout(() => p.textContent = 'later', 300)</script>"
    browser.navigate(web.page("/later", body))
    seen = browser.wait_for("later")
    assert (seen.error, seen.content) == ("", "later")
    assert browser.wait_for("soon", gone=True).error == ""
    assert browser.wait_for("never", seconds=0.1).error.startswith(
        "timeout: 'never' has not appear"
    )
    assert browser.wait_for(seconds=0.01).error == ""
    assert "either 'text' or 'selector'" in browser.wait_for().error


TEXTS = [
    'it\'s "x"',
    "'); import os; os.abort() #",
    "`${alert(1)}` </textarea><script>alert(1)</script>",
    "line\nbreak\tand \\n",
    "emoji 👩‍🚀 and ünï",
    "x" * 100_000,
]


# Shows W21
def test_text_arrives_as_data(browser: Browser, web: Web) -> None:
    body = (
        "<textarea></textarea><script>window.read = () => fetch('/got', {method: 'POST', "
        "body: document.querySelector('textarea').value})</script><button onclick=read()>x</button>"
    )
    web.page("/got", "")
    browser.navigate(web.page("/area", body))
    for text in TEXTS:
        assert browser.fill("textarea", text).dialogs == []
        assert browser.click("button").error == ""
        assert web.bodies["/got"].decode() == text


# Shows W6
def test_actions_are_data(browser: Browser, web: Web) -> None:
    tree = browser.navigate(web.page("/step", "<button onclick='this.id=1'>Go</button>")).ax_tree
    assert browser.step({"action": "click", "ref": reference(tree, "button")}).error == ""
    for action, error in (
        (
            {"action": "explode"},
            "there is no action 'explode'; there are: navigate, observe, click",
        ),
        ({}, "there is no action ''"),
        (
            {"action": "click", "reference": "e1"},
            "there is no field 'reference'; 'click' takes ref",
        ),
        ({"action": "navigate"}, "'url' is missing; 'navigate' takes url"),
        ({"action": "navigate", "url": 3}, "'url' must be a string"),
        ({"action": "click", "ref": "e1", "button": "side"}, "'button' must be one of: left"),
        ({"action": "click"}, "name the element by either 'ref' or 'selector'"),
        ({"action": "click", "ref": "body >> x"}, "'body >> x' is not a reference"),
    ):
        seen = browser.step(action)
        assert error in seen.error
        assert "Go" in seen.content


def test_an_element_that_is_not_there_is_said_with_the_reason(browser: Browser, web: Web) -> None:
    browser.navigate(web.page("/faults", "<h1>Here</h1>"))
    for selector, error in (("#d", "'#d': no such element after 3 s"), ("css=[", "'css=[': ")):
        seen = browser.click(selector)
        assert error in seen.error
        assert "\n" not in seen.error
        assert "# Here" in seen.content


UNUSABLE = """<button id=disabled disabled>A</button><button id=covered>B</button>
<button id=gone style="display:none">C</button><input id=fixed readonly value=x>
<select id=port><option>Antwerp<option>Bergen</select>
<div style="position:fixed;inset:0;z-index:9">over</div><input id=later disabled>
<p style="height:3000px"></p><button id=below>D</button>
<script>setTimeout(() => { later.disabled = false }, 100)</script>"""


CANNOT: list[tuple[dict[str, object], str, str]] = [
    ({"action": "fill", "text": "y"}, "#later", ""),
    ({"action": "click"}, "#disabled", "it is disabled"),
    ({"action": "click"}, "#covered", "it is covered by <div"),
    ({"action": "hover"}, "#covered", "it is covered by <div"),
    ({"action": "click"}, "#below", "it is covered by <div"),
    ({"action": "click"}, "#gone", "'#gone': it is not visible"),
    ({"action": "fill", "text": "y"}, "#fixed", "it cannot be edited"),
    ({"action": "select", "values": ["Oslo"]}, "#port", "it has no option 'Oslo'; it has 'Ant"),
]


def test_what_cannot_be_done_is_said_long_before_the_time_is_over(
    patient: Browser, web: Web, limits: Limits
) -> None:
    limits(elements, _PATIENCE=0.4)
    patient.navigate(web.page("/unusable", UNUSABLE))
    for action, selector, error in CANNOT:
        began = time.monotonic()
        seen = patient.step({**action, "selector": selector})
        assert seen.error.startswith(error), selector
        assert (bool(seen.error), "\n" in seen.error) == (bool(error), False)
        assert time.monotonic() - began < 40  # given up before the 60 seconds of actions


def test_what_is_being_loaded_may_still_make_an_element_usable(
    patient: Browser, web: Web, limits: Limits
) -> None:
    limits(elements, _PATIENCE=0.05)
    waiting = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        waiting.wait(60)
        send(handler, "ready")

    web.pages["/slow"] = slow
    body = """<button disabled onclick="document.title = 'clicked'">A</button><script>
    fetch('/slow').then(() => { document.querySelector('button').disabled = false })</script>"""
    patient.navigate(web.page("/busy", body))
    with ThreadPoolExecutor(1) as pool:
        clicking = pool.submit(patient.click, "button")
        time.sleep(0.5)  # longer than the browser waits for the page to settle
        waiting.set()
        assert (clicking.result(60).error, patient.observe().title) == ("", "clicked")


# Shows W22
def test_an_ambiguous_selector_is_refused_with_what_it_fits(browser: Browser, web: Web) -> None:
    body = "<button onclick=\"document.title='clicked'\">OK</button>" * 2
    tree = browser.navigate(web.page("/two-ok", body, "still")).ax_tree
    seen = browser.click("button")
    assert "'button' fits 2 elements" in seen.error
    references = re.findall(r'button "OK".*\[ref=(\w+)\]', tree)
    assert len(references) == 2
    assert re.findall(r'button "OK".*\[ref=(\w+)\]', seen.error) == references
    assert seen.title == "still"
    assert browser.click(ref=references[1]).title == "clicked"


# Shows W23
def test_a_stale_reference_is_said(browser: Browser, web: Web) -> None:
    body = """<div id=box><button>Old</button></div><button id=again onclick="
      box.innerHTML = '<button onclick=&quot;document.title=1&quot;>New</button>'">Again</button>"""
    tree = browser.navigate(web.page("/stale", body, "still")).ax_tree
    old = reference(tree, 'button "Old"')
    browser.click("#again")
    seen = browser.click(ref=old)
    assert seen.error == f"reference {old} is no longer on the page: observe again"
    assert seen.title == "still"


# Shows W24
def test_dialogs_never_hold_up_the_page(browser: Browser, web: Web) -> None:
    body = """<button id=a onclick="alert('hello')">a</button>
    <button id=c onclick="document.title = confirm('sure?')">c</button>
    <button id=p onclick="document.title = prompt('name?')">p</button>
    <script>onbeforeunload = e => { e.preventDefault(); return 'stay' }</script>"""
    browser.navigate(web.page("/dialogs", body))
    (shown,) = browser.click("#a").dialogs
    assert (shown.kind, shown.message, shown.accepted) == ("alert", "hello", False)
    assert browser.click("#c").title == "false"
    browser.answer_dialog(True)
    assert browser.click("#c").title == "true"
    browser.answer_dialog(True, "Ida")
    assert browser.click("#p").title == "Ida"
    browser.answer_dialog(True)
    browser.hover("#c")
    assert browser.click("#c").title == "false"  # the answer was for the previous action
    seen = browser.navigate(web.page("/after", "<p>left</p>"))
    assert (seen.error, seen.content) == ("", "left")
    assert [each.kind for each in seen.dialogs] == ["beforeunload"]
    assert browser.observe().dialogs == []


# Shows W25
def test_new_tabs_are_followed_listed_and_capped(browser: Browser, web: Web) -> None:
    web.page("/other", "<p>other</p>", "Other")
    body = """<a href=/other target=_blank>open</a><button onclick="
      for (let i = 0; i < 6; i++) window.open('/other?' + i)">many</button>"""
    browser.navigate(web.page("/opener", body, "Opener"))
    seen = browser.click("a")
    assert (seen.content, seen.title) == ("other", "Other")
    assert any("new tab" in note for note in seen.notes)
    assert [(tab.title, tab.active) for tab in seen.tabs] == [("Opener", False), ("Other", True)]
    assert browser.switch_tab(0).title == "Opener"
    assert "there is no tab 7" in browser.switch_tab(7).error
    seen = browser.close_tab(1)
    assert [tab.title for tab in seen.tabs] == ["Opener"]
    seen = browser.new_tab(web.url("/other"))
    assert (seen.title, len(seen.tabs)) == ("Other", 2)
    browser.close_tab()
    seen = browser.click("button")
    assert len(seen.tabs) == 5
    assert "2 further tabs were closed: 5 may be open." in seen.notes
    for _ in range(len(seen.tabs)):
        seen = browser.close_tab()
    assert len(seen.tabs) == 1
    assert seen.url == "about:blank"


# Shows W27
def test_uploads_come_from_the_workspace_only(browser: Browser, web: Web, tmp_path: Path) -> None:
    body = """<input type=file multiple onchange="for (const f of this.files)
      f.text().then(t => { const p = document.createElement('p');
        p.textContent = f.name + '=' + t; document.body.append(p) })">"""
    (browser.workspace / "note.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("outside")
    link = browser.workspace / "link.txt"
    if not link.is_symlink():
        link.symlink_to(tmp_path / "secret.txt")
    browser.navigate(web.page("/upload", body))
    for path in ("/etc/passwd", "../secret.txt", "link.txt", "missing.txt", "."):
        seen = browser.upload("input", [path])
        assert path in seen.error
        assert "=" not in seen.content
    assert "note.txt=inside" in browser.upload("input", ["note.txt"]).content
    os.unlink(link)


def test_code_runs_on_pages_only_where_the_policy_allows_it(browser: Browser, web: Web) -> None:
    browser.navigate(web.page("/code", "<p>x</p>", "still"))
    seen = browser.evaluate("document.title = 'changed'")
    assert "policy: {evaluate: true}" in seen.error
    assert seen.title == "still"


# Shows W85
def test_actions_of_many_threads_happen_one_after_the_other(browser: Browser, web: Web) -> None:
    browser.navigate(web.page("/line", "<input aria-label=Field>"))

    def put(number: int) -> bool:
        return f": value {number}\n" in browser.fill("input", f"value {number}").ax_tree + "\n"

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(put, range(10)))


# Shows W28
def test_permissions_are_denied(browser: Browser, web: Web) -> None:
    body = """<p id=p>-</p><script>(async () => {
      const told = [];
      for (const name of ['geolocation', 'notifications', 'clipboard-read', 'camera'])
        told.push(await navigator.permissions.query({name}).then(s => s.state, e => e.name));
      told.push(await navigator.clipboard?.readText().then(() => 'read', e => e.name) ?? 'none');
      told.push(typeof window.showOpenFilePicker);
      p.textContent = told.join(' ');
    })()</script>"""
    browser.navigate(web.page("/permissions", body))
    seen = browser.wait_for("denied")
    assert seen.content == "denied denied denied denied NotAllowedError undefined"
