# Shows M79
"""Log events of agents: their fields, their destinations, and data that they must not contain."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from flowengine import LogEvent
from flowengine.kernel.graph.compiled import SecretText
from flowengine.runner import LoggerManager
from flowengine.secrets import Secrets
from tests.rows import each_row

CALL: dict[str, Any] = {"tool": "add", "arguments": {"a": 1, "b": 2}, "status": "started"}


def event(kind: Any, text: str, level: int = logging.INFO, **data: Any) -> LogEvent:
    return LogEvent(kind, text, "a", "01k8", "run/a#2", data, level)


def lines(logger: LoggerManager, stream: io.StringIO) -> list[str]:
    logger.log(event("tool_call", "tool add started", **CALL))
    logger.log(event("retry", "attempt 1 failed", logging.WARNING, attempt=1))
    return stream.getvalue().splitlines()


# Shows M78
def test_each_call_is_one_event_with_its_place_and_time_in_order() -> None:
    logger = LoggerManager(console=False)
    seen: list[LogEvent] = []
    logger.sinks.append(seen.append)

    lines(logger, io.StringIO())

    assert [(one.event, one.data) for one in seen] == [
        ("tool_call", CALL),
        ("retry", {"attempt": 1}),
    ]
    assert {(one.agent, one.execution, one.step) for one in seen} == {("a", "01k8", "run/a#2")}
    assert [one.time for one in seen] == sorted(one.time for one in seen)


def test_arguments_are_shown_from_debug_on() -> None:
    warning, info, debug = io.StringIO(), io.StringIO(), io.StringIO()

    [least] = lines(LoggerManager("WARNING", console=warning), warning)
    told = lines(LoggerManager("INFO", console=info), info)
    more = lines(LoggerManager("debug", console=debug), debug)

    assert least.endswith(" a attempt 1 failed")
    assert len(told) == len(more) == 2
    assert told[0].endswith("a tool add started")
    assert more[0].endswith('a tool add started {"a": 1, "b": 2}')


def test_the_level_comes_from_the_variable_and_a_wrong_one_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLOWENGINE_LOG_LEVEL", "error")
    assert LoggerManager().level == logging.ERROR
    assert LoggerManager("debug").level == logging.DEBUG

    monkeypatch.setenv("FLOWENGINE_LOG_LEVEL", "loud")
    assert LoggerManager().level == logging.INFO
    [warning] = [one for one in caplog.messages if "LOG_LEVEL" in one]
    assert "FLOWENGINE_LOG_LEVEL is 'loud'" in warning


def test_json_lines_go_to_a_file_and_on_request_to_the_console(tmp_path: Path) -> None:
    stream, file = io.StringIO(), tmp_path / "log.jsonl"

    told = lines(LoggerManager(console=stream, json_lines=True, file=file), stream)

    assert [json.loads(one) for one in told] == [
        json.loads(one) for one in file.read_text().splitlines()
    ]
    assert json.loads(told[0])["data"] == CALL


class Handle:
    def __repr__(self) -> str:
        return "SECRET-HANDLE"

    def __str__(self) -> str:
        raise RuntimeError("no text")


@each_row(
    "value", [Handle(), {Handle(): 1}, {1, 2}, b"\xff", "[red]x[/] :smile:", "\ud800", float("nan")]
)
# Shows M80
def test_whatever_the_arguments_hold_is_told_literally(value: Any) -> None:
    stream = io.StringIO()
    seen: list[LogEvent] = []
    logger = LoggerManager("DEBUG", console=stream)
    logger.sinks.append(seen.append)

    text = "[/] :smile: \ud800 \x1b[31m"
    logger.log(event("tool_call", text, arguments={"value": value}))

    assert len(seen) == 1
    [line] = stream.getvalue().splitlines()
    assert "[/] :smile:" in line
    assert "\x1b" not in line
    assert "SECRET-HANDLE" not in line + str(seen[0].data)
    if value == "[red]x[/] :smile:":
        assert "[red]x[/] :smile:" in line


# Shows M80
def test_a_place_that_takes_no_events_is_told_once_and_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = LoggerManager(console=False, file="/dev/full")
    seen: list[LogEvent] = []

    def broken(_: LogEvent) -> None:
        raise ValueError("broken")

    logger.sinks += [broken, seen.append]
    lines(logger, io.StringIO())

    assert len(seen) == 2
    assert sorted("/dev/full" in one for one in caplog.messages) == [False, True]


# Shows M81
def test_secrets_are_in_no_event(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("API_KEY", "hunter2-long")
    Secrets({"KEY": {"env": "API_KEY"}}).reveal(SecretText([["KEY"]]))
    stream, file = io.StringIO(), tmp_path / "log.jsonl"
    logger = LoggerManager("DEBUG", console=stream, file=file)
    seen: list[LogEvent] = []
    logger.sinks.append(seen.append)

    given = {"text": "it is hunter2-long", "headers": {"Authorization": "abc"}}
    logger.log(event("tool_call", "tool t started", arguments=given))
    logger.log(event("retry", "401: hunter2-long", error="401: hunter2-long"))

    for text in (stream.getvalue(), file.read_text(), str(seen)):
        assert "hunter2" not in text
        assert "abc" not in text
    assert seen[0].data["arguments"]["text"] == "it is ***"
