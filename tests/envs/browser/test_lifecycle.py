"""How a browser is opened and closed, and how it handles failures of its process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Sandbox, background
from flowengine.testing.environment_conformance import (
    CHECKS,
    Check,
    ProviderCase,
    killed_process_is_reaped,
)
from flowengine_envs.browser import browser_server, installation, session
from flowengine_envs.browser.browser_server import BrowserServer, playwright, replace_ended
from flowengine_envs.browser.chromium import Profile
from flowengine_envs.browser.library import Error
from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.browser.resource import Browser
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.namespace import Namespace
from tests.alive import alive
from tests.envs.browser.conftest import SMALL
from tests.envs.browser.drivers import command, drivers
from tests.envs.browser.web import Web, network, send
from tests.envs.opening import Trace, opened, release
from tests.execution_environment.toy import until
from tests.replacing import Limits, patches_everywhere

pytestmark = pytest.mark.endurance


class Taken:
    """A server that a page has taken over. The test writes its output."""

    stderr = None

    def __init__(self) -> None:
        self.stdin = Sink()
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data(b"/path\nHTTP/1.1 101 Switching Protocols\r\n\r\n")
        self.returncode: int | None = None

    def kill(self) -> None:
        self.returncode = -9
        self.stdout.feed_eof()

    async def wait(self) -> int:
        return self.returncode or 0


class Sink:
    """Collects the bytes written to it."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


CONNECT = b"GET /path HTTP/1.1\r\nSec-WebSocket-Extensions: permessage-deflate\r\nA: b\r\n\r\n"


async def led_out(sent: Sequence[bytes], request: bytes = CONNECT) -> tuple[str, bytes, bytes]:
    """Return the server's log, all bytes the client received, and all bytes the server received."""
    program = Taken()
    server = BrowserServer(program)  # type: ignore[arg-type]
    port = urlsplit(await server.listen()).port
    source, sink = await asyncio.open_connection("127.0.0.1", port)
    sink.write(request)
    arrived = b""
    with suppress(ConnectionResetError, asyncio.IncompleteReadError):  # the request was refused
        arrived = await source.readuntil(b"\r\n\r\n")
        before = tracemalloc.get_traced_memory()[0]
        for piece in sent:
            if program.returncode is None:
                program.stdout.feed_data(piece)
            await asyncio.sleep(0)
            assert tracemalloc.get_traced_memory()[0] - before < 8 << 20
        if program.returncode is None:
            program.stdout.feed_eof()
        arrived += await source.read()
    sink.close()
    await server.close()
    return str(server._log), arrived, program.stdin.data


def test_a_message_of_the_server_has_a_bound(limits: Limits) -> None:
    """A message that announces too many bytes ends the server before any of them is kept."""
    limits(browser_server, LARGEST_MESSAGE=1 << 20)
    frame = b"\x81\x7f" + (600 << 20).to_bytes(8, "big")
    tracemalloc.start()
    try:
        log, arrived, _ = asyncio.run(led_out([frame, *[b'"short",' * (1 << 17)] * 100]))
    finally:
        tracemalloc.stop()

    assert arrived == b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
    assert "a message of 600 MiB, of at most 1 MiB, and was ended" in log
    # Compressed messages could not be counted, and fragmented messages announce no total size.
    for frame in (b"\xc1\x01x", b"\x01\x01x", b"\x81\x81abcdx"):
        log, arrived, sent = asyncio.run(led_out([b"\x81\x02{}", frame]))
        assert arrived.endswith(b"\r\n\r\n\x81\x02{}")
        assert log.endswith("and was ended")
        assert sent == b"GET /path HTTP/1.1\r\nA: b\r\n\r\n"


