"""`bash`: commands, each in a process tree of its own that ends with it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flowengine.sdk import (
    Command,
    EnvironmentUnavailable,
    Plain,
    Refused,
    StepContext,
)
from flowengine.sdk.command_rules import check
from flowengine.sdk.environments import Capabilities, Request, Sandbox, Spec, awaitable, blocking
from flowengine_envs.kinds.results import CommandResult, OnOutput
from flowengine_envs.kinds.steps import StepFiles, add_outputs, place_for_value, step_value
from flowengine_envs.kinds.supervised import Supervised, SupervisedProvider
from flowengine_envs.link.call_limits import asked
from flowengine_envs.link.channel import Channel

if TYPE_CHECKING:
    from pydantic import BaseModel

SHELL = ("bash", "--noprofile", "--norc", "-c")


class Bash(Supervised):
    """Runs commands; any number at once, none knowing of another.

    Args:
        sandbox: The open sandbox.
    """

    def __init__(self, request: Request, sandbox: Sandbox, channel: Channel) -> None:
        super().__init__(request, sandbox, channel)
        self._allow: Sequence[str] | None = request.policy.allow
        root = request.policy.root
        self.root = sandbox.workdir if root is None else _below(request.spec, sandbox.workdir, root)
        """Folder inside that `cwd` must not leave; absolute."""
        self._rooted = root is not None
        self.confined = request.policy.confine if self._rooted else None
        """`root`: commands can read nothing outside of it; `cwd`: they begin there."""

    async def _run(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command to its end; whatever it started ends with it.

        Args:
            command: A text that bash reads, or a list of words that no shell reads.
            cwd: Working directory; default: the root of the policy, else the workspace.
            timeout: Seconds; default: the spec's, or 30; the spec's is the most, `inf` asks for it.
            env: Variables beside the declared ones.
            stdin: What it reads; None: nothing.
            on_output: Called with output as it comes.

        Returns:
            Exit code and output. A command that fails is a result, too.

        Raises:
            Refused: The policy does not allow it; nothing was started.
            ValidationError: It is no command.
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

    run = blocking(_run)
    async_run = awaitable(_run)

    def _words(self, command: str | Sequence[str], env: Mapping[str, str] | None) -> list[str]:
        """Return what is started; `Refused` if the policy does not allow it."""
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
        """Return the model of `policy:`."""
        from flowengine_envs.kinds.configurations import BashPolicy

        return BashPolicy

    async def ensure(self, request: Request) -> Bash:
        """Open a runner.

        Returns:
            The runner.

        Raises:
            EnvironmentUnavailable: The policy's root cannot be held.
        """
        assert request.sandbox is not None
        _check_root(request, request.sandbox.capabilities())
        return await self.open(request, Bash)

    async def run(self, resource: Bash, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run the command of a step; what it writes as JSON to `$FLOW_OUTPUT` is its value."""
        files = StepFiles(resource, context)
        place, env = await place_for_value(files, command)
        result = await resource._call(lambda: _run_step(resource, files, command, env))
        told: dict[str, Plain] = {
            "exit_code": result.exit_code,
            "stdout": result.stdout,
            "stderr": result.stderr + resource.call_limits.stopped(result.stopped, command.timeout),
            "value": await step_value(resource, place, failed=result.exit_code != 0),
        }
        await add_outputs(files, result, told)
        cwd = posixpath.relpath(resource._checked_folder(command.cwd), resource.sandbox.workdir)
        told["files"] = await files.keep(command, cwd, failed=result.exit_code != 0)
        return told


async def _run_step(
    resource: Bash, files: StepFiles, command: Command, env: Mapping[str, str]
) -> CommandResult:
    if command.script is not None:
        words = resource._words(command.script, None)
    else:
        given = [await files.argument(word) for word in command.argv or ()]
        words = resource._words(given, None)
    return await resource.program(
        words,
        cwd=resource._checked_folder(command.cwd),
        timeout=asked(command.timeout),
        env=env,
        stdin=await files.data(command.stdin),
        on_output=files.context.printed,
    )


def _check_root(request: Request, held: Capabilities) -> None:
    """Refuse a root that commands could read out of, unless the spec says that this is enough."""
    policy = request.policy
    if policy.root is None or policy.confine == "cwd":
        return
    if held.isolation == "none":
        raise EnvironmentUnavailable(
            f"{request.spec}: commands on 'host' can read outside of the policy's root; take "
            "provider: namespace or docker, or say confine: cwd"
        )
    if posixpath.normpath(policy.root) not in {".", "/workspace"}:
        raise EnvironmentUnavailable(
            f"{request.spec}: commands can read all of the workspace, also outside of the policy's "
            f"root {policy.root}; if that is acceptable, say confine: cwd"
        )


def _below(spec: Spec, workdir: str, root: str) -> str:
    folder = posixpath.normpath(posixpath.join(workdir, root))
    if not _is_below(folder, workdir):
        raise EnvironmentUnavailable(
            f"{spec}: policy root {root!r} is not in the workspace {workdir}; name a folder in it"
        )
    return folder


def _is_below(path: str, root: str) -> bool:
    path = posixpath.normpath(path)
    return path == root or path.startswith(root.rstrip("/") + "/")
