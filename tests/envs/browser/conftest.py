"""Fixtures: a web server and a Chromium process for the folder, and a browser per test file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from flowengine_envs.browser import installation, sharing
from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.browser.resource import Browser
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import has
from tests.envs.browser.processes import key_of
from tests.envs.browser.web import Web, network, serving
from tests.envs.opening import opened

SMALL = {"width": 640, "height": 480}
"""For windows whose size does not matter: each observation takes a screenshot, so small is fast."""
_SHARED = ExitStack()


@cache
def _shared_web() -> Web:
    return _SHARED.enter_context(serving())


@cache
def _shared_chromium() -> Browser:
    folder = Path(_SHARED.enter_context(TemporaryDirectory()), "workspace")
    folder.mkdir()
    asked = {"policy": {"network": network(_shared_web())}}
    browser: Browser = _SHARED.enter_context(opened(BrowserProvider(), Namespace, folder, **asked))
    return browser


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the shared server and browser after the last test of this folder, not of the run."""
    yield
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _SHARED.close()
        _shared_chromium.cache_clear()
        _shared_web.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    if installation.browser(None) is None:
        pytest.skip("no Chromium: apt-get install chromium")
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")


@pytest.fixture(scope="module")
def web() -> Web:
    return _shared_web()


@pytest.fixture(scope="module")
def chromium() -> Browser:
    """Keep a process running that other browsers with the same policy join.

    Starting a process takes as long as ten pages. Adding a profile to a running one takes a fifth
    of that.
    """
    return _shared_chromium()


@pytest.fixture
def one_process(chromium: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let browsers opened by a manager join the shared process too.

    For tests that do not examine the process and whose rules allow the server.
    """
    key = key_of(chromium.request)
    monkeypatch.setattr(sharing, "_key", lambda request: key)


@pytest.fixture(scope="module")
def browser(
    web: Web, chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """A browser that can reach only the server."""
    folder = tmp_path_factory.mktemp("browser")
    config = {"navigation_timeout": 10, "action_timeout": 3, "downloads": "2MB", "tabs": 5}
    asked = {"config": {**config, "viewport": SMALL}, "policy": {"network": network(web)}}
    with opened(BrowserProvider(), Namespace, folder, **asked) as browser:
        yield browser
