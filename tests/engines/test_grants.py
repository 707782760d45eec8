"""Grants: an approval of a call that also covers similar later calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.kernel.notation.grants import covers, fits

ACTS = """
def write(path: str, text: str = "", n: int = 0) -> str:
    with open("acted.txt", "a") as file:
        file.write(f"{path} ")
    return path
"""
FLOW = """
flowengine: 1
id: it
inputs: {paths: {type: array, items: {type: string}}}
tools:
  write: {python: "acts:write", approval: APPROVAL}
  other: {python: "acts:write", approval: ask}
steps:
  - id: w
    loop: {max: "${{ size(inputs.paths) }}", until: "${{ round.number == size(inputs.paths) }}"}
    call: write
    with:
      path: "${{ inputs.paths[round.number - 1] }}"
      text: "${{ inputs.paths[round.number - 1] }}"
STEPS
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("acts.py").write_text(ACTS)


def acted() -> list[str]:
    file = Path("acted.txt")
    return file.read_text().split() if file.exists() else []


def begin(engine: Engine, *paths: str, approval: str = "ask", steps: str = "") -> ExecutionResult:
    Path("flow.yaml").write_text(FLOW.replace("APPROVAL", approval).replace("STEPS", steps))
    return engine.run("flow.yaml", {"paths": list(paths)})


def approve(engine: Engine, result: ExecutionResult | None, **grant: Any) -> ExecutionResult:
    assert result is not None
    wait = result.waits[0]
    given: Any = {"grant": grant} if grant else {}
    after = engine.approve(wait["id"], **given).result
    assert after is not None
    return after


ANY_TEXT = {"text": "**"}
OTHER = "  - {id: o, call: other, with: {path: q}}"


def test_later_calls_whose_arguments_fit_are_not_asked_about_as_often_as_granted() -> None:
    with Engine("store") as engine:
        result = begin(engine, "out/a", "out/b", "out/c", "out/d")
        result = approve(engine, result, args={"path": "out/*", **ANY_TEXT}, uses=2)
        assert acted() == ["out/a", "out/b", "out/c"]
        [wait] = result.waits
        assert wait["subject"]["path"] == "out/d"
        [grant] = engine.grants(result.execution)
        assert (grant["tool"], grant["used"], grant["uses"], grant["status"]) == (
            "write", 2, 2, "used up",
        )  # fmt: skip


def test_a_grant_with_a_call_that_is_approved_already_is_refused_unless_it_is_the_same() -> None:
    with Engine("store") as engine:
        wait = begin(engine, "out/a", "out/b").waits[0]["id"]
        engine.approve(wait, resume=False)
        with pytest.raises(Conflict, match="already approved") as caught:
            engine.approve(wait, grant={"args": {"path": "out/*"}})
        assert caught.value.hint is not None
        assert "grant there: none, here: " in caught.value.hint
        assert engine.grants() == []

        other = begin(engine, "out/a").waits[0]["id"]
        engine.approve(other, grant={"args": {"path": "out/*"}, "expires": "2h"}, resume=False)
        again = engine.approve(other, grant={"args": {"path": "out/*"}, "expires": "2h"})
        assert not again.first
        assert not engine.approve(other).first


@pytest.mark.parametrize("path", ["../x", "out/../x", "out/a/b", "outer/x", "/out/x", "x"])
def test_calls_whose_arguments_do_not_fit_ask(path: str) -> None:
    with Engine("store") as engine:
        result = approve(engine, begin(engine, "out/a", path), args={"path": "out/*", **ANY_TEXT})
        [wait] = result.waits
    assert wait["subject"]["path"] == path
    assert acted() == ["out/a"]


def test_arguments_that_are_not_named_have_to_be_the_same() -> None:
    with Engine("store") as engine:
        result = approve(engine, begin(engine, "a", "a", "b"), uses=5)
        assert acted() == ["a", "a"]
        assert result.waits[0]["subject"] == {"path": "b", "text": "b"}
        result = approve(engine, result, args={"path": "*"})
        assert result.status == "succeeded"


