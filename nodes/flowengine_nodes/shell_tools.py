"""`std` tools that work at a terminal: run a command, wait for it, type, interrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.sdk import Plain, StepContext, Tool, ToolError, ValidationError
from flowengine_nodes.tool_schemas import FLAG, TEXT, WHOLE, listed, record

if TYPE_CHECKING:
    from flowengine.sdk import Effect

SHELL = "shell"
"""The kind of environment, and the name of the one that is used."""
WAIT = 30
"""Seconds after which a call returns, where a caller says nothing."""
ANSWERS = 5
"""The same after keys were pressed: what reads them answers soon."""
LONGEST = 3600


async def call(context: StepContext, tool: str, args: dict[str, Any]) -> Plain:
    """Call one of these tools.

    Args:
        context: The attempt.
        tool: Its name.
        args: Its arguments.

    Raises:
        ToolError: No command runs that input could go to.
        ValidationError: Both text and keys are to be typed.
    """
    if "text" in args and "keys" in args:
        raise ValidationError("std.shell_type takes either 'text' or 'keys'")
    shell = context.resources[SHELL]
    if tool == "shell_run":
        wait = args.get("wait", WAIT)
        return await _state(shell, await shell.async_run(args["command"], wait=wait))
    if tool == "shell_wait":
        return await _state(shell, await shell.async_wait(args.get("wait", WAIT)))
    # At the prompt of the shell, text would be a command that nobody was asked about.
    if (await shell.async_wait(0)).idle:
        raise ToolError(
            "no command runs, so nothing reads input; run one with shell_run", retryable=False
        )
    if tool == "shell_interrupt":
        await shell.async_interrupt()
    elif "keys" in args:
        await shell.async_keys(*args["keys"])
    else:
        await shell.async_send(args.get("text", "") + "\n" * args.get("enter", True))
    return await _state(shell, await shell.async_wait(args.get("wait", ANSWERS)))


async def _state(shell: Any, result: Any) -> Plain:
    """Return how a command stands, as far as there is something to say."""
    waiting, running = result.waiting, result.processes if result.busy else ()
    told = {
        "exit_code": result.exit_code,
        "waiting_for": None if waiting is None else waiting.kind,
        "prompt": None if waiting is None else waiting.prompt,
        "screen": None,
        "background": result.background or None,
        "processes": [f"{each.pid} {each.command}" for each in running] or None,
        "shell_restarted": result.shell_restarted or None,
    }
    if waiting is not None and waiting.kind == "keys":
        told["screen"] = (await shell.async_screen()).strip("\n") or None
    found = {name: value for name, value in told.items() if value is not None}
    return {"status": result.status, "output": result.output, "cwd": result.cwd, **found}


def _wait(seconds: int) -> dict[str, Plain]:
    return {
        "type": "number",
        "minimum": 0,
        "maximum": LONGEST,
        "default": seconds,
        "description": "Seconds after which the call returns even if the command goes on.",
    }


_STATE = record(
    {
        "status": {
            "enum": [
                *("done", "running", "waiting_for_input", "timeout"),
                *("cancelled", "syntax_error", "lost", "disk"),
            ]
        },
        "output": {**TEXT, "description": "All that the command has written."},
        "cwd": TEXT,
        "exit_code": WHOLE,
        "waiting_for": {"enum": ["line", "secret", "keys"]},
        "prompt": TEXT,
        "screen": {**TEXT, "description": "Of a program that reads single keys."},
        "background": {**TEXT, "description": "What earlier jobs have written."},
        "processes": listed(TEXT),
        "shell_restarted": FLAG,
    },
    ["status", "output", "cwd"],
)


def _tool(about: str, args: dict[str, Plain], effect: Effect = "once") -> Tool:
    return {
        "description": about,
        "args": args,
        "returns": _STATE,
        "effect": effect,
        "environments": {SHELL: ["flowengine_envs.kinds.shell.session.Shell"]},
    }


TOOLS: dict[str, Tool] = {
    "shell_run": _tool(
        "Runs a command in a shell that keeps its directory, variables and jobs. Returns when it "
        "has ended, when it waits for input, or while it goes on: see 'status'.",
        record({"command": TEXT, "wait": _wait(WAIT)}, ["command"]),
    ),
    "shell_wait": _tool(
        "Waits until the command that runs in the shell has ended or waits for input.",
        record({"wait": _wait(WAIT)}, []),
        effect="idempotent",
    ),
    "shell_type": _tool(
        "Types into the command that runs in the shell: a line of text, or keys.",
        record(
            {
                "text": TEXT,
                "enter": {**FLAG, "default": True, "description": "Whether Enter follows."},
                "keys": {
                    **listed(TEXT),
                    "description": "Instead of text: Up, Enter, Escape, C-d, M-x, F1, or single "
                    "characters.",
                },
                "wait": _wait(ANSWERS),
            },
            [],
        ),
    ),
    "shell_interrupt": _tool(
        "Interrupts the command that runs in the shell, as Ctrl-C does.",
        record({"wait": _wait(ANSWERS)}, []),
    ),
}
"""The tools, with what they take and give."""
