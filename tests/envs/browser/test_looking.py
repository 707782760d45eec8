# Shows V56
"""Looking into a browser while a step uses it."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from flowengine.errors import Conflict
from flowengine.execution_environment import EnvironmentManager
from flowengine.execution_environment.registry import screens
from flowengine.sdk.environments import background
from tests.envs.browser.processes import session_of
from tests.envs.browser.web import Web, network
from tests.replacing import Limits

PAGE = """
<input id=name autofocus><input type=password id=secret value=hunter2>
<p style="width: 3000px; height: 3000px">long</p>
<script>
window.seen = [];
for (const name of ["focus", "blur", "resize", "scroll", "visibilitychange"]) {
  window.addEventListener(name, () => seen.push(name), true);
  document.addEventListener(name, () => seen.push(name), true);
}
</script>
"""
STATE = "[document.activeElement.id, window.scrollY, innerWidth, innerHeight, seen.join()]"


def spec(web: Web) -> dict[str, Any]:
    config = {"viewport": {"width": 640, "height": 480}}
    key = {"resource_key": "web", "scope": "session", "owner_id": "ana"}
    return {"kind": "browser", "policy": {"network": network(web)}, "config": config, **key}


@pytest.mark.usefixtures("one_process")
def test_a_look_shows_the_active_tab_and_disturbs_nothing(
    manager: EnvironmentManager, web: Web
) -> None:
    browser = manager.ensure(spec(web)).resource
    address = web.page("/form", PAGE, "A form").replace("://", "://user:word@")
    browser.navigate(address)
    background().run(browser.page.fill("#name", "Ada"))
    before = background().run(browser.page.evaluate(STATE))

    screen = manager.look("web")[1].screen

    assert struct.unpack(">II", screen.picture[16:24]) == (640, 480)
    assert (screen.title, screen.address, screen.text) == ("A form", web.url("/form"), "")
    after = background().run(browser.page.evaluate(STATE))
    assert after == before
    assert after[0] == "name"
    browser.new_tab(web.page("/two", "second", "Second"))
    assert manager.look("web")[1].screen.title == "Second"


def test_a_browser_that_has_ended_says_so(
    manager: EnvironmentManager, web: Web, limits: Limits
) -> None:
    limits(screens, SECONDS=1)  # if its end is not noticed yet
    browser = manager.ensure(spec(web)).resource
    session_of(browser)._place.chromium._server._program.kill()
    with pytest.raises(Conflict, match="cannot be looked into"):
        manager.look("web")
