"""`bash`: commands, each in its own process tree, which ends with the command."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from flowengine.sdk import (
    Command,
    EnvironmentUnavailable,
    Plain,
    Refused,
    StepContext,
)
from flowengine.sdk.environments import Capabilities, Request, Sandbox, Spec, both_forms
from flowengine.sdk.tools.command_rules import check
from flowengine_envs.kinds.configurations import BashPolicy
from flowengine_envs.kinds.results import CommandResult, OnOutput
from flowengine_envs.kinds.supervised import Supervised, SupervisedProvider
from flowengine_envs.kinds.workspace import StepFiles, place_for_value
from flowengine_envs.link.call_limits import asked
from flowengine_envs.link.channel import Channel

SHELL = ("bash", "--noprofile", "--norc", "-c")


class Bash(Supervised):
    """Runs commands, any number of them concurrently and independently.

    Args:
        sandbox: The open sandbox.
    """

    def __init__(self, request: Request, sandbox: Sandbox, channel: Channel) -> None:
        super().__init__(request, sandbox, channel)
        self._allow: Sequence[str] | None = request.policy.allow
        root = request.policy.root
        self.root = sandbox.workdir if root is None else _below(request.spec, sandbox.workdir, root)
        """Absolute directory inside the sandbox that `cwd` must not leave."""
        self._rooted = root is not None
        self.confined = request.policy.confine if self._rooted else None
        """`root`: commands cannot read anything outside it. `cwd`: commands only start in it."""

    async def _run(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command to its end, which also ends every process that it started.

        Args:
            command: Text that bash interprets, or a list of words that are run without a shell.
            cwd: Working directory. Default: the policy's root, or else the workspace.
            timeout: Seconds. Default: the spec's, or 30. Maximum: the spec's, which `inf` selects.
            env: Variables in addition to the declared ones.
            stdin: Standard input. None: no input.
            on_output: Called with output as it arrives.

        Returns:
            Exit code and output. A failing command is also a result.

        Raises:
            Refused: The policy does not allow the command. Nothing was started.
            ValidationError: The command is invalid.
            EnvironmentLost: The sandbox has ended.
        """
        argv = self._words(command, env)
        data = stdin.encode() if isinstance(stdin, str) else stdin
        return await self.program(
            argv,
            cwd=self._checked_folder(cwd),
            timeout=timeout,
            env=env,
            stdin=data,
            on_output=on_output,
        )

    run, async_run = both_forms(_run)

    def _words(self, command: str | Sequence[str], env: Mapping[str, str] | None) -> list[str]:
        """Return the words to start, or raise `Refused` if the policy does not allow them."""
        if self._allow is None:
            return [*SHELL, command] if isinstance(command, str) else list(command)
        if env:
            raise Refused(
                f"{self.name}: policy 'allow': a call cannot set variables ({', '.join(env)}): "
                "declare them in the spec"
            )
        return check(command, self._allow, self.name)

    def _checked_folder(self, cwd: str | None) -> str:
        folder = self.root if cwd is None else posixpath.join(self.root, cwd)
        if self._rooted and not _is_below(folder, self.root):
            raise Refused(f"{self.name}: cwd {cwd!r} is outside the policy's root {self.root}")
        return folder


class BashProvider(SupervisedProvider[Bash]):
    """Opens command runners."""

    kind = "bash"
    runs_programs = True

    def policy_model(self) -> type[BaseModel]:
        return BashPolicy

    async def ensure(self, request: Request) -> Bash:
        """Open a runner.

        Returns:
            The runner.

        Raises:
            EnvironmentUnavailable: The policy's root cannot be enforced.
        """
        assert request.sandbox is not None
        _check_root(request, request.sandbox.capabilities())
        return await super().ensure(request)

    async def run(self, resource: Bash, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run the command of a step. Its value is the JSON that it writes to `$FLOW_OUTPUT`."""
        files = StepFiles(resource, context)
        place, env = await place_for_value(files, command)

        async def run_it() -> CommandResult:
            given: str | list[str] | None = command.script
            if given is None:
                given = [await files.argument(word) for word in command.argv or ()]
            return await resource.program(
                resource._words(given, None),
                cwd=resource._checked_folder(command.cwd),
                timeout=asked(command.timeout),
                env=env,
                stdin=await files.data(command.stdin),
                on_output=context.printed,
            )

        result = await resource._call(run_it)
        stderr = result.stderr + resource.call_limits.stopped(result.stopped, command.timeout)
        cwd = posixpath.relpath(resource._checked_folder(command.cwd), resource.sandbox.workdir)
        return await files.output(command, result, stderr, place=place, cwd=cwd)


def _check_root(request: Request, held: Capabilities) -> None:
    """Refuse a root that commands can read beyond, unless the spec accepts that."""
    policy = request.policy
    if policy.root is None or policy.confine == "cwd":
        return
    if held.isolation == "none":
        raise EnvironmentUnavailable(
            f"{request.spec}: commands on 'host' can read outside of the policy's root: use "
            "provider: namespace or docker, or set confine: cwd"
        )
    if posixpath.normpath(policy.root) not in {".", "/workspace"}:
        raise EnvironmentUnavailable(
            f"{request.spec}: commands can read all of the workspace, also outside of the policy's "
            f"root {policy.root}; if that is acceptable, set confine: cwd"
        )


def _below(spec: Spec, workdir: str, root: str) -> str:
    folder = posixpath.normpath(posixpath.join(workdir, root))
    if not _is_below(folder, workdir):
        raise EnvironmentUnavailable(
            f"{spec}: policy root {root!r} is not in the workspace {workdir}: "
            "name a directory in it"
        )
    return folder


def _is_below(path: str, root: str) -> bool:
    path = posixpath.normpath(path)
    return path == root or path.startswith(root.rstrip("/") + "/")
