"""Calls of a reply that run together, where their tools may."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.flows import HEAD, Case, call, flow, told

PARALLEL = """
import asyncio, threading
busy, most = 0, 0
async def add(a: int) -> int:
    "Add."
    global busy, most
    busy += 1
    most = max(most, busy)
    await asyncio.sleep(0)
    for _ in range(ROUNDS):
        if most > 1:
            break
        await asyncio.sleep(0.002)
    busy -= 1
    return a * 10 + most
def boom(): 'No.'
"""


@pytest.mark.parametrize(
    ("tool", "agent", "together"),
    [(", parallel: true", "", 2), ("", "", 1),
     (", parallel: true", ", settings: {parallel_tool_calls: false}", 1)],
)  # fmt: skip
# Shows M23
def test_calls_run_together_where_their_tools_may(
    tmp_path: Path, tool: str, agent: str, together: int
) -> None:
    rounds = 10_000 if together > 1 else 50  # waits for the other call, if there is one
    (tmp_path / "tools.py").write_text(PARALLEL.replace("ROUNDS", f"{rounds}"))
    head = HEAD.replace('"tools:add"}', f'"tools:add"{tool}}}')
    agents = f"first: {{instructions: You add., tools: [add]{agent}}}"
    calls = [call("add", "c1", a=1), call("add", "c2", a=2)]
    case = Case(tmp_path, flow(agents, head=head), [{"calls": calls}, {"text": "so"}])

    case.run()

    assert told(case.sent(1))[-2:] == [("tool", f"{10 + together}"), ("tool", f"{20 + together}")]
