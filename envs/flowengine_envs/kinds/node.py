"""`node`: code in Node.js, each call in a process of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowengine.sdk import Command, EnvironmentUnavailable, Plain, StepContext
from flowengine.sdk.environments import Request, Spec, awaitable, blocking
from flowengine_envs.kinds.results import (
    CodeError,
    CodeResult,
    CommandResult,
    OnOutput,
    last_line,
    limit_met,
)
from flowengine_envs.kinds.steps import StepFiles, code_of, step_result
from flowengine_envs.kinds.supervised import Supervised, SupervisedProvider
from flowengine_envs.link import code_answers, plain
from flowengine_envs.link.call_limits import asked
from flowengine_envs.sandboxes.processes import has

if TYPE_CHECKING:
    from pydantic import BaseModel

LARGEST_VALUE = 1024 * 1024
"""Bytes of a value that comes back as data; a larger one comes as the beginning of its text."""
_HEAP_SHARE = 0.75
"""Part of the memory limit that objects of the code may take."""


class Node(Supervised):
    """Runs JavaScript; files last from call to call, names do not."""

    flags: Sequence[str] = ()
    """What its version of Node.js has to be told."""

    async def _run(
        self,
        code: str,
        inputs: Mapping[str, Plain] | None = None,
        timeout: float | None = None,
        module: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> CodeResult:
        """Run code. What goes wrong in it is in the result, not raised.

        The value is what the code returns, or the default export of a module. `await` may stand
        outside of functions.

        Args:
            code: The code: the body of a function with `inputs`, `require` and the other names of
                CommonJS, or a module.
            inputs: Plain data; the code finds it under the name `inputs`.
            timeout: Seconds; default: the spec's, or 30; the spec's is the most, `inf` asks for it.
            module: Whether the code is a module; default: what the spec says.
            on_output: Called with output as it comes.

        Returns:
            Output, value, error, exit code.

        Raises:
            ValidationError: The code is no text or too long, or the inputs are no plain data.
            EnvironmentLost: The sandbox has ended.
        """
        config = self.request.config
        given = {
            "code": code,
            "inputs": self.call_limits.encoded_inputs(code, inputs),
            "module": config.module if module is None else module,
            "largest": LARGEST_VALUE,
        }
        kills = self.sandbox.memory_kills()
        result, told = await self._program(
            [self.interpreter or config.node, *self._options(), "-e", _runner()],
            None,
            timeout,
            None,
            json.dumps(given).encode(),
            on_output,
            result=True,
        )
        killed = self.sandbox.memory_kills() > kills
        try:
            answer = _last(told)
        except code_answers.Broken as error:
            if result.exit_code != 0:
                return self._result(result, None, timeout, killed=killed)
            said = f"unexpected answer of the process: {error}"
            answer = {"error": CodeError("ProtocolError", said)._asdict()}
        return self._result(result, answer, timeout, killed=killed)

    run = blocking(_run)
    async_run = awaitable(_run)

    def _options(self) -> list[str]:
        memory = self.limits.memory
        if memory is None:
            return [*self.flags]
        return [*self.flags, f"--max-old-space-size={max(16, int(memory * _HEAP_SHARE) >> 20)}"]

    def _result(
        self,
        done: CommandResult,
        told: dict[str, Any] | None,
        timeout: float | None,
        *,
        killed: bool,
    ) -> CodeResult:
        error = None
        if done.stopped == "timeout":
            error = CodeError("Timeout", self.call_limits.too_long(timeout))
        elif done.stopped == "disk":
            error = CodeError("LimitExceeded", self.call_limits.disk_full())
        elif done.stopped is not None:
            error = CodeError("Cancelled", "it was cancelled")
        elif told is not None and "error" in told:
            error = CodeError(**told["error"])
        elif killed or "JavaScript heap out of memory" in done.stderr:
            error = CodeError("Crashed", self.call_limits.out_of_memory())
        elif done.signal is not None:
            error = CodeError("Crashed", f"the process was ended by signal {done.signal}")
        elif done.exit_code != 0:
            error = CodeError("Exited", f"the code ended the process with {done.exit_code}")
        no_memory = killed or "JavaScript heap out of memory" in done.stderr
        told = told or {}
        return CodeResult(
            limit=limit_met(done.stopped, out_of_memory=error is not None and no_memory),
            stdout=done.stdout,
            stderr=done.stderr,
            value=plain.decode(told["value"]) if error is None and "value" in told else None,
            text=told.get("text", "") if error is None else "",
            error=error,
            exit_code=done.exit_code if error is None or done.exit_code else 1,
            duration=done.duration,
            truncated=done.truncated,
            stdout_file=done.stdout_file,
            stderr_file=done.stderr_file,
        )


class NodeProvider(SupervisedProvider[Node]):
    """Opens Node runners."""

    kind = "node"
    live = True

    def config_model(self) -> type[BaseModel]:
        """Return the model of `config:`."""
        from flowengine_envs.kinds.configurations import NodeConfig

        return NodeConfig

    async def probe(self, spec: Spec) -> None:
        """Look for Node.js, where programs of this machine are run.

        Raises:
            EnvironmentUnavailable: It is not there.
        """
        await super().probe(spec)
        if spec.config.interpreter is not None:
            return
        program = spec.config.node
        if spec.provider in {"namespace", "host"} and "/" not in program and not has(program):
            raise EnvironmentUnavailable(
                f"{spec}: this machine has no {program}, required is {spec.config.min_version} or "
                "newer: apt-get install nodejs"
            )

    async def ensure(self, request: Request) -> Node:
        """Open a runner, and look which Node is there.

        Returns:
            The runner.

        Raises:
            EnvironmentUnavailable: There is none, or it is too old.
        """
        node = await self.open(request, Node)
        try:
            await _check_version(node, request)
        except BaseException:
            await node.close()
            raise
        return node

    async def run(self, resource: Node, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run the code of a step; `env` is what it finds as `inputs`."""
        files = StepFiles(resource, context)
        code = code_of(command, "node")
        inputs = {name: await files.place(value) for name, value in command.env.items()}
        result = await resource.async_run(
            code, inputs, asked(command.timeout), on_output=context.printed
        )
        return await step_result(files, command, result)


