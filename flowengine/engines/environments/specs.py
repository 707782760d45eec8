"""Conversion of environment declarations in flow files into specs for the manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.graph.compiled import Plain, SecretText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.execution_environment import EnvironmentManager

_LONGEST = 400
"""Maximum length of a name with its arguments."""


def spec_of(
    manager: EnvironmentManager,
    given: Mapping[str, Plain],
    owner: str,
    folder: str,
    secrets: Mapping[str, Plain],
) -> dict[str, Any]:
    """Return the spec of an environment that is not used by an execution.

    Args:
        manager: The manager, which registers the mounted directories.
        given: The evaluated use of a declared environment.
        owner: The future owner.
        folder: Base directory of relative paths.
        secrets: Sources of the flow's secrets.

    Returns:
        A spec of the scope `execution`. The manager requests the approvals that it requires.
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
    """Return the parts of a spec that do not come from a flow file."""
    config = _literal(spec.get("config", {}))
    return {"secrets": dict(secrets), "config": config, "folder": folder}


def name_with_args(spec: Mapping[str, Any]) -> str:
    """Return the name of an instance, which includes its arguments."""
    name = str(spec["resource_key"])
    if not spec.get("args"):
        return name
    given = ", ".join(f"{key}={value!r}" for key, value in sorted(spec["args"].items()))
    return f"{name}({given})"[:_LONGEST]


def _literal(value: Plain) -> Plain:
    """Return data in which no text can be mistaken for a reference to a secret."""
    if isinstance(value, str) and value.startswith("secret:"):
        return SecretText([value])
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return value
