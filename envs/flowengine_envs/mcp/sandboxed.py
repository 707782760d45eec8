"""An MCP server as a program of a sandbox: what it is started with, and how all of it ends."""

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
from flowengine_envs.mcp.downloads import Download, download_of
from flowengine_envs.sandboxes.mounts import identities

HOST = "host"
"""The sandbox that is none."""
_OWN = ("/workspace", "/home/flow", "/tmp", "/dev/shm")
"""Folders that a namespace has of its own."""
_ENDING = 20.0
"""Seconds in which the first process kills what the server started; it looks for so long."""


class SandboxedServer:
    """One run of a server in a sandbox of its own, or on the host.

    Args:
        request: What was asked for; its id and mark belong to this server alone.
        config: Of this server.
    """

    def __init__(self, request: Request, config: Any) -> None:
        assert request.sandbox is not None
        self._config = config
        self._on_host = request.spec.provider == HOST
        self._folder, self._path = "", SEARCH
        self._download: Download | None = None if self._on_host else download_of(config)
        self._request = self._here(request) if self._on_host else self._inside(request)
        assert self._request.sandbox is not None
        self._sandbox: Sandbox = self._request.sandbox(self._request)
        self._open = False
        self._folder = self._folder or os.path.join(self._sandbox.workdir, config.cwd or "")
        self._program: Program | None = None

    async def start(self) -> Program:
        """Open the sandbox and start the server; nothing is left when this raises.

        Returns:
            The server, with its streams.

        Raises:
            EnvironmentStartFailed: There is no such program or folder.
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
            env["NODE_USE_ENV_PROXY"] = "1"  # else Node.js connects to no proxy
        if self._download is not None:
            env |= self._download.variables
        env |= {name: text_of(value) for name, value in self._config.env.items()}
        if self._on_host:
            return await start_program(sandbox, self._argv, env=env, cwd=self._folder, limits={})
        found = await asyncio.to_thread(identities, request) if sandbox.same_files else {}
        return await start_program(
            sandbox,
            self._argv,
            env=env,
            cwd=self._folder,
            limits=sandbox.resource_limits(),
            quota=request.limits.disk or DISK,
            mounts=found,
        )

    def terminate(self) -> bool:
        """Ask the server to end, where signals reach it; return whether they do."""
        return self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> bool:
        """Send a signal to the first process, which only one on this machine gets."""
        if not self._on_host or self._program is None or self._program.returncode is not None:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._program.pid, number)
        return True

    async def end(self) -> None:
        """Kill the server with everything it started, and take the sandbox away."""
        if not self._open:
            return
        self._open = False
        if self._on_host:
            self._signal(signal.SIGCONT)  # one that is stopped would not end
            if self._signal(signal.SIGINT) and self._program is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_ENDING):
                        await self._program.wait()
            # What the first process did not end, because it was killed, has the mark.
            await asyncio.to_thread(Family(self._request.mark, variable=VARIABLE).kill)
        await self._sandbox.close()

    def why(self) -> str:
        """Return what the sandbox has to do with the end of the server, for messages."""
        told = ""
        if self._sandbox.memory_kills():
            told += "; a process was killed: its memory was used up (limits.memory)"
        refused = [what for _, what in self._sandbox.refused_connections()]
        if refused:
            told += f"; it was refused connections, the last one: {refused[-1]}"
        if self._download is not None:
            told += self._download.missing(self._request.policy.network)
        return told

    # What it is started with

    def _here(self, request: Request) -> Request:
        """Return the request of a server that runs on this machine, in a folder of it."""
        self._argv = _argv(request, self._config)
        self._path = os.environ.get("PATH", os.defpath)
        self._folder = os.path.abspath(os.path.join(request.spec.folder, self._config.cwd or "."))
        return request

    def _inside(self, request: Request) -> Request:
        """Return the request of a server that sees its sandbox only."""
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

    def _reaching(self, download: Download, request: Request) -> Any:
        """Return a policy by which the server can be fetched, where it says nothing else."""
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
    """Return the text that a configuration has or refers to."""
    return value if isinstance(value, str) else str(value.reveal())


def _words(config: Any) -> list[str]:
    """Return program and arguments as they are written."""
    command = config.command
    return [*([command] if isinstance(command, str) else command), *config.args]


def _argv(request: Request, config: Any) -> list[str]:
    """Return program and arguments; the program by its absolute path, which it has to have."""
    program, *args = _words(config)
    if os.path.dirname(program):  # as written in a file: from where the file's paths lead
        program = os.path.abspath(os.path.join(request.spec.folder, program))
    return [_program_inside(request, program), *args]


def _program_of_machine(request: Request, program: str) -> str | None:
    """Return a program of this machine that the sandbox is shown; None: it has it anyway."""
    is_inside = "/" in program and not os.path.isabs(program)
    # The system's first: what is found earlier may be a shim, which needs the home folder to run.
    if is_inside or ("/" not in program and shutil.which(program, path=SEARCH)):
        return None
    found = _program_inside(request, program)
    return None if _is_below(found, ("/usr", "/bin", "/sbin")) else found


def _program_inside(request: Request, program: str) -> str:
    """Return the absolute path of a program of this machine."""
    found = shutil.which(program)
    if found is None:
        message = f"{request.spec}: there is no program {program}"
        raise EnvironmentStartFailed(message, retryable=False)
    return os.path.abspath(found)


def _is_below(path: str, folders: Any) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
