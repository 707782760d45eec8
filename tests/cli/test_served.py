"""Commands against a server: the same words, with the answers that the store gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from flowengine import Client, Engine
from flowengine.cli import served_engine
from flowengine.cli.parsing.command_table import COMMANDS, SERVED, STORELESS
from tests import command_line
from tests.cli.conftest import REFUND, CommandLine
from tests.command_line import Done
from tests.server.api import Api
from tests.server.transport import Transport

URL = "https://testserver"
FAILING = """
flowengine: 1
id: failing
state: {level: {type: integer, default: 1}}
steps:
  - {id: look, output: "${{ state.level }}"}
  - {id: stop, when: "${{ state.level == 1 }}", fail: {type: Nope, message: no level}}
"""
PAID = """
flowengine: 1
id: paid
inputs: {order: {type: string}}
signals: {paid: {key: "${{ inputs.order }}", data: {type: object}}}
steps: [{id: come, wait: {signal: paid}}]
"""


class Served:
    """A store, and the command line beside it and against its server."""

    def __init__(self, api: Api, flowengine: CommandLine) -> None:
        self.api = api
        self.here = flowengine

    def __call__(self, *words: str, code: int = 0, **given: Any) -> Done:
        """Run a command against the server."""
        env = {"FLOWENGINE_SERVER": URL} if "--server" not in words else {}
        return self.here(*words, code=code, env=env, **given)

    def worker(self) -> None:
        """Do what a worker does once."""
        for due in self.api.engine.due():
            self.api.engine.resume(due.execution)

    def both(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Return what a command prints against the server, and beside the store."""
        store = ("--store", self.api.engine.store.location.rpartition("/")[0])
        there, here = (
            self(*words, code=code),
            self.here(*store, "--durability", "none", *words, code=code),
        )
        return _steady(there.out + there.err), _steady(here.out + here.err, store)

    def start(self, flow: str, *words: str) -> str:
        """Start an execution over the server, and let it begin."""
        [id] = self("run", flow, *words).out.split()
        self.worker()
        return id


def _steady(text: str, store: tuple[str, ...] = ()) -> str:
    """Replace ids, which only a store can shorten, and the words that choose the store."""
    text = text.replace(" ".join(store) + " ", "") if store else text
    text = re.sub(r"\b01[0-9a-hjkmnp-tv-z]{6,24}\b", "ID", text)
    text = re.sub(r"\b[0-9a-f]{4,32}\b", "ID", text)
    return re.sub(r" {2,}", "  ", text)


