# Shows V34
"""Streams of events: nothing is missing, nothing comes twice, and no reader holds up another."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine.server import rights, running, streams
from flowengine.server.refusals import RequestRefused
from tests.replacing import Limits
from tests.server.api import OWNER
from tests.server.served import Served, Stream, until

BIG = """
flowengine: 1
id: big
inputs: {count: {type: integer}, size: {type: integer}}
tools:
  fill: {python: "filler:fill", effect: idempotent}
steps:
  - id: each
    map: {over: "${{ inputs.count }}", as: n, concurrency: 1}
    call: fill
    with: {size: "${{ inputs.size }}"}
"""


@pytest.fixture
def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits, request: pytest.FixtureRequest
) -> Iterator[Served]:
    """A server, which cuts off readers after a second or the seconds of the parameter."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "filler.py").write_text("def fill(size: int) -> str:\n    return 'x' * size\n")
    limits(running, READER_SECONDS=getattr(request, "param", 1))
    served = Served(tmp_path, connections=2000)
    yield served
    served.close()


def numbers(stream: Stream) -> list[int]:
    """Return the numbers of the events to the end of the execution."""
    found = list(stream)
    stream.close()
    assert found[-1] == ("end", {})
    return [data["seq"] for _, data in found[:-1]]


def test_events_arrive_as_they_are_committed_until_the_execution_ends(served: Served) -> None:
    engine = served.api.engine
    id = engine.start(served.api.flows[0], {"amount": 80})
    stream = Stream(served, id)
    events = iter(stream)
    [wait] = engine.resume(id).waits
    assert next(events)[1]["type"] == "started"
    engine.acting_as("user:ben", via="test").approvals.approve(wait["id"])
    rest = list(events)
    stream.close()

    assert rest[-1] == ("end", {})
    assert [data["seq"] for _, data in rest[:-1]] == list(range(1, len(rest)))
    assert "decided" in [data["type"] for _, data in rest[:-1]]


def test_a_reader_that_comes_back_continues_behind_its_last_event(served: Served) -> None:
    engine = served.api.engine
    id, _ = served.api.started()
    stream = Stream(served, id)
    seen = [next(iter(stream))[1]["seq"]]
    stream.close()
    engine.executions.cancel(id)
    everything = [entry["seq"] for entry in engine.executions.events(id)]

    assert seen + numbers(Stream(served, id, last=seen[-1])) == everything
    for last in everything[:-1]:
        assert numbers(Stream(served, id, last=last)) == everything[last + 1 :]
    assert numbers(Stream(served, id)) == everything


def test_a_past_that_is_not_in_memory_is_read_from_the_journal(
    served: Served, tmp_path: Path, limits: Limits
) -> None:
    limits(streams, BATCH=8, RECENT_BYTES=1000)
    id, count = big(served, tmp_path, 30, 1)
    assert numbers(Stream(served, id)) == list(range(count))
    assert numbers(Stream(served, id, last=5)) == list(range(6, count))


@pytest.mark.parametrize("of_all", [True, False])
@pytest.mark.parametrize("ends", ["token", "session"])
def test_a_stream_ends_with_its_credential(
    served: Served, limits: Limits, of_all: bool, ends: str
) -> None:
    api = served.api
    api.engine.store.number_events()
    id, wait = api.started()
    token, records, identity = api.token(OWNER), api.records, served.application.identity
    secret = identity.begin_session(identity.of(f"Bearer {token}", ""))
    cookie = f"flowengine_session_{served.port}={secret}" if ends == "session" else ""
    stream = Stream(served, "" if of_all else id, 0 if of_all else None, token, cookie)
    assert next(iter(stream))[0] == "entry"
    limits(rights, CHECKED_EVERY=0.0)
    if ends == "token":
        records.revoke_token(records.tokens()[-1].name, 1)
    else:
        records.end_session(secret)
    api.engine.acting_as("user:ben", via="test").approvals.approve(wait)
    api.started(4711)
    rest = list(stream)
    stream.close()
    seen = [data.get("entry", data)["type"] for _, data in rest]
    assert "decided" not in seen
    assert not any("4711" in str(data) for _, data in rest)


