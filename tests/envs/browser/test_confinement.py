"""What pages reach: the places of the policy, and nothing else by any way."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from flowengine_envs.browser.resource import Browser
from tests.envs.browser.web import Web, redirect


class Canary:
    """Listens on this machine, and counts who comes."""

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
    if not seen.blocked:  # it may have come after the observation
        seen = browser.wait_for(seconds=0.5)
    assert any(f":{canary.port}" in each for each in seen.blocked)
    assert canary.count == 0
    for _ in range(len(seen.tabs) - 1):
        browser.close_tab()


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
    for address in ("file:///etc/passwd", "chrome://version", "view-source:http://x/"):
        body = f"<a href='{address}'>go</a><iframe src='{address}'></iframe>"
        browser.navigate(web.page("/inner-pages", body))
        seen = browser.click("a")
        assert 'link "go"' in seen.ax_tree
        assert "root:" not in seen.content + seen.ax_tree
        assert "Chromium" not in seen.content + seen.ax_tree
        for _ in range(len(seen.tabs) - 1):
            browser.close_tab()
