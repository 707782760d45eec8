"""`host`: processes of this machine, as the user, without isolation.

It is used only if a spec sets `provider: host`, and logs a warning at each opening. Its limits
protect against mistakes, not against malicious code: the programs can read and change everything
that the user can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import VARIABLE, Axis, Capabilities, Program, Request, Spec
from flowengine.sdk.processes import make_scratch, remove_scratch
from flowengine_envs.link.call_limits import DISK_HELD
from flowengine_envs.sandboxes.cgroups import Group
from flowengine_envs.sandboxes.processes import PATH, ProcessSandbox, defaults, has, held_by_group


class HostSandbox(ProcessSandbox):
    """Programs on this machine."""

    name: ClassVar[str] = "host"

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._scratch: Path | None = None

    @property
    def scratch(self) -> str:
        """A private temporary directory, created on first use."""
        if self._scratch is None:
            self._scratch = make_scratch()
        return str(self._scratch)

    @property
    def workdir(self) -> str:
        """The workspace, which programs see at its real path."""
        return str(self.workspace)

    @property
    def home(self) -> str:
        """The home directory, which programs see at its real path."""
        return str(self.request.home)

    @property
    def variables(self) -> Mapping[str, str]:
        """The mark by which programs are found after the engine has died."""
        return {VARIABLE: self.request.mark}

    @classmethod
    def capabilities(cls) -> Capabilities:
        """Return the guarantees for programs that run as the user: limits, variables and files."""
        holds: dict[Axis, str] = {
            "variables": "only declared ones are passed on",
            "disk": DISK_HELD,
            **held_by_group(),
        }
        return Capabilities("none", holds, defaults(holds))

    @classmethod
    async def probe(cls, spec: Spec) -> None:
        """Refuse limits that need isolation, and look for Python."""
        if not has("python3"):
            raise EnvironmentUnavailable(
                f"{spec}: this machine has no python3 in {PATH}: apt-get install python3"
            )
        network = spec.policy.network
        if not (network is None or network == "any"):
            raise EnvironmentUnavailable(
                f"{spec}: 'host' cannot cut programs off from the network: use provider: "
                "namespace or docker, or set network: any"
            )

    async def open(self) -> None:
        """Log the warning and prepare."""
        for inside in self.request.mounts:
            raise EnvironmentUnavailable(
                f"{self.request.spec}: 'host' cannot show a directory at {inside}: use provider: "
                "namespace or docker, or pass its path to the step"
            )
        self.request.log.warning(
            "it runs on this machine as the user, without a sandbox (provider 'host', LocalEnv): "
            "its programs can read and change everything that the user can",
            extra={"unsandboxed": True},
        )
        await super().open()

    async def close(self) -> None:
        """Kill running programs, and remove everything created for it."""
        try:
            await super().close()
        finally:
            if self._scratch is not None:
                remove_scratch(self._scratch)
                self._scratch = None

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        group: Group | None,
        fds: Sequence[int],
    ) -> Program:
        return await self._spawn(argv, {"PATH": PATH, **env}, self.workdir, group, fds)
