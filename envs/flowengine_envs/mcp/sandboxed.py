"""An MCP server as a program of a sandbox: its start, and the end of all its processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from flowengine.sdk import EnvironmentStartFailed, EnvironmentUnavailable
from flowengine.sdk.environments import VARIABLE, Program, Request, Sandbox
from flowengine.sdk.process_tree import Family
from flowengine_envs.kinds.one_program import start_program
from flowengine_envs.kinds.supervised import SEARCH
from flowengine_envs.link.call_limits import DISK
from flowengine_envs.mcp.downloads import ProgramDownload, download_of
from flowengine_envs.sandboxes.mounts import identities

HOST = "host"
"""The provider without isolation."""
_OWN = ("/workspace", "/home/flow", "/tmp", "/dev/shm")
"""Directories that a namespace has itself."""
_ENDING = 20.0
"""Seconds within which the first process must have killed the server's descendants."""


class SandboxedServer:
    """One run of a server in its own sandbox, or on the host.

    Args:
        request: The request to open the environment. Its id and mark belong only to this server.
        config: The server's config.
    """

    def __init__(self, request: Request, config: Any) -> None:
        assert request.sandbox is not None
        self._config = config
        self._on_host = request.spec.provider == HOST
        self._folder, self._path = "", SEARCH
        self._download: ProgramDownload | None = None if self._on_host else download_of(config)
        self._request = self._here(request) if self._on_host else self._inside(request)
        assert self._request.sandbox is not None
        self._sandbox: Sandbox = self._request.sandbox(self._request)
        self._open = False
        self._folder = self._folder or os.path.join(self._sandbox.workdir, config.cwd or "")
        self._program: Program | None = None

    async def start(self) -> Program:
        """Open the sandbox and start the server. If this raises, nothing is left behind.

        Returns:
            The server, with its streams.

        Raises:
            EnvironmentStartFailed: The program or directory does not exist.
        """
        self._open = True
        try:
            await self._sandbox.open()
            self._program = await self._start()
        except BaseException:
            await asyncio.shield(self.end())
            raise
        return self._program

    async def _start(self) -> Program:
        request, sandbox = self._request, self._sandbox
        env = {"PATH": self._path, "HOME": sandbox.home, "LANG": "C.UTF-8"}
        if sandbox.proxies:
            env["NODE_USE_ENV_PROXY"] = "1"  # Otherwise Node.js ignores the proxy.
        if self._download is not None:
            env |= self._download.variables
        env |= {name: text_of(value) for name, value in self._config.env.items()}
        if self._on_host:
            return await start_program(sandbox, self._argv, env=env, cwd=self._folder, limits={})
        ids = await asyncio.to_thread(identities, request) if sandbox.same_files else {}
        return await start_program(
            sandbox,
            self._argv,
            env=env,
            cwd=self._folder,
            limits=sandbox.resource_limits(),
            quota=request.limits.disk or DISK,
            mounts=ids,
        )

    def terminate(self) -> bool:
        """Send SIGTERM to the server, if signals reach it. Return whether they do."""
        return self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> bool:
        """Send a signal to the first process, which must be on this machine."""
        if not self._on_host or self._program is None or self._program.returncode is not None:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._program.pid, number)
        return True

    async def end(self) -> None:
        """Kill the server with its descendants, and remove the sandbox."""
        if not self._open:
            return
        self._open = False
        if self._on_host:
            self._signal(signal.SIGCONT)  # A stopped process would not end.
            if self._signal(signal.SIGINT) and self._program is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_ENDING):
                        await self._program.wait()
            # Processes that the first process left, because it was killed, have the mark.
            await asyncio.to_thread(Family(self._request.mark, variable=VARIABLE).kill)
        await self._sandbox.close()

    def why(self) -> str:
        """Return the sandbox's part in the end of the server, for messages."""
        reasons = ""
        if self._sandbox.memory_kills():
            reasons += "; a process was killed: its memory was used up (limits.memory)"
        refused = [what for _, what in self._sandbox.refused_connections()]
        if refused:
            reasons += f"; it was refused connections, the last one: {refused[-1]}"
        if self._download is not None:
            reasons += self._download.missing(self._request.policy.network)
        return reasons

    # Start of the server

    def _here(self, request: Request) -> Request:
        """Return the request for a server that runs on this machine, in one of its directories."""
        self._argv = _argv(request, self._config)
        self._path = os.environ.get("PATH", os.defpath)
        self._folder = os.path.abspath(os.path.join(request.spec.folder, self._config.cwd or "."))
        return request

    def _inside(self, request: Request) -> Request:
        """Return the request for a server that sees only its sandbox."""
        spec, policy = request.spec, request.policy
        [program, *_] = self._argv = _words(self._config)
        shown = None
        if spec.provider == "namespace" and not _is_below(program, (*_OWN, *request.mounts)):
            shown = _program_of_machine(request, program)
        if self._download is not None:
            policy = self._reaching(self._download, request)
        config = request.config.model_copy(update={"interpreter": shown, "whole_folder": False})
        if shown is not None:
            self._argv[0] = shown
            self._path = f"{os.path.dirname(shown)}:{SEARCH}"
        spec = spec._replace(config=config, policy=policy)
        return request._replace(spec=spec, config=config, policy=policy)

    def _reaching(self, download: ProgramDownload, request: Request) -> Any:
        """Return a policy that allows downloading the server, unless the spec sets one."""
        policy, missing = request.policy, download.missing(request.policy.network)
        if policy.network is None:
            if not download.registries:
                raise EnvironmentUnavailable(
                    f"{request.spec}: it is not known where {download.program} fetches from; name "
                    "the registry in policy.network: [host:port]"
                )
            return policy.model_copy(update={"network": download.registries})
        was_fetched = request.spec.provider != "namespace" or any(request.home.iterdir())
        if missing and not was_fetched:
            raise EnvironmentUnavailable(f"{request.spec}{missing}; add it, or install the server")
        return policy


def text_of(value: Any) -> str:
    """Return the text that a configuration contains or refers to."""
    return value if isinstance(value, str) else str(value.reveal())


def _words(config: Any) -> list[str]:
    """Return program and arguments as configured."""
    command = config.command
    return [*([command] if isinstance(command, str) else command), *config.args]


def _argv(request: Request, config: Any) -> list[str]:
    """Return program and arguments, with the absolute path of an existing program."""
    program, *args = _words(config)
    if os.path.dirname(program):  # Relative to the directory that the file's paths refer to.
        program = os.path.abspath(os.path.join(request.spec.folder, program))
    return [_program_inside(request, program), *args]


def _program_of_machine(request: Request, program: str) -> str | None:
    """Return a program of this machine to show in the sandbox. None: it is already there."""
    is_inside = "/" in program and not os.path.isabs(program)
    # System programs come first: one earlier in PATH may be a shim that needs the home directory.
    if is_inside or ("/" not in program and shutil.which(program, path=SEARCH)):
        return None
    path = _program_inside(request, program)
    return None if _is_below(path, ("/usr", "/bin", "/sbin")) else path


def _program_inside(request: Request, program: str) -> str:
    """Return the absolute path of a program of this machine."""
    path = shutil.which(program)
    if path is None:
        message = f"{request.spec}: there is no program {program}"
        raise EnvironmentStartFailed(message, retryable=False)
    return os.path.abspath(path)


def _is_below(path: str, folders: Any) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
