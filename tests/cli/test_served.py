# Shows V30, V38
"""Commands against a server: the same words, with the answers that the store gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.cli import session
from flowengine.cli.parsing.command_table import (
    COMMANDS,
    SERVED,
    STORE_COMMANDS,
    STORE_OPTIONS,
    STORELESS,
)
from tests.cli.conftest import REFUND, CommandLine
from tests.command_line import Done
from tests.replacing import Limits
from tests.server.api import Api
from tests.server.transport import Documented

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

TAKING = """
flowengine: 1
id: taking
inputs: {scan: {type: object}}
steps: [{id: look, output: "${{ inputs.scan.name }}"}]
outputs: {name: "${{ steps.look.output }}"}
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
        """Resume once, as a worker would."""
        for due in self.api.engine.due():
            self.api.engine.resume(due.execution)

    def both(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Return the outputs of a command against the server and beside the store."""
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
    """Replace ids, and the words that choose the store."""
    text = text.replace(" ".join(store) + " ", "") if store else text
    text = text.replace("--file FLOW", "--file FILE")
    text = re.sub(r"\b01[0-9a-hjkmnp-tv-z]{6,24}\b", "ID", text)
    text = re.sub(r"\b[0-9a-f]{4,32}\b", "ID", text)
    return re.sub(r" {2,}", "  ", text)


@pytest.fixture
def served(tmp_path: Path, flowengine: CommandLine, reach: Callable[..., None]) -> Iterator[Served]:
    engine = Engine(tmp_path / "store", durability="none", user="user:ana")
    api = Api(tmp_path, (REFUND, FAILING, PAID), engine)
    reach(Documented(api), api.token("user:ana"))
    yield Served(api, flowengine)
    api.close()


def test_every_command_is_served_or_needs_no_store_or_is_refused(served: Served) -> None:
    for name, why in STORE_COMMANDS.items():
        told = served(*name.split(), *_needed(name), code=2).err
        assert f"'flowengine {name}' does not work against a server: {why}\n" in told
    assert COMMANDS.keys() - STORE_COMMANDS - STORELESS == SERVED
    served("check", "--explain", "E101")
    assert "does not work" in served("--server", URL, "check", "--explain", "E101", code=2).err
    assert "not both" in served("--server", URL, "--store", ".", "list", code=2).err


def _needed(name: str) -> list[str]:
    """Return arguments that the command's parser needs."""
    if name == "sessions branch":
        return ["ana", "bob"]
    if name.startswith("sessions ") and name != "sessions list":
        return ["ana"]
    needed = {"envs shell": ["flow.yaml"], "eval": ["a.eval.yaml"], "move": ["--to", "store"]}
    return needed.get(name, [])


def test_every_option_is_served_or_is_refused_with_the_reason(served: Served) -> None:
    given = {
        "--as": ["approve", "x", "--as", "ben"],
        "--durability": ["list", "--durability", "none"],
        "--linger": ["run", "refund", "--linger", "1s"],
        "--offers": ["resume", "x", "--offers", "gpu"],
        "--workdir": ["fork", "x", "--from-step", "a", "--workdir", "."],
        "envs release --all": ["envs", "release", "--all"],
        "flows schedule --concurrency": [
            "flows",
            "schedule",
            "x",
            "--since",
            "1d",
            "--concurrency",
            "2",
        ],
        "events --otel": ["events", "x", "--otel"],
        "resume --due": ["resume", "--due"],
        "signal --file": ["signal", "--key", "B7", "paid", "--file", "flow.yaml"],
    }
    assert given.keys() == STORE_OPTIONS.keys()
    for name, words in given.items():
        told = served(*words, code=2).err
        assert f"{name.split()[-1]} does not work against a server: {STORE_OPTIONS[name]}" in told
    assert served.api.engine.executions.list().items == []
    for same in ("--no-resume", "--no-interactive"):
        served.start("refund", "-i", "amount=80", same)
    served.start("refund", "-i", "amount=80", "--model", "some/model")
    assert len(served("--json", "list", "--label", "model=some/model").json()) == 1


def test_the_docs_list_what_is_refused() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "server", "api.md").read_text()
    listed = re.search(
        r"Refused commands are (.+?)\.\n- Refused options are (.+?)\. `resume`", page
    )
    assert listed is not None
    commands, options = ({*re.findall("`([^`]+)`", part)} for part in listed.groups())
    assert (commands, options) == ({*STORE_COMMANDS}, {*STORE_OPTIONS})


