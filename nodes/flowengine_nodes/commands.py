"""`run` and `shell`: a command in an environment, as a step and as a tool."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from flowengine.sdk import (
    Command,
    ExitCode,
    LimitExceeded,
    OutOfMemory,
    Plain,
    StepContext,
    StepError,
    StepKind,
    Synonym,
    Timeout,
)

# Common part of `run` steps and `shell` tools: a command in an environment.

ACCEPT: dict[str, Plain] = {
    "description": "Exit codes that count as success, or `any`. Others raise `ExitCode`.",
    "anyOf": [
        {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}},
        {"const": "any"},
    ],
    "default": [0],
    "examples": [[0, 1], "any"],
}
ENV: dict[str, Plain] = {
    "description": "Values by name. Lists and maps become JSON, and `null` omits the name.",
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "default": {},
    "examples": [{"AMOUNT": "${{ inputs.amount }}", "TOKEN": "${{ secrets.TOKEN }}"}],
}
_FILE: dict[str, Plain] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "name": {"type": "string"},
        "size": {"type": "integer"},
        "sha256": {"type": "string"},
    },
    "required": ["path", "name", "size", "sha256"],
}
OUTPUT: dict[str, Plain] = {
    "type": "object",
    "properties": {
        "exit_code": {"type": "integer"},
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "value": {},
        "files": {
            "type": "object",
            "additionalProperties": {"anyOf": [_FILE, {"type": "array", "items": _FILE}]},
        },
        "limit": {"enum": ["time", "memory", "disk"]},
        "stdout_file": _FILE,
        "stderr_file": _FILE,
    },
    "required": ["exit_code", "stdout", "stderr", "value", "files"],
}


_NOT_FOUND = 127
"""Exit code of a shell whose program or script does not exist."""
_LIMITS: dict[Any, type[StepError]] = {
    "time": Timeout,
    "memory": OutOfMemory,
    "disk": LimitExceeded,
}
"""The limit that made a command fail → the error."""


class CommandKind(StepKind):
    """A step kind that runs a command in the environment of the step."""

    constants: ClassVar[tuple[str, ...]] = ("accept",)
    constants_hint = "pass values to a script in 'env', or use 'command'"
    secrets = ("env",)
    in_environment = True
    command = "command"
    foreign = True

    @classmethod
    def output(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the result."""
        return OUTPUT

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Run the command, and check its exit code.

        Args:
            context: The attempt.
            task: `script`, `accept`, `files`, `in`. All are optional.
            input: `command`, `env`, `stdin`, `cwd`. All are optional.

        Returns:
            `{exit_code, stdout, stderr, value, files}`.

        Raises:
            Timeout: A time limit ended it, and the exit code is not accepted.
            OutOfMemory: It ran out of memory, and the exit code is not accepted.
            LimitExceeded: A full workspace ended it, and the exit code is not accepted.
            ExitCode: The exit code is not accepted. The data of all four errors is the result.
        """
        place = context.environment(task.get("in") or "host")
        env: Mapping[str, Plain] = input.get("env") or {}
        if context.traceparent is not None:  # by which programs continue a trace
            env = {"TRACEPARENT": context.traceparent, **env}
        command = Command(
            script=task.get("script"),
            argv=input.get("command"),
            env=env,
            stdin=input.get("stdin"),
            cwd=input.get("cwd"),
            files=task.get("files") or {},
        )
        result = await place.run(context, command)
        accept = task.get("accept")
        if accept != "any" and result["exit_code"] not in (accept or (0,)):
            masked: Any = context.mask(result)  # before the message is cut out of it
            output = (masked["stderr"].strip() or masked["stdout"].strip()).splitlines()
            # The last line most likely contains the reason.
            last = f": {output[-1][:300]}" if output else ""
            message = f"exit code {masked['exit_code']}{last}"
            if result["exit_code"] == _NOT_FOUND and (task.get("in") or "host") == "host":
                message += f" ({_searched(command.cwd, context.execution.workdir)})"
            raise _LIMITS.get(result.get("limit"), ExitCode)(message, data=masked)
        return result

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return the outcome and the output of the command."""
        from flowengine_nodes.mcp import command_text

        return command_text(output)


def _searched(cwd: str | None, workdir: str) -> str:
    """Return the directory in which a command on this machine ran, and how to choose another."""
    if cwd is None:
        return f"it ran in an empty directory. 'cwd: .' is {workdir}, which --workdir names"
    return f"it ran in {os.path.join(workdir, cwd)}: 'cwd' is relative to the --workdir, {workdir}"


# `shell`: a command as a tool, with arguments from a caller.


class Shell(CommandKind):
    """Runs a program with arguments, never a text interpreted by a shell."""

    places = ("tool",)

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `shell`."""
        return {
            "type": "object",
            "x-main": "command",
            "properties": {
                "command": {
                    "description": "Program and arguments.",
                    "type": "array",
                    "minItems": 1,
                    "examples": [["wc", "-l", "${{ args.file }}"]],
                },
                "env": ENV,
                "in": {
                    "description": "The environment that it runs in. Default: `defaults.in` or "
                    "`host`.",
                    "anyOf": [
                        {"type": "string"},
                        {"type": "object", "minProperties": 1, "maxProperties": 1},
                    ],
                    "examples": ["box"],
                },
                "accept": ACCEPT,
            },
            "required": ["command"],
            "additionalProperties": False,
        }


# `run`: a script or command in an environment.


class Run(CommandKind):
    """Runs the author's script, or a command with its arguments."""

    places = ("step",)
    constants = ("script", "accept", "files")
    synonyms = (
        Synonym(
            "cmd bash shell sh code", "write 'script: …', or 'command: [program, …]'", "script"
        ),
        Synonym("argv args arguments", "write 'command: [program, …]'", "command"),
        Synonym("environment vars", "write 'env: {NAME: value}'", "env"),
        Synonym("working_directory working-directory workdir dir", "write 'cwd: FOLDER'", "cwd"),
    )

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `run`."""
        return {
            "type": "object",
            "x-main": "script",
            "properties": {
                "script": {
                    "type": "string",
                    "description": "Text for the environment's interpreter. It contains "
                    "no expressions. Use `env` to pass values.",
                    "examples": ["make test"],
                },
                "command": {
                    "description": "Program and arguments, instead of `script`, without "
                    "an interpreter.",
                    "type": "array",
                    "minItems": 1,
                    "examples": [["git", "clone", "${{ inputs.url }}"]],
                },
                "env": ENV,
                "stdin": {
                    "description": "Text, or a value that is passed as JSON.",
                    "examples": ["${{ steps.report.output }}"],
                },
                "files": {
                    "type": "object",
                    "description": "Name → path or glob of files that are kept when it ends.",
                    "additionalProperties": {"type": "string", "minLength": 1},
                    "default": {},
                    "examples": [{"report": "report.csv"}],
                },
                "accept": ACCEPT,
                "cwd": {
                    "type": "string",
                    "description": "Directory. On `host`, relative to the working "
                    "directory, and by default a fresh temporary one.",
                    "examples": ["."],
                },
            },
            "oneOf": [{"required": ["script"]}, {"required": ["command"]}],
            "additionalProperties": False,
        }
