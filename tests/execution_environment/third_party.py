"""A provider as a third party would write it: a calculator in a separate process."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from flowengine.sdk import EnvironmentLost, EnvironmentUnavailable
from flowengine.sdk.environments import (
    VARIABLE,
    Provider,
    Request,
    Resource,
    Spec,
    both_forms,
)

if TYPE_CHECKING:
    from asyncio.subprocess import Process


class Calculator(Resource):
    """Adds numbers with the help of `cat`, which merely echoes them."""

    def __init__(self, request: Request, process: Process) -> None:
        super().__init__(request)
        self.process = process
        self.line = asyncio.Lock()

    async def _add(self, a: int, b: int) -> int:
        """Return the sum of two numbers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        async with self.line:
            self.process.stdin.write(f"{a + b}\n".encode())
            answer = await self.process.stdout.readline()
        if not answer:
            raise EnvironmentLost(f"{self.name}: the process has ended")
        return int(answer)

    add, async_add = both_forms(_add)


class Calculators(Provider[Calculator]):
    """Opens calculators."""

    kind = "calculator"

    async def probe(self, spec: Spec) -> None:
        if shutil.which("cat") is None:
            raise EnvironmentUnavailable("calculators need cat; install coreutils")

    async def ensure(self, request: Request) -> Calculator:
        process = await asyncio.create_subprocess_exec(
            "/bin/cat",
            env={VARIABLE: request.mark},
            cwd=request.workspace,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        request.trace(pid=process.pid)
        return Calculator(request, process)

    def health_check(self, resource: Calculator) -> bool:
        return resource.process.returncode is None

    async def release(self, resource: Calculator) -> None:
        if resource.process.returncode is None:
            resource.process.kill()
        await resource.process.wait()
