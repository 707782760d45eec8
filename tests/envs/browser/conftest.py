"""A web server and a browser that the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowengine_envs.browser import installation
from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.browser.resource import Browser
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import has
from tests.envs.browser.web import Web, network, serving
from tests.envs.opening import opened


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    if installation.browser(None) is None:
        pytest.skip("no Chromium: apt-get install chromium")
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.fixture(scope="module")
def browser(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that reaches the server and nothing else."""
    folder = tmp_path_factory.mktemp("browser")
    asked = {
        "config": {"navigation_timeout": 10, "action_timeout": 3, "downloads": "2MB", "tabs": 5},
        "policy": {"network": network(web)},
    }
    with opened(BrowserProvider(), Namespace, folder, **asked) as browser:
        yield browser
