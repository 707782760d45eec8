"""Untrusted texts of flows, inputs, steps and users are harmless on a terminal, in every view.

Each view receives all of its possible data, generated from the types of the public API, with a
hostile text in every field. Its layout must equal the layout with a harmless text.
"""

from __future__ import annotations

import io
import logging
import re
import types
import typing
import unicodedata
from argparse import Namespace
from functools import partial
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from flowengine.cli.driving.progress import ProgressDisplay
from flowengine.cli.session import CliSession
from flowengine.cli.terminal import output
from flowengine.cli.terminal.output import as_json, err, out
from flowengine.cli.views.outcome import show_outcome
from flowengine.engines import infos, results
from flowengine.engines.deciding import Approvals
from flowengine.engines.engine import Engine
from flowengine.engines.operating import Executions
from flowengine.execution_environment import EnvironmentManager
from flowengine.journal import records
from flowengine.kernel import events
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import ErrorData
from tests.cli.conftest import CommandLine, also_served

NAMES = vars(events) | vars(records)
"""Names in type hints of views that their modules import for type checking only."""
HOSTILE = (
    "a\x1b[31mb\x1b]0;title\x07c\u202ed\u2066e\x9b2Jf\r\nforged  succeeded\x00g\u2028h\u200fi"
    "\x7fj\x08k\ufeffl\U000e0041m"
)
HARMLESS = "a" * 130
TIME = "2026-11-21T09:00:00.000Z"
OURS = re.compile(r"\x1b\[(?:31|32|33|36|1|2|0)m")
ID = "01m7xrx08mcp3fdj8s5hh5nc0s"


def made(hint: Any, text: str, name: str = "") -> Any:
    """Return a value of a type with a text in every field."""
    if name in SHAPES and hint is not float:
        return SHAPES[name](text)
    origin = get_origin(hint)
    if origin in (NotRequired, typing.Required):
        return made(get_args(hint)[0], text, name)
    if origin is Literal:
        return get_args(hint)[0]
    if origin in (types.UnionType, typing.Union):
        return made(next(one for one in get_args(hint) if one is not type(None)), text, name)
    if origin is list or hint is list:
        return [made((get_args(hint) or (Any,))[0], text)]
    if origin is dict or hint is dict:
        return {text: made(get_args(hint)[1], text), "address": text, "status": text}
    if is_typeddict(hint):
        hints = get_type_hints(hint, localns=NAMES)
        return {key: made(of, text, key) for key, of in hints.items()}
    if hint in (int, bool, float):
        return hint(1)
    return text


def error(text: str) -> ErrorData:
    return {"type": text, "message": text, "data": None, "step": text, "attempt": 1, "cause": None}


SHAPES: dict[str, Any] = {
    **dict.fromkeys(("since", "due", "at", "started_at", "ended_at"), lambda text: TIME),
    "took": lambda text: "1s",
    **dict.fromkeys(("wakes", "about"), lambda text: text),
    "execution": lambda text: ID,
    # These keep their line breaks.
    **dict.fromkeys(("body", "stdout", "stderr"), lambda text: text.replace("\n", " ")),
    "kind": lambda text: "approval",
    "error": error,
    "cause": lambda text: None,
    "form": lambda text: {
        "properties": {text: {"type": text, "title": text, "description": text, "enum": [text]}},
        "required": [text],
    },
    "request": lambda text: {  # of a call to a person, and of a step to a model
        **dict.fromkeys(("by", "message", "url", "host"), text), "note": text.replace("\n", " "),
        "model": text, "messages": [{"role": "user", "content": text}],
        "tools": [{"name": text}], "tool_choice": text, "returns": text, "settings": {text: text},
    },
    "subject": lambda text: {text: text},
    "edit": lambda text: [text],
    "choices": lambda text: [{"id": text, "label": text, "comment": "required"}],
    "attachments": lambda text: [{"name": text, "path": text, "size": 1, "sha256": text}],
    "handed": lambda text: [
        {"do": "delegated", "by": text, "to": text, "at": TIME, "via": text, "comment": text},
        {"do": "escalated", "to": [text], "at": TIME},
    ],
    "signals": lambda text: [{"signal": text, "key": text}],
    **dict.fromkeys(
        ("tokens", "cost_usd"),
        lambda text: {"used": 1, "running": 1, "estimated": 1, "limit": 2},
    ),
    "votes": lambda text: [{"choice": text, "by": text, "at": TIME}],
    "decision": lambda text: {
        "choice": text, "by": text, "at": TIME, "via": text, "comment": text, "value": text,
        "form": {text: text}, "edits": {text: text},
        "attachments": [{"name": text, "size": 1, "sha256": text}],
    },
    "undelivered": lambda text: [
        {"signal": text, "to": text, "key": text, "id": text, "why": text}
    ],
    "warnings": lambda text: [{"at": TIME, "about": text, "message": text}],
    "tool_calls": lambda text: {"used": 1, "running": 1, "limit": 2},
    "wall_time": lambda text: {"used": text, "limit": text},
    "write": lambda text: {"steps": {text: text}},
    "timers": lambda text: [{"what": "reminder", "due": TIME}],
    "ran": lambda text: "maybe",
    "differ": lambda text: [{"path": text, "left": text, "right": text}],
    **dict.fromkeys(
        ("tries",), lambda text: [{**made(infos.AttemptInfo, text), "attempt": 1}]
    ),
}  # fmt: skip


