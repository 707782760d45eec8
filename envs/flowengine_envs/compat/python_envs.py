"""`DockerEnv`, `LocalEnv`, `with_env`: a Python sandbox as one object that its user opens.

They are thin: the resource of the kind `python`, in the same sandboxes, without a manager. If their
process is killed, their remaining resources are cleaned up like those of every other environment.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import platform
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from flowengine.sdk import EnvironmentClosed, EnvironmentLost, Refused, ValidationError
from flowengine.sdk.environments import (
    Provider,
    Request,
    Resource,
    Sandbox,
    Spec,
    background,
    both_forms,
)
from flowengine.sdk.environments.models import Config, Duration, ResourceLimits
from flowengine.sdk.environments.sandboxes import with_sandboxes
from flowengine.sdk.processes import (
    close_at_exit,
    forget,
    make_scratch,
    remove_scratch,
    this_process,
)
from flowengine_envs.kinds.bash import SHELL
from flowengine_envs.kinds.python import Python, PythonSandbox
from flowengine_envs.sandboxes.docker.building import Container
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.mounts import check
from flowengine_envs.sandboxes.namespace import Namespace

_Live = TypeVar("_Live", bound=Resource)
_Result = TypeVar("_Result")

_log = logging.getLogger("flowengine.environments")
_SECONDS = 120.0
"""Seconds within which it must open."""


class Unmanaged(Generic[_Live]):
    """An environment opened on first use, and again after it was lost.

    Args:
        sandbox: Kind of the sandbox.
        workspace: Its working directory, created if it does not exist.
        config: As `config` of the kind.
        network: Places that it may reach, as in `policy`.
        limits: Its limits.
    """

    _provider: ClassVar[type[Provider[Any]]]
    _how_to_open: ClassVar[str] = "use it first"

    def __init__(
        self,
        sandbox: type[Sandbox],
        workspace: str,
        *,
        config: Mapping[str, Any] | None = None,
        network: str | Sequence[str] | None = None,
        limits: ResourceLimits | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._config = dict(config or {})
        self._policy: dict[str, Any] = {}
        if network is not None:
            self._policy["network"] = network if isinstance(network, str) else [*network]
        self._limits = limits or ResourceLimits()
        self.generation = 0
        """Number of times that it was opened."""
        self._resource: _Live | None = None
        self._closed = False
        self._home: Path | None = None
        self._opening = asyncio.Lock()
        self.pid = os.getpid()
        """The process that opened it."""

    def __exit__(self, *error: object) -> None:
        self.close()

    def check_open(self) -> None:
        """Do nothing. The first call opens it."""

    async def _call(self, verb: Callable[[], Awaitable[_Result]]) -> _Result:
        return await verb()

    @property
    def resource(self) -> _Live:
        """The underlying resource with all its methods.

        Raises:
            EnvironmentClosed: It is not open.
        """
        if self._resource is None:
            raise EnvironmentClosed(f"{type(self).__name__} is not open: {self._how_to_open}")
        return self._resource

    @property
    def _folder(self) -> str:
        """Path of its working directory."""
        return os.path.abspath(os.path.expanduser(self._workspace))

    def _from_workspace(self, path: str) -> str:
        """Return a path relative to the workspace, for the resource.

        Callers may also use the path that they see themselves: `workspace/report.pdf`. An entry of
        the workspace with the given path takes precedence.
        """
        folder = self._folder
        seen = os.path.abspath(path)
        below = seen == folder or seen.startswith(f"{folder}/")
        if os.path.isabs(path) or not below or os.path.lexists(os.path.join(folder, path)):
            return path
        return os.path.relpath(seen, folder)

    async def _ready(self) -> _Live:
        async with self._opening:
            if self._closed:
                raise EnvironmentClosed(f"{type(self).__name__} was closed")
            provider = self._provider()
            if self._resource is not None:
                if provider.health_check(self._resource):
                    return self._resource
                self._resource.check_open()
                await provider.release(self._resource)
                self._resource = None
            request = self._request()
            await self._sandbox.probe(request.spec)
            await provider.probe(request.spec)
            self._resource = await provider.ensure(request)
            self.generation = request.generation
            return self._resource

    async def _close(self) -> None:
        """End it and all processes that it started. Closing again does nothing."""
        self._closed = True
        resource, self._resource = self._resource, None
        try:
            if resource is not None:
                await resource.finish(0.0)
                await self._provider().release(resource)
        finally:
            forget(self)
            if self._home is not None:
                await asyncio.to_thread(remove_scratch, self._home)
                self._home = None

    close, async_close = both_forms(_close)

    def _request(self) -> Request:
        """Return the request that a manager would send to its provider."""
        provider = self._provider()
        config = with_sandboxes(provider.config_model(), [self._sandbox])(**self._config)
        policy, limits = provider.policy_model()(**self._policy), self._limits
        name, id = type(self).__name__, uuid.uuid4().hex
        spec = Spec(
            id, provider.kind, "global", "", name, self._sandbox.name, config, policy, limits, {}
        )
        workspace = Path(self._folder)
        workspace.mkdir(parents=True, exist_ok=True)
        if self._home is None:
            self._home, self.pid = make_scratch(), os.getpid()
            close_at_exit(self)
        owner = this_process()
        return Request(
            spec,
            id,
            self.generation + 1,
            config,
            policy,
            limits,
            workspace.resolve(),
            self._home,
            self._sandbox,
            {},
            owner,
            f"{name}.{owner.pid}",
            f"{id}@{name}",
            _not_written_down,
            background().loop.time() + _SECONDS,
            logging.LoggerAdapter(_log, {}),
        )


SANDBOXES: Mapping[str, type[Sandbox]] = {"namespace": Namespace, "host": HostSandbox}


def sandbox_of(provider: str) -> type[Sandbox]:
    """Return the sandbox of a provider that needs no daemon.

    Raises:
        ValidationError: The provider is a different one.
    """
    if provider not in SANDBOXES:
        raise ValidationError(f"provider is 'namespace' or 'host', not {provider!r}")
    return SANDBOXES[provider]


def _not_written_down(**facts: Any) -> None:
    """Do nothing: containers carry labels, and processes end with this one."""


_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_AGAIN = "the sandbox was lost and reopened: earlier names are gone\n"
_GONE = "earlier names are gone\n"


def _mountable(value: str) -> str:
    try:
        check(Path(os.path.abspath(os.path.expanduser(value))))
    except Refused as refused:
        raise PydanticCustomError("mount", "{told}", {"told": refused.message}) from None
    return value


class LocalConfig(Config):
    """The settings of a `LocalEnv`."""

    workspace_mount: Annotated[str, AfterValidator(_mountable)] = "./workspace"
    """Directory on this machine that code reads and writes, created if it does not exist."""
    timeout: Duration = 30.0
    """Default and maximum seconds of a call."""
    limits: ResourceLimits = Field(default_factory=ResourceLimits)
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the code, which inherits none from this process."""


