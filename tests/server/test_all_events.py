# Shows V34
"""The events of all executions: in the order of commits, none missing, none twice, none hidden."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from flowengine import AsyncClient, Client, Engine
from flowengine.server import streams
from tests.replacing import Limits
from tests.server.api import HOST, LOCAL, Api
from tests.server.served import Served, Stream
from tests.server.test_client import URL
from tests.server.transport import Transport


def places(items: Any) -> list[tuple[str, int]]:
    return [(item["execution"], item["entry"]["seq"]) for item in items]


def test_a_page_has_the_events_of_all_in_the_order_of_commits(api: Api) -> None:
    begin = api("GET", "/v1/events")
    assert begin == {"items": [], "next": 0}
    first, wait = api.started()
    second, _ = api.started()
    api.engine.acting_as("user:ben", via="test").approvals.approve(wait)

    found = api("GET", "/v1/events?after=0&limit=500")
    of_first = [("e1", entry["seq"]) for entry in api.engine.executions.events(first)]
    of_second = [("e2", entry["seq"]) for entry in api.engine.executions.events(second)]
    names = {first: "e1", second: "e2"}
    begun = 1
    assert [(names[id], seq) for id, seq in places(found["items"])] == [
        *of_first[:begun], *of_second, *of_first[begun:],
    ]  # fmt: skip
    assert [item["entry"] for item in found["items"] if item["execution"] == first] == list(
        api.engine.executions.events(first)
    )
    assert found["items"][-1]["status"] == "succeeded"

    parts, after = [], 0
    while (part := api("GET", f"/v1/events?after={after}&limit=2"))["items"]:
        parts += part["items"]
        after = part["next"]
    assert parts == found["items"]


def test_each_user_sees_their_flows_and_content_only_by_right(api: Api) -> None:
    api("GET", "/v1/events")
    expense, _ = api.started(4711)
    parcel = api.engine.start(api.flows[1], {"order": "B7"})
    api.engine.resume(parcel)

    def seen(user: str) -> list[Any]:
        path = "/v1/events?after=0"
        found: list[Any] = api("GET", path, token=api.token(user), code=200)["items"]
        return found

    assert {item["execution"] for item in seen("user:sam")} == {expense}
    assert {item["execution"] for item in seen("user:vera")} == {expense, parcel}
    assert "4711" not in str(seen("user:vera"))
    assert all(item["entry"].keys() <= {"seq", "at", "type"} for item in seen("user:vera"))
    assert "4711" in str(seen("user:cora"))


def test_a_damaged_journal_stops_no_other(api: Api) -> None:
    api("GET", "/v1/events")
    damaged, _ = api.started()
    sound, _ = api.started()
    connection = sqlite3.connect(api.engine.store.location)
    connection.execute("UPDATE events SET payload = x'c1' WHERE id = (SELECT min(id) FROM events)")
    connection.commit()
    connection.close()

    items = api("GET", "/v1/events?after=0")["items"]
    types = {item["entry"]["type"] for item in items if item["execution"] == damaged}
    assert types == {"unreadable"}
    assert [item["entry"] for item in items if item["execution"] == sound] == list(
        api.engine.executions.events(sound)
    )


def test_clients_follow_all(api: Api) -> None:
    with Client(URL, LOCAL, transport=Transport(api)) as client:
        assert list(client.executions.all_events()) == []
        id, _ = api.started()
        wanted = list(api.engine.executions.all_events(after=0))
        assert [event.entry for event in wanted] == list(api.engine.executions.events(id))
        assert list(client.executions.all_events(after=0)) == wanted
        followed = client.executions.all_events(after=0, flow="expense", follow=True)
        assert [next(followed) for _ in wanted] == wanted

    async def read() -> list[Any]:
        import httpx2

        transport = httpx2.ASGITransport(app=api.application.asgi)
        async with AsyncClient(f"https://{HOST}", LOCAL, transport=transport) as client:
            return [event async for event in client.executions.all_events(after=0)]

    assert asyncio.run(read()) == wanted


def test_a_stream_misses_nothing_while_its_reader_or_the_server_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    monkeypatch.chdir(tmp_path)
    limits(streams, BATCH=3)
    served = Served(tmp_path)
    stream = Stream(served)
    stream.wait_until_open()
    last = stream.last
    stream.close()  # it comes back although it has seen no event
    first, _ = served.api.started()
    stream = Stream(served, last=last)
    seen = [next(iter(stream))[1]]
    last = stream.last
    stream.close()
    served.close()

    with Engine(tmp_path / "store", durability="none") as engine:
        engine.executions.cancel(first)
        second = engine.run(tmp_path / "flow0.yaml", {"amount": 5}).execution

    limits(streams, RECENT_BYTES=1)
    served = Served(tmp_path)
    try:
        stream = Stream(served, last=last)
        third, _ = served.api.started()
        wanted = list(served.api.engine.executions.all_events(after=0))
        for _, data in stream:
            seen.append(data)
            if data["execution"] == third and len(seen) == len(wanted):
                break
        stream.close()
    finally:
        served.close()
    assert [data["number"] for data in seen] == [event.number for event in wanted]
    assert [data["entry"] for data in seen] == [event.entry for event in wanted]
    assert {data["execution"] for data in seen} == {first, second, third}


def test_a_stream_has_what_its_reader_may_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    monkeypatch.chdir(tmp_path)
    limits(streams, MOST_SKIPPED=1)
    served = Served(tmp_path)
    try:
        token = served.api.token("user:owner", "viewer", "parcel")
        stream = Stream(served, token=token)
        stream.wait_until_open()
        served.api.started(4711)
        parcel = served.api.engine.start(served.api.flows[1], {"order": "B7"})
        served.api.engine.resume(parcel)
        _, data = next(iter(stream))
        assert (data["execution"], data["entry"].keys()) == (parcel, {"seq", "at", "type"})
        stream.close()
    finally:
        served.close()
