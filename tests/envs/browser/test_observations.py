# Shows W8
"""Observations: how a browser presents a page."""

from __future__ import annotations

import asyncio
import struct
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from flowengine_envs.browser import library, observing
from flowengine_envs.browser.observation import WebObservation
from flowengine_envs.browser.resource import Browser
from flowengine_envs.documents.converting import convert
from tests.envs.browser.conftest import SMALL
from tests.envs.browser.processes import session_of
from tests.envs.browser.web import BLOCKED, Answer, Web, never, redirect, send
from tests.replacing import Limits

pytestmark = pytest.mark.endurance

PNG = b"\x89PNG\r\n\x1a\n"


def size(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return width, height


# Shows W1
def test_an_observation_is_built_from_four_fields() -> None:
    seen = WebObservation("text", "http://a/", PNG, "- text")
    assert (seen.content, seen.url, seen.screenshot, seen.ax_tree) == (
        "text",
        "http://a/",
        PNG,
        "- text",
    )
    assert seen.error == ""
    assert "screenshot" not in seen.as_data()


# Shows E58, W3
def test_a_page_is_seen_whole_after_its_scripts_ran(browser: Browser, web: Web) -> None:
    web.page("/ships", "<h1>Ships</h1><script>document.body.append('made by JS')</script>", "Sea")
    web.pages["/old"] = redirect("/ships")
    seen = browser.navigate(web.url("/old"))
    assert seen.error == ""
    assert seen.url == web.url("/ships")
    assert (seen.title, seen.status) == ("Sea", 200)
    assert "# Ships" in seen.content
    assert "made by JS" in seen.content
    assert "made by JS" in seen.ax_tree
    assert seen.screenshot.startswith(PNG)
    assert size(seen.screenshot) == (SMALL["width"], SMALL["height"])


# Shows W10
def test_the_text_is_what_the_document_reader_makes_of_the_page(browser: Browser, web: Web) -> None:
    body = (
        "<h1>Ports</h1><ul><li>One<ul><li>Two</li></ul></li></ul>"
        "<table><tr><th>Name<th>Tons</tr><tr><td>Ida<td>12</tr></table>"
        "<p><a href='/next'>on</a> and <b>bold</b> <code>x</code></p><pre>a\n b</pre>"
    )
    url = web.page("/ports", body, "Ports")
    page = web.pages["/ports"]
    assert isinstance(page, str)
    seen = browser.navigate(url)
    assert seen.content == convert(page.encode(), "p.html", "text/html", base=url).markdown
    assert f"[on]({web.url('/next')})" in seen.content


# Shows W42
def test_hidden_text_is_left_out_and_counted(browser: Browser, web: Web) -> None:
    hidden = [
        "<p style='display:none'>hid1</p>",
        "<p style='visibility:hidden'>hid2</p>",
        "<p style='opacity:0'>hid3</p>",
        "<p style='font-size:0'>hid4</p>",
        "<p style='position:absolute;left:-9999px'>hid5</p>",
        "<p style='color:#fff'>hid6</p>",
        "<div style='background:#123456'><span style='color:#123456'>hid7</span></div>",
        "<!-- hid8 -->",
        "<p class=c>hid9</p><style>.c{display:none}</style>",
        "<p style='opacity:0'><b><i>hid10</i></b></p>",
        "<p style='position:absolute;width:1px;height:1px;overflow:hidden'>hid11</p>",
    ]
    shown = (
        "<div style='background:#123456'><span style='color:#fff'>white</span></div>"
        "<div style='visibility:hidden'><p style='visibility:visible'>seen</p></div>"
        "<div style='height:4000px'></div><p>far below</p>"
        "<select><option>first<option>second</select>"
    )
    seen = browser.navigate(web.page("/hidden", "".join(hidden) + shown))
    assert "hid" not in seen.content
    assert seen.hidden_text_removed == len(hidden)
    for text in ("white", "seen", "far below", "first", "second"):
        assert text in seen.content


def test_scripts_of_the_page_cannot_change_what_is_read(browser: Browser, web: Web) -> None:
    body = """<p>visible</p><p style="display:none">hidden</p><script>
    window.getComputedStyle = () => ({});
    Element.prototype.checkVisibility = () => true;
    Object.defineProperty(Element.prototype, 'outerHTML', {get: () => '<p>forged</p>'});
    Document.prototype.importNode = () => document.body;
    </script>"""
    seen = browser.navigate(web.page("/forged", body))
    assert seen.content == "visible"
    assert seen.hidden_text_removed == 1


def test_text_in_shadow_trees_is_read(browser: Browser, web: Web) -> None:
    body = """<div id=host>slotted</div><script>
    document.getElementById('host').attachShadow({mode: 'open'}).innerHTML =
      '<h2>In the shadow</h2><slot></slot>';</script>"""
    seen = browser.navigate(web.page("/shadow", body))
    assert seen.content == "## In the shadow\n\nslotted"


# Shows W9
def test_the_tree_has_states_references_and_frames(browser: Browser, web: Web) -> None:
    web.page("/inner", "<button onclick='this.textContent=\"pressed\"'>Inner</button>")
    seen = browser.navigate(
        web.page(
            "/outer",
            "<button>Save</button><input type=checkbox checked aria-label=Box>"
            "<iframe src=/inner></iframe>",
        )
    )
    lines = {line.strip() for line in seen.ax_tree.splitlines()}
    assert any(line.startswith('- button "Save" [ref=') for line in lines)
    assert any(line.startswith('- checkbox "Box" [checked] [ref=') for line in lines)
    inner = next(line for line in lines if '"Inner"' in line)
    reference = inner.partition("[ref=")[2].partition("]")[0]
    assert reference.startswith("f")
    assert '- button "pressed"' in browser.click(ref=reference).ax_tree


# Shows W44
def test_labels_are_cut_and_said_to_be_labels(browser: Browser, web: Web) -> None:
    long = "word " * 120
    body = (
        f"<img src=x alt='alt {long}'><input placeholder='placeholder {long}'>"
        f"<button title='title {long}'></button><a href=/x aria-label='label {long}'>x</a>"
    )
    seen = browser.navigate(web.page("/labels", body))
    assert f"alt {long[:250]}" in seen.content
    assert len(seen.content) < 2 * 350
    said = Browser.observation_text(seen, 4000, 4000)
    outside, _, block = said.partition(">\n")
    assert "Elements (their names may be labels that the page does not show):" in block
    for name in ("alt", "placeholder", "title", "label"):
        assert f"{name} word" in block
        assert f"{name} word" not in outside
    assert max(map(len, block.splitlines())) < 700
    assert max(map(len, Browser.search_text(seen, "word").splitlines())) < 700


def test_frames_that_never_answer_are_left_out_and_asked_at_once(
    browser: Browser, web: Web, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    web.pages["/silent"] = never
    web.page("/loop", f"<p>advertisement</p><script>{BLOCKED}</script>")
    other = web.url("/loop").replace("127.0.0.1", "localhost")  # another site: its own process
    frames = f"<iframe src={other}></iframe>" * 4
    fine = "<iframe srcdoc='<button>Inner</button>'></iframe>"
    # In which order frames are asked, which an observation does not tell.
    asked, answers = list[bool](), observing._answers

    async def noted(frame: Any) -> bool:
        asked.append(True)
        answered = await answers(frame)
        asked.append(answered)
        return answered

    monkeypatch.setattr(observing, "_answers", noted)
    seen = browser.navigate(web.page("/around", f"<button>Save</button>{frames}{fine}"))
    assert '- button "Save"' in seen.ax_tree
    assert '- button "Inner"' in seen.ax_tree
    assert "Save" in seen.content
    assert seen.screenshot.startswith(PNG)
    assert "Frames that do not answer are not in the tree: 4." in seen.notes
    assert asked == [True] * 6 + [False] * 4  # no frame waits for another
    limits(observing, _SOON=0.2)  # they do not answer the next time either
    assert browser.click("text=Save").error == ""
    browser.navigate("about:blank")


def test_a_screenshot_that_fails_takes_nothing_else_with_it(
    browser: Browser, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.navigate(web.page("/seen", "<h1>Seen</h1>"))
    devtools = session_of(browser).tab._session
    send = devtools.send

    async def without_pictures(method: str, *fields: Any) -> Any:
        if method == "Page.captureScreenshot":
            raise library.Error("Protocol error (Page.captureScreenshot): Unable to capture")
        return await send(method, *fields)

    monkeypatch.setattr(devtools, "send", without_pictures)
    seen = browser.observe()
    assert seen.content == "# Seen"
    assert '- heading "Seen"' in seen.ax_tree
    assert seen.screenshot == b""
    assert seen.error == "screenshot: Protocol error (Page.captureScreenshot): Unable to capture"


# Shows W13
def test_a_large_tree_is_cut_at_a_line(browser: Browser, web: Web) -> None:
    name = "name " * 60
    links = "".join(f"<a href=/{at} aria-label='{name}'>link {at}</a> " for at in range(1_000))
    seen = browser.navigate(web.page("/links", links))
    assert len(seen.ax_tree) <= 200_000
    assert seen.ax_tree.endswith("\n")
    assert seen.ax_tree_left_out > 100_000
    assert "link 999" in seen.content


def test_a_full_page_is_shown_up_to_a_limit(browser: Browser, web: Web) -> None:
    browser.navigate(web.page("/high", "<div style='height:3000px'>high</div>"))
    width, height = size(browser.screenshot(full_page=True).screenshot)
    assert width == SMALL["width"]
    assert 3000 <= height < 3100
    browser.navigate(web.page("/higher", "<div style='height:30000px'>higher</div>"))
    seen = browser.screenshot(full_page=True)
    assert size(seen.screenshot) == (SMALL["width"], 16_384)
    assert any("16384 of them are shown" in note for note in seen.notes)


# Shows W7
def test_a_page_that_is_never_quiet_is_seen_soon(browser: Browser, web: Web) -> None:
    arrived = threading.Event()

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "image/png")
        handler.end_headers()
        arrived.set()
        web.closing.wait(60)

    web.pages["/endless.png"] = endless
    body = """<h1>There</h1><img src=/endless.png><script>
    setInterval(() => fetch('/poll'), 20); new WebSocket('ws://' + location.host + '/socket');
    </script>"""
    seen = browser.navigate(web.page("/busy", body))
    assert arrived.is_set()
    assert seen.error == ""
    assert "# There" in seen.content
    assert seen.screenshot.startswith(PNG)
    browser.navigate("about:blank")


def answered(status: int, body: str = "<h1>Sorry</h1>") -> Answer:
    return lambda handler: send(handler, body, status=status)


LEADS = """<a id=none href=/none>x</a><a id=fault href=/fault>x</a><a id=bare href=/bare>x</a>
<a id=empty href=/empty>x</a><a id=tab target=_blank href=/fault>x</a>
<button id=push onclick="history.pushState(1, '', '/pushed')">x</button>
<form id=form method=post action=/refused><button id=send>x</button></form>
<button id=fetch onclick="fetch('/refused', {method: 'POST'})">x</button>"""


@pytest.mark.wherever("which", "status", "path")
@pytest.mark.parametrize(
    ("which", "status", "path"),
    [
        ("none", 404, "/none"),
        ("fault", 500, "/fault"),
        ("bare", 503, "/bare"),
        ("send", 422, "/refused"),
        ("tab", 500, "/fault"),
        ("empty", 200, "/leads"),  # no new page was loaded
        ("push", 200, "/pushed"),
    ],
)
# Shows W5
def test_the_status_is_that_of_the_page_that_an_action_led_to(
    browser: Browser, web: Web, which: str, status: int, path: str
) -> None:
    web.pages |= {"/fault": answered(500), "/bare": answered(503, ""), "/empty": answered(204, "")}
    web.pages["/refused"] = answered(422)
    browser.navigate(web.page("/leads", LEADS))
    seen = browser.click(f"#{which}")
    assert (seen.status, seen.url) == (status, web.url(path))
    bare = "the server answered with a fault and without a page (ERR_HTTP_RESPONSE_CODE_FAILURE)"
    assert seen.error == (bare if which == "bare" else "")
    assert ("# Sorry" in seen.content) == (which in {"fault", "send", "tab"})
    assert seen.failed_requests == []
    if which == "tab":
        browser.close_tab()


def test_requests_of_scripts_that_fail_are_named_once(browser: Browser, web: Web) -> None:
    web.pages["/refused"] = answered(422)
    script = f"GET {web.url('/no-script.js')} 404"
    loaded = browser.navigate(web.page("/leads", LEADS + "<script src=/no-script.js></script>"))
    assert loaded.failed_requests == [script]
    seen = browser.click("#fetch")
    assert seen.failed_requests == [f"POST {web.url('/refused')} 422"]
    assert (seen.status, seen.url) == (200, web.url("/leads"))
    assert browser.observe().failed_requests == []
    assert browser.log().value["requests"] == [script, f"POST {web.url('/refused')} 422"]


def test_what_a_page_wrote_to_its_console_is_read_until_the_next_page(
    browser: Browser, web: Web
) -> None:
    body = """<button onclick="console.error('boom ' + 'x '.repeat(999)); missing()">x</button>
    <script>for (let at = 0; at < 300; at++) console.log('line ' + at)</script>"""
    browser.navigate(web.page("/console", body))
    browser.click("button")
    seen = browser.log()
    written = seen.value["console"]
    assert len(written) <= 50
    assert "log: line 299" in written
    assert [each[:11] for each in written if "boom" in each] == ["error: boom"]
    assert max(map(len, written)) < 350
    assert any("missing is not defined" in each for each in written)
    said = Browser.log_shown(seen)
    outside, _, block = said.partition("<content ")
    assert "boom" in block
    assert "boom" not in outside
    browser.navigate(web.page("/quiet", "quiet"))
    assert browser.log().value == {"console": [], "requests": []}


def test_what_an_action_loads_is_waited_for(browser: Browser, web: Web) -> None:
    body = """<p id=x>before</p><button onclick="fetch('/data').then(r => r.text())
      .then(t => { document.getElementById('x').textContent = t })">Load</button>"""

    def slow(handler: BaseHTTPRequestHandler) -> None:
        web.closing.wait(0.3)
        send(handler, "fetched", type="text/plain")

    web.pages["/data"] = slow
    browser.navigate(web.page("/load", body))
    assert "fetched" in browser.click("button").content


# Shows W29
def test_bot_checks_are_reported(browser: Browser, web: Web) -> None:
    body = "<h1>Verify you are human</h1><input type=checkbox aria-label='I am not a robot'>"
    seen = browser.navigate(web.page("/check", body, "Just a moment..."))
    assert seen.challenge
    assert "[checked]" not in seen.ax_tree
    web.page("/article", "<p>How sites verify you are human. " + "More text. " * 400 + "</p>")
    assert not browser.navigate(web.url("/article")).challenge


# Shows W14
def test_it_is_used_from_threads_and_from_coroutines(browser: Browser, web: Web) -> None:
    url = web.page("/anywhere", "<p>anywhere</p>")

    async def in_a_loop() -> str:
        return (await browser.async_navigate(url)).content

    found = [browser.navigate(url).content, asyncio.run(in_a_loop())]
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(browser.navigate(url).content))
        thread.start()
        thread.join()
    assert found == ["anywhere"] * 4
