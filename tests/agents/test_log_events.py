"""Log events of agents: their fields, where they go, and what must never be in them."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents import LogEvent, LoggerManager
from flowengine.kernel.graph.compiled import SecretText
from flowengine.secrets import Secrets

PLACE = {"execution": "01k8", "step": "run/a#2"}


def lines(logger: LoggerManager, stream: io.StringIO) -> list[str]:
    logger.log_llm_call("m", {"input_tokens": 3, "output_tokens": 2}, agent="a", **PLACE)
    logger.log_tool_call("add", {"a": 1, "b": 2}, agent="a", **PLACE)
    logger.log_agent_handoff("a", "b", **PLACE)
    logger.log_retry(1, "ModelError: down", agent="b", **PLACE)
    logger.log_termination("resolved", agent="b", **PLACE)
    return stream.getvalue().splitlines()


def test_each_call_is_one_event_with_its_place_and_time_in_order() -> None:
    logger = LoggerManager(console=False)
    seen: list[LogEvent] = []
    logger.sinks.append(seen.append)

    lines(logger, io.StringIO())

    assert [one.event for one in seen] == [
        "llm_call",
        "tool_call",
        "agent_handoff",
        "retry",
        "termination",
    ]
    assert {(one.execution, one.step) for one in seen} == {("01k8", "run/a#2")}
    assert [one.time for one in seen] == sorted(one.time for one in seen)
    assert seen[0].data == {"model": "m", "input_tokens": 3, "output_tokens": 2}
    assert seen[1].data == {"tool": "add", "arguments": {"a": 1, "b": 2}, "status": "started"}
    assert seen[2].data == {"to": "b"}
    assert seen[3].data == {"attempt": 1, "error": "ModelError: down"}


def test_arguments_are_shown_from_debug_on() -> None:
    info, debug = io.StringIO(), io.StringIO()

    told = lines(LoggerManager("INFO", console=info), info)
    more = lines(LoggerManager("debug", console=debug), debug)

    assert len(told) == len(more) == 5
    assert told[1].endswith("a tool add started")
    assert more[1].endswith('a tool add started {"a": 1, "b": 2}')
    assert "\x1b" not in info.getvalue() + debug.getvalue()


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
    assert json.loads(told[2])["data"] == {"to": "b"}


class Handle:
    def __repr__(self) -> str:
        return "SECRET-HANDLE"

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "value", [Handle(), {Handle(): 1}, {1, 2}, b"\xff", "[red]x[/] :smile:", "\ud800", float("nan")]
)
def test_whatever_the_arguments_hold_is_told_literally(value: Any) -> None:
    stream = io.StringIO()
    seen: list[LogEvent] = []
    logger = LoggerManager("DEBUG", console=stream)
    logger.sinks.append(seen.append)

    logger.log_tool_call("[/] :smile: \ud800 \x1b[31m", {"value": value})

    assert len(seen) == 1
    [line] = stream.getvalue().splitlines()
    assert "[/] :smile:" in line
    assert "\x1b" not in line
    assert "SECRET-HANDLE" not in line + str(seen[0].data)
    if value == "[red]x[/] :smile:":
        assert "[red]x[/] :smile:" in line


def test_a_place_that_takes_no_events_is_told_once_and_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = LoggerManager(console=False, file="/dev/full")
    seen: list[LogEvent] = []

    def broken(event: LogEvent) -> None:
        raise ValueError("broken")

    logger.sinks += [broken, seen.append]
    lines(logger, io.StringIO())

    assert len(seen) == 5
    assert sorted("/dev/full" in one for one in caplog.messages) == [False, True]


def test_secrets_are_in_no_event(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("API_KEY", "hunter2-long")
    Secrets({"KEY": {"env": "API_KEY"}}).reveal(SecretText([["KEY"]]))
    stream, file = io.StringIO(), tmp_path / "log.jsonl"
    logger = LoggerManager("DEBUG", console=stream, file=file)
    seen: list[LogEvent] = []
    logger.sinks.append(seen.append)

    logger.log_tool_call("t", {"text": "it is hunter2-long", "headers": {"Authorization": "abc"}})
    logger.log_retry(1, "401: hunter2-long")

    for text in (stream.getvalue(), file.read_text(), str(seen)):
        assert "hunter2" not in text
        assert "abc" not in text
    assert seen[0].data["arguments"]["text"] == "it is ***"
