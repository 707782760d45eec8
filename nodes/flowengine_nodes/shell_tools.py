"""`std` tools for a terminal: run a command, wait for it, type, interrupt."""

from __future__ import annotations

from typing import Any

from flowengine.sdk import Effect, Plain, StepContext, Tool, ToolError, ValidationError
from flowengine.sdk.environments.network_hints import network_hint
from flowengine.sdk.tools.schemas import FLAG, TEXT, WHOLE, listed, record

SHELL = "shell"
"""The kind of environment, and the default name of the environment used."""
WAIT = 30
"""Seconds after which a call returns, if the caller sets no timeout."""
ANSWERS = 5
"""The same after key presses, to which programs react quickly."""
LONGEST = 3600


async def call(context: StepContext, tool: str, args: dict[str, Any]) -> Plain:
    """Call one of these tools.

    Args:
        context: The attempt.
        tool: Its name.
        args: Its arguments.

    Raises:
        ToolError: No running command could read the input.
        ValidationError: Both text and keys were given.
    """
    if "text" in args and "keys" in args:
        raise ValidationError("std.shell_type takes either 'text' or 'keys'")
    shell = context.resources[SHELL]
    if tool == "shell_run":
        wait = args.get("wait", WAIT)
        return await _state(shell, await shell.async_run(args["command"], wait=wait))
    if tool == "shell_wait":
        return await _state(shell, await shell.async_wait(args.get("wait", WAIT)))
    # At the prompt of the shell, text would be a command without any approval.
    if (await shell.async_wait(0)).idle:
        raise ToolError(
            "no command is running, so the input would not be read. Run one with shell_run",
            retryable=False,
        )
    if tool == "shell_interrupt":
        await shell.async_interrupt()
    elif "keys" in args:
        await shell.async_keys(*args["keys"])
    else:
        await shell.async_send(args.get("text", "") + "\n" * args.get("enter", True))
    return await _state(shell, await shell.async_wait(args.get("wait", ANSWERS)))


async def _state(shell: Any, result: Any) -> Plain:
    """Return the state of a command, as far as there is any."""
    waiting, running = result.waiting, result.processes if result.busy else ()
    state = {
        "exit_code": result.exit_code,
        "waiting_for": None if waiting is None else waiting.kind,
        "prompt": None if waiting is None else waiting.prompt,
        "screen": None,
        "background": result.background or None,
        "processes": [f"{each.pid} {each.command}" for each in running] or None,
        "shell_restarted": result.shell_restarted or None,
    }
    if waiting is not None and waiting.kind == "keys":
        state["screen"] = (await shell.async_screen()).strip("\n") or None
    known = {name: value for name, value in state.items() if value is not None}
    output = result.output
    if result.exit_code and (hint := network_hint(shell.network, output)):
        output = f"{output.rstrip()}\n{hint}\n"
    return {"status": result.status, "output": output, "cwd": result.cwd, **known}


def _wait(seconds: int) -> dict[str, Plain]:
    return {
        "type": "number",
        "minimum": 0,
        "maximum": LONGEST,
        "default": seconds,
        "description": "Seconds after which the call returns even if the command continues.",
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
        "background": {**TEXT, "description": "Output of earlier jobs."},
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
        "Runs a command in a shell that keeps its directory, variables and jobs. Returns "
        "when it has ended, when it waits for input, or while it still runs: see "
        "'status'.",
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
"""The tools, with their arguments and results."""
