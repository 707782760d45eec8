# Shows G15
"""Input that servers request in sessions: calls at once, and sessions without a flow."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import NeedsInput, Plain, ToolError
from flowengine_envs.mcp.elicitation import CallInputs, OpenCalls
from flowengine_envs.mcp.session import McpSession
from tests.envs.mcp.conftest import HERE, Open

ASKING = [sys.executable, str(HERE / "asking_server.py")]
ANSWERS: Mapping[str, dict[str, Plain]] = {
    "Where does Ana sit?": {"row": 1},
    "Where does Ben sit?": {"row": 2},
    "What is eaten in row 1?": {"meal": "rice"},
    "What is eaten in row 2?": {"meal": "soup"},
}


class Person:
    """Answers the questions of a call, as the engine does."""

    def __init__(self, session: McpSession) -> None:
        self.session = session
        self.asked: list[str] = []

    async def call(self, tool: str, args: dict[str, Plain]) -> str:
        given: dict[str, Any] = {}
        while True:
            inputs = self.session.inputs(given, "Server 'x'", tool, args)
            try:
                answer = await self.session.async_call_tool(tool, args, inputs=inputs)
            except NeedsInput as question:
                data: Any = question.data
                asked = data["input"]
                message = asked["request"]["message"]
                self.asked.append(message)
                reply = {"action": "accept", "content": ANSWERS[message]}
                answers = {**given.get("answers", {}), asked["key"]: reply}
                given = {"answers": answers, "key": asked["key"], "before": asked["before"]}
            else:
                return answer.text


@pytest.fixture(params=["stdio", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The configuration of a server over each transport."""
    if request.param == "stdio":
        yield {"command": [*ASKING, str(tmp_path)]}
        return
    server = subprocess.Popen([*ASKING, str(tmp_path), "http"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield {"url": f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"}
    server.kill()  # it would wait for the session, which is closed later
    server.wait()
    server.stdout.close()


@pytest.mark.wherever("mode", "place")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_calls_at_once_receive_their_own_answers(
    opened: Open, tmp_path: Path, place: dict[str, Any], mode: str
) -> None:
    person = Person(opened(**place, mode=mode))

    async def both() -> list[str]:
        calls = [person.call("book", {"name": name}) for name in ("Ana", "Ben")]
        return await asyncio.gather(*calls)

    answers = asyncio.run(both())

    assert answers == ["Ana: row 1, aisle, rice", "Ben: row 2, aisle, soup"]
    assert {*person.asked} == {*ANSWERS}
    done = (tmp_path / "done.txt").read_text().splitlines()
    assert sorted(done) == ["book Ana", "book Ben"]


def test_a_request_that_can_belong_to_several_calls_is_refused() -> None:
    from mcp.types import ElicitRequestFormParams, ElicitResult, ErrorData

    schema = {"type": "object", "properties": {}}
    params = ElicitRequestFormParams(message="Sure?", requested_schema=schema)

    def inputs(name: str) -> CallInputs:
        return CallInputs({}, "Server 'x'", "confirm", {"name": name})

    async def talk() -> None:
        calls = OpenCalls(patience=0)
        async with calls.call(inputs("Ana")) as first, calls.call(inputs("Ben")) as second:
            refused = await calls.answer(params)
            assert isinstance(refused, ErrorData)
            assert "does not name its call" in refused.message
            assert not first.asked.done()
            assert not second.asked.done()
        async with calls.call(inputs("Ana")) as first:
            waiting = asyncio.ensure_future(calls.call(inputs("Ben")).__aenter__())
            answering = asyncio.ensure_future(calls.answer(params))
            with pytest.raises(NeedsInput, match="Sure"):
                await first.asked
            assert not waiting.done()
        answer = await answering
        assert isinstance(answer, ElicitResult)
        assert answer.action == "cancel"
        await waiting

    asyncio.run(talk())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_without_a_flow_names_what_it_cannot_answer(
    opened: Open, tmp_path: Path, mode: str
) -> None:
    session = opened(command=[*ASKING, str(tmp_path)], mode=mode)

    told = r"input from a user \(elicitation\).* call it as a tool of a flow"

    def call() -> None:
        answer = session.call_tool("book", {"name": "Ana"})
        raise ToolError(answer.text)  # a server may report this as a result

    with pytest.raises(ToolError, match=told):
        call()
    assert not (tmp_path / "done.txt").exists()