def test_a_grant_is_for_one_tool_and_no_longer_than_it_lasts() -> None:
    class Clock:
        time = 1_800_000_000_000

        def now(self) -> int:
            return self.time

    clock = Clock()
    steps = "  - {id: o, call: other, with: {path: a}}\n  - {id: p, call: write, with: {path: z}}"
    with Engine("store", clock=clock) as engine:
        result = begin(engine, "a", "b", steps=steps)
        result = approve(engine, result, args={"path": "**", **ANY_TEXT}, expires="1h")
        assert result.waits[0]["tool"] == "other"
        clock.time += 3_600_000
        result = approve(engine, result)
        assert result.waits[0]["tool"] == "write"
        assert engine.grants(result.execution)[0]["status"] == "over"


def test_who_revokes_a_grant_is_asked_by_the_next_call_and_is_known() -> None:
    steps = f"{OTHER}\n  - {{id: p, call: write, with: {{path: b, text: b}}}}"
    with Engine("store") as engine:
        result = begin(engine, "a", "b", steps=steps)
        result = approve(engine, result, args={"path": "*", **ANY_TEXT})
        assert (acted(), result.waits[0]["tool"]) == (["a", "b"], "other")
        [grant] = engine.grants(result.execution)
        after = engine.revoke(grant["id"], by="user:ben")
        assert (after["status"], after["revoked_by"], after["used"]) == ("revoked", "user:ben", 1)
        with pytest.raises(Conflict, match="revoked by user:ben"):
            engine.revoke(grant["id"])
        result = approve(engine, result)
        assert result.waits[0]["tool"] == "write"
        assert engine.grants(result.execution)[0]["revoked_by"] == "user:ben"
    assert acted() == ["a", "b", "q"]


def test_nothing_is_granted_of_a_tool_whose_every_call_is_to_be_asked_about() -> None:
    with Engine("store") as engine:
        result = begin(engine, "a", "a", approval="required")
        with pytest.raises(InputError, match="'approval: required'"):
            approve(engine, result, uses=3)
        assert len(approve(engine, result).waits) == 1


def test_a_rule_that_asks_is_answered_and_one_that_denies_is_not() -> None:
    policies = "policies: [{ask: write}, {deny: write, when: \"${{ args.path == 'no' }}\"}]\n"
    with Engine("store") as engine:
        Path("flow.yaml").write_text(
            FLOW.replace("APPROVAL", "none").replace("STEPS", "") + policies
        )
        result = engine.run("flow.yaml", {"paths": ["a", "b", "no"]})
        result = approve(engine, result, args={"path": "**", **ANY_TEXT})
    assert result.error is not None
    assert result.error["type"] in ("Refused", "MapFailed")
    assert acted() == ["a", "b"]


def test_a_rule_of_the_host_that_asks_is_answered_too_and_one_that_denies_now_is_not() -> None:
    host = Path("config/flowengine/policies.yaml")
    host.parent.mkdir(parents=True)
    host.write_text("policies: [{ask: write}]\n")
    with Engine("store") as engine:
        steps = f"{OTHER}\n  - {{id: p, call: write, with: {{path: d, text: d}}}}"
        result = begin(engine, "a", "b", "c", approval="none", steps=steps)
        result = approve(engine, result, args={"path": "*", **ANY_TEXT})
        assert (acted(), result.waits[0]["tool"]) == (["a", "b", "c"], "other")
        assert engine.grants(result.execution)[0]["used"] == 2
        host.write_text("policies: [{deny: write}]\n")
        result = approve(engine, result)
    assert result.error is not None
    assert result.error["type"] == "Refused"


