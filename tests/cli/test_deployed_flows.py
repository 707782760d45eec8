"""`flowengine deploy` and `flowengine flows`: versions, schedules and signals (V10, V11, V12)."""

from __future__ import annotations

from pathlib import Path

from flowengine.engines.engine import Engine
from tests.cli.conftest import CommandLine, also_served

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


@also_served
def test_a_deployed_flow_is_listed_with_what_starts_it(flowengine: CommandLine) -> None:
    file = flowengine.write("report.yaml", REPORT)
    assert flowengine("flows", "list", code=9).err.startswith("error: no store exists")
    deployed = flowengine("deploy", file).out
    assert flowengine("flows", "list").out == deployed
    assert "0 9 * * 1-5 Europe/Berlin, next 20" in deployed
    assert "signal wanted" in deployed
    [listed] = flowengine("--json", "flows", "list").json()
    assert (listed["flow"], listed["version"], listed["current"]) == ("report", "0", True)
    assert [start.get("signal") for start in listed["starts"]] == [None, "wanted"]
    assert "is a hash" in flowengine("flows", "undeploy", listed["hash"][:12], code=2).err
    removed = flowengine("flows", "undeploy", "report")
    assert removed.err == "no longer deployed: report@0\n"
    assert flowengine("flows", "list").err.startswith("no flow is deployed")
    assert "no flow 'report' is deployed" in flowengine("flows", "undeploy", "report", code=9).err


@also_served
def test_an_invalid_flow_deploys_none(flowengine: CommandLine) -> None:
    good = flowengine.write("report.yaml", REPORT)
    bad = flowengine.write("bad.yaml", REPORT.replace("0 9 * * 1-5", "0 0 9 * * 1-5"))
    refused = flowengine("deploy", good, bad, code=3).err
    assert "bad.yaml:6:16: error[E103]: a schedule has five fields" in refused
    assert flowengine("--json", "flows", "list").json() == []


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


def test_functions_stay_on_the_host(flowengine: CommandLine) -> None:
    flowengine.write("booking.py", "def book(n: int) -> int:\n    return n\n")
    text = "\nflowengine: 1\nid: book\ntools: {book: {python: 'booking:book'}}\n"
    file = flowengine.write("book.yaml", text + "steps: [{id: a, call: book, with: {n: 1}}]\n")
    said = flowengine("deploy", file).err
    assert "book imports from this host, not from the store: booking" in said


ASKING = """
flowengine: 1
id: asking
version: "VERSION"
steps: [{id: ask, approval: {title: "Version VERSION?"}}]
"""


@also_served
def test_open_executions_stay_on_their_version(flowengine: CommandLine) -> None:
    for version in ("1", "2"):
        flowengine("deploy", flowengine.write("asking.yaml", ASKING.replace("VERSION", version)))
        flowengine("run", "asking", "--id", f"on{version}", code=4)
    flowengine("run", "asking@1", "--id", "again", code=4)
    versions = {one["execution"]: one["version"] for one in flowengine("--json", "list").json()}
    assert versions == {"on1": "1", "on2": "2", "again": "1"}
    changed = flowengine.write("asking.yaml", ASKING.replace("VERSION", "2") + "title: Changed\n")
    assert "asking@2 was deployed" in flowengine("deploy", changed, code=7).err
    flowengine("flows", "undeploy", "asking@2", code=7)
    flowengine("deploy", "asking@1")
    assert flowengine("flows", "undeploy", "asking@2").err == "no longer deployed: asking@2\n"
    assert "deployed flows: asking@1" in flowengine("run", "asking@2", code=9).err
    assert [one["status"] for one in flowengine("--json", "list").json()] == ["waiting"] * 3


@also_served
def test_an_upgrade_moves_open_executions_that_fit(flowengine: CommandLine) -> None:
    flowengine("deploy", flowengine.write("asking.yaml", ASKING.replace("VERSION", "1")))
    flowengine("run", "asking", "--id", "it", code=4)
    second = flowengine.write("asking.yaml", ASKING.replace("VERSION", "2"))
    assert "1 of 1 moved" in flowengine("deploy", "--upgrade", second).err
    assert flowengine("--json", "show", "it").json()["version"] == "2"
    third = flowengine.write(
        "asking.yaml", ASKING.replace("VERSION", "3").replace("{id: ask,", "{id: b,")
    )
    refused = flowengine("--json", "deploy", "--upgrade", third, code=7).json()
    assert [one["version"] for one in refused["deployed"]] == ["3"]
    assert [one["moved"] for one in refused["upgraded"]] == [False]


