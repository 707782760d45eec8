# Shows E55
"""Servers with invalid responses: one typed error each, at once, without effects (E50, E55)."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentLost, StepError, Timeout
from flowengine.sdk.texts.visible_text import printable
from flowengine_envs.mcp import session, stdio
from flowengine_envs.mcp.messages import PendingRequests
from flowengine_envs.mcp.session import McpSession
from tests.endurance import SAMPLE
from tests.envs.mcp.conftest import HERE, Open
from tests.envs.mcp.hostile import CASES, PAGES, SCHEMAS, Case, Hostile
from tests.envs.network.ways_out import Quiet
from tests.envs.opening import managed_processes
from tests.replacing import Limits

if TYPE_CHECKING:  # otherwise every process that collects tests would load it
    from mcp.types import JSONRPCMessage

HOSTILE = [sys.executable, str(HERE / "hostile.py")]
PROMPT = 30.0
"""In seconds. A later error must have come from a time limit."""
LONGEST = 2_500
"""Characters. A longer message would no longer be readable."""
STARTS = [how for how in CASES if CASES[how].method == "initialize"]


class OverHttp:
    """A hostile server over HTTP that responds with a page or with an event stream."""

    def __init__(self) -> None:
        self.how = "proper"
        self.events = False
        hostile = Hostile(lambda: self.how)
        outer = self

        class Handler(Quiet):
            def do_POST(self) -> None:
                text = hostile.answer(
                    json.loads(self.rfile.read(int(self.headers["content-length"])))
                )
                if text is None:
                    self._send(202, "text/plain", b"")
                    return
                data = text.encode("utf-8", "surrogateescape")
                if outer.events:
                    self._send(200, "text/event-stream", b"event: message\ndata: " + data + b"\n\n")
                else:
                    self._send(200, "application/json", data)

            def _send(self, status: int, kind: str, data: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except ConnectionError:
                    self.close_connection = True

            def do_GET(self) -> None:
                self.send_error(405)

            do_DELETE = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(autouse=True)
def few_pages(limits: Limits) -> None:
    limits(session, _PAGES=PAGES)


@pytest.fixture
def over_http() -> Iterator[OverHttp]:
    server = OverHttp()
    yield server
    server.close()


@pytest.fixture
def good(opened: Open) -> McpSession:
    """Another server, which must not be affected."""
    return opened(name="good", command=[*HOSTILE, "proper"])


def use(session: McpSession, case: Case) -> Any:
    """Make the client send the request of a case."""
    if case.method == "tools/list":
        return session.list_tools()
    if case.method == "resources/list":
        return session.list_resources()
    if case.method == "prompts/list":
        return session.list_prompts()
    return session.call_tool("ok", timeout=case.calm)


def faults(case: Case, do: Callable[[], Any], log: pytest.LogCaptureFixture) -> list[str]:
    """Return the differences between how a case ended and how it should have."""
    log.clear()
    begun = time.monotonic()
    try:
        given = do()
    except BaseException as error:
        took = time.monotonic() - begun
        if not isinstance(error, StepError):
            return [repr(error)[:2000]]
        message = error.message
        lines = message.split("\n")
        found = {
            f"is a {type(error).__name__}": re.fullmatch(case.error, type(error).__name__) is None,
            "does not say what is wrong": re.search(case.told, message) is None,
            "does not say which server": "'bad'" not in message,
            f"has {len(message)} characters": len(message) > LONGEST,
            "controls terminals": [printable(line) for line in lines] != lines,
            "shows the insides of a library": "pydantic" in message or "Traceback" in message,
            f"took {took:.1f} s": took > PROMPT,
            "leaves a traceback in the log": any(each.exc_info for each in log.records),
        }
        return [f"{what}: {message[:2000]}" for what, wrong in found.items() if wrong]
    return [f"no error, but {given!r}"]


@pytest.mark.endurance
def test_nonsense_over_standard_streams(
    opened: Open,
    good: McpSession,
    manager: EnvironmentManager,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    how = tmp_path / "how"
    how.write_text("proper")
    bad = opened(name="bad", limits={"output": "2MB", "time": 120}, command=[*HOSTILE, f"@{how}"])

    found = {}
    for name, case in CASES.items():
        if name not in STARTS:
            how.write_text(name)
            found[name] = faults(case, lambda case=case: use(bad, case), caplog)  # type: ignore[misc]
            how.write_text("proper")
            assert bad.call_tool("ok").text == "ok", f"after {name} the session goes on"
            assert good.call_tool("ok").text == "ok"

    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert manager.release_scope("session").failed == []
    assert managed_processes(manager) == []


@pytest.mark.endurance  # over standard streams, every run has all cases
@pytest.mark.parametrize("part", range(SAMPLE))
@pytest.mark.parametrize("events", [False, True], ids=["page", "events"])
def test_nonsense_over_http(
    opened: Open,
    good: McpSession,
    caplog: pytest.LogCaptureFixture,
    over_http: OverHttp,
    events: bool,
    part: int,
) -> None:
    bad = opened(name="bad", limits={"output": "2MB", "time": 120}, url=over_http.url)
    # In a request's own stream, any response belongs to that request, and bad UTF-8 is replaced.
    fine = {"call-id-other", "call-id-text", "call-utf8"} if events else set()
    over_http.events = events

    found = {}
    for name, case in [*CASES.items()][part::SAMPLE]:
        if name not in {*STARTS, *fine}:
            over_http.how = name
            found[name] = faults(case, lambda case=case: use(bad, case), caplog)  # type: ignore[misc]
            over_http.how = "proper"
            assert bad.call_tool("ok").text == "ok", f"after {name} the session goes on"
            assert good.call_tool("ok").text == "ok"

    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.wherever("how")
@pytest.mark.parametrize("how", STARTS)
# Shows E50
def test_a_handshake_of_nonsense(
    opened: Open,
    good: McpSession,
    manager: EnvironmentManager,
    over_http: OverHttp,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    over_http.how = how
    before = managed_processes(manager)

    for config in ({"command": [*HOSTILE, how]}, {"url": over_http.url}):
        assert faults(CASES[how], lambda: opened(name="bad", **config), caplog) == []  # noqa: B023

    assert managed_processes(manager) == before
    assert good.call_tool("ok").text == "ok"


def test_schemas_of_a_server_are_not_evaluated(opened: Open) -> None:
    session = opened(name="bad", limits={"time": PROMPT}, command=[*HOSTILE, "proper"])

    for name in SCHEMAS:
        assert session.call_tool(name).structured == {"a": "a" * 40 + "b"}


@pytest.mark.endurance
@pytest.mark.parametrize("how", ["close-half", "close-output"])
def test_an_answer_that_breaks_off_is_a_loss_at_once(
    opened: Open, good: McpSession, manager: EnvironmentManager, how: str
) -> None:
    session = opened(name="bad", limits={"time": 120}, command=[*HOSTILE, how])
    begun = time.monotonic()

    with pytest.raises(EnvironmentLost, match=r"'bad'.*may or may not have acted"):
        session.call_tool("ok")

    assert time.monotonic() - begun < PROMPT
    assert good.call_tool("ok").text == "ok"
    assert manager.release_scope("session").failed == []
    assert managed_processes(manager) == []


@pytest.mark.endurance
@pytest.mark.wherever("what")
@pytest.mark.parametrize("what", ["changes", "malformed", "requests", "answers", "text"])
def test_a_flood_without_end_ends_with_the_time_of_the_call(
    opened: Open,
    good: McpSession,
    manager: EnvironmentManager,
    caplog: pytest.LogCaptureFixture,
    limits: Limits,
    what: str,
) -> None:
    # The server exits when it is terminated, so no grace period may be used up.
    limits(stdio, GRACE=3600.0)
    session = opened(name="bad", limits={"time": 1}, command=[*HOSTILE, f"flood-{what}"])
    before = resident()

    with pytest.raises(Timeout, match="'bad'"):
        session.call_tool("ok")

    assert good.call_tool("ok").text == "ok"
    assert not [each for each in caplog.records if each.exc_info]
    assert resident() - before < 100_000_000
    assert manager.release_scope("session").failed == []
    assert managed_processes(manager) == []


@pytest.mark.endurance
def test_noise_leaves_others_their_turn(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: Counter[int] = Counter()
    ended = threading.Event()
    received = PendingRequests.received

    def tick(loop: asyncio.AbstractEventLoop) -> None:
        turns[len(turns)] = 0
        if not ended.is_set():  # the loop is shared by all tests
            loop.call_soon(tick, loop)

    def counted(requests: PendingRequests, line: bytes) -> list[JSONRPCMessage]:
        if not turns:
            tick(asyncio.get_running_loop())
        turns[len(turns) - 1] += 1
        return received(requests, line)

    monkeypatch.setattr(PendingRequests, "received", counted)
    session = opened(limits={"time": 0.5}, command=[*HOSTILE, "flood-text"])

    try:
        with pytest.raises(Timeout):
            session.call_tool("ok")
    finally:
        ended.set()

    assert sum(turns.values()) > 100
    assert max(turns.values()) == 1


def resident() -> int:
    """Return this process's resident memory in bytes."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024
