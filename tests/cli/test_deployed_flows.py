# Shows V10
"""Schedules of deployed flows that are due. `deployed_flows.md` shows the rest (V10, V11, V12)."""

from __future__ import annotations

from pathlib import Path

from flowengine.engines.engine import Engine
from tests.cli.conftest import CommandLine

REPORT = """
flowengine: 1
id: report
inputs: {day: {type: string, default: ""}}
start:
  - {schedule: 0 9 * * 1-5, timezone: Europe/Berlin, with: {day: "${{ execution.scheduled_at }}"}}
  - {signal: wanted, with: {day: "${{ signal.key }}"}}
signals: {wanted: {key: "${{ inputs.day }}"}}
steps: [{id: note, set: {said: "${{ inputs.day }}"}}]
state: {said: {type: string, default: ""}}
outputs: {day: "${{ state.said }}"}
"""


def make_due(flowengine: CommandLine, time: int) -> None:
    """Set the next time of the schedule to one in the past."""
    with Engine(Path(flowengine.folder) / ".flowengine") as engine:
        [scheduled] = engine.store.schedules()
        assert engine.store.move_schedule(scheduled, time, time)


def test_resume_due_starts_what_schedules_say(flowengine: CommandLine) -> None:
    flowengine("deploy", flowengine.write("report.yaml", REPORT))
    make_due(flowengine, 1_700_000_000_000)
    [ended] = flowengine("--json", "resume", "--due").json()
    assert (ended["flow"], ended["status"]) == ("report", "succeeded")
    assert flowengine("--json", "resume", "--due").json() == []


def test_a_time_whose_inputs_are_refused_is_reported(flowengine: CommandLine) -> None:
    text = REPORT.replace('default: ""}}\nstart', "enum: [never]}}\nstart")
    flowengine("deploy", flowengine.write("report.yaml", text))
    make_due(flowengine, 1_700_000_000_000)
    refused = flowengine("resume", "--due", code=1).err
    assert "report was not started by its schedule: 'start' on schedule '0 9 * * 1-5" in refused
    assert "input 'day' must be one of" in refused
    assert flowengine("resume", "--due").err == "", "the time is passed over"
