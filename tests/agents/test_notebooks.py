# Shows G4
"""Cells of a notebook: agents, flows and steps that are defined in cells, on its event loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CELLS = [
    '''
from dataclasses import dataclass
from flowengine import Agent, Engine, Flow, TextPart
from flowengine.testing import call, scripted

def double(n: int) -> int:
    """Double a number."""
    return 2 * n

@dataclass
class City:
    name: str
''',
    """
agent = Agent(name="Clerk", tools=[double], returns=City)
with scripted(call("double", n=2), '{"name": "Oslo"}'):
    print((await agent.run_async("Where?")).output)
""",
    """
with scripted('{"name": "Rome"}'):
    async for part in agent.stream_async("And then?"):
        match part:
            case TextPart(text):
                print(text, end="|")
print()
""",
    """
flow = Flow("cities", inputs={"city": City})

@flow.step
def greet(city: City) -> City:
    return City("Hello " + city.name)

flow.step("twice", python=double, with_={"n": 4})
flow.output("all", "${{ [steps.greet.output.name, string(steps.twice.output)] }}")
with Engine(None) as engine:
    print((await engine.run_async(flow, {"city": City("Oslo")})).outputs)
""",
    """
try:
    agent.run("Where?")
except Exception as error:
    print(error)
""",
]
KERNEL = '''
"""Runs cells as a notebook does: in `__main__` without a file, each compiled under its own name."""
import ast, asyncio, inspect, json, linecache, sys

async def cells(sources):
    main = sys.modules["__main__"].__dict__
    del main["__file__"]
    for number, source in enumerate(sources):
        name = f"/tmp/ipykernel_1/{number}.py"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        code = compile(source, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waits = eval(code, main)
        if inspect.isawaitable(waits):
            await waits

asyncio.run(cells(json.load(sys.stdin)))
'''


def test_cells_hold_tools_agents_steps_and_flows(tmp_path: Path) -> None:
    from json import dumps

    kernel = tmp_path / "kernel.py"
    kernel.write_text(KERNEL)
    ran = subprocess.run(
        [sys.executable, str(kernel)],
        input=dumps(CELLS), capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "City(name='Oslo')",
        '{"name":| "Rome"}|',
        "{'all': ['Hello Oslo', '8']}",
        "an event loop is running in this thread, and this would block it: await run_async()",
    ]