def entry(text: str) -> dict[str, Any]:
    return {
        "seq": 1, "at": TIME, "type": "failed", "address": text, "value": {text: text},
        "error": error(text), "choice": text, "by": text, "form": text, "edits": {text: text},
        "comment": text, "data": text, "inputs": {text: text}, "reason": text, "signal": text,
    }  # fmt: skip


def environment(text: str) -> dict[str, Any]:
    names = ("id", "kind", "provider", "scope", "owner_id", "resource_key", "state", "workspace")
    return {
        **dict.fromkeys((*names, "host", "isolation", "missing"), text),
        "generation": 1, "since": TIME, "process": 1, "alive": True, "traces": {text: [text]},
        "available": True, "held": {text: text},
    }  # fmt: skip


class Fake:
    """An engine whose results contain the same text in every field."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: str, kind: str) -> None:
        about = {"user": text, "model": text}
        wait = made(results.WaitInfo, text) | {"kind": kind, "id": "a7f3", "about": about}
        found = made(infos.ExecutionInfo, text) | {"status": "failed", "waits": [wait]}
        answers: dict[str, Any] = {
            "find": ID,
            "show": found,
            "list": infos.ExecutionPage([found], None),
            "why": [made(infos.Reason, text) | {"command": "flowengine resume x"}],
            "events": [entry(text)],
            "diff": made(infos.Difference, text)
            | dict.fromkeys(("inputs", "outputs", "errors"), SHAPES["differ"](text)),
            "upgrade": [made(infos.UpgradeInfo, text)],
        }
        checked = dict.fromkeys(("file", "line", "column", "code", "message", "hint"), text)
        waits = {"list": infos.WaitPage([wait], None), "show": wait}
        loaded = {"load": Namespace(warnings=[checked], id=text)}
        for group, given in ((Executions, answers), (Approvals, waits), (Engine, loaded)):
            for name, answer in given.items():
                monkeypatch.setattr(group, name, lambda *a, answer=answer, **k: answer)
        monkeypatch.setattr(EnvironmentManager, "written", lambda self: [environment(text)])
        monkeypatch.setattr(EnvironmentManager, "written_one", lambda *a: environment(text))
        gone = environment(text) | {"available": False}
        monkeypatch.setattr(EnvironmentManager, "examine", lambda s: [environment(text), gone])
        monkeypatch.setattr(CliSession, "short", lambda self, execution: "01m7")
        monkeypatch.setattr(CliSession, "short_wait", lambda self, wait: "a7f3")
        compiled = {"steps": [{"id": text, "action": "task"}], "bodies": [{"steps": [0]}]}
        flow = Namespace(host_steps=[text], on_host=text, id=text, compiled=compiled)
        monkeypatch.setattr(CliSession, "flow_of", lambda self, execution: flow)


VIEWS = [
    "show x", "show x --step a", "why x", "list", "approvals list", "approvals list --status all",
    "show x", "events x", "diff x y", "upgrade f.yaml --check", "envs list",
    "envs show x", "doctor",
]  # fmt: skip


def harmless(text: str) -> None:
    """Check that an output contains no terminal controls but our own colors."""
    assert "a\x1b" not in text
    for character in OURS.sub("", text):
        assert character in "\n\t" or unicodedata.category(character) not in {"Cc", "Zl", "Zp"}
        assert unicodedata.bidirectional(character) not in {"RLO", "LRI", "RLE", "LRE", "RLI"}
        assert character not in "\u200f\ufeff\U000e0041"
    assert not [line for line in text.split("\n") if line.lstrip().startswith("forged")]


@pytest.fixture(params=[False, True], ids=["plain", "colours"])
def colours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "colourful", lambda stream: request.param)


@pytest.mark.usefixtures("colours")
@pytest.mark.parametrize("kind", ["approval", "question", "signal"])
@pytest.mark.parametrize("view", VIEWS)
def test_no_field_of_a_view_controls_the_terminal(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch, view: str, kind: str
) -> None:
    (flowengine.folder / ".flowengine").mkdir()
    told = {}
    for text in (HARMLESS, HOSTILE):
        Fake(monkeypatch, text, kind)
        done = flowengine(*view.split())
        told[text] = done.out + done.err

    harmless(told[HOSTILE])
    assert "forged" in told[HOSTILE]
    if not view.startswith("diff"):  # where wide values change the layout
        assert outside(told[HOSTILE]) == outside(told[HARMLESS])


def outside(shown: str) -> int:
    """Return the number of lines outside of framed texts, without empty lines around those."""
    return sum(bool(line) and not line.startswith("  | ") for line in shown.split("\n"))


@pytest.mark.usefixtures("colours")
@pytest.mark.parametrize("verbose", [False, True])
def test_no_update_of_an_execution_controls_the_terminal(
    flowengine: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verbose: bool,
) -> None:
    """This covers progress and the final report of `run`."""
    told = {}
    for text in (HARMLESS, HOSTILE):
        Fake(monkeypatch, text, "signal")
        arguments = Namespace(
            store=None,
            server=None,
            durability=None,
            quiet=False,
            verbose=verbose,
            json=False,
            events=False,
        )
        (flowengine.folder / ".flowengine").mkdir(exist_ok=True)
        capsys.readouterr()
        with CliSession(arguments) as session:
            record = Namespace(flow=text, version=text, forked_from=text, created_at=0, ended_at=9)
            session.engine._host.store = Namespace(
                execution=lambda id, record=record: record,
                location=session.engine.store.location,
                close=lambda: None,
            )
            progress = ProgressDisplay(session)
            for update in updates(text):
                progress(update)
            wait = made(results.WaitInfo, text) | {"kind": "approval"}
            for status in ("failed", "waiting", "cancelled", "succeeded"):
                show_outcome(
                    session,
                    results.ExecutionResult(
                        ID, text, status,
                        {text: text} if status == "succeeded" else None,
                        [wait] if status == "waiting" else [],
                        error(text) if status in ("failed", "cancelled") else None,
                    )
                )  # fmt: skip
        done = capsys.readouterr()
        told[text] = done.out + done.err

    harmless(told[HOSTILE])
    # printed output keeps its lines: one for `text`, and one for a followed `output`
    hostile, plain = (re.sub(r"(?m)^  \| .*\n", "", told[text]) for text in (HOSTILE, HARMLESS))
    assert hostile.count("\n") - plain.count("\n") <= 2


def updates(text: str) -> list[results.Update]:
    seen = partial(Observation, 0, text, 0)
    failed_step = seen("failed", None, 1, None, error(text), {text: text})
    ended = seen("succeeded", None, 1, {text: text}, None, {text: text})
    wait = made(results.WaitInfo, text) | {"kind": "signal"}
    warned = {"seq": 1, "at": TIME, "type": "warning", "about": text, "message": text}
    decided = entry(text) | {"type": "decided", "via": text}
    failed = entry(text) | {"evidence": {"traceback": [text]}}
    return [
        results.Update(ID, "event", failed),
        results.Update(ID, "event", warned),
        results.Update(ID, "event", decided),
        results.Update(ID, "step", None, seen("running", None, 1, None, error(text), {text: text})),
        results.Update(ID, "step", None, failed_step),
        results.Update(ID, "step", None, ended),
        results.Update(ID, "wait", wait),
        results.Update(ID, "undelivered", SHAPES["undelivered"](text)[0]),
        results.Update(ID, "text", {"address": text, "text": f"  {text}".replace("forged", "x")}),
        results.Update(ID, "output", {"address": text, "stream": "stdout", "text": text}),
    ]


def test_what_steps_log_controls_no_terminal(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    flowengine.write(
        "talk.py",
        "from flowengine.sdk import StepContext\n"
        f"def talk(context: StepContext):\n    context.log.warning({HOSTILE!r})\n",
    )
    flow = flowengine.write(
        "talk.yaml", 'flowengine: 1\nid: talk\nsteps:\n  - {id: a, python: "talk:talk"}\n'
    )

    told = flowengine("--log-level", "warning", "run", flow).err

    assert "forged" in told
    harmless(told)


def test_a_report_about_a_file_controls_no_terminal(flowengine: CommandLine) -> None:
    key = HOSTILE.encode("unicode_escape").decode().replace('"', '\\"')
    key = "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in key)
    flow = flowengine.write(
        "f.yaml",
        f'flowengine: 1\nid: f\nversion: "{key}"\n'
        f'steps:\n  - {{id: a, "{key}": 1, next: "{key}"}}\n',
    )

    told = flowengine("check", flow, code=3).err

    assert "forged" in told
    harmless(told)


DRAWN = """\
flowengine: 1
id: drawn
version: "{text}"
inputs: {{t: {{type: string, default: x}}}}
signals: {{go: {{key: "{text}"}}}}
steps:
  - id: ask
    approval: {{title: "{text}", choices: [{{id: approve, title: "{text}"}}, {{id: reject}}]}}
    next: {{first: [{{when: "${{{{ inputs.t == '{line}' }}}}", to: w}}, {{else: z}}]}}
  - {{id: w, wait: {{signal: go}}, next: z}}
  - {{id: z, run: {{command: [echo, "{text}"]}}, lock: "${{{{ '{line}' }}}}"}}
