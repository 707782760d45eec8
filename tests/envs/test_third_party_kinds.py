"""A kind that runs a program in a sandbox, written by what docs/extending.md says."""

from __future__ import annotations

import asyncio

import pytest

from flowengine.sdk import EnvironmentLost
from flowengine.sdk.environments import (
    Program,
    Provider,
    Request,
    Resource,
    Sandbox,
    Spec,
    awaitable,
    blocking,
)
from flowengine.testing.environment_conformance import CHECKS, Case, Check
from flowengine_envs.sandboxes.processes import has


class Calculator(Resource):
    """Adds numbers in `cat`, which is to say: it has them echoed."""

    def __init__(self, request: Request, sandbox: Sandbox, program: Program) -> None:
        super().__init__(request)
        self.sandbox = sandbox
        self.program = program
        self.line = asyncio.Lock()

    async def _add(self, a: int, b: int) -> int:
        """Return the sum of two numbers."""
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        async with self.line:
            self.program.stdin.write(f"{a + b}\n".encode())
            answer = await self.program.stdout.readline()
        if not answer:
            raise EnvironmentLost(f"{self.name}: the program has ended")
        return int(answer)

    add = blocking(_add)
    async_add = awaitable(_add)


class Calculators(Provider[Calculator]):
    """Opens calculators."""

    kind = "sandboxed_calculator"
    sandbox = "namespace"

    async def probe(self, spec: Spec) -> None:
        pass

    async def ensure(self, request: Request) -> Calculator:
        assert request.sandbox is not None
        sandbox = request.sandbox(request)
        await sandbox.open()
        try:
            program = await sandbox.start(["cat"], env={})
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise
        return Calculator(request, sandbox, program)

    def health_check(self, resource: Calculator) -> bool:
        return resource.sandbox.alive() and resource.program.returncode is None

    async def release(self, resource: Calculator) -> None:
        await resource.sandbox.close()


CASE = Case(
    Calculators,
    {"kind": "sandboxed_calculator", "provider": "namespace"},
    use=lambda resource: resource.add(2, 3),
)


@pytest.mark.skipif(not has("bwrap"), reason="no bubblewrap: apt-get install bubblewrap")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_kind_in_a_sandbox_conforms(check: Check) -> None:
    check(CASE)
