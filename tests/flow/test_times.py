"""Times are RFC 3339, parsed by one reader in files, inputs and expressions."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from flowengine import Agent, Engine, Runner
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import FlowFileError, InputError, UsageError
from flowengine.flow.compile import compile_text
from flowengine.flow.expressions.checker import check
from flowengine.flow.expressions.clock import duration_of
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.expressions.paths import NoValue
from flowengine.flow.expressions.types import DeclaredNames
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.notation.times import TooLong, format_time, parse_duration, parse_time
from flowengine.sdk.environments.models import Duration
from flowengine.sdk.values.validation import validate
from flowengine.tool_environment.tools import define
from tests.command_line import flowengine
from tests.rows import each_row

TIMES = {
    "2016-12-05T21:29:29Z": "2016-12-05T21:29:29Z",
    "2016-12-05t21:29:29z": "2016-12-05T21:29:29Z",
    "2016-12-05T21:29:29.25+01:30": "2016-12-05T19:59:29.250Z",
    "2016-12-05T21:29:29.123999-00:00": "2016-12-05T21:29:29.123Z",
    "2016-02-29T00:00:00Z": "2016-02-29T00:00:00Z",
    "2016-12-31T23:59:60Z": "2017-01-01T00:00:00Z",
    "0001-01-02T00:00:00Z": "0001-01-02T00:00:00Z",
    "9999-12-31T23:59:59Z": "9999-12-31T23:59:59Z",
}
NOT_TIMES = [
    "2016-W49-1_21Z",
    "20161205T212929Z",
    "2016-12-05 21:29:29Z",
    "2016-12-05T21:29Z",
    "2016-12-05T21:29:29",
    "2016-12-05T21:29:29,5Z",
    "2016-12-05T21:29:29+0100",
    " 2016-12-05T21:29:29Z",
    "2015-02-29T00:00:00Z",
    "2016-13-01T00:00:00Z",
    "2016-12-05T24:00:00Z",
    "2016-12-05T12:00:60Z",
    "2016-12-05T21:29:29+24:00",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "٢٠١٦-12-05T21:29:29Z",
]


def value(source: str, text: str) -> object:
    """Return the result of an expression for a text."""
    checked = check(source, DeclaredNames({"properties": {"t": {"type": "string"}}}))
    assert checked.problems == []
    return CelEvaluator([checked.record], "test").evaluate(0, {"t": text})


def waiting(until: str) -> str:
    return f'flowengine: 1\nid: f\nsteps: [{{id: w, wait: {{until: "{until}"}}}}]\n'


@each_row(("text", "meant"), TIMES.items())
def test_a_time_is_read_the_same_everywhere(text: str, meant: str) -> None:
    assert format_time(parse_time(text)) == meant
    compile_text(waiting(text))
    validate({"type": "string", "format": "date-time"}, text, "input 'at'")
    assert value("timestamp(t) == timestamp(t)", text) is True
    assert value("format_time(t, 'yyyy')", text) == meant[:4]
    assert str(value("timestamp(t)", text))[:19] == meant[:19]


@each_row("text", NOT_TIMES)
def test_what_is_not_a_time_is_refused_everywhere(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid time"):
        parse_time(text)
    with pytest.raises(FlowFileError, match="expected a time"):
        compile_text(waiting(text))
    with pytest.raises(InputError, match="date-time"):
        validate({"type": "string", "format": "date-time"}, text, "input 'at'")
    for source in ("timestamp(t)", "format_time(t, 'yyyy')", "timestamp(t) + duration('1h')"):
        with pytest.raises(EvaluationError, match="not a valid time"):
            value(source, text)


def test_a_time_without_its_offset_is_told_so_everywhere() -> None:
    text = "2016-12-05T21:29:29.5"
    with pytest.raises(InputError, match=f"'at' must be a date-time with an offset, as in {text}Z"):
        validate({"type": "string", "format": "date-time"}, text, "input 'at'")
    with pytest.raises(ValueError, match=f"its offset is missing: write for example {text}Z"):
        parse_time(text)
    with pytest.raises(FlowFileError, match="with offset"):
        compile_text(waiting(text))
    with pytest.raises(EvaluationError, match="its offset is missing"):
        value("timestamp(t)", text)


LOCAL = ["2016-12-05T21:29:29", "2016-12-05 21:29:29", "2016-12-05T21:29", "2016-12-05T21:29:29Z"]


@each_row("text", LOCAL)
def test_a_datetime_of_python_needs_no_offset(text: str) -> None:
    """What a function takes as a step, it takes as a tool, and an agent can answer."""

    def remind(at: datetime) -> str:
        return at.isoformat()

    made = datetime.fromisoformat(text)
    signature = define(remind)
    assert signature.convert({"at": text}) == {"at": made}
    answers = Agent(name="A", model="scripted/test", returns=datetime)
    with using(ScriptedModel([{"text": f'"{text}"'}])):
        assert Runner().run(answers, "When?").output == made


def test_a_duration_that_is_too_long_is_told_as_such_everywhere(tmp_path: Path) -> None:
    told = "is longer than a hundred years"
    for text in ("100000w", "9" * 5000 + "d"):
        with pytest.raises(TooLong, match=told):
            parse_duration(text)
        with pytest.raises(NoValue, match=told):
            duration_of(text)
        with Engine(None) as engine, pytest.raises(UsageError, match=told):
            engine.executions.prune(older_than=text)
        with pytest.raises(ValidationError, match=told):
            TypeAdapter(Duration).validate_python(text)
        done = flowengine("resume", "--due", "--linger", text)
        assert (done.code, told in done.err) == (2, True)
    with Engine(None) as engine:
        (tmp_path / "it.yaml").write_text(
            "flowengine: 1\nid: it\ninputs: {span: {type: string}}\n"
            "steps: [{id: a, wait: {for: '${{ inputs.span }}'}}]\n"
        )
        error = engine.run(tmp_path / "it.yaml", {"span": "100000w"}).error
        assert error is not None
        assert "'100000w' is longer than a hundred years" in error["message"]
