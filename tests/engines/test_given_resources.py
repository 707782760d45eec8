"""What a program passes to executions that it awaits together (`given_resources.cases.yaml`)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from flowengine import Engine
from tests.execution_environment.toy import Toy

FUNCTIONS = """
def use(runtime_resources):
    return [sorted(runtime_resources), next(runtime_resources["numbers"])]
"""


def test_each_has_its_own(toy: Toy) -> None:
    Path("flow.yaml").write_text(
        'flowengine: 1\nid: it\nsteps: [{id: a, python: "things:use"}]\n'
        'outputs: {a: "${{ steps.a.output }}"}\n'
    )
    box = {"kind": "toy", "scope": "execution", "resource_key": "box"}

    async def run() -> Any:
        async with Engine("store") as engine:
            given = [
                engine.run_async(
                    "flow.yaml",
                    runtime_resources={"numbers": iter([number])},
                    execution_environments=[box],
                )
                for number in (1, 6)
            ]
            return [result.outputs for result in await asyncio.gather(*given)]

    names = ["box", "numbers"]
    assert asyncio.run(run()) == [{"a": [names, 1]}, {"a": [names, 6]}]
    assert (toy.opens, toy.releases) == (2, 2)
