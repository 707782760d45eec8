# Shows V34, V53
"""Replies that models are writing, from the engine that drives to the readers of the server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowengine import AsyncClient, Client, Engine
from flowengine.agents.models.port import Listener, ModelReply, ModelRequest, ReplyPart
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.engines.arriving_replies import LARGEST_REPLY, WANTED_SECONDS, ReplyFiles
from flowengine.errors import NotAllowed
from tests.agents.flows import HEAD, NAME, TOOLS, flow
from tests.server.api import LOCAL, OWNER, Api
from tests.server.served import Served, until

SECRET = "s3cr3t-value-of-the-host"
SCRIPT: list[Any] = [{"text": f"The key is {SECRET}, and it is long.", "reasoning": "Hm"}]
FLOW = flow(
    "first: {instructions: Say., tools: [add]}", head=f"{HEAD}secrets: {{key: {{env: KEY}}}}"
)


class Slow(ScriptedModel):
    """Writes on only after a reader has seen the first piece of the text."""

    def __init__(self, replies: list[Any]) -> None:
        super().__init__(replies)
        self.seen = threading.Event()
        self.streamed = False

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        parts: list[ReplyPart] = []
        reply = await super().complete(request, parts.append)
        if listen is not None:
            self.streamed = True
            for part in parts:
                listen(part)
                if part.kind == "text":
                    assert await asyncio.to_thread(self.seen.wait, 60)
        return reply


@pytest.fixture
def model() -> Iterator[Slow]:
    model = Slow(SCRIPT)
    register(NAME, model)
    yield model
    unregister(NAME)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY", SECRET)
    (tmp_path / "tools.py").write_text(TOOLS)
    served = Served(Api(tmp_path, (FLOW,)))
    yield served
    served.close()


class Driving:
    """Another engine over the store, which drives an execution on a thread."""

    def __init__(self, folder: Path, id: str) -> None:
        self._thread = threading.Thread(target=self._drive, args=(folder, id))
        self._thread.start()

    def _drive(self, folder: Path, id: str) -> None:
        with Engine(folder / "store", durability="none", user=OWNER) as engine:
            engine.resume(id)

    def end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def text(parts: list[dict[str, Any]], kind: str = "text") -> str:
    return "".join(part.get("text", "") for part in parts if part["part"] == kind)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_reader_has_the_text_before_the_reply_is_complete_with_secrets_masked(
    served: Served, tmp_path: Path, model: Slow, is_async: bool
) -> None:
    id = served.api.engine.start(served.api.flows[0])
    driving = Driving(tmp_path, id)
    events: list[Any] = []

    def take(event: Any) -> None:
        events.append(event)
        if event.kind == "part" and event.data["part"] == "text":
            model.seen.set()

    async def read() -> None:
        async with AsyncClient(served.url, LOCAL) as client:
            async for event in client.executions.stream(id):
                take(event)

    if is_async:
        asyncio.run(read())
    else:
        with Client(served.url, LOCAL) as client:
            for event in client.executions.stream(id):
                take(event)
    driving.end()

    kinds = [event.kind for event in events]
    parts = [event.data for event in events if event.kind == "part"]
    numbers = [event.data["seq"] for event in events if event.kind == "entry"]
    reply = next(
        place for place, event in enumerate(events)
        if event.kind == "entry" and "it is long" in str(event.data)
    )  # fmt: skip
    assert [part["part"] for part in parts if part["part"] in ("start", "end")] == ["start", "end"]
    assert (text(parts), text(parts, "reasoning")) == ("The key is ***, and it is long.", "Hm")
    assert {part["agent"] for part in parts} == {"first"}
    assert SECRET not in str(events)
    assert numbers == list(range(len(numbers)))  # parts have no number and disturb none
    assert "part" not in kinds[reply:]  # all parts come before the reply that they are of
    assert os.listdir(replies_of(tmp_path)) == ["wanted"]


def test_parts_are_seen_only_with_the_right_to_content(
    served: Served, tmp_path: Path, model: Slow
) -> None:
    id = served.api.engine.start(served.api.flows[0])
    model.seen.set()
    Driving(tmp_path, id).end()
    token = served.api.token("user:vera", "viewer")
    with Client(served.url, token) as client, pytest.raises(NotAllowed):
        list(client.executions.stream(id))


def test_without_a_reader_no_model_streams_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Slow
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY", SECRET)
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "flow.yaml").write_text(FLOW)
    with Engine(tmp_path / "store", durability="none") as engine:
        assert engine.run("flow.yaml").status == "succeeded"
        assert not model.streamed
        engine.want_replies()
        old = time.time() - WANTED_SECONDS - 1
        os.utime(replies_of(tmp_path) / "wanted", (old, old))
    assert not ReplyFiles(str(tmp_path / "store")).are_wanted()  # the server has ended
    with Engine(tmp_path / "store", durability="none") as engine:
        engine.want_replies()
    assert ReplyFiles(str(tmp_path / "store")).are_wanted()


def test_files_are_bounded_and_those_of_dead_processes_are_replaced(tmp_path: Path) -> None:
    with Engine(tmp_path / "store", durability="none"):
        pass
    files = ReplyFiles(str(tmp_path / "store"))
    files.want()
    reader = files.reader("one")
    assert reader is not None
    dead, other = files.writer("one", "ask"), files.writer("two", "ask")
    assert dead is not None
    assert other is not None
    other.write({"part": "text", "text": "of another execution"})
    dead.write({"part": "text", "text": "a"})
    assert reader.read() == [{"address": "ask", "part": "text", "text": "a"}]
    writer = files.writer("one", "ask")
    assert writer is not None
    writer.write({"part": "start"})
    for _ in range(5):
        writer.write({"part": "text", "text": "x" * (LARGEST_REPLY // 4)})
    found = reader.read()
    assert found[0] == {"address": "ask", "part": "start"}
    assert len(found) == 4
    writer.close()
    assert reader.read() == [{"address": "ask", "part": "end"}]
    reader.close()

    left = replies_of(tmp_path)
    for path in left.iterdir():
        os.utime(path, (0, 0))
    files.want()
    assert os.listdir(left) == ["wanted"]


def test_a_reply_whose_process_died_has_an_end_and_new_readers_do_not_see_it(
    tmp_path: Path,
) -> None:
    with Engine(tmp_path / "store", durability="none"):
        pass
    files = ReplyFiles(str(tmp_path / "store"))
    files.want()
    reader = files.reader("one")
    assert reader is not None
    with in_another_process(tmp_path / "store"):
        parts = reader.read()
        assert [part["part"] for part in parts] == ["start", "text"]
        assert reader.read() == []
    assert reader.read() == [{"address": "ask", "agent": "first", "part": "end"}]
    assert reader.read() == []
    late = files.reader("one")
    assert late is not None
    assert late.read() == []
    assert len(os.listdir(replies_of(tmp_path))) == 2  # until another attempt replaces it
    late.close()
    reader.close()


@contextmanager
def in_another_process(store: Path) -> Iterator[None]:
    """Write the beginning of a reply in a process, which is killed at the end."""
    code = (
        "import sys, time; from flowengine.engines.arriving_replies import ReplyFiles; "
        "it = ReplyFiles(sys.argv[1]).writer('one', 'ask'); "
        "it.write({'agent': 'first', 'part': 'start'}); "
        "it.write({'agent': 'first', 'part': 'text', 'text': 'I th'}); "
        "print('written', flush=True); time.sleep(300)"
    )
    writing = subprocess.Popen([sys.executable, "-c", code, store], stdout=subprocess.PIPE)
    assert writing.stdout is not None
    try:
        assert writing.stdout.readline() == b"written\n"
        yield
    finally:
        writing.kill()
        writing.communicate()


@pytest.mark.endurance
def test_a_reader_of_replies_that_does_not_read_is_cut_off(served: Served, tmp_path: Path) -> None:
    id = served.api.engine.start(served.api.flows[0])
    files = ReplyFiles(str(tmp_path / "store"))
    assert files.are_wanted()
    writers = [files.writer(id, f"ask/{number}") for number in range(20)]
    with served.connect() as stuck:
        stuck.sendall(
            served.head(f"GET /v1/executions/{id}/events?replies=true", "Accept: text/event-stream")
        )
        until(lambda: served.application.streams.readers == 1)
        for writer in writers:
            assert writer is not None
            writer.write({"part": "start"})
            writer.write({"part": "text", "text": "x" * (LARGEST_REPLY - 1000)})
        until(lambda: served.application.streams.readers == 0)
    for writer in writers:
        assert writer is not None
        writer.close()


def replies_of(folder: Path) -> Path:
    from flowengine.store_folder import known

    private = known(str(folder / "store"))
    assert private is not None
    return Path(private) / "replies"
