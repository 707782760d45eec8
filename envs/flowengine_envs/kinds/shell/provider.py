"""The kind `shell`: a shell on a terminal, in which the commands of steps run."""

from __future__ import annotations

import shlex

from pydantic import BaseModel

from flowengine.sdk import (
    Command,
    EnvironmentUnavailable,
    Plain,
    StepContext,
    ValidationError,
)
from flowengine.sdk.environments import Screen, Spec
from flowengine.sdk.texts.visible_text import printable_lines
from flowengine_envs.kinds.configurations import ShellConfig
from flowengine_envs.kinds.results import CommandResult
from flowengine_envs.kinds.shell.result import step_code
from flowengine_envs.kinds.shell.session import Shell
from flowengine_envs.kinds.supervised import SupervisedProvider
from flowengine_envs.kinds.workspace import StepFiles, place_for_value
from flowengine_envs.link.call_limits import asked
from flowengine_envs.sandboxes.processes import has


class ShellProvider(SupervisedProvider[Shell]):
    """Opens shells."""

    kind = "shell"
    runs_programs = True
    live = True

    def config_model(self) -> type[BaseModel]:
        return ShellConfig

    async def probe(self, spec: Spec) -> None:
        """Look for tmux if programs run directly on this machine.

        Raises:
            EnvironmentUnavailable: tmux is not installed.
        """
        if spec.provider in {"namespace", "host"}:
            for name in ("tmux", "bash"):
                if not has(name):
                    raise EnvironmentUnavailable(
                        f"{spec}: this machine has no {name}: apt-get install {name}"
                    )

    async def screen(self, resource: Shell) -> Screen:
        """Return the lines of its first terminal, which is only read."""
        return Screen(printable_lines(await resource._screen()).rstrip())

    async def run(
        self, resource: Shell, context: StepContext, command: Command
    ) -> dict[str, Plain]:
        """Run the command of a step with `env` exported. Its changes to the shell persist."""
        files = StepFiles(resource, context)
        if command.stdin is not None:
            raise ValidationError("'shell' has no 'stdin': pass values with 'env' or a file")
        place, env = await place_for_value(files, command)
        lines = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
        if command.cwd is not None:
            lines.append(f"cd {shlex.quote(resource._directory(command.cwd))} || \\return")
        if command.script is not None:
            lines.append(command.script)
        else:
            lines.append(shlex.join([await files.argument(word) for word in command.argv or ()]))
        result = await resource.async_run_in_turn(
            "\n".join(lines), context.printed, asked(command.timeout)
        )
        ended = [] if result.status == "done" else [f"the command ended as {result.status}"]
        told = CommandResult(
            exit_code=step_code(result),
            stdout=result.output,
            stderr="".join(f"{note}\n" for note in [*ended, *result.notes]),
            timed_out=result.status == "timeout",
            truncated=bool(result.left_out),
            duration=result.duration,
            limit=result.limit,
        )
        return await files.output(command, told, told.stderr, place=place)