@pytest.fixture
def served(
    tmp_path: Path, flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    # The server is in this process, and its files stay open between two commands.
    monkeypatch.setattr(command_line, "nothing_left", nullcontext)
    engine = Engine(tmp_path / "store", durability="none", user="user:ana")
    api = Api(tmp_path, (REFUND, FAILING, PAID), engine)
    token = api.token("user:ana")
    monkeypatch.setattr(
        served_engine, "connect", lambda url: Client(url, token, transport=Transport(api))
    )
    yield Served(api, flowengine)
    api.close()


def test_every_command_is_served_or_needs_no_store_or_is_refused(served: Served) -> None:
    for name in COMMANDS.keys() - SERVED - STORELESS:
        told = served(*name.split(), *_needed(name), code=2).err
        assert f"'flowengine {name}' does not work against a server" in told
    served("explain", "E101")
    assert "does not work" in served("--server", URL, "explain", "E101", code=2).err
    assert "not both" in served("--server", URL, "--store", ".", "list", code=2).err


def _needed(name: str) -> list[str]:
    """Return arguments that the command's parser needs."""
    return {
        "tokens create": ["it"],
        "tokens revoke": ["it"],
        "envs shell": ["flow.yaml"],
        "graph": ["flow.yaml"],
        "deploy": ["flow.yaml"],
        "migrate": ["--to", "store"],
        **{f"flows {verb}": ["refund"] for verb in ("show", "undeploy", "pause", "resume")},
        "flows trigger": ["refund"],
        "flows diff": ["refund", "failing"],
        "flows backfill": ["refund", "--since", "1d"],
    }.get(name, [])


def test_reading_commands_print_the_same_as_beside_the_store(served: Served) -> None:
    id = served.start("refund", "-i", "amount=80", "--label", "team=sales")
    other = served.start("failing")
    [wait] = served("--json", "approvals", "list").json()

    for words in (
        ["list"],
        ["list", "--label", "team=sales"],
        ["list", "--status", "failed"],
        ["show", id],
        ["show", other[:20]],
        ["why", id],
        ["events", id],
        ["events", id, "--from-seq", "1"],
        ["diff", id, id],
        ["approvals", "list", "--mine"],
        ["approvals", "show", wait["id"]],
        ["grants", "list"],
        ["envs", "list"],
    ):
        there, here = served.both(*words)
        assert there == here, words
        there, here = served.both("--json", *words)
        assert there == here, words
    for words, code in ((["show", "none"], 9), (["list", "--since", "odd"], 2)):
        served.both(*words, code=code)


def test_an_approval_is_decided_and_the_worker_goes_on(served: Served) -> None:
    id = served.start("refund", "-i", "amount=80")
    [wait] = served("--json", "approvals", "list", "--mine").json()
    form = ["--form", "cost_center=4711", "--edit", "amount=70", "--comment", "fine"]

    assert "must match" in served("approve", wait["id"], "--form", "cost_center=x", code=3).err
    assert "--as does not work" in served("approve", wait["id"], "--as", "ben", code=2).err
    done = served("approve", wait["id"], *form)
    assert "approved by user:ana" in done.err
    assert "already approved" in served("approve", wait["id"], *form).err
    assert served("reject", wait["id"], "--comment", "no", code=7).err.startswith("error: ")
    served.worker()
    assert served("--json", "show", id).json()["outputs"] == {"paid": 70}


def test_many_are_decided_by_filters(served: Served) -> None:
    for _ in range(2):
        served.start("refund", "-i", "amount=80")
    assert "2 would be decided" in served("reject", "--all", "--dry-run").err
    served("reject", "--all", "--flow", "refund", "--comment", "no")
    assert served("--json", "approvals", "list").json() == []


def test_a_failed_execution_is_retried_forked_and_cancelled(served: Served) -> None:
    id = served.start("failing")
    assert served("retry", "none", code=9).err.startswith("error: there is no execution 'none'")
    served("retry", id, code=1)
    fork = ["fork", id, "--from-step", "stop", "--set", "level=2", "--id", "again"]
    served(*fork)
    served.worker()
    assert served("--json", "show", "again").json()["forked_from"] == f"{id} at stop"

    open_ = served.start("refund", "-i", "amount=1")
    assert "--on-crash" in served("resume", open_, code=2).err
    assert "name the executions" in served("upgrade", "refund", code=2).err
    assert "already runs this version" in served("upgrade", "refund", open_).out
    served("-q", "cancel", open_, "--reason", "twice")
    served.worker()
    assert served("--json", "show", open_).json()["status"] == "cancelled"


def test_a_signal_is_sent(served: Served) -> None:
    id = served.start("paid", "-i", "order=B7")
    assert "must be a map" in served("signal", id, "paid", "--data", "5", code=3).err
    told = served("signal", "--key", "B7", "paid", "--data", '{"amount": 5}', "--id", "m1").err
    assert told == f"paid sent to {id}\n"
    served.worker()
    assert served("--json", "show", id).json()["status"] == "succeeded"


def test_what_cannot_be_reached_is_said(flowengine: CommandLine) -> None:
    env = {"FLOWENGINE_SERVER": "http://flows.example.com", "FLOWENGINE_TOKEN": "fe_x"}
    assert "plain text" in flowengine("list", env=env, code=2).err
    env = {"FLOWENGINE_SERVER": "https://flows.example.com", "FLOWENGINE_TOKEN": ""}
    assert "needs a token" in flowengine("list", env=env, code=2).err
