"""`DockerEnv`, `LocalEnv`, `with_env`: a Python sandbox as one object that its user opens.

They are thin: the same resource as kind `python`, in the same sandboxes, without a manager. What
they leave behind when their process is killed is ended as that of every other environment.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import logging
import os
import platform
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar
from weakref import WeakSet

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from flowengine.sdk import EnvironmentClosed, EnvironmentLost, Refused, ValidationError
from flowengine.sdk.environments import Owner, Request, Sandbox, Spec, background
from flowengine.sdk.models import Config, Duration, Limits
from flowengine.sdk.process_identity import this_process
from flowengine.sdk.sandboxes import with_sandboxes
from flowengine.sdk.scratch import make_scratch, remove_scratch
from flowengine_envs.docker.sandbox import Docker
from flowengine_envs.mounts import check
from flowengine_envs.python import Python, PythonSandbox
from flowengine_envs.results import CodeResult
from flowengine_envs.sandboxes.host import Host

if TYPE_CHECKING:
    from types import TracebackType

_log = logging.getLogger("flowengine.environments")

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
    """What a `LocalEnv` can be told."""

    workspace_mount: Annotated[str, AfterValidator(_mountable)] = "./workspace"
    """Folder on this machine that code reads and writes; it is made if it is not there."""
    timeout: Duration = 30.0
    """Seconds of a call: its default and its maximum."""
    limits: Limits = Field(default_factory=Limits)
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the code; nothing of this process's is handed on."""


class DockerConfig(LocalConfig):
    """What a `DockerEnv` can be told."""

    image: Annotated[str, Field(min_length=1)] | None = None
    """The image, also by digest; default: the project's own, which is built on this machine."""
    container_name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]+$")] | None = None
    """Its name; default: one that nobody else has. One that somebody has is an error."""
    tcp_port: Annotated[int, Field(ge=1, le=65535)] = 12346
    """Kept for programs that set it. Nothing listens in the container and no port is published: the
    sandbox is spoken to over the streams of its first program."""
    platform: Annotated[str, Field(min_length=1)] = "linux/amd64"
    """Passed on where it is set or an image is named."""
    pull_policy: Literal["missing", "never", "always"] = "missing"
    gpus: Annotated[str, Field(min_length=1)] | None = None
    network: Literal["none", "bridge", "host"] | None = None
    """Docker's network; default: none."""


class Execution(NamedTuple):
    """What `execute_code` gives."""

    stdout: str
    stderr: str
    result: str
    """`_result` or the last expression as text, `""`, or `Error: ...`."""


class _Env:
    """A Python sandbox that is opened by `init_container`, or by its first use."""

    _sandbox: type[Sandbox]
    config: LocalConfig

    def __init__(self) -> None:
        self.generation = 0
        """How many times it was opened."""
        self._resource: PythonSandbox | None = None
        self._closed = False
        self._home: Path | None = None
        self._opening = asyncio.Lock()
        _open.add(self)

    def __enter__(self) -> Any:
        self.init_container()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def init_container(self) -> None:
        """Open it, unless it is open.

        Raises:
            EnvironmentUnavailable: This machine cannot give it.
            EnvironmentStartFailed: It did not start.
            EnvironmentClosed: It was closed.
        """
        background().run(self._ready(), "async_init_container()")

    async def async_init_container(self) -> None:
        """Do the same as `init_container`, for any event loop."""
        await background().wait(self._ready())

    def execute_code(self, code: str, timeout: float | None = None) -> Execution:
        """Run code; names last from call to call. What goes wrong in it is in the result.

        Args:
            code: The code.
            timeout: Seconds; default and maximum: the configuration's.

        Returns:
            `(stdout, stderr, result)`.

        Raises:
            EnvironmentLost: The sandbox ended during the call; the next call opens a new one.
            ValidationError: The code is no text.
        """
        return background().run(self._execute(code, timeout), "async_execute_code()")

    async def async_execute_code(self, code: str, timeout: float | None = None) -> Execution:
        """Do the same as `execute_code`, for any event loop."""
        return await background().wait(self._execute(code, timeout))

    @property
    def resource(self) -> PythonSandbox:
        """The resource of kind `python` that this stands for, with all its verbs.

        Raises:
            EnvironmentClosed: It is not open.
        """
        if self._resource is None:
            raise EnvironmentClosed(f"{type(self).__name__} is not open: call init_container()")
        return self._resource

    def close(self) -> None:
        """End it and all it started; more than once does nothing."""
        background().run(self._close(), "async_close()")

    async def async_close(self) -> None:
        """Do the same as `close`, for any event loop."""
        await background().wait(self._close())

    async def _execute(self, code: str, timeout: float | None) -> Execution:
        again = self._resource is not None and not self._resource.healthy
        resource = await self._ready()
        done = await resource._call(lambda: resource._run(code, timeout=timeout))
        before, after = _AGAIN if again else "", _GONE if done.namespace_lost else ""
        return Execution(done.stdout, f"{before}{done.stderr}{after}", _told(done))

    async def _ready(self) -> PythonSandbox:
        async with self._opening:
            return await self._opened()

    async def _opened(self) -> PythonSandbox:
        if self._closed:
            raise EnvironmentClosed(f"{type(self).__name__} was closed")
        if self._resource is not None:
            if self._resource.healthy:
                return self._resource
            self._resource.check_open()
            await _given_back(self._resource)
            self._resource = None
        request = self._request()
        await self._sandbox.probe(request.spec)
        self._resource = await Python().ensure(request)
        self.generation = request.generation
        return self._resource

    async def _close(self) -> None:
        self._closed = True
        resource, self._resource = self._resource, None
        try:
            if resource is not None:
                await resource.finish(0.0)
                await _given_back(resource)
        finally:
            if self._home is not None:
                await asyncio.to_thread(remove_scratch, self._home)
                self._home = None

    def _request(self) -> Request:
        """Return what a manager would ask its provider for."""
        config = with_sandboxes(Python().config_model(), [self._sandbox])(**self._asked())
        policy = Python().policy_model()()
        limits = self.config.limits.model_copy(update={"time": self.config.timeout})
        name = type(self).__name__
        id = uuid.uuid4().hex
        owner: Owner = this_process()
        kind, provider = Python.kind, self._sandbox.name
        spec = Spec(id, kind, "global", "", name, provider, config, policy, limits, {})
        workspace = Path(os.path.abspath(os.path.expanduser(self.config.workspace_mount)))
        workspace.mkdir(parents=True, exist_ok=True)
        if self._home is None:
            self._home = make_scratch()
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
            background().loop.time() + 120,
            logging.LoggerAdapter(_log, {}),
        )

    def _asked(self) -> dict[str, Any]:
        return {"env": self.config.env}


