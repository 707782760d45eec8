# Shows F8
"""Start-up cost, measured by imports, since timing would make the tests flaky."""

from __future__ import annotations

import subprocess
import sys

from tests.rows import each_row

HEAVY = {
    "docker",
    "httpx",
    "httpx2",
    "litellm",
    "mcp",
    "networkx",
    "olefile",
    "openai",
    "playwright",
    "pypdf",
    "pypdfium2",
    "starlette",
    "temporalio",
}


def loaded_by(program: str) -> set[str]:
    """Return the top-level modules loaded by a program in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@each_row(
    "module",
    [
        "flowengine",
        "flowengine.cli",
        "flowengine_nodes",
        "flowengine_nodes.http",
        "flowengine_nodes.python",
        "flowengine_nodes.commands",
        "flowengine_nodes.std",
        "flowengine_envs.kinds.host",
    ],
)
def test_importing_loads_no_heavy_library(module: str) -> None:
    assert not HEAVY & loaded_by(f"import {module}")


def test_what_every_execution_needs_loads_nothing_that_only_some_steps_need() -> None:
    loaded = loaded_by(
        "import flowengine.sdk, flowengine.registry, flowengine.engines.attempts.runner"
    )

    assert not loaded & (
        HEAVY
        | {
            "asyncio",
            "dataclasses",
            "importlib.metadata",
            "inspect",
            "jsonschema_rs",
            "logging",
            "pydantic",
            "subprocess",
            "tempfile",
            "urllib.parse",
            "yaml",
        }
    )


def test_quick_step_needs_no_event_loop_and_no_schema_library() -> None:
    loaded = loaded_by(
        "from flowengine.engines.attempts.runner import TaskRunner\n"
        "from flowengine.kernel.commands import Run\n"
        "from flowengine.sdk import ExecutionContext\n"
        "schema = {'type': 'object', 'properties': {'text': {'type': 'string'}}}\n"
        "step = {'kind': 'std', 'task': {'tool': 'print', 'schema': schema}}\n"
        "call = TaskRunner({'id': 'f', 'steps': [step]}).quick(0)\n"
        "run = Run(1, 1, 0, 's', {'text': 'hi'}, {'args': {'text': 'hi'}}, None)\n"
        "call(ExecutionContext('e', 'f', '1', '.', None, lambda *said: None), run)\n"
    )

    assert not loaded & (HEAVY | {"asyncio", "jsonschema_rs", "pydantic", "yaml", "logging"})
