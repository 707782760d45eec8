"""`host`: processes of this machine, as the user, without isolation.

Taken only where a spec says `provider: host`, and warned of each time it opens. What is held is
held against mistakes, not against code that means harm: the programs can read and change whatever
the user can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import VARIABLE, Axis, Capabilities, Program, Request, Spec
from flowengine.sdk.scratch import make_scratch, remove_scratch
from flowengine_envs.link.call_limits import MEMORY
from flowengine_envs.sandboxes.cgroups import Group
from flowengine_envs.sandboxes.processes import PATH, Processes, defaults, has, held_by_group


class Host(Processes):
    """Programs on this machine."""

    name: ClassVar[str] = "host"

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._scratch: Path | None = None

    @property
    def scratch(self) -> str:
        """A folder of its own among the temporary ones, made when it is first asked for."""
        if self._scratch is None:
            self._scratch = make_scratch()
        return str(self._scratch)

    @property
    def workdir(self) -> str:
        """The workspace: programs see it where it is."""
        return str(self.workspace)

    @property
    def home(self) -> str:
        """The home folder: programs see it where it is."""
        return str(self.request.home)

    @property
    def variables(self) -> Mapping[str, str]:
        """The mark by which programs are found when the engine has died."""
        return {VARIABLE: self.request.mark}

    @classmethod
    def capabilities(cls) -> Capabilities:
        """Return what is held of programs that run as the user: limits, and what they are given."""
        holds: dict[Axis, str] = {
            "variables": "only declared ones are passed on",
            "disk": "size of each file (RLIMIT_FSIZE); the workspace is watched",
            **held_by_group(),
        }
        return Capabilities("none", holds, defaults(holds))

    @classmethod
    async def probe(cls, spec: Spec) -> None:
        """Refuse what cannot be held without isolation, and look for Python."""
        if not has("python3"):
            raise EnvironmentUnavailable(
                f"{spec}: this machine has no python3 in {PATH}: apt-get install python3"
            )
        network = spec.policy.network
        if not (network is None or network == "any"):
            raise EnvironmentUnavailable(
                f"{spec}: 'host' cannot cut programs off from the network; use provider: "
                "namespace or docker, or say network: any"
            )

    async def open(self) -> None:
        """Warn, and make ready."""
        for inside in self.request.mounts:
            raise EnvironmentUnavailable(
                f"{self.request.spec}: 'host' cannot show a folder at {inside}; use provider: "
                "namespace or docker, or pass the folder's path to the step"
            )
        self.request.log.warning(
            "it runs on this machine as the user, without a sandbox (provider 'host', LocalEnv): "
            "its programs can read and change whatever the user can"
        )
        await super().open()

    async def close(self) -> None:
        """Kill what runs, and take away what was made for it."""
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

    def resource_limits(self) -> Mapping[str, int]:
        """Return what the system holds of each process by itself."""
        limits = self.request.limits
        held = {"CORE": 0, "DATA": limits.memory or MEMORY}
        if limits.disk is not None:
            held["FSIZE"] = limits.disk
        return held