class DockerConfig(LocalConfig, Container):
    """The settings of a `DockerEnv`."""

    tcp_port: Annotated[int, Field(ge=1, le=65535)] = 12346
    """Kept for programs that set it.

    Nothing listens in the container and no port is published. The engine communicates over the
    streams of the first program.
    """
    platform: Annotated[str, Field(min_length=1)] | None = "linux/amd64"
    """Used if it is set or an image is named."""


class Execution(NamedTuple):
    """The result of `execute_code`."""

    stdout: str
    stderr: str
    result: str
    """`_result` or the last expression as text, `""`, or `Error: ...`."""


class _Env(Unmanaged[PythonSandbox]):
    """A Python sandbox, opened by `init_container` or on first use."""

    _provider = Python
    _how_to_open = "call init_container()"

    def __init__(self, sandbox: type[Sandbox], config: LocalConfig, **more: Any) -> None:
        self.config = config
        limits = config.limits.model_copy(update={"time": config.timeout})
        made = {"env": config.env, **more}
        super().__init__(sandbox, config.workspace_mount, config=made, limits=limits)

    def __enter__(self) -> Any:
        self.init_container()
        return self

    async def _init_container(self) -> None:
        """Open it, unless it is open.

        Raises:
            EnvironmentUnavailable: This machine cannot provide it.
            EnvironmentStartFailed: It did not start.
            EnvironmentClosed: It was closed.
        """
        await self._ready()

    init_container, async_init_container = both_forms(_init_container)

    async def _execute_code(self, code: str, timeout: float | None = None) -> Execution:
        """Run code. Names persist between calls, and errors in the code are part of the result.

        Args:
            code: The code.
            timeout: Seconds. Default and maximum: the configuration's.

        Returns:
            `(stdout, stderr, result)`.

        Raises:
            EnvironmentLost: The sandbox ended during the call. The next call opens a new one.
            ValidationError: The code is not text.
        """
        again = self._resource is not None and not self._resource.healthy
        resource = await self._ready()
        done = await resource._call(lambda: resource._run(code, timeout=timeout))
        before, after = _AGAIN if again else "", _GONE if done.namespace_lost else ""
        result = done.text if done.error is None else f"Error: {done.error}"
        return Execution(done.stdout, f"{before}{done.stderr}{after}", result)

    execute_code, async_execute_code = both_forms(_execute_code)

    async def _run_command(
        self,
        command: str,
        stream_callback: Callable[[str], object] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Run a command line with bash in the same sandbox. Its descendants end with it.

        Args:
            command: The command line.
            stream_callback: Called with output as it arrives.
            timeout: Seconds. Default and maximum: the configuration's.

        Returns:
            `{"status": …, "result": …}`: exit code, and output and errors in their order.

        Raises:
            EnvironmentLost: The sandbox ended during the call. The next call opens a new one.
            ValidationError: The command is not text.
        """
        if not isinstance(command, str):
            raise ValidationError(f"a command is text, not {command!r:.50}")

        def on_output(_stream: str, text: str) -> None:
            if stream_callback is not None:
                stream_callback(text)

        argv = [*SHELL, f"exec 2>&1\n{command}"]
        resource = await self._ready()
        done, _ = await resource._call(
            lambda: resource._program(argv, None, timeout, None, None, on_output)
        )
        late = f"{resource.call_limits.too_long(timeout)}\n" if done.timed_out else ""
        return {"status": done.exit_code, "result": done.stdout + done.stderr + late}

    run_command, async_run_command = both_forms(_run_command)


class DockerEnv(_Env):
    """A Python sandbox in a container. Creating one contacts nothing.

    Args:
        config: Its settings. Default: `DockerConfig()`.
    """

    def __init__(self, config: DockerConfig | None = None) -> None:
        config = config or DockerConfig()
        asked = {name: getattr(config, name) for name in sorted(Container.model_fields)}
        if config.image is None and "platform" not in config.model_fields_set:
            asked["platform"] = None
        machine = platform.machine()
        wanted, here = asked["platform"], f"linux/{_MACHINES.get(machine, machine)}"
        if wanted is not None and wanted != here:
            _log.warning("DockerEnv: the platform asked for is %s, this one is %s", wanted, here)
        super().__init__(Docker, config, **asked)


class LocalEnv(_Env):
    """A Python sandbox of processes on this machine, without isolation.

    It logs a warning at each start. Code runs in the interpreter of this process, so it can import
    everything in this process's virtual environment.

    Args:
        config: Its settings. Default: `LocalConfig()`.
    """

    def __init__(self, config: LocalConfig | None = None) -> None:
        super().__init__(HostSandbox, config or LocalConfig(), interpreter=sys.executable or None)


_Tool = TypeVar("_Tool", bound=Callable[..., Any])


def with_env(key: str, declare: str = "") -> Callable[[_Tool], _Tool]:
    """Pass a tool its environment, and hide that parameter from callers.

    The environment is `context_variables[key]`. It is passed as the parameter with the name of the
    key if there is one, or else as `env`. Decorators can be stacked. A tool with a parameter
    `context_variables` also receives these.

    Args:
        key: Key of the environment.
        declare: Advice in the error if the environment is missing.

    Returns:
        A decorator. A call without that environment raises `RuntimeError` naming the key.
    """

    def decorate(tool: _Tool) -> _Tool:
        inner = inspect.signature(tool)
        takes = key if key in inner.parameters else "env"
        if takes not in inner.parameters:
            raise ValidationError(f"{tool.__name__} needs a parameter '{key}' or 'env'")
        passes = "context_variables" in inner.parameters or hasattr(tool, "__environments__")

        hidden = {takes, "context_variables"}
        shown = [each for name, each in inner.parameters.items() if name not in hidden]
        public = inner.replace(parameters=shown)

        def filled(args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
            variables: Mapping[str, Any] = given.pop("context_variables", None) or {}
            env = variables.get(key)
            if env is None:
                hint = f": {declare}" if declare else ""
                raise RuntimeError(
                    f"{tool.__name__} needs the environment '{key}', which does not exist{hint}"
                )
            more = {"context_variables": variables} if passes else {}
            # Positional arguments refer only to parameters that the caller sees.
            public.bind(*args, **given)
            named = zip((each.name for each in shown), args, strict=False)
            return {**dict(named), **given, takes: env, **more}

        if inspect.iscoroutinefunction(tool):

            @functools.wraps(tool)
            async def call_async(*args: Any, **given: Any) -> Any:
                return await tool(**filled(args, given))

            call: Any = call_async
        else:

            @functools.wraps(tool)
            def call_plain(*args: Any, **given: Any) -> Any:
                return tool(**filled(args, given))

            call = call_plain
        call.__signature__ = public
        call.__annotations__ = {k: v for k, v in tool.__annotations__.items() if k not in hidden}
        call.__environments__ = (key, *getattr(tool, "__environments__", ()))
        wrapper: _Tool = call
        return wrapper

    return decorate


@with_env("code_env")
def run_python_code(code: str, env: _Env, timeout: float | None = None) -> str:
    """Run Python code in the sandbox. Names persist between calls.

    Args:
        code: The code.
        env: The sandbox.
        timeout: Seconds.

    Returns:
        Its output, its result or `Error: ` with the reason, and its standard error after `STDERR:`,
        each if there is any.
    """
    try:
        done = env.execute_code(code, timeout)
    except EnvironmentLost as error:
        return f"Error: {error.message}"
    output = done.stdout
    for part in (done.result, f"STDERR:\n{done.stderr}" if done.stderr else ""):
        output += "\n" * (bool(output and part) and not output.endswith("\n")) + part
    return output
