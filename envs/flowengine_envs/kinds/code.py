"""Shared code of the kinds that run code: how a step runs it, and why it was stopped."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from flowengine.sdk import Command, Plain, StepContext, ValidationError
from flowengine_envs.kinds.results import CodeError, CodeResult
from flowengine_envs.kinds.supervised import Supervised, SupervisedProvider
from flowengine_envs.kinds.workspace import StepFiles
from flowengine_envs.link.call_limits import CallLimits, asked

_Code = TypeVar("_Code", bound=Supervised)


class CodeProvider(SupervisedProvider[_Code]):
    """Base of providers whose resource runs code."""

    live = True

    async def run(
        self, resource: _Code, context: StepContext, command: Command
    ) -> dict[str, Plain]:
        """Run the code of a step, with `env` as its `inputs`.

        An error is exit code 1 and text in `stderr`. Its last line names the limit that ended the
        code.

        Raises:
            ValidationError: It has `argv`, `stdin` or `cwd`, which have no meaning here.
        """
        if command.script is None:
            raise ValidationError(
                f"'{self.kind}' runs a script: 'command' belongs to bash and docker"
            )
        for name, value in (("stdin", command.stdin), ("cwd", command.cwd)):
            if value is not None:
                raise ValidationError(f"'{self.kind}' has no '{name}': pass values with 'env'")
        files, sandbox = StepFiles(resource, context), cast("Any", resource)
        inputs = {name: await files.place(value) for name, value in command.env.items()}
        result: CodeResult = await sandbox.async_run(
            command.script, inputs, asked(command.timeout), on_output=context.printed
        )
        stderr = result.stderr
        if result.error is not None and (result.limit or not result.error.traceback):
            stderr += f"{result.error}\n"
        value = result.text if result.value is None and result.text else result.value
        return await files.output(command, result, stderr, value=value)


def stopped_error(
    limits: CallLimits, stopped: str | None, timeout: float | None
) -> CodeError | None:
    """Return the error of code that was stopped, or None.

    Args:
        limits: Those of its calls.
        stopped: Why it was stopped, if it was.
        timeout: The timeout of the call.
    """
    if stopped == "timeout":
        return CodeError("Timeout", limits.too_long(timeout))
    if stopped == "disk":
        return CodeError("LimitExceeded", limits.disk_full())
    return None if stopped is None else CodeError("Cancelled", "it was cancelled")
