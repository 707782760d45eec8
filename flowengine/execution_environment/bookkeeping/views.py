"""Public descriptions of environments: plain data, without their content."""

from __future__ import annotations

from typing import Any

from flowengine.execution_environment.bookkeeping.instances import Instance, Record


def describe(instance: Instance, now: float) -> dict[str, Any]:
    """Return the description of one opening.

    Args:
        instance: The opening.
        now: Time by the monotonic clock.

    Returns:
        Plain data, without configuration and resource.
    """
    opened = instance.opened
    limits = instance.record.declared.spec.limits.model_dump(exclude_none=True)
    defaults = opened.capabilities.defaults if opened else {}
    return {
        "id": instance.id,
        **_of_spec(instance.record),
        "state": instance.state,
        "generation": instance.generation,
        "provider": opened.choice if opened else _providers(instance.record),
        "isolation": opened.capabilities.isolation if opened else None,
        "holds": len(instance.holds),
        "holders": instance.holders,
        "waiting": len(instance.waiters),
        "age": max(0.0, now - instance.opened_at) if opened else None,
        "checked": None if instance.checked_at is None else max(0.0, now - instance.checked_at),
        "limits": {**defaults, **limits},
        "held": dict(opened.capabilities.holds) if opened else {},
        "unenforced": list(opened.unenforced) if opened else [],
        "workspace": str(instance.workspace) if instance.workspace else None,
        "error": instance.error,
    }


def describe_spec(record: Record, now: float) -> dict[str, Any]:
    """Return the description of a spec, and of its opening if there is one.

    Args:
        record: The spec.
        now: Time by the monotonic clock.

    Returns:
        Plain data, as for `describe`. Without an opening, the state is `declared`.
    """
    if record.current is not None:
        return describe(record.current, now)
    not_begun = Instance("", record, record.generation)
    return {**describe(not_begun, now), "id": None}


def _of_spec(record: Record) -> dict[str, Any]:
    declared = record.declared
    return {
        "spec_id": declared.id,
        "kind": declared.spec.kind,
        "scope": declared.spec.scope,
        "owner_id": declared.spec.owner_id,
        "resource_key": declared.resource_key,
        "on_wait": declared.on_wait,
        "approval": "none" if not declared.needs_approval else "required",
    }


def _providers(record: Record) -> str:
    return ",".join(record.declared.providers)
