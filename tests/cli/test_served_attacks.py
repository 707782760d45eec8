# Shows V38
"""A server that cannot be trusted: commands end with an error, and its text is only text (V38)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from flowengine import Engine
from flowengine.client import client as client_module
from flowengine.client.client import ClientExecutions
from tests import command_line
from tests.cli.conftest import REFUND, CommandLine
from tests.replacing import Limits
from tests.server.api import Api
from tests.server.transport import Transport

URL = "https://testserver"
HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n\u202eerror: \x9b31m<&>'\"`$(id)"
JUNK: list[Any] = [None, 7, -1e300, True, "", HOSTILE, [], {}, [HOSTILE], {HOSTILE: {}}, [[[]]]]
COMMANDS = (
    ["list"],
    ["show", "ID"],
    ["show", "ID", "--step", "ask"],
    ["why", "ID"],
    ["events", "ID"],
    ["diff", "ID", "ID"],
    ["graph", "ID"],
    ["graph", "ID", "--format", "svg"],
    ["graph", "ID", "--format", "graphml"],
    ["graph", "refund", "--format", "dot"],
    ["approvals", "list"],
    ["show", "WAIT"],
    ["approve", "WAIT", "--form", "cost_center=4711", "--no-resume"],
    ["flows", "list"],
    ["flows", "show", "refund"],
    ["diff", "refund@1", "refund"],
    ["run", "refund", "-i", "amount=80"],
)


class Liar(Transport):
    """Passes the answers of a server on, with one part of each replaced."""

    def __init__(self, api: Api, seed: int) -> None:
        super().__init__(api)
        self._random = random.Random(seed)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer to a request, with junk in it."""
        answer = super().handle_request(request)
        whole = [json.loads(answer.content)]
        place, key = self._random.choice([*places(whole)])
        place[key] = self._random.choice(JUNK)
        return httpx2.Response(answer.status_code, json=whole[0])


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each part of some data, as its container and its key."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from places(data[key])


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("served")
    engine = Engine(folder / "store", durability="none", user="user:ana")
    api = Api(folder, (REFUND,), engine)
    engine.run(folder / "flow0.yaml", {"amount": 80}, id="it")
    yield api
    api.close()


@pytest.mark.endurance
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_junk_in_an_answer_is_an_error_and_never_reaches_the_terminal(
    command: list[str], part: int, api: Api, flowengine: CommandLine, reach: Callable[..., None]
) -> None:
    [wait] = api.engine.approvals.list(execution="it", status="all").items
    words = [{"ID": "it", "WAIT": wait["id"]}.get(word, word) for word in command]
    for seed in (part, part + 10):
        reach(Liar(api, seed))
        for json_too in ([], ["--json"]) if seed < 5 else ([],):
            done = command_line.flowengine(
                *json_too, *words, env={"FLOWENGINE_SERVER": URL, "COLUMNS": "80"}
            )
            assert done.code in {*range(11), 130}, (seed, done)
            lines = (done.out + done.err).replace("\n", "")
            assert lines.isprintable(), (seed, done)


def test_a_message_of_the_server_controls_no_terminal(
    flowengine: CommandLine, reach: Callable[..., None]
) -> None:
    problem = {"code": "NotFound", "detail": HOSTILE, "hint": HOSTILE, "cli_hint": HOSTILE}
    answer = httpx2.MockTransport(lambda _: httpx2.Response(404, json=problem))
    reach(answer)
    for words in (["show", "x"], ["--json", "show", "x"]):
        done = flowengine(*words, code=9, env={"FLOWENGINE_SERVER": URL})
        assert (done.out + done.err).replace("\n", "").isprintable(), done


def test_a_server_that_goes_away_while_it_is_followed_is_named(
    flowengine: CommandLine, api: Api, reach: Callable[..., None], limits: Limits
) -> None:
    class Leaving(Transport):
        asked = 0

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            self.asked += 1
            if self.asked > 3:
                raise httpx2.ReadError("connection reset")
            return super().handle_request(request)

    limits(client_module, _PAUSES=(), _FOLLOW_SECONDS=0)
    reach(Leaving(api))
    done = flowengine("events", "it", "--follow", code=10, env={"FLOWENGINE_SERVER": URL})
    assert "started" in done.out
    assert done.err == (
        f"error: no answer from {URL}: connection reset\n  is the server running?\n"
    )


def test_what_could_not_be_understood_is_in_the_log(
    flowengine: CommandLine,
    api: Api,
    reach: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reach(Transport(api))
    monkeypatch.setattr(ClientExecutions, "why", lambda *_: [{}])
    with caplog.at_level("DEBUG", "flowengine.client"):
        said = flowengine("why", "it", code=10, env={"FLOWENGINE_SERVER": URL}).err
    assert "cannot be understood: KeyError" in said
    assert "Traceback" in caplog.text
