"""Specs of environments, made of what a flow file says of them: what a manager is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.graph.compiled import Plain, SecretText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.execution_environment import EnvironmentManager

_LONGEST = 400
"""Characters of a name with its arguments."""


def spec_of(
    manager: EnvironmentManager,
    given: Mapping[str, Plain],
    owner: str,
    folder: str,
    secrets: Mapping[str, Plain],
) -> dict[str, Any]:
    """Return what a manager is asked for by somebody who is no execution.

    Args:
        manager: The folders that are mounted are declared to it.
        given: What a use of a declared environment comes to.
        owner: Whose it is to be.
        folder: From where relative paths lead.
        secrets: Where the secrets of the flow come from.

    Returns:
        A spec of the scope `execution`; what people are to be asked, the manager asks.
    """
    spec = dict(given["spec"])
    spec |= {"scope": "execution", "owner_id": owner, "resource_key": name_with_args(spec)}
    spec |= filled(spec, folder, secrets)
    asked = given.get("approval", {"when": False})
    if asked.get("when", True):
        texts = [asked.get("title"), asked.get("body")]
        spec["approval"] = {"reason": " ".join(text for text in texts if isinstance(text, str))}
    for inside, each in spec.get("mounts", {}).items():
        mounted = spec_of(manager, each, owner, folder, secrets)
        spec["mounts"] = {**spec["mounts"], inside: manager.declare(mounted)["id"]}
    return spec


def filled(spec: Mapping[str, Plain], folder: str, secrets: Mapping[str, Plain]) -> dict[str, Any]:
    """Return what a spec has beside what a flow file says."""
    config = _literal(spec.get("config", {}))
    return {"secrets": dict(secrets), "config": config, "folder": folder}


def name_with_args(spec: Mapping[str, Any]) -> str:
    """Return the name of an instance: those with other arguments are others."""
    name = str(spec["resource_key"])
    if not spec.get("args"):
        return name
    given = ", ".join(f"{key}={value!r}" for key, value in sorted(spec["args"].items()))
    return f"{name}({given})"[:_LONGEST]


def _literal(value: Plain) -> Plain:
    """Return data in which no text can be taken for a reference to a secret."""
    if isinstance(value, str) and value.startswith("secret:"):
        return SecretText([value])
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return value
