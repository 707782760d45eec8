"""A web server and a Chromium that all tests of this folder share, and a browser for each file."""

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
from tests.envs.browser.web import Web, network, serving
from tests.envs.opening import opened

SMALL = {"width": 640, "height": 480}
"""Of windows whose size is not the point: each observation draws one."""
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
    """End what is shared with the last test of this folder, not with the last of all."""
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

    Starting one takes as long as ten pages, a profile in one that runs a fifth of that.
    """
    return _shared_chromium()


@pytest.fixture
def one_process(chromium: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the browsers that a manager opens join that process, too.

    For tests that are not about the process, and whose policies name the server.
    """
    key = sharing._key(chromium.request)
    monkeypatch.setattr(sharing, "_key", lambda request: key)


@pytest.fixture(scope="module")
def browser(
    web: Web, chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """A browser that reaches the server and nothing else."""
    folder = tmp_path_factory.mktemp("browser")
    config = {"navigation_timeout": 10, "action_timeout": 3, "downloads": "2MB", "tabs": 5}
    asked = {
        "config": {**config, "viewport": SMALL},
        "policy": {"network": network(web)},
    }
    with opened(BrowserProvider(), Namespace, folder, **asked) as browser:
        yield browser
