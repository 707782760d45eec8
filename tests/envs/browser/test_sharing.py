# Shows E60
"""Environments that share a Chromium process, and what stays separate between them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentStartFailed, EnvironmentUnavailable
from flowengine_envs.browser import sharing
from flowengine_envs.browser.chromium import Profile
from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.browser.resource import Browser
from flowengine_envs.sandboxes.namespace import Namespace
from tests.envs.browser.drivers import drivers
from tests.envs.browser.processes import groups, key_of, session_of
from tests.envs.browser.web import BLOCKED, Web, never, send
from tests.envs.opening import request_for

pytestmark = pytest.mark.endurance


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvironmentManager]:
    others = groups()
    with EnvironmentManager(tmp_path_factory.mktemp("sharing") / "environments") as manager:
        yield manager
    assert groups() == others


@pytest.fixture(scope="module")
def pair(web: Web, manager: EnvironmentManager) -> tuple[Browser, Browser]:
    """Two browsers in one execution."""
    specs = [spec(web, "pair"), spec(web, "pair", key="two")]
    one, two = (manager.ensure(each).resource for each in specs)
    return one, two


def spec(
    web: Web, owner: str, scope: str = "execution", key: str = "web", **config: Any
) -> dict[str, Any]:
    return {
        "kind": "browser",
        "scope": scope,
        "owner_id": owner,
        "resource_key": key,
        "policy": {"network": [web.place]},
        "config": {"navigation_timeout": 30, "action_timeout": 5, **config},
    }


def process(browser: Browser) -> int:
    """Return the first process in a browser's sandbox."""
    pids = place(browser).chromium.traces._facts["pids"]
    return int(pids[0])


def place(browser: Browser) -> Profile:
    found = session_of(browser)._place
    assert isinstance(found, Profile)
    return found


def cookies(handler: BaseHTTPRequestHandler) -> None:
    had = handler.headers.get("cookie")
    send(handler, f"<p>had {had}</p>", set_cookie="who=" + handler.path[-1] + "; Path=/")


STORED = """<p id=p></p><script>
  p.textContent = 'had ' + localStorage.getItem('who'); localStorage.setItem('who', location.search)
</script>"""


def test_executions_share_a_process_and_nothing_else(web: Web, manager: EnvironmentManager) -> None:
    web.pages["/cookie"] = cookies
    web.page("/stored", STORED)

    def opened(at: int) -> Any:
        return manager.ensure(spec(web, f"e{at}", isolate="context"))

    with ThreadPoolExecutor(2) as pool:
        handles = [*pool.map(opened, range(2))]
    browsers: list[Browser] = [each.resource for each in handles]
    assert len({process(each) for each in browsers}) == 1
    assert browsers[0].browser is not None
    assert len(browsers[0].browser.contexts) == 2
    assert len({id(each.context) for each in browsers}) == 2
    for at, browser in enumerate(browsers):
        assert browser.navigate(web.url(f"/cookie?{at}")).content == "had None"
        assert browser.navigate(web.url(f"/stored?{at}")).content == "had null"
        assert browser.navigate(web.url("/cookie?9")).content == f"had who={at}"
        assert len(browser.observe().tabs) == 1
    folder = place(browsers[0]).chromium._folder
    for handle in handles:
        assert folder.exists()
        manager.release(handle)
    assert not folder.exists()


def test_executions_share_no_process_by_default(
    web: Web, manager: EnvironmentManager, pair: tuple[Browser, Browser]
) -> None:
    one, two = pair
    other = manager.ensure(spec(web, "other"))
    assert process(one) == process(two) != process(other.resource)
    assert len(drivers()) == 1  # outside of the sandboxes, for all browsers of this process
    manager.release(other)


@pytest.mark.parametrize(
    ("other", "shares"),
    [
        ({"owner_id": "e1/3.1", "scope": "action_call"}, True),
        ({"owner_id": "e1/2", "scope": "region"}, True),
        ({"owner_id": "e2"}, False),
        ({"scope": "session"}, False),
        ({"scope": "global", "owner_id": ""}, False),
        ({"isolate": "process"}, False),
        ({"limits": {"memory": 2**30}}, False),
        ({"policy": {"network": "none"}}, False),
        ({"policy": {"network": "public", "evaluate": True}}, False),
        ({"owner_id": "e2", "isolate": "context"}, False),
        ({"storage_state": "login.json"}, False),
        ({"permissions": ["camera"]}, False),
    ],
)
def test_only_who_may_trust_one_another_shares(
    tmp_path: Path, other: dict[str, Any], shares: bool
) -> None:
    def key(**asked: Any) -> tuple[object, ...]:
        names = ("isolate", "storage_state", "permissions")
        config = {name: asked.pop(name) for name in names if name in asked}
        return key_of(request_for(BrowserProvider(), Namespace, tmp_path, config=config, **asked))

    assert key() == key()
    assert (key(**other) == key()) is shares


def test_who_leaves_disturbs_nobody(
    web: Web, manager: EnvironmentManager, pair: tuple[Browser, Browser]
) -> None:
    web.pages["/silent"] = never
    loop = web.page("/loop", f"<p>loop</p><script>{BLOCKED}</script>")
    stays, _ = pair
    stays.navigate(web.page("/fine", "<input id=x>"))
    stays.fill("#x", "kept")
    leaves = manager.ensure(spec(web, "pair", key="three"))
    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(leaves.resource.navigate, loop)
        while "GET /loop" not in web.asked:
            assert stays.observe().error == ""
        manager.release(leaves)
        stuck.exception(60)
    assert "kept" in stays.observe().ax_tree
    assert stays.browser is not None
    assert len(stays.browser.contexts) == 2


def test_an_opening_that_fails_disturbs_nobody(
    web: Web,
    manager: EnvironmentManager,
    pair: tuple[Browser, Browser],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stays, _ = pair
    before, shared = process(stays), key_of(stays.request)
    monkeypatch.setattr(sharing, "_key", lambda request: shared)  # regardless of its login
    (tmp_path / "bad.json").write_text('{"cookies": [{"name": "x"}]}')
    login = {"storage_state": str(tmp_path / "bad.json")}
    with pytest.raises(EnvironmentStartFailed, match="did not start"):
        manager.ensure(spec(web, "pair", key="four", **login))
    (tmp_path / "link.json").symlink_to("bad.json")
    login = {"storage_state": str(tmp_path / "link.json")}
    with pytest.raises(EnvironmentUnavailable, match="cannot be read"):
        manager.ensure(spec(web, "pair", key="five", **login))
    seen = stays.navigate(web.page("/fine", "<p>fine</p>"))
    assert (seen.error, seen.content, process(stays)) == ("", "fine", before)
    assert stays.browser is not None
    assert len(stays.browser.contexts) == 2


def test_the_end_of_the_process_is_told_to_all(web: Web, pair: tuple[Browser, Browser]) -> None:
    url = web.page("/fine", "<p>fine</p>")
    one, two = pair
    for each in (one, two):
        each.navigate(url)
    before = process(one)
    os.killpg(before, signal.SIGKILL)
    told = [one.observe(), two.observe()]
    for seen in told:
        assert "browser lost" in seen.error or "started again" in "".join(seen.notes)
    for each in (one, two):
        seen = each.navigate(url)
        assert (seen.error, seen.content, seen.generation) == ("", "fine", 2)
    assert process(one) == process(two) != before
