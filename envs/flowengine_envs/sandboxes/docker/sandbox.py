"""`docker`: a container that contains the workspace and nothing else of the machine.

The first process of a container keeps it alive while this process is connected to its standard
input. When this process dies for any reason, that input ends, the container stops, and the daemon
removes it. Nothing is left even after a `kill -9`. Containers kept by a daemon that was down are
found by their labels.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel

from flowengine.sdk import (
    EnvironmentLost,
    EnvironmentStartFailed,
    EnvironmentUnavailable,
)
from flowengine.sdk.environments import (
    VARIABLE,
    Capabilities,
    Leftover,
    ProcessIdentity,
    Program,
    Request,
    Spec,
)
from flowengine_envs.link.call_limits import DISK_HELD, MEMORY, PROCESSES
from flowengine_envs.link.logs import Log
from flowengine_envs.link.words import RESERVE
from flowengine_envs.network.egress import INSIDE, Egress
from flowengine_envs.sandboxes.cgroups import group_of, memory_kills, refused_processes
from flowengine_envs.sandboxes.docker import library
from flowengine_envs.sandboxes.docker.accounts import (
    HOME,
    Lists,
    group,
    lend,
    network,
    rights,
    take_back,
    user,
    writable_inside,
)
from flowengine_envs.sandboxes.docker.building import Container, built, wanted
from flowengine_envs.sandboxes.docker.daemon import Attached, ContainerProgram, attached, connect
from flowengine_envs.sandboxes.docker.image import find_image
from flowengine_envs.sandboxes.mounts import Mount, check_all, mounts, warn_of_new
from flowengine_envs.sandboxes.processes import OWN_PROCESSES, cpus
from flowengine_envs.sandboxes.syscalls import OwnNetwork
from flowengine_envs.workspaces.own_folder import OWN

_KEEPER = (
    "import ctypes, signal, sys; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); "
    "signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); sys.stdin.buffer.read()"
)
"""Code of the first process: it adopts orphans and ends with its input.

It is undumpable (PR_SET_DUMPABLE), so that no program inside can open its input and keep it from
ending. Signals from inside reach the first process of a container only if it has a handler. Python
installs one for SIGINT, which is removed here.
"""


_RESERVE = 6 * 1024 * 1024
"""Bytes that a supervisor needs when its programs have used up the memory."""
_LAST_WORDS = 1.0
"""Seconds within which its last output must arrive."""


class ProgramMissing(EnvironmentStartFailed):
    """The image does not contain the program."""


class ContainerCommand(NamedTuple):
    """The command of a container's first process."""

    argv: Sequence[str]
    env: Mapping[str, str] = {}
    image: str | None = None
    """Default: the image in the environment's config."""
    is_there: bool = False
    """Whether the image is known to be present."""
    network: str | None = None
    """Docker's name for its network. Default: the one that the environment's policy implies."""