async def _check_version(node: Node, request: Request) -> None:
    wanted, own = request.config.min_version, node.interpreter
    program = own or request.config.node
    told = await node.program([program, "--version"], timeout=20)
    found = re.search(r"v(\d+(?:\.\d+)*)", told.stdout)
    if own is not None and (told.exit_code != 0 or found is None):
        raise EnvironmentUnavailable(
            f"{request.spec}: {program} is not a Node.js that runs in the sandbox: "
            f"{last_line(told)}"
        )
    if told.exit_code != 0 or found is None:
        raise EnvironmentUnavailable(
            f"{request.spec}: there is no {program} in the sandbox, required is {wanted} "
            "or newer: apt-get install nodejs"
        )
    if _numbers(found[1]) < _numbers(wanted):
        raise EnvironmentUnavailable(
            f"{request.spec}: {program} in the sandbox is version {found[1]}, required is {wanted} "
            "or newer"
        )
    node.flags = _flags(found[1])


def _flags(version: str) -> list[str]:
    """Return what a version needs so that scripts can `import()`."""
    return ["--experimental-vm-modules"] if _numbers(version) < (20, 10) else []


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@cache
def _runner() -> str:
    return Path(__file__).with_name("node_runner.cjs").read_text(encoding="utf-8")


def _last(data: bytes) -> dict[str, Any] | None:
    """Return what the runner said last, or None; code may have written there, too.

    Raises:
        Broken: Something is there, and none of it is an answer.
    """
    broken = None
    for line in reversed(data.splitlines()):
        try:
            return code_answers.check(code_answers.read(line))
        except code_answers.Broken as error:
            broken = broken or error
    if broken is not None:
        raise broken
    return None