def test_an_operation_of_an_answer_that_lasts_needs_a_valid_credential(
    served: Served, limits: Limits
) -> None:
    api, ids = served.api, {"approval": served.api.started()[1]}
    user = api.application.identity.of(f"Bearer {api.token(OWNER)}", "")
    body = {"choice": "approve"}
    api.records.revoke_token(api.records.tokens()[-1].name, 1)
    deciding = api.application.change(user, "", "decide", ids=ids, body=body, via="ag-ui")
    with pytest.raises(RequestRefused, match="revoked"):
        asyncio.run(deciding)
    limits(rights, CHECKED_EVERY=0.0)
    with pytest.raises(RequestRefused, match="revoked"):
        asyncio.run(api.application.ask(user, "show_approval", ids=ids))


def test_streams_end_when_the_server_stops(served: Served) -> None:
    id, _ = served.api.started()
    stream = Stream(served, id)
    assert next(iter(stream))[0] == "entry"
    served.server.should_exit = True
    assert [name for name, _ in stream if name == "end"] == []
    stream.close()


@pytest.mark.parametrize(
    ("readers", "stuck", "live", "served"),
    [
        (12, 4, False, 1),
        # The readers and the server share an interpreter, so that readers wait for their turn.
        pytest.param(1000, 100, True, 30, marks=pytest.mark.endurance),
    ],
    indirect=["served"],
)
def test_readers_that_do_not_read_are_cut_off_and_the_others_miss_nothing(
    served: Served, tmp_path: Path, readers: int, stuck: int, live: bool
) -> None:
    served.application._open.of_user = readers  # all readers are one user
    (tmp_path / "big.yaml").write_text(BIG)
    engine = served.api.engine
    id = engine.start("big.yaml", {"count": 60, "size": 100_000})
    if not live:
        engine.resume(id)
    head = served.head(f"GET /v1/executions/{id}/events", "Accept: text/event-stream")

    async def read() -> tuple[list[Any], list[bytes]]:
        opened = [
            await asyncio.open_connection(sock=narrow(served.port), limit=2**16)
            for _ in range(readers)
        ]
        for _, writer in opened:
            writer.write(head)
        for reader, _ in opened:
            await reader.readuntil(b"\r\n\r\n")
        counted = [count(reader) for reader, _ in opened[stuck:]]
        driven = [asyncio.to_thread(engine.resume, id)] if live else []
        counts = await asyncio.gather(*counted, *driven)
        for _, writer in opened[stuck:]:
            writer.close()
        await asyncio.to_thread(until, lambda: not served.server.server_state.connections)
        rests = []
        for reader, writer in opened[:stuck]:
            with suppress(ConnectionResetError):
                rests.append(await reader.read())
            writer.close()
        return counts[: readers - stuck], rests

    async def count(reader: asyncio.StreamReader) -> int:
        """Return how many events come, in pieces of any size."""
        found, rest = 0, b""
        while b"event: end" not in rest:
            part = await reader.read(2**20)
            if not part:
                break
            found += (rest + part).count(b"event: entry") - rest.count(b"event: entry")
            rest = (rest + part)[-40:]
        return found

    counts, rests = asyncio.run(read())
    events = len(list(engine.executions.events(id)))
    assert [counted for counted in counts if counted != events] == []
    assert [rest for rest in rests if b"event: end" in rest] == []


def narrow(port: int) -> socket.socket:
    """Connect with a receive buffer that does not grow, so that it cannot hold a whole stream."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
    opened.connect(("127.0.0.1", port))
    opened.setblocking(False)
    return opened


def big(served: Served, folder: Path, count: int, size: int) -> tuple[str, int]:
    """Return an execution that has ended, and how many events it has."""
    (folder / "big.yaml").write_text(BIG)
    id = served.api.engine.run("big.yaml", {"count": count, "size": size}).execution
    return id, len(list(served.api.engine.executions.events(id)))
