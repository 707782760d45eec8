"""Long texts from a page are cut when they make a server message too long. The browser survives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowengine.sdk.environments import background
from flowengine_envs.browser import browser_server
from flowengine_envs.browser.library import Error
from flowengine_envs.browser.long_messages import LONGEST_TEXT, NOTE, Shortened, is_cut
from flowengine_envs.browser.resource import Browser
from tests.envs.browser.web import Web
from tests.replacing import Limits
from tests.rows import each_row

LONG = 7 * LONGEST_TEXT
PARTS = ("x", '"', "\\", '\\\\"', "é\n", "\x01", "😀", "\udc00")
VALUE = {
    "id": 1,
    "": [0, None, {}, "", *(part * times for times in (1, 3, LONG) for part in PARTS), True],
    "k" * 200: [[part * LONG, {part: part}] for part in PARTS],
}


def shortened(message: bytes, size: int) -> Any:
    made = Shortened(1 << 30)
    for at in range(0, len(message), size):
        made.add(message[at : at + size])
    return json.loads(made.data)


def agrees(value: Any, cut: Any) -> bool:
    """Return whether `cut` equals `value` except for cuts in long texts."""
    if isinstance(value, dict):
        return list(value) == list(cut) and all(agrees(value[key], cut[key]) for key in value)
    if isinstance(value, list):
        return len(value) == len(cut) and all(map(agrees, value, cut))
    if not isinstance(value, str) or len(value) < LONG:
        return bool(value == cut)
    kept = cut.removesuffix(NOTE)
    return is_cut(cut) and value.startswith(kept) and LONGEST_TEXT // 5 < len(kept) <= LONGEST_TEXT


@each_row("size", [997, 1 << 16, 1 << 30])
@each_row("escaped", [True, False])
def test_only_long_texts_are_cut_wherever_a_message_is_split(size: int, escaped: bool) -> None:
    data = json.dumps(VALUE, ensure_ascii=escaped).encode("utf-8", "replace")

    assert agrees(json.loads(data), shortened(data, size))


WRITES = """
const long = "long ".repeat(1 << 18)
console.log(long)
document.body.append(Object.assign(document.createElement("iframe"), {name: long}))
fetch("/taken", {method: "POST", body: long})
for (let n = 0; n < 99; n++) console.log(n + long.slice(0, 30000))
throw new Error(long)
"""
"""Each statement causes a message that exceeds the limit, as do the log lines together."""


@pytest.mark.endurance  # megabytes go through each process of the browser
def test_a_page_cannot_end_the_browser_by_what_it_writes(
    browser: Browser, web: Web, limits: Limits
) -> None:
    limits(browser_server, LARGEST_MESSAGE=1 << 20)
    opening = browser.opening
    url = web.page("/long", f"<p>There.</p><script>{WRITES}</script>")

    seen = browser.navigate(url)
    assert (seen.error, seen.content) == ("", "There.")
    log = browser.log()
    assert log.error == ""
    assert any(line.startswith("log: 98long long") for line in log.value["console"])
    assert any(line.startswith("uncaught: long long") for line in log.value["console"])
    with pytest.raises(Error, match=r"the page gave an answer of 3,.* bytes, of at most 1 MiB"):
        background().run(browser.page.evaluate("'short '.repeat(1 << 18).split(' ')"))
    assert browser.click("p").error == ""
    assert browser.opening == opening