def test_only_who_knows_the_path_reaches_the_server() -> None:
    for request in (b"GET /other HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"GET /path" + bytes(1 << 18)):
        _, arrived, sent = asyncio.run(led_out([], request))
        assert (arrived, sent) == (b"", b"")


def test_a_driver_that_has_ended_is_started_again_beside_its_users() -> None:
    """Nothing listens at the address, so the error must come from a running driver."""

    async def ended() -> None:
        others = drivers()
        async with playwright() as first:
            for pid in drivers() - others:
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(Error, match="closed"):
                await first.chromium.connect("ws://127.0.0.1:9/")
            replace_ended()
            async with playwright() as second:
                with pytest.raises(Error, match="ECONNREFUSED"):
                    await second.chromium.connect("ws://127.0.0.1:9/")
        assert drivers() <= others

    asyncio.run(ended())


CASE = ProviderCase(
    BrowserProvider, {"kind": "browser"}, use=lambda browser: browser.navigate("about:blank")
)


OF_A_PROFILE = {
    "opens_what_works",
    "owners_have_their_own",
    "release_leaves_nothing",
    "released_twice_is_harmless",
    "ended_is_not_healthy",
    "any_thread_and_loop_will_do",
    "many_at_once_do_not_mix",  # processes could not mix. `test_killed.py` opens two at once
    "comes_again_after_a_wait",
    "nothing_is_printed",  # for a process: `test_it_is_a_managed_environment`
    "what_is_asked_for_stays_as_it_is",
}
"""Checks that are independent of how a process starts and ends: they use a shared process.

The end of a process is tested below, and that of a killed engine's process in `test_killed.py`.
"""


@pytest.mark.parametrize(
    "check",
    [each for each in CHECKS if each is not killed_process_is_reaped],
    ids=lambda check: check.__name__,
)
# Shows W15
def test_browsers_conform(check: Check, request: pytest.FixtureRequest) -> None:
    if check.__name__ in OF_A_PROFILE:
        request.getfixturevalue("one_process")
    check(CASE)


def asked(web: Web, **config: Any) -> dict[str, Any]:
    """Return the request for a browser that shares this file's process."""
    config = {
        "navigation_timeout": 3,
        "action_timeout": 2,
        "settle": 0.5,
        "viewport": SMALL,
        **config,
    }
    return {"config": config, "policy": {"network": network(web)}}


@pytest.fixture(scope="module")
def own(web: Web, chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser with short timeouts, for pages that never respond, in the folder's process."""
    folder = tmp_path_factory.mktemp("own")
    with opened(BrowserProvider(), Namespace, folder, **asked(web)) as own:
        yield own


@pytest.fixture
def alone(web: Web, tmp_path: Path) -> Iterator[Browser]:
    """A browser with its own process, for one test."""
    (tmp_path / "w").mkdir()
    given = asked(web, isolate="process")
    with opened(BrowserProvider(), Namespace, tmp_path / "w", **given) as browser:
        yield browser


def inner_processes(browser: Browser) -> list[int]:
    """Return the Chromium processes in a browser's sandbox."""
    assert isinstance(browser.request.trace, Trace)
    first = set(browser.request.trace.facts["pids"])
    below: list[int] = []
    while first:
        children: set[int] = set()
        for pid in first:
            with suppress(OSError):  # the process has ended since
                for task in Path(f"/proc/{pid}/task").glob("*/children"):
                    children |= {int(child) for child in task.read_text().split()}
        below += sorted(children)
        first = children
    return [pid for pid in below if "chromium" in command(pid)]


def test_no_process_draws_the_window_of_a_browser(browser: Browser) -> None:
    commands = [command(pid) for pid in inner_processes(browser)]
    assert any("--type=renderer" in each for each in commands)
    assert not [each for each in commands if "--top-chrome-webui" in each]


@pytest.mark.usefixtures("chromium")
# Shows E58, W2
def test_a_new_browser_shows_a_blank_page(web: Web, tmp_path: Path) -> None:
    with opened(BrowserProvider(), Namespace, tmp_path, **asked(web)) as new:
        seen = new.observe()
        assert (seen.url, seen.content, seen.error, seen.generation) == ("about:blank", "", "", 1)
        assert new.page.url == "about:blank"
        assert new.context.pages == [new.page]
        assert new.browser is not None
        title = background().run(new.page.title())
        assert title == ""


# Shows E61, W15, W16
def test_a_killed_browser_is_said_and_started_again_and_closing_leaves_nothing(
    alone: Browser, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The end of the connection is reported late, so calls can fail before it.
    monkeypatch.setattr(Profile, "alive", True)
    arrived = threading.Event()

    def never(handler: BaseHTTPRequestHandler) -> None:
        arrived.set()
        web.closing.wait(30)

    web.pages["/never"] = never
    before = set(inner_processes(alone))
    assert before
    with ThreadPoolExecutor(1) as pool:
        running: Future[Any] = pool.submit(alone.navigate, web.url("/never"))
        assert arrived.wait(60)
        for pid in sorted(before):  # oldest first: others end with it, and none reports the loss
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        seen = running.result(60)
    assert seen.error.startswith("browser lost")
    again = alone.navigate(web.page("/back", "<p>back</p>"))
    assert (again.error, again.content) == ("", "back")
    assert again.generation == 2
    assert any("started again" in note for note in again.notes)
    inside = set(inner_processes(alone))
    assert inside
    assert not before & inside
    release(BrowserProvider(), alone)
    until(lambda: not any(map(alive, inside)))  # killed processes may take a moment to die
    release(BrowserProvider(), alone)


# Shows W16
def test_a_page_that_kills_its_renderer_is_replaced(own: Browser, web: Web) -> None:
    own.navigate(web.page("/fine", "<p>fine</p>"))
    crashed = threading.Event()

    async def crash() -> None:
        page = own.page
        page.on("crash", lambda _: crashed.set())
        session = await page.context.new_cdp_session(page)
        asyncio.ensure_future(session.send("Page.crash")).add_done_callback(
            lambda ended: ended.cancelled() or ended.exception()
        )

    background().run(crash())
    assert crashed.wait(60)
    seen = own.observe()
    assert (seen.content, seen.url) == ("", "about:blank")
    assert any("crashed" in note for note in seen.notes)
    again = own.navigate(web.url("/fine"))
    assert (again.error, again.content, again.generation) == ("", "fine", 1)


@pytest.mark.wherever("body")
@pytest.mark.parametrize(
    "body",
    ["<p>loop</p><script>for (;;) {}</script>", "<script>for (;;) alert('again')</script>"],
    ids=["endless-script", "endless-alerts"],
)
# Shows W7, W24
def test_a_page_that_never_ends_does_not_hang_the_browser(
    own: Browser, web: Web, body: str
) -> None:
    with patches_everywhere() as patch:
        patch.setattr(session, "ANSWER", 0.5)  # this page never answers
        seen = own.navigate(web.page("/loop", body))
    assert "timeout" in seen.error or "does not answer" in seen.error
    assert len(seen.dialogs) <= 20
    again = own.navigate(web.page("/fine", "<p>fine</p>"))
    assert (again.error, again.content, again.generation) == ("", "fine", 1)


@pytest.mark.endurance
def test_the_page_after_endless_dialogs_opens(own: Browser, web: Web) -> None:
    own.navigate(web.page("/ask", "<script>(f = () => setTimeout(f, 0, alert(1)))()</script>"))
    asked = 0
    while asked < 20:
        asked += len(own.observe().dialogs)

    seen = own.navigate(web.page("/fine", "<p>fine</p>"))

    assert (seen.error, seen.content) == ("", "fine")
    assert "The page before did not answer, and was closed." in seen.notes


@pytest.fixture
def hung(own: Browser, web: Web, limits: Limits) -> Callable[[str], None]:
    """Return a function that shows a page and then starts code that never ends."""
    begun = threading.Event()

    def told(handler: BaseHTTPRequestHandler) -> None:
        send(handler, "")
        begun.set()

    def hang(script: str) -> None:
        web.pages["/begun"] = told
        then = f"setTimeout(() => {{ navigator.sendBeacon('/begun'); {script} }})"
        own.navigate(web.page("/hangs", f'<p>so far</p><button onclick="{then}">hang</button>'))
        background().run(own.page.evaluate("document.querySelector('button').click()"))
        assert begun.wait(60)

    limits(session, ANSWER=0.5)  # such a page never answers
    return hang


@pytest.mark.wherever("script", "action")
@pytest.mark.parametrize(
    ("script", "action"),
    [("for (;;) {}", "navigate"), ("for (;;) alert('again')", "reload")],
    ids=["endless-script", "endless-alerts"],
)
# Shows W24
def test_a_page_that_hangs_after_it_was_seen_is_left_at_once(
    own: Browser, web: Web, hung: Callable[[str], None], limits: Limits, script: str, action: str
) -> None:
    def answering(handler: BaseHTTPRequestHandler) -> None:
        limits(session, ANSWER=60)
        send(handler, "<p>fine</p>")

    hung(script)
    path = "/fine" if action == "navigate" else "/hangs"
    web.pages[path], fine = answering, web.url(path)
    seen = own.navigate(fine) if action == "navigate" else own.reload()
    assert (seen.error, seen.url, seen.content, len(seen.tabs)) == ("", fine, "fine", 1)
    assert "The page before did not answer, and was closed." in seen.notes


# Shows W7
def test_a_document_that_never_ends_is_seen_as_far_as_it_came(own: Browser, web: Web) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/html")
        handler.end_headers()
        handler.wfile.write(b"<h1>Beginning</h1>" + b" " * 4096)
        handler.wfile.flush()
        web.closing.wait(30)

    web.pages["/endless"] = endless
    seen = own.navigate(web.url("/endless"))
    assert seen.error.startswith("timeout: the page has not been loaded after 3 s")
    assert seen.content == "# Beginning"


# Shows W4
def test_a_server_that_is_silent_is_an_observation(own: Browser, web: Web) -> None:
    def silent(handler: BaseHTTPRequestHandler) -> None:
        web.closing.wait(30)

    web.pages["/silent"] = silent
    seen = own.navigate(web.url("/silent"))
    assert seen.error.startswith("timeout")
    assert (seen.url, seen.content, seen.screenshot, seen.ax_tree) == (
        web.url("/silent"),
        "",
        b"",
        "",
    )


# Shows W4
def test_a_navigation_that_brings_no_document_is_an_observation(own: Browser, web: Web) -> None:
    for url, error in (
        (f"http://127.0.0.1:{web.port + 1 if web.port < 65535 else 2}/", "127.0.0.1"),
        ("http://no-such-host.invalid/", "no-such-host.invalid"),
        ("https://no-such-host.invalid/", ""),
        (f"https://{web.place}/", ""),
    ):
        seen = own.navigate(url)
        assert seen.error
        assert error in seen.error
        assert "\n" not in seen.error
        assert (seen.url, seen.content, seen.screenshot, seen.ax_tree) == (url, "", b"", "")
        fine = own.navigate(web.page("/fine", "<p>fine</p>"))
        assert (fine.error, fine.content) == ("", "fine")


# Shows W31
def test_only_web_addresses_are_opened(browser: Browser, web: Web) -> None:
    browser.navigate(web.page("/stay", "<p>stay</p>"))
    for url in (
        "file:///etc/passwd",
        "file://host/x",
        "ftp://example.org/",
        "data:text/html,x",
        "javascript:alert(1)",
        "blob:http://x/1",
        "chrome://version",
        "view-source:http://x/",
        "example.org",
        "",
        "http://",
        "http://exa mple.org/",
        "about:config",
    ):
        seen = browser.navigate(url)
        assert "UrlRefused" in seen.error or "is not an address" in seen.error, url
        assert (seen.content, seen.url) == ("stay", web.url("/stay")), url


@pytest.mark.usefixtures("one_process")  # with a login, it would use another process
# Shows W17
def test_each_browser_has_its_own_cookies(own: Browser, web: Web, tmp_path: Path) -> None:
    def cookies(handler: BaseHTTPRequestHandler) -> None:
        send(handler, f"<p>had {handler.headers.get('cookie')}</p>", set_cookie="a=1; Path=/")

    web.pages["/cookies"] = cookies
    assert own.navigate(web.url("/cookies")).content == "had None"
    assert own.navigate(web.url("/cookies")).content == "had a=1"
    (tmp_path / "other").mkdir()
    state = background().run(own.context.storage_state())
    (tmp_path / "login.json").write_text(json.dumps(state))
    with opened(BrowserProvider(), Namespace, tmp_path / "other", **asked(web)) as other:
        assert other.navigate(web.url("/cookies")).content == "had None"
    (tmp_path / "named").mkdir()
    login = {"storage_state": str(tmp_path / "login.json")}
    with opened(BrowserProvider(), Namespace, tmp_path / "named", **asked(web, **login)) as named:
        assert named.navigate(web.url("/cookies")).content == "had a=1"


# Shows W19
def test_a_login_and_the_address_outlast_a_wait(web: Web, browser: Browser, tmp_path: Path) -> None:
    def cookies(handler: BaseHTTPRequestHandler) -> None:
        send(handler, f"<p>had {handler.headers.get('cookie')}</p>", set_cookie="a=1; Path=/")

    web.pages["/login"] = cookies
    provider = BrowserProvider()
    (tmp_path / "w").mkdir()
    with opened(provider, Namespace, tmp_path / "w", **asked(web)) as first:
        first.navigate(web.url("/login"))
        background().run(provider.suspend(first))
    with opened(provider, Namespace, tmp_path / "w", **asked(web)) as second:
        seen = second.observe()
        assert (seen.url, seen.content) == (web.url("/login"), "had a=1")
        assert any("opened again, at its last address" in note for note in seen.notes)
        assert second.observe().notes == []
    with opened(provider, Namespace, tmp_path / "w", **asked(web)) as third:
        assert third.observe().url == "about:blank"


def test_on_the_host_it_works_without_isolation(web: Web, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    where: type[Sandbox] = HostSandbox
    any_network = {"policy": {"network": "any"}}
    with opened(BrowserProvider(), where, tmp_path / "w", **any_network) as browser:
        assert browser.navigate(web.page("/host", "<p>host</p>")).content == "host"
        assert browser.workspace == tmp_path / "w"


# Shows E59, W18
def test_a_missing_browser_is_said_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "_PROGRAMS", ())
    monkeypatch.setattr(installation, "_NAMES", ())
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with EnvironmentManager(tmp_path / "environments") as manager:
        with pytest.raises(EnvironmentUnavailable, match="apt-get install chromium"):
            manager.ensure({"kind": "browser", "scope": "global"})
        config = {"program": "/nowhere/chrome"}
        with pytest.raises(EnvironmentUnavailable, match="there is no browser /nowhere/chrome"):
            manager.ensure({"kind": "browser", "scope": "global", "config": config})