"""


@also_served
@pytest.mark.parametrize(
    "kind", [*(f"--format={form}" for form in ("mermaid", "dot", "svg", "graphml")), "--json"]
)
def test_no_picture_of_a_flow_or_an_execution_controls_the_terminal(
    flowengine: CommandLine, kind: str
) -> None:
    def quoted(text: str) -> str:
        return "".join(f"\\U{ord(each):08x}" for each in text)

    line = HOSTILE.replace("\r\n", "").replace("\x00", "")
    flow = flowengine.write("drawn.yaml", DRAWN.format(text=quoted(HOSTILE), line=quoted(line)))
    flowengine("run", flow, "--id", "it", "--linger", "0s", code=4)

    for what in (flow, "it"):
        told = flowengine("graph", what, kind)
        assert "forged" in told.out
        harmless(told.out + told.err)


def test_a_line_stays_a_line_and_colours_are_only_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "colourful", lambda stream: True)

    out(f"{output.paint('done', 'green')} {HOSTILE}")
    err(HOSTILE)

    told = capsys.readouterr()
    assert told.out.startswith("\x1b[32mdone\x1b[0m a\ufffd[31mb")
    assert (told.out + told.err).count("\n") == 2
    harmless(told.out + told.err)


def test_json_says_the_same_and_controls_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.setattr(output, "results", lambda: io.TextIOWrapper(io.BytesIO(), "utf-8"))

    text = as_json({HOSTILE: [HOSTILE, "Zoë 👩\u200d🚀"]})

    assert json.loads(text) == {HOSTILE: [HOSTILE, "Zoë 👩\u200d🚀"]}
    assert "Zoë 👩\u200d🚀" in text
    harmless(text)
