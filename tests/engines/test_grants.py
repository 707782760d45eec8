"""Grants: patterns, equal arguments, and the place of a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import ExecutionResult
from flowengine.kernel.notation.grants import covers, fits
from tests.rows import each_row


def approve(engine: Engine, result: ExecutionResult, **grant: Any) -> ExecutionResult:
    given: Any = {"grant": grant} if grant else {}
    after = engine.approvals.approve(result.waits[0]["id"], **given).result
    assert after is not None
    return after


@each_row(
    ("pattern", "value", "expected"),
    [
        ("out/*", "out/a", True),
        ("out/*", "out/a/b", False),
        ("out/**", "out/a/b", True),
        ("out/**", "out/../b", False),
        ("out/**", "out\\..\\b", False),
        ("out/**", "out/a..b", True),
        ("out/*", "out/a\nb", True),
        ("*", "a/b", False),
        ("**", "../x", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a.c", "abc", False),
        ("[a]", "a", False),
        ("7", 7, True),
        ("7", "7", True),
        ("*", [1, 2], True),
        ("true", True, True),
        ("true", 1, False),
        ("out/**", "out/%2e%2E/x", False),
        ("out/**", "out/%2e/x", True),
        ("*", {1: "a", "b": 2}, True),
        ("https://*.shop.com/**", "https://api.shop.com/a?b=c#d@e", True),
        ("https://*.shop.com/**", "https://evil.com#.shop.com/", False),
        ("https://*.shop.com/**", "https://evil.com?.shop.com/", False),
        ("https://*.shop.com/**", "https://evil.com\\.shop.com/", False),
        ("https://**.shop.com/**", "https://a.shop.com@evil.com\\.shop.com/", False),
        ("https://shop.com?/x", "https://shop.com@/x", False),
    ],
)
def test_what_a_pattern_fits(pattern: str, value: Any, expected: bool) -> None:
    assert fits(pattern, value) is expected


@each_row(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({1: "a", "b": 2}, {"b": 2, 1: "a"}, True),
        ("\u00e9", "e\u0301", False),
        ("a", "a\u200b", False),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        (None, "null", False),
        ({1: "a"}, {"1": "a"}, False),
        ({1: "a"}, {True: "a"}, False),
        ([b"a"], ["b'a'"], False),
        ([1], [1, 2], False),
    ],
)
def test_arguments_are_the_same_only_in_their_types_and_to_the_letter(
    one: Any, other: Any, same: bool
) -> None:
    grant = {"patterns": {}, "args": {"x": one}}
    assert covers(grant, {"x": other}) is same
    assert covers(grant, {"x": one}) is True


PLACES = """
flowengine: 1
id: it
environments:
  box: {kind: bash, provider: namespace}
  other: {kind: bash, provider: host}
tools:
  say:
    shell: {command: [echo, "${{ args.text }}"], in: box}
    args: {properties: {text: {type: string}}}
    APPROVAL
steps:
  - {id: first, call: say, with: {text: a}}
  - {id: again, call: say, with: {text: b}, in: box}
  - {id: elsewhere, call: say, with: {text: c}, in: PLACE}
"""


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("place", "scope", "asks"),
    [("host", "execution", "tool"), ("other", "flow", "tool"), ("other", "execution", "host")],
)
def test_a_grant_for_a_sandbox_answers_for_no_other_place(
    place: str, scope: str, asks: str, folder: Path
) -> None:
    approval = "approval: ask" if asks == "tool" else "effect: once"
    Path("flow.yaml").write_text(PLACES.replace("PLACE", place).replace("APPROVAL", approval))
    if asks == "host":
        host = Path("config/flowengine/rules.yaml")
        host.parent.mkdir(parents=True)
        host.write_text("rules: [{ask: say}]\n")
    with Engine("store") as engine:
        result = approve(engine, engine.run("flow.yaml"), scope=scope, args={"text": "**"})
        assert [wait["address"] for wait in result.waits] == ["elsewhere"]
        assert engine.approvals.grants(result.execution)[0]["used"] == 1
        assert approve(engine, result).status == "succeeded"
