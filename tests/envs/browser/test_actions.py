"""What can be done on a page."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flowengine_envs.browser.resource import Browser
from tests.envs.browser.web import Web


def reference(tree: str, line: str) -> str:
    """The reference in the first line that holds a text."""
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


@pytest.mark.parametrize(
    "text",
    [
        'it\'s "x"',
        "'); import os; os.abort() #",
        "`${alert(1)}` </textarea><script>alert(1)</script>",
        "line\nbreak\tand \\n",
        "emoji 👩‍🚀 and ünï",
        "x" * 100_000,
    ],
)
def test_text_arrives_as_data(browser: Browser, web: Web, text: str) -> None:
    body = (
        "<textarea></textarea><script>window.read = () => fetch('/got', {method: 'POST', "
        "body: document.querySelector('textarea').value})</script><button onclick=read()>x</button>"
    )
    web.page("/got", "")
    browser.navigate(web.page("/area", body))
    assert browser.fill("textarea", text).dialogs == []
    assert browser.click("button").error == ""
    assert web.bodies["/got"].decode() == text


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


def test_an_element_that_cannot_be_used_is_said_with_the_reason(browser: Browser, web: Web) -> None:
    body = """<h1>Here</h1><button id=a disabled>A</button><button id=b>B</button>
    <div style="position:fixed;inset:0;z-index:9"></div><input id=c style="display:none">"""
    browser.navigate(web.page("/faults", body))
    for selector, error in (
        ("#a", "it is disabled"),
        ("#b", "it is covered by <div"),
        ("#c", "'#c': it is not visible after"),
        ("#d", "'#d': there is no such element after"),
        ("css=[", "'css=[': "),
    ):
        seen = browser.click(selector)
        assert error in seen.error
        assert "\n" not in seen.error
        assert "# Here" in seen.content


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


def test_a_stale_reference_is_said(browser: Browser, web: Web) -> None:
    body = """<div id=box><button>Old</button></div><button id=again onclick="
      box.innerHTML = '<button onclick=&quot;document.title=1&quot;>New</button>'">Again</button>"""
    tree = browser.navigate(web.page("/stale", body, "still")).ax_tree
    old = reference(tree, 'button "Old"')
    browser.click("#again")
    seen = browser.click(ref=old)
    assert seen.error == f"reference {old} is no longer on the page; observe again"
    assert seen.title == "still"


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
    seen = browser.navigate(web.page("/after", "<p>left</p>"))
    assert (seen.error, seen.content) == ("", "left")
    assert [each.kind for each in seen.dialogs] == ["beforeunload"]
    assert browser.observe().dialogs == []


def test_new_tabs_are_followed_listed_and_capped(browser: Browser, web: Web) -> None:
    web.page("/other", "<p>other</p>", "Other")
    body = """<a href=/other target=_blank>open</a><button onclick="
      for (let i = 0; i < 9; i++) window.open('/other?' + i)">many</button>"""
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
    assert "5 further tabs were closed: 5 may be open." in seen.notes
    for _ in range(len(seen.tabs)):
        seen = browser.close_tab()
    assert len(seen.tabs) == 1
    assert seen.url == "about:blank"


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


def test_actions_of_many_threads_happen_one_after_the_other(browser: Browser, web: Web) -> None:
    browser.navigate(web.page("/line", "<input aria-label=Field>"))

    def put(number: int) -> bool:
        return f": value {number}\n" in browser.fill("input", f"value {number}").ax_tree + "\n"

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(put, range(10)))


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