def test_a_list_can_have_more_than_a_page_of_the_server(served: Served, limits: Limits) -> None:
    limits(session, _LARGEST_PAGE=2)
    for _ in range(5):
        served.start("refund", "-i", "amount=80")
    for words in (["list"], ["approvals", "list"]):
        assert len(served("--json", *words, "-n", "99999").json()) == 5
        assert len(served("--json", *words, "-n", "3").json()) == 3


# Shows V33
def test_files_are_uploaded(served: Served, tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(b"%PDF-1.7 of Ada")
    (tmp_path / "taking.yaml").write_text(TAKING)
    served.api.engine.flows.deploy(tmp_path / "taking.yaml")
    there = served.start("taking", "--file", "scan=scan.pdf")
    store = ("--store", str(tmp_path / "store"))
    served.here(*store, "run", "taking.yaml", "--file", "scan=scan.pdf", "--id", "here")
    assert served.api.engine.executions.result(there).outputs == {"name": "scan.pdf"}
    assert served.api.engine.executions.result("here").outputs == {"name": "scan.pdf"}
    assert "cannot read none.pdf" in served("run", "taking", "--file", "scan=none.pdf", code=3).err

    served.both("files", there)
    served("files", there, "--save", "saved")
    assert (tmp_path / "saved" / "scan.pdf").read_bytes() == b"%PDF-1.7 of Ada"

    served.start("refund", "-i", "amount=80")
    [wait] = served("--json", "approvals", "list").json()
    form = ["--form", "cost_center=4711", "--attach", "scan.pdf"]
    for told in ("approved by", "already approved"):
        assert told in served("approve", wait["id"], *form).err


def test_hints_name_commands_that_work_there(served: Served) -> None:
    failed = served.start("failing")
    open_ = served.start("refund", "-i", "amount=1")
    told = served("retry", failed, "--file", "x.yaml", code=9).err
    assert told.endswith("flowengine flows list\n")
    assert f"flowengine show {open_}" in served("show", open_, "--step", "none", code=9).err
    for words in (["show", failed], ["why", failed]):
        assert "--file FLOW" in served(*words).out
    for told in (*served.both("why", failed), *served.both("show", failed)):
        assert "/v1/" not in told
    recorded = served("run", "refund", "-i", "amount=1").out.strip()
    assert "flowengine resume" not in served("show", recorded).out
    assert "must be a map" in served("signal", served.start("paid", "-i", "order=B7"), "paid",
                                     code=3).err  # fmt: skip


def test_an_approver_without_content_decides_and_sees_the_question(
    served: Served, reach: Callable[..., None]
) -> None:
    id = served.start("refund", "-i", "amount=90")
    failed = served.start("failing")
    reach(Documented(served.api), served.api.token("user:ana", "approver"))
    [wait] = served("--json", "approvals", "list").json()
    for words in (["approvals", "list"], ["show", id], ["why", id]):
        assert "Refund 90 EUR?" in served(*words).out, words
    assert "no level" not in served("show", failed).out
    assert "the right 'content'" in served("why", failed).out
    assert "right 'content'" in served("events", id, code=8).err
    form = ["--form", "cost_center=4711"]
    assert "approved by user:ana" in served("approve", wait["id"], *form).err
    assert "already approved" in served("approve", wait["id"], *form).err
    assert "already approved" in served("reject", wait["id"], "--comment", "n", code=7).err
    assert "Refund" in served("show", wait["id"]).out


def test_what_cannot_be_reached_is_said(flowengine: CommandLine) -> None:
    env = {"FLOWENGINE_SERVER": "http://flows.example.com", "FLOWENGINE_TOKEN": "fe_x"}
    assert "plain text" in flowengine("list", env=env, code=2).err
    env = {"FLOWENGINE_SERVER": "https://flows.example.com", "FLOWENGINE_TOKEN": ""}
    assert "needs a token" in flowengine("list", env=env, code=2).err