@also_served
def test_schedules_are_paused_and_resumed(flowengine: CommandLine) -> None:
    file = flowengine.write("report.yaml", REPORT)
    flowengine("deploy", file)
    assert flowengine("flows", "pause", "report").out == "0 9 * * 1-5 Europe/Berlin, paused\n"
    flowengine("deploy", file)
    assert "Europe/Berlin, paused" in flowengine("flows", "list").out
    resumed = flowengine("flows", "resume", "report").out
    assert resumed.startswith("0 9 * * 1-5 Europe/Berlin, next 20")
    assert "no flow 'other' is deployed" in flowengine("flows", "pause", "other", code=9).err
    text = "flowengine: 1\nid: plain\nsteps: [{id: a, output: 1}]\n"
    flowengine("deploy", flowengine.write("plain.yaml", text))
    assert "'plain' has no schedule" in flowengine("flows", "resume", "plain", code=9).err


@also_served
def test_a_run_out_of_turn_has_the_inputs_of_the_schedule(flowengine: CommandLine) -> None:
    flowengine("deploy", flowengine.write("report.yaml", REPORT))
    ended = flowengine("--json", "flows", "trigger", "report").json()
    assert ended["status"] == "succeeded"
    assert ended["outputs"]["day"].startswith("20")
    flowengine("flows", "trigger", "report", "--schedule", "0 9 * * 1-5", "--no-resume")
    assert flowengine("--json", "list").json()[0]["status"] == "recorded"
    refused = flowengine("flows", "trigger", "report", "--schedule", "0 8 * * *", code=9).err
    assert "its schedules: '0 9 * * 1-5 Europe/Berlin'" in refused


@also_served
def test_past_times_are_run_once(flowengine: CommandLine) -> None:
    flowengine("deploy", flowengine.write("report.yaml", REPORT))
    span = ["--since", "2026-03-26T00:00:00Z", "--until", "2026-03-31T12:00:00Z"]
    ran = flowengine("flows", "backfill", "report", *span, "--at-once", "2").out
    times = ["26T08:00", "27T08:00", "30T07:00", "31T07:00"]  # over a change of clocks
    assert sorted(line[8:16] for line in ran.splitlines()) == times
    assert ran.count("succeeded") == 4
    again = flowengine("--json", "flows", "backfill", "report", *span).json()
    assert [one["time"][8:16] for one in again] == times
    assert len(flowengine("--json", "list").json()) == 4
    many = flowengine("flows", "backfill", "report", *span, "--most", "3", code=3).err
    assert "the range contains more than 3 times" in many


@also_served
def test_versions_are_shown_and_compared(flowengine: CommandLine) -> None:
    first = REPORT.replace("id: report", 'id: report\nversion: "1"')
    flowengine("deploy", flowengine.write("report.yaml", first))
    added = "{id: check, when: \"${{ inputs.day != '' }}\", output: ok}, "
    second = (
        first.replace('"1"', '"2"')
        .replace("0 9 * *", "0 8 * *")
        .replace("[{id: n", f"[{added}{{id: n")
    )
    file = flowengine.write("report.yaml", second)
    flowengine("deploy", file)
    shown = flowengine("flows", "show", "report@1").out
    assert shown.splitlines()[1].startswith("inputs    {day: ")
    assert [line.split()[1] for line in shown.splitlines()[-3:]] == ["2", "2", "1"]
    listed = flowengine("--json", "flows", "show", "report").json()
    assert ([one["version"] for one in listed["versions"]], listed["modules"]) == (["2", "1"], [])
    changed = flowengine("flows", "diff", "report@1", "report@2", code=1).out
    lines = [line for line in changed.splitlines() if line[0] in "+-"]
    assert lines[:2] == ["--- report@1", "+++ report@2"]
    assert {line[0]: line[4:] for line in lines if "schedule:" in line} == {
        "-": " schedule: 0 9 * * 1-5",
        "+": " schedule: 0 8 * * 1-5",
    }
    assert {"+  - id: check", "+    when: ${{ inputs.day != '' }}"} <= {*lines}
    assert not [line for line in lines if line.startswith("-") and "note" in line], changed
    assert flowengine("flows", "diff", "report", file).out == ""
