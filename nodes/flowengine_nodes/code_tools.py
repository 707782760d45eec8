"""`std` tools that run a caller's commands, code or SQL in an environment of the flow."""

from __future__ import annotations

from typing import Any

from flowengine.sdk import Command, Plain, StepContext, Tool, ToolError
from flowengine.sdk.tools.schemas import FLAG, TEXT, WHOLE, listed, record

TIMEOUT = 120
"""Seconds, if the caller sets no timeout."""
LONGEST = 3600


_RUNS = {
    "run_command": ("shell", "command"),
    "run_python": ("python", "code"),
    "run_javascript": ("node", "code"),
    "query_database": ("database", "sql"),
}
"""Tool → the name under which it finds its environment, and the argument with the code."""


async def call(context: StepContext, tool: str, args: dict[str, Any]) -> Plain:
    """Call one of these tools.

    Args:
        context: The attempt.
        tool: Its name.
        args: Its arguments.
    """
    place, code = _RUNS[tool]
    is_query = tool == "query_database"
    command = Command(
        script=args[code],
        argv=None,
        env=args.get("parameters") or {},
        stdin=None,
        cwd=None,
        files={},
        timeout=None if is_query else args.get("timeout", TIMEOUT),
    )
    result = await context.environment(place).run(context, command)
    if is_query:
        if result["exit_code"] != 0:  # The database refused it.
            raise ToolError(result["stderr"], retryable=False)
        return {"rows": result["value"], "truncated": bool(result["stderr"])}
    shown = ("exit_code", "stdout", "stderr", "stdout_file", "stderr_file")
    parts = {name: result[name] for name in shown if name in result}
    if tool != "run_command":
        parts["value"] = result["value"]
    return parts


_FILE: dict[str, Plain] = {"type": "object"}
_SECONDS: dict[str, Plain] = {
    "type": "number",
    "exclusiveMinimum": 0,
    "maximum": LONGEST,
    "default": TIMEOUT,
    "description": "Seconds after which it is stopped.",
}
_DONE: dict[str, Plain] = {
    "exit_code": WHOLE,
    "stdout": TEXT,
    "stderr": TEXT,
    "stdout_file": _FILE,
    "stderr_file": _FILE,
}


def _code(language: str, more: str, place: str, opened: str) -> Tool:
    return {
        "description": f"Runs {language} code. Returns its output and its value: {more}",
        "args": record({"code": TEXT, "timeout": _SECONDS}, ["code"]),
        "returns": record({**_DONE, "value": {}}, ["exit_code", "stdout", "stderr", "value"]),
        "effect": "once",
        "environments": {place: [opened]},
    }


TOOLS: dict[str, Tool] = {
    "run_command": {
        "description": "Runs a shell command. Returns its exit code and output.",
        "args": record({"command": TEXT, "timeout": _SECONDS}, ["command"]),
        "returns": record(_DONE, ["exit_code", "stdout", "stderr"]),
        "effect": "once",
        "environments": {
            "shell": [
                "flowengine_envs.kinds.shell.session.Shell",
                "flowengine_envs.kinds.bash.Bash",
                "flowengine_envs.kinds.docker.containers.Containers",
            ]
        },
    },
    "run_python": _code(
        "Python",
        "the last expression, or the name '_result'. Names last from call to call.",
        "python",
        "flowengine_envs.kinds.python.PythonSandbox",
    ),
    "run_javascript": _code(
        "JavaScript", "its return value.", "node", "flowengine_envs.kinds.node.NodeSandbox"
    ),
    "query_database": {
        "description": "Runs one SQL statement in a SQLite database. Gives its rows.",
        "args": record(
            {
                "sql": {**TEXT, "description": "One statement. ':name' is a parameter."},
                "parameters": {
                    "type": "object",
                    "description": "Values by the names in the statement.",
                },
            },
            ["sql"],
        ),
        "returns": record({"rows": listed({"type": "object"}), "truncated": FLAG}),
        "effect": "once",
        "environments": {"database": ["flowengine_envs.kinds.sqlite.Database"]},
    },
}
"""The tools, with their arguments and results."""
