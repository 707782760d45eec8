# Shows S87, E83
"""The public contract suite, with a third-party provider and with broken ones (E10, S87)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowengine.sdk.environments import Request
from flowengine.testing.environment_conformance import CHECKS, Check, ProviderCase
from tests.execution_environment.third_party import Calculator, Calculators


def add(resource: Calculator) -> None:
    assert resource.add(2, 3) == 5


CASE = ProviderCase(Calculators, {"kind": "calculator"}, add)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
# Shows E10
def test_a_provider_of_somebody_else_conforms(check: Check) -> None:
    check(CASE)


class KeepsProcess(Calculators):
    async def release(self, resource: Calculator) -> None:
        """Forgets the process."""


class SharesObject(Calculators):
    one: Calculator | None = None

    async def ensure(self, request: Request) -> Calculator:
        if self.one is None:
            SharesObject.one = await super().ensure(request)
        return SharesObject.one  # type: ignore[return-value]


class AlwaysHealthy(Calculators):
    def health_check(self, resource: Calculator) -> bool:
        return True


class FailsOnSecondRelease(Calculators):
    async def release(self, resource: Calculator) -> None:
        if resource.process.returncode is not None:
            raise OSError("it is gone")
        await super().release(resource)


class Chatty(Calculators):
    async def ensure(self, request: Request) -> Calculator:
        print("hello")  # noqa: T201
        return await super().ensure(request)


class Blocks(Calculators):
    async def ensure(self, request: Request) -> Calculator:
        import time

        time.sleep(3)  # noqa: ASYNC251 - the check allows two seconds, without those of others
        return await super().ensure(request)


class TakesAnything(Calculators):
    def config_model(self) -> Any:
        from pydantic import create_model

        return create_model("Anything")


@pytest.mark.parametrize(
    ("broken", "check", "told"),
    [
        (KeepsProcess, "release_leaves_nothing", "left over: process"),
        (SharesObject, "owners_have_their_own", "belongs to"),
        (AlwaysHealthy, "ended_is_not_healthy", "reports that it is healthy"),
        (FailsOnSecondRelease, "released_twice_is_harmless", "it is gone"),
        (Chatty, "nothing_is_printed", "it printed 'hello"),
        (Blocks, "loop_stays_responsive", "the loop stood still"),
        (TakesAnything, "is_whole", "config takes anything"),
    ],
)
def test_the_suite_finds_what_is_broken(broken: Callable[[], Any], check: str, told: str) -> None:
    SharesObject.one = None
    by_name = {each.__name__: each for each in CHECKS}

    with pytest.raises(Exception, match=told):
        by_name[check](ProviderCase(broken, {"kind": "calculator"}, add))