class DockerEnv(_Env):
    """A Python sandbox in a container. Making one contacts nothing.

    Args:
        config: What it is told; default: `DockerConfig()`.
    """

    _sandbox = Docker

    def __init__(self, config: DockerConfig | None = None) -> None:
        self.config: DockerConfig = config or DockerConfig()
        super().__init__()
        self._warned = False

    def _asked(self) -> dict[str, Any]:
        config = self.config
        known = Docker.config_model().model_fields.keys() & DockerConfig.model_fields.keys()
        asked = {name: getattr(config, name) for name in sorted(known)}
        asked |= super()._asked()
        if config.image is None and "platform" not in config.model_fields_set:
            asked["platform"] = None
        self._warn_of(asked["platform"])
        return asked

    def _warn_of(self, wanted: str | None) -> None:
        machine = platform.machine()
        here = f"linux/{_MACHINES.get(machine, machine)}"
        if wanted is not None and wanted != here and not self._warned:
            self._warned = True
            _log.warning("DockerEnv: the platform asked for is %s, this one is %s", wanted, here)


class LocalEnv(_Env):
    """A Python sandbox of processes of this machine: no isolation, and a warning at each start.

    Args:
        config: What it is told; default: `LocalConfig()`.
    """

    _sandbox = Host

    def __init__(self, config: LocalConfig | None = None) -> None:
        self.config: LocalConfig = config or LocalConfig()
        super().__init__()


_open: WeakSet[_Env] = WeakSet()


@atexit.register
def _close_all() -> None:
    for env in list(_open):
        if env._resource is not None and env._resource._pid == os.getpid():
            env.close()


def _not_written_down(**facts: Any) -> None:
    """There is no registry: containers carry labels, and processes end with this one."""


async def _given_back(resource: PythonSandbox) -> None:
    await Python().release(resource)


def _told(done: CodeResult) -> str:
    return done.text if done.error is None else f"Error: {done.error}"


_Tool = TypeVar("_Tool", bound=Callable[..., Any])


def with_env(key: str) -> Callable[[_Tool], _Tool]:
    """Give a tool its environment, and hide the parameter from whoever calls it.

    The environment is `context_variables[key]`. It goes to the parameter named like the key if
    there is one, else to `env`. Decorators can be stacked. A tool that has a parameter
    `context_variables` gets these, too.

    Args:
        key: Under which the environment is found.

    Returns:
        A decorator. A call without that environment raises `RuntimeError` naming the key.
    """

    def decorate(tool: _Tool) -> _Tool:
        inner = inspect.signature(tool)
        takes = key if key in inner.parameters else "env"
        if takes not in inner.parameters:
            raise ValidationError(f"{tool.__name__} has neither a parameter '{key}' nor 'env'")
        passes = "context_variables" in inner.parameters or hasattr(tool, "__environments__")

        def filled(given: dict[str, Any]) -> dict[str, Any]:
            variables: Mapping[str, Any] = given.pop("context_variables", None) or {}
            env = variables.get(key)
            if env is None:
                raise RuntimeError(
                    f"{tool.__name__} needs the environment '{key}', which does not exist"
                )
            more = {"context_variables": variables} if passes else {}
            return {**given, takes: env, **more}

        if inspect.iscoroutinefunction(tool):

            @functools.wraps(tool)
            async def call_async(*args: Any, **given: Any) -> Any:
                return await _awaited(tool(*args, **filled(given)))

            call: Any = call_async
        else:

            @functools.wraps(tool)
            def call_plain(*args: Any, **given: Any) -> Any:
                return tool(*args, **filled(given))

            call = call_plain
        hidden = {takes, "context_variables"}
        shown = [each for name, each in inner.parameters.items() if name not in hidden]
        call.__signature__ = inner.replace(parameters=shown)
        call.__annotations__ = {k: v for k, v in tool.__annotations__.items() if k not in hidden}
        call.__environments__ = (key, *getattr(tool, "__environments__", ()))
        found: _Tool = call
        return found

    return decorate


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


@with_env("code_env")
def run_python_code(code: str, env: _Env, timeout: float | None = None) -> str:
    """Run Python code in the sandbox; names last from call to call.

    Args:
        code: The code.
        env: The sandbox.
        timeout: Seconds.

    Returns:
        What it printed, its result or `Error: ` and why there is none, and after `STDERR:` what it
        wrote there; each if there is any.
    """
    try:
        done = env.execute_code(code, timeout)
    except EnvironmentLost as error:
        return f"Error: {error.message}"
    told = done.stdout
    for part in (done.result, f"STDERR:\n{done.stderr}" if done.stderr else ""):
        told += "\n" * (bool(told and part) and not told.endswith("\n")) + part
    return told
