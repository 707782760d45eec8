"""`execute_command`, the built-in tool that runs a command in a managed shell environment."""

from __future__ import annotations

import asyncio
from typing import Any

from flowengine.sdk import StepError
from flowengine.tool_environment.context import ToolContext
from flowengine.tool_environment.registry import tool_registry
from flowengine.tool_environment.tools import tool

SHELL = "shell"
"""Name of its environment, which is of the kind `shell` or `bash`."""


@tool(resources={SHELL: None})
async def execute_command(command: str, ctx: ToolContext) -> dict[str, Any]:
    """Run a command in the shell and return its exit code and output.

    When the call must stop, the command ends with all its child processes.

    Args:
        command: The shell command.
        ctx: The context of the call.

    Returns:
        `exit_code`, `stdout` and `stderr`. A terminal has both streams in `stdout`.

    Raises:
        StepError: The environment cannot run commands.
    """
    shell = ctx.resources[SHELL]
    run = getattr(shell, "async_run_in_turn", None) or getattr(shell, "async_run", None)
    if run is None:
        raise StepError(f"the environment '{SHELL}' runs no commands: take the kind shell or bash")

    def wrote(_: str, text: str) -> None:
        ctx.write(text)
        ctx.report(text)

    running = asyncio.ensure_future(run(command, on_output=wrote))
    aborted = asyncio.ensure_future(ctx.signal.async_wait())
    try:
        await asyncio.wait([running, aborted], return_when=asyncio.FIRST_COMPLETED)
    finally:
        aborted.cancel()
        if not running.done():  # cancellation ends the command with its child processes
            running.cancel()
            await asyncio.wait([running])
    result = running.result()
    if hasattr(result, "stdout"):
        return {
            "exit_code": result.exit_code,
            "stdout": result.stdout,
            "stderr": result.stderr,
        }
    return {"exit_code": result.exit_code, "stdout": result.output, "stderr": ""}


tool_registry.register_tool(execute_command)
