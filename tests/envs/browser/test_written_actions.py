"""Actions written as calls are parsed as data."""

from __future__ import annotations

from typing import Any

from flowengine_envs.browser.written_actions import read_action
from tests.rows import each_row


@each_row(
    ("written", "action"),
    [
        ("goto('https://example.org')", {"action": "navigate", "url": "https://example.org"}),
        ("go_back()", {"action": "back"}),
        ("click('e5')", {"action": "click", "ref": "e5"}),
        ('click(bid="e5", button="right")', {"action": "click", "ref": "e5", "button": "right"}),
        (r"fill('e5', 'it\'s (1)')", {"action": "fill", "ref": "e5", "text": "it's (1)"}),
        ("press('e3', 'Enter')", {"action": "press", "ref": "e3", "key": "Enter"}),
        ("keyboard_press('Tab')", {"action": "press", "key": "Tab"}),
        ("select_option('e1', 'Oslo')", {"action": "select", "ref": "e1", "values": ["Oslo"]}),
        ("scroll(0, -200)", {"action": "scroll", "direction": "up", "pixels": 200}),
        ("scroll(300, 0)", {"action": "scroll", "direction": "right", "pixels": 300}),
        ("scroll('down')", {"action": "scroll", "direction": "down"}),
        ("noop(1000)", {"action": "observe"}),
        ("wait_for(text='Done')", {"action": "wait_for", "text": "Done"}),
    ],
)
def test_a_call_is_an_action(written: str, action: dict[str, Any]) -> None:
    assert read_action(written) == action


@each_row(
    "written",
    [
        "",
        "\0",
        "import os",
        "a.click('e1')",
        "click(open('x'))",
        "click(*[1])",
        "(" * 5000,
        "1 + 1",
    ],
)
def test_what_is_no_call_is_an_action_that_does_not_exist(written: str) -> None:
    assert read_action(written) == {"action": written}