def test_it_answers_questions_that_are_open_already() -> None:
    Path("flow.yaml").write_text("""
flowengine: 1
id: it
tools: {write: {python: "acts:write", approval: ask}}
steps: [{id: m, map: [a, b, c/d, e], call: write, with: {path: "${{ item }}"}}]
""")
    with Engine("store") as engine:
        result = engine.run("flow.yaml")
        assert len(result.waits) == 4
        result = approve(engine, result, args={"path": "*"}, uses=2)
        assert [wait["subject"]["path"] for wait in result.waits] == ["c/d"]
        assert sorted(acted()) == ["a", "b", "e"]
        with pytest.raises(Conflict):
            engine.reject(engine.waits(status="closed").items[-1]["id"], by="user:ben")
        assert approve(engine, result).status == "succeeded"


@pytest.mark.endurance
def test_what_was_granted_and_revoked_on_the_command_line_is_listed() -> None:
    steps = OTHER
    with Engine("store") as engine:
        Path("flow.yaml").write_text(FLOW.replace("APPROVAL", "ask").replace("STEPS", steps))
        result = engine.run("flow.yaml", {"paths": ["a"]})
        wait = result.waits[0]
    command = [sys.executable, "-m", "flowengine", "--store", "store"]
    more = [
        *command,
        "approve",
        wait["id"],
        "--grant",
        "path=*",
        "--grant",
        "text=**",
        "--uses",
        "3",
    ]
    done = subprocess.run(more, capture_output=True, text=True, timeout=60, check=False)
    assert acted() == ["a"], done.stderr
    listed = subprocess.run(
        [*command, "grants", "list", wait["execution"]],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert "0 of 3" in listed
    assert "path=*" in listed
    grant = listed.splitlines()[1].split()[0]
    done = subprocess.run(
        [*command, "grants", "revoke", grant],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "calls of 'write' ask again" in done.stderr
    with Engine("store") as engine:
        assert engine.grants(wait["execution"])[0]["status"] == "revoked"


@pytest.mark.endurance
def test_a_grant_survives_a_crash_and_counts_each_call_once() -> None:
    with Engine("store") as engine:
        result = begin(engine, "a", "b", "c", "d", steps=OTHER)
        engine.approve(
            result.waits[0]["id"],
            grant={"args": {"path": "*", **ANY_TEXT}, "uses": 2},
            resume=False,
        )
    with Engine("store") as engine:
        result = engine.resume(result.execution)
        assert acted() == ["a", "b", "c"]
        assert engine.grants(result.execution)[0]["used"] == 2


@pytest.mark.parametrize(
    ("grant", "message"),
    [
        ({"args": {"nope": "*"}}, "'nope' is not an argument of this call"),
        ({"args": {"path": 7}}, "not an argument"),
        ({"uses": 0}, "not a number from 1 on"),
        ({"uses": True}, "not a number"),
        ({"expires": "soon"}, "is not a duration"),
        ({"forever": True}, "a grant has no 'forever'"),
    ],
)
def test_a_wrong_grant_is_refused_and_the_question_stays_open(grant: Any, message: str) -> None:
    with Engine("store") as engine:
        result = begin(engine, "a")
        with pytest.raises(InputError, match=message):
            engine.approve(result.waits[0]["id"], grant=grant)
        with pytest.raises(InputError, match="not an approval"):
            engine.reject(result.waits[0]["id"], grant={"uses": 1})
        assert engine.result(result.execution).waits
        with pytest.raises(NotFound, match="no grant"):
            engine.revoke(result.waits[0]["id"])


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    shell: {argv: [echo, "${{ args.text }}"], in: box}
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
    place: str, scope: str, asks: str
) -> None:
    approval = "approval: ask" if asks == "tool" else "effect: once"
    Path("flow.yaml").write_text(PLACES.replace("PLACE", place).replace("APPROVAL", approval))
    if asks == "host":
        host = Path("config/flowengine/policies.yaml")
        host.parent.mkdir(parents=True)
        host.write_text("policies: [{ask: say}]\n")
    with Engine("store") as engine:
        result = approve(engine, engine.run("flow.yaml"), scope=scope, args=ANY_TEXT)
        assert [wait["address"] for wait in result.waits] == ["elsewhere"]
        assert engine.grants(result.execution)[0]["used"] == 1
        assert approve(engine, result).status == "succeeded"
