"""`docker`: opens container runners and runs steps in them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from pydantic import BaseModel

from flowengine.sdk import (
    Command,
    EnvironmentUnavailable,
    Plain,
    StepContext,
    ValidationError,
)
from flowengine.sdk.environments import (
    Capabilities,
    Provider,
    Request,
    Spec,
)
from flowengine_envs.kinds.configurations import Programs
from flowengine_envs.kinds.docker.containers import Containers
from flowengine_envs.kinds.workspace import StepFiles
from flowengine_envs.link.call_limits import DISK, OUTPUT, asked
from flowengine_envs.network.egress import leads_out
from flowengine_envs.sandboxes.docker.daemon import connect
from flowengine_envs.sandboxes.docker.gate import Gate
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.mounts import check_all
from flowengine_envs.workspaces.own_folder import make_own


class DockerProvider(Provider[Containers]):
    """Opens container runners."""

    kind = "docker"
    runs_programs = True
    sandbox = "docker"
    only_in = ("docker",)

    def config_model(self) -> type[BaseModel]:
        """Return the model of `config:`. The container's own fields come from the sandbox."""
        return Programs

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return the guarantees of a container, and those enforced from outside."""
        return sandbox.also(
            {
                "time": "the container is removed",
                "total_time": "the container is removed",
                "output": "truncated as it arrives, complete in a file in the workspace",
            },
            {"output": OUTPUT, "disk": DISK},
        )

    async def probe(self, spec: Spec) -> None:
        """Refuse any sandbox except containers."""
        if spec.provider != "docker":
            raise EnvironmentUnavailable(
                f"{spec}: the kind 'docker' runs in containers only. kind: bash runs commands in "
                f"'{spec.provider}'"
            )

    async def ensure(self, request: Request) -> Containers:
        """Prepare the image."""
        check_all(request)
        make_own(request)
        name = request.prepared or await Docker.prepare(request.spec)
        image_id = await asyncio.to_thread(lambda: str(connect().images.get(name).id))
        if not leads_out(request.spec):
            return Containers(request, image_id)
        gate = Gate(request)
        await gate.open()
        return Containers(request, image_id, gate)

    async def health_check(self, resource: Containers) -> bool:
        """Return whether the daemon responds and the allowed places are reachable."""
        if not resource.healthy:
            return False
        with suppress(EnvironmentUnavailable):
            await asyncio.to_thread(connect)
            return True
        return False

    async def release(self, resource: Containers) -> None:
        """Remove the containers that still run. The workspace stays."""
        await resource.close()

    async def run(
        self, resource: Containers, context: StepContext, command: Command
    ) -> dict[str, Plain]:
        """Run the command of a step. `sh` runs a script."""
        if command.cwd is not None:
            raise ValidationError("'docker' has no 'cwd': commands start in the workspace")
        files = StepFiles(resource, context)
        env = await files.variables(command)
        if command.script is not None:
            argv = ["sh", "-c", command.script]
        else:
            argv = [await files.argument(word) for word in command.argv or ()]
        stdin = await files.data(command.stdin)
        result = await resource.async_run(
            argv,
            env=env,
            stdin=stdin,
            timeout=asked(command.timeout),
            on_output=context.printed,
        )
        stderr = result.stderr + resource.call_limits.stopped(result.stopped, command.timeout)
        return await files.output(command, result, stderr)
