"""Diagnosis of this machine, which probes each kind in each sandbox without opening it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from flowengine.errors import FlowEngineError
from flowengine.execution_environment.resources.opening import choose
from flowengine.execution_environment.specs import providers
from flowengine.execution_environment.specs.spec import check_spec
from flowengine.sdk.errors import StepError

if TYPE_CHECKING:
    from flowengine.execution_environment.resources.opening import ManagerServices

_WHICH = re.compile(r"^(?:environment '[^']*' \([^)]*\)(?::| cannot be provided by '[^']*':) )+")


async def examine(around: ManagerServices) -> list[dict[str, Any]]:
    """Probe every kind in every sandbox, concurrently.

    Args:
        around: Clock and time limits.

    Returns:
        For each kind and sandbox, `{kind, provider, available, isolation, held, missing}`: how each
        axis is enforced, or the missing part and how to fix it.
    """
    pairs: list[tuple[str, str]] = []
    for kind in providers.kinds():
        try:
            names = providers.sandboxes_of(providers.find_provider(kind))
        except FlowEngineError:
            names = [kind]  # the probe reports the error
        pairs += [(kind, name) for name in names]
    return list(await asyncio.gather(*(_probed(*pair, around) for pair in pairs)))


async def _probed(kind: str, name: str, around: ManagerServices) -> dict[str, Any]:
    result: dict[str, Any] = {"kind": kind, "provider": name, "available": False}
    try:
        provider = providers.find_provider(kind)
        given: dict[str, Any] = {"kind": kind, "scope": "global", "config": dict(provider.sample)}
        if provider.sandbox is not None:
            given["provider"] = name
        declared = check_spec(given)
        choice = await choose(declared, around, None)
    except (FlowEngineError, StepError) as error:
        missing = _WHICH.sub("", error.message)
        hint = getattr(error, "hint", None)
        message = f"{missing}; {hint}" if hint else missing
        return {**result, "isolation": None, "held": {}, "missing": message}
    held = choice.capabilities
    result["available"] = True
    return {**result, "isolation": held.isolation, "held": dict(held.holds), "missing": None}
