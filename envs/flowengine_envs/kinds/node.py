"""`node`: code in Node.js, each call in its own process."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flowengine.sdk import EnvironmentUnavailable, Plain
from flowengine.sdk.environments import Spec, both_forms
from flowengine_envs.kinds.code import CodeProvider, stopped_error
from flowengine_envs.kinds.configurations import NodeConfig
from flowengine_envs.kinds.results import (
    CodeError,
    CodeResult,
    CommandResult,
    OnOutput,
    last_line,
    limit_met,
)
from flowengine_envs.kinds.supervised import Supervised
from flowengine_envs.link import code_answers, plain
from flowengine_envs.sandboxes.processes import has

LARGEST_VALUE = 1024 * 1024
"""Maximum bytes of a value returned as data. A larger one is returned as truncated text."""
_HEAP_SHARE = 0.75
"""Share of the memory limit that the code's heap may use."""


class NodeSandbox(Supervised):
    """Runs JavaScript. Files persist between calls, but names do not."""

    flags: Sequence[str] = ()
    """Command-line flags that its version of Node.js needs."""

    async def _run(
        self,
        code: str,
        inputs: Mapping[str, Plain] | None = None,
        timeout: float | None = None,
        module: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> CodeResult:
        """Run code. Errors in the code are part of the result and are not raised.

        The value is the return value of the code, or the default export of a module. `await` may be
        used outside functions.

        Args:
            code: The body of a function with `inputs`, `require` and the other CommonJS names, or a
                module.
            inputs: Plain data, available to the code as `inputs`.
            timeout: Seconds. Default: the spec's, or 30. Maximum: the spec's, which `inf` selects.
            module: Whether the code is a module. Default: the spec's setting.
            on_output: Called with output as it arrives.

        Returns:
            Output, value, error, exit code.

        Raises:
            ValidationError: The code is not text or is too long, or the inputs are not plain data.
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
        result, data = await self._program(
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
            answer = _last(data)
        except code_answers.Broken as error:
            if result.exit_code != 0:
                return self._result(result, None, timeout, killed=killed)
            message = f"unexpected answer of the process: {error}"
            answer = {"error": CodeError("ProtocolError", message)._asdict()}
        return self._result(result, answer, timeout, killed=killed)

    run, async_run = both_forms(_run)

    async def start(self, deadline: float) -> None:
        """Determine the version of Node.js.

        Raises:
            EnvironmentUnavailable: Node.js is missing or too old.
        """
        spec, wanted = self.request.spec, self.request.config.min_version
        program = self.interpreter or self.request.config.node
        done = await self.program([program, "--version"], timeout=20)
        match = re.search(r"v(\d+(?:\.\d+)*)", done.stdout) if done.exit_code == 0 else None
        if match is None and self.interpreter is not None:
            raise EnvironmentUnavailable(
                f"{spec}: {program} is not a Node.js that runs in the sandbox: {last_line(done)}"
            )
        if match is None:
            raise EnvironmentUnavailable(
                f"{spec}: there is no {program} in the sandbox, required is {wanted} "
                "or newer: apt-get install nodejs"
            )
        if _numbers(match[1]) < _numbers(wanted):
            raise EnvironmentUnavailable(
                f"{spec}: {program} in the sandbox is version {match[1]}, required is {wanted} "
                "or newer"
            )
        self.flags = ["--experimental-vm-modules"] if _numbers(match[1]) < (20, 10) else []

    def _options(self) -> list[str]:
        memory = self.limits.memory
        if memory is None:
            return [*self.flags]
        return [*self.flags, f"--max-old-space-size={max(16, int(memory * _HEAP_SHARE) >> 20)}"]

    def _result(
        self,
        done: CommandResult,
        answer: dict[str, Any] | None,
        timeout: float | None,
        *,
        killed: bool,
    ) -> CodeResult:
        error = stopped_error(self.call_limits, done.stopped, timeout)
        raised = dict((answer or {}).get("error") or {})
        file_is_full = raised.pop("file_is_full", False)
        if error is not None:
            pass  # it was stopped
        elif raised:
            error = CodeError(**raised)
            if file_is_full:
                message = f"{error}: {self.call_limits.file_too_large()}"
                error = error._replace(type="LimitExceeded", message=message)
        elif killed or "JavaScript heap out of memory" in done.stderr:
            error = CodeError("Crashed", self.call_limits.out_of_memory())
        elif done.signal is not None:
            error = CodeError("Crashed", f"the process was ended by signal {done.signal}")
        elif done.exit_code != 0:
            error = CodeError("Exited", f"the code ended the process with {done.exit_code}")
        no_memory = killed or "JavaScript heap out of memory" in done.stderr
        answer = answer or {}
        return CodeResult(
            limit=limit_met(
                done.stopped,
                out_of_memory=error is not None and no_memory,
                file_is_full=file_is_full,
            ),
            stdout=done.stdout,
            stderr=done.stderr,
            value=plain.decode(answer["value"]) if error is None and "value" in answer else None,
            text=answer.get("text", "") if error is None else "",
            error=error,
            exit_code=done.exit_code if error is None or done.exit_code else 1,
            duration=done.duration,
            truncated=done.truncated,
            stdout_file=done.stdout_file,
            stderr_file=done.stderr_file,
        )


class NodeProvider(CodeProvider[NodeSandbox]):
    """Opens Node runners."""

    kind = "node"

    def config_model(self) -> type[BaseModel]:
        return NodeConfig

    async def probe(self, spec: Spec) -> None:
        """Look for Node.js if programs run directly on this machine.

        Raises:
            EnvironmentUnavailable: Node.js is not installed.
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


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@cache
def _runner() -> str:
    return Path(__file__).with_name("node_runner.cjs").read_text(encoding="utf-8")


def _last(data: bytes) -> dict[str, Any] | None:
    """Return the runner's last answer, or None. Code may have written to the same descriptor.

    Raises:
        Broken: There is data, but it contains no answer.
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
