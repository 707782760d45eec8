# Shows W36
"""Pages reach the destinations of the policy and nothing else, whichever way they try."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.browser.resource import Browser
from flowengine_envs.sandboxes.namespace import Namespace
from tests.envs.browser.web import Web, redirect, send
from tests.envs.opening import opened

pytestmark = pytest.mark.endurance


class Canary:
    """Listens on this machine and counts connections."""

    def __init__(self) -> None:
        self.count = 0
        self._sockets: list[socket.socket] = []
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            made = socket.socket(socket.AF_INET, kind)
            made.bind(("127.0.0.1", self.port if self._sockets else 0))
            self._sockets.append(made)
        stream, _datagrams = self._sockets
        stream.listen()
        for listening in (self._accept, self._receive):
            threading.Thread(target=listening, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def _accept(self) -> None:
        while True:
            try:
                self._sockets[0].accept()[0].close()
            except OSError:
                return
            self.count += 1

    def _receive(self) -> None:
        while True:
            try:
                self._sockets[1].recv(1)
            except OSError:
                return
            self.count += 1

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    made = Canary()
    yield made
    made.close()


WAYS = {
    "image": "<img src='http://{at}/x.png'>",
    "script": "<script src='http://{at}/x.js'></script>",
    "style": "<link rel=stylesheet href='http://{at}/x.css'>",
    "frame": "<iframe src='http://{at}/'></iframe>",
    "fetch": "<script>fetch('http://{at}/', {{mode: 'no-cors'}})</script>",
    "tls": "<script>fetch('https://{at}/', {{mode: 'no-cors'}})</script>",
    "beacon": "<script>navigator.sendBeacon('http://{at}/', 'x')</script>",
    "socket": "<script>new WebSocket('ws://{at}/')</script>",
    "events": "<script>new EventSource('http://{at}/')</script>",
    "prefetch": "<link rel=prefetch href='http://{at}/'><link rel=preconnect href='http://{at}/'>",
    "script redirect": "<script>location = 'http://{at}/'</script>",
    "meta redirect": "<meta http-equiv=refresh content='0;url=http://{at}/'>",
    "window": "<script>window.open('http://{at}/')</script>",
    "form": "<form method=post action='http://{at}/'></form><script>document.forms[0].submit()"
    "</script>",
    "name": "<img src='http://localhost:{port}/x.png'>",
    "number": "<img src='http://2130706433:{port}/x.png'>",
    "ipv6": "<img src='http://[::1]:{port}/x.png'><img src='http://[::ffff:127.0.0.1]:{port}/'>",
    "worker": "<script>new Worker(URL.createObjectURL(new Blob([\"fetch('http://{at}/')\"])))"
    "</script>",
}


@pytest.mark.parametrize("way", WAYS)
def test_pages_do_not_reach_what_the_policy_does_not_name(
    browser: Browser, web: Web, canary: Canary, way: str
) -> None:
    at = f"127.0.0.1:{canary.port}"
    body = WAYS[way].format(at=at, port=canary.port)
    seen = browser.navigate(web.page("/way", body))
    if not seen.blocked:  # it may have arrived after the observation
        seen = browser.wait_for(seconds=0.5)
    assert any(f":{canary.port}" in each for each in seen.blocked)
    assert canary.count == 0
    for _ in range(len(seen.tabs) - 1):
        browser.close_tab()


def test_another_place_in_a_refused_page_is_refused(
    browser: Browser, web: Web, canary: Canary
) -> None:
    address = f"http://127.0.0.1:{canary.port}/"
    for place in ("", "#a", "#b", ""):
        seen = browser.navigate(address + place)
        assert "is not allowed by policy.network" in seen.error, place
        assert seen.content == ""
    assert browser.navigate(web.page("/fine", "<p>fine</p>")).error == ""
    assert "is not allowed" in browser.back().error


def test_redirects_are_judged_at_each_hop(browser: Browser, web: Web, canary: Canary) -> None:
    web.pages["/hop"] = redirect("/hop2")
    web.pages["/hop2"] = redirect(f"http://127.0.0.1:{canary.port}/")
    seen = browser.navigate(web.url("/hop"))
    assert f"127.0.0.1:{canary.port}" in seen.error
    assert seen.content == ""
    web.pages["/file"] = redirect("file:///etc/passwd")
    seen = browser.navigate(web.url("/file"))
    assert seen.error
    assert "root:" not in seen.content
    web.pages["/around"] = redirect("/around")
    assert "too many redirects" in browser.navigate(web.url("/around")).error
    assert canary.count == 0


def test_peer_connections_lead_nowhere(browser: Browser, web: Web, canary: Canary) -> None:
    body = """<p id=p>-</p><script>(async () => {
      const peer = new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:PORT'}]});
      peer.createDataChannel('x');
      const found = [];
      peer.onicecandidate = e => { if (e.candidate) found.push(e.candidate.candidate) };
      await peer.setLocalDescription(await peer.createOffer());
      setTimeout(() => { p.textContent = 'done ' + found.length }, 1000);
    })()</script>""".replace("PORT", str(canary.port))
    browser.navigate(web.page("/peer", body))
    assert browser.wait_for("done").content == "done 0"
    assert canary.count == 0


def test_files_and_inner_pages_cannot_be_opened_by_a_page(browser: Browser, web: Web) -> None:
    addresses = ("file:///etc/passwd", "chrome://version", "view-source:http://x/")
    frames = "".join(f"<iframe src='{each}'></iframe>" for each in addresses)
    links = "".join(f"<a href='{each}'>go {each}</a>" for each in addresses)
    shown = [browser.navigate(web.page("/inner-frames", frames))]
    for each in addresses:
        browser.navigate(web.page("/inner-pages", links))
        shown.append(browser.click(f"text='go {each}'"))
        assert f'link "go {each}"' in shown[-1].ax_tree
        for _ in range(len(shown[-1].tabs) - 1):
            browser.close_tab()
    for seen in shown:
        assert "root:" not in seen.content + seen.ax_tree
        assert "Chromium" not in seen.content + seen.ax_tree


def test_service_workers_reach_no_more_than_pages(
    browser: Browser, web: Web, canary: Canary
) -> None:
    script = f"fetch('http://127.0.0.1:{canary.port}/', {{mode: 'no-cors'}})"
    web.pages["/worker.js"] = lambda handler: send(handler, script, type="text/javascript")
    # A page can get around Playwright's replacement of `register`.
    body = """<p id=p>-</p><script>
      const register = ServiceWorkerContainer.prototype.register;
      register.call(navigator.serviceWorker, '/worker.js')
        .then(() => { p.textContent = 'registered' }, e => { p.textContent = 'refused' });
    </script>"""
    browser.navigate(web.page("/registers", body))
    seen = browser.wait_for(selector="text=/registered|refused/")
    if seen.content == "registered" and not seen.blocked:
        seen = browser.wait_for(seconds=1)
    asked = "GET /worker.js" in web.asked
    assert asked == bool(seen.blocked)
    assert canary.count == 0
    browser.navigate("about:blank")


# Shows W38
def test_credentials_go_to_their_server_only_and_are_not_shown(browser: Browser, web: Web) -> None:
    sent: dict[str, str | None] = {}

    def asks(handler: BaseHTTPRequestHandler) -> None:
        sent[handler.path] = handler.headers.get("authorization")
        if handler.headers.get("authorization") is None:
            send(handler, "who?", status=401, www_authenticate="Basic realm=x")
        else:
            elsewhere = web.url("/elsewhere").replace("127.0.0.1", "localhost")
            send(handler, "", status=302, set_cookie="token=c00kie; Path=/", location=elsewhere)

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        sent[handler.path] = handler.headers.get("authorization")
        sent["cookie"] = handler.headers.get("cookie")
        send(handler, "<p>elsewhere</p>")

    web.pages["/asks"], web.pages["/elsewhere"] = asks, elsewhere
    with_password = web.url("/asks").replace("http://", "http://ada:s3cret@")
    seen = browser.navigate(with_password)
    assert seen.content == "elsewhere"
    assert str(sent["/asks"]).startswith("Basic ")
    assert (sent["/elsewhere"], sent["cookie"]) == (None, None)
    failed = browser.navigate("http://ada:s3cret@no-such-host.invalid/")
    plain = browser.navigate(with_password.replace("/asks", "/none"))
    for each in (seen, failed, plain):
        assert "s3cret" not in str(each.as_data())
        assert "s3cret" not in Browser.observation_text(each, 4000, 4000)


# Shows W39
def test_proxies_of_the_machine_are_not_used(
    web: Web, canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = f"http://127.0.0.1:{canary.port}"
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, proxy)
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password s3cret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "w").mkdir()
    seen_by_server: list[str | None] = []

    def page(handler: BaseHTTPRequestHandler) -> None:
        seen_by_server.append(handler.headers.get("authorization"))
        send(handler, "<p>direct</p>")

    web.pages["/direct"] = page
    asked = {"config": {"isolate": "process"}, "policy": {"network": [web.place]}}
    with opened(BrowserProvider(), Namespace, tmp_path / "w", **asked) as browser:
        assert browser.navigate(web.url("/direct")).content == "direct"
    assert seen_by_server == [None]
    assert canary.count == 0