class Docker(OwnNetwork):
    """A separate container for every environment.

    Args:
        request: The request to open the environment.
        command: Command of the first process. None: it waits, and programs are started next to it.
    """

    name: ClassVar[str] = "docker"
    own_processes: ClassVar[bool] = True

    def __init__(self, request: Request, command: ContainerCommand | None = None) -> None:
        super().__init__(request)
        self._command = command
        self._number = "" if command is None else f"-{os.urandom(4).hex()}"
        """Distinguishes the containers of one environment."""
        self._given = False
        self._container: str | None = None
        self._keeper: Attached | None = None
        self._groups: dict[str, Path] = {}
        self._shown: list[Mount] = []
        self._lists = Lists()
        self._egress = Egress(request, (user(), group()))
        self._log = Log()
        self._reading: asyncio.Future[Any] | None = None

    @property
    def workdir(self) -> str:
        """The workspace as programs inside see it."""
        return str(getattr(self.request.config, "workdir", None) or "/workspace")

    @property
    def home(self) -> str:
        """The home directory as programs inside see it."""
        return HOME

    @classmethod
    def config_model(cls) -> type[BaseModel]:
        """Return the model of the container settings in `config:`."""
        return Container

    @classmethod
    def capabilities(cls) -> Capabilities:
        """Return the guarantees of a container."""
        return Capabilities(
            "container",
            {
                "filesystem": "read-only image, with the workspace and mounts of the spec",
                "network": "own network with no route out, AF_VSOCK as the daemon's filter allows",
                "user": "no root, no capabilities, no new privileges",
                "syscalls": "the daemon's system call filter (seccomp)",
                "variables": "only declared ones",
                "cpus": "cgroup of the container",
                "memory": "cgroup of the container",
                "processes": "cgroup of the container",
                "disk": f"size of /tmp and of the home directory, {DISK_HELD}",
            },
            {"memory": MEMORY, "processes": PROCESSES, "cpus": cpus()},
        )

    @classmethod
    def capabilities_of(cls, spec: Spec) -> Capabilities:
        """Return the guarantees for a spec, without network isolation if it requests access."""
        held = cls.capabilities()
        return held if network(spec) == "none" else held.without("network")

    @classmethod
    async def probe(cls, spec: Spec) -> None:
        """Check the daemon, and the image if it must not be pulled."""
        network(spec)
        await asyncio.to_thread(_probe, spec)

    @classmethod
    async def prepare(cls, spec: Spec) -> str:
        """Build or pull the image, and return its name."""
        if (image := await built(spec)) is not None:
            return image
        return await asyncio.to_thread(lambda: find_image(connect(), spec))

    @cached_property
    def _client(self) -> library.DockerClient:
        return connect()

    async def open(self) -> None:
        """Create and start the container."""
        self.request.trace(container=self._name, lent=[str(path) for path in self._lent])
        check_all(self.request)
        await asyncio.to_thread(self._check_owners)
        self._shown = await asyncio.to_thread(mounts, self.request)
        try:
            await asyncio.to_thread(lend, self._lent)
            self._given = True
            if self._command is None:
                await self._egress.open()
            reference = await self._image()
            await self._make(reference)
            path = f"/containers/{self._container}/attach?stream=1&stdin=1&stdout=1&stderr=1"
            keeper = self._keeper = await attached(path)
            await asyncio.to_thread(self._start)
            if self._command is None:
                self._reading = asyncio.gather(
                    self._log.read(keeper.stdout), self._log.read(keeper.stderr)
                )
                self._groups = await asyncio.to_thread(self._find_groups)
        except BaseException:
            await asyncio.shield(self.close())
            raise

    @property
    def _name(self) -> str:
        named = getattr(self.request.config, "container_name", None)
        return str(named or f"flowengine-{self.request.id}{self._number}")

    @property
    def _own(self) -> dict[str, Path]:
        """Return the environment's own directories: path inside → directory."""
        home = self.request.home
        if self._command is None:
            return {self.workdir: self.workspace, self.home: home}
        # Each command has a new home directory, which shows the environment's own directory.
        return {self.workdir: self.workspace, f"{self.home}/{OWN}": home / OWN}

    @property
    def _mounts(self) -> list[tuple[str, Path, bool]]:
        """Return the mounts: path inside, directory, and whether it is writable."""
        own = [(inside, path, True) for inside, path in self._own.items()]
        return own + [(each.inside, each.path, each.writable) for each in self._shown]

    @property
    def _lent(self) -> list[Path]:
        """Return the engine's writable directories. Those of users keep their owners."""
        request = self.request
        mounted = [path for each, path in request.mounts.items() if request.may_write(each)]
        return [*self._own.values(), *(path for path in mounted if self._is_engines(path))]

    def _is_engines(self, folder: Path) -> bool:
        """Return whether a directory is a workspace, such as the copy of a directory."""
        return folder.is_relative_to(os.path.realpath(self.workspace.parent))

    def _check_owners(self) -> None:
        """Refuse a user's directory that programs are meant to write but cannot."""
        for inside, path in self.request.mounts.items():
            if not self.request.may_write(inside) or self._is_engines(path):
                continue
            if not writable_inside(path):
                raise EnvironmentUnavailable(
                    f"{self.request.spec}: containers that root starts run as user {user()}, who "
                    f"cannot write {path}: give the directory to that user, use mode: copy, or "
                    "provider: namespace"
                )

    async def _make(self, reference: str) -> None:
        """Create the container, and record it even if the caller is cancelled."""
        making = asyncio.ensure_future(asyncio.to_thread(self._create, reference))
        try:
            self._container = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._container = await making
            raise

    def _create(self, reference: str) -> str:
        self.image = str(self._client.images.get(reference).id)
        lists = self._lists.mounts()
        try:
            try:
                return self._created(reference, lists)
            except library.APIError as error:
                if not self._lists.are_unseen(str(error.explanation)):
                    raise
                return self._created(reference, [])
        except library.APIError as error:
            raise EnvironmentStartFailed(self._start_failure(error)) from error

    def _created(self, reference: str, lists: list[Any]) -> str:
        config, api = self.request.config, self._client.api
        command = self._command or ContainerCommand(["python3", "-I", "-S", "-c", _KEEPER])
        shared = self._command and self._command.network
        mounts = self._mounts
        if self._egress.folder is not None:
            mounts.append((INSIDE, self._egress.folder, False))
        own = rights(self.request, mounts, OWN_PROCESSES if self._command is None else 0)
        own["mounts"] += lists
        made = api.create_container(
            reference,
            list(command.argv),
            entrypoint=[],
            name=self._name,
            platform=getattr(config, "platform", None),
            stdin_open=True,
            stop_signal="SIGKILL",  # A daemon that shuts down need not wait for it.
            user=f"{user()}:{group()}",
            working_dir=self.workdir,
            labels=self.request.labels,
            environment={"HOME": HOME, **command.env, VARIABLE: self.request.mark},
            host_config=api.create_host_config(
                **own,
                auto_remove=self._command is None,
                network_mode=shared or network(self.request.spec),
                extra_hosts=None if shared else self._egress.hosts,
            ),
        )
        return str(made["Id"])

    async def _image(self) -> str:
        """Return an image that is present."""
        named, spec = None if self._command is None else self._command.image, self.request.spec
        if self._command is not None and self._command.is_there:
            return str(named)
        if named is None:
            return str(self.request.prepared or await self.prepare(spec))
        return await asyncio.to_thread(lambda: find_image(self._client, spec, named))

    def _start(self) -> None:
        try:
            self._client.api.start(str(self._container))
        except library.APIError as error:
            if self._command and _is_missing(str(error.explanation)):
                raise ProgramMissing(
                    f"{self._command.argv[0]}: the image has no such program"
                ) from error
            raise EnvironmentStartFailed(self._start_failure(error)) from error

    def _find_groups(self) -> dict[str, Path]:
        """Return the container's control groups by controller, if they are on this machine."""
        try:
            info = self._client.api.inspect_container(str(self._container))
        except library.NotFound:  # It has already ended, and nothing can be started in it.
            return {}
        pid = info["State"]["Pid"]
        groups = {controller: group_of(pid, controller) for controller in ("memory", "pids")}
        return {
            controller: folder
            for controller, folder in groups.items()
            if folder is not None and str(self._container) in str(folder)
        }

    def memory_kills(self) -> int:
        """Return how many programs were killed because memory was at its limit."""
        return memory_kills(self._groups)

    def refused_processes(self) -> int:
        """Return how many process starts failed because the process limit was reached."""
        return refused_processes(self._groups)

    def _start_failure(self, error: Exception) -> str:
        """Describe why the daemon did not start the container."""
        message = str(getattr(error, "explanation", None) or error)
        if "already in use by container" in message:
            return (
                f"{self.request.spec}: there is a container named {self._name} already, which "
                "was not created by this engine and is left alone: choose another container_name"
            )
        if "python3" in message and "executable file not found" in message:
            return (
                f"{self.request.spec}: the image has no python3, which a sandbox needs: "
                "install it there, or use the default image"
            )
        if "could not select device driver" in message:
            return f"{self.request.spec}: this machine has no GPU runtime for Docker: {message}"
        return f"{self.request.spec}: the container did not start: {message}"

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
        """Start a program in the container."""
        if not self.alive():
            raise EnvironmentLost(f"{self.request.spec}: its container has ended")
        made = await asyncio.to_thread(self._exec, list(argv), dict(env))
        body = json.dumps({"Detach": False, "Tty": False}).encode()
        return ContainerProgram(self._client, made, await attached(f"/exec/{made}/start", body))

    async def start_supervisor(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
        """Start a supervisor. It shares the memory limit of its programs, so it has a reserve."""
        reserve = min(_RESERVE, (self.request.limits.memory or MEMORY) // 16)
        return await self.start(argv, env={**env, RESERVE: str(reserve)})

    async def last_words(self) -> str:
        """Return the last output of the first process, if it has ended."""
        if self._reading is None:
            return ""
        await asyncio.wait({self._reading}, timeout=_LAST_WORDS)
        return "" if self.alive() else str(self._log)

    def _exec(self, argv: list[str], env: dict[str, str]) -> str:
        try:
            made = self._client.api.exec_create(
                self._container, argv, stdin=True, environment=env, workdir=self.workdir
            )
        except library.APIError as error:
            raise EnvironmentLost(f"{self.request.spec}: {error.explanation}") from error
        return str(made["Id"])

    def alive(self) -> bool:
        """Return whether the container's first process is connected."""
        return self._keeper is not None and not self._keeper.reading.done()

    async def close(self) -> None:
        """Remove the container and wait until it has disappeared."""
        try:
            if self._container is not None:
                await asyncio.to_thread(remove, self._client, self._container)
        finally:  # If the daemon is unreachable, it must be possible to close again.
            if self._keeper is not None:
                self._keeper.close()
            if self._reading is not None:
                self._reading.cancel()
            await self._egress.close()
            await asyncio.to_thread(self._lists.close)
        if self._given:
            self._given = False
            await asyncio.to_thread(take_back, self._lent)
            await asyncio.to_thread(warn_of_new, self.request, self._shown)

    @property
    def streams(self) -> Attached:
        """The output and input streams of the first process."""
        assert self._keeper is not None
        return self._keeper

    def ended(self) -> tuple[int, bool]:
        """Wait for a command. Return its exit code, and whether it ran out of memory."""
        try:
            code = self._client.api.wait(str(self._container))["StatusCode"]
            state = self._client.api.inspect_container(str(self._container))["State"]
        except (library.APIError, OSError) as error:
            raise EnvironmentLost(f"{self.request.spec}: its container is gone") from error
        return int(code), bool(state["OOMKilled"])

    @classmethod
    async def reap(cls, leftover: Leftover) -> None:
        """Remove the containers of a dead owner, which are found by label."""
        await asyncio.to_thread(reap, leftover)

    @classmethod
    async def sweep(cls, is_dead: Callable[[ProcessIdentity], bool]) -> None:
        """Remove containers whose labels name a dead owner on this machine."""
        await asyncio.to_thread(sweep, is_dead)


def _probe(spec: Spec) -> None:
    try:
        client = connect()
    except EnvironmentUnavailable as error:
        others = "use provider: namespace, or provider: host for no isolation"
        if spec.kind == "docker":
            others = "use kind: bash, which also runs commands in other sandboxes"
        raise EnvironmentUnavailable(f"{spec}: {error.message}. Or {others}") from None
    if getattr(spec.config, "pull_policy", None) == "never" and wanted(spec) is None:
        find_image(client, spec)


def _is_missing(message: str) -> bool:
    """Return whether the daemon reports that a container's program is missing."""
    return "exec:" in message and (
        "executable file not found" in message or "no such file or directory" in message
    )


# Removes containers, including those that a dead process left, which are found by label.


def sweep(is_dead: Callable[[ProcessIdentity], bool]) -> None:
    """Remove containers whose labels name a dead owner on this machine."""
    client = connect()
    for container in client.api.containers(all=True, filters={"label": ["flowengine=1"]}):
        owner = _owner(container["Labels"])
        if owner is not None and is_dead(owner):
            remove(client, container["Id"])


def _owner(labels: Mapping[str, str]) -> ProcessIdentity | None:
    """Return the owner of a container, or None if its labels do not name one."""
    try:
        return ProcessIdentity(
            int(labels["flowengine.pid"]),
            int(labels["flowengine.started"]),
            labels["flowengine.boot"],
            labels["flowengine.host"],
        )
    except (KeyError, ValueError):
        return None


def remove(client: library.DockerClient, container: str) -> None:
    """Remove a container and wait until it has disappeared. A missing container is ignored.

    Args:
        client: A client of the daemon.
        container: Its id.

    Raises:
        EnvironmentLost: The daemon is not reachable.
        APIError: The daemon cannot remove it.
    """
    try:
        client.api.remove_container(container, force=True, v=True)
    except library.NotFound:
        return
    except library.APIError as error:
        if error.status_code != 409:  # It is already being removed.
            raise
    except OSError as error:
        raise EnvironmentLost(
            f"the Docker daemon is gone, and the container {container[:12]} could not be removed. "
            "The next engine that starts with a running daemon removes it"
        ) from error
    try:
        client.api.wait(container, condition="removed", timeout=30)
    except (library.NotFound, OSError):
        return


def reap(leftover: Leftover) -> None:
    """Remove the containers of a dead owner, and return ownership of its directories."""
    client = connect()
    label = f"flowengine.environment={leftover.id}"
    for container in client.api.containers(all=True, quiet=True, filters={"label": [label]}):
        remove(client, container["Id"])
    take_back([Path(str(folder)) for folder in leftover.facts.get("lent") or []], lent=0)
